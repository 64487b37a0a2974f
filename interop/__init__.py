"""tensorexpr in other libraries: one module for each host, none of which is loaded unless it is asked for."""

from typing import TYPE_CHECKING, Any

from tensorexpr.hints import unknown_name

_PLACES = {"as_torch": "torch", "as_jax": "jax", "from_onnx": "onnx", "to_onnx": "onnx"}
"""What is asked for here, and the module of the host that has it."""

if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = f"from tensorexpr.interop.{_PLACES[name]} import {name}" if name in _PLACES else None
        raise unknown_name("tensorexpr.interop", name, ("torch", "jax", "onnx"), hint)
