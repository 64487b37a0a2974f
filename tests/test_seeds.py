"""What a test draws from a generator of its file depends on no other test, nor on the order in which they run."""

import numpy as np
import pytest

from tests.storage.models import floats

RNG = np.random.default_rng(11)
FIRST = np.random.default_rng(11).random(3)


@pytest.mark.parametrize("turn", range(2))
def test_each_test_draws_as_if_it_were_alone(turn: int) -> None:
    np.testing.assert_array_equal(RNG.random(3), FIRST)
    assert not np.array_equal(RNG.random(3), FIRST)
    np.testing.assert_array_equal(floats(4), np.random.default_rng(4).standard_normal(4).astype(np.float32))
