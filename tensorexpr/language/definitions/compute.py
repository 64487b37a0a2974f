"""`te.compute`: a tensor given element by element, and the one place where a definition is completed and checked."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any, overload

from tensorexpr.bounds.wrapping import with_wraps
from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Axis, Define, Expr, Index, const
from tensorexpr.language.core.checks import check_expressions
from tensorexpr.language.core.scalar import Scalar, merged, strong
from tensorexpr.language.core.tensor import Tensor, as_shape, fresh_key, identifier
from tensorexpr.language.core.tracing import binding, frames_of, fresh_index, parameters, settle
from tensorexpr.language.definitions.lets import Marks, letting, outlined
from tensorexpr.traversal import tensors_read

Number = Scalar | int | float | bool
"""What a body may return for an element."""


def _shape_first(name: str, *arguments: Any) -> None:
    """Refuses a body in the place of the shape."""
    if arguments:
        as_shape(arguments[0], name)


@overload
def compute(shape: Any, body: Callable[..., Number], name: str | None = None) -> Tensor: ...
@overload
def compute(shape: Any, body: Callable[..., Sequence[Any]], name: str | Sequence[str] | None = None) -> tuple[Tensor, ...]: ...
@checked(_shape_first, {"dtype": "te.cast(value, dtype) in the body chooses a dtype"})
def compute(shape: Any, body: Callable[..., Any], name: str | Sequence[str] | None = None) -> Any:
    """The tensor of `shape` whose element at each index is `body(*indices)`.

    `body` takes one index per axis (``lambda i, j: ...`` or ``lambda *idx: ...``; the parameters name the axes) and returns a
    scalar, or a tuple of scalars: the result is then a tuple of tensors, named `name_0`, `name_1`, ... or by the names in
    `name`. Every access in the body is proved in bounds. Raises `DefinitionError` for a wrong number of indices, an access
    out of bounds, a name that is no identifier, and dtypes without the operation.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((3, 2), lambda i, j: A[j, i] * 2.0, name="B"))
    B[i, j]: f32[3, 2] = A[j, i] * 2.0
    >>> low, high = te.compute((2,), lambda i: (A[i, 0], A[i, 2]), name=("low", "high"))
    >>> high
    high[i]: f32[2] = A[i, 2]
    """
    location = user_location()
    extents = as_shape(shape, "te.compute")
    stems = parameters(body, len(extents), "te.compute")
    indices = [fresh_index(stem) for stem in stems]
    with binding(tuple(Axis(i.name, const(0), e) for i, e in zip(indices, extents, strict=True))), letting() as marks:
        try:
            result = body(*map(Scalar, indices))
        except NameError as error:
            if reads_itself(error.name, name, location):
                raise DefinitionError(
                    f"te.compute: expected a definition made of other tensors, got one that reads itself: {error.name}",
                    location=location,
                    hint="a recurrence has a base and a step: te.scan(lambda t, state: ..., init, length)",
                ) from None
            raise
    if isinstance(result, tuple | list):
        if not result:
            raise DefinitionError(
                "te.compute: expected the body to return a scalar or a tuple of them, got an empty tuple", location=location
            )
        names = names_for(name, len(result), "te.compute")
        return tuple(define(extents, indices, value, n, location, marks) for value, n in zip(result, names, strict=True))
    return define(extents, indices, result, names_for(name, None, "te.compute")[0], location, marks)


def reads_itself(missing: str | None, name: Any, location: Location | None) -> bool:
    """Whether a name that is not defined is that of the tensor being made: by its `name`, or on the left of the user's line."""
    if missing is None:
        return False
    line = "" if location is None else linecache.getline(location.file, location.line)
    return missing == name or re.match(rf"\s*{re.escape(missing)}\s*=", line) is not None


def names_for(name: Any, count: int | None, what: str) -> list[str | None]:
    """The names of `count` results of one call (None for a single one that is no tuple)."""
    if name is None:
        return [None] * (count or 1)
    if count is None:
        return [identifier(name, what)]
    if isinstance(name, str):
        return [f"{identifier(name, what)}_{position}" for position in range(count)]
    if len(name) != count:
        raise DefinitionError(f"{what}: expected {count} names, one per result, got {len(name)}", location=user_location())
    return [identifier(one, what) for one in name]


def define(
    extents: tuple[Expr, ...], indices: list[Index], value: Any, name: str | None, location: Location | None, marks: Marks | None = None
) -> Tensor:
    """The tensor of these extents whose element at `indices` (unsettled) is `value`, complete and checked; what is to be there once, by
    the `marks` of its body or for its size, is a tensor of its own."""
    if value is None:
        raise DefinitionError(
            "te.compute: expected the body to return a scalar, got None",
            location=location,
            hint="a function body needs a return statement",
        )
    scalar = strong(value)
    if marks is not None:
        axes = tuple(Axis(i.name, const(0), e) for i, e in zip(indices, extents, strict=True))
        (scalar,) = outlined([scalar], axes, marks, lambda box, at, part, called: define(box, at, part, called, location))
    sources = merged((scalar,))
    settled = settle([scalar.expr, *extents], indices, sources)
    axes = tuple(Axis(n, const(0), extent) for n, extent in zip(settled.names, settled.expressions[1:], strict=True))
    frames = frames_of(settled.steps, sources)
    key = fresh_key(name or "t")
    around = tuple(frame.axis for frame in frames) + axes
    definition = Define(key, axes, with_wraps(settled.expressions[0], around, (tensor.extents for tensor in sources.values())), location)
    check_expressions([definition.value], around, sources, name or "t", location)
    read = dict.fromkeys(tensors_read(definition.value))
    return Tensor(
        name,
        extents,
        scalar.dtype,
        key=key,
        definition=definition,
        sources=tuple(sources[k] for k in read),
        frames=frames,
        location=location,
    )
