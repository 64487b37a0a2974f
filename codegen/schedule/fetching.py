"""The primitive `prefetch`: rows of a tensor further on are asked for while this one is computed on.

A row that several definitions pass over is near from the second pass on; memory has nothing to do then, and the processor's own
prefetching ends with the row. So the first pass over a row asks for the same place of the next one. Where much is computed per
element of a long stream, few iterations are under way at once and loads come too late, the more so where results are written past the
caches; there what lies some rows (blocks of a split axis) ahead is asked for. It is a hint: values and bounds are what
they are without it.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.schedule.legality import refuse
from tensorexpr.codegen.schedule.state import Split, Stage, State, accesses_of, definition_named, program_facts
from tensorexpr.ir import Access, Const, Define, Index, Segments
from tensorexpr.records import replace


def prefetch(state: State, name: str, tensor: str, loop: str, rows: int = 1) -> State:
    """rewrite: for i: ... X[i, j] ... --> for i: ... X[i, j], X[i + rows, j] is on its way ...

    The order of a sort plan stands for what is read through it, in the loop over a segment: rows at places that are data, which the
    processor would ask for one after the other where it cannot foresee how long segments are.

    A hint to the caches (the second level): values are what they are without it. The loop may be one over blocks of an axis.
    """
    stage = state.stage(name)
    leads = _leads(state, name, tensor, loop)
    if not leads and tensor not in {i.name for i in state.program.inputs}:
        raise refuse(stage, f"expected an input to fetch ahead, got {tensor}")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise refuse(stage, f"expected at least one row to fetch ahead, got {rows!r}", loop)
    if not leads and row_length(state, name, tensor, loop) is None:
        raise refuse(stage, f"expected a loop of {name} over rows of {tensor} of constant length, got {loop}", loop)
    kept = tuple(f for f in stage.fetched if f[0] != tensor)
    return state.with_stage(replace(stage, fetched=(*kept, (tensor, loop, rows))))


def _leads(state: State, name: str, tensor: str, loop: str) -> bool:
    """Whether the iterations of a loop over a segment read through the order of a sort plan, one place each."""
    plan = program_facts(state.program).definitions.get(tensor)
    stage = state.stage(name)
    return (
        isinstance(plan, Segments)
        and plan.names[1] == tensor
        and loop in stage.order
        and stage.group_of(loop) is not None
        and any(Access(tensor, (Index(loop),), i.dtype) == i for a in accesses_of(state.program, name) for i in a.indices)
    )


def row_length(state: State, name: str, tensor: str, loop: str) -> int | None:
    """The elements between what neighboring iterations of a loop read of a tensor, there and in what is computed in it."""
    host = definition_named(state.program, name)
    extents = program_facts(state.program).shapes.get(tensor, ())
    stage = state.stage(name)
    if not isinstance(host, Define) or loop not in stage.order or not all(isinstance(e, Const) for e in extents):
        return None
    axis, step = _steps_along(stage, loop)
    position = next((k for k, a in enumerate(host.axes) if a.index == axis), None)
    found: set[int] = set()
    for member in (name, *(s.name for s in state.placed_in(name))):
        definition = definition_named(state.program, member)
        if position is None or not isinstance(definition, Define) or position >= len(definition.axes):
            continue
        row = Index(definition.axes[position].index)
        found.update(k for a in accesses_of(state.program, member) if a.tensor == tensor for k, e in enumerate(a.indices) if e == row)
    if len(found) != 1:
        return None
    return step * prod(int(e.value) for e in extents[found.pop() + 1 :] if isinstance(e, Const))


def _steps_along(stage: Stage, loop: str) -> tuple[str | None, int]:
    """The axis that a loop runs along, and how far an iteration gets; no axis for a fused loop and one over residue classes."""
    step, made = 1, stage.parents()
    while (relation := made.get(loop)) is not None:
        if not isinstance(relation, Split) or relation.tail == "stride":
            return None, 1
        step *= relation.factor if loop == relation.outer else 1
        loop = relation.parent
    return loop, step


def distances(state: State) -> dict[str, int]:
    """How many elements ahead each tensor is fetched; rows of no elements are not."""
    made: dict[str, int] = {}
    for stage in state.stages:
        for tensor, loop, rows in stage.fetched:
            length = distance(state, stage.name, tensor, loop)
            if length:
                made.setdefault(tensor, rows * length)
    return made


def distance(state: State, name: str, tensor: str, loop: str) -> int | None:
    """The elements from what an iteration of a loop asks for of a tensor to what the next one does; None where that is not known."""
    return 1 if _leads(state, name, tensor, loop) else row_length(state, name, tensor, loop)
