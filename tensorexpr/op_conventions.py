"""What users of NumPy and PyTorch write: static arguments by position, lists where tuples are meant, PyTorch's names of arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

OTHER_NAMES = {
    "dim": ("axis", "axes"), "dims": ("axes", "axis"), "axis": ("axes",), "axes": ("axis",), "keepdim": ("keepdims",),
    "dim0": ("axis0",), "dim1": ("axis1",), "dim2": ("axis2",), "start_dim": ("start_axis",), "end_dim": ("end_axis",), "pad": ("pads",),
    "input": ("x",), "other": ("y",), "tensors": ("xs",), "ddof": ("correction",),
}  # fmt: skip
"""Names of arguments that others use, each with those that ours may have in their place."""


def own_name(name: str, known: Collection[str]) -> str:
    """The name that an argument has here, for what it is called elsewhere; the same where there is none."""
    if name in known:
        return name
    return next((own for own in OTHER_NAMES.get(name, ()) if own in known), name)


def fixed(value: Any) -> Any:
    """A static argument with tuples in the place of lists."""
    return tuple(map(fixed, value)) if type(value) in (list, tuple) else value


def is_plain(values: Sequence[Any]) -> bool:
    """Whether values are none of them arrays or tensors, which static arguments are not."""
    return not any(hasattr(value, "shape") or hasattr(type(value), "__tensor__") for value in values)
