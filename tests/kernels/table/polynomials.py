"""Polynomials: few coefficients and none, powers both ways."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

WITH_ZERO = (Data((3,), np.array([0.0, -1.5, 2.0])),)
CASES = [
    Case("polyval", kernels.polyval, ((4,), (2, 3)), None, np.polyval),
    Case("polyval of a number", kernels.polyval, ((1,), ()), None, np.polyval),
    Case("polyval without coefficients", kernels.polyval, ((0,), (3,)), None, lambda p, x: np.zeros(3)),
    Case("vander", kernels.vander, WITH_ZERO, None, np.vander, kinks=True),
    Case(
        "vander increasing",
        kernels.vander,
        WITH_ZERO,
        "lambda x: torch.stack([x**k for k in range(4)], 1)",
        None,
        {"n": 4, "increasing": True},
        kinks=True,
    ),
    Case("polyadd", kernels.polyadd, ((3,), (5,)), None, np.polyadd),
    Case("polysub", kernels.polysub, ((5,), (2,)), None, np.polysub),
    Case("polymul", kernels.polymul, ((3,), (4,)), None, np.polymul),
    Case("polyder", kernels.polyder, ((5,),), None, np.polyder),
    Case("polyder twice", kernels.polyder, ((5,),), None, lambda p: np.polyder(p, 2), {"m": 2}),
    Case("polyder of a constant", kernels.polyder, ((1,),), None, lambda p: np.zeros(0)),
    Case("polyint", kernels.polyint, ((4,),), None, np.polyint),
    Case("polyint twice", kernels.polyint, ((4,),), None, lambda p: np.polyint(p, 2, [1.5, -2.0]), {"m": 2, "k": (1.5, -2.0)}),
    Case("vander of one power", kernels.vander, ((3,),), None, lambda x: np.vander(x, 1), {"n": 1}, kinks=True),
]
