"""The shapes that tensors have in code: axes of one element are left out, axes that are several in one are several, several that are one
in all but name are one (`joint`).

    x: f32[1, 512, 48] = input()                        x: f32[512, 48] = input()
    y[i, j, k]: f32[1, 512, 48] = exp(x[0, j, k])       y[j, k]: f32[512, 48] = exp(x[j, k])

    x: f32[24576] = input()                             x: f32[512, 48] = input()
    y[p]: f32[24576] = x[p] - m[p // 48]                y[i, j]: f32[512, 48] = x[i, j] - m[i]

Elements lie in memory as before, so the same arrays are inputs and outputs of both. What schedules see, loops in which tensors are read at
their own index, then does not depend on how shapes are written. Tensors that data leads into keep their shapes, for an error names the
index; so do those of scans, but for axes of one element, and what a scatter or a sort plan makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorexpr import dtypes
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Input,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    const,
)
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.simplify.passes.definitions import simplify_indices
from tensorexpr.simplify.passes.joint import with_joint_axes
from tensorexpr.simplify.passes.splits import split_reductions
from tensorexpr.traversal import (
    bottom_up,
    bound_names,
    expressions,
    free_names,
    fresh_name,
    map_expressions,
    read_occurrences,
    reads,
    substitute,
    walk,
)

LEAST = 16
"""Elements of a row that becomes an axis, a vector of the widest machines: shorter ones are residue classes, whose elements lie apart."""
SHORT = frozenset(range(2, LEAST))
KEPT, DROPPED = 0, 1
Layouts = Mapping[str, tuple[int, ...]]
"""For each axis of a tensor what becomes of it: `KEPT`, `DROPPED`, or the length of its rows."""


def with_plain_shapes(program: Program) -> Program:
    """The program over tensors in the shapes that they have in code; the same object where they have these.

    Requires: indices in normal form. Ensures: inputs and outputs have the same elements in the same order.
    """
    found = _with_rows(_in_digits(_without_units(_without_unit_states(program))))
    return with_joint_axes(found, _free(found))


def _without_units(program: Program) -> Program:
    free = {name: type_.shape for name, type_ in _free(program).items() if const(1) in type_.shape}
    if not free:
        return program
    units = {name: {at for at, extent in enumerate(shape) if extent == const(1)} for name, shape in free.items()}
    for access in _accesses(program):
        if access.tensor in units:
            units[access.tensor] = {at for at in units[access.tensor] if access.indices[at] == const(0)}
    for name, shape in free.items():
        if len(units[name]) == len(shape):
            units[name].discard(len(shape) - 1)  # one axis stays
    layouts = {
        name: tuple(DROPPED if at in units[name] else KEPT for at in range(len(shape))) for name, shape in free.items() if units[name]
    }
    return _laid_out(program, layouts) if layouts else program


def _without_unit_states(program: Program) -> Program:
    """The program with scans over states without axes of one element: of such a state points are lanes as of any other."""
    scans = [d for d in program.definitions if isinstance(d, Scan)]
    made_anew = {item.name for item in program.inputs} | {d.name for d in program.definitions if isinstance(d, Define)}
    for scan in scans:
        others = {name for d in scans if d is not scan for name in _inside(d)}
        layouts: dict[str, tuple[int, ...]] = {}
        for name, start, (state, own), made in zip(scan.names, scan.inits, scan.states, scan.nexts, strict=True):
            layout = tuple(DROPPED if extent == const(1) else KEPT for extent in own.shape)
            if layout and KEPT not in layout:
                layout = (*layout[1:], KEPT)  # one axis stays
            if DROPPED in layout:
                layouts |= {name: (KEPT, *layout), start: layout, state: layout, made: layout}
        fixed = {*others, *(name for d in program.definitions for name in _named_in_errors(d, program))}
        plain = made_anew.issuperset(scan.inits) and all(isinstance(d, Define) for d in scan.body)
        if layouts and plain and fixed.isdisjoint(layouts):
            if not any(_at_more_than_one(access, layouts) for access in _accesses(program)):
                program = _laid_out(program, layouts)
    return program


def _inside(scan: Scan) -> Iterator[str]:
    """What a scan starts from, and the names inside of it."""
    yield from (*scan.inits, *(name for name, _ in scan.states))
    for d in scan.body:
        yield from (name for name, _ in d.results)
        if isinstance(d, Scan):
            yield from _inside(d)


def _at_more_than_one(access: Access, layouts: Layouts) -> bool:
    """Whether an access has something else than 0 for the index of an axis that is dropped."""
    layout = layouts.get(access.tensor, ())
    return any(length == DROPPED and index != const(0) for index, length in zip(access.indices, layout))


def _in_digits(program: Program) -> Program:
    """The program with two axes for one that a definition divides by a short length, also where others have that axis as it is, if all that
    read these put two digits together, and both are divisions no more: `t[n, p] = f(p // 4, p % 4)`, read as `t[n, i * 4 + k]`."""
    for place in range(len(program.definitions)):  # in other words later, but each in its place
        at = 0
        while isinstance(d := program.definitions[place], Define) and at < len(d.axes):
            divided = [node for node in walk(d.value) if _is_division(node)]
            length = max((_divisor(node, d.axes[at], SHORT) for node in divided), default=0)
            layouts = _carried(program, d, at, length) if length else None
            found = _simplified(_laid_out(program, layouts), program) if layouts is not None else program
            program, at = (found, at) if _divisions_more(found, program) < 0 else (program, at + 1)
    return program


def _carried(program: Program, definition: Define, axis: int, length: int) -> Layouts | None:
    """The layouts with rows of some length in an axis of a definition, and of those that have it from there; None where one reads it in
    another way, has no whole rows, or has lanes along it that it needs."""
    free, table = _free(program), {d.name: d for d in program.definitions if isinstance(d, Define)}
    waiting, found = [(definition.name, axis)], dict[tuple[str, int], None]()
    while waiting:
        name, at = waiting.pop()
        d = table[name]
        if (name, at) in found:
            continue
        if name not in free or (
            name in program.outputs and (at == len(d.axes) - 1 or (d is definition and not isinstance(d.value, Access)))
        ):
            return None
        stop = d.axes[at].stop
        if not isinstance(stop, Const) or int(stop.value) % length:
            return None  # who reads a part of it, or pads it, has no whole rows
        found[name, at] = None
        for reader in program.definitions:
            if not isinstance(reader, Scan) and name not in reads(reader):
                continue
            for node in (n for e in expressions(reader) for n in walk(e) if isinstance(n, Access) and n.tensor == name):
                index = node.indices[at]
                own = [a.index for a in reader.axes] if isinstance(reader, Define) else []
                if isinstance(index, Index) and index.name in own and isinstance(reader, Define):
                    waiting.append((reader.name, own.index(index.name)))
                elif not _steps_by(index, length):
                    return None
    if len({name for name, _ in found}) < len(found):
        return None
    return {name: tuple(length if other == at else KEPT for other in range(len(table[name].axes))) for name, at in found}


def _steps_by(index: Expr, length: int) -> bool:
    form = affine_of(index)
    return form is not None and any(count == length for _, count in form.terms)


def _with_rows(program: Program) -> Program:
    """The program with an axis for rows and one for places in them, in reductions that read them too, where that leaves fewer divisions."""
    found, groups = program, frozenset(length for d in program.definitions if isinstance(d, Define) for length in _groups(d))
    while layouts := _divided(found, groups):
        found = _simplified(_laid_out(found, layouts), found)
    return program if found is program or _divisions_more(found, program) >= 0 else _with_rows_read(found)


def _simplified(program: Program, before: Program) -> Program:
    return split_reductions(simplify_indices(program, before), wholly=True)


def _with_rows_read(program: Program) -> Program:
    """The program with axes of tensors in the rows through which loops step, where that leaves no more divisions.

    A tensor is looked at in the definitions that read or make it, and again where one of these has changed.
    """
    definitions, types, free = list(program.definitions), dict(program.types), _free(program)
    near: dict[str, list[int]] = {}
    for at, d in enumerate(definitions):
        for name in _near(d):
            near.setdefault(name, []).append(at)
    waiting = dict.fromkeys(free)
    while waiting:
        name = next(iter(waiting))
        del waiting[name]
        here = near.get(name, [])
        part = _part([definitions[at] for at in here], types, program)
        if (found := _in_rows(part, name, types[name].shape)) is None:
            continue
        for at, d in zip(here, found.definitions, strict=True):
            definitions[at] = d
            waiting |= {other: None for other in _near(d) if other in free}
        types[name] = found.types[name]
    inputs = tuple(replace(item, type=types[item.name]) for item in program.inputs)
    return replace(program, inputs=inputs, definitions=tuple(definitions))


def _in_rows(part: Program, name: str, shape: tuple[Expr, ...]) -> Program | None:
    """A part of a program with an axis of a tensor in rows, where that leaves no more divisions; None where none is."""
    read = [access for access in _accesses(part) if access.tensor == name]
    divisions = sum(map(_divisions, part.definitions))
    for at, extent in enumerate(shape):
        if 2 * _whole(part, name, at) > divisions:  # each would be divided, and have a remainder
            continue
        for length in _steps(read, at, extent):
            layout = tuple(length if other == at else KEPT for other in range(len(shape)))
            found = _simplified(_laid_out(part, {name: layout}), part)
            if _divisions_more(found, part) <= 0:
                return found
    return None


def _whole(part: Program, name: str, at: int) -> int:
    """How many reads of a tensor go through an axis of it as an axis of a definition does, which stays whole."""
    made = [(d.value, {axis.index for axis in d.axes}) for d in part.definitions if isinstance(d, Define) and d.name != name]
    return sum(
        isinstance(node, Access) and node.tensor == name and isinstance(index := node.indices[at], Index) and index.name in own
        for value, own in made
        for node in walk(value)
    )


def _near(definition: Definition) -> tuple[str, ...]:
    """The tensors that a definition makes or reads."""
    return tuple(dict.fromkeys((*(name for name, _ in definition.results), *reads(definition))))


def _part(definitions: Sequence[Definition], types: Mapping[str, TensorType], program: Program) -> Program:
    """Definitions of a program as one of their own."""
    made = {name for d in definitions for name, _ in d.results}
    read = dict.fromkeys(name for d in definitions for name in reads(d) if name not in made)
    return replace(program, inputs=tuple(Input(name, types[name]) for name in read), definitions=tuple(definitions), outputs=())


def _divided(program: Program, groups: frozenset[int]) -> dict[str, tuple[int, ...]]:
    """The definitions whose axes are divided by the lengths of rows, those before the last by those of groups too, with these: of each the
    largest."""
    free = _free(program)
    found = {}
    for d in program.definitions:
        if not isinstance(d, Define) or d.name not in free:
            continue
        divisions = [node for node in walk(d.value) if _is_division(node)]
        if not divisions:
            continue
        lengths = tuple(
            max(_divisor(node, axis, groups if axis is not d.axes[-1] else frozenset()) for node in divisions) for axis in d.axes
        )
        if any(lengths):
            found[d.name] = lengths
    return found


def _groups(d: Define) -> Iterator[int]:
    """The lengths by which axes before the last are divided where sums read tensors: heads that share keys."""
    axes = {a.index: int(a.stop.value) for a in d.axes[:-1] if isinstance(a.stop, Const)}
    for access in (node for outer in walk(d.value) if isinstance(outer, Reduce) for node in walk(outer) if isinstance(node, Access)):
        for index in access.indices:
            if isinstance(index, Apply) and _is_division(index) and isinstance(index.args[0], Index) and isinstance(index.args[1], Const):
                length = int(index.args[1].value)
                if 1 < length < axes.get(index.args[0].name, 0):
                    yield length


def _divisor(node: Expr, axis: Axis, groups: frozenset[int]) -> int:
    """The length of the rows by which a node divides an index, with nothing beside it but whole rows; 0 where there are none. The remainder
    of a quotient is the quotient of one, `p // 2 % 64` is `p % 128 // 2`."""
    if node.dtype is not dtypes.int64:
        return 0  # data, no index
    match node:
        case Apply(op, (Apply(inner, (dividend, Const(first))), Const(value))) if (op.name, inner.name) == ("mod", "floordiv"):
            return _divisor(apply("mod", dividend, const(int(first) * int(value))), axis, groups)
        case Apply(op, (dividend, Const(value))) if op.name in ("floordiv", "mod") and isinstance(axis.stop, Const):
            form = affine_of(dividend)
            if form is None or form.coefficient(axis.index) != 1:
                return 0
            modulus, length = int(value), int(axis.stop.value)
            if not (modulus >= LEAST or modulus in groups) or modulus >= length or length % modulus:
                return 0
            return modulus if all(name == axis.index or count % modulus == 0 for name, count in form.terms) else 0
    return 0


def _steps(reads: Iterable[Access], at: int, extent: Expr) -> list[int]:
    """The lengths of rows by which loops step through an axis of a tensor, the largest first."""
    length = int(extent.value) if isinstance(extent, Const) else 0
    found: set[int] = set()
    for access in reads:
        form = affine_of(access.indices[at])
        found |= {abs(count) for _, count in form.terms} if form is not None else set()
    return sorted((count for count in found if LEAST <= count < length and length % count == 0), reverse=True)


def _divisions_more(program: Program, other: Program) -> int:
    """How many more divisions a program has than another with the same definitions in other words."""
    pairs = zip(program.definitions, other.definitions, strict=True)
    return sum(_divisions(a) - _divisions(b) for a, b in pairs if a is not b)


def _divisions(definition: Definition) -> int:
    return sum(_is_division(node) for e in expressions(definition) for node in walk(e))


def _is_division(node: Expr) -> bool:
    return type(node) is Apply and node.op.name in ("floordiv", "mod") and node.dtype.is_integer


def _accesses(program: Program) -> Iterator[Access]:
    return (node for d in program.definitions for e in expressions(d) for node in walk(e) if isinstance(node, Access))


def _free(program: Program) -> dict[str, TensorType]:
    """The tensors that may have another shape."""
    found = {item.name: item.type for item in program.inputs}
    found |= {d.name: d.results[0][1] for d in program.definitions if isinstance(d, Define)}
    for name in {name for d in program.definitions if isinstance(d, Scan) for name in _started(d)}:
        found.pop(name, None)
    for d in program.definitions:
        for name in _named_in_errors(d, program):
            found.pop(name, None)
    return found


def _named_in_errors(d: Definition, program: Program) -> Iterator[str]:
    """The tensors that data leads into, and those that an error about that would name: data of an index that may be out of bounds."""
    if isinstance(d, Define):
        leading = any(type(node) is Access and _read(node.indices) for node in walk(d.value))
        for access, around, guards in read_occurrences(d.value, d.axes) if leading else ():
            if read := _read(access.indices):
                yield access.tensor
                shape = program.types[access.tensor].shape
                if not all(found is PROVED for found in check_access(access.indices, shape, around, guards)):
                    yield from read
        return
    for e in expressions(d):
        for node in walk(e):
            if isinstance(node, Access) and (read := _read(node.indices)):
                yield node.tensor
                yield from read
    if isinstance(d, Scatter | Segments):
        yield from _read(d.indices if isinstance(d, Scatter) else d.keys)


def _read(indices: Iterable[Expr]) -> list[str]:
    return [node.tensor for index in indices if type(index) is not Index for node in walk(index) if isinstance(node, Access)]


def _started(scan: Scan) -> Iterator[str]:
    """The tensors from which a scan, and those in it, start."""
    yield from scan.inits
    for inner in scan.body:
        if isinstance(inner, Scan):
            yield from _started(inner)


def _laid_out(program: Program, layouts: Layouts) -> Program:
    """The program with other shapes of some tensors."""

    def read(node: Expr) -> Expr:
        if not isinstance(node, Access) or node.tensor not in layouts:
            return node
        indices: list[Expr] = []
        for index, length in zip(node.indices, layouts[node.tensor], strict=True):
            if length == KEPT:
                indices.append(index)
            elif length != DROPPED:
                indices += [apply("floordiv", index, const(length)), apply("mod", index, const(length))]
        return replace(node, indices=tuple(indices))

    def moved(definition: Definition) -> Definition:
        if not layouts.keys().isdisjoint(reads(definition)):
            definition = map_expressions(definition, lambda e: bottom_up(e, read))
        if isinstance(definition, Scan) and not layouts.keys().isdisjoint(name for name, _ in definition.states):
            return _with_states(definition, layouts, program)
        layout = layouts.get(definition.name) if isinstance(definition, Define) else None
        return definition if layout is None or not isinstance(definition, Define) else _with_axes(definition, layout, program)

    inputs = tuple(
        replace(item, type=replace(item.type, shape=_shape(item.type.shape, layouts[item.name]))) if item.name in layouts else item
        for item in program.inputs
    )
    return replace(program, inputs=inputs, definitions=tuple(map(moved, program.definitions)))


def _with_states(scan: Scan, layouts: Layouts, program: Program) -> Scan:
    """A scan with states in other shapes, whose steps make them so."""
    states = ((name, replace(own, shape=_shape(own.shape, layouts.get(name, (KEPT,) * len(own.shape))))) for name, own in scan.states)
    body = (_with_axes(d, layouts[d.name], program) if isinstance(d, Define) and d.name in layouts else d for d in scan.body)
    return replace(scan, states=tuple(states), body=tuple(body))


def _shape(shape: tuple[Expr, ...], layout: tuple[int, ...]) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for extent, length in zip(shape, layout, strict=True):
        if length == KEPT:
            found.append(extent)
        elif length != DROPPED:
            assert isinstance(extent, Const)
            found += [const(int(extent.value) // length), const(length)]
    return tuple(found)


def _with_axes(definition: Define, layout: tuple[int, ...], program: Program) -> Define:
    """The definition with its axes in another shape."""
    taken = {*program.sizes, *(a.index for a in definition.axes), *free_names(definition.value), *bound_names(definition.value)}
    axes: list[Axis] = []
    at: dict[str, Expr] = {}
    for axis, length in zip(definition.axes, layout, strict=True):
        if length == KEPT:
            axes.append(axis)
        elif length == DROPPED:
            at[axis.index] = const(0)
        else:
            row, column = (fresh_name(f"{axis.index}_{part}", taken) for part in "oi")
            rows, columns = _shape((axis.stop,), (length,))
            axes += [Axis(row, const(0), rows), Axis(column, const(0), columns)]
            at[axis.index] = apply("add", apply("mul", Index(row), const(length)), Index(column))
    return replace(definition, axes=tuple(axes), value=substitute(definition.value, at))
