"""Derivatives of programs: gradients in gather form, tangents, Jacobians.

`local` is the derivative of one definition (`derivatives` the table of scalar operations, `contributions` what an expression sends
to its reads), `invert` turns a read into a gather, `data` and `scan` have the constructs that need more, `sweep` the two modes
on programs (`accumulate`: all that flows into one tensor), and `api` is the way in.
"""

from tensorexpr.autodiff.api.gradient import Gradient, gradient
from tensorexpr.autodiff.api.jvp import jacobian, jvp
from tensorexpr.autodiff.api.report import Report, Row

__all__ = ["Gradient", "Report", "Row", "gradient", "jacobian", "jvp"]
