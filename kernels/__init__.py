"""A library of operations in index notation: each a definition of a few lines, differentiated like any other.

What users of NumPy and PyTorch expect of a tensor library's differentiable core. Every kernel is a `te.op`: call it on arrays,
compose it on tensors, differentiate it in any mode. Names, argument order and conventions are PyTorch's where it has the operation.
"""

from typing import TYPE_CHECKING, Any

from tensorexpr.hints import unknown_name
from tensorexpr.kernels import elementwise, losses, products, rearranging, reductions, windowed
from tensorexpr.kernels.conventions.absent import ABSENT
from tensorexpr.kernels.elementwise import *
from tensorexpr.kernels.losses import *
from tensorexpr.kernels.products import *
from tensorexpr.kernels.rearranging import *
from tensorexpr.kernels.reductions import *
from tensorexpr.kernels.windowed import *
from tensorexpr.op.operation import Op

# What NumPy, JAX or PyTorch call otherwise, or as well: other names of the same kernels.
absolute, negative, fix, rint, degrees, radians = abs, neg, trunc, round, rad2deg, deg2rad
arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh = acos, acosh, asin, asinh, atan, atan2, atanh
subtract, multiply, divide, power, mod, clip = sub, mul, div, pow, remainder, clamp
around, fabs, gammaln, psi, clone, unstack, array_split = round, abs, lgamma, digamma, positive, unbind, tensor_split
cumulative_sum, cumulative_prod, bitwise_invert, invert = cumsum, cumprod, bitwise_not, bitwise_not
left_shift, shift_left, right_shift = bitwise_left_shift, bitwise_left_shift, bitwise_right_shift
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
concat, expand_dims, permute_dims, swapaxes, swapdims = concatenate, unsqueeze, permute, transpose, transpose
matrix_transpose, adjoint, view, copy, log_expit = transpose, transpose, reshape, positive, logsigmoid
expit, swish, hard_sigmoid, hard_swish, hard_tanh, log_sigmoid, soft_sign = (
    sigmoid, silu, hardsigmoid, hardswish, hardtanh, logsigmoid, softsign,
)  # fmt: skip
conj, conjugate, conj_physical, real, mvlgamma, inverse = positive, positive, positive, positive, multigammaln, inv
row_stack, chain_matmul, ger, upsample, broadcast_arrays = vstack, multi_dot, outer, interpolate, broadcast_tensors
OTHER_NAMES = {name: value.name for name, value in list(globals().items()) if isinstance(value, Op) and value.name != name}
"""The names of others, each with that of the kernel."""


def __dir__() -> list[str]:
    """The kernels: what completion in a notebook offers."""
    return sorted(__all__)


if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):  # what Python and editors look for
            raise AttributeError(f"module 'tensorexpr.kernels' has no attribute {name!r}")
        raise unknown_name("tensorexpr.kernels", name, [*__all__, *OTHER_NAMES], ABSENT.get(name))


__all__ = [
    *elementwise.__all__,
    *losses.__all__,
    *products.__all__,
    *rearranging.__all__,
    *reductions.__all__,
    *windowed.__all__,
]
