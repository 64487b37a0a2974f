"""Units: parts of a graph that are differentiated by a rule of their own, as `@te.op(gradient=rule)` makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorexpr.language import Tensor

Rule = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Sequence["Tensor | None"]]


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Everything between `inputs` and `outputs`, differentiated by `rule(outputs, inputs, heads)`.

    The rule gets a head for every output and gives a tensor per input (None for an input that is not floating). The
    tensors of `outputs` carry their unit as the attribute `unit`.
    """

    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    rule: Rule
