"""The gamma function and its kin, beside PyTorch's logarithms of it; both sides of 1/2, poles, numbers that overflow."""

import math

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (Data((2, 4), np.array([[-2.5, -0.7, 0.2, 0.9], [1.3, 4.1, 20.0, 31.3]])),)
PAIR = (Data((3, 1), np.array([[0.1], [2.5], [40.0]])), Data((4,), np.array([0.3, 1.0, 7.5, 200.0])))
LARGE = (Data((3,), np.array([3.0, 4.5, 9.0])),)
WHOLE = (Data((3, 1), np.array([[5], [30], [0]])), Data((5,), np.array([-1, 0, 2, 5, 31])))
LOG_BETA = "torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)"


def gammas(x):
    return np.array([math.nan if v < 0 and v == int(v) else math.copysign(math.inf, v) if v == 0 else math.gamma(v) for v in x])


CASES = [
    Case("gamma", kernels.gamma, X, None, np.vectorize(math.gamma)),
    Case("gamma at poles", kernels.gamma, (Data((5,), np.array([0.0, -0.0, -1.0, -4.0, 171.5])),), None, gammas, differentiable=False,
         float32=None),
    Case("betaln", kernels.betaln, PAIR, f"lambda a, b: {LOG_BETA}"),
    Case("beta", kernels.beta, PAIR, f"lambda a, b: ({LOG_BETA}).exp()"),
    Case("beta of others", kernels.beta, (Data((2,), np.array([-1.0, 2.0])), Data((2,), np.array([1.0, 0.0]))), None,
         lambda a, b: np.full(2, np.nan), differentiable=False, float32=None),
    Case("multigammaln", kernels.multigammaln, LARGE, "lambda x: torch.special.multigammaln(x, 4)", None, {"p": 4}),
    Case("comb", kernels.comb, WHOLE, None, np.vectorize(lambda n, k: float(math.comb(n, k)) if k >= 0 else 0.0), differentiable=False,
         float32=None),
    Case("comb of real numbers", kernels.comb, (Data((2,), np.array([7.5, 3.2])), Data((2,), np.array([2.5, 1.1]))),
         "lambda n, k: (torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)).exp()"),
]  # fmt: skip
