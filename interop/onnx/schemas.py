"""What ONNX's schemas say of a node: its version, the attributes it may have, the types of its results.

An operator means what its schema of the model's opset says. A row of ours is for the meaning that is newest; older ones have rows
of their own where they differ in more than names. Nothing that a node says is passed over: an attribute that neither schema nor
row knows is refused, one that a row does not know must have its default; attributes have the types, and inputs the numbers, that the
schema says; results have its types, by a cast where our arithmetic is wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, defs, helper

from tensorexpr.dtypes import DTYPES, DType, dtype
from tensorexpr.errors import TargetError, TensorExprError, user_location
from tensorexpr.graph.trace.values import elementwise
from tensorexpr.interop.onnx.table import GIVEN, Row, apply
from tensorexpr.interop.onnx.values import Coded, Option, is_narrow
from tensorexpr.language import Tensor, cast

STANDARD = "ai.onnx"


def refused(node: NodeProto, expected: str, got: str, hint: str | None = None) -> TargetError:
    """The error for a node that cannot be taken as it is."""
    label = f"{node.domain or STANDARD}.{node.op_type}" + (f" ({node.name})" if node.name else "")
    return TargetError(f"from_onnx: {label}: expected {expected}, got {got}", location=user_location(), hint=hint)


def version_of(opsets: Mapping[str, int]) -> int:
    """The opset of ONNX's own operators. Raises `TargetError` for one that the installed package does not know."""
    version, newest = opsets.get("", opsets.get(STANDARD, defs.onnx_opset_version())), defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise TargetError(
            f"from_onnx: expected a model of opset 1 to {newest}, got {version}",
            location=user_location(),
            hint="pip install --upgrade onnx" if version > newest else None,
        )
    return version


def schema_of(node: NodeProto, versions: Mapping[str, int]) -> Any:
    """The schema of an operator of ONNX's at the opsets of a model; None where there is none."""
    domain = "" if node.domain == STANDARD else node.domain
    version = version_of(versions) if not domain else versions.get(domain, 1)
    return defs.get_schema(node.op_type, version, domain) if defs.has(node.op_type, version, domain) else None


def check_attributes(node: NodeProto, schema: Any, attributes: Mapping[str, Any]) -> None:
    """Refuses attributes that the operator has not, or of another type, at the model's opset, and the lack of those that it must have."""
    for name, value in attributes.items():
        if name not in schema.attributes:
            raise refused(node, f"attributes of version {schema.since_version} ({', '.join(schema.attributes) or 'none'})", name)
        kind = schema.attributes[name].type.name
        if not _is_of(kind, value):
            raise refused(node, f"the attribute {name} to be of the type {kind}", repr(value))
    for name, about in schema.attributes.items():
        if about.required and name not in attributes:
            raise refused(node, f"the attribute {name}", "none")


_KINDS: dict[str, Any] = {"INT": int, "FLOAT": float, "STRING": (str, bytes), "TENSOR": TensorProto}


def _is_of(kind: str, value: Any) -> bool:
    """Whether the value of an attribute is of a type of ONNX's; of graphs and the like, of which no row knows, it is not asked."""
    one = _KINDS.get(kind.removesuffix("S"))
    if one is None:
        return True
    return isinstance(value, tuple) and all(isinstance(v, one) for v in value) if kind.endswith("S") else isinstance(value, one)


def check_inputs(node: NodeProto, schema: Any, inputs: Sequence[Any]) -> None:
    """Refuses more inputs than the operator has, and the lack of those that it must have."""
    if len(inputs) > schema.max_input:
        raise refused(node, f"at most {schema.max_input} inputs", str(len(inputs)))
    lacking = [formal.name for formal, item in _paired(schema.inputs, inputs) if item is None and formal.option == _SINGLE]
    lacking += [formal.name for formal in schema.inputs[len(inputs) : schema.min_input]]
    if lacking:
        raise refused(node, f"the input {lacking[0]}", "none")


_SINGLE = defs.OpSchema.FormalParameterOption.Single


def call(
    row: Row, node: NodeProto, schema: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The results of a row; `given` is what the reader has for it. Raises `TargetError` for what it does not take, and what fails in it."""
    taken = {name: given[name] for name in GIVEN if name in row.parameters}
    for name, value in attributes.items():
        if name in row.parameters:
            taken[name] = value
        elif value != _default(schema, name):
            raise refused(node, f"no {name} or its default", f"{name}={value!r}")
    try:
        return apply(row, inputs, taken)
    except TensorExprError:
        raise
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refused(node, "inputs and attributes that there is a row for", f"{type(error).__name__}: {error}") from error


def _default(schema: Any, name: str) -> Any:
    default = schema.attributes[name].default_value
    value = helper.get_attribute_value(default) if default.name else None
    return value.decode() if isinstance(value, bytes) else value


def typed(node: NodeProto, schema: Any, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The results in the types of the schema. Raises `TargetError` for inputs of several types where it says one."""
    bound: dict[str, Any] = {}
    for formal, item in _paired(schema.inputs, inputs):
        own = _dtype_of(item)
        if own is None or (formal.option == defs.OpSchema.FormalParameterOption.Variadic and not formal.is_homogeneous):
            continue
        if bound.setdefault(formal.type_str, own) != own:
            raise refused(node, f"inputs of one type {formal.type_str}, {_name(bound[formal.type_str])}", _name(own))
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    found = []
    for formal, result in _paired(schema.outputs, results):
        wanted = bound.get(formal.type_str)
        if wanted is None and formal.type_str.startswith("tensor("):
            wanted = _named(formal.type_str)
        own = _dtype_of(result)
        if not isinstance(own, DType) or (formal.option == defs.OpSchema.FormalParameterOption.Variadic and not formal.is_homogeneous):
            found.append(result)
        elif isinstance(wanted, DType):
            found.append(_cast(result, wanted))
        elif formal.type_str in allowed and not any(_named(text) == own for text in allowed[formal.type_str]):
            raise refused(node, f"a result of a type {formal.type_str} of the schema", own.name)
        else:
            found.append(result)
    return found


def _paired(formals: Sequence[Any], items: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Items with what the schema says of them; its last parameter may be several."""
    return [(formals[min(k, len(formals) - 1)], item) for k, item in enumerate(items)] if formals else []


def _dtype_of(item: Any) -> DType | np.dtype | None:
    """The type of the elements of a value: a dtype of the language, one that is kept in codes, or None (sequences, optionals, texts)."""
    if isinstance(item, Tensor):
        return item.dtype
    if isinstance(item, Coded):
        return item.kind
    if item is None or isinstance(item, (list, tuple, Option)):
        return None
    array = np.asarray(item)
    if array.dtype in _ARRAYS:
        return dtype(array.dtype)
    return array.dtype if is_narrow(array.dtype) else None


def _name(kind: Any) -> str:
    return str(kind.name)


_ARRAYS = {one.numpy for one in DTYPES}


_NAMES = {"float": "float32", "double": "float64"}
_KNOWN = {one.name: one for one in DTYPES}


def _named(text: str) -> DType | None:
    """The element type of `tensor(float)`; None for types that the language does not have, sequences and the like."""
    name = text.removeprefix("tensor(").removesuffix(")")
    name = _NAMES.get(name, name)
    return _KNOWN.get(name) if text.startswith("tensor(") else None


def _cast(result: Any, wanted: DType) -> Any:
    if not isinstance(result, Tensor):
        return np.asarray(result).astype(wanted.numpy, copy=False)
    return result if result.dtype == wanted else elementwise(lambda value: cast(value, wanted), result)
