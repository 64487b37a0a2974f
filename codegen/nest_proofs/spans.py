"""Whether stores fill what is read, one dimension at a time, without any set.

    Y[minimum(8 * o, n - 8) + v]  with 0 <= o < (n + 7) // 8, 0 <= v < 8   is every element of Y[0 .. n - 1] where n >= 8.

The indices of a store are solved for the element that is read where one loop alone gives them: of `Y[i + 1]` the iteration is known, of
`Y[2 * i]` it is, where the element is even. What else an index goes through as its own loops run is a `Span`: from one integer to another
with no gap wider than so many. A store fills the element where the loops and conditions around it hold at the iteration that was solved
for and the element lies in its spans. That splits the place of the read: where one of these conditions does not hold, the next stores
have to fill it. Conditions are decided by affine forms (`forms`), or by being those that are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tensorexpr import dtypes
from tensorexpr.codegen.facts.forms import Forms
from tensorexpr.codegen.facts.places import Loop, Touch
from tensorexpr.codegen.facts.scope import Fact, Scope, mentioned, negation
from tensorexpr.integers import Affine
from tensorexpr.ir import Apply, Const, Expr, Index, Size, apply, conjuncts, const
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, affine_of, alternatives, expression_of
from tensorexpr.traversal import bottom_up, walk

MOST_SPLITS = 24
_COMPARED = ("lt", "le", "gt", "ge", "eq")


@record
class Span:
    """Integers from the least of `lows` to the least of `highs`, where neighbours are no further apart than `gap`."""

    lows: tuple[Affine, ...]
    highs: tuple[Affine, ...]
    gap: int

    @property
    def width(self) -> int:
        """How far it reaches at least, as far as numbers say."""
        if len(self.lows) == len(self.highs) == 1:
            reach = self.highs[0] - self.lows[0]
            return max(reach.constant, 0) if reach.is_constant else 0
        return 0

    def __add__(self, other: Span) -> Span:
        gap = min(max(self.gap, other.gap - self.width), max(other.gap, self.gap - other.width))
        return Span(_sums(self.lows, other.lows), _sums(self.highs, other.highs), gap)

    def times(self, factor: int) -> Span | None:
        """All integers times a factor."""
        if factor > 0:
            return Span(tuple(e * factor for e in self.lows), tuple(e * factor for e in self.highs), self.gap * factor)
        if factor and len(self.lows) == len(self.highs) == 1:
            return Span((self.highs[0] * factor,), (self.lows[0] * factor,), self.gap * -factor)
        return None


def _sums(first: tuple[Affine, ...], second: tuple[Affine, ...]) -> tuple[Affine, ...]:
    return tuple(dict.fromkeys(a + b for a in first for b in second))


def _ends(forms: Sequence[Affine]) -> tuple[Affine, ...]:
    """Forms of which the least counts: of numbers the least."""
    numbers = [form.constant for form in forms if form.is_constant]
    return tuple(dict.fromkeys([*map(Affine.of, [min(numbers)] if numbers else []), *(form for form in forms if not form.is_constant)]))


class Store(NamedTuple):
    """A store before a read: the loops around it that are not around the read, and the buffers that are written between them."""

    touch: Touch
    own: tuple[Loop, ...]
    changed: frozenset[str]


class Filling:
    """What stores fill in a nest of these open sizes; `forms` gives the forms at a place, `opaque` names what is not affine in them."""

    def __init__(self, sizes: Sequence[str], opaque: Opaque, forms: Callable[[Scope], Forms]) -> None:
        self.sizes, self.opaque, self.forms = sizes, opaque, forms
        self.splits = 0

    def is_filled(self, read: Touch, stores: Iterable[Store]) -> bool:
        """Whether some stores fill what is read."""
        needed = [found for store in stores if (found := self._needed(read, *store)) is not None]
        self.splits = 0
        return self._covered(read.scope, needed, frozenset())

    def _covered(self, scope: Scope, needed: Sequence[tuple[Expr, ...]], shown: frozenset[Expr]) -> bool:
        """Whether, wherever a scope is reached, all conditions of one of the lists hold; those `shown` do."""
        self.splits += 1
        if self.splits > MOST_SPLITS:
            return False
        for at, conditions in enumerate(needed):
            left = [condition for condition in conditions if condition not in shown and not self._holds(condition, scope)]
            shown = shown.union(condition for condition in conditions if condition not in left)
            if any(self._holds(negation(condition), scope) for condition in left):
                continue
            inside = scope
            for condition in left:
                if not self._covered(inside.where(negation(condition)), needed[at + 1 :], shown):
                    break
                inside = inside.where(condition)
            else:
                return True
        return False

    def _holds(self, condition: Expr, scope: Scope) -> bool:
        if isinstance(condition, Const):
            return bool(condition.value)
        if condition in scope.conditions:
            return True
        if isinstance(condition, Apply) and condition.op.name in ("and", "or"):
            return (all if condition.op.name == "and" else any)(self._holds(arg, scope) for arg in condition.args)
        if isinstance(condition, Apply) and condition.op.name == "invert" and isinstance(condition.args[0], Apply):
            inner = condition.args[0]
            if inner.op.name in ("and", "or"):
                return (any if inner.op.name == "and" else all)(self._holds(negation(arg), scope) for arg in inner.args)
        if not isinstance(condition, Apply) or condition.op.name not in _COMPARED or not condition.args[0].dtype.is_integer:
            return False
        left, right = condition.args
        forms = self.forms(scope)
        match condition.op.name:
            case "lt":
                return forms.is_less(left, right)
            case "gt":
                return forms.is_less(right, left)
            case "le":
                return forms.is_less(left, right, 0)
            case "ge":
                return forms.is_less(right, left, 0)
        return forms.is_less(left, right, 0) and forms.is_less(right, left, 0)

    # ---------------------------------------------------------------------------------------------------------- one store

    def _needed(self, read: Touch, store: Touch, own: tuple[Loop, ...], changed: frozenset[str]) -> tuple[Expr, ...] | None:
        """Conditions at the place of a read where a store has written what is read; None where they cannot be said."""
        if len(store.indices) != len(read.indices) or mentioned((*store.indices, *read.indices))[1]:
            return None
        held = set(read.scope.facts)
        names = {loop.statement.index for loop in own}
        if any(not any(f.axis is not None and f.axis.index == name for f in store.scope.facts) for name in names):
            return None  # a loop whose bounds have changed
        facts = [f for f in store.scope.facts if not f.sure and not (f in held and f.names.isdisjoint(names))]
        if any(not fact.reads.isdisjoint(changed) for fact in facts):
            return None
        if not names.isdisjoint(mentioned(read.indices)[0]) or any(not names.isdisjoint(fact.names) for fact in read.scope.facts):
            return None  # other loops of the same names are around the read
        found: list[Expr] = []
        store, facts, names = _unfused(store, facts, names)
        facts, runs = _joined(facts, names - mentioned(store.indices)[0])
        inner, names = names, {fact.axis.index for fact in facts if fact.axis is not None and fact.axis.index in names}
        settled: set[int] = set()
        tested = {name for fact in facts if fact.axis is None for name in fact.names & names}
        solved = _solved(store, read, names, tested, found, settled)
        fixed = {name: one.value for name, one in solved.items()}
        found += (_there(condition, fixed) for condition in runs)
        targets = {value: target for value, target in zip(store.indices, read.indices, strict=True) if not isinstance(value, Const)}
        open_ = names - set(fixed)
        stops: dict[str, Expr] = {}
        for fact in facts:
            unknown = fact.names & open_
            if fact.axis is not None:
                start, stop = fact.axis.start, fact.axis.stop
                if not unknown.isdisjoint(mentioned((start, stop))[0]):
                    return None
                if isinstance(stop, Apply) and stop.op.name == "where" and stop.args[2] == start:
                    found += (_plain(_there(part, fixed), read.scope) for part in conjuncts(stop.args[0]))
                    stop = stop.args[1]
                if fact.axis.index in solved:
                    at = solved[fact.axis.index]
                    found.append(apply("ge", at.target, at.element(_there(start, fixed))))
                    found.append(apply("lt", at.target, at.element(_there(stop, fixed))))
                else:
                    stops[fact.axis.index] = stop
            else:
                assert fact.condition is not None
                condition = bottom_up(fact.condition, lambda node: targets.get(node, node)) if unknown else fact.condition
                if unknown := mentioned((condition,))[0] & open_:
                    name = _least_of(condition, stops, unknown)
                    if name is None:
                        return None
                    assert isinstance(condition, Apply)
                    stops[name] = apply("minimum", stops[name], condition.args[1])
                else:
                    found.append(_there(condition, fixed))
        ends = {}
        for fact in facts:
            if fact.axis is not None and fact.axis.index in open_:
                first = affine_of(_there(fact.axis.start, fixed))
                if first is None:
                    return None
                stop = _there(stops[fact.axis.index], fixed)
                ends[fact.axis.index] = Span((first,), tuple(end - 1 for end in self._leasts(_plain(stop, read.scope))), 1)
        left = [(_there(store.indices[at], fixed), target) for at, target in enumerate(read.indices) if at not in settled]
        open_dims = [_parted(value, target, found) for value, target in left]
        needed = self._spanned(open_dims, ends, found)
        return None if needed is None or not inner.isdisjoint(mentioned(needed)[0]) else needed

    def _spanned(self, dims: Sequence[tuple[Expr, Expr]], ends: Mapping[str, Span], found: list[Expr]) -> tuple[Expr, ...] | None:
        """The conditions `found`, and that in each dimension that is no single element the index, which loops of these ends go through,
        reaches the one that is read."""
        used: dict[str, int] = {}
        alone: set[str] = set()
        for value, target in dims:
            before = set(used)
            span = self._span(value, ends, used, 1)
            if len(used) == len(before) + 1:  # where an element is between the ends of a single loop, that runs
                alone |= used.keys() - before
            if span is None or span.gap > 1:
                return None
            low = next((e for e in span.lows if e.is_constant), span.lows[0])
            found.append(apply("ge", target, self._expr(low)))
            found += (apply("le", target, self._expr(high)) for high in span.highs)
        for name, span in ends.items():  # each of these loops runs: said with the factor of its index, as the condition on the element is
            factor = used.get(name, 1)
            for high in span.highs if name not in alone else ():
                room = (high - span.lows[0]) * factor + factor - 1
                if not room.is_constant or room.constant < 0:
                    found.append(apply("ge", self._expr(room), const(0)))
        return tuple(dict.fromkeys(found))

    def _span(self, expr: Expr, ends: Mapping[str, Span], used: dict[str, int], factor: int) -> Span | None:
        """What an index goes through as some loops run, each of which occurs in it, and in no other index, once; `used` gets its factor."""
        if mentioned((expr,))[0].isdisjoint(ends):
            ends_here = self._leasts(expr)
            return Span(ends_here, ends_here, 1)
        if isinstance(expr, Index):
            if expr.name in used:
                return None
            used[expr.name] = factor
            return ends[expr.name]
        if not isinstance(expr, Apply):
            return None
        left, right = expr.args[0], expr.args[-1]
        if expr.op.name == "mul" and isinstance(right, Const):
            inner = self._span(left, ends, used, abs(factor * int(right.value)))
            return None if inner is None else inner.times(int(right.value))
        if expr.op.name in ("add", "sub", "minimum"):
            one, other = self._span(left, ends, used, factor), self._span(right, ends, used, factor)
            if expr.op.name == "sub" and other is not None:
                other = other.times(-1)
            if one is None or other is None:
                return None
            if expr.op.name != "minimum":
                return one + other
            if one.lows == one.highs or other.lows == other.highs:  # the same for all iterations
                return Span(_ends((*one.lows, *other.lows)), _ends((*one.highs, *other.highs)), max(one.gap, other.gap))
        return None

    def _expr(self, form: Affine) -> Expr:
        return expression_of(form, self.sizes, self.opaque)

    def _leasts(self, expr: Expr) -> tuple[Affine, ...]:
        """An integer as the least of some forms."""
        if isinstance(expr, Apply) and expr.op.name == "minimum":
            return tuple(dict.fromkeys((*self._leasts(expr.args[0]), *self._leasts(expr.args[1]))))
        form = affine_of(expr, self.opaque)
        assert form is not None
        return (form,)


def _unfused(store: Touch, facts: list[Fact], names: set[str]) -> tuple[Touch, list[Fact], set[str]]:
    """A store in a loop over two axes at once, as one in a loop over each: both go through the same elements where the loops run.

    for x in range(0, m * n): Y[x // n, x % n]   is   for i in range(0, m): for j in range(0, n): Y[i, j]
    """
    for at, fact in enumerate(facts):
        if fact.axis is None or fact.axis.index not in names or fact.axis.start != const(0) or not isinstance(fact.axis.stop, Apply):
            continue
        x, stop = Index(fact.axis.index), fact.axis.stop
        others = [other for other in facts if other is not fact and x.name in other.names]
        for extent, by in (stop.args, stop.args[::-1]) if stop.op.name == "mul" and not others else ():
            whole, rest = apply("floordiv", x, by), apply("mod", x, by)
            left = [index for index in store.indices if index not in (whole, rest)]
            if whole not in store.indices or rest not in store.indices or x.name in mentioned(left)[0]:
                continue
            first, second = f"{x.name} //", f"{x.name} %"
            indices = tuple(Index(first) if i == whole else Index(second) if i == rest else i for i in store.indices)
            each = [Fact.of_loop(first, const(0), extent), Fact.of_loop(second, const(0), by)]
            return _unfused(replace(store, indices=indices), [*facts[:at], *each, *facts[at + 1 :]], names - {x.name} | {first, second})
    return store, facts, names


def _joined(facts: Sequence[Fact], spare: set[str]) -> tuple[list[Fact], list[Expr]]:
    """Facts in which a loop that only says through which part of a range another one goes is left out: that goes through the whole range;
    and the conditions that such loops run. `spare` are the indices that nothing else needs.

    for slot in range(0, 4): for block in range(2 * slot, minimum(2 * slot + 2, 7))   is   for block in range(0, minimum(8, 7))
    """
    left = list(facts)
    runs: list[Expr] = []
    at = 0
    while at < len(left):
        outer = left[at].axis
        at += 1
        users = [k for k, other in enumerate(left) if outer is not None and k != at - 1 and outer.index in other.names]
        if outer is None or outer.index not in spare or len(users) != 1 or (inner := left[users[0]].axis) is None:
            continue
        name = outer.index
        following = _there(inner.start, {name: apply("add", Index(name), const(1))})
        ends = [end for end in alternatives(inner.stop, "minimum") if name in mentioned((end,))[0]]
        if all((room := affine_of(apply("sub", end, following))) is not None and room.is_constant and room.constant >= 0 for end in ends):
            last = _there(inner.stop, {name: apply("sub", outer.stop, const(1))})
            left[users[0]] = Fact.of_loop(inner.index, _there(inner.start, {name: outer.start}), last)
            runs.append(apply("lt", outer.start, outer.stop))
            at -= 1
            del left[at]
    return left, runs


def _parted(value: Expr, target: Expr, found: list[Expr]) -> tuple[Expr, Expr]:
    """An index that is only every so many elements, c * x + d, and the element that is read, as x and the x of that: `found` gets that
    the element is one of these."""
    terms, rest = _summed(value, 1)
    step = math.gcd(*(factor for _, factor in terms))
    if step <= 1 or value.dtype is not dtypes.int64:
        return value, target
    whole: Expr = const(0)
    for term, factor in terms:
        whole = apply("add", whole, apply("mul", term, const(factor // step)))
    quotient, digit = divmod(rest, step)
    found += (apply(name, apply("mod", target, const(step)), const(digit)) for name in ("ge", "le"))
    there = apply("floordiv", target, const(step))
    return whole, apply("sub", there, const(quotient)) if quotient else there


def _summed(expr: Expr, factor: int) -> tuple[list[tuple[Expr, int]], int]:
    """An integer times a factor as terms with factors, and a number."""
    if isinstance(expr, Const):
        return [], int(expr.value) * factor
    if isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        one, other = _summed(expr.args[0], factor), _summed(expr.args[1], factor if expr.op.name == "add" else -factor)
        return one[0] + other[0], one[1] + other[1]
    if isinstance(expr, Apply) and expr.op.name == "mul" and isinstance(expr.args[1], Const):
        return _summed(expr.args[0], factor * int(expr.args[1].value))
    return [(expr, factor)], 0


def _there(expr: Expr, fixed: Mapping[str, Expr]) -> Expr:
    """An expression at the iteration that was solved for."""
    if mentioned((expr,))[0].isdisjoint(fixed):
        return expr
    return bottom_up(expr, lambda node: fixed.get(node.name, node) if isinstance(node, Index) else node)


class _Solved(NamedTuple):
    """A loop's index x that one dimension gives: factor * x + constant there is the element that is read, `target`."""

    factor: int
    constant: int
    target: Expr

    @property
    def value(self) -> Expr:
        """The index."""
        quotient = self.constant // self.factor
        whole = self.target if self.factor == 1 else apply("floordiv", self.target, const(self.factor))
        return apply("sub", whole, const(quotient)) if quotient else whole

    def element(self, at: Expr) -> Expr:
        """What the dimension is where the loop's index is another one: what is below, or not, is so of the element, too."""
        scaled = at if self.factor == 1 else apply("mul", at, const(self.factor))
        return apply("add", scaled, const(self.constant)) if self.constant else scaled


def _solved(store: Touch, read: Touch, names: set[str], tested: set[str], found: list[Expr], settled: set[int]) -> dict[str, _Solved]:
    """The loops whose index one dimension gives, beside others that no loop changes where conditions ask for it (`tested`); `found` gets
    what must hold for that, `settled` the dimension."""
    solved: dict[str, _Solved] = {}
    for at, (value, target) in enumerate(zip(store.indices, read.indices, strict=True)):
        mine = mentioned((value,))[0] & (names - set(solved))
        form = affine_of(value) if mine else None
        if value == target and not mine:
            settled.add(at)
        if form is None or len(mine) != 1:
            continue
        (name,) = mine
        factor = form.coefficient(name)
        rest = form - Affine.of(name) * factor - form.constant
        if factor <= 0 or not names.isdisjoint(rest.names()) or (rest.terms and name not in tested):
            continue
        if rest.terms:
            target = apply("sub", target, expression_of(rest, [n.name for n in walk(value) if isinstance(n, Size)]))
        settled.add(at)
        solved[name] = _Solved(factor, form.constant, target)
        if factor != 1:
            found += (apply(name, apply("mod", target, const(factor)), const(form.constant % factor)) for name in ("ge", "le"))
    return solved


def _least_of(condition: Expr, stops: Mapping[str, Expr], unknown: frozenset[str]) -> str | None:
    """The loop's index that a condition bounds from above, where it says nothing else."""
    if not isinstance(condition, Apply) or condition.op.name != "lt" or len(unknown) != 1:
        return None
    left, right = condition.args
    named = isinstance(left, Index) and left.name in stops and unknown.isdisjoint(mentioned((right,))[0])
    return left.name if named and isinstance(left, Index) else None


def _plain(expr: Expr, scope: Scope) -> Expr:
    """An integer without what is no less than 0 anyhow, where it is not affine."""
    if affine_of(expr) is not None:
        return expr

    def visit(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.op.name == "maximum" and isinstance(node.args[1], Const):
            return node.args[0] if scope.interval(node.args[0])[0] >= node.args[1].value else node
        return node

    return bottom_up(expr, visit)
