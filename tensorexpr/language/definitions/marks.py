"""Marks that change no value, only how it is differentiated: `te.stop_gradient` and `te.checkpoint`."""

from __future__ import annotations

from typing import Any

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Program
from tensorexpr.language.core.programs import lift
from tensorexpr.language.core.renaming import local_names
from tensorexpr.language.core.scalar import strong, unary
from tensorexpr.language.core.tensor import Tensor
from tensorexpr.language.definitions.compute import compute
from tensorexpr.records import replace


@checked()
def stop_gradient(value: Any) -> Any:
    """A tensor or scalar equal to `value` through which no derivative passes, in reverse and in forward mode, at any order.

    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((), lambda: te.sum(lambda i: x[i] * te.stop_gradient(x[i]), 3), name="y")
    >>> print(te.gradient(y, x))
    x: f32[3] = input()
    x_bar[i]: f32[3] = x[i]
    return x_bar
    """
    if not isinstance(value, Tensor):
        scalar = strong(value)
        return unary("stop_gradient", scalar) if scalar.dtype.is_float else scalar
    if not value.dtype.is_float:
        return value
    return compute(value.shape, lambda *at: unary("stop_gradient", value[at]), name=value.name if value.named else None)


@checked()
def checkpoint(tensor: Tensor) -> Tensor:
    """A tensor equal to `tensor` that gradients compute again instead of keeping it: less memory for more work.

    Of the forward pass, a gradient reads the tensors that you defined; each that it reads is kept from its definition to its
    last read (those that the compiler writes into their readers are computed there). Of a marked tensor every derived
    definition reads a copy that is defined again, just before its first read, out of what the tensor itself reads: of further
    copies where these are marked too, else of what is kept. Marks on all but every c-th stage of a chain of n so keep n / c + c
    stages. The copies print as `recompute(...)`, which the compiler takes for another computation, so they are never merged
    with the original. To a gradient of a gradient the copies are tensors like any other. Forward mode keeps nothing anyway.

    `tensor` is made by `te.compute` or `te.scatter`, or is the result of a `te.scan` (which then runs again as a whole; to keep
    some of its states, `te.scan(..., checkpoint=c)`). Inside the body of a scan a mark changes nothing: bodies are always
    computed again. Raises `DefinitionError` for placeholders and constants, which are there anyway.

    >>> x = te.placeholder((3,), name="x")
    >>> e = te.checkpoint(te.compute((3,), lambda i: te.exp(x[i]), name="e"))
    >>> y = te.compute((), lambda: te.sum(lambda i: e[i] * e[i], 3), name="y")
    >>> print(te.gradient(y, x))
    x: f32[3] = input()
    e_again[i]: f32[3] = recompute(exp(x[i]))
    x_bar[i]: f32[3] = e_again[i] * 2.0 * e_again[i]
    return x_bar
    """
    if not isinstance(tensor, Tensor) or (tensor.definition is None and not tensor.frames):
        got = f"{tensor.name}, which is given" if isinstance(tensor, Tensor) else repr(tensor)
        raise DefinitionError(
            f"te.checkpoint: expected a computed tensor, got {got}",
            location=user_location(),
            hint="inputs and constants are there as long as the function runs",
        )
    if tensor.frames or tensor.definition is None:
        return tensor
    known = {source.key: source for source in tensor.sources}
    copy = lift(Program((), (), (tensor.definition,), ()), known)[tensor.key]
    copy.name, copy.named, copy.location = tensor.name, tensor.named, tensor.location
    copy.unit, copy.recompute = tensor.unit, True
    if tensor.ruled and copy.definition is not None:
        moved = dict(zip(local_names(tensor.definition), local_names(copy.definition), strict=True))
        copy.ruled = tuple(
            replace(one, names=moved | {key: moved.get(name, name) for key, name in one.names.items()}) for one in tensor.ruled
        )
    return copy
