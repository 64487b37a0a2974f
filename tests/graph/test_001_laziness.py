"""Part 001 of the checklists: laziness, pruning, and the order of side effects."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.effects import control_edges, control_outputs, data_edges
from tensorexpr.graph.nodes.inline import inline
from tensorexpr.graph.nodes.ir import Assign, Compute, Read
from tensorexpr.graph.nodes.prune import prune
from tensorexpr.graph.run.compile import lowered_graph

X = np.arange(4, dtype=np.float32)
FAR = np.int64(7)


def slice_at(x, start, length=2):
    return te.compute((length,), lambda i: x[start[()] + i], name="slice")


def both(function, *arguments):
    """Runs a function compiled and strictly, from the same state; asserts equal results, errors and state."""
    variables = [v for v in {id(v): v for v in _variables(function, arguments)}.values()]
    before = [v.value for v in variables]
    outcomes = []
    for run in (function, function.strict):
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        try:
            outcomes.append((run(*arguments), None, [v.value for v in variables]))
        except te.TensorExprError as error:
            outcomes.append((None, type(error), [v.value for v in variables]))
    (a, failed, after), (b, other, strict) = outcomes
    assert failed is other
    np.testing.assert_equal(_plain(a), _plain(b))
    np.testing.assert_equal(after, strict)
    return a, failed


def _variables(function, arguments):
    from tensorexpr.graph.nodes.effects import graph_effects  # noqa: PLC0415

    effects = graph_effects(function.graph(*arguments))
    return [*effects.reads, *effects.writes]


def _plain(tree):
    return [_plain(item) for item in tree] if isinstance(tree, (tuple, list)) else np.asarray(tree).tolist()


def counted():
    counter = te.Variable(np.float32(0), name="counter")

    def body(x, start):
        invalid = slice_at(x, start)
        valid = te.compute((2,), lambda i: x[i] * 2.0)
        counter.assign_add(1.0)
        return invalid, valid

    return counter, body


def test_001_01_an_invalid_slice_that_nobody_uses_does_no_harm_and_the_counter_is_bumped():
    counter, body = counted()
    f = te.function(body)

    @te.function
    def caller(x, start):
        _, valid = f(x, start)
        return valid

    assert caller(X, FAR).tolist() == [0.0, 2.0]
    assert counter.value == 1.0
    assert caller.strict(X, FAR).tolist() == [0.0, 2.0]
    assert counter.value == 2.0


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("start", [0, 7])
def test_001_02_with_and_without_the_decorator_the_same_values_states_and_errors(used, start):
    outcomes = []
    for decorate in (te.function, lambda body: body):
        counter, body = counted()
        inner = decorate(body)

        @te.function
        def caller(x, start, inner=inner):
            return inner(x, start)[used]

        try:
            outcomes.append((caller(X, np.int64(start)).tolist(), counter.value.tolist(), None))
        except IndexError as error:
            outcomes.append((None, counter.value.tolist(), str(error).splitlines()[0].partition(":")[2]))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0][2] is not None) == (used == 0 and start == 7)


def test_001_03_fetching_the_invalid_slice_raises_in_both_forms():
    for decorate in (te.function, lambda body: body):
        counter, body = counted()
        inner = decorate(body)
        caller = te.function(lambda x, start, inner=inner: inner(x, start)[0])
        for run in (caller, caller.strict):
            with pytest.raises(IndexError, match="got 7"):
                run(X, FAR)
        assert counter.value == 0.0  # a run that fails changes nothing


def test_001_04_what_only_an_unused_output_needs_is_not_computed():
    @te.function
    def f(x):
        return te.compute((), lambda: te.sum(lambda i: te.exp(x[i]), 4)), te.compute((4,), lambda i: x[i] + 1.0)

    whole, part = te.function(lambda x: f(x)), te.function(lambda x: f(x)[1])
    assert "exp" in str(whole.compiled(X).functions[0].program)
    step = part.compiled(X)
    assert "exp" not in str(step.functions[0].program)
    assert step.kernels == 1
    assert len([n for n in step.graph.nodes if isinstance(n, Compute)]) == 1


def test_001_05_a_variable_read_only_for_an_unused_output_is_not_read():
    v = te.Variable(X, name="v")
    f = te.function(lambda x: (x + v.read(), x * 2.0))
    caller = te.function(lambda x: f(x)[1])
    assert not [n for n in lowered_graph(caller.graph(X)).nodes if isinstance(n, Read)]
    v.delete()
    assert caller(X).tolist() == [0, 2, 4, 6]


def test_001_06_an_input_that_no_used_output_needs_is_not_evaluated():
    f = te.function(lambda a, x: (a + 0.0, x + 1.0))
    caller = te.function(lambda x, start: f(slice_at(x, start), x)[1])
    result, failed = both(caller, X, FAR)
    assert failed is None and result.tolist() == [1, 2, 3, 4]


def test_001_07_the_same_through_three_nested_calls():
    inner = te.function(lambda a, x: (a, x * 2.0))
    middle = te.function(lambda a, x: inner(a, x))
    outer = te.function(lambda a, x: middle(a, x))
    caller = te.function(lambda x, start: outer(slice_at(x, start), x)[1])
    result, failed = both(caller, X, FAR)
    assert failed is None and result.tolist() == [0, 2, 4, 6]


def test_001_08_a_function_without_data_outputs_runs_exactly_once_a_run(capsys):
    v = te.Variable(np.int64(0), name="v")

    @te.function
    def bump():
        v.assign_add(1)
        te.print("bump")

    caller = te.function(lambda x: (bump(), x)[1])
    for count in (1, 2):
        caller(X)
        assert v.value == count
        assert capsys.readouterr().out == "bump\n"


def test_001_09_an_operation_of_the_body_depends_only_on_the_inputs_that_it_uses():
    f = te.function(lambda a, b: (a + 1.0, b + 2.0))

    @te.function
    def caller(x, y):
        return f(te.compute((4,), lambda i: te.exp(x[i]), name="one"), te.compute((4,), lambda i: te.log(y[i]), name="two"))

    graph = inline(caller.graph(X, X))
    edges, control = data_edges(graph), control_edges(graph)
    first, second = (graph.producers[name].id for name in graph.outputs)
    assert [edges[first], edges[second]] == [("one",), ("two",)]
    assert control[first] == control[second] == ()


def test_001_10_a_consumer_of_one_output_does_not_depend_on_the_others():
    f = te.function(lambda a: (a + 1.0, a * 2.0))
    caller = te.function(lambda x: f(x)[0] - 1.0)
    graph = inline(caller.graph(X))
    last = graph.producers[graph.outputs[0]]
    assert len(data_edges(graph)[last.id]) == 1
    assert len(prune(graph).nodes) == 2


def test_001_11_an_operation_of_the_body_does_not_wait_for_an_update_of_a_variable_that_it_does_not_use():
    a, b = te.Variable(X, name="a"), te.Variable(X, name="b")
    f = te.function(lambda x: x + b.read())

    @te.function
    def caller(x):
        a.assign_add(x)
        return f(x)

    graph = inline(caller.graph(X))
    update = next(n.id for n in graph.nodes if isinstance(n, Assign))
    read = next(n.id for n in graph.nodes if isinstance(n, Read) and n.variable is b)
    assert update not in control_edges(graph)[read]
    assert all(update not in waits for waits in control_edges(graph).values())


# -------------------------------------------------------------------------------------- the order of side effects


def test_001_12_a_read_after_an_assignment_sees_the_new_value():
    a = te.Variable(X, name="a")

    @te.function
    def f():
        a.assign_add(np.float32(1))
        return a.read()

    assert f().tolist() == [1, 2, 3, 4]
    assert f.strict().tolist() == [2, 3, 4, 5]
    assert a.value.tolist() == [2, 3, 4, 5]


def test_001_13_read_assign_read_gives_old_then_new():
    a = te.Variable(np.float32(1), name="a")

    @te.function
    def f(x):
        old = a.read()
        a.assign(x)
        return old, a.read()

    assert [float(v) for v in f(np.float32(5))] == [1, 5]
    assert [float(v) for v in f.strict(np.float32(6))] == [5, 6]


def test_001_14_operations_on_different_variables_have_no_edge_between_them():
    a, b = te.Variable(X, name="a"), te.Variable(X, name="b")

    @te.function
    def f(x):
        a.assign(x)
        b.assign(x)
        return a.read(), b.read()

    graph = f.graph(X)
    edges = control_edges(graph)
    of = {n.id: n.variable for n in graph.nodes if isinstance(n, (Read, Assign))}
    assert any(edges.values())
    assert all(of[source] is of[target] for target, sources in edges.items() for source in sources)


def test_001_15_all_stateful_operations_run_in_program_order_in_every_run(capsys):
    a = te.Variable(np.int64(0), name="a")
    rng = te.Generator(3)

    @te.function
    def f():
        te.print("one {}", a)
        first = rng.uniform((2,))
        a.assign_add(1)
        te.print("two {}", a)
        te.print("three")
        return first, rng.uniform((2,))

    seen = []
    for run in (f, f, f.strict):
        seen.append(np.concatenate(run()))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line for k in range(3) for line in (f"one {k}", f"two {k + 1}", "three")]
    again = te.Generator(3)
    expected = [np.concatenate([again.uniform((2,)), again.uniform((2,))]) for _ in range(3)]
    np.testing.assert_array_equal(seen, expected)


def test_001_16_a_read_is_no_side_effect():
    a = te.Variable(X, name="a")

    @te.function
    def f(x):
        a.read()
        a.assign(x)
        return x

    graph = f.graph(X)
    assert control_outputs(graph) == ("assign_a",)
    assert [type(n) for n in prune(graph).nodes] == [Assign]


def test_001_17_two_reads_without_a_write_between_have_no_edge():
    a = te.Variable(X, name="a")
    graph = te.function(lambda: (a.read() + 1.0, a.read() + 2.0)).graph()
    reads = [n.id for n in graph.nodes if isinstance(n, Read)]
    assert len(reads) == 2
    assert all(control_edges(graph)[read] == () for read in reads)


def test_001_18_side_effects_before_a_call_are_seen_by_the_body():
    a = te.Variable(X, name="a")
    f = te.function(lambda: a.read() * 2.0)

    @te.function
    def caller(x):
        a.assign(x)
        return f()

    assert caller(X + 1).tolist() == [2, 4, 6, 8]
    graph = inline(caller.graph(X))
    read = next(n.id for n in graph.nodes if isinstance(n, Read))
    assert control_edges(graph)[read] == ("assign_a",)


def test_001_19_side_effects_in_a_body_are_seen_after_the_call_through_three_levels():
    a = te.Variable(X, name="a")

    @te.function
    def inner(x):
        a.assign(x)

    middle = te.function(lambda x: inner(x))
    outer = te.function(lambda x: middle(x))

    @te.function
    def caller(x):
        before = a.read()
        outer(x)
        return before, a.read()

    result, _ = both(caller, X + 5)
    assert result[0].tolist() == [0, 1, 2, 3] and result[1].tolist() == [5, 6, 7, 8]


def test_001_20_one_variable_passed_twice_or_passed_and_captured_keeps_program_order():
    a = te.Variable(np.float32(1), name="a")

    @te.function
    def f(v, w):
        v.assign(v + 1.0)
        w.assign(w * 10.0)
        a.assign(a - 1.0)
        return v.read(), w.read()

    caller = te.function(lambda: f(a, a))
    result, _ = both(caller)
    assert [float(x) for x in result] == [19, 19]
    other = te.Variable(np.float32(7), name="other")
    both(te.function(lambda: f(other, a)))


def test_001_21_a_function_that_only_reads_does_not_hold_back_a_later_reader():
    a = te.Variable(X, name="a")
    f = te.function(lambda: a.read() * 2.0)
    graph = te.function(lambda: (f(), a.read())).graph()
    assert all(waits == () for waits in control_edges(graph).values())
