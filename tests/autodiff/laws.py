"""What the tests of derivatives have in common: brute-force counts of reads, exact Jacobians, costs counted on the IR."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

import tensorexpr as te
from tensorexpr.autodiff.gradient import Gradient
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
