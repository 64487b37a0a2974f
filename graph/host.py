"""What a function does on the host when it runs: `te.print`, `te.check`. Both are effects and keep their order."""

from __future__ import annotations

import builtins
from typing import Any

from tensorexpr.errors import FailedCheckError, user_location
from tensorexpr.graph.ir import Check, Print
from tensorexpr.graph.tracing import Operation, as_tensor, current, truth


def print(text: str, *values: Any) -> Operation | None:
    """Writes a line when the function runs: `text` with `values` in place of its `{}`, as `str.format`."""
    trace = current()
    if trace is None:
        builtins.print(text.format(*values))
        return None
    record = trace.note(Print("print", (), (), text=text), [as_tensor(value, "te.print") for value in values], ())
    return Operation(trace, record.node.id)


def check(flag: Any, text: str) -> Operation | None:
    """Raises `FailedCheckError` with `text` if the scalar `flag` does not hold when the function runs; no variable is then changed."""
    trace = current()
    if trace is None:
        if not bool(flag):
            raise FailedCheckError(text, location=user_location())
        return None
    record = trace.note(Check("check", (), (), text=text), [truth(flag, "te.check")], ())
    return Operation(trace, record.node.id)
