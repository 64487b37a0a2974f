"""Accesses proved in bounds, refused with a point at which they leave, or left to a check at run time."""

import random

import numpy as np
import pytest

from tensorexpr import language as te
from tensorexpr.bounds import PROVED, UNKNOWN, OutOfBounds, Proved, check_access, implied
from tensorexpr.bounds.enumeration import enumerate_points, evaluate_on
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.ir import Axis, Index, Size, apply, const
from tensorexpr.traversal import bottom_up, read_occurrences
from tests.language.messages import refused

x = te.placeholder((10,), name="x")
A = te.placeholder((4, 5), name="A")
ids = te.placeholder((7,), "int32", name="ids")


def verdicts(tensor, *inputs):
    """The verdicts on the accesses to the inputs in a definition, axis by axis."""
    definition = tensor.definition
    shapes = {t.key: t.extents for t in tensor.sources}
    reads = [r for r in read_occurrences(definition.value, definition.axes) if not inputs or r.access.tensor in {t.key for t in inputs}]
    return [v for r in reads for v in check_access(r.access.indices, shapes[r.access.tensor], r.axes, r.guards)]


def proved(tensor, *inputs):
    return all(isinstance(v, Proved) for v in verdicts(tensor, *inputs))


def test_the_error_names_access_range_and_point():
    text = refused(lambda: te.compute((10,), lambda i: x[i + 1]))
    assert "x[i + 1]: expected an index in range(10) on axis 0, got i + 1 from 1 to 10" in text
    assert "in:   x[i + 1] (" in text and __file__ in text
    assert "at:   i = 9" in text
    assert "hint: guard it: te.where(condition, x[i + 1], 0), or read with a border: x.read(..., outside=0)" in text


def test_negative_indices_do_not_wrap_around():
    text = refused(lambda: te.compute((10,), lambda i: x[-1]))
    assert "x[-1]: expected an index in range(10) on axis 0, got -1" in text
    assert "hint: indices count from 0 and do not wrap around" in text
    assert "x[i - 3]: expected an index in range(10) on axis 0, got i - 3 from -3 to 6" in refused(
        lambda: te.compute(10, lambda i: x[i - 3])
    )


@pytest.mark.parametrize(
    ("body", "point"),
    [
        (lambda i, j: A[j, i], "at:   i = 0, j = 4"),
        (lambda i, j: te.sum(lambda k: A[i, k + j], 5), "at:   i = 0, j = 1, k = 4"),
        (lambda i, j: te.where(i < 3, A[i + 2, j], 0.0), "at:   i = 2"),
        (lambda i, j: te.where(i != 3, 0.0, A[i + 1, j]), "at:   i = 3"),
        (lambda i, j: A[(i * 5 + j) // 4, 0], "at:   i = 3, j = 1"),
        (lambda i, j: A[i * j, 0], "at:   i = 1, j = 4"),
        (lambda i, j: A[te.maximum(i, j), 0], "at:   i = 0, j = 4"),
        (lambda i, j: A[abs(i - j), 0], "at:   i = 0, j = 4"),
    ],
)
def test_points_at_which_it_happens(body, point):
    assert point in refused(lambda: te.compute((4, 5), body))


@pytest.mark.parametrize(
    "body",
    [
        lambda i, j: A[i, j],
        lambda i, j: A[3 - i, 4 - j],
        lambda i, j: A[(i * 5 + j) // 5, (i * 5 + j) % 5],
        lambda i, j: A[i // 2 + i % 2, (j * 3) % 5],
        lambda i, j: te.where((i > 0) & (j < 4), A[i - 1, j + 1], 0.0),
        lambda i, j: te.where((i == 0) | (j == 4), 0.0, A[i - 1, j + 1]),
        lambda i, j: te.where(i != 0, A[i - 1, j], 0.0),
        lambda i, j: te.where(~(i < 1), A[i - 1, j], 0.0),
        lambda i, j: te.where(te.logical_not(te.logical_or(i == 0, j == 4)), A[i - 1, j + 1], 0.0),
        lambda i, j: A[te.minimum(i + 1, 3), te.maximum(j - 1, 0)],
        lambda i, j: A[te.clip(i + j - 2, 0, 3), te.where(j > 2, 4 - j, j)],
        lambda i, j: A[abs(i - 3), abs(2 * j - 4) // 2],
        lambda i, j: A[te.where(i < j, i, 0), te.minimum(te.maximum(i, j), 4)],
        lambda i, j: A[te.sign(i - j) + 1, te.cast(i > j, "int64") * 4],
        lambda i, j: A[i & 3, (i + j) >> 1],
        lambda i, j: A[i ^ 1, (i | j) >> (i & 1) & 3],
        lambda i, j: A[(1 << (i % 2)) + (i >> 1), 0],
        lambda i, j: te.sum(lambda k: A[i, k] * A[k, j], 4, where=lambda k: k <= i),
        lambda i, j: te.sum(lambda k: A[k, j], i + 1),
        lambda i, j: te.where(i * j < 4, A[i * j, j], 0.0),
        lambda i, j: te.where((i < 2) ^ (j < 2), A[i, j], 0.0),
        lambda i, j: te.where(te.where(i > 0, j > 0, False), A[i - 1, j - 1], 0.0),
    ],
)
def test_proofs(body):
    assert proved(te.compute((4, 5), body))


def test_symbolic_sizes():
    n, m, h, r = map(te.dim, "nmhr")
    t = te.placeholder((n, m), name="T")
    image, kernel = te.placeholder((h,), name="image"), te.placeholder((r,), name="kernel")
    assert proved(te.compute((n, m), lambda i, j: t[i, j]))
    assert proved(te.compute((n - 1, m), lambda i, j: t[i + 1, j] - t[i, m - 1 - j]))
    assert proved(te.compute(((h - r) // 2 + 1,), lambda y: te.sum(lambda k: image[2 * y + k] * kernel[k], r)))
    assert proved(te.compute((n, m), lambda i, j: te.where((i + 1 < n) & (j < n), t[i + 1, j], 0.0)))
    assert proved(te.compute((n, m), lambda i, j: te.where(i + 1 < n, t[i + 1, te.minimum(j + 1, m - 1)], 0.0)))
    assert proved(te.compute((n,), lambda i: te.max(lambda k: t[k, 0] if False else t[i, k], m)))
    text = refused(lambda: te.compute((n, m), lambda i, j: t[j, i]))
    assert "T[j, i]: expected an index in range(n) on axis 0, got j from 0 to m - 1" in text and "at:   i = 0, j = 1, m = 2, n = 1" in text
    # Only an empty tensor breaks this one: it is checked as it runs.
    assert verdicts(te.compute((), lambda: t[0, 0])) == [UNKNOWN, UNKNOWN]
    assert proved(te.compute((n, m), lambda i, j: t[i, j] - t[0, 0]))


def test_products_of_sizes():
    n, m, k = map(te.dim, "nmk")
    t, flat, cube = te.placeholder((n, m), name="T"), te.placeholder((n * m,), name="flat"), te.placeholder((n, m, k), name="cube")
    assert proved(te.compute(n * m, lambda f: t[f // m, f % m]))
    assert proved(te.compute((n, m), lambda i, j: flat[i * m + j]))
    assert proved(te.compute((n, m), lambda i, j: flat[(n - 1 - i) * m + (m - 1 - j)]))
    assert proved(te.compute(n * m * k, lambda f: cube[f // k // m, f // k % m, f % k]))
    assert proved(te.compute(n * m * k, lambda f: cube[f // (m * k), f // k % m, f % k]))
    assert proved(te.compute(n * m, lambda f: flat[te.minimum(f + 1, n * m - 1)]))
    assert proved(te.compute(n * m, lambda f: te.where(f + 1 < n * m, flat[f + 1], 0.0)))
    assert proved(te.compute(n, lambda i: te.sum(lambda j: flat[i * m + j], m)))
    # n could be 0 where m is not, then x % n would be 0 of an empty axis: checked as it runs.
    row = te.placeholder((n,), name="row")
    assert verdicts(te.compute(m, lambda i: row[i % n])) == [UNKNOWN]
    assert proved(te.compute((n, m), lambda i, j: row[j % n]))
    assert verdicts(te.compute((n, m), lambda i, j: flat[i * m + j + 1])) == [UNKNOWN]
    assert verdicts(te.compute(n * m, lambda f: t[f % m, f // m])) == [UNKNOWN, UNKNOWN]
    assert repr(te.compute((n, m), lambda i, j: flat.read(i * m + j, outside=0.0), name="y")) == "y[i, j]: f32[n, m] = flat[i * m + j]"


def test_data_dependent_indices_are_checked_as_it_runs():
    gathered = te.compute(7, lambda t: x[ids[t]], name="gathered")
    assert verdicts(gathered, x) == [UNKNOWN]
    inputs = {x: np.arange(10, dtype=np.float32), ids: np.array([0, 9, 3, 3, 1, 2, 5], np.int32)}
    assert (te.evaluate(gathered, inputs) == inputs[ids]).all()
    with pytest.raises(OutOfBoundsError, match=r"10"):
        te.evaluate(gathered, inputs | {ids: np.full(7, 10, np.int32)})
    with pytest.raises(IndexError):
        te.evaluate(gathered, inputs | {ids: np.full(7, -1, np.int32)})


def test_what_bounds_data():
    wide = te.placeholder((256,), name="wide")
    byte = te.placeholder((7,), "uint8", name="byte")
    real = te.placeholder((7,), name="real")
    assert proved(te.compute(7, lambda t: x[te.clip(ids[t], 0, 9)]))
    assert proved(te.compute(7, lambda t: wide[byte[t]]))
    assert proved(te.compute(7, lambda t: x[ids[t] % 10]))
    assert proved(te.compute(7, lambda t: te.where((ids[t] >= 0) & (ids[t] < 10), x[ids[t]], 0.0)))
    assert proved(te.compute(7, lambda t: te.where((ids[t] < 0) | (ids[t] > 8), 0.0, x[te.cast(ids[t], "int64") + 1])))
    assert proved(te.compute(7, lambda t: x[te.cast(te.clip(te.floor(real[t]), 0.0, 9.0), "int64")]))
    assert proved(te.compute(7, lambda t: x[te.cast(real[t] > 0, "int64") + te.argmax(lambda k: real[k], 7)]), real)
    assert verdicts(te.compute(7, lambda t: te.where(real[t] > 0, x[t + 9], 0.0)), x) == [UNKNOWN]
    assert verdicts(te.compute(7, lambda t: x[te.cast(te.floor(real[t]), "int64")]), x) == [UNKNOWN]
    # What does not depend on data is decided all the same.
    assert "t + 4" in refused(lambda: te.compute(7, lambda t: x[t + 4] * x[te.clip(ids[t], 0, 9)]))


def test_implied():
    axes = (Axis("i", const(0), const(10)),)
    i = Index("i")
    assert implied(apply("ge", i, const(0)), axes) and not implied(apply("gt", i, const(0)), axes)
    assert implied(apply("ne", apply("mul", i, const(2)), const(3)), axes)
    assert implied(apply("or", apply("lt", i, const(5)), apply("ge", i, const(5))), axes)
    assert implied(apply("lt", i, const(4)), axes, (apply("lt", i, const(3)),))


def _index(rng, names, depth=2):
    """A random index expression, affine or not."""
    pick = rng.random()
    if depth == 0 or pick < 0.25:
        return Index(rng.choice(names)) if rng.random() < 0.8 else const(rng.randint(-3, 5))
    a, b = _index(rng, names, depth - 1), _index(rng, names, depth - 1)
    if pick < 0.7:
        return apply(rng.choice(("add", "sub", "minimum", "maximum")), a, b)
    if pick < 0.85:
        return apply(rng.choice(("mul", "floordiv", "mod")), a, const(rng.randint(1, 4)))
    if pick < 0.93:
        return apply("where", _condition(rng, names, depth - 1), a, b)
    return apply("abs", a) if rng.random() < 0.6 else apply("mul", a, b)


def _condition(rng, names, depth=1):
    if depth and rng.random() < 0.3:
        name = rng.choice(("and", "or", "invert"))
        parts = [_condition(rng, names, depth - 1) for _ in range(1 if name == "invert" else 2)]
        return apply(name, *parts)
    return apply(rng.choice(("lt", "le", "gt", "ge", "eq", "ne")), _index(rng, names, 1), _index(rng, names, 1))


@pytest.mark.parametrize("seed", range(6))
def test_verdicts_agree_with_enumeration(seed):
    rng = random.Random(seed)
    decided = 0
    for _ in range(120):
        axes = (Axis("i", const(0), const(rng.randint(1, 5))), Axis("j", const(rng.randint(-1, 1)), _index(rng, ["i"], 1)))
        guards = tuple(_condition(rng, ["i", "j"]) for _ in range(rng.randint(0, 2)))
        index = _index(rng, ["i", "j"])
        extent = rng.randint(1, 8)
        (verdict,) = check_access((index,), (const(extent),), axes, guards)
        points = enumerate_points(axes, guards)
        values = np.broadcast_to(evaluate_on(index, points.values), (points.count,))
        wrong = (values < 0) | (values >= extent)
        assert verdict is not UNKNOWN, (axes, guards, index)
        assert (verdict is PROVED) == (not wrong.any()), (axes, guards, index, extent)
        if isinstance(verdict, OutOfBounds):
            at = dict(verdict.at)
            hit = (points.values["i"] == at["i"]) & (points.values["j"] == at["j"])
            assert values[hit] == verdict.value and wrong[hit].all()
            decided += 1
    assert decided > 10


def _symbolic(rng, names, depth=2):
    """A random index over indices and the sizes n and m, with products and quotients of them."""
    pick = rng.random()
    if depth == 0 or pick < 0.3:
        return rng.choice((Index(rng.choice(names)), Index(rng.choice(names)), Size("n"), Size("m"), const(rng.randint(0, 2))))
    a, b = _symbolic(rng, names, depth - 1), _symbolic(rng, names, depth - 1)
    return apply(rng.choice(("add", "sub", "mul", "floordiv", "mod", "minimum")), a, b)


@pytest.mark.parametrize("seed", range(4))
def test_proofs_with_sizes_are_never_wrong(seed):
    rng = random.Random(seed)
    found = {True: 0, False: 0}
    for _ in range(150):
        stops = [
            rng.choice((Size("n"), Size("m"), apply("mul", Size("n"), Size("m")), apply("add", Size("n"), const(1)))) for _ in range(2)
        ]
        axes = (Axis("i", const(0), stops[0]), Axis("j", const(0), stops[1]))
        index = rng.choice((_symbolic(rng, ["i", "j"]), apply(rng.choice(("floordiv", "mod")), Index("i"), Size("m")), Index("j")))
        extent = rng.choice((*stops, apply("mul", Size("n"), Size("m")), Size("n")))
        (verdict,) = check_access((index,), (extent,), axes)
        bad = False
        for n in range(4):
            for m in range(4):
                sizes = {"n": const(n), "m": const(m)}

                def concrete(expr, sizes=sizes):
                    return bottom_up(expr, lambda e: sizes.get(e.name, e) if isinstance(e, Size) else e)

                points = enumerate_points(tuple(Axis(a.index, a.start, concrete(a.stop)) for a in axes), ())
                values = np.broadcast_to(evaluate_on(concrete(index), points.values), (points.count,))
                limit = int(evaluate_on(concrete(extent), {}))
                wrong = (values < 0) | (values >= limit)
                bad = bad or wrong.any()
        assert not (verdict is PROVED and bad), (axes, index, extent)
        assert bad or not isinstance(verdict, OutOfBounds) or max(v for _, v in verdict.at) > 3, (axes, index, extent)
        found[verdict is PROVED] += 1
    assert found[True] > 10 and found[False] > 10
