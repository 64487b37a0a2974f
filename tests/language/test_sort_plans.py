"""`te.sort_plan` and `te.planned`: values, shapes, and what is refused."""

import numpy as np
import pytest

from tensorexpr import language as te
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.verify import verify
from tests.language.messages import refused

ids = te.placeholder((2, 6), "int32", name="ids")
offsets, order = te.placeholder((6,), "int64", name="offsets"), te.placeholder((12,), "int64", name="order")
given = {ids: np.array([[0, 3, 3, 1, 0, 3], [4, 4, 0, 1, 2, 3]], np.int32)}


def test_a_plan_sorts_positions_by_value():
    first, positions = te.evaluate(list(te.sort_plan(ids, 5)), given)
    flat = given[ids].ravel()
    np.testing.assert_array_equal(positions, np.argsort(flat, kind="stable"))
    np.testing.assert_array_equal(first, np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=5))]))
    assert first.dtype == positions.dtype == np.int64


def test_a_batch_has_a_plan_for_each_row():
    first, positions = te.sort_plan(ids, 5, batch=1, name="rows")
    assert (first.name, positions.name, first.shape, positions.shape) == ("rows_offsets", "rows_order", (2, 6), (2, 6))
    for row, found in zip(given[ids], te.evaluate(positions, given), strict=True):
        np.testing.assert_array_equal(found, np.argsort(row, kind="stable"))
    assert te.evaluate(te.sort_plan(ids, 5, batch=2)[1], given).tolist() == np.zeros((2, 6, 1)).tolist()


def test_sizes_and_programs():
    n, m = te.dim("n"), te.dim("m")
    tokens = te.placeholder((n,), "int64", name="tokens")
    first, positions = te.sort_plan(tokens, m)
    program = te.program_of([first, positions])
    verify(program)
    assert str(program).splitlines()[1:-1] == [
        "tokens: i64[n] = input()",
        "tokens_offsets, tokens_order = segments[m](tokens[i0] for i0 in range(n))",
    ]
    assert te.evaluate(first, {tokens: np.array([1, 1, 0])}, {"m": 3}).tolist() == [0, 1, 3, 3]


def test_a_value_beyond_the_extent_is_an_error_as_it_runs():
    with pytest.raises(OutOfBoundsError, match="expected 0 <= index < 4 on axis 0 of ids_offsets, got 4"):
        te.evaluate(te.sort_plan(ids, 4)[0], given)


def test_a_planned_tensor_is_equal_to_its_indices():
    known = te.planned(ids, offsets, order)
    assert known.plan == (offsets, order) and known.dtype is ids.dtype and known.name == "ids"
    np.testing.assert_array_equal(te.evaluate(known, given), given[ids])
    rows = te.planned(ids, *te.sort_plan(ids, 5, batch=1))
    assert rows.plan[1].shape == (2, 6)


def test_a_plan_inside_a_scan():
    start = te.compute((6,), lambda i: 0)

    def step(t, s):
        row = te.compute((6,), lambda i: ids[t, i])
        _, positions = te.sort_plan(row, 5)
        return te.compute((6,), lambda i: s[i] + positions[i])

    expected = np.cumsum([np.argsort(row, kind="stable") for row in given[ids]], axis=0)
    np.testing.assert_array_equal(te.evaluate(te.scan(step, start, 2), given), expected)


X = te.placeholder((6,), name="X")
REFUSED = [
    (lambda: te.sort_plan(X, 5), "te.sort_plan: expected a tensor of integers, got X: f32[6]"),
    (lambda: te.sort_plan([1, 2], 5), "te.sort_plan: expected a tensor of integers, got [1, 2]"),
    (lambda: te.sort_plan(ids, 5, batch=3), "te.sort_plan: expected batch= to be a number of axes of ids, 0 to 2, got 3"),
    (lambda: te.sort_plan(ids, -1), "te.sort_plan, extent: expected extents that are not negative, got -1"),
    (lambda: te.planned(X, offsets, order), "te.planned: expected a tensor of integers, got X: f32[6]"),
    (lambda: te.planned(ids, X, order), "te.planned: expected int64 offsets, as te.sort_plan gives them, got f32[6]"),
    (lambda: te.planned(ids, offsets, None), "te.planned: expected int64 order, as te.sort_plan gives them, got None"),
    (
        lambda: te.planned(ids, offsets, offsets),
        "te.planned: expected order i64[12] with offsets i64[6] for ids: i32[2, 6], got i64[6]",
    ),
]


@pytest.mark.parametrize(("use", "message"), REFUSED)
def test_what_is_refused(use, message):
    assert refused(use).splitlines()[0] == message
