"""What the search refuses to make, and says then: it passes over such candidates."""

from __future__ import annotations

import pytest

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.search.fusing import _in_blocks
from tensorexpr.codegen.auto.tiles.making import _Making, tiled_by
from tensorexpr.codegen.auto.tiles.sketch import Level, Packed, Tile
from tensorexpr.codegen.auto.tiles.survey import Survey
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.errors import ScheduleError
from tests.codegen.rewrites.law import Kept

PRODUCT = """
A: f32[8, 6] = input()
B: f32[6, 8] = input()
C[i, j]: f32[8, 8] = sum(A[i, k] * B[k, j] for k in range(6))
return C
"""
EMPTY = """
X: f32[0] = input()
Y[i]: f32[0] = X[i] + 1.0
return Y
"""


@pytest.mark.parametrize(("text", "loop"), [(EMPTY, "i"), (PRODUCT, "gone")])
def test_blocks_of_no_iterations(text, loop):
    with pytest.raises(ScheduleError, match=f"expected iterations of {loop} to take in blocks"):
        _in_blocks(Candidate(Kept.of_text(text).nest), loop, 8)


def test_a_packed_part_is_of_several_elements():
    kept = Kept.of_text(PRODUCT)
    tile = Tile((Level("j", 2, "unroll"),), ("i", "j", "k"), (Packed("A", 0, "k"),))
    with pytest.raises(ScheduleError, match="tile: expected a part of A of several elements to pack"):
        tiled_by(Candidate(kept.nest), Survey(kept.nest, 0), tile, 0)


def test_levels_inside_of_more_loops_than_are_tried():
    """Each step sinks a loop in those of one name; there are more names than steps."""
    text = "main(x, y)\nx: parameter(f32[2])\ny: parameter(f32[2, 2], written)\n\ndef kernel_0() -> y:\n"
    for n in range(65):
        text += f"    for i in range(0, 2):\n        for j{n} in range(0, 2):\n            y[i, j{n}] = x[i]\n"
    nest = parse_nest(text)
    making = _Making(Candidate(nest), Survey(nest, 0), Tile(()), 0)
    with pytest.raises(ScheduleError, match="tile: expected i inside of all other loops, got others in them"):
        making._sink(["i"])
