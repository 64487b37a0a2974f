"""The primitive `store_as`: integers that are known to be small, kept in a narrower type.

Positions of winners are 64 bits wide, and mostly numbers below ten: kept in 8 bits they take an eighth of the memory, and go with a
whole vector of float32. Readers get them as they were:

    W[i]: i64 = argmax(x[i, k] for k)   -->   W[i]: i8 = i8(argmax(x[i, k] for k))
    ... W[i] == 3 ...                         ... i64(W[i]) == 3 ...                  which is compared in 8 bits
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.schedule.analysis.state import State, plain_order, plain_stages, program_facts
from tensorexpr.codegen.schedule.legal.anew import written_anew
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Cast, Const, Define, Expr, Reduce
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.rules.reduce import points
from tensorexpr.traversal import bottom_up, children

NARROW = (dtypes.int8, dtypes.int16, dtypes.int32)


def store_as(state: State, name: str, dtype: DType) -> State:
    """rewrite: W[i]: i64 = e; C = ... W[a] ... --> W[i]: i8 = i8(e); C = ... i64(W[a]) ..."""
    stage = state.stage(name)
    facts = program_facts(state.program)
    definition = facts.definitions[name]
    if not isinstance(definition, Define) or stage.scan is not None or name in state.program.outputs:
        raise refuse(stage, f"expected a plain definition between inputs and outputs to store in another type, got {name}")
    found = bounds(definition.value)
    if found is None or dtype not in NARROW or not (int(dtype.least) <= found[0] and found[1] <= int(dtype.greatest)):
        known = "values that are not known" if found is None else f"values from {found[0]} to {found[1]}"
        raise refuse(stage, f"expected integers of {name} that {dtype.name} is known to hold, got {known}")
    readers = [d for d in (facts.definitions[r] for r in facts.readers.get(name, ())) if isinstance(d, Define)]
    changed = (name, *(d.name for d in readers))
    if len(readers) < len(facts.readers.get(name, ())) or any(_chooses(d, name) for d in readers):
        raise refuse(stage, f"expected {name} to be computed with by plain definitions that read it, got one that reads or loops by it")
    for each in changed:
        own = state.stage(each)
        if own.relations or own.kinds or own.place or own.order != plain_order(own.parts) or state.placed_in(each):
            raise refuse(own, f"expected plain loops of {name} and of what reads it, got changed ones of {each}", hint="store_as first")
    wide = definition.value.dtype

    def visit(node: Expr) -> Expr:
        return Cast(wide, replace(node, dtype=dtype)) if isinstance(node, Access) and node.tensor == name else node

    made = {d.name: replace(d, value=bottom_up(d.value, visit)) for d in readers}
    made[name] = replace(definition, value=Cast(dtype, definition.value))
    program = with_definitions(state.program, [made.get(d.results[0][0], d) for d in state.program.definitions])
    table = {**state.table, **{s.name: s for s in plain_stages(program, frozenset(changed))}}
    return written_anew(state, replace(state, program=program, table=table), "store_as")


def bounds(value: Expr) -> tuple[int, int] | None:
    """The least and greatest of the integers that a value can be, where extents say so: those of positions and literals, chosen among."""
    match value:
        case Const() if value.dtype.is_integer:
            return int(value.value), int(value.value)
        case Reduce() if value.combiner.name in ("argmax", "argmin"):
            count = points(value.axes)
            return None if count is None else (0, max(0, count - 1))
        case Apply() if value.op.name == "where":
            one, other = bounds(value.args[1]), bounds(value.args[2])
            return None if one is None or other is None else (min(one[0], other[0]), max(one[1], other[1]))
    return None


def _chooses(reader: Define, name: str) -> bool:
    """Whether a definition reads at places, or loops up to bounds, that a tensor says."""

    def has(node: Expr) -> bool:
        return (isinstance(node, Access) and node.tensor == name) or any(map(has, children(node)))

    def visit(node: Expr) -> bool:
        if isinstance(node, Access):
            return any(map(has, node.indices))
        if isinstance(node, Reduce) and any(has(e) for a in node.axes for e in (a.start, a.stop)):
            return True
        return any(map(visit, children(node)))

    return visit(reader.value)
