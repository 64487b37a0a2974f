"""Maxima and minima of sums are taken apart: every value is kept, infinities that meet included, and over nothing, too."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.language import program_of
from tensorexpr.simplify import take_extrema_apart
from tensorexpr.text import print_program

N, M = te.dim("n"), te.dim("m")
TERMS = {
    "both reduced": ((), lambda x, y, z, i, j: x[i] + y[j]),
    "a difference": ((), lambda x, y, z, i, j: 1.5 - (x[i] - y[j])),
    "of three": ((), lambda x, y, z, i, j: x[i] + (z[0] - y[j])),
    "a product inside": ((), lambda x, y, z, i, j: x[i] * x[i] - y[j] * 3.0),
}


def programs(reduction, dtype, rows, columns):
    x, y, z = te.placeholder((rows,), dtype, name="x"), te.placeholder((columns,), dtype, name="y"), te.placeholder((3,), dtype, name="z")
    for name, (_, term) in TERMS.items():
        yield name, te.compute((), lambda term=term: reduction(lambda i, j: term(x, y, z, i, j), (rows, columns)), name="v")
    yield "for each row", te.compute((rows,), lambda i: reduction(lambda j: x[i] - y[j], columns), name="v")
    yield "for three", te.compute((3,), lambda k: te.sqrt(te.abs(reduction(lambda i, j: z[k] + x[i] + y[j], (rows, columns)))), name="v")
    pairs = te.compute((rows, columns), lambda i, j: x[i] - y[j], name="pairs")
    yield "with a name", te.compute((columns,), lambda j: reduction(lambda i: pairs[i, j], rows), name="v")


def data(random, size, dtype):
    """Numbers that are often infinite, NaN, or alike."""
    found = random.integers(-3, 4, size).astype(float) * random.choice([1.0, 0.1, 1e4])
    special = random.random(size)
    found[special < 0.15], found[special > 0.85] = np.inf, -np.inf
    found[(special > 0.5) & (special < 0.52)] = np.nan
    return found.astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("reduction", [te.max, te.min], ids=["max", "min"])
@pytest.mark.parametrize("extents", [(3, 4), (N, M), (1, M)])
def test_values_are_kept(reduction, dtype, extents):
    for name, value in programs(reduction, dtype, *extents):
        program = program_of([value])
        apart = take_extrema_apart(program)
        assert apart is not program, name
        for seed in range(12):
            random = np.random.default_rng(seed)
            rows, columns = (int(random.integers(0, 4)) if isinstance(e, te.Scalar) else e for e in extents)
            given = {"x": data(random, rows, dtype), "y": data(random, columns, dtype), "z": data(random, 3, dtype)}
            given = {k: v for k, v in given.items() if k in program.types}
            with np.errstate(all="ignore"):
                old, new = (evaluate_program(p, given)[p.outputs[0]] for p in (program, apart))
            np.testing.assert_array_equal(old, new, err_msg=f"{name} {given}")


@pytest.mark.parametrize(
    "value",
    [
        lambda x, y: te.compute((4,), lambda i: te.max(lambda j: x[i, j] + y[j], 4)),
        lambda x, y: te.compute((4,), lambda i: te.max(lambda j: x[i, j] + y[i], 4)),
        lambda x, y: te.compute((), lambda: te.max(lambda i, j: y[i] + y[j], (4, 4), where=lambda i, j: i <= j)),
        lambda x, y: te.compute((), lambda: te.max(lambda i: te.max(lambda j: y[i] + y[j], i + 1), 4)),
        lambda x, y: te.compute((), lambda: te.max(lambda i, j: te.cast(y[i], "int32") + te.cast(y[j], "int32"), (4, 4))),
    ],
    ids=["each term has the index", "the other has no index of its own", "a condition", "a triangle", "integers wrap around"],
)
def test_what_stays(value):
    x, y = te.placeholder((4, 4), name="x"), te.placeholder((4,), name="y")
    program = program_of([value(x, y)])
    assert take_extrema_apart(program) is program


@pytest.mark.parametrize("reduction", [te.max, te.min], ids=["max", "min"])
def test_the_first_winner_gets_the_gradient(reduction):
    x, y, head = te.placeholder((N,), name="x"), te.placeholder((M,), name="y"), te.placeholder((N,), name="head")
    best = te.compute((N,), lambda i: reduction(lambda j: x[i] - y[j], M), name="best")
    gradient = te.gradient(best, [x, y], head)
    assert "scatter" not in print_program(program_of(list(gradient)))
    run = te.build(list(gradient), [x, y, head])
    for n, m in ((0, 3), (3, 0), (1, 1), (7, 33), (33, 7)):
        random = np.random.default_rng(n)
        given = [random.integers(-2, 3, k).astype(np.float32) for k in (n, m, n)]
        expected = np.zeros(m, np.float32)
        if m:
            expected[int((np.argmin if reduction is te.max else np.argmax)(given[1]))] = -given[2].sum()
        found = run(*given)
        np.testing.assert_array_equal(found[0], given[2] if m else 0 * given[2])
        np.testing.assert_array_equal(found[1], expected)
