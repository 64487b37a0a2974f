"""What the values of statements take: operations, elements loaded, indices.

Equal terms are counted once, until something is stored to what they read; indices that move evenly are not counted at all.
"""

from __future__ import annotations

from math import log2, prod

from tensorexpr.codegen.auto import operations
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.auto.operations import is_known_power
from tensorexpr.codegen.auto.reading.places import Accesses, Place
from tensorexpr.codegen.auto.summary import HELD, LOAD, SCALAR, STORE, UNROLL, VECTORIZE, Held, Work
from tensorexpr.codegen.llvm.emitter.memory import LEAST_GATHERED
from tensorexpr.codegen.llvm.math.log import PRODUCTS
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.dtypes import float64
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size
from tensorexpr.traversal import free_names, tensors_read

TURNED = 4.0
"""Shuffles of each register of a square of sixteen that is turned around: by halving (`llvm/emitter/squares.py`)."""
BY_CONSTANT = 5.0
"""Instructions of a division of integers by a constant: a product with its inverse, shifts, a correction (Granlund and Montgomery 1994)."""


class Values(Accesses):
    """The work that values are, and what of it is held in registers."""

    def __init__(self, nest: LoopNest, sizes: dict[str, int], machine: Machine, threads: int) -> None:
        super().__init__(nest, sizes, machine, threads)
        self.work: dict[Work, float] = {}
        self.held: dict[Held, None] = {}
        self.registers: set[str] = set()

    def _visit(self, e: Expr, at: Place) -> frozenset[int]:
        """Counts what computing a value takes; gives the loops that change it."""
        known = at.seen.terms.get(e)
        if known is not None:
            return known
        changed = self._visited(e, at)
        if not isinstance(e, Access) or e.tensor not in self.registers:
            at.seen.add(e, changed)
        return changed

    def _visited(self, e: Expr, at: Place) -> frozenset[int]:
        match e:
            case Const() | Size():
                return frozenset()
            case Index():
                return frozenset(self._all(at.names[e.name])) if e.name in at.names else frozenset()
            case Access():
                return self._load(e, at)
            case Cast():
                changed = self._visit(e.arg, at)
                if e.arg.dtype is not e.dtype and (e.dtype.is_float or e.arg.dtype.is_float):
                    for kind, count in operations.conversion(e.arg.dtype, e.dtype, self.machine):
                        self._add(at, changed, kind, max(e.dtype.itemsize, e.arg.dtype.itemsize), count)
                return changed
            case Apply():
                return self._apply(e, at)
        raise InternalError(f"cost: expected an expression of a loop nest, got {type(e).__name__}")

    def _apply(self, e: Apply, at: Place) -> frozenset[int]:
        dtype = e.args[-1].dtype
        if (dtype.is_integer or dtype.is_bool) and not tensors_read(e):
            return self._index_arithmetic(e, at)
        fused = None
        if e.op.name in ("add", "sub") and dtype.is_float and self.machine.fuses:
            fused = next((a for a in e.args if isinstance(a, Apply) and a.op.name == "mul" and a not in at.seen.terms), None)
        changed: frozenset[int] = frozenset()
        for a in e.args:
            for part in fused.args if fused is not None and a is fused else (a,):
                changed |= self._visit(part, at)
        size = dtype.itemsize
        if e.op.name == "where" and (self._is_mask(e, at) or self._is_decided(e.args[0], at)):
            pass  # lanes that are off are loaded as zero; a copy knows what it takes
        elif e.op.name == "where":
            self._add(at, changed, operations.ARITHMETIC, size, 1.0)
        elif dtype.is_integer and e.op.name in ("floordiv", "mod") and isinstance(e.args[1], Const):
            self._add(at, changed, operations.ARITHMETIC, size, BY_CONSTANT)
        elif e.op.name == "pow" and self._is_decided(e.args[1], at) and is_known_power(dtype, exponent := self._exponent(e.args[1], at)):
            for kind, count in operations.power(exponent, dtype, self.machine):
                self._add(at, changed, kind, size if exponent in (*PRODUCTS, 0.5) else float64.itemsize, count)
        else:
            for kind, count in operations.instructions(e.op.name, e.args[0].dtype, self.machine):
                self._add(at, changed, kind, size, count)
        return changed

    def _exponent(self, e: Expr, at: Place) -> float:
        """The exponent of copies in the mean: they share squares."""
        if isinstance(e, Const):
            return float(e.value)
        return max(1, round(prod(self.loops[at.names[n]].extent for n in free_names(e)) / 2))

    def _is_mask(self, e: Apply, at: Place) -> bool:
        """Whether a choice is a load of lanes of which some are off, and zero there."""
        condition, taken, otherwise = e.args
        masked = isinstance(taken, Access) and isinstance(otherwise, Const) and otherwise.value == 0 and taken.tensor not in self.registers
        return masked and bool(self._changed(condition, at) & self._lanes(at))

    def _index_arithmetic(self, e: Expr, at: Place) -> frozenset[int]:
        """What is computed of loop indices alone: nothing for what moves evenly."""
        changed = self._changed(e, at)
        if self._is_decided(e, at):
            return changed
        if e in at.seen.terms or not isinstance(e, Apply) or not (e.dtype.is_bool or move_of(e, self.moves).uneven):
            return changed
        at.seen.add(e, changed)
        for a in e.args:
            self._index_arithmetic(a, at)
        if e.op.name not in ("add", "sub", "mul"):
            lanes = changed & self._lanes(at)
            if e.op.name in ("floordiv", "mod") and not isinstance(e.args[1], Const):
                self._add(at, changed, operations.INTEGER_DIVIDE, 8, 1.0)
            else:
                count = BY_CONSTANT if e.op.name in ("floordiv", "mod") else 1.0
                # Comparisons of lanes are of their numbers, in 32 bits.
                self._add(at, changed, operations.INDEX if lanes else SCALAR, 4 if lanes and e.dtype.is_bool else 8, count)
        return changed

    def _is_decided(self, e: Expr, at: Place) -> bool:
        """Whether an expression is a constant in each copy of the loops that are copied out."""
        copied = (self.loops[at.names[n]].kind == UNROLL if n in at.names else False for n in free_names(e))
        return not tensors_read(e) and all(copied)

    def _changed(self, e: Expr, at: Place) -> frozenset[int]:
        return frozenset(x for n in free_names(e) if n in at.names for x in self._all(at.names[n]))

    def _lanes(self, at: Place) -> frozenset[int]:
        return frozenset() if at.lanes is None else frozenset({at.lanes})

    def _all(self, loop: int) -> tuple[int, ...]:
        """A loop, and the one around it over the same axis."""
        axis = self.loops[loop].axis
        return (loop,) if axis == loop else (axis, loop)

    def _load(self, e: Access, at: Place) -> frozenset[int]:
        changed = self._indexed(e.tensor, e.indices, at)
        if e.tensor in self.registers:
            self._hold(e.tensor, changed, at)
            return changed | self._rewritten(e.tensor, at)
        if e.tensor in self.written or e.tensor in self.private:
            changed |= self._rewritten(e.tensor, at)
        changed |= at.under
        aligned = self._is_aligned(e.tensor, e.indices, at)
        stride = self._stride(e.tensor, e.indices, at)
        if at.turned and at.lanes is not None:
            self._add(at, changed, operations.SHUFFLE, self._size(e.tensor), min(TURNED, log2(self.loops[at.lanes].extent)))
            stride = 1.0
        elif at.lanes is not None and not at.masked and stride > 2 and self._are_rows_loaded(e, stride, at):
            # Rows are loaded whole and shared by those who read other elements of them: as many shuffles each, few loads.
            self._add(at, changed, operations.SHUFFLE, self._size(e.tensor), stride - 2.0)
            stride = 2.0
        elif at.lanes is not None and abs(stride) not in (0.0, 1.0, 2.0):  # LLVM moves no gather out of a loop that stores to memory
            changed |= frozenset(x for x in at.path if self.loops[x].kind not in (UNROLL, VECTORIZE) and self.stores[x] - self.registers)
        self._add(at, changed, LOAD, self._size(e.tensor), 1.0, stride, aligned, () if e.tensor in self.written else self._meets(e, at))
        self._touch(e.tensor, e.indices, at, False)
        return changed

    def _are_rows_loaded(self, e: Access, stride: float, at: Place) -> bool:
        """Whether lanes that read one element each of short rows load the rows: where each row begins is known, whatever other loops do."""
        size = self._size(e.tensor)
        if stride * size > self.machine.spread or size < LEAST_GATHERED:
            return False
        if at.lanes is not None and self.loops[at.lanes].kind != VECTORIZE:
            return True  # LLVM's own vectors begin at the element that is read first
        for index, row in zip(e.indices, self._rows(e.tensor, e.indices)):
            move = move_of(index, self.moves)
            for name in move.steps.keys() | move.random | move.uneven:
                copied = name in at.names and self.loops[at.names[name]].kind in (UNROLL, VECTORIZE)
                step = row if name in move.uneven or name in move.random else move.steps[name] * row
                if not copied and step % stride:
                    return False
        return True

    def _indexed(self, buffer: str, indices: tuple[Expr, ...], at: Place) -> frozenset[int]:
        """Counts what indices take; gives the loops that move them."""
        changed = self.private.get(buffer, frozenset())
        for index in indices:
            changed |= self._visit(index, at)
        return changed

    def _hold(self, buffer: str, changed: frozenset[int], at: Place) -> None:
        self.held[Held(at.path, changed, self.numbers[buffer], self._size(buffer))] = None
        self._add(at, changed | self._rewritten(buffer, at), HELD, self._size(buffer), 1.0)
        for kind in (LOAD, STORE) if at.torn else ():
            self._add(at, changed | self._rewritten(buffer, at), kind, self._size(buffer), 0.5)  # it is held twice, as loaded and as stored

    def _add(
        self,
        at: Place,
        changed: frozenset[int],
        kind: str,
        size: int,
        count: float,
        stride: float = 1.0,
        aligned: bool = True,
        meets: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        key = Work(at.path, changed & frozenset(at.path), kind, size, 0.0, at.share, stride, aligned, meets)
        self.work[key] = self.work.get(key, 0.0) + count
