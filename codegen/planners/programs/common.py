"""Dear values that a row of results and a reduction over it compute alike are kept for the row: a softmax takes each exponential once.

A row of them is written to a buffer and read again twice, which costs three or four cycles for a vector; an exponential costs ten.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.schedule.analysis.state import program_facts
from tensorexpr.codegen.schedule.analysis.work import ENOUGH_ROWS, has_reduction, is_contraction, length
from tensorexpr.codegen.schedule.definitions.common import Found, is_plain, values_of
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Define

SHARE = 4
"""A row of what is kept takes at most one of so many parts of the second level."""


def keep_common(s: Planned, without: frozenset[str] = frozenset()) -> dict[str, tuple[str, ...]]:
    """Makes definitions of what rows and reductions over them have in common: by what has these rows, none of `without`.

    Each is worth it in one loop over rows alone.
    """
    made: dict[str, tuple[str, ...]] = {}
    if s.target.is_gpu:
        return made
    facts = program_facts(s.state.program)
    plain = [
        d for n in s.stages if isinstance(d := facts.definitions[n], Define) and is_plain(s.state, n) and not is_contraction(s.state, n)
    ]
    known = {d.name: list(values_of(d, facts.shapes)) for d in plain}
    for host in reversed(plain):
        if host.name in without or len(host.axes) < 2 or has_reduction(host.value):
            continue
        for value in known[host.name]:
            others = [d for d in plain if d is not host and any(v.form == value.form for v in known[d.name])]
            rows = min((d for d in others if has_reduction(d.value)), key=lambda d: len(d.axes), default=None)
            if (
                rows is None
                or rows.name not in facts.producers[host.name]
                or not all(_has_rows(s, d, rows, known[d.name], value) for d in (host, *others))
            ):
                continue
            names = [d.name for d in others]
            if s.decisions.wanted(f"{host.name}: values in common with {', '.join(names)}"):
                made[host.name] = s[host.name].common(*names)
                for name in (host.name, *names):
                    known[name] = []
                break
    return made


def _has_rows(s: Planned, definition: Define, rows: Define, values: list[Found], value: Found) -> bool:
    """Whether the first axes of a definition are those rows, and what it needs of a value in one of them is little."""
    depth = len(rows.axes)
    if [a.stop for a in definition.axes[:depth]] != [a.stop for a in rows.axes] or prod(map(length, rows.axes)) < ENOUGH_ROWS:
        return False
    leading = [a.index for a in definition.axes[:depth]]
    for found in values:
        size = found.value.dtype.itemsize * prod(map(length, found.axes[depth:]))
        if found.form == value.form and ([a.index for a in found.axes[:depth]] != leading or size > s.target.l2_bytes // SHARE):
            return False
    return len(value.axes) > depth > 0
