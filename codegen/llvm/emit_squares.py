"""Square tiles moved across: an unrolled loop around a vector of equal length that copies rows of one side to columns of the other.

    for a in unroll(range(16)): for b in vectorize(range(16)): T[a, b] = X[i + b, j + a]

As written every vector is a gather (or a scatter). Instead whole rows are loaded along the side on which they lie, the
square is turned around in registers, and whole rows are stored: per 128 bits by unpacking pairs of rows, and then by
halving, which takes log2(n) shuffles per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorexpr.codegen.llvm.builder import Builder, Value, literal
from tensorexpr.codegen.llvm.emit_memory import masked_load, put
from tensorexpr.codegen.nest import For, If, Store
from tensorexpr.ir import Access, Const, Expr
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, walk

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emit_statements import Statements

SIDES = (4, 8, 16)
Shuffle = tuple[int, int, tuple[int, ...]]
"""Two registers by number, and the elements taken from both (those of the second count on from those of the first)."""


def turned(side: int, block: int) -> tuple[list[Shuffle], list[int]]:
    """The shuffles that turn `side` registers of as many elements around, of which `block` make 128 bits.

    Shuffle k makes register side + k; the second result says which register then holds column 0, 1, ...
    """
    content = [[(row, column) for column in range(side)] for row in range(side)]
    current, shuffles = list(range(side)), []

    def shuffled(a: int, b: int, order: list[int]) -> int:
        both = content[a] + content[b]
        content.append([both[i] for i in order])
        shuffles.append((a, b, tuple(order)))
        return len(content) - 1

    width = 1
    while width < min(block, side):
        made = list(current)
        for low in (r for r in range(side) if not r & width):
            a, b = current[low], current[low + width]
            for half, target in ((0, low), (1, low + width)):
                order: list[int] = []
                for start in range(0, side, block):
                    for chunk in range(block // width // 2):
                        at = start + (half * (block // width // 2) + chunk) * width
                        order += [*range(at, at + width), *range(side + at, side + at + width)]
                made[target] = shuffled(a, b, order)
        current, width = made, width * 2
    while width < side:
        made = list(current)
        blocks = [range(start, start + block) for start in range(0, side, block)]
        for low in (r for r in range(side) if not r & width):
            a, b = current[low], current[low + width]
            for half, target in ((0, low), (1, low + width)):
                chosen = [i for taken in blocks[half::2] for i in taken]
                made[target] = shuffled(a, b, [*chosen, *(side + i for i in chosen)])
        current, width = made, width * 2
    place = {}
    for register in current:
        columns = {column for _, column in content[register]}
        assert len(columns) == 1 and [row for row, _ in content[register]] == list(range(side))
        place[columns.pop()] = register
    return shuffles, [place[column] for column in range(side)]


def turn(b: Builder, rows: list[Value], bits: int) -> list[Value]:
    """The columns of a square of vectors."""
    side = len(rows)
    shuffles, columns = turned(side, min(side, max(1, 128 // bits)))
    registers = list(rows)
    for first, second, order in shuffles:
        x, y = registers[first], registers[second]
        picks = ", ".join(f"i32 {i}" for i in order)
        registers.append(b.emit(f"shufflevector {x.typed}, {y.typed}, <{side} x i32> <{picks}>", x.type, side))
    return [registers[c] for c in columns]


def moved(emitter: Statements, s: For, side: int) -> bool:
    """Emits an unrolled loop of `side` iterations as a square that is turned around, if it is one; says whether it was."""
    inner = s.body[0] if len(s.body) == 1 else None
    if side not in SIDES or emitter.lanes > 1 or emitter.mask is not None or not isinstance(inner, For) or inner.kind != "vectorize":
        return False
    store = inner.body[0] if len(inner.body) == 1 else None
    condition: Expr | None = None
    if isinstance(store, If) and not store.otherwise and len(store.then) == 1:
        condition, store = store.condition, store.then[0]
    if not isinstance(store, Store) or not isinstance(store.value, Access) or inner.start != s.start or inner.stop != s.stop:
        return False
    value, start = store.value, s.start
    target, source = emitter.buffers[store.buffer], emitter.buffers[value.tensor]
    if not isinstance(start, Const) or start.value != 0 or store.buffer == value.tensor or target.lanes > 1 or source.lanes > 1:
        return False
    if target.element != source.element or target.element in ("i1", "i8", "i16", "half", "bfloat"):
        return False
    if along(value.indices, inner.index, s.index) == 1:
        sign = along(store.indices, s.index, inner.index)
        rows, columns = (inner.index, s.index), (1, sign)
    elif along(store.indices, inner.index, s.index) == 1:
        sign = along(value.indices, s.index, inner.index)
        rows, columns = (s.index, inner.index), (sign, 1)
    else:
        return False
    if not sign or (condition is not None and (rows[1] in free_names(condition) or emitter.reads(condition))):
        return False
    # Source rows lie along rows[0] and are numbered by rows[1]; of the target it is the other way around.
    b = emitter.b
    mask = None if condition is None else _mask(emitter, condition, rows[0], columns[0], side)
    order = range(side) if columns[1] == 1 else range(side - 1, -1, -1)
    loaded = [_row(emitter, value.tensor, value.indices, rows[0], rows[1], k, columns[0], side, mask=mask) for k in order]
    for k, column in enumerate(turn(b, loaded, target.dtype.bits)):
        _row(emitter, store.buffer, store.indices, rows[1], rows[0], k if columns[0] == 1 else side - 1 - k, columns[1], side, column)
    return True


def _mask(emitter: Statements, condition: Expr, index: str, sign: int, side: int) -> Value:
    """Which elements of a row count: the condition along the index."""
    first = 0 if sign == 1 else side - 1
    emitter.lanes = side
    try:
        with emitter.bound(index, Value(str(first), "i64", side, sign, first, 0, side - 1)):
            return emitter.b.vector(emitter.expr(condition), side)
    finally:
        emitter.lanes = 1


def _row(
    emitter: Statements,
    name: str,
    indices: tuple[Expr, ...],
    along_: str,
    other: str,
    number: int,
    sign: int,
    side: int,
    value: Value | None = None,
    mask: Value | None = None,
) -> Value:
    """Loads, or with a value stores, the row of a buffer that lies along one index, at `number` of the other; with sign -1 the row
    begins where the index is greatest."""
    binding = emitter.buffers[name]
    first = literal(0 if sign == 1 else side - 1, "i64")
    with emitter.bound(along_, first), emitter.bound(other, literal(number, "i64")):
        offset = emitter.offset(binding, indices)
        pointer = emitter.b.emit(
            f"getelementptr {'inbounds ' if mask is None else ''}{binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr"
        ).text
    type_ = f"<{side} x {binding.element}>"
    if mask is not None:
        return masked_load(emitter.b, pointer, mask, binding.element, binding.align)
    if value is None:
        return emitter.b.emit(f"load {type_}, ptr {pointer}, align {binding.align}", binding.element, side)
    put(emitter.b, binding, pointer, offset, value)
    return value


def along(indices: tuple[Expr, ...], index: str, other: str) -> int:
    """1 or -1 where neighbors in `index` are neighbors in memory in that direction whatever `other` is; 0 otherwise."""
    if not indices or any(isinstance(n, Access) for i in indices for n in walk(i)):
        return 0
    last = affine_of(indices[-1])
    if last is None or last.has_division() or other in last.names() or index in {n for i in indices[:-1] for n in free_names(i)}:
        return 0
    factor = last.coefficient(index)
    return factor if factor in (1, -1) else 0
