"""A library of operations in index notation: each a definition of a few lines, differentiated like any other.

What users of NumPy and PyTorch expect of a tensor library's differentiable core. Every kernel is a `te.op`: call it on arrays,
compose it on tensors, differentiate it in any mode. Names, argument order and conventions are PyTorch's where it has the operation.
"""

from tensorexpr.kernels.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    reglu,
    relu,
    relu6,
    selu,
    silu,
    softcap,
    softplus,
    softshrink,
    softsign,
    swiglu,
    tanhshrink,
    threshold,
)
from tensorexpr.kernels.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
    weight_norm,
)
from tensorexpr.kernels.softmax import softmax

__all__ = [
    # activations
    "celu",
    "elu",
    "geglu",
    "gelu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "reglu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softcap",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanhshrink",
    "threshold",
    # normalization
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
    "weight_norm",
    # softmax
    "softmax",
]
