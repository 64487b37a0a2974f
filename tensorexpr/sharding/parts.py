"""The program of one part: what a device computes of the block that it has.

`part_of(program, sites, shares)` restricts the loops of `sites` to ranges of numbers. Every tensor shrinks to the box that is read of it
(`demand`), its own indices count from the start of the box, and everything else stays in the numbers of the whole: borders,
masks and means are those of the whole operation. So parts differ where they lie at a border, and are equal where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tensorexpr.integers import Affine
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Const,
    Constant,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    const,
)
from tensorexpr.records import replace
from tensorexpr.sharding.demand import Box, Range, around_the_end, body_name, demand, everything
from tensorexpr.sharding.intervals import Interval
from tensorexpr.sharding.links import stride_of
from tensorexpr.sharding.partial import Addends, Share, addends
from tensorexpr.sharding.placements import Site
from tensorexpr.traversal import fresh_name, map_children

Bounds = tuple[tuple[int, int], ...]
"""Begin and end of a box along each axis; with a begin below zero or an end beyond the extent where it goes around."""


class Part(NamedTuple):
    """A part: its program, and the box of each input that it takes and of each output that it gives (None: an input that it does not read,
    for which it takes one element of each axis)."""

    program: Program
    inputs: dict[str, Bounds | None]
    outputs: tuple[Bounds, ...]


def part_of(
    program: Program,
    sites: Mapping[Site, tuple[int, int]],
    shares: Sequence[Share] = (),
    wider: Mapping[str, Bounds] | None = None,
) -> Part:
    """The part of a program where sites run from begin to end.

    Where they make addends, `shares` says which, for each rule; what stands beside those is in the first part alone. `wider` gives
    inputs other boxes than what is read of them, around that.
    """
    from_to: dict[Site, Interval] = {site: (Affine.of(begin), Affine.of(end - 1)) for site, (begin, end) in sites.items()}
    boxes = demand(program, from_to, 1)
    found = [(addends(program, share.combine, share.sites), share.first) for share in shares]
    for name, bounds in (wider or {}).items():
        if name in boxes:
            boxes[name] = tuple(Range(Affine.of(b), Affine.of(e - 1), one.wraps) for (b, e), one in zip(bounds, boxes[name], strict=True))
    return _Part(program, from_to, boxes, found).run()


class _Part:
    def __init__(
        self, program: Program, sites: Mapping[Site, Interval], boxes: dict[str, Box], found: Sequence[tuple[Addends, bool]]
    ) -> None:
        self.program, self.sites, self.boxes, self.addends = program, sites, boxes, found
        self.types = dict(program.types)
        self.inputs = {given.name for given in program.inputs}
        self.orders = {d.names[1]: d for d in program.definitions if isinstance(d, Segments)}

    def run(self) -> Part:
        definitions = [self.definition(d) for d in self.program.definitions if any(name in self.boxes for name, _ in d.results)]
        inputs = tuple(replace(given, type=self.type_of(given.name)) for given in self.program.inputs)
        constants = tuple(Constant(c.name, self.cut(c)) for c in self.program.constants if c.name in self.boxes)
        taken = set(self.types)
        outputs = []
        for name in self.program.outputs:
            wanted = self.wanted(name)
            same = name in self.boxes and wanted == self.bounds(name)
            outputs.append(name if same else self.sliced(name, wanted, taken, definitions))
        made = Program(inputs, constants, tuple(definitions), tuple(outputs), ())
        boxes = {given.name: self.bounds(given.name) if given.name in self.boxes else None for given in self.program.inputs}
        return Part(made, boxes, tuple(self.wanted(name) for name in self.program.outputs))

    # -------------------------------------------------------------------------------------------------- boxes

    def bounds(self, name: str) -> Bounds:
        return tuple((one.low.constant, one.high.constant + 1) for one in self.boxes[name])

    def wanted(self, name: str) -> Bounds:
        """The box of an output: its restricted axes, all of the others."""
        found = []
        for position, one in enumerate(everything(self.types[name])):
            low, high = self.sites.get(Site("axis", name, position), (one.low, one.high))
            assert low is not None and high is not None
            end = min(high.constant, one.high.constant) + 1
            found.append((min(low.constant, end), end))
        return tuple(found)

    def type_of(self, name: str) -> TensorType:
        type_ = self.types[name]
        if name not in self.boxes:  # never read: an element of each axis stands for it
            return TensorType(tuple(const(min(int(e.value), 1)) for e in type_.shape if isinstance(e, Const)), type_.dtype)
        return TensorType(tuple(const(end - begin) for begin, end in self.bounds(name)), type_.dtype)

    def starts(self, name: str) -> list[int]:
        return [one.low.constant for one in self.boxes[name]]

    def cut(self, constant: Constant) -> np.ndarray:
        return constant.data[tuple(slice(begin, end) for begin, end in self.bounds(constant.name))]

    def sliced(self, name: str, wanted: Bounds, taken: set[str], definitions: list[Definition]) -> str:
        made = fresh_name(name, taken)
        axes = [Axis(fresh_name(f"i{k}", taken), const(0), const(end - begin)) for k, (begin, end) in enumerate(wanted)]
        if name not in self.boxes:  # nothing of it is in this part
            definitions.append(Define(made, tuple(axes), Const(0, self.types[name].dtype)))
            return made
        indices = [
            _shifted(Index(axis.index), begin - start) for axis, (begin, _), start in zip(axes, wanted, self.starts(name), strict=True)
        ]
        definitions.append(Define(made, tuple(axes), Access(name, tuple(indices), self.types[name].dtype)))
        return made

    # -------------------------------------------------------------------------------------------------- definitions

    def definition(self, definition: Definition) -> Definition:
        match definition:
            case Define():
                axes, names = self.axes(definition.axes, self.boxes[definition.name])
                value = self.rewritten(definition.name, self.addend(definition.name, definition.value), names)
                return replace(definition, axes=axes, value=value)
            case Scatter():
                return self._scatter(definition)
            case Segments():
                return self._segments(definition)
            case Scan():
                return self._scan(definition)

    def addend(self, name: str, whole: Expr) -> Expr:
        """What this part has of a value, rule by rule."""
        value = whole
        for found, first in self.addends:
            if found.within(name, whole):  # of the whole: another rule may have left out all of it that is an addend here
                value = found.addend(name, value, first)
        return value

    def axes(self, axes: tuple[Axis, ...], box: Box) -> tuple[tuple[Axis, ...], dict[str, Expr]]:
        """Loops over a box from zero on, and what stands for the index of each in the whole."""
        made = tuple(
            Axis(axis.index, const(0), const(one.high.constant - one.low.constant + 1)) for axis, one in zip(axes, box, strict=True)
        )
        return made, {axis.index: _shifted(Index(axis.index), one.low.constant) for axis, one in zip(axes, box, strict=True)}

    def _restricted(self, owner: str, axis: Axis, names: Mapping[str, Expr]) -> Axis:
        start, stop = (self.rewritten(owner, expr, names) for expr in (axis.start, axis.stop))
        limits = self.sites.get(Site("loop", owner, axis.index))
        if limits is None:
            return Axis(axis.index, start, stop)
        low, high = limits
        assert low is not None and high is not None
        return Axis(axis.index, _larger(start, low.constant), _smaller(stop, high.constant + 1))

    def _scatter(self, definition: Scatter) -> Scatter:
        name, box = definition.name, self.boxes[definition.name]
        own = {index.name: one for index, one in zip(definition.indices, box, strict=True) if isinstance(index, Index)}
        axes = []
        for axis in definition.axes:
            made = self._restricted(name, axis, {})
            one = own.get(axis.index)
            if one is not None:
                made = Axis(axis.index, _larger(made.start, one.low.constant), _smaller(made.stop, one.high.constant + 1))
            axes.append(made)
        where = None if definition.where is None else self.rewritten(name, definition.where, {})
        indices = []
        for index, one, whole in zip(definition.indices, box, everything(self.types[name]), strict=True):
            found = self.rewritten(name, index, {})
            if one != whole and not isinstance(index, Index):
                inside = apply("and", apply("ge", found, const(one.low.constant)), apply("le", found, const(one.high.constant)))
                where = inside if where is None else apply("and", where, inside)
            indices.append(_shifted(found, -one.low.constant))
        value = self.addend(name, definition.value)
        # Loops of a scatter are numbers of the whole, so its points keep their order.
        return replace(
            definition,
            type=self.type_of(name),
            axes=tuple(axes),
            indices=tuple(indices),
            value=self.rewritten(name, value, {}),
            where=where,
        )

    def _segments(self, plan: Segments) -> Segments:
        box = self.boxes[plan.name][: len(plan.batch)]
        batch, names = self.axes(plan.batch, box)
        axes = []
        for axis in plan.axes:
            limits = self.sites.get(Site("loop", plan.name, axis.index))
            if limits is not None:
                low, high = limits
                assert low is not None and high is not None
                names[axis.index] = _shifted(Index(axis.index), low.constant)
                axis = Axis(axis.index, const(0), const(high.constant + 1 - low.constant))
            axes.append(axis)
        keys = tuple(self.rewritten(plan.name, key, names) for key in plan.keys)
        where = None if plan.where is None else self.rewritten(plan.name, plan.where, names)
        return replace(plan, batch=batch, axes=tuple(axes), keys=keys, where=where)

    def _scan(self, scan: Scan) -> Scan:
        kept = dict(self.boxes), dict(self.types)
        self.types.update(scan.states)
        for inner in scan.body:
            self.types.update(inner.results)
        mark = body_name(scan, "")
        self.boxes.update({name.removeprefix(mark): box for name, box in self.boxes.items() if name.startswith(mark)})
        kept_states = [k for k, name in enumerate(scan.names) if name in self.boxes]  # the others nobody asks for
        for k in kept_states:
            self.boxes[scan.states[k][0]] = self.boxes[scan.nexts[k]] = self.boxes[scan.names[k]][1:]
        states = tuple((scan.states[k][0], self.type_of(scan.states[k][0])) for k in kept_states)
        body = tuple(self.definition(inner) for inner in scan.body if any(name in self.boxes for name, _ in inner.results))
        self.boxes, self.types = kept
        names, inits, nexts = (tuple(items[k] for k in kept_states) for items in (scan.names, scan.inits, scan.nexts))
        return replace(scan, names=names, states=states, inits=inits, body=body, nexts=nexts)

    # -------------------------------------------------------------------------------------------------- expressions

    def rewritten(self, owner: str, expr: Expr, names: Mapping[str, Expr]) -> Expr:
        """An expression over the boxes: `names` gives the indices of the whole."""
        done: dict[int, Expr] = {}
        kept: list[Expr] = []

        def visit(node: Expr) -> Expr:
            found = done.get(id(node))
            if found is None:
                found = done[id(node)] = self._node(owner, node, names, visit)
                kept.append(node)
            return found

        return visit(expr)

    def _node(self, owner: str, node: Expr, names: Mapping[str, Expr], visit: Callable[[Expr], Expr]) -> Expr:
        if isinstance(node, Index):
            return names.get(node.name, node)
        if isinstance(node, Access):
            return self._access(node, visit)
        if isinstance(node, Reduce):
            axes = tuple(self._restricted(owner, axis, names) for axis in node.axes)
            where = None if node.where is None else visit(node.where)
            return replace(node, axes=axes, where=where, values=tuple(visit(value) for value in node.values))
        return map_children(node, visit)

    def _access(self, access: Access, visit: Callable[[Expr], Expr]) -> Expr:
        if access.tensor not in self.boxes:  # read where no point of the block comes
            return Const(0, access.dtype)
        indices, inside = [], None
        for position, (index, one, whole) in enumerate(
            zip(access.indices, self.boxes[access.tensor], everything(self.types[access.tensor]), strict=True)
        ):
            if one.wraps and around_the_end(index, whole):
                assert isinstance(index, Apply)
                index = index.args[0]
            found = visit(index)
            if Site("rows", access.tensor, position) in self.sites:
                here = apply("and", apply("ge", found, const(one.low.constant)), apply("le", found, const(one.high.constant)))
                inside = here if inside is None else apply("and", inside, here)
            indices.append(_shifted(found, -one.low.constant))
        read: Expr = Access(access.tensor, tuple(indices), access.dtype, access.location)
        plan = self.orders.get(access.tensor)
        if plan is not None:
            limits = self.sites.get(Site("loop", plan.name, plan.axes[0].index))
            if limits is not None and limits[0] is not None:
                read = _shifted(read, limits[0].constant * (stride_of(plan) or 1))
        if inside is not None:
            read = apply("where", inside, read, Const(0, access.dtype))
        return read


def _shifted(expr: Expr, amount: int) -> Expr:
    if not amount:
        return expr
    return apply("add", expr, const(amount)) if amount > 0 else apply("sub", expr, const(-amount))


def _larger(expr: Expr, number: int) -> Expr:
    if isinstance(expr, Const):
        return const(max(int(expr.value), number))
    return apply("maximum", expr, const(number))


def _smaller(expr: Expr, number: int) -> Expr:
    if isinstance(expr, Const):
        return const(min(int(expr.value), number))
    return apply("minimum", expr, const(number))
