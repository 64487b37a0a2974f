"""KeOps: pairwise reductions by `LazyTensor`, gradients by torch's autograd through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from pykeops.torch import LazyTensor

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gaussian_product": lambda x, y, b: (-((LazyTensor(x[:, None]) - LazyTensor(y[None])) ** 2).sum(-1)).exp() @ b,
}


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there is a function for the workload."""
    del static, gradient
    return key in FUNCTIONS


def candidate(key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Any]:
    """The reduction, or the reduction and its gradients."""
    given = [torch.from_numpy(a) for a in arrays]
    if head is None:
        return lambda: FUNCTIONS[key](*given, **static)
    for tensor in given:
        tensor.requires_grad_()
    seed = torch.from_numpy(head)

    def both() -> Any:
        output = FUNCTIONS[key](*given, **static)
        return (output.detach(), *torch.autograd.grad(output, given, seed))

    return both
