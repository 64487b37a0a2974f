"""The law of rewrites: what every nest that a rewrite gives satisfies, checked after each of them.

`Kept` holds a program, cases to run it at and what it means there. `check` asserts of a nest that it is well formed, that its text reads
back, that the proofs refute nothing, and that the interpreter of nests computes the program's values at every case: the same
bits, or as near as rounding explains where a reduction was taken in another order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import tensorexpr as te
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.rewrites.names import named
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.random_programs import Options, random_inputs, random_sample
from tests.random_programs.sample import arrays_for, sizes_of

Case = tuple[Mapping[str, np.ndarray], Mapping[str, int]]
"""Arrays for the inputs, and the values of open sizes."""


@dataclass
class Kept:
    """A program, its plain nest with unique names, and what it means at some cases; None where an index leaves its tensor."""

    program: Program
    cases: list[Case]

    def __post_init__(self) -> None:
        self.nest = named(plain_nest(self.program))
        self.expected: list[Mapping[str, np.ndarray] | None] = []
        for arrays, sizes in self.cases:
            try:
                self.expected.append(evaluate_program(self.program, arrays, sizes))
            except OutOfBoundsError:
                self.expected.append(None)

    @classmethod
    def of_text(cls, text: str, *sizes: Mapping[str, int], exact: bool = True) -> Kept:
        """A program given as text, at some sizes."""
        program = parse_program(text)
        return cls(program, [(random_inputs(program, 3, exact=exact, sizes=s), s) for s in sizes or ({},)])

    def check(self, nest: LoopNest, units: int = 0, proved: bool = True) -> LoopNest:
        """Checks all that holds of a rewritten nest, and gives it back; `units` as in `near`."""
        verify_nest(nest)
        text = print_nest(nest)
        again = parse_nest(text, {c.name: c.data for c in nest.constants})
        assert again == nest and print_nest(again) == text, text
        if proved:
            verdict = prove(nest, quick=True)
            assert not verdict.refuted, f"{nest}\n{verdict}"
        for (arrays, sizes), expected in zip(self.cases, self.expected, strict=True):
            if expected is None:
                try:
                    run_nest(nest, arrays, sizes)
                except OutOfBoundsError:
                    continue
                raise AssertionError(f"expected an index out of bounds at {sizes} of\n{nest}")
            found = run_nest(nest, arrays, sizes)
            for name, parameter in zip(self.program.outputs, nest.writes, strict=True):
                near(found[parameter], expected[name], units, f"{sizes}: {name} of\n{self.program}\n{nest}")
        return nest


def kept_of(seed: int, points: int = 20) -> Kept | None:
    """The program of a seed, at some sizes; None where the text is refused."""
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=points, open_sizes=rng.choice((0, 0.5)), most=rng.choice((1, 2, 3))))
    try:
        traced = sample.traced()
        program = simplify(traced.program) if seed % 3 == 0 else traced.program
        sizes = sizes_of(sample, traced.program, rng, 1)[:3]
        return Kept(program, [(arrays_for(traced.program, traced.below, s, seed, True, False), s) for s in sizes])
    except te.TensorExprError:
        return None  # the text, or sizes that do not fit


def near(found: np.ndarray, expected: np.ndarray, units: int, message: str) -> None:
    """Checks that arrays are equal, NaN and signs of zero aside, or differ by so many units in the last place of the greatest magnitude."""
    assert found.dtype == expected.dtype and found.shape == expected.shape, message
    if not units or found.dtype.kind not in "fV" or not found.size:
        np.testing.assert_array_equal(found, expected, err_msg=message)
        return
    unit = 2.0**-7 if found.dtype.name == "bfloat16" else float(np.finfo(found.dtype).eps)
    wide, want = found.astype(np.float64), expected.astype(np.float64)
    size = float(np.max(np.abs(want), where=np.isfinite(want), initial=1.0))
    np.testing.assert_allclose(wide, want, rtol=units * unit, atol=units * unit * size, err_msg=message)


Move = Callable[[LoopNest, random.Random], LoopNest | None]
"""A random rewrite of a nest; None where it has nothing to act on."""


ROUNDING = ("reorder", "reverse", "rfactored", "separated", "split")
"""Moves behind which reductions may be taken in another order, and come out with other last bits."""
UNITS = 256
"""So many, in the last place of the greatest result, these may be."""


def wandered(kept: Kept, moves: list[Move], rng: random.Random, steps: int) -> tuple[LoopNest, list[str]]:
    """Random rewrites one after the other, each checked; what is refused is a `ScheduleError` and changes nothing. Gives the last nest
    and the names of the moves that were made."""
    nest = kept.nest
    made: list[str] = []
    for _ in range(steps):
        move = rng.choice(moves)
        before = print_nest(nest)
        try:
            after = move(nest, rng)
        except ScheduleError:
            assert print_nest(nest) == before
            continue
        if after is not None:
            made.append(move.__name__)
            try:
                nest = kept.check(after, UNITS if set(made) & set(ROUNDING) else 0)
            except Exception as error:
                raise AssertionError(f"{' '.join(made)}\n{before}\n{after}") from error
    return nest, made
