"""What reading a model may take: bytes of constants, steps to compute them and nodes that are run, in proportion to the file.

A few bytes of a model can ask for any number of each: `ConstantOfShape` of 2^40 elements, a sum over three long axes by `Einsum`, functions
that call one twice, twenty deep. Sizes of what is computed while reading are inferred before it is computed, by ONNX's own shape
inference, and steps are counted of them: an element that is read or written is one, and so is a product that is added to a sum.
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
MOST_STEPS = 1 << 33
"""Steps that computing the constants of any model may take; one with constants of its own so many times the bytes of these."""
_TIMES, _TIMES_NODES, _TIMES_STEPS = 4, 64, 256
_SHORT = 1 << 10
"""Elements up to which a constant may be a shape, axes or scales."""
_NO_MORE = ("Compress", "NonZero", "Unique")
"""Operators whose results are as large as data say, and in each axis at most as large as what they are given."""
_SLOW = 1 << 10
"""Steps as which one counts that ONNX's reference makes in Python."""
_PASSES = 1 << 4
"""How often steps of sorting, of cubic interpolation and of recurrences are made."""
_BY_ELEMENT = (
    *("GatherND", "MaxUnpool", "MelWeightMatrix", "NegativeLogLikelihoodLoss", "Resize", "STFT", "ScatterElements", "ScatterND"),
    *("SoftmaxCrossEntropyLoss", "StringNormalizer", "StringSplit", "TensorScatter", "Upsample"),
)
"""Operators that the reference computes element by element."""
_ALL_BY_ALL = (
    "CausalConvWithState",
    "Col2Im",
    "DeformConv",
    "LinearAttention",
    "NonMaxSuppression",
    "Resize",
    "TfIdfVectorizer",
    "Upsample",
)
"""Operators that the reference computes in at most as many steps of Python as there are pairs of elements, of results and of inputs."""
_BY_DATA = ("RegexFullMatch", "RoiAlign")
"""Operators that take as long as data or a pattern say."""


def says_what(item: Any) -> bool:
    """Whether a constant is given as integers that an operator hangs on, such as axes: not those that are data by their number."""
    return isinstance(item, np.ndarray) and item.dtype.kind in "iu" and item.ndim <= 1 and item.size <= _SHORT


@dataclass
class Budget:
    """What is left to a model."""

    bytes: int
    nodes: int
    steps: int

    @staticmethod
    def of(model: ModelProto) -> Budget:
        """That of a model at the beginning."""
        nodes = sum(len(part.node) for part in (model.graph, *model.functions))
        size = model.ByteSize()
        return Budget(max(MOST_BYTES, _TIMES * size), max(MOST_NODES, _TIMES_NODES * nodes), max(MOST_STEPS, _TIMES_STEPS * size))

    def run(self, node: NodeProto) -> None:
        """Takes a node that is run. Raises `TargetError` where there were too many."""
        self.nodes -= 1
        if self.nodes < 0:
            raise refused(
                node, f"at most {MOST_NODES} nodes to run, or {_TIMES_NODES} times those of the model", "functions that make more"
            )

    def compute(self, node: NodeProto, inputs: Sequence[Any], version: int) -> None:
        """Takes the results of a node on constants, before they are computed.

        Raises `TargetError` where they are too many bytes or take too many steps, where nothing says how many before, and for nodes with
        graphs of their own.
        """
        if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
            raise refused(node, "a node without graphs to compute of constants", "one with")
        found = _inferred(node, inputs, version)
        if found is None:
            raise refused(node, "results of constants whose shapes are known before they are computed", "some that are not")
        size, elements = found
        if size > self.bytes:
            raise refused(
                node,
                f"at most {MOST_BYTES} bytes of constants, or {_TIMES} times those of the model, to compute",
                f"{size} more, with {self.bytes} left",
            )
        self.bytes -= size
        steps = _steps(node, inputs, elements)
        if steps is None:
            raise refused(
                node, "an operator to compute of constants whose time hangs on their extents", "one whose time hangs on what they are"
            )
        if steps > self.steps:
            raise refused(
                node,
                f"at most {MOST_STEPS} steps to compute constants, or {_TIMES_STEPS} times the bytes of the model",
                f"{steps} more, with {self.steps} left",
            )
        self.steps -= steps


def _steps(node: NodeProto, inputs: Sequence[Any], elements: int) -> int | None:
    """How many steps computing the `elements` of a node's results takes at most; None where extents do not say."""
    name, given = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute}
    shapes: list[tuple[int, ...]] = [() if item is None else tuple(np.shape(item)) for item in inputs]
    sizes = [math.prod(shape) for shape in shapes]
    touched = elements + sum(sizes)
    if name in _BY_DATA:
        return None
    if name in _BY_ELEMENT:
        return touched * _SLOW
    if name in _ALL_BY_ALL:
        return touched + elements * max(sizes, default=0) * _SLOW
    match name:
        case "Einsum":
            return touched + _points(given["equation"].decode(), shapes)
        case "MatMul" | "MatMulInteger" | "QLinearMatMul" | "Gemm":
            return touched + elements * shapes[0][0 if given.get("transA") else -1]
        case "Conv" | "ConvInteger" | "QLinearConv":
            weight = shapes[3 if name == "QLinearConv" else 1]
            return touched + elements * math.prod(weight[1:])
        case "ConvTranspose":
            return touched + sizes[0] * math.prod(shapes[1][1:]) * _SLOW
        case "AveragePool" | "LpPool" | "MaxPool":
            return touched + elements * math.prod(given["kernel_shape"]) * _SLOW
        case "RNN" | "GRU" | "LSTM":
            return touched + math.prod(shapes[0][:2]) * (sizes[1] + sizes[2] + _PASSES * _SLOW)
        case "GridSample":
            return touched * _PASSES * _SLOW
        case "TopK":
            return touched * _PASSES
        case "Attention":
            return touched + sizes[0] * (sizes[1] + elements)
        case "Det":
            return touched * (1 + shapes[0][-1])
        case "LRN":
            return touched * (1 + shapes[0][1]) + math.prod(shapes[0][:2]) * _SLOW
    return touched


def _points(equation: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """The points of all axes of a sum in Einstein's notation, those included that `...` stands for."""
    extents: dict[str, int] = {}
    rest: list[tuple[int, ...]] = []
    for term, shape in zip(equation.replace(" ", "").split("->")[0].split(","), shapes, strict=True):
        before, dots, after = term.partition("...")
        for letter, extent in (*zip(before, shape, strict=False), *zip(reversed(after), reversed(shape), strict=False)):
            extents[letter] = max(extents.get(letter, 1), extent)
        if dots:
            rest.append(shape[len(before) : len(shape) - len(after)])
    return math.prod(np.broadcast_shapes(*rest)) * math.prod(extents.values())


def _inferred(node: NodeProto, inputs: Sequence[Any], version: int) -> tuple[int, int] | None:
    """The bytes and the elements of a node's results; None where they cannot be told."""
    named = [(name, np.asarray(item)) for name, item in zip(node.input, inputs, strict=False) if name and item is not None]
    if node.op_type in _NO_MORE:
        return sum(8 * max(1, a.ndim) * (a.size + a.nbytes) for _, a in named), sum(max(1, a.ndim) * a.size for _, a in named)
    small = {name: numpy_helper.from_array(array, name) for name, array in named if array.size <= _SHORT and array.dtype.kind in "iufb"}
    graph = helper.make_graph(
        [node],
        "sizes",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in named if n not in small],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        list(small.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    found, total, elements = shape_inference.infer_shapes(model).graph.output, 0, 0
    for item in found:
        kind = item.type.tensor_type
        if not kind.HasField("shape") or not all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
            return None
        itemsize = helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
        count = math.prod(d.dim_value for d in kind.shape.dim)
        total, elements = total + count * max(itemsize, 1), elements + count
    return total, elements
