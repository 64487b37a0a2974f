"""A user's file as an editor sees it: `scripts/typecheck.sh` checks it with `mypy --strict` against the installed package.

Each line of `wrong` has a mistake that must be an error: under `--strict` a remark that ignores nothing is one, too. Nothing here runs.
"""

from __future__ import annotations

import tensorexpr as te


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
    return built if isinstance(scalar, te.Scalar) else right()


def wrong(a: te.Tensor, c: te.Tensor) -> None:
    te.build(c, [a], traget="cpu")  # type: ignore[call-arg]
    te.build(c, [a], "cpu", "float32")  # type: ignore[call-arg]
    te.build(c, [a], target=1)  # type: ignore[arg-type]
    te.compute((4,), lambda i: a[i], nam="C")  # type: ignore[call-arg]
    te.sum(lambda k: a[k], axis=0)  # type: ignore[call-arg]
    te.sum(lambda k: a[k])  # type: ignore[call-arg]
    te.gradient(c, [a], heads=None)  # type: ignore[call-arg]
    te.placeholder((4,), dtpye="float32")  # type: ignore[call-arg]
    te.schedule(c)[c].split("i", factr=4)  # type: ignore[call-arg]
    a.read(0, mode="clamp")  # type: ignore[call-arg]
    te.palceholder((4,))  # type: ignore[attr-defined]
    _ = a.shpe  # type: ignore[attr-defined]
    te.schedule(c)[c].paralel("i")  # type: ignore[attr-defined]
