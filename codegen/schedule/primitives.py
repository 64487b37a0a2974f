"""The primitives: each takes a state and gives another, or refuses with the reason.

Every primitive states its rewrite as the list of loops before and after. None changes a value, except that splitting,
reordering or vectorizing a reduction may combine its points in another, fixed, order (sum and prod of floats).
"""

from __future__ import annotations

from tensorexpr.codegen.schedule.bind import check_target
from tensorexpr.codegen.schedule.cache import check_cached
from tensorexpr.codegen.schedule.fitting import fitted
from tensorexpr.codegen.schedule.legality import check_stage, refuse, runs_whole
from tensorexpr.codegen.schedule.pipeline import check_pipelines
from tensorexpr.codegen.schedule.placement import check_placement
from tensorexpr.codegen.schedule.skewing import check_skewed
from tensorexpr.codegen.schedule.slide import check_slides, without_slides
from tensorexpr.codegen.schedule.state import (
    SERIAL,
    TAILS,
    Fuse,
    Place,
    Split,
    Stage,
    State,
    all_definitions,
    definition_named,
    plain_order,
    plain_stages,
    program_facts,
)
from tensorexpr.codegen.schedule.tensorize import check_tensorized
from tensorexpr.errors import DefinitionError, ScheduleError
from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Scan
from tensorexpr.records import replace
from tensorexpr.simplify.inline import inline_definitions
from tensorexpr.traversal import bottom_up, free_names, fresh_name, map_expressions


def _loop(stage: Stage, loop: str) -> int:
    """The place of a loop in the list."""
    if loop not in stage.order:
        gone = next((r for r in stage.relations if loop in (getattr(r, "parent", None), r.outer, r.inner)), None)
        into = "" if gone is None else f", which was {'split' if isinstance(gone, Split) else 'fused'}"
        raise ScheduleError(f"expected a loop of {stage.name}, got {loop!r}{into}", hint=f"loops: {', '.join(stage.order)}")
    return stage.order.index(loop)


def _new_name(stage: Stage, stem: str) -> str:
    taken = set(stage.order) | set(stage.parents()) | {a.index for a in stage.parts.axes}
    taken |= {n for g in stage.parts.groups for n in g.indices}
    taken |= {r.parent for r in stage.relations if isinstance(r, Split)}
    return fresh_name(stem, taken)


def split(state: State, name: str, loop: str, factor: int, tail: str = "peel") -> tuple[State, tuple[str, str]]:
    """rewrite: [..., i, ...] --> [..., i_o, i_i, ...], i = i_o * factor + i_i ("stride": [..., i_i, i_o, ...]).

    `tail` says what happens to a rest, where the extent is no multiple of the factor: "peel" runs it as a smaller block of its own,
    "shift" moves the last block back to end at the extent (points of data loops, computed twice with the same value), "guard"
    skips the points beyond, by a condition. With "stride" the loop inside a block runs outside, and for each of its places the other
    one over the blocks that have it: a residue class is a loop of its own.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].split("i", 4)
    ('i_o', 'i_i')
    >>> print(s)
    # main(x, y)
    x: parameter(f32[10, 6])
    y: parameter(f32[10, 6])  # written
    <BLANKLINE>
    def kernel_0():  # y
        for i_o in range(0, 2):
            for i_i in range(0, 4):
                for j in range(0, 6):
                    y[i_i + i_o * 4, j] = x[i_i + i_o * 4, j] + 1.0
        for i_i in range(0, 2):
            for j in range(0, 6):
                y[i_i + 8, j] = x[i_i + 8, j] + 1.0
    <BLANKLINE>
    """
    stage = state.stage(name)
    at = _loop(stage, loop)
    if not isinstance(factor, int) or isinstance(factor, bool) or factor < 1:
        raise refuse(stage, f"expected a positive int as the factor, got {factor!r}", loop)
    if tail not in TAILS:
        raise refuse(stage, f"expected a tail among {', '.join(TAILS)}, got {tail!r}", loop)
    if stage.kind(loop) != SERIAL:
        raise refuse(stage, f"expected a serial loop to split, got {loop}, marked {stage.kind(loop)}", loop, "split first")
    if tail == "shift" and (stage.group_of(loop) is not None or not isinstance(definition_named(state.program, name), Define | Scan)):
        raise refuse(stage, f"expected a data loop of a plain definition for tail 'shift', got {loop}: points would count twice", loop)
    outer, inner = _new_name(stage, f"{loop}_o"), _new_name(stage, f"{loop}_i")
    changed = replace(
        stage,
        order=(*stage.order[:at], *((inner, outer) if tail == "stride" else (outer, inner)), *stage.order[at + 1 :]),
        relations=(*stage.relations, Split(loop, outer, inner, factor, tail)),
    )
    return _checked(state, changed), (outer, inner)


def fuse(state: State, name: str, outer: str, inner: str) -> tuple[State, str]:
    """rewrite: [..., i, j, ...] --> [..., i_j, ...], i = i_j // extent(j), j = i_j % extent(j).

    The loops are data loops, or loops of one reduction; neither has a rest, and the bounds of the inner one do not depend on the
    outer one. What is `parallel` then has more iterations to hand out.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].fuse("i", "j")
    'i_j'
    >>> s["y"].loops
    ('i_j',)
    """
    stage = state.stage(name)
    at = _loop(stage, outer)
    if _loop(stage, inner) != at + 1:
        raise refuse(stage, f"expected two loops directly inside each other to fuse, got {outer} and {inner}", outer, "reorder them first")
    if stage.group_of(outer) != stage.group_of(inner):
        raise refuse(stage, f"expected loops of one reduction, or data loops, to fuse, got {outer} and {inner}", outer)
    for loop in (outer, inner):
        if stage.kind(loop) != SERIAL:
            raise refuse(stage, f"expected serial loops to fuse, got {loop}, marked {stage.kind(loop)}", loop)
        for relation in stage.relations:
            if (
                isinstance(relation, Split)
                and {relation.outer, relation.inner} & set(stage.ancestry(loop))
                and not runs_whole(stage, relation)
            ):
                raise refuse(
                    stage, f"expected loops without a rest to fuse, got {loop} of a split of {relation.parent} by {relation.factor}", loop
                )
    depends = {n for a in stage.axes_of(inner) for e in (stage.axis(a).start, stage.axis(a).stop) for n in free_names(e)}
    if depends & set(stage.axes_of(outer)):
        raise refuse(stage, f"expected bounds of {inner} that do not depend on {outer} to fuse them, got ones that do", inner)
    fused = _new_name(stage, f"{outer}_{inner}")
    changed = replace(
        stage,
        order=(*stage.order[:at], fused, *stage.order[at + 2 :]),
        relations=(*stage.relations, Fuse(fused, outer, inner)),
    )
    return _checked(state, changed), fused


def reorder(state: State, name: str, loops: tuple[str, ...]) -> State:
    """rewrite: [..., i, ..., j, ...] --> [..., j, ..., i, ...]: the named loops take the places they have now, in the order given.

    Data loops inside of a reduction are a tile: there is an accumulator for each of their points. A reduction that depends on the
    order of its points keeps it.

    >>> import tensorexpr as te
    >>> a, b = te.placeholder((4, 8), name="a"), te.placeholder((8, 6), name="b")
    >>> s = te.schedule(te.compute((4, 6), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 8), name="c"))
    >>> s["c"].reorder("i", "k", "j")
    >>> print(s)
    # main(a, b, c)
    a: parameter(f32[4, 8])
    b: parameter(f32[8, 6])
    c: parameter(f32[4, 6])  # written
    <BLANKLINE>
    def kernel_0():  # c
        for i in range(0, 4):
            c_sum: local(f32[6])
            for j in range(0, 6):
                c_sum[j] = 0.0
            for k in range(0, 8):
                for j in range(0, 6):
                    c_sum[j] = c_sum[j] + a[i, k] * b[k, j]
            for j in range(0, 6):
                c[i, j] = c_sum[j]
    <BLANKLINE>
    """
    stage = state.stage(name)
    places = [_loop(stage, loop) for loop in loops]
    if len(set(loops)) != len(loops):
        raise refuse(stage, f"expected each loop once to reorder, got {', '.join(loops)}")
    order = list(stage.order)
    for place, loop in zip(sorted(places), loops, strict=True):
        order[place] = loop
    return _checked(state, replace(stage, order=tuple(order)))


def mark(state: State, name: str, loop: str, kind: str) -> State:
    """rewrite: i: serial --> i: parallel | vectorize | unroll | ... (and back)."""
    stage = state.stage(name)
    _loop(stage, loop)
    kinds = tuple((x, k) for x, k in stage.kinds if x != loop)
    if kind != SERIAL:
        kinds = (*kinds, (loop, kind))
    return _checked(state, replace(stage, kinds=kinds))


def parallel(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: parallel: the iterations of the outermost data loop run on all cores.

    In any order, so they must touch different elements; each result has the same bits whatever the number of threads.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].parallel("i")
    >>> "for i in parallel(range(0, 10)):" in str(s)
    True
    """
    return mark(state, name, loop, "parallel")


def vectorize(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: vectorize: the iterations of a loop of constant extent run in the lanes of vectors.

    Of a reduction: each lane has an accumulator of its own, and these are combined in a fixed order at the end. That is
    another order than the loop's; sums and products of floats may differ in their last bits (they are reassociated).

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].vectorize("j")
    >>> "for j in vectorize(range(0, 6)):" in str(s)
    True
    """
    return mark(state, name, loop, "vectorize")


def unroll(state: State, name: str, loop: str) -> State:
    """rewrite: i: serial --> i: unroll: the iterations of a loop of constant extent are copied out.

    Accumulators of loops inside of a reduction then are registers.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].unroll("j")
    >>> "for j in unroll(range(0, 6)):" in str(s)
    True
    """
    return mark(state, name, loop, "unroll")


def serial(state: State, name: str, loop: str) -> State:
    """rewrite: i: parallel | vectorize | unroll | block.x | ... --> i: serial: one iteration after the other.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].unroll("j")
    >>> s["y"].serial("j")
    >>> "for j in range(0, 6):" in str(s)
    True
    """
    return mark(state, name, loop, SERIAL)


def stream(state: State, name: str) -> State:
    """rewrite: C[...] = e, in the caches --> C[...] = e, past the caches: for an output that nothing reads again.

    Memory is not read before it is written then, and what the caches hold stays there.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].stream()
    >>> "y: parameter(f32[10, 6])  # written past the caches" in str(s)
    True
    """
    stage = state.stage(name)
    if not streamable(state, name):
        raise refuse(stage, f"expected an output that no definition reads to write past the caches, got {name}")
    return state.with_stage(replace(stage, streamed=True))


def streamable(state: State, name: str) -> tuple[str, ...]:
    """The outputs that the loops of a stage write and nothing reads."""
    stage = state.stage(name)
    program = state.program
    if stage.scan is not None or not isinstance(definition_named(program, name), Define | Scan):
        return ()
    made = definition_named(program, name).results if stage.sweep is None else ()
    names = [n for n, _ in made] + [t for m in (() if stage.sweep is None else stage.sweep.moments) for t, _ in m.stores]
    readers = program_facts(program).readers
    if isinstance(definition_named(program, name), Scan) and stage.sweep is None:
        return ()  # a step reads the one before
    own = {name, *(() if stage.sweep is None else stage.sweep.readers)}
    return tuple(dict.fromkeys(n for n in names if n in program.outputs and not set(readers.get(n, ())) - own))


def compute_at(state: State, name: str, consumer: str, loop: str) -> State:
    """rewrite: P: [...]; C: [..., l, ...] --> C: [..., l: {P: [...]}, ...]: P is computed in loop l of C, at what is read there.

    Where nothing there reads P (both read the same rows), it is computed at the same indices of the leading axes. In the outer loop of a
    split it is computed for a block of the axis, on a CPU; where the reads of an iteration lie near to each other, from the first to the
    last of them (a window, moved back into the tensor at its ends). What one iteration needs is kept in a local buffer, on the stack or,
    where that would be too small, in workspace of its own; in the tensor itself where others read it too, and then each element is made
    once.

    >>> import tensorexpr as te
    >>> x = te.placeholder((66, 8), name="x")
    >>> a = te.compute((66, 8), lambda i, j: te.exp(x[i, j]), name="a")
    >>> y = te.compute((64, 8), lambda i, j: a[i, j] + a[i + 1, j] + a[i + 2, 7 - j], name="y")
    >>> s = te.schedule(y)
    >>> i_o, i_i = s["y"].split("i", 16)
    >>> s["a"].compute_at("y", i_o)
    >>> print(s)
    # main(x, y)
    x: parameter(f32[66, 8])
    y: parameter(f32[64, 8])  # written
    <BLANKLINE>
    def kernel_0():  # y
        for i_o in range(0, 4):
            a_1: local(f32[18, 8])
            for i in range(i_o * 16, i_o * 16 + 18):
                for j in range(0, 8):
                    a_1[i - i_o * 16, j] = exp(x[i, j])
            for i_i in range(0, 16):
                for j in range(0, 8):
                    y[i_i + i_o * 16, j] = a_1[i_i, j] + a_1[i_i + 1, j] + a_1[i_i + 2, 7 - j]
    <BLANKLINE>
    """
    host = state.stage(consumer)
    facts = program_facts(state.program)
    inside = {consumer, *(s.name for s in state.placed_in(consumer))}
    if (
        not inside & set(facts.readers.get(name, ()))
        and name not in host.guests
        and facts.numbers.get(name, len(facts.numbers)) < facts.numbers.get(consumer, 0)
    ):
        state = state.with_stage(replace(host, guests=(*host.guests, name)))
    state = without_slides(state, name)
    return _checked(state, replace(state.stage(name), place=Place(consumer, loop)))


def bind(state: State, name: str, loop: str, axis: str) -> State:
    """rewrite: i: serial --> i: block.x | ... | thread.z | warp: the blocks of a GPU's grid, the threads of a block, the lanes of a warp.

    Blocks and threads run side by side, so their iterations must touch different elements. A CPU has neither: there it is refused.
    A warp has 32 lanes, which may share a reduction as the lanes of a vector do (another order of its points): they are combined by
    shuffles, without a barrier. Several warps are a block: those of a loop bound to "thread.y", or else iterations of the grid.

    >>> import tensorexpr as te
    >>> x = te.placeholder((10, 6), name="x")
    >>> s = te.schedule(te.compute((10, 6), lambda i, j: x[i, j] + 1, name="y"))
    >>> s["y"].bind("i", "block.x")
    Traceback (most recent call last):
        ...
    tensorexpr.errors.ScheduleError: expected a GPU as the target to bind i to block.x, got cpu
    ...
    >>> x = te.placeholder((10, 96), name="x")
    >>> s = te.schedule(te.compute((10,), lambda i: te.sum(lambda k: x[i, k], 96), name="y"), "cuda")
    >>> k_o, k_i = s["y"].split("k", 32)
    >>> s["y"].bind("i", "block.x")
    >>> s["y"].bind(k_i, "warp")
    >>> print("\\n".join(str(s).splitlines()[4:14]))
    def kernel_0():  # y
        for i in block.x(range(0, 10)):
            y_sum: local(f32[()])
            y_sum_lanes: local(f32[32])
            y_sum[()] = 0.0
            for k_i in warp(range(0, 32)):
                y_sum_lanes[k_i] = 0.0
            for k_o in range(0, 3):
                for k_i in warp(range(0, 32)):
                    y_sum_lanes[k_i] = y_sum_lanes[k_i] + x[i, k_i + k_o * 32]
    """
    stage = state.stage(name)
    _loop(stage, loop)
    check_target(state, stage, loop, axis, refuse)
    return mark(state, name, loop, axis)


def inline(state: State, names: tuple[str, ...]) -> State:
    """rewrite: P[i] = e; C = ... P[f] ... --> C = ... e[i := f] ...: P is computed where it is read, and never stored.

    Its own stage goes away.

    >>> import tensorexpr as te
    >>> x = te.placeholder((8,), name="x")
    >>> p = te.compute((8,), lambda i: x[i] * 2, name="p")
    >>> s = te.schedule(te.compute((8,), lambda i: p[i] + p[7 - i], name="y"))
    >>> s["p"].inline()
    >>> s.stages
    ('y',)
    """
    for name in names:
        stage = state.stage(name)
        if name in state.program.outputs:
            raise refuse(stage, f"expected a definition between others to inline, got the output {name}")
        if stage.scan is not None:
            raise refuse(stage, f"expected a definition outside of scans to inline, got {name}")
        if stage.place is not None or state.placed_in(name):
            raise refuse(stage, f"expected a definition that shares no loops to inline, got {name}", hint="inline first")
    try:
        program = inline_definitions(state.program, names)
    except DefinitionError as error:
        raise ScheduleError(error.message, term=f"inline {', '.join(names)}", at=error.at) from error
    changed = _with_program(state, program, names)
    return replace(changed, inlined=(*state.inlined, *names))


def redirect(state: State, name: str, copy: str) -> State:
    """rewrite: R[i, t] = S[t, i]; Q = ... S[e, f] ... --> Q = ... R[f, e] ...: what comes after a copy R reads that instead of S.

    >>> import tensorexpr as te
    >>> x = te.placeholder((4, 8), name="x")
    >>> s = te.compute((4, 8), lambda i, j: te.exp(x[i, j]), name="s")
    >>> r = te.compute((8, 4), lambda j, i: s[i, j], name="r")
    >>> q = te.compute((4,), lambda i: te.sum(lambda j: s[i, j], 8), name="q")
    >>> plan = te.schedule([r, q])
    >>> plan.redirect("s", "r")
    >>> print(plan.as_python())
    s.redirect('s', 'r')
    <BLANKLINE>
    """
    facts = program_facts(state.program)
    made = facts.definitions.get(copy)
    order = _permutation(state, name, made)
    if order is None:
        raise ScheduleError(f"expected a definition that only permutes the axes of {name}, got {copy}", term=f"redirect {name}")

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Access) or node.tensor != name:
            return node
        return replace(node, tensor=copy, indices=tuple(node.indices[axis] for axis in order))

    at = facts.numbers[copy] + 1
    later = tuple(map_expressions(d, lambda e: bottom_up(e, visit)) for d in state.program.definitions[at:])
    return _with_program(state, replace(state.program, definitions=(*state.program.definitions[:at], *later)), (name,))


def _permutation(state: State, name: str, copy: Definition | None) -> tuple[int, ...] | None:
    """For each axis of a copy the axis of the tensor that it is; None where it is no copy."""
    if not isinstance(copy, Define) or copy not in state.program.definitions or not isinstance(copy.value, Access):
        return None
    names, access = [a.index for a in copy.axes], copy.value
    found = [i.name for i in access.indices if isinstance(i, Index)]
    source = state.program.types.get(name)
    if access.tensor != name or source is None or len(found) != len(access.indices) or sorted(found) != sorted(names):
        return None
    order = tuple(found.index(n) for n in names)
    return order if tuple(source.shape[axis] for axis in order) == tuple(a.stop for a in copy.axes) else None


def _with_program(state: State, program: Program, names: tuple[str, ...]) -> State:
    """The state with definitions changed, whose loops must be plain and then are so again."""
    old = state.table
    before = {d.results[0][0]: d for d in all_definitions(state.program)}
    after = {d.results[0][0]: d for d in all_definitions(program)}
    changed = frozenset(n for n, d in after.items() if before[n] is not d)
    for stage in state.stages:
        if stage.sweep is not None and changed & {stage.name, *stage.sweep.readers}:
            raise refuse(stage, f"expected definitions that no sweep reads to inline, got {', '.join(names)}", hint="inline first")
    for name in changed & set(old):
        known = old[name]
        if known.relations or known.kinds or known.place or known.skewed or known.order != plain_order(known.parts):
            raise refuse(known, f"expected plain loops of {name}, which reads what is inlined, got changed ones", hint="inline first")
    fresh = {s.name: s for s in plain_stages(program, changed)}
    table = {s.name: fresh.get(s.name, s) for s in state.stages if s.name in after}
    return replace(state, program=program, table=table)


def _checked(state: State, stage: Stage) -> State:
    """The state with a stage changed, where that is legal for it and for what is computed in its loops."""
    check_cached(stage)
    check_skewed(stage)
    changed = state.with_stage(check_stage(state, stage))
    for name in (*((stage.name,) if stage.place is not None else ()), *(s.name for s in changed.placed_in(stage.name))):
        check_placement(changed, name)
    places = (stage.place, state.stage(stage.name).place)
    roots = tuple(dict.fromkeys((stage.name, *(p.stage for p in places if p is not None))))
    for root in roots:
        changed = fitted(changed, root)
    for root in roots:
        check_pipelines(changed, root)
        check_slides(changed, root)
        check_tensorized(changed, changed.stage(root), refuse)
    return changed
