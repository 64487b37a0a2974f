"""Open sizes through traced functions: calls, branches, loops, gradients, the strict interpreter and files."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.strict import run_strict
from tests.graph.programs import drawn, function_of, without_variables
from tests.graph.test_001_laws import outcome, same
from tests.seeds import share_of

LENGTHS = (0, 1, 4)


def opened(*names):
    return [te.placeholder((te.dim(name),), "float64") for name in names]


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_random_functions_of_open_size_are_those_of_each_size(seed, tmp_path):
    """Compiled once and at each size, interpreted, and from a file; the size has the name of an index or of a value now and then."""
    program = without_variables(drawn(seed)[0])
    function = te.function(function_of(program, [], te.function))
    given = opened(*2 * [("n", "i", "arguments0", "x")[seed % 4]])
    step, graph = function.compiled(*given), function.graph(*given)
    te.save_function(tmp_path / "f", function, *given)
    loaded = te.load_function(tmp_path / "f")
    for length in LENGTHS:
        arrays = list(np.random.default_rng(seed).normal(size=(2, length)))
        want = outcome(lambda a: function.compiled(*a)(a), [], [], arrays)
        assert same(want, outcome(step, [], [], arrays)), program
        assert same(want, outcome(lambda a: run_strict(graph, a), [], [], arrays)), program
        assert same(want, outcome(lambda a: loaded(*a), [], [], arrays)), program


@pytest.mark.parametrize("seed", share_of(range(1000, 1030)))
def test_gradients_of_open_size_are_those_of_each_size(seed, tmp_path):
    body = function_of(without_variables(drawn(seed, effects=False, floating=True)[0]), [], te.function)

    @te.function
    def step(*inputs):
        loss = te.compute((), lambda: sum(te.sum(lambda i, r=r: r[i] * r[i], r.shape[0]) for r in body(*inputs)))
        return loss, *te.gradients(loss, inputs)

    given = opened("n", "n")
    once = step.compiled(*given)
    te.save_function(tmp_path / "f", step, *given)
    loaded = te.load_function(tmp_path / "f")
    for length in LENGTHS:
        arrays = list(np.random.default_rng(seed).normal(size=(2, length)))
        want = step(*arrays)
        for found in (once(arrays), loaded(*arrays)):
            for a, b in zip(found, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@te.function
def twice(x):
    return te.compute(x.shape, lambda i: x[i] * 2)


def test_a_signature_for_each_name_and_what_does_not_fit(tmp_path):
    (n,), (m,) = opened("n"), opened("m")
    assert twice.compiled(n) is twice.compiled(n) and twice.compiled(n) is not twice.compiled(m)
    both = te.function(lambda x, y: te.compute(x.shape, lambda i: x[i] + y[i]))
    pair = opened("n", "n")
    te.save_function(tmp_path / "f", both, *pair)
    for run in (lambda *a: both.compiled(*pair)(a), te.load_function(tmp_path / "f")):
        with pytest.raises(te.ArgumentError, match=r"expected extent 3 "):
            run(np.ones(3), np.ones(4))


def test_two_sizes_one_of_which_nothing_reads():
    @te.function
    def total(x, y):
        return te.compute(x.shape, lambda i: x[i] + te.sum(lambda j: j * 1.0, y.shape[0]))

    step = total.compiled(*opened("n", "m"))
    np.testing.assert_array_equal(step([np.ones(2), np.ones(4)])[0], [7.0, 7.0])
    np.testing.assert_array_equal(step([np.ones(2), np.ones(0)])[0], [1.0, 1.0])
