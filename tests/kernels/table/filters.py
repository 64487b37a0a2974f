"""Filters that keep edges."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case


def bilateral(x, guide, r, space, value):
    y = np.zeros_like(x)
    pad = ((0, 0), (0, 0), (r, r), (r, r))
    wide, wide_guide = np.pad(x, pad, "reflect"), np.pad(guide, pad, "reflect")
    for i, j in np.ndindex(x.shape[2:]):
        near = np.exp(-(np.arange(-r, r + 1)[:, None] ** 2 + np.arange(-r, r + 1) ** 2) / (2 * space**2))
        gap = wide_guide[:, :, i : i + 2 * r + 1, j : j + 2 * r + 1] - guide[:, :, i : i + 1, j : j + 1]
        w = near * np.exp(-(gap**2).sum(1, keepdims=True) / (2 * value**2))
        y[:, :, i, j] = (w * wide[:, :, i : i + 2 * r + 1, j : j + 2 * r + 1]).sum((2, 3)) / w.sum((2, 3))
    return y


def patchwise(x, patch, search, strength):
    r = patch + search
    wide = np.pad(x, ((0, 0), (0, 0), (r, r), (r, r)), "reflect")
    y = np.zeros_like(x)
    for i, j in np.ndindex(x.shape[2:]):
        p, q = i + r, j + r
        here = wide[:, :, p - patch : p + patch + 1, q - patch : q + patch + 1]
        total = 0
        for a, b in np.ndindex(2 * search + 1, 2 * search + 1):
            u, v = p + a - search, q + b - search
            w = np.exp(-((wide[:, :, u - patch : u + patch + 1, v - patch : v + patch + 1] - here) ** 2).mean((1, 2, 3)) / strength**2)
            total = total + w
            y[:, :, i, j] += w[:, None] * wide[:, :, u, v]
        y[:, :, i, j] /= total[:, None]
    return y


GUIDED = (
    "lambda g, x: (lambda m: (lambda a: m(a) * g + m(m(x) - a * m(g)))((m(g * x) - m(g) * m(x)) / (m(g * g) - m(g) ** 2 + 0.1)))"
    "(lambda z: F.avg_pool2d(z, 3, 1, 1, count_include_pad=False))"
)

CASES = [
    Case("bilateral_filter", kernels.bilateral_filter, ((1, 2, 3, 4),), numpy=lambda x: bilateral(x, x, 1, 1.5, 0.7),
         static={"radius": 1, "sigma_space": 1.5, "sigma_range": 0.7}),
    Case("joint_bilateral_filter", kernels.joint_bilateral_filter, ((1, 1, 3, 4), (1, 2, 3, 4)),
         numpy=lambda x, g: bilateral(x, g, 1, 1.0, 1.0), static={"radius": 1, "sigma_space": 1.0, "sigma_range": 1.0}),
    Case("guided_filter", kernels.guided_filter, ((1, 1, 4, 3), (1, 2, 4, 3)), GUIDED, static={"radius": 1, "eps": 0.1}),
    Case("guided_filter of each channel", kernels.guided_filter, ((1, 2, 3, 3), (1, 2, 3, 3)), GUIDED, static={"radius": 1, "eps": 0.1}),
    Case("non_local_means", kernels.non_local_means, ((1, 1, 3, 4),), numpy=lambda x: patchwise(x, 1, 1, 0.8),
         static={"patch_radius": 1, "search_radius": 1, "strength": 0.8}),
]  # fmt: skip
