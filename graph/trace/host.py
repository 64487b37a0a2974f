"""What a function does on the host when it runs: `te.print`, `te.check`. Both are effects and keep their order."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr.errors import ArgumentError, FailedCheckError, user_location
from tensorexpr.graph.nodes.ir import Check, Print
from tensorexpr.graph.trace.tracing import Operation, as_tensor, current, truth
from tensorexpr.hints import checked
from tensorexpr.ir import TensorType


@checked()
def print(text: str, *values: Any) -> Operation | None:
    """Writes a line when the function runs: `text` with `values` in place of its `{}`, as `str.format`.

    >>> @te.function
    ... def told(x):
    ...     te.print("x is {}", x)
    ...     return x + 1.0
    >>> float(told(np.float64(2.0)))
    x is 2.0
    3.0
    """
    trace = current()
    if trace is None:
        builtins.print(text.format(*values))
        return None
    tensors = [as_tensor(value, "te.print") for value in values]
    check_text(text, [tensor.type for tensor in tensors])
    record = trace.note(Print("print", (), (), text=text), tensors, ())
    return Operation(trace, record.node.id)


def check_text(text: str, types: Sequence[TensorType]) -> None:
    """Raises `ArgumentError` for a text that values of these types do not go into: when it is traced, not in the middle of a run."""
    try:
        text.format(*(np.zeros((1,) * len(type_.shape), type_.dtype.numpy) for type_ in types))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"te.print: expected a text for {len(types)} arrays, got {text!r}",
            location=user_location(),
            hint=f"as str.format says: {error}",
        ) from None


@checked()
def check(flag: Any, text: str) -> Operation | None:
    """Raises `FailedCheckError` with `text` if the scalar `flag` does not hold when the function runs; no variable is then changed.

    >>> @te.function
    ... def root(x):
    ...     te.check(x >= 0.0, "x is negative")
    ...     return x ** 0.5
    >>> float(root(np.float64(9.0)))
    3.0
    """
    trace = current()
    if trace is None:
        if not bool(flag):
            raise FailedCheckError(text, location=user_location())
        return None
    record = trace.note(Check("check", (), (), text=text), [truth(flag, "te.check")], ())
    return Operation(trace, record.node.id)
