"""Optimizers: modules that hold what they know of each variable, and whose update is index notation.

An update is written for one element: `advance` takes the element of the gradient, of the variable and of its slots, and gives the new
slots; `move` takes the new slots, and gives the new value. So all that an update does to a variable is one loop over its elements, which
reads each array once and writes each once, and those of all variables, whatever their shapes, are one kernel. What is the same for all
elements (the rate, corrections that depend on the number of steps, the factor that bounds the norm) are scalars computed beforehand.
`apply` is a traced function: called in a training step it is part of that, called by itself on arrays it is a step of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.module import Module
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.rates import Rate, as_rate
from tensorexpr.graph.run.function import function
from tensorexpr.hints import article
from tensorexpr.kernels.reductions.normalization import carrier
from tensorexpr.language import Tensor

Scalars = dict[str, Any]


class Optimizer(Module):
    """What all optimizers share: the variables, the number of steps taken, the rate, clipping of gradients.

    `variables` get the gradients in that order. `rate` is a number or a `Rate`. `clip_norm` scales all gradients so that their norm
    together is at most that; `clip_value` clips every element to that size. State: `steps`, and for each of `slots` a list with a
    variable for each of those that are trained.
    """

    slots: tuple[str, ...] = ()

    def __init__(
        self,
        variables: Iterable[Variable],
        rate: float | Rate,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._trained = _Trained(variables)
        self.rate = as_rate(rate)
        self._clip_norm = _positive("clip_norm", clip_norm)
        self._clip_value = _positive("clip_value", clip_value)
        with self.name_scope:
            self.steps = Variable(np.int64(0), name="steps", trainable=False)
            for slot in self.slots:
                zeros = [np.zeros(v.shape, _wide(v)) for v in self._trained.variables]
                setattr(self, slot, [Variable(zero, name=slot, trainable=False) for zero in zeros])

    def advance(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> tuple[Any, ...]:
        """The new slots of an element, in the order of `slots`."""
        return ()

    def move(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> Any:
        """The new value of an element, by its new slots."""
        raise NotImplementedError

    def scalars(self, step: Any) -> Scalars:
        """What is the same for all elements, as float64 scalars of the number of steps taken before: at least the `rate`."""
        return {"rate": self.rate(step)}

    @function
    def apply(self, gradients: Sequence[Any]) -> None:
        """Takes a step: `gradients`, one per variable, change the variables, the slots and the number of steps."""
        variables = self._trained.variables
        if len(gradients) != len(variables):
            raise ArgumentError(
                f"{self.name}: expected {len(variables)} gradients, one per variable, got {len(gradients)}", location=user_location()
            )
        for variable, gradient in zip(variables, gradients, strict=True):
            if tuple(gradient.shape) != variable.shape:
                raise ArgumentError(
                    f"{self.name}: expected a gradient of shape {variable.shape} for {variable.name}, got {tuple(gradient.shape)}",
                    location=user_location(),
                )
        done = self.steps.read()
        self.steps.assign(te.compute((), lambda: done[()] + 1, name="steps"))
        scalars = {
            name: te.compute((), lambda value=value: te.cast(value, "float64"), name=name) for name, value in self.scalars(done[()]).items()
        }
        share = None if self._clip_norm is None else _share(gradients, self._clip_norm)
        for position, variable in enumerate(variables):
            self._update(variable, [getattr(self, slot)[position] for slot in self.slots], gradients[position], scalars, share)

    def _update(self, variable: Variable, slots: list[Variable], gradient: Any, scalars: Scalars, share: Tensor | None) -> None:
        wide = _wide(variable)
        old, held = variable.read(), [slot.read() for slot in slots]

        def element(i: tuple[Any, ...], state: Sequence[Tensor]) -> tuple[Any, Any, list[Any], Scalars]:
            g = te.cast(gradient[i], wide)
            if share is not None:
                g = g * te.cast(share[()], wide)
            if self._clip_value is not None:
                g = te.clip(g, -self._clip_value, self._clip_value)
            factors = {name: te.cast(scalar[()], wide) for name, scalar in scalars.items()}
            return g, te.cast(old[i], wide), [tensor[i] for tensor in state], factors

        new = [
            te.compute(variable.shape, lambda *i, k=k: self.advance(*element(i, held))[k], name=name) for k, name in enumerate(self.slots)
        ]
        moved = te.compute(variable.shape, lambda *i: te.cast(self.move(*element(i, new)), variable.dtype), name="moved")
        for held_in, tensor in zip((*slots, variable), (*new, moved), strict=True):
            held_in.assign(tensor)


class SGD(Optimizer):
    """`w -= rate * g`, with `g + weight_decay * w` for g; with momentum `b = momentum * b + g`, and b for g.

    `nesterov`: `g + momentum * b` for g.
    """

    def __init__(
        self,
        variables: Iterable[Variable],
        rate: float | Rate,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ArgumentError(f"momentum: expected a number from 0 to below 1, got {momentum}", location=user_location())
        if nesterov and not momentum:
            raise ArgumentError("nesterov: expected a momentum above 0, got 0", location=user_location())
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, _not_negative("weight_decay", weight_decay)
        if momentum:
            self.slots = ("velocity",)
        super().__init__(variables, rate, **options)

    def advance(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> tuple[Any, ...]:
        """The velocity."""
        return tuple(self.momentum * velocity + self._slope(gradient, value) for velocity in slots)

    def move(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> Any:
        """Down the slope, or along the velocity."""
        if self.nesterov or not slots:
            slope = self._slope(gradient, value)
            return value - scalars["rate"] * (slope + self.momentum * slots[0] if slots else slope)
        return value - scalars["rate"] * slots[0]

    def _slope(self, gradient: Any, value: Any) -> Any:
        return gradient + self.weight_decay * value if self.weight_decay else gradient


class Adam(Optimizer):
    """Adam: moments `m` and `v` of the gradient, corrected for having begun at 0; `w -= rate * m / (sqrt(v) + eps)`. Kingma, Ba 2015."""

    slots = ("first", "second")
    decoupled = False

    def __init__(
        self, variables: Iterable[Variable], rate: float | Rate = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, **options: Any,
    ) -> None:  # fmt: skip
        for beta in betas:
            if not 0 <= beta < 1:
                raise ArgumentError(f"betas: expected two numbers from 0 to below 1, got {betas}", location=user_location())
        self.betas, self.eps, self.weight_decay = betas, eps, _not_negative("weight_decay", weight_decay)
        super().__init__(variables, rate, **options)

    def scalars(self, step: Any) -> Scalars:
        """The rate, corrected for the first moment; one over the square root that corrects the second; what decay leaves."""
        taken = te.cast(step + 1, "float64")
        one, two = (1.0 - te.power(te.cast(beta, "float64"), taken) for beta in self.betas)
        rate = self.rate(step)
        return {"rate": rate / one, "scale": te.rsqrt(two), "kept": 1.0 - rate * self.weight_decay}

    def advance(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> tuple[Any, ...]:
        """Both moments."""
        if self.weight_decay and not self.decoupled:
            gradient = gradient + self.weight_decay * value
        one, two = self.betas
        return one * slots[0] + (1.0 - one) * gradient, two * slots[1] + (1.0 - two) * gradient * gradient

    def move(self, gradient: Any, value: Any, slots: Sequence[Any], scalars: Scalars) -> Any:
        """By the first moment, scaled by the second."""
        if self.weight_decay and self.decoupled:
            value = value * scalars["kept"]
        return value - scalars["rate"] * slots[0] / (te.sqrt(slots[1]) * scalars["scale"] + self.eps)


class AdamW(Adam):
    """Adam whose `weight_decay` shrinks the variable by `rate * weight_decay` of it, apart from the gradient. Loshchilov, Hutter 2019."""

    decoupled = True

    def __init__(self, variables: Iterable[Variable], rate: float | Rate = 1e-3, *, weight_decay: float = 0.01, **options: Any) -> None:
        super().__init__(variables, rate, weight_decay=weight_decay, **options)


class _Trained:
    """The variables that an optimizer changes: they are their modules', not its own, so no walk is to find them in it."""

    def __init__(self, given: Iterable[Variable]) -> None:
        if not isinstance(given, Iterable):
            raise ArgumentError(
                f"variables: expected a list of variables, got {article(given)}",
                location=user_location(),
                hint="module.trainable_variables is one",
            )
        variables = tuple(given)
        if not variables:
            raise ArgumentError(
                "variables: expected at least one variable, got none",
                location=user_location(),
                hint="variables that are made at the first call are there only after it",
            )
        for position, variable in enumerate(variables):
            if not isinstance(variable, Variable) or not variable.dtype.is_float:
                raise ArgumentError(f"variables: expected floating variables, got {variable!r}", location=user_location())
            if any(variable is other for other in variables[:position]):
                raise ArgumentError(f"variables: expected each variable once, got {variable.name} twice", location=user_location())
        self.variables = variables


def _share(gradients: Sequence[Any], most: float) -> Tensor:
    """What all gradients are multiplied by so that their norm together is at most `most`."""
    squares = [_square(gradient) for gradient in gradients]

    def total(terms: Sequence[Any]) -> Any:
        """A sum that is as deep as it must be, for any number of variables."""
        middle = len(terms) // 2
        return total(terms[:middle]) + total(terms[middle:]) if middle else terms[0]

    def share() -> Any:
        norm = te.sqrt(total([square[()] for square in squares]))
        return te.minimum(te.cast(1.0, norm.dtype), most / (norm + 1e-6))

    return te.compute((), share, name="share")


def _square(gradient: Any) -> Tensor:
    wide = carrier(gradient)
    if not gradient.ndim:
        return te.compute((), lambda: te.square(te.cast(gradient[()], wide)), name="square")
    return te.compute((), lambda: te.sum(lambda *i: te.square(te.cast(gradient[i], wide)), tuple(gradient.shape)), name="square")


def _wide(variable: Variable) -> str:
    """The dtype in which a variable is updated and its slots are kept: float32 at least."""
    return variable.dtype.name if variable.dtype.bits >= 32 else "float32"


def _positive(what: str, value: float | None) -> float | None:
    if value is not None and not value > 0:
        raise ArgumentError(f"{what}: expected a number above 0, got {value}", location=user_location())
    return value


def _not_negative(what: str, value: float) -> float:
    if not value >= 0:
        raise ArgumentError(f"{what}: expected a number of at least 0, got {value}", location=user_location())
    return value
