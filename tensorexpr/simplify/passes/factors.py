"""Sums of products are taken apart: what a sum does not depend on stands outside of it.

    sum(h[q, j] * a[q, i] * a[p, i] for q for i)   -->   sum(h[q, j] * sum(a[q, i] * a[p, i] for i) for q)
    sum(w[i] * x[i, k] * c[k, j] for k)            -->   w[i] * sum(x[i, k] * c[k, j] for k)
    sum(x[i, a] * c[a, b] * x[i, b] for a for b)   -->   sum(x[i, b] * sum(x[i, a] * c[a, b] for a) for b)
    sum(where(t[j], a[j] * b[k], a[j] * c[k]) for k)   -->   a[j] * sum(where(t[j], b[k], c[k]) for k)
    sum(x[k] * (a[j] * b[k] + a[j] * c[k]) for k)      -->   a[j] * sum(x[k] * (b[k] + c[k]) for k)
    sum(x[k] for k for p in range(3))                  -->   sum(x[k] for k) * 3

The distributive law; a sum of sums is one sum to begin with, which goes through its terms forwards. What depends on no axis leaves
first, where that makes fewer operations at each point. Then one axis at a time: the axis whose sum, over the factors that depend on it,
takes the fewest operations goes inside, as long as all loops together then take `GAIN` times fewer (the inner sum is computed once for
the indices that it depends on: where that leaves out indices of the outer sum, `terms` makes a tensor of it). Where all loops stay and
each point has fewer factors, no two of them may make a smaller tensor: that one is cheaper. Finding the best order is a matrix chain
problem in general; greedy elimination is what einsum libraries do.

Integers are a ring modulo 2**bits. Floats round differently, as they do where a sum adds in another order, and another sum may overflow;
those of 16 bits never are taken apart. Over no points, a factor that is infinite would be multiplied by zero: so only axes of literal
ranges that have points go inside, and what leaves a sum whose points depend on sizes does so where it has some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from math import inf, prod
from typing import TypeGuard

from tensorexpr import dtypes
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Program,
    Reduce,
    Scatter,
    TensorType,
    apply,
    const,
)
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.simplify.options import Options
from tensorexpr.simplify.passes.amounts import lengths
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.inline.worth import without_literals
from tensorexpr.simplify.passes.terms import bytes_of_ends, pays_alone
from tensorexpr.simplify.passes.terms.found import term_of
from tensorexpr.simplify.rules.floats import FUNCTION, absorb_literal, divide_by_less, divide_literals
from tensorexpr.simplify.rules.integers import wrapped
from tensorexpr.traversal import (
    bound_names,
    children,
    free_names,
    has_points,
    map_children,
    put_term,
    rename_bound,
    size_names,
    substitute,
    walk,
)

GAIN = 1.5
"""How many times fewer operations there are at least: what a nested sum costs beside one that is taken in one go."""


ALONG = 0.05
"""What a sum along the rows of a factor is taken to cost more: of orders that cost about alike the one is taken in which results lie side
by side."""
AGAIN = 0.5
"""The same of a function that does not depend on all indices of such a sum: it is computed again for each of these, or stored."""
DIVISION = 4
"""Operations that a division costs, as `Op.cost` has it."""


def factor_sums(program: Program, options: Options) -> Program:
    """Takes sums of products apart where that makes fewer operations.

    Requires: nothing. Ensures: every value of integers is kept; of floats, which change where the options say that formulas are derived
    or may be reassociated, up to rounding; so is every check of an index.
    """
    floats = options.derived or options.reassociate
    ends = 0.0 if options.derived else bytes_of_ends(program)  # of a derivative all tensors are results, while it is made
    return with_definitions(program, (_factored(d, program.types, floats, ends) for d in program.definitions))


def _factored(definition: Definition, types: Mapping[str, TensorType], floats: bool, ends: float) -> Definition:
    if not isinstance(definition, Define | Scatter):
        return definition
    if not any(isinstance(n, Reduce) and (floats or n.dtype.is_integer) for n in walk(definition.value)):
        return definition
    value = _with_factors(definition.value, definition.axes, types, floats, ends)
    if isinstance(definition, Scatter) and isinstance(definition.value, Reduce) and not isinstance(value, Reduce):
        if not any(map(_has_function, _factors(value)[0])):  # what is sent is a sum by itself, which is computed before it is added
            return definition
    return definition if value is definition.value else replace(definition, value=value)


def _with_factors(node: Expr, axes: tuple[Axis, ...], types: Mapping[str, TensorType], floats: bool, ends: float) -> Expr:
    if isinstance(node, Access) or not children(node):
        return node
    inner = (*axes, *node.axes) if isinstance(node, Reduce) else axes
    node = map_children(node, lambda child: _with_factors(child, inner, types, floats, ends))
    exact = node.dtype.is_integer or (floats and node.dtype.is_float and node.dtype.bits >= 32)
    if exact and _is_sum(node):
        node, turns = _without_idle_axes(_in_memory_order(_ascending(_joined(node))))
        found = node.values[0] if not node.axes else node
        if node.axes and all(has_points(a) or _is_open(a) for a in node.axes):
            found = _in_one_order(node, axes, types, ends) or _apart(node, axes, types, ends)
        if turns == 1:
            return found
        node = apply("mul", found, wrapped(turns, node.dtype) if node.dtype.is_integer else Const(turns, node.dtype))
    if exact and isinstance(node, Apply) and node.dtype.is_float and node.op.name in ("mul", "div"):
        return (absorb_literal if node.op.name == "mul" else divide_literals)(node) or node
    if exact and isinstance(node, Apply) and node.op.name in ("add", "sub"):
        return _with_common_factor(node, axes) or node
    return node


def _is_sum(node: Expr) -> TypeGuard[Reduce]:
    return isinstance(node, Reduce) and node.combiner.name == "sum" and node.combiner.is_builtin and node.where is None


def _in_one_order(node: Reduce, axes: tuple[Axis, ...], types: Mapping[str, TensorType], ends: float) -> Expr | None:
    """sum(a * sum(b for j) for k) as the sum over both is taken apart, so that one formula has one order of sums; None where it is not."""
    factors, divisors = _factors(node.values[0])
    inner = [e for e in factors if _is_sum(e)]
    if len(inner) != 1 or divisors or not all(map(has_points, inner[0].axes)):
        return None
    own = {a.index for a in inner[0].axes}
    literals = [e for e in factors if isinstance(e, Const)]
    rest = [e for e in factors if e is not inner[0] and not isinstance(e, Const)]
    if not rest or any(not own.isdisjoint((*free_names(e), *bound_names(e))) for e in rest):
        return None
    value = _product([*rest, inner[0].values[0]])
    assert value is not None
    whole = replace(node, axes=(*node.axes, *inner[0].axes), values=(value,))
    found = _apart(whole, axes, types, ends)
    if found is whole or isinstance(found, Apply):
        return None
    return node if found == node else _product([found, *literals])


def _with_common_factor(node: Apply, axes: tuple[Axis, ...]) -> Expr | None:
    """x * sum(a * b for k) + x * sum(a * c for k) -> x * sum(a * (b + c) for k); None where nothing in two sums is the same"""
    sides = [_factors(side) for side in node.args]
    sums = [[e for e in factors if _is_sum(e)] for factors, _ in sides]
    if any(len(found) != 1 for found in sums) or sides[0][1] != sides[1][1]:
        return None
    one, other = sums[0][0], sums[1][0]
    around = [[e for e in factors if not _is_sum(e)] for factors, _ in sides]
    if around[0] != around[1] or [(a.start, a.stop) for a in one.axes] != [(a.start, a.stop) for a in other.axes]:
        return None
    names: dict[str, Expr] = {b.index: Index(a.index) for a, b in zip(one.axes, other.axes, strict=True)}
    value = rename_bound(other.values[0], {a.index for a in (*axes, *one.axes)})
    (mine, below), (theirs, below_theirs) = _factors(one.values[0]), _factors(substitute(value, names))
    common = [e for e in mine if e in theirs]
    rest = [_product([e for e in part if e not in common]) for part in (mine, theirs)]
    if not common or rest[0] is None or rest[1] is None or below or below_theirs or len(set(mine)) < len(mine):
        return None
    made = _product([*common, apply(node.op.name, rest[0], rest[1])])
    assert made is not None
    return _quotient([*around[0], replace(one, values=(made,))], sides[0][1], one)


def _joined(node: Reduce) -> Reduce:
    """sum(sum(e for k) * c for i) -> sum(e * c for i for k), c a literal, where the bounds of k do not depend on i"""
    inner = without_literals(node.values[0])
    if not isinstance(inner, Reduce) or inner.combiner != node.combiner or inner.where is not None or inner.dtype is not node.dtype:
        return node
    own = {axis.index for axis in node.axes}
    if not own <= set(free_names(inner)):
        return node  # it is the same for several of its turns
    if any(not own.isdisjoint(free_names(bound)) for axis in inner.axes for bound in (axis.start, axis.stop)):
        return node
    return replace(node, axes=(*node.axes, *inner.axes), values=(put_term(node.values[0], inner, inner.values[0]),))


def _is_moderate(e: Expr) -> bool:
    return isinstance(e, Const) and 1e-30 < abs(e.value) < 1e30


def _without_idle_axes(node: Reduce) -> tuple[Reduce, int]:
    """A sum without the axes that nothing depends on, of literal ranges that have points, and how many times it is added up."""
    used = {n for e in (node.values[0], *(e for a in node.axes for e in (a.start, a.stop))) for n in free_names(e)}
    idle = [a for a in node.axes if a.index not in used and has_points(a)]
    turns = prod(int(a.stop.value) - int(a.start.value) for a in idle if isinstance(a.start, Const) and isinstance(a.stop, Const))
    return (replace(node, axes=tuple(a for a in node.axes if a not in idle)), turns) if idle else (node, 1)


def _ascending(node: Reduce) -> Reduce:
    """sum(x[7 - k] for k in range(8)) -> sum(x[k] for k in range(8)): axes of which nothing but the distance to some end is read"""
    for axis in node.axes:
        if not has_points(axis) or axis.index in {n for other in node.axes for e in (other.start, other.stop) for n in free_names(e)}:
            continue
        at = Index(axis.index)
        nodes = list(walk(node.values[0]))
        used = sum(n == at for n in nodes)
        if used and used == sum(isinstance(n, Apply) and n.op.name == "sub" and n.args[1] == at for n in nodes):
            mirrored = apply("sub", apply("sub", apply("add", axis.start, axis.stop), const(1)), at)
            node = replace(node, values=(_in_normal_form(substitute(node.values[0], {axis.index: mirrored})),))
    return node


def _in_memory_order(node: Reduce) -> Reduce:
    """sum(x[i, j] * y[i, j] for j for i) -> sum(x[i, j] * y[i, j] for i for j): axes as they stand in all tensors that they go through"""
    names = {axis.index for axis in node.axes}
    if len(names) < 2 or not all(map(has_points, node.axes)):
        return node
    before: set[tuple[str, str]] = set()
    for access in (n for n in walk(node.values[0]) if isinstance(n, Access)):
        through = [names.intersection(free_names(index)) for index in access.indices]
        before |= {(a, b) for one, other in combinations(through, 2) for a in one for b in other}
    if any((b, a) in before for a, b in before):
        return node
    left, axes = list(node.axes), []
    while left:
        first = next((a for a in left if not any((b.index, a.index) in before for b in left)), left[0])
        axes.append(first)
        left.remove(first)
    return node if tuple(axes) == node.axes else replace(node, axes=tuple(axes))


def _in_normal_form(expr: Expr) -> Expr:
    """The expression with what it computes of indices in normal form; numbers of data may wrap around, and stay."""
    if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and not any(isinstance(n, Access | Param) for n in walk(expr)):
        opaque = Opaque()
        form = affine_of(expr, opaque)
        if form is not None:
            return expression_of(form, size_names(expr), opaque)
    return map_children(expr, _in_normal_form)


def _apart(node: Reduce, around: tuple[Axis, ...], types: Mapping[str, TensorType], ends: float) -> Expr:
    """A sum over the axes in which its factors do not come apart, of what is left of the others; the same object where none do."""
    factors, divisors = _factors(node.values[0])
    axes, all_axes = list(node.axes), (*around, *node.axes)
    own = {axis.index for axis in axes}
    (left, left_below), (factors, divisors) = _leaving(factors, divisors, own)
    extents = lengths(all_axes)
    changed = bool(left or left_below)
    while True:
        loops = {name for e in (*factors, *divisors) for name in free_names(e)} | {a.index for a in axes}
        total = _points(loops, extents) * _operations(factors, divisors)
        best: tuple[float, Axis] | None = None
        for axis in axes:
            depending = {n for e in (*factors, *divisors) if axis.index in free_names(e) for n in free_names(e)}
            if not depending or not has_points(axis):
                continue
            (inside, outside), (inside_below, outside_below) = _parted(factors, axis.index), _parted(divisors, axis.index)
            after = _points(depending, extents) * _operations(inside, inside_below)
            after += _points(loops - {axis.index}, extents) * _operations([*outside, node], outside_below)
            if loops <= depending and _pair(factors, extents) + _points(loops, extents) * (len(factors) - 2) < after:
                continue
            again = sum(_has_function(e) and not depending <= set(free_names(e)) for e in inside)
            weighted = after * (1 + ALONG * sum(_is_along(e, axis.index) for e in inside) + AGAIN * again)
            if GAIN * after <= total and (best is None or weighted < best[0]):
                best = (weighted, axis)
        if best is None:
            break
        axis = best[1]
        (inside, factors_left), (below, divisors_left) = _parted(factors, axis.index), _parted(divisors, axis.index)
        inner = replace(node, values=(_quotient(inside, below, node),), axes=(axis,))
        rest = tuple(a for a in axes if a is not axis)
        if rest and not {a.index for a in rest}.isdisjoint(free_names(inner)):
            around_it = loops - {axis.index}
            term = term_of(inner, all_axes, types)
            alone = term is None or not pays_alone(term, inner, tuple(a for a in all_axes if a.index in around_it), types, ends)
            if alone and not around_it <= set(free_names(inner)):
                break
        factors, divisors, axes, changed = [*factors_left, inner], divisors_left, list(rest), True
    if not changed:
        return node
    value = _quotient(factors, divisors, node)
    value = replace(node, values=(value,), axes=tuple(axes)) if axes else value
    some = None if node.dtype.is_integer else _has_some(node.axes)
    left, left_below = [_guarded(e, some, 0) for e in left], [_guarded(e, some, 1) for e in left_below]
    literals = [e for e in left if isinstance(e, Const)]  # these stand last, as in all derived formulas
    value = _quotient([*(e for e in left if not isinstance(e, Const)), value], [], node)
    for divisor in left_below:  # one after the other: the product of divisors may be out of range where no quotient is
        value = apply("div", value, divisor)
    return _quotient([value, *literals], [], node)


def _is_open(axis: Axis) -> bool:
    """Whether an axis has points or none as sizes alone say."""
    return not any(isinstance(n, Access | Param | Index) for e in (axis.start, axis.stop) for n in walk(e))


def _has_some(axes: Sequence[Axis]) -> Expr | None:
    """The condition that axes have points; None where they have."""
    conditions = [apply("lt", a.start, a.stop) for a in axes if not has_points(a)]
    return reduce(lambda a, b: apply("and", a, b), conditions) if conditions else None


def _guarded(factor: Expr, some: Expr | None, otherwise: int) -> Expr:
    """What stands in front of a sum, or `otherwise` where the sum has no points and is 0: a factor may be infinite there, or below zero,
    a divisor 0."""
    if some is None or (isinstance(factor, Const) and 0 < float(factor.value) < inf):
        return factor
    return apply("where", some, factor, Const(otherwise, factor.dtype))


def _leaving(
    factors: Sequence[Expr], divisors: Sequence[Expr], own: set[str]
) -> tuple[tuple[list[Expr], list[Expr]], tuple[list[Expr], list[Expr]]]:
    """The factors and divisors that stand in front of a sum over some indices of its `own`, and those that are left, where that makes
    fewer operations at each point: a product with what is summed is one operation with its sum."""
    leaving = [[e for e in part if own.isdisjoint(free_names(e))] for part in (factors, divisors)]
    staying = [[e for e in part if not own.isdisjoint(free_names(e))] for part in (factors, divisors)]
    literal = all(isinstance(e, Const) for part in leaving for e in part)
    computed = not literal and any(map(_has_function, staying[0]))
    if not staying[0] or _operations(factors, divisors) == _operations(*staying) or computed:
        return ([], []), (list(factors), list(divisors))
    return (leaving[0], leaving[1]), (staying[0], staying[1])


def _has_function(factor: Expr) -> bool:
    """Whether a function is computed for a factor."""
    return any(isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION for n in walk(factor))


def _operations(factors: Sequence[Expr], divisors: Sequence[Expr]) -> float:
    """How many operations a sum takes at each point: the last product and the addition are one."""
    return max(len(factors) - 1, 1) + DIVISION * len(divisors)


def _pair(factors: Sequence[Expr], extents: Mapping[str, float]) -> float:
    """The fewest points at which two of three factors or more can be multiplied, for all loops."""
    names = [set(free_names(e)) for e in factors]
    return min((_points(a | b, extents) for a, b in combinations(names, 2)), default=inf) if len(names) > 2 else inf


def _points(names: set[str], extents: Mapping[str, float]) -> float:
    return prod(extents.get(name, 1.0) for name in sorted(names))


def _is_along(factor: Expr, name: str) -> bool:
    """Whether an index goes along the rows of a tensor."""
    return isinstance(factor, Access) and bool(factor.indices) and factor.indices[-1] == Index(name)


def _parted(factors: Sequence[Expr], name: str) -> tuple[list[Expr], list[Expr]]:
    """Those that depend on an index, and the others."""
    return [e for e in factors if name in free_names(e)], [e for e in factors if name not in free_names(e)]


def _factors(value: Expr) -> tuple[list[Expr], list[Expr]]:
    """The factors of a product, and what it is divided by; of a choice, or of the sum of two products, those that both sides have, and the
    same of the rest."""
    if isinstance(value, Apply) and value.op.name == "mul":
        (a, below_a), (b, below_b) = map(_factors, value.args)
        return a + b, below_a + below_b
    if isinstance(value, Apply) and value.op.name == "div":
        (a, below_a), (b, below_b) = map(_factors, value.args)
        return [e for e in a if e != Const(1, e.dtype)] + below_b, below_a + b
    if isinstance(value, Apply) and value.op.name == "neg" and value.dtype.is_float:
        above, below = _factors(value.args[0])
        return [*above, Const(-1, value.dtype)], below
    if isinstance(value, Apply) and (value.op.name == "where" or _is_pair(value)):
        (taken, below), (otherwise, below_otherwise) = map(_factors, value.args[-2:])
        if below != below_otherwise:
            (taken, below), (otherwise, below_otherwise) = _with_inverses(taken, below), _with_inverses(otherwise, below_otherwise)
        common = [e for e in dict.fromkeys(taken) if e in otherwise and not isinstance(e, Const)]
        if common and below == below_otherwise:
            rest = [_product(_without(own, common)) or Const(1, value.dtype) for own in (taken, otherwise)]
            return [*common, apply(value.op.name, *value.args[:-2], *rest)], below
    return [value], []


def _with_inverses(factors: list[Expr], divisors: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The same with literal divisors as factors."""
    inverses = [Const(1 / e.value, e.dtype) for e in divisors if isinstance(e, Const) and _is_moderate(e)]
    return ([*factors, *inverses], []) if len(inverses) == len(divisors) else (factors, divisors)


def _is_pair(value: Apply) -> bool:
    """Whether a value is the sum or the difference of two products."""
    return value.op.name in ("add", "sub") and all(isinstance(e, Apply) and e.op.name in ("mul", "div") for e in value.args)


def _without(factors: Sequence[Expr], common: Sequence[Expr]) -> list[Expr]:
    """The factors without one of each of those in common."""
    left = list(factors)
    for e in common:
        left.remove(e)
    return left


def _quotient(factors: Sequence[Expr], divisors: Sequence[Expr], node: Reduce) -> Expr:
    """The product of some factors over that of others, or with its inverse where that is the same at more points; 1 of none."""
    result = _product(factors) or Const(1, node.dtype)
    below = _product(divisors)
    if below is None:
        return result
    quotient = apply("div", result, below)
    return divide_by_less(quotient) or quotient


def _product(factors: Sequence[Expr]) -> Expr | None:
    result: Expr | None = None
    for factor in factors:
        result = factor if result is None else apply("mul", result, factor)
    return result
