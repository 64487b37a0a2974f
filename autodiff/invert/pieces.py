"""Reads whose index is affine only by cases, as disjoint pieces in each of which it is affine.

A minimum, maximum, absolute value, sign or selection in an index, and a disjunction or negation among the guards, is split
into its cases; each case becomes a guard. The pieces are disjoint and together are all points, so every read stands in
exactly one. What depends on data is not split: it stays a condition, or makes the read one that cannot be inverted. What such
a condition says of the indices all the same is made a guard of its own first (`narrowed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr import dtypes
from tensorexpr.autodiff.invert.conditions import condition_of
from tensorexpr.autodiff.invert.turns import turns
from tensorexpr.ir import Access, Apply, Axis, Cast, Expr, apply, conjuncts, const
from tensorexpr.regions import Opaque, affine_of, cases_where, constraints_of, domain_of, expression_of, with_constraints
from tensorexpr.traversal import negate, replaced, size_names, walk

MOST_PIECES = 64

Piece = tuple[tuple[Expr, ...], tuple[Expr, ...]]


def split(
    indices: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis] | None = None
) -> list[Piece] | None:
    """The pieces as (indices, guards), those without points left out; None where there would be too many.

    A read that is affine as it stands is one piece, unchanged. With the axes `target` of the tensor what sizes divide or multiply
    is split too (`turns`).
    """
    done: list[Piece] = []
    open_pieces: list[Piece] = [(tuple(indices), tuple(guards))]
    while open_pieces:
        piece = open_pieces.pop(0)
        cases = _cases(*piece)
        if cases is None and target is not None:
            cases = _turned(piece, axes, target)
        if cases is None:
            done.append(piece)
        else:
            open_pieces = [case for case in cases if not domain_of(axes, case[1]).domain.is_empty()] + open_pieces
        if len(done) + len(open_pieces) > MOST_PIECES:
            return None
    return done


def _cases(indices: tuple[Expr, ...], guards: tuple[Expr, ...]) -> list[Piece] | None:
    """The piece split at its first choice, None where there is none."""
    for at, guard in enumerate(guards):
        if constraints_of(guard)[1]:
            continue
        alternatives = _disjuncts(guard)
        if alternatives is not None:
            return [(indices, (*guards[:at], *parts, *guards[at + 1 :])) for parts in alternatives]
    for node in _choices((*indices, *(g for g in guards if not constraints_of(g)[1]))):
        found = []
        for condition, value in _values(node):
            chosen = {node: value}
            found.append((tuple(replaced(i, chosen) for i in indices), (condition, *(replaced(g, chosen) for g in guards))))
        return found
    return None


def _turned(piece: Piece, axes: Sequence[Axis], target: Sequence[Axis]) -> list[Piece] | None:
    indices, guards = piece
    inexact = [guard for guard in guards if not constraints_of(guard)[1] and not depends_on_data(guard)]
    found = turns((*indices, *inexact), axes, guards, target)
    if found is None:
        return None
    cases = []
    for conditions, chosen in found:
        moved = tuple(replaced(index, chosen) for index in indices)
        cases.append((moved, (*conditions, *(replaced(guard, chosen) for guard in guards))))
    return cases


def narrowed(axes: Sequence[Axis], guards: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """The guards with what those that depend on data say of indices and sizes alone, as further guards; None where they never hold.

    Only a guard that is left one case by the others says anything: `i < 2 and data or i > 7` for i < 5 says i < 2.
    """
    parts = [part for guard in guards for part in conjuncts(guard)]
    if not any(map(depends_on_data, parts)):
        return tuple(guards)
    domain = domain_of(axes, [part for part in parts if not depends_on_data(part)]).domain
    sizes = {name for e in (*parts, *(end for axis in axes for end in (axis.start, axis.stop))) for name in size_names(e)}
    found: list[Expr] = []
    for part in parts:
        found.append(part)
        if not depends_on_data(part):
            continue
        opaque = Opaque()
        cases = cases_where(part, opaque)
        hidden = set(opaque.names.values())
        known = dict.fromkeys(tuple(one for one in case.constraints if hidden.isdisjoint(one.names())) for case in cases)
        left = [constraints for constraints in known if not constraints or not with_constraints(domain, constraints).is_empty()]
        if not left:
            return None
        if len(left) == 1 and left[0]:
            domain = with_constraints(domain, left[0])
            found += [condition_of(one, lambda form: expression_of(form, sizes)) for one in left[0]]
    return tuple(dict.fromkeys(found))


def _choices(exprs: Iterable[Expr]) -> list[Expr]:
    """The choices to be made next: innermost ones, those with affine conditions first, in order; none that depends on data."""
    affine, other = [], []
    for expr in exprs:
        for node in walk(expr):
            cases = _values(node)
            if cases and all(affine_of(value) is not None for _, value in cases):
                if all(constraints_of(condition)[1] for condition, _ in cases):
                    affine.append(node)
                elif not any(depends_on_data(condition) for condition, _ in cases):
                    other.append(node)
    return affine + other


def depends_on_data(expr: Expr) -> bool:
    """Whether an expression is about more than indices and sizes."""
    return any(isinstance(node, Access) or node.dtype.is_float for node in walk(expr))


def _values(node: Expr) -> list[tuple[Expr, Expr]]:
    """The cases of a choice between integers as (condition, value)."""
    zero = const(0)
    if isinstance(node, Cast) and node.dtype is dtypes.int64 and node.arg.dtype.is_bool:
        return [(node.arg, const(1)), (negate(node.arg), zero)]
    if not isinstance(node, Apply) or node.dtype is not dtypes.int64:
        return []
    match node.op.name:
        case "minimum" | "maximum":
            a, b = node.args
            first, second = ("le", "gt") if node.op.name == "minimum" else ("ge", "lt")
            return [(apply(first, a, b), a), (apply(second, a, b), b)]
        case "abs":
            (a,) = node.args
            return [(apply("ge", a, zero), a), (apply("lt", a, zero), apply("neg", a))]
        case "sign":
            (a,) = node.args
            return [(apply("gt", a, zero), const(1)), (apply("eq", a, zero), zero), (apply("lt", a, zero), const(-1))]
        case "where":
            condition, a, b = node.args
            return [(condition, a), (negate(condition), b)]
    return []


def _disjuncts(guard: Expr) -> list[tuple[Expr, ...]] | None:
    """Disjoint alternatives that together are a guard over indices, None where it is none or depends on data."""
    if not isinstance(guard, Apply) or depends_on_data(guard):
        return None
    match guard.op.name:
        case "and":
            return [tuple(conjuncts(guard))]
        case "or":
            a, b = guard.args
            return [(a,), (negate(a), b)]
        case "xor":
            a, b = guard.args
            return [(a, negate(b)), (negate(a), b)]
        case "ne" if guard.args[0].dtype.is_bool:
            return _disjuncts(apply("xor", *guard.args))
        case "eq" if guard.args[0].dtype.is_bool:
            a, b = guard.args
            return [(a, b), (negate(a), negate(b))]
        case "ne" if guard.args[0].dtype.is_integer:
            return [(apply("lt", *guard.args),), (apply("gt", *guard.args),)]
        case "invert":
            inner = guard.args[0]
            if isinstance(inner, Apply) and inner.op.name == "and":
                a, b = inner.args
                return [(negate(a),), (a, negate(b))]
            if isinstance(inner, Apply) and inner.op.name == "or":
                return [tuple(negate(part) for part in inner.args)]
            if isinstance(inner, Apply) and inner.op.name in ("xor", "eq", "ne"):
                other = {"xor": "eq", "eq": "ne", "ne": "eq"}[inner.op.name]
                return [(apply(other, *inner.args),)]
    return None
