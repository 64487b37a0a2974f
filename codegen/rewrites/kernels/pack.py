"""The rewrite `pack`: a whole buffer in another layout, made once before what reads it.

                                                        for b1_o in range(0, 4):
                                                            for b0 in range(0, 48):
                                                                for b1_i in range(0, 16):
    ... b[k, j] ...                              -->                b_staged[b1_o, b0, b1_i] = b[b0, b1_o*16 + b1_i]
                                                        ... b_staged[j//16, k, j%16] ...

A layout lists the axes in the order of the copy; `(axis, length)` cuts one into blocks: their number stands there, the elements of a block
innermost. Whether the length divides is not asked: the last block has less. Legal for a buffer that is whole before what reads it begins,
and not changed from there on. Values keep their bits."""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, mul
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written, map_own_expressions
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, distinct, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.regions import region
from tensorexpr.codegen.rewrites.touched.covering import is_written
from tensorexpr.codegen.rewrites.touched.places import changed, is_read_by, touched
from tensorexpr.codegen.rewrites.touched.windows import Window
from tensorexpr.ir import Access, Expr, Index, apply, conjunction, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up

Layout = Sequence[int | tuple[int, int]]


def pack(nest: LoopNest, buffer: str, reader: str, layout: Layout, name: str | None = None, loops: Sequence[str] | None = None) -> LoopNest:
    """The nest in which what computes `reader` reads a copy of a buffer in another layout.

    `name` is that of the copy, `loops` those that make it, in order. Raises `ScheduleError` for a layout that is none, and where the buffer
    is not whole before.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[4, 6] = input()
    ... y[i, j]: f32[6, 4] = x[j, i] * 2.0
    ... return y
    ... ''')
    >>> print(pack(named(plain_nest(program)), "x", "y", (1, 0)))
    main(x, y)
    x: parameter(f32[4, 6])
    y: parameter(f32[6, 4], written)
    x_staged: workspace(f32[6, 4])
    <BLANKLINE>
    def kernel_0() -> x_staged:
        for x1 in range(0, 6):
            for x0 in range(0, 4):
                x_staged[x1, x0] = x[x0, x1]
    <BLANKLINE>
    def kernel_1() -> y:
        for i in range(0, 6):
            for j in range(0, 4):
                y[i, j] = x_staged[i, j] * 2.0
    <BLANKLINE>
    """
    original = _head(nest, buffer)
    axes = _layout(original, layout)
    paths = [path for path in region(nest, reader).stores if is_read_by(statement(nest, path), buffer)]
    if not paths:
        raise refuse(f"expected a buffer that what computes {reader} reads, got {buffer}")
    at = min(path[0] for path in paths)
    _check_whole(nest, original, at)
    lengths = {axis: length for axis, length in axes if length is not None}
    cut = [axis for axis, length in axes if length is not None]
    shape = [_blocks(original.shape[axis], length) for axis, length in axes] + [const(lengths[axis]) for axis in cut]
    stems = [f"{buffer}{axis}" + ("" if length is None else "_o") for axis, length in axes] + [f"{buffer}{axis}_i" for axis in cut]
    names = tuple(loops) if loops is not None else fresh(nest, *stems)
    copy = Buffer(name or fresh(nest, f"{buffer}_staged")[0], original.dtype, tuple(shape), "workspace", original.within)
    packed = _Packed(copy, axes, cut, lengths)

    def replaced(path: Path, s: Stmt) -> Block:
        def value(node: Expr) -> Expr:
            if not isinstance(node, Access) or node.tensor != buffer:
                return node
            if len(node.indices) != len(original.shape):
                raise refuse(f"expected elements of {buffer} by an index for each axis, got one by its position", s)
            return packed.element(node.indices)

        return (map_own_expressions(s, lambda expr: bottom_up(expr, value)),)

    nest = changed(nest, paths, replaced)
    kernel = Kernel(copy.name, packed.made(original, names))
    return distinct(replace(nest, kernels=(*nest.kernels[:at], kernel, *nest.kernels[at:]), workspace=(*nest.workspace, copy)))


@record
class _Packed:
    """A copy: its buffer, the axes with the lengths of their blocks, and those that are cut."""

    buffer: Buffer
    axes: tuple[tuple[int, int | None], ...]
    cut: list[int]
    lengths: dict[int, int]

    def element(self, indices: Sequence[Expr]) -> Access:
        """The element of the copy that one of the original is."""
        outer = [indices[axis] if length is None else floordiv(indices[axis], length) for axis, length in self.axes]
        return Access(self.buffer.name, (*outer, *(_within(indices[axis], self.lengths[axis]) for axis in self.cut)), self.buffer.dtype)

    def made(self, original: Buffer, names: Sequence[str]) -> Block:
        """The loops that make the copy."""
        outer = dict(zip((axis for axis, _ in self.axes), names, strict=False))
        inner = dict(zip(self.cut, names[len(self.axes) :], strict=True))

        def index(axis: int) -> Expr:
            return Index(outer[axis]) if axis not in inner else add(Index(inner[axis]), begin(axis))

        def begin(axis: int) -> Expr:
            return mul(Index(outer[axis]), const(self.lengths[axis]))

        source = Access(original.name, tuple(map(index, range(len(original.shape)))), original.dtype)
        there = (*(Index(outer[axis]) for axis, _ in self.axes), *(Index(inner[axis]) for axis in self.cut))
        tests = [apply("lt", index(axis), original.shape[axis]) for axis in self.cut if not self.divides(original, axis)]
        block: Block = (Store(self.buffer.name, there, source),)
        block = (If(conjunction(tests), block),) if tests else block
        for axis in reversed(self.cut):
            block = (For(inner[axis], ZERO, const(self.lengths[axis]), block),)
        for (axis, _), extent in reversed(list(zip(self.axes, self.buffer.shape, strict=False))):
            block = (For(outer[axis], ZERO, extent, block),)
        return block

    def divides(self, original: Buffer, axis: int) -> bool:
        """Whether all blocks of an axis are whole."""
        known = constant(original.shape[axis])
        return known is not None and known % self.lengths[axis] == 0


def _within(index: Expr, length: int) -> Expr:
    known = constant(index)
    return const(known % length) if known is not None else apply("mod", index, const(length))


def _blocks(extent: Expr, length: int | None) -> Expr:
    return extent if length is None else floordiv(add(extent, const(length - 1)), length)


def _head(nest: LoopNest, buffer: str) -> Buffer:
    found = {b.name: b for b in (*nest.parameters, *nest.workspace)}
    found |= {c.name: Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants}
    if buffer not in found:
        local = any(isinstance(s, Alloc) and s.buffer.name == buffer for _, s in walk_nest(nest))
        raise refuse(f"expected a tensor that is kept in memory to copy it whole, got {buffer}", hint="cache, in a loop" if local else None)
    return found[buffer]


def _layout(buffer: Buffer, layout: Layout) -> tuple[tuple[int, int | None], ...]:
    """The axes in the order of a copy, each with the length of its blocks."""
    made = tuple((item, None) if isinstance(item, int) else tuple(item) for item in layout)
    rank = len(buffer.shape)
    if sorted(axis for axis, _ in made) != list(range(rank)):
        raise refuse(f"expected the axes 0 to {rank - 1} of {buffer.name}, each once, got {list(layout)}")
    for _, length in made:
        if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
            raise refuse(f"expected a positive int as the length of blocks of {buffer.name}, got {length!r}")
    return made  # type: ignore[return-value]  # checked above, one by one


def _check_whole(nest: LoopNest, original: Buffer, at: int) -> None:
    """Refuses where a buffer is not whole before a kernel, or changes from there on."""
    if original.memory == "constant" or (original.memory == "parameter" and original.name not in nest.writes):
        return
    if any(original.name in buffers_written(kernel.body) for kernel in nest.kernels[at:]):
        raise refuse(f"expected {original.name} to be whole before what reads it, got it computed in {nest.kernels[at].name}")
    (one,) = touched(nest, original.name)
    first = next((path for path, s in walk_nest(nest) if path[0] == at and len(path) == 2 and isinstance(s, For)), None)
    whole = tuple(Window(ZERO, extent, True) for extent in original.shape)
    if first is None or not is_written(nest, one, first, whole, False):
        raise refuse(f"expected all of {original.name} to be written before it is copied")
