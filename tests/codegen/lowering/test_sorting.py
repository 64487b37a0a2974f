"""Sort plans as loops: the same plan by one core and by several, by keys and by blocks of keys, whatever collides."""

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.scatters import sorting
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, outputs

FLAT = """
ids: i32[200] = input()
offsets, order = segments[{0}](i64(ids[t]) for t in range(200))
return offsets, order
"""
SOME = """
ids: i32[200] = input()
offsets, order = segments[{0}](i64(ids[t]) for t in range(200) if ids[t] >= 0 and ids[t] < {0})
return offsets, order
"""
PAIRS = """
ids: i32[200] = input()
offsets, order = segments[3, {0}]((i64(ids[a * 20 + b] % 3), i64(ids[b * 10 + a])) for a in range(10) for b in range(20))
return offsets, order
"""
SUMS = """
ids: i32[200] = input()
offsets, order = segments[{0}](sum(i64(ids[t * 10 + k]) for k in range(10)) % {0} for t in range(20))
return offsets, order
"""
KEYS = {
    "spread": lambda e: np.random.default_rng(0).integers(0, e, 200),
    "all one": lambda e: np.full(200, e - 1),
    "rising": lambda e: np.arange(200) * e // 200,
    "falling": lambda e: np.arange(200)[::-1] * e // 200,
}


@pytest.fixture
def eager(monkeypatch):
    """Few points count as many, and blocks of keys are few."""
    monkeypatch.setattr(sorting, "MANY_POINTS", 8)
    monkeypatch.setattr(sorting, "MOST_BLOCKS", 8)


def kernels(nest):
    return [k for k in nest.kernels if isinstance(k.body[0], For) and k.body[0].kind == "parallel"]


@pytest.mark.parametrize("cores", [1, 2, 7])
@pytest.mark.parametrize("extent", [1, 5, 9, 200, 1000])
@pytest.mark.parametrize("text", [FLAT, SOME, PAIRS, SUMS], ids=["flat", "some", "pairs", "sums"])
def test_the_plan_is_that_of_the_interpreter(text, extent, cores, eager):
    program = parse_program(text.format(extent))
    s = autoschedule(program, replace(WIDE, cores=cores, l2_bytes=0))
    nest = lower(s)
    assert bool(kernels(nest)) == (cores > 1)
    for name, make in KEYS.items():
        arrays = {"ids": make(extent).astype(np.int32)}
        if text is SOME:
            arrays["ids"][::7] = -1
            arrays["ids"][3::11] = extent
        want = evaluate_program(program, arrays)
        for result, found in outputs(nest, program, arrays, {}).items():
            np.testing.assert_array_equal(found, want[result], err_msg=f"{name} {result}")


@pytest.mark.parametrize("extent", [5, 1000])
def test_a_key_out_of_range_is_an_error_before_anything_is_sorted(extent, eager):
    program = parse_program(FLAT.format(extent))
    nest = lower(autoschedule(program, replace(WIDE, cores=2, l2_bytes=0)))
    for wrong in (-1, extent, 1 << 30):
        ids = np.zeros(200, np.int32)
        ids[77] = wrong
        with pytest.raises(OutOfBoundsError, match=f"got {wrong}"):
            outputs(nest, program, {"ids": ids}, {})


def test_how_many_keys_a_block_has():
    near = 1 << 21
    assert sorting.width_of(1 << 14, 10, 2, near) is None  # few points
    assert sorting.width_of(1 << 20, 10, 1, near) is None  # one core
    assert sorting.width_of(1 << 20, 1 << 16, 2, near) == 1  # every chunk counts every key
    assert sorting.width_of(1 << 17, 50_000, 2, near) is None  # as many counts as points, but they stay near
    assert sorting.width_of(1 << 20, 1 << 20, 2, near) == 1 << 10
    assert sorting.width_of(1 << 20, 3 << 20, 2, near) == 1 << 12
