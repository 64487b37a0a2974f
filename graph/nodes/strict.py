"""The meaning of graphs: an interpreter that is as naive as possible, takes no call apart and shares nothing with the compiler.

Nodes with effects run in program order. Everything else is a promise, kept when something needs it: results that nothing needs are
never computed, so they cannot fail. What an assignment gave is seen by later reads of the same run; variables get their new values when
the whole run has succeeded. Definitions are evaluated by the reference interpreter of the language.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorexpr.errors import FailedCheckError, TensorExprError
from tensorexpr.graph.nodes.effects import has_effect
from tensorexpr.graph.nodes.ir import Absent, Assign, Call, Check, Compute, Cond, Graph, Native, Node, Print, Read, While, WhileGradient
from tensorexpr.graph.nodes.sizes import sized_program
from tensorexpr.interpret import evaluate_program, infer_sizes
from tensorexpr.ir import Input


def run_strict(graph: Graph, arrays: Sequence[Any], log: list[str] | None = None) -> list[np.ndarray]:
    """The outputs of a graph for arrays as inputs; variables are updated. `log` gets the id of every node as it runs."""
    shapes = {given.name: np.shape(array) for given, array in zip(graph.inputs, arrays, strict=True)}
    machine = _Machine({}, log, infer_sizes(graph.inputs, shapes))
    outputs = [result.get() for result in machine.run(graph, [_Promise.kept(array) for array in arrays])]
    for variable, array in machine.state.items():
        variable.put(np.array(array, order="C"))
    return outputs


class _Promise:
    """A value that is computed when it is first needed; a failure is raised again each time."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    @classmethod
    def kept(cls, value: Any) -> _Promise:
        """A promise of a value that is there."""
        promise = cls(lambda: value)
        promise.get()
        return promise

    def settle(self) -> None:
        """Computes the value now, if that succeeds: promises of promises would grow with every iteration of a loop."""
        with contextlib.suppress(TensorExprError):
            self.get()

    def get(self) -> Any:
        """The value."""
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value


class _Machine:
    """A run: what variables hold by now, and what open sizes are."""

    def __init__(self, state: dict[Any, Any], log: list[str] | None, sizes: Mapping[str, int]) -> None:
        self.state, self.log, self.sizes = state, log, sizes

    def run(self, graph: Graph, inputs: Sequence[_Promise]) -> list[_Promise]:
        """The outputs as promises; effects have happened."""
        values = {given.name: promise for given, promise in zip(graph.inputs, inputs, strict=True)}
        values |= {constant.name: _Promise.kept(constant.data) for constant in graph.constants}
        types = graph.types
        for node in graph.nodes:
            operands = [values[name] for name in node.operands]
            for name, promise in zip(node.names, self._results(node, operands, types), strict=True):
                values[name] = promise
        return [values[name] for name in graph.outputs]

    def _results(self, node: Node, operands: list[_Promise], types: dict[str, Any]) -> list[_Promise]:
        match node:
            case Compute():
                given = tuple(Input(name, types[name]) for name in node.operands)
                program = sized_program(given, [node.definition], node.names)
                return self._later(
                    node, lambda: evaluate_program(program, dict(zip(node.operands, _all(operands), strict=True)), self.sizes)
                )
            case Read():
                self._note(node)
                node.variable.check()
                return [_Promise.kept(self.state.get(node.variable, node.variable.value))]
            case Assign():
                self._note(node)
                node.variable.check()
                self.state[node.variable] = operands[0].get()
                return []
            case Print():
                self._note(node)
                print(node.text.format(*_all(operands)))
                return []
            case Check():
                self._note(node)
                if not bool(operands[0].get()):
                    raise FailedCheckError(node.text, location=node.location)
                return []
            case Call():
                self._note(node)
                return self.run(node.graph, operands)
            case Absent():
                return [_Promise.kept(None) for _ in node.names]
            case Native():
                return self._later(node, lambda: dict(zip(node.names, node.function(*_all(operands)), strict=True)))
        if has_effect(node):
            self._note(node)
            results = self._controlled(node, operands)
            return [_Promise.kept(result) if not isinstance(result, _Promise) else result for result in results]
        # What only reads is put off, and reads what variables hold now.
        then = _Machine(dict(self.state), self.log, self.sizes)

        def make() -> dict[str, Any]:
            return dict(zip(node.names, then._controlled(node, operands), strict=True))

        return self._later(node, make)

    def _controlled(self, node: Node, operands: list[_Promise]) -> list[Any]:
        match node:
            case Cond():
                return list(self.run(node.then if bool(operands[0].get()) else node.otherwise, operands[1:]))
            case While():
                state, history = operands, []
                width = len(node.condition.inputs)
                while bool(self.run(node.condition, state)[0].get()):
                    results = self.run(node.body, state)
                    for result in results:
                        result.settle()
                    history.append(results[width:])
                    state = results[:width]
                return [*state, history] if node.history else list(state)
            case WhileGradient():
                current = operands[1:]
                for saved in reversed(operands[0].get()):
                    current = self.run(node.body, [*saved[: node.saved], *current])
                return list(current)
        raise AssertionError(type(node))

    def _later(self, node: Node, make: Callable[[], dict[str, Any]]) -> list[_Promise]:
        def noted() -> dict[str, Any]:
            results = make()
            self._note(node)
            return results

        together = _Promise(noted)
        return [_Promise(lambda name=name: _get(together.get()[name])) for name in node.names]  # type: ignore[misc]  # mypy has no type for a lambda with a default

    def _note(self, node: Node) -> None:
        if self.log is not None:
            self.log.append(node.id)


def _all(promises: Sequence[_Promise]) -> list[Any]:
    return [promise.get() for promise in promises]


def _get(result: Any) -> Any:
    return result.get() if isinstance(result, _Promise) else result
