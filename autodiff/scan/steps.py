"""What the body of a scan reads from outside, at all steps at once.

The definitions of the body are written over (step, ...): what each of them received at all steps then goes on to the tensors that it
reads like any other adjoint, so these reads become gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tensorexpr.autodiff.local.batching import batch, fresh_axes
from tensorexpr.autodiff.local.contributions import CHEAP, cost
from tensorexpr.autodiff.local.derivatives import cast_to, widened
from tensorexpr.autodiff.local.workspace import plain_axes
from tensorexpr.autodiff.scan.bodies import before, results
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Reduce,
    Scan,
    Scatter,
    TensorType,
    apply,
    const,
)
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.records import record, replace
from tensorexpr.traversal import map_expressions, reads, substitute, walk

if TYPE_CHECKING:
    from tensorexpr.autodiff.sweep.reverse import Sweep

Heads = dict[int, Callable[[tuple[Expr, ...]], Expr]]
"""What the floating results of a scan received, by position."""


@record
class Steps:
    """The body over all steps at once: `readers`, definitions that read active tensors from outside, each with itself over all steps.

    `kept` gives for definitions of the body that they need, and that are not cheap, the tensor that holds them for all steps.
    """

    step: Axis
    readers: list[tuple[Define | Scatter, Define | Scatter]]
    kept: dict[str, str]


def all_steps(scan: Scan, sweep: Sweep) -> Steps:
    """Adds the definitions of the body over all steps."""
    workspace = sweep.workspace
    (step,) = fresh_axes([(scan.step, scan.length)], scan.body, workspace.reserved)
    t = Index(step.index)
    states: dict[str, str] = {}
    batched: dict[str, int] = {}
    for c, (state, type_) in enumerate(scan.states):
        axes = plain_axes(type_, (*workspace.reserved, step.index))
        states[state] = workspace.new_name(scan.names[c], "_before")
        batched[states[state]] = 0
        value = before(scan, c, t, tuple(Index(axis.index) for axis in axes))
        workspace.add(Define(states[state], (step, *axes), value))
    here = [map_expressions(d, lambda e: substitute(e, {scan.step: t})) for d in map(ProgramRenaming(states, ()).definition, scan.body)]
    wide = batch(here, (step,), batched, workspace.types, lambda name: workspace.new_name(name, "_steps"))
    names = {name: workspace.new_name(name, "_steps") for d in wide for name in (*results(d), *local_names(d))}
    table: dict[str, Definition] = {}
    for definition in map(ProgramRenaming(names, ()).definition, wide):
        workspace.add(definition)
        table.update((name, definition) for name in results(definition))
    readers: list[tuple[Define | Scatter, Define | Scatter]] = []
    needed: set[str] = set()
    for reader in reversed(scan.body):
        if any(name in needed for name in results(reader)):
            needed.update(reads(reader))
        if isinstance(reader, Define | Scatter) and reader.value.dtype.is_float and any(n in sweep.active for n in reads(reader)):
            copy = table[names[reader.name]]
            assert isinstance(copy, Define | Scatter)
            readers.append((reader, copy))
            needed.update((reader.name, *reads(reader)))
    kept = {d.name: names[d.name] for d in scan.body if isinstance(d, Define | Scatter) and d.name in needed and not _is_cheap(d)}
    return Steps(step, readers, kept)


def _is_cheap(definition: Define | Scatter) -> bool:
    return (
        isinstance(definition, Define)
        and cost(definition.value) <= CHEAP
        and not any(isinstance(n, Reduce) for n in walk(definition.value))
    )


def sweep_steps(scan: Scan, steps: Steps, heads: Heads, states: Mapping[int, str], values: Mapping[str, str], sweep: Sweep) -> None:
    """What definitions of the body received at all steps goes on to the tensors from outside that they read. `states` and `values` are
    results of the backward scan: the adjoints of states before a step, by position, and of definitions of the body."""
    workspace, step = sweep.workspace, steps.step
    t, last = Index(step.index), apply("sub", scan.length, const(1))
    owner = sweep.owners.get(scan.names[0], scan.names[0])
    after: dict[str, tuple[str, str]] = {}
    for c, head in heads.items():
        following, type_ = scan.nexts[c], scan.states[c][1]
        axes = plain_axes(type_, (*workspace.reserved, step.index))
        at = tuple(Index(axis.index) for axis in axes)
        value = widened(head((t, *at)))
        if scan.length != const(1) and c in states:
            later = Access(states[c], (apply("sub", apply("sub", scan.length, const(2)), t), *at), value.dtype)
            value = apply("add", value, apply("where", apply("lt", t, last), later, Const(0, value.dtype)))
        name = workspace.new_name(scan.names[c], "_after_bar")
        workspace.add(Define(name, (step, *axes), value))
        if following in sweep.active:
            _send_over_steps(scan, following, name, step, axes, sweep)
        after[following] = (name, scan.names[c])
    for reader, copy in steps.readers:
        received, stored = after.get(reader.name, (None, copy.name))
        if reader.name in values:
            received = workspace.new_name(copy.name, "_bar")
            type_ = workspace.types[values[reader.name]]
            axes = (step, *plain_axes(TensorType(type_.shape[1:], type_.dtype), (*workspace.reserved, step.index)))
            reversed_at: tuple[Expr, ...] = (apply("sub", last, t), *(Index(axis.index) for axis in axes[1:]))
            workspace.add(Define(received, axes, Access(values[reader.name], reversed_at, type_.dtype)))
        if received is None:
            continue
        twin = replace(copy, name=workspace.new_name(copy.name, ""))
        workspace.add(twin)
        sweep.activate([twin])
        sweep.owners[twin.name] = owner
        sweep.stored[twin.name] = stored
        sweep.send_whole(scan.names[0], twin.name, received)
        sweep.visit(twin)


def _send_over_steps(scan: Scan, tensor: str, value: str, step: Axis, axes: tuple[Axis, ...], sweep: Sweep) -> None:
    """A tensor from outside that is itself the next state receives the sum over all steps."""
    workspace = sweep.workspace
    read = Access(value, (Index(step.index), *(Index(axis.index) for axis in axes)), workspace.types[value].dtype)
    name = workspace.new_name(tensor, "_bar")
    total = Reduce(Combiner("sum"), (read,), (step,))
    workspace.add(Define(name, axes, cast_to(total, workspace.adjoint_type(tensor).dtype)))
    sweep.send_whole(scan.names[0], tensor, name)
