"""Part 001 of the checklists: inlining and placement, and what functions refuse."""

import io
from contextlib import redirect_stdout

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.effects import control_edges, control_outputs
from tensorexpr.graph.nodes.inline import inline, kept_calls
from tensorexpr.graph.nodes.ir import Assign, Call, Compute, Print, Read, print_graph
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import compile_graph, lowered_graph
from tensorexpr.graph.run.runtime import Brings

X = np.arange(4, dtype=np.float32)


def total(x):
    return te.compute((), lambda: te.sum(lambda i: x[i], x.shape[0]))


def three_levels():
    v = te.Variable(np.float32(1), name="v")

    @te.function
    def inner(x):
        v.assign(v * 2.0)
        return x + v, x - 1.0

    @te.function
    def middle(x):
        a, b = inner(x)
        c, _ = inner(b)
        return a * c

    return v, te.function(lambda x: middle(x) + middle(x * 2.0))


def canonical(graph):
    """The graph's text with names in order of their first appearance."""
    import re  # noqa: PLC0415

    names = {}
    words = {n for node in graph.nodes for n in node.names} | {i.name for i in graph.inputs} | {c.name for c in graph.constants}
    words |= {node.id for node in graph.nodes}
    return re.sub(r"\w+", lambda m: names.setdefault(m[0], f"n{len(names)}") if m[0] in words else m[0], print_graph(graph))


def test_001_22_after_inlining_no_call_is_left_and_results_are_those_of_the_strict_interpreter():
    v, f = three_levels()
    graph = f.graph(X)
    assert any(isinstance(n, Call) for n in graph.nodes)
    flat = inline(graph)
    assert not any(isinstance(n, Call) for n in flat.nodes)
    results = []
    for run in (lambda: run_strict(graph, [X]), lambda: run_strict(flat, [X]), lambda: compile_graph(graph)([X])):
        v.assign(1.0)
        results.append((run()[0].tolist(), float(v.value)))
    assert results[0] == results[1] == results[2]
    assert results[0][1] == 16.0


def test_001_23_a_call_without_incoming_control_edges_adds_no_gate():
    _, f = three_levels()
    flat = inline(f.graph(X))
    assert all(node.after == () for node in flat.nodes)
    pure = te.function(lambda x: te.function(lambda x: x + 1.0)(x))
    assert [control_edges(inline(pure.graph(X)))[n.id] for n in inline(pure.graph(X)).nodes] == [()]


def gated():
    a, b = te.Variable(X, name="a"), te.Variable(X, name="b")

    @te.function
    def body(x):
        y = x * 2.0
        b.assign(y)
        return y + 1.0

    @te.function
    def caller(x):
        first = a.assign(x)
        with te.control_dependencies([first]):
            y = body(x)
        with te.control_dependencies([y]):
            te.print("done")
        return y

    return caller


def test_001_24_every_operation_of_a_body_comes_after_the_incoming_edges_of_its_call():
    graph = gated().graph(X)
    call = next(n for n in graph.nodes if isinstance(n, Call))
    assert call.after == ("assign_a",)
    flat = inline(graph)
    body = [n for n in flat.nodes if isinstance(n, Compute) or (isinstance(n, Assign) and n.variable.name == "b")]
    assert len(body) == 3
    assert all("assign_a" in control_edges(flat)[n.id] for n in body)


def test_001_25_what_comes_after_a_call_comes_after_its_side_effects_and_nothing_else_of_it():
    flat = inline(gated().graph(X))
    printed = next(n for n in flat.nodes if isinstance(n, Print))
    assert printed.after == ("assign_b",)
    # Of a body without effects nothing is waited for, only what the call itself waited for.
    a = te.Variable(X, name="a")
    body = te.function(lambda x: x + 1.0)

    @te.function
    def caller(x):
        with te.control_dependencies([a.assign(x)]):
            y = body(x)
        with te.control_dependencies([y]):
            te.print("done")
        return y

    printed = next(n for n in inline(caller.graph(X)).nodes if isinstance(n, Print))
    assert printed.after == ("assign_a",)


def test_001_25_bad_control_dependencies_are_refused():
    with pytest.raises(te.ArgumentError, match="expected operations of the function that is traced, got 'x'"):
        te.function(lambda x: [x for _ in [te.control_dependencies(["x"]).__enter__()]]).graph(X)


def test_001_26_a_side_effect_is_never_lost_when_its_function_is_inlined():
    v = te.Variable(np.float32(0), name="v")

    @te.function
    def f(x):
        v.assign_add(1.0)
        return x * 2.0

    caller = te.function(lambda x: (f(x), x)[1])
    graph = lowered_graph(caller.graph(X))
    assert control_outputs(graph) != ()
    assert [type(n) for n in graph.nodes] == [Read, Compute, Assign]
    caller(X)
    assert v.value == 1.0


def test_001_27_everything_on_the_control_outputs_runs_at_top_level(capsys):
    v = te.Variable(np.float32(0), name="v")

    @te.function
    def f(x):
        v.assign_add(1.0)
        te.print("here")
        x * 2.0
        return x

    assert control_outputs(f.graph(X)) == ("assign_v", "print")
    f(X)
    assert v.value == 1.0 and capsys.readouterr().out == "here\n"


def test_001_28_inner_first_and_outer_first_give_the_same_graph_up_to_names():
    _, f = three_levels()
    graph = f.graph(X)
    a, b = inline(graph), inline(graph, inner_first=True)
    assert canonical(a) == canonical(b)
    assert len(a.nodes) == len(b.nodes) > 10


def test_001_29_a_function_that_may_not_be_inlined_stays_a_call_and_says_why():
    v = te.Variable(np.float32(0), name="v")

    @te.function(inline=False)
    def f(x):
        v.assign_add(1.0)
        return x * 2.0

    caller = te.function(lambda x: f(x) + 1.0)
    flat = inline(caller.graph(X))
    assert kept_calls(flat) == {"f": "marked inline=False"} or list(kept_calls(flat).values()) == ["marked inline=False"]
    step = caller.compiled(X)
    assert list(step.kept.values()) == ["marked inline=False"]
    assert caller(X).tolist() == [1, 3, 5, 7] and v.value == 1.0
    # Results of a kept call that nothing uses are not computed either.
    other = te.function(inline=False)(lambda x, y: (x + 1.0, te.compute((1,), lambda i: x[te.cast(y[()], "int64") + i])))
    assert te.function(lambda x, y: other(x, y)[0])(X, np.int64(9)).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("unused", ["read", "assign", "print", "check", "slice", "draw"])
def test_001_30_one_rule_for_what_is_pruned_at_top_level_and_in_functions(unused):
    v, rng = te.Variable(X, name="v"), te.Generator(1)

    def body(x):
        match unused:
            case "read":
                v.read()
            case "assign":
                v.assign(x)
            case "print":
                te.print("x")
            case "check":
                te.check(total(x) > 0 if False else te.compute((), lambda: x[0] < 1.0), "small")
            case "slice":
                te.compute((1,), lambda i: x[te.cast(x[3], "int64") + i + 1])
            case "draw":
                rng.uniform((2,))
        return x + 1.0

    at_top = lowered_graph(te.function(body).graph(X))
    inner = te.function(body)
    inside = lowered_graph(te.function(lambda x: inner(x)).graph(X))
    assert [type(n) for n in at_top.nodes] == [type(n) for n in inside.nodes]
    kept = {"assign": 2, "print": 2, "check": 3, "draw": 4}
    assert len(at_top.nodes) == kept.get(unused, 1)


# --------------------------------------------------------------------------------------------------------- placement


def placed():
    @te.function
    def f(x):
        with te.device("cpu"):
            a = te.compute((4,), lambda i: x[i] + 1.0, name="own")
        return te.compute((4,), lambda i: a[i] * 2.0, name="free")

    @te.function
    def caller(x):
        with te.device("cuda"):
            return f(x)

    return caller


def test_001_32_a_body_operation_with_a_device_of_its_own_keeps_it():
    graph = inline(placed().graph(X))
    assert {n.id: n.device for n in graph.nodes}["own"] == "cpu"


def test_001_33_a_body_operation_without_a_device_goes_where_the_caller_was_put():
    graph = inline(placed().graph(X))
    assert {n.id: n.device for n in graph.nodes}["free"] == "cuda"
    # Nobody named a place: it is left to where the program is run.
    free = inline(te.function(lambda x: te.function(lambda x: x + 1.0)(x)).graph(X))
    assert [n.device for n in free.nodes] == [None]
    with pytest.raises(te.TargetError, match="expected a target, one of cpu, cuda, got 'tpu'"), te.device("tpu"):
        pass


def test_001_34_one_function_may_span_devices_after_inlining(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    pytest.importorskip("tensorexpr.codegen.cuda.host")
    from tensorexpr.codegen.cuda.host import compiler  # noqa: PLC0415

    if compiler() is None:
        pytest.skip("needs a C++ compiler")
    v = te.Variable(X, name="v")

    @te.function
    def f(x):
        with te.device("cuda"):
            y = te.compute((4,), lambda i: x[i] * 3.0)
            v.assign(v * y)
        with te.device("cpu"):
            z = te.compute((4,), lambda i: y[i] + 1.0)
        return z

    step = f.compiled(X)
    assert sorted(type(function).__name__ for function in step.functions) == ["CompiledFunction", "GpuFunction"]
    assert f(X).tolist() == [1, 4, 7, 10]
    assert v.value.tolist() == [0, 3, 12, 27]
    v.assign(X)
    assert f.strict(X).tolist() == [1, 4, 7, 10] and v.value.tolist() == [0, 3, 12, 27]


def test_a_value_is_brought_to_another_place_once_a_run(monkeypatch):
    """GPU, CPU, GPU, and a branch; gradients and an update across them, as on the CPU alone."""
    from tensorexpr.codegen.cuda.host import compiler  # noqa: PLC0415

    if compiler() is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    v = te.Variable(X, name="v")

    def function(first, second):
        @te.function
        def f(x):
            with te.device(first):
                a, b = (te.compute((4,), lambda i, k=k: x[i] * v.read()[i] + k) for k in (1.0, 2.0))
            with te.device(second):
                c = te.compute((4,), lambda i: a[i] * b[i] * x[i])
            te.print("{}", c)
            with te.device(first):
                d = te.compute((), lambda: te.sum(lambda i: c[i] * a[i] * x[i], 4))
            with te.device(second):
                e = te.compute((4,), lambda i: c[i] + b[i])
            (slope,) = te.gradients(d, [v])
            v.assign(v - 0.25 * slope)
            return d, te.cond(d > 0, lambda: e, lambda: c)

        return f

    spread, alone = function("cuda", "cpu"), function(None, None)
    step = spread.compiled(X)
    brought = [(i.device, source) for i in step.plan.instructions if isinstance(i, Brings) for source, _ in i.pairs]
    assert len(brought) == len(set(brought)) and {device for device, _ in brought} == {"cpu", "cuda"}
    found = [np.asarray(a) for a in spread(X)]
    moved = v.value
    v.assign(X)
    for a, b in zip(found, alone(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(moved, v.value, rtol=1e-6)
    assert not any(isinstance(i, Brings) for i in alone.compiled(X).plan.instructions)


# ------------------------------------------------------------------------------------------------------- bad input


def test_branches_of_different_types_are_refused():
    with pytest.raises(te.DefinitionError, match=r"te\.cond: expected both ways to give results of one type, got f32\[4\] and f32"):
        te.function(lambda flag, x: te.cond(flag, lambda: x, lambda: total(x))).graph(np.True_, X)
    with pytest.raises(te.DefinitionError, match=r"te\.cond: expected both ways to give results of one form"):
        te.function(lambda flag, x: te.cond(flag, lambda: x, lambda: None)).graph(np.True_, X)
    with pytest.raises(te.ArgumentError, match=r"te\.cond: expected a scalar to decide by, got f32\[4\]"):
        te.function(lambda x: te.cond(x, lambda: x, lambda: x)).graph(X)


def test_a_loop_whose_body_changes_the_state_is_refused():
    with pytest.raises(te.DefinitionError, match=r"te\.while_loop: expected the body to give a state of \(i64\), got \(f32\)"):
        te.function(lambda x: te.while_loop(lambda i: i < 3, lambda i: total(x), np.int64(0))).graph(X)
    with pytest.raises(te.DefinitionError, match=r"te\.while_loop: expected the condition to give one scalar"):
        te.function(lambda: te.while_loop(lambda i: (i, i), lambda i: i, np.int64(0))).graph()


def test_a_cycle_of_calls_names_the_functions():
    @te.function
    def ping(x):
        return pong(x)

    @te.function
    def pong(x):
        return ping(x)

    with pytest.raises(te.DefinitionError, match="ping: expected calls that come to an end, got a cycle: ping -> pong -> ping"):
        ping(X)

    @te.function
    def deeper(x, *, n):
        return deeper(x, n=n + 1)

    with pytest.raises(te.DefinitionError, match="deeper: expected calls that come to an end"):
        deeper(X, n=0)

    @te.function
    def power(x, *, n):
        return x if n == 0 else x * power(x, n=n - 1)

    assert power(X, n=3).tolist() == (X**4).tolist()


def test_a_tensor_of_another_function_is_refused():
    kept = []
    te.function(lambda x: kept.append(x)).graph(X)
    with pytest.raises(te.DefinitionError, match="expected tensors that are made from its arguments, got x, which belongs to another"):
        te.function(lambda y: y + kept[0]).graph(X)


def test_a_deleted_variable_is_named():
    v = te.Variable(X, name="gone")
    f = te.function(lambda: v.read() + 1.0)
    f()
    v.delete()
    for use in (f, f.strict, lambda: v.value, lambda: v.assign(X), lambda: te.function(lambda: v.assign(X))()):
        with pytest.raises(te.ArgumentError, match="expected a variable that exists, got gone, which was deleted"):
            use()


def test_a_failing_step_leaves_every_variable_as_it_was():
    a, b = te.Variable(X, name="a"), te.Variable(X, name="b")

    @te.function
    def step(x, start):
        a.assign_add(x)
        te.check(te.compute((), lambda: x[3] < 5.0), "x is too large")
        b.assign(te.compute((4,), lambda i: x[te.minimum(i, 2) + start[()]]))
        return a.read()

    for run in (step, step.strict):
        with pytest.raises(te.FailedCheckError, match="x is too large"):
            run(X + 9, np.int64(0))
        with pytest.raises(IndexError):
            run(X, np.int64(7))
    assert a.value.tolist() == b.value.tolist() == X.tolist()
    step(X, np.int64(0))
    assert a.value.tolist() == (2 * X).tolist()


def test_a_shape_mismatch_in_an_assignment_names_the_variable():
    v = te.Variable(X, name="weight")
    for run in (lambda: v.assign(X[:2]), lambda: te.function(lambda x: v.assign(x))(X[:2])):
        with pytest.raises(te.ArgumentError, match=r"weight: expected .*4.*, got .*2.*"):
            run()


def test_arguments_that_do_not_fit_the_parameters_are_refused():
    f = te.function(lambda x, y: x)
    with pytest.raises(te.ArgumentError, match="expected arguments that fit its parameters, got missing a required argument: 'y'"):
        f(X)


def test_prints_and_checks_outside_of_a_trace_are_pythons():
    out = io.StringIO()
    with redirect_stdout(out):
        te.print("a {}", 3)
    assert out.getvalue() == "a 3\n"
    with pytest.raises(te.FailedCheckError, match="no"):
        te.check(False, "no")
    te.check(True, "no")
    assert te.cond(np.True_, lambda: 1, lambda: 2) == 1
    assert te.while_loop(lambda i: i < 3, lambda i: i + 1, 0) == 3
