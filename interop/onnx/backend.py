"""ONNX's interface to backends: `prepare(model).run(inputs)`, which the onnx package's own suite runs.

from tensorexpr.interop.onnx import backend
(y,) = backend.prepare(model).run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, defs, helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from tensorexpr.errors import TargetError, user_location
from tensorexpr.graph.trace.tracing import device as on_device
from tensorexpr.interop.onnx import from_onnx
from tensorexpr.interop.onnx.function import Imported
from tensorexpr.interop.onnx.values import texts

_TARGETS = {DeviceType.CPU: "cpu", DeviceType.CUDA: "cuda"}


class Rep(BackendRep):
    """A model that is ready to run; `function` is what it runs."""

    def __init__(self, function: Imported, target: str) -> None:
        self.function, self.target = function, target

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in their order, for a sequence of inputs, inputs by name, or a single one."""
        arguments = self.function.arguments
        if isinstance(inputs, Mapping):
            given: list[Any] = [inputs.get(name) for name in arguments]
        elif isinstance(inputs, (list, tuple)):
            given = list(inputs)
        else:
            given = [inputs]
        with on_device(self.target):
            results = self.function.run(given)
        return namedtupledict("Outputs", list(self.function.results))(*map(_array, results))


class TensorExprBackend(Backend):
    """Compiles models by tensorexpr."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether a model can be prepared."""
        try:
            from_onnx(model)
        except TargetError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Rep:
        """A model, ready to run on a device. Raises `TargetError` for what is not known, and for another device."""
        target = _target(device)
        if target is None:
            raise TargetError(f"prepare: expected the device CPU or CUDA, got {device}", location=user_location())
        return Rep(from_onnx(model), target)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a model for inputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a single node for inputs, at the newest opset or at that of `opset_version=`."""
        names = [name for name in dict.fromkeys(node.input) if name]
        values = [inputs[name] for name in names] if isinstance(inputs, Mapping) else list(inputs)
        arrays = [np.asarray(value) for value in values]
        given = [helper.make_tensor_value_info(name, _code(a), a.shape) for name, a in zip(names, arrays, strict=True)]
        found = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
        version = kwargs.get("opset_version", defs.onnx_opset_version())
        opsets = [helper.make_opsetid("", version)]
        if node.domain:
            opsets.append(helper.make_opsetid(node.domain, 1))
        model = helper.make_model(helper.make_graph([node], node.op_type, given, found), opset_imports=opsets)
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is the CPU, which always runs; a GPU runs where there is one."""
        return _target(device) == "cpu"


def _target(device: str) -> str | None:
    """The target that a device of ONNX's is; None for one that there is not, for which `Device` has other errors."""
    try:
        return _TARGETS.get(Device(device).type)
    except (AttributeError, ValueError):
        return None


def _code(array: np.ndarray) -> int:
    return int(TensorProto.STRING if array.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(array.dtype))


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(item) for item in value]
    return texts(value) if isinstance(value, np.ndarray) and value.dtype.kind in "US" else value


is_compatible = TensorExprBackend.is_compatible
prepare = TensorExprBackend.prepare
run_model = TensorExprBackend.run_model
run_node = TensorExprBackend.run_node
supports_device = TensorExprBackend.supports_device

__all__ = ["Rep", "TensorExprBackend", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]
