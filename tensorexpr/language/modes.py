"""Training or inference, as programs can ask: `te.training()`.

It is a placeholder like any other to the passes; `te.compile(..., mode=...)` makes a literal of it, so what belongs to the other
mode is gone from the code.
"""

from __future__ import annotations

from functools import cache

from tensorexpr import dtypes
from tensorexpr.language.scalar import Scalar
from tensorexpr.language.tensor import Tensor

MODE_PATH = "te.training"


@cache
def _flag() -> Tensor:
    flag = Tensor("training", (), dtypes.bool_)
    flag.path = MODE_PATH
    return flag


def training() -> Scalar:
    """Whether the program is compiled for training: a bool scalar, `te.where(te.training(), dropped, x[i])`.

    `te.compile(..., mode="training" | "inference")` says which. What knows no modes (`te.build`, `te.evaluate`) takes it as an
    input called `training`.
    """
    return _flag()[()]
