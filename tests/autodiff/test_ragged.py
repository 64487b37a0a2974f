"""Reductions and scatters whose bounds depend on data: every combiner, both modes, first and second order."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.ir import Apply, Reduce, Scan, Scatter
from tensorexpr.language import program_of
from tensorexpr.traversal import walk
from tests.autodiff.laws import check_orders

F64 = "float64"
RNG = np.random.default_rng(20)


def welford(a, b):
    """Count, mean and sum of squared deviations of two sets; either may be empty."""
    n = a[0] + b[0]
    share = te.where(n == 0, 0.0, b[0] / te.where(n == 0, 1.0, n))
    step = b[1] - a[1]
    return n, a[1] + step * share, a[2] + b[2] + step * step * a[0] * share


def log_sum_exp(a, b):
    """The greatest exponent and the sum of exponentials relative to it."""
    top = te.maximum(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


REDUCTIONS = {
    "sum": te.sum,
    "prod": te.prod,
    "max": te.max,
    "min": te.min,
    "welford": lambda body, n: te.reduce(welford, (0.0, 0.0, 0.0), lambda k: (1.0, body(k), 0.0), n)[2],
    "log_sum_exp": lambda body, n: te.log(te.reduce(log_sum_exp, (-1e3, 0.0), lambda k: (body(k), 1.0), n)[1]),
    "product": lambda body, n: te.reduce(lambda a, b: a * b, 1.0, body, n),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_lengths_that_are_data(name):
    x, lengths = te.placeholder((3, 5), F64, name="x"), te.placeholder((3,), "int64", name="lengths")
    y = te.compute((3,), lambda i: REDUCTIONS[name](lambda k: te.sin(x[i, k]) + 1.5, lengths[i]), name="y")
    check_orders(y, [x], {x: RNG.standard_normal((3, 5)), lengths: np.array([2, 5, 3])})


@pytest.mark.parametrize("name", ["sum", "prod", "max", "welford"])
def test_rows_of_a_compressed_matrix(name):
    v, starts = te.placeholder((9,), F64, name="v"), te.placeholder((4,), "int64", name="starts")
    y = te.compute((3,), lambda i: REDUCTIONS[name](lambda k: v[starts[i] + k] ** 2, starts[i + 1] - starts[i]), name="y")
    check_orders(y, [v], {v: RNG.standard_normal(9), starts: np.array([0, 2, 6, 9])})


def test_a_product_over_a_length_that_is_data_costs_no_square():
    x, lengths = te.placeholder((2, 64), F64, name="x"), te.placeholder((2,), "int64", name="lengths")
    y = te.compute((2,), lambda i: te.prod(lambda k: x[i, k], lengths[i]), name="y")
    (found,) = te.gradient(te.compute((), lambda: y[0] + y[1]), [x])
    lengths_of_scans = [int(d.length.value) for d in program_of([found]).definitions if isinstance(d, Scan)]
    assert lengths_of_scans == [64, 64]
    data = RNG.uniform(0.5, 1.5, (2, 64))
    data[0, 3] = 0.0
    value = te.evaluate(found, {x: data, lengths: np.array([10, 64])})
    expected = np.zeros((2, 64))
    for i, n in enumerate((10, 64)):
        expected[i, :n] = [np.prod(np.delete(data[i, :n], k)) for k in range(n)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_a_fold_with_an_empty_row_and_one_under_a_limit_of_the_user():
    x, lengths = te.placeholder((8,), F64, name="x"), te.placeholder((3,), "int64", name="lengths")

    def total(i):
        return te.reduce(lambda a, b: a + b, 0.0, lambda k: te.where(k < 6, x[te.minimum(k, 7)] ** 2, 1.0), te.minimum(lengths[i], 7))

    y = te.compute((3,), total, name="y")
    check_orders(te.compute((3,), lambda i: te.sin(y[i])), [x], {x: RNG.standard_normal(8), lengths: np.array([0, 3, 100])}, order=1)


@pytest.mark.parametrize("combine", ["sum", "max", "min", "prod"])
def test_scatters_over_lengths_that_are_data(combine):
    x, lengths = te.placeholder((3, 5), F64, name="x"), te.placeholder((3,), "int64", name="lengths")
    y = te.scatter((3,), lambda i, k: ((i + k) % 3, te.sin(x[i, k]) + 2.0), (3, lambda i: lengths[i]), combine=combine, name="y")
    check_orders(te.compute((3,), lambda i: te.cos(y[i])), [x], {x: RNG.standard_normal((3, 5)), lengths: np.array([2, 5, 3])})


# --------------------------------------------------------------------------------------------- compressed sparse rows

ROWS = {
    "one after the other": [0, 2, 5, 5, 9],
    "empty rows": [0, 0, 3, 3, 3],
    "a row of everything": [0, 9, 9, 9, 9],
    "no rows": [4, 4, 4, 4, 4],
    "backwards": [9, 4, 6, 0, 2],
}
COLUMNS = {"spread": [3, 0, 4, 1, 1, 2, 0, 3, 4], "all one": [2] * 9}


def sparse_rows(depth=None):
    """A compressed matrix times a vector, or times a matrix of `depth` columns; rows may overlap."""
    p, cols = te.placeholder((5,), "int64", name="p"), te.placeholder((9,), "int32", name="cols")
    v = te.placeholder((9,), F64, name="v")
    x = te.placeholder((5,) if depth is None else (5, depth), F64, name="x")
    if depth is None:
        y = te.compute((4,), lambda i: te.sum(lambda k: te.sin(v[p[i] + k]) * x[cols[p[i] + k]], p[i + 1] - p[i]), name="y")
    else:
        y = te.compute((4, depth), lambda i, d: te.sum(lambda k: te.sin(v[p[i] + k]) * x[cols[p[i] + k], d], p[i + 1] - p[i]), name="y")
    return y, p, cols, v, x


@pytest.mark.parametrize(
    ("elements", "form"),
    [
        (1 << 22, "added in the order of the text"),
        (1 << 10, "parts have results of their own, added up in their order"),
    ],
)
def test_the_report_says_who_adds_up_what_rows_send(elements, form):
    """As the default schedule of the gradient has it."""
    rows, points = 1 << 12, 1 << 18
    p, cols = te.placeholder((rows + 1,), "int64", name="p"), te.placeholder((points,), "int64", name="cols")
    v, x = te.placeholder((points,), name="v"), te.placeholder((elements,), name="x")
    y = te.compute((rows,), lambda i: te.sum(lambda k: v[p[i] + k] * x[cols[p[i] + k]], p[i + 1] - p[i]), name="y")
    gradient = te.gradient(y, [v, x], te.placeholder((rows,), name="h"))
    told = dict(line.split(": rows of data, no plan; ") for line in str(gradient.report()).splitlines() if "no plan" in line)
    assert told["x[cols[p[i] + k]]"] == f"{form} (te.autoschedule)"
    assert told["v[p[i] + k]"] == "rows own their elements where the data keeps them apart (te.autoschedule)"
    calls = te.autoschedule(gradient[1]).as_python()
    assert (".rfactor(" in calls) == form.startswith("parts")


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("depth", [None, 3])
def test_gradients_of_compressed_rows(rows, columns, depth):
    y, p, cols, v, x = sparse_rows(depth)
    data = {p: np.array(ROWS[rows]), cols: np.array(COLUMNS[columns], "i4")}
    data |= {t: RNG.standard_normal(t.shape) for t in (v, x)}
    check_orders(y, [v, x], data)
    head = te.placeholder(y.shape, F64, name="h")
    data[head] = RNG.standard_normal(y.shape)
    ordered, atomic = te.gradient(y, [v, x], head), te.gradient(y, [v, x], head, lowering="atomics")
    assert {row.lowering for row in ordered.report().rows} == {"segments"}
    told = str(ordered.report()).splitlines()[-1]
    form = "added in the order of the text" if depth is None else "owners of elements add in the order of the text"
    assert told.endswith(f": rows of data, no plan; {form} (te.autoschedule)")
    for first, second in zip(ordered, atomic, strict=True):
        np.testing.assert_allclose(te.evaluate(first, data), te.evaluate(second, data), rtol=1e-12, atol=1e-12)
    found = te.build(list(ordered), list(data))(*data.values())
    for value, tensor in zip(found, ordered, strict=True):
        np.testing.assert_allclose(value, te.evaluate(tensor, data), rtol=1e-12, atol=1e-12)


def test_what_an_element_of_a_row_receives_is_summed_before_it_is_added():
    y, _, _, v, x = sparse_rows(7)
    gradient = te.gradient(y, [v, x], te.placeholder(y.shape, F64, name="h"))
    to_values, to_table = (d for d in program_of(list(gradient)).definitions if isinstance(d, Scatter))
    assert [len(to_values.axes), len(to_table.axes)] == [2, 3]
    found = [[node for node in walk(d.value) if isinstance(node, Reduce)] for d in (to_values, to_table)]
    assert list(map(len, found)) == [1, 0] and not any(isinstance(n, Apply) and n.op.name == "cos" for n in walk(found[0][0]))


def test_a_row_without_columns_reads_nothing():
    """Nothing is read where there are no columns, so its place may be anywhere."""
    n, ids = te.dim("n"), te.placeholder((3,), "int64", name="ids")
    v, x = te.placeholder((4,), F64, name="v"), te.placeholder((3, n), F64, name="x")
    y = te.compute((3, n), lambda i, d: te.sum(lambda k: v[ids[i] + k] * x[i, d], ids[i]), name="y")
    head = te.placeholder((3, n), F64, name="h")
    f = te.build(list(te.gradient(y, [v], head)), [ids, v, x, head])
    far, nothing = np.array([1, 9, 2]), np.ones((3, 0))
    np.testing.assert_array_equal(f(far, np.ones(4), nothing, nothing)[0], np.zeros(4))
    with pytest.raises(IndexError, match="expected an index of v_bar from 0 to 3, got 9"):
        f(far, np.ones(4), np.ones((3, 1)), np.ones((3, 1)))


@pytest.mark.parametrize(("rows", "got"), [([0, 2, 5, 8, 12], 9), ([-1, 2, 5, 8, 9], -1)])
def test_a_row_that_leaves_its_tensor_is_an_index_error(rows, got):
    y, p, cols, v, x = sparse_rows()
    head = te.placeholder(y.shape, F64, name="h")
    data = {p: np.array(rows), cols: np.zeros(9, "i4"), v: np.ones(9), x: np.ones(5), head: np.ones(4)}
    for tensor in te.gradient(y, [v, x], head):
        with pytest.raises(IndexError, match=f"expected 0 <= index < 9 on axis 0 of (v|v_bar|cols), got {got}"):
            te.evaluate(tensor, data)
        with pytest.raises(IndexError, match=f"expected an index of (v|v_bar|cols) from 0 to 8, got {got}"):
            te.build([tensor], list(data))(*data.values())


_DIGEST = """
import hashlib, numpy as np, tensorexpr as te
n, nnz, m = 3000, 70000, 900
p, cols = te.placeholder((n + 1,), "int64", name="p"), te.placeholder((nnz,), "int32", name="cols")
v, x, h = te.placeholder((nnz,), name="v"), te.placeholder((m,), name="x"), te.placeholder((n,), name="h")
y = te.compute((n,), lambda i: te.sum(lambda k: te.sin(v[p[i] + k]) * x[cols[p[i] + k]], p[i + 1] - p[i]))
rng = np.random.default_rng(0)
starts = np.sort(rng.integers(0, nnz + 1, n + 1))
data = [starts, rng.integers(0, m, nnz).astype("i4"), *(rng.standard_normal(k).astype("f4") for k in (nnz, m, n))]
f = te.build([*te.gradient(y, [v, x], h), *te.sort_plan(cols, m)], [p, cols, v, x, h])
digests = []
for overlapping in (False, True):
    if overlapping:
        data[0] = starts.copy()
        data[0][::500] += 30
        data[0] = np.minimum(data[0], nnz)
    found = [b"".join(np.asarray(a).tobytes() for a in f(*data)) for _ in range(3)]
    assert len(set(found)) == 1
    digests.append(hashlib.sha256(found[0]).hexdigest())
assert sum(k.body[0].kind == "parallel" for k in f.nest.kernels if hasattr(k.body[0], "kind")) >= 3
print(digests)
"""


def test_the_same_bits_on_any_number_of_threads():
    digests = set()
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "TENSOREXPR_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("combiner", [lambda a, b: a * b, lambda a, b: a + b + a * b])
def test_folds_over_extents_that_are_the_greatest_of_several(rows, combiner):
    """Nothing in some rows, or in all of them, whatever the points read."""
    x, head = te.placeholder((5, 4), "float64", name="x"), te.placeholder((rows,), "float64", name="head")
    identity = 1.0 if combiner(2.0, 3.0) == 6.0 else 0.0
    arrays = {x: np.random.default_rng(5).uniform(0.5, 1.5, (5, 4)), head: np.ones(rows)}
    extents = [
        lambda i: te.maximum(i - 2, 0), lambda i: te.maximum(te.maximum(i - 3, 0), 2 - i), lambda i: te.minimum(te.maximum(i - 1, 0), 4),
    ]  # fmt: skip
    for extent in extents:
        for value in (lambda i, k: x[i, 0] * 2.0, lambda i, k: x[i, 0] + x[i, k]):
            y = te.compute((rows,), lambda i, e=extent, v=value: te.reduce(combiner, identity, lambda k: v(i, k), e(i)), name="y")
            (slope,) = te.gradient(y, [x], head)
            check = te.jvp(y, [x], [te.constant(np.ones((5, 4)))])
            total = te.evaluate(slope, arrays).sum()
            np.testing.assert_allclose(total, te.evaluate(check, arrays).sum(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(te.build(slope, [x, head])(*arrays.values()), te.evaluate(slope, arrays), rtol=1e-12, atol=1e-12)
