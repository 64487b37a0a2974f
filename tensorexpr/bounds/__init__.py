"""Proofs about indices: whether accesses stay in bounds (`accesses`), products and quotients of sizes (`nonlinear`), all points of small
loops as the last resort (`enumeration`), arithmetic that may wrap around (`wrapping`)."""

from tensorexpr.bounds.accesses import (
    PROVED,
    UNKNOWN,
    Interval,
    OutOfBounds,
    Proved,
    axis_ranges,
    check_access,
    implied,
    interval,
    interval_of_operation,
    interval_of_type,
    is_empty,
)

__all__ = [
    "Interval", "OutOfBounds", "PROVED", "Proved", "UNKNOWN", "axis_ranges", "check_access", "implied", "interval",
    "interval_of_operation", "interval_of_type", "is_empty",
]  # fmt: skip
