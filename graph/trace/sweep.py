"""Reverse mode over a trace: from the adjoints of some tensors to those of others, back through what the trace noted.

Between notes there is pure work, which `te.gradient` differentiates, as much of it at once as there is: tensors are sorted by the last
note that they depend on, and all tensors of one such **level** are one gradient, cut off at the levels below. At a note the adjoints
of its results become those of its operands (`derive.py`), by a new note in the trace that is current.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorexpr.autodiff import gradient
from tensorexpr.graph.nodes.effects import effects_of
from tensorexpr.graph.nodes.ir import Read
from tensorexpr.graph.trace.tracing import Record, Trace
from tensorexpr.language import Tensor, compute

Backward = Callable[[Record, list[Tensor | None], list[bool], list[Any]], tuple[list[Tensor | None], list[Tensor]]]
"""A note, the adjoints of its results, which operands want one, and variables; gives adjoints of operands and of these variables."""


def added(a: Tensor | None, b: Tensor) -> Tensor:
    """The sum, where there is something to add to."""
    if a is None:
        return b
    return compute(a.shape, lambda *i: a[i] + b[i])


class Sweep:
    """The way back through `trace` from `adjoints` to the tensors `wrt` and the `variables`.

    `adjoints` grows as it goes: the adjoint of any tensor that was passed. `of_variables` has those of variables.
    """

    def __init__(
        self, trace: Trace, adjoints: dict[Tensor, Tensor], wrt: Iterable[Tensor], variables: Iterable[Any], backward: Backward
    ) -> None:
        self._trace = trace
        self.adjoints = adjoints
        self.of_variables: dict[Any, Tensor] = {}
        self._wrt = dict.fromkeys(wrt)
        self._variables = dict.fromkeys(variables)
        self._backward = backward
        self._producers = {value: (k + 1, record) for k, record in enumerate(trace.records) for value in record.results}
        self._levels: dict[Tensor, int] = {}
        self._active: dict[Tensor, bool] = {}

    def run(self) -> Sweep:
        """Goes all the way."""
        for level in range(len(self._trace.records), -1, -1):
            self._pure(level)
            if level:
                self._note(self._trace.records[level - 1])
        return self

    # ---------------------------------------------------------------------------------------------------- the graph

    def _before(self, tensor: Tensor) -> Sequence[Tensor]:
        """The tensors of the trace that a tensor is computed from; none for an input."""
        if tensor in self._producers or not self._trace.is_own(tensor) or tensor.definition is None:
            return ()
        return (*tensor.sources, *(tensor.unit[0] if tensor.unit is not None else ()))

    def _settle(self, roots: Iterable[Tensor]) -> None:
        """Finds level and activity of all tensors that the roots are computed from."""
        stack = [(root, False) for root in roots]
        while stack:
            tensor, ready = stack.pop()
            if tensor in self._levels:
                continue
            made = self._producers.get(tensor)
            if made is not None:
                self._levels[tensor] = made[0]
                if not ready:
                    missing = [operand for operand in made[1].operands if operand not in self._levels]
                    if missing:
                        del self._levels[tensor]
                        stack.append((tensor, True))
                        stack += [(operand, False) for operand in missing]
                        continue
                effects = effects_of(made[1].node)
                self._active[tensor] = (
                    tensor in self._wrt
                    or any(self._active[operand] for operand in made[1].operands)
                    or any(variable in self._variables for variable in effects.reads)
                )
                continue
            before = self._before(tensor)
            missing = [source for source in before if source not in self._levels]
            if missing:
                stack.append((tensor, True))
                stack += [(source, False) for source in missing]
                continue
            self._levels[tensor] = max((self._levels[source] for source in before), default=0)
            self._active[tensor] = tensor in self._wrt or any(self._active[source] for source in before)

    # ---------------------------------------------------------------------------------------------------- one level

    def _pure(self, level: int) -> None:
        """The adjoints of what the tensors of a level read, of lower levels, from those of this level."""
        self._settle(self.adjoints)
        roots = [t for t in self.adjoints if self._levels[t] == level and self._before(t) and self._active[t]]
        if not roots:
            return
        border: dict[Tensor, None] = {}
        done = set(roots)
        stack = list(roots)
        while stack:
            for source in self._before(stack.pop()):
                if not self._active[source]:
                    continue
                if source in self._wrt or not self._before(source) or self._levels[source] < level:
                    border[source] = None
                if source in done:
                    continue
                done.add(source)
                if self._before(source) and self._levels[source] == level:
                    stack.append(source)
        ends = [tensor for tensor in border if tensor.dtype.is_float]
        if not ends:
            return
        cut = {tensor: ((), _nothing) for tensor in ends if tensor.definition is not None and self._levels[tensor] < level}
        cut |= {t: ((), _nothing) for t in ends if t.definition is not None and not self._before(t)}
        found = gradient(roots, ends, [self.adjoints[root] for root in roots], override=cut)
        for tensor, adjoint in zip(ends, found, strict=True):
            self.adjoints[tensor] = adjoint if tensor in roots else added(self.adjoints.get(tensor), adjoint)

    def _note(self, record: Record) -> None:
        heads = [self.adjoints.get(value) for value in record.results]
        if all(head is None for head in heads) or not any(self._active.get(value, False) for value in record.results):
            return
        if isinstance(record.node, Read):
            variable = record.node.variable
            if variable in self._variables and heads[0] is not None:
                self.of_variables[variable] = added(self.of_variables.get(variable), heads[0])
            return
        self._settle(record.operands)
        wanted = [operand.dtype.is_float and self._active[operand] for operand in record.operands]
        variables = [v for v in effects_of(record.node).reads if v in self._variables and v.dtype.is_float]
        operands, of_variables = self._backward(record, heads, wanted, variables)
        for operand, adjoint in zip(record.operands, operands, strict=True):
            if adjoint is not None:
                self.adjoints[operand] = added(self.adjoints.get(operand), adjoint)
        for variable, adjoint in zip(variables, of_variables, strict=True):
            self.of_variables[variable] = added(self.of_variables.get(variable), adjoint)


def _nothing(output: Tensor, inputs: Sequence[Tensor], head: Tensor) -> list[Tensor | None]:
    """The rule of a tensor at which a level ends."""
    return []
