"""What an op is traced for: shape and dtype of each argument, as trees of specs, from placeholders, arrays or pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tensorexpr.dtypes import DType, dtype
from tensorexpr.errors import ArgumentError, DefinitionError, user_location
from tensorexpr.hints import article
from tensorexpr.language import Scalar, Tensor, dim, placeholder
from tensorexpr.traversal import fresh_name


def argument_error(message: str, *, term: str | None = None, hint: str | None = None) -> ArgumentError:
    """An `ArgumentError` at the user's line."""
    return ArgumentError(message, term=term, location=user_location(), hint=hint)


class Spec(NamedTuple):
    """What is known of an argument when it is traced: extents (ints, or `te.dim` expressions) and element type."""

    shape: tuple[Any, ...]
    dtype: DType


def is_scalar(value: object) -> bool:
    """Whether a value is a number of Python or NumPy."""
    return isinstance(value, (bool, int, float, np.generic))


def placeholders_of(name: str, tree: Any, taken: set[str]) -> Any:
    """A tree of placeholders for a tree of specs; those inside of tuples have names that are not `taken`."""
    if isinstance(tree, Spec):
        return placeholder(tree.shape, tree.dtype.name, name=name)
    return tuple(placeholders_of(fresh_name(f"{name}_{position}", taken), item, taken) for position, item in enumerate(tree))


def spec_of(op: str, name: str, value: object) -> Any:
    """What a spec says: shape and dtype of a placeholder or an array, or given as a pair; a tuple of specs nests, None is nothing."""
    if value is None:
        return ()
    if isinstance(value, Tensor):
        return Spec(tuple(value.shape), value.dtype)
    if isinstance(value, np.ndarray) or is_scalar(value):
        array = np.asarray(value)
        return Spec(array.shape, dtype_of(op, name, array.dtype))
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], (str, DType, np.dtype, type)):
            return Spec(tuple(value[0]), dtype_of(op, name, value[1]))
        if value and all(isinstance(item, (int, Scalar)) and not isinstance(item, bool) for item in value):
            raise argument_error(
                f"{op}: argument {name}: expected a dtype beside the shape, got the shape alone", hint=f'({tuple(value)}, "float32")'
            )
        return tuple(spec_of(op, f"{name}_{position}", item) for position, item in enumerate(value))
    raise argument_error(
        f"{op}: argument {name}: expected a placeholder, an array or (shape, dtype), got {article(value)}",
        hint='((4, 3), "float32") is a spec: the shape, and the dtype by its name',
    )


def dtype_of(op: str, name: str, value: object) -> DType:
    """The dtype of an argument; `ArgumentError` with its name for what is none of the language."""
    try:
        return dtype(value)
    except DefinitionError as error:
        raise argument_error(f"{op}: argument {name}: {error.message}", hint=error.hint) from None


def opened(op: str, name: str, spec: Spec, axes: Any, taken: set[str]) -> Spec:
    """The spec with some axes open; a mapping gives their sizes: by name, or as a `te.dim` or an expression of some. Sizes of one name are
    one."""
    shape = list(spec.shape)
    named = isinstance(axes, Mapping)
    for axis in tuple(axes) if isinstance(axes, (tuple, list, range, Mapping)) else (axes,):
        if not isinstance(axis, (int, np.integer)) or not -len(shape) <= axis < len(shape):
            raise argument_error(f"{op}: dynamic: expected axes of {name} below {len(shape)}, got {axis}")
        size = axes[axis] if named else fresh_name(f"{name}_{axis % len(shape)}", taken)
        shape[axis] = size if isinstance(size, Scalar) else dim(size)
    return Spec(tuple(shape), spec.dtype)
