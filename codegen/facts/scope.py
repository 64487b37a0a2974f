"""What is known at a place of a nest: the loops around it, conditions that hold there, and the ranges of integers that follow.

Facts are loops and conditions. Each is valid until something that it reads is written (`without`). Ranges are the fast path: intervals of
expressions, narrowed by every condition that compares them, of an index and of `ids[t]` alike. A scope is a value: what a statement adds
makes a new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from tensorexpr import dtypes
from tensorexpr.bounds import interval_of_operation, interval_of_type
from tensorexpr.codegen.nest import Check
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Size, apply, conjuncts, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

Interval = tuple[float, float]
"""Least and greatest value, infinite where there is no bound."""

_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq"}


@record(eq=False)
class Fact:
    """A loop (`axis`) or a condition that holds; the indices and sizes that it speaks about, and the buffers that it reads.

    `sure` says that nothing goes on where it does not hold: behind a check, and of the extents of arrays.
    """

    axis: Axis | None
    condition: Expr | None
    names: frozenset[str]
    reads: frozenset[str]
    sure: bool = False

    @classmethod
    def of_loop(cls, index: str, start: Expr, stop: Expr) -> Fact:
        """A loop around."""
        names, reads = mentioned((start, stop))
        return cls(Axis(index, start, stop), None, names | {index}, reads)

    @classmethod
    def of_condition(cls, condition: Expr, sure: bool = False) -> Fact:
        """A condition that holds."""
        return cls(None, condition, *mentioned((condition,)), sure)


_NOTHING: frozenset[str] = frozenset()
_ANY: Interval = (-math.inf, math.inf)


def mentioned(exprs: Iterable[Expr]) -> tuple[frozenset[str], frozenset[str]]:
    """The indices and sizes in expressions, and the buffers that they read."""
    names, reads = _NOTHING, _NOTHING
    for expr in exprs:
        if type(expr) is Const:
            continue
        more = mentioned_in(expr)
        names = names | more[0] if names else more[0]
        if more[1]:
            reads = reads | more[1]
    return names, reads


def mentioned_in(expr: Expr) -> tuple[frozenset[str], frozenset[str]]:
    """The indices and sizes in one expression, and the buffers that it reads."""
    if type(expr) is Index:
        return frozenset((expr.name,)), _NOTHING
    return (_NOTHING, _NOTHING) if type(expr) is Const else _mentioned(expr)


@lru_cache(maxsize=1 << 14)
def _mentioned(expr: Expr) -> tuple[frozenset[str], frozenset[str]]:
    names, reads = set(), set()
    for node in walk(expr):
        if type(node) is Index or type(node) is Size:
            names.add(node.name)
        elif type(node) is Access:
            reads.add(node.tensor)
    return frozenset(names), frozenset(reads)


def negation(condition: Expr) -> Expr:
    """The condition that holds where this one does not."""
    if isinstance(condition, Apply):
        if condition.op.name == "invert":
            return condition.args[0]
        if condition.op.name in _OPPOSITE and condition.args[0].dtype.is_integer:
            return apply(_OPPOSITE[condition.op.name], *condition.args)
    return apply("invert", condition)


class Scope:
    """The facts at a place, outermost first, and ranges: of expressions that conditions narrow, and of what buffers hold (`held`).

    `forgotten` are the facts that also decide whether the place is reached, but of which no more can be said. An index is known by its
    name, anything else by itself."""

    __slots__ = ("_conditions", "_memo", "facts", "forgotten", "held", "known")

    def __init__(
        self,
        facts: tuple[Fact, ...],
        known: dict[Expr | str, Interval],
        held: dict[str, Interval],
        forgotten: frozenset[Fact] = frozenset(),
    ) -> None:
        self.facts, self.known, self.held, self.forgotten = facts, known, held, forgotten
        self._memo: dict[Expr, Interval] = {}
        self._conditions: frozenset[Expr] | None = None

    @property
    def whole(self) -> bool:
        """Whether the facts are all that decides whether the place is reached."""
        return not self.forgotten

    @property
    def conditions(self) -> frozenset[Expr]:
        """The conditions among the facts."""
        if self._conditions is None:
            self._conditions = frozenset([fact.condition for fact in self.facts if fact.condition is not None])
        return self._conditions

    def runs_where(self, other: Scope) -> bool:
        """Whether what was forgotten here held where another place is reached, too: both are behind it."""
        return not self.forgotten or all(fact.sure or fact in other.forgotten or fact in other.facts for fact in self.forgotten)

    def loop(self, index: str, start: Expr, stop: Expr) -> Scope:
        """Inside of a loop."""
        found = Scope((*self.facts, Fact.of_loop(index, start, stop)), dict(self.known), self.held, self.forgotten)
        if type(start) is Const and type(stop) is Const:
            found.known[index] = start.value, stop.value - 1
            return found
        if isinstance(stop, Apply) and stop.op.name == "where" and self.interval(stop.args[2])[1] <= self.interval(start)[0]:
            for part in conjuncts(stop.args[0]):  # in a loop that runs the condition of its bound holds
                self._narrow(found, part)
        least = self.interval(start)[0]
        if not isinstance(stop, Const) and not math.isinf(least):
            self._learn(found, _bare(stop), int(least) + 1, math.inf)
        found.known[index] = found.interval(start)[0], found.interval(stop)[1] - 1
        return found

    def where(self, *conditions: Expr, sure: bool = False) -> Scope:
        """Where some conditions hold."""
        parts = [part for condition in conditions for part in conjuncts(condition) if not isinstance(part, Const) or not part.value]
        if not parts:
            return self
        found = Scope((*self.facts, *(Fact.of_condition(part, sure) for part in parts)), dict(self.known), self.held, self.forgotten)
        for part in parts:
            self._narrow(found, part)
        for fact in self.facts:  # of two of which one holds the other does where the first does not
            if fact.condition is not None and type(fact.condition) is Apply and fact.condition.op.name == "or":
                first, second = fact.condition.args
                if first.dtype.is_bool and negation(first) in parts:
                    self._narrow(found, second)
        return found

    def _narrow(self, found: Scope, part: Expr) -> None:
        if not isinstance(part, Apply) or part.op.name not in _SWAPPED or not part.args[0].dtype.is_integer:
            return
        left, right = part.args
        for expr, name, other in ((left, part.op.name, right), (right, _SWAPPED[part.op.name], left)):
            expr = _bare(expr)
            if type(expr) is Const:
                continue
            low, high = self.interval(other)
            if name == "lt":
                low, high = -math.inf, high - 1
            elif name == "le":
                low = -math.inf
            elif name == "gt":
                low, high = low + 1, math.inf
            elif name == "ge":
                high = math.inf
            self._learn(found, expr, low, high)

    def _learn(self, found: Scope, expr: Expr, low: float, high: float) -> None:
        """Notes the range of an expression, and what follows of its only name, or of what it is the greater or lesser of."""
        key = expr.name if type(expr) is Index else expr
        before = found.known.get(key, _ANY)
        found.known[key] = max(low, before[0]), min(high, before[1])
        if not isinstance(expr, Apply) or expr.dtype is not dtypes.int64:
            return
        if expr.op.name in ("maximum", "minimum"):
            for one, other in (expr.args, expr.args[::-1]):
                least, most = self.interval(other)
                if not isinstance(one, Const) and (low > most if expr.op.name == "maximum" else high < least):
                    self._learn(found, one, low if low > most else -math.inf, high if high < least else math.inf)
            return
        if expr.op.name == "mul" and low > 0 and all(self.interval(arg)[0] >= 0 for arg in expr.args):
            for arg in expr.args:
                if type(arg) is not Const:
                    self._learn(found, arg, 1, math.inf)
        form = affine_of(expr)
        if form is None or len(form.terms) != 1 or not isinstance(form.terms[0][0], str):
            return
        name, factor = form.terms[0]
        ends = (low - form.constant, high - form.constant) if factor > 0 else (high - form.constant, low - form.constant)
        least = -math.inf if math.isinf(ends[0]) else -(-int(ends[0]) // factor)
        most = math.inf if math.isinf(ends[1]) else int(ends[1]) // factor
        self._learn(found, next(node for node in walk(expr) if isinstance(node, Index | Size) and node.name == name), least, most)

    def without(self, buffers: frozenset[str]) -> Scope:
        """What is still known when some buffers may have other elements."""
        if not buffers:
            return self
        kept: list[Fact] = []
        for fact in self.facts:
            if fact.reads.isdisjoint(buffers):
                kept.append(fact)
            elif fact.axis is not None:  # of a loop whose bounds change meanwhile, what numbers say of them
                kept += self._numbers(Index(fact.axis.index))
        changed = [e for e in self.known if isinstance(e, Access | Apply | Cast) and not mentioned_in(e)[1].isdisjoint(buffers)]
        if len(kept) == len(self.facts) and not changed:
            return self
        known = {e: r for e, r in self.known.items() if e not in changed} if changed else self.known
        return Scope(tuple(kept), known, self.held, self.forgotten.union(f for f in self.facts if f not in kept))

    def _numbers(self, index: Index) -> list[Fact]:
        low, high = self.known.get(index.name, _ANY)
        found = [] if math.isinf(low) else [apply("ge", index, const(int(low)))]
        found += [] if math.isinf(high) else [apply("lt", index, const(int(high) + 1))]
        return [Fact.of_condition(condition) for condition in found]

    def interval(self, expr: Expr) -> Interval:
        """The values that an integer can take here; sizes are at least 0."""
        if type(expr) is Index:
            return self.known.get(expr.name, _ANY)
        if type(expr) is Const:
            return (expr.value, expr.value) if expr.dtype.is_integer else _ANY
        found = self._memo.get(expr)
        if found is None:
            found = self._interval(expr)
            known = self.known.get(expr)
            if known is not None:
                found = max(found[0], known[0]), min(found[1], known[1])
            self._memo[expr] = found
        return found

    def range_of(self, name: str) -> Interval:
        """The values of an index."""
        return self.known.get(name, _ANY)

    def _interval(self, expr: Expr) -> Interval:
        if type(expr) is Apply:
            if expr.dtype is dtypes.int64 and expr.op.name != "where":
                return interval_of_operation(expr.op.name, [self.interval(arg) for arg in expr.args])
            return self._of_operation(expr)
        own = interval_of_type(expr)
        match expr:
            case Access():
                held = self.held.get(expr.tensor.rstrip("'"))
                return own if held is None else (max(own[0], held[0]), min(own[1], held[1]))
            case Cast() if expr.arg.dtype.is_bool:
                return (0, 1)
            case Cast() if expr.arg.dtype.is_integer and _keeps(expr):
                return self.interval(expr.arg)
            case Cast() if expr.arg.dtype.is_integer:
                found = self.interval(expr.arg)
                return found if own[0] <= found[0] and found[1] <= own[1] else own
        return own

    def _of_operation(self, expr: Apply) -> Interval:
        """Of a choice, and of what is no int64."""
        if expr.op.name == "where":
            first, second = self.interval(expr.args[1]), self.interval(expr.args[2])
            return min(first[0], second[0]), max(first[1], second[1])
        own = interval_of_type(expr)
        if not expr.dtype.is_integer:
            return own
        found = interval_of_operation(expr.op.name, [self.interval(arg) for arg in expr.args])
        return found if own[0] <= found[0] and found[1] <= own[1] else own  # narrow integers wrap around


def _bare(expr: Expr) -> Expr:
    """An integer without casts that keep its value."""
    while type(expr) is Cast and expr.arg.dtype.is_integer and _keeps(expr):
        expr = expr.arg
    return expr


def _keeps(cast: Cast) -> bool:
    """Whether a cast of integers keeps every value."""
    return cast.arg.dtype.least >= cast.dtype.least and cast.arg.dtype.greatest <= cast.dtype.greatest


Checked = tuple[Check, Scope]
"""A check and the place at which it stands."""
