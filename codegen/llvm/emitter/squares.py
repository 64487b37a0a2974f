"""Square tiles moved across: an unrolled loop around a vector of equal length that copies rows of one side to columns of the other.

    for a in unroll(range(16)): for b in vectorize(range(16)): T[a, b] = X[i + b, j + a]

As written every vector is a gather (or a scatter). Instead whole rows are loaded along the side on which they lie, the
square is turned around in registers, and whole rows are stored: per 128 bits by unpacking pairs of rows, and then by
halving, which takes log2(n) shuffles per row.

Results of a tile that lie across its lanes are stored likewise, whatever they are computed from and however many rows there are:

    for a in unroll(range(14)): for b in vectorize(range(32)): Y[b, a + p] = S[a, b] + bias[b]

Vectors of results are turned around by squares, rows that are missing are filled up, and 14 elements are stored at a time. Rows
of residue classes, which are stored next to each other, make one row. What results are computed from may lie across the lanes as they
do, as what a layer is added to: it comes by rows and squares, too, and may be what the results take the place of.

LLVM takes 20 ms for the shuffles of 16 rows, and a network turns the weights and results of each layer around. Where kernels are modules
of their own, a square of rows as far apart as each other is therefore a call of a function that the process has once. Results go there
in registers (on x86-64: a convention there has enough of them), what they are computed from comes back on the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tensorexpr.codegen.dependence import in_turn
from tensorexpr.codegen.llvm.emitter import memory as emit_memory
from tensorexpr.codegen.llvm.emitter.expressions import reads_for_certain
from tensorexpr.codegen.llvm.emitter.memory import Binding, masked_load, put
from tensorexpr.codegen.llvm.text.builder import Builder, Module
from tensorexpr.codegen.llvm.text.casts import to_memory
from tensorexpr.codegen.llvm.text.dominators import ENTRY
from tensorexpr.codegen.llvm.text.values import Value, literal, mangle
from tensorexpr.codegen.lowering.stage.joining import follows
from tensorexpr.codegen.nest import Block, For, If, Store
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Access, Apply, Const, Expr, conjunction
from tensorexpr.records import record
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, tensors_read, walk

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.statements import Statements

SIDES = (4, 8, 16)
LEAST_FETCHED = 2 << 20
"""Bytes of a buffer from which on lines are asked for before they are stored to: those of smaller ones are hardly ever far."""
LEAST_ROWS = 4
"""Rows of a tile from which on its results are turned around: fewer are stored element by element in as many cycles."""
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
    shuffles, columns = _written(side, min(side, max(1, 128 // bits)))
    registers = list(rows)
    for first, second, picks in shuffles:
        x, y = registers[first], registers[second]
        registers.append(b.emit(f"shufflevector {x.typed}, {y.typed}, {picks}", x.type, side))
    return [registers[c] for c in columns]


@cache
def _written(side: int, block: int) -> tuple[list[tuple[int, int, str]], list[int]]:
    """As `turned`, with the text of what is taken."""
    shuffles, columns = turned(side, block)
    return [(a, b, f"<{side} x i32> <{', '.join(f'i32 {i}' for i in order)}>") for a, b, order in shuffles], columns


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
    if target.element != source.element or target.element == "i1":
        return False
    if along(value.indices, inner.index, s.index, apart=side) == 1:
        sign = along(store.indices, s.index, inner.index, apart=side)
        rows, columns = (inner.index, s.index), (1, sign)
    elif along(store.indices, inner.index, s.index, apart=side) == 1:
        sign = along(value.indices, s.index, inner.index, apart=side)
        rows, columns = (s.index, inner.index), (sign, 1)
    else:
        return False
    if not sign or (condition is not None and (rows[1] in free_names(condition) or emitter.reads(condition))):
        return False
    # Source rows lie along rows[0] and are numbered by rows[1]; of the target it is the other way around.
    b = emitter.b
    whole = condition is None and columns == (1, 1) and not target.streamed
    called = whole and b.module.beside is not None
    last = (value.indices[-1], store.indices[-1])
    divided = any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") for e in last for n in walk(e))
    if called or divided:
        before = b.mark()
        places = _even(emitter, (source, value.indices), (target, store.indices), rows, side)
        if called and places:
            squares = [_rows_at(b, binding, start) for binding, start in zip((source, target), places, strict=True)]
            _call(b, source.element, 8 * source.dtype.itemsize, side, side, *squares)
            return True
        b.rewind(before)
        if not places and divided:  # each row has a place of its own, which is divided for
            return False
    mask = None if condition is None else _mask(emitter, condition, rows[0], columns[0], side)
    order = range(side) if columns[1] == 1 else range(side - 1, -1, -1)
    loaded = [emit_memory.load(b, source, _row(emitter, source, value.indices, rows, k, columns[0], side), side, mask) for k in order]
    turned_ = turn(b, loaded, 32 if loaded[0].type == "float" else 8 * target.dtype.itemsize)  # 16-bit floats are float32 in registers
    # In the order of the loops: rows of the target may be one.
    for k in range(side):
        lane = k if columns[0] == 1 else side - 1 - k
        place = _row(emitter, target, store.indices, (rows[1], rows[0]), k, columns[1], side)
        emit_memory.store(b, target, place, turned_[lane], side, None if mask is None else b.vector(b.extract(mask, lane), side))
    return True


Place = tuple[Binding, tuple[Expr, ...]]
Rows = tuple[str, int]
"""Rows in memory: the pointer to the first one, and how many elements they are apart."""


def _even(emitter: Statements, source: Place, target: Place, rows: tuple[str, str], side: int) -> list[Value]:
    """Where the rows of a square and those of the one turned around begin, where each are as far apart; nothing where they are not."""
    with emitter.b.scope():
        places = [_first_row(emitter, *place, row, number, side) for place, (row, number) in ((source, rows), (target, rows[::-1]))]
    return places if all(start.lanes > 1 and start.stride for start in places) else []


def _rows_at(b: Builder, binding: Binding, start: Value) -> Rows:
    """The rows of a square, one in each lane."""
    return b.emit(f"getelementptr inbounds {binding.element}, ptr {binding.pointer}, i64 {start.base.text}", "ptr").text, start.stride


def _call(b: Builder, element: str, bits: int, side: int, length: int, source: Rows, target: Rows) -> None:
    """Has a function that the process has once turn around the rows of a square, of which there are so many elements each."""
    assert b.module.beside is not None
    name = f"te.turned.{element}.{side}" + ("" if length == side else f".by{length}")
    if name not in b.module.beside:
        b.module.beside[name] = _turning(name, element, side, length, bits, b.module.vector_bits)
    b.module.declarations[name] = f"declare hidden void @{name}(ptr, i64, ptr, i64)"
    b.line(f"call void @{name}({', '.join(f'ptr {pointer}, i64 {stride}' for pointer, stride in (source, target))})")


def _first_row(emitter: Statements, binding: Binding, indices: tuple[Expr, ...], row: str, number: str, side: int) -> Value:
    """Where the rows of a square begin in a buffer, one in each lane, that lie along `row` and are numbered by `number`."""
    with emitter.bound(row, literal(0, "i64")), _in_lanes(emitter, number, literal(0, "i64"), side):
        return emitter.offset(binding, indices)


def _turning(name: str, element: str, side: int, length: int, bits: int, vector_bits: int) -> str:
    """The function that turns `side` rows of so many elements around, which are `step` elements apart, and stored `stride` apart."""
    b = Builder(Module(vector_bits=vector_bits))

    def loaded(row: str) -> Value:
        if length < side:
            return masked_load(b, row, _first(length, side), element, bits // 8)
        return b.emit(f"load <{side} x {element}>, ptr {row}, align {bits // 8}", element, side)

    given = [loaded(row) for row in _rows(b, "%from", "%step", element, side)]
    arguments = "ptr noalias readonly %from, i64 %step, ptr noalias writeonly %to, i64 %stride"
    return _turning_of(b, given, bits, length, f"void @{name}({arguments})")


def _turning_of(b: Builder, given: list[Value], bits: int, length: int, header: str) -> str:
    """The function that turns vectors around and stores so many rows, `stride` elements apart."""
    count, side, element = len(given), given[0].lanes, given[0].type
    columns = turn(b, given + [Value("poison", element, side)] * (side - count), bits)
    for column, row in zip(columns, _rows(b, "%to", "%stride", element, length), strict=False):
        if count < side:
            _masked_store(b, column, row, _first(count, side), bits // 8)
        else:
            b.line(f"store {column.typed}, ptr {row}, align {bits // 8}")
    b.line("ret void")
    return b.function(f'define hidden {header} noinline nounwind "prefer-vector-width"="{b.module.vector_bits}"')


def _rows(b: Builder, pointer: str, step: str, element: str, count: int) -> Iterator[str]:
    for number in range(count):
        offset = b.mul(Value(step, "i64"), number)
        yield b.emit(f"getelementptr inbounds {element}, ptr {pointer}, i64 {offset.text}", "ptr").text


def _call_with(b: Builder, values: list[Value], bits: int, target: Rows) -> None:
    """Has a function that the process has once turn around vectors, a register each: the convention has as many as a square has rows."""
    assert b.module.beside is not None
    count, side, element = len(values), values[0].lanes, values[0].type
    name = f"te.turned.{element}.{side}.of{count}"
    types = [f"<{side} x {element}>"] * count
    if name not in b.module.beside:
        made = Builder(Module(vector_bits=b.module.vector_bits))
        words = ", ".join(f"{type_} %x{k}" for k, type_ in enumerate(types))
        header = f"x86_regcallcc void @{name}(ptr writeonly %to, i64 %stride, {words})"
        b.module.beside[name] = _turning_of(made, [Value(f"%x{k}", element, side) for k in range(count)], bits, side, header)
    b.module.declarations[name] = f"declare hidden x86_regcallcc void @{name}(ptr, i64, {', '.join(types)})"
    b.line(f"call x86_regcallcc void @{name}(ptr {target[0]}, i64 {target[1]}, {', '.join(v.typed for v in values)})")


def _first(count: int, side: int) -> Value:
    """The mask of the first lanes."""
    return Value(f"<{', '.join(f'i1 {str(lane < count).lower()}' for lane in range(side))}>", "i1", side)


@record
class Tile:
    """The results of a tile in lanes that go across the rows of a buffer: side by side `stores` for each row (of one residue class
    each) under a `condition`; the indices of `rows` and of `lanes`, how many lanes there are, and how many make a square."""

    stores: tuple[Store, ...]
    condition: Expr | None
    rows: str
    lanes: str
    count: int
    side: int


def results(emitter: Statements, s: For, rows: int) -> Tile | None:
    """The tile whose results an unrolled loop stores, if rows of a buffer lie along it and arithmetic alone says which of them are."""
    conditions: list[Expr] = []
    body = s.body
    inner: For | None = None
    while len(body) == 1 and not isinstance(body[0], Store):
        match body[0]:
            case If() if not body[0].otherwise:
                conditions.append(body[0].condition)
                body = body[0].then
            case For() if inner is None and body[0].kind == "vectorize":
                inner = body[0]
                body = inner.body
            case _:
                return None
    stores = tuple(x for x in body if isinstance(x, Store))
    if not stores or len(stores) < len(body) or inner is None or emitter.lanes > 1 or emitter.mask is not None:
        return None
    name, indices = stores[0].buffer, stores[0].indices
    target = emitter.buffers[name]
    first, lanes = inner.start, inner.stop
    side = emitter.machine.vector_bits // target.dtype.bits
    if not isinstance(first, Const) or first.value != 0 or not isinstance(lanes, Const) or side not in SIDES or int(lanes.value) % side:
        return None
    if target.lanes > 1 or target.memory == "local" or target.streamed or target.element in ("i1", "i8", "i16", "half", "bfloat"):
        return None
    classes = len(stores)
    if rows * classes < LEAST_ROWS or along(indices, s.index, inner.index, (classes,)) != classes:
        return None
    if not any(inner.index in free_names(i) for i in indices) or not all(map(follows, stores, stores[1:])):
        return None
    if classes > 1 and any(s.index in free_names(c) for c in conditions):
        return None
    if any(emitter.reads(c) for c in conditions):
        return None  # there may be no such element where a row is filled up, or a condition around does not hold
    if any(name in tensors_read(i) for x in stores for i in x.indices):
        return None
    own = [(n, x) for x in stores for n in walk(x.value) if isinstance(n, Access) and n.tensor == name]
    if any(n.indices != x.indices for n, x in own) or (own and not any(_steps(i, inner.index) for i in indices)):
        return None
    condition = conjunction(tuple(conditions)) if conditions else None
    return Tile(stores, condition, s.index, inner.index, int(lanes.value), side)


def _steps(e: Expr, index: str) -> bool:
    """Whether an expression differs for any two values of an index."""
    opaque = Opaque()
    form = affine_of(e, opaque)
    if form is None or form.has_division() or index in {n for x in opaque.expressions.values() for n in free_names(x)}:
        return False
    return form.coefficient(index) != 0


def _across(emitter: Statements, tile: Tile) -> list[Access]:
    """What each result of a tile is computed from that lies in rows across the lanes, as results do."""
    target = emitter.buffers[tile.stores[0].buffer]

    def lies(read: Access) -> bool:
        binding = emitter.buffers[read.tensor]
        if binding.dtype is not target.dtype or binding.lanes > 1 or binding.memory == "local":
            return False
        return along(read.indices, tile.rows, tile.lanes) == 1 and any(_steps(i, tile.lanes) for i in read.indices)

    if len(tile.stores) > 1:
        return []
    value = tile.stores[0].value
    certain = reads_for_certain(value)
    return list(dict.fromkeys(n for n in walk(value) if isinstance(n, Access) and n in certain and lies(n)))


def stored(emitter: Statements, s: For, start: Value, rows: int) -> bool:
    """Emits an unrolled loop over the results of a tile as squares that are turned around, if it is one; says whether it was."""
    tile = results(emitter, s, rows)
    if tile is None:
        return False
    rows, reads = rows * len(tile.stores), _across(emitter, tile)
    for piece in range(0, tile.count, tile.side):
        for row in range(0, rows, tile.side):
            _turned_results(emitter, tile, start, range(row, min(row + tile.side, rows)), piece, reads)
    return True


def fetched(emitter: Statements, body: Block) -> None:
    """Asks for the lines that a tile reads and stores to at the end of a block while what stands before is computed: each of them is in
    another page, where the processor does not see them come."""
    last = body[-1]
    if not isinstance(last, For) or last.kind != "unroll" or not any(isinstance(s, For) and s.kind == "serial" for s in body[:-1]):
        return
    start, stop = last.start, last.stop
    if not isinstance(start, Const) or not isinstance(stop, Const):
        return
    rows = int(stop.value) - int(start.value)
    tile = results(emitter, last, rows)
    if tile is None:
        return
    b, last_ = emitter.b, tile.stores[-1]
    places = {(read.tensor, read.indices): 0 for read in _across(emitter, tile)} | {(last_.buffer, last_.indices): 1}
    b.module.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    for (name, indices), written in places.items():
        binding = emitter.buffers[name]
        if binding.size is None or binding.size * binding.dtype.itemsize < LEAST_FETCHED:
            continue
        for lane in range(tile.count):
            with emitter.bound(tile.lanes, literal(lane, "i64")), emitter.bound(tile.rows, literal(int(stop.value) - 1, "i64")):
                offset = emitter.offset(binding, indices)
            pointer = b.emit(f"getelementptr {binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr").text
            b.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {written}, i32 3, i32 1)")


def _turned_results(emitter: Statements, tile: Tile, first: Value, numbers: range, start: int, reads: list[Access]) -> None:
    """Stores a square of results: of the rows of these numbers (those of all stores in turn), and of the lanes from `start` on. `reads`
    come by rows."""
    b, classes, count, side = emitter.b, len(tile.stores), len(numbers), tile.side
    binding, begin = emitter.buffers[tile.stores[0].buffer], b.add(first, numbers.start // classes)
    bits, called = 8 * binding.dtype.itemsize, b.module.beside is not None and tile.condition is None
    there = literal(True, "i1") if count == side else _first(count, side)

    def places_of(binding: Binding, indices: tuple[Expr, ...]) -> Value:
        """Where the row of each lane begins."""
        with emitter.bound(tile.rows, begin), _in_lanes(emitter, tile.lanes, literal(start, "i64"), side):
            return emitter.offset(binding, indices)

    def lines(binding: Binding, indices: tuple[Expr, ...], places: Value) -> Iterator[tuple[str, Value, Value]]:
        """The row of each lane, and which of its elements there are."""
        for k in range(side):
            with emitter.bound(tile.lanes, literal(start + k, "i64")):
                mask = b.vector(there, side)
                if tile.condition is not None:
                    with _in_lanes(emitter, tile.rows, begin, side):
                        mask = b.op("and", mask, b.vector(emitter.expr(tile.condition), side))
                if places.stride:
                    offset = b.add(places.base, k * places.stride)
                else:
                    with emitter.bound(tile.rows, begin):
                        offset = emitter.offset(binding, indices)
                pointer = b.emit(f"getelementptr {binding.element}, ptr {binding.pointer}, i64 {offset.text}", "ptr").text
                yield pointer, offset, mask

    def crossed(read: Access) -> list[Value]:
        """What is read for each row, in lanes."""
        source = emitter.buffers[read.tensor]
        places = places_of(source, read.indices)
        if called and places.stride:
            slot = _slot(b, source.element, side, bits)
            _call(b, source.element, bits, side, count, _rows_at(b, source, places), (slot[0], side))
            return [
                b.emit(f"load <{side} x {source.element}>, ptr {row}, align {side * bits // 8}", source.element, side)
                for row in slot[:count]
            ]
        rows = [masked_load(b, p, mask, source.element, source.align) for p, _, mask in lines(source, read.indices, places)]
        return turn(b, rows, bits)

    known, values = {read: crossed(read) for read in reads}, []
    for k in numbers:
        with emitter.bound(tile.rows, b.add(first, k // classes)), _in_lanes(emitter, tile.lanes, literal(start, "i64"), side):
            for read, rows in known.items():
                emitter.give(read, rows[k - numbers.start])
            store = tile.stores[k % classes]
            value = in_turn(store) if emitter.machine.fuses else store.value
            if tile.condition is None:
                found = emitter.expr(value)
            else:
                with emitter.masked(b.vector(emitter.expr(tile.condition), side)):
                    found = emitter.expr(value)
            values.append(to_memory(b, b.vector(found, side), binding.dtype))
    indices = tile.stores[numbers.start % classes].indices
    places = places_of(binding, indices)
    if called and places.stride and emitter.machine.triple.startswith("x86_64"):
        _call_with(b, values, bits, _rows_at(b, binding, places))
        return
    values += [Value("poison", values[0].type, side)] * (side - count)
    whole = count == side and tile.condition is None
    for column, (pointer, offset, mask) in zip(turn(b, values, bits), lines(binding, indices, places), strict=True):
        if whole:
            put(b, binding, pointer, offset, column)
        else:
            _masked_store(b, column, pointer, mask, binding.align)


def _masked_store(b: Builder, value: Value, pointer: str, mask: Value, align: int) -> None:
    b.line(f"call void @llvm.masked.store.{mangle(value)}.p0({value.typed}, ptr align {align} {pointer}, {mask.typed})")


def _slot(b: Builder, element: str, side: int, bits: int) -> list[str]:
    """The rows of a square on the stack, the same for all squares that are turned around one after the other."""
    key = ("turned", element, side)
    found = b.recall(key)
    if found is None:
        found = Value(b.slot(f"[{side * side} x {element}]", side * bits // 8), "ptr")
        b.scopes[-1][key] = found, ENTRY
    rows = (b.emit(f"getelementptr inbounds {element}, ptr {found.text}, i64 {side * k}", "ptr").text for k in range(1, side))
    return [found.text, *rows]


@contextmanager
def _in_lanes(emitter: Statements, index: str, start: Value, side: int) -> Iterator[None]:
    """Inside, an index goes through as many values as there are lanes."""
    high = None if start.high is None else start.high + side - 1
    emitter.lanes = side
    try:
        with emitter.bound(index, Value(start.text, "i64", side, 1, start.const, start.low, high, start.multiple)):
            yield
    finally:
        emitter.lanes = 1


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
    emitter: Statements, binding: Binding, indices: tuple[Expr, ...], along_: tuple[str, str], number: int, sign: int, side: int
) -> Value:
    """Where the row of a buffer is that lies along the first of two indices, at `number` of the other; with sign -1 it begins where
    the index is greatest."""
    first = literal(0 if sign == 1 else side - 1, "i64")
    with emitter.bound(along_[0], first), emitter.bound(along_[1], literal(number, "i64")):
        begin = emitter.offset(binding, indices)
    high = None if begin.high is None else begin.high + side - 1
    return Value(begin.text, "i64", side, 1, begin.const, begin.low, high, begin.multiple)


def along(indices: tuple[Expr, ...], index: str, other: str, steps: tuple[int, ...] = (1, -1), apart: int = 0) -> int:
    """How far apart neighbors in `index` are in memory whatever `other` is, if as far as one of `steps` says; 0 otherwise. Neighbors in
    `other` are at least `apart` elements apart along the last axis, or not along it at all, which is all that is taken where that is 0."""
    if not indices or any(map(tensors_read, indices)):
        return 0
    opaque = Opaque()
    last = affine_of(indices[-1], opaque)
    if last is None or not _hidden(last, opaque).isdisjoint((index, other)) or (not apart and last.has_division()):
        return 0
    if other in last.names() and not 0 < apart <= abs(last.coefficient(other)):
        return 0
    if index in {n for i in indices[:-1] for n in free_names(i)}:
        return 0
    factor = last.coefficient(index)
    return factor if factor in steps else 0


def _hidden(form: Affine, opaque: Opaque) -> set[str]:
    """The indices of which quotients, remainders and terms that are no sums are made, as where the last block of a loop is moved back."""
    divided = {n for atom in form.atoms() if isinstance(atom, FloorDiv) for n in atom.numerator.names()}
    return divided | {n for e in opaque.expressions.values() for n in free_names(e)}
