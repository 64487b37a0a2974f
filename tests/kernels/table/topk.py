"""Sorting, the greatest, the k-th, the median, quantiles: values differentiable, ties as stated."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = Data((3, 6), "distinct")
TIES = Data((4, 5), "ties")


def order(x, axis, descending=False):
    places = np.argsort(-x if descending else x, axis, kind="stable")
    return np.take_along_axis(x, places, axis), places


CASES = [
    Case("sort", kernels.sort, (X,), "lambda x: x.sort(-1)"),
    Case("sort descending, axis 0", kernels.sort, (X,), "lambda x: x.sort(0, True)", static={"axis": 0, "descending": True}),
    Case("sort ties", kernels.sort, (TIES,), "lambda x: x.sort(stable=True, dim=1)", lambda x: order(x, 1), kinks=True),
    Case("sort ties descending", kernels.sort, (TIES,), "lambda x: x.sort(stable=True, dim=0, descending=True)",
         lambda x: order(x, 0, True), {"axis": 0, "descending": True}, kinks=True),
    Case("argsort", kernels.argsort, (TIES,), "lambda x: x.argsort(stable=True, dim=1)", differentiable=False),
    Case("topk", kernels.topk, (X,), "lambda x: x.topk(2)", static={"k": 2}),
    Case("topk smallest, axis 0", kernels.topk, (Data((5, 2, 2), "distinct"),), "lambda x: x.topk(3, 0, False)",
         static={"k": 3, "axis": 0, "largest": False}),
    Case("topk ties", kernels.topk, (TIES,), numpy=lambda x: tuple(y[:, :3] for y in order(x, 1, True)), static={"k": 3}, kinks=True),
    Case("kthvalue", kernels.kthvalue, (X,), "lambda x: x.kthvalue(2)", static={"k": 2}),
    Case("median", kernels.median, (X,), "lambda x: x.median(1)", static={"axis": 1}),
    Case("median of all", kernels.median, (X,), "torch.median"),
    Case("median odd, axis 0", kernels.median, (X,), "lambda x: x.median(0)", static={"axis": 0}),
    Case("quantile", kernels.quantile, (X,), "lambda x: x.quantile(0.3, 1)", static={"q": 0.3, "axis": 1}),
    Case("kthvalue kept", kernels.kthvalue, (X,), "lambda x: x.kthvalue(2, 0, True)", static={"k": 2, "axis": 0, "keepdims": True}),
    Case("median kept", kernels.median, (X,), "lambda x: x.median(1, True)", static={"axis": 1, "keepdims": True}),
    Case("percentile", kernels.percentile, (X,), None, lambda x: np.percentile(x, (10, 55), axis=1), {"q": (10, 55), "axis": 1}),
    Case("quantile midpoint", kernels.quantile, (X,), "lambda x: x.quantile(0.3, 1, interpolation='midpoint')",
         static={"q": 0.3, "axis": 1, "interpolation": "midpoint"}),
    Case("quantile nearest", kernels.quantile, (X,), "lambda x: x.quantile(0.3, 1, interpolation='nearest')",
         static={"q": 0.3, "axis": 1, "interpolation": "nearest"}),
    Case("quantile kept", kernels.quantile, (X,), "lambda x: x.quantile(0.3, 0, True)", static={"q": 0.3, "axis": 0, "keepdims": True}),
    Case("quantile the last", kernels.quantile, (X,), "lambda x: x.quantile(1.0, 0)", static={"q": 1.0, "axis": 0}),
    Case("quantile of one", kernels.quantile, ((3, 1),), "lambda x: x.quantile(0.5)", static={"q": 0.5}),
    Case("msort", kernels.msort, (X,), "torch.msort"),
    Case("quantiles", kernels.quantile, (X,), "lambda x: x.quantile(torch.tensor((0.2, 0.9), dtype=x.dtype), 0)",
         static={"q": (0.2, 0.9), "axis": 0}),
    Case("mode", kernels.mode, (TIES,), "lambda x: torch.mode(x, 1)", None, {"axis": 1}, kinks=True, scatters=True),
    Case("mode kept", kernels.mode, (X,), "lambda x: torch.mode(x, 0, True)", None, {"axis": 0, "keepdims": True}, scatters=True),
    Case("partition", kernels.partition, (X,), None, lambda x: np.sort(x, 0), {"kth": 1, "axis": 0}),
    Case("argpartition", kernels.argpartition, (X,), None, np.argsort, {"kth": (1, -2)}, differentiable=False),
    Case("sort of all", kernels.sort, (X,), "lambda x: torch.sort(x.ravel())", static={"axis": None}),
    Case("argsort of all", kernels.argsort, (X,), "lambda x: torch.argsort(x.ravel())", static={"axis": None}, differentiable=False),
]  # fmt: skip
