"""Definitions computed inside the loops of another: which part is needed there, and where it is kept.

A definition placed in loop `l` of stage `s` is computed once per iteration of `l`, at the elements that the iteration
reads. Per axis that is one element, an expression over axes of `s` that are settled in `l`, where every read asks for that
one; a block of it, where every read asks for the index of an axis of `s` of which `l` is in the outer loop of a split (on a
CPU; of an axis of open length what is left is a shorter block), or for the number of a panel of such an axis (`j // 16`, in
a copy of blocks) and the block is made of whole panels; a window of constant length, where what is read lies between two
such forms (`boxes`); else the whole axis. The values live in a buffer of the iteration: on the stack where it is small, else
in a part of the workspace that the threads do not share. Where others read the definition too (it is an output, or a later
definition reads it), or the buffer would be large, they live in the tensor itself, and then the iterations must make each of
its elements exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensorexpr.codegen.schedule.analysis.boxes import Asked, Begin, Known, Site, Window
from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage, State, all_uses, definition_named, program_facts, reads_of
from tensorexpr.errors import ScheduleError
from tensorexpr.integers import Affine
from tensorexpr.ir import Apply, Axis, Const, Define, Definition, Expr, Index, const, integer
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, read_occurrences

LOCAL_LIMIT = 1 << 15
"""Bytes up to which a placed definition is kept on the stack."""
SCRATCH_LIMIT = 1 << 22
"""Bytes up to which it is kept in workspace of its iteration."""


@record
class Part:
    """What one iteration computes: per axis the element, or None for the whole axis; where `lengths` says how many, those from an element
    on: the index of an axis of the consumer, which stands for its block; the number of the first panel of one (`ragged`: the last block may
    have fewer); where a window begins, along `windows`. Whether it is kept for the iteration alone, and how many bytes that takes."""

    points: tuple[Expr | None, ...]
    lengths: tuple[int | None, ...]
    is_local: bool
    size: int
    ragged: frozenset[int] = frozenset()
    windows: frozenset[int] = frozenset()

    def is_on_stack(self) -> bool:
        return self.size <= LOCAL_LIMIT

    def extents(self, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The extents of what is computed, 1 along the axes of which it is one element."""
        return tuple(
            const(n) if n is not None else e if p is None else const(1) for e, p, n in zip(shape, self.points, self.lengths, strict=True)
        )


def settled_axes(stage: Stage, loop: str) -> tuple[str, ...]:
    """The data axes of which all loops are open inside `loop`."""
    open_loops = set(stage.order[: stage.order.index(loop) + 1])
    return tuple(a.index for a in stage.parts.axes if set(stage.loops_of(a.index)) <= open_loops)


@record
class Blocks:
    """How long the block of a data axis is that a loop stands in; whether all are equally long, and begin at multiples of that; whether
    blocks have that length in every form that the loops run in (a rest is no shorter block by itself). Of an axis of open length the rest
    may be a shorter block, in the loop `inner`."""

    length: int
    whole: bool
    aligned: bool
    exact: bool
    inner: str | None = None


def blocks_in(stage: Stage, loop: str) -> dict[str, Blocks]:
    """The data axes that `loop` stands in a block of: the outer loops of their splits are open, the inner ones are not."""
    open_loops = set(stage.order[: stage.order.index(loop) + 1])
    found = {axis.index: _blocks(stage, axis.index, open_loops) for axis in stage.parts.axes if set(stage.leaves(axis.index)) & open_loops}
    return {axis: block for axis, block in found.items() if block is not None and block.length > 1}


def _blocks(stage: Stage, loop: str, open_loops: set[str]) -> Blocks | None:
    """What of an axis, or of a loop that was split, is left where some loops are open; None where that is no block."""
    leaves = set(stage.leaves(loop))
    if leaves <= open_loops:
        return Blocks(1, True, True, True)
    extent = stage.extent(loop)
    if extent is None:
        return _open_blocks(stage, loop, open_loops)
    if not leaves & open_loops:
        return Blocks(extent, True, True, True)
    split = next((r for r in stage.relations if isinstance(r, Split) and r.parent == loop), None)
    if split is None or split.tail == "stride":
        return None
    outer, inner = (_blocks(stage, x, open_loops) for x in (split.outer, split.inner))
    if outer is None or inner is None:
        return None
    divides = extent % split.factor == 0
    moved = split.tail == "shift" and not divides  # the last block begins further in front
    exact = outer.exact and inner.exact and (divides or split.tail == "guard" or (split.tail == "shift" and extent >= split.factor))
    if outer.length == 1:
        return Blocks(inner.length, outer.whole and inner.whole and (divides or moved) and exact, inner.aligned and not moved, exact)
    if set(stage.leaves(split.inner)) & open_loops:
        return None
    return Blocks(outer.length * split.factor, outer.whole and divides, outer.aligned, exact and not moved)


def _open_blocks(stage: Stage, axis: str, open_loops: set[str]) -> Blocks | None:
    """The blocks of an axis of open length, of whose outer loop an iteration is, with a shorter one at the end."""
    for r in stage.relations:
        if isinstance(r, Split) and r.parent == axis and r.tail == "peel" and axis in {a.index for a in stage.parts.axes}:
            if set(stage.leaves(r.outer)) <= open_loops and not set(stage.leaves(r.inner)) & open_loops:
                return Blocks(r.factor, True, True, True, r.inner)
    return None


def part_of(state: State, name: str) -> Part:
    """The part of a placed definition that one iteration of its loop computes."""
    return parts_of(state, state.stage(name).site.stage)[name]


def parts_of(state: State, root: str) -> dict[str, Part]:
    """The parts of all definitions placed in the loops of `root`; remembered, as each of them asks, and as states follow each other."""
    known = state.found.get(("parts of", root))
    if known is None:
        table, key = program_facts(state.program).parts, _depends_on(state, root)
        known = table.get(key)
        if known is None:
            known = table[key] = _parts_of(state, root)
        state.found["parts of", root] = known
    return known


def _depends_on(state: State, root: str) -> object:
    """All of a state that `_parts_of` asks about: equal for states of a program in which the parts are the same."""
    consumer = state.stage(root)
    members = tuple((m.name, m.site.loop, outside_readers(state, m.name, root)) for m in state.placed_in(root))
    sites = tuple(
        (loop, settled_axes(consumer, loop), tuple(blocks_in(consumer, loop).items())) for loop in dict.fromkeys(m[1] for m in members)
    )
    return root, state.target.is_gpu, consumer.parts.axes, members, sites


def _parts_of(state: State, root: str) -> dict[str, Part]:
    consumer = state.stage(root)
    members = state.placed_in(root)
    requests: dict[str, list[Asked]] = {s.name: [] for s in members}
    sites: dict[str, tuple[Site, dict[str, Blocks]]] = {}
    begins: dict[str, Begin] = {}
    same = {a.index: Affine.of(a.index) for a in consumer.parts.axes}
    _collect(state, root, Known({n: Index(n) for n in same}, {n: (form, form) for n, form in same.items()}), requests)
    result: dict[str, Part] = {}
    for member in reversed(members):
        made = definition_named(state.program, member.name)
        loop, shape, wanted = member.site.loop, made.results[0][1].shape, requests[member.name]
        if loop not in sites:
            sites[loop] = _site(state, consumer, loop, begins)
        site, blocks = sites[loop]
        known_there = {*site.settled, *blocks}
        if not wanted:
            points = _at_same(made, consumer, known_there)
        else:
            points = tuple(_agreed([one.point(axis) for one in wanted], known_there) for axis in range(len(shape)))
        part = _part(state, member.name, root, *_in_blocks(made, consumer, points, blocks))
        windows = {
            axis: site.window((one.span(axis, shape[axis]) for one in wanted), shape[axis])
            for axis, p in enumerate(part.points)
            if p is None
        }
        narrow = _with_windows(state, member.name, root, part, {axis: w for axis, w in windows.items() if w is not None})
        result[member.name] = part = narrow if narrow.is_local else part  # where it is kept whole all of its elements are asked for
        _collect(state, member.name, _known(made, member.name, loop, part, begins), requests)
    return result


def _site(state: State, consumer: Stage, loop: str, begins: dict[str, Begin]) -> tuple[Site, dict[str, Blocks]]:
    """What is known in a loop of the consumer; the axes that it stands in exact blocks of."""
    blocks = {} if state.target.is_gpu else blocks_in(consumer, loop)
    ranges = {axis: (block.length, block.whole) for axis, block in blocks.items() if block.inner is None}
    axes = {a.index: a for a in consumer.parts.axes}
    site = Site(loop, frozenset(settled_axes(consumer, loop)), ranges, axes, frozenset(state.program.sizes), begins)
    return site, {axis: block for axis, block in blocks.items() if block.exact}


def _with_windows(state: State, name: str, root: str, part: Part, windows: dict[int, Window]) -> Part:
    """The part with windows along some axes."""
    if not windows:
        return part
    points = tuple(windows[axis].begin if axis in windows else p for axis, p in enumerate(part.points))
    lengths = tuple(windows[axis].length if axis in windows else n for axis, n in enumerate(part.lengths))
    return _part(state, name, root, points, lengths, part.ragged, frozenset(windows))


def _known(made: Definition, name: str, loop: str, part: Part, begins: dict[str, Begin]) -> Known:
    """What the axes of a definition are where a part of it is computed; windows are noted in `begins`."""
    assert isinstance(made, Define)
    points: dict[str, Expr] = {}
    spans: dict[str, tuple[Affine | None, Affine | None]] = {}
    for number, (axis, point, length) in enumerate(zip(made.axes, part.points, part.lengths, strict=True)):
        if point is None:
            spans[axis.index] = (Affine.of(0), Affine.of(integer(axis.stop) - 1)) if isinstance(axis.stop, Const) else (None, None)
        elif number in part.windows and length is not None:
            begin = f"{axis.index} of {name}"  # no name of an index has a space
            begins[begin] = Begin(loop, point, integer(axis.stop) - length)
            spans[axis.index] = Affine.of(begin), Affine.of(begin) + (length - 1)
        else:
            points[axis.index] = point
            form = affine_of(point)
            spans[axis.index] = form, form
    return Known(points, spans)


def _at_same(made: Definition, consumer: Stage, settled: set[str]) -> tuple[Expr | None, ...]:
    """The points of a definition that nobody there reads: those of the leading axes that are settled."""
    shape = made.results[0][1].shape
    points: list[Expr | None] = [None] * len(shape)
    for place, (extent, axis) in enumerate(zip(shape, consumer.parts.axes, strict=False)):
        if axis.index not in settled or axis.stop != extent:
            break
        points[place] = Index(axis.index)
    return tuple(points)


def _collect(state: State, name: str, known: Known, requests: dict[str, list[Asked]]) -> None:
    """Notes for every tensor asked about what a definition reads of it."""
    for read in reads_of(state.program, name):
        if read.access.tensor in requests:
            requests[read.access.tensor].append(Asked(read, known))


def _agreed(requested: list[Expr | None], settled: set[str]) -> Expr | None:
    first = requested[0] if requested else None
    if first is None or any(r != first for r in requested) or not set(free_names(first)) <= settled:
        return None
    return first


def _in_blocks(
    made: Definition, consumer: Stage, points: tuple[Expr | None, ...], blocks: dict[str, Blocks]
) -> tuple[tuple[Expr | None, ...], tuple[int | None, ...], frozenset[int]]:
    """The points, how many elements each stands for, and along which axes the last block may have fewer. Indices of axes in blocks, alone
    and of the same extent, stand for a block, quotients of such indices for the panels that one is made of; of an axis that is read
    otherwise there, the whole is computed."""
    extents = {a.index: a.stop for a in consumer.parts.axes}
    found: list[tuple[Expr | None, int | None]] = []
    ragged: set[int] = set()
    for axis, (extent, point) in enumerate(zip(made.results[0][1].shape, points, strict=True)):
        if point is None or not set(free_names(point)) & set(blocks):
            found.append((point, None))
            continue
        length = None
        if isinstance(point, Index) and extents[point.name] == extent and blocks[point.name].whole:
            length = blocks[point.name].length
            if blocks[point.name].inner is not None:
                ragged.add(axis)
        elif isinstance(point, Apply) and point.op.name == "floordiv" and isinstance(point.args[0], Index):
            length = _panels(extent, extents[point.args[0].name], point.args[1], blocks[point.args[0].name])
            if length is not None and integer(extent) % length:
                ragged.add(axis)
        found.append((None if length is None else point, length))
    return tuple(p for p, _ in found), tuple(n for _, n in found), frozenset(ragged)


def _panels(panels: Expr, extent: Expr, width: Expr, block: Blocks) -> int | None:
    """How many panels of an axis, of `width` elements each, a block of it is made of; None where that is no whole number."""
    if not all(isinstance(e, Const) for e in (panels, extent, width)) or integer(panels) != -(-integer(extent) // integer(width)):
        return None
    return block.length // integer(width) if block.aligned and block.length % integer(width) == 0 else None


def _part(
    state: State,
    name: str,
    root: str,
    points: tuple[Expr | None, ...],
    lengths: tuple[int | None, ...],
    ragged: frozenset[int],
    windows: frozenset[int] = frozenset(),
) -> Part:
    type_ = definition_named(state.program, name).results[0][1]
    extents = Part(points, lengths, False, 0).extents(type_.shape)
    size: int = type_.dtype.itemsize * prod(int(e.value) if isinstance(e, Const) else SCRATCH_LIMIT for e in extents)
    limit = LOCAL_LIMIT if state.target.is_gpu else SCRATCH_LIMIT
    # A block of rows whose length is open takes less than all rows, however long they are.
    is_block = any(not isinstance(type_.shape[axis], Const) for axis in ragged)
    is_local = (size <= limit or is_block) and name not in state.program.outputs and not outside_readers(state, name, root)
    return Part(points, lengths, is_local, size, ragged, windows)


def part_axes(state: State, name: str) -> tuple[Axis, ...]:
    """The data axes of a placed definition, as long as what one iteration computes of them."""
    made, lengths = definition_named(state.program, name), part_of(state, name).lengths
    assert isinstance(made, Define)
    return tuple(a if n is None else Axis(a.index, a.start, const(n)) for a, n in zip(made.axes, lengths, strict=True))


def outside_readers(state: State, name: str, root: str) -> tuple[str, ...]:
    """The definitions that read a tensor and are not computed in the loops of `root`."""

    def is_inside(reader: str) -> bool:
        stage = state.table.get(reader)
        return reader == root or (stage is not None and stage.place is not None and stage.place.stage == root)

    return tuple(r for r in program_facts(state.program).readers.get(name, ()) if not is_inside(r))


def check_placement(state: State, name: str) -> State:
    """Gives the state back; raises `ScheduleError` where `name` cannot be computed in the loop that it is placed in."""
    stage = state.stage(name)
    place = stage.place
    assert place is not None
    consumer = state.stage(place.stage)

    def refuse(message: str, hint: str | None = None) -> ScheduleError:
        return ScheduleError(message, term=f"{name} in loop {place.loop} of {place.stage}", hint=hint)

    if stage.scan is not None or consumer.scan is not None:
        raise refuse("expected definitions outside of scans to compute one in the other")
    made = definition_named(state.program, name)
    if not isinstance(made, Define):
        raise refuse(f"expected a plain definition to compute inside another, got a {type(made).__name__.lower()}")
    if consumer.place is not None:
        raise refuse(f"expected a definition with loops of its own, got {consumer.name}, computed in {consumer.place.stage}")
    hint = f"loops: {', '.join(consumer.order)}"
    if place.loop not in consumer.order or consumer.group_of(place.loop) is not None:
        raise refuse(f"expected a data loop of {place.stage}, got {place.loop}", hint)
    for other in state.placed_in(place.stage):
        if other.site.loop not in consumer.order:
            raise refuse(f"expected a data loop of {place.stage}, got {other.site.loop}, in which {other.name} is computed", hint)
    at = consumer.order.index(place.loop)
    for group in consumer.parts.groups:
        first = min(consumer.order.index(x) for a in group.indices for x in consumer.loops_of(a))
        if first < at and (set(consumer.axes_of(place.loop)) & set(group.depends) or _needs(consumer, group.number, name)):
            raise refuse(
                f"expected a loop outside of the reduction over {group.indices[0]}, got {place.loop}",
                "reorder, or choose a loop further out",
            )
    for loop in consumer.order[: at + 1]:
        bounds = (e for a in consumer.parts.axes if a.index in consumer.axes_of(loop) for e in (a.start, a.stop))
        if any(read.access.tensor == name for e in bounds for read in read_occurrences(e, ())):
            raise refuse(f"expected a loop outside of {loop}, whose bounds {name} gives, got {place.loop}", "choose a loop further out")
    inside = [place.stage, *(s.name for s in state.placed_in(place.stage))]
    facts = program_facts(state.program)
    readers = facts.readers.get(name, ())
    if not any(r in inside for r in readers) and name not in consumer.guests:
        raise refuse(f"expected a definition that {place.stage} reads, got {name}, which it does not")
    for reader in readers:
        if reader not in inside:
            if facts.numbers[reader] < facts.numbers[place.stage]:
                raise refuse(f"expected every other reader after {place.stage}, got {reader} before it")
        elif reader != place.stage:
            site = state.stage(reader).site
            if consumer.order.index(site.loop) < at:
                raise refuse(f"expected its readers in the same loop or deeper, got {reader} in {site.loop}")
    part = parts_of(state, place.stage)[name]
    whole = {a.index for a, p, n in zip(stage.parts.axes, part.points, part.lengths, strict=True) if p is None or n is not None}
    for loop in stage.order:
        axes = set(stage.axes_of(loop))
        if axes & whole and not axes <= whole and stage.group_of(loop) is None:
            raise refuse(f"expected {loop} to run over axes that are computed whole, got one of which {place.loop} asks for one element")
    if not part.is_local:
        _check_stored(state, name, part, consumer, refuse)
    return state


def _check_stored(state: State, name: str, part: Part, consumer: Stage, refuse: Callable[..., ScheduleError]) -> None:
    """A tensor kept whole needs every element made exactly once."""
    place = state.stage(name).site
    made = definition_named(state.program, name)
    extents = {a.index: a.stop for a in consumer.parts.axes}
    used = [p.name for p in part.points if isinstance(p, Index)]
    aligned = all(
        p is None or (isinstance(p, Index) and extents.get(p.name) == extent)
        for p, extent in zip(part.points, made.results[0][1].shape, strict=True)
    )
    opened = {a for x in consumer.order[: consumer.order.index(place.loop) + 1] for a in consumer.axes_of(x)}
    once = all(
        n is None
        or (integer(extent) % n == 0 if isinstance(extent, Const) else axis in part.ragged)  # what is left of an open length is a block
        or (isinstance(p, Index) and _in_turn(consumer, place.loop, p.name))
        for axis, (extent, p, n) in enumerate(zip(made.results[0][1].shape, part.points, part.lengths, strict=True))
    )
    if not aligned or not once or len(set(used)) != len(used) or opened != set(used):
        raise refuse(
            f"expected iterations that make each element of {name} once, since it is kept whole: an output, read elsewhere or large",
            "choose a loop that runs over the axes by which it is read",
        )


def _in_turn(consumer: Stage, loop: str, axis: str) -> bool:
    """Whether the blocks of an axis that a loop stands in run one after the other: where the last one is moved back, it makes some elements
    again, as they were."""
    around = consumer.order[: consumer.order.index(loop) + 1]
    return all(consumer.kind(x) == SERIAL for x in consumer.loops_of(axis) if x in around)


def _needs(stage: Stage, number: int, tensor: str) -> bool:
    """Whether a group of the stage, or one that it uses, reads a tensor."""
    numbers = [number, *all_uses(stage.parts, stage.parts.group(number))]
    for n in numbers:
        group = stage.parts.group(n)
        exprs = [e for a in group.axes for e in (a.start, a.stop)] + [
            *group.where,
            *group.guard,
            *(v for m in group.members for v in m.values),
        ]
        if any(access.tensor == tensor for e in exprs for access, _, _ in read_occurrences(e, ())):
            return True
    return False
