"""What the tests of derivatives have in common: brute-force counts of reads, exact Jacobians, costs counted on the IR."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

import tensorexpr as te
from tensorexpr.autodiff.api.gradient import Gradient
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Apply, Define, Expr, Program, Reduce, Scatter
from tensorexpr.language import program_of
from tensorexpr.regions import domain_of
from tensorexpr.traversal import children


def integers(tensor: te.Tensor, seed: int = 0) -> np.ndarray:
    """Small integers in the dtype of a tensor: sums and products of them are exact."""
    return np.random.default_rng(seed).integers(-4, 5, tensor.shape).astype(tensor.dtype.numpy)


def head_of(output: te.Tensor) -> te.Tensor:
    return te.placeholder(output.shape, output.dtype, name="H")


def gather_of(output: te.Tensor, wrt: Sequence[te.Tensor], head: te.Tensor) -> Gradient:
    """The gradient, checked bit for bit against the exact Jacobian (the output must be linear in each of `wrt`) and the scatter form."""
    gradient = te.gradient(output, wrt, head=head)
    forced = te.gradient(output, wrt, head=head, lowering="segments")
    arrays = {tensor: integers(tensor, seed) for seed, tensor in enumerate([*wrt, head])}
    for tensor, found, scattered in zip(wrt, gradient, forced, strict=True):
        value = te.evaluate(found, {t: a for t, a in arrays.items()})
        np.testing.assert_array_equal(value, te.evaluate(scattered, arrays))
        np.testing.assert_array_equal(value, by_unit_vectors(output, tensor, arrays, arrays[head]))
    return gradient


def by_unit_vectors(output: te.Tensor, tensor: te.Tensor, arrays: dict[te.Tensor, np.ndarray], head: np.ndarray) -> np.ndarray:
    """What `tensor` receives, one unit vector at a time; exact where the output is linear in it and the data are integers."""
    program = program_of([output], [t for t in arrays])
    names = [item.name for item in program.inputs]
    data = dict(zip(names, arrays.values(), strict=True))
    own = names[list(arrays).index(tensor)]
    zero = evaluate_program(program, data | {own: np.zeros_like(arrays[tensor])})[program.outputs[0]]
    result = np.zeros_like(arrays[tensor])
    for point in np.ndindex(*arrays[tensor].shape):
        unit = np.zeros_like(arrays[tensor])
        unit[point] = 1
        column = evaluate_program(program, data | {own: unit})[program.outputs[0]] - zero
        result[point] = (column * head).sum()
    return result


def weighted_sum(outputs: Sequence[te.Tensor]) -> te.Tensor:
    """A scalar to which every element of the outputs adds with a weight of its own."""
    rng = np.random.default_rng(11)
    parts = []
    for output in outputs:
        weight = te.constant(rng.uniform(0.5, 1.5, output.shape), name="weight")
        if output.ndim:
            parts.append(te.compute((), lambda y=output, w=weight: te.sum(lambda *at: y[at] * w[at], y.shape)))
        else:
            parts.append(te.compute((), lambda y=output, w=weight: y[()] * w[()]))
    return te.compute((), lambda: sum((part[()] for part in parts[1:]), parts[0][()]), name="loss")


def check_orders(
    output: te.Tensor | Sequence[te.Tensor],
    wrt: Sequence[te.Tensor],
    arrays: dict[te.Tensor, np.ndarray],
    order: int = 2,
    tolerance: float = 1e-6,
    compiled: bool = True,
) -> None:
    """Reverse and forward mode along one direction against central differences, of every order up to `order` (float64).

    The next order is the derivative of the reverse gradient times the direction, so it is reverse over reverse and forward over
    reverse; the tangent differentiated backwards (reverse over forward) is compared at the second order.
    """
    loss = weighted_sum([output] if isinstance(output, te.Tensor) else output)
    rng = np.random.default_rng(12)
    direction = {t: rng.standard_normal(arrays[t].shape) for t in wrt}
    tangents = [te.placeholder(t.shape, t.dtype, name=f"{t.name}_dot") for t in wrt]
    extra = dict(zip(tangents, direction.values(), strict=True))
    step = 1e-4

    def at(value: te.Tensor, distance: float) -> float:
        moved = {t: a + distance * direction[t] if t in direction else a for t, a in arrays.items()}
        return float(te.evaluate(value, moved | extra))

    def along(gradient: Sequence[te.Tensor]) -> te.Tensor:
        parts = []
        for slope, tangent in zip(gradient, tangents, strict=True):
            axes = slope.shape
            parts.append(te.compute((), lambda s=slope, v=tangent, n=axes: te.sum(lambda *i: s[i] * v[i], n) if n else s[()] * v[()]))
        return te.compute((), lambda: sum((part[()] for part in parts[1:]), parts[0][()]))

    function, previous = loss, None
    for level in range(1, order + 1):
        f = {k: at(function, k * step) for k in (-3, -2, -1, 1, 2, 3)}
        numeric = (45 * (f[1] - f[-1]) - 9 * (f[2] - f[-2]) + (f[3] - f[-3])) / (60 * step)
        gradient = te.gradient(function, wrt)
        pulled = along(list(gradient))
        pushed = te.jvp(function, wrt, tangents)
        found = {"reverse": te.evaluate(pulled, arrays | extra), "forward": te.evaluate(pushed, arrays | extra)}
        if previous is not None:
            found["reverse over forward"] = te.evaluate(along(list(te.gradient(previous, wrt))), arrays | extra)
        if compiled:
            given = [*arrays, *extra]
            built = te.build([pulled, pushed], given)(*(arrays | extra).values())
            found |= {"compiled reverse": built[0], "compiled forward": built[1]}
        for mode, value in found.items():
            scale = max(abs(numeric), 1e-2)
            assert abs(float(value) - numeric) <= tolerance * scale, f"order {level}, {mode}: expected {numeric}, got {float(value)}"
        function, previous = pulled, pushed


def count_reads(extents: Sequence[int], condition: Callable[..., bool] = lambda *point: True) -> int:
    """The number of points of a box that satisfy a condition, counted one by one."""
    return sum(1 for point in itertools.product(*map(range, extents)) if condition(*point))


def operations(program: Program) -> int:
    """The floating arithmetic of a program whose sizes are known: operations at every point, weighted by their costs."""
    total = 0
    for definition in program.definitions:
        match definition:
            case Define():
                total += _work(definition.value, definition.axes)
            case Scatter():
                total += _work(definition.value, definition.axes) + domain_of(definition.axes).domain.count()
    return total


def _work(expr: Expr, axes: tuple) -> int:
    if isinstance(expr, Reduce):
        inner = (*axes, *expr.axes)
        return sum(_work(value, inner) for value in expr.values) + domain_of(inner).domain.count()
    if not expr.dtype.is_float:
        return 0
    counts = isinstance(expr, Apply) and expr.op.name != "where"
    own = expr.op.cost * domain_of(axes).domain.count() if counts else 0
    return own + sum(_work(child, axes) for child in children(expr))


def largest(program: Program) -> int:
    """The number of elements of the largest tensor that a program defines."""
    return max(int(np.prod([int(e.value) for e in type_.shape])) for d in program.definitions for _, type_ in d.results)


def scatters(program: Program) -> list[str]:
    return [d.name for d in program.definitions if isinstance(d, Scatter)]
