"""The rest of a reduction that is no multiple of its blocks: zeros in tiles stand for the condition on each of its points.

    for k_o: { a_tile = a[...]; b_tile = b[...]; for k_i: if k_o * 16 + k_i < K: acc += a_tile[i, k_i] * b_tile[k_i, j] }
    -->  tiles have zeros where k_o * 16 + k_i >= K, and all points of a block are added up

Exact where what is added is zero once all that it reads is (0 * 0; beside an infinity one zero would not do), and where each tile is read
under that condition alone, at places that move along with the point.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.lowering.context.settled import indices_of
from tensorexpr.codegen.nest import Block, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_read, inside, map_statements
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Cast, Const, Expr
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import size_names

_KEEP_ZERO = ("add", "sub", "mul", "neg", "abs", "maximum", "minimum", "sqrt", "sin", "tanh")
"""Operations whose result is zero where all their operands are."""


class Rest(If):
    """A condition on the loops of a reduction that leaves out points beyond the extent of a split: a mark for tiles, as `Ends` is."""

    __slots__ = ()


@record
class Limit:
    """Along an axis of a tensor: from which index on its tile has zeros, and which names in that are sizes."""

    axis: int
    stop: Affine
    sizes: tuple[str, ...]


def limits_of(body: Block, tiled: frozenset[str]) -> tuple[frozenset[int], dict[str, tuple[Limit, ...]]]:
    """The rests (by identity) that zeros in tiles stand for, and the limits of these by tensor."""
    found: dict[str, tuple[Limit, ...]] = {}
    dropped: set[int] = set()
    for rest, around in _rests(body, frozenset()):
        reads = [access for access in elements_read(rest.then) if access.tensor in tiled]
        everywhere = [access for access in elements_read(body) if access.tensor in {r.tensor for r in reads}]
        own = {r.tensor: {_limit(rest.condition, x, around) for x in reads if x.tensor == r.tensor} for r in reads}
        moves = all(len(limits) == 1 and None not in limits for limits in own.values())
        if reads and moves and len(reads) == len(everywhere) and not rest.otherwise and all(_adds_zero(s, tiled) for s in rest.then):
            dropped.add(id(rest))
            for tensor, limits in own.items():
                found[tensor] = (*found.get(tensor, ()), *(x for x in limits if x is not None))
    return frozenset(dropped), found


def without(block: Block, dropped: frozenset[int]) -> Block:
    """The statements without the conditions that zeros in tiles stand for."""
    return map_statements(block, lambda s: without(s.then, dropped) if isinstance(s, Rest) and id(s) in dropped else None)


def _rests(block: Block, around: frozenset[str]) -> Iterator[tuple[Rest, frozenset[str]]]:
    """The outermost rests with the indices of the loops of the block, those within them included."""
    for s in block:
        if isinstance(s, Rest):
            yield s, around | indices_of(s.then)
        else:
            yield from _rests(inside(s), around | {s.index} if isinstance(s, For) else around)


def _limit(condition: Expr, access: Access, inside: frozenset[str]) -> Limit | None:
    """Where a condition `position < stop` ends an axis of an access that moves along with the position."""
    if not isinstance(condition, Apply) or condition.op.name != "lt":
        return None
    position, stop = (affine_of(e) for e in condition.args)
    if position is None or stop is None or set(stop.names()) & inside:
        return None
    for axis, index in enumerate(access.indices):
        form = affine_of(index)
        apart = None if form is None else form - position
        if apart is not None and set(position.names()) & inside and not set(apart.names()) & inside:
            return Limit(axis, stop + apart, (*size_names(condition), *size_names(index)))
    return None


def _adds_zero(s: Stmt, tiled: frozenset[str]) -> bool:
    """Whether a statement adds nothing to its elements where tiles are zero."""
    match s:
        case For():
            return all(_adds_zero(inner, tiled) for inner in s.body)
        case If():
            return not s.otherwise and all(_adds_zero(inner, tiled) for inner in s.then)
        case Store() if isinstance(s.value, Apply) and s.value.op.name == "add":
            own = Access(s.buffer, s.indices, s.value.dtype)
            others = [a for a in s.value.args if a != own]
            return len(others) == 1 and _is_zero(others[0], tiled)
    return False


def _is_zero(value: Expr, tiled: frozenset[str]) -> bool:
    """Whether a value is zero where the elements of tiles are."""
    match value:
        case Access():
            return value.tensor in tiled
        case Const():
            return bool(value.value == 0)
        case Cast():
            return _is_zero(value.arg, tiled)
        case Apply() if value.op.name == "where":
            return all(_is_zero(e, tiled) for e in value.args[1:])
        case Apply():
            return value.op.name in _KEEP_ZERO and all(_is_zero(e, tiled) for e in value.args)
    return False
