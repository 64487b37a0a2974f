"""What reading a model may take: bytes of constants and nodes that are run, in proportion to the file.

A few bytes of a model can ask for any number of either: `ConstantOfShape` of 2^40 elements, functions that call one twice, twenty deep.
Sizes of what is computed while reading are inferred before it is computed, by ONNX's own shape inference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper, shape_inference

from tensorexpr.interop.onnx_schemas import refused

MOST_BYTES = 1 << 28
"""Bytes of constants that any model may compute; one with constants of its own four times as many as these have."""
MOST_NODES = 1 << 13
"""Nodes that any model may run, those of functions each time; a larger one so many times its own."""
_TIMES, _TIMES_NODES = 4, 64
_SHORT = 1 << 10
"""Elements up to which a constant may be a shape, axes or scales."""
_NO_MORE = ("Compress", "NonZero", "Unique")
"""Operators whose results are as large as data say, and in each axis at most as large as what they are given."""


def says_what(item: Any) -> bool:
    """Whether a constant is given as integers that an operator hangs on, such as axes: not those that are data by their number."""
    return isinstance(item, np.ndarray) and item.dtype.kind in "iu" and item.ndim <= 1 and item.size <= _SHORT


@dataclass
class Budget:
    """What is left to a model."""

    bytes: int
    nodes: int

    @staticmethod
    def of(model: ModelProto) -> Budget:
        """That of a model at the beginning."""
        nodes = sum(len(part.node) for part in (model.graph, *model.functions))
        return Budget(max(MOST_BYTES, _TIMES * model.ByteSize()), max(MOST_NODES, _TIMES_NODES * nodes))

    def run(self, node: NodeProto) -> None:
        """Takes a node that is run. Raises `TargetError` where there were too many."""
        self.nodes -= 1
        if self.nodes < 0:
            raise refused(
                node, f"at most {MOST_NODES} nodes to run, or {_TIMES_NODES} times those of the model", "functions that make more"
            )

    def compute(self, node: NodeProto, inputs: Sequence[Any], version: int) -> None:
        """Takes the results of a node on constants, before they are computed.

        Raises `TargetError` where they are too many bytes, where nothing says how many before, and for nodes with graphs of their own.
        """
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            raise refused(node, "a node without graphs to compute of constants", "one with")
        size = _inferred(node, inputs, version)
        if size is None:
            raise refused(node, "results of constants whose shapes are known before they are computed", "some that are not")
        if size > self.bytes:
            raise refused(
                node,
                f"at most {MOST_BYTES} bytes of constants, or {_TIMES} times those of the model, to compute",
                f"{size} more, with {self.bytes} left",
            )
        self.bytes -= size


def _inferred(node: NodeProto, inputs: Sequence[Any], version: int) -> int | None:
    """The bytes of a node's results; None where they cannot be told."""
    named = [(name, np.asarray(item)) for name, item in zip(node.input, inputs, strict=False) if name and item is not None]
    if node.op_type in _NO_MORE:
        return sum(8 * max(1, array.ndim) * (array.size + array.nbytes) for _, array in named)
    small = {name: numpy_helper.from_array(array, name) for name, array in named if array.size <= _SHORT and array.dtype.kind in "iufb"}
    graph = helper.make_graph(
        [node],
        "sizes",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in named if n not in small],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        list(small.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    found, total = shape_inference.infer_shapes(model).graph.output, 0
    for item in found:
        kind = item.type.tensor_type
        if not kind.HasField("shape") or not all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
            return None
        itemsize = helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
        total += math.prod(d.dim_value for d in kind.shape.dim) * max(itemsize, 1)
    return total
