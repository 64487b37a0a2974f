"""Runs the plan of a source: works out grids and arguments, and hands every launch to a device.

The plan's expressions depend on sizes and on the indices of loops that the host runs, and are evaluated here: once for all calls with the
same sizes where the steps of loops are not too many to be kept (`made_ready`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np

from tensorexpr.codegen.cuda.emitter.source import Launch, Repeat
from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size
from tensorexpr.ops import cast_value

MOST_KEPT = 1 << 10
"""Launches that are kept ready for the next call."""
REPORT = "the report"
"""Where the report of checks is, beside the places of buffers."""
Ready = Callable[[Sequence[int], int], None]
"""Runs a launch: the addresses of all buffers of a function, and the stream."""


class Device(Protocol):
    """What runs launches."""

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int]) -> None:
        """Runs a kernel on a grid; arguments are addresses and int64 in the kernel's order."""


class Maker(Protocol):
    """What makes launches ready."""

    def ready(self, launch: Launch, blocks: tuple[int, int, int], places: Sequence[int], scalars: Sequence[int]) -> Ready:
        """A launch whose buffers are those at some places among the addresses of a call; by one thread at a time."""
        ...


def run_plan(plan: Sequence[Launch | Repeat], device: Device, buffers: Mapping[str, int], scalars: Mapping[str, int], report: int) -> None:
    """Launches everything in order: `buffers` are addresses, `scalars` sizes, `report` the address of the report of checks."""
    for step, blocks, values in launches(plan, scalars):
        arguments = [*(buffers[name] for name in step.buffers), *values]
        device.launch(step, blocks, [*arguments, report] if step.reports else arguments)


def made_ready(
    plan: Sequence[Launch | Repeat], maker: Maker, places: Mapping[str, int], scalars: Mapping[str, int]
) -> Callable[[], Iterable[Ready]]:
    """The launches of a plan in order, each time they are asked for: made once where they are few enough to be kept."""

    def made() -> Iterator[Ready]:
        for step, blocks, values in launches(plan, scalars):
            names = (*step.buffers, REPORT) if step.reports else step.buffers
            # The report is the last argument, behind the scalars.
            yield maker.ready(step, blocks, [places[name] for name in names], values)

    kept = list(islice(made(), MOST_KEPT + 1))
    return made if len(kept) > MOST_KEPT else lambda: kept


def launches(plan: Sequence[Launch | Repeat], scalars: Mapping[str, int]) -> Iterator[tuple[Launch, tuple[int, int, int], list[int]]]:
    """Every launch that has something to do, in order, its blocks and its scalar arguments."""
    for step in plan:
        if isinstance(step, Repeat):
            for index in range(value(step.start, scalars), value(step.stop, scalars)):
                yield from launches(step.body, {**scalars, step.index: index})
            continue
        blocks = step.blocks([value(e, scalars) for e in step.iterations])
        if all(blocks):
            yield step, blocks, [scalars[name] for name in step.scalars]


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
            return int(e.op.evaluate(*((np.bool_ if a.dtype.is_bool else np.int64)(value(a, scalars)) for a in e.args)))
        case Cast():
            return int(cast_value(np.int64(value(e.arg, scalars)), e.dtype))
    raise InternalError(f"cuda: expected an expression over sizes and indices, got {type(e).__name__}", term=e)
