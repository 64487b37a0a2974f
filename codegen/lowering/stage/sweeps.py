"""The loops of a scan whose points do not communicate (see `schedule.sweeps`): states around the steps, stores in them.

The loop over steps is walked as that of a reduction is: where it starts, a state per point of the data loops inside is
allocated and set to what it is before the first step; each step computes its moments from the states and stores what is kept.

Where a block of steps stands around a vector of as many points, elements that lie one after the other along the
steps are moved as square tiles, through local memory that the emitter keeps in registers: read before the block, written
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensorexpr.bounds import PROVED, check_access, implied
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant
from tensorexpr.codegen.lowering.context.scope import LOOP, Scope, replaced
from tensorexpr.codegen.lowering.context.tasks import Names, Task
from tensorexpr.codegen.lowering.stage.loops import GUARDED, Loops
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.schedule.analysis.reductions import Group
from tensorexpr.codegen.schedule.analysis.state import SERIAL, Split, Stage
from tensorexpr.codegen.schedule.analysis.steps import Sweep
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError, Location
from tensorexpr.ir import Access, Expr, Index, Param, apply, conjunction, const
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import bottom_up, free_names, tensors_read, walk

Place = Callable[[str, tuple[Expr, ...]], tuple[str, tuple[Expr, ...]]]
"""Where an element of a tensor is kept: the buffer, and indices in it."""


@record
class Square:
    """A block of `count` steps (loop `step`, in blocks by `block`) around as many points in the lanes of `lane`."""

    block: str
    step: str
    lane: str
    count: int


def square_of(stage: Stage) -> Square | None:
    """The innermost loops where they are a block of steps around a vector of equal length."""
    if len(stage.order) < 3:
        return None
    block, step, lane = stage.order[-3:]
    made = stage.parents().get(step)
    count = stage.extent(lane)
    square = isinstance(made, Split) and (made.outer, made.factor) == (block, count) and stage.group_of(step) is not None
    if (
        not square
        or count is None
        or stage.kind(step) not in ("unroll", SERIAL)
        or stage.kind(lane) != "vectorize"
        or stage.group_of(lane) is not None
    ):
        return None
    return Square(block, step, lane, count)


class SweepLoops(Loops):
    """Makes the loops of a sweep."""

    def __init__(
        self,
        stage: Stage,
        names: Names,
        shape: Callable[[str], tuple[Expr, ...]],
        read: Callable[[Expr], Expr],
        location: Location | None,
        place: Place,
    ) -> None:
        super().__init__(stage, names, shape, read, location, True)
        assert stage.sweep is not None
        self.sweep: Sweep = stage.sweep
        self.place = place
        self.square = square_of(stage)
        self.tiles: dict[Access, Access] = {}
        """Elements that are in tiles where lowering stands, and what they are there."""

    def block(self, scope: Scope) -> Block:
        """All statements."""
        return self.nest(self.stage.order, scope, Task((Param("%0.0.0", self.sweep.states[0].dtype),), lambda _: ()))

    def reduction(self, group: Group, loops: tuple[str, ...], scope: Scope, task: Task) -> Block:
        """The steps, which start here."""
        tile = tuple(x for x in loops if self.stage.group_of(x) is None and not scope.knows(x))
        shape = []
        for loop in tile:
            extent = self.stage.extent(loop)
            if extent is None:
                raise InternalError(f"expected a constant extent of {loop}, inside the steps of {self.stage.name}")
            shape.append(const(extent))
        states = {
            s.parameter: Buffer(self.names.fresh(f"{self.stage.name}_state"), s.dtype, tuple(shape), "local") for s in self.sweep.states
        }

        def start(inner: Scope) -> Block:
            at = inner.positions(tile)
            return tuple(Store(states[s.parameter].name, at, self.read(inner.resolve(s.start))) for s in self.sweep.states)

        begun = self.nest(tile, scope, Task((), start))
        steps = Task((), lambda inner: self.step(states, tile, inner), inside=self.with_tiles)
        block: Block = (*begun, *self.nest(loops, replace(scope, groups=(*scope.groups, group.number)), steps))
        for buffer in reversed(states.values()):
            block = (Alloc(buffer, block),)
        return block

    def step(self, states: dict[str, Buffer], tile: tuple[str, ...], scope: Scope) -> Block:
        """One step at one point."""
        at = tuple(Index(LOOP + loop) for loop in tile)
        known: dict[str, Expr] = {name: Access(b.name, at, b.dtype) for name, b in states.items()}
        made: list[Buffer] = []
        block: list[Stmt] = []
        for moment in self.sweep.moments:
            value = self.read(self.resolved(moment.value, known, scope))
            fresh = Buffer(self.names.fresh(f"{self.stage.name}_now"), value.dtype, (), "local")
            made.append(fresh)
            known[moment.parameter] = Access(fresh.name, (), fresh.dtype)
            block.append(Store(fresh.name, (), value))
            for tensor, indices in moment.stores:
                buffer, place = self.element(tensor, indices, fresh.dtype, scope)
                block.append(Store(buffer, place, Access(fresh.name, (), fresh.dtype)))
        following = [scope.resolve(known[name]) for name in self.sweep.nexts]
        if any(f.tensor in {b.name for b in states.values()} for f in following if isinstance(f, Access)):
            # A state that becomes another one is read before either is set.
            for number, value in enumerate(following):
                fresh = Buffer(self.names.fresh(f"{self.stage.name}_next"), value.dtype, (), "local")
                made.append(fresh)
                block.append(Store(fresh.name, (), value))
                following[number] = Access(fresh.name, (), fresh.dtype)
        for state, value in zip(self.sweep.states, following, strict=True):
            block.append(Store(states[state.parameter].name, scope.positions(tile), value))
        result: Block = tuple(block)
        for kept in reversed(made):
            result = (Alloc(kept, result),)
        return result

    def resolved(self, value: Expr, known: dict[str, Expr], scope: Scope) -> Expr:
        """A value with what is known in place of its parameters, elements of tiles read there, over open loops."""
        in_tiles = bottom_up(value, lambda node: self.tiles.get(node, node) if isinstance(node, Access) else node)
        return scope.resolve(replaced(in_tiles, known))

    def element(self, tensor: str, indices: tuple[Expr, ...], dtype: DType, scope: Scope) -> tuple[str, tuple[Expr, ...]]:
        """Where an element is stored: its tensor, or the tile that is written behind the block of steps."""
        tile = self.tiles.get(Access(tensor, indices, dtype))
        if tile is not None:
            return tile.tensor, tuple(scope.resolve(i) for i in tile.indices)
        return self.place(tensor, tuple(self.read(scope.resolve(i)) for i in indices))

    # -------------------------------------------------------------------------------------------------------- tiles

    def with_tiles(self, loop: str, scope: Scope, body: Callable[[], Block]) -> Block:
        """The body of a loop; that of a block of steps between the tiles that it reads and those that it writes."""
        square = self.square
        if square is None or loop != square.block or not self.fills(square, scope):
            return body()
        read, written = self.loads(square), tuple(self.stores(square))
        place = (Index(LOOP + square.step), Index(LOOP + square.lane))
        shape = (const(square.count), const(square.count))
        tiles = {a: Buffer(self.names.fresh(f"{a.tensor}_tile"), a.dtype, shape, "local") for a in (*read, *written)}
        self.tiles = {a: Access(b.name, place, b.dtype) for a, b in tiles.items()}
        inner = body()
        self.tiles = {}
        step, lane = self.loop_name(square.step, scope), self.loop_name(square.lane, scope)
        inside = scope.with_values(**{square.step: Index(step), square.lane: Index(lane)})
        at = (Index(step), Index(lane))

        def moved(store: Store, conditions: tuple[Expr, ...] = ()) -> Stmt:
            body: Block = (store,)
            if conditions:
                body = (If(self.read(inside.resolve(conjunction(conditions))), body),)
            return For(step, ZERO, const(square.count), (For(lane, ZERO, const(square.count), body, "vectorize"),), "unroll")

        before = tuple(moved(Store(tiles[a].name, at, self.read(inside.resolve(a))), where) for a, where in read.items())
        after = []
        for access in written:
            buffer, indices = self.place(access.tensor, tuple(self.read(inside.resolve(i)) for i in access.indices))
            after.append(moved(Store(buffer, indices, Access(tiles[access].name, at, access.dtype))))
        block: Block = (*before, *inner, *after)
        for tile in reversed(tiles.values()):
            block = (Alloc(tile, block),)
        return block

    def fills(self, square: Square, scope: Scope) -> bool:
        """Whether all steps and all lanes of the block count here."""
        forms = [scope.variants.get(s.outer) for s in self.stage.relations if isinstance(s, Split)]
        whole = scope.extent(square.lane), scope.extent(square.step)
        return not any(f in GUARDED for f in forms) and all(e is not None and constant(e) == square.count for e in whole)

    def loads(self, square: Square) -> dict[Access, tuple[Expr, ...]]:
        """What is read along the steps, and the conditions under which that is in bounds: a step may read it or not, a tile
        is read whole. What leaves other axes than that of the steps is no part of a tile."""
        axes = (*self.parts.axes, *self.parts.groups[0].axes)
        found: dict[Access, tuple[Expr, ...]] = {}
        for moment in self.sweep.moments:
            for node in walk(moment.value):
                if isinstance(node, Access) and self.is_across(square, node.indices):
                    *others, last = node.indices
                    shape = self.shape(node.tensor)
                    if all(v is PROVED for v in check_access(tuple(others), shape[:-1], axes, ())):
                        bounds = (apply("ge", last, ZERO), apply("lt", last, shape[-1]))
                        found[node] = tuple(b for b in bounds if not implied(b, axes))
        return found

    def stores(self, square: Square) -> Iterable[Access]:
        for moment in self.sweep.moments:
            for tensor, indices in moment.stores:
                if self.is_across(square, indices):
                    yield Access(tensor, indices, moment.value.dtype)

    def is_across(self, square: Square, indices: tuple[Expr, ...]) -> bool:
        """Whether elements of neighboring steps lie side by side, those of neighboring points in rows apart."""
        step = self.parts.groups[0].axes[0].index
        lanes = set(self.stage.axes_of(square.lane))
        if not indices or any(map(tensors_read, indices)):
            return False
        last = affine_of(indices[-1])
        others = {n for i in indices[:-1] for n in free_names(i)}
        return (
            last is not None
            and not last.has_division()
            and last.coefficient(step) in (1, -1)
            and not lanes & set(last.names())
            and step not in others
            and bool(lanes & others)
        )
