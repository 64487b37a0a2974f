"""Scans whose points do not communicate: which readers are computed in their steps."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import program_facts
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.ir import Define, Definition, Scan
from tensorexpr.traversal import reads

MOST_JOINED = 16
"""Readers that are tried in the steps of one scan."""


def sweep_scans(s: Planned) -> None:
    """Gives scans loops of their own where their points do not communicate, with the readers that fit.

    The last scan first: a reader of several goes to the one after which it can run in its own place.
    """
    for definition in reversed(s.state.program.definitions):
        if not isinstance(definition, Scan):
            continue
        name = definition.names[0]
        readers: list[str] = []
        plain = s.state
        if not s.tried(s.sweep, name):
            continue
        made = {*definition.names}
        for reader in _after(s, name):
            if not made & set(reads(reader)) or reader.results[0][0] not in s.state.table:
                continue
            with_it, s.state = s.state, plain
            if s.tried(s.sweep, name, *readers, reader.results[0][0]):
                readers.append(reader.results[0][0])
                made.add(readers[-1])
            else:
                s.state = with_it
            if len(readers) == MOST_JOINED:
                break


def _after(s: Planned, name: str) -> tuple[Definition, ...]:
    return tuple(d for d in s.state.program.definitions[program_facts(s.state.program).numbers[name] + 1 :] if isinstance(d, Define))
