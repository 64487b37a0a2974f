"""Integer arithmetic that may wrap around, written as what it is: arithmetic of uint64 between casts.

The rooms below reason about indices as whole numbers (`regions`, `simplify.facts.indices`, the solver of gradients). That is right
where int64 arithmetic stays in int64. So a definition is looked at once, when it is complete, with the ranges of its indices
and the sizes that it can be called with, and `(i * 2**62) // 4` becomes ``cast(int64, cast(uint64, i) * 2**62) // 4``: the same
number, which nobody takes for a whole number's. Sums and products that an operation other than `+ - *` looks at, or that are
values, have to stay within `LIMIT`. A subscript that is a sum may wrap: it is proved to lie in its extent, and the number
modulo 2**64 that does is the one.

Magnitudes are polynomials in open sizes. One size is at most `MOST_SIZE`, which calls check; so is the product of the extents
of a tensor that is read, and of loops around. What these do not cover may be anything.

Integers of tensors may be anything of their type. What the simplifier makes of them it decides by their ranges; what proofs
make of comparisons that guard a read is decided here: `ids[t] * 4 < n` says nothing of `ids[t]`, and `ids[t] - 1 >= 0` only
beside an upper bound of the same difference, which the difference that wrapped would exceed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tensorexpr import dtypes
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    apply,
    conjuncts,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.traversal import map_children, negate, reads, walk

MOST_SIZE = 1 << 47
"""The greatest value of an open size. No memory has more elements; the extents of an empty array could be more, and are refused."""
LIMIT = 1 << 60
"""Whole numbers are left whole up to here: sums of several, and what rules make of them, fit int64 as well."""

Monomial = tuple["str | Quotient", ...]
Bound = dict[Monomial, int]
"""A polynomial with positive coefficients in sizes (and quotients of bounds by sizes), none of them negative."""


@record
class Quotient:
    """A bound divided by a size, which the size times the quotient does not exceed."""

    dividend: tuple[tuple[Monomial, int], ...]
    divisor: str


@record
class Range:
    """From minus `low` to `high`; None where there is no bound but that of the type."""

    low: Bound | None
    high: Bound | None


_ANY = Range(None, None)
VALUE, SUBSCRIPT, BOUND, PART, GUARD = "value", "subscript", "bound", "part of a subscript", "guard"
"""Where arithmetic stands: as a value; as a subscript or bound, where a sum may wrap; in what a subscript with one integer of a tensor is
made of, which a check looks at as it is; in a condition, and in what bounds and other subscripts are made of."""
_RING = ("add", "sub", "mul", "neg")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_SIDES = {"lt": ("high",), "le": ("high",), "gt": ("low",), "ge": ("low",), "eq": ("low", "high")}
"""What a comparison bounds."""
_BELOW = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def with_wraps(expr: Expr, axes: Iterable[Axis], shapes: Iterable[tuple[Expr, ...]] = (), place: str = VALUE) -> Expr:
    """`expr`, which stands inside `axes`, with arithmetic that may wrap around written as such; the same object where there is none.

    `shapes` are those of the tensors around. `place` says where it stands: VALUE, SUBSCRIPT or BOUND.
    """
    if not any(_arithmetic(node) or _is_magnitude(node) for node in walk(expr)):
        return expr
    axes = tuple(axes)
    found = _Wraps({}, [*shapes, tuple(axis.stop for axis in axes)])
    for axis in axes:
        found = found.inside(axis)
    return found.subscript(expr) if place is SUBSCRIPT else found.visit(expr, place)


def program_with_wraps(program: Program) -> Program:
    """A program that need not come from the tracer, with arithmetic that may wrap around written as such; the same object where none is."""
    types = program.types
    shapes = {name: types[name].shape for name in types}
    found = tuple(_definition_with_wraps(definition, (), shapes) for definition in program.definitions)
    same = all(new is old for new, old in zip(found, program.definitions, strict=True))
    return program if same else replace(program, definitions=found)


def _definition_with_wraps(definition: Definition, around: tuple[Axis, ...], shapes: Mapping[str, tuple[Expr, ...]]) -> Definition:
    """A definition inside scans whose steps are `around`; `shapes` are those of all tensors that it may read."""
    match definition:
        case Define():
            value = with_wraps(definition.value, (*around, *definition.axes), [shapes[name] for name in reads(definition)])
            return definition if value is definition.value else replace(definition, value=value)
        case Scatter():
            return scatter_with_wraps(definition, around, [shapes[name] for name in reads(definition)])
        case Segments():
            axes, read = (*around, *definition.loops), [definition.extents, *(shapes[name] for name in reads(definition))]
            keys = tuple(with_wraps(key, axes, read, SUBSCRIPT) for key in definition.keys)
            where = None if definition.where is None else with_wraps(definition.where, axes, read)
            same = where is definition.where and all(new is old for new, old in zip(keys, definition.keys, strict=True))
            return definition if same else replace(definition, keys=keys, where=where)
        case Scan():
            inner = (*around, Axis(definition.step, const(0), definition.length))
            local = {name: type_.shape for name, type_ in definition.states}
            local |= {name: type_.shape for item in definition.body for name, type_ in item.results}
            body = tuple(_definition_with_wraps(item, inner, {**shapes, **local}) for item in definition.body)
            same = all(new is old for new, old in zip(body, definition.body, strict=True))
            return definition if same else replace(definition, body=body)


def scatter_with_wraps(scatter: Scatter, around: tuple[Axis, ...], shapes: Iterable[tuple[Expr, ...]]) -> Scatter:
    """A scatter inside scans whose steps are `around`, which reads tensors of `shapes`: `with_wraps` of all its parts."""
    shapes = [scatter.type.shape, *shapes]
    axes = (*around, *scatter.axes)
    bounds: list[Axis] = []
    for axis in scatter.axes:
        outer = (*around, *bounds)
        start, stop = (with_wraps(bound, outer, shapes, BOUND) for bound in (axis.start, axis.stop))
        bounds.append(axis if start is axis.start and stop is axis.stop else Axis(axis.index, start, stop))
    indices = tuple(with_wraps(place, axes, shapes, SUBSCRIPT) for place in scatter.indices)
    value = with_wraps(scatter.value, axes, shapes)
    where = None if scatter.where is None else with_wraps(scatter.where, axes, shapes)
    pairs = zip((*bounds, *indices, value, where), (*scatter.axes, *scatter.indices, scatter.value, scatter.where), strict=True)
    same = all(new is old for new, old in pairs)
    return scatter if same else replace(scatter, axes=tuple(bounds), indices=indices, value=value, where=where)


def _arithmetic(expr: Expr) -> bool:
    """Whether a node is int64 arithmetic that ends in int64 or not: it begins with shifts by literals, too, which are products."""
    return isinstance(expr, Apply) and expr.dtype is dtypes.int64 and (expr.op.name in _RING or _shift(expr) is not None)


def _is_magnitude(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.dtype is dtypes.int64 and expr.op.name == "abs"


def _shift(expr: Apply) -> int | None:
    by = expr.args[1] if expr.op.name == "shift_left" else None
    return int(by.value) if isinstance(by, Const) and 0 <= by.value < 64 else None


class _Wraps:
    def __init__(self, ranges: Mapping[str, Range], shapes: list[tuple[Expr, ...]]) -> None:
        self.ranges = ranges
        self.shapes = shapes
        self.covered = [Counter(_names(shape)) for shape in shapes]
        self.known: dict[Expr, Range] = {}

    def inside(self, axis: Axis) -> _Wraps:
        start, stop = self.range(axis.start), self.range(axis.stop)
        high = None if stop.high is None else _plus(stop.high, {(): -1}) if stop.high.get((), 0) else stop.high
        return _Wraps({**self.ranges, axis.index: Range(start.low, high)}, self.shapes)

    # -- rewriting ---------------------------------------------------------------------------------------------------

    def visit(self, expr: Expr, place: str = VALUE) -> Expr:
        match expr:
            case Access():
                return map_children(expr, self.subscript)
            case Reduce():
                return self.reduction(expr)
            case Apply() if expr.op.name in _COMPARISONS and expr.args[0].dtype is dtypes.int64:
                return self.chain(expr)
            case Apply() if expr.op.name in ("and", "or") and expr.dtype.is_bool:
                return self.chain(expr)
            case Apply() if _arithmetic(expr):
                return self.arithmetic(expr, place)
            case Apply() if _is_magnitude(expr) and place is not VALUE and not self.fits(self.range(expr.args[0])):
                return self.magnitude(expr.args[0])
        inner = {SUBSCRIPT: PART, BOUND: GUARD}.get(place, place)
        return map_children(expr, lambda arg: self.visit(arg, inner))

    def subscript(self, index: Expr) -> Expr:
        """A subscript. Where integers of tensors stand in it more than once, whole numbers would prove what they say of each other."""
        data = [node for node in walk(index) if not isinstance(node, Apply) and _is_wide(node)]
        return self.visit(index, SUBSCRIPT if len(data) <= 1 else BOUND)

    def reduction(self, expr: Reduce) -> Expr:
        inner, axes = self, []
        for axis in expr.axes:
            start, stop = inner.visit(axis.start, BOUND), inner.visit(axis.stop, BOUND)
            axes.append(axis if start is axis.start and stop is axis.stop else Axis(axis.index, start, stop))
            inner = inner.inside(axis)
        inner = _Wraps(inner.ranges, [*inner.shapes, tuple(axis.stop for axis in axes)])
        where = None if expr.where is None else inner.visit(expr.where)
        values = tuple(inner.visit(value) for value in expr.values)
        pairs = zip((*axes, *values), (*expr.axes, *expr.values), strict=True)
        if where is expr.where and all(new is old for new, old in pairs):
            return expr
        return replace(expr, axes=tuple(axes), where=where, values=values)

    def arithmetic(self, expr: Apply, place: str) -> Expr:
        """A sum or product as it is, or modulo 2**64."""
        wide = any(_is_wide(leaf) for leaf in _leaves(expr))
        left = place in (SUBSCRIPT, BOUND) or (wide and (place is VALUE or (place is PART and self.datum(expr) is not None)))
        if left or self.fits(self.range(expr)):
            return self.left(expr, place)
        return Cast(dtypes.int64, self.modular(expr, place))

    def magnitude(self, arg: Expr) -> Expr:
        """The absolute value of what may be the least int64, which is its own opposite and so no natural number."""
        x = self.visit(arg, GUARD)
        opposite = Cast(dtypes.int64, apply("sub", Const(0, dtypes.uint64), Cast(dtypes.uint64, x)))
        return apply("where", apply("lt", x, const(0)), opposite, x)

    def left(self, expr: Expr, place: str) -> Expr:
        """A sum or product as it is, with its leaves visited."""
        return map_children(expr, lambda arg: self.left(arg, place)) if _arithmetic(expr) else self.visit(expr, place)

    def modular(self, expr: Expr, place: str) -> Expr:
        """The number as a uint64."""
        if isinstance(expr, Const):
            return Const(int(expr.value) % (1 << 64), dtypes.uint64)
        if not isinstance(expr, Apply) or not _arithmetic(expr):
            return Cast(dtypes.uint64, self.visit(expr, place))
        if expr.op.name == "neg":
            return apply("sub", Const(0, dtypes.uint64), self.modular(expr.args[0], place))
        by = _shift(expr)
        if by is not None:
            return apply("mul", self.modular(expr.args[0], place), Const(1 << by, dtypes.uint64))
        return apply(expr.op.name, *(self.modular(arg, place) for arg in expr.args))

    def chain(self, expr: Apply) -> Expr:
        """Comparisons one beside the other, of which those of data may be sure together; for a disjunction their opposites."""
        if expr.op.name == "or":
            parts = [negate(part) for part in _operands(expr, "or")]
            sure = {id(part) for part, opposite in zip(_operands(expr, "or"), parts, strict=True) if self.sure(opposite, parts)}
        else:
            parts = list(conjuncts(expr))
            sure = {id(part) for part in parts if self.sure(part, parts)}

        def visit(part: Expr) -> Expr:
            if isinstance(part, Apply) and part.dtype.is_bool and part.op.name == expr.op.name and part.op.name in ("and", "or"):
                return map_children(part, visit)
            if isinstance(part, Apply) and part.op.name in _COMPARISONS and part.args[0].dtype is dtypes.int64:
                return map_children(part, lambda arg: self.left(arg, GUARD) if id(part) in sure else self.visit(arg, GUARD))
            return self.visit(part, GUARD)

        return visit(expr)

    def sure(self, part: Expr, parts: list[Expr]) -> bool:
        """Whether all parts together hold modulo 2**64 just where they do with this one of whole numbers: the opposite is told, too."""
        found = self.comparison(part)
        if found is None:
            return False
        compared, name = found
        pair = self.datum(compared)
        if pair is None:
            return False
        datum, sign, least, greatest = pair
        beside = [other for other in map(self.comparison, parts) if other is not None]
        bounded = {side for other, sides in beside if other == datum for side in _SIDES[sides]}
        over, under = greatest or sign < 0, least  # where the sum may leave int64; the least int64 has no opposite
        needed = {side for side, may in (("high" if sign > 0 else "low", over), ("low" if sign > 0 else "high", under)) if may}
        compared_to = {side for other, sides in beside if other == compared for side in _SIDES[sides]}
        return name == "eq" or len(compared_to) == 2 or needed <= bounded

    def comparison(self, part: Expr) -> tuple[Expr, str] | None:
        """What is compared with a number of known bounds, and how."""
        if not isinstance(part, Apply) or part.op.name not in _BELOW or part.args[0].dtype is not dtypes.int64:
            return None
        left, right = part.args
        if self.fits(self.range(right)):
            return left, part.op.name
        return (right, _BELOW[part.op.name]) if self.fits(self.range(left)) else None

    def datum(self, expr: Expr) -> tuple[Expr, int, bool, bool] | None:
        """An integer of a tensor, once, beside numbers of known bounds: it, its sign, whether these may be negative and positive."""
        terms = _terms(expr)
        wide = [(term, sign) for term, sign in terms if any(_is_wide(leaf) for leaf in _leaves(term))]
        if len(wide) != 1 or _arithmetic(wide[0][0]):
            return None
        if (
            wide[0][1] < 0 and self.range(wide[0][0]).high is not None
        ):  # of the opposite a lower bound would be known, but of the least int64
            return None
        low: Bound = {}
        high: Bound = {}
        for term, sign in terms:
            if term is not wide[0][0]:
                found = self.range(term)
                if found.low is None or found.high is None:
                    return None
                low, high = _plus(low, found.low if sign > 0 else found.high), _plus(high, found.high if sign > 0 else found.low)
        return (*wide[0], bool(low), bool(high)) if self.fits(Range(low, high)) else None

    # -- ranges ------------------------------------------------------------------------------------------------------

    def fits(self, found: Range) -> bool:
        return all(side is not None and self.most(side) <= LIMIT for side in (found.low, found.high))

    def most(self, bound: Bound) -> float:
        return sum(count * self.most_of(monomial) for monomial, count in bound.items())

    def most_of(self, monomial: Monomial) -> float:
        for at, factor in enumerate(monomial):
            if isinstance(factor, Quotient):
                return self.most(_times({monomial[:at] + monomial[at + 1 :]: 1}, dict(factor.dividend)))
        own = Counter(monomial)
        if len(monomial) <= 1 or any(own <= extents for extents in self.covered):
            return MOST_SIZE if monomial else 1
        return float("inf")

    def range(self, expr: Expr) -> Range:
        found = self.known.get(expr)
        if found is None:
            found = self.known[expr] = self._range(expr)
        return found

    def _range(self, expr: Expr) -> Range:
        match expr:
            case Const() if expr.dtype.is_integer:
                value = int(expr.value)
                return Range({(): -value} if value < 0 else {}, {(): value} if value > 0 else {})
            case Size():
                return Range({}, {(expr.name,): 1})
            case Index():
                return self.ranges.get(expr.name, Range({(): MOST_SIZE}, {(): MOST_SIZE}))  # a step of a scan
            case Apply() if expr.dtype is dtypes.int64:
                return self._operation(expr)
            case Cast() if expr.dtype is dtypes.int64 and expr.arg.dtype.is_bool:
                return Range({}, {(): 1})
            case Cast() if expr.dtype is dtypes.int64 and expr.arg.dtype.is_integer and expr.arg.dtype.bits < 64:
                return Range({(): -int(expr.arg.dtype.least)}, {(): int(expr.arg.dtype.greatest)})
            case Reduce() if expr.combiner.name in ("argmax", "argmin"):
                return Range({}, {(): MOST_SIZE})
        return _ANY

    def _operation(self, expr: Apply) -> Range:
        name, parts = expr.op.name, [self.range(arg) for arg in expr.args]
        x, y = parts[0], parts[-1]
        by = _shift(expr)
        if by is not None:
            return Range(*(None if side is None else _times(side, {(): 1 << by}) for side in (x.low, x.high)))
        match name:
            case "neg":
                return Range(x.high, x.low)
            case "add":
                return Range(_added(x.low, y.low), _added(x.high, y.high))
            case "sub":
                return Range(_added(x.low, y.high), _added(x.high, y.low))
            case "mul":
                return Range(
                    _added(_multiplied(x.low, y.high), _multiplied(x.high, y.low)),
                    _added(_multiplied(x.high, y.high), _multiplied(x.low, y.low)),
                )
            case "minimum":
                return Range(_larger(x.low, y.low), _smaller(x.high, y.high))
            case "maximum":
                return Range(_smaller(x.low, y.low), _larger(x.high, y.high))
            case "where":
                return Range(_larger(parts[1].low, y.low), _larger(parts[1].high, y.high))
            case "abs":
                return Range({}, _larger(x.low, x.high))
            case "sign":
                return Range({(): 1}, {(): 1})
            case "mod":
                return Range(y.low, _smaller(x.high, y.high) if x.low == {} and y.low == {} else y.high)
            case "floordiv":
                return self._quotient(expr.args[1], x, y)
            case "shift_right":
                return x
            case "and" if x.low == {} or y.low == {}:
                return Range({}, x.high if y.low != {} else y.high if x.low != {} else _smaller(x.high, y.high))
        return _ANY

    def _quotient(self, divisor: Expr, x: Range, y: Range) -> Range:
        if isinstance(divisor, Const) and divisor.value > 0:
            by = int(divisor.value)
            return Range(*(None if side is None else {m: -(-count // by) for m, count in side.items()} for side in (x.low, x.high)))
        if isinstance(divisor, Size) and x.high is not None:
            whole: Bound = {(Quotient(tuple(sorted(x.high.items(), key=repr)), divisor.name),): 1}
            return Range(x.low, whole if x.high else {})
        if y.low == {}:
            return x
        either = _larger(x.low, x.high)
        return Range(either, either)


# ------------------------------------------------------------------------------------------------------ polynomials


def _plus(a: Bound, b: Bound) -> Bound:
    found = {monomial: a.get(monomial, 0) + b.get(monomial, 0) for monomial in (*a, *b)}
    return {monomial: count for monomial, count in found.items() if count}


def _times(a: Bound, b: Bound) -> Bound:
    found: Bound = {}
    for one, first in a.items():
        for other, second in b.items():
            found = _plus(found, _product((*one, *other), first * second))
    return found


def _product(factors: Monomial, count: int) -> Bound:
    """The product of factors, of which a quotient goes with its divisor."""
    for at, factor in enumerate(factors):
        if isinstance(factor, Quotient) and factor.divisor in factors:
            rest = list(factors[:at] + factors[at + 1 :])
            rest.remove(factor.divisor)
            return _times({tuple(rest): count}, dict(factor.dividend))
    return {tuple(sorted(factors, key=repr)): count}


def _added(a: Bound | None, b: Bound | None) -> Bound | None:
    return None if a is None or b is None else _plus(a, b)


def _multiplied(a: Bound | None, b: Bound | None) -> Bound | None:
    if a == {} or b == {}:
        return {}
    return None if a is None or b is None else _times(a, b)


def _larger(a: Bound | None, b: Bound | None) -> Bound | None:
    return None if a is None or b is None else {m: max(a.get(m, 0), b.get(m, 0)) for m in (*a, *b)}


def _smaller(a: Bound | None, b: Bound | None) -> Bound | None:
    """One of two bounds that both hold: that of the lower degree."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=lambda bound: (max(map(len, bound), default=0), sum(bound.values())))


# ----------------------------------------------------------------------------------------------------------- parts


def _names(shape: tuple[Expr, ...]) -> list[str]:
    """The sizes that are extents, or factors of extents."""
    return [leaf.name for extent in shape for leaf in _operands(extent, "mul") if isinstance(leaf, Size)]


def _operands(expr: Expr, name: str) -> list[Expr]:
    if isinstance(expr, Apply) and expr.op.name == name:
        return [part for arg in expr.args for part in _operands(arg, name)]
    return [expr]


def _leaves(expr: Expr) -> list[Expr]:
    """What stands in a sum or product and is none."""
    return [leaf for arg in expr.args for leaf in _leaves(arg)] if isinstance(expr, Apply) and _arithmetic(expr) else [expr]


def _terms(expr: Expr, sign: int = 1) -> list[tuple[Expr, int]]:
    """The summands of a sum with their signs."""
    if isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        return _terms(expr.args[0], sign) + _terms(expr.args[1], sign if expr.op.name == "add" else -sign)
    return _terms(expr.args[0], -sign) if isinstance(expr, Apply) and expr.op.name == "neg" else [(expr, sign)]


def _is_wide(leaf: Expr) -> bool:
    """Whether a number may be anything of int64: one of a tensor, or made of a float."""
    if isinstance(leaf, Cast):
        return leaf.arg.dtype.is_float or leaf.arg.dtype is dtypes.uint64 or (leaf.arg.dtype is dtypes.int64 and _is_wide(leaf.arg))
    if isinstance(leaf, Apply):
        return any(_is_wide(arg) for arg in leaf.args if arg.dtype is dtypes.int64)
    return not isinstance(leaf, Const | Index | Size) and leaf.dtype is dtypes.int64
