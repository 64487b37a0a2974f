"""Part 001 of the checklists, line 31: laws over random programs."""

import contextlib
import io

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.files.verify import verify_graph
from tensorexpr.graph.nodes.inline import inline
from tensorexpr.graph.nodes.ir import walk_graphs
from tensorexpr.graph.nodes.prune import prune, sink
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import compile_graph, lowered_graph
from tests.graph.programs import drawn, function_of
from tests.seeds import share_of


def outcome(run, variables, starts, arguments):
    """Fetched values, printed lines (of runs that succeed), final state; or the error."""
    for variable, start in zip(variables, starts, strict=True):
        variable.assign(start)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            results = [np.asarray(r) for r in run(arguments)]
    except te.TensorExprError as error:
        assert all(np.array_equal(v.value, s) for v, s in zip(variables, starts, strict=True)), "a run that failed changed a variable"
        return type(error), None, None
    lines = [np.round(np.fromstring(line.strip("[]"), sep=" "), 6).tolist() for line in out.getvalue().splitlines()]
    return results, lines, [v.value for v in variables]


def same(a, b):
    if isinstance(a[0], type) or isinstance(b[0], type):
        return a[0] is b[0]
    close = all(np.allclose(x, y, rtol=1e-9, atol=1e-12) for x, y in zip(a[0] + a[2], b[0] + b[2], strict=True))
    return close and len(a[1]) == len(b[1]) and all(np.allclose(x, y, atol=1e-5) for x, y in zip(a[1], b[1], strict=True))


@pytest.mark.parametrize("block", range(8))
def test_001_31_random_programs_mean_the_same_inlined_optimized_and_loaded_as_strictly_run(block, tmp_path):
    failed = 0
    for seed in share_of(range(block * 8, block * 8 + 8)):
        program, starts, arguments = drawn(seed)
        variables = [te.Variable(start, name=f"v{k}") for k, start in enumerate(starts)]
        function = te.function(function_of(program, variables, te.function))
        graph = function.graph(*arguments)
        te.save_function(tmp_path / "f", function, *arguments)
        named = te.load_function(tmp_path / "f").variables
        oracle = outcome(lambda a, graph=graph: run_strict(graph, a), variables, starts, arguments)
        failed += isinstance(oracle[0], type)
        forms = {
            "written out": te.function(function_of(program, variables, lambda f: f)).graph(*arguments),
            "outer first": inline(graph),
            "inner first": inline(graph, inner_first=True),
            "pruned": prune(graph),
            "sunk": sink(prune(inline(graph))),
            "lowered": lowered_graph(graph),
            "read from a file": te.load_function(tmp_path / "f", [variables[int(name[1:])] for name in named]).graph,
        }
        for name, form in {"strict": graph, **forms}.items():
            for part in walk_graphs(form):
                verify_graph(part)
            found = outcome(lambda a, form=form: run_strict(form, a), variables, starts, arguments)
            assert same(oracle, found), f"seed {seed}, {name}: {oracle} and {found}\n{program}"
        step = compile_graph(graph)
        found = outcome(step, variables, starts, arguments)
        assert same(oracle, found), f"seed {seed}, compiled: {oracle} and {found}\n{program}"
    assert failed < 8


@pytest.mark.parametrize("block", range(4))
def test_gradients_of_random_programs_agree_with_differences(block):
    for seed in share_of(range(1000 + block * 6, 1000 + block * 6 + 6)):
        program, starts, arguments = drawn(seed, effects=False, floating=True)
        variables = [te.Variable(start, name=f"v{k}") for k, start in enumerate(starts)]
        body = function_of(program, variables, te.function)

        def loss(*inputs, body=body):
            results = body(*inputs)
            return te.compute((), lambda: sum(te.sum(lambda i, r=r: r[i] * r[i], 3) for r in results))

        @te.function
        def value(*inputs, loss=loss):
            return loss(*inputs)

        @te.function
        def step(*inputs, loss=loss, variables=variables):
            found = loss(*inputs)
            return (found, *te.gradients(found, [*inputs, *variables]))

        graph = step.graph(*arguments)
        for part in walk_graphs(graph):
            verify_graph(part)
        compiled = compile_graph(graph)
        results, _, _ = outcome(compiled, variables, starts, arguments)
        strict, _, _ = outcome(lambda a, graph=graph: run_strict(graph, a), variables, starts, arguments)
        assert all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(results, strict, strict=True)), f"seed {seed}"
        rng = np.random.default_rng(seed)
        directions = [rng.normal(size=3) for _ in range(5)]
        slopes = []
        for s in (1e-6, -1e-6):
            moved = [a + s * d for a, d in zip([*arguments, *starts], directions, strict=True)]
            for variable, array in zip(variables, moved[2:], strict=True):
                variable.assign(array)
            slopes.append(float(compile_graph(value.graph(*arguments))(moved[:2])[0]))
        wanted = (slopes[0] - slopes[1]) / 2e-6
        got = sum(float((g * d).sum()) for g, d in zip(results[1:], directions, strict=True))
        assert abs(wanted - got) <= 1e-5 * max(1.0, abs(wanted)), f"seed {seed}: {wanted} and {got}\n{program}"
