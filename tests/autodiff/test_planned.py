"""Plans that are handed in: gradients go through them, at every order, and trust them with nothing but values."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.ir import Segments
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify

RNG = np.random.default_rng(5)
IDS = RNG.integers(0, 9, (4, 5)).astype(np.int32)
ids = te.placeholder((4, 5), "int32", name="ids")
W = te.placeholder((9, 3), "float64", name="W")
H = te.placeholder((5, 4, 3), "float64", name="H")
O, R = te.placeholder((10,), "int64", name="offsets"), te.placeholder((20,), "int64", name="order")
PLAN = te.evaluate(list(te.sort_plan(ids, 9)), {ids: IDS})
given = {
    ids: IDS, O: PLAN[0], R: PLAN[1], W: RNG.integers(-3, 4, (9, 3)).astype(float), H: RNG.integers(-3, 4, (5, 4, 3)).astype(float),
}  # fmt: skip


def squares(places: te.Tensor) -> te.Tensor:
    return te.compute((5, 4, 3), lambda b, a, d: W[places[a, b], d] * W[places[a, b], d], name="Y")


def plans(*tensors: te.Tensor) -> int:
    return sum(isinstance(d, Segments) for d in simplify(program_of(list(tensors))).definitions)


def test_a_gradient_goes_through_the_plan_it_is_given():
    planned, own = squares(te.planned(ids, O, R)), squares(ids)
    (gradient,), (expected,) = te.gradient(planned, [W], H), te.gradient(own, [W], H)
    assert (plans(gradient), plans(expected)) == (0, 1)
    text = str(simplify(program_of([gradient])))
    assert "for k in range(offsets[p], offsets[p + 1])" in text and "H[order[k] % 5, order[k] // 5, d]" in text and "ids" not in text
    np.testing.assert_array_equal(te.evaluate(gradient, given), te.evaluate(expected, given))
    compiled = te.build(gradient, [O, R, W, H])  # the indices themselves are not needed
    np.testing.assert_array_equal(compiled(*(given[t] for t in (O, R, W, H))), te.evaluate(expected, given))


def test_a_plan_made_in_the_same_program_needs_no_check():
    planned = squares(te.planned(ids, *te.sort_plan(ids, 9)))
    (gradient,) = te.gradient(planned, [W], H)
    assert plans(gradient) == 1
    assert [site.tensor for site in te.build(gradient, [ids, W, H]).nest.checks] == ["ids_offsets"]


@pytest.mark.parametrize(("which", "change"), [(O, 100), (O, -100), (R, 20), (R, -20)])
def test_a_wrong_plan_touches_nothing_outside(which: te.Tensor, change: int):
    (gradient,) = te.gradient(squares(te.planned(ids, O, R)), [W], H)
    compiled = te.build(gradient, [O, R, W, H])
    with pytest.raises(OutOfBoundsError):
        compiled(*(given[t] + (change if t is which else 0) for t in (O, R, W, H)))


def test_conditions_on_what_is_read_are_tested_along_the_plan():
    known = te.planned(ids, O, R)
    y = te.compute((4, 5), lambda a, b: te.where((known[a, b] > 2) & (b < 4), W[known[a, b], 1], 0.0))
    head = te.placeholder((4, 5), "float64", name="G")
    data = {**given, head: RNG.integers(-3, 4, (4, 5)).astype(float)}
    (gradient,) = te.gradient(y, [W], head)
    expected = np.zeros((9, 3))
    chosen = (IDS > 2) & (np.arange(5) < 4)
    np.add.at(expected[:, 1], IDS[chosen], data[head][chosen])
    assert plans(gradient) == 0
    np.testing.assert_array_equal(te.evaluate(gradient, data), expected)


def test_reads_that_do_not_fit_the_plan_get_their_own():
    known = te.planned(ids, O, R)
    some = te.compute((4, 3), lambda a, d: W[known[a, 2], d])
    wide = te.placeholder((11,), "float64", name="U")
    other = te.compute((4, 5), lambda a, b: wide[known[a, b]])
    assert plans(te.gradient(some, [W], te.placeholder((4, 3), "float64", name="G"))[0]) == 1
    assert plans(te.gradient(other, [wide], te.placeholder((4, 5), "float64", name="G"))[0]) == 1


def test_second_derivatives_and_tangents():
    def curvature(places: te.Tensor) -> te.Tensor:
        (first,) = te.gradient(squares(places), [W], H)
        total = te.compute((), lambda: te.sum(lambda v, d: first[v, d] * first[v, d], (9, 3)))
        return te.gradient(total, [H])[0]

    planned = curvature(te.planned(ids, O, R))
    assert plans(planned) == 0
    np.testing.assert_array_equal(te.evaluate(planned, given), te.evaluate(curvature(ids), given))
    (first,) = te.gradient(squares(te.planned(ids, O, R)), [W], H)
    np.testing.assert_array_equal(te.evaluate(te.jvp(first, [H], [H]), given), te.evaluate(first, given))


def test_batches_of_plans():
    x = te.placeholder((4, 9), "float64", name="X")
    rows = te.placeholder((4, 10), "int64", name="rows"), te.placeholder((4, 5), "int64", name="places")
    known = te.planned(ids, *rows)
    y = te.compute((4, 5), lambda a, b: x[a, known[a, b]])
    head = te.placeholder((4, 5), "float64", name="G")
    made = te.evaluate(list(te.sort_plan(ids, 9, batch=1)), {ids: IDS})
    data = {ids: IDS, rows[0]: made[0], rows[1]: made[1], head: RNG.integers(-3, 4, (4, 5)).astype(float)}
    (gradient,) = te.gradient(y, [x], head)
    expected = np.zeros((4, 9))
    np.add.at(expected, (np.arange(4)[:, None], IDS), data[head])
    assert plans(gradient) == 0
    np.testing.assert_array_equal(te.evaluate(gradient, data), expected)


def test_inside_an_op():
    @te.op
    def plan(places, *, extent):
        return te.sort_plan(places, extent)

    @te.op
    def embed(table, places, offsets, order):
        known = te.planned(places, offsets, order)
        return te.compute((*places.shape, table.shape[1]), lambda a, b, d: table[known[a, b], d])

    table, head = RNG.standard_normal((9, 3)), RNG.standard_normal((4, 5, 3))
    made = plan(IDS, extent=9)
    np.testing.assert_array_equal(embed(table, IDS, *made), table[IDS])
    expected = np.zeros((9, 3))
    np.add.at(expected, IDS, head)
    found = te.vjp(embed)(table, IDS, *made, head)
    np.testing.assert_allclose(found[0] if isinstance(found, tuple) else found, expected, rtol=1e-12)


ROWS = {"one after the other": [0, 2, 5, 5, 9], "overlapping": [0, 7, 2, 9, 4], "not all": [3, 3, 4, 4, 6]}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("depth", [None, 3])
def test_rows_of_a_compressed_matrix_go_through_a_plan_of_all_columns(rows, depth):
    p, cols = te.placeholder((5,), "int64", name="p"), te.placeholder((9,), "int32", name="cols")
    v = te.placeholder((9,), "float64", name="v")
    x = te.placeholder((6,) if depth is None else (6, depth), "float64", name="x")
    offsets, order = te.placeholder((7,), "int64", name="offsets"), te.placeholder((9,), "int64", name="order")

    def product_with(columns):
        def row(i, *d):
            return te.sum(lambda k: v[p[i] + k] * te.sin(x[columns[p[i] + k], *d]), p[i + 1] - p[i])

        return te.compute((4, *x.shape[1:]), row if depth is not None else lambda i: row(i), name="y")

    data = {p: np.array(ROWS[rows]), cols: RNG.integers(0, 6, 9).astype(np.int32), v: RNG.standard_normal(9)}
    plan = te.evaluate(list(te.sort_plan(cols, 6)), {cols: data[cols]})
    y, own = product_with(te.planned(cols, offsets, order)), product_with(cols)
    head = te.placeholder(y.shape, "float64", name="h")
    data |= {x: RNG.standard_normal(x.shape), offsets: plan[0], order: plan[1], head: RNG.standard_normal(y.shape)}
    (gradient,), (expected,) = te.gradient(y, [x], head), te.gradient(own, [x], head)
    assert "for k in range(offsets[" in str(simplify(program_of([gradient]))) and plans(gradient) == 0
    (row,) = te.gradient(y, [x], head).report().rows
    assert row.lowering == "segments" and row.iterations(p=data[p]) == row.reads(p=data[p])
    np.testing.assert_allclose(te.evaluate(gradient, data), te.evaluate(expected, data), rtol=1e-12, atol=1e-12)
    names = [item.name for item in program_of([gradient]).inputs]
    inputs = [tensor for tensor in data if tensor.name in names]
    np.testing.assert_allclose(te.build(gradient, inputs)(*(data[t] for t in inputs)), te.evaluate(expected, data), rtol=1e-12, atol=1e-12)
    # The second derivative reads the sums by place, which are a scatter.
    squares = te.compute((), lambda: te.sum(lambda *at: gradient[at] ** 2, gradient.shape))
    again = te.compute((), lambda: te.sum(lambda *at: expected[at] ** 2, expected.shape))
    np.testing.assert_allclose(
        te.evaluate(te.gradient(squares, [head])[0], data), te.evaluate(te.gradient(again, [head])[0], data), rtol=1e-11, atol=1e-11
    )
