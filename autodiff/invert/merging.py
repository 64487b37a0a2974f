"""Pieces merged again: fewer sums over the same points.

Two pieces of a component become one where some integer set is exactly their union and a gather over it is one loop nest like
theirs. The candidate is the simple hull, all bounds of either loosened until they hold for the other; it is taken only if
every point of it is in one of the pieces. So merged loops never visit a point in vain, and a border whose iterations
continue those of the interior is just a longer range.

Reads that differ in one component only (the two rows of a bilinear interpolation) are merged there in the same way: their
common factors are multiplied once, and in the united loops each read contributes its own factors under the conditions that
tell its points from the others'. Doing so one component after the other turns the four reads of a bilinear
interpolation, or the sixteen of a bicubic one, into one sum whose weights are a product of weights by row and by column.

What counts as cheaper: never more iterations than reads, never more loops than the deepest piece has, then fewer terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import product

from tensorexpr.autodiff.invert.components import Inverse, kept_apart
from tensorexpr.autodiff.invert.conditions import condition_of
from tensorexpr.autodiff.invert.inversion import Gather, Points
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.derivatives import cast_to, plus, times
from tensorexpr.dtypes import DType
from tensorexpr.integers import Constraint, Domain, DomainTooComplex, eq, ge
from tensorexpr.ir import Apply, Axis, Const, Expr, Index, Reduce, apply, conjunction
from tensorexpr.records import record
from tensorexpr.traversal import free_names, rename_bound, substitute, tensors_read, walk

Factors = tuple[Expr, ...]


@record
class Share:
    """One piece of one component of the read numbered `read`, and what is multiplied there."""

    gather: Gather
    factors: Factors
    read: int

    @property
    def key(self) -> tuple[Gather, Factors]:
        """What tells shares apart, whatever read they come from."""
        return self.gather, self.factors


@record
class Block:
    """Shares whose points together are the loops of `gather`."""

    gather: Gather
    shares: tuple[Share, ...]


def blocks_of(shares: Sequence[Share]) -> list[Block]:
    """As few blocks as can be found by uniting two at a time, in order."""
    return [Block(whole, tuple(shares[at] for at in members)) for whole, members in _united(tuple(share.gather for share in shares))]


@lru_cache(maxsize=1 << 12)
def _united(gathers: tuple[Gather, ...]) -> tuple[tuple[Gather, tuple[int, ...]], ...]:
    """Unions, each with the numbers of the gathers in it."""
    found: list[tuple[Gather, tuple[int, ...]]] = [(gather, (at,)) for at, gather in enumerate(gathers)]
    at = 0
    while at < len(found):
        for other in range(at + 1, len(found)):
            whole = union(found[at][0], found[other][0])
            if whole is not None:
                found[at] = whole, found[at][1] + found[other][1]
                del found[other]
                at = -1  # the larger block may take in what its parts could not
                break
        at += 1
    return tuple(found)


@lru_cache(maxsize=1 << 12)
def union(a: Gather, b: Gather) -> Gather | None:
    """A gather over exactly the points of both, None where there is none or it has more loops."""
    if a.points is None or b.points is None or set(a.points.sizes) != set(b.points.sizes):
        return None  # one depends on a size or on the step of a scan that the other does not know
    if not a.axes and not b.axes and a.points.solved != b.points.solved:
        return None  # neighbors in a stencil: together they would be a loop where none is needed
    try:
        for one, other in ((a.points, b.points), (b.points, a.points)):
            hull = _hull(one, other)
            whole = None if hull is None else one.over(hull)
            if whole is not None and whole.points is not None and len(whole.axes) <= max(len(a.axes), len(b.axes)):
                return whole
    except DomainTooComplex:
        pass
    return None


def _within(points: Points, frame: Points) -> list[Constraint] | None:
    """The points as constraints on the free axes of `frame`, None where its equations do not hold for all of them."""
    if points.solved == frame.solved:
        return list(points.constraints)
    rows = [*points.constraints, *(eq(name, value) for name, value in points.solved.items())]
    domain = Domain(points.axes, [*points.known, *rows], points.sizes)
    if not all(domain.implies(eq(name, value)) for name, value in frame.solved.items()):
        return None
    moved = [row.substitute(frame.solved) for row in rows]
    return [row for row in moved if not row.is_true]


def _set(points: Points, constraints: Sequence[Constraint]) -> Domain:
    return Domain(points.free, [*points.known, *constraints], points.sizes)


def _hull(a: Points, b: Points) -> list[Constraint] | None:
    """Constraints in the frame of `a` for exactly the points of both, None where none are found."""
    other = _within(b, a)
    if other is None:
        return None
    first, second = _inequalities(a.constraints), _inequalities(other)
    sets = _set(a, first), _set(a, second)
    whole: dict[Constraint, None] = {}
    for rows, opposite in ((first, sets[1]), (second, sets[0])):
        for row in rows:
            if opposite.implies(row):
                whole.setdefault(row)
                continue
            least = opposite.range(row.expr)[0]
            if least is not None:
                whole.setdefault(ge(row.expr, least))
    hull = _set(a, list(whole))
    inside: list[Constraint] = []
    for row in first:  # hull minus a, one disjoint part after the other, has to be in b
        if not hull.implies(row):
            part = hull.constrain(*inside, *row.negate())
            if not all(part.implies(one) for one in second):
                return None
            inside.append(row)
    return list(whole)


def _inequalities(constraints: Iterable[Constraint]) -> list[Constraint]:
    rows = []
    for one in constraints:
        rows += [ge(one.expr, 0), ge(-one.expr, 0)] if one.is_equality else [one]
    return rows


# ----------------------------------------------------------------------------------------------------------- reads

Read = tuple[Contribution, Inverse]


@record
class _Item:
    """The product of a common factor and of one sum of shares for each component; `read` where it is just one read."""

    common: Factors
    layers: tuple[tuple[Share, ...], ...]
    reads: tuple[Read, ...]


def merged(reads: Sequence[Read], target: tuple[Axis, ...], carried: DType) -> list[tuple[Gather, Expr]]:
    """Gathers, each with the value to be summed over its loops (in the dtype `carried` if reads were merged), in order."""
    groups: dict[object, list[Read]] = {}
    for contribution, inverse in reads:
        if all(inverse.layers):
            shape = tuple((tuple(axis.index for axis in part.axes), part.target) for part in inverse.parts)
            groups.setdefault((shape, inverse.loose), []).append((contribution, inverse))
    found: list[tuple[Gather, Expr]] = []
    for group in groups.values():
        items = [_item(at, read, len(group) > 1) for at, read in enumerate(group)]
        if len(items) > 1:
            for layer in range(len(items[0].layers)):
                items = _merged_at(layer, items)
        for item in items:
            found += _terms(item, target, carried)
    return found


def _item(at: int, read: Read, in_factors: bool) -> _Item:
    """The read numbered `at` by itself; with `in_factors` each factor is with the component whose loops it mentions, numbers with loops."""
    contribution, inverse = read
    common: list[Expr] = []
    factors: list[list[Expr]] = [[] for _ in inverse.layers]
    if in_factors and not any(isinstance(node, Reduce) for node in walk(contribution.value)):
        owner = {axis.index: k for k, part in enumerate(inverse.parts) for axis in part.axes}
        looped = next((k for k, layer in enumerate(inverse.layers) if any(gather.axes for gather in layer)), None)
        for factor in factors_of(contribution.value):
            places = {owner[name] for name in free_names(factor) if name in owner}
            place = looped if isinstance(factor, Const) else places.pop() if len(places) == 1 else None
            (common if place is None else factors[place]).append(factor)
    else:
        common.append(contribution.value)
    layers = tuple(tuple(Share(gather, tuple(own), at) for gather in layer) for layer, own in zip(inverse.layers, factors, strict=True))
    return _Item(tuple(common), layers, (read,))


def _merged_at(at: int, items: list[_Item]) -> list[_Item]:
    """Items that differ in one component only as one, where that leaves fewer terms."""
    result: dict[object, list[_Item]] = {}
    for item in items:
        others = tuple(tuple(share.key for share in layer) for k, layer in enumerate(item.layers) if k != at)
        group = result.setdefault((item.common, others), [])
        if all(share.gather.points is None for share in item.layers[at]):  # unites with nothing: thousands of plain reads are no pairs
            group.append(item)
            continue
        for k, known in enumerate(group):
            shares = known.layers[at] + item.layers[at]
            alone = len(blocks_of(known.layers[at])) + len(blocks_of(item.layers[at]))
            if len(blocks_of(shares)) < alone:
                layers = (*known.layers[:at], shares, *known.layers[at + 1 :])
                group[k] = _Item(known.common, layers, known.reads + item.reads)
                break
        else:
            group.append(item)
    return [item for group in result.values() for item in group]


def _terms(item: _Item, target: tuple[Axis, ...], carried: DType) -> list[tuple[Gather, Expr]]:
    contribution, inverse = item.reads[0]
    found = []
    for blocks in product(*(blocks_of(layer) for layer in item.layers)):
        gather = inverse.joined(tuple(block.gather for block in blocks))
        taken = {axis.index for axis in (*target, *gather.axes)}
        if len(item.reads) == 1:
            found.append((gather, substitute(rename_bound(contribution.value, taken), gather.values)))
            continue
        value = [substitute(rename_bound(factor, set(taken)), gather.values) for factor in item.common]
        weights: list[Expr] = []
        taken = {axis.index for axis in target}
        for block in blocks:  # under the names that the loops have in the gather joined of all blocks
            loops = kept_apart(block.gather, taken).axes
            taken |= {axis.index for axis in loops}
            named = {own.index: Index(axis.index) for own, axis in zip(block.gather.axes, loops, strict=True)}
            common, rest = weight(block, carried)
            value += [substitute(factor, named) for factor in common]
            weights += [] if rest is None else [substitute(rest, named)]
        found.append((gather, times_all([*(cast_to(factor, carried) for factor in value), *weights], carried)))
    return found


# --------------------------------------------------------------------------------------------------------- factors


def factors_of(value: Expr) -> list[Expr]:
    """What is multiplied in `value`."""
    if isinstance(value, Apply) and value.op.name == "mul":
        return factors_of(value.args[0]) + factors_of(value.args[1])
    if isinstance(value, Apply) and value.op.name == "neg":
        return [Const(-1, value.dtype), *factors_of(value.args[0])]
    return [value]


def times_all(factors: Sequence[Expr], dtype: DType) -> Expr:
    """The product from left to right, 1 of nothing."""
    return reduce(times, factors) if factors else Const(1, dtype)


def weight(block: Block, dtype: DType) -> tuple[list[Expr], Expr | None]:
    """What the shares of a block add up to at a point of it: common factors, and a further one in `dtype` where there is one."""
    groups = _groups(block)
    common = _common([factors for factors, _ in groups])
    values = block.gather.values
    shared = [substitute(factor, values) for factor in common]
    if len(groups) == 1:
        return shared, None
    parts: list[tuple[list[list[Constraint]], Expr]] = []
    for factors, shares in groups:
        rest = list(factors)
        for factor in common:
            rest.remove(factor)
        own = [cast_to(substitute(factor, values), dtype) for factor in rest]
        parts.append(([_beyond(share, block.gather) for share in shares], times_all(own, dtype)))
    return shared, _sum(parts, block, dtype)


def _groups(block: Block) -> list[tuple[Factors, list[Share]]]:
    """The shares with equal factors and no point in common together."""
    groups: list[tuple[Factors, list[Share]]] = []
    for share in block.shares:
        for factors, members in groups:
            if factors == share.factors and all(member.read == share.read or _apart(member, share, block) for member in members):
                members.append(share)
                break
        else:
            groups.append((share.factors, [share]))
    return groups


def _apart(first: Share, second: Share, block: Block) -> bool:
    points = block.gather.points
    return points is not None and _disjoint([_beyond(first, block.gather)], [_beyond(second, block.gather)], points)


def _common(groups: list[Factors]) -> list[Expr]:
    """The factors that all of the products have."""
    found = list(groups[0])
    for factors in groups[1:]:
        left, kept = list(factors), []
        for factor in found:
            if factor in left:
                left.remove(factor)
                kept.append(factor)
        found = kept
    return found


def _beyond(share: Share, whole: Gather) -> list[Constraint]:
    """What tells the points of a share from the others in the loops of `whole`."""
    assert share.gather.points is not None and whole.points is not None
    rows = _within(share.gather.points, whole.points)
    assert rows is not None
    own = Domain(whole.points.free, rows, whole.points.sizes)
    return list(own.gist(_set(whole.points, whole.points.constraints)).constraints)


def _sum(parts: list[tuple[list[list[Constraint]], Expr]], block: Block, dtype: DType) -> Expr:
    """Each value where one of its lists of constraints holds, added up."""
    assert block.gather.points is not None
    points, zero = block.gather.points, Const(0, dtype)

    def condition(rows: list[Constraint]) -> Expr:
        return conjunction([condition_of(row, points.write) for row in rows])

    if len(parts) == 2 and _disjoint(parts[0][0], parts[1][0], points):
        # One or the other: the simpler condition will do.
        (first, value), (second, otherwise) = parts
        if _size(second) < _size(first):
            first, value, otherwise = second, otherwise, value
        if len(first) == 1:
            return apply("where", condition(first[0]), value, otherwise)
    total: Expr | None = None
    for rows, value in parts:
        reading = bool(tensors_read(value))
        conditions = [condition(part) for part in rows]
        if not reading and all(rows):
            conditions = [reduce(lambda a, b: apply("or", a, b), conditions)]
        for at, one_condition in enumerate(conditions):
            term = apply("where", one_condition, value, zero) if rows[at] else value
            total = term if total is None else plus(total, term)
    assert total is not None
    return total


def _size(rows: list[list[Constraint]]) -> tuple[int, int]:
    return len(rows), sum(len(part) for part in rows)


def _disjoint(first: list[list[Constraint]], second: list[list[Constraint]], points: Points) -> bool:
    whole = _set(points, points.constraints)
    return all(whole.constrain(*a, *b).is_empty() for a in first for b in second)
