"""What must be at hand where some loops run over a block alone: for every tensor of a program a box, by projection of what is read.

`demand(program, sites, units)` goes from the outputs backwards. `sites` gives the range of each restricted loop, in the ends of a block
or as numbers; outputs are wanted whole but for their restricted axes. The box of a tensor is the hull of all reads of it. In terms
of a block an interval either moves with it or is the whole axis. A state of a recurrence is a box that its own steps do not
leave. A read around an end of an input (`x[(i - 1) % n]`) leaves the axis: its interval does not end there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, Scan, Scatter, Segments, TensorType
from tensorexpr.sharding.intervals import BEGIN, END, WHOLE, Bounds, Interval
from tensorexpr.sharding.links import stride_of
from tensorexpr.sharding.placements import Site
from tensorexpr.traversal import negate

_ROUNDS = 8  # of a recurrence, until the box of its states is taken to be all


class Range(NamedTuple):
    """An interval of an axis, both ends included; with `wraps` it goes around the end of the axis."""

    low: Affine
    high: Affine
    wraps: bool = False

    @property
    def empty(self) -> bool:
        """Whether it is given by numbers and holds nothing."""
        return self.low.is_constant and self.high.is_constant and self.high.constant < self.low.constant


Box = tuple[Range, ...]
Sites = Mapping[Site, Interval]


def extent_of(expr: Expr) -> int:
    """A constant extent."""
    assert isinstance(expr, Const), expr
    return int(expr.value)


def everything(type_: TensorType) -> Box:
    """All of a tensor."""
    return tuple(Range(Affine.of(0), Affine.of(extent_of(extent) - 1)) for extent in type_.shape)


def demand(program: Program, sites: Sites, units: int) -> dict[str, Box]:
    """The box of every tensor that is read, or is an output; others are left out."""
    return _Demand(program, sites, units).run()


class _Demand:
    def __init__(self, program: Program, sites: Sites, units: int) -> None:
        self.program, self.sites, self.units = program, sites, units
        self.types = dict(program.types)
        self.inputs = {given.name for given in program.inputs}
        self.boxes: dict[str, Box] = {}
        self.orders = {d.names[1]: d for d in program.definitions if isinstance(d, Segments)}

    def run(self) -> dict[str, Box]:
        for name in self.program.outputs:
            whole = everything(self.types[name])
            self.want(name, tuple(self._restricted(Site("axis", name, k), one) for k, one in enumerate(whole)))
        for definition in reversed(self.program.definitions):
            if any(name in self.boxes for name, _ in definition.results):
                self.definition(definition)
        return self.boxes

    def _restricted(self, site: Site, whole: Range) -> Range:
        if site not in self.sites:
            return whole
        return self._clipped(self.sites[site], whole)

    # -------------------------------------------------------------------------------------------------- boxes

    def want(self, name: str, box: Box) -> None:
        """A box of a tensor is read."""
        if any(one.empty for one in box) and box:
            return
        known = self.boxes.get(name)
        if known is None:
            self.boxes[name] = box
        elif known != box:
            whole = everything(self.types[name])
            self.boxes[name] = tuple(self._hull(a, b, c) for a, b, c in zip(known, box, whole, strict=True))

    def _hull(self, a: Range, b: Range, whole: Range) -> Range:
        if not ((a.low - b.low).is_constant and (a.high - b.high).is_constant):
            return whole
        low = a.low if (a.low - b.low).constant <= 0 else b.low
        high = a.high if (a.high - b.high).constant >= 0 else b.high
        return self._fitting(Range(low, high, a.wraps or b.wraps), whole)

    def _clipped(self, interval: Interval, whole: Range) -> Range:
        """An interval of an axis: within it where it is given by numbers, all of it where it is no block."""
        low, high = interval
        if low is None or high is None:
            return whole
        if low.is_constant and high.is_constant:
            return Range(Affine.of(max(low.constant, 0)), Affine.of(min(high.constant, whole.high.constant)))
        return Range(low, high) if is_block(Range(low, high)) else whole

    def _fitting(self, found: Range, whole: Range) -> Range:
        """What goes around, unless it is all of the axis and more."""
        if found.wraps and found.low.is_constant and found.high.is_constant:
            inside = found.low.constant >= 0 and found.high.constant <= whole.high.constant
            if inside or found.high.constant - found.low.constant >= whole.high.constant:
                return found._replace(wraps=False) if inside else whole
        return found

    # -------------------------------------------------------------------------------------------------- definitions

    def definition(self, definition: Definition) -> None:
        match definition:
            case Define():
                loops = self._loops(definition.axes, self.boxes[definition.name])
                self.reads(definition.name, definition.value, Bounds(loops, self.units, self._data))
            case Scatter():
                self._scatter(definition)
            case Segments():
                self._segments(definition)
            case Scan():
                self._scan(definition)

    def _loops(self, axes: tuple[Axis, ...], box: Box) -> dict[str, Interval]:
        return {axis.index: (one.low, one.high) for axis, one in zip(axes, box, strict=True)}

    def _scatter(self, definition: Scatter) -> None:
        box = self.boxes[definition.name]
        own = {index.name: one for index, one in zip(definition.indices, box, strict=True) if isinstance(index, Index)}
        bounds = Bounds({}, self.units, self._data)
        for axis in definition.axes:
            limits = own.get(axis.index)
            restricted = self.sites.get(Site("loop", definition.name, axis.index))
            for expr in (axis.start, axis.stop):
                self.reads(definition.name, expr, bounds)
            bounds = bounds.inside(axis, restricted if limits is None else (limits.low, limits.high))
        for expr in (*definition.indices, definition.value, *(() if definition.where is None else (definition.where,))):
            self.reads(definition.name, expr, bounds)

    def _segments(self, definition: Segments) -> None:
        joined: Box | None = None
        for name, type_ in definition.results:
            if name in self.boxes:
                batch = self.boxes[name][: len(definition.batch)]
                whole = everything(type_)
                joined = batch if joined is None else tuple(self._hull(a, b, c) for a, b, c in zip(joined, batch, whole, strict=False))
        assert joined is not None
        for name, type_ in definition.results:
            self.boxes[name] = (*joined, *everything(type_)[len(joined) :])
        bounds = Bounds(self._loops(definition.batch, joined), self.units, self._data)
        for axis in definition.axes:
            bounds = bounds.inside(axis, self.sites.get(Site("loop", definition.name, axis.index)))
        for expr in (*definition.keys, *(() if definition.where is None else (definition.where,))):
            self.reads(definition.name, expr, bounds)

    def _scan(self, scan: Scan) -> None:
        states: list[Box | None] = [None] * len(scan.names)
        formals = dict(scan.states)
        self.types.update(formals)
        for inner in scan.body:
            self.types.update(inner.results)
        local = {*formals, *(name for inner in scan.body for name, _ in inner.results)}
        for position, name in enumerate(scan.names):
            if name in self.boxes:
                states[position] = self.boxes[name][1:]
        for turn in range(_ROUNDS):
            self.boxes = {name: box for name, box in self.boxes.items() if name not in local}
            for position, (formal, type_) in enumerate(scan.states):
                if turn == _ROUNDS - 1 and states[position] is not None:
                    states[position] = everything(type_)
                box = states[position]
                if box is not None:
                    self.want(formal, box)
                    self.want(scan.nexts[position], box)
            for inner in reversed(scan.body):
                if any(name in self.boxes for name, _ in inner.results):
                    self._inner(inner, scan)
            before = list(states)
            for position, (formal, _) in enumerate(scan.states):  # what is read of the state before, the state after has to have
                states[position] = self.boxes.get(formal)
            if states == before:
                break
        for position, name in enumerate(scan.names):
            box = states[position]
            if box is None:
                continue  # nobody asks for this state
            self.boxes[name] = (Range(Affine.of(0), Affine.of(extent_of(scan.length) - 1)), *box)
            self.want(scan.inits[position], box)
        for name in local & self.boxes.keys():
            self.boxes[body_name(scan, name)] = self.boxes.pop(name)

    def _inner(self, inner: Definition, scan: Scan) -> None:
        """A definition in the body of a recurrence; its steps are all of them."""
        assert isinstance(inner, Define | Scatter | Segments | Scan)
        if isinstance(inner, Define):
            loops = self._loops(inner.axes, self.boxes[inner.name])
            loops[scan.step] = (Affine.of(0), Affine.of(extent_of(scan.length) - 1))
            self.reads(inner.name, inner.value, Bounds(loops, self.units, self._data))
        else:
            for name, type_ in inner.results:
                if name in self.boxes:
                    self.boxes[name] = everything(type_)
            self.definition(inner)

    # -------------------------------------------------------------------------------------------------- reads

    def _data(self, access: Access) -> Interval:
        """What the order of a sort plan lists: numbers of points of the block that it is restricted to."""
        plan = self.orders.get(access.tensor)
        if plan is None:
            return WHOLE
        stride = stride_of(plan)
        low, high = self.sites.get(Site("loop", plan.name, plan.axes[0].index), WHOLE)
        if stride is None or low is None or high is None:
            return WHOLE
        return low * stride, high * stride + (stride - 1)

    def reads(self, owner: str, expr: Expr, bounds: Bounds) -> None:
        """Everything that an expression reads is wanted."""
        stack = [(expr, bounds)]
        seen: dict[tuple[int, int], Bounds] = {}
        while stack:
            node, around = stack.pop()
            if (id(node), id(around)) in seen:
                continue
            seen[id(node), id(around)] = around
            match node:
                case Access():
                    stack.extend((index, around) for index in node.indices)
                    self._access(node, around)
                case Reduce():
                    inner = around
                    for axis in node.axes:
                        stack.extend(((axis.start, inner), (axis.stop, inner)))
                        inner = inner.inside(axis, self.sites.get(Site("loop", owner, axis.index)))
                    if node.where is not None:
                        stack.append((node.where, inner))
                        stack.extend((value, within) for value in node.values if (within := inner.where(node.where)) is not None)
                    else:
                        stack.extend((value, inner) for value in node.values)
                case Apply() if node.op.name == "where":
                    condition, taken, otherwise = node.args
                    stack.append((condition, around))
                    branches = ((taken, around.where(condition)), (otherwise, around.where(negate(condition))))
                    stack.extend((branch, within) for branch, within in branches if within is not None)
                case Apply():
                    stack.extend((arg, around) for arg in node.args)
                case _:
                    stack.extend((child, around) for child in (getattr(node, "arg", None),) if child is not None)

    def _access(self, access: Access, bounds: Bounds) -> None:
        whole = everything(self.types[access.tensor])
        box = []
        for position, (index, all_) in enumerate(zip(access.indices, whole, strict=True)):
            rows = self.sites.get(Site("rows", access.tensor, position))
            if rows is not None:
                box.append(self._clipped(rows, all_))
            elif access.tensor in self.inputs and isinstance(index, Apply) and around_the_end(index, all_):
                box.append(self._around(bounds.of(index.args[0]), all_))
            else:
                known = self.boxes.get(access.tensor)
                step = known[position].low.coefficient(BEGIN) if known is not None and is_block(known[position]) else None
                box.append(self._clipped(self._interval(index, bounds, step), all_))
        self.want(access.tensor, tuple(box))

    def _interval(self, index: Expr, bounds: Bounds, step: int | None) -> Interval:
        """Where an index lies: in terms of the block, where one of the ways to bound it says so."""
        found = bounds.beside(bounds.of(index), step)
        for other in (bounds.twin, bounds.limited):
            if other is not None and not _in_block(found):
                again = bounds.beside(other.of(index), step)
                found = again if _in_block(again) else found
        return found

    def _around(self, interval: Interval, whole: Range) -> Range:
        low, high = interval
        if low is None or high is None:
            return whole
        found = self._fitting(Range(low, high, True), whole)
        return found if (found.low.is_constant and found.high.is_constant) or is_block(found) else whole


def body_name(scan: Scan, name: str) -> str:
    """The name among boxes of a tensor in the body of a recurrence."""
    return f"{scan.names[0]}/{name}"


def _in_block(interval: Interval) -> bool:
    low, high = interval
    return low is not None and high is not None and is_block(Range(low, high))


def around_the_end(index: Expr, whole: Range) -> bool:
    """Whether an index is taken modulo the extent of its axis."""
    return isinstance(index, Apply) and index.op.name == "mod" and index.args[1] == Const(whole.high.constant + 1, index.dtype)


def is_block(one: Range) -> bool:
    """Whether an interval begins and ends with the block, at an equal pace."""
    low, high = one.low, one.high
    return low.atoms() == (BEGIN,) and high.atoms() == (END,) and low.coefficient(BEGIN) == high.coefficient(END) > 0
