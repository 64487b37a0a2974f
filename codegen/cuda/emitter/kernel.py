"""One kernel: what it takes, the index that a block or a thread has in its grid, and its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.block.arena import arena
from tensorexpr.codegen.cuda.block.bound import settled
from tensorexpr.codegen.cuda.block.leaving import leave_together
from tensorexpr.codegen.cuda.block.threads import Team, team_of
from tensorexpr.codegen.cuda.emitter.groups import PATTERN
from tensorexpr.codegen.cuda.emitter.mma import WARP
from tensorexpr.codegen.cuda.emitter.source import Launch
from tensorexpr.codegen.cuda.emitter.statements import Statements
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.packs import ALIGNMENT
from tensorexpr.codegen.cuda.thread.values import Value, memory_type
from tensorexpr.codegen.nest import GRID, Alloc, Block, Buffer, Check, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside, iterations, statements
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size, apply, integer
from tensorexpr.traversal import walk

THREADS = 256
"""Threads of a block."""
SPREAD = 128
"""Blocks that there are at least, as long as each is a warp, where threads have long loops: about the multiprocessors of a large GPU."""
LONG = 32
"""Steps of a thread from which its loops are long, as those are whose number is not known: it is these that take the time, not that blocks
begin and end."""
SHARED = 48 << 10
"""Bytes of shared memory that a block has without asking."""
_RETURNS_TOGETHER = ["  if (__syncthreads_or(error->check != 0)) return;"]
"""How all threads of a block return, or none: another block may report while they ask."""


class Kernel(Statements):
    """One kernel: its parameters and its grid, around its statements."""

    def __init__(self, nest: LoopNest, buffers: dict[str, Buffer], outer: tuple[For, ...]) -> None:
        super().__init__(nest, buffers)
        self.outer = outer
        self.used_buffers: dict[str, None] = {}
        self.used_scalars: dict[str, None] = {}
        self.written: set[str] = set()
        self.reports = False
        self.given = {b.name for b in nest.parameters if b.name not in nest.writes} | {c.name for c in nest.constants}
        self.hanging: set[str] = set()
        """Local buffers whose values come from what other kernels have written."""
        self.hangs = False
        """Whether places, bounds or arithmetic of integers here depend on what other kernels have written: behind a check that failed that
        may be anything, and C says nothing of sums that overflow."""
        self.behind = False

    def together(self, word: str, loops: Sequence[For], behind: bool) -> tuple[Launch, str]:
        """Loops side by side as one kernel, and its launch: each has blocks of its own, found by halving. `behind` says whether
        kernels before it have checks."""
        self.survey(tuple(loops))
        self.behind = behind and self.hangs
        for size in self.nest.sizes:
            self.scope[size] = v.index(self.word(size), 0, None)
        firsts = [0]
        for loop in loops:
            firsts.append(firsts[-1] - (-max(0, integer(loop.stop) - integer(loop.start)) // THREADS))

        def among(low: int, high: int, margin: str) -> list[str]:
            if high - low == 1:
                lines = [margin + line.strip() for line in self.grid_index(loops[low], THREADS, "x", firsts[low])]
                self.block(settled(loops[low].body), lines, margin)
                return lines
            middle = (low + high) // 2
            test = f"{margin}if (blockIdx.x < {firsts[middle]}u) {{"
            return [test, *among(low, middle, margin + "  "), f"{margin}}} else {{", *among(middle, high, margin + "  "), f"{margin}}}"]

        lines = among(0, len(loops), "  ")
        return self.finished(word, lines, (THREADS, 1, 1), (Const(firsts[-1] * THREADS, dtypes.int64),), True)

    def text(self, word: str, body: Block, grid: tuple[For, ...], behind: bool, quotients: Mapping[str, Apply]) -> tuple[Launch, str]:
        """The kernel as text, and its launch; `behind` says whether kernels before it have checks, `quotients` what names stand for."""
        self.survey((*body, *(replace(loop, body=()) for loop in grid), *(For(name, e, e, ()) for name, e in quotients.items())))
        self.behind = behind and self.hangs
        for size in self.nest.sizes:
            self.scope[size] = v.index(self.word(size), 0, None)
        for loop in self.outer:
            low, high = self.range(loop)
            self.scope[loop.index] = v.index(self.word(loop.index), low, high)
        lines: list[str] = []
        asked, block = 0, THREADS
        team = team_of(body)
        cut = team is None and any(loop.kind == "parallel" for loop in grid)
        iterations: dict[str, Expr] = {axis: Const(1, dtypes.int64) for axis in GRID}
        for loop in grid:
            axis = loop.kind if loop.kind in GRID else GRID[0]
            from_, to = loop.start, loop.stop
            if isinstance(from_, Const) and isinstance(to, Const):
                count: Expr = Const(max(0, to.value - from_.value), dtypes.int64)
            else:
                count = to if from_ == Const(0, dtypes.int64) else apply("sub", to, from_)
            each = self.warps_of_block(team, count) if team is not None and axis == GRID[0] else 1
            if team is not None and each > 1:
                team = replace(team, shape=(team.shape[0], each, 1))
                count = Const(-(-count.value // each), dtypes.int64) if isinstance(count, Const) else _divided(count, each)
            iterations[axis] = count
            block = threads_of(count, body) if cut else each
            lines += self.grid_index(loop, block, "x" if cut else "y")
        for name, e in quotients.items():
            found = self.emitter(frozenset(), lines).value(e)
            parts = [self.emitter(frozenset(), []).value(arg) for arg in e.args]
            low = 0 if all(part.low is not None and part.low >= 0 for part in parts) else found.low
            self.scope[name] = Value(self.word(name), dtypes.int64, v.ATOM, found.narrow, low, found.high)
            lines.append(f"  const {'int' if found.narrow else 'int64_t'} {self.word(name)} = {found.text};")
        self.team = team
        if team is None:
            self.block(body, lines, "  ")
        else:
            for buffer in buffers_inside(team.body):
                self.buffers[buffer.name] = buffer
            self.find_groups(team.body)
            shared = [b for b in buffers_inside(team.body) if team.homes.get(b.name) == "shared"]
            slots = prod(team.shape[1:]) if self.slot() else 1
            sizes = {b.name: slots * prod(self.extents(b)) * b.dtype.itemsize for b in shared}
            self.arena, asked = arena(sizes, dict.fromkeys(self.swizzled, PATTERN))
            self.leaves = leave_together(team.body, team.warps)
            self.block(team.body, lines, "  ")
        threads = team.shape if team is not None else (block if cut else 1, 1, 1)
        return self.finished(word, lines, threads, tuple(iterations.values()), cut, asked)

    def warps_of_block(self, team: Team, count: Expr) -> int:
        """How many iterations of a grid a block has, a warp for each: as many as there are, and as shared memory has room for."""
        if not team.warps or prod(team.shape[1:]) > 1:
            return 1
        kept = [b for b in buffers_inside(team.body) if team.homes.get(b.name) == "shared"]
        shared = sum(prod(map(integer, b.shape)) * b.dtype.itemsize + ALIGNMENT for b in kept)
        most = min(THREADS // team.shape[0], SHARED // max(1, shared))
        return max(1, min(most, integer(count)) if isinstance(count, Const) else most)

    def finished(
        self, word: str, lines: list[str], threads: tuple[int, int, int], iterations: tuple[Expr, ...], cut: bool, asked: int = 0
    ) -> tuple[Launch, str]:
        """The launch and the text of a kernel of these lines."""
        parameters = [self.parameter(name) for name in self.used_buffers]
        scalars = tuple(n for n in (*self.nest.sizes, *(loop.index for loop in self.outer)) if n in self.used_scalars)
        parameters += [f"const int64_t {self.words[n]}_" if self.scope[n].narrow else f"const int64_t {self.words[n]}" for n in scalars]
        entry = [f"  const int {self.words[n]} = (int){self.words[n]}_;" for n in scalars if self.scope[n].narrow]
        if self.behind:
            entry += _RETURNS_TOGETHER if self.reports and self.team is not None else ["  if (error->check) return;"]
        if self.reports or self.behind:
            parameters.append("te_error *__restrict__ error")
        head = f'extern "C" __global__ void __launch_bounds__({prod(threads)}) {word}('
        signature = head + ", ".join(parameters) + ") {"
        if len(signature) > 120:
            signature = head + "\n    " + ",\n    ".join(parameters) + ") {"
        text = "\n".join([signature, *entry, *lines, "}"]) + "\n"
        return Launch(word, tuple(self.used_buffers), scalars, self.reports or self.behind, threads, iterations, cut, asked), text

    def parameter(self, name: str) -> str:
        """The declaration of a buffer as a parameter."""
        const = "" if name in self.written else "const "
        return f"{const}{memory_type(self.buffers[name].dtype)} *__restrict__ {self.words[name]}"

    def survey(self, block: Block) -> None:
        """Finds the buffers (in order of the nest), sizes and indices that a kernel uses, and gives them names."""
        found: set[str] = set()
        scalars: set[str] = set()
        local: set[str] = set()

        def hangs(e: Expr) -> bool:
            return any(
                isinstance(n, Access) and n.tensor not in self.given and (n.tensor not in local or n.tensor in self.hanging)
                for n in walk(e)
            )

        def expression(e: Expr) -> None:
            for node in walk(e):
                match node:
                    case Access():
                        self.hangs |= any(map(hangs, node.indices))
                        found.add(node.tensor)
                        buffer = self.buffers.get(node.tensor)
                        for extent in buffer.shape[1:] if buffer is not None else ():
                            expression(extent)
                    case Apply() if node.dtype.is_integer:
                        self.hangs |= any(map(hangs, node.args))
                    case Index() | Size():
                        scalars.add(node.name)

        def visit(s: Stmt) -> None:
            match s:
                case For():
                    self.hangs |= hangs(s.start) or hangs(s.stop)
                    expression(s.start)
                    expression(s.stop)
                case Alloc():
                    self.buffers[s.buffer.name] = s.buffer
                    local.add(s.buffer.name)
                case Store():
                    if hangs(s.value):
                        self.hanging.add(s.buffer)
                    self.written.add(s.buffer)
                    expression(Access(s.buffer, s.indices, s.value.dtype))
                    expression(s.value)
                case _:
                    self.reports |= isinstance(s, Check)
                    for e in expressions_of(s):
                        expression(e)

        before = -1
        while before < len(self.hanging):  # what a loop depends on may be stored further down
            before = len(self.hanging)
            for statement in statements(block):
                visit(statement)
        for name, buffer in self.buffers.items():
            if name in found and buffer.memory != "local":
                self.used_buffers[name] = None
                self.word(name)
        for name in (*self.nest.sizes, *(loop.index for loop in self.outer)):
            if name in scalars:
                self.used_scalars[name] = None
                self.word(name)

    def range(self, loop: For) -> tuple[int | None, int | None]:
        """The interval of a loop's index, from the intervals of its bounds."""
        emitter = self.emitter(frozenset(), [])
        start, stop = emitter.value(loop.start), emitter.value(loop.stop)
        return start.low, None if stop.high is None else stop.high - 1

    def grid_index(self, grid: For, each: int, thread: str, block: int = 0) -> list[str]:
        """The index of a loop of the grid from block and, where a block has several iterations (`each`), the thread along an axis, with the
        test that cuts the last block off where it may be too long; its blocks begin at number `block`."""
        low, high = self.range(grid)
        name = self.word(grid.index, "point" if thread == "x" and each > 1 else "block" if each == 1 else "row")
        emitter = self.emitter(frozenset(), [])
        start, stop = emitter.value(grid.start), emitter.value(grid.stop)
        # The last block may go on beyond the stop by all but one of its iterations.
        narrow = low is not None and high is not None and v.fits(low, high + THREADS)
        self.scope[grid.index] = Value(name, dtypes.int64, v.ATOM, narrow, low, high)
        type_ = "int" if narrow else "int64_t"
        axis = "xyz"[GRID.index(grid.kind)] if grid.kind in GRID else "x"
        own = f"(blockIdx.{axis} - {block}u)" if block else f"blockIdx.{axis}"
        if each == 1:
            first = f"({type_}){own}"
        else:
            first = f"(int)({own} * {each}u + threadIdx.{thread})" if narrow else f"(int64_t){own} * {each} + threadIdx.{thread}"
        if start.constant != 0:
            first = f"{start.inside(v.SUM)} + {first}"
        lines = [f"  const {type_} {name} = {first};"]
        if each > 1 and (start.constant is None or stop.constant is None or (stop.constant - start.constant) % each):
            lines.append(f"  if ({name} >= {stop.inside(v.ORDER + 1)}) return;")
        return lines


def threads_of(count: Expr, body: Block) -> int:
    """The threads of a block of a grid whose iterations are threads: fewer where few threads have long loops, so that blocks are on as many
    multiprocessors as there are."""
    threads = THREADS
    if isinstance(count, Const) and steps_of(body) >= LONG:
        while threads > WARP and -(-count.value // threads) < SPREAD:
            threads //= 2
    return threads


def steps_of(block: Block) -> int:
    """Steps of a thread in the longest nest of loops, which are as long as `LONG` where their extent is not known."""
    found = 1
    for s in block:
        known = iterations(s) if isinstance(s, For) else 1
        found = max(found, (LONG if known is None else max(1, known)) * steps_of(inside(s)))
    return found


def _divided(count: Expr, each: int) -> Expr:
    """How many blocks of so many iterations there are."""
    return apply("floordiv", apply("add", count, Const(each - 1, dtypes.int64)), Const(each, dtypes.int64))


def buffers_inside(block: Block) -> Iterator[Buffer]:
    """The buffers that statements allocate."""
    return (s.buffer for s in statements(block) if isinstance(s, Alloc))
