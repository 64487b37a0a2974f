"""Writes the CUDA text of a handful of programs to tests/codegen/cuda/golden, a file for each; a test compares.

Whoever changes the emitter or the default schedule of a GPU sees in the difference what becomes of kernels: `make docs` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.simplify import simplify

FOLDER = Path(__file__).parents[1] / "tests" / "codegen" / "cuda" / "golden"
Outputs = tuple[list[te.Tensor], list[te.Tensor]]


def elementwise() -> Outputs:
    """Sixteen bytes at a time."""
    x, y = te.placeholder((4096, 4096), name="x"), te.placeholder((4096, 4096), name="y")
    return [te.compute((4096, 4096), lambda i, j: te.tanh(x[i, j]) * y[i, j] + 1, name="z")], [x, y]


def softmax() -> Outputs:
    """A block per row, and its gradient."""
    x, g = te.placeholder((1024, 1000), name="x"), te.placeholder((1024, 1000), name="g")
    y = kernels.softmax(x)
    return [y, *te.gradient(y, [x], g)], [x, g]


def short_rows() -> Outputs:
    """A warp per row."""
    x = te.placeholder((8192, 200), name="x")
    return [kernels.softmax(x)], [x]


def gemm() -> Outputs:
    """Tiles through shared memory."""
    a, b = te.placeholder((1024, 1024), name="a"), te.placeholder((1024, 1024), name="b")
    return [te.compute((1024, 1024), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 1024), name="c")], [a, b]


def gemm_bfloat16() -> Outputs:
    """Tensor cores where the schedule chooses them."""
    a, b = te.placeholder((1024, 1024), "bfloat16", name="a"), te.placeholder((1024, 1024), "bfloat16", name="b")
    return [te.compute((1024, 1024), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 1024), name="c")], [a, b]


def gemm_hopper() -> Outputs:
    """The same by warpgroups, for sm_90a."""
    a, b = te.placeholder((4096, 4096), "bfloat16", name="a"), te.placeholder((4096, 4096), "bfloat16", name="b")
    return [te.compute((4096, 4096), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 4096), name="c")], [a, b]


def convolution() -> Outputs:
    """Both gradients of a convolution of stride 2."""
    x, w = te.placeholder((8, 32, 33, 33), name="x"), te.placeholder((64, 32, 3, 3), name="w")
    y = kernels.conv2d(x, w, stride=2)
    g = te.placeholder(y.shape, name="g")
    return te.gradient(y, [x, w], g), [x, w, g]


def segments() -> Outputs:
    """The gradient of a table by rows that data names."""
    table, ids = te.placeholder((1000, 64), name="table"), te.placeholder((5000,), "int64", name="ids")
    g = te.placeholder((5000, 64), name="g")
    y = te.compute((5000, 64), lambda i, d: table[ids[i], d], name="y")
    return te.gradient(y, [table], g), [table, ids, g]


def column_sums() -> Outputs:
    """Columns in parts."""
    x = te.placeholder((4096, 512), name="x")
    return [te.compute((512,), lambda j: te.sum(lambda i: x[i, j], 4096), name="y")], [x]


def open_extents() -> Outputs:
    """Sizes that are arguments."""
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((n, m), name="x")
    return [te.compute((n,), lambda i: te.sum(lambda j: x[i, j] * x[i, j], m), name="y")], [x]


GOLDENS = (elementwise, softmax, short_rows, gemm, gemm_bfloat16, gemm_hopper, convolution, segments, column_sums, open_extents)


def golden(make) -> str:
    """The CUDA text of a program on the default schedule, under its schedule as a remark."""
    outputs, inputs = make()
    s = autoschedule(simplify(te.program_of(outputs, inputs)), H200.running("sm_90a") if make is gemm_hopper else H200)
    steps = "".join(f"// {line}\n" for line in s.as_python().strip().splitlines() if line.startswith("s["))
    return f"// {make.__doc__}\n{steps}\n{emit(verify_nest(lower(s))).text}"


def main() -> None:
    """Writes all of them."""
    FOLDER.mkdir(exist_ok=True)
    for make in GOLDENS:
        (FOLDER / f"{make.__name__}.cu").write_text(golden(make))


if __name__ == "__main__":
    main()
