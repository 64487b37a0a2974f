"""Operations on bits: integers of both signs, widths of shifts, bools."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

I = Data((3, 1, 4), (-9, 9))
J = Data((2, 4), (0, 7))
B = (Data((3, 4), "bool"), Data((4,), "bool"))
FAR = (Data((4,), np.array([1, -1, 5, -5])), Data((4,), np.array([63, 63, 64, 64])))


def row(name, op, inputs, torch=None, numpy=None) -> Case:
    return Case(name, op, inputs, torch, numpy, differentiable=False, float32=None)


CASES = [
    *(
        row(name, getattr(kernels, name), (I, J), f"torch.{name}", getattr(np, name))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(
        row(f"{name} of bools", getattr(kernels, name), B, f"torch.{name}", getattr(np, name))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    row("bitwise_not", kernels.bitwise_not, (I,), "torch.bitwise_not", np.bitwise_not),
    row("bitwise_not of bools", kernels.bitwise_not, B[:1], "torch.bitwise_not", np.bitwise_not),
    row("bitwise_left_shift", kernels.bitwise_left_shift, (I, J), "torch.bitwise_left_shift", np.left_shift),
    row("bitwise_right_shift", kernels.bitwise_right_shift, (I, J), "torch.bitwise_right_shift", np.right_shift),
    row("bitwise_left_shift by the width", kernels.bitwise_left_shift, FAR, None, np.left_shift),
    row("bitwise_right_shift by the width", kernels.bitwise_right_shift, FAR, None, np.right_shift),
    row("bitwise_count", kernels.bitwise_count, (I,), None, np.bitwise_count),
    row("bitwise_count of the least", kernels.bitwise_count, (Data((2,), np.array([-(2**63), 2**63 - 1])),), None, np.bitwise_count),
]
