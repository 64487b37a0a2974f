"""Kernels that go through one batch, an element of it at a time: what they share stays in the caches, and of what lies between them there
is one element for each core.

    def kernel_0() -> p:                            def kernel_0() -> y:
        for i in parallel(range(0, 32)):                for slot in parallel(range(0, 2)):
            p[i, ...] = f(x, i)                             for i in range(slot * 16, slot * 16 + 16):
    def kernel_1() -> y:                     -->                p[slot, ...] = f(x, i)
        for i in parallel(range(0, 32)):                        y[i, ...] = g(p, slot, i)
            y[i, ...] = g(p, i)

The gradient of an attention is such a row of kernels: scores, weights and their adjoints are matrices of each head, and no head asks for
what is of another. Two kernels are one where their outermost loops go over one range, and whatever one of them writes and the other touches
is only touched at the loop's own index, always along the same axis: then an iteration needs nothing of another one. Kernels between them
stay in front or come behind where neither side touches what the other writes.

It is done where the two share more than a core's own cache holds, and an element of the batch is small. Values keep their bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from tensorexpr.codegen.nest.names import NestNames
from tensorexpr.codegen.nest.program import Alloc, Block, Buffer, Check, For, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside, map_accesses, map_expressions, statements, written
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, const, integer
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, fresh_name, substitute, walk

LEAST = 8
"""Iterations from which on a batch has work for all cores."""
MOST_EACH = 1 << 24
"""Bytes of what lies between kernels for one element, up to which it is near: a share of the last cache."""
MOST_WORK = 256
"""Operations per byte of what two kernels share up to which it matters that it goes through memory."""
MOST_MEMBERS = 16
"""Kernels of one batch: each is code that is compiled as one."""
ON_STACK = 1 << 14
"""Bytes of what an iteration keeps up to which it stands on the stack."""
MOST_SLOTS = 1 << 22
"""Bytes of all slots up to which there are two for each core, so that one that is held up gets less to do."""

Range = tuple[Expr, Expr]


@record(eq=False)
class _Batch:
    """A kernel that is one loop over a batch: the loop, that over slots around it, if there is one, its range, the axes along which
    buffers are touched at the loop's index alone, those that have an element for each slot, what it writes, its operations, and of how
    many kernels it was made."""

    kernel: Kernel
    loop: For
    slots: For | None
    range: Range
    length: int
    own: Mapping[str, frozenset[int]]
    in_slots: frozenset[str]
    written: frozenset[str]
    work: float
    members: int = 1


def batched(nest: LoopNest, near: int, cores: int, usual: Mapping[str, int]) -> LoopNest:
    """The nest with kernels over one batch as one, where they share more than the `near` bytes of a core's own cache; of what is open, at
    its `usual` sizes."""
    buffers = {b.name: b for b in (*nest.parameters, *nest.workspace)}
    sizes = {name: _bytes(b, usual) for name, b in buffers.items()} | {c.name: c.data.nbytes for c in nest.constants}
    large = [k for k in nest.kernels if sum(sizes.get(name, 0) for name in k.buffers) > near]
    over = {k: found[2] for k in large if (found := _over_batch(k, usual)) is not None}
    ranges: Counter[Range | None] = Counter(over.values())
    made: list[Kernel | _Batch] = [(_batch(k, usual) if ranges[over.get(k)] > 1 else None) or k for k in nest.kernels]
    wrote: dict[Kernel, set[str]] = {}
    start: int | None = 1
    while start is not None:
        start = _joined(made, start, sizes, near, wrote)
    if len(made) == len(nest.kernels):
        return nest
    users: dict[str, int] = {}
    for one in made:
        for name in _kernel(one).buffers:
            users[name] = users.get(name, 0) + 1
    private = {b.name: b for b in nest.workspace if users.get(b.name) == 1}
    kernels: list[Kernel] = []
    for one in made:
        if isinstance(one, _Batch) and one.members > 1:
            kernel, changed = _kept(nest, one, private, cores, usual)
            buffers |= changed
            kernels.append(kernel)
        else:
            kernels.append(_kernel(one))
    used = {name for kernel in kernels for name in kernel.buffers}
    return replace(nest, kernels=tuple(kernels), workspace=tuple(buffers[b.name] for b in nest.workspace if b.name in used))


def _kernel(one: Kernel | _Batch) -> Kernel:
    return one.kernel if isinstance(one, _Batch) else one


def _bytes(buffer: Buffer, usual: Mapping[str, int]) -> int:
    """The bytes of a buffer at some sizes."""
    return buffer.dtype.itemsize * prod(extent_value(e, usual) for e in buffer.shape)


def _length(range: Range, usual: Mapping[str, int]) -> int:
    return extent_value(range[1], usual) - extent_value(range[0], usual)


def _over_batch(kernel: Kernel, usual: Mapping[str, int]) -> tuple[For, For | None, Range] | None:
    """The loop over a batch that is all of a kernel, that over slots around it, and the range of both; None where it is something else."""
    loop, slots = kernel.body[0] if len(kernel.body) == 1 else None, None
    if not isinstance(loop, For) or loop.kind != "parallel":
        return None
    if len(loop.body) == 1 and isinstance(loop.body[0], For) and _depends(loop.body[0], loop.index):
        loop, slots = loop.body[0], loop
    ends = _range(loop, slots)
    return None if ends is None or _length(ends, usual) < LEAST else (loop, slots, ends)


def _batch(kernel: Kernel, usual: Mapping[str, int]) -> _Batch | None:
    """A kernel over a batch; None where it calls instructions, or checks data: the first failure is told."""
    found = _over_batch(kernel, usual)
    inside = tuple(statements(kernel.body))
    if found is None or any(isinstance(s, Check) or (isinstance(s, For) and s.call is not None) for s in inside):
        return None
    loop, slots, ends = found
    in_slots = frozenset(name for name, axes in _own(loop.body, slots.index).items() if axes) if slots is not None else frozenset[str]()
    wrote, work = frozenset(written(kernel.body)), _work(kernel.body, 1.0, usual)
    return _Batch(kernel, loop, slots, ends, _length(ends, usual), _own(loop.body, loop.index), in_slots, wrote, work)


def _depends(loop: For, index: str) -> bool:
    return any(node == Index(index) for e in (loop.start, loop.stop) for node in walk(e))


def _range(loop: For, slots: For | None) -> Range | None:
    """The range of all iterations of a loop, those of all slots together; None where it depends on other loops, or on data."""
    start, stop = loop.start, loop.stop
    if slots is None and isinstance(start, Const) and isinstance(stop, Const):
        return start, stop
    if slots is not None:
        if not isinstance(slots.start, Const) or not isinstance(slots.stop, Const):
            return None
        start = substitute(start, {slots.index: slots.start})
        stop = substitute(stop, {slots.index: const(integer(slots.stop) - 1)})
    first, last = affine_of(start), affine_of(stop)
    if first is None or last is None or free_names(start) or free_names(stop):
        return None
    ends = (const(int(form.constant)) if form.is_constant else end for form, end in ((first, start), (last, stop)))
    return next(ends), next(ends)


def _own(body: Block, index: str) -> dict[str, frozenset[int]]:
    """The axes of each buffer along which statements touch it at an index alone."""
    found: dict[str, frozenset[int]] = {}
    local = {s.buffer.name for s in statements(body) if isinstance(s, Alloc)}
    for s in statements(body):
        touched = [n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]
        for name, indices in (*((a.tensor, a.indices) for a in touched), *(((s.buffer, s.indices),) if isinstance(s, Store) else ())):
            if name not in local:
                axes = frozenset(axis for axis, e in enumerate(indices) if e == Index(index))
                found[name] = found.get(name, axes) & axes
    return found


def _work(block: Block, often: float, usual: Mapping[str, int]) -> float:
    """Operations on elements, over all iterations."""
    count = 0.0
    for s in block:
        if isinstance(s, Store):
            count += often * sum(1 for node in walk(s.value) if isinstance(node, Apply) and node.dtype.is_float)
        ends = _range(s, None) if isinstance(s, For) else None
        times = 1 if not isinstance(s, For) else LEAST if ends is None else max(0, _length(ends, usual))
        count += _work(inside(s), often * times, usual)
    return count


# ------------------------------------------------------------------------------------------------------------------ joining


def _joined(made: list[Kernel | _Batch], start: int, sizes: Mapping[str, int], near: int, wrote: dict[Kernel, set[str]]) -> int | None:
    """Joins the first two kernels that may be one and share enough, the later one from number `start` on, each with the nearest before it;
    the first number that may have a partner then, None where there are no two. What kernels write is kept."""

    def independent(one: Kernel, other: Kernel) -> bool:
        """Whether neither of two kernels touches what the other one writes."""
        for kernel in (one, other):
            if kernel not in wrote:
                wrote[kernel] = written(kernel.body)
        return wrote[one].isdisjoint(other.buffers) and wrote[other].isdisjoint(one.buffers)

    before: dict[Range, list[int]] = {}
    for end, last in enumerate(made):
        if not isinstance(last, _Batch):
            continue
        earlier = before.setdefault(last.range, [])
        for at in reversed(earlier) if end >= start else ():
            host = made[at]
            assert isinstance(host, _Batch)
            if host.own.keys().isdisjoint(last.own) or not _go_together(host, last) or not _pays(host, last, sizes, near):
                continue
            for moved, to, nearest in ((end, at, made[end - 1 : at : -1]), (at, end, made[at + 1 : end])):  # mostly one is in the way
                if all(independent(_kernel(made[moved]), _kernel(one)) for one in nearest):
                    made[to] = _one(host, last)
                    del made[moved]
                    return max(1, at)
        earlier.append(end)
    return None


def _go_together(host: _Batch, last: _Batch) -> bool:
    """Whether an iteration of one kernel needs nothing that another iteration of the other one makes, or changes."""
    if host.range != last.range or host.members + last.members > MOST_MEMBERS:
        return False
    if host.slots is not None and last.slots is not None:
        names = {last.slots.index: Index(host.slots.index)}
        if host.slots.stop != last.slots.stop or substitute(last.loop.start, names) != host.loop.start:
            return False
    both = host.own.keys() & last.own.keys()
    return all(host.own[name] & last.own[name] for name in both & (host.written | last.written))


def _pays(host: _Batch, last: _Batch, sizes: Mapping[str, int], near: int) -> bool:
    """Whether what both touch is more than the near cache holds, that of one iteration is not, and it is waited for."""
    both = [name for name in host.own.keys() & last.own.keys() if host.own[name] & last.own[name]]
    shared = sum(sizes[name] for name in both)
    every = (host.own.keys() | last.own.keys()) - host.in_slots - last.in_slots
    apart = {name for name in every if host.own.get(name, last.own.get(name)) and last.own.get(name, host.own.get(name))}
    each = sum(sizes[name] // host.length for name in apart)
    each += sum(sizes[name] // integer(k.slots.stop) for k in (host, last) if k.slots is not None for name in k.in_slots)
    common = sum(sizes[name] for name in every - apart)
    return near < shared and each <= MOST_EACH and 2 * common <= near and min(host.work, last.work) <= MOST_WORK * shared


def _one(host: _Batch, last: _Batch) -> _Batch:
    """Two kernels as one."""
    taken = {s.index for k in (host, last) for s in statements(k.loop.body) if isinstance(s, For)}
    index = fresh_name(host.loop.index, taken)
    around = host.slots or last.slots
    slot = None if around is None else fresh_name(around.index, {*taken, index})
    bodies = (_renamed(k, index, slot) for k in (host, last))
    loop = replace((host if host.slots or not last.slots else last).loop, index=index, body=tuple(s for body in bodies for s in body))
    if around is not None and slot is not None:
        old = {around.index: Index(slot)}
        loop = replace(loop, start=substitute(loop.start, old), stop=substitute(loop.stop, old))
        around = replace(around, index=slot, body=(loop,))
    names = dict.fromkeys((*host.kernel.name.split(" "), *last.kernel.name.split(" ")))
    kernel = Kernel(" ".join(names), (loop if around is None else around,))
    own = {n: host.own.get(n, last.own.get(n, frozenset())) & last.own.get(n, host.own.get(n, frozenset())) for n in (*host.own, *last.own)}
    in_slots, wrote, work = host.in_slots | last.in_slots, host.written | last.written, host.work + last.work
    return _Batch(kernel, loop, around, host.range, host.length, own, in_slots, wrote, work, host.members + last.members)


def _renamed(one: _Batch, index: str, slot: str | None) -> Block:
    """The body of a batch's loop under other names of its loops."""
    names = {one.loop.index: index} | ({one.slots.index: slot} if one.slots is not None and slot is not None else {})
    if all(old == new for old, new in names.items()):
        return one.loop.body
    own = {s.buffer.name for s in statements(one.loop.body) if isinstance(s, Alloc)}
    return NestNames({name: name for name in (*one.kernel.buffers, *own)}, names, 0).block(one.loop.body)


# ------------------------------------------------------------------------------------------------------- what lies between


def _kept(
    nest: LoopNest, one: _Batch, private: Mapping[str, Buffer], cores: int, usual: Mapping[str, int]
) -> tuple[Kernel, dict[str, Buffer]]:
    """The kernel with one element, for each core, of each buffer that it alone uses, and the buffers that changed."""
    loop, slots, changed = one.loop, one.slots, {}
    mine = {name: min(axes) for name, axes in one.own.items() if axes and name in private and _bytes(private[name], usual)}
    sizes = {name: _bytes(private[name], usual) // one.length for name in mine}
    known = {name for name, axis in mine.items() if all(isinstance(e, Const) for k, e in enumerate(private[name].shape) if k != axis)}
    small = {name for name in known if sizes[name] <= ON_STACK}
    each = sum(size for name, size in sizes.items() if name not in small)
    if each and slots is None:
        count = cores if 2 * cores * each > MOST_SLOTS else 2 * cores
        taken = {s.index for s in statements((loop,)) if isinstance(s, For)}
        taken |= {*nest.sizes, *(b.name for b in (*nest.parameters, *nest.workspace)), *(c.name for c in nest.constants)}
        index = fresh_name("slot", taken)
        loop = _share(one, index, count)
        slots = For(index, const(0), const(count), (loop,), "parallel")
    body = loop.body
    for name, axis in mine.items():
        shape = (*private[name].shape[:axis], *private[name].shape[axis + 1 :])
        first: tuple[Expr, ...] = ()
        if name not in small:
            assert slots is not None
            first, shape = (Index(slots.index),), (slots.stop, *shape)
            changed[name] = replace(private[name], shape=shape)
        body = _placed(body, name, axis, first)
        if name in small:
            body = (Alloc(replace(private[name], shape=shape, memory="local"), body),)
    loop = replace(loop, body=body)
    return replace(one.kernel, body=(loop if slots is None else replace(slots, body=(loop,)),)), changed


def _share(one: _Batch, index: str, count: int) -> For:
    """The share of a slot: iterations beside each other; of a batch whose length is open every so many-th one, which is affine."""
    start, stop = one.range
    slot, whole, length = Index(index), one.length % count == 0, const(one.length)
    if not isinstance(start, Const) or not isinstance(stop, Const):
        first = _sum(slot, start)
        rounds = apply("floordiv", apply("add", apply("sub", stop, first), const(count - 1)), const(count))
        names = {one.loop.index: apply("add", apply("mul", Index(one.loop.index), const(count)), first)}
        body = map_expressions(one.loop.body, lambda e: substitute(e, names))
        return replace(one.loop, start=const(0), stop=rounds, kind="serial", body=body)

    def begin(place: Expr) -> Expr:
        share = apply("mul", place, const(one.length // count)) if whole else apply("floordiv", apply("mul", place, length), const(count))
        return _sum(share, start)

    return replace(one.loop, start=begin(slot), stop=begin(apply("add", slot, const(1))), kind="serial")


def _sum(a: Expr, b: Expr) -> Expr:
    return a if b == const(0) else apply("add", a, b)


def _placed(block: Block, buffer: str, axis: int, first: Sequence[Expr]) -> Block:
    """Statements with other places in a buffer: without an axis, with others in front."""

    def place(access: Access) -> Access:
        others = (*first, *access.indices[:axis], *access.indices[axis + 1 :])
        return replace(access, indices=others) if access.tensor == buffer else access

    return map_accesses(block, place)
