"""Distances of all pairs, kernel products, nearest points, soft time warping."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X, Y = (4, 3), (5, 3)
BATCH = (2, 4, 2), (2, 3, 2)
MEETING = np.array([[0.5, -1.0], [2.0, 0.25], [0.5, 1.5]])
R2 = "((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1)"


def warped(cost, gamma):
    n, m = cost.shape
    r = np.full((n + 1, m + 1), np.inf)
    r[0, 0] = 0
    for i in range(n):
        for j in range(m):
            r[i + 1, j + 1] = cost[i, j] - gamma * np.logaddexp.reduce([-r[i, j + 1] / gamma, -r[i + 1, j] / gamma, -r[i, j] / gamma])
    return r[n, m]


def nearest(x, y):
    r = ((x[:, None] - y) ** 2).sum(-1)
    return r.argmin(1), r.min(1)


def lloyd(x, c):
    labels = ((x[:, None] - c) ** 2).sum(-1).argmin(1)
    return np.stack([x[labels == k].mean(0) if (labels == k).any() else c[k] for k in range(len(c))]), labels


CASES = [
    Case("squared_distance", kernels.squared_distance, (X, Y), f"lambda x, y: {R2}"),
    Case("cdist", kernels.cdist, (X, Y), "torch.cdist"),
    Case("cdist batched", kernels.cdist, BATCH, "torch.cdist"),
    Case("cdist p 0", kernels.cdist, (Data((3, 2), MEETING), Data((2, 2), MEETING[:2])), "lambda x, y: torch.cdist(x, y, 0.0)",
         static={"p": 0.0}, differentiable=False),
    Case("cdist p 1", kernels.cdist, (X, Y), "lambda x, y: torch.cdist(x, y, 1.0)", static={"p": 1.0}),
    Case("cdist p inf", kernels.cdist, (X, Y), "lambda x, y: torch.cdist(x, y, math.inf)", static={"p": np.inf}),
    Case("cdist p 3", kernels.cdist, (X, Y), "lambda x, y: torch.cdist(x, y, 3.0)", static={"p": 3.0}),
    Case("cdist p 1.5, points that meet", kernels.cdist, (Data((3, 2), MEETING), Data((2, 2), MEETING[:2])),
         "lambda x, y: torch.cdist(x, y, 1.5)", static={"p": 1.5}, kinks=True),
    Case("cdist points that meet", kernels.cdist, (Data((3, 2), MEETING), Data((2, 2), MEETING[:2])),
         "lambda x, y: torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')", kinks=True),
    Case("gaussian_product", kernels.gaussian_product, (X, Y, (5, 2)), f"lambda x, y, b: torch.exp(-0.5 * {R2}) @ b",
         static={"gamma": 0.5}),
    Case("gaussian_product of a vector", kernels.gaussian_product, (X, Y, (5,)), f"lambda x, y, b: torch.exp(-{R2}) @ b"),
    Case("gaussian_product batched", kernels.gaussian_product, (*BATCH, (2, 3, 2)), f"lambda x, y, b: torch.exp(-{R2}) @ b"),
    Case("laplacian_product", kernels.laplacian_product, (X, Y, (5,)), "lambda x, y, b: torch.exp(-0.5 * torch.cdist(x, y)) @ b",
         static={"gamma": 0.5}),
    Case("cauchy_product", kernels.cauchy_product, (X, Y, (5, 2)), f"lambda x, y, b: (1 / (1 + 2.0 * {R2})) @ b",
         static={"gamma": 2.0}),
    Case("gaussian_logsumexp", kernels.gaussian_logsumexp, (X, Y, (5,)), f"lambda x, y, b: torch.logsumexp(b - {R2}, -1)"),
    Case("sinkhorn_step", kernels.sinkhorn_step, (X, Y, (5,), (5,)),
         f"lambda x, y, g, w: -0.3 * torch.logsumexp(w + (g - {R2} / 2) / 0.3, -1)", static={"eps": 0.3}),
    Case("nearest_neighbor", kernels.nearest_neighbor, (X, Y), f"lambda x, y: {R2}.min(1)[::-1]", nearest),
    Case("kmeans_step", kernels.kmeans_step, ((6, 2), (4, 2)), numpy=lloyd),
    Case("soft_dtw", kernels.soft_dtw, (Data((4, 5), "unit"),), numpy=lambda c: warped(c, 0.5), static={"gamma": 0.5}),
    Case("soft_dtw batched", kernels.soft_dtw, (Data((2, 3, 2), "unit"),), numpy=lambda c: np.stack([warped(m, 1.0) for m in c])),
    Case("pdist", kernels.pdist, ((4, 3),), "lambda x: F.pdist(x, 3.0)", static={"p": 3.0}, scatters=True),
]  # fmt: skip
