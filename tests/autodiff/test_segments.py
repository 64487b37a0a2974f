"""Reads at places that depend on data: their gradients as sums over sorted segments, exact, checked, with plans used again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.ir import Scatter, Segments
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tests.autodiff.laws import by_unit_vectors

F64 = te.float64
RNG = np.random.default_rng(3)

Case = tuple[te.Tensor, list[te.Tensor], dict[te.Tensor, np.ndarray]]


def integers(low: int, high: int, *shape: int) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def numbers(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(np.float64)


def embedding(ids: np.ndarray) -> Case:
    tokens, table = te.placeholder(ids.shape, "int32", name="ids"), te.placeholder((10, 3), F64, name="W")
    return te.compute((*ids.shape, 3), lambda t, d: table[tokens[t], d], name="Y"), [table], {tokens: ids, table: numbers(10, 3)}


def spread() -> Case:
    return embedding(np.arange(8, dtype=np.int32)[::-1])


def colliding() -> Case:
    return embedding(np.full(12, 4, np.int32))


def random() -> Case:
    return embedding(integers(0, 10, 30))


def rows_in_one() -> Case:
    """A table and results that are one axis each: rows are chosen, and not their elements."""
    tokens, table = te.placeholder((12,), "int32", name="ids"), te.placeholder((30,), F64, name="W")
    y = te.compute((36,), lambda p: table[tokens[p // 3] * 3 + p % 3], name="Y")
    return y, [table], {tokens: integers(0, 10, 12), table: numbers(30)}


def pictures_in_one() -> Case:
    """Rows of pictures that data chooses, beside each other, from a table of pictures in one axis."""
    pictures, table = te.placeholder((2, 4), "int32", name="ids"), te.placeholder((6 * 12, 2), F64, name="W")

    def body(p, c):
        picture, i, j = p // 12, p // 3 % 4, p % 3
        return table[pictures[picture, i] * 12 + i * 3 + (2 - j), c]

    return te.compute((24, 2), body, name="Y"), [table], {pictures: integers(0, 6, 2, 4), table: numbers(72, 2)}


def nothing() -> Case:
    return embedding(np.zeros(0, np.int32))


def batched() -> Case:
    ids, x = te.placeholder((3, 7), "int64", name="ids"), te.placeholder((3, 5, 4), F64, name="X")
    y = te.compute((3, 7, 4), lambda b, t, d: x[b, ids[b, t], d], name="Y")
    return y, [x], {ids: integers(0, 5, 3, 7).astype(np.int64), x: numbers(3, 5, 4)}


def symbolic() -> Case:
    b, n, m = te.dim("b"), te.dim("n"), te.dim("m")
    ids, x = te.placeholder((b, n), "int32", name="ids"), te.placeholder((m, b), F64, name="X")
    return te.compute((n, b), lambda t, q: x[ids[q, t], q], name="Y"), [x], {ids: integers(0, 6, 2, 9), x: numbers(6, 2)}


def symbolic_places() -> Case:
    n, m, h, w = te.dim("n"), te.dim("m"), te.dim("h"), te.dim("w")
    rows, columns = te.placeholder((n, m), "int32", name="rows"), te.placeholder((n, m), "int32", name="columns")
    x = te.placeholder((3, h, w), F64, name="X")
    y = te.compute((3, n, m), lambda c, i, j: x[c, rows[i, j], columns[i, j]], name="Y")
    return y, [x], {rows: integers(0, 4, 5, 6), columns: integers(0, 7, 5, 6), x: numbers(3, 4, 7)}


def guarded() -> Case:
    ids, table = te.placeholder((30,), "int32", name="ids"), te.placeholder((10, 3), F64, name="W")
    y = te.compute((30, 3), lambda t, d: te.where((ids[t] >= 0) & (ids[t] < 10), table[ids[t], d], 0.0), name="Y")
    return y, [table], {ids: integers(-5, 15, 30), table: numbers(10, 3)}


def grid_sample() -> Case:
    x, grid = te.placeholder((2, 2, 4, 6), F64, name="X"), te.placeholder((2, 3, 3, 2), F64, name="G")

    def body(n, c, h, w):
        top, left = te.floor(grid[n, h, w, 0]), te.floor(grid[n, h, w, 1])
        down, right = grid[n, h, w, 0] - top, grid[n, h, w, 1] - left
        row, column = te.cast(top, "int64"), te.cast(left, "int64")

        def at(i, j):
            return te.where((i >= 0) & (i < 4) & (j >= 0) & (j < 6), x[n, c, i, j], 0.0)

        upper = (1 - right) * at(row, column) + right * at(row, column + 1)
        return (1 - down) * upper + down * ((1 - right) * at(row + 1, column) + right * at(row + 1, column + 1))

    return te.compute((2, 2, 3, 3), body, name="Y"), [x], {grid: RNG.integers(-8, 30, (2, 3, 3, 2)) / 4, x: numbers(2, 2, 4, 6)}


def ragged() -> Case:
    ids, lengths = te.placeholder((6, 5), "int32", name="ids"), te.placeholder((6,), "int32", name="lengths")
    table = te.placeholder((10, 3), F64, name="W")
    tokens, counts = integers(0, 10, 6, 5), integers(0, 6, 6)
    for row, count in zip(tokens, counts, strict=True):
        row[count:] = -99  # what stands behind the end is never read
    y = te.compute((6, 3), lambda i, d: te.sum(lambda k: table[ids[i, k], d], lengths[i]), name="Y")
    return y, [table], {ids: tokens, lengths: counts, table: numbers(10, 3)}


def windows() -> Case:
    ids, table = te.placeholder((24,), "int32", name="ids"), te.placeholder((10, 3), F64, name="W")
    y = te.compute((3, 3), lambda i, d: te.sum(lambda r: table[ids[8 * i + r], d], 8), name="Y")
    return y, [table], {ids: integers(0, 10, 24), table: numbers(10, 3)}


def triangle() -> Case:
    ids, table = te.placeholder((6,), "int32", name="ids"), te.placeholder((10,), F64, name="W")
    y = te.compute((6,), lambda i: te.sum(lambda t: table[ids[t]] * (i + 1.0), i + 1), name="Y")
    return y, [table], {ids: integers(0, 10, 6), table: numbers(10)}


def mixed() -> Case:
    ids, table = te.placeholder((6,), "int32", name="ids"), te.placeholder((10, 9), F64, name="W")
    return te.compute((6, 4), lambda t, d: table[ids[t], t + d], name="Y"), [table], {ids: integers(0, 10, 6), table: numbers(10, 9)}


def strided_beside() -> Case:
    ids, table = te.placeholder((6,), "int32", name="ids"), te.placeholder((10, 11), F64, name="W")
    y = te.compute((6, 4), lambda t, o: te.sum(lambda i: table[ids[t], 2 * o + i + 1] * (i + 1.0), 3), name="Y")
    return y, [table], {ids: integers(0, 10, 6), table: numbers(10, 11)}


def two_levels() -> Case:
    ids, places = te.placeholder((6,), "int32", name="ids"), te.placeholder((5,), "int32", name="places")
    table = te.placeholder((10, 3), F64, name="W")
    y = te.compute((6, 3), lambda t, d: table[places[ids[t]], d], name="Y")
    return y, [table], {ids: integers(0, 5, 6), places: integers(0, 10, 5), table: numbers(10, 3)}


def along_an_axis() -> Case:
    ids, x = te.placeholder((6,), "int32", name="ids"), te.placeholder((6, 10), F64, name="X")
    return te.compute((6,), lambda t: x[t, ids[t]] * 3.0, name="Y"), [x], {ids: integers(0, 10, 6), x: numbers(6, 10)}


def one_place_of_data() -> Case:
    ids, x = te.placeholder((2,), "int32", name="ids"), te.placeholder((6, 3), F64, name="X")
    y = te.compute((6, 2), lambda i, j: x[i, ids[0] % 3] * te.cast(j + 1, F64), name="Y")
    return y, [x], {ids: integers(0, 50, 2), x: numbers(6, 3)}


def shifted_by_data() -> Case:
    shift, x = te.placeholder((4,), "int32", name="shift"), te.placeholder((4, 12), F64, name="X")
    y = te.compute((4, 12), lambda b, i: x.read(b, 2 * i + shift[b], outside=0.0), name="Y")
    return y, [x], {shift: integers(-9, 6, 4), x: numbers(4, 12)}


def rolled_by_data() -> Case:
    shift, x = te.placeholder((4,), "int64", name="shift"), te.placeholder((4, 12), F64, name="X")
    y = te.compute((4, 12), lambda b, i: x[b, (i - shift[b]) % 12], name="Y")
    return y, [x], {shift: RNG.integers(-30, 30, 4), x: numbers(4, 12)}


def slice_by_data() -> Case:
    start, x = te.placeholder((2,), "int32", name="start"), te.placeholder((12, 9), F64, name="X")
    y = te.compute((5, 3), lambda i, d: x[i + start[0], 2 * d + start[1]], name="Y")
    return y, [x], {start: np.array([3, 1], np.int32), x: numbers(12, 9)}


def rows_and_columns() -> Case:
    rows, columns = te.placeholder((6,), "int32", name="rows"), te.placeholder((5,), "int32", name="columns")
    x = te.placeholder((7, 8), F64, name="X")
    y = te.compute((6, 5), lambda a, b: x[rows[a], columns[b]] * (a + 2.0 * b), name="Y")
    return y, [x], {rows: integers(0, 7, 6), columns: integers(0, 8, 5), x: numbers(7, 8)}


def masked() -> Case:
    ids, mask = te.placeholder((6,), "int32", name="ids"), te.placeholder((6, 3), "bool", name="mask")
    table = te.placeholder((10, 3), F64, name="W")
    tokens, chosen = integers(0, 10, 6), RNG.integers(0, 2, (6, 3)).astype(bool)
    tokens[2], chosen[2] = -4, False
    y = te.compute((6, 3), lambda t, d: te.where(mask[t, d], table[ids[t], d], 0.0), name="Y")
    return y, [table], {ids: tokens, mask: chosen, table: numbers(10, 3)}


def products_of_indices() -> Case:
    x = te.placeholder((26,), F64, name="X")
    return te.compute((6, 6), lambda i, j: x[i * j], name="Y"), [x], {x: numbers(26)}


def rows_of_data() -> Case:
    """A matrix in compressed rows: the points of a row have no box, so they are scattered, in order."""
    starts, columns = te.placeholder((7,), "int64", name="starts"), te.placeholder((15,), "int32", name="columns")
    values, x = te.placeholder((15,), F64, name="values"), te.placeholder((8,), F64, name="x")
    ends = np.array([0, 2, 2, 5, 9, 10, 15])
    y = te.compute(
        (6,),
        lambda i: te.sum(lambda k: values[starts[i] + k] * x[columns[starts[i] + k]], starts[i + 1] - starts[i]),
        name="Y",
    )
    return y, [values, x], {starts: ends, columns: integers(0, 8, 15), values: numbers(15), x: numbers(8)}


def staircase() -> Case:
    """Loops beside that of the place end at its index: sums over its segment stand around them."""
    ids, table = te.placeholder((6,), "int32", name="ids"), te.placeholder((10,), F64, name="W")

    def body(i, j, k):
        return te.where((k < j) | (i < j), table[ids[j]] * te.cast(i + 2 * k + 1, F64), 1.0)

    return te.compute((4, 6, 5), body, name="Y"), [table], {ids: integers(0, 10, 6), table: numbers(10)}


def rows_of_narrow_numbers() -> Case:
    """Rows that are products of 32 bits: they may wrap around, to another row, for the length is a power of two."""
    ids, table = te.placeholder((6,), "int32", name="ids"), te.placeholder((20,), F64, name="W")
    y = te.compute((6, 4), lambda t, d: table[ids[t] * 4 + d], name="Y")
    return y, [table], {ids: np.array([3, 0, 4, 3, 2**30 + 1, 2], np.int32), table: numbers(20)}


SORTED = [
    spread, colliding, random, rows_in_one, pictures_in_one, nothing, batched, symbolic, symbolic_places, guarded, grid_sample, ragged,
    windows, triangle, mixed, rows_of_narrow_numbers, strided_beside, two_levels, masked, products_of_indices, rows_and_columns, staircase,
]  # fmt: skip
FIXED = [along_an_axis, one_place_of_data, shifted_by_data, rolled_by_data, slice_by_data]
ALL = [*SORTED, *FIXED, rows_of_data]
PLANS = {grid_sample: 4, rows_and_columns: 2}
each = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)


def with_head(case: Case) -> tuple[te.Tensor, list[te.Tensor], dict[te.Tensor, np.ndarray], te.Tensor]:
    y, wrt, arrays = case
    head = te.placeholder(y.shape, F64, name="H")
    return y, wrt, {**arrays, head: RNG.integers(-3, 4, te.evaluate(y, arrays).shape).astype(np.float64)}, head


def forms(tensors: te.Gradient | list[te.Tensor], kind: type) -> int:
    return sum(isinstance(definition, kind) for definition in simplify(program_of(list(tensors))).definitions)


@each
def test_gradients_are_exact_in_every_form_interpreted_and_compiled(make: Callable[[], Case]):
    y, wrt, arrays, head = with_head(make())
    exact = [by_unit_vectors(y, tensor, arrays, arrays[head]) for tensor in wrt]
    for lowering in (None, "segments", "atomics"):
        gradient = te.gradient(y, wrt, head, lowering=lowering)
        compiled = te.build(list(gradient), list(arrays))(*arrays.values())
        for expected, found, run in zip(exact, te.evaluate(list(gradient), arrays), compiled, strict=True):
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(run, found)


@pytest.mark.parametrize("make", SORTED, ids=lambda make: make.__name__)
def test_there_is_one_plan_and_no_scatter_for_each_place(make: Callable[[], Case]):
    y, wrt, arrays, head = with_head(make())
    gradient = te.gradient(y, wrt, head)
    assert forms(gradient, Scatter) == 0
    assert forms(gradient, Segments) == PLANS.get(make, 1)
    sizes = {"lengths": [*arrays.values()][1]} if make is ragged else {"b": 2, "n": 9, "m": 6, "h": 4, "w": 7}
    for row in gradient.report().rows:
        counts = [count if isinstance(count, int) else count(**sizes) for count in (row.iterations, row.reads)]
        assert row.lowering == "segments" and counts[0] == counts[1]
    # What is looked up in the plan is never checked; what the user gave is, once, unless a condition stands around it.
    checks = te.build(list(gradient), list(arrays)).nest.checks
    assert all("[k" not in site.access and site.tensor != "H" for site in checks)


@each
def test_second_derivatives_agree_with_those_through_scatters(make: Callable[[], Case]):
    y, wrt, arrays, head = with_head(make())

    def second(lowering: str | None) -> te.Gradient:
        first = te.gradient(y, wrt, head, lowering=lowering)[0]
        cube = te.compute((), lambda: te.sum(lambda *i: first[i] * first[i] * first[i], first.shape))
        return te.gradient(cube, [head], lowering=lowering)

    gathered = second(None)
    (expected,) = te.evaluate(list(second("atomics")), arrays)
    np.testing.assert_array_equal(te.evaluate(list(gathered), arrays)[0], expected)
    np.testing.assert_array_equal(te.build(list(gathered), list(arrays))(*arrays.values())[0], expected)
    if make in SORTED:  # the reads of the plan's own sums are turned around by its keys
        assert forms(gathered, Scatter) == 0 and forms(gathered, Segments) == PLANS.get(make, 1)


@each
def test_a_second_derivative_may_have_another_form_than_the_first(make: Callable[[], Case]):
    y, wrt, arrays, head = with_head(make())
    first = te.gradient(y, wrt, head)[0]
    again = te.placeholder(first.shape, F64, name="again")
    data = {**arrays, again: RNG.integers(-3, 4, te.evaluate(first, arrays).shape).astype(np.float64)}
    found = [te.evaluate(te.gradient(first, [head], again, lowering=lowering)[0], data) for lowering in (None, "segments", "atomics")]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("make", FIXED, ids=lambda make: make.__name__)
def test_data_that_an_element_settles_needs_no_plan(make: Callable[[], Case]):
    y, wrt, _, head = with_head(make())
    gradient = te.gradient(y, wrt, head)
    assert forms(gradient, Segments) == forms(gradient, Scatter) == 0
    for row in gradient.report().rows:
        assert row.lowering == "segments" and row.iterations == row.reads


def test_printed():
    y, wrt, _, head = with_head(random())
    assert str(simplify(program_of(list(te.gradient(y, wrt, head))))).splitlines()[2:] == [
        "W_offsets, W_order = segments[10](i64(ids[t]) for t in range(30))",
        "W_bar[p, d]: f64[10, 3] = sum(H[W_order[k], d] for k in range(W_offsets[p], W_offsets[p + 1]))",
        "return W_bar",
    ]
    y, wrt, _, head = with_head(rolled_by_data())
    assert str(simplify(program_of(list(te.gradient(y, wrt, head))))).splitlines()[-2] == (
        "X_bar[b, p]: f64[4, 12] = H[b, (shift[b] + p) % 12]"
    )
    y, wrt, _, head = with_head(batched())
    assert str(simplify(program_of(list(te.gradient(y, wrt, head))))).splitlines()[2:] == [
        "X_offsets, X_order = segments[5](ids[b, t] for b in batch(3) for t in range(7))",
        "X_bar[b, p, d]: f64[3, 5, 4] = sum(H[b, X_order[b, k], d] for k in range(X_offsets[b, p], X_offsets[b, p + 1]))",
        "return X_bar",
    ]


def test_factors_at_the_same_place_are_read_at_the_element():
    ids, w, u = te.placeholder((20,), "int32", name="ids"), te.placeholder((9,), F64, name="W"), te.placeholder((9,), F64, name="U")
    y = te.compute((20,), lambda t: te.sin(w[ids[t]]) * u[ids[t]], name="Y")
    gradient = te.gradient(y, [w, u], te.placeholder((20,), F64, name="H"))
    text = str(simplify(program_of(list(gradient))))
    assert text.count("segments") == 1 and "ids[W_order" not in text and "cos(W[p])" in text


def test_one_plan_serves_all_readers_and_derivatives():
    ids = te.placeholder((4, 5), "int32", name="ids")
    w, u = te.placeholder((9, 3), F64, name="W"), te.placeholder((9,), F64, name="U")
    first = te.compute((4, 5, 3), lambda a, b, d: w[ids[a, b], d] * u[ids[a, b]])
    second = te.compute((5, 4), lambda x, y: u[ids[y, x]])
    heads = [te.placeholder(first.shape, F64, name="G"), te.placeholder(second.shape, F64, name="H")]
    gradient = te.gradient([first, second], [w, u], heads)
    assert forms(gradient, Segments) == 1 and forms([*gradient, *te.gradient(second, [u], heads[1])], Segments) == 1


@pytest.mark.parametrize("value", [10, -1])
def test_an_index_out_of_range_is_an_error(value: int):
    y, wrt, arrays, head = with_head(random())
    ids = next(iter(arrays))
    arrays[ids] = arrays[ids].copy()
    arrays[ids][7] = value
    gradient = te.gradient(y, wrt, head)
    with pytest.raises(OutOfBoundsError) as caught:
        te.build(list(gradient), list(arrays))(*arrays.values())
    assert str(caught.value).splitlines()[0] == f"W_offsets: expected an index of W_offsets from 0 to 9, got {value}"
    with pytest.raises(OutOfBoundsError):
        te.evaluate(list(gradient), arrays)


def test_a_jacobian_makes_its_plan_once():
    y, wrt, arrays, _ = with_head(random())
    jacobian = te.jacobian(y, wrt[0])
    assert forms([jacobian], Segments) == 1
    found, ids = te.evaluate(jacobian, arrays), arrays[next(iter(arrays))]
    expected = np.zeros((30, 3, 10, 3))
    for t, d in np.ndindex(30, 3):
        expected[t, d, ids[t], d] = 1.0
    np.testing.assert_array_equal(found, expected)


def test_inside_a_scan_a_plan_is_made_for_all_steps_or_for_each():
    ids, w, s0 = te.placeholder((4, 5), "int32", name="ids"), te.placeholder((10,), F64, name="W"), te.placeholder((6,), F64, name="s0")

    def outside(t, s):
        return te.compute((6,), lambda i: s[i] * 2.0 + te.where(i < 5, w[ids[t, te.minimum(i, 4)]], 0.0))

    def of_the_state(t, s):
        return te.compute((6,), lambda i: s[te.where(i < 5, te.cast(ids[t, te.minimum(i, 4)] % 6, "int64"), 0)] + w[i])

    arrays = {ids: integers(0, 10, 4, 5), w: numbers(10), s0: numbers(6)}
    for body in (outside, of_the_state):
        y = te.scan(body, s0, 4)
        head = te.placeholder((4, 6), F64, name="H")
        data = {**arrays, head: numbers(4, 6)}
        gradient = te.gradient(y, [w, s0], head)
        assert forms(gradient, Scatter) == 0
        for tensor, found in zip([w, s0], te.build(list(gradient), list(data))(*data.values()), strict=True):
            np.testing.assert_array_equal(found, by_unit_vectors(y, tensor, data, data[head]))


_DIGEST = """
import hashlib, numpy as np, tensorexpr as te
ids, w = te.placeholder((20000,), "int32", name="ids"), te.placeholder((300, 40), "float32", name="W")
y = te.compute((20000, 40), lambda t, d: te.exp(w[ids[t], d]))
head = te.placeholder(y.shape, "float32", name="H")
rng = np.random.default_rng(0)
chosen, table, weights = rng.integers(0, 300, 20000), rng.standard_normal((300, 40)), rng.standard_normal((20000, 40))
data = [chosen.astype("i4"), table.astype("f4"), weights.astype("f4")]
f = te.build(list(te.gradient(y, [w], head)), [ids, w, head])
first = f(*data)[0].tobytes()
assert all(f(*data)[0].tobytes() == first for _ in range(3))
print(hashlib.sha256(first + f.source("llvm").encode()).hexdigest())
"""


def test_the_same_bits_on_every_run_and_any_number_of_threads():
    digests = set()
    for threads, seed in (("1", "0"), ("5", "2")):
        environment = {**os.environ, "TENSOREXPR_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("lowering", [None, "segments"])
def test_forced_on_affine_reads(lowering: str | None):
    x = te.placeholder((2, 3, 9, 10), F64, name="X")
    w = te.placeholder((4, 3, 2, 3), F64, name="W")
    conv = te.compute(
        (2, 4, 4, 3),
        lambda n, k, y, z: te.sum(lambda c, i, j: x[n, c, 2 * y + i, 3 * z + j] * w[k, c, i, j], (3, 2, 3)),
    )
    pool = te.compute((2, 3, 4, 5), lambda n, c, y, z: te.max(lambda i, j: x[n, c, 2 * y + i, 2 * z + j], (2, 2)))
    flat = te.compute((2, 270), lambda n, p: x[n, p // 90, p // 10 % 9, p % 10])
    clamped = te.compute((2, 12), lambda n, q: x[n, 1, te.clip(q - 2, 0, 8), 4])
    data = {x: RNG.permutation(540).reshape(2, 3, 9, 10).astype(np.float64), w: numbers(4, 3, 2, 3)}
    for output, wrt in ((conv, [x, w]), (pool, [x]), (flat, [x]), (clamped, [x])):
        head = te.placeholder(output.shape, F64, name="H")
        arrays = {**data, head: numbers(*output.shape)}
        gradient = te.gradient(output, wrt, head, lowering=lowering)
        expected = te.evaluate(list(te.gradient(output, wrt, head, lowering="atomics")), arrays)
        for found, run, reference in zip(
            te.evaluate(list(gradient), arrays), te.build(list(gradient), list(arrays))(*arrays.values()), expected, strict=True
        ):
            np.testing.assert_array_equal(found, reference)
            np.testing.assert_array_equal(run, reference)
        rows = gradient.report().rows
        assert all((row.lowering == "segments") == (lowering is not None) and row.iterations == row.reads for row in rows)
        assert forms(gradient, Scatter) == 0
