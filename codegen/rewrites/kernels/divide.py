"""The rewrite `divide`: an axis of a buffer as several, whose places are digits of its own.

    p: local(f32[32])                               p: local(f32[2, 4, 4])
    for j in range(0, 8):                           for j in range(0, 8):
        for k in range(0, 4):           -->             for k in range(0, 4):
            p[j*4 + k] = x[j, k]                            p[j//4, k, j % 4] = x[j, k]

The last of the axes are as long as the caller says, the first has what is left; `order` puts them another way round, here `(0, 2, 1)`. What
each iteration of some loop needs then stands along one axis: the lanes of a vector, the threads of a block. Always legal for a buffer that
a nest has for itself and whose elements are named by an index for each axis. Values keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, floordiv, normal
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest
from tensorexpr.codegen.nest.walks import map_accesses, map_statements
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import declared, touched
from tensorexpr.ir import Access, Expr, apply, const
from tensorexpr.records import replace


def divide(nest: LoopNest, buffer: str, axis: int, lengths: Sequence[int], order: Sequence[int] | None = None) -> LoopNest:
    """The nest with an axis of a buffer, local or in the workspace, as one more than there are `lengths`, which stand in an `order`.

    Raises `ScheduleError` for lengths or an order that are none, for inputs and results, and for elements named by their position.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8, 4])
    ... y: parameter(f32[32], written)
    ...
    ... def kernel_0() -> y:
    ...     p: local(f32[32])
    ...     for j in range(0, 8):
    ...         for k in range(0, 4):
    ...             p[j * 4 + k] = x[j, k]
    ...     for i in range(0, 32):
    ...         y[i] = p[i]
    ... ''')
    >>> print(divide(nest, "p", 0, (4, 4), (0, 2, 1)))
    main(x, y)
    x: parameter(f32[8, 4])
    y: parameter(f32[32], written)
    <BLANKLINE>
    def kernel_0() -> y:
        p: local(f32[2, 4, 4])
        for j in range(0, 8):
            for k in range(0, 4):
                p[(j * 4 + k) // 16, k % 4, j + k // 4 - (j * 4 + k) // 16 * 4] = x[j, k]
        for i in range(0, 32):
            y[i] = p[i // 16, i % 4, i // 4 - i // 16 * 4]
    <BLANKLINE>
    """
    own = [declared(nest, one) for one in touched(nest, buffer)]
    if any(b.memory == "parameter" for b in own) or any(s.call is not None for _, s in walk_nest(nest) if isinstance(s, For)):
        raise refuse(f"expected a buffer that only statements of {nest.name} need, got {buffer}")
    rank = min(len(b.shape) for b in own)
    if not 0 <= axis < rank:
        raise refuse(f"expected an axis of {buffer} from 0 to {rank - 1}, got {axis}")
    if not lengths or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in lengths):
        raise refuse(f"expected positive ints as the lengths of axes of {buffer}, got {list(lengths)}")
    places = list(range(len(lengths) + 1)) if order is None else list(order)
    if sorted(places) != list(range(len(lengths) + 1)):
        raise refuse(f"expected the axes 0 to {len(lengths)}, each once, as the order of those of {buffer}, got {places}")

    def digits(index: Expr) -> list[Expr]:
        found = [floordiv(index, prod(lengths))]
        found += [_remainder(floordiv(index, prod(lengths[n + 1 :])), length) for n, length in enumerate(lengths)]
        return [found[place] for place in places]

    def element(access: Access) -> Access:
        if access.tensor != buffer:
            return access
        if len(access.indices) != rank:
            raise refuse(f"expected elements of {buffer} by an index for each axis, got one by its position")
        return replace(access, indices=(*access.indices[:axis], *digits(access.indices[axis]), *access.indices[axis + 1 :]))

    def shaped(b: Buffer) -> Buffer:
        if b.name != buffer:
            return b
        extents = [floordiv(add(b.shape[axis], const(prod(lengths) - 1)), prod(lengths)), *map(const, lengths)]
        return replace(b, shape=(*b.shape[:axis], *(extents[place] for place in places), *b.shape[axis + 1 :]))

    kernels = tuple(replace(kernel, body=_declared(map_accesses(kernel.body, element), shaped)) for kernel in nest.kernels)
    return replace(nest, kernels=kernels, workspace=tuple(map(shaped, nest.workspace)))


def _remainder(index: Expr, length: int) -> Expr:
    known = constant(index)
    return const(known % length) if known is not None else normal(apply("mod", index, const(length)))


def _declared(block: Block, shaped: Callable[[Buffer], Buffer]) -> Block:
    """A block with its buffers declared otherwise."""
    return map_statements(block, lambda s: (Alloc(shaped(s.buffer), _declared(s.body, shaped)),) if isinstance(s, Alloc) else None)
