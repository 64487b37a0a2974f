"""Which kernels of a plain nest run in loops of one of them: groups, from readers to producers.

    max[j]  = max(x[k, j])              y[i, j] reads all three at its own j: a group with the shared loop j
    sum[j]  = sum(exp(x[k, j] - max[j]))
    y[i, j] = exp(x[i, j] - max[j]) / sum[j]

A loop of the reader goes *along* with a producer where everything in the group that reads it does so at the loop's own index, give or take
a constant: then its iterations need different elements, and computing them there costs nothing twice. A producer whose readers are all in a
group joins it while a loop is left that goes along with all of its members (greedy, as Mullapudi et al. 2016 group from readers to
producers). Nothing else is asked: whether a group pays is seen in its cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from tensorexpr.codegen.lowering.arithmetic import constant, sub
from tensorexpr.codegen.nest import Buffer, For, Kernel, LoopNest, Stmt
from tensorexpr.codegen.rewrites.expressions import elements_read, stores_in
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.dtypes import int64
from tensorexpr.ir import Access, Expr
from tensorexpr.records import cached_property, record, replace
from tensorexpr.regions import affine_of

LEAST_SHARED = 4
"""Iterations of the shared loops together, below which a group would leave cores and lanes without work."""
OPEN = 64
"""Iterations that a loop of unknown length counts for, as in the model of cost (`points.OPEN` for sizes)."""

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
    def reads(self) -> Mapping[str, tuple[Access, ...]]:
        """The elements read, by buffer."""
        found: dict[str, dict[Access, None]] = {}
        for access in elements_read(self.kernel.body):
            found.setdefault(access.tensor, {}).setdefault(access)
        return {name: tuple(accesses) for name, accesses in found.items()}

    @cached_property
    def stored(self) -> Mapping[str, tuple[Place | None, ...]]:
        """For each buffer stored to the place of each axis; None where stores differ or the index is something else."""
        names = {loop.index for loop in self.loops}
        found: dict[str, tuple[Place | None, ...]] = {}
        for s in stores_in(self.kernel.body):
            places = tuple(_place(index, names) for index in s.indices)
            old = found.setdefault(s.buffer, places)
            found[s.buffer] = tuple(a if a == b else None for a, b in zip(old, places, strict=True)) if len(old) == len(places) else ()
        return found


@record(eq=False, slots=False)
class Group:
    """Kernels in their order, the last of which is the root; loops of the root that go along with all of them, in its order, and for each
    member the loop that is each of these."""

    members: tuple[Member, ...]
    along: Mapping[int, Mapping[str, Place]]

    @property
    def root(self) -> Member:
        """The member in whose loops the others run."""
        return self.members[-1]

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """The loops of the root that go along with all members."""
        return tuple(loop.index for loop in self.root.loops if all(loop.index in places for places in self.along.values()))


def groups_of(nest: LoopNest) -> tuple[Group, ...]:
    """The groups of a plain nest, in an order in which each is computed before it is read."""
    written = {b.name for b in (*nest.parameters, *nest.workspace)}
    members = [Member(number, kernel) for number, kernel in enumerate(nest.kernels)]
    readers: dict[str, list[int]] = {}
    for member in members:
        for name in member.reads:
            readers.setdefault(name, []).append(member.number)
    home: dict[int, int] = {}
    groups: dict[int, Group] = {}
    for member in reversed(members):
        made = [name for name in member.stored if name in written]
        reading = {n for name in made for n in readers.get(name, ()) if n != member.number}
        homes = {home[n] for n in reading}
        grown = _joined(groups[homes.pop()], member, made[0]) if len(homes) == 1 and len(made) == 1 else None
        if grown is None:
            grown = Group((member,), {member.number: {loop.index: (loop.index, 0) for loop in member.loops}})
        home[member.number] = grown.root.number
        groups[grown.root.number] = grown
    return tuple(groups[number] for number in sorted(groups))


def _joined(group: Group, member: Member, buffer: str) -> Group | None:
    """The group with one more producer in front; None where no loop goes along with all."""
    places: dict[str, Place] = {}
    stored = member.stored[buffer]
    for loop in group.shared:
        axes = [n for n in range(len(stored)) if stored[n] is not None and _is_along(group, buffer, loop, n, stored[n])]
        if axes:
            axis = axes[0]
            own = stored[axis]
            assert own is not None
            places[loop] = own[0], _shift(group, buffer, loop, axis) - own[1]
    found = Group((member, *group.members), {**group.along, member.number: places})
    loops = {loop.index: loop for loop in found.root.loops}
    return found if found.shared and prod(extent_of(loops[name]) for name in found.shared) >= LEAST_SHARED else None


def _reads(group: Group, buffer: str) -> Iterator[tuple[Member, Access]]:
    for member in group.members:
        for access in member.reads.get(buffer, ()):
            yield member, access


def _is_along(group: Group, buffer: str, loop: str, axis: int, own: Place | None) -> bool:
    """Whether all of a group reads an axis of a buffer at a loop's own index and one constant."""
    shifts = set()
    for member, access in _reads(group, buffer):
        place = group.along[member.number].get(loop)
        if place is None or axis >= len(access.indices):
            return False
        found = _place(access.indices[axis], {place[0]})
        if found is None:
            return False
        shifts.add(found[1] + place[1])
    return own is not None and len(shifts) == 1


def _shift(group: Group, buffer: str, loop: str, axis: int) -> int:
    """The constant by which the element read differs from the root's index."""
    member, access = next(_reads(group, buffer))
    name, shift = group.along[member.number][loop]
    found = _place(access.indices[axis], {name})
    assert found is not None
    return found[1] + shift


def _place(index: Expr, names: set[str]) -> Place | None:
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
