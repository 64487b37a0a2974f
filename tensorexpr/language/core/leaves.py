"""The leaves of what a user writes: tensors that are given, tensors that have their data, and open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorexpr.constants.data import frozen
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked as checked_call
from tensorexpr.initial import checked
from tensorexpr.ir import Size, const
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Tensor, as_dtype, as_shape, identifier

_PATHS = str.maketrans("./", "__")  # what parts of a path stand between


@checked_call()
def placeholder(shape: Any, dtype: Any = "float32", name: str | None = None, initial: Any = None, path: str | None = None) -> Tensor:
    """A tensor that is given when the program runs: a type without storage.

    `shape` is a tuple of extents (ints, `te.dim` sizes, integer expressions of them) or one extent; `dtype` a name, a
    NumPy dtype or a `DType`. Contexts know the tensor by its `path` too, such as "layers.0.w"; without a `name` it is called
    layers_0_w then. `initial` says how `context.initialize` makes an array for it: a number, an array, or a function of
    generator and shape (`te.initial`). Raises `DefinitionError` for negative or non-integer extents and
    unsupported dtypes.

    >>> te.placeholder((4, 3), "int8", name="x")
    x: i8[4, 3]
    """
    location = user_location()
    if path is not None and name is None:
        name = path.translate(_PATHS) if isinstance(path, str) else path
    made = Tensor(
        None if name is None else identifier(name, "te.placeholder"),
        as_shape(shape, "te.placeholder"),
        _dtype_of_placeholder(dtype),
        stem="x",
        location=location,
    )
    made.path = None if path == name else path
    made.initial = checked(initial, "te.placeholder")
    return made


@checked_call()
def constant(array: Any, name: str | None = None) -> Tensor:
    """A tensor that has its data: a read-only copy of `array` (anything `numpy.asarray` takes), with its shape and dtype.

    An array that nobody can write to (read-only, and so is all that it is a view of) and that is contiguous is not copied.
    Raises `DefinitionError` for unsupported dtypes.

    >>> w = te.constant(np.array([0.25, 0.5, 0.25]), name="w")
    >>> te.evaluate(te.compute((), lambda: te.sum(lambda i: w[i], 3)), {})
    array(1.)
    """
    location = user_location()
    if isinstance(array, Tensor | Scalar):
        raise DefinitionError("te.constant: expected an array, got a value of the language", term=repr(array), location=location)
    try:
        given = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"te.constant: expected an array, got something that is none: {error}",
            location=location,
            hint="rows of different lengths are one array without gaps, and an array of where each begins",
        ) from None
    kind = as_dtype(given.dtype)
    data = frozen(given, kind.numpy)
    extents = tuple(const(n) for n in data.shape)
    return Tensor(None if name is None else identifier(name, "te.constant"), extents, kind, stem="c", data=data, location=location)


@checked_call()
def dim(name: str, *, min: int = 0, max: int | None = None, multiple_of: int = 1) -> Scalar:
    """A symbolic extent, known when the program runs, with what is known of it before: it is at least `min`, at most `max`, and
    `multiple_of` a number. Proofs and schedules use that, and calls are checked for it. Equal names with equal facts are one size. In
    promotion it is what a Python int is.

    Raises `DefinitionError` for facts that no extent has.

    >>> n = te.dim("n")
    >>> te.placeholder((n, 2 * n + 1), name="x")
    x: f32[n, n * 2 + 1]
    >>> te.placeholder((te.dim("n", min=1), te.dim("m", multiple_of=16)), name="x")  # what is open of them has names of its own
    x: f32[n_from1 + 1, m_by16 * 16]
    """
    stem = identifier(name, "te.dim")
    facts = {"min": min, "max": max, "multiple_of": multiple_of}
    for fact, value in facts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < (fact == "multiple_of")):
            raise DefinitionError(
                f"te.dim: expected {fact} to be an integer of at least {int(fact == 'multiple_of')}, got {value!r}",
                location=user_location(),
            )
    least = -(-min // multiple_of) * multiple_of
    if max is not None and max < least:
        raise DefinitionError(
            f"te.dim: expected facts that some extent has, got {', '.join(f'{fact}={value}' for fact, value in facts.items())}",
            location=user_location(),
            hint=f"the least multiple of {multiple_of} from {min} on is {least}",
        )
    stem += f"_from{least}" if least else ""
    stem += f"_by{multiple_of}" if multiple_of > 1 else ""
    stem += "" if max is None else f"_upto{(max - least) // multiple_of}"
    size = Scalar(Size(stem), weak=True)
    size = size if multiple_of == 1 else size * multiple_of
    return size + least if least else size


def _dtype_of_placeholder(value: Any) -> DType:
    if isinstance(value, int) and not isinstance(value, bool):
        raise DefinitionError(
            f"te.placeholder: expected a dtype behind the shape, got {value}",
            location=user_location(),
            hint=f"a shape is one argument: te.placeholder((..., {value}))",
        )
    return as_dtype(value)
