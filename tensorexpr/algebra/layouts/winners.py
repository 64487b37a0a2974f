"""Positions of winners, and other integers that are known to be small, in narrower types.

Positions are 64 bits wide, and mostly numbers below ten: kept in 8 bits they take an eighth of the memory, and go with a whole vector of
float32. Readers get them as they were:

    W[i]: i64 = argmax(x[i, k] for k)   -->   W[i]: i8 = i8(argmax(x[i, k] for k))
    ... W[i] == 3 ...                         ... i64(W[i]) == 3 ...                  which is compared in 8 bits
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Cast, Const, Define, Definition, Expr, Program, Reduce
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.rules.reduce import points
from tensorexpr.traversal import bottom_up, children, map_expressions, reads

NARROW = (dtypes.int8, dtypes.int16, dtypes.int32)


def with_narrow_winners(program: Program) -> Program:
    """The program with int64 values between inputs and outputs, whose extents say that they are small, in the least type that holds them.
    Every value is kept."""
    narrow = {d.name: t for d in program.definitions if isinstance(d, Define) and (t := _type_of(d, program)) is not None}
    return with_definitions(program, [_narrowed(d, narrow) for d in program.definitions]) if narrow else program


def _type_of(d: Define, program: Program) -> DType | None:
    """The type of a definition's values, where they are narrower than now; None where plain definitions alone do not compute with them."""
    found = None if d.name in program.outputs or d.value.dtype is not dtypes.int64 else bounds(d.value)
    readers = () if found is None else tuple(other for other in program.definitions if d.name in reads(other))
    if found is None or not all(isinstance(r, Define) and not _chooses(r, d.name) for r in readers):
        return None
    return next((t for t in NARROW if int(t.least) <= found[0] and found[1] <= int(t.greatest)), None)


def _narrowed(d: Definition, narrow: dict[str, DType]) -> Definition:
    def visit(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in narrow:
            return Cast(dtypes.int64, replace(node, dtype=narrow[node.tensor]))
        return node

    made = d if narrow.keys().isdisjoint(reads(d)) else map_expressions(d, lambda e: bottom_up(e, visit))
    return replace(made, value=Cast(narrow[made.name], made.value)) if isinstance(made, Define) and made.name in narrow else made


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
