"""What is checked when a definition is complete: accesses in bounds, no maximum over nothing; and how the errors read."""

from __future__ import annotations

from collections.abc import Iterable

from tensorexpr import dtypes
from tensorexpr.bounds import OutOfBounds, check_access, is_empty
from tensorexpr.errors import DefinitionError, Location
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Reduce, conjuncts
from tensorexpr.language.core.printing import describe, renamed_text
from tensorexpr.language.core.scalar import Sources
from tensorexpr.traversal import Read, children, negate, read_occurrences

_NEEDS_A_VALUE = ("max", "min", "argmax", "argmin")


def check_expressions(
    expressions: Iterable[Expr],
    axes: tuple[Axis, ...],
    sources: Sources,
    name: str,
    location: Location | None,
    guards: tuple[Expr, ...] = (),
) -> None:
    """Raises `DefinitionError` if an access can leave its tensor, or a maximum is over nothing, under `axes` and `guards`."""
    for expr in expressions:
        for read in read_occurrences(expr, axes, guards):
            check_read(read, sources, name, location)
        _check_reductions(expr, axes, guards, sources, location)


def check_read(read: Read, sources: Sources, name: str, location: Location | None) -> None:
    """Raises `DefinitionError` if the access provably leaves its tensor for some indices."""
    access = read.access
    tensor = sources[access.tensor]
    verdicts = check_access(access.indices, tensor.extents, read.axes, read.guards)
    for axis, verdict in enumerate(verdicts):
        if isinstance(verdict, OutOfBounds):
            raise out_of_bounds(
                verdict, describe(access, sources), access.indices[axis], tensor.extents[axis], axis, sources, access.location or location
            )


def out_of_bounds(
    verdict: OutOfBounds,
    what: str,
    index: Expr,
    extent: Expr,
    axis: int,
    sources: Sources,
    location: Location | None,
    remedy: str | None = None,
) -> DefinitionError:
    """The error that names the access, the range of the index against the extent, and a point at which it leaves."""
    limit = describe(extent, sources, dtypes.int64)
    got = describe(index, sources, dtypes.int64)
    name = what.partition("[")[0]
    hint = remedy or f"guard it: te.where(condition, {what}, 0), or read with a border: {name}.read(..., outside=0)"
    if isinstance(index, Const):
        hint = f"indices count from 0 and do not wrap around: the last one is {name}.shape[{axis}] - 1" if verdict.value < 0 else hint
    elif verdict.least == verdict.greatest or (verdict.least is None and verdict.greatest is None):
        got = f"{got} = {verdict.value}"
    elif verdict.greatest is None:
        got = f"{got} from {verdict.least} up"
    else:
        got = f"{got} up to {verdict.greatest}" if verdict.least is None else f"{got} from {verdict.least} to {verdict.greatest}"
    at = renamed_text(", ".join(f"{name} = {value}" for name, value in verdict.at), {})
    return DefinitionError(
        f"{what}: expected an index in range({limit}) on axis {axis}, got {got}", term=what, location=location, at=at or None, hint=hint
    )


def _check_reductions(expr: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...], sources: Sources, location: Location | None) -> None:
    """Refuses max, min, argmax and argmin over provably nothing, where the loops around them are not empty as well."""
    if isinstance(expr, Reduce):
        inner = (*axes, *expr.axes)
        held = (*guards, *conjuncts(expr.where))
        if expr.combiner.name in _NEEDS_A_VALUE and is_empty(inner, held) and not is_empty(axes, guards):
            raise DefinitionError(
                f"expected something to take the {expr.combiner.name} of, got a reduction over nothing",
                term=describe(expr, sources),
                location=location,
                hint="give it an extent of at least 1, or guard it with te.where",
            )
        for part in expr.values if expr.where is None else (expr.where, *expr.values):
            _check_reductions(part, inner, held, sources, location)
    elif isinstance(expr, Apply) and expr.op.name == "where":
        condition, then, otherwise = expr.args
        _check_reductions(condition, axes, guards, sources, location)
        _check_reductions(then, axes, (*guards, *conjuncts(condition)), sources, location)
        _check_reductions(otherwise, axes, (*guards, negate(condition)), sources, location)
    elif not isinstance(expr, Access):
        for child in children(expr):
            _check_reductions(child, axes, guards, sources, location)
