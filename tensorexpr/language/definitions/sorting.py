"""`te.sort_plan` and `te.planned`: indices sorted once, for every gradient of what reads by them."""

from __future__ import annotations

from typing import Any

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Axis, Cast, Expr, Segments, TensorType, const, product
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Tensor, as_shape, fresh_key
from tensorexpr.language.core.tracing import frames_of, fresh_index, settle
from tensorexpr.language.definitions.compute import compute, names_for
from tensorexpr.regions import normal_form
from tensorexpr.text import print_type

_PLAN, _PLANNED = "te.sort_plan", "te.planned"


@checked()
def sort_plan(ids: Tensor, extent: Any, batch: int = 0, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The places at which each index stands in `ids`: `(offsets, order)`, both int64.

    `ids` is an integer tensor of values in range(extent). `order` lists the row-major positions in `ids`, those of value 0 first,
    then those of value 1, ..., each in increasing order; those of value v are `order[offsets[v]]`, ...,
    `order[offsets[v + 1] - 1]`. So `offsets` has the shape (extent + 1,), `order` (number of elements of `ids`,). With `batch`
    the first so many axes of `ids` count plans: `offsets` has the shape (*ids.shape[:batch], extent + 1), and positions are
    those in the axes behind.

    This is what the gradient of a read `W[ids[t], d]` computes by itself; where the same indices come again, compute it once
    and hand it in with `te.planned`. Raises `DefinitionError` for what is no integer tensor or has no such batch; a value
    beyond `extent` is an `IndexError` as it runs.

    >>> ids = te.placeholder((6,), "int64", name="ids")
    >>> offsets, order = te.sort_plan(ids, 4)
    >>> te.evaluate([offsets, order], {ids: np.array([0, 3, 3, 1, 0, 3])})
    (array([0, 2, 3, 3, 6]), array([0, 4, 3, 1, 2, 5]))
    """
    location = user_location()
    _check_ids(ids, _PLAN)
    if not isinstance(batch, int) or isinstance(batch, bool) or not 0 <= batch <= ids.ndim:
        raise DefinitionError(
            f"{_PLAN}: expected batch= to be a number of axes of {ids.name}, 0 to {ids.ndim}, got {batch!r}", location=location
        )
    (limit,) = as_shape(extent, f"{_PLAN}, extent")
    (stem,) = names_for(name, None, _PLAN)
    indices = [fresh_index(f"i{at}") for at in range(ids.ndim)]
    read = ids[tuple(map(Scalar, indices))]
    settled = settle([read.expr, *ids.extents], indices, read.sources)
    axes = tuple(Axis(n, const(0), stop) for n, stop in zip(settled.names, settled.expressions[1:], strict=True))
    frames = frames_of(settled.steps, read.sources)
    labels = tuple(f"{stem or ids.name}_{what}" for what in ("offsets", "order"))
    keys = (fresh_key(labels[0]), fresh_key(labels[1]))
    plan = Segments(keys, (limit,), axes[:batch], axes[batch:], (as_int64(settled.expressions[0]),), location=location)
    found = [
        Tensor(label, type_.shape, type_.dtype, key=key, definition=plan, component=at, sources=(ids,), frames=frames, location=location)
        for at, (label, (key, type_)) in enumerate(zip(labels, plan.results, strict=True))
    ]  # fmt: skip
    return found[0], found[1]


@checked()
def planned(ids: Tensor, offsets: Tensor, order: Tensor) -> Tensor:
    """A tensor equal to `ids` that knows its plan: gradients of what reads by it go through `offsets` and `order`.

    These are what `te.sort_plan(ids, extent, batch)` gives, computed before. Only reads `W[planned[...], ...]` whose loops run over
    all of `ids`, or along rows of a flat one (`W[planned[p[i] + k], ...]`), of a tensor with that extent, use them. That they belong to
    `ids` is not checked: with others the gradient is wrong, but no element outside of a tensor is touched, as what stands in them is
    checked as it runs (`IndexError`).

    Raises `DefinitionError` for what is no integer tensor, and for shapes that do not fit those of `ids`.

    >>> ids, w = te.placeholder((6,), "int64", name="ids"), te.placeholder((4, 2), name="w")
    >>> known = te.planned(ids, *te.sort_plan(ids, 4))
    >>> rows = te.compute((6, 2), lambda t, d: w[known[t], d], name="rows")
    >>> te.gradient(rows, w, te.placeholder((6, 2), name="head")).report().rows[0].lowering
    'segments'
    """
    location = user_location()
    _check_ids(ids, _PLANNED)
    for what, tensor in (("offsets", offsets), ("order", order)):
        if not isinstance(tensor, Tensor) or tensor.dtype is not dtypes.int64 or not 1 <= tensor.ndim <= ids.ndim + 1:
            got = print_type(tensor.type) if isinstance(tensor, Tensor) else repr(tensor)
            raise DefinitionError(f"{_PLANNED}: expected int64 {what}, as te.sort_plan gives them, got {got}", location=location)
    batch = offsets.ndim - 1
    shape = (*ids.extents[:batch], normal_form(product(ids.extents[batch:])))
    if offsets.extents[:batch] != shape[:batch] or tuple(map(normal_form, order.extents)) != shape:
        raise DefinitionError(
            f"{_PLANNED}: expected order {print_type(TensorType(shape, dtypes.int64))} with offsets {print_type(offsets.type)} "
            f"for {ids.name}: {print_type(ids.type)}, got {print_type(order.type)}",
            location=location,
            hint="offsets, order = te.sort_plan(ids, extent)",
        )
    copy = compute(ids.shape, lambda *at: ids[at], name=ids.name if ids.named else None)
    copy.plan = (offsets, order)
    return copy


def plan_of(tensor: Tensor) -> Segments | None:
    """The plan that a tensor knows, as a definition of what `te.planned` was given."""
    if tensor.plan is None:
        return None
    offsets, order = tensor.plan
    batch = offsets.ndim - 1
    indices = [fresh_index(f"i{at}") for at in range(tensor.ndim)]
    axes = tuple(Axis(index.name, const(0), stop) for index, stop in zip(indices, tensor.extents, strict=True))
    key = tensor[tuple(map(Scalar, indices))].expr
    extent = normal_form((Scalar(offsets.extents[-1]) - 1).expr)
    return Segments((offsets.key, order.key), (extent,), axes[:batch], axes[batch:], (as_int64(key),))


def _check_ids(ids: Any, what: str) -> None:
    if not isinstance(ids, Tensor) or not ids.dtype.is_integer:
        got = f"{ids.name}: {print_type(ids.type)}" if isinstance(ids, Tensor) else repr(ids)
        raise DefinitionError(f"{what}: expected a tensor of integers, got {got}", location=user_location())


def as_int64(expr: Expr) -> Expr:
    """The value of an expression as an int64."""
    return expr if expr.dtype is dtypes.int64 else Cast(dtypes.int64, expr)
