"""A program as text, and what it is when it runs: tensors, a `Program`, arrays for its inputs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Const, Expr, Program, const
from tensorexpr.traversal import size_names


@dataclass(frozen=True)
class Sample:
    """A program as text, the values that its open sizes were drawn with, what is in it, and the seed that it came from."""

    text: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    seed: int = 0

    def traced(self) -> Traced:
        """The tensors of the text. Raises whatever the text raises."""
        names: dict[str, Any] = {"te": te, "np": np}
        exec(compile(self.text, "<random program>", "exec"), names)
        below = {}
        for name, limit in names.get("below", {}).items():
            below[name] = limit.expr if isinstance(limit, te.Scalar) else const(int(limit))
        return Traced(names["inputs"], names["outputs"], below)


@dataclass(frozen=True)
class Traced:
    """The tensors of a sample: inputs, outputs, and for index arrays the extent that their elements stay below."""

    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    below: Mapping[str, Expr]

    @property
    def program(self) -> Program:
        """The program as it is compiled."""
        return te.program_of(self.outputs, self.inputs)


def arrays_for(
    program: Program, below: Mapping[str, Expr], sizes: Mapping[str, int], seed: int, exact: bool = True, wild: bool = False
) -> dict[str, np.ndarray]:
    """Arrays for the inputs: floats are small integers if `exact`, else normally distributed; index arrays stay below their extents, but
    for a few elements where `wild`, as other integers are small but for some at the ends of their dtype."""
    noise = np.random.default_rng([seed, 11])
    found = {}
    for item in program.inputs:
        shape, dtype = tuple(max(0, extent_value(e, sizes)) for e in item.type.shape), item.type.dtype
        if item.name in below:
            limit = below[item.name]
            known = dict.fromkeys(size_names(limit), 4) | dict(sizes)  # a size that no tensor has may be anything
            high = max(1, int(limit.value) if isinstance(limit, Const) else extent_value(limit, known))
            data: Any = noise.integers(0, high, shape)
            if wild and data.size:
                data = np.where(noise.random(shape) < 2 / data.size, noise.choice((-1, high, high + 100)), data)
            data = np.clip(data, int(dtype.least), int(dtype.greatest))
        elif dtype.is_bool:
            data = noise.integers(0, 2, shape)
        elif dtype.is_float and not exact:
            data = noise.standard_normal(shape)
        else:
            data = noise.integers(-3 if dtype.is_signed else 0, 4, shape)
            if wild and dtype.is_integer:
                least, greatest = int(dtype.least), int(dtype.greatest)
                ends = np.array((least, least + 1, greatest, greatest - 1, greatest // 2 + 1, greatest // 3), dtype.numpy)
                data = np.where(noise.random(shape) < 0.3, noise.choice(ends, shape), data.astype(dtype.numpy))
        if len(shape) > 1 and shape[0] > 1 and item.name not in below and noise.random() < 0.06:  # rows that a broadcast array has
            data = np.broadcast_to(np.asarray(data)[:1], shape)
        found[item.name] = np.array(data).astype(dtype.numpy)
    return found


def sizes_of(sample: Sample, program: Program, rng: random.Random, many: int = 3) -> list[dict[str, int]]:
    """Sizes to run a program with: as drawn, each open one at 0 and 1 and around a constant of the program, some at once."""
    names = list(dict.fromkeys((*program.sizes, *sample.sizes)))
    base = {name: sample.sizes.get(name, 4) for name in names}
    found = [base]
    if names:
        around = sorted({n for n in constants_of(sample.text) if 0 < n < 70})
        candidates = [0, 1, 2, *(n + d for n in around for d in (-1, 0, 1))]
        found += [{name: 0 for name in names}, {name: 1 for name in names}]
        for _ in range(many):
            found.append({name: rng.choice(candidates) if rng.random() < 0.6 else base[name] for name in names})
    unique: list[dict[str, int]] = []
    for one in found:
        if one not in unique:
            unique.append(one)
    return unique


def constants_of(text: str) -> set[int]:
    """The integers that stand in a text."""
    digits = "".join(c if c.isdigit() else " " for c in text)
    return {int(word) for word in digits.split() if len(word) < 5}
