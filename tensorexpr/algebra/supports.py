"""Weights that are nothing outside of a mask over indices are summed inside of it, and computed there alone.

    s[i, j] = where(j // 32 == i // 32, x[i, j], -inf);   m[i] = max(s[i, j] for j);   e[i, j] = exp(s[i, j] - m[i])
    -->   m[i] = max(x[i, j] for j if j // 32 == i // 32);   sum(e[i, j] * v[j, r] for j)  -->  the same sum for j if j // 32 == i // 32

Attention masked by a band, by blocks or by every so many places, however the mask is said: by `where`, by adding -inf (or a number from
`LEAST` on down), by a product with 0 and 1, by a tensor of truth values that index arithmetic gives. The simplifier makes ranges of such
conditions. A tensor that is read inside of its mask alone then loses its test.

A definition is *supported* by a condition where it is 0, or -inf, outside. Sums of supported weights (exponentials of what is -inf outside)
and maxima over what is -inf are narrowed, where each row and each column of the mask have a place in it. One liberty is taken: a weight
that is 0 takes no part in a sum, also where what it multiplies is infinite or NaN, nor where its row is NaN and it is summed along the
columns. In derivatives every supported factor counts: what was not read has no derivative.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf

from tensorexpr.bounds import PROVED, check_access, implied
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
    TensorType,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify import simplify_expr
from tensorexpr.simplify.passes.amounts import part_of
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import (
    bottom_up,
    children,
    free_names,
    map_children,
    map_expressions,
    negate,
    read_occurrences,
    reads,
    substitute,
    walk,
)

SHARE = 0.4
"""The largest part of all points that a mask may let through: what is left out has to be more than what ranges of many lengths cost
(a triangle of 512 takes 1.3 times as long as the whole square, one of 256 is level)."""
COMPARISONS = ("eq", "le", "lt", "ge", "gt")


@record
class Support:
    """Where a value is something else than `outside` (0 or -inf), and what it is there; whether it is a weight, and the names of its axes
    where it is a tensor."""

    condition: tuple[Expr, ...]
    inside: Expr
    outside: float
    weight: bool = False
    names: tuple[str, ...] = ()


def with_supports(program: Program) -> Program:
    """The program with sums of weights, and maxima, inside of masks, and without tests where nobody reads what is outside.

    Requires: a simplified program. Ensures: every value is kept where what is read is finite.
    """
    supports = supports_of(program.definitions)
    if not supports:
        return program
    masks = _masks(program.definitions)
    written = [map_expressions(d, lambda e: _with_masks(e, masks)) if masks else d for d in program.definitions]
    return _without_tests(with_definitions(program, narrowed_to(written, supports)), supports)


def supports_of(definitions: Sequence[Definition]) -> dict[str, Support]:
    """The supported definitions, of masks that it pays to keep to."""
    masks = _masks(definitions)
    found: dict[str, Support] = {}
    for d in definitions:
        if isinstance(d, Define) and all(a.start == const(0) for a in d.axes):
            support = _of(d.value, found, masks) if d.value.dtype.is_float else None
            if support is not None and _pays(support.condition, d.axes, d.axes):
                found[d.name] = replace(support, names=tuple(a.index for a in d.axes))
    return found


def _masks(definitions: Sequence[Definition]) -> dict[str, Define]:
    """The tensors of truth values that are made of indices alone."""
    return {d.name: d for d in definitions if isinstance(d, Define) and d.value.dtype.is_bool and all(map(_is_pure, children(d.value)))}


def _with_masks(e: Expr, masks: Mapping[str, Define]) -> Expr:
    """An expression that reads no tensors of such truth values."""

    def written(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in masks:
            source = masks[node.tensor]
            return substitute(source.value, {a.index: i for a, i in zip(source.axes, node.indices, strict=True)})
        return node

    return bottom_up(e, written) if masks else e


def narrowed_to(definitions: Sequence[Definition], supports: Mapping[str, Support], derived: bool = False) -> Iterator[Definition]:
    """The definitions with sums and maxima of supported values inside of their masks; of what is `derived`, all products with them."""
    for d in definitions:
        if isinstance(d, Define) and supports and any(isinstance(n, Reduce) for n in walk(d.value)):
            value = _narrowed(d.value, d.axes, supports, derived)
            d = d if value is d.value else replace(d, value=value)
        yield d


def _narrowed(e: Expr, around: tuple[Axis, ...], supports: Mapping[str, Support], derived: bool) -> Expr:
    if isinstance(e, Access) or not children(e):
        return e
    inner = (*around, *e.axes) if isinstance(e, Reduce) else around
    e = map_children(e, lambda child: _narrowed(child, inner, supports, derived))
    if not isinstance(e, Reduce) or not e.combiner.is_builtin or e.combiner.name not in ("sum", "max"):
        return e
    own, there = {a.index for a in e.axes}, tuple(_with_quotients(list(conjuncts(e.where))))
    support = _of(e.values[0], supports, {})
    more: tuple[Expr, ...] = ()
    fits = support is not None and (e.combiner.name == "max") == (support.outside < 0)
    if support is not None and fits and (support.outside < 0 or derived or support.weight or isinstance(e.values[0], Access)):
        more = tuple(c for c in support.condition if not own.isdisjoint(free_names(c)) and not implied(c, inner, there))
        more = more if more and _pays(more, inner, e.axes) else ()
    if not more and there == tuple(conjuncts(e.where)):
        return e
    value = support.inside if support is not None and more else e.values[0]
    found = replace(e, values=(value,), where=conjunction([*there, *more]))
    ranges = simplify_expr(found, around, narrow=True)
    added = [c for c in (*there, *more) if c not in conjuncts(e.where)]
    return e if any(c in added for n in walk(ranges) if isinstance(n, Reduce) for c in conjuncts(n.where)) else found


def _without_tests(program: Program, supports: Mapping[str, Support]) -> Program:
    """The program with supported definitions as they are inside, where each read of them is."""
    fixed = {*program.outputs, *(name for d in program.definitions if not isinstance(d, Define) for name in reads(d))}
    types = program.types
    found: list[Definition] = []
    outside: set[str] = set()
    for d in reversed(program.definitions):
        needed: tuple[Expr, ...] = ()
        support = supports.get(d.name) if isinstance(d, Define) and d.name not in fixed | outside else None
        if isinstance(d, Define) and support is not None and (support.inside == d.value or _exists(support.inside, d.axes, types)):
            needed, d = support.condition, replace(d, value=support.inside)
        for access, axes, guards in read_occurrences(d.value, d.axes, needed) if isinstance(d, Define) else ():
            own = supports.get(access.tensor)
            if own is not None and access.tensor not in outside:
                at = dict(zip(own.names, access.indices, strict=True))
                if not all(c in guards or implied(c, axes, guards) for c in (substitute(c, at) for c in own.condition)):
                    outside.add(access.tensor)
        found.append(d)
    return with_definitions(program, reversed(found))


def _exists(e: Expr, axes: tuple[Axis, ...], types: Mapping[str, TensorType]) -> bool:
    """Whether each element that a value reads exists at all points."""
    return all(
        verdict is PROVED
        for access, around, guards in read_occurrences(e, axes)
        for verdict in check_access(access.indices, types[access.tensor].shape, around, guards)
    )


# ---------------------------------------------------------------------------------------------------------- what is where


def _of(e: Expr, supports: Mapping[str, Support], masks: Mapping[str, Define]) -> Support | None:
    """The support of a value."""
    match e:
        case Access() if e.tensor in supports:
            support = supports[e.tensor]
            at = dict(zip(support.names, e.indices, strict=True))
            inside = support.inside if isinstance(support.inside, Const) else e
            return Support(tuple(substitute(c, at) for c in support.condition), inside, support.outside, support.weight)
        case Cast() if e.arg.dtype.is_bool:
            known, rest = _conditions(e.arg, masks)
            return Support(known, Const(1, e.dtype), 0.0) if known and not rest else None
        case Cast() if e.arg.dtype.is_float and e.dtype.is_float:
            found = _of(e.arg, supports, masks)
            return found and replace(found, inside=_cast(found.inside, e))
        case Apply() if e.op.name == "where":
            return _chosen(e, supports, masks)
        case Apply() if e.op.name in ("exp", "exp2", "neg"):
            found = _of(e.args[0], supports, masks)
            if found is None or (found.outside < 0) == (e.op.name == "neg"):
                return None
            return Support(found.condition, apply(e.op.name, found.inside), 0.0, e.op.name != "neg" or found.weight)
        case Apply() if e.op.name in ("add", "sub", "mul", "div"):
            return _combined(e, supports, masks)
        case Reduce() if e.combiner.name == "sum" and e.combiner.is_builtin and e.where is None:
            found = _of(e.values[0], supports, masks)
            own = {a.index for a in e.axes}
            if found is not None and found.outside == 0 and all(own.isdisjoint(free_names(c)) for c in found.condition):
                return replace(found, inside=replace(e, values=(found.inside,)), weight=False)
    return None


def _chosen(e: Apply, supports: Mapping[str, Support], masks: Mapping[str, Define]) -> Support | None:
    """The support of a choice between a value and what it is outside."""
    condition, value, otherwise = e.args
    if isinstance(value, Const) and (not isinstance(otherwise, Const) or (otherwise.value == 0 and value.value == -inf)):
        condition, value, otherwise = negate(condition), otherwise, value
    if not isinstance(otherwise, Const) or otherwise.value not in (0, -inf):
        return None
    outside = 0.0 if otherwise.value == 0 else -inf
    known, rest = _conditions(condition, masks)
    inner = _of(value, supports, masks)
    if inner is not None and inner.outside == outside:
        known, value = tuple(_with_quotients((*known, *inner.condition))), inner.inside
    inside = apply("where", conjunction(rest), value, otherwise) if rest else value
    return Support(known, inside, outside, outside == 0 and _is_weight(value, inner)) if known else None


def _combined(e: Apply, supports: Mapping[str, Support], masks: Mapping[str, Define]) -> Support | None:
    """The support of a sum with -inf, or of a product with 0."""
    name, sides = e.op.name, [_of(arg, supports, masks) for arg in e.args]
    one, other = sides
    if name in ("add", "sub") and one is not None and other is not None and one.outside == other.outside == 0:
        if one.condition == other.condition:
            return Support(one.condition, apply(name, one.inside, other.inside), 0.0, one.weight and other.weight)
    wanted = 0.0 if name in ("mul", "div") else -inf
    own = [s if s is not None and s.outside == wanted and (at == 0 or name in ("add", "mul")) else None for at, s in enumerate(sides)]
    if own == [None, None]:
        if name in ("mul", "div") and one is not None and one.outside < 0 and isinstance(e.args[1], Const) and float(e.args[1].value) > 0:
            return replace(one, inside=apply(name, one.inside, e.args[1]))
        return None
    condition = tuple(_with_quotients([c for s in own if s is not None for c in s.condition]))
    left, right = (arg if s is None else s.inside for arg, s in zip(e.args, own, strict=True))
    neutral = Const(0 if name in ("add", "sub") else 1, e.dtype)
    inside = right if left == neutral and name in ("add", "mul") else left if right == neutral else apply(name, left, right)
    weight = any(_is_weight(arg, s) for arg, s in zip(e.args, sides, strict=True)) and name in ("mul", "div")
    return Support(condition, inside, wanted, weight)


def _is_weight(e: Expr, support: Support | None) -> bool:
    return (support is not None and support.weight) or (isinstance(e, Apply) and e.op.name in ("exp", "exp2"))


def _cast(inside: Expr, like: Expr) -> Expr:
    if isinstance(inside, Const):
        return Const(inside.value, like.dtype)
    return inside if inside.dtype is like.dtype else Cast(like.dtype, inside)


def _conditions(condition: Expr, masks: Mapping[str, Define]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conjuncts that compare index arithmetic, and the others."""
    parts = list(conjuncts(_with_masks(condition, masks)))
    pure = [c for c in parts if isinstance(c, Apply) and c.op.name in COMPARISONS and _is_pure(c)]
    return tuple(_with_quotients(pure)), tuple(c for c in parts if c not in pure)


def _with_quotients(conditions: Sequence[Expr]) -> Iterator[Expr]:
    """x >= q * n and q * n >= x - (n - 1) -> q == x // n, and x % n == y % n -> (x - y) % n == 0, from which ranges of either side are
    made; each equation once."""
    conditions = [_difference(c) for c in conditions]
    sides = {(c.args if c.op.name == "ge" else c.args[::-1]): c for c in conditions if isinstance(c, Apply) and c.op.name in ("ge", "le")}
    made: dict[Expr, Expr] = {}
    for (left, right), c in sides.items():
        match right:
            case Apply(args=(quotient, Const(n))) if right.op.name == "mul":
                other = sides.get((right, apply("sub", left, const(int(n) - 1))))
                if other is not None:
                    made[c] = made[other] = apply("eq", quotient, apply("floordiv", left, const(int(n))))
    seen: set[object] = set()
    for condition in (made.get(c, c) for c in conditions):
        equation = isinstance(condition, Apply) and condition.op.name == "eq"
        form = frozenset(condition.args) if isinstance(condition, Apply) and equation else condition
        if form not in seen:
            seen.add(form)
            yield condition


def _difference(condition: Expr) -> Expr:
    match condition:
        case Apply(args=(Apply(args=(x, n)) as left, Apply(args=(y, m)) as right)) if condition.op.name == "eq":
            if left.op.name == right.op.name == "mod" and n == m and isinstance(n, Const):
                return apply("eq", apply("mod", apply("sub", x, y), n), const(0))
    return condition


def _is_pure(e: Expr) -> bool:
    """Whether a value is made of indices alone."""
    return not any(isinstance(n, Access | Reduce) or n.dtype.is_float for n in walk(e))


# --------------------------------------------------------------------------------------------------------- whether it pays


@lru_cache(1024)
def _pays(condition: tuple[Expr, ...], axes: tuple[Axis, ...], reduced: tuple[Axis, ...]) -> bool:
    """Whether a mask leaves out enough, and has a place along each of some axes for all others, so that nothing is a maximum or a sum of
    none."""
    own = [a for a in axes if any(a.index in free_names(c) for c in condition)]
    return len(own) > 1 and part_of(condition, own) <= SHARE and all(_has_place(condition, a, own) for a in own if a in reduced)


def _has_place(condition: tuple[Expr, ...], axis: Axis, axes: Sequence[Axis]) -> bool:
    """Whether the mask lets a place of an axis through for all others: the first, the last, that of another axis, or what it has to be."""
    others = tuple(a for a in axes if a is not axis)
    last = apply("sub", axis.stop, const(1))
    places = [const(0), last, *(apply("minimum", Index(a.index), last) for a in others)]
    sides = [c.args for c in condition if isinstance(c, Apply) and c.op.name == "eq" and Index(axis.index) in c.args]
    places += [one if other == Index(axis.index) else other for one, other in sides]
    return any(all(implied(simplify_expr(substitute(c, {axis.index: place}), others), others) for c in condition) for place in places)
