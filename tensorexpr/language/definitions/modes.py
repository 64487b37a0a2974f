"""Training or inference, as programs can ask: `te.training()`.

It is a placeholder like any other to the passes; `te.compile(..., mode=...)` makes a literal of it, so what belongs to the other
mode is gone from the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tensorexpr import dtypes
from tensorexpr.hints import checked
from tensorexpr.language.core.scalar import Scalar
from tensorexpr.language.core.tensor import Tensor

MODE_PATH = "te.training"


@cache
def _flag() -> Tensor:
    flag = Tensor("training", (), dtypes.bool_)
    flag.path = MODE_PATH
    return flag


def asked_for(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The placeholder of the mode, where the outputs read it."""
    stack, seen = list(outputs), set(outputs)
    while stack:
        for source in stack.pop().sources:
            if source.path == MODE_PATH:
                return (source,)
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return ()


@checked()
def training() -> Scalar:
    """Whether the program is compiled for training: a bool scalar, `te.where(te.training(), dropped, x[i])`.

    `te.compile(..., mode="training" | "inference")` says which. What knows no modes (`te.build`, `te.evaluate`) takes it as an
    input called `training`.

    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: te.where(te.training(), x[i] * 2.0, x[i]), name="y")
    >>> te.compile(y, [x], mode="training")(np.ones(3, np.float32))
    array([2., 2., 2.], dtype=float32)
    """
    return _flag()[()]
