"""PyTorch, eager and through `torch.compile`, with gradients by its autograd.

Channels-last images are given as tensors in that memory format, weights too, as its convolutions want them; the axes of
results are turned back by views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LAYOUTS = {"conv2d_nhwc": ((0, 3, 1, 2), (3, 2, 0, 1)), "conv_transpose2d_nhwc": ((0, 3, 1, 2), (2, 3, 0, 1))}
"""The axes of torch's tensors among those of the arrays, where they differ; the result is turned as the first of them."""


def _heat(u: Any, steps: int = 10) -> Any:
    for _ in range(steps):
        inside = u[1:-1, 1:-1]
        moved = u.clone()
        moved[1:-1, 1:-1] = inside + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inside)
        u = moved
    return u


def _correlation(a: Any, b: Any, radius: int = 4) -> Any:
    size, (c, h, l) = 2 * radius + 1, a.shape
    return (F.unfold(b[None], size, padding=radius).reshape(c, size**2, h, l) * a[:, None]).mean(0).reshape(size, size, h, l)


def _bilateral(x: Any, radius: int = 4) -> Any:
    """Window by window: nothing is stored but the sums once it is compiled."""
    h, l = x.shape
    padded = F.pad(x[None, None], (radius,) * 4, mode="replicate")[0, 0]
    total, value = torch.zeros_like(x), torch.zeros_like(x)
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            near = padded[dy : dy + h, dx : dx + l]
            weight = torch.exp(-0.5 * (near - x) ** 2 - 0.05 * ((dy - radius) ** 2 + (dx - radius) ** 2))
            total = total + weight
            value = value + weight * near
    return value / total


PAIRS = 1 << 28
"""As many pairs of points as are held at once."""


def _gaussian_product(x: Any, y: Any, b: Any) -> Any:
    """In parts of the rows where all pairs are more than memory is meant for; the gradient computes each part anew."""

    def part(some: Any) -> Any:
        return torch.exp(-((some[:, None] - y) ** 2).sum(-1)) @ b

    rows = max(1, PAIRS // len(y))
    if len(x) <= rows:
        return part(x)
    if not torch.is_grad_enabled():
        return torch.cat([part(some) for some in x.split(rows)])
    return torch.cat([checkpoint(part, some, use_reentrant=False) for some in x.split(rows)])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": torch.matmul,
    "matmul_at": lambda a, b: a.T @ b,
    "matmul_bt": lambda a, b: a @ b.T,
    "bmm": torch.bmm,
    "conv2d": F.conv2d,
    "conv2d_nhwc": F.conv2d,
    "conv_transpose2d": F.conv_transpose2d,
    "conv_transpose2d_nhwc": F.conv_transpose2d,
    "softmax": lambda x: torch.softmax(x, -1),
    "logsumexp": lambda x, axis: torch.logsumexp(x, axis),
    "layer_norm": lambda x, g, b: F.layer_norm(x, x.shape[1:], g, b),
    "rms_norm": lambda x, g: F.rms_norm(x, x.shape[1:], g),
    "scale_gelu": lambda x, a, b: F.gelu(a * x + b, approximate="tanh"),
    # Its fast path wants a batch of heads.
    "attention": lambda q, k, v, is_causal: F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=is_causal)[0],
    "gaussian_product": _gaussian_product,
    "max_pool2d": F.max_pool2d,
    "avg_pool2d": F.avg_pool2d,
    "interpolate": F.interpolate,
    "embedding": F.embedding,
    "grid_sample": lambda x, grid: F.grid_sample(x, grid, align_corners=False),
    "heat": _heat,
    "cumsum": lambda x, axis: torch.cumsum(x, axis),
    "correlation": _correlation,
    "bilateral": _bilateral,
    "add": torch.add,
}


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there is a function for the workload."""
    del static, gradient
    return key in FUNCTIONS


def _given(array: np.ndarray, axes: tuple[int, ...] | None) -> Any:
    tensor = torch.from_numpy(array)
    return tensor if axes is None else tensor.permute(axes).contiguous(memory_format=torch.channels_last)


def _restored(tensor: Any, axes: tuple[int, ...] | None) -> Any:
    return tensor if axes is None else tensor.permute([axes.index(axis) for axis in range(len(axes))])


def candidate(
    key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None, compiled: bool = False
) -> Callable[[], Any]:
    """The function, or the function and its gradients by autograd."""

    def function(*given: Any) -> Any:
        return FUNCTIONS[key](*given, **static)

    if compiled:
        function = torch.compile(function, dynamic=False)
    layouts: Sequence[tuple[int, ...] | None] = LAYOUTS.get(key, (None,) * len(arrays))
    given = [_given(array, axes) for array, axes in zip(arrays, layouts, strict=True)]
    if head is None:

        def forward() -> Any:
            with torch.no_grad():
                return _restored(function(*given), layouts[0])

        return forward
    floating = [k for k, tensor in enumerate(given) if tensor.is_floating_point()]
    for k in floating:
        given[k].requires_grad_()
    seed = _given(head, layouts[0])

    def both() -> Any:
        output = function(*given)
        gradients = torch.autograd.grad(output, [given[k] for k in floating], seed)
        turned = [_restored(gradient, layouts[k]) for k, gradient in zip(floating, gradients, strict=True)]
        return (_restored(output.detach(), layouts[0]), *turned)

    return both
