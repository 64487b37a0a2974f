"""What a test draws from a generator of its file depends on no other test, nor on the order in which they run."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import IN_THIRDS
from tests.storage.models import floats

ROOT = Path(__file__).resolve().parent.parent
RNG = np.random.default_rng(11)
FIRST = np.random.default_rng(11).random(3)


@pytest.mark.parametrize("turn", range(2))
def test_each_test_draws_as_if_it_were_alone(turn: int) -> None:
    np.testing.assert_array_equal(RNG.random(3), FIRST)
    assert not np.array_equal(RNG.random(3), FIRST)
    np.testing.assert_array_equal(floats(4), np.random.default_rng(4).standard_normal(4).astype(np.float32))


def test_each_case_of_a_file_in_thirds_is_in_one_of_three_suites() -> None:
    """`make test` takes the first third of these files, `make test-peers` and `make test-nvrtc` name them for the others."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = re.search(r"^THIRDS := \$\(addprefix tests/,(.*?)\)$", text, re.MULTILINE | re.DOTALL)
    assert listed is not None and set(listed.group(1).replace("\\", " ").split()) == IN_THIRDS
    assert all((ROOT / "tests" / name).is_file() for name in IN_THIRDS)
    assert [re.findall(rf"TENSOREXPR_TEST_THIRD={third} .*", text) != [] for third in ("first", "second", "third")] == [True] * 3
    assert len(re.findall(r"\$\(THIRDS\)", text)) == 2
