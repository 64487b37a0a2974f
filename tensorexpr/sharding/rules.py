"""The sharding rules of a program: which axes may be split together, and what becomes of every other tensor.

A rule starts from an axis of an input (or of an output, or a loop of a reduction). All loops that move with it (`links`) are candidates:
an output's axis is split, or the loops of a reduction run over a block, and what they give is an addend (`partial`). Of the
choices those are kept that leave the first axis split and the most tensors so; what each input has to hold then follows by projection
(`demand`). Rows of a table that data points into are a rule of their own: each device adds what its rows have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tensorexpr.bounds import axis_ranges
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Program, Reduce, Scatter, Segments
from tensorexpr.sharding.demand import Box, demand, everything, extent_of, is_block
from tensorexpr.sharding.intervals import BEGIN, END, Interval, NotDivisible
from tensorexpr.sharding.links import Links, loops_of
from tensorexpr.sharding.partial import COMBINERS, Mixed, Share, addends
from tensorexpr.sharding.placements import UNREAD, WHOLE, Partial, Placement, Site, Split, Unread, Whole
from tensorexpr.traversal import children, expressions, reads, tensors_read, walk

_CHOICES = 96  # of sites for one start
_UNITS = 4096  # the largest step of an axis


class Rule(NamedTuple):
    """A way to split a program along one dimension of a mesh.

    `inputs` and `outputs` have the placements, in the program's order; `sites` the restricted loops with their steps for a unit of the
    block, `units` how many there are, `combine` how addends are combined (None: there are none), `extents` where each of the loops ends.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    sites: tuple[tuple[Site, int], ...]
    units: int
    combine: str | None
    extents: dict[Site, int]

    @property
    def splits(self) -> int:
        """How many inputs are split."""
        return sum(isinstance(one, Split) for one in self.inputs)

    @property
    def halo(self) -> bool:
        """Whether devices read what their neighbors have."""
        return any(isinstance(one, Split) and one.halo != (0, 0) for one in self.inputs)

    def shares(self, first: bool) -> tuple[Share, ...]:
        """What a part has of the addends, for `part_of`; nothing where there are none."""
        inner = frozenset(site for site, _ in self.sites if site.kind != "axis")
        return () if self.combine is None else (Share(self.combine, inner, first),)


def rules_of(program: Program) -> list[Rule]:
    """All rules, those that split more inputs first where they start from the same axis; none is a worse form of another."""
    return _Rules(program).run()


class _Rules:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.links = Links(program)
        self.definitions = {d.results[0][0]: d for d in program.definitions}
        self.combines = {(d.results[0][0], axis.index): name for d in program.definitions for name, axis in loops_of(d)}
        self.depends = self._dependences()

    def _dependences(self) -> dict[str, set[str]]:
        """For each tensor the definitions and inputs that it is made of."""
        found: dict[str, set[str]] = {given.name: {given.name} for given in self.program.inputs}
        for definition in self.program.definitions:
            names = {definition.results[0][0]}
            for read in reads(definition):
                names |= found.get(read, set())
            found.update({name: names for name, _ in definition.results})
        return found

    def run(self) -> list[Rule]:
        found: list[Rule] = []
        for start in self._starts():
            for rule in self._from(start):
                if not any(rule[:2] == other[:2] for other in found):
                    found.append(rule)
        found = [rule for rule in found if rule.splits or not any(isinstance(one, Partial) for one in rule.outputs)]
        for one, other in itertools.combinations(list(found), 2):
            both = self._both(one, other)
            if both is not None and not any(both[:2] == known[:2] for known in found):
                found.append(both)
        return [rule for rule in found if not any(_is_worse(rule, other) for other in found if other is not rule)]

    def _both(self, one: Rule, other: Rule) -> Rule | None:
        """Two rules as one, where each splits what the other computes everywhere: gradients of two inputs along the axis they share."""
        if one.units != other.units or len(self.program.outputs) < 2 or not (one.splits and other.splits):
            return None
        if any(not isinstance(a, Whole) and not isinstance(b, Whole) for a, b in zip(one.outputs, other.outputs, strict=True)):
            return None
        if any(isinstance(a, Split) and isinstance(b, Split) for a, b in zip(one.inputs, other.inputs, strict=True)):
            return None
        both = self._rule(dict((*one.sites, *other.sites)))
        return both if both is not None and all(_score(both) >= _score(each) for each in (one, other)) else None

    def _starts(self) -> Iterator[Site]:
        for given in self.program.inputs:
            for position in range(len(given.type.shape)):
                yield Site("axis", given.name, position)
        for name in self.program.outputs:
            for position in range(len(self.program.types[name].shape)):
                yield Site("axis", name, position)
        for given in self.program.inputs:
            for position in range(len(given.type.shape)):
                if self._is_table(given.name, position):
                    yield Site("rows", given.name, position)

    def _is_table(self, name: str, position: int) -> bool:
        """Whether an axis of an input is read where data says alone."""
        found = [
            bool(tensors_read(access.indices[position]))
            for definition in self.program.definitions
            for expr in expressions(definition)
            for access in walk(expr)
            if isinstance(access, Access) and access.tensor == name
        ]
        return bool(found) and all(found)

    # ------------------------------------------------------------------------------------------------- one start

    def _from(self, start: Site) -> list[Rule]:
        steps = {start: 1} if start.kind == "rows" else self.links.component(start)
        if not all(self._extent(site) > 1 for site in (start,)):
            return []
        choices = [self._options(name, steps, start) for name in self.program.outputs]
        best: list[Rule] = []
        for chosen in itertools.islice(itertools.product(*choices), _CHOICES):
            sites = frozenset(itertools.chain.from_iterable(chosen))
            rule = self._rule({site: steps[site] for site in sites}) if sites else None
            if rule is None or not self._keeps(rule, start) or any(rule[:2] == other[:2] for other in best):
                continue
            best.append(rule)
        most = max((_score(rule) for rule in best), default=(0, 0))
        return [rule for rule in best if _score(rule) == most or len(self.program.outputs) == 1]

    def _keeps(self, rule: Rule, start: Site) -> bool:
        """Whether the axis that a rule starts from is split in it."""
        names = [given.name for given in self.program.inputs]
        if start.owner in names:
            placement = rule.inputs[names.index(start.owner)]
        else:
            placement = rule.outputs[self.program.outputs.index(start.owner)]
        return isinstance(placement, Split) and placement.axis == start.name

    def _options(self, output: str, steps: Mapping[Site, int], start: Site) -> list[frozenset[Site]]:
        """What may be restricted for one output: an axis of it, loops that it is made by, or nothing."""
        if start.kind == "rows":
            return [frozenset({start})] if start.owner in self.depends[output] else [frozenset()]
        axes = [frozenset({site}) for site in steps if site.kind == "axis" and site.owner == output and self._extent(site) > 1]
        loops: dict[str, list[Site]] = {}
        for site in steps:
            if site.kind == "loop" and site.owner in self.depends[output] and self._extent(site) > 1:
                combine = self.combines.get((site.owner, str(site.name)))
                if combine in COMBINERS or self._is_plan(site):
                    loops.setdefault(combine or "sum", []).append(site)
        together = [frozenset(sites) for sites in loops.values()]
        alone = [frozenset({site}) for sites in loops.values() for site in sites if len(sites) > 1]
        return [*axes, *together, *alone, frozenset()]

    def _is_plan(self, site: Site) -> bool:
        plan = self.definitions.get(site.owner)
        return isinstance(plan, Segments) and plan.axes[0].index == site.name

    def _extent(self, site: Site) -> int:
        if site.kind in ("axis", "rows"):
            return extent_of(self.program.types[site.owner].shape[int(site.name)])
        definition = self.definitions[site.owner]
        if isinstance(definition, Segments):
            return extent_of(next(axis.stop for axis in definition.loops if axis.index == site.name))
        own = definition.axes if isinstance(definition, Define | Scatter) else ()
        return max((_end(axis, (*own, *around)) for axis, around in _nested(definition) if axis.index == site.name), default=0)

    # ------------------------------------------------------------------------------------------------- one choice

    def _rule(self, steps: Mapping[Site, int]) -> Rule | None:
        """The rule of some sites; None where addends would have to be combined before the end, or steps do not fit."""
        combine = self._combiner(steps)
        if combine == "":
            return None
        inner = frozenset(site for site in steps if site.kind != "axis")
        partial: set[str] = set()
        if inner:
            try:
                partial = addends(self.program, combine or "sum", inner).tensors
            except Mixed:
                return None
        if any(site.kind == "axis" and site.owner in partial for site in steps):
            return None
        scale = 1
        while True:
            units = max(-(-self._extent(site) // (step * scale)) for site, step in steps.items())
            ends: dict[Site, Interval] = {
                site: (Affine.of(BEGIN) * (step * scale), Affine.of(END) * (step * scale) - 1) for site, step in steps.items()
            }
            try:
                boxes = demand(self.program, ends, units)
                break
            except NotDivisible as error:
                scale *= error.factor
                if scale > _UNITS or units <= 1:
                    return None
        inputs = tuple(_placed(boxes.get(given.name), everything(given.type)) for given in self.program.inputs)
        outputs = tuple(self._output(name, boxes, partial, combine or "sum", steps, scale) for name in self.program.outputs)
        sites = tuple(sorted(((site, step * scale) for site, step in steps.items()), key=lambda item: str(item[0])))
        extents = {site: self._extent(site) for site in steps}
        return Rule(inputs, outputs, sites, units, combine if partial else None, extents) if units > 1 else None

    def _combiner(self, steps: Mapping[Site, int]) -> str | None:
        """The combiner of the loops that are restricted: None without any, an empty text where they differ."""
        names = set()
        for site in steps:
            if site.kind == "rows" or (site.kind == "loop" and self._is_plan(site)):
                names.add("sum")
            elif site.kind == "loop":
                names.add(self.combines[site.owner, str(site.name)])
        return None if not names else names.pop() if len(names) == 1 else ""

    def _output(
        self, name: str, boxes: Mapping[str, Box], partial: set[str], combine: str, steps: Mapping[Site, int], scale: int
    ) -> Placement:
        if name in partial:
            return Partial(combine)
        for site, step in steps.items():
            if site.kind == "axis" and site.owner == name:
                return Split(int(site.name), step * scale)
        return WHOLE


def _nested(definition: Definition) -> Iterator[tuple[Axis, tuple[Axis, ...]]]:
    """The loops of the reductions of a definition, each with those around it; one name may be that of several."""
    if isinstance(definition, Scatter):
        yield from ((axis, definition.axes) for axis in definition.axes)
    if not isinstance(definition, Define):
        return
    stack: list[tuple[Expr, tuple[Axis, ...]]] = [(definition.value, ())]
    seen: set[tuple[int, tuple[Axis, ...]]] = set()
    while stack:
        node, around = stack.pop()
        if (id(node), around) in seen:
            continue
        seen.add((id(node), around))
        if isinstance(node, Reduce):
            around = (*around, *node.axes)
            yield from ((axis, around) for axis in node.axes)
        stack.extend((child, around) for child in children(node))


def _end(axis: Axis, around: tuple[Axis, ...]) -> int:
    """Where a loop ends at the latest; 0 where data says, or where it begins below zero."""
    low, high = axis_ranges(around)[axis.index]
    return 0 if math.isinf(low) or math.isinf(high) or low < 0 else int(high) + 1


def _placed(box: Box | None, whole: Box) -> Placement:
    """The placement of an input of which a box is read."""
    if box is None:
        return UNREAD
    for axis, (one, all_) in enumerate(zip(box, whole, strict=True)):
        if is_block(one):
            step = one.low.coefficient(BEGIN)
            halo = (max(0, -one.low.constant), max(0, one.high.constant + 1))
            if 2 * max(halo) <= all_.high.constant + 1:
                return Split(axis, step, halo, one.wraps)
    return WHOLE


def _score(rule: Rule) -> tuple[int, int]:
    """How much is split: of the inputs, and of the outputs."""
    return rule.splits, sum(not isinstance(one, Whole) for one in rule.outputs)


def _is_worse(rule: Rule, other: Rule) -> bool:
    """Whether another rule has the same outputs, and splits what this one does and more."""
    if rule.outputs != other.outputs or rule.inputs == other.inputs:
        return False
    return all(a == b or isinstance(a, Whole) or isinstance(b, Unread) for a, b in zip(rule.inputs, other.inputs, strict=True))


__all__ = ["Rule", "rules_of"]
