"""The search: for each group of kernels the cheapest of a few ways to compute it, by the model of cost.

Kernels are grouped in several manners (`joining`): producers alone, with siblings, with sums taken apart. Where these differ, the groups of
each are searched, and those that are cheaper together are taken. Equal groups are searched once. Small integers are `narrow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf, prod

from tensorexpr.codegen.auto.candidate import Call, Candidate, plain
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.fusing import fused
from tensorexpr.codegen.auto.search.groups import Group, joined, part_of
from tensorexpr.codegen.auto.search.joining import groups_of, in_order
from tensorexpr.codegen.auto.search.memory import in_and_out
from tensorexpr.codegen.auto.tiles import SEVERAL, tiled
from tensorexpr.codegen.auto.tiles.bound import least, least_from_memory
from tensorexpr.codegen.nest import Block, For, LoopNest, Store
from tensorexpr.codegen.nest.walks import expressions_of, stores_in
from tensorexpr.codegen.rewrites.data.narrow import TYPES
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.dtypes import int64
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Expr, Program
from tensorexpr.traversal import tensors_read, walk

MANNERS: tuple[dict[str, bool], ...] = (
    {"siblings": True, "sums": True, "products": True},
    {"products": True},
    {"siblings": True, "sums": True},
    {"siblings": True},
    {},
)
"""How kernels are grouped: products by themselves, then the most at once first."""
NEAR = 1.25
"""How far above what no nest goes below one is as good as it gets: loops, rests, and loads beside their arithmetic."""
FAR, MOST_APART = 3.0, 3
"""How far above it producers in the loops of their reader have to be for their being apart to be tried as well, and how many kernels may be
tiled once more for that: the shared loops keep tiles or borders from one of them (a reflected blur of rows in one of columns)."""
Times = tuple[float, float]
"""Nanoseconds on one thread and on `SEVERAL`, which count as much: a nest that leaves cores without work is seen."""
NUMBERED: Mapping[str, int] = {"merge_kernels": 1, "move_kernel": 2}
"""Words whose first arguments are numbers of kernels."""


def searched(program: Program, facts: Facts) -> Candidate:
    """The nest for a simplified program on a machine, with the rewrites that make it of the plain nest."""
    return searched_from(begun(program), facts)


def searched_from(start: Candidate, facts: Facts) -> Candidate:
    """The nest for kernels that stand one after the other, with the rewrites that make it."""
    choice = _Choice(start.nest, facts)
    return in_and_out(assembled(start, choice.groups(), choice.way), facts.caches)


def assembled(start: Candidate, groups: Sequence[Group], way: Callable[[Group, Iterable[str]], Candidate]) -> Candidate:
    """The candidate whose kernels are those of some groups, each computed in a `way` that takes no name of the ones before."""
    names = taken_names(start.nest)
    taken, parts, done = set(names), [], 0
    calls = [*start.calls, *_moves(groups)]
    for group in groups:
        best = way(group, names)
        if not (taken_names(best.nest) - names).isdisjoint(taken):
            best = way(group, taken)
        taken |= taken_names(best.nest)
        calls += [_placed(call, done) for call in best.calls]
        done += len(best.nest.kernels)
        parts.append(best.nest)
    return Candidate(joined(start.nest, parts), tuple(calls))


def begun(program: Program) -> Candidate:
    """Where a search begins: positions, such as those of winners, that no index is made of, are as long as the values that they are
    compared beside, or as short as they can be where they are kept, and compared as short as that."""
    start = plain(program)
    indices = {name for k in start.nest.kernels for e in _indices(k.body) for name in tensors_read(e)}
    wide = {s.buffer: None for k in start.nest.kernels for s in stores_in(k.body) if s.value.dtype is int64}
    for name in wide:
        if name not in indices and name not in start.nest.writes:
            start = _narrowed(start, name)
    for b in start.nest.workspace:
        if b.dtype.name in TYPES and b.name not in indices:
            with suppress(ScheduleError):
                made = start.then("narrow", b.name, b.dtype.name)
                start = start if made.nest.kernels == start.nest.kernels else made
    return start


def _narrowed(start: Candidate, name: str) -> Candidate:
    """The candidate with a buffer in the fewest bits that hold its values, where these are kept; of one element in 32."""
    kept = any(b.name == name for b in start.nest.workspace)
    for dtype in TYPES if kept else ("int32",):
        try:
            return start.then("narrow", name, dtype)
        except ScheduleError:
            continue
    return start


def _indices(block: Block) -> Iterator[Expr]:
    """What elements are read and stored by, and the bounds of loops."""
    for _, s in walk_block(block):
        own = expressions_of(s)
        yield from (i for e in own for n in walk(e) if isinstance(n, Access) for i in n.indices)
        yield from own if isinstance(s, For) else s.indices if isinstance(s, Store) else ()


class _Choice:
    """The groups of a plain nest that are cheapest together."""

    def __init__(self, nest: LoopNest, facts: Facts) -> None:
        self.nest, self.facts = nest, facts
        self.names = taken_names(nest)
        self.known: dict[object, tuple[Candidate, Times] | None] = {}
        self.bounds: dict[object, Times] = {}

    def best(self, group: Group) -> tuple[Candidate, Times] | None:
        """The cheapest way to compute a group by itself; None where its members cannot share loops."""
        if group.key not in self.known:
            self.known[group.key] = self.made(group, self.names)
        return self.known[group.key]

    def way(self, group: Group, taken: Iterable[str]) -> Candidate:
        """The cheapest way to compute a group that is taken, beside other names."""
        found = self.best(group) if taken == self.names else self.made(group, taken)
        assert found is not None
        return found[0]

    def made(self, group: Group, taken: Iterable[str]) -> tuple[Candidate, Times] | None:
        """The same, made anew beside other names: in shared loops where it has several members or is taken apart, else, of producers
        alone, one after the other. The first way that is close to what no nest goes below is as good as it gets."""
        part, near = Candidate(part_of(self.nest, group, taken)), NEAR * self._least(group)[0]
        alone = len(group.members) == 1 and group.axis is None
        ways = [] if alone else list(fused(part, group, self.facts))
        if not ways and (group.beside or group.axis is not None):
            return None
        best: tuple[Candidate, Times] | None = None
        made_of = (finished(way, self.facts) for way in ways or [part])
        for made in chain(made_of, self._merged_later(part, group) if group.beside and group.axis is None else ()):
            times = _times(made.nest, self.facts)
            if best is None or prod(times) < prod(best[1]):
                best = made, times
            if times[0] <= near:
                break
        few = not (group.beside or group.axis is not None or self.nest.sizes) and len(group.members) <= MOST_APART  # open: less time
        if ways and few and best is not None and best[1][0] > FAR * self._least(group)[0]:
            made = finished(part, self.facts)  # each with tiles and borders of its own
            best = min(best, (made, _times(made.nest, self.facts)), key=lambda way: prod(way[1]))
        return best

    def _merged_later(self, part: Candidate, group: Group) -> Iterator[Candidate]:
        """The candidate with each kernel as it is by itself, and their outermost loops one afterwards: over a batch each has its own
        tiles."""
        by_itself = [Group((m,), {m.number: {loop.index: (loop.index, 0) for loop in m.loops}}) for m in group.members]
        made = assembled(part, by_itself, self.way)
        with suppress(ScheduleError):
            while len(made.nest.kernels) > 1:
                one, other = (next((s.index for s in k.body if isinstance(s, For)), "") for k in made.nest.kernels[-2:])
                made = made.then("merge_kernels", len(made.nest.kernels) - 2).then("merge", one, other)
            yield made

    def groups(self) -> tuple[Group, ...]:
        """The groups that are taken, in an order in which each is computed before it is read."""
        manners = [groups for manner in MANNERS if (groups := groups_of(self.nest, **manner))]
        taken: list[Group] = []
        for kernels in _connected(manners):
            own = [[group for group in groups if group.root.number in kernels] for groups in manners]
            taken += self._cheapest(own)
        return in_order(self.nest, taken) or manners[-1]

    def _cheapest(self, manners: Sequence[Sequence[Group]]) -> Sequence[Group]:
        """The cheapest manner of grouping some kernels; the first that comes close to what no nest goes below."""
        members = tuple(sorted((m for group in manners[-1] for m in group.members), key=lambda m: m.number))
        bound = self._least(Group(members, {}))[0]
        found: Sequence[Group] = ()
        product = inf
        tried: set[tuple[object, ...]] = set()
        for groups in manners:
            keys = tuple(group.key for group in groups)
            if keys in tried:
                continue
            tried.add(keys)
            times = self._together(groups, product)
            if times is not None:
                found, product = groups, times[0] * times[1]
                bound = max(bound, self._of_products(groups))
                if times[0] <= NEAR * bound:
                    break
        return found

    def _of_products(self, groups: Sequence[Group]) -> float:
        """Nanoseconds of the products among groups that have been searched: beside anything else in their loops they take no less."""
        found = (self.best(group) for group in groups if group.products)
        return sum(best[1][0] for best in found if best is not None)

    def _together(self, groups: Sequence[Group], most: float) -> Times | None:
        """How long groups take, each by itself in the cheapest way; None where one of them cannot be, and, as soon as what no nest goes
        below says so, where the product of both times is no less than `most`."""
        times = [(0.0, 0.0) if most == inf else self._least(group) for group in groups]
        for number, group in enumerate(groups):
            one, several = (sum(own) for own in zip(*times, strict=True))
            if one * several >= most:
                return None
            best = self.best(group)
            if best is None:
                return None
            times[number] = best[1]
        one, several = (sum(own) for own in zip(*times, strict=True))
        return (one, several) if one * several < most else None

    def _least(self, group: Group) -> Times:
        """What no nest of a group goes below."""
        if group.key not in self.bounds:
            self.bounds[group.key] = self._bound(group)
        return self.bounds[group.key]

    def _bound(self, group: Group) -> Times:
        part = part_of(self.nest, group, ())
        made = {name for member in group.members for name in member.stored}
        seen = {b.name for b in (*part.parameters, *part.workspace) if b.name not in made or b.name in part.writes}
        one, waits = least(part, self.facts, seen), least_from_memory(part, self.facts, seen)
        return one, max(one / SEVERAL, waits * self.facts.line_all / self.facts.lines[-1])


def _connected(manners: Sequence[Sequence[Group]]) -> list[set[int]]:
    """The kernels in sets of which each manner has whole groups, as small as they can be."""
    found: list[set[int]] = []
    for groups in manners:
        for group in groups:
            mine = {member.number for member in group.members}
            for other in [one for one in found if not one.isdisjoint(mine)]:
                found.remove(other)
                mine |= other
            found.append(mine)
    return sorted(found, key=min)


def _moves(groups: Sequence[Group]) -> Iterator[Call]:
    """The calls that bring the kernels of a plain nest into the order of its groups."""
    wanted = [member.number for group in groups for member in group.members]
    now = sorted(wanted)
    for at, number in enumerate(wanted):
        if now[at] != number:
            yield Call("move_kernel", (now.index(number), at))
            now.insert(at, now.pop(now.index(number)))


def _placed(call: Call, before: int) -> Call:
    """A call for a part of a nest, that of a group, as one for the whole, in which some kernels stand before."""
    count = NUMBERED.get(call.word, 0)
    return call._replace(arguments=(*(n + before for n in call.arguments[:count]), *call.arguments[count:]))


def _times(nest: LoopNest, facts: Facts) -> Times:
    """Nanoseconds of a nest as it is built, large local buffers in the workspace: on one thread and on several."""
    model = Model(summary_of(in_memory(nest)), facts)
    return float(model.times()[0]), float(model.times(None, SEVERAL)[0])


def finished(made: Candidate, facts: Facts) -> Candidate:
    """The candidate with all its kernels tiled."""
    for kernel in reversed(range(len(made.nest.kernels))):
        if kernel < len(made.nest.kernels):  # kernels of no iteration go when the first of them is tiled
            made = tiled(made, kernel, facts)
    return made
