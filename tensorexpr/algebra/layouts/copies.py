"""An output that has the elements of a scan in another order is read in place of the scan, whose states are then not kept twice; one that
has those of a definition as they stand is that definition.

R[i, t] = S[t, i];  Q = ... S[e, f] ...   -->   R[i, t] = S[t, i];  Q = ... R[f, e] ...
T[i] = exp(x[i]);  Q = ... T[e] ...;  R[i] = T[i]   -->   R[i] = exp(x[i]);  Q = ... R[e] ...
"""

from __future__ import annotations

from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Scan
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import rename_reads, with_definitions
from tensorexpr.traversal import bottom_up, map_expressions


def with_copies_read(program: Program) -> Program:
    """The program in which what comes after an output that only permutes the axes of a scan reads that output, and no output is a copy of
    a definition. Every value is kept."""
    program = _without_copies(program)
    definitions = list(program.definitions)
    for name in (n for d in program.definitions if isinstance(d, Scan) for n in d.names if n not in program.outputs):
        for at, copy in enumerate(definitions):
            order = _permutation(program, name, copy)
            if order is not None:
                definitions[at + 1 :] = [_reading(d, name, copy.results[0][0], order) for d in definitions[at + 1 :]]
                break
    changed = any(new is not old for new, old in zip(definitions, program.definitions, strict=True))
    return replace(program, definitions=tuple(definitions)) if changed else program


def _without_copies(program: Program) -> Program:
    """The program with outputs in the place of what they are copies of."""
    inside = {d.name for d in program.definitions if isinstance(d, Define) and d.name not in program.outputs}
    copies: dict[str, str] = {}
    for d in program.definitions:
        if isinstance(d, Define) and isinstance(d.value, Access) and d.value.tensor in inside and d.value.tensor not in copies:
            order = _permutation(program, d.value.tensor, d)
            if order is not None and list(order) == sorted(order):
                copies[d.value.tensor] = d.name
    gone = set(copies.values())
    definitions = (d for d in program.definitions if d.results[0][0] not in gone)
    renamed = (replace(d, name=copies[d.name]) if isinstance(d, Define) and d.name in copies else d for d in definitions)
    return with_definitions(program, (rename_reads(d, copies) for d in renamed)) if copies else program


def _reading(d: Definition, name: str, copy: str, order: tuple[int, ...]) -> Definition:
    def visit(e: Expr) -> Expr:
        if not isinstance(e, Access) or e.tensor != name:
            return e
        return replace(e, tensor=copy, indices=tuple(e.indices[axis] for axis in order))

    return map_expressions(d, lambda e: bottom_up(e, visit))


def _permutation(program: Program, name: str, copy: Definition) -> tuple[int, ...] | None:
    """For each axis of an output the axis of the tensor that it is; None where it is no copy."""
    if not isinstance(copy, Define) or copy.name not in program.outputs or not isinstance(copy.value, Access) or copy.value.tensor != name:
        return None
    names, found = [a.index for a in copy.axes], [i.name for i in copy.value.indices if isinstance(i, Index)]
    shape = program.types[name].shape
    if len(found) != len(shape) or sorted(found) != sorted(names):
        return None
    order = tuple(found.index(n) for n in names)
    return order if tuple(shape[axis] for axis in order) == tuple(a.stop for a in copy.axes) else None
