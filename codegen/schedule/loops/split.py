"""The primitive `split`: a loop in blocks, and what becomes of a rest."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, TAILS, Split, State, definition_named
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.loops.rewriting import checked, new_name, place_of
from tensorexpr.hints import suggestion
from tensorexpr.ir import Define, Scan
from tensorexpr.records import replace


def split(state: State, name: str, loop: str, factor: int, tail: str = "peel") -> tuple[State, tuple[str, str]]:
    """rewrite: [..., i, ...] --> [..., i_o, i_i, ...], i = i_o * factor + i_i ("stride": [..., i_i, i_o, ...]).

    `tail` says what happens to a rest, where the extent is no multiple of the factor: "peel" runs it as a smaller block of its own,
    "shift" moves the last block back to end at the extent (points of data loops, computed twice with the same value), "guard"
    skips the points beyond, by a condition. With "stride" the loop inside a block runs outside, and for each of its places the other
    one over the blocks that have it: a residue class is a loop of its own.
    """
    stage = state.stage(name)
    at = place_of(stage, loop)
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        raise refuse(stage, f"expected a positive int as the factor, got {factor!r}", loop)
    if tail not in TAILS:
        raise refuse(stage, f"expected a tail among {', '.join(TAILS)}, got {tail!r}", loop, suggestion(tail, TAILS))
    if stage.kind(loop) != SERIAL:
        raise refuse(stage, f"expected a serial loop to split, got {loop}, marked {stage.kind(loop)}", loop, "split first")
    if tail == "shift" and (stage.group_of(loop) is not None or not isinstance(definition_named(state.program, name), Define | Scan)):
        raise refuse(stage, f"expected a data loop of a plain definition for tail 'shift', got {loop}: points would count twice", loop)
    outer, inner = new_name(stage, f"{loop}_o"), new_name(stage, f"{loop}_i")
    changed = replace(
        stage,
        order=(*stage.order[:at], *((inner, outer) if tail == "stride" else (outer, inner)), *stage.order[at + 1 :]),
        relations=(*stage.relations, Split(loop, outer, inner, factor, tail)),
    )
    return checked(state, changed), (outer, inner)
