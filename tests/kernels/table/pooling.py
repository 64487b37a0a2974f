"""Pooling: every option of every rank."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data


def pool(name: str, shape: tuple[int, ...], **options: object) -> Case:
    """A row of a pooling with PyTorch's options, on values without ties."""
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return Case(f"{name} {given}", getattr(kernels, name), (Data(shape, "distinct"),), f"lambda x: F.{name}(x, {given})", None, options)


def unpool(name: str, shape: tuple[int, ...], places: int, **options: object) -> Case:
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    rows = int(np.prod(shape[: len(shape) - int(name[-2])]))
    each = int(np.prod(shape)) // rows
    rng = np.random.default_rng(3)
    indices = np.stack([rng.permutation(places)[:each] for _ in range(rows)]).reshape(shape)
    torch = f"lambda x, i: F.{name}(x, i, {given})"
    return Case(f"{name} {given}", getattr(kernels, name), (shape, Data(shape, indices)), torch, None, options)


CASES = [
    pool("max_pool1d", (2, 2, 7), kernel_size=2),
    pool("max_pool1d", (2, 2, 7), kernel_size=3, stride=2, padding=1, return_indices=True),
    pool("max_pool1d", (2, 8), kernel_size=2, stride=3, dilation=2, ceil_mode=True),
    pool("max_pool2d", (1, 2, 4, 6), kernel_size=2),
    pool("max_pool2d", (1, 2, 5, 4), kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), return_indices=True),
    pool("max_pool2d", (1, 1, 6, 5), kernel_size=2, stride=2, dilation=(2, 1), ceil_mode=True, return_indices=True),
    pool("max_pool3d", (1, 1, 3, 4, 4), kernel_size=2, stride=(1, 2, 2)),
    pool("max_pool3d", (1, 3, 3, 4), kernel_size=(2, 3, 2), stride=2, padding=(1, 1, 0), return_indices=True),
    pool("avg_pool1d", (2, 2, 7), kernel_size=3, stride=2),
    pool("avg_pool1d", (2, 7), kernel_size=3, stride=2, padding=1, ceil_mode=True),
    pool("avg_pool1d", (2, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    pool("avg_pool2d", (1, 2, 4, 5), kernel_size=(2, 3), stride=1, padding=(0, 1)),
    pool("avg_pool2d", (1, 1, 5, 4), kernel_size=2, padding=1, count_include_pad=False),
    pool("avg_pool2d", (1, 1, 5, 4), kernel_size=2, ceil_mode=True, divisor_override=3),
    pool("avg_pool3d", (1, 1, 3, 4, 4), kernel_size=2, stride=(1, 2, 2), padding=(1, 0, 0)),
    pool("lp_pool1d", (2, 2, 7), norm_type=2, kernel_size=3, stride=2),
    pool("lp_pool1d", (1, 2, 6), norm_type=2, kernel_size=3, stride=2, ceil_mode=True),
    Case(
        "lp_pool2d norm_type=3", kernels.lp_pool2d, (Data((1, 2, 4, 4), "positive"),), "lambda x: F.lp_pool2d(x, 3, 2)", None,
        {"norm_type": 3, "kernel_size": 2},
    ),
    Case(
        "lp_pool1d norm_type=1.5", kernels.lp_pool1d, ((2, 6),), None,
        lambda x: (np.abs(x.reshape(2, 3, 2)) ** 1.5).sum(2) ** (1 / 1.5), {"norm_type": 1.5, "kernel_size": 2},
    ),
    pool("adaptive_avg_pool1d", (2, 2, 7), output_size=3),
    pool("adaptive_avg_pool1d", (2, 4), output_size=6),
    pool("adaptive_avg_pool2d", (1, 2, 4, 5), output_size=(2, 3)),
    pool("adaptive_avg_pool2d", (1, 2, 4, 5), output_size=(None, 1)),
    pool("adaptive_avg_pool3d", (1, 1, 3, 4, 3), output_size=(2, 2, 1)),
    pool("adaptive_max_pool1d", (2, 2, 7), output_size=3, return_indices=True),
    pool("adaptive_max_pool2d", (1, 2, 5, 4), output_size=(3, 2), return_indices=True),
    pool("adaptive_max_pool3d", (1, 1, 3, 4, 3), output_size=(2, 3, 1)),
    Case("global_avg_pool", kernels.global_avg_pool, ((2, 3, 3, 4),), "lambda x: x.mean((2, 3), keepdim=True)"),
    Case("global_max_pool", kernels.global_max_pool, (Data((2, 2, 5), "distinct"),), "lambda x: x.amax(2, keepdim=True)"),
    unpool("max_unpool1d", (2, 3), 8, kernel_size=2, stride=3),
    Case(
        "max_unpool1d of windows that overlap", kernels.max_unpool1d, ((2, 3), Data((2, 3), np.array([[1, 1, 4], [0, 3, 3]]))), None,
        lambda x, i: np.stack([[0, x[0, 1], 0, 0, x[0, 2]], [x[1, 0], 0, 0, x[1, 2], 0]]), {"kernel_size": 3, "stride": 1},
    ),
    unpool("max_unpool2d", (1, 2, 2, 3), 24, kernel_size=2),
    unpool("max_unpool2d", (2, 2, 2), 15, kernel_size=2, output_size=(3, 5)),
    unpool("max_unpool3d", (1, 2, 1, 2), 16, kernel_size=2, padding=0),
]  # fmt: skip
