"""Hand-made loop nests, and running them natively on arrays that end at a protected page."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import NativeFunction, compile_nest
from tensorexpr.codegen.nest import Block, Buffer, For, Kernel, LoopNest, Store
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Const, Expr, Index, Size, apply, const, integer

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded(array: np.ndarray, before: bool = False, aligned: int = 1) -> np.ndarray:
    """A copy whose last byte is followed by (or whose first byte follows, with `before`) a page that nobody may touch.

    It begins at a multiple of `aligned` bytes: fewer than these may lie between its end and the page."""
    page = mmap.PAGESIZE
    pages = -(-max(1, array.nbytes) // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    block = np.frombuffer(memory, np.uint8)
    place = 0 if before else pages * page
    if _LIBC.mprotect(block.ctypes.data + place, page, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    start = page if before else (pages * page - array.nbytes) // aligned * aligned
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def buffer(name: str, dtype: DType, *shape: int | Expr, memory: str = "parameter") -> Buffer:
    """A buffer; extents may be Python ints."""
    return Buffer(name, dtype, tuple(e if isinstance(e, Expr) else const(e) for e in shape), memory)


def read(array: Buffer, *indices: Expr | int) -> Access:
    """An access of a buffer."""
    return Access(array.name, tuple(i if isinstance(i, Expr) else const(i) for i in indices), array.dtype)


def write(array: Buffer, indices: Sequence[Expr | int], value: Expr) -> Store:
    """A store to a buffer."""
    return Store(array.name, tuple(i if isinstance(i, Expr) else const(i) for i in indices), value)


def loop(index: str, stop: int | Expr, *body, start: int | Expr = 0, kind: str = "serial") -> For:
    """A loop over start..stop."""
    first = start if isinstance(start, Expr) else const(start)
    last = stop if isinstance(stop, Expr) else const(stop)
    return For(index, first, last, tuple(body), kind)


def nest(parameters: Sequence[Buffer], writes: Sequence[Buffer], *kernels: Block, sizes: Sequence[str] = (), **more) -> LoopNest:
    """A nest of kernels, each given as its statements."""
    named = tuple(Kernel(f"k{n}", body) for n, body in enumerate(kernels))
    return (
        LoopNest("test", tuple(parameters), (), (), named, tuple(b.name for b in writes), tuple(sizes), ())
        if not more
        else LoopNest(
            "test",
            tuple(parameters),
            more.get("constants", ()),
            more.get("workspace", ()),
            named,
            tuple(b.name for b in writes),
            tuple(sizes),
            more.get("checks", ()),
        )
    )


def run(
    nest: LoopNest,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    before: bool = False,
    compiled: NativeFunction | None = None,
) -> dict[str, np.ndarray]:
    """Outputs of a nest by name; every array lies next to a protected page. Raises `IndexError` with the failure's numbers."""
    function = compiled or compile_nest(nest)
    sizes = dict(sizes or {})
    values: dict[str, np.ndarray] = {}
    for parameter in nest.parameters:
        if parameter.name in nest.writes:
            shape = tuple(_extent(e, sizes) for e in parameter.shape)
            found = np.zeros(shape, parameter.dtype.numpy)
        else:
            found = np.ascontiguousarray(arrays[parameter.name])
        values[parameter.name] = guarded(found, before)
    order = [sizes[s] for s in nest.sizes]
    space = guarded(np.zeros(function.workspace_size(order), np.uint8), before)
    failure = function([a.ctypes.data for a in values.values()], order, space.ctypes.data)
    if failure is not None:
        raise IndexError(failure)
    return {name: values[name].copy() for name in nest.writes}


def _extent(e: Expr, sizes: Mapping[str, int]) -> int:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Size):
        return sizes[e.name]
    assert hasattr(e, "op")
    return int(e.op.evaluate(*(np.int64(_extent(a, sizes)) for a in e.args)))  # type: ignore[attr-defined]


def elementwise(name: str, operand_types: Sequence[DType], count: int, kind: str) -> LoopNest:
    """Y[i] = name(X0[i], X1[i], ...) for `count` elements in a loop of a kind; vectorized in pieces of 16 with a scalar rest."""
    operands = [buffer(f"X{k}", d, count) for k, d in enumerate(operand_types)]
    value = apply(name, *(read(x, Index("i")) for x in operands))
    result = buffer("Y", value.dtype, count)
    if kind == "vectorize":
        index = apply("add", apply("mul", Index("o"), const(16)), Index("l"))
        inner = loop("l", 16, write(result, [index], apply(name, *(read(x, index) for x in operands))), kind="vectorize")
        whole = count // 16
        rest = loop("i", count, write(result, [Index("i")], value), start=whole * 16)
        body: Block = (loop("o", whole, inner), rest)
    else:
        body = (loop("i", count, write(result, [Index("i")], value), kind=kind),)
    return nest([*operands, result], [result], body)


def specials(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Values of a dtype that cover its special cases, in random order with random ones between."""
    generator = np.random.default_rng(seed)
    if dtype.is_bool:
        return generator.integers(0, 2, count).astype(bool)
    if dtype.is_integer:
        low, high = int(dtype.least), int(dtype.greatest)
        special = [
            v
            for v in (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, -1, -2, -3, -7, -64, low, low + 1, high, high - 1)
            if low <= v <= high
        ]
        chosen = [special[k] for k in generator.integers(0, len(special), count)]
        wide = generator.integers(low, high, count, dtype=dtype.numpy, endpoint=True)
        return np.where(generator.random(count) < 0.6, np.array(chosen, dtype.numpy), wide)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        -3.0,
        1e-3,
        1e3,
        1e5,
        7e4,
        -7e4,
        np.inf,
        -np.inf,
        np.nan,
        1e-7,
        6e-8,
        1e-40,
        3e38,
        1e300,
        1e-310,
    ]
    chosen = np.array([special[k] for k in generator.integers(0, len(special), count)])
    spread = generator.standard_normal(count) * 10.0 ** generator.integers(-4, 5, count)
    with np.errstate(all="ignore"):
        return np.where(generator.random(count) < 0.5, chosen, spread).astype(dtype.numpy)


FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def shape_of(array: Buffer) -> int:
    """The number of elements of a buffer of constant shape."""
    return prod(integer(e) for e in array.shape)
