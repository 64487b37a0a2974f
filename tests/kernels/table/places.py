"""Parts put in, left out and repeated; windows; combinations."""

import numpy as np

from tensorexpr import kernels
from tests.kernels.case import Case, Data

I = (Data((2, 2), np.array([[0, -1], [2, 2]])),)


def put(x, i, v):
    x = x.copy()
    np.put_along_axis(x, i, v, 1)
    return x


def filled(x, wrap=False):
    x = x.copy()
    np.fill_diagonal(x, 2.5, wrap)
    return x


CASES = [
    Case("delete", kernels.delete, ((3, 5),), None, lambda x: np.delete(x, [1, -1], 1), {"obj": (1, -1), "axis": 1}),
    Case("delete flat", kernels.delete, ((2, 3),), None, lambda x: np.delete(x, 2), {"obj": 2}),
    Case("insert", kernels.insert, ((2, 3), (2,)), None, lambda x, v: np.insert(x, 1, v, 1), {"obj": 1, "axis": 1}),
    Case("insert a row", kernels.insert, ((2, 3), (3,)), None, lambda x, v: np.insert(x, -1, v, 0), {"obj": -1, "axis": 0}),
    Case("insert columns", kernels.insert, ((3, 2), (2, 3)), None, lambda x, v: np.insert(x, 1, v, 1), {"obj": 1, "axis": 1}),
    Case("insert several", kernels.insert, ((4,), (3,)), None, lambda x, v: np.insert(x, [4, 0, 4], v), {"obj": (4, 0, 4)}),
    Case("insert at one place", kernels.insert, ((4,), (2,)), None, lambda x, v: np.insert(x, 4, v), {"obj": 4}),
    Case("resize", kernels.resize, ((2, 3),), None, lambda x: np.resize(x, (4, 2)), {"shape": (4, 2)}),
    Case("resize to less", kernels.resize, ((2, 3),), None, lambda x: np.resize(x, 4), {"shape": 4}),
    Case("fill_diagonal", kernels.fill_diagonal, ((3, 4),), None, filled, {"value": 2.5}),
    Case("fill_diagonal of more axes", kernels.fill_diagonal, ((3, 3, 3),), None, filled, {"value": 2.5}),
    Case("fill_diagonal of a tall one", kernels.fill_diagonal, ((7, 2),), None, lambda x: filled(x, True), {"value": 2.5, "wrap": True}),
    Case("put_along_axis", kernels.put_along_axis, ((2, 3), *I, (2, 1)), None, put, {"axis": 1}),
    Case("sliding_window_view", kernels.sliding_window_view, ((3, 6),), None,
         lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 3)), {"window_shape": (2, 3)}),
    Case("sliding_window_view of an axis", kernels.sliding_window_view, ((3, 6),), "lambda x: x.unfold(1, 4, 1)", None,
         {"window_shape": 4, "axis": 1}),
    Case("broadcast_tensors", kernels.broadcast_tensors, (((2, 1), (3,), ()),), "lambda *x: torch.broadcast_tensors(*x)"),
    Case("cartesian_prod", kernels.cartesian_prod, (((2,), (3,), (2,)),), "lambda *x: torch.cartesian_prod(*x)"),
    Case("combinations", kernels.combinations, ((5,),), "lambda x: torch.combinations(x, 3)", None, {"r": 3}, scatters=True),
    Case("combinations with replacement", kernels.combinations, ((3,),), "lambda x: torch.combinations(x, 2, True)", None,
         {"with_replacement": True}, scatters=True),
    Case("take wrapped", kernels.take, ((2, 5), Data((4,), np.array([7, -1, -6, 3]))), None, lambda x, i: np.take(x, i, 1, mode="wrap"),
         {"axis": 1, "mode": "wrap"}, scatters=True),
    Case("take clipped", kernels.take, ((2, 5), Data((4,), np.array([70, -1, -6, 3]))), None, lambda x, i: np.take(x, i, mode="clip"),
         {"mode": "clip"}, scatters=True),
    Case("repeat along an axis", kernels.repeat, ((2, 3),), None, lambda x: np.repeat(x, (2, 0, 1), 1), {"sizes": (2, 0, 1), "axis": 1}),
]  # fmt: skip
