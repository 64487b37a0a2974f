"""Tensors in the shape of another."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case

A = ((2, 3),)


def filled(name, reference, **static) -> Case:
    return Case(f"{name} {static}", getattr(kernels, name), A, None, reference, static, differentiable=False, float32=None)


CASES = [
    filled("zeros_like", np.zeros_like),
    filled("ones_like", lambda x: np.ones_like(x, dtype=np.int32), dtype="int32"),
    filled("full_like", lambda x: np.full_like(x, 2.5), fill_value=2.5),
    filled("full_like", lambda x: np.full_like(x, True, dtype=bool), fill_value=1, dtype="bool"),
    filled("astype", lambda x: x.astype(np.int8), dtype="int8"),
]
