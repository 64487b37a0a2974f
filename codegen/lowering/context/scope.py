"""Where lowering stands inside the loops of a stage: which loops are open, what they say about the axes, which results exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, minimum, mul, sub, substituted
from tensorexpr.codegen.schedule.analysis.state import Fuse, Split, Stage
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Index, Param, apply, const, counted
from tensorexpr.records import field, record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import bottom_up, free_names, walk

PARTS = 4
"""Of the lanes of a block, in how many the rest of a sum runs: blocks are up to so many vectors."""
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

ELEMENT = "element"
LOOP = "@"
"""Marks an index that is the position of a loop rather than the index of an axis."""


def replaced(expr: Expr, parameters: Mapping[str, Expr]) -> Expr:
    """The expression with parameters replaced."""
    return bottom_up(expr, lambda node: parameters.get(node.name, node) if isinstance(node, Param) else node)


@record
class Result:
    """The result of a reduction: a buffer of `dtype` with one element per point of the loops `tile`.

    `final` is what the reduction gives, an expression over the parameter `ELEMENT`, where that is not the element itself.
    """

    buffer: str
    dtype: DType
    tile: tuple[str, ...]
    final: Expr | None = None


@record
class Scope:
    """Open loops of one stage.

    `values` are positions of loops (counted from 0) and values of axes that are known, `variants` says for splits that are
    being run which form they take, `results` where reductions already computed are found, `names` which loop indices
    are taken, `groups` the reductions whose loops are being run, `outside` what indices of outer loops are called,
    `given` the values of names that stand for where an axis begins or ends here,
    `offsets` what is added to the index of an axis that runs over a window, `vectors` the loops that run in lanes here,
    `guarded` splits whose points beyond the extent are left out already, `facts` conditions that hold here over open loops,
    `holds` the same over the indices of the definition,
    `reach` the data axes of which a block is computed here, each from the first to the last point of all blocks,
    `widened` axes of reductions that run further than their bounds say, each as it runs and the conditions that leave points out,
    `panels` reads that are taken from panels here, each as a read of its panel,
    `conditional` whether a condition stands around,
    `padded` a condition without which factors of what is summed count as zero.
    """

    stage: Stage
    axes: dict[str, Axis]
    values: dict[str, Expr] = field(default_factory=dict)
    variants: dict[str, str] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    groups: tuple[int, ...] = ()
    outside: dict[str, Expr] = field(default_factory=dict)
    given: dict[str, Expr] = field(default_factory=dict)
    offsets: dict[str, Expr] = field(default_factory=dict)
    vectors: frozenset[str] = frozenset()
    guarded: frozenset[str] = frozenset()
    facts: frozenset[Expr] = frozenset()
    holds: tuple[Expr, ...] = ()
    reach: dict[str, Axis] = field(default_factory=dict)
    widened: dict[str, tuple[Axis, tuple[Expr, ...]]] = field(default_factory=dict)
    panels: dict[Access, Access] = field(default_factory=dict)
    conditional: bool = False
    padded: Expr | None = None
    found: dict[tuple[str, object], Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    """What was asked before: the same loops and bounds are, for every access."""

    def knows(self, loop: str) -> bool:
        """Whether the position of a loop is settled: open, or part of a loop that is fixed."""
        return self._fixed(loop) is not None

    def is_untouched(self, axis: str) -> bool:
        """Whether nothing is settled of an axis: no position of a loop that it runs as, no form that one of its splits takes."""
        parts = {name for loop in self.stage.loops_of(axis) for name in self.stage.ancestry(loop)}
        return not any(name in self.values or name in self.variants for name in parts)

    def unmet(self) -> tuple[Expr, ...]:
        """The conditions of widened axes that are not known to hold."""
        return tuple(c for _, conditions in self.widened.values() for c in conditions if c not in self.holds and not self.decided(c))

    def bounded(self, axis: Axis) -> Axis:
        """The axis as it runs, in any block: with the bounds of the program only where all that they say holds."""
        axis = self.reach.get(axis.index, axis)
        wide, conditions = self.widened.get(axis.index, (axis, ()))
        return axis if set(conditions) <= set(self.holds) else wide

    def with_values(self, **values: Expr) -> Scope:
        return replace(self, values={**self.values, **values})

    def with_variant(self, split: Split, variant: str) -> Scope:
        return replace(self, variants={**self.variants, split.outer: variant})

    # ------------------------------------------------------------------------------------------- positions and extents

    def position(self, loop: str) -> Expr | None:
        """The position of a loop or axis, counted from 0, as an expression over open loops; None while it is not known."""
        return self._once("position", loop, self._position)

    def _once(self, question: str, of: Asked, answer: Callable[[Asked], Answer]) -> Answer:
        """What a question has for an answer, worked out when it is asked first."""
        key = question, of
        if key not in self.found:
            self.found[key] = answer(of)
        found: Answer = self.found[key]
        return found

    def _position(self, loop: str) -> Expr | None:
        found = self.values.get(loop)
        if found is not None:
            return found
        for relation in self.stage.relations:
            if isinstance(relation, Split) and relation.parent == loop:
                return self._joined(relation)
            if isinstance(relation, Fuse) and loop in (relation.outer, relation.inner):
                fused, inner = self.position(relation.fused), self.length(relation.inner)
                if fused is None or inner is None:
                    return None
                width, outer = constant(inner), self.length(relation.outer)
                if outer is not None and constant(outer) == 1:
                    return ZERO if loop == relation.outer else fused
                if loop == relation.outer:
                    return floordiv(fused, width) if width else apply("floordiv", fused, inner)
                return sub(fused, mul(floordiv(fused, width), inner)) if width else apply("mod", fused, inner)
        return self._fixed(loop)

    def _fixed(self, loop: str) -> Expr | None:
        """The position of a loop that came from one whose position is fixed (in the rest of a split)."""
        if loop in self.values:
            return self.values[loop]
        relation = self.stage.made.get(loop)
        if isinstance(relation, Split):
            whole = self._fixed(relation.parent)
            if whole is None:
                return None
            block = floordiv(whole, relation.factor)
            return block if loop == relation.outer else sub(whole, mul(block, const(relation.factor)))
        if isinstance(relation, Fuse):
            outer, inner, width = self._fixed(relation.outer), self._fixed(relation.inner), self.length(relation.inner)
            return None if outer is None or inner is None or width is None else add(mul(outer, width), inner)
        return None

    def _joined(self, split: Split) -> Expr | None:
        outer, inner = self.position(split.outer), self.position(split.inner)
        if outer is None or inner is None:
            return None
        if self.variants.get(split.outer) == "ones":
            return add(outer, inner)
        start = mul(outer, const(split.factor))
        if self.variants.get(split.outer) == "parts":
            whole = self.extent(split.parent)
            if whole is None:
                return None
            start = add(mul(floordiv(whole, split.factor), const(split.factor)), mul(outer, const(split.factor // PARTS)))
        if self.variants.get(split.outer) in ("shift", "shift if fits"):
            whole = self.length(split.parent)
            if whole is None:
                return None
            start = minimum(start, sub(whole, const(split.factor)))
        return add(start, inner)

    def extent(self, loop: str) -> Expr | None:
        """The number of iterations of a loop in the form that it is run in, none where its axis stops before it starts; None where it
        needs indices that are not known."""
        return self._once("extent", loop, lambda loop: self._measured(loop, True))

    def length(self, loop: str) -> Expr | None:
        """Its extent, or where that is zero anything that is not above it: for positions, and conditions on them."""
        return self._once("length", loop, lambda loop: self._measured(loop, False))

    def _measured(self, loop: str, exact: bool) -> Expr | None:
        for relation in self.stage.relations:
            if isinstance(relation, Split) and loop in (relation.outer, relation.inner):
                return self._part(relation, loop, exact)
            if isinstance(relation, Fuse) and loop == relation.fused:
                outer, inner = self.extent(relation.outer), self.extent(relation.inner)
                return None if outer is None or inner is None else mul(outer, inner)
        axis = self.axes.get(loop)
        if axis is None:
            raise InternalError(f"expected a loop of {self.stage.name}, got {loop}")
        start, stop = self.resolved(axis.start), self.resolved(axis.stop)
        if start is None or stop is None:
            return None
        return counted(sub(stop, start)) if exact else sub(stop, start)

    def _part(self, split: Split, loop: str, exact: bool) -> Expr | None:
        whole = self._measured(split.parent, exact or self.variants.get(split.outer) in ("rest", "stride", "parts"))
        if whole is None:
            return None
        variant, factor = self.variants.get(split.outer), const(split.factor)
        if variant in ("small", "single", "half"):
            return const(1) if loop == split.outer else whole if variant == "small" else const(split.factor // (1 + (variant == "half")))
        if variant == "parts":
            left, lanes = sub(whole, mul(floordiv(whole, split.factor), factor)), split.factor // PARTS
            return const(lanes) if loop == split.inner else floordiv(add(left, const(lanes - 1)), lanes)
        if variant == "ones":
            return whole if loop == split.outer else const(1)
        if variant == "stride" and loop == split.outer:
            place = self.position(split.inner)  # how many blocks have this place; before it is known, how many there are
            return floordiv(add(sub(whole, ZERO if place is None else place), const(split.factor - 1)), split.factor)
        if loop == split.inner:
            return sub(whole, mul(floordiv(whole, split.factor), factor)) if variant == "rest" else factor
        blocks = floordiv(add(whole, const(split.factor - 1)), split.factor)
        if variant == "shift if fits":
            return apply("where", apply("ge", whole, factor), blocks, ZERO)
        if variant in ("shift", "guard"):
            return blocks
        return floordiv(whole, split.factor)

    # ------------------------------------------------------------------------------------------------- expressions

    def index(self, name: str) -> Expr | None:
        """The value of an index of the definition, or of a loop as `spread` names it."""
        return self._once("index", name, self._known_index)

    def _known_index(self, name: str) -> Expr | None:
        if name in self.outside:
            return self.outside[name]
        if name in self.given:
            return self.given[name]
        if name.startswith(LOOP):
            return self.position(name[len(LOOP) :])
        position = self.position(name)
        if position is None:
            return None
        start = self.resolved(self.axes[name].start)
        if start is None:
            return None
        if name in self.offsets:
            offset = self.resolved(self.offsets[name])
            return None if offset is None else add(add(offset, start), position)
        return add(start, position)

    def spread(self, name: str) -> Expr:
        """An axis over its loops, whether they are open or not: what of it is a constant here shows."""
        start = self.axes[name].start
        return add(start, self._spread(name))

    def _spread(self, loop: str) -> Expr:
        found = self.values.get(loop)
        if found is not None and constant(found) is not None:
            return found
        for relation in self.stage.relations:
            if isinstance(relation, Split) and relation.parent == loop and self.variants.get(relation.outer) in ("main", "guard", "stride"):
                return add(mul(self._spread(relation.outer), const(relation.factor)), self._spread(relation.inner))
        return Index(LOOP + loop)

    def decided(self, condition: Expr) -> bool | None:
        """Whether a condition holds at all points of the open loops inside, or at none: it depends on the residue class alone."""
        if any(isinstance(n, Access | Param) for n in walk(condition)) or not all(n in self.axes for n in free_names(condition)):
            return None
        found = substituted(condition, self.spread, lambda p: p, lambda a: a)
        return bool(found.value) if isinstance(found, Const) else self._decided_by_range(condition)

    def _decided_by_range(self, condition: Expr) -> bool | None:
        if not isinstance(condition, Apply) or condition.op.name not in ("lt", "le", "gt", "ge"):
            return None
        left, right = (affine_of(e) for e in condition.args)
        bounds = {n: (constant(self.axes[n].start), constant(self.axes[n].stop)) for n in free_names(condition)}
        if left is None or right is None or any(low is None or high is None for low, high in bounds.values()):
            return None
        box = {n: (low, high - 1) for n, (low, high) in bounds.items() if low is not None and high is not None}
        low, high = (left - right).interval(box)
        if low is None or high is None:
            return None
        always, never = {"lt": (high < 0, low >= 0), "le": (high <= 0, low > 0), "gt": (low > 0, high <= 0), "ge": (low >= 0, high < 0)}[
            condition.op.name
        ]
        return True if always else False if never else None

    def is_ready(self, expr: Expr) -> bool:
        """Whether every index and every result in the expression is known."""
        return all(self.index(n) is not None for n in free_names(expr)) and all(
            self.has(n.name) for n in walk(expr) if isinstance(n, Param)
        )

    def has(self, parameter: str) -> bool:
        """Whether a result is computed, and the loops are open that say which element of its buffer is meant."""
        result = self.results.get(parameter)
        return result is not None and all(self.position(loop) is not None for loop in result.tile)

    def resolved(self, expr: Expr) -> Expr | None:
        """The expression over open loops, its reductions read from their buffers; None while something is not known."""
        if type(expr) is Const:
            return expr
        return self.resolve(expr) if self.is_ready(expr) else None

    def resolve(self, expr: Expr) -> Expr:
        return self._once("resolve", expr, self._resolve)

    def _resolve(self, expr: Expr) -> Expr:
        return substituted(expr, self._index, self._result, lambda access: access)

    def _index(self, name: str) -> Expr:
        found = self.index(name)
        if found is None:
            raise InternalError(f"expected index {name} of {self.stage.name} to be known here")
        return found

    def _result(self, parameter: Param) -> Expr:
        result = self.results[parameter.name]
        element = Access(result.buffer, self.positions(result.tile), result.dtype)
        return element if result.final is None else replaced(result.final, {ELEMENT: element})

    def positions(self, loops: tuple[str, ...]) -> tuple[Expr, ...]:
        """The positions of loops that are known, as indices of a buffer with an axis for each."""
        found = []
        for loop in loops:
            position = self.position(loop)
            if position is None:
                raise InternalError(f"expected loop {loop} of {self.stage.name} to be open here")
            found.append(position)
        return tuple(found)
