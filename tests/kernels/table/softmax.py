"""The softmax family."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES = [
    Case("softmax", kernels.softmax, ((4, 9),), "lambda x: torch.softmax(x, -1)", lambda x: softmax(x, -1)),
    Case("softmax axis 0", kernels.softmax, ((4, 9),), "lambda x: torch.softmax(x, 0)", lambda x: softmax(x, 0), {"axis": 0}),
]
