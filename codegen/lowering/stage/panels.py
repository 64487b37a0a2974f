"""Panels: what a step of a tile reads of a tensor, by the loops of the tile in place of the axes of the tensor.

    m = m_o * 128 + m_i;  x[m // 196, m // 14 % 14 + r - 1, m % 14 + s - 1, c]   -->   panel[m_i, c_i]

Where axes have been fused before a block of them became the side of a tile, what the tile reads is no box of the tensor. It is one of
loops: each element of the panel has its place in the tensor, or none, where it is zero. So the product reads rows and columns of panels
whatever the extents of the axes are (the implicit product of a convolution), and where in the tensor they lie is worked out once
for each copy. Here the read in a definition becomes a read of its panel; `caching` makes the buffer of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, substituted
from tensorexpr.codegen.lowering.context.scope import LOOP, Scope
from tensorexpr.codegen.nest import Block, Filled, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import with_blocks
from tensorexpr.codegen.planners.gpu.zeros import zero_beyond
from tensorexpr.codegen.schedule.analysis.state import Fuse, Split, Stage
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, apply, conjunction
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of, constraints_of
from tensorexpr.traversal import free_names, map_children, read_occurrences, substitute


@record
class Panel:
    """Where the elements of a panel lie in a tensor: its buffer and shape, the loops that the panel goes along, each by a name and with its
    extent, the indices of the tensor over these names and loops further out, and which of them may lie beyond their axes."""

    buffer: str
    shape: tuple[Expr, ...]
    names: tuple[str, ...]
    extents: tuple[int, ...]
    indices: tuple[Expr, ...]
    tested: tuple[bool, ...]

    def at(self, places: tuple[Expr, ...], moved: dict[str, Expr]) -> tuple[Expr, ...]:
        """The indices of the tensor at a place of the panel, some loops moved."""
        known = dict(zip(self.names, places, strict=True)) | moved
        return tuple(substituted(i, lambda name: known.get(name, Index(name)), lambda p: p, lambda a: a) for i in self.indices)

    def inside(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """What holds where there is such an element."""
        found: list[Expr] = []
        for index, extent, tested in zip(indices, self.shape, self.tested, strict=True):
            found += [apply("ge", index, ZERO), apply("lt", index, extent)] if tested else []
        return tuple(found)

    def read(self, of_panel: Access) -> Expr:
        """An element as it is read in the tensor itself."""
        indices = self.at(of_panel.indices, {})
        value = Access(self.buffer, indices, of_panel.dtype)
        return apply("where", conjunction(self.inside(indices)), value, Const(0, value.dtype))

    def pack_ends(self) -> list[int] | None:
        """What must be a multiple of a pack of neighbors along the last loop for such packs to lie in the tensor as they are, from a
        multiple of it on; None where neighbors do not lie so."""
        last, extent = affine_of(self.indices[-1]), constant(self.shape[-1])
        name = self.names[-1]
        if last is None or extent is None or last.coefficient(name) != 1 or any(name in free_names(i) for i in self.indices[:-1]):
            return None
        rest = last - Affine.of(name)
        return None if name in rest.names() else [extent, rest.constant, *(factor for _, factor in rest.terms)]


def with_panels(expr: Expr, panels: Mapping[Access, Access], shape: Callable[[str], tuple[Expr, ...]]) -> Expr:
    """An expression with what panels hold read from them: zeros beyond the ends of a tensor, too."""
    for access, of_panel in panels.items():
        found = zero_beyond(expr, shape(access.tensor)) if isinstance(expr, Apply) else expr
        if found == access:
            return of_panel
    return map_children(expr, lambda e: with_panels(e, panels, shape)) if panels else expr


def says_inside(condition: Expr, scope: Scope, shape: Callable[[str], tuple[Expr, ...]]) -> str:
    """The panel whose element lies in its tensor wherever a condition holds, and is a zero of the panel elsewhere; none ("") where there is
    no such panel."""
    if not scope.panels:
        return ""
    spread = {a.index: scope.spread(a.index) for a in scope.stage.parts.axes}
    found, exact = constraints_of(substitute(condition, spread))
    for access, of_panel in scope.panels.items() if exact and found else ():
        pairs = zip((substitute(i, spread) for i in access.indices), shape(access.tensor), strict=True)
        inside, _ = constraints_of(conjunction(tuple(c for i, n in pairs for c in (apply("ge", i, ZERO), apply("lt", i, n)))))
        if all(c in inside for c in found):
            return of_panel.tensor
    return ""


def filled(block: Block, tiles: Mapping[str, str]) -> Block:
    """The statements with conditions that say so (`Filled`) of the tiles of panels, by their names, where they leave out products with an
    element of one; all others as plain conditions."""
    return tuple(_filled(s, tiles) for s in block)


def _filled(s: Stmt, tiles: Mapping[str, str]) -> Stmt:
    made = with_blocks(s, lambda block: filled(block, tiles))
    if not isinstance(made, Filled):
        return made
    whole = made.tile in tiles and all(_factor(one, made.tile) for one in _innermost(made.then))
    return Filled(made.condition, made.then, (), tiles[made.tile]) if whole else If(made.condition, made.then)


def _innermost(block: Block) -> Iterator[Stmt]:
    for s in block:
        match s:
            case For():
                yield from _innermost(s.body)
            case If() if not s.otherwise:
                yield from _innermost(s.then)
            case _:
                yield s


def _factor(s: Stmt, panel: str) -> bool:
    """Whether an element of a panel is a factor of the product which a statement adds to its own element."""
    if not isinstance(s, Store) or not isinstance(s.value, Apply) or s.value.op.name != "add":
        return False
    own, product = Access(s.buffer, s.indices, s.value.dtype), s.value.args[1]
    product = product.arg if isinstance(product, Cast) else product
    if s.value.args[0] != own or not isinstance(product, Apply) or product.op.name != "mul":
        return False
    factors = [e.arg if isinstance(e, Cast) else e for e in product.args]
    return product.dtype.is_float and sum(isinstance(e, Access) and e.tensor == panel for e in factors) == 1


def panel_of(
    stage: Stage,
    tensor: str,
    order: tuple[int, ...],
    across: bool,
    scope: Scope,
    buffer: str,
    shape: tuple[Expr, ...],
    fresh: Callable[[str], str],
) -> tuple[Access, Access, Panel] | None:
    """The one read of a tensor, what it is of a panel, and the panel, which has loops of a reduction first where it lies across these;
    None where there are several, or where no side of it is of fused axes and no point is left out: then it is a box of the tensor."""
    values = tuple(v for g in stage.parts.groups for m in g.members for v in m.values)
    reads = list(dict.fromkeys(a for v in values for a, _, _ in read_occurrences(v, ()) if a.tensor == tensor))
    if len(reads) != 1:
        return None
    (access,) = reads
    along: dict[str, bool] = {}
    read = {n for i in access.indices for n in free_names(i)}
    for axis in order:
        for index in free_names(access.indices[axis]):
            for loop, fused in _open_loops(stage, index, scope, read):
                along[loop] = along.pop(loop, False) or fused  # the loop along the last axis of the copy comes last
    if across:
        along = dict(sorted(along.items(), key=lambda item: stage.group_of(item[0]) is None))
    named = {loop: fresh(f"x_{loop}") for loop in along}
    inside = scope.with_values(**{loop: Index(name) for loop, name in named.items()})
    if not all(map(inside.is_ready, access.indices)):
        return None
    indices = tuple(map(inside.resolve, access.indices))
    # What a window that moves on with a loop takes back is the same all along that: it has no place in the panel.
    seen = {n for i in indices for n in free_names(i)}
    along = {loop: fused for loop, fused in along.items() if named[loop] in seen}
    extents = [stage.extent(loop) for loop in along]
    if None in extents or not (any(along.values()) or scope.widened):
        return None
    name = fresh(f"{buffer}_panel")
    names = tuple(named[loop] for loop in along)
    tested = tuple(not _stays(stage, i, extent, scope) for i, extent in zip(access.indices, shape, strict=True))
    panel = Panel(buffer, shape, names, tuple(n for n in extents if n is not None), indices, tested)
    return access, replace(access, tensor=name, indices=tuple(Index(f"{LOOP}{loop}") for loop in along)), panel


def _stays(stage: Stage, index: Expr, extent: Expr, scope: Scope) -> bool:
    """Whether an index is that of an axis as long as the tensor, in loops that have no points beyond it."""
    axis = stage.axis(index.name) if isinstance(index, Index) else None
    if axis is None or axis.start != ZERO or axis.stop != extent:
        return False
    parts = {name for loop in stage.loops_of(axis.index) for name in stage.ancestry(loop)}
    splits = [r for r in stage.relations if isinstance(r, Split) and r.outer in parts]
    return all(scope.variants.get(r.outer) == "main" or (stage.extent(r.parent) or 1) % r.factor == 0 for r in splits)


def _open_loops(stage: Stage, loop: str, scope: Scope, read: set[str], fused: bool = False) -> list[tuple[str, bool]]:
    """The loops still to come that an axis runs as, each the outermost of those it is split into, and whether it is one with others of
    those that are read along (threads go along rows and columns at once)."""
    if scope.position(loop) is not None:
        return []
    for relation in stage.relations:
        match relation:
            case Split() if relation.parent == loop:
                parts = [x for x in (relation.outer, relation.inner) if scope.position(x) is None]
                return [(loop, fused)] if len(parts) == 2 else _open_loops(stage, parts[0], scope, read, fused)
            case Fuse() if loop in (relation.outer, relation.inner) and set(stage.axes_of(relation.fused)) <= read:
                return _open_loops(stage, relation.fused, scope, read, True)
    return [(loop, fused)]
