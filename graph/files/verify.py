"""What every graph satisfies, and the check of it: for graphs that come from files, where anything may stand.

1. Names: values are identifiers, each given once; ids of nodes are texts, each once. A node takes values that were given before it.
2. Types: extents are numbers from 0 on, or expressions of sizes that are open. A node takes and gives values of the types that its meaning
   has: a definition those of its text (itself verified, `tensorexpr.verify`), a variable its own, a call those of the graph, both ways of a
   branch the same, a loop its state.
3. Flags of branches, loops and checks are scalar bools.
4. Texts of prints take the operands, and fields in them are at most four digits wide.
5. Outputs are values of the graph; what says how a backward pass is divided counts inputs and outputs that are there.

The first that does not hold is a `DefinitionError` that names the graph and the node. Graphs that a graph runs are checked for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError, TensorExprError
from tensorexpr.graph.nodes.ir import Absent, Assign, Call, Check, Compute, Cond, Graph, Node, Print, Read, While, WhileGradient
from tensorexpr.graph.nodes.sizes import sized_program
from tensorexpr.graph.trace.host import check_text
from tensorexpr.ir import Apply, Const, Expr, Input, Size, TensorType
from tensorexpr.text import print_type
from tensorexpr.traversal import walk
from tensorexpr.verify import verify

_BOOL = TensorType((), dtypes.bool_)
_WIDE = re.compile(r"\d{5}")


def verify_graph(graph: Graph) -> None:
    """Checks what this module's docstring says. Raises `DefinitionError` for the first that does not hold."""
    types: dict[str, TensorType] = {}
    for name, type_ in (*((i.name, i.type) for i in graph.inputs), *((c.name, c.type) for c in graph.constants)):
        _give(graph, types, name, type_)
    ids: set[str] = set()
    for node in graph.nodes:
        if not isinstance(node.id, str) or node.id in ids:
            _fail(graph, f"expected an id of its own for each node, got {node.id!r}")
        if not ids.issuperset(node.after):
            _fail(graph, "expected nodes to wait for nodes before them", node)
        if not isinstance(node.scope, str) or node.device not in (None, "cpu", "cuda"):
            _fail(graph, f"expected a scope and a device, got {node.scope!r} and {node.device!r}", node)
        ids.add(node.id)
        for name in node.operands:
            if name not in types:
                _fail(graph, f"expected a value given before, got {name!r}", node)
        _node(graph, node, [types[name] for name in node.operands], [type_ for _, type_ in node.results])
        for name, type_ in node.results:
            _give(graph, types, name, type_)
    for name in graph.outputs:
        if name not in types:
            _fail(graph, f"expected outputs among its values, got {name!r}")
    _parts(graph)


def _fail(graph: Graph, message: str, node: Node | None = None) -> NoReturn:
    raise DefinitionError(message, at=f"{graph.name}" if node is None else f"{node.id} of {graph.name}")


def _give(graph: Graph, types: dict[str, TensorType], name: str, type_: TensorType) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name in types:
        _fail(graph, f"expected an identifier for each value, once, got {name!r}")
    if not all(_is_extent(e) for e in type_.shape):
        _fail(graph, f"expected extents from 0 on, got {print_type(type_)} for {name}")
    types[name] = type_


def _is_extent(extent: Expr) -> bool:
    if isinstance(extent, Const):
        return 0 <= extent.value <= dtypes.int64.greatest
    return extent.dtype is dtypes.int64 and all(isinstance(part, Const | Size | Apply) for part in walk(extent))


def _node(graph: Graph, node: Node, operands: list[TensorType], results: list[TensorType]) -> None:
    def same(what: str, wanted: Sequence[TensorType], got: Sequence[TensorType]) -> None:
        if list(wanted) != list(got):
            expected, found = (", ".join(map(print_type, row)) or "nothing" for row in (wanted, got))
            _fail(graph, f"expected {what} of {expected}, got {found}", node)

    match node:
        case Compute():
            given = [Input(name, type_) for name, type_ in dict(zip(node.operands, operands, strict=True)).items()]
            program = sized_program(given, [node.definition], node.names)
            try:
                verify(program)
            except TensorExprError as error:
                _fail(graph, error.message, node)
            same("results", [program.types[name] for name in node.names], results)
            same("all results of its definition", [type_ for _, type_ in node.definition.results], results)
        case Read():
            same("the variable's value", [node.variable.type], results)
            same("operands", [], operands)
        case Assign():
            same("a value for the variable", [node.variable.type], operands)
            same("results", [], results)
        case Call():
            same("operands", _inputs(node.graph), operands)
            same("results", _outputs(node.graph), results)
        case Cond():
            same("a flag", [_BOOL], operands[:1])
            for way in (node.then, node.otherwise):
                same("operands", _inputs(way), operands[1:])
                same("results", _outputs(way), results)
        case While():
            width = len(operands)
            same("a state", _inputs(node.condition), operands)
            same("a flag", [_BOOL], _outputs(node.condition))
            same("a state", _inputs(node.body), operands)
            same("the next state", operands, _outputs(node.body)[:width])
            same("the last state", operands, results[:width])
            if type(node.history) is not bool or len(results) != width + node.history:
                _fail(graph, f"expected results for {width} parts of the state, got {len(results)}", node)
            if not node.history:
                same("no more than the next state", operands, _outputs(node.body))
        case WhileGradient():
            if type(node.saved) is not int or not 0 <= node.saved <= len(node.body.inputs) or not operands:
                _fail(graph, f"expected how much an iteration saved, got {node.saved!r}", node)
            same("heads", _inputs(node.body)[node.saved :], operands[1:])
            same("heads", operands[1:], _outputs(node.body))
            same("heads", operands[1:], results)
        case Print():
            if not isinstance(node.text, str) or _WIDE.search(node.text):
                _fail(graph, f"expected a text with narrow fields, got {node.text!r}", node)
            same("results", [], results)
            check_text(node.text, operands)
        case Check():
            same("a flag", [_BOOL], operands)
            same("results", [], results)
            if not isinstance(node.text, str):
                _fail(graph, f"expected a text, got {node.text!r}", node)
        case Absent():
            same("operands", [], operands)


def _inputs(graph: Graph) -> list[TensorType]:
    return [i.type for i in graph.inputs]


def _outputs(graph: Graph) -> list[TensorType]:
    types = graph.types
    return [types[name] for name in graph.outputs]


def _parts(graph: Graph) -> None:
    composite, backward = graph.composite, graph.backward
    if not isinstance(graph.kept, str) or not isinstance(graph.name, str):
        _fail(graph, f"expected a text that says why it is kept, got {graph.kept!r}")
    if graph.own is not None and not (type(graph.own) is int and 0 <= graph.own <= len(graph.outputs)):
        _fail(graph, f"expected how many of {len(graph.outputs)} outputs are the function's, got {graph.own!r}")
    if composite is not None:
        texts = (composite.name, composite.doc, *composite.aliases, *(name for name, _ in composite.attributes))
        if not all(isinstance(text, str) for text in texts) or composite.role not in ("", "forward", "backward"):
            _fail(graph, f"expected what it implements, got {composite!r}")
    if backward is not None:
        counts = (backward.inputs, backward.outputs, *backward.heads, *backward.wanted)
        if not all(type(count) is int and count >= 0 for count in counts):
            _fail(graph, f"expected numbers of inputs and outputs, got {backward!r}")
        heads = all(k < backward.outputs for k in backward.heads) and len(set(backward.heads)) == len(backward.heads)
        wanted = all(k < backward.inputs for k in backward.wanted) and len(backward.wanted) <= len(graph.outputs)
        if not heads or not wanted or backward.saved_at > len(graph.inputs):
            _fail(graph, f"expected a backward pass of {len(graph.inputs)} inputs, got {backward!r}")
