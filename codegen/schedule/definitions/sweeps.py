"""Scans whose points do not communicate, as one nest: the loop over steps may then run inside the loops over points.

A step of a running sum needs, at point i, the state at point i alone. Every point is then a recurrence of its own, its
state a register, and the loop over steps stands where a reduction's loop would: data loops outside of it are independent,
those inside have a state per point. What reads the result at the same points, step by step (a transposition, a reversal, the
sum with a gradient from outside), is computed in the step itself, so that the history need not be stored for it.

`sweep_of` looks at a scan and its readers and says what one step computes, or refuses with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.bounds import implied
from tensorexpr.codegen.schedule.analysis.state import State, program_facts
from tensorexpr.codegen.schedule.analysis.steps import MARK, Carried, Moment, Sweep
from tensorexpr.dtypes import DType
from tensorexpr.errors import ScheduleError
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Expr, Index, Param, Program, Reduce, Scan, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.text import print_expr
from tensorexpr.traversal import bottom_up, reads, substitute, walk


def sweep_of(program: Program, name: str, readers: tuple[str, ...] = ()) -> Sweep:
    """The steps of a scan, with those of its `readers` (in program order).

    Raises `ScheduleError` where points communicate, or a reader does not ask for what its own step has.
    """
    return _Analysis(program, name, readers).sweep()


class _Analysis:
    def __init__(self, program: Program, name: str, readers: tuple[str, ...]) -> None:
        self.program = program
        self.readers = readers
        self.name = name
        self.facts = program_facts(program)
        found = self.facts.definitions.get(name)
        if not isinstance(found, Scan) or found not in program.definitions or found.names[0] != name:
            raise self.refuse(f"expected the first name of a scan outside of others, got {name!r}")
        self.scan = found
        # Where a tensor's element of a step is found, over axes and step, and the parameter that has it.
        self.where: dict[str, tuple[Expr, ...]] = {}
        self.now: dict[str, Param] = {}
        self.before: dict[str, Param] = {}
        self.moments: list[Moment] = []
        self.states: tuple[Carried, ...] = ()

    def refuse(self, message: str, hint: str | None = None) -> ScheduleError:
        return ScheduleError(message, term=f"sweep {', '.join((self.name, *self.readers))}", hint=hint)

    def sweep(self) -> Sweep:
        scan = self.scan
        shapes = [type_.shape for _, type_ in scan.states]
        if any(shape != shapes[0] for shape in shapes):
            raise self.refuse(f"expected states of one shape, got those of {scan.names[0]}, which differ")
        axes = self.axes(shapes[0])
        here = tuple(Index(a.index) for a in axes)
        self.states = states = tuple(
            Carried(MARK + formal, self.constant(init, here, type_.dtype))
            for (formal, type_), init in zip(scan.states, scan.inits, strict=True)
        )
        local = {formal: Param(MARK + formal, type_.dtype) for formal, type_ in scan.states}
        for definition in scan.body:
            if not isinstance(definition, Define) or tuple(a.stop for a in definition.axes) != shapes[0]:
                raise self.refuse(f"expected the body to compute one element per point of the state, got {definition.results[0][0]}")
            local[definition.name] = self.body(definition, here, local)
        nexts = []
        for result, following in zip(scan.names, scan.nexts, strict=True):
            if following not in local:
                raise self.refuse(f"expected next states from the body, got {following}")
            made = local[following]
            nexts.append(made.name)
            self.now[result] = made
            self.where[result] = (Index(scan.step), *here)
            self.keep(result, made)
        for (formal, _), result in zip(scan.states, scan.names, strict=True):
            self.before[result] = local[formal]
        for reader in self.readers:
            self.read(reader, axes)
        self.check_order()
        step = Axis(scan.step, const(0), scan.length)
        return Sweep(scan.names, self.readers, axes, step, states, tuple(self.moments), tuple(nexts))

    def axes(self, shape: tuple[Expr, ...]) -> tuple[Axis, ...]:
        first = self.scan.body[0] if self.scan.body else None
        if not isinstance(first, Define) or len(first.axes) != len(shape):
            raise self.refuse("expected the body to compute one element per point of the state")
        return tuple(Axis(a.index, const(0), extent) for a, extent in zip(first.axes, shape, strict=True))

    def constant(self, tensor: str, indices: tuple[Expr, ...], dtype: DType) -> Expr:
        """The element of a tensor; the number itself where all are the same one."""
        definition = self.facts.definitions.get(tensor)
        if isinstance(definition, Define) and isinstance(definition.value, Const):
            return definition.value
        return Access(tensor, indices, dtype)

    def body(self, definition: Define, here: tuple[Index, ...], local: Mapping[str, Param]) -> Param:
        """Notes what a definition of the body computes at a point."""
        names = {a.index: i for a, i in zip(definition.axes, here, strict=True)}

        def visit(node: Expr) -> Expr:
            if isinstance(node, Reduce):
                raise self.refuse(f"expected the body to compute elements alone, got a reduction in {definition.name}")
            if not isinstance(node, Access):
                return node
            if node.tensor not in local:
                return self.constant(node.tensor, node.indices, node.dtype)
            if node.indices != here:
                raise self.refuse(
                    f"expected every point to read its own state, got {definition.name}, which reads {print_expr(node)}",
                    "its steps stay outside",
                )
            return local[node.tensor]

        return self.note(definition.name, bottom_up(substitute(definition.value, names), visit))

    def note(self, name: str, value: Expr) -> Param:
        made = Param(MARK + name, value.dtype)
        self.moments.append(Moment(made.name, value, ()))
        return made

    def keep(self, tensor: str, made: Param) -> None:
        """The element is stored where somebody else reads the tensor."""
        if tensor not in self.program.outputs and not set(self.facts.readers.get(tensor, ())) - set(self.readers):
            return
        for at, moment in enumerate(self.moments):
            if moment.parameter == made.name:
                self.moments[at] = replace(moment, stores=(*moment.stores, (tensor, self.where[tensor])))
                return
        self.moments.append(Moment(f"{made.name}{MARK}{tensor}", made, ((tensor, self.where[tensor]),)))

    # ------------------------------------------------------------------------------------------------------ readers

    def read(self, name: str, axes: tuple[Axis, ...]) -> None:
        """Notes what a reader computes at the points of a step."""
        definition = self.facts.definitions.get(name)
        if not isinstance(definition, Define) or definition not in self.program.definitions:
            raise self.refuse(f"expected plain definitions to compute in the steps of a scan, got {name}")
        nodes = tuple(walk(definition.value))
        asked = [n for n in nodes if isinstance(n, Access) and n.tensor in self.where]
        if not asked or any(isinstance(n, Reduce) for n in nodes):
            raise self.refuse(f"expected a reader of {self.name}, element by element, got {name}")
        for shift in (0, -1):
            places = self.places(definition, asked[0], axes, shift)
            if places is None:
                continue
            values: dict[Access, Expr] = {}
            for access in asked:
                value = self.at_step(access, places)
                if value is None:
                    break
                values[access] = value
            else:
                self.take(definition, places, values)
                return
        raise self.refuse(
            f"expected {name} to read {self.name} once per step and point, at the same or the next", "it stays a loop of its own"
        )

    def places(self, definition: Define, access: Access, axes: tuple[Axis, ...], shift: int) -> dict[str, Expr] | None:
        """The axes of a reader over step and axes of the scan, where `access` finds the element of this step, or of `shift` steps on."""
        own = {a.index: a for a in definition.axes}
        extents = {**{a.index: a.stop for a in axes}, self.scan.step: self.scan.length}
        found: dict[str, Expr] = {}
        used: set[str] = set()
        for asked, place in zip(access.indices, self.where[access.tensor], strict=True):
            form, target = affine_of(asked), affine_of(self.shifted(place, shift))
            if form is None or target is None:
                return None
            mine = [n for n in form.names() if n in own]
            theirs = [n for n in target.names() if n in extents]
            if len(mine) != 1 or len(theirs) != 1 or form.coefficient(mine[0]) not in (1, -1) or mine[0] in found:
                return None
            axis, other, sign = own[mine[0]], theirs[0], form.coefficient(mine[0])
            if axis.start != const(0) or axis.stop != extents[other] or form.has_division() or target.has_division():
                return None
            value = (target - (form - Affine.of(axis.index) * sign)) * sign
            # The axis runs over all of its points, forwards or backwards, as the other does.
            length, straight = affine_of(axis.stop), value == Affine.of(other)
            if other in used or (not straight and (length is None or value != length - 1 - Affine.of(other))):
                return None
            used.add(other)
            found[axis.index] = Index(other) if straight else _backwards(other, axis.stop)
        return found if len(found) == len(own) else None

    def shifted(self, place: Expr, shift: int) -> Expr:
        return place if shift == 0 else substitute(place, {self.scan.step: apply("add", Index(self.scan.step), const(shift))})

    def at_step(self, access: Access, places: Mapping[str, Expr]) -> Param | None:
        """The parameter that has what an access asks for, if it is of this step or a state before it."""
        asked = [affine_of(substitute(i, places)) for i in access.indices]
        for shift, table in ((0, self.now), (-1, self.before)):
            wanted = [affine_of(self.shifted(p, shift)) for p in self.where[access.tensor]]
            if access.tensor in table and None not in asked and asked == wanted:
                return table[access.tensor]
        return None

    def take(self, definition: Define, places: Mapping[str, Expr], values: Mapping[Access, Expr]) -> None:
        def visit(node: Expr) -> Expr:
            if not isinstance(node, Access):
                return node
            known = values.get(node)
            return known if known is not None else self.constant(node.tensor, node.indices, node.dtype)

        value = bottom_up(substitute(bottom_up(definition.value, visit), places), self.joined)
        made = self.note(definition.name, value)
        self.now[definition.name] = made
        self.where[definition.name] = tuple(places[a.index] for a in definition.axes)
        self.keep(definition.name, made)

    def joined(self, node: Expr) -> Expr:
        """A state before the step, where it is asked for only from the second step on and what it starts from before: the state."""
        if not (isinstance(node, Apply) and node.op.name == "where" and isinstance(node.args[1], Param)):
            return node
        condition, state, otherwise = node.args
        starts = {s.parameter: s.start for s in self.states}
        later = (Axis(self.scan.step, const(1), self.scan.length),)
        return state if isinstance(state, Param) and starts.get(state.name) == otherwise and implied(condition, later) else node

    def check_order(self) -> None:
        """What stands between the scan and its last reader must not read what is computed only there."""
        numbers = self.facts.numbers
        if list(self.readers) != sorted(set(self.readers), key=numbers.__getitem__):
            raise self.refuse("expected readers once each, in the order of the program")
        made = {*self.scan.names, *self.readers}
        last = numbers[self.readers[-1]] if self.readers else numbers[self.name]
        for definition in self.program.definitions[numbers[self.name] + 1 : last]:
            if definition.results[0][0] not in made and made & set(reads(definition)):
                raise self.refuse(f"expected other readers after the last of these, got {definition.results[0][0]} before it")


def _backwards(index: str, extent: Expr) -> Expr:
    """extent - 1 - index."""
    return apply("sub", const(int(extent.value) - 1) if isinstance(extent, Const) else apply("sub", extent, const(1)), Index(index))


# ----------------------------------------------------------------------------------------------------------- the primitive


def sweep(state: State, name: str, readers: tuple[str, ...] = ()) -> State:
    """rewrite: for t: for i: S[t, i] = f(S[t - 1, i]); for i, t: R[i, t] = g(S[t, i]) --> for i: for t: {S[t, i] = ...; R[i, t] = ...}

    The scan and its readers have no stages then: the nest of a step at a point is plain, and lanes come later (`auto.tiles.steps`).
    """
    made = sweep_of(state.program, name, readers)
    for other in state.stages:
        if other.scan == name or other.name in readers:
            if other.place is not None or state.placed_in(other.name) or other.relations or other.kinds:
                raise ScheduleError(f"expected plain loops of {other.name}, got changed ones", term=f"sweep {name}", hint="sweep first")
            if other.parts.unproved:
                raise ScheduleError(
                    f"expected accesses of {other.name} that are certainly in bounds, got some to check", term=f"sweep {name}"
                )
    swept = {n for one in state.sweeps for n in (one.names[0], *one.readers)}
    missing = [n for n in (name, *readers) if n in swept or (n != name and n not in state.table)]
    if missing:
        raise ScheduleError(f"expected definitions with loops of their own, got {missing[0]}, swept before", term=f"sweep {name}")
    table = {n: stage for n, stage in state.table.items() if stage.scan != name and n not in readers}
    changed = replace(state, table=table, sweeps=(*state.sweeps, made))
    scan = program_facts(state.program).definitions[name]
    assert isinstance(scan, Scan)  # it has a sweep
    for init in scan.inits:
        if _is_spelled_out(changed, init):
            del table[init]
    return changed


def _is_spelled_out(state: State, tensor: str) -> bool:
    """Whether a tensor of one number is read in sweeps alone, which have the number."""
    facts = program_facts(state.program)
    definition = facts.definitions.get(tensor)
    if not isinstance(definition, Define) or not isinstance(definition.value, Const) or tensor not in state.table:
        return False
    swept = {n for one in state.sweeps for n in (one.names[0], *one.readers)}
    return tensor not in state.program.outputs and set(facts.readers.get(tensor, ())) <= swept
