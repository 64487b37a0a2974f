"""The one C entry point of a compiled nest, and the layout of its workspace.

    int64_t name(void *const *buffers, const int64_t *sizes, void *workspace, int64_t *error)

- `buffers`: a pointer per parameter of the nest in order (inputs, then outputs), then one per constant. Elements are
  row-major without gaps, aligned to their own size; a bool is one byte, 0 or 1. Outputs overlap nothing else.
- `sizes`: the symbolic extents, in the order of `nest.sizes`.
- `workspace`: `workspace_size(nest, sizes)` bytes, aligned to 64, for this call alone (may be null where that is 0).
- `error`: two integers, written only on failure.
- the result: 0, or the number of the failed check plus 1; then error[0] is the index and error[1] the extent.

No Python object is involved and no lock is held, so any number of threads may be inside at once.

The workspace is one block. Buffers that are never alive in the same kernel share bytes: each lives from the first kernel
that names it to the last. With symbolic sizes nothing is known about lengths, so every buffer has bytes of its own.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import prod
from typing import Any

from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest
from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Const, Expr, Index, Size
from tensorexpr.traversal import free_names, tensors_read

ALIGNMENT = 64

Extent = int | str | Sequence[Any]
"""An extent as plain data: a number, the name of a size, or an operation and its operands."""
ENDLESS = 1 << 40
"""Statements of what is not known to be short."""
_MOST_TERMS = 32
"""Open numbers of statements in a block that are added up: code of more is long."""


def constant_shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The shape of a buffer where it is all constants."""
    extents = tuple(int(extent.value) for extent in buffer.shape if isinstance(extent, Const))
    return extents if len(extents) == len(buffer.shape) else None


def padded(bytes_: int) -> int:
    """The next multiple of the alignment."""
    return -(-bytes_ // ALIGNMENT) * ALIGNMENT


class Workspace:
    """Where the buffers of a nest lie: `offsets` in bytes of those of constant shape, which take `fixed` bytes together.

    The others follow behind in the order of the nest, each padded to the alignment.
    """

    def __init__(self, nest: LoopNest) -> None:
        self.offsets: dict[str, int] = {}
        self.fixed = 0
        self.rest: list[Buffer] = []
        lives = _lives(nest)
        gaps = [(0, 1 << 128)]  # what is free, in order; buffers beyond all memory are refused later, with their size
        alive: list[tuple[int, int, int]] = []  # last kernel, offset, end
        # In order of birth, so that only what is still alive can be in the way.
        for buffer in sorted(nest.workspace, key=lambda buffer: lives.get(buffer.name, (0, 0))[0]):
            shape = constant_shape(buffer)
            if shape is None:
                continue
            first, last = lives.get(buffer.name, (0, -1))
            while alive and alive[0][0] < first:
                _free(gaps, *heappop(alive)[1:])
            size = padded(prod(shape) * buffer.dtype.itemsize) if last >= first else 0
            offset = 0
            if size:
                at = next(k for k, (start, end) in enumerate(gaps) if end - start >= size)
                offset, end = gaps[at]
                gaps[at : at + 1] = [(offset + size, end)] if end > offset + size else []
                heappush(alive, (last, offset, offset + size))
            self.offsets[buffer.name] = offset
            self.fixed = max(self.fixed, offset + size)
        self.rest = [buffer for buffer in nest.workspace if buffer.name not in self.offsets]

    def size(self, sizes: Mapping[str, int]) -> int:
        """Bytes that a call with these sizes needs."""
        lengths = (prod(plain_value(extent, sizes) for extent in shape) * size for size, shape in self.open)
        return self.fixed + sum(padded(length) for length in lengths)

    @property
    def open(self) -> tuple[tuple[int, tuple[Extent, ...]], ...]:
        """Bytes per element, and extents as plain data, of the buffers whose shape depends on sizes."""
        return tuple((buffer.dtype.itemsize, tuple(map(plain, buffer.shape))) for buffer in self.rest)


def workspace_size(nest: LoopNest, sizes: Mapping[str, int]) -> int:
    """Bytes of workspace that a call with these sizes needs."""
    return Workspace(nest).size(sizes)


def _free(gaps: list[tuple[int, int]], start: int, end: int) -> None:
    """Adds a range to those that are free: neighbors become one."""
    at = bisect(gaps, (start, end))
    if at < len(gaps) and gaps[at][0] == end:
        end = gaps.pop(at)[1]
    if at and gaps[at - 1][1] == start:
        start = gaps.pop(at - 1)[0]
        at -= 1
    gaps.insert(at, (start, end))


def _lives(nest: LoopNest) -> dict[str, tuple[int, int]]:
    """The first and the last kernel that names each buffer."""
    lives: dict[str, tuple[int, int]] = {}
    for number, kernel in enumerate(nest.kernels):
        for name in kernel.buffers:
            lives[name] = (lives.get(name, (number, number))[0], number)
    return lives


def statements(nest: LoopNest) -> Extent:
    """About how many statements a call runs, at most, as plain data: `ENDLESS` in loops that end where data say."""
    return _sum(_statements(kernel.body, {}) for kernel in nest.kernels)


def _statements(body: Block, ends: Mapping[str, Extent]) -> Extent:
    """The same of a block, in loops whose indices go up to `ends`."""
    counts: list[Extent] = []
    for s in body:
        match s:
            case For():
                stop = _most(s.stop, ends)
                inner = _statements(s.body, ends if stop is None else {**ends, s.index: stop})
                trips = ENDLESS if stop is None else _folded("sub", stop, _least(s.start))
                counts.append(_folded("mul", _folded("maximum", trips, 0), inner))
            case If():
                counts.append(_folded("maximum", _statements(s.then, ends), _statements(s.otherwise, ends)))
            case Alloc():
                counts.append(_statements(s.body, ends))
            case _:
                counts.append(1)
    return _sum(counts)


def _most(e: Expr, ends: Mapping[str, Extent]) -> Extent | None:
    """About the most that an expression is; None where it is data."""
    if not isinstance(e, Apply):
        return ends.get(e.name) if isinstance(e, Index) else plain(e) if isinstance(e, Const | Size) else None
    if e.op.name == "mod":
        return _most(e.args[1], ends)
    name, args = ("maximum", e.args[1:]) if e.op.name == "where" else (e.op.name, e.args)
    if name == "sub":
        left = _most(args[0], ends)
        return None if left is None else _folded(name, left, _least(args[1]))
    known = [most for a in args if (most := _most(a, ends)) is not None]
    if name == "minimum" and known:
        return _folded(name, known[0], known[-1])
    return _folded(name, *known) if name in ("add", "mul", "floordiv", "maximum") and len(known) == 2 else None


def _least(e: Expr) -> Extent:
    """The value of an expression of sizes; of any other nothing is known but that it counts from 0."""
    found = None if free_names(e) or tensors_read(e) else _most(e, {})
    return 0 if found is None else found


def _folded(name: str, left: Extent, right: Extent) -> Extent:
    made = (name, left, right)
    return plain_value(made, {}) if isinstance(left, int) and isinstance(right, int) else made


def _sum(counts: Iterable[Extent]) -> Extent:
    """The sum: of counts that are numbers as one, of many that are not as the longest that a number is."""
    known, open_ = 0, list[Extent]()
    for count in counts:
        if isinstance(count, int):
            known += count
        else:
            open_.append(count)
    total: Extent = known
    for count in open_:
        total = ("add", total, count)
    return total if len(open_) <= _MOST_TERMS else ENDLESS


def plain(e: Expr) -> Extent:
    """An extent over sizes and constants as plain data."""
    match e:
        case Const():
            return int(e.value)
        case Size():
            return e.name
        case Apply():
            return (e.op.name, *map(plain, e.args))
    raise InternalError(f"llvm: expected an extent over sizes and constants, got {type(e).__name__}", term=e)


def plain_value(extent: Extent, sizes: Mapping[str, int]) -> int:
    """The value of an extent that is plain data."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return int(sizes[extent])
    name = extent[0]
    left, *right = (plain_value(item, sizes) for item in extent[1:])
    match name:
        case "neg":
            return -left
        case "add":
            return left + right[0]
        case "sub":
            return left - right[0]
        case "mul":
            return left * right[0]
        case "floordiv":
            return left // right[0] if right[0] else 0
        case "mod":
            return left % right[0] if right[0] else 0
        case "minimum":
            return min(left, right[0])
        case "maximum":
            return max(left, right[0])
    raise InternalError(f"llvm: expected an operation on extents, got {name}")
