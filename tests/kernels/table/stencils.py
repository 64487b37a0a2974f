"""Stencils: every operator in every mode somewhere."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

PLANE, VOLUME = ((4, 5),), ((3, 4, 3),)


def grown(x: np.ndarray, mode: str) -> np.ndarray:
    """One more element on every side."""
    return np.pad(x, 1, mode)


def laplacian(x: np.ndarray, mode: str) -> np.ndarray:
    g = grown(x, mode)
    inner = (slice(1, -1),) * x.ndim
    total = -2.0 * x.ndim * x
    for d in range(x.ndim):
        for by in (-1, 1):
            total = total + np.roll(g, by, d)[inner]
    return total


def central(x: np.ndarray, axis: int, mode: str) -> np.ndarray:
    g = grown(x, mode)
    return ((np.roll(g, -1, axis) - np.roll(g, 1, axis)) / 2)[(slice(1, -1),) * x.ndim]


def correlate(x: np.ndarray, w: np.ndarray, mode: str) -> np.ndarray:
    g = np.pad(x, [(k // 2, (k - 1) // 2) for k in w.shape], mode)
    return np.einsum("yzrs,rs->yz", np.lib.stride_tricks.sliding_window_view(g, w.shape), w)


def heat(u: np.ndarray, rate: np.ndarray, steps: int, mode: str) -> np.ndarray:
    for _ in range(steps):
        u = u + rate * laplacian(u, mode)
    return u


def wave(u: np.ndarray, before: np.ndarray, courant: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        u, before = 2 * u - before + courant**2 * laplacian(u, "constant"), u
    return u


def bell(sigma: float, size: int) -> np.ndarray:
    weights = np.exp(-0.5 * (np.arange(size) - size // 2) ** 2 / sigma**2)
    return np.outer(weights, weights) / weights.sum() ** 2


DIFFERENCE, MEAN = np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0])
RATE, COURANT = np.array(0.2), np.array(0.6)

CASES = [
    *(
        Case(f"laplacian {mode}", kernels.laplacian, PLANE, None, lambda x, mode=mode: laplacian(x, mode), {"mode": mode})
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap")
    ),
    Case("laplacian 3D", kernels.laplacian, VOLUME, None, lambda x: laplacian(x, "wrap") / 0.25, {"mode": "wrap", "spacing": 0.5}),
    Case(
        "laplacian of uneven spacing", kernels.laplacian, PLANE, None,
        lambda x: np.diff(np.pad(x, ((1, 1), (0, 0))), 2, axis=0) / 4 + np.diff(np.pad(x, ((0, 0), (1, 1))), 2, axis=1) / 0.25,
        {"spacing": (2.0, 0.5), "mode": "constant"},
    ),
    Case(
        "laplacian one axis", kernels.laplacian, PLANE, None,
        lambda x: np.diff(np.pad(x, ((0, 0), (1, 1))), 2, axis=1), {"axes": 1, "mode": "constant"},
    ),
    Case(
        "spatial_gradient", kernels.spatial_gradient, PLANE, None, lambda x: (central(x, 0, "edge"), central(x, 1, "edge")),
    ),
    Case(
        "spatial_gradient one-sided", kernels.spatial_gradient, PLANE, "lambda x: torch.gradient(x, spacing=0.5)",
        lambda x: tuple(np.gradient(x, 0.5)), {"mode": "one-sided", "spacing": 0.5},
    ),
    Case(
        "divergence", kernels.divergence, (((4, 5), (4, 5)),), None, lambda f: central(f[0], 0, "wrap") + central(f[1], 1, "wrap"),
        {"mode": "wrap"},
    ),
    Case("heat_step", kernels.heat_step, ((4, 5), (4, 5)), None, lambda u, r: heat(u, r, 1, "edge")),
    Case(
        "heat_steps 3", kernels.heat_steps, ((4, 5), Data((), RATE)), None, lambda u, r: heat(u, r, 3, "wrap"),
        {"steps": 3, "mode": "wrap"},
    ),
    Case(
        "heat_steps 100", kernels.heat_steps, ((4, 4), Data((), RATE)), None, lambda u, r: heat(u, r, 100, "edge"), {"steps": 100},
        float32=3e-4,  # the slope by the rate, 1e-5, is a sum of 1,600 terms of up to 0.2 that cancel
    ),
    Case(
        "wave_step", kernels.wave_step, ((4, 5), (4, 5), (4, 5)), None, lambda u, b, c: wave(u, b, c, 1),
    ),
    Case(
        "wave_steps 100", kernels.wave_steps, ((6,), (6,), Data((), COURANT)), None, lambda u, b, c: wave(u, b, c, 100),
        {"steps": 100},
    ),
    Case("stencil", kernels.stencil, ((4, 5), (3, 2)), None, lambda x, w: correlate(x, w, "constant")),
    Case("stencil reflect", kernels.stencil, ((4, 5), (2, 3)), None, lambda x, w: correlate(x, w, "reflect"), {"mode": "reflect"}),
    Case(
        "stencil along axis 0", kernels.stencil, ((5, 3), (3,)), None, lambda x, w: correlate(x, w[:, None], "edge"),
        {"axes": 0, "mode": "edge"},
    ),
    Case("sobel", kernels.sobel, PLANE, None, lambda x: correlate(x, np.outer(MEAN, DIFFERENCE), "symmetric")),
    Case(
        "sobel axis 0", kernels.sobel, PLANE, "lambda x: F.conv2d(x[None, None], torch.tensor([[-1., -2, -1], [0, 0, 0], [1, 2, 1]],"
        " dtype=x.dtype)[None, None], padding=1)[0, 0]", lambda x: correlate(x, np.outer(DIFFERENCE, MEAN), "constant"),
        {"axis": 0, "mode": "constant"},
    ),
    Case("box_blur", kernels.box_blur, PLANE, None, lambda x: correlate(x, np.full((3, 3), 1 / 9), "reflect")),
    Case(
        "gaussian_blur", kernels.gaussian_blur, PLANE, None, lambda x: correlate(x, bell(0.8, 5), "edge"),
        {"sigma": 0.8, "size": 5, "mode": "edge"},
    ),
    Case(
        "gaussian_blur of known width", kernels.gaussian_blur, PLANE, None, lambda x: correlate(x, bell(0.25, 3), "wrap"),
        {"sigma": 0.25, "mode": "wrap"},
    ),
]  # fmt: skip
