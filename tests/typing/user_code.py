"""A user's file as an editor sees it: `scripts/typecheck.sh` checks it with `mypy --strict` against the installed package.

Each line of `wrong` has a mistake that must be an error: under `--strict` a remark that ignores nothing is one, too. Nothing here runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.graph import layers, optimizers, rates


@te.op
def conv1d(x: te.Tensor, w: te.Tensor, *, stride: int = 2) -> te.Tensor:
    (n, c, l), (k, _, r) = x.shape, w.shape
    return te.compute((n, k, (l - r) // stride + 1), lambda n, k, o: te.sum(lambda c, i: x[n, c, stride * o + i] * w[k, c, i], (c, r)))


@te.op(differentiable=False)
def mask(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: te.where(x[i] > 0, 1.0, 0.0))


@te.op(gradient=lambda output, inputs, head: [head])
def rounded(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i: te.round(x[i]), name="rounded")


class Net(te.Module):
    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.hidden = layers.Linear(4, 2, rng)
        self.optimizer = optimizers.AdamW(self.trainable_variables, rates.Cosine(3e-3, 10), clip_norm=1.0)

    @te.function
    def __call__(self, x: Any) -> Any:
        return kernels.relu(self.hidden(x))


def ops(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> te.Op:
    y = conv1d(x, w, stride=2)
    x_bar, w_bar = te.vjp(conv1d, wrt=("x", "w"))(x, w, y)
    value, slope = te.value_and_grad(rounded)(x)
    check = te.check_gradient(rounded, np.ones(3))
    print(x_bar, w_bar, value, slope, mask(x), check.reverse - check.numeric)
    result = te.tune(conv1d, [((8, 3, 32), "float32"), ((16, 3, 5), "float32")], budget=1)
    print(result.speedup)
    return te.grad(rounded)


def looks(a: te.Tensor) -> str:
    low, high = te.compute((4,), lambda i: (a[i], a[i] > 0), name=("low", "high"))
    f = te.build([low, high], [a])
    profile = f.profile(np.ones(4, np.float32), seconds=0.1)
    times = [row.nanoseconds + 1.0 for row in profile.kernels if row.name.startswith("low")]
    report = te.gradient(low, a, te.placeholder((4,), name="head")).report()
    rows = [row.lowering.upper() for row in report.rows]
    try:
        f(np.ones(5))
    except te.ArgumentError as error:
        rows += [error.message, error.hint or ""]
    te.export("model", forward=f)
    te.save_state(Net(np.random.default_rng(0)), "state.safetensors")
    return f.source("nest") + str(times) + str(rows) + str(profile.save("profile.html")) + te.latex(te.program_of([low]))


def right() -> te.CompiledFunction:
    n = te.dim("n")
    a = te.placeholder((n, 5), "float32", name="A")
    b = te.placeholder((5, 3), name="B")
    c = te.compute((n, 3), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 5), name="C")
    head = te.placeholder(c.shape, name="head")
    gradients: te.Gradient = te.gradient(c, [a, b], head)
    schedule: te.Schedule = te.schedule(c, target="cpu")
    outer, inner = schedule[c].split("i", 4, tail="guard")
    schedule[c].reorder(outer, "j", inner)
    built: te.CompiledFunction = te.build([c, *gradients], [a, b, head], target="cpu", precision="float32")
    scalar: te.Scalar = te.where(a[0, 0] > 0, te.exp(a[0, 0]), 0.0) + a.read(-1, 0, outside="clamp")
    print(scalar.dtype, inner)
    return built


def wrong(a: te.Tensor, c: te.Tensor) -> None:
    te.build(c, [a], traget="cpu")  # type: ignore[call-arg]
    te.build(c, [a], "cpu", "float32")  # type: ignore[call-arg]
    te.build(c, [a], target=1)  # type: ignore[arg-type]
    te.compute((4,), lambda i: a[i], nam="C")  # type: ignore[call-overload]
    te.compute((4,), lambda i: a)  # type: ignore[arg-type, return-value]
    te.op(conv1d, gradent=None)  # type: ignore[call-overload]
    te.build(c).profle()  # type: ignore[attr-defined]
    te.sum(lambda k: a[k], axis=0)  # type: ignore[call-arg]
    te.sum(lambda k: a[k])  # type: ignore[call-arg]
    te.gradient(c, [a], heads=None)  # type: ignore[call-arg]
    te.placeholder((4,), dtpye="float32")  # type: ignore[call-arg]
    te.schedule(c)[c].split("i", factr=4)  # type: ignore[call-arg]
    a.read(0, mode="clamp")  # type: ignore[call-arg]
    te.palceholder((4,))  # type: ignore[attr-defined]
    _ = a.shpe  # type: ignore[attr-defined]
    te.schedule(c)[c].paralel("i")  # type: ignore[attr-defined]
