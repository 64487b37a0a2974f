"""The primitive `part`: sums over sorted segments, of which the long ones are taken apart at fixed places of the order.

    S[v] = sum(e(order[k]) for k in range(offsets[v], offsets[v + 1]))
      -->
    S_parts[p] = sum(e(order[p * b + i]) for i in range(b))        where all b points have one key
    S[v] = sum(e(order[k]) for k up to the first multiple of b) + sum(S_parts[p] for p) + sum(e(order[k]) for k from the last one)

Parts are blocks of b neighbors in the order of the plan, whatever segments there are: their boundaries follow from the number of points
alone, so results have the same bits on any grid. A part within a segment is added up once, by itself; one in which a segment begins or
ends is nothing, and its points are added where they belong. So each point is added once, in the order of the text, and what goes to one
element is no longer the work of one thread: where all n points meet there, the longest chain of additions is 2 (b - 1) + n / b long, and
with parts of parts 2 (b - 1) + 2 (c - 1) + n / (b c). Segments shorter than a part are added up as before.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.schedule.analysis.state import Stage, State, all_definitions, program_facts
from tensorexpr.codegen.schedule.definitions.rfactor import with_parts
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.scatters.points import places_of
from tensorexpr.dtypes import accumulator
from tensorexpr.interpret import identity_of
from tensorexpr.ir import FALSE, Access, Axis, Cast, Const, Define, Expr, Index, Reduce, Segments, apply, conjunction, const, product
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up, bound_names, expressions, free_names, fresh_name, rename_bound, substitute, walk

COMBINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}
"""What puts the results of two parts together, by combiner."""
ONE = const(1)


@record
class Found:
    """A sum over a segment of a plan, and the plan."""

    total: Reduce
    plan: Segments


def segment_sum(value: Expr, plans: dict[str, Segments], loop: str | None = None) -> Found | None:
    """The one sum over a segment in an expression, along `loop` where that is given, that can be taken apart."""
    found = []
    for node in walk(value):
        if isinstance(node, Reduce) and len(node.axes) == 1 and loop in (None, node.axes[0].index):
            start, stop = node.axes[0].start, node.axes[0].stop
            plan = plans.get(start.tensor) if isinstance(start, Access) else None
            if plan is None or plan.batch or not isinstance(start, Access):
                continue
            following = replace(start, indices=(apply("add", start.indices[0], ONE),))
            hidden = set(free_names(start))
            asked = {n for e in (*node.values, *(() if node.where is None else (node.where,))) for n in free_names(e)}
            if stop == following and node.combiner.name in COMBINED and not hidden & asked:
                found.append(Found(node, plan))
    return found[0] if len(found) == 1 else None


def plans_of(state: State) -> dict[str, Segments]:
    """The sort plans of a program by the names of their offsets."""
    return {d.name: d for d in state.program.definitions if isinstance(d, Segments)}


def part(state: State, name: str, loop: str, lengths: tuple[int, ...]) -> tuple[State, tuple[str, ...]]:
    """rewrite: S[v] = sum(e(k) for k of segment v) --> P[p] = sum(e(p * b + i) for i); S[v] = sum(e(k)) + sum(P[p] for p) + sum(e(k)).

    `loop` runs over a segment of a sort plan that the program makes; `lengths` are the points of a part, then the parts of a part of
    these, and so on. Gives the names of the definitions that hold the parts.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Define) or stage.scan is not None:
        raise refuse(stage, f"expected a plain definition outside of scans to part its segments, got {name}")
    if stage.kinds or stage.relations or stage.place or stage.guests or state.placed_in(name):
        raise refuse(stage, f"expected plain loops of {name} to part its segments, got changed ones", hint="part first")
    if not lengths or any(not isinstance(n, int) or isinstance(n, bool) or n < 2 for n in lengths):
        raise refuse(stage, f"expected lengths of parts of at least 2, got {', '.join(map(repr, lengths)) or 'none'}", loop)
    value = rename_bound(definition.value, {a.index for a in definition.axes})  # the names that loops have
    found = segment_sum(value, plans_of(state), loop)
    if found is None:
        raise refuse(
            stage, f"expected a reduction of {name} over a segment of a sort plan, whose values do not depend on which, got {loop}", loop
        )
    maker = _Maker(state, stage, definition, found)
    total = maker.total(lengths)
    changed = replace(definition, value=bottom_up(value, lambda n: total if n is found.total else n))
    return with_parts(state, tuple(maker.made), changed, "part"), tuple(d.name for d in maker.made)


class _Maker:
    """Makes the parts of a sum, level by level; points are level 0."""

    def __init__(self, state: State, stage: Stage, definition: Define, found: Found) -> None:
        self.definition, self.reduce, self.plan = definition, found.total, found.plan
        self.names = {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}
        self.taken = {*self.names, *(a.index for a in definition.axes), *(n for e in expressions(definition) for n in bound_names(e))}
        self.k = found.total.axes[0].index
        (value,) = found.total.values
        self.kept = accumulator(value.dtype) if found.total.combiner.name in ("sum", "prod") else value.dtype
        self.value = value if value.dtype is self.kept else Cast(self.kept, value)
        used = {n for e in (value, *(() if found.total.where is None else (found.total.where,))) for n in free_names(e)}
        self.axes = tuple(a for a in definition.axes if a.index in used)
        self.points = product(tuple(axis.stop for axis in found.plan.axes))
        self.made: list[Define] = []

    def total(self, lengths: tuple[int, ...]) -> Expr:
        """The sum of a segment over parts of these lengths, which are made."""
        size = 1
        for length in lengths:
            size *= length
            self.made.append(self.parts(length, size))
        (axis,) = self.reduce.axes
        total = self.within(0, axis.start, axis.stop, lengths)
        return total if self.kept is self.reduce.dtype else Cast(self.reduce.dtype, total)

    def over(self, level: int, index: str, start: Expr, stop: Expr, at: Expr) -> Reduce:
        """The sum over points, or over parts of some level, at places that depend on an index."""
        if level == 0:
            where = None if self.reduce.where is None else substitute(self.reduce.where, {self.k: at})
            value = substitute(self.value, {self.k: at})
        else:
            where, value = None, self.element(level, at)
        return Reduce(self.reduce.combiner, (value,), (Axis(index, start, stop),), where)

    def element(self, level: int, at: Expr) -> Access:
        made = self.made[level - 1]
        return Access(made.name, (at, *(Index(a.index) for a in self.axes)), self.kept, self.definition.location)

    def parts(self, length: int, size: int) -> Define:
        """The sums of all parts of one length, `size` points each; nothing where a segment begins or ends within."""
        p, i = (fresh_name(n, {*self.taken}) for n in ("p", "i"))
        first = apply("mul", Index(p), const(length))
        inside = self.over(len(self.made), i, const(0), const(length), apply("add", first, Index(i)))
        begin = apply("mul", Index(p), const(size))
        last = apply("add", begin, const(size - 1))
        end = Access(self.plan.names[0], (product(self.plan.extents),), dtypes.int64, self.definition.location)
        keys = [apply("eq", a, b) for a, b in zip(self.keys(begin), self.keys(last), strict=True)]
        # Behind the last key there are no points whose keys could be asked for.
        whole = apply("where", apply("lt", last, end), conjunction(keys), FALSE)
        nothing = Const(identity_of(self.reduce.combiner.name, self.kept), self.kept)
        count = const(int(self.points.value) // size) if isinstance(self.points, Const) else apply("floordiv", self.points, const(size))
        name = fresh_name(f"{self.definition.name}_parts", self.names)
        return Define(name, (Axis(p, const(0), count), *self.axes), apply("where", whole, inside, nothing), self.definition.location)

    def keys(self, position: Expr) -> tuple[Expr, ...]:
        """The keys of the point at a position of the order."""
        point = Access(self.plan.names[1], (position,), dtypes.int64, self.definition.location)
        places = places_of(self.plan.axes, point)
        return tuple(substitute(key, places) for key in self.plan.keys)

    def within(self, level: int, start: Expr, stop: Expr, lengths: tuple[int, ...]) -> Expr:
        """The sum over points or parts from `start` up to `stop`: up to the first whole part, these, and behind the last."""
        index = fresh_name(self.k if level == 0 else "p", self.taken)
        if level == len(lengths):
            return self.over(level, index, start, stop, Index(index))
        length = const(lengths[level])
        first = apply("floordiv", apply("add", start, const(lengths[level] - 1)), length)
        last = apply("floordiv", stop, length)
        before = self.over(level, index, start, apply("minimum", stop, apply("mul", first, length)), Index(index))
        parts = self.within(level + 1, first, last, lengths)
        index = fresh_name(self.k if level == 0 else "p", self.taken)
        after = self.over(level, index, apply("maximum", apply("mul", first, length), apply("mul", last, length)), stop, Index(index))
        combine = COMBINED[self.reduce.combiner.name]
        return apply(combine, apply(combine, before, parts), after)
