"""Prefixes, suffixes, boxes and wide windows take work that grows with the data, however they are written, forward and gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import share_terms, with_recurrences
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define, Program, Reduce, Scan, integer
from tensorexpr.language import program_of
from tensorexpr.parse import parse_program
from tensorexpr.regions import domain_of
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import walk

PREFIXES: dict[str, Callable[[int, te.Tensor], tuple[tuple[int, ...], Callable[..., Any]]]] = {
    "extent": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[k], j + 1)),
    "condition on the reduction": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[k], n, where=lambda k: k <= j)),
    "masked term": lambda n, x: ((n,), lambda j: te.sum(lambda k: te.where(k <= j, x[k], 0.0), n)),
    "shifted term": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[j - k], j + 1)),
    "exclusive": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[k], j)),
    "suffix": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[j + k], n - j)),
    "suffix by a mask": lambda n, x: ((n,), lambda j: te.sum(lambda k: te.where(j < k, x[k], 0.0), n)),
    "every second": lambda n, x: ((n // 2,), lambda j: te.sum(lambda k: x[k], 2 * j + 1)),
    "half": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[k], j // 2 + 1)),
    "clipped": lambda n, x: ((2 * n,), lambda j: te.sum(lambda k: x[k], te.minimum(j + 1, n))),
    "from the middle": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[n // 2 + k], te.maximum(j - n // 2, 0))),
    "in an expression": lambda n, x: ((n,), lambda j: x[j] * te.sum(lambda k: x[k] + 1, j + 1) - 2),
    "a factor": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[j] * x[k], j + 1)),
    "two factors": lambda n, x: ((n,), lambda j: te.sum(lambda k: (x[j] * x[k]) * (x[k] * x[j]), j + 1)),
    "a mean": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[k], j + 1) / te.cast(j + 1, "float64")),
    "two deep": lambda n, x: ((n,), lambda j: te.sum(lambda k: te.sum(lambda q: x[q], k + 1), j + 1)),
    "inside a sum": lambda n, x: ((), lambda: te.sum(lambda j: x[j] * te.sum(lambda k: x[k], j + 1), n)),
    "products of a triangle": lambda n, x: ((), lambda: te.sum(lambda j: te.sum(lambda k: x[j] * x[k] + x[j], j + 1), n)),
    "products of the other triangle": lambda n, x: ((), lambda: te.sum(lambda j: te.sum(lambda k: x[j] - x[j + k] * x[j], n - j), n)),
    "a parameter of all": lambda n, x: ((n,), lambda j: te.exp(te.sum(lambda k: x[0] * x[k] / 256, j + 1))),
    "steps of a parity": lambda n, x: ((n,), lambda j: te.sum(lambda k: x[2 * k], j // 2)),
    "product": lambda n, x: ((n,), lambda j: te.prod(lambda k: x[k] / 8, j + 1)),
    "greatest so far": lambda n, x: ((n,), lambda j: te.max(lambda k: x[k], j + 1)),
    "least from here": lambda n, x: ((n,), lambda j: te.min(lambda k: x[j + k], n - j)),
    "fold": lambda n, x: (
        (n,),
        lambda j: te.reduce(lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1]), (1.0, 0.0), lambda k: (x[k] / 8, x[k]), j + 1)[1],
    ),
}
BOXES: dict[str, Callable[[int, te.Tensor], tuple[tuple[int, ...], Callable[..., Any]]]] = {
    "corner": lambda n, x: ((n, n), lambda i, j: te.sum(lambda a, b: x[a, b], (i + 1, j + 1))),
    "other corner": lambda n, x: ((n, n), lambda i, j: te.sum(lambda a, b: x[a, b], (n, n), where=lambda a, b: (a > i) & (b <= j))),
    "nested": lambda n, x: ((n, n), lambda i, j: te.sum(lambda a: te.sum(lambda b: x[a, b], j + 1), i + 1)),
    "rows": lambda n, x: ((n, n), lambda i, j: te.sum(lambda k: x[i, k], j + 1)),
    "columns": lambda n, x: ((n, n), lambda i, j: te.sum(lambda k: x[k, j], i + 1)),
    "transposed": lambda n, x: ((n, n), lambda j, i: te.sum(lambda k: x[i, k], j + 1)),
    "whole rows": lambda n, x: ((n,), lambda i: te.sum(lambda a, b: x[a, b], (i + 1, n))),
    "triangles": lambda n, x: ((n,), lambda i: te.sum(lambda a: te.sum(lambda b: x[a, b], a + 1), i + 1)),
    "ranges": lambda n, x: ((n, n), lambda i, j: te.sum(lambda k: x[i, i + k], te.maximum(j - i, 0))),
}
OPEN = ("extent", "masked term", "exclusive", "suffix", "every second", "two deep")


def work(program: Program) -> int:
    """The points that the loops of a program visit."""
    found = 0
    for definition in program.definitions:
        if isinstance(definition, Scan):
            body = sum(_points(d) for d in definition.body if isinstance(d, Define))
            found += integer(definition.length) * body
        else:
            assert isinstance(definition, Define)
            found += _points(definition)
    return found


def _points(definition: Define) -> int:
    axes = definition.axes
    reductions = [n for n in walk(definition.value) if isinstance(n, Reduce)]
    own = prod(integer(a.stop) for a in axes)
    # Nothing here has a reduction in another one that a table does not replace, so the loops around are those of the definition.
    return own + sum(domain_of((*axes, *n.axes), () if n.where is None else (n.where,)).domain.count() for n in reductions)


def programs(made: Callable, shape: tuple[int, ...], n: int, dtype: str = "float64") -> tuple[Program, ...]:
    x = te.placeholder(shape, dtype, name="x")
    extents, body = made(n, x)
    y = te.compute(extents, body, name="y")
    forward = program_of([y], [x])
    head = te.placeholder(extents, dtype, name="h")
    return forward, program_of(list(te.gradient(y, [x], head)), [x, head])


@pytest.mark.parametrize("name", [*PREFIXES, *BOXES])
def test_work_grows_with_the_data(name):
    made, rank = (PREFIXES[name], 1) if name in PREFIXES else (BOXES[name], 2)
    n = 48 if rank == 1 else 12
    for small, large in zip(programs(made, (n,) * rank, n), programs(made, (2 * n,) * rank, 2 * n), strict=True):
        few, many = (work(with_recurrences(simplify(p))) for p in (small, large))
        assert many <= 1.1 * 2**rank * few
        arrays = {i.name: np.arange(1.0, 1 + prod(s := shape_of(i))).reshape(s) % 7 - 2 for i in small.inputs}
        (expected,) = evaluate_program(small, arrays).values()
        (found,) = evaluate_program(with_recurrences(simplify(small)), arrays).values()
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def shape_of(item: Any) -> tuple[int, ...]:
    return tuple(map(integer, item.type.shape))


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name):
    n = te.dim("n")
    x = te.placeholder((n,), "float64", name="x")
    shape, body = PREFIXES[name](n, x)
    y = te.compute(shape, body)
    program = program_of([y], [x])
    tabled = with_recurrences(simplify(program))
    assert not any(isinstance(node, Reduce) for d in tabled.definitions if isinstance(d, Define) for node in walk(d.value))
    compiled = te.build(y, [x])
    for size in (0, 1, 2, 17):
        data = np.arange(size, dtype="float64") - 3
        (expected,) = evaluate_program(program, {"x": data}).values()
        np.testing.assert_array_equal(compiled(data), expected)


@pytest.mark.parametrize("reduction", [te.max, te.min, te.sum, te.prod])
def test_wide_windows_do_not_depend_on_the_width(reduction):
    def made(width: int) -> Program:
        x = te.placeholder((4096, 4), "float32", name="x")
        return simplify(program_of([te.compute((4096 - width + 1, 4), lambda j, i: reduction(lambda k: x[j + k, i], width))]))

    wide, wider = with_recurrences(made(300)), with_recurrences(made(900))
    assert work(wider) <= work(wide) <= 5 * 4 * 4096
    assert with_recurrences(made(8)) == made(8)


def test_gradients_of_wide_windows_are_wide_windows():
    x, head = te.placeholder((4, 1024), "float32", name="x"), te.placeholder((4, 725), "float32", name="h")
    y = te.compute((4, 725), lambda i, j: te.sum(lambda k: x[i, j + k], 300))
    program = program_of(list(te.gradient(y, [x], head)), [head])
    tabled = with_recurrences(simplify(program))
    assert work(tabled) < 4 * 4 * 1024 < work(simplify(program)) // 20
    data = np.arange(4 * 725, dtype="float32").reshape(4, 725) % 5
    expected = [[row[max(p - 299, 0) : p + 1].sum() for p in range(1024)] for row in data]
    np.testing.assert_array_equal(evaluate_program(tabled, {"h": data})[tabled.outputs[0]], np.array(expected, "float32"))


def text(program: str) -> str:
    return print_program(with_recurrences(simplify(parse_program(program)))).strip()


def test_prefix_as_text():
    assert text("x: f32[64] = input()\ny[j]: f32[64] = sum(x[k] for k in range(j))\nreturn y\n") == """
x: f32[64] = input()
y_start: f32 = 0.0
for k in range(63):
    y_state: f32 = state(y_start)
    y_next: f32 = y_state[()] + x[k]
    y_prefix[k] = y_state = y_next
y[j]: f32[64] = where(j >= 1, y_prefix[j - 1], 0.0)
return y
""".strip()  # fmt: skip


def test_sixteen_bits_are_added_in_float32():
    found = text("x: f16[64] = input()\ny[j]: f16[64] = sum(x[k] for k in range(j + 1))\nreturn y\n")
    assert "y_next: f32 = y_state[()] + f32(x[k])" in found
    assert "y[j]: f16[64] = f16(y_prefix[j])" in found


UNCHANGED = {
    "terms that differ": "y[j]: f32[64] = sum(x[k] * x[j - k] for k in range(j + 1))",
    "a function of both": "y[j]: f32[64] = sum(exp(x[k] - x[j]) for k in range(j + 1))",
    "a short prefix": "y[i, j]: f32[64, 2] = sum(x[k] + f32(i) for k in range(j + 1))",
    "a bound that is data": "y[j]: f32[64] = sum(x[k] for k in range(minimum(ids[j], 64)))",
    "a read that is checked": "y[j]: f32[64] = sum(x[ids[k]] for k in range(j + 1))",
    "more ranges than data": "y: f32 = sum(sum(x[k] for k in range(i, j)) for i in range(64) for j in range(64))",
    "differences of inputs": "y[j]: f32[64] = sum(x[k] - x[j] for k in range(j + 1))",
    "products with differences": "y: f32 = sum((x[k] - x[j]) * x[j] for j in range(64) for k in range(j + 1))",
    "a range of a length that changes": "y[j]: f32[32] = sum(x[k] for k in range(j, 2 * j))",
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_stays(name):
    program = simplify(parse_program(f"x: f32[64] = input()\nids: i64[64] = input()\n{UNCHANGED[name]}\nreturn y\n"))
    assert with_recurrences(program) is program
    assert share_terms(program) is program


def test_the_trace_of_a_product_computes_the_diagonal_forward_and_gradient() -> None:
    a, b, head = te.placeholder((12, 20), name="a"), te.placeholder((20, 12), name="b"), te.placeholder((), name="head")
    product = te.compute((12, 12), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 20), name="p")
    trace = te.compute((), lambda: te.sum(lambda i: product[i, i], 12), name="t")
    gradient = te.gradient(trace, [a, b], head)
    assert print_program(simplify(program_of([trace], [a, b]))).splitlines()[2:] == [
        "t: f32 = sum(sum(a[i, k] * b[k, i] for k in range(20)) for i in range(12))",
        "return t",
    ]
    assert print_program(simplify(program_of(list(gradient), [a, b, head]))).splitlines()[3:] == [
        "a_bar[i, k]: f32[12, 20] = head[()] * b[k, i]",
        "b_bar[k, i]: f32[20, 12] = head[()] * a[i, k]",
        "return a_bar, b_bar",
    ]
    te.check_gradient(te.op(_trace_of_rows), np.random.default_rng(0).standard_normal((3, 12, 20)))


def _trace_of_rows(x: te.Tensor) -> te.Tensor:
    product = te.compute((3, 12, 12), lambda b, i, j: te.sum(lambda k: x[b, i, k] * x[b, j, k], 20))
    return te.compute((3,), lambda b: te.sum(lambda i: te.sin(product[b, i, i]), 12))
