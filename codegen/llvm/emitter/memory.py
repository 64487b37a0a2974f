"""Reading and writing buffers: from flattened offsets to loads and stores of the right kind.

The offset of an access is one int64 value. Uniform: a scalar load, broadcast where needed. A ramp of stride 1: a vector
load or store, always with the element's alignment written out (without it LLVM assumes that of the whole vector); long ones
are loaded a register at a time, in order. Stride -1: the same, reversed. Stride 2: two overlapping loads that end at the last element.
Everything else: gather and scatter.
Under a mask nothing is touched in lanes that are off, so no access ever leaves its buffer. Elements of less than 32 bits have no gathers
and scatters: LLVM goes from lane to lane, around each that is off, in time that grows with the square of their number and more (1,300 of
them: a second, 4,100: twenty). Such lanes go to a place of their own instead.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.casts import from_memory, memory_type, to_memory
from tensorexpr.codegen.llvm.text.values import Value, literal, mangle, ramp
from tensorexpr.dtypes import DType
from tensorexpr.records import record, replace

LEAST_GATHERED, _WIDEST = 4, 8  # bytes of an element
_ZERO = "te_zero"
_LINE, _PAGE, _LEAST_STREAMED = 64, 4096, 16  # bytes of a cache line, of a page, and of the least vector that goes past the caches


class NotVectorizable(Exception):
    """A store in a vectorized loop that does not reach different elements in different lanes: the loop runs serially."""


@record
class Binding:
    """A buffer as the function at hand sees it: its `pointer`, element type, and strides in elements per axis.

    A local buffer of one lane each (`lanes` > 1) stores a vector per element. `size` is the number of elements, if known.
    What is `streamed` is written past the caches, whole vectors at a time; `ahead` is how many elements ahead a pass fetches.
    Elements that are int64 are `within` two values, both included, where that is known. What is not `written` keeps its elements while
    the function runs.
    """

    pointer: str
    dtype: DType
    strides: tuple[Value, ...]
    memory: str
    lanes: int = 1
    size: int | None = None
    streamed: bool = False
    ahead: int = 0
    within: tuple[int, int] | None = None
    written: bool = True

    @property
    def element(self) -> str:
        return memory_type(self.dtype)

    @property
    def align(self) -> int:
        return self.dtype.itemsize


def _address(b: Builder, binding: Binding, offset: Value, inside: bool) -> str:
    """The pointer to the element at a scalar offset; `inside` says that it certainly is within the buffer."""
    element = binding.element if binding.lanes == 1 else f"<{binding.lanes} x {binding.element}>"
    if offset.const == 0:
        return binding.pointer
    parts = b.parts.get(offset.text)
    if parts is not None:
        text, constant = parts
        key = ("address", binding.pointer, element, text)
        start = b.recall(key)
        if start is None:
            start = b.remember(key, b.emit(f"getelementptr {element}, ptr {binding.pointer}, i64 {text}", "ptr"))
        return b.emit(f"getelementptr {element}, ptr {start.text}, i64 {constant}", "ptr").text
    return b.emit(f"getelementptr {'inbounds ' if inside else ''}{element}, ptr {binding.pointer}, i64 {offset.text}", "ptr").text


def _addresses(b: Builder, binding: Binding, offset: Value, lanes: int) -> Value:
    vector = b.vector(offset, lanes)
    name = b.emit(f"getelementptr {binding.element}, ptr {binding.pointer}, <{lanes} x i64> {vector.text}", "ptr", lanes)
    return name


def _elsewhere(b: Builder, pointers: Value, mask: Value, place: Value) -> Value:
    """Pointers of which those in lanes that are off point to a place."""
    return b.select(b.vector(mask, pointers.lanes), pointers, b.vector(place, pointers.lanes))


def _zero(b: Builder) -> str:
    """A place that holds zero, of the width of any element."""
    b.module.helper(_ZERO, lambda: f"@{_ZERO} = internal constant [{_WIDEST} x i8] zeroinitializer, align {_WIDEST}")
    return f"@{_ZERO}"


def _reverse(b: Builder, value: Value) -> Value:
    return b.shuffled(value, reversed(range(value.lanes)))


def _from_behind(b: Builder, offset: Value) -> Value:
    """The places of a ramp from the last to the first."""
    start = b.add(offset.base, offset.stride * (offset.lanes - 1))
    return replace(start, lanes=offset.lanes, stride=-offset.stride, low=offset.low, high=offset.high)


def load(b: Builder, binding: Binding, offset: Value, lanes: int, mask: Value | None) -> Value:
    """The element at `offset` (in every lane that `mask` has) in register form; uniform where the offset is."""
    if binding.lanes > 1:
        return _load_private(b, binding, offset, mask)
    if mask is not None and _is_inside(binding, offset):
        # No lane leaves the buffer, and lanes that are off may load anything.
        return from_memory(b, _settled(b, binding, _load_any(b, binding, offset, lanes, None)), binding.dtype)
    found = from_memory(b, _load_any(b, binding, offset, lanes, mask), binding.dtype)
    if binding.within is None:
        return found
    low, high = binding.within
    if mask is not None:  # lanes that are off read 0
        low, high = min(low, 0), max(high, 0)
    return replace(found, low=low, high=high)


def fetch(b: Builder, binding: Binding, offset: Value, lanes: int) -> None:
    """Asks for the cache lines of a vector `ahead` of an offset: a hint, which may lie outside of the buffer.

    They come to the second cache: the first is full of what is worked on now, and is filled from there in time.
    """
    start = _address(b, binding, b.add(offset.base, binding.ahead), False)
    b.module.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    for line in range(0, lanes * binding.dtype.itemsize, _LINE):
        place = b.emit(f"getelementptr i8, ptr {start}, i64 {line}", "ptr").text if line else start
        b.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")


def _load_any(b: Builder, binding: Binding, offset: Value, lanes: int, mask: Value | None) -> Value:
    if offset.lanes == 1:
        return _load_scalar(b, binding, offset, mask)
    return _load_vector(b, binding, offset, lanes, mask)


def _settled(b: Builder, binding: Binding, value: Value) -> Value:
    """What a lane that is off may have read from memory that nobody wrote: any value, but one (an undefined divisor may do anything)."""
    if binding.memory == "parameter" or binding.dtype.is_float:
        return value
    return b.emit(f"freeze {value.typed}", value.type, value.lanes)


def _is_inside(binding: Binding, offset: Value) -> bool:
    """Whether an offset certainly is within the buffer in every lane, also in those that are off."""
    low, high = offset.low, offset.high
    return binding.size is not None and low is not None and high is not None and low >= 0 and high < binding.size


def _load_scalar(b: Builder, binding: Binding, offset: Value, mask: Value | None) -> Value:
    if mask is None:
        pointer = _address(b, binding, offset, True)
        return b.emit(f"load {binding.element}, ptr {pointer}, align {binding.align}", binding.element)
    # Not a jump around the load: in the innermost loop there would be one for each element that all lanes read.
    pointers = b.select(b.any(mask), Value(_address(b, binding, offset, False), "ptr"), Value(_zero(b), "ptr"))
    return b.emit(f"load {binding.element}, ptr {pointers.text}, align {binding.align}", binding.element)


def _load_vector(b: Builder, binding: Binding, offset: Value, lanes: int, mask: Value | None) -> Value:
    element, align = binding.element, binding.align
    type_ = f"<{lanes} x {element}>"
    if offset.stride in (1, -1):
        start = offset.base if offset.stride == 1 else b.add(offset.base, 1 - lanes)
        if mask is not None:
            start = _near(b, binding, offset, start, lanes)
        pointer = _address(b, binding, start, mask is None)
        if mask is None:
            found = _load_in_order(b, binding, pointer, lanes)
        else:
            active = b.vector(mask, lanes) if offset.stride == 1 else _reverse(b, b.vector(mask, lanes))
            found = masked_load(b, pointer, active, element, align)
        return found if offset.stride == 1 else _reverse(b, found)
    if offset.stride == 2:
        return _load_every_other(b, binding, offset, lanes, mask)
    if offset.stride == -2:
        mask = None if mask is None else _reverse(b, b.vector(mask, lanes))
        return _reverse(b, _load_every_other(b, binding, _from_behind(b, offset), lanes, mask))
    row = _row_start(b, binding, offset) if mask is None else None
    if row is not None:
        return _load_column(b, binding, offset.stride, row[0], row[1], lanes)
    pointers = _addresses(b, binding, offset, lanes)
    if mask is not None and binding.dtype.itemsize < LEAST_GATHERED:
        pointers, mask = _elsewhere(b, pointers, mask, Value(f"splat (ptr {_zero(b)})", "ptr", lanes)), None
    active = literal(True, "i1") if mask is None else mask
    active = b.vector(active, lanes)
    name = f"llvm.masked.gather.{mangle(Value('', element, lanes))}.v{lanes}p0"
    arguments = f"<{lanes} x ptr> align {align} {pointers.text}, {active.typed}, {type_} zeroinitializer"
    return b.emit(f"call {type_} @{name}({arguments})", element, lanes)


def _load_in_order(b: Builder, binding: Binding, pointer: str, lanes: int) -> Value:
    """Elements side by side from a pointer on, a register at a time from the first to the last.

    LLVM loads the registers of one long vector in any order, which the processor does not see coming: a sum over rows of 8 KB in memory
    took up to three times as long (measured, Zen 4).
    """
    element, one = binding.element, b.module.vector_bits // 8 // binding.dtype.itemsize
    count = lanes // one if one and binding.dtype.itemsize >= LEAST_GATHERED and binding.memory != "local" else 1
    if count < 2 or count * one != lanes or count.bit_count() > 1:
        return b.emit(f"load <{lanes} x {element}>, ptr {pointer}, align {binding.align}", element, lanes)
    parts = []
    for first in range(0, lanes, one):
        place = b.emit(f"getelementptr {element}, ptr {pointer}, i64 {first}", "ptr").text if first else pointer
        parts.append(b.emit(f"load <{one} x {element}>, ptr {place}, align {binding.align}", element, one))
    return b.joined(parts)


def _near(b: Builder, binding: Binding, offset: Value, start: Value, lanes: int) -> Value:
    """Where lanes under a mask are loaded from: the front of the buffer where none can be on, as all are outside of it.

    A core looks for the page of a load all of whose lanes are off, too, and takes 50 to 150 ns where there is none (measured, Zen 4). Lanes
    that never are more than a page outside of a buffer are left as they are.
    """
    size, low, high, reach = binding.size, offset.low, offset.high, _PAGE // binding.dtype.itemsize
    if size is None or low is None or high is None or (low >= -reach and high < size + reach):
        return start
    before = b.add(start, lanes - 1)  # the place of the first lane that is inside, or more than all there are
    inside = b.emit(f"icmp ult i64 {before.text}, {size + lanes - 1}", "i1")
    return b.select(inside, start, literal(0, "i64"))


def _load_every_other(b: Builder, binding: Binding, offset: Value, lanes: int, mask: Value | None) -> Value:
    """Every second element: two vectors side by side, and their even or odd halves.

    Where the elements between may be read, too, the vectors begin at an even place, so that those who read the others find them loaded.
    Else the second vector ends at the last element.
    """
    element, align = binding.element, binding.align
    type_ = f"<{lanes} x {element}>"
    shared = _shared_start(b, binding, offset) if mask is None else None
    if shared is not None:
        start, odd = shared
        pair = []
        for before in (0, lanes):
            pointer = _address(b, binding, b.add(start, before), True)
            pair.append(b.emit(f"load {type_}, ptr {pointer}, align {align}", element, lanes))
        return b.shuffled(pair[0], range(odd, 2 * lanes, 2), pair[1])
    low = _address(b, binding, offset.base, mask is None)
    high = _address(b, binding, b.add(offset.base, lanes - 1), mask is None)
    half = (lanes + 1) // 2
    if mask is None:
        first = b.emit(f"load {type_}, ptr {low}, align {align}", element, lanes)
        second = b.emit(f"load {type_}, ptr {high}, align {align}", element, lanes)
    else:
        active = b.vector(mask, lanes)
        # Lane l stands at 2 l of the first vector, or at 2 l + 1 - lanes of the second; `lanes` picks an element that is off.
        spread = (
            [place // 2 if place % 2 == 0 else lanes for place in range(lanes)],
            [(place + lanes - 1) // 2 if (place + lanes - 1) % 2 == 0 else lanes for place in range(lanes)],
        )
        masks = [b.shuffled(active, picks, "zeroinitializer") for picks in spread]
        first, second = (masked_load(b, pointer, m, element, align) for pointer, m in zip((low, high), masks, strict=True))
    return b.shuffled(first, (2 * lane if lane < half else 2 * lane + 1 for lane in range(lanes)), second)


def _shared_start(b: Builder, binding: Binding, offset: Value) -> tuple[Value, int] | None:
    """Where vectors that have every second element begin at an even place, and how far behind it these elements are; None where that
    place is not known, or one of the elements between is outside of the buffer."""
    odd = _place_in_row(b, binding, offset, 2)
    return None if odd is None else (b.add(offset.base, -odd), odd)


def _row_start(b: Builder, binding: Binding, offset: Value) -> tuple[Value, int] | None:
    """Where the row begins that the first lane reads an element of, and how far behind it this is, where lanes read one element each of
    short rows that lie side by side in the buffer; None where that is not known, or lanes are too far apart."""
    step, itemsize = offset.stride, binding.dtype.itemsize
    if step < 3 or itemsize < LEAST_GATHERED or step * itemsize > b.module.spread:
        return None
    at = _place_in_row(b, binding, offset, step)
    return None if at is None else (b.add(offset.base, -at), at)


def _place_in_row(b: Builder, binding: Binding, offset: Value, step: int) -> int | None:
    """Which element of rows of `step` elements, counted from the front of a buffer, all lanes read; None where that is not known, or the
    last of these rows may end outside of the buffer. All that is read is inside of it: this is proved of every nest."""
    at = None if binding.size is None else b.rest(offset.base, step)
    if at is None or binding.size is None:
        return None
    last = binding.size - 1 if offset.high is None else min(offset.high, binding.size - 1)
    return at if last - (last - at) % step - at + step <= binding.size else None


def _load_column(b: Builder, binding: Binding, step: int, start: Value, at: int, lanes: int) -> Value:
    """One element, that at `at`, of each of `lanes` rows of `step` elements from `start` on.

    Rows are loaded whole, a register at a time; each brings some lanes, which one shuffle puts beside those of the registers before. What
    reads other elements of the rows finds the registers loaded.
    """
    element, one = binding.element, max(1, b.module.vector_bits // 8 // binding.dtype.itemsize)
    parts = []
    for first in range(0, lanes, one):
        count = min(one, lanes - first)
        found: Value | None = None
        for block in range(0, count * step, count):
            here = [lane for lane in range(count) if block <= lane * step + at < block + count]
            if not here:
                continue
            pointer = _address(b, binding, b.add(start, first * step + block), True)
            row = b.emit(f"load <{count} x {element}>, ptr {pointer}, align {binding.align}", element, count)
            other = row if found is None else found
            picks = [lane * step + at - block if lane in here else count + lane if found is not None else 0 for lane in range(count)]
            found = b.shuffled(row, picks, other)
        assert found is not None
        parts.append(found)
    return b.joined(parts)


def masked_load(b: Builder, pointer: str, mask: Value, element: str, align: int) -> Value:
    """Elements side by side from a pointer on, zero where the mask is off."""
    type_ = f"<{mask.lanes} x {element}>"
    name = f"llvm.masked.load.{mangle(Value('', element, mask.lanes))}.p0"
    return b.emit(f"call {type_} @{name}(ptr align {align} {pointer}, {mask.typed}, {type_} zeroinitializer)", element, mask.lanes)


def _load_private(b: Builder, binding: Binding, offset: Value, mask: Value | None) -> Value:
    type_ = f"<{binding.lanes} x {binding.element}>"
    if offset.lanes == 1:
        pointer = _address(b, binding, offset, True)
        found = b.emit(f"load {type_}, ptr {pointer}, align {_vector_align(binding)}", binding.element, binding.lanes)
        return from_memory(b, found, binding.dtype)
    return from_memory(b, _load_vector(b, _flat(binding), _own_lane(b, binding, offset), binding.lanes, mask), binding.dtype)


def _flat(binding: Binding) -> Binding:
    return Binding(binding.pointer, binding.dtype, (), binding.memory)


def _own_lane(b: Builder, binding: Binding, offset: Value) -> Value:
    """The offset of every lane's own element in the storage of a private buffer."""
    return b.add(b.mul(offset, binding.lanes), ramp(binding.lanes, 1))


def _vector_align(binding: Binding) -> int:
    size = binding.lanes * binding.dtype.itemsize
    return min(64, size & -size)


def store(b: Builder, binding: Binding, offset: Value, value: Value, lanes: int, mask: Value | None) -> None:
    """Writes a register value at `offset` in every lane that `mask` has.

    Raises `NotVectorizable` in a vectorized loop where lanes do not write to different elements.
    """
    if binding.lanes > 1:
        _store_private(b, binding, offset, value, mask)
        return
    if lanes == 1:
        pointer = _address(b, binding, offset, True)
        b.line(f"store {to_memory(b, value, binding.dtype).typed}, ptr {pointer}, align {binding.align}")
        return
    if not offset.stride:
        raise NotVectorizable
    align = binding.align
    value = to_memory(b, b.vector(value, lanes), binding.dtype)
    if offset.stride in (1, -1):
        start = offset.base if offset.stride == 1 else b.add(offset.base, 1 - lanes)
        pointer = _address(b, binding, start, mask is None)
        if offset.stride == -1:
            value = _reverse(b, value)
        if mask is not None and binding.memory == "local" and offset.stride == 1 and _is_inside(binding, offset):
            # Nobody else sees a local buffer: writing old values back in lanes that are off lets it live in registers.
            old = b.emit(f"load {value.full_type}, ptr {pointer}, align {align}", value.type, lanes)
            value, mask = b.select(b.vector(mask, lanes), value, old), None
        if mask is None:
            put(b, binding, pointer, start, value)
            return
        active = b.vector(mask, lanes) if offset.stride == 1 else _reverse(b, b.vector(mask, lanes))
        b.line(f"call void @llvm.masked.store.{mangle(value)}.p0({value.typed}, ptr align {align} {pointer}, {active.typed})")
        return
    if offset.stride == 2:
        _store_every_other(b, binding, offset, value, lanes, mask)
        return
    if offset.stride == -2:
        mask = None if mask is None else _reverse(b, b.vector(mask, lanes))
        _store_every_other(b, binding, _from_behind(b, offset), _reverse(b, value), lanes, mask)
        return
    _scatter(b, binding, offset, value, lanes, mask)


def put(b: Builder, binding: Binding, pointer: str, offset: Value, value: Value) -> None:
    """Stores a vector side by side from a pointer on, the element at a scalar offset of the buffer.

    Past the caches it needs the alignment of a whole vector: an offset that is known to keep it, and a buffer that begins with a line,
    which loops are left to test since it does not change. So a buffer is written one way throughout, by short vectors as by long ones:
    lines of which some parts go past the caches and others do not would cost far more than they save (2.7 ms became 42).
    """
    plain = f"store {value.typed}, ptr {pointer}, align {binding.align}"
    size = min(_LINE, value.lanes * binding.dtype.itemsize)
    kept = offset.const == 0 or offset.multiple * binding.dtype.itemsize % size == 0
    if not binding.streamed or size < _LEAST_STREAMED or not kept:
        b.line(plain)
        return
    address = b.emit(f"ptrtoint ptr {binding.pointer} to i64", "i64")
    aligned = b.compare("icmp eq", b.op("and", address, _LINE - 1), 0)
    past, through, after = b.name("past"), b.name("through"), b.name("stored")
    b.branch(aligned, past, through)
    b.begin(past)
    b.line(f"store {value.typed}, ptr {pointer}, align {size}, !nontemporal !1")
    b.jump(after)
    b.begin(through)
    b.line(plain)
    b.jump(after)
    b.begin(after)


def _store_every_other(b: Builder, binding: Binding, offset: Value, value: Value, lanes: int, mask: Value | None) -> None:
    """Writes every second element: two vectors one after the other, whose odd places are off."""
    active, value = b.vector(literal(True, "i1") if mask is None else mask, lanes), _fenced(b, value)
    for first in (0, lanes // 2):
        spread = b.shuffled(value, (first + place // 2 for place in range(lanes)))
        on = b.shuffled(active, (lanes if place % 2 else first + place // 2 for place in range(lanes)), "zeroinitializer")
        pointer = _address(b, binding, b.add(offset.base, 2 * first), False)
        b.line(f"call void @llvm.masked.store.{mangle(spread)}.p0({spread.typed}, ptr align {binding.align} {pointer}, {on.typed})")


def store_interleaved(b: Builder, binding: Binding, offset: Value, values: list[Value], lanes: int, mask: Value | None) -> None:
    """Writes as many values as the lanes of `offset` are apart, each one element behind the one before, in every lane that `mask` has:
    vectors without gaps."""
    parts = [_fenced(b, to_memory(b, b.vector(value, lanes), binding.dtype)) for value in values]
    count = len(parts)
    while len(parts) > 1:  # pairs side by side, an odd one with itself
        parts = [b.joined((parts[at], parts[min(at + 1, len(parts) - 1)])) for at in range(0, len(parts), 2)]
    whole = _fenced(b, parts[0])
    for piece in range(count):
        places = range(piece * lanes, (piece + 1) * lanes)
        value = b.shuffled(whole, (place % count * lanes + place // count for place in places))
        start = b.add(offset.base, piece * lanes)
        pointer = _address(b, binding, start, mask is None)
        if mask is None:
            put(b, binding, pointer, start, value)
            continue
        on = b.shuffled(b.vector(mask, lanes), (place // count for place in places), "zeroinitializer")
        b.line(f"call void @llvm.masked.store.{mangle(value)}.p0({value.typed}, ptr align {binding.align} {pointer}, {on.typed})")


def _fenced(b: Builder, value: Value) -> Value:
    """The vector as LLVM does not see through it where it has 64 bytes: of such, one of which was put in, it makes a shuffle that moves
    the upper half, and that anew for ever (its code for AVX-512, 22.1)."""
    if value.type != "i8" or value.lanes != 64:
        return value
    held = "<16 x float>"
    bits = b.emit(f"bitcast {value.typed} to {held}", "float", 16)
    behind = b.emit(f"call {held} @llvm.arithmetic.fence.v16f32({bits.typed})", "float", 16)
    return b.emit(f"bitcast {behind.typed} to {value.full_type}", value.type, value.lanes)


def _scatter(b: Builder, binding: Binding, offset: Value, value: Value, lanes: int, mask: Value | None) -> None:
    pointers = _addresses(b, binding, offset, lanes)
    if mask is not None and binding.dtype.itemsize < LEAST_GATHERED:
        pointers, mask = _elsewhere(b, pointers, mask, Value(b.slot(binding.element, binding.align), "ptr")), None
    active = b.vector(literal(True, "i1") if mask is None else mask, lanes)
    targets = f"<{lanes} x ptr> align {binding.align} {pointers.text}"
    b.line(f"call void @llvm.masked.scatter.{mangle(value)}.v{lanes}p0({value.typed}, {targets}, {active.typed})")


def _store_private(b: Builder, binding: Binding, offset: Value, value: Value, mask: Value | None) -> None:
    value = to_memory(b, b.vector(value, binding.lanes), binding.dtype)
    if offset.lanes > 1:
        _scatter(b, _flat(binding), _own_lane(b, binding, offset), value, binding.lanes, mask)
        return
    pointer, align = _address(b, binding, offset, True), _vector_align(binding)
    if mask is not None:
        old = b.emit(f"load {value.full_type}, ptr {pointer}, align {align}", value.type, value.lanes)
        value = b.select(b.vector(mask, binding.lanes), value, old)
    b.line(f"store {value.typed}, ptr {pointer}, align {align}")
