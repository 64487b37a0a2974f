"""Attention: what is refused, sizes known only as the program runs, 16-bit inputs, and what a band costs."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

Q, K, V = (np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate([(4, 6, 2), (2, 5, 2), (2, 5, 3)]))


@pytest.mark.parametrize(
    ("op", "arrays", "static", "message"),
    [
        (kernels.scaled_dot_product_attention, (Q, K, V), {},
         "scaled_dot_product_attention: expected shapes that broadcast, got (4,) and (2,) and (2,)"),
        (
            kernels.sliding_window_attention, (Q, K[0], V[0]), {"left": 1},
            "sliding_window_attention: attention: expected query, key and value of one rank, got (4, 6, 2), (5, 2) and (5, 3)",
        ),
        (kernels.scaled_dot_product_attention, (Q[:2], K, K[:, :4]), {},
         "scaled_dot_product_attention: rows of value: expected an extent of 5, got 4"),
        (
            kernels.scaled_dot_product_attention, (Q[:3], K, V), {"enable_gqa": True},
            "scaled_dot_product_attention: enable_gqa: expected a number of query heads that is a multiple of the 2 key heads, got 3",
        ),
        (
            kernels.scaled_dot_product_attention, (Q[:2], K, V, np.zeros((5, 6))), {},
            "scaled_dot_product_attention: attn_mask: expected a shape that broadcasts to (2, 6, 5), got (5, 6)",
        ),
        (kernels.relative_position_attention, (Q[:2], K, V, np.zeros((2, 3))), {},
         "relative_position_attention: bias: expected shape (2, 10) (one bias per head and distance), got (2, 3)"),
        (kernels.alibi_attention, (Q[:2], K, V, np.zeros(3)), {},
         "alibi_attention: slopes: expected shape (2,) (one slope per head), got (3,)"),
        (kernels.scaled_dot_product_attention, (Q[:2], K, V), {"dropout_p": 0.1},
         "scaled_dot_product_attention: expected a dropout_p of 0, got 0.1"),
        (kernels.sliding_window_attention, (Q[:2], K, V), {"left": -1},
         "sliding_window_attention: left: expected an integer of at least 0, got -1"),
        (kernels.rotary_embedding, (V,), {},
         "rotary_embedding: expected a known, even number of features on the last axis of x, got 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(op, arrays, static, message):
    with pytest.raises(te.ArgumentError) as caught:
        op(*arrays, **static)
    assert caught.value.message == message


def test_sizes_known_as_it_runs():
    rows, columns = te.dim("rows"), te.dim("columns")
    q, k, v = te.placeholder((rows, 2), "float64"), te.placeholder((columns, 2), "float64"), te.placeholder((columns, 3), "float64")
    compiled = kernels.scaled_dot_product_attention.compile(q, k, v, is_causal=True)
    np.testing.assert_allclose(compiled(Q[0], K[0], V[0]), kernels.scaled_dot_product_attention(Q[0], K[0], V[0], is_causal=True))
    np.testing.assert_array_equal(compiled(Q[0], K[0, :0], V[0, :0]), np.zeros((6, 3)))


def test_scores_of_16_bits_are_carried_in_32():
    wide = kernels.scaled_dot_product_attention(Q[:2], K, V)
    narrow = kernels.scaled_dot_product_attention(*(x.astype(np.float16) for x in (Q[:2], K, V)))
    assert narrow.dtype == np.float16
    np.testing.assert_allclose(narrow, wide, atol=2e-3)


def test_a_band_costs_its_width():
    """Twice the rows, twice the work: nothing of rows x columns is computed."""

    def operations(rows):
        shapes = [((1, rows, 4), "float32")] * 3
        return kernels.sliding_window_attention.compile(*shapes, left=3).cost.operations

    assert operations(128) < 2.05 * operations(64)
