"""An output that has the elements of a scan in another order is read in place of the scan, whose states are then not kept twice.

R[i, t] = S[t, i];  Q = ... S[e, f] ...   -->   R[i, t] = S[t, i];  Q = ... R[f, e] ...
"""

from __future__ import annotations

from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Scan
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, map_expressions


def with_copies_read(program: Program) -> Program:
    """The program in which what comes after an output that only permutes the axes of a scan reads that output. Every value is kept."""
    definitions = list(program.definitions)
    for name in (n for d in program.definitions if isinstance(d, Scan) for n in d.names if n not in program.outputs):
        for at, copy in enumerate(definitions):
            order = _permutation(program, name, copy)
            if order is not None:
                definitions[at + 1 :] = [_reading(d, name, copy.results[0][0], order) for d in definitions[at + 1 :]]
                break
    changed = any(new is not old for new, old in zip(definitions, program.definitions, strict=True))
    return replace(program, definitions=tuple(definitions)) if changed else program


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
