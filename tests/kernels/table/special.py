"""Special functions beside PyTorch's, in all of their ranges; divisors of integers."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (Data((2, 4), np.array([[-12.5, -7.9, -0.6, 0.2], [1.3, 8.1, 20.0, 3.3]])),)
SHARES = (Data((6,), np.array([0.01, 0.06, 0.3, 0.62, 0.95, 0.99])),)
POSITIVE = (Data((5,), "positive"),)
WHOLE = (Data((3, 4), (-30, 31)), Data((4,), np.array([12, -18, 0, 7])))


def zeta(s, q):
    """A long sum, and the first terms of Euler and Maclaurin's formula for the rest."""
    a = q + 400
    terms = ((q[..., None] + np.arange(400)) ** -s[..., None]).sum(-1)
    return terms + a ** (1 - s) / (s - 1) + a**-s / 2 + s * a ** (-s - 1) / 12 - s * (s + 1) * (s + 2) * a ** (-s - 3) / 720


CASES = [
    Case("cbrt", kernels.cbrt, X, None, np.cbrt),
    *(Case(name, getattr(kernels, name), X, f"torch.special.{name}") for name in ("i0", "i0e", "i1", "i1e")),
    Case("ndtri", kernels.ndtri, SHARES, "torch.special.ndtri", float32=None),
    Case("ndtri at the ends", kernels.ndtri, (Data((8,), np.array([0.0, 1.0, -0.1, 1.5, np.nan, 1e-30, 1e-300, 1 - 1e-14])),),
         "torch.special.ndtri", differentiable=False, float32=None),
    *(Case(f"polygamma {n}", kernels.polygamma, POSITIVE, f"lambda x: torch.special.polygamma({n}, x)", None, {"n": n}) for n in (0, 1, 3)),
    *(
        Case(f"polygamma {n} below 0", kernels.polygamma, (Data((4,), np.array([-0.3, -2.6, -10.8, -1.5])),),
             f"lambda x: torch.special.polygamma({n}, x)", None, {"n": n}) for n in (1, 2)
    ),
    Case("zeta", kernels.zeta, (Data((3, 2), np.array([[1.1, 1.5], [2.0, 3.7], [9.0, 2.5]])), Data((2,), "positive")), None, zeta),
    Case("zeta at the ends", kernels.zeta, (Data((4,), np.array([1.0, 0.5, 2.0, np.nan])), Data((4,), np.array([2.0, 1.0, 0.0, 1.0]))),
         "torch.special.zeta", differentiable=False, float32=None),
    Case("gcd", kernels.gcd, WHOLE, "torch.gcd", differentiable=False, float32=None),
    Case("lcm", kernels.lcm, WHOLE, "torch.lcm", differentiable=False, float32=None),
]  # fmt: skip
