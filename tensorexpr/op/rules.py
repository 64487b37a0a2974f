"""Gradient rules of ops: the user's `rule(output, inputs, head) -> list`, as an override of every output of the op."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.hints import article
from tensorexpr.language import Tensor, cast, compute
from tensorexpr.op.trees import leaves, rebuild


def _rule_error(message: str) -> DifferentiationError:
    return DifferentiationError(message, location=user_location())


class Rule:
    """An op's gradient rule applied to arguments: what `te.gradient` calls for each of the outputs.

    `trees` are the arguments, called `names`, `result` the tree of outputs; static arguments that the rule names go to it.
    """

    def __init__(
        self, op: str, rule: Callable[..., Any], names: Sequence[str], trees: Sequence[Any], result: Any, static: Mapping[str, Any]
    ) -> None:
        self.op, self.rule, self.names, self.trees, self.result = op, rule, names, trees, result
        self.outputs = list(leaves(result))
        named = [p.name for p in inspect.signature(rule).parameters.values() if p.kind is p.KEYWORD_ONLY]
        self.static = {name: static[name] for name in named if name in static}

    def pull_back(self, position: int, output: Tensor, inputs: Sequence[Tensor], head: Tensor) -> list[Tensor | None]:
        """The gradient of output number `position` alone: gradients add up over outputs, so the other heads are zero."""
        given = iter(inputs)
        arguments = [None if tree == () else rebuild(tree, given) for tree in self.trees]
        results = [output if k == position else other for k, other in enumerate(self.outputs)]
        heads = [head if k == position else zeros(other) for k, other in enumerate(self.outputs)]
        found = self.rule(rebuild(self.result, iter(results)), arguments, rebuild(self.result, iter(heads)), **self.static)
        return self._checked(found, arguments)

    def _checked(self, found: Any, arguments: Sequence[Any]) -> list[Tensor | None]:
        """What the rule gave, flat: per input a tensor of its shape and dtype, or None for zero; else `DifferentiationError`."""
        what = f"{self.op}: gradient rule"
        if not isinstance(found, (tuple, list)) or len(found) != len(arguments):
            got = len(found) if isinstance(found, (tuple, list)) else article(found)
            raise _rule_error(f"{what}: expected a list of {len(arguments)} gradients, one per input, got {got}")
        flat: list[Tensor | None] = []
        for name, tree, gradients in zip(self.names, arguments, found, strict=True):
            if tree is None:
                continue
            inputs, results = list(leaves(tree)), list(leaves(gradients))
            if len(inputs) != len(results):
                raise _rule_error(f"{what}: expected {len(inputs)} gradients for the tuple {name}, got {len(results)}")
            for tensor, gradient in zip(inputs, results, strict=True):
                _check_type(f"as gradient of {name}", what, tensor, gradient)
                flat.append(gradient)
        return flat


def refusing(op: str) -> Callable[..., Any]:
    """The rule of an op that is marked as not differentiable: a `DifferentiationError` that names its output and line."""

    def rule(output: Any, inputs: Any, head: Any) -> Any:
        first = next(leaves(output))
        raise DifferentiationError(
            f"expected no derivative through {op}, which is marked differentiable=False",
            term=f"{first.name}: {type_text(first)}",
            location=first.location or user_location(),
            hint=f"te.stop_gradient({first.name}) makes it a constant, te.op(gradient=rule) gives it a rule",
        )

    return rule


def _check_type(role: str, what: str, tensor: Tensor, gradient: Any) -> None:
    if gradient is None:
        return
    if not isinstance(gradient, Tensor):
        raise _rule_error(f"{what}: expected a te tensor {role}, got {article(gradient)}")
    if gradient.extents != tensor.extents or gradient.dtype is not tensor.dtype:
        raise _rule_error(f"{what}: expected {type_text(tensor)} {role}, got {type_text(gradient)}")


def zeros(like: Tensor) -> Tensor:
    """A tensor of zeros of the same type."""
    return compute(like.shape, lambda *i: cast(0, like.dtype))


def type_text(tensor: Tensor) -> str:
    return f"{tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]"
