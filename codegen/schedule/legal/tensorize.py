"""The primitive `tensorize`: an inner nest of loops as one instruction of the machine.

What stands from a loop inwards, all of constant extent, is compared with the definition of the instruction (`intrinsics`):

    [i, k_o, j, k_i]   for i: { acc[j] = 0; for k_o: { for j: for k_i: acc[j] += ... }; for j: C[i, j] = acc[j] }
                       for i: { acc = 0;    for k_o: { vpdpbusd(acc, ...) };            C[i, :] = acc }

The loops stay in the nest as what the instruction means; a rest that is no whole block of them runs as loops. Data loops among
them run in lanes where accumulators are started and stored.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage, State, definition_named
from tensorexpr.codegen.schedule.legal.intrinsics import Intrinsic, intrinsic_named, match
from tensorexpr.codegen.schedule.legal.placement import parts_of
from tensorexpr.dtypes import accumulator
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, Define, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import within
from tensorexpr.traversal import substitute

Refuse = Callable[..., ScheduleError]


def check_tensorized(state: State, stage: Stage, refuse: Refuse) -> None:
    """Raises `ScheduleError` where a nest of loops is not what its instruction computes."""
    for loop, name, choice in stage.tensorized:
        _matched(state, stage, loop, intrinsic_named(name), refuse, choice)


def _matched(state: State, stage: Stage, loop: str, found: Intrinsic, refuse: Refuse, choice: int | None = None) -> int:
    """The choice of operands with which an instruction computes what the loops do."""
    definition = definition_named(state.program, stage.name)
    missing = [f for f in found.features if f not in state.target.features]
    if missing:
        raise refuse(stage, f"expected a machine with {', '.join(missing)} for {found.name}, got {state.target.name} without", loop)
    if not isinstance(definition, Define):
        raise refuse(stage, f"expected a plain definition to tensorize, got {stage.name}", loop)
    if loop not in stage.order:
        raise refuse(stage, f"expected {loop}, which is tensorized, to stay a loop, got it split or fused", loop)
    inner = stage.order[stage.order.index(loop) :]
    marked = next((x for x in inner if stage.kind(x) != SERIAL), None)
    lanes = next((x for x, kind in stage.kinds if kind == "vectorize"), None)
    if marked is not None or lanes is not None:
        found_one = marked or lanes
        raise refuse(stage, f"expected serial loops to tensorize, got {found_one}, marked {stage.kind(str(found_one))}", loop)
    groups = stage.parts.groups
    sums = len(groups) == 1 and len(groups[0].members) == 1 and groups[0].members[0].combiner.name == "sum"
    tile = [x for x in inner if stage.group_of(x) is None]
    if stage.parts.unproved or (groups and (not sums or groups[0].where or groups[0].guard)) or bool(groups) != found.adds:
        wanted = "one sum without conditions" if found.adds else "no reduction"
        raise refuse(stage, f"expected a definition with {wanted}, all reads of it in bounds, for {found.name}, got {stage.name}", loop)
    value = groups[0].members[0].values[0] if groups else stage.parts.values[0]
    loops = tuple((x, stage.extent(x) or 0) for x in inner)
    if found.adds:
        first = min(stage.order.index(x) for a in groups[0].indices for x in stage.loops_of(a))
        if first > stage.order.index(loop) or any(not set(stage.axes_of(x)) & set(groups[0].depends) for x in tile):
            raise refuse(stage, f"expected a sum that begins outside of {loop}, with a result for each of its points, to tensorize", loop)
        target = Access("acc", tuple(map(Index, tile)), accumulator(value.dtype))
    else:
        target = Access(stage.name, tuple(Index(a.index) for a in stage.parts.axes), value.dtype)
    places = {a: _place(stage, a) for x in inner for a in stage.axes_of(x)}
    extents = {x: stage.extent(x) for x in stage.order}
    box = {x: (0, None if n is None else n - 1) for x, n in extents.items()}
    moved = [within(substitute(expr, places), box) for expr in (value, *target.indices)]
    shapes = {tensor: type_.shape for tensor, type_ in state.program.types.items()}
    for name, part in parts_of(state, stage.name).items():
        if part.is_local:  # a buffer without the axes of which there is one element
            shapes[name] = part.extents(shapes[name])
    shapes["acc"] = tuple(const(stage.extent(x) or 0) for x in tile)
    number = match(found, loops, replace(target, indices=tuple(moved[1:])), moved[0], shapes, choice)
    if isinstance(number, str):
        raise refuse(stage, f"expected {number}", loop, f"{found.name}: {str(found.program).strip().splitlines()[-2]}")
    return number


def _place(stage: Stage, axis: str) -> Expr:
    """An axis as its loops make it up."""

    def position(loop: str) -> Expr:
        for relation in stage.relations:
            if isinstance(relation, Split) and relation.parent == loop:
                inner = position(relation.inner)
                if relation.tail == "shift" and not _whole(stage, relation):
                    return apply("add", Index(f"{relation.outer} shifted"), inner)  # a block begins at one place for all of its points
                return apply("add", apply("mul", position(relation.outer), const(relation.factor)), inner)
        if loop not in stage.order:
            return Index(f"{loop} fused") if axis not in stage.order else Index(axis)
        return Index(loop)

    start = stage.axis(axis).start
    found = position(axis)
    return found if isinstance(start, Const) and start.value == 0 else apply("add", start, found)


def _whole(stage: Stage, split: Split) -> bool:
    extent = stage.extent(split.parent)
    return extent is not None and extent % split.factor == 0


def tensorize(state: State, name: str, loop: str, instruction: str, refuse: Refuse) -> State:
    """rewrite: for l: for q: c[l] += a[q] * b[l, q] --> instruction(c, a, b), where that is what the instruction computes."""
    stage = state.stage(name)
    if loop not in stage.order:
        raise refuse(stage, f"expected a loop of {name} to tensorize, got {loop!r}")
    if any(x != loop for x, _, _ in stage.tensorized):
        raise refuse(stage, f"expected one nest of loops to tensorize, got {stage.tensorized[0][0]} and {loop}", loop)
    choice = _matched(state, stage, loop, intrinsic_named(instruction), refuse)
    return state.with_stage(replace(stage, tensorized=((loop, instruction, choice),)))


def with_digest(state: State, instruction: str) -> State:
    """The state with a remark behind its last call that tells which instruction of this name it was: code is kept under that text."""
    *calls, last = state.calls
    return replace(state, calls=(*calls, f"{last}  # {intrinsic_named(instruction).digest}"))
