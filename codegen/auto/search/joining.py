"""Who joins a group: producers, siblings and sums, from readers to what they read.

    max[j]  = max(x[k, j])              y[i, j] reads all three at its own j: a group with the shared loop j
    sum[j]  = sum(exp(x[k, j] - max[j]))
    y[i, j] = exp(x[i, j] - max[j]) / sum[j]

A loop of the reader goes *along* with a producer where everything in the group that reads it does so at the loop's own index, give or take
a constant: then its iterations need different elements, and computing them there costs nothing twice. A producer whose readers are all in a
group joins it while a loop is left that goes along with all of its members (greedy, as Mullapudi et al. 2016 group from readers to
producers).

    dx[i, j] = h[i, j] * w[j]           dw reads h at each i as well: in blocks of i, one pass over h serves both
    dw[j]    = sum(h[i, j] * x[i, j] for i)

Where `siblings` are wanted, a kernel that nobody in a group waits for joins one that goes through a buffer in step with it: loops of one
range, at whose indices both touch an axis of the buffer. Where `sums` are wanted, loops of reductions count as well: these are taken apart
by blocks of the loop, which is then all that the group shares. A group never needs what another one makes of its results.

Where `products` are wanted, sums that compute much for each byte they touch have tiles of their own: such a one runs by itself, or, element
by element, with what is made of its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod

from tensorexpr.codegen.auto.search.groups import OPEN, Group, Member, Place, extent_of, place_of
from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace
from tensorexpr.traversal import free_names

LEAST_SHARED = 4
"""Iterations of the shared loops together, below which a group would leave cores and lanes without work."""
LEAST_APART = 8
"""Iterations of a reduction that is taken apart: fewer blocks are no work for several cores."""
LEAST_POINTS = 1 << 14
"""Points of such a reduction: some microseconds, what a second core takes to wake."""
MUCH = 8
"""Points of a reduction for each byte it touches, from which on it does not matter whether its operands are near: some ten times as many as
a core computes while a byte comes from memory."""
FEWER = 16
"""How many times as many points as results it has: each block stores its results, and they are added up."""


def groups_of(nest: LoopNest, siblings: bool = False, sums: bool = False, products: bool = False) -> tuple[Group, ...]:
    """The groups of a plain nest, in an order in which each is computed before it is read; none where products are wanted of which
    there are none."""
    found = _Joining(nest, siblings, sums, products)
    return found.groups() if found.products or not products else ()


class _Joining:
    def __init__(self, nest: LoopNest, siblings: bool, sums: bool, products: bool) -> None:
        types = {b.name: (b.shape, b.dtype) for b in (*nest.parameters, *nest.workspace)}
        types |= {c.name: (c.type.shape, c.type.dtype) for c in nest.constants}
        self.written = {b.name for b in (*nest.parameters, *nest.workspace)}
        self.members = [Member(number, kernel) for number, kernel in enumerate(nest.kernels)]
        self.elements = {name: prod(constant(e) or inf for e in shape) for name, (shape, _) in types.items()}
        self.products = {m.number for m in self.members if products and _is_product(m, types)}
        self.siblings, self.sums = siblings, sums
        self.readers: dict[str, list[int]] = {}
        for member in self.members:
            for name in member.reads:
                self.readers.setdefault(name, []).append(member.number)
        self.after = _after(self.members)
        self.home: dict[int, int] = {}
        self.found: dict[int, Group] = {}

    def groups(self) -> tuple[Group, ...]:
        for member in reversed(self.members):
            grown = next(self._grown(member), None) or self._begun(member)
            self.home[member.number] = grown.root.number
            self.found[grown.root.number] = grown
        order = self._order()
        assert order is not None
        return tuple(self.found[number] for number in order)

    def _begun(self, member: Member) -> Group:
        if self.sums and member.number not in self.products and (loop := self._taken_apart(member)) is not None:
            along = {member.number: {loop.index: (loop.index, 0)}}
            return Group((member,), along, axis=loop, sums=frozenset({member.number}))
        along = {member.number: {loop.index: (loop.index, 0) for loop in member.loops}}
        return Group((member,), along, products=member.number in self.products)

    def _grown(self, member: Member) -> Iterator[Group]:
        """The groups that a kernel may join."""
        made = [name for name in member.stored if name in self.written]
        reading = {n for name in made for n in self.readers.get(name, ()) if n != member.number}
        homes = {self.home[n] for n in reading}
        if len(homes) == 1 and len(made) == 1:
            grown = _producing(self.found[next(iter(homes))], member, made[0])
            if grown is not None and not self.products.isdisjoint(m.number for m in grown.members):
                grown = replace(grown, whole=True, products=True) if _is_whole(grown) else None
            if grown is not None and self._may_grow(grown):
                yield grown
        for number in sorted(self.found, reverse=True) if self.siblings else ():
            if not self.products.isdisjoint(m.number for m in (member, *self.found[number].members)):
                continue
            grown = self._beside(self.found[number], member)
            if grown is not None and self._may_grow(grown):
                yield grown

    def _beside(self, group: Group, member: Member) -> Group | None:
        """The group with a kernel that goes through something in step with it."""
        places: dict[str, Place] = {}
        loops = {loop.index: loop for loop in group.root.loops}
        if group.axis is not None:
            loops[group.axis.index] = group.axis
        for loop in group.shared:
            own = next((s for s in member.loops if _in_step(group, member, loops[loop], s)), None)
            if own is not None:
                places[loop] = own.index, 0
        if places:
            found = _with(group, member, places, beside=group.beside | {member.number})
            if _is_enough(found):
                return found
        own = self._taken_apart(member) if self.sums else None
        if own is None or any(name in m.reads for name in member.stored for m in group.members):
            return None
        for loop in group.shared:
            if _in_step(group, member, loops[loop], own):
                sums = {"beside": group.beside | {member.number}, "sums": group.sums | {member.number}, "axis": loops[loop]}
                return _with(group, member, {loop: (own.index, 0)}, **sums)
        return None

    def _taken_apart(self, member: Member) -> For | None:
        """The loop of a reduction that is worth taking apart."""
        if member.reduction is None or len([name for name in member.stored if name in self.written]) != 1:
            return None
        loop = member.reduction[0]
        results = prod(extent_of(s) for s in member.loops)
        points = results * prod(extent_of(s) for s in _inside(loop))
        loops = (*member.loops, *_inside(loop))
        read: float = 0
        for name, accesses in member.reads.items():
            visited = (prod(extent_of(s) for s in loops if s.index in names) for names in ({*free_names(access)} for access in accesses))
            read = max(read, min(max(visited, default=0), self.elements.get(name, 0)))  # windows visit what they read many times
        long = extent_of(loop) >= LEAST_APART and points >= LEAST_POINTS and read >= FEWER * results
        return loop if long else None

    def _may_grow(self, grown: Group) -> bool:
        """Whether the groups can still be put in an order."""
        if not self.siblings:
            return True
        return self._order(grown) is not None

    def _order(self, grown: Group | None = None) -> list[int] | None:
        home = dict(self.home)
        if grown is not None:
            home |= {m.number: grown.root.number for m in grown.members}
        return _order(self.after, home)


def _is_product(member: Member, types: Mapping[str, tuple[tuple[Expr, ...], DType]]) -> bool:
    """Whether a kernel is a sum that computes much for each byte it touches, by the shapes and dtypes of tensors. Loops that are as long
    as others say count once: most are windows."""
    if member.reduction is None:
        return False
    every = (*member.loops, *_inside(member.reduction[0]))
    loops = {s.index: 1 if free_names(s.start) or free_names(s.stop) else extent_of(s) for s in every}
    touched = 0
    for name in {*member.reads, *member.stored} & types.keys():
        shape, dtype = types[name]
        sizes = [constant(e) for e in shape]
        visited = sum(prod(loops.get(n, 1) for n in {n for e in indices for n in free_names(e)}) for indices in _touched(member, name))
        whole = prod(n or OPEN for n in sizes)
        touched += min(visited, whole) * dtype.itemsize
    return prod(loops.values()) >= MUCH * touched


def _is_whole(group: Group) -> bool:
    """Whether all of a group goes element by element."""
    return group.axis is None and not group.beside and all(len(m.loops) == len(group.shared) for m in group.members)


def in_order(nest: LoopNest, groups: Sequence[Group]) -> tuple[Group, ...] | None:
    """All groups of a nest in an order in which each is computed before it is read; None where there is none."""
    home = {m.number: group.root.number for group in groups for m in group.members}
    order = _order(_after([Member(number, kernel) for number, kernel in enumerate(nest.kernels)]), home)
    roots = {group.root.number: group for group in groups}
    return None if order is None else tuple(roots[number] for number in order)


def _after(members: Sequence[Member]) -> list[frozenset[int]]:
    """For each kernel those behind it that have to wait for it."""
    found = []
    for member in members:
        mine = {*member.reads, *member.stored}
        later = members[member.number + 1 :]
        found.append(frozenset(m.number for m in later if not mine.isdisjoint(m.stored) or not set(member.stored).isdisjoint(m.reads)))
    return found


def _order(after: Sequence[frozenset[int]], home: Mapping[int, int]) -> list[int] | None:
    """The roots of groups in an order in which each is computed before it is read; None where there is none."""
    waits: dict[int, set[int]] = {n: set() for n in sorted(set(home.values()))}
    for n in home:
        for later in after[n]:
            if later in home and home[later] != home[n]:
                waits[home[later]].add(home[n])
    order: list[int] = []
    while waits:
        ready = next((n for n, before in waits.items() if before.isdisjoint(waits)), None)
        if ready is None:
            return None
        order.append(ready)
        del waits[ready]
    return order


def _with(group: Group, member: Member, places: Mapping[str, Place], **changes: object) -> Group:
    members = tuple(sorted((member, *group.members), key=lambda m: m.number))
    return replace(group, members=members, along={**group.along, member.number: places}, **changes)


def _is_enough(group: Group) -> bool:
    loops = {loop.index: loop for loop in (*group.root.loops, *((group.axis,) if group.axis is not None else ()))}
    return bool(group.shared) and prod(extent_of(loops[name]) for name in group.shared) >= LEAST_SHARED


def _producing(group: Group, member: Member, buffer: str) -> Group | None:
    """The group with one more producer in front; None where no loop goes along with all."""
    places: dict[str, Place] = {}
    stored = member.stored[buffer]
    for loop in group.shared:
        axes = [n for n in range(len(stored)) if stored[n] is not None and _is_along(group, buffer, loop, n)]
        if axes:
            axis = axes[0]
            own = stored[axis]
            assert own is not None
            places[loop] = own[0], _shift(group, buffer, loop, axis) - own[1]
    if group.axis is not None and not places:
        return None
    found = _with(group, member, places)
    return found if _is_enough(found) else None


def _reads(group: Group, buffer: str) -> Iterator[tuple[Member, Access]]:
    for member in group.members:
        for access in member.reads.get(buffer, ()):
            yield member, access


def _is_along(group: Group, buffer: str, loop: str, axis: int) -> bool:
    """Whether all of a group reads an axis of a buffer at a loop's own index and one constant."""
    return len(_shifts(group, buffer, loop, axis)) == 1


def _shifts(group: Group, buffer: str, loop: str, axis: int) -> set[int | None]:
    """The constants by which the elements that a group reads differ from the root's index; None for what is none."""
    shifts: set[int | None] = set()
    for member, access in _reads(group, buffer):
        place = group.along[member.number].get(loop)
        found = None if place is None or axis >= len(access.indices) else place_of(access.indices[axis], {place[0]})
        if found is None or place is None:
            return {None, 0}
        shifts.add(found[1] + place[1])
    return shifts


def _shift(group: Group, buffer: str, loop: str, axis: int) -> int:
    """The constant by which the element read differs from the root's index."""
    (shift,) = _shifts(group, buffer, loop, axis)
    assert shift is not None
    return shift


def _in_step(group: Group, member: Member, loop: For, own: For) -> bool:
    """Whether a kernel goes through something in step with a loop of a group: over one range, at whose index both touch an axis of a
    buffer; and what one of them makes and the other reads, at the same element."""
    if (loop.start, loop.stop) != (own.start, own.stop):
        return False
    together = False
    for buffer in dict.fromkeys((*member.reads, *member.stored)):
        theirs = [(m, indices) for m in group.members for indices in _touched(m, buffer)]
        if not theirs:
            continue
        rank = len(theirs[0][1])
        mine = {n: {_at(indices, n, own.index) for indices in _touched(member, buffer)} for n in range(rank)}
        others = {n: {_shifted(group, m, indices, n, loop.index) for m, indices in theirs} for n in range(rank)}
        axes = [n for n in range(rank) if None not in mine[n] and None not in others[n]]
        if buffer in member.stored or any(buffer in m.stored for m in group.members):
            if not any(mine[n] == others[n] and len(mine[n]) == 1 for n in axes):
                return False
        together = together or bool(axes)
    return together


def _touched(member: Member, buffer: str) -> list[Sequence[Expr]]:
    """The indices at which a kernel touches a buffer."""
    stores = [s.indices for s in member.stores if s.buffer == buffer]
    return [*stores, *(access.indices for access in member.reads.get(buffer, ()))]


def _at(indices: Sequence[Expr], axis: int, loop: str) -> int | None:
    found = place_of(indices[axis], {loop}) if axis < len(indices) else None
    return None if found is None else found[1]


def _shifted(group: Group, member: Member, indices: Sequence[Expr], axis: int, loop: str) -> int | None:
    place = group.along[member.number].get(loop)
    found = None if place is None else _at(indices, axis, place[0])
    return None if found is None or place is None else found + place[1]


def _inside(loop: For) -> list[For]:
    """A loop and those that stand alone in each other in it."""
    found = [loop]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], For):
        found.append(found[-1].body[0])
    return found
