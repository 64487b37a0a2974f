"""Derivatives of programs: gradients in gather form, tangents, Jacobians.

`derivatives` is the table of scalar operations, `reverse` and `forward` the two modes on programs, `contributions` what an
expression sends to its reads, `inversion` (with `pieces`) how a read is turned into a gather, `accumulate` the sum of all
of them, `winners`, `products`, `scans` and `scatters` the constructs that need more; `gradient` and `jvp` are the way in.
"""

from tensorexpr.autodiff.gradient import Gradient, gradient
from tensorexpr.autodiff.jvp import jacobian, jvp
from tensorexpr.autodiff.report import Report, Row

__all__ = ["Gradient", "Report", "Row", "gradient", "jacobian", "jvp"]
