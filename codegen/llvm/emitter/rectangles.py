"""Small matrices copied to their transpose, rows filled up to whole vectors:

    for a in unroll(range(7)): for b in vectorize(range(8)): T[a, b] = where(b < 5, X[b, a], 0)
    for a in unroll(range(7)): for b in vectorize(range(8)): if b < 5: T[a, b] = X[b, a]

As written every vector is a gather. Instead the rows of X are loaded (zeros for those that there are none of, under a mask where one is
shorter than a square), squares of them turned around in registers (`squares`), and columns stored as whole vectors, so that those who
load them find them in one piece.
"""

from __future__ import annotations

from math import copysign
from typing import TYPE_CHECKING

from tensorexpr.codegen.llvm.emitter.memory import masked_load, put, store
from tensorexpr.codegen.llvm.emitter.squares import along, turn
from tensorexpr.codegen.llvm.text.values import Value, literal, ramp
from tensorexpr.codegen.nest import For, If, Store
from tensorexpr.ir import Access, Apply, Const, Expr, Index
from tensorexpr.records import record

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements

LANES = (2, 4, 8, 16)
LEAST_SIDE = 4
MOST_COLUMNS = 16


@record
class Copy:
    """What a loop copies: `rows` of a source, and zeros behind them, to `lanes` of a target; `across` runs along rows, `lane` over them."""

    source: Access
    target: Store
    across: str
    lane: str
    rows: int
    lanes: int
    partly: bool
    """Whether lanes behind the rows keep what they have."""


def moved(emitter: Statements, s: For, start: Value, columns: int) -> bool:
    """Emits an unrolled loop that copies a small matrix to its transpose as squares turned around, if it is one; says whether it was."""
    found = _copy(emitter, s)
    if found is None or start.const != 0 or not 1 < columns <= MOST_COLUMNS:
        return False
    side = min(found.lanes, max(LEAST_SIDE, 1 << (columns - 1).bit_length()))
    for begin in range(0, columns, side):
        count = min(side, columns - begin)
        pieces = [_square(emitter, found, first, begin, count, side) for first in range(0, found.lanes, side)]
        for column in range(count):
            vector = emitter.b.joined([piece[column] for piece in pieces])
            target = emitter.buffers[found.target.buffer]
            pointer, offset = _address(emitter, found.target.buffer, found.target.indices, found, begin + column, 0)
            if found.partly:
                mask = Value(f"<{', '.join(f'i1 {str(lane < found.rows).lower()}' for lane in range(found.lanes))}>", "i1", found.lanes)
                store(emitter.b, target, emitter.b.add(offset, ramp(found.lanes, 1)), vector, found.lanes, mask)
            else:
                put(emitter.b, target, pointer, offset, vector)
    return True


def _copy(emitter: Statements, s: For) -> Copy | None:
    inner = s.body[0] if len(s.body) == 1 else None
    if emitter.lanes > 1 or emitter.mask is not None or not isinstance(inner, For) or inner.kind != "vectorize":
        return None
    copied = inner.body[0] if len(inner.body) == 1 else None
    some: Expr | None = None
    if isinstance(copied, If) and not copied.otherwise and len(copied.then) == 1:
        some, copied = copied.condition, copied.then[0]
    if not isinstance(copied, Store) or not isinstance(inner.stop, Const) or inner.start != Const(0, inner.stop.dtype):
        return None
    lanes = int(inner.stop.value)
    value, rows = _rows(copied.value, inner.index, lanes) if some is None else (copied.value, min(lanes, _count(some, inner.index)))
    if lanes not in LANES or rows < 1 or not isinstance(value, Access) or copied.buffer == value.tensor:
        return None
    target, source = emitter.buffers[copied.buffer], emitter.buffers[value.tensor]
    if target.lanes > 1 or source.lanes > 1 or target.element != source.element or target.element in ("i1", "i8", "i16", "half", "bfloat"):
        return None
    if along(value.indices, s.index, inner.index) != 1 or along(copied.indices, inner.index, s.index) != 1:
        return None
    return Copy(value, copied, s.index, inner.index, rows, lanes, some is not None)


def _rows(value: Expr, lane: str, lanes: int) -> tuple[Expr, int]:
    """What is copied to the lanes, and to how many: `where(lane < rows, X, 0)` leaves out those behind."""
    match value:
        case Apply(args=(test, there, Const(value=0) as none)) if value.op.name == "where" and copysign(1.0, float(none.value)) > 0:
            count = _count(test, lane)
            if count:
                return there, min(lanes, count)
    return value, lanes


def _count(test: Expr, lane: str) -> int:
    """Before how many lanes a test holds: `lane < 5`; 0 where it is another one."""
    match test:
        case Apply(args=(Index(name=index), Const(value=count))) if (test.op.name, index) == ("lt", lane):
            return max(0, int(count))
    return 0


def _square(emitter: Statements, found: Copy, first: int, begin: int, count: int, side: int) -> list[Value]:
    """Columns `begin` to `begin + count` of the `side` rows from `first` on."""
    b, source = emitter.b, emitter.buffers[found.source.tensor]
    rows: list[Value] = []
    for row in range(first, first + side):
        if row >= found.rows:
            rows.append(Value("zeroinitializer", source.element, side))
            continue
        pointer, _ = _address(emitter, found.source.tensor, found.source.indices, found, begin, row)
        if count < side:
            mask = Value(f"<{', '.join(f'i1 {str(k < count).lower()}' for k in range(side))}>", "i1", side)
            rows.append(masked_load(b, pointer, mask, source.element, source.align))
        else:
            rows.append(b.emit(f"load <{side} x {source.element}>, ptr {pointer}, align {source.align}", source.element, side))
    return turn(b, rows, 8 * source.dtype.itemsize)


def _address(emitter: Statements, name: str, indices: tuple[Expr, ...], found: Copy, across: int, lane: int) -> tuple[str, Value]:
    binding = emitter.buffers[name]
    with emitter.bound(found.across, literal(across, "i64")), emitter.bound(found.lane, literal(lane, "i64")):
        offset = emitter.offset(binding, indices)
        pointer = emitter.b.emit(f"getelementptr inbounds {binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr")
    return pointer.text, offset
