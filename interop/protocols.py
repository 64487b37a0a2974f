"""Arrays of any library that shares memory: CuPy's, and whatever has `__dlpack__`, `__array_interface__` or `__cuda_array_interface__`.

On the CPU such an array is looked at as a NumPy array of the same memory, read-only and strided ones too, bfloat16 through ml_dtypes;
on a GPU the compiled kernels take it as it is, on the current stream of CuPy, which the producer is made to wait for (DLPack's stream
argument, the `stream` of `__cuda_array_interface__`). Results are of the caller's kind: CuPy gives CuPy, a library with a `from_dlpack`
(the array API's `__array_namespace__`, or a function of the library) takes the result over without a copy, and for all others it is
NumPy's array, or CuPy's on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr.codegen.cuda.launch.device import Device, current_device
from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DefinitionError, TargetError, user_location
from tensorexpr.hints import article
from tensorexpr.interop.dlpack import read_dlpack
from tensorexpr.interop.operators import Operator, leaf_names
from tensorexpr.op import Op
from tensorexpr.op.arguments import weak_floats
from tensorexpr.op.specs import Spec
from tensorexpr.op.trees import leaves, map_tree, rebuild

_CPU, _GPU = (1, 3, 11), (2, 13)  # DLPack's kinds of devices: memory that the CPU reads (pinned, too), and that GPUs do
_FORMS_KEPT = 1024


class _Shared:
    """Ops on arrays of any library, see the module."""

    def call(self, operation: Op, trees: list[Any], static: dict[str, Any], out: Any) -> Any:
        """The results as arrays of the library of the first array."""
        named = leaf_names(operation, trees)
        there = next((name for name, leaf in named if _on_gpu(operation, name, leaf)), None)
        if there is not None:
            return _on_device(operation, _device_for(operation, there), trees, static, out)
        arrays = iter([_as_numpy(operation, name, leaf) for name, leaf in named])
        target = None if out is None else map_tree(lambda leaf: _as_numpy(operation, "out", leaf), out)
        results = operation.call(
            *[None if isinstance(tree, tuple) and not tree else rebuild(tree, arrays) for tree in trees], out=target, **static
        )
        if out is not None:
            return out
        first = next(leaf for _, leaf in named if not isinstance(leaf, (np.ndarray, np.generic, bool, int, float)))
        return map_tree(_taker(first), results)


def _refused(operation: Op, name: str, message: str, hint: str | None = None) -> ArgumentError:
    where = name if name == "out" else f"argument {name}"
    return ArgumentError(f"{operation.name}: {where}: {message}", location=user_location(), hint=hint)


def _on_gpu(operation: Op, name: str, leaf: Any) -> bool:
    """Whether a leaf lies on a GPU; refuses one that lies where there is no code for."""
    if isinstance(leaf, np.ndarray) or not hasattr(type(leaf), "__dlpack_device__"):
        return hasattr(type(leaf), "__cuda_array_interface__")
    kind = int(leaf.__dlpack_device__()[0])
    if kind not in (*_CPU, *_GPU):
        raise _refused(operation, name, f"expected an array on the CPU or a CUDA device, got one on DLPack's device {kind}")
    return kind in _GPU


# ------------------------------------------------------------------------------------------------------------ the CPU


def _as_numpy(operation: Op, name: str, leaf: Any) -> Any:
    """A NumPy array of the same memory; numbers and NumPy's own as they are."""
    if isinstance(leaf, (np.ndarray, np.generic, bool, int, float)):
        return leaf
    kind = type(leaf)
    try:
        if hasattr(kind, "__array_interface__"):
            if leaf.__array_interface__.get("mask") is not None:  # which NumPy does not look at
                raise BufferError("its array interface has a mask")
            return np.asarray(leaf)
        if hasattr(kind, "__dlpack__"):
            return read_dlpack(leaf)
    except (BufferError, DefinitionError, RuntimeError, TypeError, ValueError) as error:
        message = f"expected an array whose memory can be shared, got {article(leaf)}: {error}"
        raise _refused(operation, name, message, "np.asarray makes a copy") from error
    raise _refused(operation, name, f"expected an array, got {article(leaf)}", "np.asarray makes an array")


def _taker(leaf: Any) -> Callable[[np.ndarray], Any]:
    """What makes an array of the kind of `leaf` from NumPy's, without a copy; NumPy's array itself where its library has nothing for it."""
    namespace = leaf.__array_namespace__() if hasattr(type(leaf), "__array_namespace__") else None
    library = sys.modules.get(type(leaf).__module__.partition(".")[0])
    found = getattr(namespace, "from_dlpack", None) or getattr(library, "from_dlpack", None)
    return found if callable(found) else lambda array: array


# ------------------------------------------------------------------------------------------------------------ a GPU


def _device_for(operation: Op, name: str) -> Device:
    """The device for an argument that lies on a GPU; what is missing for it is said with its name."""
    try:
        return current_device()
    except TargetError as error:
        message = f"{operation.name}: argument {name}: expected an array that this machine has code for, got one on a GPU: {error.message}"
        raise TargetError(message, location=user_location(), hint=error.hint) from None


def _on_device(operation: Op, device: Device, trees: list[Any], static: dict[str, Any], out: Any) -> Any:
    """The results on the device of the arrays, all of which lie there."""
    named = leaf_names(operation, trees)
    arrays = []
    for (name, given), leaf in zip(named, leaves(weak_floats(_looked_at(device, trees))), strict=True):
        if isinstance(leaf, (bool, int, float, np.generic)):
            leaf = device.upload(np.asarray(leaf))
        array = device.array(leaf)
        if array is None or isinstance(given, np.ndarray):
            raise _refused(operation, name, f"expected an array on {device.name}, as others are, got {article(given)}")
        try:
            dtype(array.dtype)
        except DefinitionError as error:
            raise _refused(operation, name, error.message, error.hint) from None
        arrays.append(array)
    form = map_tree(lambda _: None, trees)
    key = (form, tuple(operation.static_key(static)), device, *((tuple(array.shape), array.dtype) for array in arrays))
    memo: Memo[Any] = operation.kept.setdefault("cuda", Memo(_FORMS_KEPT))

    def make() -> Any:
        operator = Operator.of(operation, form, dict(static))
        specs = [Spec(tuple(array.shape), dtype(array.dtype)) for array in arrays]
        return operator.compile(specs, "cuda"), operator.nested(specs)[2]

    function, nesting = memo.get(key, make)
    results = function(*arrays, out=None if out is None else tuple(leaves(out)))
    if out is not None:
        return out
    first = next(leaf for _, leaf in named if hasattr(leaf, "__cuda_array_interface__") or hasattr(leaf, "__dlpack_device__"))
    own = isinstance(results[0], type(first)) or isinstance(first, type(results[0]))
    take = _taker(first) if device.arch is not None and not own else lambda array: array
    return rebuild(nesting, iter([take(result) for result in results]))


def _looked_at(device: Any, trees: list[Any]) -> list[Any]:
    """The trees with arrays as the device sees them."""

    def look(leaf: Any) -> Any:
        found = None if isinstance(leaf, (np.ndarray, bool, int, float, np.generic)) else device.array(leaf)
        return leaf if found is None else found

    return [map_tree(look, tree) for tree in trees]


HOST = _Shared()
