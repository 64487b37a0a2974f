"""What only moves elements, or says which points count, does not change a derivative: the same program comes out, however it is written."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.sweep.primal import with_plain_reads
from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.interpret import evaluate_program
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.autodiff.test_laws import EVERYTHING, SMOOTH, with_inputs
from tests.random_programs import meaning, random_inputs, random_program, random_sizes
from tests.seeds import share_of

N, D = 7, 5


def windows(x, n):
    w = te.compute((n - 2, 3), lambda i, p: x[i + p])
    return te.compute((n - 2,), lambda i: te.sum(lambda p: w[i, p] * te.cast(p, "float64"), 3))


def rows(x, n):
    t = te.compute((n, 3), lambda i, a: te.sum(lambda b: x[i, a, b] * x[i, a, b], 2))
    return te.compute((n,), lambda i: te.sum(lambda a: t[i, a], 3))


def twice_turned(x, n):
    t = te.compute((3, n), lambda j, i: x[i, j])
    u = te.compute((n, 3), lambda i, j: t[j, i])
    return te.compute((n, 3), lambda i, j: te.exp(u[i, j]))


def masked(x, n):
    return te.compute((n,), lambda j: te.prod(lambda k: te.where(k <= j, x[k], 1.0), n))


WAYS = {
    "windows": ((), windows, lambda x, n: te.compute((n - 2,), lambda i: te.sum(lambda p: x[i + p] * te.cast(p, "float64"), 3))),
    "parts of a sum": ((3, 2), rows, lambda x, n: te.compute((n,), lambda i: te.sum(lambda a, b: x[i, a, b] * x[i, a, b], (3, 2)))),
    "turned twice": ((3,), twice_turned, lambda x, n: te.compute((n, 3), lambda i, j: te.exp(x[i, j]))),
    "points by a mask": ((), masked, lambda x, n: te.compute((n,), lambda j: te.prod(lambda k: x[k], j + 1))),
    "a distance": (
        (),
        lambda x, n: te.compute((n,), lambda i: te.sum(lambda j: te.maximum(x[i] - x[j], x[j] - x[i]), n)),
        lambda x, n: te.compute((n,), lambda i: te.sum(lambda j: te.abs(x[i] - x[j]), n)),
    ),
}


@pytest.mark.parametrize("rest, one, other", WAYS.values(), ids=WAYS)
def test_two_ways_have_one_gradient(rest, one, other):
    for n in (3, 7, te.dim("n")):
        x = te.placeholder((n, *rest), "float64", name="x")
        texts = []
        for way in (one, other):
            y = way(x, n)
            head = te.placeholder(y.shape, "float64", name="head")
            texts.append(str(te.gradient(y, x, head)))
        lines = [text.replace("t_bar", "y_bar").splitlines() for text in texts]
        assert len(lines[0]) == len(lines[1]), "\n".join(texts)


@pytest.mark.parametrize("rest, one, other", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("n", [3, 4, 7, 33])
def test_its_numbers(rest, one, other, n):
    rng = np.random.default_rng(n)
    x, found = te.placeholder((n, *rest), "float64", name="x"), []
    array = rng.standard_normal((n, *rest))
    h = rng.standard_normal(one(x, n).shape)
    for way in (one, other):
        y = way(x, n)
        head = te.placeholder(y.shape, "float64", name="head")
        found.append(te.build(list(te.gradient(y, x, head)), [x, head])(array, h)[0])
    np.testing.assert_allclose(found[0], found[1], 1e-10, 1e-12)


def test_a_choice_keeps_the_derivative_of_its_sides():
    x, y = (te.placeholder((3,), "float64", name=name) for name in "xy")
    total = te.compute((), lambda: te.sum(lambda i: te.where(x[i] > y[i], x[i] - y[i], y[i] - x[i]), 3))
    gradient = te.build(list(te.gradient(total, x)), [x, y])
    np.testing.assert_array_equal(gradient(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0]))[0], [-1.0, -1.0, 1.0])


def test_reads_are_reported_and_contribute_as_they_are_written():
    x = te.placeholder((N, D), "float64", name="x")
    t = te.compute((D, N), lambda j, i: x[i, j], name="t")
    y = te.compute((), lambda: te.sum(lambda j, i: t[j, i] * t[j, i] + x[i, j], (D, N)), name="y")
    gradient = te.gradient(y, x)
    assert [line.split()[:2] for line in str(gradient.report()).splitlines()[1:]] == [["t", "y"], ["t", "y"], ["x", "y"], ["x", "t"]]
    array = np.random.default_rng(0).standard_normal((N, D))
    parts = [gradient.adjoints[t], gradient.contributions[x][t], gradient.contributions[x][y], gradient[0]]
    at_t, by_t, by_y, whole = te.build(parts, [x])(array)
    np.testing.assert_allclose(at_t, 2 * array.T)
    np.testing.assert_allclose(by_t, 2 * array)
    np.testing.assert_allclose(by_y, np.ones((N, D)))
    np.testing.assert_allclose(whole, 2 * array + 1)
    assert list(gradient.contributions[x]) == list(gradient.contributions[x])


def test_what_is_asked_for_by_name_keeps_it():
    x = te.placeholder((N, D), "float64", name="x")
    t = te.compute((D, N), lambda j, i: x[i, j], name="t")
    y = te.compute((), lambda: te.sum(lambda j, i: t[j, i] * t[j, i], (D, N)), name="y")
    by_t, by_x = te.gradient(y, [t, x])
    array = np.random.default_rng(0).standard_normal((N, D))
    found = te.build([by_t, by_x], [x])(array)
    np.testing.assert_allclose(found[0], 2 * array.T)
    np.testing.assert_allclose(found[1], 2 * array)


def test_a_sum_that_a_maximum_reads_keeps_the_name_that_it_is_asked_for_by():
    x, y = te.placeholder((N,), "float64", name="x"), te.placeholder((D,), "float64", name="y")
    t = te.compute((N, D), lambda i, j: x[i] + y[j], name="t")
    m = te.compute((N,), lambda i: te.max(lambda j: t[i, j], D), name="m")
    total = te.compute((), lambda: te.sum(lambda i: m[i], N), name="total")
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal(N), rng.standard_normal(D)
    (by_t,) = te.build(list(te.gradient(total, [t])), [x, y])(*arrays)
    np.testing.assert_array_equal(by_t, np.broadcast_to(np.arange(D) == arrays[1].argmax(), (N, D)))
    twice = te.gradient(total, [x], override={t: lambda output, inputs, head: [te.compute((N,), lambda i: 2.0 * head[i, 0]), None]})
    by_rule = te.build(list(twice), [x, y])(*arrays)[0]
    np.testing.assert_array_equal(by_rule, np.full(N, 2.0 * (arrays[1].argmax() == 0)))


@pytest.mark.parametrize("options", [SMOOTH, EVERYTHING], ids=["smooth", "everything"])
def test_random_programs_keep_their_values_and_derivatives(options) -> None:
    changed = 0
    for seed in share_of(range(5000, 5120)):
        program = random_program(seed, **options)
        outputs = [name for name in dict.fromkeys(program.outputs) if program.types[name].dtype.is_float]
        if not outputs:
            continue
        program, sizes = with_inputs(program, outputs, "_head"), random_sizes(program, seed)
        wrt = [item.name for item in program.inputs if item.type.dtype.is_float and not item.name.endswith("_head")]
        plain = with_plain_reads(program, [*program.outputs, *wrt])
        verify(plain)
        if plain is program or print_program(plain) == print_program(program):
            continue
        changed += 1
        inputs = random_inputs(program, seed, sizes=sizes)
        if meaning(program, inputs, sizes) is None:
            continue
        results = []
        for one in (program, plain):
            found = reverse(one, [(name, f"{name}_head") for name in outputs], wrt)
            verify(found.program)
            values = evaluate_program(found.program, inputs, sizes)
            results.append([values[found.adjoints[name]].astype(np.float64) for name in wrt if name in found.adjoints])
        for one, other in zip(*results, strict=True):
            scale = 1 + np.abs(one).max(where=np.isfinite(one), initial=0)
            np.testing.assert_allclose(other / scale, one / scale, 0, 5e-2, err_msg=f"seed {seed}\n{plain}")
    assert changed


def test_long_chains_of_moves_end():
    x = te.placeholder((8,), "float64", name="x")
    t = x
    for _ in range(30):
        t = (lambda s: te.compute((8,), lambda i: s[7 - i]))(t)
    y = te.compute((), lambda: te.sum(lambda i: t[i] * t[i], 8))
    assert len(simplify(program_of(list(te.gradient(y, x)))).definitions) == 1
