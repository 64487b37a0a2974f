"""Plans: what a compiled graph does when it runs, a list of instructions over slots.

A slot holds an array (of the CPU or of a device), or the history of a loop. What is assigned to variables during a run is kept aside and
put into them when the whole run has succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorexpr.errors import FailedCheckError, Location

Slots = list[Any]
State = dict[Any, Any]


class Instruction:
    """One thing that a plan does: changes slots, or what variables hold in this run."""

    def run(self, slots: Slots, state: State) -> None:
        raise NotImplementedError


@dataclass
class Plan:
    """Instructions, where inputs go and outputs are, and what slots hold at the beginning."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    start: Slots
    instructions: list[Instruction] = field(default_factory=list)

    def run(self, arrays: Sequence[Any], state: State) -> list[Any]:
        """The outputs for inputs; effects have happened, assignments are in `state`."""
        slots = self.start.copy()
        for slot, array in zip(self.inputs, arrays):
            slots[slot] = array
        for instruction in self.instructions:
            instruction.run(slots, state)
        return [slots[slot] for slot in self.outputs]


def on_host(array: Any) -> Any:
    """An array of a device as one of NumPy's; everything else as it is."""
    return array.get() if not isinstance(array, (np.ndarray, np.generic, list)) and hasattr(array, "get") else array


@dataclass
class Brings(Instruction):
    """Values to where a compiled function of another place wants them, each into a slot of its own: once a run for all that run there."""

    function: Any
    device: str
    pairs: list[tuple[int, int]]

    def run(self, slots: Slots, state: State) -> None:
        for source, target in self.pairs:
            array = slots[source]
            if self.device == "cpu":
                slots[target] = np.asarray(on_host(array))
            else:
                slots[target] = self.function.upload(array) if isinstance(array, (np.ndarray, np.generic)) else array


@dataclass
class Kernel(Instruction):
    """A compiled function; on a device its arguments are there already (see `Brings`)."""

    function: Any
    device: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        arrays = [slots[slot] for slot in self.inputs]
        if self.device == "cpu":
            arrays = [array if type(array) is np.ndarray else np.asarray(on_host(array)) for array in arrays]
        for slot, array in zip(self.outputs, self.function(*arrays)):
            slots[slot] = array


@dataclass
class Reads(Instruction):
    """Variables into slots."""

    pairs: list[tuple[Any, int]]

    def run(self, slots: Slots, state: State) -> None:
        for variable, slot in self.pairs:
            found = state.get(variable) if state else None
            if found is None:
                found = variable.storage
                if found is None:
                    variable.check()
            slots[slot] = found


@dataclass
class Assigns(Instruction):
    """Slots into variables."""

    pairs: list[tuple[Any, int]]

    def run(self, slots: Slots, state: State) -> None:
        for variable, slot in self.pairs:
            if variable.storage is None:
                variable.check()
            state[variable] = slots[slot]


@dataclass
class Printed(Instruction):
    """A line of text."""

    text: str
    inputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        print(self.text.format(*(on_host(slots[slot]) for slot in self.inputs)))


@dataclass
class Checked(Instruction):
    """An error unless a slot holds true."""

    text: str
    flag: int
    location: Location | None

    def run(self, slots: Slots, state: State) -> None:
        if not bool(on_host(slots[self.flag])):
            raise FailedCheckError(self.text, location=self.location)


@dataclass
class Called(Instruction):
    """Another plan: a call that stays one."""

    plan: Plan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        for slot, array in zip(self.outputs, self.plan.run([slots[s] for s in self.inputs], state)):
            slots[slot] = array


@dataclass
class Branch(Instruction):
    """One of two plans."""

    flag: int
    then: Plan
    otherwise: Plan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        taken = self.then if bool(on_host(slots[self.flag])) else self.otherwise
        for slot, array in zip(self.outputs, taken.run([slots[s] for s in self.inputs], state)):
            slots[slot] = array


@dataclass
class Loop(Instruction):
    """A plan again and again; with `history`, the last output is what the body gave beyond the state."""

    condition: Plan
    body: Plan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    history: bool

    def run(self, slots: Slots, state: State) -> None:
        arrays = [slots[slot] for slot in self.inputs]
        width, saved = len(arrays), []
        while bool(on_host(self.condition.run(arrays, state)[0])):
            results = self.body.run(arrays, state)
            arrays = results[:width]
            if self.history:
                saved.append(results[width:])
        for slot, result in zip(self.outputs, [*arrays, saved] if self.history else arrays):
            slots[slot] = result


@dataclass
class LoopBackwards(Instruction):
    """A plan for every entry of a history, the last one first."""

    body: Plan
    saved: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        history, *arrays = (slots[slot] for slot in self.inputs)
        for saved in reversed(history):
            arrays = self.body.run([*saved[: self.saved], *arrays], state)
        for slot, array in zip(self.outputs, arrays):
            slots[slot] = array


@dataclass
class Foreign(Instruction):
    """What a tool computes in place of a composite."""

    function: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, slots: Slots, state: State) -> None:
        for slot, array in zip(self.outputs, self.function(*(on_host(slots[slot]) for slot in self.inputs))):
            slots[slot] = array
