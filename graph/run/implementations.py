"""Implementations of composites by tools: what is noted in their place, checked against the types of the body.

A `te.op` or `te.function` is traced into a graph that is called; anything else becomes a `Native` node. A native implementation is tried
once on zeros when the program is compiled, so that wrong results are refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorexpr.dtypes import dtype
from tensorexpr.errors import DefinitionError, ReplacementError, user_location
from tensorexpr.graph.nodes.ir import Backward, Call, Composite, Graph, Native, Node, Typed, unused
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.trace.tracing import Trace, as_tensor
from tensorexpr.hints import article
from tensorexpr.ir import Const, TensorType, const, integer
from tensorexpr.language import Tensor
from tensorexpr.op import Op
from tensorexpr.text import print_type


def traceable(function: Any) -> Callable[..., Any] | None:
    """The function on tensors that an op or a traced function is; None for anything else."""
    return function if isinstance(function, Op) else getattr(function, "python", None)


@dataclass
class Implementation:
    """One function given by a tool in place of a call of `graph` at a site."""

    site: Any
    graph: Graph
    entry: Any
    function: Any

    def forward(self, node: Call, count: int) -> Node:
        """In place of a call: only the first `count` results, which are the function's own."""
        body = replace(self.graph, outputs=self.graph.outputs[:count])
        return self._placed(node, body, node.results[:count], len(node.operands), _tuple_of)

    def backward(self, node: Call, parts: Backward) -> Node:
        """In place of a backward pass beside the body's own forward pass: nothing is saved for it."""

        def grouped(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
            inner = _body_of(function)
            return lambda *arrays: _tuple(inner(*_groups(arrays, parts), ()))

        return self._placed(node, self.graph, node.results, parts.saved_at, grouped)

    def _placed(self, node: Call, body: Graph, results: tuple[Typed, ...], taken: int, shaped: Callable[..., Any]) -> Node:
        """A node with `results` that takes the first operands of the call; `shaped` makes a function of these of the tool's."""
        composite = _composite(node)
        if not callable(self.function):
            raise ReplacementError(
                f"{composite.full_name}: expected a function from the tool, or None to decline, got {article(self.function)}",
                term=f"{composite.full_name} on {self.site.target}",
                location=user_location(),
            )
        wanted = [type_ for _, type_ in results]
        types = [given.type for given in self.graph.inputs[:taken]]
        inner = traceable(self.function)
        call: Callable[..., Any]
        if inner is not None:
            graph = traced(composite.full_name, shaped(inner), types)
            refuse(composite.full_name, wanted, [graph.types[name] for name in graph.outputs], self.site)
            if not self.entry.check:
                return replace(node, graph=graph, results=results, operands=node.operands[:taken])
            call = lambda *a: run_strict(graph, a)  # noqa: E731
        else:
            call = shaped(self.function)
            refuse(composite.full_name, wanted, list(map(_type_of, call(*_trial(types)))), self.site)
        if self.entry.check:
            own = call
            call = checked(composite.full_name, lambda *a: own(*a[:taken]), lambda *a: run_strict(body, a), self.entry.tolerance)
        return native(node, node.operands if self.entry.check else node.operands[:taken], results, call)


@dataclass
class Pair:
    """A forward and a backward pass given by a tool, in place of both. Checked ones are called with arrays, whatever they are."""

    site: Any
    entry: Any
    functions: Any

    def forward(self, node: Call, taken: set[str]) -> tuple[list[Node], list[str]]:
        """In place of the forward call; also the names of what the tool saves."""
        name = _composite(node).full_name
        forward, _ = self._both(name)
        types = [given.type for given in node.graph.inputs]
        count = len(self.site.outputs)
        inner = None if self.entry.check else traceable(forward)
        if inner is not None:
            graph = traced(name, lambda *tensors: sum(self._split(name, inner(*tensors)), ()), types)
            got = [graph.types[n] for n in graph.outputs]
            refuse(name, self.site.outputs, got[:count], self.site)
            saved = [unused(f"{node.id}_saved", taken) for _ in got[count:]]
            return [replace(node, graph=graph, results=(*node.results[:count], *zip(saved, got[count:], strict=True)))], saved
        outputs, _ = self._split(name, forward(*_trial(types)))
        refuse(name, self.site.outputs, list(map(_type_of, outputs)), self.site)

        def run(*arrays: Any) -> tuple[Any, ...]:
            outputs, saved = self._split(name, forward(*arrays))
            return (*outputs, _Held(saved))

        call: Callable[..., Any] = run
        if self.entry.check:
            body = replace(node.graph, outputs=node.graph.outputs[:count])
            call = checked(name, run, lambda *a: run_strict(body, a), self.entry.tolerance)
        hold = unused(f"{node.id}_saved", taken)
        return [native(node, node.operands, (*node.results[:count], (hold, self.site.outputs[0])), call)], [hold]

    def backward(self, node: Call, parts: Backward, saved: list[str], forward: Call) -> Node:
        """In place of the backward call: inputs, outputs, heads, and what the tool saved."""
        name = _composite(node).full_name
        own_forward, function = self._both(name)
        behind = parts.saved_at
        operands = (*node.operands[:behind], *saved)
        wanted = [type_ for _, type_ in node.results]
        if (traceable(function) is None) != (traceable(own_forward) is None):
            raise ReplacementError(
                f"{name}: expected both passes of a pair to be ops or functions of te, or neither, got one of each",
                location=user_location(),
            )
        inner = traceable(function)
        graph = node.graph
        if inner is not None:
            own = _body_of(inner)
            types = [given.type for given in node.graph.inputs[:behind]] + self._saved_types(own_forward, forward)
            graph = traced(name, lambda *tensors: own(*_groups(tensors[:behind], parts), tuple(tensors[behind:])), types)
            refuse(name, wanted, [graph.types[n] for n in graph.outputs], self.site)
            if not self.entry.check:
                return replace(node, graph=graph, operands=operands)

        def run(*arrays: Any) -> tuple[Any, ...]:
            if inner is not None:
                return tuple(run_strict(graph, [*arrays[:behind], *arrays[behind].saved]))
            found = _tuple(function(*_groups(arrays[:behind], parts), arrays[behind].saved))
            refuse(name, wanted, list(map(_type_of, found)), self.site)
            return found

        places = [forward.names.index(operand) for operand in node.operands[behind:]]

        def body(*arrays: Any) -> list[Any]:
            """The gradients of the body, from what its own forward pass gives."""
            given = run_strict(forward.graph, arrays[: parts.inputs])
            return run_strict(node.graph, [*arrays[:behind], *(given[place] for place in places)])

        return native(node, operands, node.results, checked(name, run, body, self.entry.tolerance) if self.entry.check else run)

    def _both(self, name: str) -> tuple[Any, Any]:
        if not isinstance(self.functions, tuple) or len(self.functions) != 2 or not all(map(callable, self.functions)):
            raise ReplacementError(
                f"{name}: expected a pair (forward, backward) of functions, got {self.functions!r}", location=user_location()
            )
        return self.functions

    def _split(self, name: str, given: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        if not isinstance(given, tuple) or len(given) != 2:
            raise ReplacementError(
                f"{name}: expected the forward pass of a pair to give (outputs, saved), got {type(given).__name__}",
                location=user_location(),
            )
        return _tuple(given[0]), tuple(given[1])

    def _saved_types(self, forward: Any, node: Call) -> list[TensorType]:
        inner = traceable(forward)
        assert inner is not None
        graph = traced("saved", lambda *tensors: self._split("saved", inner(*tensors))[1], [i.type for i in node.graph.inputs])
        return [graph.types[name] for name in graph.outputs]


def _body_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a backward pass on tensors is traced by. An op itself would ask for tensors where nothing was saved or an output has no head."""
    return function.function if isinstance(function, Op) else function


class _Held:
    """What a tool saved, as one thing that passes through."""

    def __init__(self, saved: tuple[Any, ...]) -> None:
        self.saved = saved


def native(node: Call, operands: tuple[str, ...], results: tuple[Typed, ...], function: Callable[..., Any]) -> Native:
    """A node in the place of a call that a tool computes."""
    return Native(
        node.id, operands, results, node.device, node.scope, node.after, node.location, composite=_composite(node), function=function
    )


def _composite(node: Call) -> Composite:
    assert node.graph.composite is not None
    return node.graph.composite


def _trial(types: Sequence[TensorType]) -> list[np.ndarray]:
    """Zeros to find out what a tool gives."""
    for type_ in types:
        if not all(isinstance(e, Const) for e in type_.shape):
            raise ReplacementError(
                f"expected arguments with extents that are numbers for a tool that takes arrays, got {print_type(type_)}",
                location=user_location(),
                hint="a tool that is a te.op or te.function takes open sizes",
            )
    return [np.zeros(tuple(integer(e) for e in type_.shape), type_.dtype.numpy) for type_ in types]


def traced(name: str, function: Callable[..., Any], types: Sequence[TensorType]) -> Graph:
    """The graph of a function on tensors of these types."""
    trace = Trace(name.replace(".", "_"), capturing=False)
    with trace.open():
        formals = [trace.formal(type_, "x") for type_ in types]
        trace.outputs = [as_tensor(leaf, name) for leaf in _tuple(function(*formals))]
    trace.captured()
    return trace.graph()


def refuse(name: str, wanted: Sequence[TensorType], got: Sequence[Any], site: Any) -> None:
    """Raises `ReplacementError` unless results have the types of the body's."""
    a, b = (", ".join(t if isinstance(t, str) else print_type(t) for t in types) or "nothing" for types in (wanted, got))
    if a != b:
        raise ReplacementError(
            f"{name}: expected a replacement that gives {a}, got {b}",
            term=f"{name} on {site.target}",
            location=user_location(),
            hint="results have the number, shapes and dtypes of the body's",
        )


def checked(name: str, call: Callable[..., Any], body: Callable[..., Any], tolerance: float) -> Callable[..., Any]:
    """The replacement, compared with the body at every run: the body is the ground truth."""

    def run(*arrays: Any) -> tuple[Any, ...]:
        found = call(*arrays)
        for k, (own, true) in enumerate(zip(found, body(*arrays), strict=False)):
            a, b = np.asarray(own), np.asarray(true)
            exact = b.dtype.kind in "iub"
            near = (
                a == b if exact else np.isclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True)
            )
            if not np.all(near):
                at = tuple(int(i) for i in np.argwhere(~np.asarray(near))[0])
                raise ReplacementError(
                    f"{name}: expected output {k} at {at} to be {b[at]} as the body gives, got {a[at]} from the replacement",
                    term=name,
                    hint="the body is the ground truth; tolerance= says how near is near enough",
                )
        return tuple(found)

    return run


def _groups(items: Sequence[Any], parts: Backward) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Inputs, outputs, and a head or None for each output."""
    inputs, outputs = items[: parts.inputs], items[parts.inputs : parts.inputs + parts.outputs]
    given = dict(zip(parts.heads, items[parts.inputs + parts.outputs :], strict=True))
    return tuple(inputs), tuple(outputs), tuple(given.get(k) for k in range(parts.outputs))


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _tuple_of(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    return lambda *arguments: _tuple(function(*arguments))


def _type_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return print_type(value.type)
    array = np.asarray(value)
    if array.dtype.hasobject:
        return article(value)
    try:
        return print_type(TensorType(tuple(map(const, array.shape)), dtype(array.dtype)))
    except DefinitionError:
        return f"{array.dtype}{list(array.shape)}"
