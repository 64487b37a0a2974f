"""What nodes do to the world, and the edges that follow from it.

A node reads or writes variables; `Print` and `Check` act on the host. A graph does what its nodes do. A node has an **effect** if it writes
a variable or acts on the host: it then runs whether its results are used or not. A read is no effect.

**Edges.** Of two nodes that use one variable, the later one waits for the earlier one unless both only read. What acts on the host keeps
its order. There are no other edges but data and those that the user asked for (`Node.after`); calls, branches and loops stand for what
is in them, so their bodies' operations have the same edges wherever the bodies stand.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

from tensorexpr.graph.nodes.ir import Assign, Check, Graph, Node, Print, Read


@dataclass(frozen=True)
class Effects:
    """Variables that are read and written, in order of their first use, and whether the host is acted on."""

    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()
    host: bool = False

    @property
    def matter(self) -> bool:
        """Whether there is more than reading."""
        return bool(self.writes) or self.host


_of_graphs: weakref.WeakKeyDictionary[Graph, Effects] = weakref.WeakKeyDictionary()


def effects_of(node: Node) -> Effects:
    """What a node does."""
    match node:
        case Read():
            return Effects(reads=(node.variable,))
        case Assign():
            return Effects(writes=(node.variable,))
        case Print() | Check():
            return Effects(host=True)
    return _union([graph_effects(graph) for graph in node.graphs]) if node.graphs else Effects()


def graph_effects(graph: Graph) -> Effects:
    """What running a graph does."""
    found = _of_graphs.get(graph)
    if found is None:
        found = _of_graphs[graph] = _union([effects_of(node) for node in graph.nodes])
    return found


def _union(parts: list[Effects]) -> Effects:
    if len(parts) == 1:
        return parts[0]
    return Effects(
        tuple(dict.fromkeys(v for part in parts for v in part.reads)),
        tuple(dict.fromkeys(v for part in parts for v in part.writes)),
        any(part.host for part in parts),
    )


def has_effect(node: Node) -> bool:
    """Whether a node runs even if nothing uses its results."""
    return effects_of(node).matter


def control_outputs(graph: Graph) -> tuple[str, ...]:
    """The ids of the nodes that run in every run, in program order."""
    return tuple(node.id for node in graph.nodes if has_effect(node))


def control_edges(graph: Graph) -> dict[str, tuple[str, ...]]:
    """For every node the nodes that it waits for because of what they do, the nearest ones only; not those that give it data."""
    written: dict[Any, str] = {}
    read: dict[Any, list[str]] = {}
    host: str | None = None
    found: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        effects = effects_of(node)
        waits: dict[str, None] = dict.fromkeys(node.after)
        for variable in (*effects.reads, *effects.writes):
            if variable in written:
                waits[written[variable]] = None
        for variable in effects.writes:
            waits.update(dict.fromkeys(read.get(variable, ())))
        if effects.host and host is not None:
            waits[host] = None
        for variable in effects.writes:
            written[variable], read[variable] = node.id, []
        for variable in effects.reads:
            if variable not in effects.writes:
                read.setdefault(variable, []).append(node.id)
        if effects.host:
            host = node.id
        found[node.id] = tuple(waits)
    return found


def data_edges(graph: Graph) -> dict[str, tuple[str, ...]]:
    """For every node the nodes that give it its operands."""
    producers = graph.producers
    return {node.id: tuple(dict.fromkeys(producers[name].id for name in node.operands if name in producers)) for node in graph.nodes}
