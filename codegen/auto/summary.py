"""A loop nest as the model of cost sees it: loops with their mean extents, what is computed and touched in which of them, and no more.

    loops        (i, 16 iterations, parallel), (k, 300), (j, 32, vectorize)
    work         so many instructions of a kind, on elements of so many bytes, changed by loops {i, k}
    touches      x[i + 2 k, j]: by axis of the buffer how far each loop moves, from which offset to which
    chains       a sum that each iteration of {k} adds to: so many instructions one after the other

A search changes summaries, not nests: `split`, `reorder` and `with_kind` give another summary in microseconds, and a summary is evaluated
for many tile sizes at once (`features.Plan`), so loops say where they stand, not how long they are: a loop that was split is two loops over
one *axis*, the inner one moves the axis by 1, the outer one by the extents of those inside. Whether a split is legal is not asked here.

Work is executed as compilers place it: outside of loops that do not change it, once for lanes that share it (`Plan` says how). Extents
are means: of a loop whose bounds depend on outer loops over the iterations of these, so that products of extents are numbers of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensorexpr.records import record, replace

SERIAL, PARALLEL, UNROLL, VECTORIZE = "serial", "parallel", "unroll", "vectorize"
AUTO, PARALLEL_AUTO = "auto", "parallel auto"
"""Kinds of loops; the last two are loops that LLVM makes vectors of by itself. Others (a GPU's) run like serial ones."""

LOAD, STORE, HELD = "load", "store", "held"
"""Kinds of work beside those of `operations`. HELD: a local element is read or written that a register may hold."""
SCALAR = "scalar"
"""Instructions on single integers: indices, conditions."""


class Loop(NamedTuple):
    """A loop over an axis: where it has none inside it over the same axis it moves the axis by 1."""

    name: str
    kind: str
    axis: int
    extent: float
    share: float = 1.0
    """Share of the iterations around in which it runs."""


class Work(NamedTuple):
    """So many instructions of a kind on whole registers of elements of `size` bytes, for each iteration of the loops `path` (outermost
    first) in `changed`; `share` of these iterations come to it."""

    path: tuple[int, ...]
    changed: frozenset[int]
    kind: str
    size: int
    instructions: float
    share: float = 1.0
    stride: float = 1.0
    """Of loads and stores: elements that neighbouring lanes are apart, 0 where they share one, NaN where data says which."""
    aligned: bool = True
    """Whether whole registers that are loaded or stored begin at multiples of their size."""
    meets: tuple[tuple[int, ...], ...] = ()
    """Of loads: copies of loops that move along one axis alike, so that some of them load the same elements (rows of a window)."""


class Touch(NamedTuple):
    """What an access touches: for each axis of the buffer the elements that one step of each *axis of loops* moves, and the offsets from
    the least to the greatest of all accesses that differ in these alone. Loops in `random` jump as data says."""

    path: tuple[int, ...]
    buffer: int
    moves: tuple[tuple[tuple[int, float], ...], ...]
    offsets: tuple[tuple[float, float], ...]
    random: frozenset[int]
    store: bool
    share: float = 1.0
    updates: bool = False
    """Of a store: whether what it overwrites is read as well."""


class Chain(NamedTuple):
    """`additions` and `others` (products, selections), each of which waits for the one before, in each iteration of the loops of the path
    but those in `free`, whose iterations have chains of their own. `memory`: a link goes through memory."""

    path: tuple[int, ...]
    free: frozenset[int]
    additions: float
    others: float
    memory: bool = False
    share: float = 1.0


class Held(NamedTuple):
    """Local elements that registers may hold inside the loops `path`: one for each iteration of the loops `changed` of it."""

    path: tuple[int, ...]
    changed: frozenset[int]
    buffer: int
    size: int


class Memory(NamedTuple):
    """A buffer: bytes of an element, extents, whether it is written past the caches, and whether it is private to an iteration."""

    name: str
    size: int
    extents: tuple[float, ...]
    streamed: bool = False
    local: bool = False


@record
class Summary:
    """A nest, summarised. `kernels` has for each kernel its name; `kernel_of` for each outermost loop position is in the paths: the first
    loop of every path is a loop of one iteration that stands for the kernel."""

    loops: tuple[Loop, ...]
    work: tuple[Work, ...]
    touches: tuple[Touch, ...]
    chains: tuple[Chain, ...]
    held: tuple[Held, ...]
    buffers: tuple[Memory, ...]
    kernels: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...]
    """The path of every loop, itself last: loops by where they stand."""

    def reorder(self, order: Sequence[int]) -> Summary:
        """Loops that stand around the same statements in another order, outermost first: the places that they have are taken in it."""
        if not order:
            return self
        rank = {loop: place for place, loop in enumerate(order)}

        def path(before: tuple[int, ...]) -> tuple[int, ...]:
            own = iter(sorted((x for x in before if x in rank), key=rank.__getitem__))
            return tuple(next(own) if x in rank else x for x in before)

        new = {p[-1]: p for p in (tuple(q) for q in self.parts)}
        deepest = max((self.parts[loop] for loop in order), key=len)
        moved = path(deepest)
        for loop in order:
            new[loop] = moved[: moved.index(loop) + 1]
        return replace(
            self,
            work=tuple(w._replace(path=path(w.path)) for w in self.work),
            touches=tuple(t._replace(path=path(t.path)) for t in self.touches),
            chains=tuple(c._replace(path=path(c.path)) for c in self.chains),
            held=tuple(h._replace(path=path(h.path)) for h in self.held),
            parts=tuple(new[number] if number in rank else path(p) for number, p in enumerate(self.parts)),
        )
