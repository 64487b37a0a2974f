"""Open sizes in graphs: a `te.dim` in the types of arguments goes, by its name, through calls, branches and loops.

A compiled function learns a size from the shape of an argument. So what is made of a few definitions of a graph takes, beside what it
reads, an input of the graph that tells the size (`telling`), and a branch or a loop in which a size is used that none of its own inputs
tells is handed one that does (`carried`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensorexpr.graph.nodes.inline import with_graphs
from tensorexpr.graph.nodes.ir import Call, Cond, Graph, Node, While, WhileGradient, names_in, sizes_in, unused
from tensorexpr.ir import Constant, Definition, Input, Program
from tensorexpr.language.core.renaming import ProgramRenaming
from tensorexpr.regions import told_sizes
from tensorexpr.traversal import definition_sizes, size_names


def sized_program(
    inputs: Sequence[Input],
    definitions: Sequence[Definition],
    outputs: Sequence[str],
    constants: tuple[Constant, ...] = (),
    at_hand: Sequence[Input] = (),
) -> Program:
    """The program of some definitions of a graph, with the sizes in it; `at_hand` are values that may tell sizes that no input tells."""
    shapes = (name for given in inputs for e in given.type.shape for name in size_names(e))
    sizes = tuple(dict.fromkeys((*shapes, *definition_sizes(definitions))))
    given = (*inputs, *telling([size for size in sizes if size not in told_by(inputs)], at_hand))
    if len(given) > len(inputs):
        sizes = tuple(dict.fromkeys((*sizes, *(name for i in given for e in i.type.shape for name in size_names(e)))))
    renaming = ProgramRenaming({}, sizes)
    return Program(given, constants, tuple(map(renaming.definition, definitions)), tuple(outputs), sizes)


def told_by(inputs: Iterable[Input]) -> set[str]:
    """The sizes that extents of inputs tell."""
    return {name for name, _, _ in told_sizes([e for given in inputs for e in given.type.shape])}


def telling(sizes: Iterable[str], inputs: Sequence[Input]) -> list[Input]:
    """The first inputs that tell each of the sizes: as an extent, or else in one."""
    found: dict[Input, None] = {}
    for size in sizes:
        if size in told_by(found):
            continue
        plain = (given for given in inputs if size in told_by([given]))
        other = (given for given in inputs if any(size in size_names(e) for e in given.type.shape))
        teller = next(plain, None) or next(other, None)
        if teller is not None:
            found[teller] = None
    return list(found)


def carried(graph: Graph) -> Graph:
    """The graph with further operands of calls, branches and loops, so that each graph that they run is told the sizes used in it."""
    if not any(node.graphs for node in graph.nodes):
        return graph
    taken = names_in(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.graphs:
            missing = dict.fromkeys(size for inner in node.graphs for size in sizes_in(inner) if size not in told_by(inner.inputs))
            tellers = telling(missing, graph.inputs)
            node = with_graphs(_given(node, tellers, taken) if tellers else node, carried)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _given(node: Node, tellers: Sequence[Input], taken: set[str]) -> Node:
    """The node with further operands, which loops carry from iteration to iteration as they are."""
    operands = (*node.operands, *(teller.name for teller in tellers))
    results = tuple((unused(teller.name, taken), teller.type) for teller in tellers)
    match node:
        case Call():
            return replace(node, operands=operands, graph=_taking(node.graph, tellers, None))
        case Cond():
            then, otherwise = (_taking(way, tellers, None) for way in (node.then, node.otherwise))
            return replace(node, operands=operands, then=then, otherwise=otherwise)
        case While():
            width = len(node.operands)
            condition, body = _taking(node.condition, tellers, None), _taking(node.body, tellers, width)
            found = (*node.results[:width], *results, *node.results[width:])
            return replace(node, operands=operands, condition=condition, body=body, results=found)
        case WhileGradient():
            body = _taking(node.body, tellers, len(node.body.outputs))
            return replace(node, operands=operands, body=body, results=(*node.results, *results))
    raise AssertionError(type(node))


def _taking(graph: Graph, tellers: Sequence[Input], at: int | None) -> Graph:
    """The graph with further inputs, which are also its outputs from the position `at` on, unless that is None."""
    taken = names_in(graph)
    inputs = tuple(Input(unused(teller.name, taken), teller.type) for teller in tellers)
    outputs = graph.outputs if at is None else (*graph.outputs[:at], *(given.name for given in inputs), *graph.outputs[at:])
    return replace(graph, inputs=(*graph.inputs, *inputs), outputs=outputs)


__all__ = ["carried", "sized_program", "telling", "told_by"]
