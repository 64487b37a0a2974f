"""Convolution of sequences in every mode and order of lengths, differences in the middle."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

LENGTHS = ((5, 3), (3, 5), (4, 4), (6, 2), (2, 6), (1, 3))
CASES = [
    *(
        Case(f"{op.name} {mode} {n} {m}", op, ((n,), (m,)), None, lambda x, y, f=f, mode=mode: f(x, y, mode), {"mode": mode})
        for op, f in ((kernels.convolve, np.convolve), (kernels.correlate, np.correlate))
        for mode in ("full", "same", "valid")
        for n, m in LENGTHS
    ),
    Case("convolve of integers", kernels.convolve, (Data((4,), (-3, 4)), Data((2,), (-3, 4))), None, np.convolve, differentiable=False),
    Case("gradient", kernels.gradient, ((5,),), "lambda x: torch.gradient(x)[0]", np.gradient),
    Case("gradient of several axes", kernels.gradient, ((3, 4),), "lambda x: torch.gradient(x)", lambda x: tuple(np.gradient(x))),
    Case("gradient axis", kernels.gradient, ((3, 4),), None, lambda x: np.gradient(x, 0.5, axis=0), {"axis": 0, "spacing": 0.5}),
    Case(
        "gradient of order 2",
        kernels.gradient,
        ((2, 3),),
        None,
        lambda x: np.gradient(x, axis=1, edge_order=2),
        {"axis": 1, "edge_order": 2},
    ),
    Case("gradient spacings", kernels.gradient, ((3, 3),), None, lambda x: tuple(np.gradient(x, 2.0, 0.5)), {"spacing": (2.0, 0.5)}),
]
