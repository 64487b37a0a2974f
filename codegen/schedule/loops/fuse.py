"""The primitive `fuse`: one loop of two that stand directly inside each other."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, Fuse, Split, State
from tensorexpr.codegen.schedule.legal.legality import refuse, runs_whole
from tensorexpr.codegen.schedule.loops.rewriting import checked, new_name, place_of
from tensorexpr.records import replace
from tensorexpr.traversal import free_names


def fuse(state: State, name: str, outer: str, inner: str) -> tuple[State, str]:
    """rewrite: [..., i, j, ...] --> [..., i_j, ...], i = i_j // extent(j), j = i_j % extent(j).

    The loops are data loops, or loops of one reduction; neither has a rest, and the bounds of the inner one do not depend on the
    outer one. What is `parallel` then has more iterations to hand out.
    """
    stage = state.stage(name)
    at = place_of(stage, outer)
    if place_of(stage, inner) != at + 1:
        raise refuse(stage, f"expected two loops directly inside each other to fuse, got {outer} and {inner}", outer, "reorder them first")
    if stage.group_of(outer) != stage.group_of(inner):
        raise refuse(stage, f"expected loops of one reduction, or data loops, to fuse, got {outer} and {inner}", outer)
    for loop in (outer, inner):
        if stage.kind(loop) != SERIAL:
            raise refuse(stage, f"expected serial loops to fuse, got {loop}, marked {stage.kind(loop)}", loop)
        for relation in stage.relations:
            if (
                isinstance(relation, Split)
                and {relation.outer, relation.inner} & set(stage.ancestry(loop))
                and not runs_whole(stage, relation)
            ):
                raise refuse(
                    stage, f"expected loops without a rest to fuse, got {loop} of a split of {relation.parent} by {relation.factor}", loop
                )
    depends = {n for a in stage.axes_of(inner) for e in (stage.axis(a).start, stage.axis(a).stop) for n in free_names(e)}
    if depends & set(stage.axes_of(outer)):
        raise refuse(stage, f"expected bounds of {inner} that do not depend on {outer} to fuse them, got ones that do", inner)
    fused = new_name(stage, f"{outer}_{inner}")
    changed = replace(
        stage,
        order=(*stage.order[:at], fused, *stage.order[at + 2 :]),
        relations=(*stage.relations, Fuse(fused, outer, inner)),
    )
    return checked(state, changed), fused
