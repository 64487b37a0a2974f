"""Sums of narrow numbers, in the type that the machine adds them in.

    C: bf16 = sum(A[i, k] * B[k, j] for k)           -->   bf16(sum(f32(A[i, k]) * f32(B[k, j]) for k))
    C: i64 = sum(i64(i32(A[i, k]) * i32(B[k, j])))   -->   i64(sum(i32(A[i, k]) * i32(B[k, j]) for k))     A, B: i8, k < 2**16
    C: i32 = sum((i32(A[i, k]) - 7) * i32(B[k, j]))  -->   sum(i32(F[i, k]) * i32(G[k, j]) for k)     F, G: i16

A sum of 16-bit floats is carried in float32 (`ir.Reduce`), and a product of two of them is exact there: it is added as it is, not rounded
to 16 bits in between, as a multiply-add of float32 does not round its product either. A sum of integers is carried in 32 bits where
the ranges of what is added and the number of terms prove that no partial sum leaves them; its value is the same to the last bit. Both
leave twice or four times the lanes, and products in the form that instructions for them have. So do factors that are computed: those that
16 bits hold are definitions, where a product of matrices computes each of them often.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.algebra.keyed.keys import is_plain, sums_evaluated
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Index, Program, Reduce, apply
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.rules.reduce import points
from tensorexpr.traversal import bottom_up, free_names, fresh_name, map_expressions, replaced, walk


def with_narrow_sums(program: Program) -> Program:
    """The program with sums of 16-bit products carried in float32 without rounding between, and integer sums in 32 bits where they fit.

    Requires: a simplified program. Ensures: integers keep every bit; sums of 16-bit floats are no further from the exact sum than before.
    """
    definitions = [map_expressions(d, lambda e: bottom_up(e, _carried)) for d in program.definitions]
    if all(new is old for new, old in zip(definitions, program.definitions, strict=True)):
        return program
    return with_definitions(program, definitions)


def _carried(node: Expr) -> Expr:
    """A sum in the type that suits it."""
    if not isinstance(node, Reduce) or node.combiner.name != "sum":
        return node
    (value,) = node.values
    if node.dtype in (dtypes.float16, dtypes.bfloat16):
        if isinstance(value, Apply) and value.op.name == "mul":
            wide = accumulator(node.dtype)
            return Cast(node.dtype, replace(node, values=(apply("mul", *(_cast(wide, factor) for factor in value.args)),)))
        return node
    if node.dtype is dtypes.int64:
        count, found = points(node.axes), bounds(value)
        if count is not None and found is not None:
            least, greatest = min(found[0], 0) * count, max(found[1], 0) * count
            if int(dtypes.int32.least) <= least and greatest <= int(dtypes.int32.greatest):
                return Cast(dtypes.int64, replace(node, values=(_cast(dtypes.int32, value),)))
    return node


LEAST_REUSE = 16
"""How often a product computes a factor from which on it is a definition: each time takes as long as a product, or longer."""


def with_narrow_factors(program: Program) -> Program:
    """The program with definitions of 16 bits for computed factors of sums of products of 32 bits.

    Requires: a simplified program. Ensures: every bit is kept; what is read is read at the same points.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    definitions: list[Definition] = []
    for d in program.definitions:
        found: dict[Expr, Expr] = {}
        if isinstance(d, Define) and all(map(is_plain, d.axes)):
            for e in dict.fromkeys(sums_evaluated(d.value)):
                for factor, axes in _computed_factors(e, d.axes):
                    if factor in found:
                        continue
                    part = Define(fresh_name(f"{d.name}_factor", taken), axes, _cast(dtypes.int16, factor), d.location)
                    definitions.append(part)
                    found[factor] = Cast(dtypes.int32, Access(part.name, tuple(Index(a.index) for a in axes), dtypes.int16))
            d = replace(d, value=replaced(d.value, found)) if found else d
        definitions.append(d)
    return program if len(definitions) == len(program.definitions) else replace(program, definitions=tuple(definitions))


def _computed_factors(e: Reduce, around: tuple[Axis, ...]) -> list[tuple[Expr, tuple[Axis, ...]]]:
    """The two factors of a sum of products, each with the axes that it goes through, if 16 bits hold both, and one of them is computed."""
    value = e.values[0]
    if e.combiner.name != "sum" or e.where is not None or e.dtype is not dtypes.int32 or not all(map(is_plain, e.axes)):
        return []
    if not (isinstance(value, Apply) and value.op.name == "mul") or value.args[0] == value.args[1]:
        return []
    found = []
    for factor in value.args:
        names, (least, greatest) = set(free_names(factor)), bounds(factor) or (0, 1 << 16)
        if least < dtypes.int16.least or greatest > dtypes.int16.greatest or any(isinstance(n, Reduce) for n in walk(factor)):
            return []
        if not any(isinstance(n, Access) and {i.name for i in n.indices if isinstance(i, Index)} >= names for n in walk(factor)):
            return []  # points of a window, say: more of them than elements
        reuse = [a.stop.value for a in around if a.index not in names and isinstance(a.stop, Const)]
        if max(map(int, reuse), default=0) < LEAST_REUSE or names.isdisjoint(a.index for a in e.axes):
            return []
        found.append((factor, tuple(a for a in (*around, *e.axes) if a.index in names)))
    return [] if all(isinstance(f, Cast) and isinstance(f.arg, Access) for f in value.args) else found


def _cast(dtype: DType, value: Expr) -> Expr:
    """A value in another type that holds it; what was widened further for it is not."""
    if isinstance(value, Cast) and value.arg.dtype is dtype:
        return value.arg
    if isinstance(value, Cast) and value.arg.dtype.is_integer and dtype.is_integer:
        return Cast(dtype, value.arg)
    return Cast(dtype, value)


def bounds(value: Expr) -> tuple[int, int] | None:
    """The least and the greatest that an integer can be, by the types of what is read and the operations on it; None where it may wrap or
    nothing is known."""
    own = value.dtype
    if not (own.is_integer or own.is_bool):
        return None
    found: tuple[int, int] | None = None
    match value:
        case Const():
            found = int(value.value), int(value.value)
        case Access() if own.itemsize <= 2:
            found = (0, 1) if own.is_bool else (int(own.least), int(own.greatest))
        case Cast():
            found = bounds(value.arg)
        case Apply() if value.op.name in ("add", "sub", "mul"):
            parts = [bounds(arg) for arg in value.args]
            if parts[0] is None or parts[1] is None:
                return None
            (a, b), (c, d) = parts[0], parts[1]
            ends = {"add": (a + c, b + d), "sub": (a - d, b - c), "mul": (a * c, a * d, b * c, b * d)}[value.op.name]
            found = min(ends), max(ends)
        case Apply() if value.op.name == "neg":
            inner = bounds(value.args[0])
            found = None if inner is None else (-inner[1], -inner[0])
        case Apply() if value.op.name == "where":
            one, other = bounds(value.args[1]), bounds(value.args[2])
            found = None if one is None or other is None else (min(one[0], other[0]), max(one[1], other[1]))
        case _ if own.is_bool:
            found = (0, 1)
    if found is None or own.is_bool:
        return found
    return found if int(own.least) <= found[0] and found[1] <= int(own.greatest) else None
