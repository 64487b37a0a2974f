"""The loop nest IR: what a schedule is lowered to, and all that the emitters of LLVM and CUDA ever see.

Statements are few: `For, If, Store, Alloc, Check`, over the scalar nodes of the program IR (`Const, Index, Size, Access,
Apply, Cast`; reductions have become loops over accumulators). Buffers are known by name: `Access.tensor` and
`Store.buffer` name a `Buffer` of the nest, with one index per axis of the buffer, or with one alone: the row-major position.
Elements are indexed, not bytes; layout is row-major.

A nest is a list of `Kernel`s run one after the other: on a CPU one entry point runs all of them, on a GPU each is a
launch. A loop's kind says how it runs; all kinds give the result of running it serially:

- serial: one after the other, in order.
- parallel: iterations in any order on any thread (around it there are serial loops at most; iterations are independent).
- vectorize: all iterations at once in the lanes of a vector; start is constant and the extent is the constant lane count.
- unroll: copied out; the extent is a constant.
- tensorize: one instruction of the machine does what the loop says (an emitter that does not know it runs the loop).
- block.x, ..., thread.z: the blocks of a GPU's grid (outermost in their kernel, each axis once) and the threads of a block.
- warp: as vectorize, in the lanes of one warp of a GPU: up to 32 iterations, which need no barrier among each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.dtypes import DType
from tensorexpr.errors import Location, OutOfBoundsError
from tensorexpr.ir import Access, Constant, Expr
from tensorexpr.ir.nodes import Node
from tensorexpr.markup import amount, code, listed, page
from tensorexpr.records import field, record
from tensorexpr.traversal import walk

GRID = ("block.x", "block.y", "block.z")
THREADS = ("thread.x", "thread.y", "thread.z")
IN_WARP = "warp"
WARP_LANES = 32
"""Threads of a warp."""
MOST_THREADS = 1024
"""Threads of a block, along all of its axes."""
MOST_DEEP = 64
"""Threads of a block along its third axis."""
MOST_BLOCKS = (1 << 16) - 1
"""Blocks along the second and third axis of a grid; along the first there may be 2^31 - 1."""
LANES = ("vectorize", IN_WARP)
"""Kinds of loops whose iterations run at once, in lanes."""
LOOP_KINDS = ("serial", "parallel", "vectorize", "unroll", "tensorize", *GRID, *THREADS, IN_WARP)
MEMORIES = ("parameter", "constant", "workspace", "local")


@record(eq=False)
class Buffer(Node):
    """Storage with a shape (int64 expressions over sizes, constants and, for local memory, nothing else).

    `memory` is "parameter" (an argument of the entry point), "constant" (data of the program), "workspace" (temporary,
    shared by all kernels of the nest, uninitialized, allocated per call) or "local" (private to one iteration around its
    `Alloc`: registers where indices are constants after unrolling and vectorizing, else the stack; what has no constant shape is
    moved to the workspace before code is made of it).
    Of integers that the nest writes itself, `within` may say between which two values (both included) every element is.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    memory: str
    within: tuple[int, Expr] | None = None


class Stmt(Node):
    """A statement; blocks are tuples of statements."""

    __slots__ = ()


Block = tuple[Stmt, ...]


@record(eq=False)
class Call(Node):
    """An instruction: its name, its LLVM IR as the body of a function of pointers, the functions that this declares, and for each
    pointer (`names`) the first element of an operand."""

    name: str
    names: tuple[str, ...]
    operands: tuple[Access, ...]
    body: str
    declarations: tuple[tuple[str, str], ...] = ()


@record(eq=False)
class For(Stmt):
    """`body` for index = start, ..., stop - 1. Bounds may use outer indices (non-rectangular nests). `call` is the instruction of a
    tensorized loop."""

    index: str
    start: Expr
    stop: Expr
    body: Block
    kind: str = "serial"
    call: Call | None = None


@record(eq=False)
class If(Stmt):
    """`then` where the condition holds, else `otherwise`."""

    condition: Expr
    then: Block
    otherwise: Block = ()


class Ahead(If):
    """Copies for one iteration of a loop, made before it runs: they may arrive later, those of one such statement together."""

    __slots__ = ()


@record(eq=False)
class Filled(If):
    """A condition that leaves out products of an element of the buffer `tile` that is zero where it fails: whether they are added up or
    not matters only where the other factor is infinite or no number."""

    tile: str = ""


@record(eq=False)
class Store(Stmt):
    """`buffer[indices] = value`, of the buffer's dtype."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr


@record(eq=False)
class Alloc(Stmt):
    """A local buffer, uninitialized, that lives in `body`."""

    buffer: Buffer
    body: Block


@record(eq=False)
class Check(Stmt):
    """Where `0 <= index < extent` fails: record (number of this check, index, extent) as the call's error and leave the
    kernel; the call then raises an IndexError that names operation, index and extent. `check` indexes `LoopNest.checks`."""

    index: Expr
    extent: Expr
    check: int


@record
class CheckSite:
    """What to say when a check fails: the access as text, its tensor, the axis, the definition that reads, the user's line, and whether the
    index is an unsigned integer of 64 bits, which the check has as a signed one."""

    access: str
    tensor: str
    axis: int
    definition: str
    location: Location | None
    unsigned: bool = False

    def failed(self, index: int, extent: int) -> OutOfBoundsError:
        """The error of the check at an index, for an axis of this extent."""
        index = index + 2**64 if self.unsigned and index < 0 else index
        return OutOfBoundsError(
            f"{self.definition}: expected an index of {self.tensor} from 0 to {extent - 1}, got {index}"
            if extent
            else f"{self.definition}: expected no access to {self.tensor}, which has no elements, got index {index}",
            term=self.access,
            location=self.location,
            at=f"axis {self.axis} of {self.tensor}",
            hint="clip the index, or read with outside=...",
        )


@record(eq=False, weakrefs=True)
class Kernel(Node):
    """One parallel region: a name (the definitions it computes) and statements, at most the outermost loops parallel.

    Where its parallel loops run `together` there is nothing else, and none of them touches what another writes: their iterations
    run in any order. A kernel may be known to be `like` another one: equal to it but for the names of buffers, which are given by name
    there. Nobody has to know it; emitters write such kernels once.
    """

    name: str
    body: Block
    together: bool = False
    like: tuple[Kernel, Mapping[str, str]] | None = field(default=None, init=False, compare=False, repr=False)
    _buffers: tuple[str, ...] | None = field(default=None, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def made_like(self, other: Kernel, names: Mapping[str, str]) -> Kernel:
        """This kernel, which is `other` with buffers under other names: what is made of it by a change is like nothing."""
        object.__setattr__(self, "like", (other, names))
        return self

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers that it reads or writes and does not allocate, in order of first occurrence."""
        if self._buffers is None:
            found = buffers_of(self.body) if self.like is None else tuple(self.like[1][name] for name in self.like[0].buffers)
            object.__setattr__(self, "_buffers", found)
        return self._buffers  # type: ignore[return-value]  # set two lines above


@record(eq=False)
class LoopNest(Node):
    """A whole function: parameters in calling order (inputs, then outputs), constants, workspace, kernels in order.

    `sizes` are symbolic extents; entry point and emitters take them as int64 values in this order. `writes` names the
    parameters that are outputs, `streams` those of them that are written past the caches: nothing here reads them; `ahead` says
    of inputs and indices how many elements ahead they, and what is read through them, are fetched. Constants carry their data.
    With `precision` "tf32" sums of products may round
    their factors of float32 to it, where that is an instruction. Elements of `atomics` are updated (`b[i] = b[i] + v`, also by product,
    maximum, minimum) by several iterations of a parallel loop: each update is one piece, and they come in any order. `tensor_cores` says
    whether the GPU has the instructions for products of matrices that we emit, `warpgroups` whether it has those of four warps together.
    While it is made in two forms (`rewrites/kernels/versions.py`), sizes are at `least` so large, and `rest` is the other form.
    """

    name: str
    parameters: tuple[Buffer, ...]
    constants: tuple[Constant, ...]
    workspace: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    writes: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    checks: tuple[CheckSite, ...] = ()
    streams: tuple[str, ...] = ()
    ahead: tuple[tuple[str, int], ...] = ()
    precision: str = "float32"
    atomics: tuple[str, ...] = ()
    tensor_cores: bool = True
    warpgroups: bool = False
    least: tuple[tuple[str, int], ...] = ()
    rest: LoopNest | None = None

    def __str__(self) -> str:
        from tensorexpr.codegen.nest.text import print_nest  # noqa: PLC0415

        return print_nest(self)

    def __repr__(self) -> str:
        return f"<nest of {amount(len(self.kernels), 'kernel')}: {listed([kernel.name for kernel in self.kernels])}>"

    def _repr_html_(self) -> str:
        from tensorexpr.codegen.nest.picture import picture  # noqa: PLC0415

        return page(code(repr(self)), picture(self))


def buffers_of(body: Block) -> tuple[str, ...]:
    """Names of the buffers that statements read or write and do not allocate, in order of first occurrence."""
    found: dict[str, None] = {}
    _note_buffers(body, frozenset(), found)
    return tuple(found)


def _note_buffers(body: Block, local: frozenset[str], found: dict[str, None]) -> None:
    for s in body:
        match s:
            case For():
                _note_read((s.start, s.stop), local, found)
                _note_buffers(s.body, local, found)
            case If():
                _note_read((s.condition,), local, found)
                _note_buffers((*s.then, *s.otherwise), local, found)
            case Alloc():
                _note_buffers(s.body, local | {s.buffer.name}, found)
            case Store():
                if s.buffer not in local:
                    found.setdefault(s.buffer)
                _note_read((*s.indices, s.value), local, found)
            case Check():
                _note_read((s.index, s.extent), local, found)


def _note_read(exprs: tuple[Expr, ...], local: frozenset[str], found: dict[str, None]) -> None:
    for e in exprs:
        for node in walk(e):
            if type(node) is Access and node.tensor not in local:
                found.setdefault(node.tensor)
