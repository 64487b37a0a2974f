"""Elementwise operations of several tensors: broadcasting, far values, kinks."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

AB = ((3, 1, 4), (2, 4))
INF, NAN = np.inf, np.nan


def far(name: str, op, torch: str, *values: list[float], **static) -> Case:
    """A row at values where finite differences cannot step."""
    inputs = tuple(Data((len(v),), np.array(v)) for v in values)
    return Case(f"{name} far", op, inputs, torch, None, static, kinks=True, float32=None)


def limits(name: str, op, reference, *values: list[float], **static) -> Case:
    """A row of values alone, infinite ones and NaN among them."""
    inputs = tuple(Data((len(v),), np.array(v)) for v in values)
    return Case(f"{name} limits", op, inputs, None, reference, static, differentiable=False, float32=None)


QUOTIENTS = ([7.0, -7.0, 0.3, 6.0, -1e300], [2.0, 2.0, 0.1, 0.1, 3.0])
COMPARISONS = (
    ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal"),
)  # fmt: skip
LOGICAL = ("logical_and", "logical_or", "logical_xor")
CASES = [
    Case("add", kernels.add, AB, "lambda x, y: torch.add(x, y, alpha=-2)", None, {"alpha": -2}),
    Case("add of a row and a number", kernels.add, ((3, 2), ()), "torch.add"),
    Case("sub", kernels.sub, AB, "lambda x, y: torch.sub(x, y)"),
    Case("rsub", kernels.rsub, AB, "lambda x, y: torch.rsub(x, y, alpha=2)", None, {"alpha": 2}),
    Case("mul", kernels.mul, AB, "torch.mul"),
    Case("div", kernels.div, (Data((3, 1, 4)), Data((2, 4), "positive")), "torch.div"),
    Case("true_divide", kernels.true_divide, (Data((3, 4)), Data((4,), "positive")), "torch.true_divide"),
    far("div down", kernels.div, "lambda x, y: torch.div(x, y, rounding_mode='floor')", *QUOTIENTS, rounding_mode="floor"),
    far("div towards 0", kernels.div, "lambda x, y: torch.div(x, y, rounding_mode='trunc')", *QUOTIENTS, rounding_mode="trunc"),
    Case(
        "floor_divide", kernels.floor_divide, tuple(Data((5,), np.array(v)) for v in QUOTIENTS), "torch.floor_divide", differentiable=False,
        float32=None,
    ),
    Case(
        "div of integers", kernels.div, (Data((4,), np.array([7, -7, 7, -7])), Data((4,), np.array([2, 2, -2, 7]))),
        "lambda x, y: torch.div(x, y, rounding_mode='trunc')", None, {"rounding_mode": "trunc"}, differentiable=False,
    ),
    Case("pow", kernels.pow, (Data((3, 1), "positive"), Data((4,))), "torch.pow"),
    far("pow", kernels.pow, "torch.pow", [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]),
    Case("remainder", kernels.remainder, (Data((3, 4)), Data((4,), "positive")), "torch.remainder"),
    Case("fmod", kernels.fmod, (Data((3, 4)), Data((4,), np.array([0.7, -0.4, 0.9, -1.1]))), "torch.fmod"),
    Case("maximum", kernels.maximum, AB, "torch.maximum"),
    Case("minimum", kernels.minimum, AB, "torch.minimum"),
    far("maximum", kernels.maximum, "torch.maximum", [1.0, 2.0], [1.0, 3.0]),
    Case("atan2", kernels.atan2, AB, "torch.atan2"),
    Case("where", kernels.where, (Data((3, 1), "bool"), Data((4,)), Data((3, 4))), "torch.where"),
    Case("clamp", kernels.clamp, (Data((3, 4)), Data((4,), np.full(4, -0.6)), Data((3, 1), np.full((3, 1), 0.5))), "torch.clamp"),
    Case("clamp from below", kernels.clamp, (Data((3, 4)), Data((), np.array(0.2)), None), "lambda x, a: torch.clamp(x, min=a)"),
    Case("clamp from above", kernels.clamp, (Data((3, 4)), None, Data((), np.array(0.2))), "lambda x, b: torch.clamp(x, max=b)"),
    far("clamp", kernels.clamp, "torch.clamp", [-1.0, 0.0, 1.0, 3.0, 0.5], [0.0, 0.0, 0.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]),
    limits("clamp", kernels.clamp, np.clip, [NAN, INF, 1.0, 1.0], [0.0, 0.0, NAN, 0.0], [2.0, 2.0, 2.0, NAN]),
    Case("clamp_min", kernels.clamp_min, ((3, 4), (4,)), "lambda x, a: torch.clamp_min(x, a)"),
    Case("clamp_max", kernels.clamp_max, ((3, 4), (4,)), "lambda x, a: torch.clamp_max(x, a)"),
    limits("heaviside", kernels.heaviside, np.heaviside, [NAN, INF, 0.0, -1.0], [0.5, 0.5, 0.5, NAN]),
    limits("isclose", kernels.isclose, np.isclose, [NAN, INF, 1.0, 1.0, INF], [NAN, INF, 1.0 + 1e-6, 1.1, 1.0]),
    limits("isclose of NaN", kernels.isclose, lambda x, y: np.isclose(x, y, equal_nan=True), [NAN, INF], [NAN, 1.0], equal_nan=True),
    Case("lerp", kernels.lerp, ((3, 4), (4,), (3, 1)), "torch.lerp"),
    Case("addcmul", kernels.addcmul, ((3, 4), (4,), (3, 1)), "lambda x, a, b: torch.addcmul(x, a, b, value=0.5)", None, {"value": 0.5}),
    Case(
        "addcdiv", kernels.addcdiv, (Data((3, 4)), Data((4,)), Data((3, 1), "positive")),
        "lambda x, a, b: torch.addcdiv(x, a, b, value=0.5)", None, {"value": 0.5},
    ),
    Case("copysign", kernels.copysign, ((3, 4), (4,)), "torch.copysign"),
    far("copysign", kernels.copysign, "torch.copysign", [2.0, -2.0, 2.0, 0.0], [0.0, 0.0, -0.0, -1.0]),
    Case("nan_to_num", kernels.nan_to_num, ((3, 4),), "torch.nan_to_num"),
    limits("nan_to_num", kernels.nan_to_num, np.nan_to_num, [NAN, INF, -INF, 2.0]),
    Case("hypot", kernels.hypot, AB, "torch.hypot"),
    far("hypot", kernels.hypot, "torch.hypot", [3e200, 1e-300, 0.0, -2.0], [4e200, 1e-300, 5.0, -2.0]),
    limits("hypot", kernels.hypot, np.hypot, [INF, INF, 0.0, NAN], [1.0, -INF, 0.0, 1.0]),
    Case("xlogy", kernels.xlogy, (Data((3, 1)), Data((4,), "positive")), "torch.xlogy"),
    far("xlogy", kernels.xlogy, "torch.xlogy", [0.0, 2.0], [2.0, 3.0]),
    limits(
        "xlogy", kernels.xlogy, lambda x, y: np.array([0.0, 0.0, 0.0, NAN, -INF]), [0.0, 0.0, 0.0, 0.0, 1.0], [0.0, -1.0, INF, NAN, 0.0]
    ),
    Case("xlog1py", kernels.xlog1py, (Data((3, 1)), Data((4,), "positive")), "torch.special.xlog1py"),
    limits("xlog1py", kernels.xlog1py, lambda x, y: np.array([0.0, 0.0, -INF]), [0.0, 0.0, 1.0], [-1.0, -2.0, -1.0]),
    Case("entr", kernels.entr, (Data((7,), "unit"),), "torch.special.entr"),
    limits("entr", kernels.entr, lambda x: np.array([0.0, -INF, NAN]), [0.0, -1.0, NAN]),
    Case("logaddexp", kernels.logaddexp, AB, "torch.logaddexp"),
    Case("logaddexp2", kernels.logaddexp2, AB, "torch.logaddexp2"),
    Case("fmax", kernels.fmax, AB, "torch.fmax"),
    Case("fmin", kernels.fmin, AB, "torch.fmin"),
    limits("fmax", kernels.fmax, np.fmax, [NAN, 1.0, NAN, INF], [0.0, NAN, NAN, 2.0]),
    limits("fmin", kernels.fmin, np.fmin, [NAN, 1.0, NAN, INF], [0.0, NAN, NAN, 2.0]),
    *(limits(name, getattr(kernels, name), getattr(np, numpy), [1.0, 2.0, NAN], [1.0, 3.0, 0.0]) for name, numpy in COMPARISONS),
    *(limits(name, getattr(kernels, name), getattr(np, name), [0.0, 2.0, 0.0], [1.0, 3.0, 0.0]) for name in LOGICAL),
    far("logaddexp", kernels.logaddexp, "torch.logaddexp", [1e4, -1e4, 700.0, 1.0], [1e4, 0.0, 800.0, 1.0]),
    limits("logaddexp", kernels.logaddexp, np.logaddexp, [INF, -INF, -INF, NAN, NAN, INF], [INF, -INF, 1.0, 0.0, INF, -INF]),
    Case("logit", kernels.logit, (Data((7,), "unit"),), "torch.logit"),
    Case("logit eps", kernels.logit, (Data((7,), np.linspace(-0.1, 1.1, 7)),), "lambda x: torch.logit(x, 0.2)", None, {"eps": 0.2}),
    Case("sinc", kernels.sinc, (Data((9,), np.array([-2.5, -1.1, -0.3, -0.1, 4e-3, 0.12, 0.2, 0.8, 3.7])),), "torch.sinc"),
    far("sinc", kernels.sinc, "torch.sinc", [0.0, 1.0]),
    Case("float_power", kernels.float_power, (Data((2, 3), "positive"), (3,)), "torch.float_power", float32=None),
    Case("divmod", kernels.divmod, (Data((3, 4), "distinct"), Data((4,), "positive")), None, np.divmod, kinks=True),
    Case("modf", kernels.modf, (Data((3, 4), "distinct"),), None, np.modf),
    Case("modf limits", kernels.modf, (Data((4,), np.array([np.inf, -np.inf, 2.0, -0.5])),), None, np.modf, differentiable=False,
         float32=None),
    *(
        Case(f"{name} {equal}", getattr(kernels, name), (Data((4,), np.array([1.0, NAN, np.inf, 2.0])),
                                                            Data((4,), np.array([1.0, NAN, np.inf, last]))),
             None, lambda x, y, name=name, equal=equal: np.array(getattr(np, name)(x, y, equal_nan=equal)), {"equal_nan": equal},
             differentiable=False, float32=None)
        for name, last in (("allclose", 2.0000001), ("array_equal", 2.0)) for equal in (False, True)
    ),
    Case("array_equal of other shapes", kernels.array_equal, ((2, 3), (3,)), None, lambda x, y: np.array(False),
         differentiable=False, float32=None),
]  # fmt: skip
