"""Recurrences backwards.

The states of a scan are its result, so they are stored already. Backwards a second scan runs from the last step to the
first and carries the adjoint of the state; its body is the derivative of the body of the first, whose values it computes
again at each step from the stored state: states are stored, everything inside a step is recomputed. What the body reads from
outside receives its adjoint from all steps at once: the definitions that read it, written over (step, ...), are swept like any
other definitions, so these reads become gathers (`steps`). Their adjoints are entries of the backward scan, one per
step; what is costly among the values that they need is computed once, for all steps, and read by the backward scan, too.

A body that holds a scan itself (time in segments: `te.scan(..., checkpoint=c)`) would be as large as all steps of all levels
that way, and a tensor with a rule of its own has a rule for one step. The derivative of such a body stays inside the backward scan
instead: what a step reads from outside at a place that depends on the step is a definition of the body, whose adjoint is one entry per
step of the result; the adjoint of any other tensor is carried from step to step as a sum. Nothing but the states of the outer scan
outlives a step (tensors with rules are states: `te.scan` sees to that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from tensorexpr.autodiff.local.batching import fresh_axes, index_names
from tensorexpr.autodiff.local.derivatives import cast_to, widened
from tensorexpr.autodiff.local.overrides import Override, inside
from tensorexpr.autodiff.local.workspace import Place, Workspace, plain_axes
from tensorexpr.autodiff.scan.bodies import live, recalled, renamed_scan, results, sent_to
from tensorexpr.autodiff.scan.steps import Heads, Steps, all_steps, sweep_steps
from tensorexpr.dtypes import accumulator
from tensorexpr.ir import (
    Access,
    Axis,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Input,
    Program,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    conjuncts,
    const,
)
from tensorexpr.language.core.renaming import local_names
from tensorexpr.records import field, record, replace
from tensorexpr.simplify.expressions import simplify_expr
from tensorexpr.traversal import (
    bottom_up,
    free_names,
    fresh_name,
    map_expressions,
    read_occurrences,
    reads,
    rename_bound,
    substitute,
    tensors_read,
    walk,
)

if TYPE_CHECKING:
    from tensorexpr.autodiff.sweep.reverse import Sweep


def reverse_scan(scan: Scan, sweep: Sweep) -> None:
    """Sends what the results of a scan received to its initial states and to all that its body reads."""
    workspace = sweep.workspace
    given, scan = scan, renamed_scan(scan, workspace)
    rules = inside(sweep.rules, given, scan)
    heads = {c: sweep.adjoint(scan.names[c]) for c in _receiving(scan, sweep, rules)}
    from_outside = any(name in sweep.active for inner in scan.body for name in (*reads(inner), *sent_to(inner, rules)))
    stays = from_outside and (bool(rules) or any(isinstance(inner, Scan) for inner in scan.body))
    slices: list[Define] = []
    outside: list[str] = []
    if stays:
        scan, slices = _sliced(scan, sweep, rules)
        own = {*(name for name, _ in scan.states), *(name for d in (*slices, *scan.body) for name in results(d))}
        read = (n for d in scan.body for n in (*reads(d), *sent_to(d, rules)))
        outside = [n for n in dict.fromkeys(read) if n in sweep.active and n not in own]
    steps = all_steps(scan, sweep) if from_outside and not stays else None
    backward = _backward_scan(scan, heads, sweep, slices, outside, steps, rules)
    for c, name in backward.states.items():
        _send_last(scan, scan.inits[c], name, sweep)
    if stays:
        for name, total in backward.carried.items():
            _send_last(scan, name, total, sweep)
        _sweep_slices(scan, slices, backward.slices, sweep)
    elif steps is not None:
        sweep_steps(scan, steps, heads, backward.states, backward.values, sweep)


def _receiving(scan: Scan, sweep: Sweep, rules: Mapping[str, Override]) -> list[int]:
    """The floating states, by position, whose adjoint is not zero at all steps: their results received something, or a state that
    receives is computed from them."""
    sources = {name: (*reads(d), *sent_to(d, rules)) for d in scan.body for name in results(d)}
    needed: set[str] = set()
    waiting = [following for name, following in zip(scan.names, scan.nexts, strict=True) if sweep.reached([name])]
    follows = {state: following for (state, _), following in zip(scan.states, scan.nexts, strict=True)}
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [*sources.get(name, ()), *((follows[name],) if name in follows else ())]
    found = enumerate(zip(scan.names, scan.states, strict=True))
    return [c for c, (name, (state, type_)) in found if type_.dtype.is_float and (state in needed or sweep.reached([name]))]


@record(frozen=False)
class _Building:
    """A scan while it is made: each state with its initial value and the definition of the body that is next."""

    workspace: Workspace
    names: list[str] = field(default_factory=list)
    states: list[tuple[str, TensorType]] = field(default_factory=list)
    inits: list[str] = field(default_factory=list)
    nexts: list[str] = field(default_factory=list)
    body: list[Definition] = field(default_factory=list)

    def state(self, label: str, type_: TensorType, start: tuple[tuple[Axis, ...], Expr] | None = None) -> str:
        """A further state of the result `label`, from zeros or what is given over axes; gives the name under which the body reads it."""
        state, init = self.workspace.new_name(label, "_state"), self.workspace.new_name(label, "_init")
        axes, value = start or (plain_axes(type_, self.workspace.reserved), Const(0, type_.dtype))
        self.workspace.add(Define(init, axes, value))
        self.names.append(label)
        self.states.append((state, type_))
        self.inits.append(init)
        return state

    def next(self, label: str, name: str, type_: TensorType) -> None:
        """The next of the states in order: the definition `name` of the body, or a copy of what comes from outside of it."""
        if name in self.nexts or not any(name == result for inner in self.body for result, _ in inner.results):
            axes = plain_axes(type_, self.workspace.reserved)
            copy = self.workspace.new_name(label, "_next")
            self.body.append(Define(copy, axes, Access(name, tuple(Index(axis.index) for axis in axes), type_.dtype)))
            name = copy
        self.nexts.append(name)

    def scan(self, length: Expr, step: str) -> Scan:
        """The scan, added to the workspace."""
        made = Scan(tuple(self.names), length, step, tuple(self.states), tuple(self.inits), tuple(self.body), tuple(self.nexts))
        self.workspace.add(made)
        return made


@record
class _Backward:
    """The results of a backward scan, whose entry u is about step `length - 1 - u`.

    `states` are the adjoints of the floating states before the step, by position (not of those that the body does not read);
    `slices` and `values` the adjoints of definitions of the body; `carried` what tensors from outside received from this step
    and all later ones.
    """

    states: dict[int, str]
    slices: dict[str, str]
    carried: dict[str, str]
    values: dict[str, str]


def _backward_scan(
    scan: Scan,
    heads: Heads,
    sweep: Sweep,
    slices: Sequence[Define],
    outside: Sequence[str],
    steps: Steps | None,
    rules: Mapping[str, Override],
) -> _Backward:
    """Adds the scan of the adjoints of the states; also of `slices`, definitions before its body, of tensors from `outside`, and
    of the definitions that `steps` will sweep."""
    workspace = sweep.workspace
    u = fresh_name("u", index_names(scan.body) | {scan.step, *workspace.reserved})
    step = apply("sub", apply("sub", scan.length, const(1)), Index(u))
    made = _Building(workspace)
    found = _Backward({}, {}, {}, {})
    seeds, inputs, totals = [], [], {}
    read = {*(name for inner in scan.body for name in (*reads(inner), *sent_to(inner, rules))), *scan.nexts}
    for c, head in heads.items():
        type_ = _wide(scan.states[c][1])
        label, total = workspace.new_name(scan.names[c], "_back"), workspace.new_name(scan.names[c], "_total")
        axes = plain_axes(type_, (*workspace.reserved, scan.step, u))
        at = tuple(Index(axis.index) for axis in axes)
        value = widened(head((step, *at)))
        if scan.states[c][0] in read:
            found.states[c] = label
            first = _first_alone(value, Axis(u, const(0), scan.length), axes, workspace)
            if first is None:
                value = apply("add", Access(made.state(label, type_), at, type_.dtype), value)
            else:
                total = made.state(label, type_, (axes, first))
        if total not in dict(made.states):
            made.body.append(Define(total, axes, value))
        inputs.append(Input(total, type_))
        seeds.append((scan.nexts[c], total))
        totals[scan.nexts[c]] = total
    read_here = [name for inner in scan.body for name in reads(inner)]
    # A rule may read whatever was computed before.
    given = [(name, workspace.types[name]) for name in (workspace.types if rules else read_here) if name in workspace.types]
    inputs += [Input(name, type_) for name, type_ in (*scan.states, *(result for part in slices for result in part.results), *given)]
    program = Program(tuple({i.name: i for i in inputs}.values()), (), scan.body, (), ())
    swept = [] if steps is None else [reader.name for reader, _ in steps.readers]
    wrt = [*(scan.states[c][0] for c in found.states), *(part.name for part in slices), *outside, *swept]
    derived = sweep.derive(program, seeds, wrt, tuple(Axis(name, const(0), scan.length) for name in (scan.step, u)), rules)
    adjoint = dict(zip(wrt, derived.program.outputs, strict=True))

    def placed(definition: Definition) -> Definition:
        return map_expressions(definition, lambda e: substitute(e, {scan.step: step}))

    known = {} if steps is None else steps.kept
    made.body += map(placed, recalled(scan, [*slices, *derived.program.definitions], derived.program.outputs, known, rules))
    for c, label in found.states.items():
        made.next(label, adjoint[scan.states[c][0]], _wide(scan.states[c][1]))
    for part in slices:
        type_ = _wide(part.results[0][1])
        found.slices[part.name] = workspace.new_name(part.name, "_back")
        made.state(found.slices[part.name], type_)
        made.next(found.slices[part.name], adjoint[part.name], type_)
    for name in swept:
        received = derived.received[name]
        if adjoint[name] != totals.get(name) and (received.flows or received.whole):
            type_ = _wide(derived.workspace.types[name])
            found.values[name] = workspace.new_name(name, "_back")
            made.state(found.values[name], type_)
            made.next(found.values[name], adjoint[name], type_)
    for tensor in outside:
        received = derived.received[tensor]
        if not received.flows and not received.whole:
            continue
        type_ = _wide(workspace.types[tensor])
        found.carried[tensor] = workspace.new_name(tensor, "_back")
        state, total = made.state(found.carried[tensor], type_), workspace.new_name(tensor, "_total")
        axes = plain_axes(type_, (*workspace.reserved, u))
        at = tuple(Index(axis.index) for axis in axes)
        made.body.append(Define(total, axes, apply("add", Access(state, at, type_.dtype), Access(adjoint[tensor], at, type_.dtype))))
        made.next(found.carried[tensor], total, type_)
    if made.names:
        made.body = live(made.body, made.nexts)
        again = {name for inner in made.body for name in local_names(inner)}
        for rule in rules.values():
            rule.moved(again, {scan.step: step})
        made.scan(scan.length, u)
    return found


def _first_alone(head: Expr, steps: Axis, axes: tuple[Axis, ...], workspace: Workspace) -> Expr | None:
    """What comes to the last state where nothing comes to those before it, as when only the end of a scan is read: what the way
    back starts from then. None where steps in between receive something, or the definition of what they receive is not plain."""
    made = {d.name: d for d in workspace.definitions if isinstance(d, Define)}

    def written_out(node: Expr) -> Expr:
        source = made.get(node.tensor) if isinstance(node, Access) else None
        if source is None or not isinstance(node, Access):
            return node
        at = {axis.index: index for axis, index in zip(source.axes, node.indices, strict=True)}
        return substitute(rename_bound(source.value, {*at, *(name for index in node.indices for name in free_names(index))}), at)

    head = bottom_up(head, written_out)
    later = simplify_expr(head, (replace(steps, start=const(1)), *axes), signed_zeros=False, derived=True)
    return substitute(head, {steps.index: const(0)}) if isinstance(later, Const) and later.value == 0 else None


def _wide(type_: TensorType) -> TensorType:
    """The type in which an adjoint is carried from step to step: float32 for 16-bit floats."""
    return TensorType(type_.shape, accumulator(type_.dtype))


def _send_last(scan: Scan, tensor: str, backward: str, sweep: Sweep) -> None:
    """A tensor receives the last entry of the backward scan."""
    if tensor not in sweep.active:
        return
    type_ = sweep.workspace.adjoint_type(tensor)
    axes = plain_axes(type_, sweep.workspace.reserved)
    at = (apply("sub", scan.length, const(1)), *(Index(axis.index) for axis in axes))
    value = last = cast_to(Access(backward, at, accumulator(type_.dtype)), type_.dtype)
    if not isinstance(scan.length, Const):
        value = apply("where", apply("gt", scan.length, const(0)), last, Const(0, type_.dtype))
    elif scan.length.value <= 0:
        value = Const(0, type_.dtype)
    name = sweep.workspace.new_name(tensor, "_bar")
    sweep.workspace.add(Define(name, axes, value))
    sweep.send_whole(scan.names[0], tensor, name)


# ------------------------------------------------------------------------------------------ what stays inside of a step


def _sliced(scan: Scan, sweep: Sweep, rules: Mapping[str, Override]) -> tuple[Scan, list[Define]]:
    """The scan reading what depends on its step, of active tensors from outside, through definitions before its body; and these."""
    workspace = sweep.workspace.inside((Axis(scan.step, const(0), scan.length),))
    own = {name for name, _ in scan.states} | {name for inner in scan.body for name in (*results(inner), *local_names(inner))}

    def visit(definition: Definition, outer: tuple[Axis, ...]) -> Definition:
        if isinstance(definition, Scan):
            inner = (*outer, Axis(definition.step, const(0), definition.length))
            return replace(definition, body=tuple(visit(d, inner) for d in definition.body))
        if isinstance(definition, Segments) or any(name in rules for name in results(definition)):
            return definition  # nothing flows through what it reads: integers, or a rule says what does
        guards: tuple[Expr, ...] = ()
        axes = (*outer, *definition.axes)
        if isinstance(definition, Scatter):
            guards = tuple(conjuncts(definition.where))
        found: dict[Access, list[Place]] = {}
        for access, around, conditions in read_occurrences(definition.value, axes, guards):
            if access.tensor in sweep.active and access.tensor not in own and scan.step in free_names(access):
                found.setdefault(access, []).append(Place(around).under(guards=conditions))
        read = {access: slice_of(access, places) for access, places in found.items()}
        return map_expressions(definition, lambda e: bottom_up(e, lambda node: read.get(node, node) if isinstance(node, Access) else node))

    def slice_of(access: Access, places: list[Place]) -> Expr:
        if any(node.tensor in own for node in walk(access) if isinstance(node, Access)):
            return access
        free = Place(places[0].axes)
        safe = all(workspace.is_safe(access, place.axes) for place in places)
        if not safe and (len(places) > 1 or any(name in own for g in places[0].guards for name in tensors_read(g))):
            return access
        axes, _, _ = workspace.hull(access, free if safe else places[0])
        if axes is None or not _is_smaller(tuple(axis.stop for axis in axes), workspace.types[access.tensor].shape):
            return access
        return workspace.save(access, free if safe else places[0], access.tensor, "_step")

    body = tuple(visit(definition, ()) for definition in scan.body)
    slices = [definition for definition in workspace.definitions if isinstance(definition, Define)]
    return replace(scan, body=body), slices


def _is_smaller(shape: tuple[Expr, ...], other: tuple[Expr, ...]) -> bool:
    """Whether a tensor has fewer elements than another one, as far as numbers tell; by the number of axes where they do not."""
    sizes = [[int(e.value) for e in extents if isinstance(e, Const)] for extents in (shape, other)]
    if len(sizes[0]) == len(shape) and len(sizes[1]) == len(other):
        return prod(sizes[0]) < prod(sizes[1])
    return len(shape) < len(other)


def _sweep_slices(scan: Scan, slices: Sequence[Define], backward: Mapping[str, str], sweep: Sweep) -> None:
    """What the slices received at each step goes on to the tensors that they are slices of."""
    workspace = sweep.workspace
    (step,) = fresh_axes([(scan.step, scan.length)], slices, workspace.reserved)
    owner = sweep.owners.get(scan.names[0], scan.names[0])
    swept = []
    for part in slices:
        name, received = workspace.new_name(part.name, "_steps"), workspace.new_name(part.name, "_bar")
        axes = (step, *part.axes)
        swept.append(Define(name, axes, substitute(part.value, {scan.step: Index(step.index)})))
        workspace.add(swept[-1])
        sweep.activate(swept[-1:])
        sweep.owners[name] = owner
        last = apply("sub", apply("sub", scan.length, const(1)), Index(step.index))
        read = Access(backward[part.name], (last, *(Index(axis.index) for axis in part.axes)), accumulator(part.value.dtype))
        workspace.add(Define(received, axes, read))
        sweep.send_whole(scan.names[0], name, received)
    for definition in reversed(swept):
        sweep.visit(definition)
