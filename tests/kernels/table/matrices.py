"""Diagonals, traces and triangles."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

PLANE = {"offset": 1, "axis1": 2, "axis2": 0}

CASES = [
    Case("diagonal", kernels.diagonal, ((3, 4),), "torch.diagonal"),
    Case("diagonal below", kernels.diagonal, ((4, 3),), "lambda x: torch.diagonal(x, -2)", None, {"offset": -2}),
    Case("diagonal of a plane", kernels.diagonal, ((3, 2, 4),), "lambda x: torch.diagonal(x, 1, 2, 0)", None, PLANE),
    Case(
        "diagonal_scatter", kernels.diagonal_scatter, ((3, 4), (2,)), "lambda x, y: torch.diagonal_scatter(x, y, -1)", None,
        {"offset": -1},
    ),
    Case("trace", kernels.trace, ((4, 4),), "torch.trace"),
    Case("trace of a plane", kernels.trace, ((3, 2, 4),), "lambda x: torch.diagonal(x, 1, 2, 0).sum(-1)", None, PLANE),
    Case("diag_embed", kernels.diag_embed, ((2, 3),), "torch.diag_embed"),
    Case(
        "diag_embed above", kernels.diag_embed, ((2, 3),), "lambda x: torch.diag_embed(x, 2, 0, 2)", None,
        {"offset": 2, "axis1": 0, "axis2": 2},
    ),
    Case("diag_embed below", kernels.diag_embed, ((3,),), "lambda x: torch.diag_embed(x, -1)", None, {"offset": -1}),
    Case("diag of a matrix", kernels.diag, ((3, 4),), "lambda x: torch.diag(x, 1)", None, {"offset": 1}),
    Case("diag of a vector", kernels.diag, ((3,),), "torch.diag"),
    Case("triu", kernels.triu, ((2, 3, 4),), "lambda x: torch.triu(x, 1)", None, {"diagonal": 1}),
    Case("tril", kernels.tril, ((3, 4),), "lambda x: torch.tril(x, -1)", None, {"diagonal": -1}),
    Case("diagflat", kernels.diagflat, ((2, 2),), "lambda x: torch.diagflat(x, 1)", None, {"offset": 1}),
    Case("t", kernels.t, ((2, 3),), "torch.t"),
    Case("cov", kernels.cov, ((3, 4),), "torch.cov"),
    Case("cov of columns", kernels.cov, ((3, 4),), "lambda x: torch.cov(x.T)", None, {"rowvar": False}),
    Case(
        "cov with weights", kernels.cov, ((2, 4), Data((4,), np.array([1, 3, 2, 1])), Data((4,), "positive")),
        "lambda x, f, a: torch.cov(x, fweights=f, aweights=a)",
    ),
    Case("corrcoef", kernels.corrcoef, ((3, 4),), "torch.corrcoef"),
]  # fmt: skip
