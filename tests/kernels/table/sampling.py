"""Interpolation at positions that are data: grids, affine maps, flows, boxes."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X, GRID = (2, 2, 4, 5), (2, 3, 2, 2)
CUBE, CUBES = (1, 2, 3, 2, 3), (1, 2, 2, 2, 3)
BOXES = np.array([[0, 0.6, -1.7, 3.9, 2.4], [1, 1.2, 0.7, 1.9, 1.1], [0, 2.1, 1.3, 7.3, 3.2]])
FLOW = (
    "lambda x, f: F.grid_sample(x, torch.stack([2 * (torch.arange(5) + f[:, 0]) / 4 - 1,"
    " 2 * (torch.arange(4)[:, None] + f[:, 1]) / 3 - 1], -1), '%s', '%s', True)"
)


def bilinear(image, y, x):
    """torchvision's: within a point of the border the nearest point, beyond it 0."""
    h, w = image.shape[-2:]
    if not (-1 <= y <= h and -1 <= x <= w):
        return np.zeros(image.shape[0])
    y, x = np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)
    i, j = min(int(y), h - 2), min(int(x), w - 2)
    a, b = y - i, x - j
    below = image[:, i, j] * (1 - b) + image[:, i, j + 1] * b
    return (1 - a) * below + a * (image[:, i + 1, j] * (1 - b) + image[:, i + 1, j + 1] * b)


def roi(x, boxes, size, scale, ratio, aligned):
    y = np.zeros((len(boxes), x.shape[1], *size))
    for r, box in enumerate(boxes):
        x1, y1, x2, y2 = box[1:] * scale - (0.5 if aligned else 0)
        w, h = (x2 - x1, y2 - y1) if aligned else (max(x2 - x1, 1), max(y2 - y1, 1))
        for i, j in np.ndindex(*size):
            y[r, :, i, j] = np.mean([
                bilinear(x[int(box[0])], y1 + h * (i + (a + 0.5) / ratio) / size[0], x1 + w * (j + (b + 0.5) / ratio) / size[1])
                for a in range(ratio) for b in range(ratio)
            ], 0)  # fmt: skip
    return y


def inside(image, y, x):
    """Zeros beyond the border."""
    return bilinear(np.pad(image, ((0, 0), (2, 2), (2, 2))), np.clip(y, -2, image.shape[1] + 1) + 2, np.clip(x, -2, image.shape[2] + 1) + 2)


def deformed(x, offset, w, bias, mask, stride, padding, dilation):
    (k, _, r, s), (n, _, p, q) = w.shape, offset.shape
    y = np.zeros((n, k, p, q)) + bias[:, None, None]
    for b, i, j, u, v in np.ndindex(n, p, q, r, s):
        t = u * s + v
        at = i * stride - padding + u * dilation + offset[b, 2 * t, i, j], j * stride - padding + v * dilation + offset[b, 2 * t + 1, i, j]
        y[b, :, i, j] += w[:, :, u, v] @ inside(x[b], *at) * (1 if mask is None else mask[b, t, i, j])
    return y


def sampled(mode, padding, align, x=X, grid=GRID):
    return Case(
        f"grid_sample {len(x) - 2}-D {mode} {padding}{' aligned' if align else ''}", kernels.grid_sample, (x, grid),
        f"lambda x, g: F.grid_sample(x, g, '{mode}', '{padding}', {align})",
        static={"mode": mode, "padding_mode": padding, "align_corners": align}, scatters=True,
    )  # fmt: skip


CASES = [
    sampled("bilinear", "zeros", False),
    sampled("bilinear", "zeros", True),
    sampled("bilinear", "border", False),
    sampled("bilinear", "reflection", False),
    sampled("bilinear", "reflection", True),
    sampled("nearest", "zeros", False),
    sampled("nearest", "border", True),
    sampled("nearest", "reflection", False),
    sampled("bicubic", "zeros", False),
    sampled("bicubic", "border", True),
    sampled("bicubic", "reflection", True),
    sampled("bicubic", "reflection", False),
    sampled("bilinear", "zeros", False, CUBE, CUBES),
    sampled("bilinear", "border", True, CUBE, CUBES),
    sampled("nearest", "reflection", True, CUBE, CUBES),
    Case("affine_grid", kernels.affine_grid, ((2, 2, 3),), "lambda t: F.affine_grid(t, (2, 1, 3, 4), False)",
         static={"size": (2, 1, 3, 4)}),
    Case("affine_grid aligned", kernels.affine_grid, ((2, 2, 3),), "lambda t: F.affine_grid(t, (2, 1, 3, 4), True)",
         static={"size": (2, 1, 3, 4), "align_corners": True}),
    Case("affine_grid 3-D", kernels.affine_grid, ((1, 3, 4),), "lambda t: F.affine_grid(t, (1, 1, 2, 3, 2), False)",
         static={"size": (1, 1, 2, 3, 2)}),
    Case("warp", kernels.warp, ((2, 2, 4, 5), (2, 2, 4, 5)), FLOW % ("bilinear", "zeros"), scatters=True),
    Case("warp nearest border", kernels.warp, ((2, 2, 4, 5), (2, 2, 4, 5)), FLOW % ("nearest", "border"),
         static={"mode": "nearest", "padding_mode": "border"}, scatters=True),
    Case("bilinear_lookup", kernels.bilinear_lookup, (X, Data((2, 6, 2), "positive")),
         "lambda x, p: F.grid_sample(x, (2 * p / torch.tensor([4.0, 3.0]).to(p) - 1)[:, None], align_corners=True)[:, :, 0]",
         scatters=True),
    Case("deform_conv2d", kernels.deform_conv2d, ((1, 2, 4, 3), (1, 8, 3, 2), (2, 2, 2, 2), (2,), None),
         numpy=lambda x, o, w, b: deformed(x, o, w, b, None, 1, 0, 1), scatters=True),
    Case("deform_conv2d mask, stride, padding, dilation", kernels.deform_conv2d,
         ((2, 1, 4, 5), (2, 8, 2, 3), (2, 1, 2, 2), (2,), (2, 4, 2, 3)),
         numpy=lambda x, o, w, b, m: deformed(x, o, w, b, m, 2, 1, 2), static={"stride": 2, "padding": 1, "dilation": 2}, scatters=True),
    Case("roi_align", kernels.roi_align, ((2, 2, 4, 5), Data((3, 5), BOXES)), numpy=lambda x, b: roi(x, b, (2, 3), 1.0, 2, False),
         static={"output_size": (2, 3)}, scatters=True, kinks=True),
    Case("roi_align aligned", kernels.roi_align, ((2, 2, 4, 5), Data((3, 5), BOXES)), numpy=lambda x, b: roi(x, b, (2, 2), 0.7, 1, True),
         static={"output_size": 2, "spatial_scale": 0.7, "sampling_ratio": 1, "aligned": True}, scatters=True, kinks=True),
]  # fmt: skip
