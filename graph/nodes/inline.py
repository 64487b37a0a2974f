"""Calls taken apart: the nodes of the called graph in the place of the call.

    y = f(a)        -->        the nodes of f, with `a` for its input and its output for `y`

They stand in program order where the call stood, so every edge that follows from resources is as it was. A body node depends on the
operands that it uses and on nothing else. What the user wanted before the call is wanted before each node of the body; what was to
come after the call comes after the effects of the body, and after nothing else of it. A body node without a device goes where the call
was put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorexpr.graph.nodes.effects import has_effect
from tensorexpr.graph.nodes.ir import Call, Compute, Cond, Graph, Node, Renaming, While, WhileGradient, names_in, unused
from tensorexpr.ir import Constant
from tensorexpr.language.core.renaming import ProgramRenaming

Decide = Callable[[Call], str]


def reason_to_keep(call: Call) -> str:
    """Why a call is not taken apart: "" if it may be."""
    return call.graph.kept


def inline(graph: Graph, inner_first: bool = False, keep: Decide = reason_to_keep) -> Graph:
    """The graph without the calls for which `keep` gives no reason, in branches and loops, too.

    `inner_first` takes the calls in called graphs apart before these are put in place: the result is the same up to names.
    """
    if not any(node.graphs for node in graph.nodes):
        return graph
    done: dict[int, tuple[Graph, Graph]] = {}

    def inner(called: Graph) -> Graph:
        if id(called) not in done:
            done[id(called)] = (called, inline(called, inner_first, keep))
        return done[id(called)][1]

    return _Inliner(graph, keep, inner, inner_first).graph()


def kept_calls(graph: Graph, keep: Decide = reason_to_keep) -> dict[str, str]:
    """The calls that stay calls, by id, and why."""
    return {node.id: keep(node) for node in graph.nodes if isinstance(node, Call) and keep(node)}


class _Inliner:
    def __init__(self, graph: Graph, keep: Decide, inner: Callable[[Graph], Graph], inner_first: bool) -> None:
        self._graph, self._keep, self._inner, self._inner_first = graph, keep, inner, inner_first
        self._taken = names_in(graph)
        self._constants: list[Constant] = list(graph.constants)
        self._nodes: list[Node] = []
        self._names: dict[str, str] = {}
        self._ids: dict[str, tuple[str, ...]] = {}

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            self._add(self._redirected(node))
        outputs = tuple(self._names.get(name, name) for name in self._graph.outputs)
        return replace(self._graph, constants=tuple(self._constants), nodes=tuple(self._nodes), outputs=outputs)

    def _redirected(self, node: Node) -> Node:
        """The node reading what stands for the results of calls that were taken apart."""
        operands = tuple(self._names.get(name, name) for name in node.operands)
        after = tuple(dict.fromkeys(new for old in node.after for new in self._ids.get(old, (old,))))
        changes: dict[str, Any] = {"operands": operands, "after": after} if (operands, after) != (node.operands, node.after) else {}
        if changes and isinstance(node, Compute) and operands != node.operands:
            changes["definition"] = ProgramRenaming(self._names, ()).definition(node.definition)
        return replace(node, **changes) if changes else node

    def _add(self, node: Node) -> None:
        if isinstance(node, Call) and not self._keep(node):
            self._splice(node)
            return
        self._nodes.append(with_graphs(node, self._inner))

    def _splice(self, call: Call) -> None:
        called = self._inner(call.graph) if self._inner_first else call.graph
        renaming = Renaming(self._taken, dict(zip((i.name for i in called.inputs), call.operands, strict=True)), call.after)
        for constant in called.constants:
            name = renaming.values[constant.name] = unused(constant.name, self._taken)
            self._constants.append(Constant(name, constant.data))
        effects: list[str] = []
        for inner in called.nodes:
            node = renaming.node(inner, call.device, "" if inner.scope else call.scope)
            start = len(self._nodes)
            self._add(node)
            added = self._nodes[start:]
            effects += [one.id for one in added if has_effect(one)]
            if isinstance(node, Call) and not self._keep(node):
                renaming.ids[inner.id] = self._ids[node.id]
                renaming.values.update((old, self._names[new]) for old, new in zip(inner.names, node.names, strict=True))
        self._ids[call.id] = tuple(effects) or call.after
        self._names.update(zip(call.names, (renaming.values[name] for name in called.outputs), strict=True))


def with_graphs(node: Node, change: Callable[[Graph], Graph]) -> Node:
    """The node with every graph that it runs changed."""
    match node:
        case Call():
            return replace(node, graph=change(node.graph))
        case Cond():
            return replace(node, then=change(node.then), otherwise=change(node.otherwise))
        case While():
            return replace(node, condition=change(node.condition), body=change(node.body))
        case WhileGradient():
            return replace(node, body=change(node.body))
    return node
