"""`te.gradients`: derivatives inside of a traced function, through calls, branches and loops, by values and by variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.graph.trace.derive import pull_back
from tensorexpr.graph.trace.sweep import Sweep, added
from tensorexpr.graph.trace.tracing import as_tensor, current
from tensorexpr.graph.trace.values import value_of
from tensorexpr.hints import checked
from tensorexpr.language import Tensor, compute
from tensorexpr.op.rules import zeros
from tensorexpr.text import print_type


@checked()
def gradients(loss: Any, wrt: Any, head: Any = None) -> Any:
    """The gradients of `loss` by `wrt`, in the function that is being traced: one for each item, or a bare one for a bare `wrt`.

    `loss` is a tensor or a list of them, `head` what their elements are weighted with (a scalar needs none). `wrt` are variables,
    values (arguments, results of calls) and tensors of the trace. The gradient by a variable is that by all its reads in this function
    and in what it calls; an assignment passes no derivative on (a read behind it is a read of the variable, whatever was assigned).
    What the loss does not depend on has gradient zero; the order is that of `wrt`.

    Raises `DifferentiationError` outside of a trace, for what is not floating, and for a head that is missing or misshapen.

    >>> w = te.Variable(np.array([1.0, 2.0]), name="w")
    >>> @te.function
    ... def slope(x):
    ...     loss = te.compute((), lambda: te.sum(lambda i: w[i] * w[i] * x[i], 2))
    ...     return te.gradients(loss, w)
    >>> slope(np.ones(2))
    array([2., 4.])
    """
    trace = current()
    if trace is None:
        raise DifferentiationError(
            "te.gradients: expected to be called in a te.function, got a call outside of one",
            location=user_location(),
            hint="te.vjp and te.grad make functions of derivatives from ops",
        )
    several = isinstance(wrt, Sequence)
    items = list(wrt) if several else [wrt]
    losses = [as_tensor(item, "te.gradients") for item in (loss if isinstance(loss, (list, tuple)) else [loss])]
    heads = list(head) if isinstance(head, (list, tuple)) else [head] * len(losses)
    if len(heads) != len(losses):
        raise _error(f"expected {len(losses)} heads, one for each loss, got {len(heads)}")
    adjoints: dict[Tensor, Tensor] = {}
    for tensor, given in zip(losses, heads, strict=True):
        adjoints[tensor] = added(adjoints.get(tensor), _head(tensor, given))
    for item in items:
        if not (isinstance(item, Tensor) or hasattr(item, "trainable")) or not item.dtype.is_float:
            raise _error(f"expected to differentiate by floating tensors and variables, got {item!r}")
    tensors = [item for item in items if isinstance(item, Tensor)]
    variables = [item for item in items if not isinstance(item, Tensor)]
    sweep = Sweep(trace, adjoints, tensors, variables, pull_back).run()
    found = []
    for item in items:
        adjoint = sweep.adjoints.get(item) if isinstance(item, Tensor) else sweep.of_variables.get(item)
        like = item if isinstance(item, Tensor) else value_of(item.type, "like")
        found.append(zeros(like) if adjoint is None else adjoint)
    return found if several else found[0]


def _head(tensor: Tensor, given: Any) -> Tensor:
    if not tensor.dtype.is_float:
        raise _error(f"expected a floating loss, got {print_type(tensor.type)}")
    if given is None:
        if tensor.ndim:
            raise _error(f"expected a head for a loss that is no scalar, got none for {print_type(tensor.type)}")
        one = tensor.dtype.numpy.type(1)
        return compute((), lambda: one)
    head = as_tensor(given, "te.gradients")
    if head.extents != tensor.extents or head.dtype is not tensor.dtype:
        raise _error(f"expected a head of {print_type(tensor.type)}, got {print_type(head.type)}")
    return head


def _error(message: str) -> DifferentiationError:
    return DifferentiationError(f"te.gradients: {message}", location=user_location())
