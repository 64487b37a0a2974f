"""Runs bundles that tensorexpr's compiler exported (`te.export`), with NumPy alone: no compiler, no LLVM.

    import tensorexpr_runtime
    bundle = tensorexpr_runtime.load("model")
    y = bundle.forward(x, w)                 # arrays in the order of the placeholders, or by name

A bundle is a folder: a shared object with the code for CPUs and GPUs (for which the driver is needed, and nothing else), constants in
the format safetensors (mapped read-only, so processes share them), and a table in JSON that says what there is. Everything is checked
by digest before any of it is used; `BundleError` says what is wrong. Nothing is unpickled or evaluated.

What is asked for is imported when it is asked for: the compiler, too, asks this package whether a place is this user's own (`places`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorexpr_runtime.bundle import Bundle, load
    from tensorexpr_runtime.device_array import DeviceArray, on_gpu
    from tensorexpr_runtime.errors import ArgumentError, BundleError, OutOfBoundsError
    from tensorexpr_runtime.function import BundleFunction

__all__ = ["ArgumentError", "Bundle", "BundleError", "BundleFunction", "DeviceArray", "OutOfBoundsError", "load", "on_gpu"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tensorexpr_runtime import bundle, device_array, errors, function  # noqa: PLC0415

    found = next(getattr(home, name) for home in (bundle, device_array, errors, function) if hasattr(home, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
