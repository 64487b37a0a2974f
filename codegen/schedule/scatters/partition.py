"""The primitive `partition`: what a scatter sends is sorted by blocks of elements first, and each block is added up by one owner.

    S[key(t)] += e(t)     -->     for c in parallel: for t in chunk c: counts[c, key(t) // width] += 1
                                  where the sends of chunk c to block b begin: sums of the counts
                                  for c in parallel: for t in chunk c: key(t) and e(t) to the next place of (c, b)
                                  for b in parallel: for the sends to block b: S[key] += e

Chunks are blocks of the outermost loop. The sends to a block stand in the order of the text, so every element takes in what is sent to it
in that order, for any chunks, blocks and threads (products are rounded before they are added, where plain loops may fuse both). Each send
is written and read once more, in a row, and a block of elements stays in the caches of its core.

With `share`, nobody has more of what a block receives than that: a block that receives more is cut, in the order of its sends, into as
many shares as it takes, each with a result of its own, and these are added up in their order. So how places collide costs little work
and no owner has all of it. Where blocks are cut follows from the data, whatever the number of threads; sums of floats are then
taken in another order than in plain loops.

The sends need room. How many they are is known from the axes, or it is data (rows of a compressed matrix); then `room` is what is set aside
for them, and where the counts say that they do not fit the scatter runs in plain loops.
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import Partition, State, program_facts
from tensorexpr.codegen.schedule.definitions.rfactor import outermost, with_parts
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.ir import Axis, Const, Expr, Scatter, const, product
from tensorexpr.records import replace
from tensorexpr.traversal import substitute

ZERO = const(0)
MOST_SENDS = 1 << 31


def partition(state: State, name: str, loop: str, width: int, room: int | None = None, share: int | None = None) -> State:
    """rewrite: for t: S[key(t)] += e(t) --> for t: sends[place(t)] = key(t), e(t); for b: for t of b: S[key] += e, b = key // width.

    `loop` is the outermost axis or the outer loop of its one split: its iterations are the chunks, which may run in parallel, as the
    blocks of `width` elements of the result do. `room` is for how many sends there is room where their number is not known before:
    more of them run in plain loops. With `share`, a block that receives more sends than that has several owners, whose results are
    added up.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Scatter) or stage.scan is not None or stage.partition is not None:
        raise refuse(stage, f"expected a scatter outside of scans to partition what it sends, got {name}")
    cut = outermost(stage, definition, loop)
    if not all(given is None or _is_number(given) for given in (room, share)) or not _is_number(width):
        given = f"{width!r}, {room!r} and {share!r}"
        raise refuse(stage, f"expected a width of blocks, room for sends and a share of them of at least 1, got {given}", loop)
    if stage.parts.groups:
        raise refuse(stage, f"expected a value of {name} without reductions, which would run for places and for values, got some", loop)
    sends, chunks = product(tuple(axis.stop for axis in definition.axes)), cut.part.stop
    if not isinstance(product(definition.type.shape), Const) or not isinstance(chunks, Const):
        raise refuse(stage, f"expected a number of elements of {name} and of iterations of {loop} that are constants, got open ones", loop)
    known = isinstance(sends, Const) and all(isinstance(axis.stop, Const) and axis.start == ZERO for axis in definition.axes)
    if not known and room is None:
        raise refuse(stage, f"expected room= for the sends of {name}, whose number is not known before, got None", loop)
    most = int(sends.value) if known and isinstance(sends, Const) else int(room or 0)
    if most >= MOST_SENDS:
        raise refuse(stage, f"expected fewer than {MOST_SENDS} sends of {name}, got {most}", loop)
    moved: dict[str, Expr] = {cut.axis: cut.place}
    inner = tuple(Axis(a.index, substitute(a.start, moved), substitute(a.stop, moved)) for a in definition.axes[1:])
    changed = replace(
        definition,
        axes=(cut.part, *cut.rest, *inner),
        indices=tuple(substitute(index, moved) for index in definition.indices),
        value=substitute(definition.value, moved),
        where=None if definition.where is None else substitute(definition.where, moved),
    )
    state = with_parts(state, (), changed, "partition")
    chosen = Partition(cut.part.index, int(chunks.value), width, most, known, share)
    return state.with_stage(replace(state.stage(name), owners=(cut.part.index,), partition=chosen))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
