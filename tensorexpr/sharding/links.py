"""Which loops move together: from the axis of a tensor, through every access, to all loops that a block of it is a block of.

`links(program)` is a graph. Its nodes are axes of tensors and loops of definitions, its edges accesses: where `x[.., e, ..]` moves with
a loop `v` by a fraction s of an element a step (2 for `x[2*v + k]`, 1/4 for `x[v // 4]`), a block of v is one of that axis, s times as
long. `Links.component` follows it from one node and gives the step of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import lcm

from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
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
from tensorexpr.regions import affine_of
from tensorexpr.sharding.placements import Site
from tensorexpr.traversal import bottom_up, free_names, tensors_read, walk

_LEAD = "?lead"
_TRANSPARENT = ("minimum", "maximum", "abs", "where")
Edge = tuple[Site, Fraction]


class Links:
    """The graph: see the module."""

    def __init__(self, program: Program) -> None:
        self.edges: dict[Site, list[Edge]] = {}
        self.types = dict(program.types)
        self._orders: dict[str, Segments] = {}
        for definition in program.definitions:
            self._add(definition)

    def component(self, start: Site) -> dict[Site, int]:
        """Every node that moves with `start`, and the number of its steps in a unit: the least whole ones."""
        found: dict[Site, Fraction] = {start: Fraction(1)}
        queue = [start]
        while queue:
            site = queue.pop(0)
            for other, ratio in self.edges.get(site, ()):
                if other not in found:
                    found[other] = found[site] * ratio
                    queue.append(other)
        scale = lcm(*(step.denominator for step in found.values()))
        return {site: int(step * scale) for site, step in found.items()}

    # ------------------------------------------------------------------------------------------------- edges

    def _join(self, a: Site, b: Site, ratio: Fraction) -> None:
        """b has `ratio` steps for one of a."""
        self.edges.setdefault(a, []).append((b, ratio))
        self.edges.setdefault(b, []).append((a, 1 / ratio))

    def _add(self, definition: Definition) -> None:
        one = Fraction(1)
        match definition:
            case Define():
                for position, axis in enumerate(definition.axes):
                    self._join(Site("axis", definition.name, position), Site("loop", definition.name, axis.index), one)
                self._reads(definition.name, definition.value)
            case Scatter():
                for position, index in enumerate(definition.indices):
                    if isinstance(index, Index):
                        self._join(Site("axis", definition.name, position), Site("loop", definition.name, index.name), one)
                for expr in (*definition.indices, definition.value, *(() if definition.where is None else (definition.where,))):
                    self._reads(definition.name, expr)
            case Segments():
                offsets, order = definition.names
                for position, axis in enumerate(definition.batch):
                    for name in definition.names:
                        self._join(Site("axis", name, position), Site("loop", offsets, axis.index), one)
                self._orders[order] = definition
                for expr in (*definition.keys, *(() if definition.where is None else (definition.where,))):
                    self._reads(offsets, expr)
            case Scan():
                self._scan(definition)

    def _scan(self, scan: Scan) -> None:
        one = Fraction(1)
        for name, (formal, type_), init, step in zip(scan.names, scan.states, scan.inits, scan.nexts, strict=True):
            self.types[formal] = type_
            for position in range(len(type_.shape)):
                whole = Site("axis", name, position + 1)
                for other in dict.fromkeys((formal, init, step)):
                    self._join(whole, Site("axis", other, position), one)
        for inner in scan.body:
            self.types.update(inner.results)
            self._add(inner)

    def _reads(self, owner: str, expr: Expr) -> None:
        for access in walk(expr):
            if isinstance(access, Reduce):
                self._ranges(owner, access)
            if not isinstance(access, Access) or access.tensor not in self.types:
                continue
            for position, index in enumerate(access.indices):
                for name, pace in self._slopes(index, self.types[access.tensor], position):
                    self._join(Site("loop", owner, name), Site("axis", access.tensor, position), pace)
                self._through_order(index, access.tensor, position)

    def _ranges(self, owner: str, reduce: Reduce) -> None:
        """A loop whose range moves with another loop moves with it."""
        for axis in reduce.axes:
            for name in free_names(axis.start):
                found = slope(axis.start, name)
                if found is not None and found > 0 and found == slope(axis.stop, name):
                    self._join(Site("loop", owner, name), Site("loop", owner, axis.index), found)

    def _slopes(self, index: Expr, type_: TensorType, position: int) -> Iterator[tuple[str, Fraction]]:
        if isinstance(index, Apply) and index.op.name == "mod" and index.args[1] == type_.shape[position]:
            index = index.args[0]
        for name in free_names(index):
            found = slope(index, name)
            if found is not None and found > 0:
                yield name, found

    def _through_order(self, index: Expr, tensor: str, position: int) -> None:
        """A read at what a sort plan lists moves with the outermost loop of the points that the plan sorts."""
        listed = set(tensors_read(index))
        for plan in (self._orders[name] for name in sorted(listed & self._orders.keys())):
            stride = stride_of(plan)
            if stride is not None:
                found = slope(bottom_up(index, partial(_led, apply("mul", Index(_LEAD), const(stride)))), _LEAD)
                if found is not None and found > 0:
                    self._join(Site("loop", plan.name, plan.axes[0].index), Site("axis", tensor, position), found)


def _led(lead: Expr, expr: Expr) -> Expr:
    """`lead` in the place of an access."""
    return lead if isinstance(expr, Access) else expr


def stride_of(plan: Segments) -> int | None:
    """How far apart the positions of two points are that are neighbors along the first loop of what a plan sorts."""
    count = 1
    for axis in plan.axes[1:]:
        if not isinstance(axis.stop, Const):
            return None
        count *= int(axis.stop.value)
    return count


def slope(expr: Expr, name: str) -> Fraction | None:
    """How far an index moves in a step of a loop, on the whole; None where it does not, or not evenly."""
    if isinstance(expr, Cast):
        return slope(expr.arg, name)
    if isinstance(expr, Apply) and expr.op.name in _TRANSPARENT:
        found = {value for arg in expr.args[1 if expr.op.name == "where" else 0 :] if (value := slope(arg, name))}
        rising = {value for value in found if value > 0}
        return rising.pop() if len(rising) == 1 else None
    form = affine_of(expr)
    if form is not None:
        return _of_form(form, name)
    if isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        a, b = slope(expr.args[0], name) or Fraction(0), slope(expr.args[1], name) or Fraction(0)
        return (a + b if expr.op.name == "add" else a - b) or None
    if isinstance(expr, Apply) and expr.op.name in ("mul", "floordiv") and isinstance(expr.args[1], Const) and int(expr.args[1].value) > 0:
        inner, number = slope(expr.args[0], name), int(expr.args[1].value)
        return None if inner is None else inner * number if expr.op.name == "mul" else inner / number
    return None


def _of_form(form: Affine, name: str) -> Fraction | None:
    total = Fraction(0)
    for atom, factor in form.terms:
        if isinstance(atom, FloorDiv):
            total += Fraction(factor, atom.denominator) * (_of_form(atom.numerator, name) or 0)
        elif atom == name:
            total += factor
    return total or None


def loops_of(definition: Definition) -> Iterator[tuple[str, Axis]]:
    """The loops of a definition that combine what they run over, with the combiner's name."""
    match definition:
        case Define():
            for node in walk(definition.value):
                if isinstance(node, Reduce):
                    for axis in node.axes:
                        yield node.combiner.name if node.combiner.is_builtin else "", axis
        case Scatter():
            for axis in definition.axes:
                yield definition.combine, axis
