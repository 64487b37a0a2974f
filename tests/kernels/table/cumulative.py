"""Running sums, products, extremes, recurrences, differences and integrals."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

ZEROS = Data((3, 4), np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 0.7, 0.0, 1.0], [2.0, -1.0, 3.0, 1.25]]))
EMPTY = Data((4,), np.array([-np.inf, 0.3, -np.inf, 1.2]))
DISTINCT = Data((3, 5), "distinct")


def recurrence(a, b, h):
    found = []
    for step in zip(a, b, strict=True):
        h = step[0] * h + step[1]
        found.append(h)
    return np.stack(found)


LOOP = "lambda a, b: torch.stack([sum(b[k] * torch.prod(a[k + 1 : t + 1], 0) for k in range(t + 1)) for t in range(len(b))])"
EMA = "lambda x: torch.stack([0.7**t * x[0] + sum(0.3 * 0.7 ** (t - k) * x[k] for k in range(1, t + 1)) for t in range(len(x))])"

CASES = [
    Case("cumsum", kernels.cumsum, ((3, 5),), "lambda x: x.cumsum(-1)"),
    Case("cumsum of a vector", kernels.cumsum, ((6,),), "lambda x: x.cumsum(0)"),
    Case("cumsum of a number", kernels.cumsum, ((),), "lambda x: x.cumsum(0)"),
    Case("cumsum axis 0", kernels.cumsum, ((4, 2, 3),), "lambda x: x.cumsum(0)", static={"axis": 0}),
    Case("cumsum exclusive", kernels.cumsum, ((4, 3),), "lambda x: x.cumsum(0) - x", static={"axis": 0, "exclusive": True}),
    Case("cumsum reverse", kernels.cumsum, ((2, 4, 3),), "lambda x: x.flip(1).cumsum(1).flip(1)", static={"axis": 1, "reverse": True}),
    Case("cumsum with its start", kernels.cumsum, ((2, 4),), "lambda x: F.pad(x.cumsum(1), (1, 0))",
         static={"axis": 1, "include_initial": True}),
    Case("cumprod with its start", kernels.cumprod, ((3,),), None, lambda x: np.cumulative_prod(x[::-1], include_initial=True)[::-1],
         {"reverse": True, "include_initial": True}),
    Case("cumsum reverse exclusive", kernels.cumsum, ((5,),), "lambda x: x.flip(0).cumsum(0).flip(0) - x",
         static={"reverse": True, "exclusive": True}),
    Case("cumsum of integers", kernels.cumsum, (Data((3, 4), (-5, 9)),), "lambda x: x.cumsum(1)", differentiable=False),
    Case("cumsum in a dtype", kernels.cumsum, (Data((4,), (-5, 9)),), "lambda x: x.cumsum(0, dtype=torch.float64)",
         static={"dtype": np.float64}, differentiable=False, float32=None),
    Case("cumprod", kernels.cumprod, ((3, 5),), "lambda x: x.cumprod(-1)"),
    Case("cumprod zeros", kernels.cumprod, (ZEROS,), "lambda x: x.cumprod(0)", static={"axis": 0}),
    Case("cumprod exclusive reverse", kernels.cumprod, (ZEROS,),
         "lambda x: torch.cat([x.flip(1).cumprod(1).flip(1)[:, 1:], torch.ones(3, 1)], 1)", static={"exclusive": True, "reverse": True}),
    Case("cummax", kernels.cummax, (DISTINCT,), "lambda x: x.cummax(1)"),
    Case("cummax ties", kernels.cummax, (Data((3, 6), "ties"),), "lambda x: x.cummax(0)", static={"axis": 0}, kinks=True),
    Case("cummax reverse", kernels.cummax, (DISTINCT,), "lambda x: (lambda v, i: (v.flip(1), 4 - i.flip(1)))(*x.flip(1).cummax(1))",
         static={"reverse": True}),
    Case("cummin", kernels.cummin, (DISTINCT,), "lambda x: x.cummin(0)", static={"axis": 0}),
    Case("logcumsumexp", kernels.logcumsumexp, ((3, 5),), "lambda x: x.logcumsumexp(1)"),
    Case("logcumsumexp reverse", kernels.logcumsumexp, ((5,),), "lambda x: x.flip(0).logcumsumexp(0).flip(0)", static={"reverse": True}),
    Case("logcumsumexp equal terms", kernels.logcumsumexp, (Data((4,), np.zeros(4)),), "lambda x: x.logcumsumexp(0)"),
    Case("logcumsumexp empty terms", kernels.logcumsumexp, (EMPTY,), numpy=np.logaddexp.accumulate, kinks=True),
    Case("linear_recurrence", kernels.linear_recurrence, ((5, 3), (5, 3), None), LOOP),
    Case("linear_recurrence initial", kernels.linear_recurrence, ((5, 3), (5, 3), (3,)), numpy=recurrence),
    Case("linear_recurrence axis 1, reverse", kernels.linear_recurrence, ((2, 4), (2, 4), (2,)),
         numpy=lambda a, b, h: recurrence(a.T[::-1], b.T[::-1], h)[::-1].T, static={"axis": 1, "reverse": True}),
    Case("ema", kernels.ema, ((5, 3),), EMA, static={"alpha": 0.3, "axis": 0}),
    Case("diff", kernels.diff, ((3, 5),), "torch.diff"),
    Case("diff with more at both ends", kernels.diff, ((2, 3), (2, 1), (2, 2)), "lambda x, a, b: torch.diff(x, prepend=a, append=b)"),
    Case("diff twice, axis 0", kernels.diff, ((5, 3),), "lambda x: torch.diff(x, 2, 0)", static={"n": 2, "axis": 0}),
    Case("trapezoid", kernels.trapezoid, ((3, 5), (5,)), "torch.trapezoid"),
    Case("trapezoid dx", kernels.trapezoid, ((5, 3), None), "lambda y: torch.trapezoid(y, dx=0.5, dim=0)", static={"dx": 0.5, "axis": 0}),
    Case("trapezoid points of one shape", kernels.trapezoid, ((3, 5), (3, 5)), "torch.trapezoid"),
    Case("cumulative_trapezoid", kernels.cumulative_trapezoid, ((3, 5), (5,)), "torch.cumulative_trapezoid"),
    Case("trapz", kernels.trapz, ((2, 4), (2, 4)), "torch.trapz"),
    Case("unwrap", kernels.unwrap, (Data((2, 5), np.array([[0.0, 3.0, -3.0, 2.9, 9.0], [1.0, -2.5, 4.0, 4.1, -8.0]])),), None, np.unwrap),
    Case("unwrap axis", kernels.unwrap, (Data((4, 2), np.array([[0.0, 1.0], [0.7, -1.0], [0.2, 3.0], [1.9, 2.2]])),), None,
         lambda x: np.unwrap(x, discont=0.6, axis=0, period=1.0), {"discont": 0.6, "axis": 0, "period": 1.0}),
]  # fmt: skip
