"""Expressions under their context, as text: what a reader of a printed program sees."""

from __future__ import annotations

import logging

import pytest

from tensorexpr import dtypes
from tensorexpr.ir import Axis, Expr, apply
from tensorexpr.parse import parse_expr
from tensorexpr.simplify import simplify_expr
from tensorexpr.text import print_expr
from tensorexpr.traversal import children

SIZES = ("n", "m", "w")
TENSORS = {"A": dtypes.float32, "ids": dtypes.int64, "b": dtypes.bool_, "u": dtypes.uint8, "x": dtypes.int32, "h": dtypes.float16}


def expr_of(text: str) -> Expr:
    return parse_expr(text, TENSORS, sizes=SIZES)


def axes_of(text: str) -> list[Axis]:
    """``i < 10, 1 <= k < n``: axes from their ranges."""
    axes = []
    for part in filter(None, text.split(", ")):
        pieces = part.split(" < ")
        name, start = pieces[0], "0"
        if "<=" in name:
            start, name = name.split(" <= ")
        axes.append(Axis(name, expr_of(start), expr_of(pieces[1])))
    return axes


def simple(text: str, axes: str = "", guards: tuple[str, ...] = (), **options: bool) -> str:
    given = expr_of(text)
    around = (axes_of(axes), [expr_of(g) for g in guards])
    result = simplify_expr(given, *around, **options)
    assert simplify_expr(result, *around, **options) is result
    return print_expr(result)


BOX = "i < 10, j < 7, k < n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(7*i + j)//7", "i"),
        ("(7*i + j) % 7", "j"),
        ("i//3 % 4", "i // 3"),
        ("i//2*2 + i%2", "i"),
        ("2*i + 1 - i - 1", "i"),
        ("(14*i + j)//21", "i * 2 // 3"),
        ("(i*n + k)//n", "i"),
        ("(i*n + k) % n", "k"),
        ("(i*n*m + k*m + m - 1)//(n*m)", "(i * m * n + k * m + m - 1) // (m * n)"),  # m may be 0, and then so is this
        ("(i + 1)*n - n", "i * n"),
        ("-((-(i - 2))//2)", "(i - 1) // 2"),
        ("i // -3", "-((i + 2) // 3)"),
        ("i // 0 + i % 0", "0"),
        ("minimum(i, 20)", "i"),
        ("maximum(minimum(i, n - 1), 0)", "minimum(i, n - 1)"),
        ("maximum(minimum(i, m - 1), 0)", "maximum(minimum(i, m - 1), 0)"),
        ("minimum(k, n - 1)", "k"),
        ("minimum(minimum(i, j), minimum(i, 12))", "minimum(i, j)"),
        ("maximum(minimum(i, j), j)", "j"),
        ("maximum(n, 0)", "n"),
        ("abs(i - 20)", "20 - i"),
        ("k + 1 + i + n", "i + k + n + 1"),
        ("where(i < 10, i, j)", "i"),
        ("6 - j % 7", "6 - j"),
        ("11 - (i - j) % 12", "(j - i - 1) % 12"),
        ("i + (3*i + 4)//5", "(i * 8 + 4) // 5"),
        ("(9*i + j)//27*3 + (9*i + j)//3 % 3", "i // 3 * 3 + j // 3"),
        ("k % n + k//n*n + i", "i + k"),
        ("(k + i) % n + (k + i)//n*n", "i + k"),
        ("(k + i) % m + (k + i)//m*m", "(i + k) % m + (i + k) // m * m"),  # m may be 0
    ],
)
def test_index_arithmetic(before: str, after: str) -> None:
    assert simple(before, BOX) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("i < 10 and k >= 0 and j < i", "j < i"),
        ("(i - 1) % 2 == 0", "i % 2 == 1"),
        ("(3*i + 4*j + 5) % 2 == 0", "i % 2 == 1"),
        ("i % 2 == 0 and (i + 2) % 2 == 0", "i % 2 == 0"),
        ("2*i == 7", "False"),
        ("2*i < 7", "i < 4"),
        ("(i - 1)//2 >= j", "i > j * 2"),
        ("0 <= i - 3", "i >= 3"),
        ("n > i", "i < n"),
        ("i - k >= 0", "i >= k"),
        ("not (i < 3 or i > 5)", "i >= 3 and i < 6"),
        ("i < 3 or i >= 3", "True"),
        ("i < 3 and i > 5", "False"),
        ("i < j or i > j", "i != j"),
        ("i < j - 1 or i >= j", "i != j - 1"),
        ("i == j or i > j", "i >= j"),
        ("i < 2 or i >= 2 and i < 5", "i < 5"),
        ("i < 2 or i >= 2 and i < 5 and j < 3", "i < 2 or i < 5 and j < 3"),
        ("i >= 2 and i < 5 and j < 3 or i >= 5 and i < 7 and j < 3", "i >= 2 and i < 7 and j < 3"),
        ("i < 2 or i > 7", "i < 2 or i >= 8"),
        ("i > 3 and i <= 4 and j < 2", "i == 4 and j < 2"),
        ("i + k < n - 1 and k < n - i - 1", "i + k < n - 1"),
        ("i < minimum(n, j)", "i < n and i < j"),
        ("i != 0 and i >= 1", "i != 0"),
        ("i64(u[i]) < 256", "True"),
        ("ids[i] + 1 > ids[i]", "ids[i] + 1 > ids[i]"),
        ("b[i] and b[i]", "b[i]"),
        ("j < 3 and b[i] and i < 4 and i >= 2 and j >= 1", "i >= 2 and i < 4 and j >= 1 and j < 3 and b[i]"),
        ("(j + 4) % 8 < 4", "j >= 4"),
        ("(j + 4)//8*2 == 0", "j < 4"),
        ("k//2 < n//2", "k // 2 < n // 2"),
        ("i + i64(u[i]) - 3*j == 2", "i64(u[i]) == j * 3 - i + 2"),
        ("2*i64(u[i]) == i", "i64(u[i]) * 2 == i"),
    ],
)
def test_conditions(before: str, after: str) -> None:
    assert simple(before, BOX) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("where(i < 10, A[i], 0.0)", "A[i]"),
        ("where(i < 5, where(i < 7, A[i], 1.0), where(i < 3, 2.0, A[i + 1 - 1]))", "A[i]"),
        ("where(b[i], where(b[i], A[i], 2.0), 3.0)", "where(b[i], A[i], 3.0)"),
        ("where(i == 0, A[0], A[maximum(i - 1, 0)])", "where(i == 0, A[0], A[i - 1])"),
        ("where(i > 1, where(j > 1, A[i], 0.0), 0.0)", "where(i >= 2 and j >= 2, A[i], 0.0)"),
        ("where(i > 1, where(A[i - 2] > 1.0, A[i], 0.0), 0.0)", "where(i >= 2, where(A[i - 2] > 1.0, A[i], 0.0), 0.0)"),
        ("where(i < j, A[i], where(i > j, A[i], 0.0))", "where(i != j, A[i], 0.0)"),
        ("where(b[i], A[i], where(b[j], A[i], 0.0))", "where(b[i], A[i], where(b[j], A[i], 0.0))"),
        ("where(not b[i], A[i], A[0])", "where(b[i], A[0], A[i])"),
        ("where(b[i], A[i], 1.0) + where(b[i], A[0], 2.0)", "where(b[i], A[i] + A[0], 3.0)"),
        ("where(A[i] > 1.0, maximum(A[i], 1.0), minimum(A[i], 1.0))", "where(A[i] > 1.0, A[i], minimum(A[i], 1.0))"),
        ("where(A[i] == 2.0, maximum(A[i], 2.0) < 3.0, A[i] < 1.0)", "where(A[i] == 2.0, True, A[i] < 1.0)"),
        ("where(A[i] > A[j], where(A[i] == A[j], A[0], A[1]), A[2])", "where(A[i] > A[j], A[1], A[2])"),
    ],
)
def test_selections(before: str, after: str) -> None:
    assert simple(before, BOX) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[i] * 2.0 * 0.125", "A[i] * 0.25"),
        ("A[i] * 0.5 * (A[j] * 2.0)", "A[i] * A[j]"),
        ("A[i] / 10.0 * A[j] + A[i] / 10.0 * A[j]", "A[i] / 5.0 * A[j]"),
        ("0.5 / A[i] * A[j] * 2.0", "1.0 / A[i] * A[j]"),
        ("A[i] * 3.0 * A[j] * 5.0", "A[i] * A[j] * 15.0"),
        ("h[i] * 2.0 * h[j]", "h[i] * 2.0 * h[j]"),  # 16 bits overflow soon
        ("A[i] * where(i > 3, A[i - 1], 0.0)", "where(i >= 4, A[i] * A[i - 1], 0.0)"),
        ("A[i] * where(b[i], A[j], 0.0)", "A[i] * where(b[i], A[j], 0.0)"),
        ("A[i] * where(i > 3, A[j], 0.0) < 1.0", "A[i] * where(i >= 4, A[j], 0.0) < 1.0"),  # what decides stays as it is
        ("tanh(A[i] * 3.0 * A[j]) * 3.0 * A[j]", "tanh(A[i] * 3.0 * A[j]) * A[j] * 3.0"),  # what functions are taken of stays, too
        ("A[argmax(A[q] * 2.0 * 0.125 for q in range(5))] * 2.0 * 0.125", "A[argmax(A[q] * 2.0 * 0.125 for q in range(5))] * 0.25"),
        ("where(1.0 / (A[i] + 0.0) > 0.0, 1.0 / (A[i] + 0.0), 2.0)", "where(1.0 / (A[i] + 0.0) > 0.0, 1.0 / A[i], 2.0)"),
        ("sum(-(A[q] * A[i]) for q in range(5))", "-sum(A[q] * A[i] for q in range(5))"),
        ("sum(A[q] * 2.0 for q in range(5)) * 0.25", "sum(A[q] for q in range(5)) * 0.5"),
        (
            "sum(where(q % 2 == 0, A[q], A[q] * 0.5) for q in range(2*i, minimum(2*i + 2, 19)))",
            "A[i * 2] + where(i < 9, A[i * 2 + 1] * 0.5, 0.0)",
        ),
        ("where(i < j, A[i], 0.0) + A[j] + where(i > j, A[i], 0.0)", "where(i != j, A[i], 0.0) + A[j]"),
        ("where(i < j, A[i], 0.0) - where(i > j, A[i], 0.0)", "where(i < j, A[i], 0.0) - where(i > j, A[i], 0.0)"),
        ("where(i < 5, A[i], 0.0) + where(j < 5, A[i], 0.0)", "where(i < 5, A[i], 0.0) + where(j < 5, A[i], 0.0)"),
        ("where(i < 2, A[j], 0.0) + where(i == 4, A[j], 0.0) + where(i > 7, A[j], 0.0)", "where(i < 2 or i == 4 or i >= 8, A[j], 0.0)"),
        ("where(i < 4, -sum(A[q] for q in range(i, 4)), 0.0)", "-sum(A[q] for q in range(i, 4))"),
        ("sum(A[i] * where(q + i >= 4, A[q], 0.0) for q in range(9))", "sum(A[i] * A[q] for q in range(maximum(4 - i, 0), 9))"),
    ],
)
def test_derived_formulas(before: str, after: str) -> None:
    assert simple(before, BOX, derived=True, factor=True, narrow=True, signed_zeros=False) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[i]*1.0 + 0.0", "A[i] + 0.0"),
        ("A[i] - 0.0", "A[i]"),
        ("A[i] + -0.0", "A[i]"),
        ("A[i] * 0.0", "A[i] * 0.0"),
        ("A[i] - A[i]", "A[i] - A[i]"),
        ("-(A[i] - A[0])", "-(A[i] - A[0])"),
        ("A[i] / A[i]", "A[i] / A[i]"),
        ("A[i] == A[i]", "A[i] == A[i]"),
        ("not A[i] < 0.0", "not A[i] < 0.0"),
        ("not A[i] == 0.0", "A[i] != 0.0"),
        ("-A[i] * -A[0]", "A[i] * A[0]"),
        ("A[i] ** 2.0", "A[i] * A[i]"),
        ("f32(f64(A[i]))", "A[i]"),
        ("f32(f64(h[i]))", "f32(h[i])"),
        ("f16(f32(A[i]))", "f16(A[i])"),
        ("x[i] + 1 - 1", "x[i]"),
        ("x[i] + 1 > x[i]", "x[i] + 1 > x[i]"),
        ("x[i] * 4 // 4", "x[i] * 4 // 4"),
        ("x[i] - x[i]", "i32(0)"),
        ("u[i] >= 0", "True"),
        ("ids[i] * 4 // 4", "ids[i] * 4 // 4"),
        ("A[ids[i] * 4 // 4]", "A[ids[i] * 4 // 4]"),
        ("A[i64(x[i]) * 4 // 4]", "A[i64(x[i])]"),
        ("A[i + ids[i] - 1 + 1]", "A[i + ids[i]]"),
        ("i64(u[i]) * 4 // 4", "i64(u[i])"),
    ],
)
def test_values(before: str, after: str) -> None:
    assert simple(before, BOX) == after


def test_what_the_caller_allows() -> None:
    assert simple("A[i] + 0.0", BOX, signed_zeros=False) == "A[i]"
    assert simple("A[i] * 0.0", BOX, signed_zeros=False) == "A[i] * 0.0"
    assert simple("A[i] * 0.0", BOX, reassociate=True) == "f32(0.0)"
    assert simple("A[i] * 2.0 * 3.0", BOX, reassociate=True) == "A[i] * 6.0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum(A[q] for q in range(3, 4))", "A[3]"),
        ("sum(A[q] for q in range(3, 4) if b[q])", "where(b[3], A[3], 0.0)"),
        ("sum(A[q] for q in range(0, minimum(n - 1, i) + 1))", "sum(A[q] for q in range(minimum(n, i + 1)))"),
        ("max(A[q] for q in range(5, 3))", "f32(-inf)"),
        ("argmax(A[q] for q in range(2, 3))", "0"),
        ("sum(f32(1.0) for q in range(9))", "f32(9.0)"),
        ("sum(f32(0.1) for q in range(9))", "sum(f32(0.1) for q in range(9))"),
        ("sum(f32(0.0) for q in range(n))", "f32(0.0)"),
        ("sum(i8(100) for q in range(3))", "i8(44)"),
        ("sum(A[q] for q in range(i, j) if i >= j)", "f32(0.0)"),
        ("where(i < j, sum(A[q] for q in range(i, j)), 0.0)", "sum(A[q] for q in range(i, j))"),
        ("where(i < j and i > 2, sum(A[q] for q in range(i, j)), 0.0)", "where(i >= 3, sum(A[q] for q in range(i, j)), 0.0)"),
        ("where(i < j, sum(A[q] for q in range(i, j)), 1.0)", "where(i < j, sum(A[q] for q in range(i, j)), 1.0)"),
        ("where(i < j, sum(A[q] for q in range(i, j)), -0.0)", "where(i < j, sum(A[q] for q in range(i, j)), -0.0)"),
        ("where(i < j, -sum(A[q] for q in range(i, j)), 0.0)", "where(i < j, -sum(A[q] for q in range(i, j)), 0.0)"),  # -0.0 where i >= j
        ("where(i < j, max(A[q] for q in range(i, j)), -inf)", "max(A[q] for q in range(i, j))"),
        ("where(i != 3, sum(A[q] for q in range(i, 3)), 0.0)", "sum(A[q] for q in range(i, 3))"),
        (
            "where(i < j, sum(A[q] for r in range(9) for q in range(i, j)), 0.0)",  # or there would be nine times nothing
            "where(i < j, sum(A[q] for r in range(9) for q in range(i, j)), 0.0)",
        ),
        ("all(q >= 0 for q in range(i))", "True"),
    ],
)
def test_reductions(before: str, after: str) -> None:
    assert simple(before, BOX) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum(A[q] for q in range(n) if q <= i)", "sum(A[q] for q in range(minimum(i + 1, n)))"),
        ("sum(A[q] for q in range(n) if q == i)", "where(i < n, A[i], 0.0)"),
        ("sum(where(q == i, A[q], 0.0) for q in range(10))", "A[i]"),
        ("sum(A[q] for q in range(10) if (q + i) % 2 == 0)", "sum(A[q * 2 - i] for q in range((i + 1) // 2, (i + 1) // 2 + 5))"),
        ("sum(A[q] for q in range(10) if 2*q == i)", "where(i % 2 == 0, A[i // 2], 0.0)"),
        ("sum(A[q]*A[r] for q in range(10) for r in range(10) if 2*r == q)", "sum(A[r * 2] * A[r] for r in range(5))"),
        ("max(where(q < i, A[q], -inf) for q in range(10))", "max(A[q] for q in range(i))"),
        ("sum(A[q] for q in range(n) if b[q] and q > 2)", "sum(A[q] for q in range(3, n) if b[q])"),
        ("sum(A[q] for q in range(n) if i > 2)", "where(i >= 3, sum(A[q] for q in range(n)), 0.0)"),
        ("sum(A[q] for q in range(10) if q >= 3 and q <= 1)", "f32(0.0)"),
        ("any(q < 3 and b[q] for q in range(10))", "any(b[q] for q in range(3))"),
        ("argmax(A[q] for q in range(n) if q < 3)", "argmax(A[q] for q in range(n) if q < 3)"),
        ("sum(A[q] for q in range(n) if q == ids[i])", "sum(A[q] for q in range(n) if ids[i] == q)"),
        ("sum(i64(where(q < 3, ids[q], 0)) for q in range(10))", "sum(ids[q] for q in range(3))"),
        (
            "sum(A[q] * A[r] for r in range(j) for q in range(n) if q == ids[r])",
            "sum(A[ids[r]] * A[r] for r in range(j) if ids[r] >= 0 and ids[r] < n)",
        ),
        (
            "max(A[q] for r in range(10) for q in range(3, 9) for p in range(r) if ids[r] == q)",
            "max(A[ids[r]] for r in range(10) for p in range(r) if ids[r] >= 3 and ids[r] < 9)",
        ),
        (
            "sum(A[q] for q in range(n) for r in range(10) if q == ids[r])",  # would add up in another order
            "sum(A[q] for q in range(n) for r in range(10) if ids[r] == q)",
        ),
        ("sum(f32(q <= i) for q in range(10))", "sum(f32(1.0) for q in range(i + 1))"),
        ("sum(f32(q == i) for q in range(10))", "f32(1.0)"),
        ("sum(f32(b[q]) for q in range(10))", "sum(f32(b[q]) for q in range(10))"),
    ],
)
def test_narrower_reductions(before: str, after: str) -> None:
    assert simple(before, BOX, narrow=True) == after


def test_stride_and_window_meet_in_exact_bounds() -> None:
    text = "sum(A[y]*A[r] for y in range(15) for r in range(3) if 2*y + r == p)"
    after = "sum(A[y] * A[p - y * 2] for y in range(maximum((p - 1) // 2, 0), minimum(p // 2 + 1, 15)))"
    assert simple(text, "p < 32", narrow=True) == after


def test_guards_are_known() -> None:
    assert simple("A[minimum(maximum(i - 1, 0), n - 1)]", BOX, ("i >= 1", "i < n")) == "A[i - 1]"
    assert simple("(i*n*m + k*m + m - 1)//(n*m)", BOX, ("m >= 1",)) == "i"
    assert simple("(j*n*w + k*w + i)//(n*w)", BOX, ("i < w",)) == "j"
    assert simple("(j*n*w + k*w + i)//w % n", BOX, ("i < w",)) == "k"


def test_an_axis_of_one_point_is_its_start() -> None:
    assert simple("A[i + p]", "i < 4, 2 <= p < 3") == "A[i + 2]"


def test_a_condition_that_reads_is_not_simplified_by_its_neighbors() -> None:
    # Both sides are evaluated; under i >= 1 the clamp could go, but it is needed at i = 0.
    assert simple("i >= 1 and b[maximum(i - 1, 0)]", BOX) == "i >= 1 and b[maximum(i - 1, 0)]"


def test_unchanged_expressions_are_the_same_object() -> None:
    for text in ("A[i] + A[j * 2]", "where(i < j, A[i], 0.0)", "sum(A[q] for q in range(i, n) if b[q])", "(i + 1) // 2 - n"):
        given = expr_of(text)
        assert simplify_expr(given, axes_of(BOX)) is given


def test_deep_expressions_are_no_problem() -> None:
    deep = expr_of("A[0] * 1.0")
    for _ in range(300):
        deep = apply("sub", deep, expr_of("A[1]"))
    node = simplify_expr(deep)
    for _ in range(300):
        node = children(node)[0]
    assert print_expr(node) == "A[0]"


def test_shared_subexpressions_are_visited_once(caplog: pytest.LogCaptureFixture) -> None:
    shared = expr_of("A[0] * 1.0")
    for _ in range(10):
        shared = apply("sub", shared, apply("tanh", shared))
    with caplog.at_level(logging.DEBUG, logger="tensorexpr.rules"):
        simplify_expr(shared)
    assert [m for m in caplog.messages if m.startswith("multiply_one")] == ["multiply_one: A[0] * 1.0  ->  A[0]"]
