"""The primitive `tile`: two loops split, the blocks of both outside."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.loops.reorder import reorder
from tensorexpr.codegen.schedule.loops.split import split


def tile(
    state: State, name: str, a: str, b: str, a_factor: int, b_factor: int, tail: str = "peel"
) -> tuple[State, tuple[str, str, str, str]]:
    """rewrite: [..., a, ..., b, ...] --> [..., a_o, ..., b_o, a_i, b_i, ...]: two loops split, the blocks of both outside.

    The same as two calls of `split` and one of `reorder`; gives a_o, b_o, a_i, b_i.
    """
    state, (a_outer, a_inner) = split(state, name, a, a_factor, tail)
    state, (b_outer, b_inner) = split(state, name, b, b_factor, tail)
    return reorder(state, name, (a_outer, b_outer, a_inner, b_inner)), (a_outer, b_outer, a_inner, b_inner)
