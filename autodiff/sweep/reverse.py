"""Reverse mode on programs: definitions are walked backwards, and every read sends its adjoint to the tensor it read.

The adjoint of a tensor is complete when all its readers are done; it is then one definition, the sum of what its readers
sent (`accumulate`). Tensors that do not lie between the outputs and `wrt` are not visited. The walk is a loop, so chains
of any length work, and its result is an ordinary program: it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tensorexpr.algebra import narrowed_to, supports_of, without_carries
from tensorexpr.autodiff.data.scatters import scattered_adjoint
from tensorexpr.autodiff.local.contributions import Contribution, ExpressionAdjoint
from tensorexpr.autodiff.local.derivatives import is_number
from tensorexpr.autodiff.local.overrides import Override, inputs_within
from tensorexpr.autodiff.local.workspace import Place, Workspace
from tensorexpr.autodiff.scan.folds import expand_reduction, in_parts
from tensorexpr.autodiff.scan.recurrences import reverse_scan
from tensorexpr.autodiff.scan.running import running_table
from tensorexpr.autodiff.sweep.accumulate import Flow, accumulate, axes_of
from tensorexpr.autodiff.sweep.neighbors import in_step
from tensorexpr.autodiff.sweep.parts import with_parts
from tensorexpr.autodiff.sweep.recompute import with_copies
from tensorexpr.autodiff.sweep.sharing import flows_of
from tensorexpr.autodiff.sweep.shifts import extreme_form, is_extreme, shifts, written_shifts
from tensorexpr.autodiff.sweep.terms import TermAt, term_at
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    conjuncts,
)
from tensorexpr.records import field, record, replace
from tensorexpr.simplify.passes.definitions import form_of, with_definitions
from tensorexpr.simplify.passes.inline.places import without_fixed
from tensorexpr.simplify.rules.reduce import extremum_of_extrema
from tensorexpr.traversal import bottom_up, expressions, map_expressions, reads, substitute, tensors_read, walk


@record(frozen=False)
class Received:
    """What one tensor received: the axes of its adjoint, a flow per contribution, and tensors added whole, by consumer."""

    target: tuple[Axis, ...]
    flows: list[Flow]
    whole: list[tuple[str, str]] = field(default_factory=list)


@record
class Around:
    """Where a reduction stood that became a definition of its own: at `place` in the definition `owner`, which reads it there at
    `indices`, one for each of its `axes`."""

    owner: str
    place: Place
    axes: tuple[Axis, ...]
    indices: tuple[Expr, ...]


@record
class Reverse:
    """The derivative: `program` (the forward definitions, then the derived ones; outputs are the adjoints of `wrt`).

    `adjoints` gives the name of the adjoint of every tensor on the way, `received` what it is the sum of, `around` where the
    reductions stood that were made definitions, `together` the definitions that send in one scan, to each of which it is put down.
    """

    program: Program
    adjoints: dict[str, str]
    received: dict[str, Received]
    workspace: Workspace
    around: dict[str, list[Around]]
    together: Mapping[str, tuple[str, ...]]


def reverse(
    program: Program,
    outputs: Iterable[tuple[str, str | None]],
    wrt: Sequence[str],
    override: Mapping[str, Override] | None = None,
    lowering: str | None = None,
    labels: Mapping[str, str] | None = None,
    taken: set[str] | None = None,
    steps: tuple[Axis, ...] = (),
    plans: tuple[Segments, ...] = (),
    marked: Collection[str] = (),
) -> Reverse:
    """The adjoints of `wrt` for `outputs`, pairs of a name and the name of the head (None: the number 1, for a scalar).

    `lowering` ("segments" or "atomics") forces that form on every read; `labels` gives the names that new tensors are
    made of, `taken` names to stay clear of, `steps` the indices that are bound around the whole program, `plans` the sort plans
    that were handed in, `marked` the tensors that the derivative computes again. All tensors are floating, heads have the
    types of their outputs; the caller has checked that.
    """
    rules = {} if override is None else override
    program = without_carries(program)
    program = with_definitions(program, (map_expressions(d, _with_one_winner) for d in program.definitions))
    program = with_definitions(program, narrowed_to(program.definitions, supports_of(program.definitions)))
    workspace = Workspace.behind(program, labels, taken, steps)
    outputs = tuple(outputs)
    workspace.given_plans, workspace.wide = plans, bool(steps)
    active = active_tensors(program.definitions, wrt, rules)
    for name in shifts(program, [name for name, _ in outputs], active, {*wrt, *rules}):
        del active[name]
    sweep = Sweep(workspace, active, lowering, rules)
    sweep.still = written_shifts(program, [name for name, _ in outputs], {*wrt, *rules})
    for name, head in outputs:
        sweep.seed(name, head)
    swept = sweep.with_parts(program.definitions, {*rules, *wrt, *marked})
    for definition in reversed(swept):
        names = [name for name, _ in definition.results]
        custom = next((name for name in names if name in rules), None)
        if custom is None:
            sweep.visit(definition)
        elif sweep.reached(names):
            sweep.apply_rule(custom, rules[custom])
    adjoints = {name: sweep.finish(name) for name in dict.fromkeys(wrt)}
    if marked:
        workspace.definitions = with_copies(workspace.definitions, program.definitions, marked, rules, workspace)
    supports = supports_of([*program.definitions, *workspace.definitions])
    workspace.definitions = list(narrowed_to(workspace.definitions, supports, derived=True))  # what was not read has no derivative
    workspace.simplify(program.definitions)
    steps_in_line: list[Definition] = []
    for definition in workspace.definitions:
        found = in_step(definition, workspace.new_name) if isinstance(definition, Define) else [definition]
        workspace.types.update(result for d in found for result in d.results)
        steps_in_line += found
    workspace.definitions = steps_in_line
    definitions = (*program.definitions, *workspace.definitions)
    derived = Program(program.inputs, program.constants, definitions, tuple(adjoints[name] for name in wrt), program.sizes)
    together = {owner: tuple(owners) for owners in sweep.folded.values() if len(owners) > 1 for owner in owners}
    return Reverse(derived, sweep.names, sweep.received, workspace, sweep.around, together)


def _with_one_winner(e: Expr) -> Expr:
    """An expression in which a maximum of maxima is one, that one position says where its winner is."""
    return bottom_up(e, lambda node: (extremum_of_extrema(node) if isinstance(node, Reduce) else None) or node)


def active_tensors(definitions: Iterable[Definition], wrt: Iterable[str], rules: Mapping[str, Override] | None = None) -> dict[str, None]:
    """The floating tensors whose values change with `wrt`."""
    active = dict.fromkeys(wrt)
    for definition in definitions:
        own = [rules[name] for name, _ in definition.results if rules is not None and name in rules]
        sources = own[0].inputs if own else [*float_reads(definition), *inputs_within(definition, rules or {})]
        if any(name in active for name in sources):
            active.update((name, None) for name, type_ in definition.results if type_.dtype.is_float)
    return active


def float_reads(definition: Definition) -> list[str]:
    """The floating tensors that a definition reads (of a scan: from outside and as initial states)."""
    found = [node.tensor for e in expressions(definition) for node in walk(e) if isinstance(node, Access) and node.dtype.is_float]
    return [*definition.inits, *found] if isinstance(definition, Scan) else found


class Sweep:
    """The backward walk: what each tensor has received so far, and the adjoints that are finished.

    `owners` gives the definition of the program to which what a further one sends is put down, `stored` a tensor that holds
    the value of such a definition already; `still` are the forms of maxima that no output depends on. Reductions by a user's combiner
    are folds, which wait until something that they read is asked for what it received: then all results of a combiner of several
    values, in whatever definitions they stand, have been sent to, and one scan backwards serves them.
    """

    def __init__(
        self, workspace: Workspace, active: dict[str, None], lowering: str | None, rules: Mapping[str, Override] | None = None
    ) -> None:
        self.workspace = workspace
        self.rules: Mapping[str, Override] = {} if rules is None else rules
        self.active = active
        self.lowering = lowering
        self.received: dict[str, Received] = {}
        self.names: dict[str, str] = {}
        self._pending: dict[str, list[tuple[str, str, Contribution]]] = {}
        self._seeds: dict[str, list[str | None]] = {}
        self._whole: dict[str, list[tuple[str, str]]] = {}
        self._values: dict[str, Callable[[tuple[Expr, ...]], Expr]] = {}
        self._definitions: dict[str, Definition] = {}
        self._queues: list[dict[Definition, int]] = []
        self._folds: list[Scan] = []
        self.folded: dict[str, dict[str, None]] = {}
        self.owners: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self.around: dict[str, list[Around]] = {}
        self.still: frozenset[object] = frozenset()
        self._terms: dict[object, Define] = {}
        self._guards: dict[str, tuple[Expr, ...]] = {}
        self._tables: dict[tuple[Reduce, Place, str], tuple[Scan, tuple[Expr, ...]]] = {}

    # -- sending -----------------------------------------------------------------------------------------------------

    def seed(self, tensor: str, head: str | None) -> None:
        """An output: `tensor` receives the tensor `head`, or 1."""
        if tensor in self.active:
            self._seeds.setdefault(tensor, []).append(head)

    def send(self, consumer: str, contributions: Iterable[Contribution]) -> None:
        """What the definition `consumer` sends to the tensors it reads."""
        owner = self.owners.get(consumer, consumer)
        for one in contributions:
            self._pending.setdefault(one.access.tensor, []).append((owner, consumer, one))

    def with_parts(self, definitions: Sequence[Definition], fixed: Collection[str]) -> list[Definition]:
        """The definitions with what several of them compute as definitions of their own, which the derivative starts with."""
        known = {name for d in definitions for name, _ in d.results}

        def new_name(name: str) -> str:
            part = self.workspace.new_name(name, "_part")
            self.owners[part] = self.owners.get(name, name)
            return part

        found = with_parts(definitions, self.active, fixed, new_name)
        for part in found:
            if known.isdisjoint(name for name, _ in part.results):
                self.workspace.add(part)
                self.activate([part])
        return found

    def activate(self, definitions: Iterable[Definition]) -> None:
        """Makes the results of further definitions active where they read active tensors."""
        self.active.update(active_tensors(definitions, self.active))

    def send_whole(self, consumer: str, tensor: str, value: str) -> None:
        """Sends the tensor called `value`, element by element, to `tensor`."""
        if tensor in self.active:
            self._whole.setdefault(tensor, []).append((consumer, value))

    def reached(self, names: Collection[str]) -> bool:
        """Whether one of the tensors has received anything, now that the folds that read them are swept."""
        self._sweep_folds(names)
        return any(name in self._pending or name in self._seeds or name in self._whole for name in names)

    def _sweep_folds(self, names: Collection[str]) -> None:
        """Sweeps the folds that read one of the tensors: nothing further can come to them."""
        for fold in [fold for fold in self._folds if any(name in names for name in reads(fold))]:
            if fold in self._folds:  # not swept meanwhile, as a fold that reads another one
                self._folds.remove(fold)
                self.visit(fold)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def adjoint(self, tensor: str) -> Callable[[tuple[Expr, ...]], Expr]:
        """Reads the finished adjoint of a tensor at indices."""
        found = self._values.get(tensor)
        if found is None:
            found = self._finished(tensor)
            self._values[tensor] = found
        return found

    def _finished(self, tensor: str) -> Callable[[tuple[Expr, ...]], Expr]:
        self._sweep_folds((tensor,))
        types, dtype = self.workspace.types, self.workspace.adjoint_type(tensor).dtype
        seeds = self._seeds.pop(tensor, [])
        whole = self._whole.pop(tensor, [])
        pending = self._pending.pop(tensor, [])
        target = axes_of(tensor, self.workspace, self._definitions.get(tensor), [c for _, _, c in pending])
        flows = flows_of(pending, target, self.lowering, self.workspace)
        self.received[tensor] = Received(target, flows, whole)
        at = tuple(Index(axis.index) for axis in target)
        sources = [*seeds, *(name for _, name in whole)]
        if not flows and len(sources) == 1:
            if sources[0] is None:
                return lambda indices: Const(1, dtype)
            name = sources[0]
        elif not flows and not sources:
            name = self.workspace.zeros(tensor, "_bar")
        else:
            name = self.workspace.new_name(tensor, "_bar")
            terms = [Const(1, dtype) if source is None else Access(source, at, types[source].dtype) for source in sources]
            accumulate(tensor, name, target, flows, terms, self.workspace)
        self.names[tensor] = name
        return lambda indices: Access(name, indices, types[name].dtype)

    def finish(self, tensor: str) -> str:
        """The name of the adjoint of a tensor, which becomes a definition where it is just the number 1."""
        read = self.adjoint(tensor)
        if tensor not in self.names:
            name = self.workspace.new_name(tensor, "_bar")
            target = self.received[tensor].target
            self.workspace.add(Define(name, target, read(tuple(Index(axis.index) for axis in target))))
            self.names[tensor] = name
            dtype = self.workspace.types[name].dtype
            self._values[tensor] = lambda indices: Access(name, indices, dtype)
        return self.names[tensor]

    # -- definitions -------------------------------------------------------------------------------------------------

    def visit(self, definition: Definition) -> None:
        """Sends on what the results of a definition have received."""
        names = [name for name, _ in definition.results]
        if not self.reached(names):
            return
        for name in names:
            self._definitions[name] = definition
        queue: dict[Definition, int] = {}
        self._queues.append(queue)
        self._visit(definition)
        while queue:  # reductions that became definitions, the largest first: what is nested in another one receives from it
            largest = max(queue, key=queue.__getitem__)
            queue.pop(largest)
            self.visit(largest)
        self._queues.pop()

    def _visit(self, definition: Definition) -> None:
        match definition:
            case Define():
                self._visit_define(definition)
            case Scatter():
                seed, place = scattered_adjoint(definition, self.adjoint(definition.name), self.workspace)
                adjoint = self._expression(definition.name, len(place.axes))
                self.send(definition.name, adjoint.contributions(definition.value, seed, place))
            case Scan():
                reverse_scan(definition, self)

    def _visit_define(self, definition: Define) -> None:
        at = tuple(Index(axis.index) for axis in definition.axes)
        seed = self.adjoint(definition.name)(at)
        whole = Access(self.stored.get(definition.name, definition.name), at, definition.value.dtype)
        adjoint = self._expression(definition.name, len(definition.axes))
        guards, seed = self._supported(seed, definition.axes)
        place = Place(definition.axes, (*self._guards.get(definition.name, ()), *guards))
        self.send(definition.name, adjoint.contributions(definition.value, seed, place, whole))

    def _supported(self, seed: Expr, axes: tuple[Axis, ...]) -> tuple[tuple[Expr, ...], Expr]:
        """The conditions under which an adjoint, read at the indices of these axes, is not zero, and what it is there, where they leave an
        axis one value, as those of a diagonal do: nothing else is sent on. No conditions where they do not."""
        name = seed.tensor if isinstance(seed, Access) else ""
        found = next((d for d in reversed(self.workspace.definitions) if isinstance(d, Define) and d.name == name), None)
        if found is None or not isinstance(found.value, Apply) or found.value.op.name != "where":
            return (), seed
        condition, value, otherwise = found.value.args
        plain = not any(isinstance(n, Reduce) for n in walk(value)) and not tensors_read(condition)
        if not plain or not is_number(otherwise, 0) or without_fixed(found.axes, condition) == found.axes:
            return (), seed
        names = {axis.index: Index(own.index) for axis, own in zip(found.axes, axes, strict=True)}
        return tuple(substitute(c, names) for c in conjuncts(condition)), substitute(value, names)

    def _expression(self, owner: str, outer: int) -> ExpressionAdjoint:
        def running(node: Reduce, place: Place) -> Expr | None:
            key = (replace(node, component=0), place, owner)
            found = self._tables.get(key)
            if found is None or found[0].names[0] in self.names:
                found = running_table(node, place, self.workspace, owner)
                if found is None:
                    return None
                self._tables[key] = found
            scan, reads = found
            return entered(reads[node.component], scan, node)

        def separate(node: Expr, place: Place) -> Expr | None:
            if isinstance(node, Reduce):
                while not node.combiner.is_builtin and (parts := in_parts(node, place, self.workspace)) is not None:
                    below = place.under(parts.axes, conjuncts(parts.where))
                    found = [separate(value, below) for value in parts.values]
                    node = replace(parts, values=tuple(value for value in found if value is not None))
                read, definition = self._separate(node, place, owner)
            elif isinstance(node, Apply) and (term := term_at(node, place, outer, self.workspace)) is not None:
                read, definition = self._separate_term(term, self.workspace.new_name(owner, f"_{node.op.name}"))
            else:
                return None
            if isinstance(definition, Define) and isinstance(read, Access):
                self.around.setdefault(definition.name, []).append(Around(owner, place, definition.axes, read.indices))
            return entered(read, definition, node)

        def entered(read: Expr, definition: Definition, node: Expr) -> Expr:
            names = [name for name, _ in definition.results]
            self.active.update(dict.fromkeys(names))
            root = self.owners.get(owner, owner)
            self.owners.update((name, root) for name in names)
            if isinstance(definition, Scan):
                self._folds += [definition] if definition not in self._folds else []
                self.folded.setdefault(names[0], {})[root] = None
            elif not any(definition in queue for queue in self._queues):
                self._queues[-1][definition] = sum(1 for _ in walk(node))
            return read

        return ExpressionAdjoint(self.workspace, owner, self.active, outer, separate, running, self._is_still)

    def _is_still(self, node: Expr) -> bool:
        return bool(self.still) and is_extreme(node) and extreme_form(node) in self.still

    def _separate(self, node: Reduce, place: Place, owner: str) -> tuple[Expr, Definition]:
        """A read of a definition that holds a reduction, and that definition; another one if it was swept already."""
        if not node.combiner.is_builtin:
            return expand_reduction(node, place, self.workspace, owner, self.names)
        read = self.workspace.save(node, place, owner, f"_{node.combiner.name}", self.names)
        assert isinstance(read, Access)
        self.workspace.unstored.add(read.tensor)
        return read, self.workspace.definition(read.tensor)

    def _separate_term(self, term: TermAt, name: str) -> tuple[Expr, Definition]:
        """The same of a costly term; terms that differ in the names of indices are one, to which all send."""
        positions = {axis.index: Index(f"{at}") for at, axis in enumerate(term.definition.axes)}
        key = (form_of(term.definition), tuple(substitute(guard, positions) for guard in term.guards))
        made = self._terms.get(key)
        if made is None or made.name in self.names:
            made = self._terms[key] = replace(term.definition, name=name)
            self.workspace.add(made)
            self.workspace.unstored.add(made.name)
            self._guards[made.name] = term.guards
        return Access(made.name, term.indices, made.value.dtype), made

    def derive(
        self,
        program: Program,
        outputs: Iterable[tuple[str, str | None]],
        wrt: Sequence[str],
        steps: tuple[Axis, ...],
        rules: Mapping[str, Override],
    ) -> Reverse:
        """The derivative of a part of the program under the indices `steps`, with names that nothing here has."""
        return reverse(
            program,
            outputs,
            wrt,
            rules,
            self.lowering,
            self.workspace.labels,
            self.workspace.taken,
            self.workspace.steps + steps,
            self.workspace.given_plans,
        )

    def apply_rule(self, tensor: str, override: Override) -> None:
        """Sends what a rule says in place of the derivative."""
        workspace = self.workspace
        head = workspace.rounded(self.finish(tensor), workspace.types[tensor].dtype, "_rounded")
        for source, value in override.rule(head, workspace, override):
            self.send_whole(tensor, source, workspace.rounded(value, workspace.adjoint_type(source).dtype, "_wide"))
