"""Reductions over no more points than count: guards become bounds of axes, determined axes go away.

``sum(e for k in range(n) if k <= i)`` runs to ``minimum(n, i + 1)``; ``sum(e for k in range(n) if k == i)`` is ``e`` at k = i;
``if (k + i) % 2 == 0`` makes an axis over every second point. A term that is the combiner's identity under a condition
moves the condition into the reduction first, and what does not depend on its axes is asked once, around it.
An axis that other axes of the reduction say through data goes away, too: ``sum(e for k for i in range(n) if i == t[k])``.

Only guards over index arithmetic move otherwise. Points keep their order, so every combiner sees the same values in the same order;
a sum of one term is that term (the sign of a zero apart, as a sum starts from 0). argmax and argmin number their points
by their axes and keep them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorexpr.integers import Affine, Constraint, Domain, DomainTooComplex, FloorDiv, le
from tensorexpr.integers.sets.loops import Bounds
from tensorexpr.ir import FALSE, TRUE, Apply, Axis, Cast, Const, Expr, Index, Reduce, Scatter, apply, conjunction, conjuncts, const
from tensorexpr.records import record, replace
from tensorexpr.regions import alternatives, bound_constraints
from tensorexpr.simplify.facts.conditions import condition_of, disjuncts
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.facts.indices import expression
from tensorexpr.simplify.rules.common import fold_constants, reads_nothing
from tensorexpr.simplify.rules.reduce import identity, identity_value
from tensorexpr.traversal import free_names, negate, rename_bound, substitute, walk


@record
class Nest:
    """Axes with a condition, and the indices that became functions of the others.

    `reading` holds the conditions that read tensors: with `where` not empty they may only be evaluated where it holds, as
    they were simplified for the points of the former axes.
    """

    axes: tuple[Axis, ...]
    where: tuple[Expr, ...]
    reading: tuple[Expr, ...]
    replaced: dict[str, Expr]


def narrowed(expr: Reduce, context: Context) -> Expr:
    """The reduction over as few points as its conditions allow, in a context; the same object when there is nothing to gain."""
    counted = _counted(expr, context)
    if counted is not None:
        return counted
    lifted = _outside(_with_condition_of_value(expr), context)
    if isinstance(lifted, Reduce) and lifted.combiner.is_builtin and lifted.combiner.name in ("argmax", "argmin"):
        return lifted
    if not isinstance(lifted, Reduce) or lifted.where is None:
        return lifted
    nest = narrow_axes(lifted.axes, tuple(conjuncts(lifted.where)), context)
    if nest is None:
        return _at_keys(lifted) or lifted
    if FALSE in nest.where:
        return identity(lifted)
    values = tuple(substitute(v, nest.replaced) for v in lifted.values)
    where, reading = conjunction(nest.where), conjunction(nest.reading)
    if reading != TRUE and where != TRUE:
        if not lifted.combiner.is_builtin:
            return lifted
        values = (apply("where", reading, values[0], identity_value(lifted.combiner.name, values[0].dtype)),)
    elif reading != TRUE:
        where = reading
    if not nest.axes:
        return apply("where", where, values[0], identity(lifted)) if lifted.combiner.is_builtin else lifted
    return replace(lifted, axes=nest.axes, where=None if where == TRUE else where, values=values)


def _counted(expr: Reduce, context: Context) -> Expr | None:
    """sum(cast(c) for k) -> sum(1 for k if c), where conditions leave a range of points, or one"""
    value = expr.values[0]
    if expr.combiner.name != "sum" or not expr.combiner.is_builtin or expr.where is not None:
        return None
    if not isinstance(value, Cast) or not value.arg.dtype.is_bool:
        return None
    found = narrowed(replace(expr, values=(Const(1, value.dtype),), where=value.arg), context)
    return None if any(isinstance(n, Reduce) and n.where is not None for n in walk(found)) else found


def _at_keys(expr: Reduce) -> Expr | None:
    """sum(e(k, i) for k for i in range(n) if i == t[k]) -> sum(e(k, t[k]) for k if t[k] >= 0 and t[k] < n); None without such an i"""
    condition = expr.where
    if not expr.combiner.is_builtin or not isinstance(condition, Apply) or condition.op.name != "eq":
        return None
    for at, axis in enumerate(expr.axes):
        before, after = {a.index for a in expr.axes[:at]}, expr.axes[at + 1 :]
        if not reads_nothing(axis.start) or not reads_nothing(axis.stop):
            continue
        if any(axis.index in free_names(e) for a in after for e in (a.start, a.stop)):
            continue
        for index, key in (condition.args, condition.args[::-1]):
            named = set(free_names(key))
            if index == Index(axis.index) and not before.isdisjoint(named) and named.isdisjoint((axis.index, *(a.index for a in after))):
                inside = conjunction([apply("ge", key, axis.start), apply("lt", key, axis.stop)])
                values = tuple(substitute(rename_bound(v, named), {axis.index: key}) for v in expr.values)
                return replace(expr, axes=(*expr.axes[:at], *after), where=inside, values=values)
    return None


# ---------------------------------------------------------------------------------------------------- moving conditions


def _with_condition_of_value(expr: Reduce) -> Reduce:
    """sum(where(c, e, 0) for ...) -> sum(e for ... if c), for every combiner with its identity, through casts and minus signs of a sum"""
    if not expr.combiner.is_builtin or expr.combiner.name in ("argmax", "argmin"):
        return expr
    value, casts = expr.values[0], []
    while isinstance(value, Cast) and expr.combiner.name == "sum" and not value.arg.dtype.is_bool:
        casts.append(value.dtype)
        value = value.arg
    found = _condition_and_term(value, expr.combiner.name)
    if found is None:
        return expr
    condition, term = found
    # A condition that reads may not be evaluated where the one that is there already fails.
    moving = [c for c in conjuncts(condition) if expr.where is None or reads_nothing(c)]
    staying = [c for c in conjuncts(condition) if c not in moving]
    if not moving:
        return expr
    if staying:
        term = apply("where", conjunction(staying), term, identity_value(expr.combiner.name, term.dtype))
    for dtype in reversed(casts):
        term = Cast(dtype, term)
    where = conjunction([*conjuncts(expr.where), *moving])
    return replace(expr, values=(term,), where=where)


def _condition_and_term(value: Expr, combiner: str) -> tuple[Expr, Expr] | None:
    if not isinstance(value, Apply):
        return None
    if value.op.name == "where":
        condition, taken, otherwise = value.args
        if _is_identity(otherwise, combiner):
            return condition, taken
        if _is_identity(taken, combiner):
            return negate(condition), otherwise
    if combiner == "sum" and value.op.name == "neg":
        found = _condition_and_term(value.args[0], combiner)  # neither zero changes a sum, which starts from 0.0
        return None if found is None else (found[0], apply("neg", found[1]))
    if combiner == "any" and value.op.name == "and":
        parts = list(conjuncts(value))
        moving = [p for p in parts if reads_nothing(p)]
        if moving:
            return conjunction(moving), conjunction([p for p in parts if p not in moving])
    return None


def _is_identity(expr: Expr, combiner: str) -> bool:
    neutral = identity_value(combiner, expr.dtype)
    return expr == neutral or (combiner == "sum" and isinstance(expr, Const) and expr.value == 0)


def _outside(expr: Reduce, context: Context) -> Expr:
    """sum(e for k in range(n) if c and d) -> where(c, sum(e for k in range(n) if d), 0), where c does not depend on k"""
    if expr.where is None:
        return expr
    own = {axis.index for axis in expr.axes}
    free = [c for c in conjuncts(expr.where) if own.isdisjoint(free_names(c)) and context.harmless(c)]
    if not free:
        return expr
    rest = [c for c in conjuncts(expr.where) if c not in free]
    return apply("where", conjunction(free), replace(expr, where=conjunction(rest) if rest else None), identity(expr))


def without_idle_guards(expr: Apply, context: Context, signed_zeros: bool = True) -> Expr:
    """where(c and d, sum(e for k in range(a, b)), 0) -> where(d, sum(e for k in range(a, b)), 0), where there is no k unless c

    Also around sums that are added, negated and scaled by literals. What all of that gives over nothing has to be the other branch: the
    same zero. The outermost loops have to be the empty ones: where they go round in vain, asking the condition costs less.
    """
    condition, taken, otherwise = expr.args
    if not isinstance(otherwise, Const) or not any(isinstance(node, Reduce) for node in _summed(taken)):
        return expr
    parts = kept = list(conjuncts(condition))
    for part in parts:
        others = [other for other in kept if other is not part]
        if reads_nothing(part) and all(
            _is_idle(taken, otherwise, context.assuming([*others, side]), signed_zeros) for side in _failing(part)
        ):
            kept = others
    if len(kept) == len(parts):
        return expr
    return apply("where", conjunction(kept), taken, otherwise) if kept else taken


def _is_idle(taken: Expr, otherwise: Const, context: Context, signed_zeros: bool) -> bool:
    found = _over_nothing(taken, context)
    return found == otherwise or (found is not None and found.value == otherwise.value == 0 and not signed_zeros)


def _failing(condition: Expr) -> tuple[Expr, ...]:
    """Conditions one of which holds where `condition` does not."""
    if isinstance(condition, Apply) and condition.op.name == "eq" and condition.args[0].dtype.is_integer:
        return apply("lt", *condition.args), apply("gt", *condition.args)
    return (conjunction([negate(part) for part in disjuncts(condition)]),)


_SUMMED = ("neg", "add", "sub", "mul", "div")


def _summed(expr: Expr) -> Iterator[Expr]:
    """What is added up in an expression, and what it is multiplied by."""
    yield expr
    if isinstance(expr, Apply) and expr.op.name in _SUMMED:
        for arg in expr.args:
            yield from _summed(arg)


def _over_nothing(expr: Expr, context: Context) -> Const | None:
    """The value where all reductions in it are over nothing, None where they are not or more than literals stands beside them."""
    match expr:
        case Const():
            return expr
        case Reduce() if expr.axes and expr.combiner.is_builtin:
            first = expr.axes[0]
            idle = context.harmless(first.start) and context.harmless(first.stop) and context.inside(first).is_empty()
            return identity(expr) if idle else None
        case Apply() if expr.op.name in _SUMMED:
            args = [found for arg in expr.args if (found := _over_nothing(arg, context)) is not None]
            folded = fold_constants(Apply(expr.op, tuple(args))) if len(args) == len(expr.args) else None
            return folded if isinstance(folded, Const) else None
    return None


# ---------------------------------------------------------------------------------------------------- residue classes

MOST_CLASSES = 4


def residue_classes(expr: Reduce, context: Context) -> list[Expr] | None:
    """The terms of a sum over a short window by residue class, where conditions inside test the residue: each has at most one point.

    ``sum(where(k % 2 == 0, a, b) for k in range(2*i, 2*i + 2))`` is a at k = 2*i and b at k = 2*i + 1. None where there is no such
    condition, or a class is no point in closed form. The terms add up to the same in another order.
    """
    if expr.combiner.name != "sum" or not expr.combiner.is_builtin or len(expr.axes) != 1:
        return None
    (axis,) = expr.axes
    found = {n for node in walk(expr.values[0]) if isinstance(node, Apply) and node.op.name == "where" for n in _tested(node.args[0], axis)}
    if len(found) != 1:
        return None
    (modulus,) = found
    widths = [(a, b) for a in alternatives(axis.start, "maximum") for b in alternatives(axis.stop, "minimum")]
    arithmetic = context.arithmetic
    if not any(context.implies(le(arithmetic.form(b) - arithmetic.form(a), modulus)) for a, b in widths):
        return None
    residue = apply("mod", Index(axis.index), const(modulus))
    wheres = [conjunction([*conjuncts(expr.where), apply("eq", residue, const(r))]) for r in range(modulus)]
    terms = [narrowed(replace(expr, where=where), context) for where in wheres]
    loops = {own.index for term in terms for node in walk(term) if isinstance(node, Reduce) for own in node.axes}
    return None if axis.index in loops else terms


def _tested(condition: Expr, axis: Axis) -> set[int]:
    """The moduli by which a condition tests an axis alone."""
    found = set()
    for node in walk(condition):
        if not isinstance(node, Apply) or node.op.name != "mod" or not node.dtype.is_integer:
            continue
        if isinstance(node.args[1], Const) and set(free_names(node)) == {axis.index}:
            found.add(int(node.args[1].value))
    return {modulus for modulus in found if 1 < modulus <= MOST_CLASSES}


# ----------------------------------------------------------------------------------------------------------- narrowing


def narrow_axes(axes: tuple[Axis, ...], conditions: Sequence[Expr], context: Context) -> Nest | None:
    """Axes and conditions that visit the same points in the same order, None where nothing is gained.

    The points of the result may be fewer than those of `axes` only where a condition fails; `replaced` gives the indices that
    are no longer axes, and those that now count something else, as expressions over the new axes.
    """
    own = tuple(axis.index for axis in axes)
    usable: list[Constraint] = []
    rest: list[Expr] = []
    for condition in conditions:
        found = context.arithmetic.constraints(condition)
        if found is not None and all(_usable(c, own, context) for c in found) and any(n in own for c in found for n in c.names()):
            usable.extend(found)
        else:
            rest.append(condition)
    if not usable:
        return None
    bounds: list[Constraint] = []
    for axis in axes:
        found, whole = bound_constraints(axis.index, axis, context.arithmetic.opaque)
        if not whole or not all(_usable(c, own, context) for c in found):
            return None
        bounds.extend(found)
    try:
        return _Narrowing(axes, context).run([*bounds, *usable], rest)
    except DomainTooComplex:
        return None


def _usable(constraint: Constraint, own: tuple[str, ...], context: Context) -> bool:
    """Whether a constraint speaks of the axes only as names: opaque expressions in it can be evaluated outside of them."""
    hidden = [context.arithmetic.opaque.expression(n) for n in constraint.names()]
    return all(e is None or (set(own).isdisjoint(free_names(e)) and context.harmless(e)) for e in hidden)


class _Narrowing:
    """One nest of axes being narrowed: constraints and values change together."""

    def __init__(self, axes: tuple[Axis, ...], context: Context) -> None:
        self.axes = axes
        self.own = [axis.index for axis in axes]
        self.context = context
        self.values: dict[str, Affine] = {}
        self.gone: dict[str, Affine] = {}

    def run(self, constraints: list[Constraint], rest: list[Expr]) -> Nest | None:
        constraints = self._substitute_equalities(self._stride(constraints))
        known = self.context.domain(dict.fromkeys(n for c in constraints for n in c.names() if n not in self.own))
        domain = Domain(self.own, constraints, known.sizes)
        context = Domain(self.own, known.constraints, known.sizes)
        if domain.intersect(context).is_empty():
            return Nest((), (FALSE,), (), {})
        loops = domain.loops(self.own, context)
        return self._nest(loops, rest)

    def _nest(self, loops: list[Bounds], rest: list[Expr]) -> Nest | None:
        axes: list[Axis] = []
        guards: list[Expr] = []
        context = self.context
        for loop in loops:
            if loop.value is not None:
                value = loop.value.substitute(self.gone)
                self._replace(loop.name, value)
                self.gone[loop.name] = value
            else:
                axis = self._axis(loop, context)
                if axis is None:
                    return None
                axes.append(axis)
                context = context.inside(axis)
            for guard in loop.guards:
                condition = condition_of(guard.substitute(self.gone), context)
                if condition is None:
                    return None
                guards.append(condition)
        replaced: dict[str, Expr] = {}
        for name, value in self.values.items():
            found = expression(value, context)
            if found is None:
                return None
            replaced[name] = found
        left = [substitute(c, replaced) for c in rest]
        plain = [c for c in left if reads_nothing(c)]
        return Nest(tuple(axes), (*guards, *plain), tuple(c for c in left if c not in plain), replaced)

    def _axis(self, loop: Bounds, context: Context) -> Axis | None:
        lowers = [expression(-(-e.substitute(self.gone) // d), context) for e, d in loop.lowers]
        uppers = [expression(e.substitute(self.gone) // d + 1, context) for e, d in loop.uppers]
        starts, stops = ([e for e in ends if e is not None] for ends in (lowers, uppers))
        if not starts or not stops or len(starts) < len(lowers) or len(stops) < len(uppers):
            return None
        start, stop = starts[0], stops[0]
        for other in starts[1:]:
            start = apply("maximum", start, other)
        for other in stops[1:]:
            stop = apply("minimum", stop, other)
        return Axis(loop.name, start, stop)

    def _replace(self, name: str, value: Affine) -> None:
        self.values = {n: v.substitute({name: value}) for n, v in self.values.items()}
        if name not in self.values:
            self.values[name] = value

    def _stride(self, constraints: list[Constraint]) -> list[Constraint]:
        """``(k + e) % m == r``, k the innermost index in it: k becomes ``m*k + r - e``, an axis over every m-th point."""
        for constraint in constraints:
            found = self._every(constraint)
            if found is None:
                continue
            name, value = found
            self._replace(name, value)
            return self._stride([c.substitute({name: value}) for c in constraints])
        return constraints

    def _every(self, constraint: Constraint) -> tuple[str, Affine] | None:
        if not constraint.is_equality:
            return None
        divisions = [(a, f) for a, f in constraint.expr.terms if isinstance(a, FloorDiv)]
        if len(divisions) != 1 or abs(divisions[0][1]) != divisions[0][0].denominator:
            return None
        atom, factor = divisions[0]
        sign = -1 if factor > 0 else 1
        rest = constraint.expr * sign + Affine.of(atom) * atom.denominator - atom.numerator
        # Now numerator % m + rest == 0, with a constant rest.
        if not rest.is_constant:
            return None
        inside = [n for n in self.own if n in atom.numerator.names()]
        if not inside or abs(atom.numerator.coefficient(inside[-1])) != 1:
            return None
        name = inside[-1]
        own = atom.numerator.coefficient(name)
        others = atom.numerator - Affine({name: own})
        if name in others.names():
            return None
        # own*k + others = m*q - rest; for own = -1, counting q downward keeps the order of the points.
        return name, (Affine.of(-rest.constant) - others) * own + Affine({name: atom.denominator})

    def _substitute_equalities(self, constraints: list[Constraint]) -> list[Constraint]:
        """``2*j == k`` with k outside j: k goes, being increasing in j, where `loops` would only find j with a remainder."""
        for constraint in constraints:
            if not constraint.is_equality or constraint.expr.has_division():
                continue
            inside = [n for n in self.own if constraint.expr.coefficient(n)]
            if len(inside) < 2 or abs(constraint.expr.coefficient(inside[-1])) == 1:
                continue
            outer, inner = inside[-2:]
            factor = constraint.expr.coefficient(outer)
            value = (constraint.expr - Affine({outer: factor})) * -factor
            between = self.own[self.own.index(outer) + 1 : self.own.index(inner)]
            if abs(factor) != 1 or value.coefficient(inner) < 0 or between:
                continue
            self.own.remove(outer)
            self._replace(outer, value)  # no bound that `loops` gives mentions it any more
            return self._substitute_equalities([c.substitute({outer: value}) for c in constraints])
        return constraints


def narrowed_scatter(scatter: Scatter, context: Context) -> Scatter:
    """The scatter over as few points as its conditions allow; a value that is the identity of its combiner moves no element."""
    found = _condition_and_term(scatter.value, scatter.combine)
    if found is not None and (scatter.where is None or reads_nothing(found[0])):
        where = conjunction([*conjuncts(scatter.where), *conjuncts(found[0])])
        scatter = replace(scatter, where=where, value=found[1])
    nest = narrow_axes(scatter.axes, tuple(conjuncts(scatter.where)), context)
    if nest is None or (nest.where and nest.reading):
        return scatter
    indices = tuple(substitute(e, nest.replaced) for e in scatter.indices)
    where = conjunction([*nest.where, *nest.reading])
    guard, value = None if where == TRUE else where, substitute(scatter.value, nest.replaced)
    changed = replace(scatter, axes=nest.axes, indices=indices, where=guard, value=value)
    return scatter if changed == scatter else changed
