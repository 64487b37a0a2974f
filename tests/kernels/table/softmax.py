"""The softmax family."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


FAR = (Data((3, 3), np.array([[1e4, 1e4, 0.0], [-1e6, -1e6 + 1, -1e6 - 1], [0.0, 800.0, 801.0]])),)
MASK = Data((4, 5), np.array([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 0]], bool))
HOLES = Data((2, 3), np.array([[np.nan, 1.0, 2.0], [np.inf, -np.inf, 3.0]]))
MASKED = "lambda x, m: torch.where(m, torch.softmax(torch.where(m, x, -torch.inf), -1), 0).nan_to_num(0)"

CASES = [
    Case("softmax", kernels.softmax, ((4, 9),), "lambda x: torch.softmax(x, -1)", lambda x: softmax(x, -1)),
    Case("softmax axis 0", kernels.softmax, ((4, 9),), "lambda x: torch.softmax(x, 0)", lambda x: softmax(x, 0), {"axis": 0}),
    Case(
        "softmax axes", kernels.softmax, ((2, 3, 4),), "lambda x: torch.softmax(x.reshape(2, 12), 1).reshape(2, 3, 4)", None,
        {"axis": (1, 2)},
    ),
    Case("softmax temperature", kernels.softmax, ((4, 5),), "lambda x: torch.softmax(x / 0.3, 1)", None, {"temperature": 0.3}),
    Case("softmax far", kernels.softmax, FAR, "lambda x: torch.softmax(x, 1)", float32=None),
    Case("softmin", kernels.softmin, ((4, 5),), "lambda x: F.softmin(x, 0)", None, {"axis": 0}),
    Case("log_softmax", kernels.log_softmax, ((4, 5),), "lambda x: torch.log_softmax(x, 1)"),
    Case(
        "log_softmax temperature", kernels.log_softmax, ((2, 4, 3),), "lambda x: torch.log_softmax(x / 2, 1)", None,
        {"axis": 1, "temperature": 2},
    ),
    Case("log_softmax far", kernels.log_softmax, FAR, "lambda x: torch.log_softmax(x, 1)", float32=None),
    Case("masked_softmax", kernels.masked_softmax, (Data((4, 5)), Data((4, 5), "bool")), MASKED),
    Case(
        "masked_softmax empty row", kernels.masked_softmax, (Data((4, 5)), MASK), None,
        lambda x, m: np.nan_to_num(np.where(m, np.exp(x), 0) / np.where(m, np.exp(x), 0).sum(-1, keepdims=True)),
    ),
    Case(
        "masked_softmax hides", kernels.masked_softmax, (HOLES, Data((2, 3), np.array([[False, True, True], [False, False, True]]))), None,
        lambda x, m: np.array([[0, 1 / (1 + np.e), np.e / (1 + np.e)], [0, 0, 1]]), kinks=True,
    ),
    Case(
        "masked_softmax broadcast", kernels.masked_softmax, (Data((2, 3, 4)), Data((3, 1), np.array([[True], [False], [True]]))),
        "lambda x, m: torch.where(m, torch.softmax(torch.where(m, x, -torch.inf), 1), 0)", None, {"axis": 1},
    ),
    Case("softmax where", kernels.softmax, (Data((2, 3)), Data((2, 3), np.array([[True, False, True], [False, True, True]]))),
         "lambda x, m: torch.where(m, torch.softmax(torch.where(m, x, -torch.inf), 1), 0)"),
]  # fmt: skip
