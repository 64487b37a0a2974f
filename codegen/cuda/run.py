"""Runs the plan of a source: works out grids and arguments, and hands every launch to a device.

The plan's expressions hang on sizes and on the indices of loops that the host runs, and are evaluated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tensorexpr.codegen.cuda.emit import Launch, Repeat
from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size
from tensorexpr.ops import cast_value


class Device(Protocol):
    """What runs launches."""

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int]) -> None:
        """Runs a kernel on a grid; arguments are addresses and int64 in the kernel's order."""


def run_plan(plan: Sequence[Launch | Repeat], device: Device, buffers: Mapping[str, int], scalars: Mapping[str, int], report: int) -> None:
    """Launches everything in order: `buffers` are addresses, `scalars` sizes, `report` the address of the report of checks."""
    for step in plan:
        if isinstance(step, Repeat):
            for index in range(value(step.start, scalars), value(step.stop, scalars)):
                run_plan(step.body, device, buffers, {**scalars, step.index: index}, report)
            continue
        blocks = step.blocks([value(e, scalars) for e in step.iterations])
        if all(blocks):
            arguments = [*(buffers[name] for name in step.buffers), *(scalars[name] for name in step.scalars)]
            device.launch(step, blocks, [*arguments, report] if step.reports else arguments)


def value(e: Expr, scalars: Mapping[str, int]) -> int:
    """The value of an expression over sizes and indices."""
    match e:
        case Const():
            return int(e.value)
        case Size() | Index():
            return int(scalars[e.name])
        case Apply() if e.op.name == "where":
            return value(e.args[1] if value(e.args[0], scalars) else e.args[2], scalars)
        case Apply():
            return int(e.op.evaluate(*(np.int64(value(a, scalars)) for a in e.args)))
        case Cast():
            return int(cast_value(np.int64(value(e.arg, scalars)), e.dtype))
    raise InternalError(f"cuda: expected an expression over sizes and indices, got {type(e).__name__}", term=e)
