"""Graphs as ONNX models: composites are model-local functions, one for each body; two bodies of one name are overloads."""

from __future__ import annotations

from typing import Any

from onnx import FunctionProto, ModelProto, helper, numpy_helper

from tensorexpr.graph.nodes.effects import graph_effects
from tensorexpr.graph.nodes.inline import inline
from tensorexpr.graph.nodes.ir import Call, Composite, Compute, Graph, Read, names_in
from tensorexpr.graph.nodes.prune import prune
from tensorexpr.interop.onnx.expressions import Definitions, Nodes, code_of, unsupported
from tensorexpr.ir import TensorType, integer

OPSET = 21
IR_VERSION = 10
"""The first with overloads of functions."""


def to_onnx(function: Any, *arguments: Any, **keywords: Any) -> ModelProto:
    """The model of a traced function for arguments like these: data arguments are its inputs, data results its outputs.

    Variables are initializers, with the values that they hold now. Composites are functions of the model. Raises `TargetError` for effects,
    branches, loops, scans, scatters and reductions with combiners of the user's own.
    """
    graph = function.signature(*arguments, **keywords).graph
    if graph_effects(graph).matter:
        raise unsupported("one with effects", graph.name)
    return _Exporter().model(graph)


class _Exporter:
    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], list[FunctionProto]] = {}
        self._done: dict[int, tuple[Graph, FunctionProto]] = {}

    def model(self, graph: Graph) -> ModelProto:
        flat = _flat(graph)
        nodes = self._nodes(flat)
        initializers = [numpy_helper.from_array(c.data, c.name) for c in flat.constants]
        initializers += [numpy_helper.from_array(node.variable.value, node.names[0]) for node in flat.nodes if isinstance(node, Read)]
        types = flat.types
        outputs = []
        taken = names_in(flat)
        for name in flat.outputs:  # an output is a tensor of its own
            own = Nodes(taken).fresh("output")
            nodes.add("Identity", [name], own)
            outputs.append(_value(own, types[name]))
        made = helper.make_graph(
            nodes.made, graph.name.strip("<>") or "main", [_value(i.name, i.type) for i in flat.inputs], outputs, initializers
        )
        functions = [function for same in self._functions.values() for function in same]
        domains = dict.fromkeys(function.domain for function in functions)
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(made, functions=functions, opset_imports=opsets, ir_version=IR_VERSION, producer_name="tensorexpr")

    def _nodes(self, graph: Graph) -> Nodes:
        nodes = Nodes(names_in(graph))
        shapes = {name: _shape(type_) for name, type_ in graph.types.items()}
        writer = Definitions(nodes, shapes)
        for node in graph.nodes:
            if isinstance(node, Compute):
                writer.write(node.definition)
            elif isinstance(node, Call):
                composite = node.graph.composite
                assert composite is not None
                function = self._function(node.graph, composite)
                nodes.made.append(
                    helper.make_node(
                        function.name, list(node.operands), list(node.names), domain=function.domain, overload=function.overload,
                        **{name: _attribute(value) for name, value in composite.attributes},
                    )
                )  # fmt: skip
            elif not isinstance(node, Read):
                raise unsupported(f"a {type(node).__name__.lower()}", node.id)
        return nodes

    def _function(self, graph: Graph, composite: Composite) -> FunctionProto:
        """The function of a composite's body; bodies that are equal are one."""
        if id(graph) in self._done:
            return self._done[id(graph)][1]
        flat = _flat(graph)
        if graph_effects(graph).reads:
            raise unsupported("a composite that reads variables", composite.name)
        nodes = self._nodes(flat)
        constants = Nodes(set())
        for constant in flat.constants:
            constants.add("Constant", [], constant.name, value=numpy_helper.from_array(constant.data))
        taken = names_in(flat) | {name for node in nodes.made for name in node.output}
        outputs = [Nodes(taken).fresh("output") for _ in flat.outputs]
        for name, own in zip(flat.outputs, outputs, strict=True):
            nodes.add("Identity", [name], own)
        op = composite.full_name.removeprefix(f"{composite.domain}.").replace(".", "_")
        inner = dict.fromkeys(node.domain for node in nodes.made if node.domain)
        function = helper.make_function(
            composite.domain, op, [i.name for i in flat.inputs], outputs, [*constants.made, *nodes.made],
            [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in inner)],
            attributes=[name for name, _ in composite.attributes], doc_string=composite.doc,
        )  # fmt: skip
        for key, value in (
            ("tensorexpr.name", composite.name),
            ("tensorexpr.role", composite.role),
            ("tensorexpr.aliases", ",".join(composite.aliases)),
        ):
            function.metadata_props.add(key=key, value=value)
        same = self._functions.setdefault((composite.domain, op), [])
        for other in same:
            function.overload = other.overload
            if function.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True):
                self._done[id(graph)] = (graph, other)
                return other
        function.overload = str(len(same)) if same else ""
        same.append(function)
        self._done[id(graph)] = (graph, function)
        return function


def _flat(graph: Graph) -> Graph:
    """The graph with calls of composites alone."""
    return prune(inline(graph, keep=lambda call: "a composite" if call.graph.composite is not None else ""))


def _shape(type_: TensorType) -> tuple[int, ...]:
    return tuple(integer(e) for e in type_.shape)


def _value(name: str, type_: TensorType) -> Any:
    return helper.make_tensor_value_info(name, code_of(type_.dtype), _shape(type_))


def _attribute(value: Any) -> Any:
    """A value that ONNX has an attribute for: text, a number, or numbers of one kind; a bool is an integer, None is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (str, int, float)) or (isinstance(value, (tuple, list)) and value):
        return list(value) if isinstance(value, tuple) else value
    raise unsupported(f"the attribute {value!r}", value)
