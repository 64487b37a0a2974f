"""Reductions over one axis, several, all; with and without the axes kept."""

import math

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

A = ((3, 4),)
B = ((2, 3, 4),)
D = (Data((2, 3, 4), "distinct"),)
NONE = (Data((3, 0)),)
TIES = (Data((3, 5), "ties"),)
HOLES = (Data((2, 3), np.array([[1.0, np.nan, 2.0], [np.nan, -3.0, 0.5]])),)
ZEROS = (Data((3, 4), np.array([[2.0, 0.0, -1.0, 3.0], [0.0, 0.0, 1.0, 2.0], [1.0, 2.0, -1.5, 0.5]])),)
EQUALS = (Data((2, 3), np.array([[1.0, 1.0, 1.0], [2.0, 3.0, 5.0]])),)
LARGE = (Data((3, 2), np.array([[1e4, 1e4], [-1e5, -1e5 + 1], [0.0, 800.0]])),)
INFINITE = (Data((4, 2), np.array([[np.inf, 1.0], [-np.inf, -np.inf], [-np.inf, 2.0], [np.nan, 1.0]])),)


def values(name, op, inputs, reference, **static) -> Case:
    return Case(name, op, inputs, None, reference, static, differentiable=False, float32=None)


CASES = [
    Case("sum", kernels.sum, B, "torch.sum", np.sum),
    Case("sum axis", kernels.sum, B, "lambda x: x.sum(1)", None, {"axis": 1}),
    Case("sum axes kept", kernels.sum, B, "lambda x: x.sum((-1, 0), keepdim=True)", None, {"axis": (-1, 0), "keepdims": True}),
    Case("sum of a number", kernels.sum, ((),), "torch.sum"),
    values("sum of bools", kernels.sum, (Data((3, 4), "bool"),), lambda x: x.sum(0), axis=0),
    values("sum in a dtype", kernels.sum, (Data((3, 4), (0, 9)),), lambda x: x.sum(1, dtype=np.float64), axis=1, dtype="float64"),
    Case("prod", kernels.prod, A, "torch.prod"),
    Case("prod with zeros", kernels.prod, ZEROS, "lambda x: x.prod(1)", None, {"axis": 1}),
    Case("amax", kernels.amax, D, "torch.amax"),
    Case("amax axes", kernels.amax, D, "lambda x: x.amax((0, 2))", None, {"axis": (0, 2)}),
    Case("amax axis kept", kernels.amax, D, "lambda x: x.amax(1, keepdim=True)", None, {"axis": 1, "keepdims": True}),
    Case("amin axis", kernels.amin, D, "lambda x: x.amin(-1)", None, {"axis": -1}),
    Case("max", kernels.max, D, "torch.max"),
    Case("max axis", kernels.max, D, "lambda x: x.max(1)", None, {"axis": 1}),
    Case("max axis kept", kernels.max, D, "lambda x: x.max(-1, keepdim=True)", None, {"axis": -1, "keepdims": True}),
    values("max of equals", kernels.max, TIES, lambda x: (x.max(1), x.argmax(1)), axis=1),
    Case("min", kernels.min, D, "torch.min"),
    Case("min axis", kernels.min, D, "lambda x: x.min(0)", None, {"axis": 0}),
    values("min with NaN", kernels.min, HOLES, lambda x: (x.min(0), x.argmin(0)), axis=0),
    Case("aminmax", kernels.aminmax, D, "lambda x: torch.aminmax(x, dim=1, keepdim=True)", None, {"axis": 1, "keepdims": True}),
    values("argmax", kernels.argmax, TIES, np.argmax),
    values("argmax axis", kernels.argmax, TIES, lambda x: x.argmax(1), axis=1),
    values("argmax axes", kernels.argmax, B, lambda x: x.reshape(2, 12).argmax(1), axis=(1, 2)),
    values("argmin axis kept", kernels.argmin, TIES, lambda x: x.argmin(0, keepdims=True), axis=0, keepdims=True),
    values("all", kernels.all, (Data((3, 4), "bool"),), lambda x: x.all(1), axis=1),
    values("any", kernels.any, TIES, lambda x: x.any(0, keepdims=True), axis=0, keepdims=True),
    values("count_nonzero", kernels.count_nonzero, TIES, lambda x: np.count_nonzero(x, 1), axis=1),
    *(
        Case(
            f"{name} where {shape[1]}", op, ((3, 4), Data(shape, "bool")), None,
            lambda x, m, f=f, given=given: f(x, axis=1, where=m, **given), {"axis": 1, **given}, kinks="am" in name,
        )
        for name, op, f, given in (
            ("sum", kernels.sum, np.sum, {}), ("sum initial", kernels.sum, np.sum, {"initial": 2.5}),
            ("prod", kernels.prod, np.prod, {"initial": -2.0}), ("amax", kernels.amax, np.max, {"initial": -0.1}),
            ("amin", kernels.amin, np.min, {"initial": 0.1, "keepdims": True}),
        )
        for shape in ((3, 4), (3, 1))
    ),
    Case("mean where", kernels.mean, ((3, 4), Data((4,), np.array([True, False, True, True]))), None,
         lambda x, m: np.mean(x, axis=1, where=m), {"axis": 1}),
    values("amax initial", kernels.amax, NONE, lambda x: np.max(x, axis=1, initial=2), axis=1, initial=2),
    values("amin initial of integers", kernels.amin, (Data((3, 4), (0, 9)),), lambda x: np.min(x, initial=3), initial=3),
    values("mean of integers where", kernels.mean, (Data((3, 4), (0, 9)), Data((3, 4), np.eye(3, 4) == 0)),
           lambda x, m: np.mean(x, axis=0, where=m), axis=0),
    Case("ptp", kernels.ptp, D, None, np.ptp),
    Case("ptp axis kept", kernels.ptp, D, None, lambda x: np.ptp(x, 1, keepdims=True), {"axis": 1, "keepdims": True}),
    values("ptp of integers", kernels.ptp, (Data((3, 4), (0, 9)),), lambda x: np.ptp(x, 0), axis=0),
    Case("average", kernels.average, ((3, 4), None), "lambda x: x.mean(0)", lambda x: np.average(x, axis=0), {"axis": 0}),
    Case("average by weights", kernels.average, ((3, 4), Data((3, 4), "positive")), None, lambda x, w: np.average(x, weights=w)),
    Case("average by a vector", kernels.average, ((3, 4), Data((3,), "positive")), None,
         lambda x, w: np.average(x, axis=0, weights=w, keepdims=True), {"axis": 0, "keepdims": True}),
    values("average of integers", kernels.average, (Data((3, 4), (0, 9)), Data((3, 4), (1, 9))),
           lambda x, w: np.average(x, axis=1, weights=w), axis=1),
    Case("mean", kernels.mean, B, "torch.mean", np.mean),
    Case("mean axes kept", kernels.mean, B, "lambda x: x.mean((0, 2), True)", None, {"axis": (0, 2), "keepdims": True}),
    values("mean of integers", kernels.mean, (Data((3, 4), (0, 9)),), lambda x: x.mean(0), axis=0),
    Case("var", kernels.var, B, "torch.var"),
    Case("var axes", kernels.var, B, "lambda x: x.var((0, 2), correction=0)", None, {"axis": (0, 2), "correction": 0}),
    values("var of integers", kernels.var, (Data((3, 4), (0, 9)),), lambda x: x.var(0, ddof=1), axis=0),
    Case("std", kernels.std, B, "lambda x: x.std(1, keepdim=True)", None, {"axis": 1, "keepdims": True}),
    Case("std of equals", kernels.std, EQUALS, "lambda x: x.std(1)", None, {"axis": 1}, kinks=True),
    Case("var_mean", kernels.var_mean, B, "torch.var_mean"),
    Case("var_mean axis", kernels.var_mean, B, "lambda x: torch.var_mean(x, 1, correction=0)", None, {"axis": 1, "correction": 0}),
    Case(
        "var_mean axes kept", kernels.var_mean, B, "lambda x: torch.var_mean(x, (0, 2), keepdim=True)", None,
        {"axis": (0, 2), "keepdims": True},
    ),
    Case("std_mean", kernels.std_mean, B, "lambda x: torch.std_mean(x, 1, unbiased=False)", None, {"axis": 1, "unbiased": False}),
    Case("norm", kernels.norm, B, "torch.linalg.vector_norm"),
    *(
        Case(
            f"norm p={p}", kernels.norm, (Data((3, 4), "distinct"),), f"lambda x: torch.linalg.vector_norm(x, {p}, 1)", None,
            {"p": p, "axis": 1}, kinks=p == 0,
        )
        for p in (0, 0.5, 1, 1.5, 3, -1)
    ),
    Case("norm p=inf", kernels.norm, D, "lambda x: torch.linalg.vector_norm(x, math.inf, (0, 1))", None, {"p": math.inf, "axis": (0, 1)}),
    Case("norm p=-inf", kernels.norm, D, "lambda x: torch.linalg.vector_norm(x, -math.inf, 2)", None, {"p": -math.inf, "axis": 2}),
    *(
        Case(
            f"norm p={p} of zeros", kernels.norm, (Data((3, 3), np.array([[0.0, 0, 0], [0, 3, -4], [1, 2, 2]])),),
            f"lambda x: torch.linalg.vector_norm(x, {p}, 1)", None, {"p": p, "axis": 1}, kinks=True,
        )
        for p in (0, 0.5, 1, 2, 3)
    ),
    Case("norm of matrices", kernels.norm, D, "lambda x: torch.linalg.matrix_norm(x, -1, (2, 0))", None, {"ord": -1, "axis": (2, 0)}),
    Case("logsumexp", kernels.logsumexp, B, "lambda x: torch.logsumexp(x, (0, 1, 2))"),
    Case("logsumexp axis kept", kernels.logsumexp, B, "lambda x: x.logsumexp(1, True)", None, {"axis": 1, "keepdims": True}),
    Case("logsumexp of factors", kernels.logsumexp, ((3, 4), Data((4,), np.array([0.5, 0.0, 2.0, 1.5]))),
         "lambda x, b: ((b * x.exp()).sum(1)).log()", lambda x, b: np.log((b * np.exp(x)).sum(1)), {"axis": 1}),
    Case("logsumexp of factors far", kernels.logsumexp, (Data((4,), np.array([1e4, 2e4, 1e4, np.inf])), Data((4,), np.array([1, 0, 3, 0]))),
         None, lambda x, b: np.array(1e4 + np.log(4.0)), {"axis": 0}, differentiable=False, float32=None),
    Case("renorm", kernels.renorm, (Data((3, 4), "distinct"),), "lambda x: torch.renorm(x, 2, 1, 0.6)", None,
         {"p": 2, "axis": 1, "maxnorm": 0.6}),
    Case("logsumexp far", kernels.logsumexp, LARGE, "lambda x: x.logsumexp(1)", None, {"axis": 1}, float32=None),
    values("logsumexp limits", kernels.logsumexp, INFINITE, lambda x: np.array([np.inf, -np.inf, 2.0, np.nan]), axis=1),
    Case("vector_norm", kernels.vector_norm, A, "lambda x: torch.linalg.vector_norm(x, 3, 1)", None, {"ord": 3, "axis": 1}),
    Case("dist", kernels.dist, ((3, 4), (4,)), "lambda x, y: torch.dist(x, y, 3)", None, {"p": 3}),
    values("max where", kernels.max, (Data((3, 4), "distinct"), Data((3, 4), "bool")),
           lambda x, w: np.max(x, 1, where=w, initial=0.1), axis=1, initial=0.1),
    Case("max initial", kernels.max, D, None, lambda x: np.max(x, 1, initial=0.0), {"axis": 1, "initial": 0.0}),
    Case("min initial", kernels.min, D, None, lambda x: np.min(x, initial=-0.2, keepdims=True), {"keepdims": True, "initial": -0.2}),
    values("all where", kernels.all, (Data((3, 4), "ties"), Data((3, 4), "bool")), lambda x, w: np.all(x, 1, where=w), axis=1),
    values("any where", kernels.any, (Data((3, 4), "ties"), Data((4,), "bool")), lambda x, w: np.any(x, 0, where=w), axis=0),
]  # fmt: skip
