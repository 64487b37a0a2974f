"""Halide pipelines of the workloads, compiled ahead of time to shared libraries, each in a process of its own.

`python -m tensorexpr.benchmarks.peers.halide_build REQUEST`, a JSON object: the workload's key, static arguments, shapes,
whether gradients are wanted, autoscheduler (or null), threads, and the path of the library. An autoscheduler that fails, or that
makes code which fails, ends that process and nothing else. Needs a C compiler (as `cc`) to link.

Definitions are written in the order of NumPy's axes (Halide's is the reverse). Gradients are Halide's own, by
`propagate_adjoints`.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from tensorexpr.benchmarks.peers import halide_call

Shape = tuple[int, ...]


class Array:
    """A function of integers with its extents; indices stand in NumPy's order."""

    def __init__(self, func: Any, shape: Shape) -> None:
        self.func, self.shape = func, shape

    def __getitem__(self, at: Any) -> Any:
        return self.func[tuple(reversed(at if isinstance(at, tuple) else (at,)))]

    def bordered(self, how: Callable[..., Any], *value: Any) -> Array:
        """The array with a boundary condition."""
        ranges = [hl.Range(0, extent) for extent in reversed(self.shape)]
        return Array(how(self.func, *value, ranges), self.shape)

    @property
    def with_zeros(self) -> Array:
        """Zero outside."""
        return self.bordered(hl.BoundaryConditions.constant_exterior, hl.f32(0))

    @property
    def with_edge(self) -> Array:
        """The nearest element outside."""
        return self.bordered(hl.BoundaryConditions.repeat_edge)


def defined(name: str, shape: Shape, element: Callable[..., Any]) -> Array:
    """`array[i, j, ..] = element(i, j, ..)`."""
    at = [hl.Var(f"{name}_{k}") for k in range(len(shape))]
    func = hl.Func(name)
    func[tuple(reversed(at))] = element(*at)
    return Array(func, shape)


def reduced(
    name: str,
    shape: Shape,
    domain: Sequence[int],
    element: Callable[..., Any],
    start: float = 0.0,
    combine: Callable[..., Any] | None = None,
) -> Array:
    """The sum (or another reduction) of `element(i, j, .., r, s, ..)` over a domain, its last axis innermost."""
    at = [hl.Var(f"{name}_{k}") for k in range(len(shape))]
    points = hl.RDom([hl.Range(0, extent) for extent in reversed(domain)], f"{name}_r")
    inner = [points[len(domain) - 1 - k] for k in range(len(domain))]
    func = hl.Func(name)
    place = tuple(reversed(at))
    func[place] = hl.f32(start)
    term = element(*at, *inner)
    func[place] = func[place] + term if combine is None else combine(func[place], term)
    return Array(func, shape)


# --------------------------------------------------------------------------------------------------------- definitions


def _matmul(a: Array, b: Array) -> Array:
    return reduced("c", (a.shape[0], b.shape[1]), a.shape[1:], lambda i, j, r: a[i, r] * b[r, j])


def _matmul_at(a: Array, b: Array) -> Array:
    return reduced("c", (a.shape[1], b.shape[1]), a.shape[:1], lambda i, j, r: a[r, i] * b[r, j])


def _matmul_bt(a: Array, b: Array) -> Array:
    return reduced("c", (a.shape[0], b.shape[0]), a.shape[1:], lambda i, j, r: a[i, r] * b[j, r])


def _bmm(a: Array, b: Array) -> Array:
    return reduced("c", (*a.shape[:2], b.shape[2]), a.shape[2:], lambda t, i, j, r: a[t, i, r] * b[t, r, j])


def _extent(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def _conv2d(x: Array, w: Array, padding: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> Array:
    (n, _, h, l), (k, inner, r, s) = x.shape, w.shape
    padded = x.with_zeros
    shape = (n, k, _extent(h, r, stride, padding, dilation), _extent(l, s, stride, padding, dilation))
    return reduced(
        "conv",
        shape,
        (inner, r, s),
        lambda n, k, y, z, c, i, j: (
            padded[n, k if groups > 1 else c, y * stride + i * dilation - padding, z * stride + j * dilation - padding] * w[k, c, i, j]
        ),
    )


def _conv2d_nhwc(x: Array, w: Array, padding: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> Array:
    (n, h, l, _), (r, s, inner, k) = x.shape, w.shape
    padded = x.with_zeros
    shape = (n, _extent(h, r, stride, padding, dilation), _extent(l, s, stride, padding, dilation), k)
    return reduced(
        "conv",
        shape,
        (r, s, inner),
        lambda n, y, z, k, i, j, c: (
            padded[n, y * stride + i * dilation - padding, z * stride + j * dilation - padding, k if groups > 1 else c] * w[i, j, c, k]
        ),
    )


def _softmax(x: Array) -> Array:
    n, m = x.shape
    top = reduced("top", (n,), (m,), lambda i, r: x[i, r], -3e38, hl.max)
    e = defined("e", (n, m), lambda i, j: hl.exp(x[i, j] - top[i]))
    total = reduced("total", (n,), (m,), lambda i, r: e[i, r])
    return defined("y", (n, m), lambda i, j: e[i, j] / total[i])


def _scale_gelu(x: Array, a: Array, b: Array) -> Array:
    def gelu(y: Any) -> Any:
        return y / (hl.f32(1) + hl.exp(hl.f32(-2 * 0.7978845608) * (y + hl.f32(0.044715) * y * y * y)))

    return defined("y", x.shape, lambda i: gelu(a[()] * x[i] + b[()]))


def _gaussian_product(x: Array, y: Array, b: Array) -> Array:
    def square(i: Any, j: Any) -> Any:
        return sum(((x[i, d] - y[j, d]) * (x[i, d] - y[j, d]) for d in range(1, x.shape[1])), (x[i, 0] - y[j, 0]) * (x[i, 0] - y[j, 0]))

    return reduced("z", (x.shape[0], b.shape[1]), y.shape[:1], lambda i, c, j: hl.exp(-square(i, j)) * b[j, c])


def _pool_shape(x: Array, kernel_size: int, step: int) -> Shape:
    n, c, h, l = x.shape
    return n, c, (h - kernel_size) // step + 1, (l - kernel_size) // step + 1


def _max_pool2d(x: Array, kernel_size: int, stride: int | None = None) -> Array:
    """One expression: gradients of maxima that are updated step by step cannot be taken."""
    step = stride or kernel_size

    def window(n: Any, c: Any, y: Any, z: Any) -> Any:
        places = [(i, j) for i in range(kernel_size) for j in range(kernel_size)]
        return functools.reduce(hl.max, (x[n, c, y * step + i, z * step + j] for i, j in places))

    return defined("y", _pool_shape(x, kernel_size, step), window)


def _avg_pool2d(x: Array, kernel_size: int, stride: int | None = None) -> Array:
    step = stride or kernel_size
    shape = _pool_shape(x, kernel_size, step)
    total = reduced("total", shape, (kernel_size,) * 2, lambda n, c, y, z, i, j: x[n, c, y * step + i, z * step + j])
    return defined("y", shape, lambda *at: total[at] * hl.f32(1 / kernel_size**2))


def _interpolate(x: Array, scale_factor: int, mode: str) -> Array:
    """Bilinear by two: each result is 3/4 of the nearest and 1/4 of the next one."""
    del scale_factor, mode
    n, c, h, l = x.shape
    edge = x.with_edge

    def wide(n: Any, c: Any, y: Any, z: Any) -> Any:
        return hl.f32(0.75) * edge[n, c, y, z / 2] + hl.f32(0.25) * edge[n, c, y, z / 2 + 2 * (z % 2) - 1]

    across = defined("across", (n, c, h, 2 * l), wide)
    near = Array(across.func, across.shape)
    return defined(
        "y",
        (n, c, 2 * h, 2 * l),
        lambda n, c, y, z: hl.f32(0.75) * near[n, c, y / 2, z] + hl.f32(0.25) * near[n, c, y / 2 + 2 * (y % 2) - 1, z],
    )


def _heat(u: Array) -> Array:
    h, l = u.shape
    for step in range(10):
        v = u

        def element(i: Any, j: Any, v: Array = v) -> Any:
            y, z = hl.clamp(i, 1, h - 2), hl.clamp(j, 1, l - 2)
            near = v[y - 1, z] + v[y + 1, z] + v[y, z - 1] + v[y, z + 1]
            moved = v[i, j] + hl.f32(0.2) * (near - hl.f32(4) * v[i, j])
            return hl.select((i > 0) & (i < h - 1) & (j > 0) & (j < l - 1), moved, v[i, j])

        u = defined(f"u{step}", (h, l), element)
    return u


def _cumsum(x: Array, axis: int) -> Array:
    n, m = x.shape
    y = defined("y", (n, m), lambda i, j: x[i, j])
    points = hl.RDom([hl.Range(1, m - 1)], "y_r")
    i = hl.Var("y_0")
    y.func[points.x, i] = y.func[points.x, i] + y.func[points.x - 1, i]
    del axis
    return y


def _correlation(a: Array, b: Array) -> Array:
    c, h, l = a.shape
    padded = b.with_zeros
    total = reduced("total", (9, 9, h, l), (c,), lambda u, v, y, z, k: a[k, y, z] * padded[k, y + u - 4, z + v - 4])
    return defined("y", (9, 9, h, l), lambda *at: total[at] * hl.f32(1 / c))


def _bilateral(x: Array) -> Array:
    edge = x.with_edge

    def weight(i: Any, j: Any, r: Any, s: Any) -> Any:
        d = edge[i + r - 4, j + s - 4] - x[i, j]
        return hl.exp(hl.f32(-0.5) * d * d - hl.f32(0.05) * hl.f32((r - 4) * (r - 4) + (s - 4) * (s - 4)))

    total = reduced("total", x.shape, (9, 9), weight)
    value = reduced("value", x.shape, (9, 9), lambda i, j, r, s: weight(i, j, r, s) * edge[i + r - 4, j + s - 4])
    return defined("y", x.shape, lambda i, j: value[i, j] / total[i, j])


PIPELINES: dict[str, Callable[..., Array]] = {
    "matmul": _matmul,
    "matmul_at": _matmul_at,
    "matmul_bt": _matmul_bt,
    "bmm": _bmm,
    "conv2d": _conv2d,
    "conv2d_nhwc": _conv2d_nhwc,
    "softmax": _softmax,
    "scale_gelu": _scale_gelu,
    "gaussian_product": _gaussian_product,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "interpolate": _interpolate,
    "heat": _heat,
    "cumsum": _cumsum,
    "correlation": _correlation,
    "bilateral": _bilateral,
}


# ------------------------------------------------------------------------------------------------------------ compiling


def _parameter(name: str, shape: Sequence[int], gradient: bool) -> tuple[Any, Array]:
    """An input of the pipeline, and a function of it: zero outside where gradients are taken, as their bounds are not tight."""
    parameter = hl.ImageParam(hl.Float(32), len(shape), name)
    for axis, extent in enumerate(reversed(shape)):
        parameter.dim(axis).set_bounds(0, extent)
        parameter.dim(axis).set_estimate(0, extent)
    at = tuple(hl.Var(f"{name}_{k}") for k in range(len(shape)))
    func = hl.Func(f"{name}_f")
    func[at] = (hl.BoundaryConditions.constant_exterior(parameter, hl.f32(0)) if gradient and shape else parameter)[at]
    return parameter, Array(func, tuple(shape))


def pipeline(
    key: str, static: dict[str, Any], shapes: Sequence[Sequence[int]], gradient: bool, copied: bool = False
) -> tuple[list[Array], list[Any]]:
    """Outputs and inputs of the pipeline: the output, and with `gradient` (then the last input is the head) those by every input.

    Where its derivatives scatter, Halide asks for more of a gradient than there is: such gradients are `copied` from arrays of its own.
    """
    inputs = [_parameter(f"x{k}", shape, gradient) for k, shape in enumerate(shapes)]
    output = PIPELINES[key](*(array for _, array in inputs), **static)
    outputs = [output]
    if gradient:
        head, adjoint = _parameter("head", output.shape, True)
        ranges = [hl.Range(0, extent) for extent in reversed(output.shape)]
        derivative = hl.propagate_adjoints(output.func, adjoint.func, ranges)
        gradients = [Array(derivative[array.func], array.shape) for _, array in inputs]
        if copied:
            gradients = [defined(f"g{k}", array.shape, lambda *at, of=array: of[at]) for k, array in enumerate(gradients)]
        outputs += gradients
        inputs.append((head, adjoint))
    for array in outputs:
        array.func.set_estimates([hl.Range(0, extent) for extent in reversed(array.shape)])
    return outputs, [parameter for parameter, _ in inputs]


@functools.cache
def _plugin(name: str) -> None:
    hl.load_plugin(str(Path(hl.__file__).parent / "lib64" / f"libautoschedule_{name.lower()}.so"))


def build(request: dict[str, Any]) -> None:
    """Schedules, compiles and links what a request asks for, and calls it once; beside the library stand the shapes of its results."""
    try:
        _build(request, False)
    except RuntimeError:
        if not request["gradient"]:
            raise
        _build(request, True)


def _build(request: dict[str, Any], copied: bool) -> None:
    target = hl.get_host_target()
    outputs, inputs = pipeline(request["key"], request["static"], request["shapes"], request["gradient"], copied)
    made = hl.Pipeline([array.func for array in outputs])
    if request["scheduler"] is not None:
        _plugin(request["scheduler"])
        made.apply_autoscheduler(target, hl.AutoschedulerParams(request["scheduler"], {"parallelism": str(request["threads"])}))
    library = Path(request["library"])
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        code, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        made.compile_to({hl.OutputFileType.object: str(code)}, inputs, "kernel", target)
        subprocess.run(["cc", "-shared", "-o", str(linked), str(code), "-lpthread", "-ldl", "-lm"], check=True)
        shapes = [array.shape for array in outputs]
        given = [*request["shapes"], *(shapes[:1] if request["gradient"] else [])]
        halide_call.caller(linked, [np.zeros(shape, np.float32) for shape in given], shapes)()
        library.with_suffix(".json").write_text(json.dumps(shapes))
        linked.replace(library)


if __name__ == "__main__":
    build(json.loads(sys.argv[1]))
