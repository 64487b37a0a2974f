"""What a caller must know of a source to launch it, as plain data: buffers, workspace, kernels with their grids and arguments.

It is what a bundle writes to its table, and what `launch_text` makes native code of. Grids and bounds of loops that the host runs are
expressions over sizes and over the indices of such loops (`codegen.llvm.abi.plain`, with comparisons and `where`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorexpr.codegen.cuda.emitter.source import Launch, Repeat, Source
from tensorexpr.codegen.llvm.text.abi import Extent, plain_value
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size
from tensorexpr.records import record

ALIGNMENT = 256
"""Bytes of which the workspace, and every buffer in it, begins at a multiple."""
_COMPARED = frozenset(("add", "sub", "mul", "neg", "minimum", "maximum", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
                       "xor", "where"))  # fmt: skip


@record
class Step:
    """A launch: the kernel's name, its arguments in order (buffers, then sizes and indices as int64, then the report where it has one),
    the threads of a block along x, y, z, the blocks of its grid, and the bytes of shared memory that it asks for."""

    kernel: str
    buffers: tuple[str, ...]
    scalars: tuple[str, ...]
    reports: bool
    threads: tuple[int, int, int]
    blocks: tuple[Extent, Extent, Extent]
    shared: int = 0


@record
class Loop:
    """Steps that the host takes for each value of an index."""

    index: str
    start: Extent
    stop: Extent
    steps: tuple[Step | Loop, ...]


@record
class Plan:
    """What to launch, on what: names of the parameters, of the constants and of the sizes of the nest, and the buffers of the workspace
    with bytes per element and extents."""

    parameters: tuple[str, ...]
    constants: tuple[str, ...]
    sizes: tuple[str, ...]
    workspace: tuple[tuple[str, int, tuple[Extent, ...]], ...]
    steps: tuple[Step | Loop, ...]

    @staticmethod
    def of(nest: LoopNest, source: Source) -> Plan:
        """The plan of a nest and its source."""
        buffers = tuple((b.name, b.dtype.itemsize, tuple(map(planned, b.shape))) for b in nest.workspace)
        parameters, constants = tuple(b.name for b in nest.parameters), tuple(c.name for c in nest.constants)
        return Plan(parameters, constants, nest.sizes, buffers, _steps(source.plan))

    @property
    def launches(self) -> tuple[Step, ...]:
        """Every launch."""
        return tuple(_flat(self.steps))

    @property
    def reports(self) -> bool:
        """Whether some kernel reports an index out of bounds."""
        return any(step.reports for step in self.launches)

    def workspace_bytes(self, sizes: Mapping[str, int]) -> int:
        """Bytes of workspace that a call with these sizes needs."""
        total = 0
        for _, length, extents in self.workspace:
            for extent in extents:
                length *= plain_value(extent, sizes)
            total += -(-length // ALIGNMENT) * ALIGNMENT
        return total

    def as_data(self) -> dict[str, Any]:
        """The workspace and the steps in JSON's types."""
        return {
            "workspace": [{"name": name, "itemsize": size, "shape": list(extents)} for name, size, extents in self.workspace],
            "alignment": ALIGNMENT,
            "steps": [_data(step) for step in self.steps],
        }


def _steps(plan: Sequence[Launch | Repeat]) -> tuple[Step | Loop, ...]:
    found: list[Step | Loop] = []
    for item in plan:
        if isinstance(item, Repeat):
            found.append(Loop(item.index, planned(item.start), planned(item.stop), _steps(item.body)))
        else:
            found.append(Step(item.kernel, item.buffers, item.scalars, item.reports, item.threads, _blocks(item), item.shared))
    return tuple(found)


def _blocks(launch: Launch) -> tuple[Extent, Extent, Extent]:
    """The blocks of a grid along three axes (see `Launch.blocks`); none where one of them is not positive."""
    extents: list[Extent] = [planned(count) for count in launch.iterations]
    x, y, z = (*extents, 1, 1)[:3]
    if launch.cut:
        x = _folded("floordiv", _folded("add", x, launch.threads[0] - 1), launch.threads[0])
    return x, y, z


def _folded(name: str, left: Extent, right: Extent) -> Extent:
    return plain_value((name, left, right), {}) if isinstance(left, int) and isinstance(right, int) else (name, left, right)


def _flat(steps: Sequence[Step | Loop]) -> list[Step]:
    return [launch for step in steps for launch in ([step] if isinstance(step, Step) else _flat(step.steps))]


def _data(step: Step | Loop) -> dict[str, Any]:
    if isinstance(step, Loop):
        return {"index": step.index, "start": step.start, "stop": step.stop, "steps": [_data(inner) for inner in step.steps]}
    layout = [*step.buffers, *step.scalars, *(["the report of checks"] if step.reports else [])]
    return {
        "kernel": step.kernel,
        "threads": list(step.threads),
        "blocks": list(step.blocks),
        "shared": step.shared,
        "parameters": [{"name": name, "offset": 8 * k, "size": 8} for k, name in enumerate(layout)],
    }


def planned(e: Expr) -> Extent:
    """An integer expression over sizes and indices as plain data."""
    match e:
        case Const():
            return int(e.value)
        case Size() | Index():
            return e.name
        case Apply() if e.op.name in _COMPARED:
            return (e.op.name, *map(planned, e.args))
        case Cast() if e.dtype.itemsize == 8:
            return planned(e.arg)
    raise InternalError(f"cuda: expected an expression over sizes and indices, got {type(e).__name__}", term=e)
