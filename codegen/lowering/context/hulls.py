"""Bounds of a reduction over a block of points at once: from the least to the greatest of them (see `schedule.windows`).

    for i_i in unroll(8):                              for d in range(0, i_o*8 + 8):
        for d in range(0, i_o*8 + i_i + 1): ...  -->       for i_i in unroll(8):
                                                               if d < i_o*8 + i_i + 1: ...

Where the block begins is known outside; along it a bound that is affine in its index is least at one end and greatest at the other.
Of a sum with divisions, `d // 2 - (d + 1) // 3`, each part is at the end where it counts most: the loop may be too long, never too short.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, maximum, minimum, mul, sub, substituted
from tensorexpr.codegen.lowering.context.scope import Scope
from tensorexpr.codegen.schedule.analysis.state import Split, Stage
from tensorexpr.errors import InternalError
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Apply, Axis, Expr, Index, Size, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, size_names


def hull(axis: Axis, inner: frozenset[str], stage: Stage, scope: Scope, tile: tuple[str, ...]) -> Scope:
    """The scope in which an axis runs from the least of its starts to the greatest of its stops, over the points of the loops `tile`.

    Requires: bounds are affine in the axes `inner`, and what these do not have of their loops in `tile` is open.
    """
    tile = tuple(part for loop in tile for part in stage.fused_in(loop))
    parts = {x for loop in tile for x in stage.ancestry(loop)}
    ends = scope
    for split in stage.relations:
        # In which form blocks run is decided further inside; in all of them the axis goes to its end, as in this one.
        if isinstance(split, Split) and split.outer in parts and split.outer not in scope.variants:
            ends = ends.with_variant(split, "shift")
    last: dict[str, Expr] = {}
    for loop in tile:
        extent = ends.extent(loop)
        count = stage.extent(loop)
        if extent is None and count is None:
            raise InternalError(f"expected a known extent of {loop} in {stage.name}, inside of {axis.index}")
        last[loop] = const(int(count) - 1) if extent is None else sub(extent, const(1))  # type: ignore[arg-type]  # one of the two is known
    low, high = ends.with_values(**dict.fromkeys(tile, ZERO)), ends.with_values(**last)

    def bound(expr: Expr, greatest: bool) -> Expr:
        if isinstance(expr, Apply) and expr.op.name in ("minimum", "maximum"):
            choose = minimum if expr.op.name == "minimum" else maximum
            return choose(*(bound(e, greatest) for e in expr.args))
        if not set(free_names(expr)) & inner:
            return scope.resolve(expr)
        form = affine_of(expr)
        assert form is not None
        if any(isinstance(atom, FloorDiv) and not inner.isdisjoint(atom.numerator.names()) for atom, _ in form.terms):
            return extreme(form, greatest, frozenset(size_names(expr)))

        def index(name: str) -> Expr:
            if name not in inner:
                return scope.resolve(Index(name))
            return ((high if greatest else low) if form.coefficient(name) > 0 else (low if greatest else high)).resolve(Index(name))

        return substituted(expr, index, lambda p: p, lambda a: a)

    def extreme(form: Affine, greatest: bool, sizes: frozenset[str]) -> Expr:
        total: Expr = const(form.constant)
        for atom, factor in form.terms:
            up = greatest == (factor > 0)
            if isinstance(atom, FloorDiv):
                value = floordiv(extreme(atom.numerator, up, sizes), atom.denominator)
            elif atom in inner:
                value = (high if up else low).resolve(Index(atom))
            else:
                value = Size(atom) if atom in sizes else scope.resolve(Index(atom))
            total = add(total, mul(value, const(factor)))
        return total

    given: dict[str, Expr] = {}
    bounds: list[Expr] = []
    for word, expr in (("first", bound(axis.start, False)), ("last", bound(axis.stop, True))):
        if constant(expr) is None:
            given[f"{axis.index} {word}"] = expr
            expr = Index(f"{axis.index} {word}")
        bounds.append(expr)
    return replace(scope, axes={**scope.axes, axis.index: Axis(axis.index, *bounds)}, given={**scope.given, **given})
