"""Functions of one number, at points where they have a derivative."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (Data((2, 3), np.array([[-1.3, -0.6, -0.2], [0.3, 0.8, 1.7]])),)
UNIT = (Data((5,), np.array([-0.9, -0.3, 0.1, 0.5, 0.8])),)
POSITIVE = (Data((5,), "positive"),)
SPECIAL = (Data((4,), np.array([1.0, np.inf, -np.inf, np.nan])),)
ZERO = (Data((3,), np.array([-2.0, 0.0, 2.0])),)

CASES = [
    Case("neg", kernels.neg, X, "torch.neg"),
    Case("abs", kernels.abs, X, "torch.abs"),
    Case("sign", kernels.sign, X, "torch.sign"),
    Case("sgn", kernels.sgn, X, "torch.sgn"),
    Case("positive", kernels.positive, X, "torch.positive"),
    Case(
        "signbit", kernels.signbit, (Data((4,), np.array([0.0, -0.0, -np.inf, 2.0])),), "torch.signbit", differentiable=False, float32=None
    ),
    Case("isposinf", kernels.isposinf, SPECIAL, "torch.isposinf", differentiable=False, float32=None),
    Case("isneginf", kernels.isneginf, SPECIAL, "torch.isneginf", differentiable=False, float32=None),
    Case("square", kernels.square, X, "torch.square"),
    Case("reciprocal", kernels.reciprocal, POSITIVE, "torch.reciprocal"),
    Case("sqrt", kernels.sqrt, POSITIVE, "torch.sqrt"),
    Case("rsqrt", kernels.rsqrt, POSITIVE, "torch.rsqrt"),
    Case("exp", kernels.exp, X, "torch.exp"),
    Case("exp2", kernels.exp2, X, "torch.exp2"),
    Case("expm1", kernels.expm1, X, "torch.expm1"),
    Case("log", kernels.log, POSITIVE, "torch.log"),
    Case("log2", kernels.log2, POSITIVE, "torch.log2"),
    Case("log1p", kernels.log1p, POSITIVE, "torch.log1p"),
    Case("sin", kernels.sin, X, "torch.sin"),
    Case("cos", kernels.cos, X, "torch.cos"),
    Case("tan", kernels.tan, X, "torch.tan"),
    Case("asin", kernels.asin, UNIT, "torch.asin"),
    Case("acos", kernels.acos, UNIT, "torch.acos"),
    Case("atan", kernels.atan, X, "torch.atan"),
    Case("sinh", kernels.sinh, X, "torch.sinh"),
    Case("cosh", kernels.cosh, X, "torch.cosh"),
    Case("tanh", kernels.tanh, X, "torch.tanh"),
    Case("sigmoid", kernels.sigmoid, X, "torch.sigmoid"),
    Case("erf", kernels.erf, X, "torch.erf"),
    Case("floor", kernels.floor, X, "torch.floor"),
    Case("ceil", kernels.ceil, X, "torch.ceil"),
    Case("round", kernels.round, X, "torch.round"),
    Case("round/decimals", kernels.round, X, "lambda x: torch.round(x, decimals=1)", None, {"decimals": 1}),
    Case("round/tens", kernels.round, X, "lambda x: torch.round(x, decimals=-1)", None, {"decimals": -1}),
    Case("trunc", kernels.trunc, X, "torch.trunc"),
    Case("log10", kernels.log10, POSITIVE, "torch.log10"),
    Case("asinh", kernels.asinh, X, "torch.asinh"),
    Case("acosh", kernels.acosh, (Data((4,), np.array([1.1, 1.7, 3.0, 40.0])),), "torch.acosh"),
    Case("atanh", kernels.atanh, UNIT, "torch.atanh"),
    Case("erfc", kernels.erfc, X, "torch.erfc"),
    Case("erfinv", kernels.erfinv, UNIT, "torch.erfinv"),
    Case("ndtr", kernels.ndtr, X, "torch.special.ndtr"),
    Case("lgamma", kernels.lgamma, X, "torch.lgamma"),
    Case("digamma", kernels.digamma, X, "torch.digamma"),
    Case("deg2rad", kernels.deg2rad, X, "torch.deg2rad"),
    Case("rad2deg", kernels.rad2deg, X, "torch.rad2deg"),
    Case("frac", kernels.frac, X, "torch.frac"),
    Case("isnan", kernels.isnan, SPECIAL, "torch.isnan", differentiable=False, float32=None),
    Case("isinf", kernels.isinf, SPECIAL, "torch.isinf", differentiable=False, float32=None),
    Case("isfinite", kernels.isfinite, SPECIAL, "torch.isfinite", differentiable=False, float32=None),
    Case("logical_not", kernels.logical_not, ZERO, "torch.logical_not", differentiable=False, float32=None),
    Case("abs kinks", kernels.abs, ZERO, "torch.abs", None, {}, kinks=True, float32=None),
]
