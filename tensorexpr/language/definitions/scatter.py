"""`te.scatter`: values sent to places, the ones that meet combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorexpr import dtypes
from tensorexpr.bounds import OutOfBounds, check_access
from tensorexpr.bounds.wrapping import scatter_with_wraps
from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import checked, suggestion
from tensorexpr.ir import Axis, Expr, Scatter, TensorType, conjuncts, const
from tensorexpr.language.core.checks import check_expressions, out_of_bounds
from tensorexpr.language.core.printing import describe
from tensorexpr.language.core.scalar import Scalar, merged, strong
from tensorexpr.language.core.tensor import Tensor, as_index, as_shape, fresh_key
from tensorexpr.language.core.tracing import frames_of, settle
from tensorexpr.language.definitions.compute import define, names_for
from tensorexpr.language.definitions.lets import letting, outlined
from tensorexpr.language.definitions.loops import Loops, loops_over
from tensorexpr.language.definitions.reductions import guard
from tensorexpr.traversal import reads

COMBINE = ("sum", "prod", "max", "min")
_WHAT = "te.scatter"


@checked()
def scatter(
    shape: Any,
    body: Callable[..., Any],
    extents: Any,
    combine: str = "sum",
    name: str | None = None,
    where: Callable[..., Any] | None = None,
) -> Tensor:
    """The tensor of `shape` to which every point of `extents` sends a value.

    `body` takes one index per extent and returns `(indices, value)`, where `indices` is a tuple with one index per axis of the
    result (or the index itself where there is one axis). Values that meet are combined by `combine`: "sum", "prod", "max" or
    "min", in row-major order of the points (compiled, perhaps in parts of them), so the bits are the same on every run. Elements
    that receive nothing hold 0 for a sum, 1 for a product, the dtype's least value for a maximum and its greatest for a minimum.
    `where` says which points send.

    Raises `DefinitionError` for an index that can leave the result; data-dependent ones are checked as it runs.

    >>> ids, x = te.placeholder((4,), "int64", name="ids"), te.placeholder((4,), name="x")
    >>> counts = te.scatter((3,), lambda t: (ids[t], x[t]), 4, name="counts")
    >>> te.evaluate(counts, {ids: np.array([0, 2, 2, 1]), x: np.ones(4, np.float32)})
    array([1., 1., 2.], dtype=float32)
    """
    location = user_location()
    types = as_shape(shape, _WHAT)
    if not isinstance(combine, str) or combine not in COMBINE:
        raise DefinitionError(
            f"{_WHAT}: expected combine to be one of {', '.join(COMBINE)}, got {combine!r}",
            location=location,
            hint=suggestion(combine, COMBINE, "a mean is a sum, and a scatter of 1 that counts"),
        )
    names = names_for(name, None, _WHAT)
    loops = loops_over(_WHAT, body, extents)
    with letting() as marks:
        result = loops.run(body)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise DefinitionError(
            f"{_WHAT}: expected the body to return (indices, value), got {result!r}",
            location=location,
            hint="lambda t, d: ((ids[t], d), V[t, d])",
        )
    places = tuple(result[0]) if isinstance(result[0], tuple | list) else (result[0],)
    if len(places) != len(types):
        raise DefinitionError(
            f"{_WHAT}: expected {len(types)} indices, one per axis of the result, got {len(places)}",
            location=location,
            hint="a 0-d result takes ()",
        )
    indices = [as_index(place, f"{_WHAT}, axis {axis}") for axis, place in enumerate(places)]
    value = strong(result[1])
    if value.dtype.is_bool and combine in ("sum", "prod"):
        raise DefinitionError(f"{_WHAT}: expected numbers to {combine}, got bool", location=location, hint='te.cast(x, "int64") counts')
    holds = None if where is None else guard(_WHAT, loops, where)
    held = () if holds is None else tuple(conjuncts(holds.expr))
    (value,) = outlined([value], loops.axes, marks, lambda box, at, part, called: define(box, at, part, called, location), held)
    return _completed(types, loops, indices, value, holds, combine, names[0], location)


def _completed(
    types: tuple[Expr, ...],
    loops: Loops,
    indices: list[Scalar],
    value: Scalar,
    holds: Scalar | None,
    combine: str,
    name: str | None,
    location: Location | None,
) -> Tensor:
    """The tensor, once its parts are settled and checked."""
    parts = (value, *indices, *(() if holds is None else (holds,)))
    sources = merged((*parts, Scalar(value.expr, loops.sources)))
    stops = [axis.stop for axis in loops.axes]
    settled = settle([*(p.expr for p in parts), *stops, *types], loops.indices, sources)
    final = iter(settled.expressions)
    value_expr = next(final)
    places = tuple(next(final) for _ in indices)
    where = None if holds is None else next(final)
    axes = tuple(Axis(n, const(0), next(final)) for n in settled.names)
    frames = frames_of(settled.steps, sources)
    outer = tuple(frame.axis for frame in frames)
    label = name or "t"
    written = Scatter(fresh_key(label), TensorType(types, value.dtype), axes, places, value_expr, where, combine, location=location)
    definition = scatter_with_wraps(written, outer, (tensor.extents for tensor in sources.values()))
    axes, places, value_expr, where = definition.axes, definition.indices, definition.value, definition.where
    for position, axis in enumerate(axes):
        check_expressions([axis.stop], outer + axes[:position], sources, label, location)
    held = tuple(conjuncts(where))
    check_expressions([] if where is None else [where], outer + axes, sources, label, location)
    check_expressions([*places, value_expr], outer + axes, sources, label, location, held)
    for position, (verdict, place) in enumerate(zip(check_access(places, types, outer + axes, held), places, strict=True)):
        if isinstance(verdict, OutOfBounds):
            what = f"{label}[{', '.join(describe(p, sources, dtypes.int64) for p in places)}]"
            raise out_of_bounds(
                verdict, what, place, types[position], position, sources, location, "leave points out: where=lambda ...: condition"
            )
    read = tuple(sources[k] for k in reads(definition))
    return Tensor(name, types, value.dtype, key=definition.name, definition=definition, sources=read, frames=frames, location=location)
