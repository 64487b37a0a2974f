"""Scans whose steps are skewed by default: stencils on states that do not stay in a core's own cache from one step to the next.

As many steps make one pass as have their rows in a part of the second level; blocks of rows are as many as cores need, and long beside
what each computes beyond its borders.
"""

from __future__ import annotations

from contextlib import suppress

from tensorexpr.codegen.schedule.analysis.skewing import Wave, wave_of
from tensorexpr.codegen.schedule.analysis.work import operations
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Const, Define, Scan, integer, product

SHARE = 2
"""The rows of all steps take one of so many parts of the second level."""
MOST_STEPS = 16
LONG = 8
"""A block has so many times the rows that it computes beyond its borders, step by step on average."""
BLOCKS = 4
"""Blocks for each core, where these are long then."""
MOST_WORK = 64
"""Operations for each byte of a state up to which it matters that states go through memory."""


def skew_scans(s: Planned) -> None:
    """Skews the steps of scans where it pays."""
    swept = {one.names[0] for one in s.state.sweeps}
    for definition in s.state.program.definitions:
        if not isinstance(definition, Scan) or definition.names[0] in swept or not isinstance(definition.length, Const):
            continue
        name = definition.names[0]
        with suppress(ScheduleError):
            wave = wave_of(s.state, definition)
            steps, rows = _sizes(s, definition, wave)
            if s.decisions.wanted(f"{name}: steps skewed", _pays(s, definition, steps)):
                steps = s.decisions.choose(f"{name}: steps of a pass", [max(2, steps)], others=lambda: (2, 4, 8, MOST_STEPS))
                rows = s.decisions.choose(f"{name}: rows of a block", [rows], others=lambda: (32, 64, 128, 256, 512))
                s.skew(name, min(steps, integer(definition.length)), rows)


def _sizes(s: Planned, scan: Scan, wave: Wave) -> tuple[int, int]:
    """How many steps make a pass, all passes about equally many, and the rows of a block."""
    length, extent, cores = max(1, integer(scan.length)), max(1, wave.rows[scan.nexts[0]].extent), s.target.cores
    most = min(length, MOST_STEPS, max(1, s.target.l2_bytes // SHARE // max(1, wave.bytes_of(scan, 1))))
    whole = -(-extent // cores)

    def beyond(steps: int) -> int:
        return LONG * (steps - 1) * (wave.before + wave.after) // 2

    while most > 1 and beyond(most) > whole:
        most -= 1
    steps = -(-length // -(-length // most))
    return steps, min(whole, max(-(-extent // (BLOCKS * cores)), beyond(steps)))


def _pays(s: Planned, scan: Scan, steps: int) -> bool:
    size = sum(integer(product(type_.shape)) * type_.dtype.itemsize for _, type_ in scan.states)
    work = sum(operations(d.value) * integer(product(tuple(a.stop for a in d.axes))) for d in scan.body if isinstance(d, Define))
    return steps > 1 and 2 * size > s.target.l2_bytes and work <= MOST_WORK * size
