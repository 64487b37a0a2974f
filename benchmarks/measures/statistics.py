"""What many figures come to: quantiles, geometric means, rank correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def quantile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least this share of them does not exceed; NaN of none.

    It is one of the values: beside one that is infinite (what has no time) nothing is interpolated.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; NaN of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ranks(values: Sequence[float]) -> np.ndarray:
    """The rank of each value, from 1; equal values share the mean of theirs."""
    found = np.asarray(values, np.float64)
    _, inverse, counts = np.unique(found, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: the correlation of ranks, from -1 to 1; NaN where all of one side are equal, or there are fewer than two."""
    x, y = ranks(a), ranks(b)
    if len(x) < 2:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else math.nan
