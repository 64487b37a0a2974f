"""Every kernel of the library, forward and gradient: parts by every derived rule, combined, are the whole.

A run takes the first row of each operation (of every fourth one's gradient), and more rows where that one is too small to have a rule; a
campaign takes all rows.
"""

import pytest

from tests.kernels.table import ALL
from tests.seeds import is_campaign
from tests.sharding.law import backward, check, forward, is_sharded

ROWS = {}
for case in ALL:
    ROWS.setdefault(case.op.name, []).append(case)

WITHOUT = {
    "forward": ("kmeans_step", "heat_steps", "wave_steps", "cov", "corrcoef", "pdist", "dist", "resize", "histc"),
    "gradient": (
        "bilateral_filter", "joint_bilateral_filter", "non_local_means", "corrcoef",
        "heat_steps", "wave_steps", "box_blur", "block_diag", "dist", "polysub",
    ),
}  # fmt: skip
"""Operations that have no rule on rows this small: recurrences whose steps read their neighbors, windows as wide as the data, halos of
more than half an axis (the blur, of extents 4 and 5 here), points that meet all others (`cov`, `corrcoef`, `pdist`), the root of a sum
over all (`dist`), and parts no longer than what is in front of them, or not in order (`resize`, `histc` of its extremes)."""


def of_all(name, program_of):
    sharded = False
    for case in ROWS[name] if program_of is forward else filter(lambda case: case.differentiable, ROWS[name]):
        if sharded and not is_campaign():
            break
        sharded = is_sharded(check(*program_of(case), counts=(2, 3) if is_campaign() else (3,))) or sharded
    return sharded


@pytest.mark.parametrize("name", ROWS)
def test_parts_of_a_kernel_are_the_whole(name):
    assert of_all(name, forward) == (name not in WITHOUT["forward"])


DIFFERENTIABLE = [name for name, rows in ROWS.items() if rows[0].differentiable]


@pytest.mark.parametrize("name", DIFFERENTIABLE if is_campaign() else DIFFERENTIABLE[::4])
def test_parts_of_a_gradient_are_the_whole(name):
    assert of_all(name, backward) == (name not in WITHOUT["gradient"])


def test_at_least_95_of_100_kernels_have_a_rule():
    assert len(WITHOUT["forward"]) <= 0.05 * len(ROWS)
    assert len(WITHOUT["gradient"]) <= 0.05 * len(DIFFERENTIABLE)
