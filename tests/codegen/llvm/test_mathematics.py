"""The transcendental functions against 80-bit references: ULP over dense samples, special values, every lane count.

`tensorexpr.ops.ACCURACY` is what we state, in units in the last place over the whole range of arguments;
`scripts/accuracy.py` goes through all float32 numbers and writes down what it found.
"""

from __future__ import annotations

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.llvm.emitter.module import emit
from tensorexpr.codegen.llvm.math.log import PRODUCTS, ROOTS
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.dtypes import DType
from tensorexpr.ir import Index, Size, apply, const
from tensorexpr.ops import ACCURACY, OPS
from tests.codegen.llvm.nests import buffer, loop, nest, read, write

_COUNT = 1 << 17
Wide = np.longdouble


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def _wide(value: mpmath.mpf) -> np.longdouble:
    head = float(value)
    return Wide(head) + Wide(float(value - head)) if math.isfinite(head) else Wide(head)


def _erf(x: float) -> np.longdouble:
    # Beyond 6 it is 1 to all bits of either width, where mpmath would take long.
    return Wide(math.erf(x)) if not abs(x) < 6 or x == 0 else _wide(mpmath.erf(x))


_REFERENCES = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sigmoid": _sigmoid,
    "pow": np.power,
    "erf": lambda x: np.array([_erf(v) for v in x.astype(np.float64)]),
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def function(name: str, dtype: DType, lanes: int) -> LoopNest:
    """Y[i] = name(X0[i], ...) over n elements, n divisible by the lanes."""
    operands = [buffer(f"X{k}", dtype, Size("n")) for k in range(OPS[name].arity)]
    result = buffer("Y", dtype, Size("n"))
    index = apply("add", apply("mul", Index("o"), const(lanes)), Index("l"))
    store = write(result, [index], apply(name, *(read(x, index) for x in operands)))
    inner = loop("l", lanes, store, kind="vectorize")
    return nest([*operands, result], [result], (loop("o", apply("floordiv", Size("n"), const(lanes)), inner),), sizes=("n",))


def call(name: str, dtype: DType, lanes: int, *values: np.ndarray) -> np.ndarray:
    compiled = compile_nest(function(name, dtype, lanes))
    arrays = [np.ascontiguousarray(v, dtype.numpy) for v in values]
    result = np.zeros_like(arrays[0])
    assert compiled([a.ctypes.data for a in (*arrays, result)], [result.size]) is None
    return result


def sample(dtype: DType, seed: int) -> np.ndarray:
    """Random bit patterns, the ranges where something happens, neighborhoods of 1 and of multiples of pi / 2, specials."""
    g = np.random.default_rng(seed)
    bits = np.dtype(f"u{dtype.itemsize}")
    pattern = g.integers(0, 1 << dtype.bits, _COUNT // 4, dtype=bits).view(dtype.numpy)
    parts = [
        pattern,
        g.uniform(-1, 1, _COUNT // 8),
        g.uniform(-10, 10, _COUNT // 8),
        g.uniform(-110, 110, _COUNT // 8),
        g.uniform(-760, 760, _COUNT // 16),
        g.uniform(-1.1e6, 1.1e6, _COUNT // 16),
        g.standard_normal(_COUNT // 16) * 10.0 ** g.uniform(-10, 3, _COUNT // 16),
        1 + g.standard_normal(_COUNT // 16) * 10.0 ** g.uniform(-8, -1, _COUNT // 16),
        np.arange(1, 2000) * np.pi / 2,
        np.arange(-200, 200),
        specials(),
    ]
    with np.errstate(all="ignore"):
        values = np.concatenate([p.astype(dtype.numpy) for p in parts])
    values = np.where(np.isnan(values), dtype.numpy.type(np.nan), values)
    g.shuffle(values)
    return values[: values.size // 16 * 16]


def specials() -> np.ndarray:
    one_sided = [
        0.0,
        np.inf,
        np.nan,
        1e-40,
        1e-45,
        1e-310,
        5e-324,
        0.5,
        1.0,
        2.0,
        3.0,
        3e38,
        3.4e38,
        1.7e308,
        1e-20,
        1e22,
        88.7,
        89.5,
        709.8,
        710.4,
    ]
    return np.array([*one_sided, *(-v for v in one_sided)])


def reference(name: str, *values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return _REFERENCES.get(name, getattr(np, name, None))(*(v.astype(Wide) for v in values))


def errors(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """The distance in units in the last place of the exact result; infinite where one is special and the other is not."""
    info = np.finfo(dtype.numpy)
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype.numpy)
        unit = np.spacing(np.minimum(np.abs(rounded), info.max)).astype(Wide)
        # What overflows when rounded is measured in the last unit below infinity.
        bounded = np.where(np.isfinite(want), np.clip(want, -Wide(info.max) - unit / 2, Wide(info.max) + unit / 2), want)
        found = np.where(np.isinf(got), np.sign(got) * (Wide(info.max) + unit), got.astype(Wide))
        distance = np.abs(found - bounded) / unit
    distance = np.where((got == rounded) & np.isinf(rounded), 0, distance)
    distance = np.where(np.isnan(got) & np.isnan(rounded), 0, distance)
    return np.where(np.isnan(distance), np.inf, distance).astype(np.float64)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(name: str, dtype: DType) -> None:
    values = [sample(dtype, 3 + k) for k in range(OPS[name].arity)]
    if name == "pow":
        half = values[0].size // 2
        with np.errstate(all="ignore"):
            values[0][:half] = np.abs(values[0][:half])
            values[1][:half] = np.where(np.abs(values[1][:half]) > 200, values[1][:half] % 7, values[1][:half])
            values[1][half : half + half // 2] = np.round(values[1][half : half + half // 2])
    if name == "erf":
        values[0] = values[0][: 1 << 15]
    got = call(name, dtype, 16 if dtype is dtypes.float32 else 8, *values)
    found = errors(got, reference(name, *values), dtype)
    worst = int(np.argmax(found))
    assert found[worst] <= ACCURACY[name][dtype is dtypes.float64], (found[worst], [v[worst] for v in values], got[worst])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("exponent", [3, 4, 5, 7, 12, 16, 17, 32, -1, -2, -5, -12, -16, -20, 33, 3.5, 2.5, 1.5, 0.5, -0.5, -1.5, -2.5])
def test_powers_that_are_products_and_roots_are_as_exact(exponent: float, dtype: DType) -> None:
    """A whole exponent that is known is a few products, a half a root; special values and signs of zero are those of any power."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-38, 1.0, -1.0, 3e38])
    near = np.linspace(1, 2, 16384)  # where products are farthest off, at the fourth root of 2, say
    x = np.concatenate([special, sample(dtype, 5)[:4086], near]).astype(dtype.numpy)
    index = apply("add", apply("mul", Index("o"), const(16)), Index("l"))
    source, result = buffer("X", dtype, Size("n")), buffer("Y", dtype, Size("n"))
    value = apply("pow", read(source, index), const(float(exponent), dtype))
    outer = loop("o", apply("floordiv", Size("n"), const(16)), loop("l", 16, write(result, [index], value), kind="vectorize"))
    compiled, got = compile_nest(nest([source, result], [result], (outer,), sizes=("n",))), np.zeros_like(x)
    assert compiled([x.ctypes.data, got.ctypes.data], [x.size]) is None
    want = reference("pow", x, np.full_like(x, exponent))
    assert errors(got, want, dtype).max() <= {**PRODUCTS, **ROOTS}.get(exponent, ACCURACY["pow"][dtype is dtypes.float64])
    known = ~np.isnan(got)
    assert np.array_equal(np.signbit(got[known]), np.signbit(want[known]))


def test_the_page_states_what_is_tested() -> None:
    """docs/accuracy.md has a row for each function, with the stated errors, and what was measured is below them."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "accuracy.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    rows = [row for row in rows if len(row) > 5]  # what the language makes of these functions has a table of its own
    assert {row[0].strip("`"): (float(row[1]), float(row[4])) for row in rows} == ACCURACY
    assert all(float(row[2]) <= float(row[1]) and float(row[5]) <= float(row[4]) for row in rows)


@pytest.mark.parametrize("name", ACCURACY)
def test_special_values_and_signs_of_zero(name: str) -> None:
    """As NumPy, in every lane count, scalar included; the sign of a zero counts."""
    numpy = _REFERENCES.get(name, getattr(np, name, None))
    singles = specials()
    for dtype in (dtypes.float32, dtypes.float64):
        with np.errstate(all="ignore"):
            x = singles.astype(dtype.numpy)
        values = [x] if OPS[name].arity == 1 else [np.repeat(x, x.size), np.tile(x, x.size)]
        with np.errstate(all="ignore"):
            want = numpy(*values)
        lanes_tried = (1, 2, 4, 8, 16, 32) if OPS[name].arity == 1 else (16,)
        for lanes in lanes_tried:
            size = values[0].size // lanes * lanes
            got = call(name, dtype, lanes, *(v[:size] for v in values))
            expected = want[:size]
            special = ~np.isfinite(expected) | (expected == 0)
            agree = (got == expected) | (np.isnan(got) & np.isnan(expected))
            agree &= np.isnan(expected) | (np.signbit(got) == np.signbit(expected))
            wrong = np.flatnonzero(special & ~agree)
            assert not wrong.size, (dtype, lanes, [(tuple(v[j] for v in values), got[j], expected[j]) for j in wrong[:4]])


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "pow"])
def test_sixteen_bits(name: str, dtype: DType) -> None:
    """All positive and negative values of a 16-bit type: within one unit, as float32 rounded once."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    operands = [values] if OPS[name].arity == 1 else [values, np.full(values.size, 1.5, dtype.numpy)]
    got = call(name, dtype, 16, *operands).astype(np.float32)
    with np.errstate(all="ignore"):
        want = OPS[name].evaluate(*operands).astype(np.float32)
        near = np.abs(got - want) <= np.abs(want) * 2.0 ** (-10 if dtype is dtypes.float16 else -7) + 6e-8
    assert np.all(near | (got == want) | (np.isnan(got) & np.isnan(want)))


def test_huge_arguments_of_sine_in_some_lanes() -> None:
    x = np.array([1.0, 1e22, -0.5, 3e300, 2e6, np.inf, 7.0, np.nan])
    got = call("sin", dtypes.float64, 8, x)
    with np.errstate(all="ignore"):
        assert np.allclose(got, np.sin(x), rtol=3e-16, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sinh", "cosh", "tanh", "sigmoid", "erf", "pow", "tan"])
def test_every_lane_count_gives_the_same_bits(name: str, dtype: DType) -> None:
    """Whatever instructions a number of lanes has: powers of two are multiplied in by one of their own, or by two products."""
    values = [sample(dtype, 11 + k) for k in range(OPS[name].arity)]
    count = values[0].size // 64 * 64
    values = [v[:count] for v in values]
    want = call(name, dtype, 1, *values)
    bits = np.dtype(f"u{dtype.itemsize}")
    for lanes in (2, 4, 8, 16, 64):
        got = call(name, dtype, lanes, *values)
        differ = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
        assert not differ.any(), (lanes, [(v[differ][0]) for v in values], got[differ][0], want[differ][0])


@pytest.mark.parametrize("lanes", [1, 8])
def test_the_angles_nearest_to_multiples_of_a_right_angle(lanes: int) -> None:
    """The double, and the float, that come closest: what is left has lost 60 (30) bits."""
    for dtype, nearest in ((dtypes.float64, math.ldexp(6381956970095103, 797)), (dtypes.float32, math.ldexp(16367173, 72))):
        x = np.tile(np.array([nearest, -nearest, np.finfo(dtype.numpy).max, 1.5e6], dtype.numpy), 2)
        for name in ("sin", "cos", "tan"):
            got = call(name, dtype, lanes, x)
            with mpmath.workprec(1200):
                want = np.array([_wide(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in x])
            assert errors(got, want, dtype).max() <= ACCURACY[name][dtype is dtypes.float64], (name, dtype)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("name", ["mod", "floordiv"])
def test_remainders_are_exact(name: str, dtype: DType) -> None:
    """As NumPy to the bit, whatever the sizes: quotients of up to 2^2098, denormals, infinities, zeros and their signs."""
    x, y = sample(dtype, 5), sample(dtype, 6)
    with np.errstate(all="ignore"):
        x[: x.size // 4] = np.round(x[: x.size // 4]) * y[: x.size // 4]
        few = specials().astype(dtype.numpy)
    x, y = np.concatenate([x, np.repeat(few, few.size)]), np.concatenate([y, np.tile(few, few.size)])
    for lanes in (1, 16):
        got = call(name, dtype, lanes, x, y)
        with np.errstate(all="ignore"):
            want = OPS[name].evaluate(x, y)
        same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
        assert np.all(same), [(x[k], y[k], got[k], want[k]) for k in np.flatnonzero(~same)[:4]]


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.operands in ("float", "number")])
def test_no_function_of_the_c_library_is_called(name: str) -> None:
    for dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
        declared = [line for line in emit(function(name, dtype, 8), host()).splitlines() if line.startswith("declare")]
        assert all(" @llvm." in line for line in declared), declared
