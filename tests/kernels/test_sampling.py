"""Sampling between points: what is refused, positions far away, sizes known only as the program runs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = np.arange(24.0).reshape(1, 2, 3, 4)
GRID = np.zeros((1, 2, 2, 2))


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.grid_sample, (X[0], GRID), {}, "grid_sample: input: expected 4 or 5 axes, got 3 (shape (2, 3, 4))"),
        (kernels.grid_sample, (X, GRID[..., :1]), {},
         "grid_sample: grid: expected 4 axes, the last of 2 coordinates, got shape (1, 2, 2, 1)"),
        (kernels.grid_sample, (X[None], GRID[None]), {"mode": "bicubic"},
         "grid_sample: mode: expected one of 'nearest', 'bilinear', got 'bicubic'"),
        (kernels.affine_grid, (GRID[0],), {"size": (1, 2)}, "affine_grid: size: expected (N, C, H, W) or (N, C, D, H, W), got (1, 2)"),
        (
            kernels.affine_grid, (GRID[0],), {"size": (2, 1, 3, 3)},
            "affine_grid: theta: expected shape (2, 2, 3) (one affine map per item), got (2, 2, 2)",
        ),
        (kernels.bilinear_lookup, (X, X), {},
         "bilinear_lookup: points: expected a batch of positions, the last axis of 2 coordinates, got shape (1, 2, 3, 4)"),
        (kernels.deform_conv2d, (X, np.zeros((1, 8, 2, 2)), np.zeros((1, 2, 2, 2))), {},
         "deform_conv2d: offset: expected shape (1, 8, 2, 3) (two offsets per tap and place), got (1, 8, 2, 2)"),
        (kernels.roi_align, (X, np.zeros((2, 4))), {"output_size": 2},
         "roi_align: boxes: expected shape (2, 5) (an item and four corners per box), got (2, 4)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_positions_far_away_and_not_a_number_read_nothing_stray():
    grid = np.array([1e30, -1e30, np.inf, -np.inf]).reshape(1, 2, 1, 2)
    for mode in ("nearest", "bilinear", "bicubic"):
        got = kernels.grid_sample(X, grid, mode=mode)
        assert not np.nan_to_num(got, nan=0.0).any()
    np.testing.assert_array_equal(kernels.grid_sample(X, grid, mode="nearest", padding_mode="border")[0, 0, :, 0], [3, 3])


def test_sizes_known_as_it_runs():
    h, w, n = te.dim("h"), te.dim("w"), te.dim("n")
    x, grid = te.placeholder((1, 2, h, w), "float64"), te.placeholder((1, n, 1, 2), "float64")
    where = np.random.default_rng(0).standard_normal((1, 7, 1, 2))
    for static in ({"padding_mode": "reflection", "align_corners": True}, {"mode": "bicubic", "padding_mode": "border"}):
        compiled = kernels.grid_sample.compile(x, grid, **static)
        np.testing.assert_allclose(compiled(X, where), kernels.grid_sample(X, where, **static), rtol=1e-12)
