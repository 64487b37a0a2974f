"""Systems of equations: pivots that have to be looked for, batches, vectors and columns, one and no equation."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

RNG = np.random.default_rng(3)
PIVOTS = np.array([[0.0, 2.0, 1.0], [1.0, 0.5, -1.0], [3.0, 1.0, 0.2]])
BATCH = Data((2, 4, 4), RNG.standard_normal((2, 4, 4)))
SOLID = Data((2, 3, 3), (lambda a: a @ a.transpose(0, 2, 1) + np.eye(3))(RNG.standard_normal((2, 3, 3))))
SINGULAR = Data((3, 3), np.array([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.3, -1.0, 2.0]]))
TRIANGLE = Data((3, 3), np.array([[2.0, 9.0, 9.0], [0.5, -1.5, 9.0], [0.3, 0.7, 1.2]]))

CASES = [
    Case("det", kernels.det, (Data((3, 3), PIVOTS),), "torch.linalg.det", np.linalg.det),
    Case("det of a batch", kernels.det, (BATCH,), "torch.linalg.det", np.linalg.det),
    Case("det of a singular matrix", kernels.det, (SINGULAR,), None, np.linalg.det),
    Case("det of nothing", kernels.det, (Data((2, 0, 0), np.zeros((2, 0, 0))),), None, np.linalg.det, differentiable=False),
    Case("slogdet", kernels.slogdet, (BATCH,), "lambda x: tuple(torch.linalg.slogdet(x))", np.linalg.slogdet),
    Case("logdet", kernels.logdet, (SOLID,), "torch.logdet"),
    Case("logdet of a negative one", kernels.logdet, (Data((2, 2), np.diag([1.0, -2.0])),), "torch.logdet", differentiable=False),
    Case("inv", kernels.inv, (Data((3, 3), PIVOTS),), "torch.linalg.inv", np.linalg.inv),
    Case("inv of a batch", kernels.inv, (BATCH,), "torch.linalg.inv", np.linalg.inv),
    Case("solve", kernels.solve, (Data((3, 3), PIVOTS), (3,)), "torch.linalg.solve", np.linalg.solve),
    Case("solve for columns", kernels.solve, (BATCH, (2, 4, 3)), "torch.linalg.solve", np.linalg.solve),
    Case("solve for a batch of vectors", kernels.solve, (BATCH, (2, 4)), "torch.linalg.solve"),
    Case("solve one system for many", kernels.solve, (Data((3, 3), PIVOTS), (2, 3, 2)), "torch.linalg.solve", np.linalg.solve),
    Case("cholesky", kernels.cholesky, (SOLID,), None, np.linalg.cholesky),
    Case("cholesky upper", kernels.cholesky, (SOLID,), None, lambda x: np.linalg.cholesky(x).transpose(0, 2, 1), {"upper": True}),
    Case("solve_triangular", kernels.solve_triangular, (TRIANGLE, (3, 2)),
         "lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False)", None, {"upper": False}),
    Case("solve_triangular upper", kernels.solve_triangular, (TRIANGLE, (3, 2)),
         "lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True, unitriangular=True)", None,
         {"upper": True, "unitriangular": True}),
    Case("solve_triangular from the right", kernels.solve_triangular, (TRIANGLE, (2, 3)),
         "lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True, left=False)", None, {"upper": True, "left": False}),
]  # fmt: skip
