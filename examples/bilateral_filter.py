"""A bilateral filter whose two parameters are fitted by gradient, with NumPy alone.

    python -m tensorexpr.examples.bilateral_filter

A bilateral filter takes a mean over the neighbors of a pixel, weighted by how near they are and by how alike: noise goes, edges
stay. How near and how alike is usually tried out by hand. Here the filter is written as index mathematics, so there is a
gradient by its two widths (and by the image, if one wants it), and they are fitted to a pair of a noisy and a clean image.
"""

from __future__ import annotations

import argparse

import numpy as np

import tensorexpr as te


@te.op
def bilateral(image: te.Tensor, widths: te.Tensor, *, radius: int = 3) -> te.Tensor:
    """The filtered image; `widths` holds the logarithms of the width in pixels and of the width in brightness."""
    n, m = image.shape
    size = 2 * radius + 1
    near = te.compute((), lambda: 0.5 * te.exp(-2.0 * widths[0]))
    alike = te.compute((), lambda: 0.5 * te.exp(-2.0 * widths[1]))

    def neighbor(i: te.Scalar, j: te.Scalar, a: te.Scalar, b: te.Scalar) -> te.Scalar:
        return image.read(i + a - radius, j + b - radius, outside="reflect")

    def weight(i: te.Scalar, j: te.Scalar, a: te.Scalar, b: te.Scalar) -> te.Scalar:
        away = te.cast((a - radius) ** 2 + (b - radius) ** 2, image.dtype)
        return te.exp(-away * near[()] - te.square(neighbor(i, j, a, b) - image[i, j]) * alike[()])

    return te.compute(
        (n, m),
        lambda i, j: (
            te.sum(lambda a, b: weight(i, j, a, b) * neighbor(i, j, a, b), (size, size))
            / te.sum(lambda a, b: weight(i, j, a, b), (size, size))
        ),
    )


@te.op
def error(widths: te.Tensor, noisy: te.Tensor, clean: te.Tensor, *, radius: int = 3) -> te.Tensor:
    """Mean square of what the filter leaves over."""
    n, m = clean.shape
    filtered = bilateral(noisy, widths, radius=radius)
    return te.compute((), lambda: te.sum(lambda i, j: te.square(filtered[i, j] - clean[i, j]), (n, m)) / (n * m))


def made_images(size: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A clean image of discs on a slope, and the same with noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    clean = 0.3 * x + 0.1 * np.sin(6 * y)
    for _ in range(6):
        a, b, r = rng.random(3)
        clean = clean + (rng.random() - 0.3) * ((x - a) ** 2 + (y - b) ** 2 < (0.05 + 0.2 * r) ** 2)
    return clean, clean + noise * rng.standard_normal(clean.shape)


def decibels(mean_square: float) -> float:
    """The ratio of signal to noise for an image between 0 and 1."""
    return float(-10 * np.log10(mean_square))


def fit(noisy: np.ndarray, clean: np.ndarray, steps: int, start: tuple[float, float] = (1.0, 1.0)) -> tuple[np.ndarray, list[float]]:
    """Logarithms of the widths after so many steps of Adam, and the error before each."""
    descend = te.value_and_grad(error, wrt="widths")
    widths, mean, square, errors = np.log(np.array(start)), np.zeros(2), np.zeros(2), []
    for step in range(1, steps + 1):
        value, slope = descend(widths, noisy, clean)
        errors.append(float(value))
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        widths = widths - 0.1 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
    return widths, errors


def main(arguments: list[str] | None = None) -> int:
    """Fits on one image, and tries the filter on another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--noise", type=float, default=0.08)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    clean, noisy = made_images(options.size, options.noise, options.seed)
    te.check_gradient(error, np.log([1.0, 0.5]), noisy[:8, :8], clean[:8, :8])
    widths, errors = fit(noisy, clean, options.steps)
    for step in range(0, options.steps, max(1, options.steps // 6)):
        print(f"step {step:3d}  {decibels(errors[step]):.2f} dB")
    print(f"widths {np.exp(widths[0]):.2f} pixels, {np.exp(widths[1]):.3f} in brightness")
    other, other_noisy = made_images(options.size, options.noise, options.seed + 1)
    before = decibels(float(np.mean((other_noisy - other) ** 2)))
    after = decibels(float(error(widths, other_noisy, other)))
    print(f"another image: {before:.2f} dB noisy, {after:.2f} dB filtered")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
