"""Functions that were read from a file: one signature, called with the data arguments in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.nodes.ir import Graph
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import Step
from tensorexpr.graph.run.function import Signature, call, type_of
from tensorexpr.graph.trace.tracing import as_tensor, current
from tensorexpr.graph.trace.trees import filled
from tensorexpr.interpret import infer_sizes
from tensorexpr.ir import Const, TensorType, integer
from tensorexpr.markup import code, listed, page, table
from tensorexpr.text import print_type
from tensorexpr.traversal import size_names


class Loaded:
    """A function of arrays, or in a trace of tensors; `variables` are its own, by name (numbered where names meet)."""

    def __init__(self, name: str, signature: Signature, variables: Sequence[Variable]) -> None:
        self.__name__ = name
        self._signature = signature
        self.variables: dict[str, Variable] = {}
        for variable in variables:
            named = variable.name if variable.name not in self.variables else f"{variable.name}_{len(self.variables)}"
            self.variables[named] = variable

    def __repr__(self) -> str:
        inputs = listed([print_type(given.type) for given in self.graph.inputs]) if self.graph.inputs else ""
        return f"<loaded te.function {self.__name__}({inputs})>"

    def _repr_html_(self) -> str:
        return page(code(repr(self)), table(("takes", "gives", "nodes"), [self._signature], lambda signature: signature.cells))

    @property
    def graph(self) -> Graph:
        """The graph of the function."""
        return self._signature.graph

    def __call__(self, *arguments: Any) -> Any:
        trace = current()
        if trace is not None:
            tensors = [as_tensor(value, self.__name__) for value in arguments]
            self.check([tensor.type for tensor in tensors])
            return call(trace, self._signature, tensors)
        arrays = [np.asarray(value) for value in arguments]
        self.check(list(map(type_of, arrays)))
        return filled(self._signature.tree, iter(self._signature.step()(arrays)))

    def strict(self, *arguments: Any, log: list[str] | None = None) -> Any:
        """A call by the strict interpreter."""
        return filled(self._signature.tree, iter(run_strict(self.graph, [np.asarray(value) for value in arguments], log)))

    def compiled(self) -> Step:
        """The compiled step."""
        return self._signature.step()

    def signature(self) -> Signature:
        """What was loaded."""
        return self._signature

    def check(self, types: Sequence[TensorType]) -> None:
        """Raises `ArgumentError` unless arguments of these types are taken."""
        inputs = self.graph.inputs
        wanted, got = (", ".join(map(print_type, t)) for t in ([i.type for i in inputs], types))
        if wanted != got and not self._fits(types):
            raise ArgumentError(
                f"{self.__name__}: expected arguments of {wanted or 'nothing'}, got {got or 'nothing'}",
                location=user_location(),
                hint="a loaded function has the shapes that it was saved with",
            )

    def _fits(self, types: Sequence[TensorType]) -> bool:
        """Whether arrays of these types are arguments, sizes being open. Raises `ArgumentError` where extents contradict each other."""
        inputs = self.graph.inputs
        if not all(isinstance(e, Const) for t in types for e in t.shape) or len(types) != len(inputs):
            return False
        if any(t.dtype is not i.type.dtype or len(t.shape) != len(i.type.shape) for t, i in zip(types, inputs, strict=True)):
            return False
        if not any(size_names(e) for i in inputs for e in i.type.shape):
            return False
        infer_sizes(inputs, {i.name: tuple(map(integer, t.shape)) for t, i in zip(types, inputs, strict=True)})
        return True
