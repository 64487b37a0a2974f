"""What the GPU benchmark measures: workloads of the size of a GPU first, most telling first, then those of the CPU benchmark.

The same at sizes of a few elements for tests on the CPU. A workload says what beyond its `Spec` matters on a GPU: the precision that
multiplications of float32 may have, how many rows are compared where float64 would take too long, and which peers can do it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks import operations, workloads
from tensorexpr.benchmarks.spec import Spec

SCATTERS = ("embedding", "max_pool2d", "avg_pool2d", "interpolate", "grid_sample")
"""Keys whose gradients add to places that collide."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A spec on a GPU. `precision` is an argument of `te.build` where it is given. `checked`: so many first rows of the result, and of
    the gradient by the first input, each of which depends on its own row of the first input alone, are compared; None: all results.
    `alone`: no peer can do it in the time that there is. `open_`: ours is compiled for any size, equal extents being one."""

    spec: Spec
    precision: str | None = None
    checked: int | None = None
    alone: bool = False
    open_: bool = False

    def placeholders(self) -> list[te.Tensor]:
        """One input for each array."""
        if not self.open_:
            return self.spec.placeholders()
        dims: dict[int, Any] = {}
        shapes = [(tuple(dims.setdefault(n, te.dim(f"n{n}")) for n in shape), dtype) for shape, dtype in self.spec.shapes()]
        return [te.placeholder(shape, dtype, name=f"x{k}") for k, (shape, dtype) in enumerate(shapes)]

    def defined(self, gradient: bool) -> tuple[list[te.Tensor], list[te.Tensor]]:
        """What is computed, and its inputs: the operation, or it and its gradients."""
        inputs = self.placeholders()
        results = self.spec.op(*inputs, **self.spec.static)
        if not gradient:
            return [results], inputs
        given = te.placeholder(results.shape, results.dtype.name, name="head")
        return [results, *te.gradient(results, [t for t in inputs if t.dtype.is_float], given)], [*inputs, given]

    def sizes(self) -> dict[str, int]:
        """What the open extents are."""
        return {f"n{n}": n for shape, _ in self.spec.shapes() for n in shape} if self.open_ else {}

    @property
    def scatters(self) -> bool:
        """Whether a gradient may be a scatter, so that PyTorch's deterministic mode is a peer of its own."""
        return self.spec.key in SCATTERS or (self.spec.key == "conv2d" and self.spec.static.get("stride", 1) != 1)


@te.op
def copy(x: te.Tensor) -> te.Tensor:
    """x again."""
    return te.compute(x.shape, lambda i: x[i])


@te.op
def transpose(x: te.Tensor) -> te.Tensor:
    """The matrix with its rows as columns."""
    n, m = x.shape
    return te.compute((m, n), lambda i, j: x[j, i])


def all_of(tiny: bool) -> list[Workload]:
    """Everything, in the order in which it is measured."""
    large = [*_copies(tiny), *_gemms(tiny), *_rows(tiny), *_worst(tiny), *_scatters(tiny), *_convolutions(tiny), *_fused(tiny)]
    return [*large, *(Workload(spec) for spec in workloads.specs(tiny))]


def _copies(tiny: bool) -> Iterator[Workload]:
    for power in (6,) if tiny else (27, 24):
        length = 1 << power
        yield Workload(Spec(f"copy 2^{power}", "memory", "copy", copy, ((length,),), float(length), 8.0 * length, differentiable=False))


def _gemms(tiny: bool) -> Iterator[Workload]:
    for side in (9, 16) if tiny else (4096, 8192):
        shapes, work, elements = ((side, side),) * 2, 2.0 * side**3, 3.0 * side**2
        name = f"gemm {side}^3"
        yield Workload(Spec(f"{name} fp32", "contraction", "matmul", operations.matmul, shapes, work, 4 * elements))
        half = Spec(
            f"{name} bf16", "contraction", "matmul", operations.matmul, shapes, work, 2 * elements, tolerance=1e-3, dtype="bfloat16"
        )
        yield Workload(half)
        rounded = Spec(f"{name} tf32", "contraction", "matmul", operations.matmul, shapes, work, 4 * elements, tolerance=3e-4)
        yield Workload(rounded, precision="tf32")


def _rows(tiny: bool) -> Iterator[Workload]:
    row = (5, 40) if tiny else (16384, 8192)
    size, elements = f"{row[0]}x{row[1]}", float(np.prod(row))
    yield Workload(Spec(f"softmax {size}", "memory", "softmax", kernels.softmax, (row,), 5 * elements, 8 * elements))
    weights = (row[1:], row[1:])
    yield Workload(Spec(f"layer norm {size}", "memory", "layer_norm", kernels.layer_norm, (row, *weights), 8 * elements, 8 * elements))
    yield Workload(Spec(f"RMS norm {size}", "memory", "rms_norm", kernels.rms_norm, (row, row[1:]), 4 * elements, 8 * elements))


def _worst(tiny: bool) -> Iterator[Workload]:
    """Rows that the audit predicts to be far from what a GPU can do: extents that no tile divides, open ones, few rows, long sums,
    transpositions, attention and convolutions of 16-bit floats."""
    products = {
        "any size fp32": ((9, 10), (10, 11), "float32") if tiny else ((4096, 4000), (4000, 4104), "float32"),
        "any size bf16": ((9, 10), (10, 11), "bfloat16") if tiny else ((4096, 4000), (4000, 4104), "bfloat16"),
        "odd depth bf16": ((16, 9), (9, 16), "bfloat16") if tiny else ((4096, 4100), (4100, 4096), "bfloat16"),
        "16 rows bf16": ((2, 16), (16, 16), "bfloat16") if tiny else ((16, 4096), (4096, 4096), "bfloat16"),
        "256x256x8192 bf16": ((4, 40), (40, 4), "bfloat16") if tiny else ((256, 8192), (8192, 256), "bfloat16"),
    }
    for label, (a, b, dtype) in products.items():
        work, size = 2.0 * a[0] * a[1] * b[1], 4 if dtype == "float32" else 2
        moved = float(size * (a[0] * a[1] + b[0] * b[1] + a[0] * b[1]))
        tolerance = 1e-4 if dtype == "float32" else 1e-2
        spec = Spec(f"gemm {label}", "contraction", "matmul", operations.matmul, (a, b), work, moved, tolerance=tolerance, dtype=dtype)
        yield Workload(spec, open_="any size" in label)
    side = 12 if tiny else 8192
    yield Workload(Spec(f"transpose {side}", "memory", "transpose", transpose, ((side, side),), 0.0, 8.0 * side**2, differentiable=False))
    batch, length, inner = (2, 24, 8) if tiny else (32, 2048, 64)
    shapes: tuple[Any, ...] = ((batch, length, inner),) * 3
    op, static = kernels.scaled_dot_product_attention, {"is_causal": True}
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        work, moved = 2.0 * batch * length * length * inner, 4.0 * size * batch * length * inner
        name = f"causal attention {batch}x{length}x{inner} {dtype}"
        yield Workload(
            Spec(name, "fused", "attention", op, shapes, work, moved, static, tolerance=2e-2 if size == 2 else 1e-4, dtype=dtype)
        )
    n, c, pixels = (2, 4, 6) if tiny else (32, 256, 56)
    shapes = ((n, c, pixels, pixels), (c, c, 3, 3))
    work, moved = 2.0 * n * pixels**2 * c * c * 9, 2.0 * (2 * n * c * pixels**2 + 9 * c * c)
    name = f"conv 3x3 {n}x{c}x{pixels}x{pixels} bf16"
    yield Workload(
        Spec(name, "contraction", "conv2d", kernels.conv2d, shapes, work, moved, {"padding": 1}, tolerance=2e-2, dtype="bfloat16")
    )


def _scatters(tiny: bool) -> Iterator[Workload]:
    rows, inner, ids = (10, 4, 7) if tiny else (50000, 256, 1 << 18)
    for label, chosen in (("uniform", ((ids,), rows)), ("equal", np.full(ids, 7))):
        arrays: tuple[Any, ...] = (chosen, (rows, inner))
        moved = 8.0 * ids * inner
        yield Workload(Spec(f"embedding {rows}x{inner}, {ids} {label}", "memory", "embedding", kernels.embedding, arrays, 0.0, moved))
    n, c, side = (2, 3, 6) if tiny else (32, 64, 112)
    picture, pixels = (n, c, side, side), float(n * c * side**2)
    size, overlapping = f"{n}x{c}x{side}x{side}", {"kernel_size": 3, "stride": 2}
    yield Workload(
        Spec(f"max-pool 3x3/2 {size}", "memory", "max_pool2d", kernels.max_pool2d, (picture,), 2.25 * pixels, 5 * pixels, overlapping)
    )
    yield Workload(
        Spec(f"average pool 3x3/2 {size}", "memory", "avg_pool2d", kernels.avg_pool2d, (picture,), 2.25 * pixels, 5 * pixels, overlapping)
    )
    twice = {"scale_factor": 2, "mode": "bilinear"}
    yield Workload(Spec(f"bilinear x2 {size}", "memory", "interpolate", kernels.interpolate, (picture,), 28 * pixels, 20 * pixels, twice))
    arrays, moved = (picture, _grid(n, side)), 8.0 * pixels + 8.0 * n * side**2
    yield Workload(Spec(f"grid sample {size}", "memory", "grid_sample", kernels.grid_sample, arrays, 14 * pixels, moved))


def _grid(n: int, side: int) -> np.ndarray:
    """Places all over the picture and a little beyond, a quarter of a pixel at least from where the gradient jumps."""
    rng = np.random.default_rng(2)
    place = rng.integers(-2, side + 2, (n, side, side, 2)) + rng.uniform(0.25, 0.75, (n, side, side, 2))
    return ((2 * place + 1) / side - 1).astype(np.float32)


def _convolutions(tiny: bool) -> Iterator[Workload]:
    n, c, side = (2, 4, 6) if tiny else (32, 256, 56)
    shapes: tuple[Any, ...] = ((n, c, side, side), (c, c, 3, 3))
    for label, stride in (("", 1), (" stride 2", 2)):
        pixels = n * (side // stride) ** 2
        work, moved = 2.0 * pixels * c * c * 9, 4.0 * (c * (n * side**2 + pixels) + 9 * c * c)
        static = {"padding": 1, **({"stride": stride} if stride > 1 else {})}
        name = f"conv 3x3{label} {n}x{c}x{side}x{side}"
        yield Workload(Spec(name, "contraction", "conv2d", kernels.conv2d, shapes, work, moved, static))


def _fused(tiny: bool) -> Iterator[Workload]:
    length = 16 if tiny else 16384
    for inner in (4, 8) if tiny else (64, 128):
        work, moved = 4.0 * length * length * inner, 16.0 * length * inner
        shapes: tuple[Any, ...] = ((1, length, inner),) * 3
        op = kernels.scaled_dot_product_attention
        yield Workload(Spec(f"attention {length}x{inner}", "fused", "attention", op, shapes, work, moved, {"is_causal": False}))
    for points in (12, 14) if tiny else (100_000, 1_000_000):
        many = points in (14, 1_000_000)
        shapes = ((points, 3), (points, 3), (points, 1))
        op, work, moved = kernels.gaussian_product, 30.0 * points**2, 32.0 * points
        spec = Spec(f"Gaussian product {points}", "fused", "gaussian_product", op, shapes, work, moved, differentiable=not many)
        yield Workload(spec, checked=(4 if tiny else 256) if many else None, alone=many)
