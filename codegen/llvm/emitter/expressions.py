"""Expressions of a loop nest as values: constants, indices, accesses, operations, and `where` that evaluates one branch.

Equal expressions are computed once per block (expressions with an access once per statement, since a store may come
between). In a vectorized loop an expression that does not depend on the lane stays scalar.

A sum with a product in it is one fused multiply-add, and which sums are is settled here, by the sum alone: left to LLVM it would
depend on what stands in one block, so on how far a loop is unrolled, and schedules that add up in one order would give different bits.
Of several products that are added to an element each is one (`dependence.updates.in_turn`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.emitter import memory as emit_memory
from tensorexpr.codegen.llvm.emitter.integers import without_digits
from tensorexpr.codegen.llvm.emitter.memory import Binding
from tensorexpr.codegen.llvm.emitter.ops import apply
from tensorexpr.codegen.llvm.text.builder import Builder
from tensorexpr.codegen.llvm.text.casts import cast, register_type
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size, const
from tensorexpr.ir import apply as apply_op
from tensorexpr.records import replace
from tensorexpr.traversal import children, free_names, tensors_read, walk

# From this cost on a branch of `where` is worth jumping over; division starts here.
_DEAR = 4


def _is_product(e: Expr) -> bool:
    return isinstance(e, Apply) and e.op.name == "mul" and e.dtype in (dtypes.float32, dtypes.float64)


def reads_for_certain(e: Expr) -> frozenset[Access]:
    """The elements that are read whatever holds: what both arms of a choice read needs no mask and no jump."""
    if isinstance(e, Access):
        return frozenset({e}).union(*map(reads_for_certain, e.indices))
    if isinstance(e, Apply) and e.op.name == "where":
        return reads_for_certain(e.args[0]) | reads_for_certain(e.args[1]) & reads_for_certain(e.args[2])
    return frozenset().union(*map(reads_for_certain, children(e)))


def _chooses(e: Expr) -> bool:
    return isinstance(e, Apply) and e.op.name == "where" and e.dtype in (dtypes.float32, dtypes.float64)


def _chooses_product(e: Expr) -> bool:
    return _chooses(e) and any(_is_product(arm) or _chooses_product(arm) for arm in children(e)[1:])


def _may_be(e: Expr, product: Expr) -> bool:
    """Whether it is the product, or a choice that has it in an arm."""
    return e == product or (_chooses(e) and any(_may_be(arm, product) for arm in children(e)[1:]))


class Expressions:
    """Emits expressions into one function: its builder, what its names stand for, lane count and mask of the place."""

    def __init__(self, builder: Builder, machine: Machine) -> None:
        self.b = builder
        self.machine = machine
        self.indices: dict[str, Value] = {}
        self.sizes: dict[str, Value] = {}
        self.buffers: dict[str, Binding] = {}
        self.lanes = 1
        self.mask: Value | None = None
        self.epoch = 0
        self._reads: dict[Expr, bool] = {}
        self._sums: dict[Expr, tuple[tuple[tuple[Expr, int], ...], int]] = {}

    @contextmanager
    def masked(self, condition: Value) -> Iterator[None]:
        """Inside, only the lanes are on in which the condition holds as well."""
        outer = self.mask
        self.mask = self.b.both(outer, condition)
        try:
            with self.b.scope():
                yield
        finally:
            self.mask = outer

    def expr(self, e: Expr) -> Value:
        """The value of an expression here: scalar, ramp or vector."""
        match e:
            case Const():
                return literal(e.value, register_type(e.dtype))
            case Index():
                return self.indices[e.name]
            case Size():
                return self.sizes[e.name]
        if isinstance(e, Access) and self._stays(e):
            place = (e, self.mask and self.mask.text, self._places(e))
            found = self.b.here.get(place)
            if found is None:
                found = self.b.here[place] = self.b.recall(e) or self.b.remember(e, self._compute(e))
            return found
        key = self._key(e)
        found = self.b.recall(key)
        if found is not None:
            return found
        return self.b.remember(key, self._compute(e))

    def _key(self, e: Expr) -> object:
        """What the value of an expression is remembered by: where it reads what is written, for one statement."""
        return (self.epoch, e) if self.reads(e) else e

    def _stays(self, e: Access) -> bool:
        """Whether an access reads nothing that is written."""
        return not any(self.buffers[name].written for name in tensors_read(e))

    def give(self, read: Access, value: Value) -> None:
        """In this scope and statement an access has a value that is there already."""
        self.b.remember(read if self._stays(read) else (self.epoch, read), value)

    def _places(self, e: Expr) -> tuple[object, ...]:
        """What the indices in an expression stand for: with the expression and the block all that its value follows from where it reads
        nothing that is written."""
        return tuple([(v.text, v.stride, v.lanes, v.low, v.high) for v in map(self.indices.__getitem__, free_names(e))])

    def _compute(self, e: Expr) -> Value:
        match e:
            case Access():
                binding = self.buffers[e.tensor]
                offset = self.offset(binding, e.indices)
                # Every pass over a row fetches the next one. Measured: where the first alone did, gradients of rows took up to 1.7 times as
                # long (perhaps it asks for more at once than the processor takes on); what is there already costs little to ask for.
                if binding.ahead > 0 and offset.stride == 1 and self.mask is None:
                    emit_memory.fetch(self.b, binding, offset, self.lanes)
                if offset.stride == 1 and self.mask is None:
                    self._fetch_through(e, binding)
                return emit_memory.load(self.b, binding, offset, self.lanes, self.mask)
            case Cast():
                return cast(self.b, self.expr(e.arg), e.arg.dtype, e.dtype)
            case Apply() if e.op.name == "where":
                return self._where(*e.args)
            case Apply(args=(x, y)) if e.op.name in ("add", "sub") and (_is_product(x) or _is_product(y) or _chooses(x) or _chooses(y)):
                return self._sum(e, x, y)
            case Apply():
                operands = [self.expr(a) for a in e.args]
                if e.op.name in ("floordiv", "mod") and e.dtype is dtypes.int64 and self._may_wrap(e.args[0]):
                    operands[0] = self.b.wrapping(operands[0])
                return apply(self.b, e.op.name, e.args[0].dtype, operands)
        raise InternalError(f"llvm: expected an expression of a loop nest, got {type(e).__name__}", term=e)

    def _sum(self, e: Apply, x: Expr, y: Expr) -> Value:
        """A sum or difference of which at least one side is a product: fused with the first that is not the other side, too.

        What else needs the product does not count: it may be beyond a condition that other schedules settle. Where a side is a product
        under a condition, the sum is chosen, not the product: it is rounded as where the condition is settled, beyond a border that is cut.
        """
        for product, other in ((x, y), (y, x)) if self.machine.fuses else ():
            if isinstance(product, Apply) and _chooses_product(product):
                condition, *arms = product.args
                if not _is_product(other):
                    self.expr(other)  # once, for all lanes
                taken, otherwise = (replace(e, args=(arm, other) if product is x else (other, arm)) for arm in arms)
                return self._where(condition, taken, otherwise)
            if not isinstance(product, Apply) or not _is_product(product) or _may_be(other, product):
                continue
            factors = [self.expr(factor) for factor in product.args]
            if any(factor.const == 0 for factor in factors):
                continue  # exact either way, and rows of a tile share it
            added = self.expr(other)
            if e.op.name == "sub":
                if product is x:
                    added = self._negative(added)
                else:
                    factors[0] = self._negative(factors[0])
            return self.b.intrinsic("fma", *factors, added)
        return apply(self.b, e.op.name, e.dtype, [self.expr(x), self.expr(y)])

    def _negative(self, value: Value) -> Value:
        return self.b.emit(f"fneg {value.typed}", value.type, value.lanes)

    def _fetch_through(self, e: Access, binding: Binding) -> None:
        """Asks for what is read where an index that is data, itself fetched ahead, is that of a later iteration."""
        later = tuple(self._later(i) if isinstance(i, Access) else i for i in e.indices)
        if any(a is not b for a, b in zip(e.indices, later, strict=True)):
            emit_memory.fetch(self.b, replace(binding, ahead=0), self.offset(binding, later), self.lanes)

    def _later(self, index: Access) -> Access:
        """The element of an index so many iterations on, or the last; the index itself where it is not fetched ahead."""
        led = self.buffers[index.tensor]
        if led.ahead == 0 or led.size is None or len(index.indices) != 1:
            return index
        return replace(index, indices=(apply_op("minimum", apply_op("add", index.indices[0], const(led.ahead)), const(led.size - 1)),))

    def offset(self, binding: Binding, indices: tuple[Expr, ...]) -> Value:
        """The flattened offset of an access, in elements."""
        if any(map(tensors_read, indices)):
            return self._offset(binding, indices)
        place = (binding.pointer, indices, tuple(map(self._places, indices)))
        found = self.b.here.get(place)
        if found is None:
            found = self.b.here[place] = self._offset(binding, indices)
        return found

    def _offset(self, binding: Binding, indices: tuple[Expr, ...]) -> Value:
        if len(indices) == 1 < len(binding.strides):
            return self.expr(indices[0])
        # The constants last: what copies of an access have in common is computed once, and LLVM finds it without looking.
        found: list[tuple[Value, int | Value]] = []
        key: list[object] = ["sum"]
        constant = 0
        for index, stride in without_digits(indices, binding.strides):
            terms, fixed = self._terms(index)
            values = [self.expr(leaf) for leaf, _ in terms]
            if stride.const is None or any(v.lanes > 1 and not v.stride for v in values):
                value = self.expr(index)
                found.append((value, stride))
                key += (value.text, value.stride, value.lanes, stride.text)
                continue
            step = int(stride.const)
            constant += fixed * step
            for value, (_, factor) in zip(values, terms, strict=True):
                if value.const is not None:
                    constant += int(value.const) * factor * step
                    if not value.stride:
                        continue
                    value = self.b.sub(value, int(value.const))
                found.append((value, factor * step))
                key += (value.text, value.stride, value.lanes, factor * step)
        total = self.b.recall(tuple(key))
        if total is None:
            total = literal(0, "i64")
            for value, by in found:
                total = self.b.add(total, self.b.mul(value, by))
            self.b.remember(tuple(key), total)
        offset = self.b.add(total, constant)
        if constant and total.const is None and (total.lanes == 1 or total.stride):
            self.b.parts[offset.text] = total.text, constant
        return offset

    def _terms(self, e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
        """An index as a sum: what is multiplied with which constants, and a constant."""
        found = self._sums.get(e)
        if found is None:
            found = self._sums[e] = self._added(e)
        return found

    def _added(self, e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
        match e:
            case Const():
                return (), int(e.value)
            case Apply(args=(x, y)) if e.op.name in ("add", "sub"):
                (left, first), (right, second) = self._terms(x), self._terms(y)
                sign = 1 if e.op.name == "add" else -1
                return (*left, *((leaf, sign * factor) for leaf, factor in right)), first + sign * second
            case Apply(args=(x, Const() as y)) if e.op.name == "mul":
                terms, fixed = self._terms(x)
                return tuple((leaf, factor * int(y.value)) for leaf, factor in terms), fixed * int(y.value)
        return ((e, 1),), 0

    def reads(self, e: Expr) -> bool:
        """Whether evaluating `e` reads memory."""
        found = self._reads.get(e)
        if found is None:
            found = isinstance(e, Access) or any(self.reads(c) for c in children(e))
            self._reads[e] = found
        return found

    def _may_wrap(self, e: Expr) -> bool:
        """Whether int64 arithmetic may wrap around: that on data, and on indices between numbers.

        Indices of open extents and these do not, although bounds of their products are more than 64 bits hold: tensors are no larger.
        """
        open_ = False
        for n in walk(e):
            if isinstance(n, Access | Cast):
                return True
            open_ = open_ or isinstance(n, Size) or (isinstance(n, Index) and self.indices[n.name].high is None)
        return not open_

    def varies(self, e: Expr) -> bool:
        """Whether `e` may differ between lanes."""
        match e:
            case Index():
                return self.indices[e.name].lanes > 1
            case Access() if self.buffers[e.tensor].lanes > 1:
                return True
        return any(self.varies(c) for c in children(e))

    def _cheap(self, e: Expr, known: frozenset[Access] = frozenset()) -> bool:
        """Without an access but those that are `known` to be read, a division or a call: as well computed as jumped over."""
        if isinstance(e, Access):
            return e in known
        if isinstance(e, Apply) and e.op.cost >= _DEAR and not (e.op.operands == "number" and isinstance(e.args[1], Const)):
            return False
        return all(self._cheap(c, known) for c in children(e))

    def _where(self, condition: Expr, taken: Expr, otherwise: Expr) -> Value:
        choice = self.expr(condition)
        if choice.const is not None:
            return self.expr(taken if choice.const else otherwise)
        if choice.lanes > 1:
            return self._where_lanes(choice, taken, otherwise)
        known = reads_for_certain(taken) & reads_for_certain(otherwise)
        if self._cheap(taken, known) and self._cheap(otherwise, known):
            return self.b.select(choice, self.expr(taken), self.expr(otherwise))
        found = self._guarded_load(choice, taken, otherwise)
        if found is not None:
            return found
        lanes = self.lanes if self.varies(taken) or self.varies(otherwise) else 1
        b = self.b
        yes, no, after = b.name("yes"), b.name("no"), b.name("after")
        b.branch(choice, yes, no)
        arms: list[tuple[Value, str]] = []
        for label, arm in ((yes, taken), (no, otherwise)):
            b.begin(label)
            with b.scope():
                value = b.vector(self.expr(arm), lanes)
            arms.append((value, b.block))
            b.jump(after)
        b.begin(after)
        return b.phi(arms)

    def _guarded_load(self, choice: Value, taken: Expr, otherwise: Expr) -> Value | None:
        """A load where a scalar condition holds, else something cheap, without a jump: jumps part what would share registers.

        Neighboring elements come by a masked load with all lanes on or off, one element from an address that is always good.
        """
        if not isinstance(taken, Access) or not all(self._cheap(e) for e in (*taken.indices, otherwise)):
            return None
        binding = self.buffers[taken.tensor]
        if binding.lanes > 1 or binding.memory == "local":
            return None
        offset = self.offset(binding, taken.indices)
        if offset.lanes == 1 and self.mask is None and binding.size:
            found = emit_memory.load(self.b, binding, self.b.select(choice, offset, 0), 1, None)
            return self.b.select(choice, found, self.expr(otherwise))
        if offset.lanes == self.lanes > 1 and offset.stride in (1, 2, -1):
            mask = self.b.both(self.mask, self.b.vector(choice, self.lanes))
            found = emit_memory.load(self.b, binding, offset, self.lanes, mask)
            return self.b.select(choice, found, self.expr(otherwise))
        return None

    def _where_lanes(self, choice: Value, taken: Expr, otherwise: Expr) -> Value:
        values = []
        known = reads_for_certain(taken) & reads_for_certain(otherwise)
        for arm, negated in ((taken, False), (otherwise, True)):
            found = self.b.recall(self._key(arm))  # as often: the condition is about it
            if found is not None:
                values.append(found)
            elif any(isinstance(n, Access) and n not in known for n in walk(arm)):
                with self.masked(self.b.negation(choice) if negated else choice):
                    values.append(self.expr(arm))
            else:
                values.append(self.expr(arm))
        return self.b.select(choice, *values)
