"""One region of a graph as one program: its nodes by their definitions, compiled.

The nodes of a region are composed, tensor by tensor, and compiled together; views are not nodes of a region but are read through
wherever they are used. A result that the graph promises with permuted strides (channels_last) is defined in that order, so that what
stands between two convolutions is stored the way torch would store it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

import tensorexpr as te
from tensorexpr.building.fallback import strict
from tensorexpr.codegen.compile import build_program
from tensorexpr.errors import DefinitionError, InternalError, TensorExprError
from tensorexpr.interop.torch.backend.aten.shapes import VIEWS
from tensorexpr.interop.torch.backend.calls import Region
from tensorexpr.interop.torch.backend.sizes import Memory, extent, opened
from tensorexpr.interop.torch.backend.table import Form, Result, Unsupported, arguments, cast_to, definition_of
from tensorexpr.interop.torch.definitions import operator_of
from tensorexpr.interop.torch.dtypes import FROM_TORCH
from tensorexpr.interop.torch.library import NAMESPACE
from tensorexpr.interop.torch.operator import of_op
from tensorexpr.language import program_of
from tensorexpr.regions import told_sizes

Failures = dict[Node, str]


def is_view(node: Node) -> bool:
    """Whether a node gives the memory of its first argument, seen otherwise."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])  # type: ignore[arg-type]  # views read nodes
    return node.target in VIEWS


def is_ours(node: Node) -> bool:
    """Whether a node is an op of the language, as `as_torch` puts it into graphs."""
    return getattr(node.target, "namespace", None) == NAMESPACE


def value_of(node: Node) -> Any:
    """The fake value of a node."""
    return node.meta.get("val")


def why_not(node: Node, device: torch.device) -> str | None:
    """Why a node is PyTorch's to run; None where it may be one of a region."""
    if node.op != "call_function":
        return "no operator"
    if "tensorexpr_foreign" in node.meta:
        return str(node.meta["tensorexpr_foreign"])
    if node.target is operator.getitem:
        return None
    if definition_of(node.target) is None and not is_ours(node):
        return "no definition"
    value = value_of(node)
    tensors = [one for one in (value if isinstance(value, (tuple, list)) else [value]) if one is not None]
    if not tensors or not all(isinstance(one, torch.Tensor) for one in tensors):
        return "a result that is no tensor"
    for one in (*tensors, *(v for n in node.all_input_nodes if isinstance(v := value_of(n), torch.Tensor))):
        if one.dtype not in FROM_TORCH:
            return f"the dtype {one.dtype}"
        if one.layout is not torch.strided or one.is_nested:
            return f"the layout {one.layout}"
        if one.device != device:
            return f"a tensor on {one.device}"
    return None


@dataclass
class Lowered:
    """A region compiled: the function that graphs call, the nodes that are its arguments, and the results it gives in order."""

    call: Callable[..., tuple[torch.Tensor, ...]]
    inputs: list[Node]
    symbols: list[str]
    region: Region


@dataclass
class Lowering:
    """A region as it is being composed."""

    members: set[Node]
    failures: Failures = field(default_factory=dict)
    values: dict[Node, Any] = field(default_factory=dict)
    inputs: dict[Node, tuple[te.Tensor, Memory]] = field(default_factory=dict)

    def value(self, node: Node) -> Any:
        """What a node is in the language: a tensor, a tuple of them, or a number."""
        found = self.values.get(node)
        if found is None:
            found = self.values[node] = self._value(node)
        return found

    def _value(self, node: Node) -> Any:
        if node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[0], Node):
            source = node.args[0]
            if source in self.members or is_view(source):
                return self.value(source)[node.args[1]]
        if node in self.members or is_view(node):
            return self._defined(node)
        value = value_of(node)
        if not isinstance(value, torch.Tensor):
            return extent(value)
        return self._given(node, value)

    def _given(self, node: Node, value: torch.Tensor) -> te.Tensor:
        if value.dtype not in FROM_TORCH:
            raise Unsupported(f"the dtype {value.dtype}")
        memory = Memory.of(value) or Memory([extent(n) for n in value.shape], range(value.ndim))
        given = te.placeholder(memory.physical, FROM_TORCH[value.dtype].name, name=_identifier(node.name))
        self.inputs[node] = given, memory
        return memory.logical(given)

    def _defined(self, node: Node) -> Any:
        target: Any = node.target
        result = Result(_forms(value_of(node)), node)
        given: Any = map_arg(node.args, self.value)
        if is_ours(node):
            tensors, definition = given
            found: Any = operator_of(definition, of_op).operator.compose(list(tensors))
        else:
            rule = definition_of(target)
            assert rule is not None
            found = rule(result, *arguments(target, _extents(given), _extents(map_arg(dict(node.kwargs), self.value))))
        if not isinstance(found, (tuple, list)):
            return self._kept(node, result, 0, found, value_of(node))
        values = value_of(node)
        return tuple(self._kept(node, result, k, one, values[k]) for k, one in enumerate(found))

    def _kept(self, node: Node, result: Result, position: int, found: te.Tensor | None, value: Any) -> Any:
        """A result as it was promised."""
        if found is None or not isinstance(value, torch.Tensor):
            return None
        form = result[position]
        if found.ndim != len(form.shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(found.shape, form.shape, strict=True)
        ):
            raise Unsupported(f"a definition of shape {found.shape} where {form.shape} is promised")
        found = cast_to(found, form.dtype)
        if found.ndim < 4 or is_view(node):
            return found
        memory = Memory.of(value)
        return found if memory is None or memory.plain or memory.stretched else memory.logical(memory.stored(found))

    def compose(self, nodes: Iterable[Node]) -> None:
        """Defines the nodes; one that cannot be goes to `failures`, and its readers see an input in its place."""
        for node in nodes:
            try:
                self.value(node)
            except Exception as error:  # a definition that fails costs speed, never a result
                if strict() and not isinstance(error, (Unsupported, TensorExprError, NotImplementedError)):
                    raise
                self.failures[node] = str(getattr(error, "message", error)).split("\n")[0] or type(error).__name__
                self.values[node] = _stand_in(node)


def _identifier(name: str) -> str:
    return name if name.isidentifier() else f"x_{name}"


def _extents(given: Any) -> Any:
    """Symbolic integers that stand in arguments themselves as sizes, and lists for torch's immutable ones."""
    if isinstance(given, (list, tuple)):
        return [_extents(one) for one in given]
    if isinstance(given, dict):
        return {name: _extents(one) for name, one in given.items()}
    return extent(given)


def _forms(value: Any) -> list[Form | None]:
    def form(one: Any) -> Form | None:
        if not isinstance(one, torch.Tensor) or one.dtype not in FROM_TORCH:
            return None
        return Form(tuple(extent(n) for n in one.shape), FROM_TORCH[one.dtype])

    return [form(one) for one in (value if isinstance(value, (tuple, list)) else [value])]


def _stand_in(node: Node) -> Any:
    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in FROM_TORCH:
            return None
        try:
            return te.placeholder(tuple(extent(n) for n in value.shape), FROM_TORCH[value.dtype].name)
        except (Unsupported, DefinitionError):
            return None

    value = value_of(node)
    return tuple(map(one, value)) if isinstance(value, (tuple, list)) else one(value)


def lower(
    nodes: Sequence[Node], wanted: Sequence[Node], device: torch.device, name: str, failures: Failures, searching: bool = True
) -> Lowered | None:
    """Compiles a region, of which the nodes `wanted` are results; None where nodes cannot be defined, which are put into `failures`.
    Whether `searching`: see `build_program`."""
    lowering = Lowering(set(nodes))
    lowering.compose(nodes)
    if lowering.failures:
        failures.update(lowering.failures)
        return None
    outputs, kept, types = [], [], []
    try:
        for node in wanted:
            value = value_of(node)
            memory = Memory.of(value)
            if memory is None or memory.stretched:
                failures[_producer(node)] = f"a result of strides {tuple(value.stride())}, which leave gaps in memory"
                continue
            outputs.append(memory.stored(lowering.value(node)))
            kept.append(memory)
            types.append(value.dtype)
        if len(kept) < len(wanted):
            return None
        used = {given.name for given in program_of(outputs, keys=True).inputs}
        inputs = [(node, given, memory) for node, (given, memory) in lowering.inputs.items() if given.key in used]
        program = program_of(outputs, [given for _, given, _ in inputs])
        told = {size for size, _, _ in told_sizes([n for given in program.inputs for n in given.type.shape])}
        symbols = dict(opened(size) for size in program.sizes if size not in told)
        sizes = [te.placeholder((scalar,), "uint8", name=f"size_{symbol}") for symbol, scalar in symbols.items()]
        program = program_of(outputs, [*(given for _, given, _ in inputs), *sizes])
        function = build_program(program, target="cuda" if device.type == "cuda" else "cpu", searching=searching)
    except (Unsupported, TensorExprError) as error:
        if strict() and isinstance(error, InternalError):
            raise
        reason = str(getattr(error, "message", error)).split("\n")[0]
        failures.update({node: reason for node in nodes})
        return None
    region = Region(function, [memory for _, _, memory in inputs], kept, types, len(symbols), device)
    return Lowered(region.caller(name), [node for node, _, _ in inputs], list(symbols), region)


def _producer(node: Node) -> Node:
    """The operator that a result belongs to."""
    return node.args[0] if node.target is operator.getitem else node  # type: ignore[return-value]  # items are of nodes
