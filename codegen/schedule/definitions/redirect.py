"""The primitive `redirect`: what comes after a copy reads the copy."""

from __future__ import annotations

from tensorexpr.codegen.schedule.analysis.state import State, program_facts
from tensorexpr.codegen.schedule.definitions.inline import with_program
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Define, Definition, Expr, Index
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, map_expressions


def redirect(state: State, name: str, copy: str) -> State:
    """rewrite: R[i, t] = S[t, i]; Q = ... S[e, f] ... --> Q = ... R[f, e] ...: what comes after a copy R reads that instead of S."""
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
    return with_program(state, replace(state.program, definitions=(*state.program.definitions[:at], *later)), (name,), "redirect")


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
