"""ONNX models as functions: nodes become definitions, functions of the model and operators with a body become composites.

Operators mean what their schemas say at the opset of the model or of the function they stand in (`schemas`), and are computed by rows of
a table (`table`); results have the types that schemas and model declare. Attributes that a function body refers to are those of its call.
A body that asks for elements of its arguments is read where it is called, among the other nodes. What reading may take is bounded
(`bounds`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper

from tensorexpr.errors import TargetError, user_location
from tensorexpr.graph.nodes.ir import Call, Composite
from tensorexpr.graph.trace.tracing import Trace, as_tensor, current
from tensorexpr.interop.onnx.bounds import Budget, says_what
from tensorexpr.interop.onnx.expressions import code_of
from tensorexpr.interop.onnx.extents import of_extents
from tensorexpr.interop.onnx.schemas import STANDARD, call, check_attributes, check_inputs, refused, schema_of, typed, version_of
from tensorexpr.interop.onnx.table import Row, row_of
from tensorexpr.interop.onnx.values import Coded, Hangs, Option, array_of, is_constant, is_text, known, session, tensor_of
from tensorexpr.language import Tensor

_SETTLED = 1 << 10
"""Elements up to which what depends on constants is computed where it stands."""


class Reader:
    """Runs nodes on values of the current trace; `functions` are those of the model, `versions` the opsets of the nodes.

    In `plain` mode no composites are made: in the step of a scan, which is made of definitions alone.
    """

    def __init__(
        self, functions: Mapping[tuple[str, str, str], FunctionProto], versions: Mapping[str, int], budget: Budget, plain: bool = False
    ) -> None:
        self._functions, self._versions, self.budget, self._plain = functions, versions, budget, plain

    def run(self, nodes: Sequence[NodeProto], values: dict[str, Any], attributes: Mapping[str, Any]) -> None:
        """Adds the results of all nodes to `values`; `attributes` are those that a body's nodes may refer to."""
        for node in nodes:
            self.budget.run(node)
            own = {a.name: _attribute(a, attributes) for a in node.attribute if not a.ref_attr_name or a.ref_attr_name in attributes}
            missing = next((name for name in node.input if name and name not in values), None)
            if missing is not None:
                raise refused(node, "inputs that are tensors, given or computed before", missing)
            twice = next((name for name in node.output if name and name in values), None)
            if twice is not None:
                raise refused(node, "results with names of their own", f"{twice}, which something else is called")
            inputs = [values[name] if name else None for name in node.input]
            while inputs and inputs[-1] is None:
                inputs.pop()
            with self.budget.of_node(node):
                results = self._results(node, inputs, own, Scope(self, values, attributes))
            found = dict(itertools.zip_longest(node.output, results))
            lacking = next((name for name in node.output if name and found[name] is None), None)
            if lacking is not None:
                raise refused(node, "no more results than it has", lacking)
            values.update((name, result) for name, result in found.items() if name)

    def inside(self) -> Reader:
        """The same without composites."""
        return Reader(self._functions, self._versions, self.budget, plain=True)

    def _results(self, node: NodeProto, inputs: list[Any], attributes: dict[str, Any], scope: Scope) -> Sequence[Any]:
        name, domain = node.op_type, node.domain
        local = self._functions.get((domain, name, node.overload))
        if local is not None:
            return self._composite(_composite_of(local, attributes), local, inputs, attributes, versions_of(local))
        schema = schema_of(node, self._versions)
        if schema is not None:
            check_attributes(node, schema, attributes)
            check_inputs(node, schema, inputs)
            return typed(node, schema, inputs, self._standard(node, schema, inputs, attributes, scope))
        raise _unknown(node)

    def _standard(self, node: NodeProto, schema: Any, inputs: list[Any], attributes: dict[str, Any], scope: Scope) -> Sequence[Any]:
        """The results of an operator of ONNX: by a row, else by the body of its schema."""
        row = row_of("" if node.domain == STANDARD else node.domain, node.op_type, schema.since_version)
        given = {"outputs": len(node.output), "version": schema.since_version, "scope": scope}
        shape = of_extents(node.op_type, inputs, attributes) if not node.domain else None
        if shape is not None:
            return [shape]
        fixed = all(item is None or is_constant(item) for item in inputs)
        has_body = schema.has_function or schema.has_context_dependent_function
        if row is not None and (not has_body or fixed or self._plain):
            return _settled(call(row, node, schema, inputs, attributes, given), fixed)
        body = self._body(node, schema, inputs, attributes) if row is None else None
        if body is None and row is None:
            raise _unknown(node)
        if fixed:
            assert body is not None
            return _settled(self._inline(body, inputs, attributes, self._body_versions(body)), True)
        composite = Composite(f"{node.domain or STANDARD}.{node.op_type}", tuple((k, v) for k, v in attributes.items() if _is_plain(v)))
        ours = (row, node, schema, attributes, given) if row is not None else None
        versions = self._body_versions(body) if body is not None else self._versions
        return self._composite(composite, body, inputs, attributes, versions, ours)

    def _body_versions(self, body: FunctionProto) -> Mapping[str, int]:
        return versions_of(body) if body.opset_import else self._versions

    def _composite(
        self,
        composite: Composite,
        body: FunctionProto | None,
        inputs: list[Any],
        attributes: Mapping[str, Any],
        versions: Mapping[str, int],
        ours: tuple[Row, NodeProto, Any, Mapping[str, Any], Mapping[str, Any]] | None = None,
    ) -> Sequence[Any]:
        """A call of a composite, traced from its body, or by our own kernel.

        What is given as integers (axes, sizes) says what the body is: it becomes attributes, under the names of the body's inputs. A body
        that works on sequences or asks for elements of its arguments is no composite: its nodes are read where it stands.
        """
        plain = self._plain or not all(item is None or isinstance(item, (Tensor, np.ndarray)) for item in inputs)
        if not plain and not any(isinstance(item, np.ndarray) and item.dtype.kind in "OUSV" for item in inputs):
            try:
                return self._noted(composite, body, inputs, attributes, versions, ours)
            except (Hangs, _Unfit):
                pass
        if ours is not None:
            row, node, schema, given, facts = ours
            return call(row, node, schema, inputs, given, facts)
        assert body is not None
        return self._inline(body, inputs, attributes, versions)

    def _noted(
        self,
        composite: Composite,
        body: FunctionProto | None,
        inputs: list[Any],
        attributes: Mapping[str, Any],
        versions: Mapping[str, int],
        ours: tuple[Row, NodeProto, Any, Mapping[str, Any], Mapping[str, Any]] | None,
    ) -> Sequence[Any]:
        names = [formal.name for formal in ours[2].inputs] if ours is not None else body.input if body is not None else []
        fixed = {name: item for name, item in zip(names, inputs, strict=False) if says_what(item)}
        composite = replace(composite, attributes=(*composite.attributes, *((k, _plain(v)) for k, v in fixed.items())))
        tensors = [as_tensor(item, composite.name) for item in inputs if item is not None and not says_what(item)]
        inner = Trace(composite.op, capturing=False)
        with inner.open():
            given = iter([inner.formal(tensor.type, "x") for tensor in tensors])
            formals = [item if item is None or says_what(item) else next(given) for item in inputs]
            if ours is not None:
                row, node, schema, own, facts = ours
                results: Sequence[Any] = call(row, node, schema, formals, own, facts)
            else:
                assert body is not None
                results = self._inline(body, formals, attributes, versions)
            results = [item if item is None else tensor_of(item) for item in results]
            if not all(item is None or isinstance(item, Tensor) for item in results):
                raise _Unfit
            inner.outputs = [item for item in results if item is not None]
        inner.captured()
        graph = inner.graph(composite=composite)
        outer = current()
        assert outer is not None
        types = [("y", graph.types[name]) for name in graph.outputs]
        found = iter(outer.note(Call(composite.op, (), (), graph=graph), tensors, types).results)
        return [None if result is None else next(found) for result in results]

    def _inline(self, body: FunctionProto, inputs: Sequence[Any], attributes: Mapping[str, Any], versions: Mapping[str, int]) -> list[Any]:
        """The results of a body's nodes."""
        values: dict[str, Any] = dict.fromkeys(body.input) | dict(zip(body.input, inputs, strict=False))
        reader = Reader(self._functions, versions, self.budget, self._plain)
        reader.run(body.node, values, {a.name: _attribute(a, {}) for a in body.attribute_proto} | dict(attributes))
        return [values.get(name) for name in body.output]

    def _body(self, node: NodeProto, schema: Any, inputs: list[Any], attributes: Mapping[str, Any]) -> FunctionProto | None:
        """The body by which ONNX defines an operator; None where it has none."""
        plain = NodeProto()
        plain.CopyFrom(node)
        del plain.attribute[:]
        plain.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        version = self._versions.get(node.domain, 1) if node.domain not in ("", STANDARD) else self._versions[""]
        if schema.has_context_dependent_function:
            types = [type_proto(item) for item in inputs]
            versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions, default=version), plain.SerializeToString(), [t.SerializeToString() for t in types]
            )
        elif schema.has_function:
            text = schema.function_body.SerializeToString()
        else:
            return None
        body = FunctionProto()
        body.ParseFromString(text)
        for name, default in schema.attributes.items():
            if name not in attributes and default.default_value.name:
                body.attribute_proto.append(default.default_value)
        return body


class _Unfit(Exception):
    """A body whose results are no tensors."""


@dataclass(frozen=True)
class Scope:
    """Where a node stands: what graphs of its attributes see."""

    reader: Reader
    values: Mapping[str, Any]
    attributes: Mapping[str, Any]

    def run(self, graph: GraphProto, inputs: Sequence[Any], plain: bool = False) -> list[Any]:
        """The outputs of a graph of an attribute for inputs."""
        values = dict(self.values)
        for item in graph.output:
            values.pop(item.name, None)
        for node in graph.node:  # names inside hide those outside
            for name in node.output:
                values.pop(name, None)
        values |= {item.name: array_of(item) for item in graph.initializer}
        values |= {item.name: value for item, value in zip(graph.input, inputs, strict=True)}
        reader = self.reader.inside() if plain else self.reader
        reader.run(graph.node, values, self.attributes)
        return [values[item.name] for item in graph.output]


def _settled(results: Sequence[Any], fixed: bool) -> Sequence[Any]:
    """Results; of those of constants short ones are computed, and what the others take is counted."""
    return [_computed(item) for item in results] if fixed else results


def _computed(item: Any) -> Any:
    tensor = item.codes if isinstance(item, Coded) else item
    if not isinstance(tensor, Tensor) or not all(isinstance(n, int) for n in tensor.shape) or not is_constant(tensor):
        return item
    session.get().charge(tensor)
    return known(item) if math.prod(int(n) for n in tensor.shape) <= _SETTLED else item


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (str, int, float)) for item in items)


def _plain(array: np.ndarray) -> Any:
    return tuple(array.tolist()) if array.ndim else array.item()


def _unknown(node: NodeProto) -> TargetError:
    return TargetError(
        "from_onnx: expected an operator that is known, a function of the model or one with a body, "
        f"got {node.domain or STANDARD}.{node.op_type}",
        location=user_location(),
        hint="interop/onnx/operators and layers have a row for each operator",
    )


def _composite_of(function: FunctionProto, attributes: Mapping[str, Any]) -> Composite:
    about = {entry.key: entry.value for entry in function.metadata_props}
    name = about.get("tensorexpr.name", f"{function.domain}.{function.name}")
    aliases = tuple(filter(None, about.get("tensorexpr.aliases", "").split(",")))
    return Composite(name, tuple(attributes.items()), function.doc_string, aliases, about.get("tensorexpr.role", ""))


def _attribute(attribute: Any, outer: Mapping[str, Any]) -> Any:
    if attribute.ref_attr_name:
        return outer[attribute.ref_attr_name]
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        array_of(value)  # which says where its data is not here
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(item.decode() if isinstance(item, bytes) else item for item in value)
    return value


def versions_of(proto: Any) -> dict[str, int]:
    """The opsets of a model or of a function, by domain; that of ONNX's own operators is "". Raises `TargetError` for an unknown one."""
    found = {entry.domain: entry.version for entry in proto.opset_import}
    return found | {"": version_of(found)}


def type_proto(item: Any) -> Any:
    """ONNX's type of a value."""
    if item is None:
        return helper.make_tensor_type_proto(TensorProto.UNDEFINED, None)
    if isinstance(item, Option):
        return helper.make_optional_type_proto(type_proto(item.value))
    if isinstance(item, list):
        return helper.make_sequence_type_proto(type_proto(item[0]) if item else helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    shape = [n if isinstance(n, int) else None for n in item.shape]
    if isinstance(item, Tensor):
        return helper.make_tensor_type_proto(code_of(item.dtype), shape)
    kind = item.kind if isinstance(item, Coded) else item.dtype
    if kind.kind == "O" and getattr(item, "size", 0) and not is_text(item):
        return helper.make_tensor_type_proto(TensorProto.INT64, shape)
    code = TensorProto.STRING if kind.kind in "OUS" else helper.np_dtype_to_tensor_dtype(kind)
    return helper.make_tensor_type_proto(code, shape)
