"""Sectors, lines and bank conflicts of addresses against enumeration."""

import numpy as np
import pytest

from tensorexpr.codegen.cuda.model.traffic import BANKS, distinct, least_sectors, least_wavefronts, lines, sectors, wavefronts


def conflicts(addresses: list[int], size: int) -> int:
    """Of one warp, by going through groups of lanes, their words and banks."""
    lanes_a_group, total = 32 // max(1, size // 4), 0
    for first in range(0, 32, lanes_a_group):
        words = {
            a // 4 + k for a in addresses[first : first + lanes_a_group] if a >= 0 for k in range(max(1, size // 4))
        }  # a word for several lanes is one
        total += max((sum(w % BANKS == bank for w in words) for bank in range(BANKS)), default=0)
    return total


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_wavefronts_of_any_addresses(size):
    rng = np.random.default_rng(size)
    for stride in (0, 1, 3, 8, 32, 33, 160):
        rows = size * (rng.integers(0, 4, (6, 1)) + stride * np.arange(32) + rng.integers(0, 2, (6, 32)))
        rows = np.where(rng.random((6, 32)) < 0.8, rows, -1)
        assert wavefronts(rows, size) == sum(conflicts(list(map(int, row)), size) for row in rows)
        assert wavefronts(rows, size) >= least_wavefronts(rows, size)


def test_columns_of_a_tile():
    lane = np.arange(32)[None, :]
    assert wavefronts(4 * 32 * lane, 4) == 32 and wavefronts(4 * 33 * lane, 4) == 1 and wavefronts(0 * lane, 4) == 1
    assert wavefronts(16 * lane, 16) == 4 == least_wavefronts(16 * lane, 16)
    assert wavefronts(128 * lane, 16) == 32  # rows of ldmatrix without padding or swizzle: eight in the same banks, four times
    assert wavefronts(144 * lane, 16) == 4


def test_sectors_and_lines():
    lane = np.arange(32)[None, :]
    for stride, sectors_, lines_ in ((4, 4, 1), (8, 8, 2), (32, 32, 8), (4096, 32, 32), (0, 1, 1)):
        assert sectors(stride * lane) == sectors_ and lines(stride * lane) == lines_
    assert least_sectors(4 * lane, 4) == 4 and least_sectors(np.where(lane < 3, lane, -1), 16) == 2
    rng = np.random.default_rng(0)
    rows = rng.integers(-200, 4000, (50, 32))
    assert distinct(rows, 32).tolist() == [len({a // 32 for a in row if a >= 0}) for row in rows.tolist()]
