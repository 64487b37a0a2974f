"""The primitive `rfactor`: a reduction as partial results along one of its loops, and a final reduction over these.

A reduction with few results has no data loops to run on all cores. Its partial results have one more axis:

    S = sum(x[k] for k in range(4096))   -->   S_parts[k_o] = sum(x[k_o * 64 + k_i] for k_i in range(64))
                                               S = sum(S_parts[k_o] for k_o in range(64))

Where an axis ends may depend on others (``for j in range(k)``): it is taken apart over all that its bounds ever hold (`spans`), and each
part takes the points that are in both.

The partial results are a definition like any other, with loops of its own. How many there are is said by the split, never by
the number of threads, and the final reduction takes them in their order, so the bits do not depend on threads. Sums of
16-bit floats keep their parts in float32. argmax and argmin keep the position of the winner of each part; the final reduction
compares the values there, and the first of equal ones wins. What depends on the order of its points (these two, and a
user's combiner, which is associative but need not commute) is taken apart along its outermost loop alone: then each part is a
piece of that order.

A scatter is taken apart along its outermost loop: each part adds to a result of its own, in the order of the text, and the
final reduction takes the parts in their order. So its parts may run side by side, however places collide. A part may have several
results, which take what is sent in turns:

    S[ids[i]] += v[i]   -->   S_parts[i_o, i_i % 4, ids[i_o * 64 + i_i]] += v[i_o * 64 + i_i];  S[p] = sum(S_parts[i_o, turn, p])

An addition to memory waits for the one before where that went to the same place, some four times as long as a core needs for one. With
four results only every fourth addition can go to the same place, so they take the same time however places collide.
"""

from __future__ import annotations

from functools import reduce

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.schedule.analysis.independence import disjoint_axes
from tensorexpr.codegen.schedule.analysis.reductions import Group, canonical, closed, fitted
from tensorexpr.codegen.schedule.analysis.state import Split, Stage, State, all_definitions, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.analysis.windows import alternatives, compared, nonempty
from tensorexpr.codegen.schedule.analysis.work import has_reduction
from tensorexpr.codegen.schedule.definitions.spans import span
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import is_ordered, refuse
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import (
    TRUE,
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Define,
    Expr,
    Index,
    Reduce,
    Scatter,
    Segments,
    Size,
    TensorType,
    apply,
    conjunction,
    conjuncts,
    const,
    product,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, fresh_name, map_children, negate, read_occurrences, rename_bound, substitute, walk

WINNERS = ("argmax", "argmin")
_ARITHMETIC = ("neg", "add", "sub", "mul", "floordiv", "mod", "minimum", "maximum")
"""The operations that extents are made of."""


@record
class Cut:
    """How an axis of a reduction is taken apart: `part` runs over the parts, the axis `rest` inside one (none for a single
    point); `place` is the point of the axis there. Parts of `points` points each follow each other. Where all parts are as long, the last
    one moved back, `own` says which of its points no part before it has."""

    axis: str
    part: Axis
    rest: tuple[Axis, ...]
    place: Expr
    points: int
    own: Expr | None = None


def rfactor(state: State, name: str, loop: str, turns: int = 1, even: bool = False) -> tuple[State, tuple[str, ...]]:
    """rewrite: C[i] = sum(e[k] for k) --> C_parts[k_o, i] = sum(e[k_o * f + k_i] for k_i); C[i] = sum(C_parts[k_o, i] for k_o).

    `loop` is a loop of a reduction: one that was split off its axis, or the whole axis. The reduction over the partial results
    takes its place. Gives the names of the definitions that hold them: one for each result that reductions in these loops have.
    Bounds of the axis may depend on other indices, not on data. Of a scatter `loop` is the outermost loop, and each part adds to a result
    of its own, or to one of so many `turns`. Parts of a sum that are `even` are all as long, as blocks of a loop with tail "shift" are: the
    last one begins where it fits, and adds nothing for points that were added before.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        raise refuse(stage, f"expected a positive int as the number of turns, got {turns!r}", loop)
    if isinstance(definition, Scatter) and stage.scan is None:
        parts, total = _scatter_parts(definition, outermost(stage, definition, loop), turns, _names(state))
        _check_shapes(stage, loop, (parts,))
        return with_parts(state, (parts,), total, "rfactor"), (parts.name,)
    if turns > 1:
        raise refuse(stage, f"expected a scatter outside of scans for results that take turns, got {name}", loop)
    if not isinstance(definition, Define) or stage.scan is not None:
        raise refuse(stage, f"expected a plain definition or a scatter outside of scans to take apart, got {name}")
    group = _group(state, stage, loop)
    cut = _cut(stage, group, loop)
    cut = _moved_back(stage, group, cut) if even else cut
    value = rename_bound(definition.value, {a.index for a in definition.axes})  # the names that loops have
    maker = _Maker(state, stage, definition, group, cut)
    changed = replace(definition, value=maker.visit(value, ()))
    made = tuple(maker.made)
    if not made:
        raise refuse(stage, f"expected a reduction of {name} itself over {cut.axis}, got one inside another", loop)
    _check_shapes(stage, loop, made)
    return with_parts(state, made, changed, "rfactor"), tuple(d.name for d in made)


def _check_shapes(stage: Stage, loop: str, made: tuple[Define | Scatter, ...]) -> None:
    """Refuses partial results whose number the host could not tell: bounds are any arithmetic, such as that of uint64 between casts."""
    for node in (node for d in made for _, type_ in d.results for extent in type_.shape for node in walk(extent)):
        if not isinstance(node, Const | Size) and not (isinstance(node, Apply) and node.op.name in _ARITHMETIC):
            raise refuse(stage, f"expected as many parts as arithmetic of sizes says, got {print_expr(node)}", loop)


def _names(state: State) -> set[str]:
    """The names of a program: asked for once it is known that parts are made, since a long program has thousands."""
    return {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}


def with_parts(state: State, made: tuple[Define | Scatter | Segments, ...], changed: Define | Scatter, word: str) -> State:
    """The state with a definition `changed`, and further ones `made` in front of it, all with plain loops, by the primitive `word`."""
    name = changed.name
    definitions = [x for d in state.program.definitions for x in ((*made, changed) if d.results[0][0] == name else (d,))]
    program = with_definitions(state.program, definitions)
    fresh = {s.name: s for s in plain_stages(program, frozenset((name, *(d.name for d in made))))}
    table: dict[str, Stage] = {}
    for known in state.table:
        if known == name:
            table.update((d.name, fresh[d.name]) for d in made)
        table[known] = fresh.get(known, state.table[known])
    return written_anew(state, replace(state, program=program, table=table), word)


def outermost(stage: Stage, scatter: Scatter, loop: str) -> Cut:
    """The outermost axis of a scatter taken apart along `loop`: itself, or the outer loop of the one split that the stage has."""
    axis = scatter.axes[0] if scatter.axes else None
    split = stage.relations[0] if len(stage.relations) == 1 else None
    own = isinstance(split, Split) and axis is not None and (split.parent, split.outer) == (axis.index, loop)
    if axis is None or stage.kinds or not (own or (loop == axis.index and not stage.relations)):
        wanted = "its outermost axis" if axis is None else axis.index
        raise refuse(
            stage, f"expected {wanted} or the outer loop of its one split to take a scatter apart, got {loop}", loop, "rfactor first"
        )
    if any(True for e in (axis.start, axis.stop) for _ in read_occurrences(e, ())):
        raise refuse(
            stage, f"expected bounds of {axis.index} that are known before the loops run to take {stage.name} apart, got others", loop
        )
    return cut_axis(axis, loop, split if isinstance(split, Split) else None)


def _scatter_parts(scatter: Scatter, cut: Cut, turns: int, names: set[str]) -> tuple[Scatter, Define]:
    """A scatter for each part, and their total."""
    moved: dict[str, Expr] = {cut.axis: cut.place}
    rest = (*cut.rest, *scatter.axes[1:])
    axes = tuple(Axis(a.index, substitute(a.start, moved), substitute(a.stop, moved)) for a in rest)
    kept = accumulator(scatter.type.dtype) if scatter.combine in ("sum", "prod") else scatter.type.dtype
    value = substitute(scatter.value, moved)
    taken = {cut.part.index, *(a.index for a in axes)}
    each = (cut.part,) if turns == 1 else (cut.part, Axis(fresh_name("turn", taken), const(0), const(turns)))
    # Places that certainly differ need no turns, and keep their lanes; the others change from one addition to the next.
    apart = disjoint_axes(scatter)
    changing: list[Expr] = [Index(a.index) for a in reversed(axes) if a.index not in apart]
    sent = reduce(_plus, changing) if changing else const(0)
    which = (Index(cut.part.index), apply("mod", sent, const(turns)))
    parts = replace(
        scatter,
        name=fresh_name(f"{scatter.name}_parts", names),
        type=TensorType((*(a.stop for a in each), *scatter.type.shape), kept),
        axes=(cut.part, *axes),
        indices=(*which[: len(each)], *(substitute(index, moved) for index in scatter.indices)),
        value=value if value.dtype is kept else Cast(kept, value),
        where=None if scatter.where is None else substitute(scatter.where, moved),
    )
    taken = {a.index for a in each}
    elements = tuple(Axis(fresh_name(f"i{d}", taken), const(0), stop) for d, stop in enumerate(scatter.type.shape))
    element = Access(parts.name, tuple(Index(a.index) for a in (*each, *elements)), kept, scatter.location)
    total = Reduce(Combiner(scatter.combine), (element,), each)
    return parts, Define(scatter.name, elements, total if kept is scatter.type.dtype else Cast(scatter.type.dtype, total), scatter.location)


def _group(state: State, stage: Stage, loop: str) -> Group:
    """The reduction that a loop belongs to, where it can be taken apart."""
    if loop not in stage.order:
        raise refuse(stage, f"expected a loop of {stage.name}, got {loop!r}")
    group = stage.group_of(loop)
    if group is None:
        raise refuse(stage, f"expected a loop of a reduction to keep a partial result for each iteration, got the data loop {loop}")
    splits = [r for r in stage.relations if isinstance(r, Split) and r.parent in group.indices and loop in (r.outer, r.inner)]
    if list(stage.relations) != splits or stage.kinds or stage.place or stage.guests or state.placed_in(stage.name) or not _is_plain(stage):
        raise refuse(stage, f"expected plain loops of {stage.name} but for one split of {loop}, got changed ones", hint="rfactor first")
    if group.scope is not None:
        raise refuse(stage, f"expected a reduction of {stage.name} itself over {stage.axes_of(loop)[0]}, got one inside another", loop)
    return group


def _is_plain(stage: Stage) -> bool:
    """Whether the loops stand as in the text, with those of a split in the place of its axis."""
    return tuple(dict.fromkeys(stage.axes_of(loop)[0] for loop in stage.order)) == plain_order(stage.parts)


def span_in(stage: Stage, group: Group, index: str) -> Axis | None:
    """An axis of a reduction with bounds that are known before the loops run and hold all its points; None where there are none such."""
    at = group.indices.index(index)
    return span(group.axes[at], (*stage.parts.axes, *group.axes[:at]))


def _cut(stage: Stage, group: Group, loop: str) -> Cut:
    (name,) = stage.axes_of(loop)
    positions = any(m.combiner.is_builtin and m.combiner.name in WINNERS for m in group.members)
    for needed in group.indices if positions else (name,):
        found = span_in(stage, group, needed)
        if found is None or (positions and found != stage.axis(needed)):
            raise refuse(
                stage,
                f"expected bounds of {needed} that are known before the loops run to take {name} apart, got ones that are not",
                loop,
            )
    axis = span_in(stage, group, name)
    assert axis is not None
    split = next((r for r in stage.relations if isinstance(r, Split)), None)
    if is_ordered(group) and (group.indices[0] != name or (split is not None and loop == split.inner)):
        names = "/".join(m.combiner.name for m in group.members)
        raise refuse(stage, f"expected the outermost loop of {names}, which depends on the order of its points, got {loop}", loop)
    return cut_axis(axis, loop, split)


def _moved_back(stage: Stage, group: Group, cut: Cut) -> Cut:
    """Parts that are all as long; the same where they are."""
    axis = span_in(stage, group, cut.axis)
    extent = None if axis is None else length_of(axis)
    sums = all(m.combiner.is_builtin and m.combiner.name == "sum" for m in group.members)
    blocks = len(cut.rest) == 1 and cut.points > 1
    if axis is None or not isinstance(extent, Const) or int(extent.value) < cut.points or not sums or not blocks:
        raise refuse(stage, f"expected a sum over blocks of at most all its points for even parts, got {cut.axis}", cut.axis)
    rest = cut.rest[0]
    if rest.stop == const(cut.points):
        return cut
    first = apply("mul", Index(cut.part.index), const(cut.points))
    last = const(int(extent.value) - cut.points)
    place = _plus(_plus(apply("minimum", first, last), Index(rest.index)), axis.start)
    own = apply("ge", _plus(Index(rest.index), last), first)  # affine, so that it is known for tiles: where a part begins no later, all are
    return Cut(cut.axis, cut.part, (replace(rest, stop=const(cut.points)),), place, cut.points, own)


def cut_axis(axis: Axis, loop: str, split: Split | None) -> Cut:
    """An axis taken apart along `loop`, one of the two that it was split into, or the axis itself."""
    name, extent = axis.index, length_of(axis)
    if split is None:
        return Cut(name, Axis(loop, const(0), extent), (), _plus(Index(loop), axis.start), 1)
    factor = const(split.factor)
    here, there = Index(split.outer), Index(split.inner)
    place = _plus(_plus(apply("mul", here, factor), there), axis.start)
    if isinstance(extent, Const):
        blocks: Expr = const(-(-int(extent.value) // split.factor))
        whole = int(extent.value) % split.factor == 0
    else:
        blocks, whole = apply("floordiv", _plus(extent, const(split.factor - 1)), factor), False
    if loop == split.outer:
        inside = factor if whole else apply("minimum", factor, apply("sub", extent, apply("mul", here, factor)))
        return Cut(name, Axis(loop, const(0), blocks), (Axis(split.inner, const(0), inside),), place, split.factor)
    if not whole:
        blocks = apply("floordiv", apply("sub", _plus(extent, const(split.factor - 1)), there), factor)
    return Cut(name, Axis(loop, const(0), factor), (Axis(split.outer, const(0), blocks),), place, 1)


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) + int(b.value))
    if b == const(0):
        return a
    return apply("add", a, b)


class _Maker:
    """Writes the reductions of one group over their partial results, and the definitions of these."""

    def __init__(self, state: State, stage: Stage, definition: Define, group: Group, cut: Cut) -> None:
        self.state = state
        self.stage = stage
        self.definition = definition
        self.indices = group.indices
        self.cut = cut
        self.names = _names(state)
        self.made: list[Define] = []
        self.known: dict[Expr, Access] = {}
        self.axes: tuple[Axis, ...] | None = None

    def visit(self, node: Expr, path: tuple[Expr, ...]) -> Expr:
        """The expression with its reductions over the loops of the group replaced; `path` is the conditions on the way."""
        if isinstance(node, Apply) and node.op.name == "where":
            condition, taken, otherwise = node.args
            return apply(
                "where",
                self.visit(condition, path),
                self.visit(taken, (*path, *conjuncts(condition))),
                self.visit(otherwise, (*path, negate(condition))),
            )
        if not isinstance(node, Reduce):
            return map_children(node, lambda child: self.visit(child, path))
        return self.over_parts(node, path) if self.is_one(node) else node

    def is_one(self, node: Reduce) -> bool:
        """Whether a reduction runs over the axes of the group, as its conditions bound them: parts are those of one range."""
        if self.axes is None and tuple(a.index for a in node.axes) != self.indices:
            return False
        axes = fitted(node, self.definition.axes).axes
        if self.axes is None:
            self.axes = axes
        if len(axes) != len(self.axes):
            return False
        names = {a.index: Index(b.index) for a, b in zip(axes, self.axes, strict=True)}
        return all(
            (substitute(a.start, names), substitute(a.stop, names)) == (b.start, b.stop) for a, b in zip(axes, self.axes, strict=True)
        )

    def over_parts(self, node: Reduce, path: tuple[Expr, ...]) -> Expr:
        """The final reduction, over partial results that are made."""
        path = self.known_before(node, path)
        path = (*self.around(node, path), *path)
        at = self.indices.index(self.cut.axis)
        moved = {node.axes[at].index: self.cut.place}
        axes = [*node.axes[:at], *self.cut.rest, *node.axes[at + 1 :]]
        inner = tuple(Axis(a.index, substitute(a.start, moved), substitute(a.stop, moved)) for a in axes)
        conditions = (*path, *_spared(node.axes[at]), *conjuncts(node.where))
        guarded = replace(node, where=conjunction(conditions))
        if not self.is_in_bounds(guarded, self.definition.axes, ()):
            guarded = replace(node, where=closed(conditions))  # one on data is evaluated where those before it hold
        where = None if guarded.where == TRUE else substitute(guarded.where, moved)  # type: ignore[arg-type]  # guarded has a condition, if only TRUE
        part = replace(node, values=tuple(substitute(v, moved) for v in node.values), axes=inner, where=where)
        if not node.combiner.is_builtin:
            parts = tuple(self.partial(replace(part, component=c)) for c in range(len(node.values)))
            return replace(node, values=parts, axes=(self.cut.part,), where=None)
        if node.combiner.name in WINNERS:
            return self.winner(guarded, part)
        kept = accumulator(node.dtype) if node.combiner.name in ("sum", "prod") else node.dtype
        wide = tuple(v if v.dtype is kept else Cast(kept, v) for v in part.values)
        if self.cut.own is not None:
            wide = tuple(apply("where", self.cut.own, v, Const(0, kept)) for v in wide)
        total = replace(node, values=(self.partial(replace(part, values=wide)),), axes=(self.cut.part,), where=None)
        return total if kept is node.dtype else Cast(node.dtype, total)

    def known_before(self, node: Reduce, path: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The conditions around a reduction but for those that ask for results of reductions: every part would compute these anew. What
        the reduction reads has to be in bounds without them."""
        kept = tuple(c for c in path if not has_reduction(c))
        if kept != path and not self.is_in_bounds(node, self.definition.axes, kept):
            raise refuse(
                self.stage,
                f"expected reads in bounds whatever other reductions give to take {self.cut.axis} apart, got one that depends",
                self.cut.axis,
            )
        return kept

    def around(self, node: Reduce, path: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """What says that the axes have points that a reduction does not depend on, where some read needs them: its parts stand outside."""
        used = {n for e in (node, *path) for n in free_names(e)}
        axes = tuple(a for a in self.definition.axes if a.index in used)
        others = [a for a in self.definition.axes if a.index not in used and not (isinstance(a.stop, Const) and int(a.stop.value) > 0)]
        return tuple(c for a in others for c in nonempty(a)) if others and not self.is_in_bounds(node, axes, path) else ()

    def is_in_bounds(self, node: Reduce, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> bool:
        """Whether all that a reduction reads is certain to be in bounds."""
        types = self.state.program.types
        return all(
            verdict is PROVED
            for read in read_occurrences(node, axes, guards)
            for verdict in check_access(read.access.indices, types[read.access.tensor].shape, read.axes, read.guards)
        )

    def winner(self, node: Reduce, part: Reduce) -> Expr:
        """The position of the first winner among those of the parts: the value at each is looked up again."""
        parts, lengths = self.cut.part, [length_of(a) for a in node.axes]
        if const(0) in lengths:
            return const(0)
        points = product((const(self.cut.points), *lengths[1:]))
        here = self.partial(_plus(apply("mul", Index(parts.index), points), part))
        at: dict[str, Expr] = {}
        rest: Expr = here
        for axis, extent in zip(reversed(node.axes[1:]), reversed(lengths[1:]), strict=True):
            at[axis.index] = _plus(apply("mod", rest, extent), axis.start)
            rest = apply("floordiv", rest, extent)
        at[node.axes[0].index] = _plus(rest, node.axes[0].start)
        where = None if part.where is None else substitute(node.where, at)  # type: ignore[arg-type]  # the node is that of the part
        first = replace(node, values=tuple(substitute(v, at) for v in node.values), axes=(parts,), where=where)
        found = replace(here, indices=(first, *here.indices[1:]))
        there_are: list[Expr] = [apply("gt", extent, const(0)) for extent in lengths if not isinstance(extent, Const)]
        return apply("where", conjunction(there_are), found, const(0)) if there_are else found

    def partial(self, value: Expr) -> Access:
        """The read of a partial result; equal ones are kept once."""
        key = canonical(value)
        if key not in self.known:
            definition = self.definition
            used = set(free_names(value))
            axes = (self.cut.part, *(a for a in definition.axes if a.index in used))
            made = Define(fresh_name(f"{definition.name}_parts", self.names), axes, value, definition.location)
            self.made.append(made)
            self.known[key] = Access(made.name, tuple(Index(a.index) for a in axes), value.dtype, definition.location)
        return self.known[key]


def _spared(axis: Axis) -> list[Expr]:
    """What bounds of an axis say that depend on loops around: the axis that is taken apart has constant ones, which are wider."""
    starts, stops = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
    conditions = [compared("ge", axis.index, e) for e in starts if free_names(e)]
    return conditions + [compared("lt", axis.index, e) for e in stops if free_names(e)]


def length_of(axis: Axis) -> Expr:
    """The number of points of an axis."""
    if axis.start == const(0):
        return axis.stop
    if isinstance(axis.start, Const) and isinstance(axis.stop, Const):
        return const(max(0, int(axis.stop.value) - int(axis.start.value)))
    return apply("maximum", apply("sub", axis.stop, axis.start), const(0))
