"""Reading and sending by data: what is refused, indices out of range, sizes known only as the program runs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X, W = np.arange(12.0).reshape(3, 4), np.arange(15.0).reshape(5, 3)
IDS = np.array([0, 2, 1])


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.embedding, (X, W), {}, "embedding: input: expected integers (rows of weight), got float64"),
        (kernels.embedding, (IDS, W), {"padding_idx": 5}, "embedding: padding_idx: expected a row of weight, between -5 and 5 - 1, got 5"),
        (kernels.embedding_bag, (IDS, W), {},
         "embedding_bag: offsets: expected one with an input of 1 axis and none with 2, got an input of 1"),
        (kernels.embedding_bag, (IDS, W, IDS, IDS * 1.0), {}, "embedding_bag: per_sample_weights: expected mode 'sum', got 'mean'"),
        (
            kernels.gather, (X, np.zeros((3, 5), int)), {"axis": 0},
            "gather: index: expected the rank of x and at most its extents beside axis 0, got (3, 5) for (3, 4)",
        ),
        (kernels.take_along_axis, (X, IDS), {"axis": 0}, "take_along_axis: index: expected the rank of x, 2, got 1"),
        (kernels.gather_nd, (X, IDS), {}, "gather_nd: index: expected a last axis of 1 to 2 positions, got shape (3,)"),
        (kernels.masked_fill, (X, X), {"value": 0}, "masked_fill: mask: expected bools, got float64"),
        (kernels.masked_fill, (X, np.ones(3, bool)), {"value": 0}, "masked_fill: expected shapes that broadcast, got (3, 4) and (3,)"),
        (
            kernels.scatter_add, (X, np.zeros((2, 4), int), X[:1]), {"axis": 0},
            "scatter_add: src: expected float64 of at least the extents of index, (2, 4), got float64 of (1, 4)",
        ),
        (kernels.segment_sum, (np.float64(1), IDS), {"num_segments": 2},
         "segment_sum: data: expected a tensor whose first axis is in segments, got one without axes"),
        (kernels.ragged_row_sum, (np.float64(1), IDS), {},
         "ragged_row_sum: values: expected a tensor whose first axis is in rows, got one without axes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_an_index_out_of_range_is_an_index_error():
    for number in (-1, 5):
        with pytest.raises(IndexError, match=f"embedding: expected an index of weight from 0 to 4, got {number}"):
            kernels.embedding(np.array([0, number]), W)
        with pytest.raises(IndexError):
            kernels.segment_sum(W[:2], np.array([0, number]), num_segments=5)
    with pytest.raises(IndexError):
        kernels.take(X, np.array([12]))


def test_an_index_copied_twice_stays_as_the_last():
    got = kernels.index_copy(X, np.array([1, 1]), -X[:2], axis=0)
    np.testing.assert_array_equal(got, [X[0], -X[1], X[2]])


def test_bags_of_any_number():
    bags, items = te.dim("bags"), te.dim("items")
    ids, offsets = te.placeholder((items,), "int64"), te.placeholder((bags,), "int64")
    compiled = kernels.embedding_bag.compile(ids, te.placeholder((5, 3), "float64"), offsets, mode="sum")
    np.testing.assert_array_equal(compiled(np.array([1, 1, 4]), W, np.array([0, 1])), [W[1], W[1] + W[4]])
    np.testing.assert_array_equal(compiled(np.array([3]), W, np.array([0, 0, 1])), [0 * W[0], W[3], 0 * W[0]])
