"""A program of one sample as a program of a whole batch: what `vmap` of another library comes down to.

Every definition that reads something batched gets one loop more, outermost; what it reads of batched tensors is read at the
index of that loop, everything else is shared by the samples. A definition keeps its kind: a plan for gathering has plans side
by side, a scan has states with one axis more. No sample is treated by itself, so the schedule sees the whole loop nest.

The batch axis of a tensor stands in front, of the results of a scan behind the steps. Results may be wanted summed over the
batch (gradients of what all samples share): where nothing else reads them, the batch becomes one more axis of their own sums,
so that no tensor of all samples' results is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
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
    const,
)
from tensorexpr.traversal import bottom_up, bound_names, expressions, fresh_name, map_expressions, reads


def batched(program: Program, size: int, inputs: Sequence[bool], outputs: Sequence[bool]) -> Program:
    """The program for `size` samples at once.

    The inputs that `inputs` marks have one axis more in front; the others are shared. Of the outputs, those that `outputs` marks
    have it too, the others are the sums over the batch.
    """
    taken = {name for name, _ in program.types.items()} | {name for d in program.definitions for name in _names(d)} | set(program.sizes)
    batch = _Batch(size, fresh_name("b", taken), taken)
    extent = const(size)
    given = []
    for item, many in zip(program.inputs, inputs, strict=True):
        batch.types[item.name] = item.type
        if many:
            batch.axis[item.name] = 0
        given.append(replace(item, type=TensorType((extent, *item.type.shape), item.type.dtype)) if many else item)
    batch.types |= {c.name: c.type for c in program.constants}
    definitions = [new for d in program.definitions for new in batch.definition(d)]
    results = []
    needed = {name for d in definitions for name in reads(d)}
    for name, many in zip(program.outputs, outputs, strict=True):
        if not many and name not in needed and program.outputs.count(name) == 1:
            places = [k for k, d in enumerate(definitions) if d.results[0][0] == name]
            own = batch.summing(definitions[places[0]]) if places else None
            if own is not None:
                definitions[places[0]] = own
                results.append(name)
                continue
        made = batch.in_front(name) if many else batch.summed(name)
        if made is not None:
            definitions.append(made)
        results.append(name if made is None else made.name)
    return replace(program, inputs=tuple(given), definitions=tuple(definitions), outputs=tuple(results))


def _names(definition: Definition) -> list[str]:
    """Every name that a definition binds: tensors, indices, states."""
    found = [name for name, _ in definition.results]
    found += [name for e in expressions(definition) for name in bound_names(e)]
    match definition:
        case Define() | Scatter():
            found += [axis.index for axis in definition.axes]
        case Segments():
            found += [axis.index for axis in definition.loops]
        case Scan():
            found += [definition.step, *(name for name, _ in definition.states)]
            found += [name for inner in definition.body for name in _names(inner)]
    return found


@dataclass
class _Batch:
    """The batch under way: `axis`, where the batch axis of a batched tensor stands; `types`, of all tensors as they were."""

    size: int
    index: str
    taken: set[str]

    def __post_init__(self) -> None:
        self.axis: dict[str, int] = {}
        self.types: dict[str, TensorType] = {}

    @property
    def loop(self) -> Axis:
        return Axis(self.index, const(0), const(self.size))

    def definition(self, definition: Definition) -> list[Definition]:
        """The definition for all samples, where needed with others in front of it."""
        self.types.update(definition.results)
        if isinstance(definition, Scan):
            return self._scan(definition)
        if not any(name in self.axis for name in reads(definition)):
            return [definition]
        made = map_expressions(definition, self._at_batch)
        self.axis.update((name, 0) for name, _ in definition.results)
        match made:
            case Define():
                return [replace(made, axes=(self.loop, *made.axes))]
            case Scatter():
                type_ = TensorType((const(self.size), *made.type.shape), made.type.dtype)
                return [replace(made, type=type_, axes=(self.loop, *made.axes), indices=(Index(self.index), *made.indices))]
            case Segments():
                return [replace(made, batch=(self.loop, *made.batch))]
        raise AssertionError(type(made))

    def _at_batch(self, value: Expr) -> Expr:
        """An expression that reads batched tensors at the index of the batch."""

        def visit(node: Expr) -> Expr:
            if isinstance(node, Access) and node.tensor in self.axis:
                return self._access(node)
            return node

        return bottom_up(value, visit)

    def _access(self, node: Access) -> Access:
        at = self.axis[node.tensor]
        return replace(node, indices=(*node.indices[:at], Index(self.index), *node.indices[at:]))

    def _scan(self, scan: Scan) -> list[Definition]:
        """A state is batched where its first value is, or becomes so in the body."""
        many = [name in self.axis for name in scan.inits]
        while True:
            inner = _Batch(self.size, self.index, self.taken)
            inner.axis = self.axis | {name: 0 for (name, _), state in zip(scan.states, many) if state}
            inner.types = self.types | dict(scan.states)
            body = [new for d in scan.body for new in inner.definition(d)]
            grown = [state or name in inner.axis for state, name in zip(many, scan.nexts)]
            if grown == many:
                break
            many = grown
        if not any(name in inner.axis for name in (*scan.nexts, *(n for n, _ in scan.states))):
            return [scan]
        before: list[Definition] = []
        inits, nexts, states = [], [], []
        for init, following, (name, type_), state in zip(scan.inits, scan.nexts, scan.states, many, strict=True):
            first, last = (self.in_front(init), inner.in_front(following)) if state else (None, None)
            before += [] if first is None else [first]
            body += [] if last is None else [last]
            inits.append(init if first is None else first.name)
            nexts.append(following if last is None else last.name)
            states.append((name, TensorType((const(self.size), *type_.shape), type_.dtype) if state else type_))
        self.axis.update((name, 1) for name, state in zip(scan.names, many) if state)
        made = replace(scan, states=tuple(states), inits=tuple(inits), body=tuple(body), nexts=tuple(nexts))
        return [*before, made]

    def in_front(self, name: str) -> Define | None:
        """A copy of a tensor with the batch axis in front (as many copies as samples where it is shared); None where it is so already."""
        if self.axis.get(name) == 0:
            return None
        return self._copy(name, lambda access, axes: ((self.loop, *axes), access))

    def summing(self, definition: Definition) -> Definition | None:
        """A definition for all samples that sums over them by itself; None where it cannot."""
        if self.axis.get(definition.results[0][0]) != 0:
            return None
        match definition:
            case Define(value=value):
                if isinstance(value, Reduce) and value.combiner.name == "sum":
                    whole = replace(value, axes=(self.loop, *value.axes))
                else:
                    whole = Reduce(Combiner("sum"), (value,), (self.loop,))
                return replace(definition, axes=definition.axes[1:], value=whole)
            case Scatter(combine="sum", type=type_):
                return replace(definition, type=TensorType(type_.shape[1:], type_.dtype), indices=definition.indices[1:])
        return None

    def summed(self, name: str) -> Define:
        """The sum of a tensor over the batch."""
        return self._copy(name, lambda access, axes: (axes, Reduce(Combiner("sum"), (access,), (self.loop,))))

    def _copy(self, name: str, value: Callable[[Access, tuple[Axis, ...]], tuple[tuple[Axis, ...], Expr]]) -> Define:
        type_ = self.types[name]
        own = {self.index}
        axes = tuple(Axis(fresh_name("i", own), const(0), extent) for extent in type_.shape)
        access = Access(name, tuple(Index(axis.index) for axis in axes), type_.dtype)
        copied = Define(fresh_name(name, self.taken), *value(self._access(access) if name in self.axis else access, axes))
        self.types[copied.name] = type_
        return copied
