"""Statements of a loop nest as instructions: loops of every kind, conditions, stores, local buffers, checks.

A vectorized loop is cut into pieces of a power of two of lanes. Inside, a condition or a loop bound that differs between
lanes becomes a mask. A loop whose stores do not reach different elements in different lanes (a reduction that nobody
split) is taken back and written as a serial loop: vectorizing may never change the result. A parallel loop becomes a
function over a range of its iterations, which the pool calls in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd, inf
from typing import NamedTuple

from tensorexpr.codegen.dependence import in_turn
from tensorexpr.codegen.llvm.emitter import ahead as emit_ahead
from tensorexpr.codegen.llvm.emitter import dots as emit_dots
from tensorexpr.codegen.llvm.emitter import intrinsics as emit_intrinsics
from tensorexpr.codegen.llvm.emitter import memory as emit_memory
from tensorexpr.codegen.llvm.emitter import rectangles as emit_rectangles
from tensorexpr.codegen.llvm.emitter import squares as emit_squares
from tensorexpr.codegen.llvm.emitter import work as emit_work
from tensorexpr.codegen.llvm.emitter.expressions import Expressions
from tensorexpr.codegen.llvm.emitter.integers import quotient_of
from tensorexpr.codegen.llvm.emitter.memory import Binding, NotVectorizable
from tensorexpr.codegen.llvm.text.builder import LONGEST_WORD, SCALAR_LOOP, Builder
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.codegen.lowering.stage.joining import side_by_side
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_in, expressions_of, inside, iterations, loops_in, statements
from tensorexpr.codegen.rewrites.lanes_last import lanes_last
from tensorexpr.dtypes import float32
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Const, Expr, Index, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, substitute, tensors_read, walk

_WIDEST = 64  # lanes of one piece of a vectorized loop
_DEEP = 4  # loops, one inside the other, from which on what is around them is hidden from LLVM
_LONG = 32  # steps of the loops inside, one after the other, from which on it is so, too
_ROLLED = 8  # copies of a loop that keeps nothing in registers, from which on it stays a loop where it tests or has no vectors
_COPIES = 4  # pieces of a vectorized loop that are copied out; beyond, a loop over pieces


class Statements(Expressions):
    """Emits statements into one function. `outline` emits a parallel loop from start to stop; without it such a loop is serial."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        super().__init__(builder, machine)
        self.outline: Callable[[Statements, For, Value, Value], None] | None = None
        self.fresh: dict[int, Buffer] = {}
        """By identity, stores to local buffers in which lanes that are off may do as the others, which leaves LLVM no older elements to
        keep: of constants where nothing was stored before, and to elements that these lanes alone have."""
        self.scalars = 0
        """Loops so far that were to be vectors and are not."""

    def block(self, body: Block) -> None:
        done = 0
        if body:
            emit_squares.fetched(self, body)
        while done < len(body):
            together = () if self.lanes == 1 else side_by_side(body[done:])
            if len(together) > 1 and self._store_together(together):
                done += len(together)
                continue
            self.statement(body[done])
            done += 1

    def statement(self, s: Stmt) -> None:
        self.epoch += 1
        match s:
            case Store():
                self._store(s)
            case For():
                self._for(s)
            case If():
                self._if(s)
            case Alloc():
                self._alloc(s)
            case Check():
                self._check(s)
            case _:
                raise InternalError(f"llvm: expected a statement of a loop nest, got {type(s).__name__}")

    # ------------------------------------------------------------------------------------------------ simple statements

    def _store(self, s: Store) -> None:
        binding = self.buffers[s.buffer]
        value = self.expr(in_turn(s) if self.machine.fuses else s.value)
        fresh = self.mask is not None and id(s) in self.fresh and self._is_inside(s, self.fresh[id(s)])
        emit_memory.store(self.b, binding, self.offset(binding, s.indices), value, self.lanes, None if fresh else self.mask)

    def _is_inside(self, s: Store, buffer: Buffer) -> bool:
        """Whether a store to a local buffer stays in it in the lanes that are off, too."""
        ends = zip(map(self.expr, s.indices), map(self.expr, buffer.shape), strict=True)
        return all(i.low is not None and i.low >= 0 and i.high is not None and n.const is not None and i.high < n.const for i, n in ends)

    def _store_together(self, stores: tuple[Store, ...]) -> bool:
        """Stores of neighboring elements in lanes that are as far apart as there are stores: vectors without gaps.

        False where the lanes are not that far apart; nothing is emitted then.
        """
        binding = self.buffers[stores[0].buffer]
        offset = self.offset(binding, stores[0].indices)
        if binding.lanes > 1 or offset.stride != len(stores):
            return False
        self.epoch += 1
        emit_memory.store_interleaved(self.b, binding, offset, [self.expr(s.value) for s in stores], self.lanes, self.mask)
        return True

    def _alloc(self, s: Alloc) -> None:
        s = lanes_last(s) if self.lanes == 1 else s
        filled = [*_of_lanes_alone(s), *_filled(s)]
        count, strides = 1, []
        for extent in reversed(s.buffer.shape):
            value = self.expr(extent)
            if value.const is None:
                raise InternalError(f"llvm: expected a local buffer of constant shape, got {s.buffer.name}")
            strides.append(literal(count, "i64"))
            count *= int(value.const)
        binding = Binding("", s.buffer.dtype, tuple(reversed(strides)), "local", self.lanes)
        bytes_ = max(1, count) * self.lanes * s.buffer.dtype.itemsize
        element = binding.element if self.lanes == 1 else f"<{self.lanes} x {binding.element}>"
        pointer = self.b.slot(f"[{max(1, count)} x {element}]", 64 if bytes_ >= 64 else 16)
        outer = self.buffers.get(s.buffer.name)
        self.buffers[s.buffer.name] = Binding(pointer, s.buffer.dtype, binding.strides, "local", self.lanes, count)
        self.fresh |= {id(store): s.buffer for store in filled}
        try:
            self.block(s.body)
        finally:
            for store in filled:
                self.fresh.pop(id(store), None)
            del self.buffers[s.buffer.name]
            if outer is not None:
                self.buffers[s.buffer.name] = outer

    def _if(self, s: If) -> None:
        choice = self.expr(s.condition)
        if choice.const is not None:
            self.block(s.then if choice.const else s.otherwise)
            return
        if choice.lanes > 1:
            if not s.otherwise and self._accumulates(s.then) and self._is_fixed(s.condition):
                choice = self.b.opaque(choice)
            with self.masked(choice):
                self.block(s.then)
            if s.otherwise:
                with self.masked(self.b.negation(choice)):
                    self.block(s.otherwise)
            return
        b = self.b
        yes, after = b.name("then"), b.name("after")
        no = b.name("else") if s.otherwise else after
        b.branch(choice, yes, no)
        for label, body in ((yes, s.then), (no, s.otherwise)):
            if label is after:
                continue
            b.begin(label)
            with b.scope(), self.narrowed(s.condition if body is s.then else None):
                self.block(body)
            b.jump(after)
        b.begin(after)

    @contextmanager
    def narrowed(self, condition: Expr | None) -> Iterator[None]:
        """Inside, indices are known to lie where the condition says, as far as it compares them with constants."""
        outer = dict(self.indices)
        for part in () if condition is None else conjuncts(condition):
            if not (isinstance(part, Apply) and part.op.name in ("lt", "ge") and isinstance(part.args[0], Index)):
                continue
            known, limit = self.indices[part.args[0].name], part.args[1]
            if isinstance(limit, Const) and known.lanes == 1 and known.const is None and known.low is not None and known.high is not None:
                low = max(known.low, int(limit.value)) if part.op.name == "ge" else known.low
                high = min(known.high, int(limit.value) - 1) if part.op.name == "lt" else known.high
                if low <= high:
                    self.indices[part.args[0].name] = replace(known, low=low, high=high)
        try:
            yield
        finally:
            self.indices = outer

    def _accumulates(self, body: Block) -> bool:
        """Whether statements do nothing but change local buffers of floating numbers: registers, as it should be.

        Not of integers: of comparisons that are added up under a mask that it does not see through, LLVM 22 makes operations of a type
        that x86 has not, and ends the process.
        """
        changed = [self.buffers[s.buffer] for s in body if isinstance(s, Store)]
        return len(changed) == len(body) and all(b.memory == "local" and b.dtype.is_float for b in changed)

    def _is_fixed(self, condition: Expr) -> bool:
        """Whether LLVM knows in which lanes a condition holds."""
        found = [n for n in walk(condition) if not isinstance(n, (Apply, Const))]
        return all(isinstance(n, Index) and self.indices[n.name].const is not None for n in found)

    def _check(self, s: Check) -> None:
        b = self.b
        whole, divisor = quotient_of(s.index)
        if not isinstance(s.extent, Const) or int(s.extent.value) * divisor >= 1 << 63:
            whole, divisor = s.index, 1
        index, extent = self.expr(whole), b.mul(self.expr(s.extent), divisor)
        if index.low is not None and index.low >= 0 and index.high is not None and extent.low is not None and index.high < extent.low:
            return
        # Extents are not negative, so one unsigned comparison sees both ends; of a quotient its dividend has to be below so many more.
        bad = b.compare("icmp uge", index, extent)
        if self.mask is not None:
            bad = b.op("and", bad, self.mask)
        fail, fine = b.name("fail"), b.name("fine")
        b.branch(b.any(bad), fail, fine, ", !prof !0")
        b.begin(fail)
        lane: Value | int = 0
        if bad.lanes > 1:
            bits = b.emit(f"bitcast {bad.typed} to i{bad.lanes}", f"i{bad.lanes}")
            first = b.emit(f"call i{bad.lanes} @llvm.cttz.i{bad.lanes}(i{bad.lanes} {bits.text}, i1 true)", f"i{bad.lanes}")
            opcode = "zext" if bad.lanes < 64 else "trunc"
            lane = first if bad.lanes == 64 else b.convert(opcode, first, "i64")
        with b.scope():
            culprit, limit = b.extract(self.expr(s.index), lane), b.extract(self.expr(s.extent), lane)
        b.line(f"call void @te.fail(ptr %status, ptr %error, i64 {s.check + 1}, {culprit.typed}, {limit.typed})")
        b.line("ret void")
        b.begin(fine)

    # ------------------------------------------------------------------------------------------------ loops

    @contextmanager
    def bound(self, index: str, value: Value) -> Iterator[None]:
        """Inside, the index stands for the value; what was remembered inside is forgotten."""
        outer = self.indices.get(index)
        self.indices[index] = value
        try:
            with self.b.scope():
                yield
        finally:
            del self.indices[index]
            if outer is not None:
                self.indices[index] = outer

    def _for(self, s: For) -> None:
        if not s.body:  # conditions that bounds decide can leave a loop with nothing in it
            return
        if s.call is not None and self.lanes == 1 and self.mask is None:
            emit_intrinsics.call(self, s.call)
            return
        start, stop = self.expr(s.start), self.expr(s.stop)
        if start.lanes > 1 or stop.lanes > 1:
            self._masked_loop(s, start, stop)
            return
        if start.const is not None and stop.const is not None and start.const >= stop.const:
            return
        extent = _constant_extent(s, start, stop)
        if extent is not None and extent <= 0:
            return
        if s.kind == "unroll" and extent is not None:
            self._unrolled(s, start, extent)
        elif s.kind == "vectorize" and extent is not None and (self.lanes == 1 or extent == 1):
            self._vectorized(s, start, extent)
        elif s.kind == "parallel" and self.outline is not None and self.lanes == 1:
            self.outline(self, s, start, stop)
        else:
            self.serial(s, start, stop)

    def _unrolled(self, s: For, start: Value, extent: int) -> None:
        if (
            emit_squares.moved(self, s, extent)
            or emit_rectangles.moved(self, s, start, extent)
            or emit_squares.stored(self, s, start, extent)
            or (start.const == 0 and emit_dots.summed(self, s, extent))
        ):
            return
        if self.lanes > 1 and start.const is not None and len(s.body) == 1 and isinstance(s.body[0], Store):  # perhaps side by side
            steps = [{s.index: const(int(start.const) + step)} for step in range(extent)]
            self.block(tuple(_stored(s.body[0], step) for step in steps))
            return
        rolled = extent >= _ROLLED and self.lanes == 1 and not self._holds_local(s.body)
        if rolled and isinstance(s.body[0], If) and s.body[0].otherwise and not self._is_decided(s, start, extent):
            self.serial(s, start, self.b.add(start, extent))
            return
        place, scalars = self.b.mark(), self.scalars
        for step in range(extent):
            with self.bound(s.index, self.b.add(start, step)):
                self.block(s.body)
            if rolled and self.scalars > scalars:  # iterations that are long, and not what was wanted
                self.b.rewind(place)
                self.serial(s, start, self.b.add(start, extent))
                return

    def _holds_local(self, body: Block) -> bool:
        """Whether statements read or write local buffers, which are registers where loops are copied out."""
        inside = list(statements(body))
        names = {s.buffer for s in inside if isinstance(s, Store)}.union(*map(tensors_read, expressions_in(body)))
        return any(isinstance(s, Alloc) for s in inside) or any(self.buffers[name].memory == "local" for name in names)

    def _is_decided(self, s: For, start: Value, extent: int) -> bool:
        """Whether the test that iterations of a loop begin with is known of the first or the last."""
        test = s.body[0]
        assert isinstance(test, If)
        found, place = [], self.b.mark()
        for step in (0, extent - 1):
            with self.bound(s.index, self.b.add(start, step)):
                found.append(self.expr(test.condition))
        self.b.rewind(place)
        return any(value.const is not None for value in found)

    def serial(self, s: For, start: Value, stop: Value) -> None:
        """The loop one iteration after the other, from start to stop (scalar values); two, where it only tells the first ones apart."""
        if self.lanes == 1 and (apart := _first_apart(s)) is not None:
            limit, first, others = apart
            ends, begins = self._between(start, self.expr(limit), stop)
            self.serial(first, start, ends)
            self.serial(others, begins, stop)
            return
        if not s.body or (start.const is not None and stop.const is not None and start.const >= stop.const):
            return
        depth, steps = _inside(s.body)
        hidden = depth >= _DEEP or steps >= _LONG
        with self.counted(s.index, start, stop, 1) as index, self.bound(s.index, self._hidden(index) if hidden else index):
            emit_ahead.fetched(self, s, index)
            self.block(s.body)

    def _between(self, start: Value, limit: Value, stop: Value) -> tuple[Value, Value]:
        """A limit, brought between the ends of a loop, with what is known of it where the iterations before it run, and those behind."""
        if start.const is not None and limit.const is not None and stop.const is not None:
            found = literal(max(int(start.const), min(int(limit.const), int(stop.const))), "i64")
            return found, found
        found = self.b.intrinsic("smax", start, self.b.intrinsic("smin", limit, stop))
        highs = [value.high for value in (limit, stop) if value.high is not None]
        lows = [value.low for value in (limit, start) if value.low is not None]
        return replace(found, low=start.low, high=min(highs, default=None)), replace(found, low=max(lows, default=None), high=stop.high)

    def _hidden(self, index: Value) -> Value:
        """The index of a loop around many others, or around long ones, as LLVM does not see through it.

        Addresses in the inner loops are then an unknown and their own steps. Else LLVM describes each by all the loops around it, again for
        every one of them: a fifth of its time for the gradient of a transposed convolution (367 ms, 295 so), a tenth for ResNet-50. Where
        the loops inside take few steps LLVM may copy them out, and is better off with what it knows.
        """
        found = self.b.emit(f'call i64 asm "", "=r,0"({index.typed}) nounwind willreturn memory(none)', "i64")
        return Value(found.text, "i64", low=index.low, high=index.high, multiple=index.multiple)

    @contextmanager
    def counted(self, name: str, start: Value, stop: Value, step: int) -> Iterator[Value]:
        """A loop around what is emitted inside; gives its index. `step` divides stop - start."""
        b = self.b
        stem = "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:LONGEST_WORD])
        body, after = b.name(f"{stem}.loop"), b.name(f"{stem}.end")
        runs = start.const is not None and stop.const is not None and start.const < stop.const
        if runs:
            b.jump(body)
        else:
            b.branch(b.compare("icmp slt", start, stop), body, after)
        before = b.block
        b.begin(body)
        divisions, branches = b.divisions, b.branches
        arrays = {found.pointer for found in self.buffers.values()}  # an array may be called as the loop is, and have this number
        place, index = len(b.lines), next(word for word in iter(lambda: f"%{b.name(stem + '.')}", None) if word not in arrays)
        b.lines.append("")
        high = None if stop.high is None else stop.high - step
        yield Value(index, "i64", low=start.low, high=high, multiple=gcd(start.multiple, step))
        following = b.emit(f"add nsw i64 {index}, {step}", "i64")
        b.lines[place] = f"  {index} = phi i64 [ {start.text}, %{before} ], [ {following.text}, %{b.block} ]"
        scalar = b.divisions > divisions and b.branches > branches
        b.module.scalar |= scalar
        b.branch(b.compare("icmp slt", following, stop), body, after, f", !llvm.loop {SCALAR_LOOP}" if scalar else "")
        b.begin(after)

    def _masked_loop(self, s: For, start: Value, stop: Value) -> None:
        """In a vectorized loop: a loop whose bounds differ between lanes runs over all of them, under a mask."""
        b = self.b
        first = self._extreme(s.start, start, "smin", (1 << 63) - 1)
        last = self._extreme(s.stop, stop, "smax", -(1 << 63))
        # The mask spells ramps out inside the loop, which may not run: nothing of that may be remembered behind it.
        with self.counted(s.index, first, last, 1) as index, b.scope():
            inside = b.op("and", b.compare("icmp sle", start, index), b.compare("icmp slt", index, stop))
            with self.bound(s.index, index), self.masked(inside):
                self.block(s.body)

    def _extreme(self, bound: Expr, value: Value, name: str, none: int) -> Value:
        """The least or greatest of a bound's lanes. Of data it is that of the lanes that are on, `none` where none is: in the others
        stands anything, between which a loop might run for years."""
        if value.lanes == 1:
            return value
        b, reads = self.b, self.reads(bound)
        if value.stride and not reads:
            return value.base if (value.stride > 0) == (name == "smin") else b.add(value.base, value.stride * (value.lanes - 1))
        lanes = b.vector(value, value.lanes)
        if reads and self.mask is not None:
            lanes = b.select(self.mask, lanes, none)
        found = b.emit(f"call i64 @llvm.vector.reduce.{name}.v{lanes.lanes}i64({lanes.typed})", "i64")
        return Value(found.text, "i64", low=value.low, high=value.high)

    def _vectorized(self, s: For, start: Value, extent: int) -> None:
        if extent == 1:
            self._unrolled(s, start, 1)
            return
        place = self.b.mark()
        try:
            with self.b.scope():
                self._pieces(s, start, extent)
        except NotVectorizable:
            self.scalars += 1
            self.b.rewind(place)
            self.serial(s, start, self.b.add(start, extent))

    def _pieces(self, s: For, start: Value, extent: int) -> None:
        whole = extent <= _WIDEST and extent & (extent - 1) == 0
        width = extent if whole else min(self._width(s.body), 1 << (extent.bit_length() - 1))
        count = extent // width
        if count > _COPIES:
            with self.counted(s.index, start, self.b.add(start, count * width), width) as index, self.b.scope():
                self._piece(s, index, width)
        else:
            for piece in range(count):
                self._piece(s, self.b.add(start, piece * width), width)
        done, rest = count * width, extent - count * width
        while rest:
            width = 1 << (rest.bit_length() - 1)
            self._piece(s, self.b.add(start, done), width)
            done, rest = done + width, rest - width

    def _width(self, body: Block) -> int:
        """Lanes of a piece where the extent is not a power of two: a register of what the loop stores first."""
        for s in body:
            match s:
                case Store() if s.buffer in self.buffers:
                    return min(_WIDEST, max(4, self.machine.lanes(self.buffers[s.buffer].dtype)))
                case For() | Alloc():
                    return self._width(s.body)
                case If():
                    return self._width(s.then)
        return self.machine.lanes(float32)

    def _piece(self, s: For, start: Value, width: int) -> None:
        if width == 1:
            with self.bound(s.index, start):
                self.block(s.body)
            return
        high = None if start.high is None else start.high + width - 1
        ramp = Value(start.text, "i64", width, 1, start.const, start.low, high, start.multiple)
        self.lanes = width
        try:
            with self.bound(s.index, ramp):
                self.block(s.body)
        finally:
            self.lanes = 1

    def work(self, s: For, start: Value, stop: Value) -> Value | float:
        """An estimate of the cost of one iteration of a loop (see `work`)."""
        return emit_work.iteration(self, s, start, stop)


def _stored(s: Store, indices: Mapping[str, Expr]) -> Store:
    """A store with other indices."""
    return Store(s.buffer, tuple(substitute(i, indices) for i in s.indices), substitute(s.value, indices))


def _filled(s: Alloc) -> list[Store]:
    """The store that fills a local buffer with a constant before all others, where its first statement does."""
    stores = [x for x in statements(s.body[:1]) if isinstance(x, Store) and x.buffer == s.buffer.name]
    if len(stores) != 1 or not isinstance(stores[0].value, Const):
        return []
    return stores if sum(x is stores[0] for x in statements(s.body)) == 1 else []


def _of_lanes_alone(s: Alloc) -> list[Store]:
    """The stores to a local buffer under the one condition that all that touches it stands under, the same whenever it is asked, where each
    lane has elements of its own: what lanes that are off store nobody reads."""
    found = list(_touched(s.body, s.buffer.name, None, ()))
    if not found or found[0].lane is None or not found[0].conditions:
        return []
    lane, (condition, *_) = found[0].lane, found[0].conditions
    changing = {loop.index for loop in loops_in(s.body)} - {lane}
    if not isinstance(condition, Expr) or tensors_read(condition) or changing & set(free_names(condition)):
        return []
    own = [tuple(e if lane in free_names(e) else None for e in t.indices) for t in found]
    if len(set(own)) > 1 or [e for e in own[0] if e is not None] != [Index(lane)]:
        return []
    if any(t.lane != lane or t.conditions[:1] != (condition,) for t in found):
        return []
    return [t.store for t in found if t.store is not None and len(t.conditions) == 1]


class _Touched(NamedTuple):
    """Where a buffer is read or stored to: the loop over lanes around, and what differs between lanes: conditions, loops, other cases."""

    lane: str | None
    conditions: tuple[object, ...]
    indices: tuple[Expr, ...]
    store: Store | None


def _touched(block: Block, name: str, lane: str | None, conditions: tuple[object, ...]) -> Iterator[_Touched]:
    for s in block:
        own = [a.indices for e in expressions_of(s) for a in walk(e) if isinstance(a, Access) and a.tensor == name]
        yield from (_Touched(lane, conditions, indices, None) for indices in own)
        differs = lane is not None and any(lane in free_names(e) for e in expressions_of(s))
        match s:
            case Store() if s.buffer == name:
                yield _Touched(lane, conditions, s.indices, s)
            case For() if s.kind == "vectorize" and lane is None:
                yield from _touched(s.body, name, s.index, ())
            case If() if differs:
                yield from _touched(s.then, name, lane, (*conditions, s.condition))
                yield from _touched(s.otherwise, name, lane, (*conditions, s))
            case _:
                yield from _touched(inside(s), name, lane, (*conditions, s) if differs else conditions)


def _constant_extent(s: For, start: Value, stop: Value) -> int | None:
    """The number of iterations where it is a constant: both bounds are, or stop is written start + constant."""
    if start.const is not None and stop.const is not None:
        return int(stop.const) - int(start.const)
    match s.stop:
        case Apply() if s.stop.op.name == "add":
            left, right = s.stop.args
            if left == s.start and isinstance(right, Const):
                return int(right.value)
            if right == s.start and isinstance(left, Const):
                return int(left.value)
    return None


def _first_apart(s: For) -> tuple[Expr, For, For] | None:
    """Where a loop does nothing but to tell its first iterations from the others: the first one of these, and both loops."""
    match s.body:
        case (If(condition=Apply(args=(Index(name=name), limit)) as test) as choice,) if type(choice) is If:  # not `Ahead`
            if test.op.name != "lt" or name != s.index or name in free_names(limit) or tensors_read(limit):
                return None
            return limit, replace(s, body=choice.then), replace(s, body=choice.otherwise)
    return None


def _inside(body: Block) -> tuple[int, float]:
    """How many loops, one inside the other, run one iteration after the other in a block, and how many steps the longest ones take."""
    depth, steps = 0, 1.0
    for s in body:
        deep, long = _inside(inside(s))
        if isinstance(s, For) and s.kind == "serial":
            count = iterations(s)
            deep, long = deep + 1, long * (inf if count is None else count)
        depth, steps = max(depth, deep), max(steps, long)
    return depth, steps
