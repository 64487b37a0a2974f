"""A loop nest as CUDA C++: one `__global__` function per parallel region, and the plan by which they are launched.

A parallel loop that is not inside another becomes the grid. Where loops over lanes in it are long, an iteration is a block and the
lanes are its threads (see `threads`); else an iteration is a thread, 256 to a block, the last block cut off by a test. Loops that a
schedule binds to `block.x` ... `thread.z` are what they say (see `bound`). What stands
outside of parallel loops runs in one block; a serial loop around parallel ones (the steps of a scan) is run by the host, which
launches the kernels inside with its index as an argument; but where each of these is a block at most, one block goes round by itself.
Launches on one stream run one after the other, so what one writes the next may read. Inside a thread, loops are loops, unrolled ones are
marked so, local buffers are arrays in registers where their indices are constants after unrolling.

The text is a small dialect (see `prelude.cuh`) that a C++ compiler also reads, so that kernels are tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from tensorexpr import dtypes
from tensorexpr.codegen.cuda import values as v
from tensorexpr.codegen.cuda.bound import grid_of, in_one_block, settled
from tensorexpr.codegen.cuda.expressions import RESERVED, Emitter, Surroundings, stored, wanted_names
from tensorexpr.codegen.cuda.mma import WARP, Product, product_of
from tensorexpr.codegen.cuda.packs import ALIGNMENT, Packed, copied, packed
from tensorexpr.codegen.cuda.products import write_product
from tensorexpr.codegen.cuda.shuffles import Shuffle, Warps
from tensorexpr.codegen.cuda.threads import Barrier, Team, idle_axes, is_lanes, stages_ahead, team_of
from tensorexpr.codegen.cuda.values import Value, memory_type
from tensorexpr.codegen.nest import GRID, Ahead, Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest import THREADS as THREADS_OF
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size, apply, integer
from tensorexpr.traversal import walk

THREADS = 256
"""Threads of a block."""
LONGEST = 8
"""Letters of a name beyond which the index of many loops in one is called by what it is."""
BANKS = 128
"""Bytes of one row of the banks of shared memory."""
ATOMICS = ("add", "mul", "maximum", "minimum")
"""Updates of an element in one piece, as the prelude has them."""
PRELUDE = Path(__file__).with_name("prelude.cuh")


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: the kernel's name, its arguments in order (names of buffers; of sizes and of indices of loops that the host runs, as
    int64), whether a report of checks is its last argument, the threads of a block along x, y, z, and how many iterations its grid has
    along each, as expressions over sizes and those indices: blocks, or where `cut` threads."""

    kernel: str
    buffers: tuple[str, ...]
    scalars: tuple[str, ...]
    reports: bool
    threads: tuple[int, int, int]
    iterations: tuple[Expr, ...]
    cut: bool

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

    def region(self, kernel: Kernel) -> Iterator[Launch | Repeat]:
        """Launches for a kernel: of loops that run together one, for all of those whose iterations are threads."""
        beside = [s for s in kernel.body if isinstance(s, For) and kernel.together and _is_plain(s)]
        if len(beside) < 2:
            yield from self.plan(kernel.name, kernel.body, ())
            return
        writer = _Kernel(self.nest, self.buffers, ())
        launch, text = writer.together(f"{self.prefix}k{len(self.kernels)}_{_word(kernel.name)}", beside)
        self.kernels.append(text)
        yield launch
        yield from self.plan(kernel.name, tuple(s for s in kernel.body if s not in beside), ())

    def plan(self, name: str, block: Block, outer: tuple[For, ...]) -> Iterator[Launch | Repeat]:
        """Launches for statements: parallel loops as grids, loops around such by the host, the rest between in one thread."""
        between: list[Stmt] = []
        for statement in block:
            grid = isinstance(statement, For) and (statement.kind == "parallel" or statement.kind in GRID)
            around = isinstance(statement, For) and not grid and _has_parallel(statement.body)
            if not grid and not around:
                between.append(statement)
                continue
            if between:
                yield self.kernel(name, tuple(between), (), outer)
                between = []
            assert isinstance(statement, For)
            if grid:
                loops, body = grid_of(statement)
                yield self.kernel(name, body, loops, outer)
            elif (alone := in_one_block(statement, THREADS)) is not None:
                yield self.kernel(name, (alone,), (), outer)
            else:
                inner = tuple(self.plan(name, statement.body, (*outer, statement)))
                yield Repeat(statement.index, statement.start, statement.stop, inner)
        if between:
            yield self.kernel(name, tuple(between), (), outer)

    def kernel(self, name: str, body: Block, grid: tuple[For, ...], outer: tuple[For, ...]) -> Launch:
        """The text of a kernel, and its launch."""
        writer = _Kernel(self.nest, self.buffers, outer)
        word = f"{self.prefix}k{len(self.kernels)}_{_word(name)}"
        launch, text = writer.text(word, settled(body), grid)
        self.kernels.append(text)
        return launch


def buffers_inside(block: Block) -> Iterator[Buffer]:
    """The buffers that statements allocate."""
    for s in block:
        match s:
            case Alloc():
                yield s.buffer
                yield from buffers_inside(s.body)
            case For():
                yield from buffers_inside(s.body)
            case If():
                yield from buffers_inside((*s.then, *s.otherwise))


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


_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr continue default delete do"
    " double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not not_eq nullptr"
    " operator or or_eq private protected public register return short signed sizeof static struct switch template this throw true try"
    " typedef typeid typename union unsigned using virtual void volatile while xor xor_eq warpSize threadIdx blockIdx blockDim gridDim"
    " error main j0 j1 jn y0 y1 yn gamma exp log sin cos tan pow abs floor ceil sqrt erf div index time signal"
)
_KEYWORDS = frozenset(_WORDS.split())


class _Kernel:
    """One kernel: names in C++ for buffers and indices, the indices in scope, and the lines so far."""

    def __init__(self, nest: LoopNest, buffers: dict[str, Buffer], outer: tuple[For, ...]) -> None:
        self.nest = nest
        self.buffers = dict(buffers)
        self.outer = outer
        self.taken: set[str] = {*_KEYWORDS, *RESERVED}
        self.words: dict[str, str] = {}
        self.scope: dict[str, Value] = {}
        self.used_buffers: dict[str, None] = {}
        self.used_scalars: dict[str, None] = {}
        self.written: set[str] = set()
        self.reports = False
        self.temporaries = 0
        self.team: Team | None = None
        self.in_lanes = False
        self.copies = False
        self.under_way = 0
        """Groups of copies that barriers here do not wait for: those of iterations further ahead than the next."""

    def word(self, name: str, role: str = "") -> str:
        """An identifier of C++ for a name of the nest, the same each time: its own, or its `role` where that of many loops is long."""
        found = self.words.get(name)
        if found is None:
            readable = role if role and len(name) > LONGEST else name
            base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in readable)
            base = f"v{base}" if not base or base[0].isdigit() or base.startswith(("te_", "TE_", "__")) else base
            found, number = base, 0
            while found in self.taken:
                number += 1
                found = f"{base}_{number}"
            self.taken.add(found)
            self.words[name] = found
        return found

    def temporary(self) -> str:
        """A new name."""
        while True:
            name = f"t{self.temporaries}"
            self.temporaries += 1
            if name not in self.taken:
                self.taken.add(name)
                return name

    def together(self, word: str, loops: Sequence[For]) -> tuple[Launch, str]:
        """Loops side by side as one kernel, and its launch: each has blocks of its own, found by halving."""
        self.survey(tuple(loops))
        for size in self.nest.sizes:
            self.scope[size] = v.index(self.word(size), 0, None)
        firsts = [0]
        for loop in loops:
            firsts.append(firsts[-1] - (-max(0, integer(loop.stop) - integer(loop.start)) // THREADS))

        def among(low: int, high: int, margin: str) -> list[str]:
            if high - low == 1:
                lines = [margin + line.strip() for line in self.grid_index(loops[low], True, firsts[low])]
                self.block(settled(loops[low].body), lines, margin)
                return lines
            middle = (low + high) // 2
            test = f"{margin}if (blockIdx.x < {firsts[middle]}u) {{"
            return [test, *among(low, middle, margin + "  "), f"{margin}}} else {{", *among(middle, high, margin + "  "), f"{margin}}}"]

        lines = among(0, len(loops), "  ")
        return self.finished(word, lines, (THREADS, 1, 1), (Const(firsts[-1] * THREADS, dtypes.int64),), True)

    def text(self, word: str, body: Block, grid: tuple[For, ...]) -> tuple[Launch, str]:
        """The kernel as text, and its launch."""
        self.survey((*body, *(replace(loop, body=()) for loop in grid)))
        for size in self.nest.sizes:
            self.scope[size] = v.index(self.word(size), 0, None)
        for loop in self.outer:
            low, high = self.range(loop)
            self.scope[loop.index] = v.index(self.word(loop.index), low, high)
        lines: list[str] = []
        self.team = team = team_of(body)
        cut = team is None and any(loop.kind == "parallel" for loop in grid)
        iterations: dict[str, Expr] = {axis: Const(1, dtypes.int64) for axis in GRID}
        for loop in grid:
            from_, to = loop.start, loop.stop
            count = to if isinstance(from_, Const) and from_.value == 0 else apply("sub", to, from_)
            iterations[loop.kind if loop.kind in GRID else GRID[0]] = count
            lines += self.grid_index(loop, cut)
        if team is None:
            self.block(body, lines, "  ")
        else:
            for buffer in buffers_inside(team.body):
                self.buffers[buffer.name] = buffer
            self.block(team.body, lines, "  ")
        threads = team.shape if team is not None else (THREADS if cut else 1, 1, 1)
        return self.finished(word, lines, threads, tuple(iterations.values()), cut)

    def finished(
        self, word: str, lines: list[str], threads: tuple[int, int, int], iterations: tuple[Expr, ...], cut: bool
    ) -> tuple[Launch, str]:
        """The launch and the text of a kernel of these lines."""
        parameters = [self.parameter(name) for name in self.used_buffers]
        scalars = tuple(n for n in (*self.nest.sizes, *(loop.index for loop in self.outer)) if n in self.used_scalars)
        parameters += [f"const int64_t {self.words[n]}_" if self.scope[n].narrow else f"const int64_t {self.words[n]}" for n in scalars]
        entry = [f"  const int {self.words[n]} = (int){self.words[n]}_;" for n in scalars if self.scope[n].narrow]
        if self.reports:
            parameters.append("te_error *__restrict__ error")
        head = f'extern "C" __global__ void __launch_bounds__({prod(threads)}) {word}('
        signature = head + ", ".join(parameters) + ") {"
        if len(signature) > 120:
            signature = head + "\n    " + ",\n    ".join(parameters) + ") {"
        text = "\n".join([signature, *entry, *lines, "}"]) + "\n"
        return Launch(word, tuple(self.used_buffers), scalars, self.reports, threads, iterations, cut), text

    def parameter(self, name: str) -> str:
        """The declaration of a buffer as a parameter."""
        const = "" if name in self.written else "const "
        return f"{const}{memory_type(self.buffers[name].dtype)} *__restrict__ {self.words[name]}"

    def survey(self, block: Block) -> None:
        """Finds the buffers (in order of the nest), sizes and indices that a kernel uses, and gives them names."""
        found: set[str] = set()
        scalars: set[str] = set()

        def expression(e: Expr) -> None:
            for node in walk(e):
                match node:
                    case Access():
                        found.add(node.tensor)
                        buffer = self.buffers.get(node.tensor)
                        for extent in buffer.shape[1:] if buffer is not None else ():
                            expression(extent)
                    case Index() | Size():
                        scalars.add(node.name)

        def visit(s: Stmt) -> None:
            match s:
                case For():
                    expression(s.start)
                    expression(s.stop)
                    for inner in s.body:
                        visit(inner)
                case If():
                    expression(s.condition)
                    for inner in (*s.then, *s.otherwise):
                        visit(inner)
                case Alloc():
                    self.buffers[s.buffer.name] = s.buffer
                    for inner in s.body:
                        visit(inner)
                case Store():
                    found.add(s.buffer)
                    self.written.add(s.buffer)
                    expression(Access(s.buffer, s.indices, s.value.dtype))
                    expression(s.value)
                case Check():
                    self.reports = True
                    expression(s.index)
                    expression(s.extent)

        for statement in block:
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

    def emitter(self, names: frozenset[Expr], lines: list[str]) -> Emitter:
        own = frozenset() if self.team is None else frozenset(name for name, home in self.team.homes.items() if home == "lane")
        return Emitter(Surroundings(self.buffers, self.scope, self.word, self.temporary, own), names, lines)

    def grid_index(self, grid: For, cut: bool, block: int = 0) -> list[str]:
        """The index of a loop of the grid from block and thread, and where it is `cut` the test that cuts the last block off; its blocks
        begin at number `block`."""
        low, high = self.range(grid)
        name = self.word(grid.index, "point" if cut else "block")
        emitter = self.emitter(frozenset(), [])
        start, stop = emitter.value(grid.start), emitter.value(grid.stop)
        # The last block may go on beyond the stop by all but one of its threads.
        narrow = low is not None and high is not None and v.fits(low, high + THREADS)
        self.scope[grid.index] = Value(name, dtypes.int64, v.ATOM, narrow, low, high)
        type_ = "int" if narrow else "int64_t"
        if not cut:
            axis = "xyz"[GRID.index(grid.kind)] if grid.kind in GRID else "x"
            first = f"(int)blockIdx.{axis}" if narrow else f"(int64_t)blockIdx.{axis}"
            if start.constant != 0:
                first = f"{start.inside(v.SUM)} + {first}"
            return [f"  const {type_} {name} = {first};"]
        own = f"(blockIdx.x - {block}u)" if block else "blockIdx.x"
        first = f"(int)({own} * {THREADS}u + threadIdx.x)" if narrow else f"(int64_t){own} * {THREADS} + threadIdx.x"
        if start.constant != 0:
            first = f"{start.inside(v.SUM)} + {first}"
        return [f"  const {type_} {name} = {first};", f"  if ({name} >= {stop.inside(v.ORDER + 1)}) return;"]

    # ---------------------------------------------------------------------------------------------------- statements

    def block(self, block: Block, lines: list[str], margin: str) -> None:
        """The lines of statements."""
        for statement in block:
            self.statement(statement, lines, margin)

    def statement(self, s: Stmt, lines: list[str], margin: str) -> None:
        before: list[str] = []
        match s:
            case Barrier():
                if self.copies and not s.warp:
                    lines.append(f"{margin}te_copies_wait<{self.under_way}>();" if self.under_way else f"{margin}te_copies_wait_all();")
                lines.append(f"{margin}{'__syncwarp' if s.warp else '__syncthreads'}();")
            case Shuffle():
                source, into = self.emitter(frozenset(), before).place(s.source.tensor, s.source.indices), self.word(s.into.name)
                lines.append(f"{margin}{into} = te_shuffle_{f'down({source}, {s.distance})' if s.distance else f'from({source}, 0)'};")
            case For() if self.team is not None and self.in_lanes and s.kind in THREADS_OF:
                self.lanes(s, self.team, lines, margin)
            case For() if self.team is not None and not self.in_lanes and is_lanes(s):
                idle = [f"threadIdx.{'xyz'[k]}" for k in idle_axes(s, self.team)]
                if idle:
                    lines.append(f"{margin}if ({' + '.join(idle)} == 0) {{")
                self.lanes(s, self.team, lines, margin + "  " if idle else margin)
                lines += [f"{margin}}}"] if idle else []
            case For() if self.team is not None and not self.in_lanes and (made := self.product(s)) is not None:
                self.in_lanes = True
                write_product(self, made, lines, margin)
                self.in_lanes = False
            case For():
                self.loop(s, lines, margin)
            case Ahead():
                self.ahead(s, lines, margin)
            case If():
                condition = self.emitter(wanted_names((s.condition,)), before).value(s.condition)
                lines += [margin + line for line in before]
                lines.append(f"{margin}if ({condition.text}) {{")
                self.block(s.then, lines, margin + "  ")
                if s.otherwise:
                    lines.append(f"{margin}}} else {{")
                    self.block(s.otherwise, lines, margin + "  ")
                lines.append(f"{margin}}}")
            case Store() if (update := self.update(s)) is not None:
                word, added = update
                emitter = self.emitter(wanted_names((*s.indices, added)), before)
                place, text = emitter.place(s.buffer, s.indices), emitter.value(added).text
                lines += [margin + line for line in before]
                lines.append(f"{margin}te_atomic_{word}<{memory_type(added.dtype)}>(&{place}, {text});")
            case Store():
                emitter = self.emitter(wanted_names((*s.indices, s.value)), before)
                place = emitter.place(s.buffer, s.indices)
                if isinstance(s.value, Access) and s.value.dtype.is_float and s.value.dtype.bits == 16:
                    text = emitter.place(s.value.tensor, s.value.indices)  # as it is, without a way by float32
                else:
                    text = stored(emitter.value(s.value))
                lines += [margin + line for line in before]
                first = ""
                if self.team is not None and not self.in_lanes and self.team.homes.get(s.buffer) != "uniform":
                    first = f"if ({self.team.first}) "
                lines.append(f"{margin}{first}{place} = {text};")
            case Alloc():
                lines.append(f"{margin}{self.declaration(s.buffer)};")
                self.block(s.body, lines, margin)
            case Check():
                emitter = self.emitter(wanted_names((s.index, s.extent)), before)
                index, extent = emitter.value(s.index), emitter.value(s.extent)
                lines += [margin + line for line in before]
                arguments = f"{index.text}, {extent.text}"
                lines.append(f"{margin}if (te_outside({arguments})) {{ te_fail(error, {s.check}, {arguments}); return; }}")

    def update(self, s: Store) -> tuple[str, Expr] | None:
        """How a store updates its element in one piece, and with what; None for one that need not or that only sets it."""
        if s.buffer not in self.nest.atomics or not isinstance(s.value, Apply) or s.value.op.name not in ATOMICS:
            return None
        own = Access(s.buffer, s.indices, s.value.dtype)
        others = [a for a in s.value.args if a != own]
        return (s.value.op.name, others[0]) if len(others) == 1 else None

    def ahead(self, s: Ahead, lines: list[str], margin: str) -> None:
        """Copies for an iteration to come: a group of their own, also where there are none, so that loops count groups."""
        condition = self.emitter(frozenset(), []).value(s.condition).text
        if condition == "true":
            self.block(s.then, lines, margin)
        else:
            lines.append(f"{margin}if ({condition}) {{")
            self.block(s.then, lines, margin + "  ")
            lines.append(f"{margin}}}")
        if self.copies:
            lines.append(f"{margin}te_copies_commit();")

    def product(self, s: For) -> Product | None:
        """What a loop is on tensor cores, if anything."""
        if self.team is None or self.team.shape[0] % WARP or any(n > 1 for n in self.team.shape[1:]):
            return None
        shared = {name: self.extents(self.buffers[name]) for name, home in self.team.homes.items() if home == "shared"}
        pitch = {name: tuple(prod(extents[k + 1 :]) for k in range(len(extents))) for name, extents in shared.items()}
        found = product_of(s, self.team.homes, pitch, self.nest.precision)
        return found if found is not None and integer(found.lane.stop) == self.team.shape[0] else None

    def fragment(self, name: str) -> str:
        """A new name for what a lane holds of a buffer."""
        return self.word(f"{name} fragment {self.temporaries}".replace(" ", "_"))

    def extents(self, buffer: Buffer) -> list[int]:
        """How long the axes of a local buffer are kept."""
        extents = [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
        home = None if self.team is None else self.team.homes.get(buffer.name)
        row = extents[-1] * buffer.dtype.itemsize if extents else 0
        cores = buffer.dtype.itemsize == 2 or (buffer.dtype is dtypes.float32 and self.nest.precision == "tf32")
        if home == "shared" and len(extents) > 1 and (row % BANKS == 0 or (cores and row % 32 == 0)):
            # Threads that go down a column meet different banks; of single numbers of four bytes, so do those that go across four rows.
            alone = cores and buffer.dtype.itemsize == 4 and extents[-1] > WARP // 2
            extents[-1] += (2 if alone else 1) * ALIGNMENT // buffer.dtype.itemsize
        return extents[:-1] if home == "lane" else extents

    def declaration(self, buffer: Buffer) -> str:
        """A local buffer: an array of a thread or of the block."""
        self.buffers[buffer.name] = buffer
        shared = "__shared__ __align__(16) " if self.team is not None and self.team.homes.get(buffer.name) == "shared" else ""
        shape = "".join(f"[{n}]" for n in self.extents(buffer))
        return f"{shared}{memory_type(buffer.dtype)} {self.word(buffer.name)}{shape}"

    def lanes(self, s: For, team: Team, lines: list[str], margin: str) -> None:
        """A loop over lanes, which are the threads of the block: those beyond the last leave it out, or each runs several."""
        start, stop = integer(s.start), integer(s.stop)
        name, axis = self.word(s.index, "thread"), THREADS_OF.index(s.kind) if s.kind in THREADS_OF else 0
        threads = team.shape[axis]
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, True, start, stop - 1)
        first = f"(int)threadIdx.{'xyz'[axis]}" + (f" + {start}" if start else "")
        if isinstance(s, Warps):
            lines += [f"{margin}{{", f"{margin}  const int {name} = (int)(threadIdx.x % {WARP}u);"]
        elif stop - start > threads:
            lines.append(f"{margin}for (int {name} = {first}; {name} < {stop}; {name} += {threads}) {{")
        elif stop - start == threads:
            lines += [f"{margin}{{", f"{margin}  const int {name} = {first};"]
        else:
            lines.append(f"{margin}if (const int {name} = {first}; {name} < {stop}) {{")
        outermost, self.in_lanes = not self.in_lanes, True
        self.block(s.body, lines, margin + "  ")
        lines.append(f"{margin}}}")
        self.in_lanes = not outermost

    def pack(self, s: For, made: Packed, lines: list[str], margin: str) -> None:
        """A loop over neighboring elements with their loads before and their stores after it."""
        lanes = integer(s.stop)
        for one in (*made.loads, *made.stores):
            dtype = self.buffers[one.buffer].dtype
            self.words[one.name] = one.name
            self.buffers[one.name] = Buffer(one.name, dtype, (s.stop,), "local")
            lines.append(f"{margin}{memory_type(dtype)} {one.name}[{lanes}];")
        for one in made.loads:
            before: list[str] = []
            place = self.emitter(frozenset(), before).place(one.buffer, one.first)
            lines += [*(margin + line for line in before), f"{margin}te_load({one.name}, &{place});"]
        name = self.word(s.index)
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, True, 0, lanes - 1)
        lines += [f"{margin}#pragma unroll", f"{margin}for (int {name} = 0; {name} < {lanes}; ++{name}) {{"]
        self.block(made.body, lines, margin + "  ")
        lines.append(f"{margin}}}")
        for one in made.stores:
            place = self.emitter(frozenset(), lines).place(one.buffer, one.first)
            lines.append(f"{margin}te_store(&{place}, {one.name});")

    def copy(self, store: Store, source: Access, size: int, lines: list[str], margin: str) -> None:
        """Some bytes to shared memory, which arrive by themselves: every barrier waits for them first."""
        self.copies = True
        before: list[str] = []
        emitter = self.emitter(wanted_names((*store.indices, *source.indices)), before)
        to, from_ = emitter.place(store.buffer, store.indices), emitter.place(source.tensor, source.indices)
        lines += [*(margin + line for line in before), f"{margin}te_copy_async<{size}>(&{to}, &{from_});"]

    def loop(self, s: For, lines: list[str], margin: str) -> None:
        before: list[str] = []
        emitter = self.emitter(frozenset(), before)
        start, stop = emitter.value(s.start), emitter.value(s.stop)
        lines += [margin + line for line in before]
        low, high = start.low, None if stop.high is None else stop.high - 1
        # The index ends at its stop, which it must also hold.
        narrow = start.narrow and stop.narrow and v.fits(low, None if high is None else high + 1)
        name = self.word(s.index)
        self.scope[s.index] = Value(name, dtypes.int64, v.ATOM, narrow, low, high)
        if s.kind == "vectorize" and self.team is not None and self.in_lanes:
            rows = {name: self.extents(self.buffers[name])[-1] for name, home in self.team.homes.items() if home == "shared"}
            copy = copied(s, self.buffers, {name: n for name, n in rows.items()})
            if copy is not None:
                self.copy(*copy, lines, margin)
                return
        found = packed(s, self.buffers, iter(self.temporary, None)) if s.kind == "vectorize" else None
        if found is not None:
            self.pack(s, found, lines, margin)
            return
        if s.kind in ("unroll", "vectorize"):
            lines.append(f"{margin}#pragma unroll")
        type_ = "int" if narrow else "int64_t"
        lines.append(f"{margin}for ({type_} {name} = {start.text}; {name} < {stop.inside(v.ORDER + 1)}; ++{name}) {{")
        outside, self.under_way = self.under_way, max(0, stages_ahead(s) - 2)
        self.block(s.body, lines, margin + "  ")
        self.under_way = outside
        lines.append(f"{margin}}}")
