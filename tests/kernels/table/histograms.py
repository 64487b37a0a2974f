"""Histograms: elements on edges, outside of the range, all equal; weights."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

EDGES = (Data((9,), np.array([0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, -0.5])),)
COUNTED = {"differentiable": False, "float32": None}

CASES = [
    Case("histogram", kernels.histogram, ((20,),), None, np.histogram, **COUNTED),
    Case("histogram on edges", kernels.histogram, EDGES, None, lambda x: np.histogram(x, 10, (0.0, 1.0)), {"range": (0.0, 1.0)}, **COUNTED),
    Case("histogram of integers", kernels.histogram, (Data((3, 5), (-4, 5)),), None, lambda x: np.histogram(x, 4), {"bins": 4}, **COUNTED),
    Case("histogram of equals", kernels.histogram, (Data((3,), np.full(3, 2.0)),), None,
         lambda x: np.histogram(x, 3), {"bins": 3}, **COUNTED),
    Case("histogram as a density", kernels.histogram, ((20,),), None,
         lambda x: np.histogram(x, 5, density=True), {"bins": 5, "density": True},
         **COUNTED),
    Case("histogram of weights", kernels.histogram, (EDGES[0], (9,)), None,
         lambda x, w: np.histogram(x, 4, (0.0, 1.0), weights=w), {"bins": 4, "range": (0.0, 1.0)}, **COUNTED),
    Case("histc", kernels.histc, ((20,),), "lambda x: torch.histc(x, 5, -1.0, 1.5)", None, {"bins": 5, "min": -1.0, "max": 1.5}, **COUNTED),
    Case("histc of all", kernels.histc, ((3, 4),), "lambda x: torch.histc(x, 6)", None, {"bins": 6}, **COUNTED),
]  # fmt: skip
