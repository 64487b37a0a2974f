"""Logistic regression with NumPy alone: the loss as index mathematics, its gradient and its curvature derived and compiled.

    python -m tensorexpr.examples.logistic_regression

The data are made here: points in ten dimensions with labels drawn from a known logistic model, so that the fit can be compared
with the truth. It is found by Newton's method. What that needs is a gradient and products of the Hessian with vectors; both
come from the one definition of the loss, and no matrix of second derivatives is ever stored.
"""

from __future__ import annotations

import argparse

import numpy as np

import tensorexpr as te


@te.op
def loss(w: te.Tensor, x: te.Tensor, y: te.Tensor, *, penalty: float = 1e-3) -> te.Tensor:
    """Mean of log(1 + exp(-y s)) over the points, s = x w, labels y of -1 or 1, plus penalty |w|^2 / 2."""
    n, d = x.shape
    margin = te.compute((n,), lambda i: y[i] * te.sum(lambda k: x[i, k] * w[k], d))
    # log(1 + exp(-m)), smooth everywhere: formulas with max(-m, 0) have no curvature at m = 0, where the search begins.
    points = te.sum(lambda i: -te.log(te.sigmoid(margin[i])), n)
    return te.compute((), lambda: points / n + 0.5 * penalty * te.sum(lambda k: w[k] ** 2, d))


def made_data(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, labels, and the weights that the labels were drawn with."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    probability = 1 / (1 + np.exp(-x @ w))
    return x, np.where(rng.random(n) < probability, 1.0, -1.0), w


gradient = te.grad(loss, wrt="w")
value_and_gradient = te.value_and_grad(loss, wrt="w")


def curvature(w: np.ndarray, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The Hessian of the loss by `w`, times `v`: the tangent of the gradient."""
    product: np.ndarray = te.jvp(gradient)(w, x, y, v, np.zeros_like(x), np.zeros_like(y))
    return product


def newton_step(w: np.ndarray, x: np.ndarray, y: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The solution of H s = slope by conjugate gradients."""
    step, rest = np.zeros_like(w), slope.copy()
    direction, square = rest.copy(), rest @ rest
    enough = 1e-24 * square
    for _ in range(len(w)):
        if square <= enough:
            break
        image = curvature(w, x, y, direction)
        length = square / (direction @ image)
        step, rest = step + length * direction, rest - length * image
        square, before = rest @ rest, square
        direction = rest + square / before * direction
    return step


def fit(x: np.ndarray, y: np.ndarray, steps: int) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Weights, and loss and length of the gradient before every step."""
    w, history = np.zeros(x.shape[1]), []
    for _ in range(steps):
        value, slope = value_and_gradient(w, x, y)
        history.append((float(value), float(np.linalg.norm(slope))))
        w = w - newton_step(w, x, y, slope)
    return w, history


def main(arguments: list[str] | None = None) -> int:
    """Fits, and prints how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    x, y, truth = made_data(options.points, 10, options.seed)
    w, history = fit(x, y, options.steps)
    for step, (value, slope) in enumerate(history):
        print(f"step {step}  loss {value:.6f}  gradient {slope:.1e}")
    print(f"accuracy {np.mean(np.sign(x @ w) == y):.3f}, with the true weights {np.mean(np.sign(x @ truth) == y):.3f}")
    print(f"weights off by {np.linalg.norm(w - truth) / np.linalg.norm(truth):.3f} of their length")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
