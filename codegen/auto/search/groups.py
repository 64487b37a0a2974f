"""Groups: kernels of a plain nest that run in loops of one of them, each a nest of its own while it is searched.

A *member* is a kernel with what it reads and stores. Its *places* are the loops that its indices are, give or take a constant; where all of
a group read at the index of a shared loop, that loop goes *along* with them. `joining` says who joins. Kernels become one where they are
brought next to each other and their loops merged from the outside in:

for i in range(0, n): a[i] = ...                for i in range(0, n):
for i_1 in range(0, n): b[i_1] = ...    -->         a[i] = ...
                                                    b[i] = ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Buffer, For, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_read, stores_in
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.codegen.rewrites.paths import loop_paths
from tensorexpr.dtypes import int64
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Expr
from tensorexpr.records import cached_property, record, replace
from tensorexpr.regions import affine_of

OPEN = 64
"""Iterations that a loop of unknown length counts for."""

Place = tuple[str, int]
"""A loop, and the constant by which an index differs from its own."""


@record(eq=False, slots=False)
class Member:
    """A kernel of the plain nest: the loops around all of it, outermost first, and what it reads and stores."""

    number: int
    kernel: Kernel

    @cached_property
    def loops(self) -> tuple[For, ...]:
        """The loops that stand alone in each other, outermost first."""
        found: list[For] = []
        block = self.kernel.body
        while len(block) == 1 and isinstance(block[0], For):
            found.append(block[0])
            block = block[0].body
        return tuple(found)

    @cached_property
    def reduction(self) -> tuple[For, str] | None:
        """The outermost loop of its reduction and the accumulator, where there is one inside of all other loops."""
        block = self.loops[-1].body if self.loops else self.kernel.body
        if len(block) != 1 or not isinstance(block[0], Alloc):
            return None
        inner = [s for s in block[0].body if isinstance(s, For | Alloc)]
        return (inner[0], block[0].buffer.name) if len(inner) == 1 and isinstance(inner[0], For) else None

    @cached_property
    def reads(self) -> Mapping[str, tuple[Access, ...]]:
        """The elements read, by buffer."""
        found: dict[str, dict[Access, None]] = {}
        for access in elements_read(self.kernel.body):
            found.setdefault(access.tensor, {}).setdefault(access)
        return {name: tuple(accesses) for name, accesses in found.items()}

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """The stores."""
        return tuple(stores_in(self.kernel.body))

    @cached_property
    def stored(self) -> Mapping[str, tuple[Place | None, ...]]:
        """For each buffer stored to the place of each axis; None where stores differ or the index is something else."""
        names = {loop.index for loop in self.loops}
        found: dict[str, tuple[Place | None, ...]] = {}
        for s in self.stores:
            places = tuple(place_of(index, names) for index in s.indices)
            old = found.setdefault(s.buffer, places)
            found[s.buffer] = tuple(a if a == b else None for a, b in zip(old, places, strict=True)) if len(old) == len(places) else ()
        return found


@record(eq=False, slots=False)
class Group:
    """Kernels in their order, the last of which is the root; loops of the root that go along with all of them, in its order, and for each
    member the loop that is each of these. Where there is an `axis`, it is the one loop that is shared, and reductions along it (`sums`) are
    taken apart by blocks of it. Members `beside` the others are read by none of them alone. A `whole` group goes element by element: its
    loops are all of each member's, but for those of reductions; `products` says whether sums that compute much have it for themselves."""

    members: tuple[Member, ...]
    along: Mapping[int, Mapping[str, Place]]
    beside: frozenset[int] = frozenset()
    axis: For | None = None
    sums: frozenset[int] = frozenset()
    whole: bool = False
    products: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal groups of one nest."""
        return tuple(m.number for m in self.members), self.beside, self.axis and self.axis.index, self.sums, self.whole

    @property
    def root(self) -> Member:
        """The member in whose loops the others run."""
        return self.members[-1]

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The loops of the root that go along with all members."""
        if self.axis is not None:
            return (self.axis.index,)
        return tuple(loop.index for loop in self.root.loops if all(loop.index in places for places in self.along.values()))


def place_of(index: Expr, names: set[str]) -> Place | None:
    """The loop that an index is, and the constant between them."""
    form = affine_of(index)
    if form is None or len(form.terms) != 1 or form.terms[0][1] != 1:
        return None
    name = form.terms[0][0]
    return (name, form.constant) if isinstance(name, str) and name in names else None


def extent_of(loop: For) -> int:
    """How many iterations a loop has, `OPEN` where that is not known."""
    length = constant(sub(loop.stop, loop.start))
    return OPEN if length is None else length


def part_of(nest: LoopNest, group: Group, taken: Iterable[str]) -> LoopNest:
    """The kernels of a group alone. What others read of it counts as an output; names that are taken elsewhere stand for buffers that
    nothing touches, so that what is made here has names that nothing else has."""
    own = {member.number for member in group.members}
    elsewhere = {name for number, kernel in enumerate(nest.kernels) if number not in own for name in _read_by(kernel.body)}
    made = {name for member in group.members for name in member.stored}
    kept = tuple(b.name for b in nest.workspace if b.name in made & elsewhere)
    outputs = tuple(name for name in nest.writes if name in made)
    kernels = tuple(member.kernel for member in group.members)
    part = replace(nest, kernels=kernels, writes=(*outputs, *kept))
    others = sorted(set(taken) - taken_names(part))
    return replace(part, workspace=(*part.workspace, *(Buffer(name, int64, (), "workspace") for name in others)))


def joined(nest: LoopNest, parts: Sequence[LoopNest]) -> LoopNest:
    """The nest with the kernels of its groups, each as its part became, and the buffers that these need."""
    kernels = tuple(kernel for part in parts for kernel in part.kernels)
    own, before = [{b.name: b for b in part.workspace} for part in parts], {b.name: b for b in nest.workspace}
    used = {b.name for part in parts for b in _used(part)}
    every = {name: [found[name] for found in own if name in found] for name in before}
    kept = [found for name, found in every.items() if name in used or len(found) == len(own)]
    workspace = [next((b for b in found if b is not before[b.name]), found[0]) for found in kept]
    workspace += [b for part in parts for b in _used(part) if b.name not in before]
    streams = tuple(name for name in nest.writes if any(name in part.streams for part in parts))
    return replace(nest, kernels=kernels, workspace=tuple(workspace), streams=streams)


def _used(part: LoopNest) -> Iterator[Buffer]:
    touched = {name for kernel in part.kernels for name in (*_read_by(kernel.body), *(s.buffer for s in stores_in(kernel.body)))}
    return (b for b in part.workspace if b.name in touched)


def _read_by(block: tuple[Stmt, ...]) -> set[str]:
    return {access.tensor for access in elements_read(block)}


def outermost(made: Candidate, loops: tuple[str, ...], first: tuple[str, ...]) -> Candidate:
    """The candidate with some of the loops around a statement outside of the others."""
    order = (*first, *(name for name in loops if name not in first))
    return made if order == loops or len(order) < 2 else made.then("reorder", *order)


def merged(made: Candidate, loops: Sequence[str], others: Sequence[str]) -> Candidate:
    """The candidate with the loops of one kernel around those of one behind it, pair by pair. Raises `ScheduleError` where it cannot be."""
    first, second = (loop_paths(made.nest, names[0])[0][0] for names in (loops, others))
    if first < second - 1:
        made = made.then("move_kernel", first, second - 1)
    if first < second:
        made = made.then("merge_kernels", second - 1)
    for one, other in zip(loops, others, strict=True):
        made = made.then("merge", one, other)
    return made


def with_producers(made: Candidate, group: Group, loops: tuple[str, ...]) -> Candidate:
    """The candidate with what a group's members read alone computed in the first of some loops where that can be."""
    for member in reversed(group.members[:-1]):
        for name in member.stored if member.number not in group.beside else ():
            for at in loops if kernel_of(made.nest, name) is not None else ():
                try:
                    made = made.then("fuse_at", name, at)
                except ScheduleError:
                    continue
                break
    return made


def kernel_of(nest: LoopNest, buffer: str) -> int | None:
    """The number of the kernel that stores to a buffer of the whole program."""
    if not any(buffer == b.name for b in (*nest.workspace, *nest.parameters)):
        return None
    return next((n for n, kernel in enumerate(nest.kernels) if any(s.buffer == buffer for s in stores_in(kernel.body))), None)
