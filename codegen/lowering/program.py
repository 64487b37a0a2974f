"""From a schedule to a loop nest: buffers for tensors, a kernel per parallel region, scans and scatters around the stages.

Inputs and outputs are parameters, constants keep their data, what lies between definitions is workspace. An output that
is an input, a constant or given twice is copied. The sizes of the program are those of the nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.accumulators import COMBINE
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, mul
from tensorexpr.codegen.lowering.context.positions import at_positions
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.lowering.context.slots import Slots
from tensorexpr.codegen.lowering.context.tasks import Names, Task
from tensorexpr.codegen.lowering.kernels.merging import merged
from tensorexpr.codegen.lowering.kernels.quotients import with_quotients
from tensorexpr.codegen.lowering.kernels.together import run_together
from tensorexpr.codegen.lowering.scatters.digits import WORDS, Digits, behind, digits_of, sorted_by_digits, without_keys
from tensorexpr.codegen.lowering.scatters.sorting import NO_KEY, Blocks, Sorting, flat, unflattened, width_of
from tensorexpr.codegen.lowering.stage.caching import DECLARED, unmarked
from tensorexpr.codegen.lowering.stage.loops import Loops
from tensorexpr.codegen.lowering.stage.placing import Home, all_axes, moved_apart
from tensorexpr.codegen.lowering.stage.scans import Scans
from tensorexpr.codegen.nest import GRID, THREADS, Block, Buffer, For, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import touched_in
from tensorexpr.codegen.schedule.analysis.independence import is_atomic, may_collide
from tensorexpr.codegen.schedule.analysis.rings import last_entries
from tensorexpr.codegen.schedule.analysis.state import Stage, State, all_definitions
from tensorexpr.codegen.schedule.legal.placement import Part, parts_of
from tensorexpr.codegen.schedule.legal.together import side_by_side
from tensorexpr.codegen.target import Gpu
from tensorexpr.dtypes import accumulator
from tensorexpr.interpret import identity_of
from tensorexpr.ir import (
    Access,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    const,
    counted,
    integer,
    product,
)
from tensorexpr.records import replace
from tensorexpr.simplify.facts.sort_ranges import ranges_of
from tensorexpr.traversal import bottom_up, fresh_name

MANY_ELEMENTS = 1 << 17
"""Elements from which on a tensor is filled on all cores."""


Seen = Callable[[str, LoopNest], None]
"""Takes the name of a step of the lowering and the nest behind it."""


def lower_state(state: State, name: str = "main", seen: Seen | None = None) -> LoopNest:
    """The loop nest of a schedule.

    Requires: a legal state. Ensures: a nest that `verify_nest` accepts and that computes what the program means; so are those that
    `seen` is given, one after each step.
    """
    return _Lowering(state, seen).nest(name)


Step = Callable[[list[Kernel]], list[Kernel]]


def _each(change: Callable[[Kernel], Kernel]) -> Step:
    """A step that is done to each kernel by itself."""
    return lambda kernels: [change(kernel) for kernel in kernels]


class _Lowering(Scans):
    """One lowering: names, homes of tensors and the kernels so far."""

    def __init__(self, state: State, seen: Seen | None = None) -> None:
        self.state = state
        self.seen = seen
        self.program = program = state.program
        self.stages = state.table
        self.types = dict(program.types)
        taken = {*self.types, *program.sizes}
        for definition in program.definitions:
            taken.update(_inner_names(definition))
        self.names = Names(taken)
        self.rings = last_entries(program)
        self.homes: dict[str, Home] = {n: Home(n, ring=2 if n in self.rings else 0) for n in self.types}
        self.kernels: list[Kernel] = []
        self.atomics: list[str] = []
        self.made: dict[str, range] = {}
        self.written: set[str] = set()
        self.definitions = {n: d for d in program.definitions for n, _ in d.results}
        self.placed: dict[tuple[str, str], list[str]] = {}
        self.parts: dict[str, Part] = {}
        for stage in state.stages:
            if stage.place is not None:
                self.placed.setdefault((stage.place.stage, stage.place.loop), []).append(stage.name)
        tops = {d.results[0][0] for d in program.definitions}
        # Readers of scans that are computed in their steps, scans that run in the place of a reader, starts that are spelled out.
        self.elsewhere = {n for n in tops if n not in self.stages and not _has_body(self.definitions[n])}
        self.elsewhere |= {n for one in state.sweeps for n in (one.names[0], *one.readers)}
        self.sweeps = {one.last: one for one in state.sweeps}
        ranges = ranges_of(all_definitions(program))
        self.within = {name: (0, most if comparison == "le" else behind(most)) for name, (comparison, most) in ranges.items()}
        for root in dict.fromkeys(root for root, _ in self.placed):
            self.parts.update(parts_of(state, root))
        self.shared = state.target.shared_bytes if isinstance(state.target, Gpu) else DECLARED
        size = sum(p.size for p in self.parts.values() if p.is_local and not p.is_on_stack())
        self.slots = Slots(self.names, state, size + self.ring_bytes())

    def nest(self, name: str) -> LoopNest:
        program = self.program
        computed = {n for d in program.definitions for n, _ in d.results}
        parameters = [Buffer(i.name, i.type.dtype, i.type.shape, "parameter") for i in program.inputs]
        outputs, copies = [], []
        for output in program.outputs:
            type_ = self.types[output]
            if output in computed and output not in outputs:
                target = output
            else:
                target = self.names.fresh(f"{output}_out")
                copies.append((target, output))
            outputs.append(target)
            parameters.append(Buffer(target, type_.dtype, type_.shape, "parameter", self.within.get(output)))
        between = [n for d in program.definitions for n, _ in d.results if n not in outputs]
        for tensor in between:
            if self.stored(tensor):
                self.names.workspace.append(self.buffer(tensor, self.types[tensor]))
        for definition in program.definitions:
            self.definition(definition)
        for target, source in copies:
            self.add_kernels(target, self.copy(self.types[source], Home(target), self.homes[source], frozenset()))
        for step, change in self.steps(parameters):
            if step:
                self.kernels = change(self.kernels)
            if self.seen is not None:
                self.seen(step or "the loops", self.assembled(name, parameters, outputs))
        return self.assembled(name, parameters, outputs)

    def assembled(self, name: str, parameters: Sequence[Buffer], outputs: Sequence[str]) -> LoopNest:
        """The nest of the kernels as they are."""
        used = _read_buffers(self.kernels)
        workspace = tuple(replace(b, shape=tuple(map(counted, b.shape))) for b in self.names.workspace if b.name in used)
        declared = [b.name for b in (*parameters, *workspace)]
        return LoopNest(
            name,
            tuple(parameters),
            tuple(c for c in self.program.constants if c.name in used),
            workspace,
            tuple(replace(k, body=unmarked(k.body)) for k in self.kernels if k.body),
            tuple(outputs),
            self.program.sizes,
            tuple(self.names.checks),
            precision=self.state.target.precision if isinstance(self.state.target, Gpu) else "float32",
            atomics=tuple(n for n in declared if n in self.atomics and n in used),
            tensor_cores=not isinstance(self.state.target, Gpu) or self.state.target.tensor_cores,
            warpgroups=isinstance(self.state.target, Gpu) and self.state.target.warpgroups,
        )

    def steps(self, parameters: Sequence[Buffer]) -> Iterator[tuple[str, Step]]:
        """What is done to the kernels, step by step, by name: merged loops; quotients; elements by their number where all are gone
        through; loops that run together."""
        yield "", list
        if not self.state.target.is_gpu:
            yield "merged", lambda kernels: merged(kernels, [numbers for numbers in self.made.values() if numbers])
        yield "with_quotients", _each(with_quotients)
        if not self.state.target.is_gpu:
            shapes = self.known_shapes(parameters)
            yield "at_positions", _each(lambda kernel: at_positions(kernel, shapes))
        regions = [[k for name in group for k in self.made.get(name, ())] for group in side_by_side(self.state)]
        yield "run_together", lambda kernels: list(run_together(kernels, regions, self.names.fresh, self.state.target.is_gpu))

    def known_shapes(self, parameters: Sequence[Buffer]) -> dict[str, tuple[int, ...]]:
        """The shapes of what is in the head, where they are numbers."""
        known = [(b.name, b.shape) for b in (*parameters, *self.names.workspace)] + [(c.name, c.type.shape) for c in self.program.constants]
        return {name: tuple(map(integer, shape)) for name, shape in known if all(isinstance(e, Const) for e in shape)}

    def buffer(self, tensor: str, type_: TensorType) -> Buffer:
        """The workspace of a tensor: all of it, or the last two entries of a scan."""
        shape, definition = (const(2), *type_.shape[1:]) if tensor in self.rings else type_.shape, self.definitions.get(tensor)
        if isinstance(definition, Scatter) and not self.state.target.is_gpu:
            shape = moved_apart(definition)
        return Buffer(tensor, type_.dtype, shape, "workspace", self.within.get(tensor))

    def stored(self, tensor: str) -> bool:
        """Whether a tensor between definitions has a buffer of its own."""
        part = self.parts.get(tensor)
        return part is None or not part.is_local

    # -------------------------------------------------------------------------------------------------- definitions

    def definition(self, definition: Definition) -> None:
        """Adds the kernels of a definition (none for one that is computed inside another)."""
        sweep = self.sweeps.get(definition.results[0][0])
        if sweep is not None:
            self.add_kernels(" ".join((*sweep.names, *sweep.readers)), self.sweep(sweep))
            return
        match definition:
            case Define() | Scan() if definition.results[0][0] in self.elsewhere | self.written:
                pass
            case Scan():
                self.add_kernels(" ".join(definition.names), self.scan(definition, frozenset(), {}))
            case Scatter():
                self.add_kernels(definition.name, self.scatter(definition, frozenset(), {}, True))
            case Segments():
                self.add_kernels(" ".join(definition.names), self.segments(definition, frozenset(), {}, True))
            case Define() if self.stages[definition.name].place is None:
                first = len(self.kernels)
                self.add_kernels(definition.name, self.define(definition, frozenset(), {}, True))
                self.made[definition.name] = range(first, len(self.kernels))

    def add_kernels(self, name: str, block: Block) -> None:
        """Adds statements at the top level: every parallel loop is a kernel, what lies between two of them is one."""
        between: list[Stmt] = []

        def flush() -> None:
            if between:
                self.kernels.append(Kernel(name, tuple(between)))
                between.clear()

        for statement in map(self.slots.shared_out, block):
            if isinstance(statement, For) and (statement.kind == "parallel" or statement.kind in GRID or statement.kind in THREADS):
                flush()
                self.kernels.append(Kernel(name, (statement,)))
            else:
                between.append(statement)
        flush()

    def read(self, expr: Expr) -> Expr:
        """The expression with tensors read where they are kept."""

        def visit(node: Expr) -> Expr:
            if not isinstance(node, Access):
                return node
            home = self.homes.get(node.tensor)
            if home is None or (home.buffer == node.tensor and not home.leading and home.axes is None and not home.ring):
                return node
            return replace(node, tensor=home.buffer, indices=home.at(node.indices))

        return bottom_up(expr, visit)

    def loops(self, stage: Stage, definition: Define | Scatter, at_root: bool, around: frozenset[str]) -> Loops:
        placed = {loop: names for (root, loop), names in self.placed.items() if root == stage.name}
        hosting = frozenset(loop for loop, names in placed.items() if not all(self.parts[n].is_local for n in names))
        made_in = {name: loop for loop, names in placed.items() for name in names}
        meet = partial(may_collide, definition, target=self.state.target, owners=stage.owners)
        kept = self.kept_for(stage)
        return Loops(
            stage, self.names, self.shape, self.read, definition.location, at_root, around, self.shared, hosting, made_in, meet, kept,
            self.state.target.is_gpu and at_root and isinstance(definition, Define),
            self.state.target.lines if isinstance(self.state.target, Gpu) else 1,
            self.state.target.is_gpu,
        )  # fmt: skip

    def shape(self, tensor: str) -> tuple[Expr, ...]:
        """The shape of a tensor that can be named where lowering stands."""
        return self.types[tensor].shape

    def define(self, definition: Define, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """The loops of a `Define`, with what is computed in them."""
        stage = self.stages[definition.name]
        scope = Scope(stage, all_axes(stage), names=names, outside=outside)
        return self.defined(definition, scope, at_root)

    def defined(self, definition: Define, scope: Scope, at_root: bool) -> Block:
        stage, home = scope.stage, self.homes[definition.name]
        loops = self.loops(stage, definition, at_root, scope.names)

        def task(value: Expr) -> Task:
            def finish(inner: Scope) -> Block:
                at = home.at(tuple(inner.resolve(Index(a.index)) for a in stage.parts.axes))
                return (Store(home.buffer, at, self.read(inner.resolve(value))),)

            return Task((value,), finish, checks=loops.checks_of((value,)), choose=task, inside=self.inside)

        return loops.nest(stage.order, scope, task(stage.parts.values[0]))

    def scatter(self, definition: Scatter, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """The start of every element, then the contributions in order; 16-bit floats are carried in float32 beside the result."""
        stage = self.stages[definition.name]
        target = self.homes[definition.name]
        type_ = definition.type
        kept = accumulator(type_.dtype)
        atomic = is_atomic(definition, self.state.target)
        if atomic and not kept.is_float and kept.bits < 32:
            kept = dtypes.int32  # no updates of less than 32 bits are one piece; rounded at the end it is the same
        home = target
        if kept is not type_.dtype:
            wide = Buffer(self.names.fresh(f"{definition.name}_wide"), kept, type_.shape, "workspace")
            self.names.workspace.append(wide)
            home = Home(wide.name)
        if atomic:
            self.atomics.append(home.buffer)
        start = Const(kept.numpy.type(identity_of(definition.combine, type_.dtype)), kept)
        filled = self.over(type_, names, lambda at: (Store(home.buffer, home.at(at), start),), at_root)
        loops = self.loops(stage, definition, at_root, names)
        scope = Scope(stage, all_axes(stage), names=names, outside=outside)
        values = stage.parts.values
        element = Access(definition.name, values[:-1], type_.dtype)

        def place(inner: Scope) -> tuple[Expr, ...]:
            return tuple(self.read(inner.resolve(e)) for e in values[:-1])

        def sent(inner: Scope) -> Expr:
            value = self.read(inner.resolve(values[-1]))
            return value if value.dtype is kept else Cast(kept, value)

        def finish(inner: Scope) -> Block:
            at = home.at(place(inner))
            return (Store(home.buffer, at, apply(COMBINE[definition.combine], Access(home.buffer, at, kept), sent(inner))),)

        checks = loops.checks_of((*values, element))
        nest = loops.nest(stage.order, scope, Task(values, finish, stage.parts.where, checks, inside=self.inside))
        if home is target:
            return (*filled, *nest)
        rounded = self.over(
            type_, names, lambda at: (Store(target.buffer, target.at(at), Cast(type_.dtype, Access(home.buffer, home.at(at), kept))),)
        )
        return (*filled, *nest, *rounded)

    def segments(self, definition: Segments, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """A counting sort (see `sorting`): the keys counted in the loops of the stage, then the rest."""
        stage = self.stages[definition.name]
        offsets, order = (self.homes[name] for name in definition.names)
        (_, offsets_type), (_, order_type) = definition.results
        most = behind(counted(product(definition.extents)))
        kept = Buffer(self.names.fresh(f"{definition.name}_keys"), order_type.dtype, order_type.shape, "workspace", (-1, most))
        self.names.workspace.append(kept)
        sorting = Sorting(
            definition.batch,
            lambda at: (kept.name, at),
            lambda at: (offsets.buffer, offsets.at(at)),
            lambda at: (order.buffer, order.at(at)),
            counted(product(definition.extents)),
            order_type.shape[-1],
            definition.where is not None,
        )
        blocks = self.blocks_of(definition, sorting) if at_root else None
        digits = self.digits_of(definition, sorting) if at_root else None
        together = blocks is not None or digits is not None
        filled: Block = ()
        if not together:
            filled = self.over(offsets_type, names, lambda at: (Store(offsets.buffer, offsets.at(at), ZERO),))
        if digits is not None and sorting.partial:
            filled += without_keys(sorting, {*names, *self.program.sizes})
        elif sorting.partial:
            filled += self.over(order_type, names, lambda at: (Store(kept.name, at, NO_KEY),), at_root)
        loops = Loops(
            stage,
            self.names,
            lambda tensor: definition.extents if tensor == definition.name else self.shape(tensor),
            self.read,
            definition.location,
            at_root,
            may_meet=partial(may_collide, definition, target=self.state.target),
        )
        keys = stage.parts.values

        def finish(inner: Scope) -> Block:
            batch, at = (tuple(inner.resolve(Index(a.index)) for a in axes) for axes in (definition.batch, definition.axes))
            key = flat(tuple(self.read(inner.resolve(e)) for e in keys), definition.extents)
            if together:
                return sorting.kept(batch, flat(at, tuple(a.stop for a in definition.axes)), key)
            return sorting.counted(batch, flat(at, tuple(a.stop for a in definition.axes)), key)

        checks = loops.checks_of((*keys, Access(definition.name, keys, dtypes.int64)))
        task = Task(keys, finish, where=stage.parts.where, checks=checks, inside=self.inside)
        kept_keys = loops.nest(stage.order, Scope(stage, all_axes(stage), names=names, outside=outside), task)
        taken = {*names, *self.program.sizes}
        if not together:
            return (*filled, *kept_keys, *sorting.sorted(taken))
        if not stage.parts.groups:
            kept_keys = tuple(replace(s, kind="parallel") if isinstance(s, For) and s.kind == "serial" else s for s in kept_keys)
        if blocks is not None:
            return (*filled, *kept_keys, *sorting.sorted_in_blocks(taken, blocks))
        assert digits is not None
        return (*filled, *kept_keys, *sorted_by_digits(sorting, digits, taken, self.names.fresh))

    def digits_of(self, definition: Segments, sorting: Sorting) -> Digits | None:
        """How the threads of a GPU sort the points of a plan together; None where one does it alone."""
        sizes = digits_of(sorting) if self.state.target.is_gpu else None
        if sizes is None:
            return None
        made = (self.names.fresh(f"{definition.name}_{word}") for word in WORDS)
        digits = Digits(*sizes, *made)
        self.names.workspace += digits.buffers(sorting)
        return digits

    def blocks_of(self, definition: Segments, sorting: Sorting) -> Blocks | None:
        """How the cores of a CPU sort the points of a plan together; None where one does it alone, or their number is open."""
        points, extent, target = constant(sorting.points), constant(sorting.extent), self.state.target
        if points is None or not extent or definition.batch or target.is_gpu:
            return None
        width = width_of(points, extent, target.cores, target.l2_bytes)
        if width is None:
            return None
        count = -(-extent // width)
        shapes = {"counts": (target.cores, count), "starts": (count + 1,)}
        if width > 1:
            shapes |= {"points": (points,), "sorted_keys": (points,)}
        made = {word: self.names.fresh(f"{definition.name}_{word}") for word in shapes}
        self.names.workspace += [Buffer(made[word], dtypes.int64, tuple(map(const, shape)), "workspace") for word, shape in shapes.items()]
        places = made.get("points", ""), made.get("sorted_keys", "")
        return Blocks(count, width, target.cores, made["counts"], made["starts"], *places)

    def over(self, type_: TensorType, names: frozenset[str], body: Callable[[tuple[Expr, ...]], Block], at_root: bool = False) -> Block:
        """Loops over all elements of a tensor; on a GPU a thread for each, at the root of a CPU those over many on all cores."""
        taken, indices = set(names) | set(self.program.sizes), []
        if self.state.target.is_gpu and type_.shape:
            at = Index(fresh_name("x", taken))
            return (For(at.name, ZERO, product(type_.shape), body(unflattened(at, type_.shape)), "parallel"),)
        for axis in range(len(type_.shape)):
            indices.append(fresh_name(f"x{axis}", taken))
        if not indices:
            return body(())
        *outer, last = indices
        whole, lanes = counted(type_.shape[-1]), self.state.target.lanes(type_.dtype)
        blocks = floordiv(whole, lanes)
        lane, block_index = Index(fresh_name("lane", taken)), Index(last)
        # Whole vectors, then the rest one by one.
        vectors = For(lane.name, ZERO, const(lanes), body((*map(Index, outer), add(mul(block_index, const(lanes)), lane))), "vectorize")
        block: Block = (
            For(last, ZERO, blocks, (vectors,)),
            For(last, mul(blocks, const(lanes)), whole, body((*map(Index, outer), block_index))),
        )
        block = tuple(s for s in block if not (isinstance(s, For) and s.start == s.stop))
        for index, extent in zip(reversed(outer), reversed(type_.shape[:-1]), strict=True):
            block = (For(index, ZERO, extent, block),)
        elements, first = constant(product(type_.shape)), block[0] if block else None
        if isinstance(first, For) and at_root and elements is not None and elements >= MANY_ELEMENTS and self.state.target.cores > 1:
            block = (replace(first, kind="parallel"), *block[1:])
        return block

    def copy(self, type_: TensorType, to: Home, source: Home, names: frozenset[str]) -> Block:
        return self.over(type_, names, lambda at: (Store(to.buffer, to.at(at), Access(source.buffer, source.at(at), type_.dtype)),))


def _has_body(definition: Definition) -> bool:
    return isinstance(definition, Scan)


def _inner_names(definition: Definition) -> set[str]:
    """Every name that stands in the body of a scan."""
    if not isinstance(definition, Scan):
        return set()
    names = {definition.step, *(n for n, _ in definition.states)}
    for inner in definition.body:
        names.update(n for n, _ in inner.results)
        names.update(_inner_names(inner))
    return names


def _read_buffers(kernels: list[Kernel]) -> set[str]:
    """The buffers that the kernels touch."""
    return {name for kernel in kernels for name in touched_in(kernel.body)}
