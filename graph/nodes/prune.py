"""What nothing needs goes: one rule, at the top of a program and inside of functions, branches and loops.

A node stays if it has an effect, or if something that stays needs one of its results. A call, a branch or a loop needs only those
operands that its graph needs for the results that are used; its graph is pruned to these. Composites stay whole as long as a tool may
still take them: they are pruned inside once they are taken apart.

`sink` moves what only one way through a branch needs into that way, so that straight execution computes nothing for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorexpr.graph.nodes.effects import has_effect
from tensorexpr.graph.nodes.inline import inline, with_graphs
from tensorexpr.graph.nodes.ir import Call, Cond, Graph, Node, Read, While, names_in, unused
from tensorexpr.ir import Input


def prune(graph: Graph, whole: Callable[[Call], bool] = lambda call: call.graph.composite is not None) -> Graph:
    """The graph without what nothing needs; its inputs and outputs are as they were. `whole` says which calls are not looked into."""
    return _Pruner(whole).pruned(graph, range(len(graph.outputs)))


class _Pruner:
    def __init__(self, whole: Callable[[Call], bool]) -> None:
        self._whole = whole

    def pruned(self, graph: Graph, wanted: Sequence[int]) -> Graph:
        """The graph with the outputs at the positions `wanted`, and all inputs."""
        outputs = tuple(graph.outputs[k] for k in wanted)
        needed = set(outputs)
        asked: set[str] = set()
        kept: list[Node] = []
        for node in reversed(graph.nodes):
            if not (has_effect(node) or node.id in asked or any(name in needed for name in node.names)):
                continue
            node = self._narrowed(node, needed)
            needed.update(node.operands)
            asked.update(node.after)
            kept.append(node)
        nodes = tuple(reversed(kept))
        constants = tuple(c for c in graph.constants if c.name in needed)
        return replace(graph, nodes=nodes, constants=constants, outputs=outputs)

    def _restricted(self, graph: Graph, wanted: Sequence[int]) -> tuple[Graph, list[int]]:
        """The graph with some outputs and only those inputs that they and the effects need, and the positions of these."""
        graph = self.pruned(graph, wanted)
        used = {name for node in graph.nodes for name in node.operands} | set(graph.outputs)
        positions = [k for k, given in enumerate(graph.inputs) if given.name in used]
        return replace(graph, inputs=tuple(graph.inputs[k] for k in positions)), positions

    def _narrowed(self, node: Node, needed: set[str]) -> Node:
        wanted = [k for k, name in enumerate(node.names) if name in needed]
        results = tuple(node.results[k] for k in wanted)
        match node:
            case Call() if not self._whole(node):
                graph, used = self._restricted(node.graph, wanted)
                return replace(node, graph=graph, operands=tuple(node.operands[k] for k in used), results=results)
            case Cond():
                then, otherwise = self.pruned(node.then, wanted), self.pruned(node.otherwise, wanted)
                used_names = [
                    {name for inner in graph.nodes for name in inner.operands} | set(graph.outputs) for graph in (then, otherwise)
                ]
                used = [
                    k for k in range(len(then.inputs)) if then.inputs[k].name in used_names[0] or otherwise.inputs[k].name in used_names[1]
                ]
                then, otherwise = (replace(g, inputs=tuple(g.inputs[k] for k in used)) for g in (then, otherwise))
                operands = (node.operands[0], *(node.operands[k + 1] for k in used))
                return replace(node, then=then, otherwise=otherwise, operands=operands, results=results)
            case While() if not node.history:
                return self._loop(node, wanted)
        return with_graphs(node, lambda graph: self.pruned(graph, range(len(graph.outputs))))

    def _loop(self, node: While, wanted: list[int]) -> Node:
        """A loop without the parts of its state that neither a result, the condition nor an effect comes to need."""
        condition, tested = self._restricted(node.condition, (0,))
        carried = sorted({*wanted, *tested})
        while True:
            body, used = self._restricted(node.body, carried)
            if set(used) <= set(carried):
                break
            carried = sorted({*carried, *used})
        inputs = node.body.inputs
        body = replace(body, inputs=tuple(inputs[k] for k in carried))
        condition = replace(condition, inputs=tuple(node.condition.inputs[k] for k in carried))
        return replace(
            node,
            condition=condition,
            body=body,
            operands=tuple(node.operands[k] for k in carried),
            results=tuple(node.results[k] for k in carried),
        )


# -------------------------------------------------------------------------------------------------------- sinking


def needs(graph: Graph) -> dict[str, bool]:
    """The values that running a (pruned) graph needs: True where every run does, False where only some way through it does."""
    always: set[str] = set()
    sometimes: set[str] = set()

    def need(names: Sequence[str], surely: bool) -> None:
        (always if surely else sometimes).update(names)

    need(graph.outputs, True)
    for node in reversed(graph.nodes):
        surely = has_effect(node) or any(name in always for name in node.names)
        if not surely and not any(name in sometimes for name in node.names):
            continue
        if isinstance(node, Cond):
            need(node.operands[:1], surely)
            then, otherwise = needs(node.then), needs(node.otherwise)
            for name, a, b in zip(node.operands[1:], node.then.inputs, node.otherwise.inputs, strict=True):
                both = then.get(a.name, False) and otherwise.get(b.name, False)
                if a.name in then or b.name in otherwise:
                    need((name,), surely and both)
        elif isinstance(node, Call):
            inner = needs(node.graph)
            for name, given in zip(node.operands, node.graph.inputs, strict=True):
                if given.name in inner:
                    need((name,), surely and inner[given.name])
        else:
            need(node.operands, surely)
    return {name: name in always for name in (*always, *sometimes)}


def sink(graph: Graph) -> Graph:
    """The graph with what only some branches need moved (or copied, where several do) into these branches, innermost ones too."""
    needed = needs(graph)
    lazy = {
        node.id: node
        for node in graph.nodes
        if not isinstance(node, Read) and not has_effect(node) and not any(needed.get(name, False) for name in node.names)
    }
    nodes = [
        with_graphs(_with_own(node, graph, lazy) if isinstance(node, Cond) else node, sink) for node in graph.nodes if node.id not in lazy
    ]
    return replace(graph, nodes=tuple(nodes))


def _with_own(node: Cond, graph: Graph, lazy: dict[str, Node]) -> Cond:
    """A branch of `graph` whose ways compute for themselves the operands that nodes of `lazy` give."""
    producers = {name: source for source in lazy.values() for name in source.names}
    if not any(name in producers for name in node.operands[1:]):
        return node
    ways = [(way, *_chain(node, way, lazy, producers)) for way in (node.then, node.otherwise)]
    constants = {c.name: c for c in graph.constants}
    free = tuple(dict.fromkeys(name for _, _, names in ways for name in names if name not in constants))
    types = graph.types
    inputs = tuple(Input(name, types[name]) for name in free)
    done = []
    for way, chain, names in ways:
        # The way as a call behind what it needs, under the names of the graph around it; then the call is taken apart.
        used = needs(way)
        pairs = [(given, name) for given, name in zip(way.inputs, node.operands[1:], strict=True) if given.name in used]
        called = replace(way, inputs=tuple(given for given, _ in pairs))
        taken = {*types, *(name for source in chain for name in names_in(replace(way, inputs=(), constants=(), nodes=(source,))))}
        results = tuple((unused(name, taken), type_) for name, type_ in node.results)
        call = Call(unused("way", taken), tuple(name for _, name in pairs), results, graph=called)
        own = tuple(constants[name] for name in names if name in constants)
        whole = Graph(way.name, inputs, own, (*chain, call), call.names)
        done.append(inline(whole, keep=lambda one, mine=call.id: "" if one.id == mine else "stays"))  # type: ignore[misc]  # mypy has no type for a lambda with a default
    return replace(node, then=done[0], otherwise=done[1], operands=(node.operands[0], *free))


def _chain(node: Cond, way: Graph, lazy: dict[str, Node], producers: dict[str, Node]) -> tuple[list[Node], list[str]]:
    """The lazy nodes that one way of a branch needs, in order, and what it and they need beside."""
    used = needs(way)
    stack = [name for name, given in zip(node.operands[1:], way.inputs, strict=True) if given.name in used]
    free: dict[str, None] = {}
    moved: set[str] = set()
    while stack:
        name = stack.pop()
        source = producers.get(name)
        if source is None:
            free[name] = None
        elif source.id not in moved:
            moved.add(source.id)
            stack.extend(source.operands)
    return [source for identity, source in lazy.items() if identity in moved], sorted(free)
