"""The bridge between scalar expressions and integer sets: affine forms of indices, domains of loops and guards.

`affine_of` reads an int64 expression as a quasi-affine form (sums, products with constants, floor division and modulo by
positive constants); what is not (products of sizes, data-dependent indices, min and max) can become an opaque name, so
that proofs go on with what is known around it. `expression_of` goes back. `domain_of` makes the integer set of a
nest of axes and guards; guards that are not affine are left out (the set is then an over-approximation, and says so).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensorexpr import dtypes
from tensorexpr.integers import Affine, Constraint, Domain, FloorDiv, eq, ge, gt, le, lt
from tensorexpr.ir import Apply, Axis, Cast, Const, Expr, Index, Size, apply, conjuncts, const
from tensorexpr.traversal import size_names


@dataclass(slots=True)
class Opaque:
    """Names given to integer expressions that are not affine: equal expressions get one name (`?0`, `?1`, ...)."""

    names: dict[Expr, str] = field(default_factory=dict)

    def name_of(self, expr: Expr) -> str:
        return self.names.setdefault(expr, f"?{len(self.names)}")

    @property
    def expressions(self) -> dict[str, Expr]:
        return {name: expr for expr, name in self.names.items()}


def affine_of(expr: Expr, opaque: Opaque | None = None) -> Affine | None:
    """The quasi-affine form of an integer expression, or None where it has none and `opaque` is not given."""
    match expr:
        case Const() if expr.dtype.is_integer:
            return Affine.of(int(expr.value))
        case Index() | Size():
            return Affine.of(expr.name)
        case Cast() if expr.dtype is dtypes.int64 and isinstance(expr.arg, Const) and expr.arg.dtype.is_integer:
            return Affine.of(int(expr.arg.value))
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
    if name not in ("add", "sub", "mul", "floordiv", "mod"):
        return None
    left, right = affine_of(expr.args[0], opaque), affine_of(expr.args[1], opaque)
    if left is None or right is None:
        return None
    if name == "add":
        return left + right
    if name == "sub":
        return left - right
    if name == "mul":
        if right.is_constant:
            return left * right.constant
        return right * left.constant if left.is_constant else None
    if not right.is_constant or right.constant <= 0:
        return None
    return left // right.constant if name == "floordiv" else left % right.constant


def expression_of(affine: Affine, sizes: Iterable[str] = (), opaque: Opaque | None = None) -> Expr:
    """The int64 expression of an affine form: names in `sizes` become sizes, opaque names their expressions, others indices.

    Terms with positive coefficients come first, then the rest, then the constant; `c*e - c*m*(e // m)` prints as a modulo.
    """
    known = set(sizes)
    hidden = {} if opaque is None else opaque.expressions

    def atom(a: str | FloorDiv) -> Expr:
        if isinstance(a, FloorDiv):
            return apply("floordiv", build(a.numerator), const(a.denominator))
        if a in hidden:
            return hidden[a]
        return Size(a) if a in known else Index(a)

    def times(factor: Expr, size: int) -> Expr:
        return factor if size == 1 else apply("mul", factor, const(size))

    def build(form: Affine) -> Expr:
        form, modulos = _split_modulos(form)
        positive = [times(atom(t), c) for t, c in form.terms if c > 0]
        positive += [times(apply("mod", build(e), const(m)), c) for e, m, c in modulos]
        negative = [times(atom(t), -c) for t, c in form.terms if c < 0]
        constant = form.constant
        if not positive:
            if constant > 0 or not negative:
                positive, constant = [const(constant)], 0
            else:
                positive = [apply("neg", negative.pop(0))]
        result = positive[0]
        for item in positive[1:]:
            result = apply("add", result, item)
        for item in negative:
            result = apply("sub", result, item)
        if constant:
            result = apply("add" if constant > 0 else "sub", result, const(abs(constant)))
        return result

    return build(affine)


def _split_modulos(form: Affine) -> tuple[Affine, list[tuple[Affine, int, int]]]:
    """Splits off the terms c * (e % m), c > 0, that appear as c*e - c*m*(e // m); gives the rest and the (e, m, c)."""
    modulos: list[tuple[Affine, int, int]] = []
    for term, coefficient in form.terms:
        if not isinstance(term, FloorDiv) or coefficient >= 0 or coefficient % term.denominator:
            continue
        factor = -coefficient // term.denominator
        rest = form - term.numerator * factor
        # Only where the dividend really stands there: taking it out must not leave more terms than before.
        if len(rest.terms) <= len(form.terms) - sum(1 for t, _ in term.numerator.terms if form.coefficient(t)) and term.numerator.terms:
            modulos.append((term.numerator, term.denominator, factor))
            form = rest + Affine.of(0) - Affine({term: coefficient}, 0)
    return form, modulos


_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq}


def constraints_of(condition: Expr, opaque: Opaque | None = None) -> tuple[tuple[Constraint, ...], bool]:
    """The affine conjuncts of a condition, and whether they are all of it (False: something was left out)."""
    found: list[Constraint] = []
    exact = True
    for part in conjuncts(condition):
        make = _COMPARISONS.get(part.op.name) if isinstance(part, Apply) else None
        sides = tuple(affine_of(a, opaque) for a in part.args) if make is not None and isinstance(part, Apply) else (None,)
        if make is None or None in sides or not part.args[0].dtype.is_integer:  # type: ignore[union-attr]
            if isinstance(part, Const) and part.value is False:
                found.append(ge(-1, 0))
            else:
                exact = False
            continue
        found.append(make(*sides))  # type: ignore[arg-type]
    return tuple(found), exact


@dataclass(frozen=True, slots=True)
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
    for start in _alternatives(axis.start, "maximum"):
        form = affine_of(start, opaque)
        if form is None:
            exact = False
        else:
            found.append(ge(name, form))
    for stop in _alternatives(axis.stop, "minimum"):
        form = affine_of(stop, opaque)
        if form is None:
            exact = False
        else:
            found.append(lt(name, form))
    return tuple(found), exact


def _alternatives(expr: Expr, op: str) -> list[Expr]:
    if isinstance(expr, Apply) and expr.op.name == op:
        return [e for arg in expr.args for e in _alternatives(arg, op)]
    return [expr]


def domain_of(axes: Iterable[Axis], guards: Iterable[Expr] = (), opaque: Opaque | None = None) -> Region:
    """The points of the axes at which all guards hold.

    Sizes are non-negative parameters of the domain; so are opaque names, which may stand for anything. What is not
    affine is left out, and the region is then not exact.
    """
    hidden = Opaque() if opaque is None else opaque
    axes = tuple(axes)
    constraints: list[Constraint] = []
    exact = True
    for axis in axes:
        found, whole = bound_constraints(axis.index, axis, hidden)
        constraints.extend(found)
        exact = exact and whole
    for guard in guards:
        found, whole = constraints_of(guard, hidden)
        constraints.extend(found)
        exact = exact and whole
    sizes = dict.fromkeys(n for e in _all_expressions(axes, guards) for n in size_names(e))
    dims = [axis.index for axis in axes]
    mentioned = dict.fromkeys(n for c in constraints for n in c.expr.names())
    free = [n for n in mentioned if n not in dims and n not in sizes]
    constraints.extend(ge(size, 0) for size in sizes)
    return Region(Domain(dims, constraints, sizes=(*sizes, *free)), exact and not hidden.names, hidden)


def _all_expressions(axes: Iterable[Axis], guards: Iterable[Expr]) -> Iterable[Expr]:
    for axis in axes:
        yield axis.start
        yield axis.stop
    yield from guards
