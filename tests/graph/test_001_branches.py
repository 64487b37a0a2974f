"""Part 001 of the checklists: branches and loops."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.effects import control_edges, data_edges
from tensorexpr.graph.nodes.inline import inline
from tensorexpr.graph.nodes.ir import Assign, Cond, Read, While
from tensorexpr.graph.nodes.prune import prune
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import compile_graph, lowered_graph

X = np.arange(4, dtype=np.float32)


def total(x):
    return te.compute((), lambda: te.sum(lambda i: x[i], x.shape[0]))


def runs(function, *arguments):
    """The results of a function compiled, strictly, and strictly after inlining and lowering."""
    graph = function.graph(*arguments)
    values = [np.asarray(a) for a in arguments]
    forms = (graph, inline(graph), prune(inline(graph)), lowered_graph(graph))
    return [compile_graph(graph)(values), *(run_strict(form, values) for form in forms)]


def test_001_35_only_the_branch_taken_runs(capsys):
    v = te.Variable(np.float32(0), name="v")

    @te.function
    def f(flag, x):
        def then():
            v.assign_add(1.0)
            te.print("then")
            return x

        def otherwise():
            te.print("otherwise")
            return te.compute((4,), lambda i: x[te.cast(x[3], "int64") + i])

        return te.cond(flag, then, otherwise)

    for run in (f, f.strict):
        assert run(True, X).tolist() == X.tolist()
        assert capsys.readouterr().out == "then\n"
        with pytest.raises(IndexError):
            run(False, X)
        capsys.readouterr()
    assert v.value == 2.0


def test_001_36_true_gives_one_false_gives_two_in_every_form():
    f = te.function(lambda flag: te.cond(flag, lambda x: x + 1, lambda x: x + 2, np.int64(0)))
    g = te.function(lambda flag: f(flag))
    for flag, wanted in ((np.True_, 1), (np.False_, 2)):
        assert [[int(x) for x in result] for result in runs(g, flag)] == [[wanted]] * 5


def test_001_37_an_input_used_only_by_the_branch_not_taken_is_not_needed():
    @te.function
    def f(flag, x, start):
        far = te.compute((4,), lambda i: x[start[()] + i])
        other = far + 1.0
        return te.cond(flag, lambda: x, lambda: other + far), te.cond(flag, lambda: x + 1.0, lambda: far)

    for run in (f, f.strict):
        assert run(np.True_, X, np.int64(9))[1].tolist() == [1, 2, 3, 4]
        with pytest.raises(IndexError):
            run(np.False_, X, np.int64(9))
        assert run(np.False_, X, np.int64(0))[0].tolist() == [1, 3, 5, 7]


def test_001_38_an_unused_cond_goes_away_unless_a_branch_has_a_side_effect():
    v = te.Variable(np.float32(0), name="v")

    def unused(effect):
        @te.function
        def f(flag, x):
            def then():
                if effect:
                    v.assign_add(1.0)
                return x + 1.0

            te.cond(flag, then, lambda: x)
            return x

        return lowered_graph(f.graph(np.True_, X)), f

    assert unused(False)[0].nodes == ()
    graph, f = unused(True)
    assert [type(n) for n in graph.nodes] == [Cond]
    f(np.True_, X)
    f(np.False_, X)
    assert v.value == 1.0


def test_001_39_the_gradient_of_a_cond_asks_for_nothing_of_the_branch_not_taken():
    @te.function
    def f(flag, x, y):
        def root():
            return te.compute((), lambda: te.sum(lambda i: te.sqrt(x[i]) * y[i], 4))

        loss = te.cond(flag, root, lambda: total(x * 3.0))
        return te.gradients(loss, [x, y])

    for run in (f, f.strict):
        x_bar, y_bar = run(np.False_, -X, X)
        assert x_bar.tolist() == [3, 3, 3, 3] and y_bar.tolist() == [0, 0, 0, 0]
        x_bar, y_bar = run(np.True_, X + 1, X)
        np.testing.assert_allclose(x_bar, X / (2 * np.sqrt(X + 1)), rtol=1e-6)
        np.testing.assert_allclose(y_bar, np.sqrt(X + 1), rtol=1e-6)


def test_001_40_the_side_effects_of_a_loop_happen_once_an_iteration_in_order(capsys):
    v = te.Variable(np.int64(0), name="v")

    @te.function
    def f(n):
        def body(i):
            te.print("{}", i)
            v.assign_add(i)
            return i + 1

        return te.while_loop(lambda i: i < n, body, np.int64(0))

    for run in (f, f.strict):
        v.assign(0)
        assert run(np.int64(4)) == 4
        assert capsys.readouterr().out == "0\n1\n2\n3\n" and v.value == 6
        assert run(np.int64(0)) == 0
        assert capsys.readouterr().out == "" and v.value == 6


def test_001_41_cond_and_while_stay_single_operations_and_are_lowered_late():
    @te.function
    def f(flag, x):
        y = te.cond(flag, lambda: x + 1.0, lambda: x)
        _, z = te.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (np.int64(0), y))
        return z

    graph = f.graph(np.True_, X)
    for form in (graph, inline(graph), prune(inline(graph)), lowered_graph(graph)):
        assert sum(isinstance(n, Cond) for n in form.nodes) == 1
        assert sum(isinstance(n, While) for n in form.nodes) == 1
    assert all(result[0].tolist() == ((X + 1) * 8).tolist() for result in runs(f, np.True_, X))


def test_001_42_operations_of_a_loop_are_ordered_by_data_and_resources_alone():
    a, b = te.Variable(X, name="a"), te.Variable(X, name="b")

    @te.function
    def f(n):
        def body(i, x, y):
            a.assign_add(x)
            b.assign_add(y)
            return i + 1, x * 2.0, y + 1.0

        return te.while_loop(lambda i, x, y: i < n, body, (np.int64(0), X, X))

    loop = next(n for n in f.graph(np.int64(2)).nodes if isinstance(n, While))
    edges, data = control_edges(loop.body), data_edges(loop.body)
    of = {n.id: n.variable.name for n in loop.body.nodes if isinstance(n, (Read, Assign))}
    assert all(of[s] == of[t] for t, sources in edges.items() for s in sources)
    # The next x depends on nothing of y, and neither on an update.
    x_next = loop.body.producers[loop.body.outputs[1]].id
    assert data[x_next] == () and edges[x_next] == ()
