"""The schedule that users hold: a value of `State` behind the words of TVM and Halide."""

from __future__ import annotations

from tensorexpr.codegen.schedule.state import State, plain_state
from tensorexpr.codegen.target import Target, host_target
from tensorexpr.ir import Program


class Schedule:
    """A program and how it runs."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def program(self) -> Program:
        return self.state.program

    @property
    def target(self) -> Target:
        return self.state.target


def schedule(program: Program, target: Target | None = None) -> Schedule:
    """The plain schedule."""
    return Schedule(plain_state(program, host_target() if target is None else target))
