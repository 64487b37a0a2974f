"""Activation functions, on values on both sides of every kink (`KINKS` has the kinks themselves and the far ends)."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

X = (Data((13,), np.linspace(-4.1, 4.3, 13)),)
KINKS = (Data((9,), np.array([-50.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 50.0])),)
SIX = (Data((4,), np.array([-1.0, 0.0, 6.0, 7.0])),)


def kink(name: str, op, torch: str, inputs=KINKS, **static) -> Case:
    return Case(f"{name} kinks", op, inputs, torch, None, static, kinks=True, float32=None)


# PyTorch's own hardsigmoid has a derivative of float32 accuracy, and so has its celu where 1 / alpha is no float32.
CASES = [
    Case("relu", kernels.relu, X, "F.relu"),
    kink("relu", kernels.relu, "F.relu"),
    Case("relu6", kernels.relu6, X, "F.relu6"),
    kink("relu6", kernels.relu6, "F.relu6", SIX),
    Case("hardtanh", kernels.hardtanh, X, "lambda x: F.hardtanh(x, -2.5, 0.7)", None, {"min_val": -2.5, "max_val": 0.7}),
    kink("hardtanh", kernels.hardtanh, "F.hardtanh"),
    Case("leaky_relu", kernels.leaky_relu, X, "lambda x: F.leaky_relu(x, 0.2)", None, {"negative_slope": 0.2}),
    kink("leaky_relu", kernels.leaky_relu, "F.leaky_relu"),
    Case("prelu", kernels.prelu, ((2, 3, 4), (3,)), "F.prelu"),
    Case("prelu one weight", kernels.prelu, ((2, 3), (1,)), "F.prelu"),
    Case("threshold", kernels.threshold, X, "lambda x: F.threshold(x, 0.1, -2.0)", None, {"threshold": 0.1, "value": -2.0}),
    Case("softshrink", kernels.softshrink, X, "lambda x: F.softshrink(x, 0.7)", None, {"lambd": 0.7}),
    kink("softshrink", kernels.softshrink, "F.softshrink"),
    Case("hardshrink", kernels.hardshrink, X, "lambda x: F.hardshrink(x, 0.7)", None, {"lambd": 0.7}),
    kink("hardshrink", kernels.hardshrink, "F.hardshrink"),
    Case("hardsigmoid", kernels.hardsigmoid, X, "lambda x: F.relu6(x + 3) / 6"),
    kink("hardsigmoid", kernels.hardsigmoid, "lambda x: F.relu6(x + 3) / 6"),
    Case("hardswish", kernels.hardswish, X, "F.hardswish"),
    Case("elu", kernels.elu, X, "lambda x: F.elu(x, 1.7)", None, {"alpha": 1.7}),
    kink("elu", kernels.elu, "F.elu"),
    Case("celu", kernels.celu, X, "lambda x: F.celu(x, 0.5)", None, {"alpha": 0.5}),
    Case("selu", kernels.selu, X, "F.selu"),
    kink("selu", kernels.selu, "F.selu"),
    Case("gelu", kernels.gelu, X, "F.gelu"),
    Case("gelu tanh", kernels.gelu, X, "lambda x: F.gelu(x, approximate='tanh')", None, {"approximate": "tanh"}),
    Case("silu", kernels.silu, X, "F.silu"),
    Case("mish", kernels.mish, X, "F.mish"),
    Case("softplus", kernels.softplus, X, "lambda x: F.softplus(x, 1.3, 4.0)", None, {"beta": 1.3, "threshold": 4.0}),
    kink("softplus", kernels.softplus, "F.softplus"),
    Case("logsigmoid", kernels.logsigmoid, X, "F.logsigmoid"),
    kink("logsigmoid", kernels.logsigmoid, "F.logsigmoid"),
    Case("softsign", kernels.softsign, X, "F.softsign"),
    Case("tanhshrink", kernels.tanhshrink, X, "F.tanhshrink"),
    Case("softcap", kernels.softcap, X, "lambda x: 1.5 * torch.tanh(x / 1.5)", None, {"cap": 1.5}),
    Case("glu", kernels.glu, ((3, 6),), "F.glu"),
    Case("glu axis 0", kernels.glu, ((4, 3),), "lambda x: F.glu(x, 0)", None, {"axis": 0}),
    Case("reglu", kernels.reglu, ((3, 6),), "lambda x: F.relu(x[:, :3]) * x[:, 3:]"),
    Case("geglu", kernels.geglu, ((3, 6),), "lambda x: F.gelu(x[:, :3]) * x[:, 3:]"),
    Case("swiglu", kernels.swiglu, ((3, 6),), "lambda x: F.silu(x[:, :3]) * x[:, 3:]"),
]  # fmt: skip
