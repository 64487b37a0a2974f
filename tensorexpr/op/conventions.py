"""What users of NumPy and PyTorch write: static arguments by position, lists where tuples are meant, PyTorch's names of arguments."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

OTHER_NAMES = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis"), "axis": ("axes",), "axes": ("axis",), "keepdim": ("keepdims",),
    "dim0": ("axis0",), "dim1": ("axis1",), "dim2": ("axis2",), "start_dim": ("start_axis",), "end_dim": ("end_axis",), "pad": ("pads",),
    "input": ("x",), "other": ("y",), "end": ("stop",), "mat2": ("y",), "vec": ("y",), "vec1": ("x",), "vec2": ("y",), "mat": ("x",),
    "mat1": ("x",), "batch1": ("x",),
    "batch2": ("y",), "tensors": ("xs",), "ddof": ("correction",), "newshape": ("shape",), "size": ("shape",), "ord": ("p",),
    "exponent": ("y",), "a_min": ("min",), "a_max": ("max",), "k": ("diagonal", "offset"), "diagonal": ("offset",),
    "constant_values": ("value",),
    "elements": ("x",), "test_elements": ("values",), "method": ("interpolation",), "N": ("n",),
    "minlength": ("num_bins",), "length": ("num_bins",), "shift": ("shifts",), "a": ("x",), "b": ("y",),
    "indices_or_sections": ("sections",), "pad_width": ("pads",), "indices": ("index",), "repeats": ("sizes",),
}  # fmt: skip
"""Names of arguments that others use, each with those that ours may have in their place."""
MOST_NUMBERS = 64
"""Numbers of an array that are a static argument, as axes, sizes and quantiles are."""


def own_name(name: str, known: Collection[str]) -> str:
    """The name that an argument has here, for what it is called elsewhere; the same where there is none."""
    if name in known:
        return name
    return next((own for own in OTHER_NAMES.get(name, ()) if own in known), name)


def fixed(value: Any) -> Any:
    """A static argument with tuples in the place of lists."""
    return tuple(map(fixed, value)) if type(value) in (list, tuple) else value


def numbers_of(value: Any) -> Any:
    """What a static argument holds: Python's numbers for an array of NumPy's or PyTorch's with at most one axis, else the value itself.
    More than `MOST_NUMBERS` are data, which a static argument is not.

    A tensor whose gradient is recorded stays one: nothing would come back to it.
    """
    kind = type(value)
    if isinstance(value, (np.ndarray, np.generic)) or (kind.__module__, kind.__name__) == ("torch", "Tensor"):
        is_data = value.ndim > 1 or (value.ndim == 1 and len(value) > MOST_NUMBERS)
        return value if is_data or getattr(value, "requires_grad", False) else value.tolist()
    return value


def spelling_of(values: Sequence[Any], names: Iterable[str]) -> Hashable | None:
    """What a call with such values, the last of them under `names`, has in common with all that are bound alike: types and shapes of
    arrays, and the value of anything else. None where something else is no plain integer, text or tuple of integers."""
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            key += (value.shape, value.dtype)
        elif value is None or kind is int or kind is str or kind is bool:
            key += (kind, value)
        elif (kind is tuple or kind is list) and all(type(one) is int for one in value):
            key += (kind, tuple(value))
        else:
            return None
    return (*key, *names)


def places_of(values: Sequence[Any], arrays: Sequence[Any]) -> list[int] | None:
    """Where arrays are among the values of a call; None unless they are all the arrays there, each once."""
    places = {id(value): place for place, value in enumerate(values) if type(value) is np.ndarray}
    found = [places[id(array)] for array in arrays if id(array) in places]
    return found if len(set(found)) == len(arrays) == sum(type(value) is np.ndarray for value in values) else None


def is_number(value: Any) -> bool:
    """Whether a static argument is one integer."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_plain(values: Sequence[Any]) -> bool:
    """Whether values are none of them arrays or tensors, which static arguments are not."""
    return not any(hasattr(value, "shape") or hasattr(type(value), "__tensor__") for value in values)


def apart(values: Sequence[Any], tensors: int, required: int, named: bool, lacking: int) -> tuple[list[Any], list[Any]]:
    """Positional arguments as tensors and static ones, for `tensors` places of tensors, of which `required` have to be there.

    What fits is all tensors, since numbers and tuples may be. Where there are more values than places, where a keyword has one of the
    places (`named`), or where a text or a shape stands in a place that may be left out, those that are no tensors are static: behind
    tensors, or between them, as axes stand in PyTorch's calls. So are tensors for which there is no place any more, and numbers in places
    that may be left out where static arguments have to be given (`lacking` of them).
    """
    given, spare = list(values), values[required:]
    if len(given) <= tensors and not named and not any(map(_is_shape, spare)) and not (lacking and not all(map(is_tensor, spare))):
        return given, []
    found = sum(map(is_tensor, given))
    if found < required:  # numbers in the places of tensors; an axis stands in front of a tensor
        ahead = [k for k, value in enumerate(given[:-1]) if type(value) is int and any(map(is_tensor, given[k + 1 :]))][:lacking]
        places = [value for k, value in enumerate(given) if k not in ahead]
        return places[:tensors], [given[k] for k in ahead] + places[tensors:]
    places = []
    behind: list[Any] = []
    for value in given:
        (places if is_tensor(value) and len(places) < tensors else behind).append(value)
    return places, behind


def is_tensor(value: Any) -> bool:
    """Whether a value is an array, a tensor or several of them by its look, or an argument that is left out."""
    if isinstance(value, (list, tuple)):  # None is an extent that is not said, as in pools
        return any(one is not None and is_tensor(one) for one in value)
    return value is None or hasattr(value, "shape") or hasattr(type(value), "__tensor__")


def _is_shape(value: Any) -> bool:
    """Whether a value is no tensor by its look: a text, or whole numbers."""
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and len(value) > 0 and all(type(one) is int for one in value))
