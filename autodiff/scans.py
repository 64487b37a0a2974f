"""Recurrences backwards, and reductions by a user's combiner as recurrences.

The states of a scan are its result, so they are stored already. Backwards a second scan runs from the last step to the
first and carries the adjoint of the state; its body is the derivative of the body of the first, which it computes again at
each step from the stored state. What the body reads from outside receives its adjoint from all steps at once: the body,
written as definitions over (step, ...), is swept like any other definitions, so these reads become gathers.

A reduction by a user's combiner is the scan that folds its values one after the other; its partial results are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorexpr.autodiff.batching import batch, fresh_axes, index_names
from tensorexpr.autodiff.workspace import Place, Workspace, guarded, plain_axes, shifted
from tensorexpr.errors import DifferentiationError
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Input,
    Param,
    Program,
    Reduce,
    Scan,
    TensorType,
    apply,
    const,
)
from tensorexpr.language.renaming import ProgramRenaming, local_names
from tensorexpr.language.tensor import name_of
from tensorexpr.traversal import bottom_up, bound_names, free_names, fresh_name, map_expressions, reads, substitute, walk

if TYPE_CHECKING:
    from tensorexpr.autodiff.reverse import Sweep

Heads = dict[int, Callable[[tuple[Expr, ...]], Expr]]
"""What the floating results of a scan received, by position."""

# ------------------------------------------------------------------------------------------------------------ steps


def fold_steps(axes: tuple[Axis, ...], place: Place, step: Expr, workspace: Workspace) -> tuple[Expr, dict[str, Expr], list[Expr]] | None:
    """Reduction axes as one row-major sequence: its length, each index as a function of `step`, conditions for a point.

    None where an axis has no bound that holds at every point of `place`.
    """
    inner = place.under(axes)
    extents, lows, conditions = [], [], []
    for axis in axes:
        fixed = not free_names(axis.start) and not free_names(axis.stop)
        if fixed and not any(isinstance(node, Access) for bound in (axis.start, axis.stop) for node in walk(bound)):
            extents.append(axis.stop if axis.start == const(0) else apply("sub", axis.stop, axis.start))
            lows.append(axis.start)
            continue
        hull = workspace.hull_of(axis, inner)
        if hull is None:
            return None
        low, stop = hull
        extents.append(shifted(stop, -low))
        lows.append(const(low))
        conditions += [apply("ge", Index(axis.index), axis.start), apply("lt", Index(axis.index), axis.stop)]
    length: Expr = extents[0]
    for extent in extents[1:]:
        length = apply("mul", length, extent)
    values: dict[str, Expr] = {}
    rest = step
    for axis, size, base in reversed(list(zip(axes, extents, lows, strict=True))):
        own = rest if axis is axes[0] else apply("mod", rest, size)
        rest = rest if axis is axes[0] else apply("floordiv", rest, size)
        values[axis.index] = own if base == const(0) else apply("add", own, base)
    return length, values, [substitute(condition, values) for condition in conditions]


def expand_reduction(node: Reduce, place: Place, workspace: Workspace, owner: str, but: Collection[str] = ()) -> tuple[Expr, Scan]:
    """A read of the last state of a scan that folds the values of `node`, and that scan, which has no name in `but`.

    The scan is added to the workspace; the components of one fold share one scan.
    """
    around, guards, offsets = workspace.hull(node, place)
    if around is None:
        raise _unbounded(node, owner)
    key = (replace(node, component=0), around, tuple(guards))
    scan = workspace.folds.get(key)
    if scan is None or scan.names[0] in but:
        scan = workspace.folds[key] = _fold(node, place, around, guards, offsets, workspace, owner)
    dtype, identity = node.values[node.component].dtype, node.combiner.identity[node.component]
    read_at = tuple(shifted(Index(a.index), -offset) for a, offset in zip(around, offsets, strict=True))
    last = Access(scan.names[node.component], (apply("sub", scan.length, const(1)), *read_at), dtype)
    if isinstance(scan.length, Const):
        return (last if scan.length.value > 0 else identity), scan
    return apply("where", apply("gt", scan.length, const(0)), last, identity), scan


def _fold(
    node: Reduce, place: Place, around: tuple[Axis, ...], guards: list[Expr], offsets: list[int], workspace: Workspace, owner: str
) -> Scan:
    """Adds the scan over the points of a reduction, one state per component, for all points of `around`."""
    taken = {*workspace.reserved, *(axis.index for axis in place.axes), *bound_names(node)}
    step = Index(fresh_name("t", taken))
    steps = fold_steps(node.axes, place, step, workspace)
    if steps is None:
        raise _unbounded(node, owner)
    length, values, conditions = steps
    shift = {a.index: shifted(Index(a.index), offset) for a, offset in zip(around, offsets, strict=True) if offset}

    def here(expr: Expr) -> Expr:
        return substitute(substitute(expr, values), shift)

    at = tuple(Index(axis.index) for axis in around)
    shape = tuple(a.stop for a in around)
    names = tuple(workspace.new_name(owner, f"_{node.combiner.name}") for _ in node.values)
    states = tuple((workspace.new_name(name, "_state"), TensorType(shape, v.dtype)) for name, v in zip(names, node.values, strict=True))
    inits, body, nexts = [], [], []
    for name, identity in zip(names, node.combiner.identity, strict=True):
        inits.append(workspace.new_name(name, "_init"))
        workspace.add(Define(inits[-1], around, identity))
    operands: dict[str, Expr] = {p.name: Access(state, at, p.dtype) for p, (state, _) in zip(node.combiner.left, states, strict=True)}
    operands |= {p.name: here(value) for p, value in zip(node.combiner.right, node.values, strict=True)}
    tests = [*guards, *(substitute(c, shift) for c in conditions), *(() if node.where is None else (here(node.where),))]
    for name, result, (state, _) in zip(names, node.combiner.results, states, strict=True):
        combined = bottom_up(result, lambda e: operands[e.name] if isinstance(e, Param) else e)
        nexts.append(workspace.new_name(name, "_next"))
        body.append(Define(nexts[-1], around, guarded(combined, tests, Access(state, at, combined.dtype))))
    scan = Scan(names, length, step.name, states, tuple(inits), tuple(body), tuple(nexts))
    workspace.add(scan)
    return scan


def _unbounded(node: Reduce, owner: str) -> DifferentiationError:
    return DifferentiationError(
        f"expected the axes of a reduction by {node.combiner.name!r} to have bounds that are known beforehand",
        term=name_of(owner) or owner,
        location=next((e.location for e in walk(node) if isinstance(e, Access) and e.location is not None), None),
        hint="write a wider axis with where=, or give the tensor a rule: override={tensor: rule}",
    )


# -------------------------------------------------------------------------------------------------------- backwards


def reverse_scan(scan: Scan, sweep: Sweep) -> None:
    """Sends what the results of a scan received to its initial states and to all that its body reads."""
    workspace = sweep.workspace
    floating = [c for c, (_, type_) in enumerate(scan.states) if type_.dtype.is_float]
    heads = {c: sweep.adjoint(scan.names[c]) for c in floating}
    scan = renamed_scan(scan, workspace)
    backward = _backward_scan(scan, heads, sweep)
    steps = fresh_axes([(scan.step, scan.length)], scan.body, workspace.reserved)
    for c in floating:
        _send_to_init(scan, c, backward[c], sweep)
    if any(name in sweep.active for inner in scan.body for name in reads(inner)):
        _sweep_steps(scan, steps[0], heads, backward, sweep)


def renamed_scan(scan: Scan, workspace: Workspace) -> Scan:
    """The scan with fresh names for its states and body (copies of the body will stand beside it)."""
    names = {name: workspace.new_name(name, "_again") for name in local_names(scan)}
    renamed = ProgramRenaming(names, ()).definition(scan)
    assert isinstance(renamed, Scan)
    return renamed


def before(scan: Scan, c: int, step: Expr, indices: tuple[Expr, ...]) -> Expr:
    """State `c` before a step: what the step before left, or the initial state."""
    dtype = scan.states[c][1].dtype
    first = Access(scan.inits[c], indices, dtype)
    if scan.length == const(1):
        return first
    earlier = Access(scan.names[c], (apply("sub", step, const(1)), *indices), dtype)
    return apply("where", apply("gt", step, const(0)), earlier, first)


def _backward_scan(scan: Scan, heads: Heads, sweep: Sweep) -> dict[int, str]:
    """Adds the scan of the adjoints of the states; gives its result for each floating state.

    Entry u of a result is the adjoint of the state before step `length - 1 - u`.
    """
    workspace = sweep.workspace
    label = {c: workspace.new_name(scan.names[c], "_back") for c in heads}
    states, inits, seeds, totals = [], [], {}, []
    taken = index_names(scan.body) | {scan.step, *workspace.reserved}
    u = fresh_name("u", taken)
    step = apply("sub", apply("sub", scan.length, const(1)), Index(u))
    inputs = []
    for c, head in heads.items():
        type_ = scan.states[c][1]
        state, init, total = (workspace.new_name(label[c], suffix) for suffix in ("_state", "_init", "_total"))
        axes = plain_axes(type_, (*workspace.reserved, *taken))
        at = tuple(Index(axis.index) for axis in axes)
        workspace.add(Define(init, axes, Const(0, type_.dtype)))
        totals.append(Define(total, axes, apply("add", Access(state, at, type_.dtype), head((step, *at)))))
        states.append((state, type_))
        inits.append(init)
        inputs.append(Input(total, type_))
        seeds[c] = total
    outside = [Input(name, workspace.types[name]) for inner in scan.body for name in reads(inner) if name in workspace.types]
    own = [Input(name, type_) for name, type_ in scan.states]
    program = Program(tuple({i.name: i for i in [*inputs, *own, *outside]}.values()), (), scan.body, (), ())
    wrt = [scan.states[c][0] for c in heads]
    outputs = [(scan.nexts[c], total) for c, total in seeds.items()]
    derived = sweep.derive(program, outputs, wrt, tuple(Axis(name, const(0), scan.length) for name in (scan.step, u)))
    state_of = {name: c for c, (name, _) in enumerate(scan.states)}

    def place(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in state_of:
            return before(scan, state_of[node.tensor], Index(scan.step), node.indices)
        return node

    body: list[Definition] = [*totals]
    for inner in _live(derived.program.definitions, derived.program.outputs):
        body.append(map_expressions(inner, lambda e: substitute(bottom_up(e, place), {scan.step: step})))
    nexts = []
    for c, name in zip(heads, derived.program.outputs, strict=True):
        if any(name == result for inner in body for result, _ in inner.results):
            nexts.append(name)
            continue
        type_ = scan.states[c][1]  # the adjoint is one of the totals, or of the inputs: give it a name in the body
        axes = plain_axes(type_, workspace.reserved)
        nexts.append(workspace.new_name(label[c], "_next"))
        body.append(Define(nexts[-1], axes, Access(name, tuple(Index(axis.index) for axis in axes), type_.dtype)))
    workspace.add(Scan(tuple(label.values()), scan.length, u, tuple(states), tuple(inits), tuple(body), tuple(nexts)))
    return label


def _live(definitions: tuple[Definition, ...], outputs: tuple[str, ...]) -> list[Definition]:
    """The definitions that the outputs need."""
    needed = set(outputs)
    kept = []
    for definition in reversed(definitions):
        if any(name in needed for name, _ in definition.results):
            needed.update(reads(definition))
            kept.append(definition)
    return list(reversed(kept))


def _send_to_init(scan: Scan, c: int, backward: str, sweep: Sweep) -> None:
    """The initial state receives the adjoint of the state before the first step."""
    if scan.inits[c] not in sweep.active:
        return
    type_ = scan.states[c][1]
    axes = plain_axes(type_, sweep.workspace.reserved)
    last = Access(backward, (apply("sub", scan.length, const(1)), *(Index(axis.index) for axis in axes)), type_.dtype)
    value: Expr = last
    if not isinstance(scan.length, Const):
        value = apply("where", apply("gt", scan.length, const(0)), last, Const(0, type_.dtype))
    elif scan.length.value <= 0:
        value = Const(0, type_.dtype)
    name = sweep.workspace.new_name(scan.inits[c], "_bar")
    sweep.workspace.add(Define(name, axes, value))
    sweep.send_whole(scan.names[0], scan.inits[c], name)


def _sweep_steps(scan: Scan, step: Axis, heads: Heads, backward: dict[int, str], sweep: Sweep) -> None:
    """The body over all steps at once, swept for what it reads from outside."""
    workspace = sweep.workspace
    t = Index(step.index)
    states: dict[str, str] = {}
    batched: dict[str, int] = {}
    for c, (state, type_) in enumerate(scan.states):
        axes = plain_axes(type_, workspace.reserved)
        states[state] = workspace.new_name(scan.names[c], "_before")
        batched[states[state]] = 0
        value = before(scan, c, t, tuple(Index(axis.index) for axis in axes))
        workspace.add(Define(states[state], (step, *axes), value))
    here = [map_expressions(d, lambda e: substitute(e, {scan.step: t})) for d in map(ProgramRenaming(states, ()).definition, scan.body)]
    steps = batch(here, (step,), batched, workspace.types, lambda name: workspace.new_name(name, "_steps"))
    again = {name: workspace.new_name(name, "_steps") for d in steps for name in (*(name for name, _ in d.results), *local_names(d))}
    unrolled = list(map(ProgramRenaming(again, ()).definition, steps))
    for definition in unrolled:
        workspace.add(definition)
    sweep.activate(unrolled)
    sweep.owners.update((name, sweep.owners.get(scan.names[0], scan.names[0])) for d in unrolled for name, _ in d.results)
    last = apply("sub", scan.length, const(1))
    for c, head in heads.items():
        type_ = scan.states[c][1]
        axes = plain_axes(type_, workspace.reserved)
        at = tuple(Index(axis.index) for axis in axes)
        value = head((t, *at))
        if scan.length != const(1):
            later = Access(backward[c], (apply("sub", apply("sub", scan.length, const(2)), t), *at), type_.dtype)
            value = apply("add", value, apply("where", apply("lt", t, last), later, Const(0, type_.dtype)))
        name = workspace.new_name(scan.names[c], "_after_bar")
        workspace.add(Define(name, (step, *axes), value))
        target = again.get(scan.nexts[c], states.get(scan.nexts[c], scan.nexts[c]))
        if target in again.values():
            sweep.send_whole(scan.names[0], target, name)
        elif target in sweep.active:
            _send_over_steps(scan, target, name, step, axes, sweep)
    for definition in reversed(unrolled):
        sweep.visit(definition)


def _send_over_steps(scan: Scan, tensor: str, value: str, step: Axis, axes: tuple[Axis, ...], sweep: Sweep) -> None:
    """A tensor from outside that is itself the next state receives the sum over all steps."""
    dtype = sweep.workspace.types[tensor].dtype
    read = Access(value, (Index(step.index), *(Index(axis.index) for axis in axes)), dtype)
    name = sweep.workspace.new_name(tensor, "_bar")
    sweep.workspace.add(Define(name, axes, Reduce(Combiner("sum"), (read,), (step,))))
    sweep.send_whole(scan.names[0], tensor, name)
