"""Workspace of parallel iterations: how many slots there are."""

import pytest

from tensorexpr.codegen.lowering import lower
from tests.codegen.programs import plain

ROWS = """
x: f32[{rows}, 16384] = input()
z[i, k]: f32[{rows}, 16384] = x[i, k] * 2.0
y[i]: f32[{rows}] = sum(z[i, k] for k in range({stop}))
return y
"""


@pytest.mark.parametrize(
    ("rows", "stop", "slots"), [(8, "16384", 2), (8, "2 * i + 2", 4), (64, "16384", 4)], ids=["large beside", "uneven", "small beside"]
)
def test_there_is_one_for_each_of_two_cores_where_two_are_large_beside_inputs_and_outputs(rows: int, stop: str, slots: int) -> None:
    """Iterations of different length keep two, so that both cores are done at the same time."""
    s = plain(ROWS.format(rows=rows, stop=stop))
    s["z"].compute_at("y", "i")
    s["y"].parallel("i")
    assert f"z_1: workspace(f32[{slots}, 16384])" in str(lower(s))
