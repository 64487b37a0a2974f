"""`op.sharding(...)`: the rules of an operation as a table, and its parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.ir import Const, Program
from tensorexpr.markup import amount, table
from tensorexpr.records import cached_property
from tensorexpr.sharding.parts import Bounds, Part, part_of
from tensorexpr.sharding.placements import Partial, Placement, Site, Whole
from tensorexpr.sharding.rules import Rule, rules_of

COMBINE = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "all": np.logical_and, "any": np.logical_or,
}  # fmt: skip
"""How two addends are combined."""


class Row(NamedTuple):
    """A rule by name: the placement of each input and of each output, and the number of units that a block is taken from."""

    inputs: dict[str, Placement]
    outputs: dict[str, Placement]
    units: int


class Sharding:
    """The sharding rules of a program: `rules`, as they are used; `rows`, the same by name. Prints as a table.

    `blocks(rule, count)` cuts the units of a rule into `count` blocks, and `part(rule, begin, end)` is what a device with one of them
    computes.
    """

    def __init__(self, program: Program) -> None:
        if program.sizes:
            raise DefinitionError(
                f"sharding: expected extents that are numbers, got open ones: {', '.join(program.sizes)}",
                location=user_location(),
                hint="give specs with the sizes of the whole arrays",
            )
        self.program = program

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules."""
        return tuple(rules_of(self.program))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rules with the names of inputs and outputs."""
        names = [given.name for given in self.program.inputs]
        return tuple(
            Row(dict(zip(names, rule.inputs, strict=True)), dict(zip(self.program.outputs, rule.outputs, strict=True)), rule.units)
            for rule in self.rules
        )

    @staticmethod
    def blocks(rule: Rule, count: int) -> list[tuple[int, int]]:
        """The units of `count` blocks, as long as each other but for the last ones, which may be empty."""
        size = -(-rule.units // count)
        return [(min(k * size, rule.units), min((k + 1) * size, rule.units)) for k in range(count)]

    def ranges(self, rule: Rule, begin: int, end: int) -> dict[Site, tuple[int, int]]:
        """Where the loops of a rule run for a block of units."""
        return {site: (begin * step, rule.extents[site] if end == rule.units else end * step) for site, step in rule.sites}

    def part(self, rule: Rule, begin: int, end: int) -> Part:
        """The part of a device that has the units from `begin` to `end`."""
        return part_of(self.program, self.ranges(rule, begin, end), rule.shares(begin == 0))

    def whole(self, rule: Rule) -> tuple[str, ...]:
        """The inputs of more than one element that every device has to hold as a whole."""
        names = [given.name for given, one in zip(self.program.inputs, rule.inputs, strict=True) if isinstance(one, Whole)]
        return tuple(name for name in names if math.prod(self.extents(name)) > 1)

    def extents(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor of the program."""
        return tuple(int(extent.value) for extent in self.program.types[name].shape if isinstance(extent, Const))

    def __str__(self) -> str:
        inputs, outputs = [given.name for given in self.program.inputs], list(self.program.outputs)
        lines = [(*inputs, "->", *outputs)]
        lines += [(*map(str, rule.inputs), "->", *map(str, rule.outputs)) for rule in self.rules]
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"<sharding of {', '.join(self.program.outputs)}: {amount(len(self.rules), 'rule')}>"

    def _repr_html_(self) -> str:
        headings = (*(given.name for given in self.program.inputs), *(f"-> {name}" for name in self.program.outputs))
        return table(headings, self.rules, lambda rule: (*rule.inputs, *rule.outputs))


def cut(array: np.ndarray, bounds: Bounds | None) -> np.ndarray:
    """The box of an array that a part takes; around an end of an axis the other end follows."""
    if bounds is None:
        return array[tuple(slice(0, 1) for _ in array.shape)]
    for axis, (begin, end) in enumerate(bounds):
        if begin < 0 or end > array.shape[axis]:
            array = array.take(np.arange(begin, end), axis=axis, mode="wrap")
        else:
            array = array[(slice(None),) * axis + (slice(begin, end),)]
    return array


def joined(sharding: Sharding, rule: Rule, parts: Sequence[Part], results: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The outputs of the whole, from those of the parts."""
    found = []
    for position, (name, placement) in enumerate(zip(sharding.program.outputs, rule.outputs, strict=True)):
        ours = [result[position] for result in results]
        if isinstance(placement, Partial):
            whole = ours[0]
            for other in ours[1:]:
                whole = COMBINE[placement.combine](whole, other)
        else:
            whole = np.empty(sharding.extents(name), ours[0].dtype)
            for part, mine in zip(parts, ours, strict=True):
                whole[tuple(slice(begin, end) for begin, end in part.outputs[position])] = mine
        found.append(whole)
    return found
