"""As an outside checker reads the documents: each promise of the language against NumPy, interpreted and compiled."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tests.contract.running import both

RNG = np.random.default_rng(0)
NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64")
NUMPY = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in NAMES}


def test_the_first_example_of_the_design():
    n, k, m = 3, 4, 5
    A = te.placeholder((n, k), "float32", name="A")
    B = te.placeholder((k, m), name="B")
    C = te.compute((n, m), lambda i, j: te.sum(lambda r: A[i, r] * B[r, j], k), name="C")
    assert B.dtype == "float32" and C.shape == (3, 5)
    a, b = RNG.normal(size=(n, k)).astype("f4"), RNG.normal(size=(k, m)).astype("f4")
    np.testing.assert_allclose(both(C, {A: a, B: b}, rtol=1e-5), a @ b, rtol=1e-5)


# ------------------------------------------------------------------------------------------------- tensors and sizes


@pytest.mark.parametrize("name", NAMES)
def test_numpy_takes_every_dtype_as_its_own(name):
    tensor = te.placeholder((3,), name)
    assert np.dtype(tensor.dtype) == NUMPY[name] == np.zeros(2, tensor.dtype).dtype


def test_constants_and_tuples():
    k = te.constant(np.array([1.0, 2.0, 3.0]), name="k")
    table = te.constant([[1, 2], [3, 4]])
    C = te.compute((3,), lambda i: k[i] * 2 + table[1, 1] + te.constant(5.0)[()])
    np.testing.assert_array_equal(both(C, {}), [11, 13, 15])
    double, whole = te.compute((3,), lambda i: (k[i] * 2, te.cast(k[i], "int32")), name="pair")
    x, y = both([double, whole], {})
    np.testing.assert_array_equal(x, [2, 4, 6])
    assert y.dtype == np.int32
    assert isinstance(te.compute((3,), lambda i: (k[i],)), tuple)


def test_a_constant_is_a_copy():
    data = np.ones(3)
    k = te.constant(data)
    data[:] = 7
    np.testing.assert_array_equal(te.evaluate(te.compute((3,), lambda i: k[i])), 1)


def test_symbolic_sizes_run_at_every_size():
    n, m = te.dim("n"), te.dim("m")
    A, B = te.placeholder((n, m), "float64", name="A"), te.placeholder((m, n), "float64", name="B")
    C = te.compute((n, n), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], m))
    f = te.build(C, [A, B])
    for shape in ((3, 4), (1, 1), (0, 3), (3, 0), (17, 33)):
        a, b = RNG.normal(size=shape), RNG.normal(size=shape[::-1])
        np.testing.assert_allclose(f(a, b), a @ b, atol=1e-12)
        if a.size < 100:
            np.testing.assert_allclose(te.evaluate(C, {A: a, B: b}), a @ b, atol=1e-12)
    flat = te.compute((n * m,), lambda q: A[q // m, q % m])
    a = RNG.normal(size=(3, 4))
    np.testing.assert_array_equal(both(flat, {A: a}), a.ravel())


# ------------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reductions_in_every_form(name):
    A = te.placeholder((3, 4), "float64", name="A")
    a = RNG.normal(size=(3, 4))
    reduce, wanted = getattr(te, name), getattr(np, name)
    for extents in (3, (3,), [3]):
        np.testing.assert_allclose(both(te.compute((4,), lambda j: reduce(lambda i: A[i, j], extents)), {A: a}), wanted(a, axis=0))  # noqa: B023
    some = te.compute((4,), lambda j: reduce(body=lambda i: A[i, j], extents=3, where=lambda i: i != 1))
    np.testing.assert_allclose(both(some, {A: a}), wanted(a[[0, 2]], axis=0))
    whole = te.compute((), lambda: reduce(lambda i, j: A[i, j], (3, 4)))
    np.testing.assert_allclose(both(whole, {A: a}), wanted(a))


def test_all_and_any():
    A = te.placeholder((5, 4), "float64", name="A")
    a = RNG.normal(size=(5, 4))
    every = te.compute((5,), lambda i: te.all(lambda j: A[i, j] > -1, 4))
    some = te.compute((5,), lambda i: te.any(lambda j: A[i, j] > 1, 4))
    x, y = both([every, some], {A: a})
    assert x.dtype == bool
    np.testing.assert_array_equal(x, (a > -1).all(1))
    np.testing.assert_array_equal(y, (a > 1).any(1))


def test_argmax_over_several_axes_is_the_flat_row_major_index():
    A = te.placeholder((3, 4, 5), "float64", name="A")
    a = RNG.integers(0, 4, size=(3, 4, 5)).astype("f8")
    top = te.compute((3,), lambda i: te.argmax(lambda j, k: A[i, j, k], (4, 5)))
    low = te.compute((3,), lambda i: te.argmin(lambda j, k: A[i, j, k], (4, 5), where=lambda j, k: j > 0))
    x, y = both([top, low], {A: a})
    assert x.dtype == np.int64
    np.testing.assert_array_equal(x, a.reshape(3, -1).argmax(1))
    np.testing.assert_array_equal(y, a[:, 1:].reshape(3, -1).argmin(1) + 5)
    assert both(te.compute((), lambda: te.argmax(lambda i, j, k: A[i, j, k], (3, 4, 5))), {A: a}) == a.argmax()


def test_extents_depend_on_outer_indices_and_reductions_nest():
    A = te.placeholder((4, 4), "float64", name="A")
    a = RNG.normal(size=(4, 4))
    np.testing.assert_allclose(both(te.compute((4,), lambda i: te.sum(lambda k: A[i, k], i + 1)), {A: a}), np.tril(a).sum(1))
    nested = te.compute((4,), lambda i: te.max(lambda j: A[i, j] * te.sum(lambda k: A[k, j], 4), 4) + 1)
    np.testing.assert_allclose(both(nested, {A: a}), (a * a.sum(0)).max(1) + 1)


def test_a_maximum_over_nothing_is_the_least_value():
    A = te.placeholder((4, 4), "float64", name="A")
    assert both(te.compute((4,), lambda i: te.max(lambda k: A[i, k], i)), {A: np.ones((4, 4))})[0] == -np.inf
    B = te.placeholder((4, 4), "int8", name="B")
    least = both(te.compute((4,), lambda i: te.max(lambda k: B[i, k], i)), {B: np.ones((4, 4), "i1")})
    assert least[0] == -128 and least.dtype == np.int8
    with pytest.raises(te.DefinitionError, match="expected something to take the max of, got a reduction over nothing"):
        te.compute((4,), lambda i: te.max(lambda k: A[i, k], 0))


def test_combiners_of_tuples_unpack_in_an_expression():
    A = te.placeholder((3, 6), "float64", name="A")
    a = RNG.normal(size=(3, 6))

    def merge(x, y):
        (nx, mx, vx), (ny, my, vy) = x, y
        n, d = nx + ny, my - mx
        safe = te.maximum(n, 1.0)
        return n, mx + d * ny / safe, vx + vy + d * d * nx * ny / safe

    def body(i):
        n, mean, square = te.reduce(merge, (0.0, 0.0, 0.0), lambda j: (1.0, A[i, j], 0.0), 6)
        return mean, square / n

    mean, variance = both(list(te.compute((3,), body)), {A: a})
    np.testing.assert_allclose(mean, a.mean(1))
    np.testing.assert_allclose(variance, a.var(1))

    def better(x, y):
        take = y[0] > x[0]
        return te.where(take, y[0], x[0]), te.where(take, y[1], x[1])

    _, place = te.compute((3,), lambda i: te.reduce(better, (-np.inf, -1), lambda j: (A[i, j], j), 6))
    np.testing.assert_array_equal(both(place, {A: a}), a.argmax(1))
    centered = te.compute((3, 6), lambda i, j: A[i, j] - te.reduce(lambda x, y: x + y, 0.0, lambda k: A[i, k], 6) / 6)
    np.testing.assert_allclose(both(centered, {A: a}), a - a.mean(1, keepdims=True))


@pytest.mark.parametrize("copies", [1, 20])
def test_extremes_propagate_nan_and_take_the_first_winner(copies):
    a = np.tile(np.array([[1, np.nan, 3], [np.nan, np.nan, 1], [2, 2, 1], [np.inf, 1, -np.inf]], "f4"), (1, copies))
    A = te.placeholder(a.shape, name="A")
    for name in ("max", "min", "argmax", "argmin"):
        by_row = te.compute((4,), lambda i: getattr(te, name)(lambda j: A[i, j], a.shape[1]))  # noqa: B023
        by_column = te.compute((a.shape[1],), lambda j: getattr(te, name)(lambda i: A[i, j], 4))  # noqa: B023
        x, y = both([by_row, by_column], {A: a})
        np.testing.assert_array_equal(x, getattr(np, name)(a, axis=1))
        np.testing.assert_array_equal(y, getattr(np, name)(a, axis=0))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sums_of_half_precision_are_carried_in_float32(name):
    x = RNG.random((3, 5000)).astype(NUMPY[name])
    A = te.placeholder(x.shape, name, name="A")
    C = te.compute((3,), lambda i: te.sum(lambda k: A[i, k], 5000))
    assert C.dtype == name
    found = te.build(C, [A])(x).astype("f4")
    np.testing.assert_allclose(found, x.astype("f4").sum(1), rtol=2.0**-8 if name == "bfloat16" else 2.0**-11)


# --------------------------------------------------------------------------------------------------------- accesses


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (2, 5)])
def test_reads_beyond_the_border_at_any_distance_as_numpy_pad(shape):
    far = 11
    A = te.placeholder(shape, "float64", name="A")
    a = RNG.normal(size=shape)
    modes = {"clamp": "edge", "reflect": "reflect", "symmetric": "symmetric", "wrap": "wrap"}
    tensors = [
        te.compute((shape[0] + 2 * far, shape[1] + 2 * far), lambda i, j, o=o: A.read(i - far, j - far, outside=o)) for o in (*modes, 2.5)
    ]
    *found, constant = both(tensors, {A: a})
    for mode, result in zip(modes.values(), found, strict=True):
        np.testing.assert_array_equal(result, np.pad(a, far, mode=mode))
    np.testing.assert_array_equal(constant, np.pad(a, far, constant_values=2.5))


def test_borders_of_symbolic_sizes():
    n = te.dim("n")
    A = te.placeholder((n,), "float64", name="A")
    for mode, wanted in (("clamp", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric"), ("wrap", "wrap"), (0, "constant")):
        padded = te.compute((n + 14,), lambda i: A.read(i - 7, outside=mode))  # noqa: B023
        f = te.build(padded, [A])
        for size in (1, 2, 5):
            a = RNG.normal(size=size)
            np.testing.assert_array_equal(f(a), np.pad(a, 7, mode=wanted))


def test_indices_that_depend_on_data_are_checked_as_the_kernel_runs():
    W, ids = te.placeholder((5, 3), name="W"), te.placeholder((4,), "int64", name="ids")
    C = te.compute((4, 3), lambda t, d: W[ids[t], d], name="embed")
    w, good = RNG.normal(size=(5, 3)).astype("f4"), np.array([0, 4, 2, 2])
    np.testing.assert_array_equal(both(C, {W: w, ids: good}), w[good])
    f = te.build(C, [W, ids])
    for bad in (5, -1, 2**62, -(2**63)):
        wrong = np.array([0, bad, 2, 2])
        for run in (lambda: f(w, wrong), lambda: te.evaluate(C, {W: w, ids: wrong})):  # noqa: B023
            with pytest.raises(IndexError) as caught:
                run()
            assert isinstance(caught.value, te.TensorExprError)
            assert (
                "embed" in str(caught.value)
                and str(bad) in str(caught.value)
                and "W" in str(caught.value)
                and __file__ in str(caught.value)
            )
    np.testing.assert_array_equal(f(w, good), w[good])


def test_the_branch_not_taken_is_never_evaluated():
    n = 37
    A, ids, M = te.placeholder((n,), "float64", name="A"), te.placeholder((n,), "int64", name="ids"), te.placeholder((n,), "bool", name="M")
    a, i = RNG.normal(size=n), RNG.integers(-100, 100, size=n)
    inside = (i >= 0) & (i < n)
    wanted = np.where(inside, a[i.clip(0, n - 1)], -1)
    shifted = te.compute((n,), lambda t: te.where(t > 0, A[t - 1], 0.0))
    proved = te.compute((n,), lambda t: te.where((ids[t] >= 0) & (ids[t] < n), A[ids[t]], -1.0))
    opaque = te.compute((n,), lambda t: te.where(M[t], A[ids[t]], -1.0))
    total = te.compute((), lambda: te.sum(lambda t: A[ids[t]], n, where=lambda t: M[t]))
    table = te.compute((n,), lambda s: te.sum(lambda t: te.where(M[t] & M[s], A[ids[t]], 0.0), n))
    found = both([shifted, proved, opaque, total, table], {A: a, ids: i, M: inside})
    np.testing.assert_array_equal(found[0], np.concatenate([[0], a[:-1]]))
    np.testing.assert_array_equal(found[1], wanted)
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_allclose(found[3], wanted[inside].sum())


# ---------------------------------------------------------------------------------------------------------- scalars


def _numpy_dtype(make):
    try:
        return make().dtype.name
    except TypeError:
        return "none"


def _own_dtype(make):
    try:
        return make().dtype.name
    except te.DefinitionError:
        return "none"


def _met(a, b):
    """Arrays or NumPy scalars of which an integer (or bool) takes the dtype of a float beside it: it never widens one."""
    kinds = ["f" if v.dtype.name == "bfloat16" else v.dtype.kind for v in (a, b)]
    if kinds[0] == "f" and kinds[1] in "biu":
        return a, b.astype(a.dtype)
    return (a.astype(b.dtype), b) if kinds[1] == "f" and kinds[0] in "biu" else (a, b)


@pytest.mark.parametrize("left", NAMES)
def test_promotion_of_all_pairs_is_numpys_but_for_integers_beside_floats(left):
    operations = (
        lambda p, q: p + q, lambda p, q: p * q, lambda p, q: p - q, lambda p, q: p / q, lambda p, q: p // q, lambda p, q: p % q,
        lambda p, q: p**q, lambda p, q: p < q, lambda p, q: p & q,
    )  # fmt: skip
    for right in NAMES:
        A, B = te.placeholder((1,), left, name="A"), te.placeholder((1,), right, name="B")
        a, b = _met(np.ones(1, NUMPY[left]), np.ones(1, NUMPY[right]))
        for number, f in enumerate(operations):
            own = _own_dtype(lambda: te.compute((1,), lambda i: f(A[i], B[i])))  # noqa: B023
            assert own == _numpy_dtype(lambda: f(a, b)), (left, right, number)  # noqa: B023


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bfloat16"])
def test_python_scalars_are_weak_and_numpy_scalars_are_not(name):
    A, a = te.placeholder((1,), name, name="A"), np.ones(1, name)
    for s in (True, 1, 1.5, np.float32(1), np.int64(1), np.uint8(3), np.float64(2)):
        for f in (lambda p, q: p + q, lambda p, q: q * p, lambda p, q: p / q, lambda p, q: p // q, lambda p, q: p**q):
            own = _own_dtype(lambda: te.compute((1,), lambda i: f(A[i], s)))  # noqa: B023
            b, t = _met(a, s) if isinstance(s, np.generic) else (a, s)
            assert own == _numpy_dtype(lambda: f(b, t)), (name, repr(s))  # noqa: B023


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_are_the_same_whether_a_size_is_open(name):
    """What is made of sizes and numbers is as weak as a Python number."""
    forms = (
        lambda v, c: v + c, lambda v, c: c * v, lambda v, c: v / c, lambda v, c: v // (c + 1), lambda v, c: v * (c / 2),
        lambda v, c: v < c, lambda v, c: te.where(v > 0, v, c), lambda v, c: te.maximum(v, c % 3), lambda v, c: te.atan2(v, c),
        lambda v, c: v * te.sqrt(c), lambda v, c: v * te.minimum(c, 3), lambda v, c: c / 2, lambda v, c: te.clip(v, 0, c - 1),
        lambda v, c: abs(c) - v, lambda v, c: te.abs(c) - v, lambda v, c: v * (c // 2 * 0.5), lambda v, c: te.sum(lambda k: v, c) / c,
        lambda v, c: te.reduce(lambda p, q: p + q, 0, lambda k: c, 3) * v, lambda v, c: (c > 3) + v, lambda v, c: -c * v,
        lambda v, c: c, lambda v, c: v**c,
    )  # fmt: skip

    def of_size(size):
        A = te.placeholder((size,), name, name="A")
        c = A.shape[0]
        bodies = [*(lambda i, f=f: f(A[i], c) for f in forms), *(lambda i, v=v: A.read(i - 1, outside=v) for v in (c, c / 2))]
        return [_own_dtype(lambda body=body: te.compute((c,), body)) for body in bodies]

    for number, (fixed, opened) in enumerate(zip(of_size(5), of_size(te.dim("c")), strict=True)):
        assert fixed in (opened, "none"), number  # a number may be refused for its value: -5 in an unsigned


def test_bodies_of_constants_have_numpys_dtype_and_integer_sums_widen():
    dtypes = {
        name: te.compute((3,), lambda i, value=value: value).dtype
        for name, value in (("bool", True), ("int64", 1), ("float64", 1.0), ("float32", np.float32(1)))
    }
    assert all(dtype == name for name, dtype in dtypes.items())
    assert te.compute((3,), lambda i: te.cast(1, "float16")).dtype == "float16"
    for name in NAMES[:9]:
        A = te.placeholder((3,), name, name="A")
        assert te.compute((), lambda: te.sum(lambda i: A[i], 3)).dtype == np.ones(3, name).sum().dtype.name  # noqa: B023
        assert te.compute((), lambda: te.prod(lambda i: A[i], 3)).dtype == np.ones(3, name).prod().dtype.name  # noqa: B023
        if name != "bool":
            assert te.compute((), lambda: te.max(lambda i: A[i], 3)).dtype == name  # noqa: B023


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_wrap_and_divide_as_numpys(name):
    info = np.iinfo(name)
    v = np.array([x for x in (info.min, info.min + 1, -7, -3, -1, 0, 1, 2, 3, 7, info.max - 1, info.max) if x >= info.min], name)
    n = len(v)
    A, B = te.placeholder((n,), name, name="A"), te.placeholder((n,), name, name="B")
    operations = (
        lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p // q, lambda p, q: p % q, lambda p, q: p / q,
        lambda p, q: p & q, lambda p, q: p ^ q, lambda p, q: p << (q & 3), lambda p, q: p >> (q & 3),
    )  # fmt: skip
    found = both([te.compute((n, n), lambda i, j, f=f: f(A[i], B[j])) for f in operations], {A: v, B: v})
    with np.errstate(all="ignore"):
        for f, result in zip(operations, found, strict=True):
            np.testing.assert_array_equal(result, f(v[:, None], v[None, :]))


@pytest.mark.parametrize("name", ["float64", "float32", "float16"])
def test_scalar_functions_are_numpys(name):
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -1.5, np.inf, -np.inf, np.nan, 88.0]
    x = np.concatenate([RNG.normal(size=100) * 3, special]).astype(name)
    A = te.placeholder(x.shape, name, name="A")
    names = (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "tanh", "sinh", "cosh", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
        "abs", "sign", "floor", "ceil", "round", "trunc", "square", "negative", "isnan", "isinf", "isfinite",
    )  # fmt: skip
    tolerance = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-2}[name]
    with np.errstate(all="ignore"):
        found = both([te.compute(x.shape, lambda i, u=u: getattr(te, u)(A[i])) for u in names], {A: x}, rtol=tolerance, atol=tolerance)
        for u, result in zip(names, found, strict=True):
            wanted = getattr(np, u)(x)
            assert result.dtype == wanted.dtype, u
            np.testing.assert_allclose(result.astype("f8"), wanted.astype("f8"), rtol=tolerance, atol=tolerance, err_msg=u)
        rest = both([te.compute(x.shape, lambda i, u=u: getattr(te, u)(A[i])) for u in ("sigmoid", "rsqrt")], {A: x}, rtol=tolerance)
        np.testing.assert_allclose(rest[0].astype("f8"), 1 / (1 + np.exp(-x.astype("f8"))), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_floor_division_modulo_and_extremes_of_floats(name):
    v = np.array([-7.5, -3, -1, -0.0, 0.0, 1, 2.5, 7, np.inf, -np.inf, np.nan], name)
    n = len(v)
    A, B = te.placeholder((n,), name, name="A"), te.placeholder((n,), name, name="B")
    pairs = (
        (lambda p, q: p // q, np.floor_divide),
        (lambda p, q: p % q, np.mod),
        (te.minimum, np.minimum),
        (te.maximum, np.maximum),
        (te.arctan2, np.arctan2),
    )
    found = both([te.compute((n, n), lambda i, j, f=f: f(A[i], B[j])) for f, _ in pairs], {A: v, B: v}, rtol=1e-6)
    with np.errstate(all="ignore"):
        for (_, wanted), result in zip(pairs, found, strict=True):
            np.testing.assert_allclose(result, wanted(v[:, None], v[None, :]), rtol=1e-6)


def test_casts_truncate_and_are_total():
    v = np.array([-1.5, 0, 0.5, 1, 2.5, 3.7, 100.2, 127])
    A = te.placeholder(v.shape, "float64", name="A")
    for name in ("bool", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"):
        found = both(te.compute(v.shape, lambda i: te.cast(A[i], name)), {A: v})  # noqa: B023
        np.testing.assert_array_equal(found, v.astype(NUMPY[name]))
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0, 300.0, 3.0])
    for name in NAMES[1:9]:
        both(te.compute(wild.shape, lambda i: te.cast(A[i], name)), {A: wild})  # noqa: B023


def test_comparisons_have_no_truth_value():
    A = te.placeholder((3,), "int32", name="A")
    for body in (lambda i: 1 if i == 0 else 2, lambda i: (i == 0) and 1, lambda i: (A[i] == 1) or 2, lambda i: 0 <= i < 2):
        with pytest.raises(te.DefinitionError, match="expected a Python truth value"):
            te.compute((3,), body)
    C = te.compute((3,), lambda i: ((i == 1) | (A[i] > 2)) & ~(i == 2))
    np.testing.assert_array_equal(both(C, {A: np.array([3, 0, 5], "i4")}), [True, True, False])


# -------------------------------------------------------------------------------------------------- scatter and scan


@pytest.mark.parametrize(
    "combine, ufunc, start", [("sum", np.add, 0), ("prod", np.multiply, 1), ("max", np.maximum, -np.inf), ("min", np.minimum, np.inf)]
)
def test_scatter_combines_what_meets(combine, ufunc, start):
    ids, v = te.placeholder((7,), "int32", name="ids"), te.placeholder((7, 3), "float32", name="v")
    i, values = np.array([0, 2, 2, 5, 0, 0, 1], "i4"), RNG.normal(size=(7, 3)).astype("f4")
    C = te.scatter((6, 3), lambda t, d: ((ids[t], d), v[t, d]), (7, 3), combine=combine)
    wanted = np.full((6, 3), start, "f4")
    ufunc.at(wanted, i, values)
    np.testing.assert_allclose(both(C, {ids: i, v: values}), wanted, rtol=1e-5)
    with pytest.raises(IndexError):
        te.build(C, [ids, v])(i + 1, values)


def test_scans_of_tensors_tuples_and_scalars():
    A = te.placeholder((6, 4), "float64", name="A")
    a = RNG.normal(size=(6, 4))
    zero, one = te.compute((4,), lambda j: 0.0), te.compute((), lambda: 1.0)
    sums = te.scan(lambda t, s: te.compute(s.shape, lambda j: s[j] + A[t, j]), zero, 6)
    np.testing.assert_allclose(both(sums, {A: a}), np.cumsum(a, 0))

    def step(t, state):
        scale, row = state
        return scale[()] + 1.0, te.compute((4,), lambda j: row[j] * scale[()] + A[t, j])

    scales, rows = both(list(te.scan(step, (one, zero), 6)), {A: a})
    row = np.zeros(4)
    for t in range(6):
        row = row * (t + 1.0) + a[t]
        np.testing.assert_allclose(rows[t], row)
    np.testing.assert_array_equal(scales, np.arange(2.0, 8.0))
    n = te.dim("n")
    B = te.placeholder((n, 4), "float64", name="B")
    decayed = te.build(te.scan(lambda t, s: te.compute((4,), lambda j: s[j] * 0.5 + B[t, j]), zero, n), [B])
    for length in (0, 1, 6):
        assert decayed(a[:length]).shape == (length, 4)


def test_every_access_is_proved_or_refused_with_a_place():
    A = te.placeholder((8, 8), name="image")
    te.compute((4, 4), lambda y, x: te.max(lambda p, q: A[2 * y + p, 2 * x + q], (2, 2)))
    te.compute((64,), lambda f: A[f // 8, f % 8])
    te.compute((8, 8), lambda i, j: A[(i + j) % 8, te.clip(i - j, 0, 7)])
    with pytest.raises(te.DefinitionError) as caught:
        te.compute((8,), lambda i: A[i, i + 1])
    text = str(caught.value)
    assert "image[i, i + 1]: expected an index in range(8) on axis 1, got i + 1 from 1 to 8" in text
    assert "at:   i = 7" in text and __file__ in text
    n = te.dim("n")
    B = te.placeholder((n,), name="B")
    with pytest.raises(te.DefinitionError, match=r"at:   i = 0, k = 1, n = 1"):
        te.compute((n,), lambda i: te.sum(lambda k: B[i * 2 - k], 3))


def test_names_of_axes_come_from_the_lambda_and_programs_parse_back():
    A = te.placeholder((3, 4), name="A")
    C = te.compute((3, 4), lambda row, column: A[row, column] * 2, name="C")
    assert str(C) == "C[row, column]: f32[3, 4] = A[row, column] * 2.0"
    for D in (
        C,
        *te.compute((3,), lambda i: te.reduce(lambda x, y: (x[0] + y[0], x[1] * y[1]), (0.0, 1.0), lambda k: (A[i, k], A[i, k]), 4)),
    ):
        program = te.program_of([D])
        assert te.parse_program(str(program)) == program


def test_every_name_of_the_contract_is_there():
    names = [
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "erf",
        "sin",
        "cos",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
        "minimum",
        "maximum",
        "clip",
        "where",
        "cast",
    ]
    names += [
        "placeholder",
        "constant",
        "compute",
        "sum",
        "prod",
        "max",
        "min",
        "all",
        "any",
        "argmax",
        "argmin",
        "reduce",
        "scatter",
        "scan",
        "dim",
        "evaluate",
        "op",
    ]
    names += ["vjp", "grad", "value_and_grad", "jvp", "gradient", "jacobian", "check_gradient", "build", "schedule", "autoschedule"]
    names += [
        "TensorExprError",
        "DefinitionError",
        "DifferentiationError",
        "ScheduleError",
        "TargetError",
        "ArgumentError",
        "InternalError",
        "GradientCheckError",
    ]
    assert [name for name in itertools.chain(names) if not hasattr(te, name)] == []
