"""The rewrites `assume`, `otherwise` and `either`: a nest in two forms, one for sizes that are long enough for its blocks.

    assume w >= 16                                if w >= 16:
    for i in range(0, w): ...                         for i_o in range(0, (w + 15) // 16): ...
                                       -->        else:
    otherwise                                         for i in range(0, w): ...
    for i in range(0, w): ...

Behind `assume` a nest is for sizes that are at least so large, which rewrites take for known. `otherwise` turns to the nest as it was,
which is for all other sizes, and `either` makes one of both. Always legal: each is for sizes at which the other does not run. Loops and
buffers of the second have names of their own.
"""

from __future__ import annotations

from functools import partial, reduce

from tensorexpr.codegen.nest import Alloc, Buffer, For, If, LoopNest
from tensorexpr.codegen.nest.names import NestNames
from tensorexpr.codegen.nest.walks import expressions_of, statements, stores_in
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Access, Size, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.traversal import fresh_name, negate, walk


def assume(nest: LoopNest, *least: tuple[str, int]) -> LoopNest:
    """rewrite: what follows is for calls at which each of these sizes is at least so large.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> from tensorexpr.codegen.rewrites.loops import split
    >>> nest = parse_nest('''
    ... main(n, x, y)
    ... n: size
    ... x: parameter(f32[n])
    ... y: parameter(f32[n], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, n):
    ...         y[i] = x[i]
    ... ''')
    >>> print(either(otherwise(split(assume(nest, ("n", 4)), "i", 4, "shift"))))
    main(n, x, y)
    n: size
    x: parameter(f32[n])
    y: parameter(f32[n], written)
    <BLANKLINE>
    def kernel_0() -> y:
        if n >= 4:
            for i_o in range(0, (n + 3) // 4):
                for i_i in range(0, 4):
                    y[minimum(i_o * 4, n - 4) + i_i] = x[minimum(i_o * 4, n - 4) + i_i]
    <BLANKLINE>
    def kernel_1() -> y:
        if n < 4:
            for i in range(0, n):
                y[i] = x[i]
    <BLANKLINE>
    """
    if nest.rest is not None:
        raise refuse("expected a nest for all sizes, got one of two")
    for name, size in least:
        if name not in nest.sizes:
            raise refuse(f"expected the name of a size, got {name!r}", hint=suggestion(str(name), nest.sizes))
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise refuse(f"expected a positive int as the least {name}, got {size!r}")
    if not least:
        raise refuse("expected at least one size that is known to be large")
    return replace(nest, least=tuple(least), rest=nest)


def otherwise(nest: LoopNest) -> LoopNest:
    """rewrite: the nest as it was before `assume`; what follows is for calls at which one of the sizes is smaller."""
    if nest.rest is None or not nest.least:
        raise refuse("expected a nest for large sizes, behind assume, got one for all")
    return replace(nest.rest, rest=nest)


def either(nest: LoopNest) -> LoopNest:
    """rewrite: one nest of that for large sizes and that for all others."""
    large = nest.rest
    if large is None or nest.least:
        raise refuse("expected a nest for small sizes, behind otherwise, got another one")
    if any(kernel.together for kernel in (*large.kernels, *nest.kernels)):
        raise refuse("expected kernels that run one after the other, got one whose loops run together")
    holds = conjunction([apply("ge", Size(name), const(size)) for name, size in large.least])
    rename = _apart(nest, large, ())
    kernels = [replace(kernel, body=(If(holds, kernel.body),)) for kernel in large.kernels]
    kernels += [replace(kernel, body=(If(negate(holds), rename.block(kernel.body)),)) for kernel in nest.kernels]
    return replace(
        large,
        kernels=tuple(kernels),
        workspace=(*large.workspace, *map(rename.buffer, nest.workspace)),
        least=(),
        rest=None,
    )


def by_lines(nest: LoopNest, whole: LoopNest, length: int) -> LoopNest:
    """A nest for all sizes, and in place of kernels of it those of `whole` at calls where lines of what they touch are multiples of so many
    elements: of tensors whose last extent is a size. The first nest where the two differ in more than the loops of kernels.

        kernel_0:                            kernel_0:
            for i in range(0, n): ...   -->      if n % 8 == 0: for i_o in ...
                                             kernel_0:
                                                 if n % 8 != 0: for i in range(0, n): ...
    """
    first, second = (([(k.name, k.together) for k in one.kernels], one.workspace, one.checks) for one in (nest, whole))
    if first != second:
        return nest
    last = {b.name: b.shape[-1] for b in (*nest.parameters, *nest.workspace) if b.shape and isinstance(b.shape[-1], Size)}
    rename, kernels = _apart(nest, whole, nest.workspace), []
    for kernel, other in zip(nest.kernels, whole.kernels, strict=True):
        touched = {s.buffer for s in stores_in(other.body)}
        touched |= {n.tensor for s in statements(other.body) for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)}
        lengths = dict.fromkeys(size for name, size in last.items() if name in touched)
        if kernel.together or not lengths or str(replace(nest, kernels=(kernel,))) == str(replace(whole, kernels=(other,))):
            kernels.append(kernel)
            continue
        rests = [apply("mod", size, const(length)) for size in lengths]
        holds, fails = (reduce(partial(apply, join), [apply(op, e, const(0)) for e in rests]) for join, op in (("and", "eq"), ("or", "ne")))
        kernels.append(replace(other, body=(If(holds, other.body),)))
        kernels.append(replace(kernel, body=(If(fails, rename.block(kernel.body)),)))
    return replace(nest, kernels=tuple(kernels))


def _apart(nest: LoopNest, other: LoopNest, shared: tuple[Buffer, ...]) -> NestNames:
    """Names for a nest beside another one of the same parameters and `shared` buffers: its loops and all other buffers have their own."""
    taken = taken_names(other)
    every = taken | taken_names(nest)
    locals_ = [s.buffer.name for _, s in walk_nest(nest) if isinstance(s, Alloc)]
    names = {name: name for name in (*(b.name for b in (*nest.parameters, *shared)), *(c.name for c in nest.constants))}
    for name in (*locals_, *(b.name for b in nest.workspace)):
        if name not in names:
            names[name] = fresh_name(name, every) if name in taken else name
            every.add(names[name])
    indices = {}
    for _, s in walk_nest(nest):
        if isinstance(s, For) and s.index in taken and s.index not in indices:
            indices[s.index] = fresh_name(s.index, every)
            every.add(indices[s.index])
    return NestNames(names, indices, 0)
