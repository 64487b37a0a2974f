"""Folding: columns, shuffles, layouts."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case


def row(name: str, shape: tuple[int, ...], **options: object) -> Case:
    """A row of an operation with PyTorch's options."""
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return Case(f"{name} {given}", getattr(kernels, name), (shape,), f"lambda x: F.{name}(x, {given})", None, options)


def depth_to_space(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    tall = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return tall.reshape(n, c // block**2, h * block, w * block)


def space_to_depth(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return split.reshape(n, c * block**2, h // block, w // block)


def blocked(x: np.ndarray, block: int) -> np.ndarray:
    missing = -x.shape[1] % block
    full = np.pad(x, ((0, 0), (0, missing), (0, 0), (0, 0)))
    n, c, h, w = full.shape
    return full.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


CASES = [
    row("unfold", (1, 2, 4, 5), kernel_size=2),
    row("unfold", (1, 2, 5, 4), kernel_size=(3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)),
    row("unfold", (2, 3, 4), kernel_size=(2, 3), padding=1, stride=2),
    row("fold", (1, 8, 12), output_size=(4, 5), kernel_size=2),
    row("fold", (1, 6, 6), output_size=(5, 4), kernel_size=(3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)),
    row("fold", (12, 4), output_size=(3, 4), kernel_size=2, stride=2, padding=(1, 0)),
    row("pixel_shuffle", (1, 8, 2, 3), upscale_factor=2),
    row("pixel_shuffle", (9, 2, 1), upscale_factor=3),
    row("pixel_unshuffle", (1, 2, 4, 6), downscale_factor=2),
    Case("channel_shuffle", kernels.channel_shuffle, ((2, 6, 2, 2),), "lambda x: F.channel_shuffle(x, 3)", None, {"groups": 3}),
    Case(
        "depth_to_space", kernels.depth_to_space, ((1, 8, 2, 3),), None, lambda x: depth_to_space(x, 2), {"block": 2},
    ),
    Case(
        "depth_to_space CRD", kernels.depth_to_space, ((1, 8, 2, 3),), "lambda x: F.pixel_shuffle(x, 2)", None,
        {"block": 2, "mode": "CRD"},
    ),
    Case("space_to_depth", kernels.space_to_depth, ((1, 2, 4, 6),), None, lambda x: space_to_depth(x, 2), {"block": 2}),
    Case("nchw_to_nchwc", kernels.nchw_to_nchwc, ((1, 8, 2, 3),), None, lambda x: blocked(x, 4)),
    Case("nchw_to_nchwc cut", kernels.nchw_to_nchwc, ((2, 5, 2, 2),), None, lambda x: blocked(x, 2), {"block": 2}),
    Case(
        "nchwc_to_nchw", kernels.nchwc_to_nchw, ((2, 2, 3, 2, 4),), None,
        lambda x: x.transpose(0, 1, 4, 2, 3).reshape(2, 8, 3, 2),
    ),
    Case(
        "nchwc_to_nchw cut", kernels.nchwc_to_nchw, ((1, 3, 2, 2, 2),), None,
        lambda x: x.transpose(0, 1, 4, 2, 3).reshape(1, 6, 2, 2)[:, :5], {"channels": 5},
    ),
]  # fmt: skip
