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
    Case("vander of one power", kernels.vander, ((3,),), None, lambda x: np.vander(x, 1), {"n": 1}, kinks=True),
]
