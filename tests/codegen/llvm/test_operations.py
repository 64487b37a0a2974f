"""Every scalar operation and every cast, for every dtype, scalar and vectorized, against its meaning in `tensorexpr.ops`."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import Machine, host, nest_assembly
from tensorexpr.codegen.llvm.emitter.ops import operations
from tensorexpr.codegen.llvm.math.functions import FUNCTIONS
from tensorexpr.dtypes import DTYPES, DType
from tensorexpr.ir import Cast, Const, Index, apply, const
from tensorexpr.ops import OPS, cast_value
from tests.codegen.llvm.nests import FLOATS, buffer, elementwise, loop, nest, read, run, specials, write

_COUNT = 200
KINDS = ("serial", "vectorize")


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where two results agree; NaN agrees with NaN."""
    return (got == want) | ((got != got) & (want != want))


def test_every_operation_has_a_row() -> None:
    assert set(OPS) - {"where"} <= operations()


@pytest.mark.parametrize("name", [name for name in OPS if name != "where"])
def test_operation(name: str) -> None:
    op = OPS[name]
    for dtype in DTYPES:
        if not op.accepts(dtype) or (name in FUNCTIONS and dtype.is_float):
            continue
        arrays = {f"X{k}": specials(dtype, _COUNT, k + 1) for k in range(op.arity)}
        with np.errstate(all="ignore"):
            want = np.array([op.evaluate(*(arrays[f"X{k}"][j] for k in range(op.arity))) for j in range(_COUNT)])
        for kind in KINDS:
            got = run(elementwise(name, [dtype] * op.arity, _COUNT, kind), arrays)["Y"]
            wrong = np.flatnonzero(~same(got, want.astype(got.dtype)))
            assert not wrong.size, (dtype, kind, [[a[j] for a in arrays.values()] for j in wrong[:3]], got[wrong[:3]], want[wrong[:3]])


@pytest.mark.parametrize("name", ["neg", "abs", "floor", "ceil", "round", "trunc", "sqrt", "mod", "floordiv", "copy"])
def test_signed_zeros(name: str) -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0, -0.25, 0.25, 0.4, -0.4] * 2)
    others = np.array([2.0, 2.0, -2.0, -2.0, -1.0, np.inf, -np.inf, 3.0] * 2)
    for dtype in FLOATS:
        if name == "copy":
            x, y = buffer("X0", dtype, 16), buffer("Y", dtype, 16)
            made = nest([x, y], [y], (loop("i", 16, write(y, [Index("i")], read(x, Index("i"))), kind="vectorize"),))
            evaluate = lambda a: a  # noqa: E731
        else:
            made = elementwise(name, [dtype] * OPS[name].arity, 16, "vectorize")
            evaluate = OPS[name].evaluate
        arrays = {"X0": zeros.astype(dtype.numpy), "X1": others.astype(dtype.numpy)}
        arity = 1 if name == "copy" else OPS[name].arity
        with np.errstate(all="ignore"):
            want = np.array([evaluate(*(arrays[f"X{k}"][j] for k in range(arity))) for j in range(16)])
        got = run(made, arrays)["Y"]
        assert np.array_equal(np.signbit(got.astype(np.float64)), np.signbit(want.astype(np.float64))), (dtype, got, want)


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast(source: DType) -> None:
    values = specials(source, 320, 5)
    if source.is_float:
        edges = [
            127.5,
            128,
            -128.5,
            255.9,
            256,
            -0.9,
            65504,
            65519.9,
            65520,
            65519.99999,
            2**31,
            2**31 - 1,
            2**63,
            -(2**63),
            2**64,
            2.0**53 + 1,
        ]
        edges += [
            -129,
            -32769,
            1e10,
            1e20,
            -1e20,
            2049,
            2050.5,
            6.1e-5,
            5.96e-8,
            2.98e-8,
            3e-8,
            1.00048828125,
            1.000488281250001,
            1.00146484375,
        ]
        with np.errstate(all="ignore"):
            values[: len(edges)] = np.array(edges, np.float64).astype(values.dtype)
    index = apply("add", apply("mul", Index("o"), const(16)), Index("l"))
    for target in DTYPES:
        x, y = buffer("X", source, 320), buffer("Y", target, 320)
        with np.errstate(all="ignore"):
            want = np.array([cast_value(v, target) for v in values])
        vector = loop("o", 20, loop("l", 16, write(y, [index], Cast(target, read(x, index))), kind="vectorize"))
        serial = loop("i", 320, write(y, [Index("i")], Cast(target, read(x, Index("i")))))
        for body in (vector, serial):
            got = run(nest([x, y], [y], (body,)), {"X": values})["Y"]
            wrong = np.flatnonzero(~same(got, want))
            assert not wrong.size, (target, values[wrong[:3]], got[wrong[:3]], want[wrong[:3]])


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint64], ids=str)
@pytest.mark.parametrize("name", ["floordiv", "mod", "pow", "shift_left", "shift_right"])
def test_constant_right_operand(name: str, dtype: DType) -> None:
    values = specials(dtype, 64, 9)
    x, y = buffer("X", dtype, 64), buffer("Y", dtype, 64)
    for right in (-8, -3, -1, 0, 1, 2, 3, 7, 8, 64, 100):
        if not int(dtype.least) <= right <= int(dtype.greatest):
            continue
        constant = Const(right, dtype)
        body = loop("i", 64, write(y, [Index("i")], apply(name, read(x, Index("i")), constant)), kind="vectorize")
        with np.errstate(all="ignore"):
            want = np.array([OPS[name].evaluate(v, dtype.numpy.type(right)) for v in values])
        got = run(nest([x, y], [y], (body,)), {"X": values})["Y"]
        assert np.array_equal(got, want), (right, values[got != want], got[got != want], want[got != want])


def test_contraction_is_the_only_liberty() -> None:
    """inf - inf, 0 * inf and NaN stay what IEEE-754 makes of them; x * 0 is not folded to 0."""
    values = np.array([np.inf, -np.inf, np.nan, -1.0] * 4)
    x, y = buffer("X", dtypes.float64, 16), buffer("Y", dtypes.float64, 16)
    e = read(x, Index("i"))
    for value, want in (
        (apply("sub", e, e), [np.nan, np.nan, np.nan, 0.0]),
        (apply("mul", e, Const(0.0, dtypes.float64)), [np.nan, np.nan, np.nan, -0.0]),
    ):
        got = run(nest([x, y], [y], (loop("i", 16, write(y, [Index("i")], value), kind="vectorize"),)), {"X": values})["Y"]
        assert np.array_equal(got, np.array(want * 4), equal_nan=True)
        assert np.signbit(got[3]) == np.signbit(want[3])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_an_extreme_is_one_instruction_and_a_look_at_one_operand(name):
    if host().architecture != "x86_64":
        return
    machine = Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl", 512)
    x, y, z = (buffer(n, dtypes.float32, 16) for n in "xyz")
    body = loop("i", 16, write(z, [Index("i")], apply(name, read(x, Index("i")), read(y, Index("i")))), kind="vectorize")
    code = nest_assembly(nest([x, y, z], [z], (body,)), machine)
    assert code.count("vcmp") == 1 and code.count(f"v{name[:3]}ps") == 1 and "kor" not in code
