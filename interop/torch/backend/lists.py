"""Operators on lists of tensors, `_foreach_add`, as operators on each: what optimizers with `foreach=True` are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ATEN: Any = torch.ops.aten
_NAMES = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "clone", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum",
    "mul", "neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh",
    "trunc",
)  # fmt: skip
_OF_NUMBERS = {"maximum": torch.clamp_min, "minimum": torch.clamp_max}
"""Where the function of tensors takes no number."""
_BY_NAME = {"addcdiv": "value", "addcmul": "value"}
"""What the last argument is called where it is given by name alone."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The rules of overloads without effects; numbers that come as one tensor are PyTorch's."""
    rules = {}
    for name in _NAMES:
        packet = getattr(_ATEN, f"_foreach_{name}")
        for overload in packet.overloads():
            target = getattr(packet, overload)
            if not target._schema.is_mutable and not (name in _BY_NAME and overload == "Tensor"):
                rules[target] = _each(target, name)
    return rules


def _each(target: Any, name: str) -> Callable[..., list[Any]]:
    parameters = target._schema.arguments

    def rule(*given: Any, **named: Any) -> list[Any]:
        lists = [value for value in given if isinstance(value, (list, tuple))]
        found = []
        for k in range(len(lists[0])):
            each = [value[k] if isinstance(value, (list, tuple)) else value for value in given]
            function: Any = torch.linalg.vector_norm if name == "norm" else getattr(torch, name)
            if name in _OF_NUMBERS and not isinstance(each[1], torch.Tensor):
                function = _OF_NUMBERS[name]
            by_name = {_BY_NAME[name]: each.pop()} if name in _BY_NAME and len(each) == len(parameters) else {}
            found.append(function(*each, **by_name, **named))
        return found

    return rule
