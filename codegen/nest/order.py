"""The order of kernels that needs less memory: what reads a large buffer last stands near what wrote it.

The gradients of the weights of a network are results, which nothing reads. A program may have them all behind that of the last layer, and
what they are made of is alive until then. So, in one walk over the kernels in order,

- one whose writes nobody reads, or that is far behind all that it depends on, moves up to directly behind the last of these;
- one that needs arguments alone stands before the first that reads what it writes;
- nothing moves up past a kernel that checks data, since what is behind it may count on what was found.

The order is taken where it needs less: `LEAST` bytes at once, and an eighth of what was alive at once before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tensorexpr.codegen.nest.program import Check, Kernel, LoopNest
from tensorexpr.codegen.nest.walks import statements, written
from tensorexpr.ir import Const, integer
from tensorexpr.records import replace

FAR = 14
"""So many kernels behind what it depends on, one moves up though others read what it writes."""
LEAST = 1 << 20


def sparing(nest: LoopNest) -> LoopNest:
    """The nest with its kernels in an order that needs clearly less workspace at once, or the nest as it is."""
    sizes = {
        b.name: b.dtype.itemsize * prod(map(integer, b.shape))
        for b in nest.workspace
        if all(isinstance(extent, Const) for extent in b.shape)
    }
    if sum(sizes.values()) < LEAST or len(nest.kernels) < 3:
        return nest
    kernels = _ordered(nest.kernels)
    before, after = _most_alive(nest.kernels, sizes), _most_alive(kernels, sizes)
    return replace(nest, kernels=kernels) if before - after >= max(LEAST, before // 8) else nest


def _ordered(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    writes = [written(kernel.body).intersection(kernel.buffers) for kernel in kernels]
    ends = {name: number for number, kernel in enumerate(kernels) for name in kernel.buffers}
    keys: list[int] = []
    early: dict[int, set[str]] = {}  # kernels that need arguments alone, and what they write
    touches: dict[str, list[int]] = {}  # the kernels that touch what kernels write, up to here
    barrier = -1
    for number, kernel in enumerate(kernels):
        key = number
        if any(isinstance(s, Check) for s in statements(kernel.body)):
            barrier = number
        else:
            before = {n for name in kernel.buffers for n in touches.get(name, ()) if name in writes[number] or name in writes[n]}
            is_last = all(ends[name] == number for name in writes[number])
            if not before and not is_last:
                early[number] = writes[number]
            elif before:
                last = max(barrier, *(keys[n] for n in before.difference(early) or before))
                key = last if is_last or number - last > FAR else number
        keys.append(key)
        for name in kernel.buffers:
            touches.setdefault(name, []).append(number)
    places = [(key, number, number) for number, key in enumerate(keys)]
    for number in reversed(early):
        key, reader, _ = min(places[n] for name in early[number] for n in touches[name] if n > number)
        places[number] = key, reader, number  # less than the reader's
    return tuple(kernels[number] for number in sorted(range(len(kernels)), key=places.__getitem__))


def _most_alive(kernels: Sequence[Kernel], sizes: Mapping[str, int]) -> int:
    """The most bytes that are alive at once: a buffer is from the first kernel that names it to the last."""
    ends = {name: number for number, kernel in enumerate(kernels) for name in kernel.buffers if name in sizes}
    alive = most = 0
    seen: set[str] = set()
    for number, kernel in enumerate(kernels):
        named = [name for name in kernel.buffers if name in sizes]
        alive += sum(sizes[name] for name in named if name not in seen)
        seen.update(named)
        most = max(most, alive)
        alive -= sum(sizes[name] for name in named if ends[name] == number)
    return most
