"""What primitives are made of: a loop by its name, a new name, how a loop runs, and the check that ends each of them.

A primitive takes a state and gives another, or refuses with the reason; it states its rewrite as the list of loops before and after.
None changes a value, except that splitting, reordering or vectorizing a reduction may combine its points in another, fixed, order (sum
and prod of floats).
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.skewing import check_skewed
from tensorexpr.codegen.schedule.analysis.state import Split, Stage, State
from tensorexpr.codegen.schedule.legal.fitting import fitted
from tensorexpr.codegen.schedule.legal.legality import check_stage
from tensorexpr.codegen.schedule.legal.placement import check_placement
from tensorexpr.codegen.schedule.loops.cache import check_cached
from tensorexpr.errors import ScheduleError
from tensorexpr.records import replace
from tensorexpr.traversal import fresh_name


def place_of(stage: Stage, loop: str) -> int:
    """The place of a loop in the list."""
    if loop not in stage.order:
        raise ScheduleError(f"expected a loop of {stage.name}, got {loop!r}", hint=f"loops: {', '.join(stage.order)}")
    return stage.order.index(loop)


def new_name(stage: Stage, stem: str) -> str:
    taken = set(stage.order) | set(stage.parents()) | {a.index for a in stage.parts.axes}
    taken |= {n for g in stage.parts.groups for n in g.indices}
    taken |= {r.parent for r in stage.relations if isinstance(r, Split)}
    return fresh_name(stem, taken)


def mark(state: State, name: str, loop: str, kind: str) -> State:
    """rewrite: i: serial --> i: parallel | vectorize | unroll | ..."""
    stage = state.stage(name)
    place_of(stage, loop)
    kinds = (*((x, k) for x, k in stage.kinds if x != loop), (loop, kind))
    return checked(state, replace(stage, kinds=kinds))


def checked(state: State, stage: Stage) -> State:
    """The state with a stage changed, where that is legal for it and for what is computed in its loops."""
    check_skewed(stage)
    changed = state.with_stage(check_stage(state, stage))
    for name in (*((stage.name,) if stage.place is not None else ()), *(s.name for s in changed.placed_in(stage.name))):
        check_placement(changed, name)
    places = (stage.place, state.stage(stage.name).place)
    roots = tuple(dict.fromkeys((stage.name, *(p.stage for p in places if p is not None))))
    for root in roots:
        changed = fitted(changed, root)
    for root in roots:
        check_cached(changed, root)
    return changed
