"""Every scalar operation and every cast in every dtype, as CUDA text run on the CPU, against its meaning in `tensorexpr.ops`."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.thread.operations import operations
from tensorexpr.codegen.llvm.math.functions import FUNCTIONS
from tensorexpr.codegen.llvm.math.log import PRODUCTS
from tensorexpr.dtypes import DTYPES, DType
from tensorexpr.ir import Cast, Const, Index, apply
from tensorexpr.ops import OPS, cast_value
from tests.codegen.cuda.device import needs_compiler, run
from tests.codegen.llvm.nests import buffer, loop, nest, read, specials, write
from tests.codegen.llvm.test_operations import same

pytestmark = needs_compiler
_COUNT = 300
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 4e-7, "float64": 1e-15}
"""Of functions of the mathematical library, relative: a few units in the last place."""


def test_every_operation_has_a_row() -> None:
    assert set(OPS) <= operations()


@pytest.mark.parametrize("name", [name for name in OPS if name != "where"])
def test_operation(name: str) -> None:
    op, parameters, results, kernels, arrays, wanted = OPS[name], [], [], [], {}, {}
    for number, dtype in enumerate(d for d in DTYPES if op.accepts(d)):
        operands = [buffer(f"X{k}_{dtype.short}", dtype, _COUNT) for k in range(op.arity)]
        for k, x in enumerate(operands):
            arrays[x.name] = specials(dtype, _COUNT, 10 * number + k + 1)
        value = apply(name, *(read(x, Index("i")) for x in operands))
        y = buffer(f"Y_{dtype.short}", value.dtype, _COUNT)
        kernels.append((loop("i", _COUNT, write(y, [Index("i")], value), kind="parallel"),))
        parameters += operands
        results.append(y)
        with np.errstate(all="ignore"):
            wanted[y.name] = np.array([op.evaluate(*(arrays[x.name][j] for x in operands)) for j in range(_COUNT)]).astype(y.dtype.numpy)
    found = run(nest([*parameters, *results], results, *kernels), arrays)
    for y in results:
        got, want = found[y.name], wanted[y.name]
        right = same(got, want)
        if name in FUNCTIONS and y.dtype.is_float:
            with np.errstate(all="ignore"):
                wide, exact = got.astype(np.float64), want.astype(np.float64)
                least = 0 if y.dtype is dtypes.float64 else float(np.finfo(np.float32).smallest_subnormal) * 4
                right |= np.abs(wide - exact) <= TOLERANCE[y.dtype.name] * np.abs(exact) + least
        wrong = np.flatnonzero(~right)
        operands = [a[wrong[:3]] for n, a in arrays.items() if n.endswith(f"_{y.name[2:]}")]
        assert not wrong.size, (y.name, operands, got[wrong[:3]], want[wrong[:3]])


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast(source) -> None:
    values = specials(source, 400, 5)
    if source.is_float:
        edges = [127.5, 128, -128.5, 255.9, 256, -0.9, 65504, 65519.9, 65520, 65519.99999, 2**31, 2**31 - 1, 2**63, -(2**63), 2**64]
        edges += [2.0**53 + 1, -129, -32769, 1e10, 1e20, -1e20, 2049, 2050.5, 6.1e-5, 5.96e-8, 2.98e-8, 3e-8, 1.00048828125]
        edges += [1.000488281250001, 1.00146484375]
        with np.errstate(all="ignore"):
            values[: len(edges)] = np.array(edges, np.float64).astype(values.dtype)
    x = buffer("X", source, len(values))
    results = [buffer(f"Y_{d.short}", d, len(values)) for d in DTYPES]
    kernels = [(loop("i", len(values), write(y, [Index("i")], Cast(y.dtype, read(x, Index("i")))), kind="parallel"),) for y in results]
    found = run(nest([x, *results], results, *kernels), {"X": values})
    for y in results:
        with np.errstate(all="ignore"):
            want = np.array([cast_value(v, y.dtype) for v in values])
        wrong = np.flatnonzero(~same(found[y.name], want))
        assert not wrong.size, (y.name, values[wrong[:3]], found[y.name][wrong[:3]], want[wrong[:3]])


@pytest.mark.parametrize("name", ["floordiv", "mod", "pow", "shift_left", "shift_right"])
def test_constant_right_operand(name: str) -> None:
    arrays, parameters, results, kernels = {}, [], [], []
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint64):
        x = buffer(f"X_{dtype.short}", dtype, 64)
        arrays[x.name] = specials(dtype, 64, 9)
        parameters.append(x)
        for right in (r for r in (-8, -3, -1, 0, 1, 2, 3, 7, 8, 64, 100) if int(dtype.least) <= r <= int(dtype.greatest)):
            y = buffer(f"Y{len(results)}", dtype, 64)
            kernels.append((loop("i", 64, write(y, [Index("i")], apply(name, read(x, Index("i")), Const(right, dtype))), kind="parallel"),))
            results.append((y, x, right))
    found = run(nest([*parameters, *(y for y, _, _ in results)], [y for y, _, _ in results], *kernels), arrays)
    for y, x, right in results:
        values, got = arrays[x.name], found[y.name]
        with np.errstate(all="ignore"):
            want = np.array([OPS[name].evaluate(v, y.dtype.numpy.type(right)) for v in values])
        assert np.array_equal(got, want), (y.dtype, right, values[got != want], got[got != want], want[got != want])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_whole_powers_are_products(dtype: DType) -> None:
    values = np.random.default_rng(0).uniform(-3, 3, 64).astype(dtype.numpy)
    values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    x, results = buffer("X", dtype, 64), [buffer(f"Y{k}", dtype, 64) for k in range(len(PRODUCTS))]
    kernels = [
        (loop("i", 64, write(y, [Index("i")], apply("pow", read(x, Index("i")), Const(float(n), dtype))), kind="parallel"),)
        for y, n in zip(results, PRODUCTS, strict=True)
    ]
    found = run(nest([x, *results], results, *kernels), {"X": values})
    for y, n in zip(results, PRODUCTS, strict=True):
        with np.errstate(all="ignore"):
            want = np.power(values.astype(np.longdouble), n).astype(dtype.numpy)
        np.testing.assert_allclose(found[y.name], want, rtol=PRODUCTS[n] * np.finfo(dtype.numpy).eps, err_msg=str(n))


def test_constants_read_back() -> None:
    wanted = {f"Y_{dtype.short}": specials(dtype, 60, 3) for dtype in DTYPES}
    results = [buffer(name, dtype, 60) for name, dtype in zip(wanted, DTYPES, strict=True)]
    bodies = [
        tuple(write(y, [k], Const(v.item() if y.dtype.name != "bfloat16" else float(v), y.dtype)) for k, v in enumerate(wanted[y.name]))
        for y in results
    ]
    found = run(nest(results, results, *bodies), {})
    for y in results:
        values, got = wanted[y.name], found[y.name]
        assert same(got, values).all()
        if y.dtype.is_float:
            there = ~np.isnan(values)
            assert np.array_equal(np.signbit(got[there].astype(np.float64)), np.signbit(values[there].astype(np.float64)))
