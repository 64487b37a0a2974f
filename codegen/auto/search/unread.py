"""Stores to workspace that nobody reads: what a tile fills up beyond a triangle, say, where no other kernel's tile ever goes.

    for block: for r, c in tile: score[...] = where(j <= i, acc[r, c], 0.0)
    -->
    for block: if any of the tile has j <= i: for r, c in tile: score[...] = where(j <= i, acc[r, c], 0.0)

A branch that does nothing but store to workspace goes where no read of the nest ever meets its elements (`dependence`). A tile in which a
choice of what is stored is nowhere its first arm is such a branch, under a test of its own. What may be read is written as before.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from tensorexpr.codegen.auto.tiles.borders import nowhere
from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.nest import Block, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import map_statements, statements
from tensorexpr.ir import Apply, Expr, apply
from tensorexpr.records import replace

_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def without_unread(nest: LoopNest) -> LoopNest:
    """The nest without stores to workspace that no statement reads."""
    between = {b.name for b in nest.workspace if b.within is None} - set(nest.atomics)
    asked = set[int]()

    def split(s: Stmt) -> Block | None:
        if type(s) is If and len(s.otherwise) == 1 and s.condition == nowhere(s.otherwise[0]):
            return (s,)
        none = nowhere(s) if _fills((s,), between) else None
        if none is None:
            return (s,) if isinstance(s, For) and s.kind == "vectorize" else None
        apart = If(none, map_statements((s,), lambda x: (_other(x),) if isinstance(x, Store) else None), (s,))
        asked.add(id(apart.then))
        return (apart,)

    made = _mapped(nest, split)
    branches = [b for kernel in made.kernels for s in statements(kernel.body) if type(s) is If for b in (s.then, s.otherwise)]
    branches = [b for b in branches if _fills(b, between)]
    if not branches:
        return nest
    found = dependences(made)
    unread = {id(b) for b in branches if _is_unread(found, b) and (id(b) not in asked or _runs(found, b))}

    def left(s: Stmt) -> Block | None:
        if type(s) is If and id(s.then) in asked - unread:
            return s.otherwise
        if type(s) is not If or unread.isdisjoint((id(s.then), id(s.otherwise))):
            return None
        then, otherwise = (() if id(b) in unread else map_statements(b, left) for b in (s.then, s.otherwise))
        if then:
            return (replace(s, then=then, otherwise=otherwise),)
        test = _negated(s.condition)
        return (If(test, otherwise),) if otherwise and test is not None else None

    return _mapped(made, left) if unread else nest


def _mapped(nest: LoopNest, change: Callable[[Stmt], Block | None]) -> LoopNest:
    return replace(nest, kernels=tuple(replace(k, body=map_statements(k.body, change)) for k in nest.kernels))


def _fills(block: Block, between: Set[str]) -> bool:
    """Whether statements do nothing but store to some buffers."""
    inside = list(statements(block))
    known = (s.buffer in between if isinstance(s, Store) else type(s) is If or (isinstance(s, For) and not s.call) for s in inside)
    return bool(inside) and all(known)


def _other(s: Store) -> Store:
    """A store of a choice as one of its second arm."""
    assert isinstance(s.value, Apply)
    return replace(s, value=s.value.args[2])


def _is_unread(found: Dependences, block: Block) -> bool:
    """Whether nothing in the nest reads what statements store, whenever it runs."""
    written = [t for t in found.touched_in(block) if t.write]
    reads = [t for t in found.touches if not t.write]
    return bool(written) and not any(found.meeting(w, r, ()).may for w in written for r in reads if r.home is w.home)


def _runs(found: Dependences, block: Block) -> bool:
    """Whether statements are not known never to run."""
    return any(found.meeting(t, t, ()).may for t in found.touched_in(block) if t.write)


def _negated(test: Expr) -> Expr | None:
    if isinstance(test, Apply) and test.op.name in _NEGATED and test.args[0].dtype.is_integer:
        return apply(_NEGATED[test.op.name], *test.args)
    return None
