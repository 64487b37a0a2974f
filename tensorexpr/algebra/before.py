"""Sums that leave their own point out read the states before steps: these are states themselves where nobody reads those after.

    for k in range(n - 1): S[k] = s = s + x[i, k];   y[i, j] = where(j >= 1, S[j - 1, i], 0.0)
    -->   for k in range(n): P[k] = p = s, S[k] = s = s + x[i, k];   y[i, j] = P[j, i]

What reads at its own step is computed in the step; what reads one step back, and a constant in front of the first, was a pass of its own.

    y[i, j] = where(j >= 1, S[j - 1, i], 0.0) + x[i, j]   -->   y[i, j] = S[j, i]

And what does with such a read what the step does with its state is the state after it: derivatives of scans add up so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tensorexpr.bounds import PROVED, check_access, implied
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
    TensorType,
    apply,
    conjuncts,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify import simplify_expr
from tensorexpr.simplify.passes.amounts import points
from tensorexpr.simplify.passes.definitions import simplify_indices, with_definitions
from tensorexpr.traversal import (
    bottom_up,
    children,
    expressions,
    free_names,
    fresh_name,
    map_expressions,
    negate,
    put_term,
    read_occurrences,
    reads,
    rename_bound,
    substitute,
    tensors_read,
    walk,
)

LEAST = 16
"""Points of a state, lanes of the widest machines: a few points are lanes along the steps, where a second state is in the way."""


@record
class Late:
    """A read of the states of a scan one step back: the choice that it is in, the place one step on, and the axes and conditions around
    it."""

    choice: Expr
    access: Access
    place: Expr
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]


def with_states_before(program: Program) -> Program:
    """The program with a state for what was before each step, of each scan that is read one step back everywhere. Every value is kept."""
    program = _with_terms_early(program)
    taken = {*program.types, *program.sizes}
    for scan in [d for d in program.definitions if isinstance(d, Scan)]:
        for at, name in enumerate(scan.names):
            program = _with_states_after(program, scan, at)
            found = _late_reads(program, scan, at) if name not in program.outputs else []
            length = _length(program, scan, found) if found else None
            if length is not None:
                program = _with_state(program, replace(scan, length=length), scan, at, found, taken)
                break
    return program


def _with_terms_early(program: Program) -> Program:
    """The program with sums that have the terms of the step before, and none at first, as sums of the terms of each step, which are read
    one step back."""
    for scan in [d for d in program.definitions if isinstance(d, Scan) and len(d.states) == 1]:
        start = next((d.value for d in program.definitions if isinstance(d, Define) and d.name == scan.inits[0]), None)
        (step, *others), (name,) = scan.body, scan.names
        if others or not isinstance(step, Define) or not isinstance(start, Const) or start.value != 0 or name in program.outputs:
            continue
        early = _early(step, Access(scan.states[0][0], tuple(Index(a.index) for a in step.axes), scan.states[0][1].dtype), scan.step)
        changed = replace(scan, body=(replace(step, value=early),)) if early is not None else scan
        readers = [d for d in program.definitions if name in reads(d)]
        if early is None or not all(isinstance(d, Define) for d in readers) or not _can_run(program, changed, scan.length):
            continue

        def late(e: Expr, name: str = name, start: Const = start) -> Expr:
            if not isinstance(e, Access) or e.tensor != name:
                return e
            back = replace(e, indices=(apply("sub", e.indices[0], const(1)), *e.indices[1:]))
            return apply("where", apply("ge", e.indices[0], const(1)), back, start)

        definitions = (
            changed if d is scan else map_expressions(d, lambda e: bottom_up(e, late)) if name in reads(d) else d
            for d in program.definitions
        )
        program = simplify_indices(replace(program, definitions=tuple(definitions)), program)
    return program


def _early(step: Define, state: Access, at: str) -> Expr | None:
    """What a step adds one step later, if it adds `where(at >= 1, term, 0)` to its state."""
    if not isinstance(step.value, Apply) or step.value.op.name != "add" or step.value.args.count(state) != 1:
        return None
    (term,) = (e for e in step.value.args if e != state)
    if not isinstance(term, Apply) or term.op.name != "where" or term.args[0] != apply("ge", Index(at), const(1)):
        return None
    if term.args[2] != Const(0, term.dtype) or state.tensor in tensors_read(term):
        return None
    following = substitute(term.args[1], {at: apply("add", Index(at), const(1))})
    return replace(step.value, args=tuple(following if e is term else e for e in step.value.args))


def _with_states_after(program: Program, scan: Scan, at: int) -> Program:
    """The program with the states of a scan where definitions compute them again from the ones before."""
    start = next((d.value for d in program.definitions if isinstance(d, Define) and d.name == scan.inits[at]), None)
    step = next((d for d in scan.body if isinstance(d, Define) and d.name == scan.nexts[at]), None)
    state, name = scan.states[at][0], scan.names[at]
    if not isinstance(start, Const) or step is None:
        return program
    inside = {n for d in scan.body for n, _ in d.results} | {n for n, _ in scan.states}
    own = Access(state, tuple(Index(a.index) for a in step.axes), scan.states[at][1].dtype)
    read = [n for n in walk(step.value) if isinstance(n, Access) and n.tensor in inside]
    if len(read) != 1 or read[0] != own:
        return program
    shape = program.types[name].shape

    def changed(d: Definition) -> Definition:
        if not isinstance(d, Define) or name not in reads(d):
            return d
        found: dict[Expr, Expr] = {}
        for late in _late(d.value, d.axes, name, start):
            indices = (late.place, *late.access.indices[1:])
            taken = {n for e in indices for n in free_names(e)} | {a.index for a in late.axes}
            bound = {scan.step: late.place, **{a.index: e for a, e in zip(step.axes, indices[1:], strict=True)}}
            value = simplify_expr(substitute(rename_bound(step.value, taken), bound), late.axes)
            value = put_term(value, Access(state, indices[1:], own.dtype), late.choice)
            again = next((e for e in walk(d.value) if isinstance(e, Apply) and _is_same(e, value)), None)
            if again is not None and all(verdict is PROVED for verdict in check_access(indices, shape, late.axes, late.guards)):
                found[again] = Access(name, indices, own.dtype)
        return replace(d, value=bottom_up(d.value, lambda e: found.get(e, e))) if found else d

    return with_definitions(program, map(changed, program.definitions))


def _is_same(one: Expr, other: Expr) -> bool:
    """Whether two terms are the same but for the order of two operands of a sum or a product."""
    if one == other:
        return True
    if not isinstance(one, Apply) or not isinstance(other, Apply) or one.op is not other.op:
        return False
    orders = (other.args, other.args[::-1]) if one.op.name in ("add", "mul") else (other.args,)
    return any(all(_is_same(a, b) for a, b in zip(one.args, args, strict=True)) for args in orders)


def _late_reads(program: Program, scan: Scan, at: int) -> list[Late]:
    """The reads of a result of a scan, if all are one step back, and what it starts from where there is no such step."""
    start = next((d.value for d in program.definitions if isinstance(d, Define) and d.name == scan.inits[at]), None)
    own = scan.states[at][1]
    if not isinstance(start, Const) or points([Axis("", const(0), extent) for extent in own.shape]) < LEAST:
        return []
    found: list[Late] = []
    for d in program.definitions:
        count = sum(isinstance(n, Access) and n.tensor == scan.names[at] for e in expressions(d) for n in walk(e))
        late = list(_late(d.value, d.axes, scan.names[at], start)) if count and isinstance(d, Define) else []
        if len(late) != count:
            return []
        found += late
    places: dict[Expr, Expr] = {}
    return found if all(places.setdefault(late.choice, late.place) == late.place for late in found) else []


def _late(e: Expr, axes: tuple[Axis, ...], name: str, start: Const, guards: tuple[Expr, ...] = ()) -> Iterator[Late]:
    if isinstance(e, Apply) and e.op.name == "where":
        for condition, value, otherwise in ((e.args[0], *e.args[1:]), (negate(e.args[0]), *reversed(e.args[1:]))):
            if isinstance(value, Access) and value.tensor == name and str(otherwise) == str(start):
                place = simplify_expr(apply("add", value.indices[0], const(1)), axes)
                if implied(apply("eq", place, const(0)), axes, (*guards, negate(condition))):
                    yield Late(e, value, place, axes, guards)
    if isinstance(e, Apply) and e.op.name == "where" and not tensors_read(e.args[0]):
        yield from _late(e.args[1], axes, name, start, (*guards, *conjuncts(e.args[0])))
        yield from _late(e.args[2], axes, name, start, (*guards, negate(e.args[0])))
        return
    inner, holding = ((*axes, *e.axes), (*guards, *conjuncts(e.where))) if isinstance(e, Reduce) else (axes, guards)
    for child in children(e):
        yield from _late(child, inner, name, start, holding)


def _length(program: Program, scan: Scan, reads: list[Late]) -> Expr | None:
    """How many steps there are if the places of some reads are among them; None where the last ones cannot be made."""
    shape = program.types[reads[0].access.tensor].shape[1:]
    ends = [a.stop for late in reads for a in late.axes if Index(a.index) in set(walk(late.place)) and not free_names(a.stop)]
    for length in (scan.length, *ends):
        in_bounds = all(
            verdict is PROVED
            for late in reads
            for verdict in check_access((late.place, *late.access.indices[1:]), (length, *shape), late.axes, late.guards)
        )
        if in_bounds and (length == scan.length or _can_run(program, scan, length)):
            return length
    return None


def _can_run(program: Program, scan: Scan, length: Expr) -> bool:
    """Whether a scan may run so many steps: all that they read exists, and nobody reads its other results."""
    read = {n.tensor for d in program.definitions for e in expressions(d) for n in walk(e) if isinstance(n, Access)}
    if any(not isinstance(d, Define) for d in scan.body) or sum(n in read or n in program.outputs for n in scan.names) > 1:
        return False
    step, types = Axis(scan.step, const(0), length), program.types
    occurrences = chain.from_iterable(read_occurrences(d.value, (step, *d.axes)) for d in scan.body if isinstance(d, Define))
    return all(
        verdict is PROVED
        for access, axes, guards in occurrences
        if access.tensor in types
        for verdict in check_access(access.indices, types[access.tensor].shape, axes, guards)
    )


def _with_state(program: Program, scan: Scan, old: Scan, at: int, reads: list[Late], taken: set[str]) -> Program:
    """The program with the state before each step of a scan as one more result, which all reads are of."""
    inside = taken | {n for d in scan.body for n, _ in d.results} | {n for n, _ in scan.states}
    state, following = (fresh_name(f"{scan.states[at][0]}_{part}", inside) for part in ("before", "passed"))
    name, own = fresh_name(f"{scan.names[at]}_before", taken), scan.states[at][1]
    axes = tuple(Axis(fresh_name("p", inside), const(0), extent) for extent in own.shape)
    passed = Define(following, axes, Access(scan.states[at][0], tuple(Index(a.index) for a in axes), own.dtype))
    wider = replace(
        scan,
        names=(*scan.names, name),
        states=(*scan.states, (state, TensorType(own.shape, own.dtype))),
        inits=(*scan.inits, scan.inits[at]),
        body=(*scan.body, passed),
        nexts=(*scan.nexts, following),
    )
    found = {late.choice: Access(name, (late.place, *late.access.indices[1:]), own.dtype) for late in reads}

    def moved(d: Definition) -> Definition:
        if d is old:
            return wider
        return replace(d, value=bottom_up(d.value, lambda e: found.get(e, e))) if isinstance(d, Define) else d

    return with_definitions(program, map(moved, program.definitions))
