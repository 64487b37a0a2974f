"""The state of a schedule: for every definition its loops in order, how they came from its axes, and how each runs.

The loops of one definition are one list, outermost first, that holds its data axes and the axes of its reductions. The
position says all: a reduction runs where its first loop stands; data loops after that, on which it depends, become the
tile over which it keeps one accumulator per point, and run again afterwards for what is done with the result:

    [i, j, k]              for i: for j: { acc = 0; for k: acc += ...; C[i, j] = acc }
    [i, k, j]              for i: { acc[j] = 0; for k: for j: acc[j] += ...; for j: C[i, j] = acc[j] }
    [i, k, j], k without j for i: { acc = 0; for k: acc += ...; for j: C[i, j] = f(acc, j) }

States are values: primitives make new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from tensorexpr.codegen.memo import remembered
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts, groups_used, take_apart
from tensorexpr.codegen.schedule.analysis.steps import Sweep
from tensorexpr.codegen.target import Target
from tensorexpr.errors import InternalError, ScheduleError
from tensorexpr.ir import Access, Axis, Const, Define, Definition, Expr, Program, Scan, Scatter, Segments, const
from tensorexpr.records import field, record, replace
from tensorexpr.simplify.facts.sort_ranges import Ranges, ranges_of
from tensorexpr.traversal import Read, expressions, read_occurrences, reads

SERIAL = "serial"
TAILS = ("peel", "shift", "guard", "stride")


@record
class Split:
    """`parent` runs as `outer` over blocks of `factor` and `inner` inside a block.

    `tail` says what happens where the extent is no multiple: "peel" runs the rest as a smaller block of its own, "shift" moves
    the last block back to end at the extent (some points are computed twice, with the same value; where the extent is
    less than a block, the rest alone), "guard" skips the points beyond. With "stride" `inner` runs outside: for each place in a
    block, `outer` runs over the blocks that have it, so a residue class is a loop of its own, as long as it is.
    """

    parent: str
    outer: str
    inner: str
    factor: int
    tail: str


@record
class Fuse:
    """`outer` and the loop inside it, `inner`, run as one loop `fused`."""

    fused: str
    outer: str
    inner: str


@record
class Place:
    """Where a definition is computed: in loop `loop` of the definition `stage`."""

    stage: str
    loop: str


@record
class Skew:
    """A definition in the body of `scan` whose steps follow each other row by row of `axis`: passes of `steps` steps, in blocks of
    `rows` rows (see `skewing`)."""

    scan: str
    axis: str
    steps: int
    rows: int


@record
class Stage:
    """The loops of one definition (see the module). `kinds` lists those that are not serial, `together` the definitions
    that run in the same loops, `scan` the scan in whose body the definition stands."""

    name: str
    parts: Parts = field(repr=False, compare=False)
    order: tuple[str, ...]
    relations: tuple[Split | Fuse, ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    place: Place | None = None
    scan: str | None = None
    guests: tuple[str, ...] = ()
    """Definitions computed in its loops that nothing there reads."""
    cached: tuple[tuple[str, str, tuple[int, ...], bool], ...] = ()
    """Loops in which the part of a tensor that they read is copied first: the loop, the tensor, the order of its axes (see `cache`)."""
    owners: tuple[str, ...] = ()
    """Axes of a scatter whose iterations are made so that no two of them touch one element (see `own`)."""
    skewed: Skew | None = None
    """How the steps of its scan follow each other, where they do so row by row (see `skewing`)."""
    made: dict[str, Split | Fuse] = field(init=False, default_factory=dict, compare=False, repr=False)
    """The relation that made each loop."""

    def __post_init__(self) -> None:
        for relation in self.relations:
            for name in (relation.outer, relation.inner) if isinstance(relation, Split) else (relation.fused,):
                self.made[name] = relation

    def kind(self, loop: str) -> str:
        return dict(self.kinds).get(loop, SERIAL)

    def parents(self) -> dict[str, Split | Fuse]:
        """The relation that made each loop."""
        return self.made

    def axes_of(self, loop: str) -> tuple[str, ...]:
        """The original axes that a loop runs over."""
        relation = self.made.get(loop)
        if relation is None:
            return (loop,)
        if isinstance(relation, Split):
            return self.axes_of(relation.parent)
        return (*self.axes_of(relation.outer), *self.axes_of(relation.inner))

    def loops_of(self, axis: str) -> tuple[str, ...]:
        """The loops in `order` that an axis (or a loop since split or fused) runs as."""
        return tuple(loop for loop in self.order if axis in self.ancestry(loop))

    def leaves(self, axis: str) -> tuple[str, ...]:
        """The loops that an axis runs as, in the order in which they visit its points one after the other."""
        for relation in self.relations:
            if isinstance(relation, Split) and relation.parent == axis:
                return (*self.leaves(relation.outer), *self.leaves(relation.inner))
            if isinstance(relation, Fuse) and axis in (relation.outer, relation.inner):
                return self.leaves(relation.fused)
        return (axis,)

    def fused_in(self, loop: str) -> tuple[str, ...]:
        """The loops that run as this one, itself where it is none of several."""
        made = self.made.get(loop)
        return (*self.fused_in(made.outer), *self.fused_in(made.inner)) if isinstance(made, Fuse) else (loop,)

    def ancestry(self, loop: str) -> tuple[str, ...]:
        """The loop and everything that it came from."""
        relation = self.made.get(loop)
        if relation is None:
            return (loop,)
        made_from = (relation.parent,) if isinstance(relation, Split) else (relation.outer, relation.inner)
        return (loop, *(n for name in made_from for n in self.ancestry(name)))

    def group_of(self, loop: str) -> Group | None:
        """The reduction group that a loop belongs to; None for a data loop."""
        return self.parts.group_of(self.axes_of(loop)[0])

    def reduces(self, loop: str, group: Group) -> bool:
        """Whether a loop runs over an axis of this reduction group."""
        found = self.group_of(loop)
        return found is not None and found.number == group.number

    @property
    def site(self) -> Place:
        """The loop of another definition that this one is computed in; an `InternalError` where it has none."""
        if self.place is None:
            raise InternalError(f"expected {self.name} to be placed in a loop of another definition")
        return self.place

    def axis(self, name: str) -> Axis:
        """The original axis of this name."""
        for axes in (self.parts.axes, *(g.axes for g in self.parts.groups)):
            for axis in axes:
                if axis.index == name:
                    return axis
        raise InternalError(f"expected an axis of {self.name}, got {name!r}")

    def extent(self, loop: str) -> int | None:
        """The constant number of iterations of a loop (of a split with a rest: of a whole block, rounded up), if it is one."""
        relation = self.made.get(loop)
        if relation is None:
            axis = self.axis(loop)
            if isinstance(axis.start, Const) and isinstance(axis.stop, Const):
                return max(0, int(axis.stop.value) - int(axis.start.value))
            return None
        if isinstance(relation, Split):
            if loop == relation.inner:
                return relation.factor
            whole = self.extent(relation.parent)
            return None if whole is None else -(-whole // relation.factor)
        outer, inner = self.extent(relation.outer), self.extent(relation.inner)
        return None if outer is None or inner is None else outer * inner


@record
class State:
    """A program and how it runs: the stages of its definitions by name, in program order (bodies of scans included).

    `source` is the program before anything was inlined, `calls` the primitives that led here, as Python; `sweeps` are scans whose points
    do not communicate, with the readers that are computed in their steps (see `sweeps`): these have no stages.
    """

    program: Program
    target: Target
    table: Mapping[str, Stage] = field(hash=False)
    source: Program
    inlined: tuple[str, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    calls: tuple[str, ...] = field(default=(), compare=False)
    found: dict[object, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    """What was found out about this state (see `placed_in`, `placement.parts_of`): asked again for each of its stages."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, in program order."""
        return tuple(self.table.values())

    def stage(self, name: str) -> Stage:
        """The stage of a definition. Raises `ScheduleError` for a name that has none."""
        found = self.table.get(name)
        if found is not None:
            return found
        if name in self.inlined:
            raise ScheduleError(f"expected a definition with loops, got {name!r}, which is inlined")
        raise ScheduleError(f"expected a definition of the program, got {name!r}", hint=f"definitions: {', '.join(self.table)}")

    def with_stage(self, stage: Stage) -> State:
        """The state with another stage of the same name."""
        return replace(self, table={**self.table, stage.name: stage})

    def placed_in(self, root: str) -> tuple[Stage, ...]:
        """The stages placed in the loops of another, in program order."""
        known = self.found.get(("placed in", root))
        if known is None:
            known = self.found["placed in", root] = self._placed_in(root)
        return known

    def _placed_in(self, root: str) -> tuple[Stage, ...]:
        facts = program_facts(self.program)
        names = facts.producers.get(root, ())
        hosted = self.table[root].guests if root in self.table else ()
        todo, found = [*names, *hosted], {}
        while todo:
            stage = self.table.get(todo.pop())
            if stage is not None and stage.name not in found and stage.place is not None and stage.place.stage == root:
                found[stage.name] = stage
                todo.extend(facts.producers.get(stage.name, ()))
        return tuple(sorted(found.values(), key=lambda s: facts.numbers[s.name]))


@record
class Facts:
    """What is asked often of a program: definitions by the name of each result (bodies of scans included), their number in
    the order of the program, the tensors that each top-level definition reads, who reads them (by first results), and
    the shapes of tensors. `read_by` keeps what `reads_of` finds."""

    definitions: Mapping[str, Definition]
    numbers: Mapping[str, int]
    producers: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    shapes: Mapping[str, tuple[Expr, ...]]
    read_by: dict[str, tuple[Read, ...]] = field(default_factory=dict)
    parts: dict[object, Any] = field(default_factory=dict)
    """Parts of placed definitions, by what of a state they depend on (`placement.parts_of`): most primitives change none of that."""


@remembered
def program_facts(program: Program) -> Facts:
    """The facts of a program, remembered as long as the program is there."""
    definitions = {name: d for d in all_definitions(program) for name, _ in d.results}
    numbers = {name: k for k, d in enumerate(program.definitions) for name, _ in d.results}
    producers = {d.results[0][0]: reads(d) for d in program.definitions}
    shapes = {name: type_.shape for name, type_ in program.types.items()}
    readers: dict[str, list[str]] = {}
    for reader, names in producers.items():
        for name in names:
            readers.setdefault(name, []).append(reader)
    return Facts(definitions, numbers, producers, {name: tuple(found) for name, found in readers.items()}, shapes)


def reads_of(program: Program, name: str) -> tuple[Read, ...]:
    """The reads in a definition, in order, remembered."""
    facts = program_facts(program)
    known = facts.read_by.get(name)
    if known is None:
        known = facts.read_by[name] = tuple(read for e in expressions(facts.definitions[name]) for read in read_occurrences(e, ()))
    return known


def accesses_of(program: Program, name: str) -> tuple[Access, ...]:
    """The accesses of the reads in a definition, in order."""
    return tuple(read.access for read in reads_of(program, name))


def plain_state(program: Program, target: Target) -> State:
    """Every definition by itself, all loops serial in the order of the text, each reduction where its indices are bound."""
    live = live_definitions(program)
    program = replace(program, definitions=live) if len(live) != len(program.definitions) else program
    return State(program, target, {s.name: s for s in plain_stages(program)}, program)


def live_definitions(program: Program) -> tuple[Definition, ...]:
    """The definitions that the outputs need, in order."""
    needed, kept = set(program.outputs), []
    for definition in reversed(program.definitions):
        if any(name in needed for name, _ in definition.results):
            kept.append(definition)
            needed.update(reads(definition))
    return tuple(reversed(kept))


def plain_stages(program: Program, only: frozenset[str] | None = None) -> tuple[Stage, ...]:
    """The stages of all definitions, bodies of scans included; or of those named."""
    shapes = {name: type_.shape for name, type_ in program.types.items()}
    return tuple(_stages(program.definitions, shapes, (), None, only, ranges_of(all_definitions(program))))


def _stages(
    definitions: Iterable[Definition],
    shapes: dict[str, tuple[Expr, ...]],
    outer: tuple[Axis, ...],
    scan: str | None,
    only: frozenset[str] | None,
    ranges: Ranges,
) -> Iterable[Stage]:
    for definition in definitions:
        if isinstance(definition, Scan):
            inner = dict(shapes)
            inner.update((name, type_.shape) for name, type_ in definition.states)
            inner.update((name, type_.shape) for d in definition.body for name, type_ in d.results)
            steps = (*outer, Axis(definition.step, const(0), definition.length))
            yield from _stages(definition.body, inner, steps, definition.names[0], only, ranges)
        elif only is None or definition.name in only:
            parts = _parts_of(definition, shapes, outer, ranges)
            yield Stage(definition.name, parts, plain_order(parts), scan=scan)


_parts: WeakKeyDictionary[Definition, tuple[object, Parts]] = WeakKeyDictionary()


def _parts_of(
    definition: Define | Scatter | Segments, shapes: dict[str, tuple[Expr, ...]], outer: tuple[Axis, ...], ranges: Ranges
) -> Parts:
    """The parts of a definition, remembered where nothing is known of the elements that it reads: planners try many programs, in which
    most definitions are the same."""
    if ranges:
        return take_apart(definition, shapes, outer, ranges)
    key = (outer, tuple(shapes.get(name) for name in reads(definition)))
    known = _parts.get(definition)
    if known is not None and known[0] == key:
        return known[1]
    found = take_apart(definition, shapes, outer, ranges)
    if not found.unproved:  # checks name lines, which equal definitions need not have in common
        _parts[definition] = (key, found)
    return found


def all_definitions(program: Program) -> Iterable[Definition]:
    """Every definition, those in bodies of scans included."""
    todo: list[Definition] = list(reversed(program.definitions))
    while todo:
        definition = todo.pop()
        yield definition
        if isinstance(definition, Scan):
            todo.extend(reversed(definition.body))


def plain_order(parts: Parts) -> tuple[str, ...]:
    """Data axes in order, and every reduction after the last loop that it needs."""
    order = [a.index for a in parts.axes]
    _insert(parts, None, order)
    return tuple(order)


def _insert(parts: Parts, scope: int | None, order: list[str]) -> None:
    """Puts the reductions of a scope into an order, and those inside of them."""
    inside = [g for g in parts.groups if g.scope == scope]
    for group in inside:
        needed = {n for n in group.depends if n in order}
        for used in all_uses(parts, group):
            needed.update(n for n in parts.group(used).indices if n in order)
        at = max((order.index(n) for n in needed), default=-1) + 1
        # Behind reductions that already stand there, so that equal depth keeps the order of the text.
        earlier = {n for g in inside for n in g.indices} - set(group.indices)
        while at < len(order) and order[at] in earlier:
            at += 1
        order[at:at] = group.indices
    for group in inside:
        _insert(parts, group.number, order)


def all_uses(parts: Parts, group: Group) -> tuple[int, ...]:
    """The groups whose results a group needs, itself or in reductions that stand in its loops."""
    inner = [g for g in parts.groups if is_inside(parts, g.number, group.number)]
    return tuple(dict.fromkeys(n for g in (group, *inner) for n in g.uses if not is_inside(parts, n, group.number)))


def is_inside(parts: Parts, number: int, outer: int) -> bool:
    """Whether a group stands in the loops of another, directly or not."""
    scope = parts.group(number).scope
    while scope is not None:
        if scope == outer:
            return True
        scope = parts.group(scope).scope
    return False


def needed_groups(parts: Parts, *exprs: Expr) -> tuple[int, ...]:
    """The groups whose results the expressions need, and all groups that those need, wherever they stand."""
    needed: dict[int, None] = {}
    todo = list(groups_used(*exprs))
    while todo:
        number = todo.pop(0)
        if number not in needed:
            needed[number] = None
            todo.extend(parts.group(number).uses)
    return tuple(needed)


def definition_named(program: Program, name: str) -> Define | Scatter | Segments | Scan:
    """The definition of a stage, also inside the body of a scan."""
    found = program_facts(program).definitions.get(name)
    if found is None:
        raise ScheduleError(f"expected a definition of the program, got {name!r}")
    return found
