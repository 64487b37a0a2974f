"""Functions of statistics: middles and tails, the places where formulas change over, the borders of their ranges."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (Data((2, 5), np.array([[-3.1, -0.9, 0.0, 0.7, 2.2], [3.9, 4.1, 6.5, 30.0, -1.2]])),)
ENDS = (Data((4,), np.array([np.inf, -np.inf, np.nan, -27.5])),)
SHARES = (Data((4,), np.array([0.05, 0.6, 1.3, 1.9])),)
POSITIVE = Data((4,), "positive")
SMALL = (Data((6,), np.array([-1.5, -0.011, -0.009, 0.0, 0.003, 2.0])),)
POWERS = Data((4,), np.array([0.5, -1.0, 2.0, 0.3]))


def boxcox(x, p):
    return np.where(p == 0, np.log(x), (x ** np.where(p == 0, 1, p) - 1) / np.where(p == 0, 1, p))


def rel_entr(x, y):
    return np.array([0.5 * np.log(2.5), 0.0, np.inf, np.inf, np.nan])


CASES = [
    Case("erfcx", kernels.erfcx, X, "torch.special.erfcx"),
    Case("erfcx at the ends", kernels.erfcx, ENDS, "torch.special.erfcx", differentiable=False, float32=None),
    Case("log_ndtr", kernels.log_ndtr, X, "torch.special.log_ndtr"),
    Case("log_ndtr at the ends", kernels.log_ndtr, ENDS, "torch.special.log_ndtr", differentiable=False, float32=None),
    Case("erfcinv", kernels.erfcinv, SHARES, "lambda x: torch.erfinv(1 - x)"),
    Case("rel_entr", kernels.rel_entr, (POSITIVE, POSITIVE), "lambda x, y: x * torch.log(x / y)"),
    Case("rel_entr at the ends", kernels.rel_entr, (Data((5,), np.array([0.5, 0.0, 0.0, -1.0, np.nan])),
         Data((5,), np.array([0.2, 0.0, -1.0, 1.0, 1.0]))), None, rel_entr, differentiable=False, float32=None),
    Case("exprel", kernels.exprel, SMALL, None, lambda x: np.expm1(x) / np.where(x == 0, 1, x) + (x == 0)),
    Case("cosm1", kernels.cosm1, SMALL, None, lambda x: -2 * np.sin(x / 2) ** 2),
    Case("exp10", kernels.exp10, X, "lambda x: 10**x"),
    Case("ldexp", kernels.ldexp, ((5,), Data((5,), (-9, 9))), None, np.ldexp),
    Case("ldexp of real numbers", kernels.ldexp, ((5,), (5,)), "torch.ldexp"),
    Case("ldexp of much", kernels.ldexp, (Data((4,), np.array([1e-300, 1e300, 1.0, 0.0])), Data((4,), np.array([1100, -1200, 3000, 9]))),
         None, lambda x, n: np.array([np.ldexp(1e-300, 1100), np.ldexp(1e300, -1200), np.inf, 0.0]), differentiable=False, float32=None),
    Case("boxcox", kernels.boxcox, (POSITIVE, POWERS), "lambda x, p: (x**p - 1) / p", boxcox),
    Case("boxcox at zero", kernels.boxcox, (POSITIVE, Data((1,), np.zeros(1))), None, boxcox),
    Case("boxcox1p", kernels.boxcox1p, (POSITIVE, POWERS), "lambda x, p: ((1 + x)**p - 1) / p"),
    Case("huber", kernels.huber, (Data((), np.array(1.5)), (7,)),
         "lambda d, r: torch.where(r.abs() <= d, r * r / 2, d * (r.abs() - d / 2))"),
    Case("pseudo_huber", kernels.pseudo_huber, (POSITIVE, (4,)), "lambda d, r: d * d * ((1 + (r / d) ** 2).sqrt() - 1)"),
    Case("angle", kernels.angle, (Data((4,), np.array([1.5, -2.0, 0.0, np.nan])),), "torch.angle", differentiable=False),
]  # fmt: skip
