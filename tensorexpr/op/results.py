"""Results of ops: tensors that are called after the op that made them, and copies where a result must be a tensor of its own."""

from __future__ import annotations

import weakref
from typing import Any

from tensorexpr.language import Tensor, compute
from tensorexpr.op.trees import leaves

_NAMED_BY_OPS: weakref.WeakSet[Tensor] = weakref.WeakSet()


def name_results(name: str, result: Any) -> None:
    """Calls the results after the op, where the user has not named them (an outer op renames what an inner one named)."""
    for position, tensor in enumerate(leaves(result)):
        if tensor.definition is not None and (not tensor.named or tensor in _NAMED_BY_OPS):
            tensor.name, tensor.named = name if isinstance(result, Tensor) else f"{name}_{position}", True
            _NAMED_BY_OPS.add(tensor)


def identity(tensor: Tensor) -> Tensor:
    """A tensor of its own that is equal to another."""
    copied = compute(tensor.shape, lambda *i: tensor[i])
    copied.name, copied.named = tensor.name, tensor.named
    return copied
