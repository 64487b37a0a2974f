"""The text of the kernels of a nest, and by which launches they are run: plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorexpr.ir import Expr

PRELUDE = Path(__file__).with_name("prelude.cuh")


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: the kernel's name, its arguments in order (names of buffers; of sizes and of indices of loops that the host runs, as
    int64), whether a report of checks is its last argument, the threads of a block along x, y, z, and how many iterations its grid has
    along each, as expressions over sizes and those indices: blocks, or where `cut` threads; and the bytes of shared memory that it asks
    for, beside what the kernel declares."""

    kernel: str
    buffers: tuple[str, ...]
    scalars: tuple[str, ...]
    reports: bool
    threads: tuple[int, int, int]
    iterations: tuple[Expr, ...]
    cut: bool
    shared: int = 0

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Offset and size in bytes of every argument as it is packed: eight each, one behind the other."""
        return tuple((8 * k, 8) for k in range(len(self.buffers) + len(self.scalars) + self.reports))

    def blocks(self, iterations: Sequence[int]) -> tuple[int, int, int]:
        """Blocks of a grid with so many iterations."""
        x, y, z = (max(0, n) for n in (*iterations, 1, 1)[:3])
        return -(-x // self.threads[0]) if self.cut else x, y, z


@dataclass(frozen=True, slots=True)
class Repeat:
    """A serial loop that the host runs around launches."""

    index: str
    start: Expr
    stop: Expr
    body: tuple[Launch | Repeat, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of all kernels of a nest (without the prelude), and what to launch in order."""

    text: str
    plan: tuple[Launch | Repeat, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every launch of the plan."""
        return tuple(_launches(self.plan))

    def __str__(self) -> str:
        return self.text


def _launches(plan: tuple[Launch | Repeat, ...]) -> Iterator[Launch]:
    for step in plan:
        if isinstance(step, Launch):
            yield step
        else:
            yield from _launches(step.body)
