"""Exports a small trained model for the C program beside this file: `python export_model.py FOLDER`.

Two layers tell apart two spirals of points. The weights are learned with gradients that tensorexpr derives, then frozen: the
bundle has them as constants, and a function of points alone. The batch is open, so C calls it with any number of points.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tensorexpr as te

HIDDEN, STEPS, RATE = 32, 1500, 0.3


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, and which of the two each is on (-1 or 1)."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, count) * 2 - 1
    turn = rng.uniform(0.25, 1.0, count)
    angle = 2 * np.pi * turn + np.pi * (side > 0)
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) + rng.normal(0, 0.01, (count, 2))
    return (2 * points).astype(np.float32), side.astype(np.float32)


def model(n: object) -> tuple[te.Tensor, list[te.Tensor], te.Tensor]:
    """Points, weights, and a score per point: above zero is the second spiral."""
    points = te.placeholder((n, 2), name="points")
    w1 = te.placeholder((2, HIDDEN), path="layers.0.w", initial=te.initial.normal(0, 2.0))
    b1 = te.placeholder((HIDDEN,), path="layers.0.b", initial=te.initial.uniform(-2, 2))
    w2 = te.placeholder((HIDDEN,), path="layers.1.w", initial=te.initial.normal(0, 0.3))
    hidden = te.compute((n, HIDDEN), lambda i, j: te.tanh(te.sum(lambda k: points[i, k] * w1[k, j], 2) + b1[j]), name="hidden")
    score = te.compute((n,), lambda i: te.sum(lambda j: hidden[i, j] * w2[j], HIDDEN), name="score")
    return points, [w1, b1, w2], score


def trained(count: int = 256) -> te.Context:
    """A context with weights that tell the spirals apart."""
    points, weights, score = model(count)
    side = te.placeholder((count,), name="side")
    loss = te.compute((), lambda: te.sum(lambda i: te.log1p(te.exp(-side[i] * score[i])), count) / count, name="loss")
    slopes = te.gradient(loss, weights)
    updates = {w: te.compute(w.shape, lambda *i, w=w, g=g: w[i] - RATE * g[i]) for w, g in zip(weights, slopes, strict=True)}
    step = te.compile(loss, [points, side, *weights], mode="training", updates=updates)
    context = step.context().initialize(seed=1)
    data, sides = spirals(count, seed=0)
    for _ in range(STEPS):
        step.run(context, points=data, side=sides)
    return context


def main(folder: Path) -> None:
    points, weights, score = model(te.dim("n"))
    frozen = te.freeze(score, trained(), inputs=[points, *weights])
    path = te.export(folder, score=te.compile(frozen), cpus=("host", "x86-64-v3", "x86-64-v2"))
    print(f"exported to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "spirals"))
