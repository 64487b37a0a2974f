"""Variants of planned loops that the analytic model leaves as they are, and that measuring may prefer.

Each is a decision whose first option changes nothing (see `decisions`): the order of the loops over blocks, a second level of
blocks around them so that what they share stays in a cache, and the innermost loop of a reduction copied out a few times. All of
these keep the order in which the points of a reduction meet; the order of the loops of a reduction among themselves does not, and
is offered as well (a search that must keep every bit drops it, as it drops anything that changes one).
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage
from tensorexpr.codegen.schedule.legal.legality import is_ordered
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError

AS_IT_IS = "as it is"
BLOCKS = (2, 4, 8, 16, 32)
COPIES = (2, 4, 8)
MOST_PERMUTED = 4
"""Loops of which all orders are looked at."""


def vary(s: Planned, name: str) -> None:
    """Asks for the variants of a definition's loops; what is illegal changes nothing."""
    if s.state.stage(name).place is not None:
        return
    for change in (_reorder_blocks, _block, _reorder_reduction, _copy_out):
        before = s.state
        try:
            change(s, name)
        except ScheduleError:
            s.state = before


def _outer(stage: Stage) -> list[str]:
    """The serial data loops around everything else."""
    found: list[str] = []
    for loop in stage.order:
        if stage.group_of(loop) is not None or stage.kind(loop) != SERIAL:
            break
        found.append(loop)
    return found


def _other_orders(loops: list[str]) -> list[str]:
    """All orders of a few loops but the one that they have."""
    return [" ".join(order) for order in permutations(loops)][1:] if len(loops) <= MOST_PERMUTED else []


def _reorder_blocks(s: Planned, name: str) -> None:
    stage = s.state.stage(name)
    loops = _outer(stage)
    kept = [(r.outer, r.inner) for r in stage.relations if isinstance(r, Split) and r.tail == "shift" and {r.outer, r.inner} <= {*loops}]

    def orders() -> list[str]:
        """Blocks that overlap stay outside of what is in them: places that two of them write would be those of two threads."""
        return [x for x in _other_orders(loops) if all((at := x.split()).index(outer) < at.index(inner) for outer, inner in kept)]

    chosen = s.decisions.choose(f"{name}: order of blocks", [AS_IT_IS], others=orders)
    if chosen != AS_IT_IS:
        s[name].reorder(*chosen.split())


def _block(s: Planned, name: str) -> None:
    """Runs a few iterations of an outer loop inside of the loop after it: `[i, j, ...]` becomes `[i_o, j, i_i, ...]`."""
    stage = s.state.stage(name)
    loops = _outer(stage)
    options = [
        f"{factor} {loop}"
        for loop in loops[:-1]
        for factor in BLOCKS
        if (extent := stage.extent(loop)) is not None and 2 * factor <= extent
    ]
    chosen = s.decisions.choose(f"{name}: second level", [AS_IT_IS], others=lambda: options)
    if chosen == AS_IT_IS:
        return
    factor, loop = chosen.split()
    after = loops[loops.index(loop) + 1]
    _, inner = s[name].split(loop, int(factor))
    s[name].reorder(after, inner)


def _reorder_reduction(s: Planned, name: str) -> None:
    stage = s.state.stage(name)
    for group in stage.parts.groups:
        loops = [x for x in stage.order if stage.reduces(x, group) and stage.kind(x) == SERIAL]
        if is_ordered(group) or not 1 < len(loops) <= MOST_PERMUTED:
            continue
        chosen = s.decisions.choose(f"{name}: order of {' '.join(loops)}", [AS_IT_IS], others=partial(_other_orders, loops))
        if chosen != AS_IT_IS:
            s[name].reorder(*chosen.split())


def _copy_out(s: Planned, name: str) -> None:
    stage = s.state.stage(name)
    inner = [x for x in stage.order if stage.group_of(x) is not None and stage.kind(x) == SERIAL]
    if not inner:
        return
    extent = stage.extent(inner[-1])
    copies = [str(n) for n in COPIES if extent is None or 2 * n <= extent]
    chosen = s.decisions.choose(f"{name}: copies of {inner[-1]}", [AS_IT_IS], others=lambda: copies)
    if chosen != AS_IT_IS:
        _, copied = s[name].split(inner[-1], int(chosen))
        s[name].unroll(copied)
