"""A loop nest as CUDA C++: one `__global__` function per parallel region, and the plan by which they are launched.

A parallel loop that is not inside another becomes the grid. Where loops over lanes in it are long, an iteration is a block and the
lanes are its threads (see `threads`); else an iteration is a thread, 256 to a block or fewer, the last one cut off by a test. Loops that a
schedule binds to `block.x` ... `thread.z` are what they say (see `bound`). What stands
outside of parallel loops runs in one block; a serial loop around parallel ones (the steps of a scan) is run by the host, which
launches the kernels inside with its index as an argument; but where each of these is a block at most, one block goes round by itself.
Of a kernel for some sizes alone the host knows when they are.
Launches on one stream run one after the other, so what one writes the next may read. Inside a thread, loops are loops, unrolled ones are
marked so, local buffers are arrays in registers where their indices are constants after unrolling.

The text is a small dialect (see `prelude.cuh`) that a C++ compiler also reads, so that kernels are tested without a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tensorexpr.codegen.cuda.block.bound import grid_of, in_one_block, settled
from tensorexpr.codegen.cuda.block.held import with_rows
from tensorexpr.codegen.cuda.block.quotients import with_numbers, with_quotients
from tensorexpr.codegen.cuda.block.shuffles import names_in
from tensorexpr.codegen.cuda.block.threads import team_of
from tensorexpr.codegen.cuda.emitter.kernel import THREADS, Kernel
from tensorexpr.codegen.cuda.emitter.source import Launch, Repeat, Source
from tensorexpr.codegen.cuda.thread.neighbors import with_neighbors
from tensorexpr.codegen.cuda.thread.packs import multiples_of
from tensorexpr.codegen.nest import GRID, Alloc, Block, Buffer, For, If, LoopNest, Stmt
from tensorexpr.codegen.nest import Kernel as Region
from tensorexpr.errors import InternalError
from tensorexpr.ir import TRUE, Const, Expr, apply, conjunction, const
from tensorexpr.traversal import free_names, tensors_read


def emit(nest: LoopNest, prefix: str = "") -> Source:
    """The CUDA C++ of a nest that `verify_nest` accepts; names of kernels begin with `prefix`."""
    writer = _Writer(nest, prefix)
    plan = tuple(step for kernel in nest.kernels for step in writer.region(kernel))
    return Source("\n".join(writer.kernels), plan)


class _Writer:
    """The kernels of a nest as they are found."""

    def __init__(self, nest: LoopNest, prefix: str) -> None:
        self.nest = nest
        self.prefix = prefix
        constants = [Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants]
        self.buffers = {b.name: b for b in (*nest.parameters, *constants, *nest.workspace)}
        self.kernels: list[str] = []
        self.checked = False
        """Whether a kernel so far has checks."""

    def region(self, kernel: Region) -> Iterator[Launch | Repeat]:
        """Launches for a kernel: of loops that run together one, for all of those whose iterations are threads."""
        beside = [s for s in kernel.body if isinstance(s, For) and kernel.together and _is_plain(s)]
        if len(beside) < 2:
            yield from self.plan(kernel.name, kernel.body, ())
            return
        writer = Kernel(self.nest, self.buffers, ())
        launch, text = writer.together(f"{self.prefix}k{len(self.kernels)}_{_word(kernel.name)}", beside, self.checked)
        self.checked |= writer.reports
        self.kernels.append(text)
        yield launch
        yield from self.plan(kernel.name, tuple(s for s in kernel.body if s not in beside), ())

    def plan(self, name: str, block: Block, outer: tuple[For, ...], where: Expr = TRUE) -> Iterator[Launch | Repeat]:
        """Launches for statements: parallel loops as grids, loops around such by the host, the rest between in one thread; at sizes at
        which a condition holds."""
        match block:
            case (If(otherwise=()) as version,) if not free_names(version.condition) and not any(tensors_read(version.condition)):
                yield from self.plan(name, version.then, outer, conjunction((where, version.condition)))
                return
        between: list[Stmt] = []
        for statement in block:
            grid = isinstance(statement, For) and (statement.kind == "parallel" or statement.kind in GRID)
            around = isinstance(statement, For) and not grid and _has_parallel(statement.body)
            if not grid and not around:
                between.append(statement)
                continue
            if between:
                yield self.kernel(name, tuple(between), (), outer, where)
                between = []
            assert isinstance(statement, For)
            if grid:
                loops, body = grid_of(statement)
                yield self.kernel(name, body, loops, outer, where)
            elif (alone := in_one_block(statement, THREADS)) is not None:
                yield self.kernel(name, (alone,), (), outer, where)
            else:
                inner = tuple(self.plan(name, statement.body, (*outer, statement), where))
                yield Repeat(statement.index, statement.start, statement.stop, inner)
        if between:
            yield self.kernel(name, tuple(between), (), outer, where)

    def kernel(self, name: str, body: Block, grid: tuple[For, ...], outer: tuple[For, ...], where: Expr) -> Launch:
        """The text of a kernel, and its launch."""
        writer = Kernel(self.nest, self.buffers, outer)
        writer.multiples = multiples_of(where)
        word = f"{self.prefix}k{len(self.kernels)}_{_word(name)}"
        body, quotients = with_quotients(with_numbers(body, self.buffers), grid)
        body = settled(body)
        body = with_rows(body, self.buffers, {*self.buffers, *names_in(body)})
        # A loop of the host comes by again.
        behind = self.checked or bool(outer and self.nest.checks)
        launch, text = writer.text(word, with_neighbors(body, self.buffers, writer.multiples), grid, behind, quotients)
        if where != TRUE:
            launch = dataclasses.replace(launch, iterations=tuple(apply("where", where, n, const(0)) for n in launch.iterations))
        self.checked |= writer.reports
        self.kernels.append(text)
        return launch


def _has_parallel(block: Block) -> bool:
    for s in block:
        match s:
            case For() if s.kind == "parallel" or s.kind in GRID or _has_parallel(s.body):
                return True
            case If() if _has_parallel(s.then) or _has_parallel(s.otherwise):
                raise InternalError("cuda: expected no parallel loop under a condition")
            case Alloc() if _has_parallel(s.body):
                raise InternalError("cuda: expected no parallel loop inside a local buffer")
    return False


def _is_plain(loop: For) -> bool:
    """Whether the iterations of a parallel loop are threads, a known number of them."""
    return isinstance(loop.start, Const) and isinstance(loop.stop, Const) and team_of(settled(loop.body)) is None


def _word(name: str) -> str:
    """The name of what a kernel computes as part of an identifier."""
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return word[:40].rstrip("_") or "kernel"
