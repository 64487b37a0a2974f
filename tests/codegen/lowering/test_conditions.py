"""What may fault is evaluated under all conditions under which the program evaluates it, wherever loops are moved to."""

from __future__ import annotations

import random

import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import Schedule
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import assert_means, plain
from tests.seeds import share_of


def _border(rng: random.Random, axis: str, extent: int) -> str:
    return f"{axis} {rng.choice(('<', '>=', '<=', '>'))} {rng.randint(0, extent)}"


def _tried(call: object, *args: object) -> None:
    """A primitive where it is legal."""
    try:
        call(*args)  # type: ignore[operator]
    except ScheduleError:
        pass


def _piecewise(seed: int) -> Schedule:
    """Definitions by cases, each computed in some loop of its reader, whose loops stand in any order; some loops run in lanes."""
    rng = random.Random(seed)
    m, p = rng.randint(2, 6), rng.randint(2, 6)
    conditions = [" and ".join(_border(rng, *rng.choice((("i", m), ("j", p)))) for _ in range(rng.randint(1, 2))) for _ in range(2)]
    s = plain(f"""
X: f32[{m}, {p}] = input()
a[i, j]: f32[{m}, {p}] = where({conditions[0]}, X[i, j] * 2.0, 0.0)
b[i, j]: f32[{m}, {p}] = where({conditions[1]}, X[i, j] * a[i, j], 1.0)
c[i, j]: f32[{m}, {p}] = X[i, j] + b[i, j]
return a, b, c
""")
    for name in "abc":
        if rng.random() < 0.3:
            _tried(s[name].split, rng.choice("ij"), rng.randint(2, 4), rng.choice(("peel", "shift", "guard", "stride")))
        loops = list(s[name].loops)
        _tried(s[name].reorder, *rng.sample(loops, len(loops)))
        _tried(s[name].vectorize, s[name].loops[-1])
    for name, reader in (("b", "c"), ("a", "b")):
        if name == "a" and s.state.stage("b").place is not None:
            reader = rng.choice("bc")
        _tried(s[name].compute_at, reader, rng.choice(s[reader].loops))
    return s


@pytest.mark.parametrize("seed", share_of(range(120)))
def test_piecewise_definitions_computed_in_loops_in_any_order(seed):
    assert_means(_piecewise(seed), seed)


def test_the_point_of_a_placed_definition_is_no_range_to_cut():
    s = plain("""
X: f32[4, 2] = input()
a[i, j]: f32[4, 2] = where(j < 1, X[i, j] * 2.0, 0.0)
c[i, j]: f32[4, 2] = X[i, j] + a[i, j]
return a, c
""")
    s["a"].vectorize("j")
    s["c"].reorder("j", "i")
    s["a"].compute_at("c", "i")
    assert "if j < 1:" in str(lower(s))
    assert_means(s)
