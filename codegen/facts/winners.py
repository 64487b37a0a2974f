"""The best value so far of an argmax or argmin, and what wins over it."""

from __future__ import annotations

from typing import Any

from tensorexpr.dtypes import DType
from tensorexpr.ir import Const, Expr, apply


def beaten_by_all(name: str, dtype: DType) -> Any:
    """The best value of an argmax or argmin before there is one."""
    return dtype.least if name == "argmax" else dtype.greatest


def beats(name: str, value: Expr, best: Expr) -> Expr:
    """Whether a value wins over another one in an argmax or argmin, wherever the two stand."""
    if not value.dtype.is_float:
        return apply("gt" if name == "argmax" else "lt", value, best)
    kept = apply("or", apply("isnan", best), apply("le" if name == "argmax" else "ge", value, best))  # a NaN is neither less nor equal
    return apply("invert", kept)


def wins(name: str, found: Expr, best: Expr, value: Expr) -> Expr:
    """Whether a value wins over the best so far, at position `found`, which is negative where there is none yet."""
    return apply("or", apply("lt", found, Const(0, found.dtype)), beats(name, value, best))
