"""The bridge between scalar expressions and integer sets: affine forms of indices, domains of loops and guards.

`affine_of` reads an int64 expression as a quasi-affine form (sums, products with constants, floor division and modulo by
positive constants, shifts and masks by constants); what is not (products of sizes, data-dependent indices) can become an
opaque name, so that proofs go on with what is known around it. `expression_of` goes back.

`cases_of` and `cases_where` split minimum, maximum, abs and where in an index, and `|`, `~`, `!=` in a condition, into
disjoint cases that are affine. `domain_of` makes the integer set of a nest of axes and guards; guards that are no
conjunction of affine constraints are left out (the set is then an over-approximation, and says so). `regions_of` keeps
those too, as several disjoint sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from tensorexpr import dtypes
from tensorexpr.integers import Affine, Constraint, Domain, FloorDiv, eq, ge, gt, le, lt
from tensorexpr.integers.forms.affine import Interval
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, Param, Size, apply, conjuncts, const
from tensorexpr.records import field, record
from tensorexpr.traversal import map_children, size_names, walk

MAX_CASES = 64
"""Where an expression or the guards have more cases, what would split further is left opaque, or out."""


@record(frozen=False)
class Opaque:
    """Names given to integer expressions that are not affine: equal expressions get one name (`?0`, `?1`, ...).

    A cast that keeps the value does not make another name: `ids[t]` is the same number as int32 and as int64.
    """

    names: dict[Expr, str] = field(default_factory=dict)
    _expressions: dict[str, Expr] = field(default_factory=dict, init=False, compare=False, repr=False)

    def name_of(self, expr: Expr) -> str:
        """The name that stands for the value of `expr`."""
        while isinstance(expr, Cast) and expr.arg.dtype.is_integer and expr.dtype is dtypes.int64 and expr.arg.dtype is not dtypes.uint64:
            expr = expr.arg
        return self.names.setdefault(expr, f"?{len(self.names)}")

    @property
    def expressions(self) -> dict[str, Expr]:
        """What each name stands for, as an int64 expression."""
        if len(self._expressions) < len(self.names):  # there are only ever more
            for expr, name in self.names.items():
                if name not in self._expressions:
                    self._expressions[name] = expr if expr.dtype is dtypes.int64 else Cast(dtypes.int64, expr)
        return self._expressions


def affine_of(expr: Expr, opaque: Opaque | None = None) -> Affine | None:
    """The quasi-affine form of an integer expression, or None where it has none and `opaque` is not given."""
    if type(expr) is Index or type(expr) is Size:
        return Affine.of(expr.name)
    if not isinstance(expr, Apply):
        return _affine(expr, opaque)
    found = _plain_affine(expr)
    return found if found is not None or opaque is None else _affine(expr, opaque)


@lru_cache(maxsize=1 << 14)
def _plain_affine(expr: Expr) -> Affine | None:
    """The form without opaque names, which is asked for again and again: of all parts, by every case of what stands around them."""
    return _affine(expr, None)


def told_sizes(extents: Sequence[Expr]) -> list[tuple[str, int, Affine]]:
    """For every size that affine extents tell, the number of the extent that does and its form, in an order in which each form has sizes
    that are told before it and this one alone; extents that are a size and nothing else go first."""
    forms = [(number, affine_of(e)) for number, e in enumerate(extents) if not isinstance(e, Const)]
    known = [(number, form) for number, form in forms if form is not None and all(isinstance(atom, str) for atom, _ in form.terms)]
    known.sort(key=lambda one: (len(one[1].terms), one[1].constant != 0, one[1].terms[0][1] != 1 if one[1].terms else False, one[0]))
    found: dict[str, tuple[int, Affine]] = {}
    progress = True
    while progress:
        progress = False
        for number, form in known:
            unknown = [str(atom) for atom, _ in form.terms if atom not in found]
            if len(unknown) == 1:
                found[unknown[0]] = (number, form)
                progress = True
    return [(name, number, form) for name, (number, form) in found.items()]


def _affine(expr: Expr, opaque: Opaque | None) -> Affine | None:
    match expr:
        case Const() if expr.dtype.is_integer:
            return Affine.of(int(expr.value))
        case Index() | Size():
            return Affine.of(expr.name)
        case Cast() if expr.dtype is dtypes.int64 and isinstance(expr.arg, Const) and expr.arg.dtype.is_integer:
            return Affine.of(int(expr.arg.value))
        case Cast() if expr.dtype is dtypes.int64 and expr.arg.dtype is dtypes.int64:
            return affine_of(expr.arg, opaque)
        case Apply() if expr.dtype is dtypes.int64:
            found = _affine_apply(expr, opaque)
            if found is not None:
                return found
    return None if opaque is None else Affine.of(opaque.name_of(expr))


def _affine_apply(expr: Apply, opaque: Opaque | None) -> Affine | None:
    name = expr.op.name
    if name == "neg":
        inner = affine_of(expr.args[0], opaque)
        return None if inner is None else -inner
    if name not in _AFFINE_OPS:
        return None
    # Without names for what is opaque, so that a product or a quotient that is not affine becomes one name as a whole.
    left, right = affine_of(expr.args[0]), affine_of(expr.args[1])
    if name in ("add", "sub"):
        left = affine_of(expr.args[0], opaque) if left is None else left
        right = affine_of(expr.args[1], opaque) if right is None else right
        if left is None or right is None:
            return None
        return left + right if name == "add" else left - right
    if name == "mul" and left is not None and left.is_constant:
        left, right, expr = right, left, apply("mul", expr.args[1], expr.args[0])
    if right is None or not right.is_constant:
        return None
    factor = right.constant
    if (name in ("floordiv", "mod") and factor <= 0) or (name == "and" and (factor < 0 or factor & (factor + 1))):
        return None
    if name in ("shift_left", "shift_right") and not 0 <= factor < 62:
        return None
    left = affine_of(expr.args[0], opaque) if left is None else left
    if left is None:
        return None
    match name:
        case "mul":
            return left * factor
        case "floordiv":
            return left // factor
        case "mod":
            return left % factor
        case "shift_left":
            return left * (1 << factor)
        case "shift_right":
            return left // (1 << factor)
    return left % (factor + 1)


_AFFINE_OPS = ("add", "sub", "mul", "floordiv", "mod", "shift_left", "shift_right", "and")


def signed_sum(positive: list[Expr], negative: list[Expr], constant: int) -> Expr:
    """What is added, then what is subtracted, then the constant; a sum that begins with a minus begins with a negation."""
    if not positive:
        if constant > 0 or not negative:
            positive, constant = [const(constant)], 0
        else:
            positive, negative = [apply("neg", negative[0])], negative[1:]
    result = positive[0]
    for item in positive[1:]:
        result = apply("add", result, item)
    for item in negative:
        result = apply("sub", result, item)
    if constant:
        result = apply("add" if constant > 0 else "sub", result, const(abs(constant)))
    return result


def expression_of(affine: Affine, sizes: Iterable[str] = (), opaque: Opaque | None = None) -> Expr:
    """The int64 expression of an affine form: names in `sizes` become sizes, opaque names their expressions, others indices.

    Terms with positive coefficients come first, then the rest, then the constant; `c*e - c*m*(e // m)` becomes a modulo.
    """
    return _built(affine, set(sizes), {} if opaque is None else opaque.expressions)


def _built(form: Affine, sizes: set[str], hidden: Mapping[str, Expr]) -> Expr:
    form, modulos = split_modulos(form)
    positive = [_times(_atom(t, sizes, hidden), c) for t, c in form.terms if c > 0]
    positive += [_times(apply("mod", _built(e, sizes, hidden), const(m)), c) for e, m, c in modulos if c > 0]
    negative = [_times(_atom(t, sizes, hidden), -c) for t, c in form.terms if c < 0]
    negative += [_times(apply("mod", _built(e, sizes, hidden), const(m)), -c) for e, m, c in modulos if c < 0]
    return signed_sum(positive, negative, form.constant)


def _atom(a: str | FloorDiv, sizes: set[str], hidden: Mapping[str, Expr]) -> Expr:
    if isinstance(a, FloorDiv):
        return apply("floordiv", _built(a.numerator, sizes, hidden), const(a.denominator))
    if a in hidden:
        return hidden[a]
    return Size(a) if a in sizes else Index(a)


def _times(factor: Expr, size: int) -> Expr:
    return factor if size == 1 else apply("mul", factor, const(size))


def within(expr: Expr, box: Mapping[str, Interval]) -> Expr:
    """An expression with quotients and remainders of indices replaced by what they are where these lie in a box.

    Those of data stay: they may wrap around, indices never do.
    """
    return _within(expr, box) if any(map(_divides, walk(expr))) else expr


def _divides(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name in ("floordiv", "mod") and node.dtype is dtypes.int64


def _within(expr: Expr, box: Mapping[str, Interval]) -> Expr:
    if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and not any(isinstance(n, Access | Param) for n in walk(expr)):
        opaque = Opaque()
        form = affine_of(expr, opaque)
        found = None if form is None else form.within(box)
        if found is not None and found is not form:
            return expression_of(found, size_names(expr), opaque)
    return map_children(expr, lambda child: _within(child, box))


def normal_form(extent: Expr) -> Expr:
    """An expression over sizes in normal form, so that equal extents are equal terms; as it is where it is not affine."""
    if isinstance(extent, Const | Size):
        return extent
    form = affine_of(extent)
    return extent if form is None else expression_of(form, sizes=form.names())


def split_modulos(form: Affine) -> tuple[Affine, list[tuple[Affine, int, int]]]:
    """Splits off the terms c * (e % m), which stand in the form as c*e - c*m*(e // m); gives the rest and the (e, m, c).

    Only where e stands there term by term, so that taking it out leaves fewer terms.
    """
    factors = dict(form.terms)
    constant = form.constant
    modulos: list[tuple[Affine, int, int]] = []
    for atom, _ in form.terms:
        factor = factors.get(atom, 0)
        if not isinstance(atom, FloorDiv) or not factor or factor % atom.denominator:
            continue
        count = -factor // atom.denominator
        needed = [(own, count * value) for own, value in atom.numerator.terms]
        if not all(factors.get(own, 0) * value > 0 and abs(factors[own]) >= abs(value) for own, value in needed):
            continue
        for own, value in needed:
            factors[own] -= value
        factors[atom] = 0
        constant -= count * atom.numerator.constant
        modulos.append((atom.numerator, atom.denominator, count))
    return Affine(factors, constant), modulos


# --------------------------------------------------------------------------------------------------------- cases

_ZERO = Affine.of(0)


@record
class Case:
    """A part of the points, given by constraints, on which an index has an affine `value` (0 for a condition).

    `exact` is False where the constraints leave something out, so that the case may be smaller than it looks.
    """

    constraints: tuple[Constraint, ...]
    value: Affine = _ZERO
    exact: bool = True


def cases_of(expr: Expr, opaque: Opaque) -> list[Case]:
    """Disjoint cases of an integer expression; in each the value is affine over indices, sizes and opaque names."""
    if _splits(expr):
        found = _split(expr, opaque)
        if found is not None and len(found) <= MAX_CASES:
            return found
        return [Case((), Affine.of(opaque.name_of(expr)))]
    form = affine_of(expr, opaque)
    assert form is not None  # with names for what is opaque there is always one
    return [Case((), form)]


def _splits(expr: Expr) -> bool:
    if isinstance(expr, Apply):
        return expr.op.name in _SPLITTING or (expr.dtype is dtypes.int64 and any(map(_splits, expr.args)))
    if not isinstance(expr, Cast) or expr.dtype is not dtypes.int64:
        return False
    return expr.arg.dtype.is_bool or (expr.arg.dtype.is_integer and _splits(expr.arg))


_SPLITTING = ("minimum", "maximum", "abs", "sign", "where")


def _split(expr: Expr, opaque: Opaque) -> list[Case] | None:
    if isinstance(expr, Cast):
        if expr.arg.dtype.is_bool:
            return _choice(expr.arg, [Case((), Affine.of(1))], [Case((), Affine.of(0))], opaque)
        return cases_of(expr.arg, opaque)
    if not isinstance(expr, Apply):
        return None
    name = expr.op.name
    if name == "where":
        return _choice(expr.args[0], cases_of(expr.args[1], opaque), cases_of(expr.args[2], opaque), opaque)
    if name in ("abs", "sign"):
        if expr.dtype is not dtypes.int64:  # the least narrow integer is its own negative
            return None
        return [found for case in cases_of(expr.args[0], opaque) for found in _by_sign(name, case)]
    parts = [cases_of(arg, opaque) for arg in expr.args]
    if len(parts) == 2 and len(parts[0]) * len(parts[1]) > MAX_CASES:
        return None
    if name in ("minimum", "maximum"):
        found = []
        for first in parts[0]:
            for second in parts[1]:
                shared, exact = (*first.constraints, *second.constraints), first.exact and second.exact
                low, high = (first, second) if name == "minimum" else (second, first)
                found.append(Case((*shared, le(low.value, high.value)), first.value, exact))
                found.append(Case((*shared, gt(low.value, high.value)), second.value, exact))
        return [case for case in found if not any(one.is_false for one in case.constraints)]
    # An operation that is affine in its operands once each of them is: rebuilt over names that stand for the cases' values.
    found = []
    for chosen in _products(parts):
        stand = Opaque()
        values: dict[str, Affine | int | str] = {
            stand.name_of(arg): case.value for arg, case in zip(expr.args, chosen, strict=True) if not isinstance(arg, Const)
        }
        form = affine_of(Apply(expr.op, tuple(arg if isinstance(arg, Const) else Index(stand.name_of(arg)) for arg in expr.args)))
        if form is None:
            return None
        constraints = tuple(one for case in chosen for one in case.constraints)
        found.append(Case(constraints, form.substitute(values), all(case.exact for case in chosen)))
    return found


def _products(parts: list[list[Case]]) -> Iterable[tuple[Case, ...]]:
    return ((case,) for case in parts[0]) if len(parts) == 1 else ((a, b) for a in parts[0] for b in parts[1])


def _by_sign(name: str, case: Case) -> list[Case]:
    value = case.value
    if name == "abs":
        return [Case((*case.constraints, ge(value, 0)), value, case.exact), Case((*case.constraints, lt(value, 0)), -value, case.exact)]
    rows = ((gt(value, 0), 1), (eq(value, 0), 0), (lt(value, 0), -1))
    return [Case((*case.constraints, one), Affine.of(sign), case.exact) for one, sign in rows]


def _choice(condition: Expr, then: list[Case], otherwise: list[Case], opaque: Opaque) -> list[Case]:
    found = []
    for holds, branch in ((True, then), (False, otherwise)):
        for guard in cases_where(condition, opaque, holds):
            found += [Case((*guard.constraints, *case.constraints), case.value, guard.exact and case.exact) for case in branch]
    return found


_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq}
_BOTH_SIDES = {"lt": ("maximum", "minimum"), "le": ("maximum", "minimum"), "gt": ("minimum", "maximum"), "ge": ("minimum", "maximum")}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def cases_where(condition: Expr, opaque: Opaque, holds: bool = True) -> list[Case]:
    """Disjoint cases that make up the points at which `condition` holds (or does not); no case where it never does.

    What is not a comparison of integers is a case without constraints that is not exact.
    """
    found = _cases_where(condition, opaque, holds)
    return [Case((), _ZERO, False)] if len(found) > MAX_CASES else found


def _cases_where(condition: Expr, opaque: Opaque, holds: bool) -> list[Case]:
    if isinstance(condition, Const):
        return [Case(())] if bool(condition.value) == holds else []
    unknown = [Case((), _ZERO, False)]
    if not isinstance(condition, Apply):
        return unknown
    name, args = condition.op.name, condition.args
    if name == "invert":
        return cases_where(args[0], opaque, not holds)
    if name in ("and", "or"):
        if (name == "and") == holds:
            return _both(cases_where(args[0], opaque, holds), cases_where(args[1], opaque, holds))
        first = cases_where(args[0], opaque, holds)
        return first + _both(cases_where(args[0], opaque, not holds), cases_where(args[1], opaque, holds))
    if name == "where":
        taken = _both(cases_where(args[0], opaque, True), cases_where(args[1], opaque, holds))
        return taken + _both(cases_where(args[0], opaque, False), cases_where(args[2], opaque, holds))
    if name in ("eq", "ne", "xor") and args[0].dtype.is_bool:
        same = (name == "eq") == holds
        return [
            case
            for first in (True, False)
            for case in _both(cases_where(args[0], opaque, first), cases_where(args[1], opaque, first == same))
        ]
    if name not in _OPPOSITE or not args[0].dtype.is_integer:
        return unknown
    name = name if holds else _OPPOSITE[name]
    for side, extreme in enumerate(_BOTH_SIDES.get(name, ())):
        bounded = args[side]
        if isinstance(bounded, Apply) and bounded.op.name == extreme:  # maximum(a, b) < c says a < c and b < c
            parts = [apply(name, *(part if n == side else arg for n, arg in enumerate(args))) for part in bounded.args]
            return _both(cases_where(parts[0], opaque), cases_where(parts[1], opaque))
    found = []
    for left in cases_of(args[0], opaque):
        for right in cases_of(args[1], opaque):
            shared, exact = (*left.constraints, *right.constraints), left.exact and right.exact
            makers = (lt, gt) if name == "ne" else (_COMPARISONS[name],)
            found += [Case((*shared, make(left.value, right.value)), _ZERO, exact) for make in makers]
    return [case for case in found if not any(one.is_false for one in case.constraints)]


def _both(first: list[Case], second: list[Case]) -> list[Case]:
    return [Case((*a.constraints, *b.constraints), _ZERO, a.exact and b.exact) for a in first for b in second]


def constraints_of(condition: Expr, opaque: Opaque | None = None) -> tuple[tuple[Constraint, ...], bool]:
    """The affine conjuncts of a condition, and whether they are all of it (False: something was left out)."""
    return _plain_constraints(condition) if opaque is None else _constraints(condition, opaque, True)


@lru_cache(maxsize=1 << 13)
def _plain_constraints(condition: Expr) -> tuple[tuple[Constraint, ...], bool]:
    return _constraints(condition, Opaque(), False)


def _constraints(condition: Expr, opaque: Opaque, named: bool) -> tuple[tuple[Constraint, ...], bool]:
    """The conjuncts; unless `named`, one that mentions an opaque name is left out."""
    found: list[Constraint] = []
    exact = True
    for part in conjuncts(condition):
        cases = cases_where(part, opaque)
        if not cases:
            found.append(ge(-1, 0))
        elif len(cases) > 1 or (not named and any(name.startswith("?") for one in cases[0].constraints for name in one.names())):
            exact = False
        else:
            found += cases[0].constraints
            exact = exact and cases[0].exact
    return tuple(found), exact


# ------------------------------------------------------------------------------------------------------- domains


@record
class Region:
    """An integer set over loop indices: `domain`, whether it is `exact` (else it contains the true set), its opaque names."""

    domain: Domain
    exact: bool
    opaque: Opaque


def bound_constraints(index: str, axis: Axis, opaque: Opaque | None = None) -> tuple[tuple[Constraint, ...], bool]:
    """`start <= index < stop` as constraints; a maximum of starts and a minimum of stops give one each."""
    name = Affine.of(index)
    found: list[Constraint] = []
    exact = True
    for start in alternatives(axis.start, "maximum"):
        form = affine_of(start, opaque)
        if form is None:
            exact = False
        else:
            found.append(ge(name, form))
    for stop in alternatives(axis.stop, "minimum"):
        form = affine_of(stop, opaque)
        if form is None:
            exact = False
        else:
            found.append(lt(name, form))
    return tuple(found), exact


def alternatives(expr: Expr, op: str) -> list[Expr]:
    """The bounds of which `expr` is the maximum or minimum: its operands where it is that operation, else itself."""
    if isinstance(expr, Apply) and expr.op.name == op:
        return [e for arg in expr.args for e in alternatives(arg, op)]
    return [expr]


def domain_of(axes: Iterable[Axis], guards: Iterable[Expr] = (), opaque: Opaque | None = None) -> Region:
    """The points of the axes at which all guards hold.

    Sizes are non-negative parameters of the domain; so are opaque names, which may stand for anything. A guard with
    several cases counts where only one of them has points (`i != 0` for i >= 0). What is not affine is left out, and the
    region is then not exact.
    """
    hidden = Opaque() if opaque is None else opaque
    domain, exact, several = _conjunction(tuple(axes), tuple(guards), hidden)
    for cases in several:
        left = [case for case in cases if not with_constraints(domain, case.constraints).is_empty()]
        if len(left) == 1:
            domain = with_constraints(domain, left[0].constraints)
        elif not left:
            domain = Domain.empty(domain.dims, domain.sizes)
        exact = exact and len(left) <= 1 and all(case.exact for case in left)
    return Region(domain, exact and not _mentions_opaque(domain), hidden)


def regions_of(axes: Iterable[Axis], guards: Iterable[Expr] = (), opaque: Opaque | None = None) -> list[Region]:
    """The points of the axes at which all guards hold, in disjoint regions (where there are several, none is empty); see `domain_of`."""
    hidden = Opaque() if opaque is None else opaque
    domain, exact, several = _conjunction(tuple(axes), tuple(guards), hidden)
    found = [(domain, exact)]
    for cases in several:
        if len(found) * len(cases) > MAX_CASES:
            found = [(domain, False) for domain, _ in found]
            continue
        split = [(with_constraints(domain, case.constraints), exact and case.exact) for domain, exact in found for case in cases]
        found = [(domain, exact) for domain, exact in split if not domain.is_empty()]
    return [Region(domain, exact and not _mentions_opaque(domain), hidden) for domain, exact in found]


def _conjunction(axes: tuple[Axis, ...], guards: tuple[Expr, ...], opaque: Opaque) -> tuple[Domain, bool, list[list[Case]]]:
    """The domain of the axes and of those guards that have one case, whether it leaves something out, and the other guards' cases."""
    constraints: list[Constraint] = []
    exact = True
    several: list[list[Case]] = []
    for axis in axes:
        found, whole = bound_constraints(axis.index, axis, opaque)
        constraints.extend(found)
        exact = exact and whole
    for guard in guards:
        for part in conjuncts(guard):
            cases = cases_where(part, opaque)
            if len(cases) == 1:
                constraints.extend(cases[0].constraints)
                exact = exact and cases[0].exact
            else:
                several.append(cases)
    sizes = dict.fromkeys(n for e in _all_expressions(axes, guards) for n in size_names(e))
    constraints.extend(ge(size, 0) for size in sizes)
    return with_constraints(Domain([axis.index for axis in axes], (), sizes=tuple(sizes)), constraints), exact, several


def with_constraints(domain: Domain, constraints: Iterable[Constraint], names: Iterable[str] = ()) -> Domain:
    """The domain under more constraints; names that it does not know yet, in them or in `names`, become sizes."""
    constraints = tuple(constraints)
    known = set(domain.names)
    mentioned = (*(name for one in constraints for name in one.names()), *names)
    new = dict.fromkeys(name for name in mentioned if name not in known)
    if not constraints and not new:
        return domain
    return Domain(domain.dims, (*domain.constraints, *constraints), (*domain.sizes, *new))


def _mentions_opaque(domain: Domain) -> bool:
    return any(name.startswith("?") for name in domain.sizes)


def _all_expressions(axes: Iterable[Axis], guards: Iterable[Expr]) -> Iterable[Expr]:
    for axis in axes:
        yield axis.start
        yield axis.stop
    yield from guards
