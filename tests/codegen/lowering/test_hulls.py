"""Sums between bounds with divisions, over blocks of points at once: the loop goes from the least to the greatest bound of the block.

The bounds are floors and ceilings of sums of two indices, as gradients of strided reads have them; ends that differ by a constant are
written as floor and as ceiling, so that they are recognized in some residue classes of an index and not in others.
"""

from __future__ import annotations

import random

import pytest

from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import WIDE, assert_means, plain
from tests.seeds import share_of


def bound(rng: random.Random, about: str, divisor: int, ceiling: bool) -> str:
    """The floor or the ceiling of a quotient, in one of two spellings."""
    if rng.random() < 0.5:
        return f"({about} + {divisor - 1}) // {divisor}" if ceiling else f"({about}) // {divisor}"
    return f"-((0 - ({about})) // {divisor})" if ceiling else f"-((0 - ({about}) + {divisor - 1}) // {divisor})"


def program(rng: random.Random, divisor: int) -> str:
    rows, columns = rng.choice((3, 6, 8)), rng.choice((6, 12))
    about = f"p * {rng.choice((1, 1, 2))} - j * {rng.choice((1, 1, 2, 3))} + {rng.randrange(-3, 4)}"
    if rng.random() < 0.3:
        about = f"j - p + {rng.randrange(-3, 4)}"
    start = bound(rng, about, divisor, rng.random() < 0.5)
    stop = f"{bound(rng, about, divisor, rng.random() < 0.5)} + {rng.randint(1, 3)}"
    if rng.random() < 0.2:
        stop = f"{bound(rng, f'p * {rng.choice((1, 2))} - j', rng.choice((2, 3)), rng.random() < 0.5)} + {rng.randint(1, 6)}"
    if rng.random() < 0.2:
        start = f"maximum(0, {start})"
    test = rng.choice(("", " if p < 3", " if t % 2 == 0"))
    return f"""
X: f32[40] = input()
T[p, j]: f32[{rows}, {columns}] = sum(X[minimum(maximum(t + 20, 0), 39)] * f32(t + j) for t in range({start}, {stop}){test})
return T
"""


def by_hand(rng: random.Random, text: str, divisor: int):
    """Residue classes of one index around the sum, the other one inside of it."""
    outer, inner = rng.sample(("p", "j"), 2)
    s = plain(text)
    try:
        if rng.random() < 0.8:
            s["T"].split(outer, divisor * rng.choice((1, 1, 2)), rng.choice(("peel", "guard", "shift")))
            s["T"].unroll(f"{outer}_i")
            s["T"].reorder(f"{outer}_o", f"{outer}_i", "t", inner)
        else:
            s["T"].reorder(outer, "t", inner)
        if rng.random() < 0.7:
            s["T"].vectorize(inner)
    except ScheduleError:
        return None
    return s


@pytest.mark.parametrize("block", share_of(range(8)))
def test_sums_between_divided_bounds(block):
    taken = 0
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        divisor = rng.choice((2, 3))
        text = program(rng, divisor)
        s = by_hand(rng, text, divisor)
        taken += s is not None
        if s is not None:
            assert_means(s, seed)
        if seed % 4 == 0:
            assert_means(autoschedule(plain(text).program, WIDE), seed)
    assert taken >= 10
