"""ONNX models as functions: nodes become definitions, functions of the model and operators with a body become composites.

Shapes are those of the model, all known. What hangs on constants alone (shapes, ranges) is computed while reading, by ONNX's own
reference. Attributes that a function body refers to are those of its call. Operators mean what their schemas say at the opset of the model
or of the function they stand in (`onnx_schemas`); results have the types that schemas and model declare. What reading a model may take is
bounded (`onnx_bounds`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tensorexpr.dtypes import dtype
from tensorexpr.errors import TargetError, TensorExprError, user_location
from tensorexpr.graph.function import Signature
from tensorexpr.graph.ir import Call, Composite
from tensorexpr.graph.loaded import Loaded
from tensorexpr.graph.tracing import Trace, as_tensor, current
from tensorexpr.graph.trees import HOLE
from tensorexpr.interop.onnx_bounds import Budget, says_what
from tensorexpr.interop.onnx_expressions import code_of
from tensorexpr.interop.onnx_operators import OPERATORS, native_row
from tensorexpr.interop.onnx_schemas import STANDARD, call, check_attributes, check_inputs, refused, schema_of, typed, version_of
from tensorexpr.ir import TensorType, const
from tensorexpr.language import Tensor


def from_onnx(model: ModelProto, constants: Mapping[str, Any] | None = None) -> Loaded:
    """The function of a model: one array or tensor per input (in order), a tuple of results, or a single one bare.

    `constants` fixes inputs by name, which shapes and axes may hang on; they are no arguments then.
    Raises `TargetError` for inputs without a shape, for operators that there is neither a row, a function nor a body for, for
    attributes and versions that are not known, for outputs that are not of the declared type, for names that are given twice, for data in
    other files, and where the model asks for far more than it holds to be computed while it is read.
    """
    graph = model.graph
    _check_once("function", [f"{f.domain}.{f.name}" + (f" ({f.overload})" if f.overload else "") for f in model.functions])
    _check_once("input", [item.name for item in graph.input])
    _check_once("initializer", [item.name for item in graph.initializer])
    reader = _Reader({(f.domain, f.name, f.overload): f for f in model.functions}, _version(model), Budget.of(model))
    values: dict[str, Any] = {item.name: _array(item) for item in graph.initializer}
    values |= {name: np.asarray(value) for name, value in (constants or {}).items()}
    trace = Trace(graph.name or "main", capturing=False)
    with trace.open():
        for item in graph.input:
            if item.name not in values:
                values[item.name] = trace.formal(_type_of(item), "x")
        reader.run(graph.node, values, {})
        trace.outputs = [_declared(as_tensor(values[item.name], item.name), item) for item in graph.output]
    trace.captured()
    tree: Any = HOLE if len(graph.output) == 1 else tuple(HOLE for _ in graph.output)
    return Loaded(graph.name or "main", Signature(trace.graph(), tree), [])


class _Reader:
    """Runs nodes on tensors of the current trace; `functions` are those of the model, `version` the opset of the nodes."""

    def __init__(self, functions: Mapping[tuple[str, str, str], FunctionProto], version: int, budget: Budget) -> None:
        self._functions, self._version, self._budget = functions, version, budget

    def run(self, nodes: Sequence[NodeProto], values: dict[str, Any], attributes: Mapping[str, Any]) -> None:
        """Adds the results of all nodes to `values`; `attributes` are those that a body's nodes may refer to."""
        for node in nodes:
            self._budget.run(node)
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
            results = self._results(node, inputs, own)
            found = dict(itertools.zip_longest(node.output, results))
            lacking = next((name for name in node.output if name and found[name] is None), None)
            if lacking is not None:
                raise refused(node, "no more results than it has", lacking)
            values.update((name, result) for name, result in found.items() if name)

    def _results(self, node: NodeProto, inputs: list[Any], attributes: dict[str, Any]) -> Sequence[Any]:
        name, domain = node.op_type, node.domain
        local = self._functions.get((domain, name, node.overload))
        if local is not None:
            return self._composite(_composite_of(local, attributes), local, inputs, attributes, _version(local))
        schema = schema_of(node, self._version) if domain in ("", STANDARD) else None
        if schema is not None:
            check_attributes(node, schema, attributes)
            check_inputs(node, schema, inputs)
            return typed(node, schema, inputs, self._standard(node, schema, inputs, attributes))
        raise TargetError(
            f"from_onnx: expected an operator that is known, a function of the model or one with a body, got {domain or STANDARD}.{name}",
            location=user_location(),
            hint="interop/onnx_operators.py has a row for each operator",
        )

    def _standard(self, node: NodeProto, schema: Any, inputs: list[Any], attributes: dict[str, Any]) -> Sequence[Any]:
        """The results of an operator of ONNX: by a row, on constants by ONNX's reference, else by the body of its schema."""
        name = node.op_type
        if name in ("Shape", "Size") and isinstance(inputs[0], Tensor):
            shape = np.asarray(inputs[0].shape, np.int64)
            if name == "Size":
                return (np.prod(shape, dtype=np.int64),)
            return (shape[attributes.get("start", 0) : attributes.get("end", len(shape))],)
        if name == "CastLike" and isinstance(inputs[1], Tensor):
            return (OPERATORS["Cast"](inputs[0], to=code_of(inputs[1].dtype)),)
        if not any(isinstance(item, Tensor) for item in inputs):
            return _folded(node, inputs, attributes, self._version, self._budget)
        native = native_row(name, schema.since_version)
        if name in OPERATORS:
            if name == "Split" and len(inputs) == 1:
                attributes = {"split" if "split" in attributes else "num_outputs": len(node.output), **attributes}
            result = call(OPERATORS[name], node, schema, inputs, attributes)
            return result if isinstance(result, tuple) else (result,)
        body = self._body(node, schema, inputs, attributes)
        if body is None and native is None:
            raise TargetError(
                f"from_onnx: expected an operator that is known, a function of the model or one with a body, got {STANDARD}.{name}",
                location=user_location(),
                hint="interop/onnx_operators.py has a row for each operator",
            )
        composite = Composite(f"{STANDARD}.{name}", tuple(attributes.items()))
        ours = None if native is None else lambda *given: call(native, node, schema, given, attributes)
        return self._composite(composite, body, inputs, attributes, self._version, ours)

    def _composite(
        self,
        composite: Composite,
        body: FunctionProto | None,
        inputs: list[Any],
        attributes: Mapping[str, Any],
        version: int,
        native: Any = None,
    ) -> Sequence[Any]:
        """A call of a composite, traced from its body, or by our own kernel.

        What is given as integers (axes, sizes) says what the body is: it becomes attributes, under the names of the body's inputs.
        """
        names = body.input if body is not None else [f"input_{k}" for k in range(len(inputs))]
        fixed = {name: item for name, item in zip(names, inputs, strict=False) if says_what(item)}
        composite = replace(composite, attributes=(*composite.attributes, *((k, _plain(v)) for k, v in fixed.items())))
        tensors = [as_tensor(item, composite.name) for item in inputs if item is not None and not says_what(item)]
        inner = Trace(composite.op, capturing=False)
        with inner.open():
            given = iter([inner.formal(tensor.type, "x") for tensor in tensors])
            formals = [item if item is None or says_what(item) else next(given) for item in inputs]
            if native is not None:
                results = [native(*formals)]
            else:
                assert body is not None
                values: dict[str, Any] = dict.fromkeys(body.input) | dict(zip(body.input, formals, strict=False))
                inner_reader = _Reader(self._functions, _version(body) if body.opset_import else version, self._budget)
                inner_reader.run(body.node, values, {a.name: _attribute(a, {}) for a in body.attribute_proto} | dict(attributes))
                results = [values.get(name) for name in body.output]
            inner.outputs = [as_tensor(result, composite.name) for result in results if result is not None]
        inner.captured()
        graph = inner.graph(composite=composite)
        outer = current()
        assert outer is not None
        types = [("y", graph.types[name]) for name in graph.outputs]
        found = iter(outer.note(Call(composite.op, (), (), graph=graph), tensors, types).results)
        return [None if result is None else next(found) for result in results]

    def _body(self, node: NodeProto, schema: Any, inputs: list[Any], attributes: Mapping[str, Any]) -> FunctionProto | None:
        """The body by which ONNX defines an operator; None where it has none."""
        version = self._version
        plain = NodeProto()
        plain.CopyFrom(node)
        del plain.attribute[:]
        plain.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        if schema.has_context_dependent_function:
            types = [_type_proto(item) for item in inputs]
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


def _plain(array: np.ndarray) -> Any:
    return tuple(array.tolist()) if array.ndim else array.item()


def _composite_of(function: FunctionProto, attributes: Mapping[str, Any]) -> Composite:
    about = {entry.key: entry.value for entry in function.metadata_props}
    name = about.get("tensorexpr.name", f"{function.domain}.{function.name}")
    aliases = tuple(filter(None, about.get("tensorexpr.aliases", "").split(",")))
    return Composite(name, tuple(attributes.items()), function.doc_string, aliases, about.get("tensorexpr.role", ""))


def _attribute(attribute: Any, outer: Mapping[str, Any]) -> Any:
    if attribute.ref_attr_name:
        return outer[attribute.ref_attr_name]
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        _check_inside(value)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated") else value


def _version(proto: ModelProto | FunctionProto) -> int:
    return version_of({entry.domain: entry.version for entry in proto.opset_import})


def _folded(node: NodeProto, inputs: list[Any], attributes: Mapping[str, Any], version: int, budget: Budget) -> Sequence[Any]:
    """The results of a node on constants, by ONNX's reference at an opset, within a budget."""
    plain = NodeProto()
    plain.CopyFrom(node)
    plain.domain = ""
    del plain.attribute[:]
    plain.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    feeds = {name: item for name, item in zip(node.input, inputs, strict=False) if name}
    try:
        budget.compute(plain, inputs, version)
        given = [helper.make_value_info(name, _type_proto(item)) for name, item in feeds.items()]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.output if name]
        model = helper.make_model(helper.make_graph([plain], "constants", given, outputs), opset_imports=[helper.make_opsetid("", version)])
        found = dict(zip([item.name for item in outputs], ReferenceEvaluator(model).run(None, feeds), strict=True))
    except TensorExprError:
        raise
    except Exception as error:  # whatever the reference says of a node that it cannot run
        raise refused(node, "constants that ONNX's reference computes it of", f"{type(error).__name__}: {error}") from error
    return [found.get(name) for name in node.output]


def _check_once(what: str, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise TargetError(f"from_onnx: expected every {what} once, got {twice} twice", location=user_location())


def _array(tensor: TensorProto) -> np.ndarray:
    """The data of a tensor, which the model has itself: loading a file has read what was beside it, in its folder."""
    _check_inside(tensor)
    return np.asarray(numpy_helper.to_array(tensor))


def _check_inside(tensor: TensorProto) -> None:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise TargetError(
            f"from_onnx: expected tensors with their data, got {tensor.name or 'one'} with its data in another file",
            location=user_location(),
            hint="from_onnx(path) reads what is beside the file",
        )


def _declared(tensor: Tensor, item: Any) -> Tensor:
    """An output, which has the type that the model declares for it. Raises `TargetError` where it has not."""
    if item.type.WhichOneof("value") not in (None, "tensor_type"):
        raise TargetError(
            f"from_onnx: expected outputs that are tensors, got {item.name}, a {item.type.WhichOneof('value')}", location=user_location()
        )
    declared = item.type.tensor_type
    wanted = dtype(helper.tensor_dtype_to_np_dtype(declared.elem_type)) if declared.elem_type else tensor.dtype
    extents = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    fits = not declared.HasField("shape") or (
        len(extents) == tensor.ndim and all(n is None or n == own for n, own in zip(extents, tensor.shape, strict=True))
    )
    if wanted != tensor.dtype or not fits:
        shape = f"[{', '.join('?' if n is None else str(n) for n in extents)}]" if declared.HasField("shape") else ""
        raise TargetError(
            f"from_onnx: output {item.name}: expected {wanted.name}{shape}, as the model declares, got "
            f"{tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]",
            location=user_location(),
        )
    return tensor


def _type_proto(item: Any) -> Any:
    kind = item.dtype if isinstance(item, Tensor) else dtype(np.asarray(item).dtype)
    return helper.make_tensor_type_proto(code_of(kind), list(item.shape))


def _type_of(item: Any) -> TensorType:
    if not item.type.HasField("tensor_type"):
        raise TargetError(
            f"from_onnx: expected inputs that are tensors, got {item.name}, a {item.type.WhichOneof('value') or 'value without a type'}",
            location=user_location(),
        )
    tensor = item.type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim if d.HasField("dim_value")]
    if not tensor.HasField("shape") or len(shape) != len(tensor.shape.dim):
        raise TargetError(
            f"from_onnx: expected inputs whose shapes are known, got {item.name} without", location=user_location(),
            hint="onnx.tools.update_model_dims fixes open dimensions",
        )  # fmt: skip
    return TensorType(tuple(map(const, shape)), dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
