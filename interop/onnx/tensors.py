"""Arrays and types of ONNX's messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tensorexpr.errors import TargetError, user_location


def array_of(tensor: TensorProto) -> np.ndarray:
    """The data of a tensor, which the model has itself: loading a file has read what was beside it, in its folder."""
    if tensor.data_location == TensorProto.EXTERNAL:
        raise TargetError(
            f"from_onnx: expected tensors with their data, got {tensor.name or 'one'} with its data in another file",
            location=user_location(),
            hint="from_onnx(path) reads what is beside the file",
        )
    found = np.asarray(numpy_helper.to_array(tensor))
    if found.dtype.kind in "US" or found.dtype == object:
        return texts(found)
    return found


def is_text(value: Any) -> bool:
    """Whether a value is an array of strings."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.kind in "US" or (value.dtype == object and value.size > 0 and isinstance(value.flat[0], (str, bytes)))


def texts(array: np.ndarray) -> np.ndarray:
    """An array of strings, as objects of type str."""
    found = np.empty(array.shape, object)
    for k, item in enumerate(array.flat):
        found.flat[k] = item.decode() if isinstance(item, bytes) else str(item)
    return found


def kind_of(code: int) -> Any:
    """The NumPy dtype of one of ONNX's numbers of an element type; `object` for strings."""
    return np.dtype(object) if code == TensorProto.STRING else np.dtype(helper.tensor_dtype_to_np_dtype(code))
