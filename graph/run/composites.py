"""Composites: functions that say what they implement, and what a program has of them.

A composite is a name `org.semantic.op`, attributes, a docstring and a body. Nothing is registered and nothing is central: two functions may
implement one name, each call runs its own body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorexpr.errors import ArgumentError, DefinitionError, Location, user_location
from tensorexpr.graph.nodes.ir import Call, Composite, Graph, OfComposite, walk_graphs
from tensorexpr.graph.run.compile import lowered_graph
from tensorexpr.hints import article, checked
from tensorexpr.ir import TensorType


def composite_of(implements: Any, attrs: Mapping[str, Any] | None, aliases: Sequence[str], doc: str) -> Composite:
    """The composite that a function declares. Raises `DefinitionError` for a name that is not of the form org.semantic.op, and
    for attributes without names."""
    for name in (implements, *aliases):
        if not isinstance(name, str) or "." not in name or not all(part.isidentifier() for part in name.split(".")):
            raise DefinitionError(
                f"te.function: expected implements= and aliases= to be names such as org.semantic.op, got {name!r}",
                location=user_location(),
                hint="identifiers with dots between them, the last one the operation",
            )
    if attrs is not None and not (isinstance(attrs, Mapping) and all(isinstance(name, str) for name in attrs)):
        raise DefinitionError(
            f"te.function: expected attrs= to be values by name, got {attrs if isinstance(attrs, Mapping) else article(attrs)}",
            location=user_location(),
            hint='attrs={"axis": -1}',
        )
    return Composite(implements, tuple((attrs or {}).items()), doc, tuple(aliases))


@dataclass(frozen=True)
class Listed(OfComposite):
    """A call of a composite in a program: `name`, `role` ("" or the pass of a derivative), `attrs`, `doc`, types, and where it is called.

    `caller` is the graph that calls it, `path` the names of the graphs from the program down to that one.
    """

    composite: Composite
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    caller: str
    path: tuple[str, ...]
    location: Location | None
    body: Graph

    def __repr__(self) -> str:
        types = (", ".join(map(str, given)) for given in (self.inputs, self.outputs))
        return f"<composite {'.'.join(filter(None, (self.name, self.role)))}: {' -> '.join(types)}, called in {self.caller}>"


@checked()
def list_composites(program: Graph) -> list[Listed]:
    """Every call of a composite in a graph and in all that it runs, in program order, outer ones first.

    Raises `ArgumentError` for what is no graph.

    >>> @te.function(implements="org.nn.square", attrs={"power": 2})
    ... def square(x):
    ...     return x * x
    >>> model = te.function(lambda x: square(x) + 1.0)
    >>> for call in te.list_composites(model.graph(np.ones(3))):
    ...     print(call.name, call.attrs, *call.inputs, "in", call.caller)
    org.nn.square {'power': 2} f64[3] in <lambda>
    """
    if not isinstance(program, Graph):
        raise ArgumentError(
            f"te.list_composites: expected a graph, got {article(program)}",
            location=user_location(),
            hint="f.graph(*arguments) is the graph of a te.function",
        )
    return list(_listed(program, (program.name,)))


def _listed(graph: Graph, path: tuple[str, ...]) -> Iterator[Listed]:
    for node in graph.nodes:
        if isinstance(node, Call) and node.graph.composite is not None:
            yield Listed(
                node.graph.composite,
                tuple(given.type for given in node.graph.inputs),
                tuple(type_ for _, type_ in node.results),
                graph.name,
                path,
                node.location,
                node.graph,
            )
        for inner in node.graphs:
            yield from _listed(inner, (*path, inner.name))


def lower_everything(program: Graph, device: str = "cpu") -> Graph:
    """The graph in primitive operations only: what is compiled, after replacements."""
    return lowered_graph(program, device)


def graphs_of(program: Graph, name: str, role: str = "") -> list[Graph]:
    """The graphs in a program that implement `name` in a role: a tool finds the backward pass from the forward's name."""
    return [g for g in walk_graphs(program) if g.composite is not None and (g.composite.name, g.composite.role) == (name, role)]
