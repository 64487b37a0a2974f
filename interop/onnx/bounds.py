"""What reading a model may take: bytes of constants, steps to compute them and nodes that are run, in proportion to the file.

A few bytes of a model can ask for any number of each: `ConstantOfShape` of 2^40 elements, a sum over three long axes by `Einsum`, functions
that call one twice, twenty deep. What depends on constants alone is a definition before it is computed, so its bytes and its steps are
counted from the definition: every element of every reduction is a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from tensorexpr.interop.onnx.schemas import refused

MOST_BYTES = 1 << 30
"""Bytes of constants that any model may compute; one with constants of its own four times as many as these have."""
MOST_NODES = 1 << 13
"""Nodes that any model may run, those of functions each time; a larger one so many times its own."""
MOST_STEPS = 1 << 33
"""Steps that computing the constants of any model may take; one with constants of its own so many times the bytes of these."""
_TIMES, _TIMES_NODES, _TIMES_STEPS = 4, 64, 256
_SHORT = 1 << 10
"""Elements up to which a constant may be a shape, axes or scales."""


def says_what(item: Any) -> bool:
    """Whether a constant is given as integers that an operator depends on, such as axes: not those that are data by their number."""
    return isinstance(item, np.ndarray) and item.dtype.kind in "iu" and item.ndim <= 1 and item.size <= _SHORT


@dataclass
class Budget:
    """What is left to a model."""

    bytes: int
    nodes: int
    steps: int
    node: NodeProto | None = None
    """The node that is read."""

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

    @contextlib.contextmanager
    def of_node(self, node: NodeProto) -> Iterator[None]:
        """Makes a node the one that constants are computed for."""
        before, self.node = self.node, node
        try:
            yield
        finally:
            self.node = before

    def take(self, size: int, steps: int) -> None:
        """Takes constants of so many bytes, computed in so many steps. Raises `TargetError` where there were too many."""
        node = self.node or NodeProto()
        if size > self.bytes:
            raise refused(
                node,
                f"at most {MOST_BYTES} bytes of constants, or {_TIMES} times those of the model, to compute",
                f"{size} more, with {self.bytes} left",
            )
        self.bytes -= size
        if steps > self.steps:
            raise refused(
                node,
                f"at most {MOST_STEPS} steps to compute constants, or {_TIMES_STEPS} times the bytes of the model",
                f"{steps} more, with {self.steps} left",
            )
        self.steps -= steps
