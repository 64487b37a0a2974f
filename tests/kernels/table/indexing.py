"""Reading and sending by data, segments, ragged rows, sparse matrices in CSR form."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

IDS = Data((2, 3), (0, 5))
BAG = Data((7,), (0, 5))
OFFSETS = Data((4,), np.array([0, 2, 2, 5]))
ENDS = Data((5,), np.array([0, 2, 2, 5, 7]))
SEGMENTS = Data((7,), np.array([2, 0, 2, 2, 4, 0, 4]))
INDEX = Data((3, 4), (0, 5))

SORTED = np.array([-1, 0, 2, 2, 2, 5, 7])


def searched(name, op, inputs, reference, **static) -> Case:
    return Case(name, op, inputs, None, reference, static, differentiable=False, float32=None)


def segments(data, ids, count, reduce, empty):
    return np.stack([reduce(data[ids == s], 0) if (ids == s).any() else np.full(data.shape[1:], empty) for s in range(count)])


def put(x, index, src):
    """Along axis 0, in order."""
    y = x.copy()
    for i in np.ndindex(index.shape):
        y[(index[i], *i[1:])] = src[i]
    return y


def softmax_of(data, ids):
    e = np.exp(data)
    return np.stack([e[t] / e[ids == s].sum(0) for t, s in enumerate(ids)])


CSR = "lambda d, i, p, x: torch.zeros(4, 5, dtype=d.dtype).index_put((torch.repeat_interleave(torch.arange(4), p.diff()), i), d, True) @ x"
ROW_SUM = "lambda v, p: torch.zeros(4, 3, dtype=v.dtype).index_add(0, torch.repeat_interleave(torch.arange(4), p.diff()), v)"
INTO = ((5, 4), INDEX, (3, 4))


def reduced(reduce, include_self=True):
    name = f"scatter_reduce {reduce}{'' if include_self else ' without self'}"
    values = (5, 4), INDEX, Data((4, 5), "distinct")
    return Case(
        name, kernels.scatter_reduce, values,
        f"lambda x, i, s: x.scatter_reduce(0, i, s[:3, :4], '{reduce}', include_self={include_self})",
        static={"axis": 0, "reduce": reduce, "include_self": include_self},
    )  # fmt: skip


def segment(name, reduce, empty, values="normal"):
    return Case(
        name, getattr(kernels, name), (Data((7, 3), values), SEGMENTS),
        numpy=lambda x, i: segments(x, i, 5, reduce, empty), static={"num_segments": 5}, kinks=np.isinf(empty), float32=1e-4,
    )  # fmt: skip


XP = np.array([0.0, 0.5, 1.0, 3.0])
CASES = [
    searched("searchsorted", kernels.searchsorted, (Data((7,), SORTED), Data((3, 4), (-2, 9))), np.searchsorted),
    searched("searchsorted behind", kernels.searchsorted, (Data((7,), SORTED), Data((5,), (-2, 9))),
             lambda x, v: np.searchsorted(x, v, "right"), side="right"),
    searched("searchsorted NaN", kernels.searchsorted, (Data((4,), np.array([-np.inf, 1.0, np.inf, np.nan])),
             Data((5,), np.array([np.nan, np.inf, -np.inf, 1.0, 2.0]))), lambda x, v: np.array([4, 2, 0, 1, 2])),
    searched("searchsorted nothing", kernels.searchsorted, (Data((0,)), (3,)), np.searchsorted),
    searched("searchsorted rows", kernels.searchsorted, (Data((2, 7), np.stack([SORTED, SORTED - 3])), Data((2, 4), (-2, 9))),
             lambda x, v: np.stack([np.searchsorted(*row) for row in zip(x, v, strict=True)])),
    searched("searchsorted by a sorter", kernels.searchsorted, (Data((7,), SORTED[::-1].copy()), Data((5,), (-2, 9)),
             Data((7,), np.arange(7)[::-1].copy())), lambda x, v, order: np.searchsorted(x, v, sorter=order)),
    searched("bucketize", kernels.bucketize, (Data((3, 4), (-2, 9)), Data((7,), SORTED)), lambda x, bounds: np.searchsorted(bounds, x)),
    searched("bucketize right", kernels.bucketize, (Data((9,), (-2, 9)), Data((7,), SORTED)), np.digitize, right=True),
    Case("embedding", kernels.embedding, (IDS, (5, 4)), "F.embedding", scatters=True),
    Case("embedding padding_idx", kernels.embedding, (Data((2, 2), np.array([[1, 3], [1, 0]])), (5, 4)),
         "lambda i, w: F.embedding(i, w, 1)", static={"padding_idx": 1}, scatters=True, kinks=True),
    Case("embedding_bag mean", kernels.embedding_bag, (BAG, (5, 3), OFFSETS, None), "lambda i, w, o: F.embedding_bag(i, w, o)",
         scatters=True),
    Case("embedding_bag max", kernels.embedding_bag, (BAG, Data((5, 3), "distinct"), OFFSETS, None),
         "lambda i, w, o: F.embedding_bag(i, w, o, mode='max')", static={"mode": "max"}, scatters=True),
    Case("embedding_bag sum, weights, last offset", kernels.embedding_bag, (BAG, (5, 3), ENDS, (7,)),
         "lambda i, w, o, p: F.embedding_bag(i, w, o, mode='sum', per_sample_weights=p, include_last_offset=True)",
         static={"mode": "sum", "include_last_offset": True}, scatters=True),
    Case("embedding_bag rows", kernels.embedding_bag, (IDS, (5, 3), None, None), "lambda i, w: F.embedding_bag(i, w)", scatters=True),
    Case("gather", kernels.gather, ((5, 4), INDEX), "lambda x, i: x.gather(0, i)", static={"axis": 0}, scatters=True),
    Case("gather last axis", kernels.gather, ((2, 3, 5), Data((2, 2, 3), (0, 5))), "lambda x, i: x.gather(-1, i)",
         static={"axis": -1}, scatters=True),
    Case("take_along_axis broadcast", kernels.take_along_axis, ((2, 1, 5), Data((1, 3, 4), (0, 5))),
         "lambda x, i: torch.take_along_dim(x, i, 2)", static={"axis": 2}, scatters=True),
    Case("take_along_axis from the end", kernels.take_along_axis, ((2, 5), Data((2, 4), (-5, 5))), None,
         lambda x, i: np.take_along_axis(x, i, 1), {"axis": 1}, scatters=True),
    Case("take from the end", kernels.take, ((2, 3, 4), Data((5, 2), (-24, 24))), "torch.take", np.take, scatters=True),
    Case("take", kernels.take, ((2, 3, 4), Data((5, 2), (0, 24))), "torch.take", scatters=True),
    Case("take axis", kernels.take, ((2, 5, 3), IDS), "lambda x, i: x[:, i]", lambda x, i: np.take(x, i, 1), {"axis": 1}, scatters=True),
    Case("index_select", kernels.index_select, ((2, 5, 3), BAG), "lambda x, i: x.index_select(1, i)", static={"axis": 1}, scatters=True),
    Case("gather_nd", kernels.gather_nd, ((2, 5, 3), Data((4, 2), np.array([[0, 1], [1, 4], [0, 1], [1, 0]]))),
         "lambda x, i: x[i[:, 0], i[:, 1]]", scatters=True),
    Case("one_hot", kernels.one_hot, (IDS,), "lambda i: F.one_hot(i, 5)", static={"num_classes": 5}, differentiable=False),
    Case("masked_fill", kernels.masked_fill, ((2, 3, 4), Data((3, 1), "bool")), "lambda x, m: x.masked_fill(m, -2.5)",
         static={"value": -2.5}),
    Case("scatter, the last stays", kernels.scatter, ((5, 4), Data((3, 4), np.array([[1, 0, 4, 2], [1, 2, 4, 0], [3, 2, 4, 2]])), (3, 4)),
         numpy=put, static={"axis": 0}),
    Case("scatter of distinct places", kernels.scatter, ((2, 5), Data((2, 3), np.array([[1, 0, 4], [2, 4, 3]])), (2, 3)),
         "lambda x, i, s: x.scatter(1, i, s)", static={"axis": 1}),
    Case("scatter_add", kernels.scatter_add, INTO, "lambda x, i, s: x.scatter_add(0, i, s)", static={"axis": 0}),
    Case("scatter_add fewer", kernels.scatter_add, ((3, 6), Data((2, 3), (0, 6)), (3, 4)), "lambda x, i, s: x.scatter_add(1, i, s[:2, :3])",
         static={"axis": 1}),
    *(reduced(r) for r in ("sum", "prod", "mean", "amax", "amin")),
    *(reduced(r, False) for r in ("sum", "prod", "mean", "amin")),
    Case("index_add", kernels.index_add, ((2, 5, 3), BAG, (2, 7, 3)), "lambda x, i, s: x.index_add(1, i, s, alpha=0.5)",
         static={"axis": 1, "alpha": 0.5}),
    Case("index_copy", kernels.index_copy, ((5, 3), Data((2,), np.array([3, 1])), (2, 3)), "lambda x, i, s: x.index_copy(0, i, s)",
         static={"axis": 0}),
    Case("index_fill", kernels.index_fill, ((3, 5), Data((3,), np.array([1, -1, 1]))), "lambda x, i: torch.index_fill(x, 1, i, 2.5)",
         static={"axis": 1, "value": 2.5}),
    Case("scatter of a number", kernels.scatter, ((5, 4), INDEX, Data((), np.array(2.5))),
         "lambda x, i, s: x.scatter(0, i, 2.5) + 0 * s", static={"axis": 0}, differentiable=False),
    Case("scatter multiply", kernels.scatter, INTO, "lambda x, i, s: x.scatter(0, i, s, reduce='multiply')",
         static={"axis": 0, "reduce": "multiply"}, differentiable=False),
    Case("isin", kernels.isin, (Data((2, 3), (0, 6)), Data((2, 2), (0, 6))), "torch.isin", np.isin, differentiable=False),
    Case("isin of a number", kernels.isin, (Data((4,), (0, 3)), Data((), (0, 3))), None, lambda x, v: np.isin(x, v, invert=True),
         {"invert": True}, differentiable=False),
    Case("isin of none", kernels.isin, (Data((3,), (0, 3)), Data((0,), (0, 3))), None, np.isin, differentiable=False),
    *(
        Case(f"interp {name}", kernels.interp, (Data((7,), np.array([-1.0, 0.0, 0.2, 1.0, 2.5, 3.0, 4.0])), Data((k,), XP[:k]), (k,)), None,
             lambda x, xp, fp, given=given: np.interp(x, xp, fp, **given), given, kinks=True, scatters=True)
        for name, k, given in (("", 4, {}), ("outside", 4, {"left": -5.0, "right": 7.0}), ("of two", 2, {}), ("of one", 1, {"left": 2.0}))
    ),
    Case("interp NaN", kernels.interp, (Data((2,), np.array([np.nan, 1.5])), Data((4,), XP), (4,)), None, np.interp,
         differentiable=False, float32=None),
    Case("bincount", kernels.bincount, (BAG, None), "lambda i: torch.bincount(i, minlength=6)", static={"num_bins": 6},
         differentiable=False),
    Case("bincount weights", kernels.bincount, (BAG, (7,)), "lambda i, w: torch.zeros(6, dtype=w.dtype).index_add(0, i, w)",
         lambda i, w: np.bincount(i, w, 6), {"num_bins": 6}),
    segment("segment_sum", np.sum, 0.0),
    segment("segment_mean", np.mean, 0.0),
    segment("segment_prod", np.prod, 1.0, "ties"),
    segment("segment_max", np.max, -np.inf, "distinct"),
    segment("segment_min", np.min, np.inf, "distinct"),
    Case("segment_softmax", kernels.segment_softmax, ((7, 3), SEGMENTS), numpy=softmax_of, static={"num_segments": 5},
         scatters=True),
    Case("ragged_row_sum", kernels.ragged_row_sum, ((7, 3), ENDS), ROW_SUM, scatters=True),
    Case("csr_matmul", kernels.csr_matmul, ((7,), Data((7,), (0, 5)), ENDS, (5, 3)), CSR, scatters=True),
    Case("csr_matmul vector", kernels.csr_matmul, ((7,), Data((7,), (0, 5)), ENDS, (5,)), CSR, scatters=True),
    Case("take_along_dim flat", kernels.take_along_dim, ((2, 3), Data((4,), np.array([5, 0, 2, 2]))), "torch.take_along_dim",
         scatters=True),
    Case("embedding of short rows", kernels.embedding, (Data((2, 2), np.array([[1, 3], [1, 0]])), (5, 4)),
         "lambda i, w: F.embedding(i, w, None, 0.5, 2.0, True)",
         static={"max_norm": 0.5, "scale_grad_by_freq": True}, scatters=True, kinks=True),
    *(
        Case(f"digitize {right}", kernels.digitize, (Data((2, 3), "ties"), Data((3,), np.array([-1.0, 0.0, 1.5]))), None,
             lambda x, b, right=right: np.digitize(x, b, right), {"right": right}, differentiable=False, float32=None)
        for right in (False, True)
    ),
]  # fmt: skip
