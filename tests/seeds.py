"""How many random programs the laws draw: every seventh one in a run, all of them in a campaign, or others.

`TENSOREXPR_TEST_SEEDS=all` is the campaign (`make test-seeds`); a number n takes as many programs that no run has seen, from the n-th
million on. What a campaign finds is reduced and added to a list of its own beside the law, which every run takes as a whole.
"""

from __future__ import annotations

import os

_GIVEN = os.environ.get("TENSOREXPR_TEST_SEEDS", "")
_SHARE = 7
_APART = 1_000_000


def share_of(seeds: range) -> range:
    """The seeds that this run takes of those of a law, or in place of them."""
    if not _GIVEN:
        return seeds[::_SHARE]
    moved = 0 if _GIVEN == "all" else int(_GIVEN) * _APART
    return range(seeds.start + moved, seeds.stop + moved)


def is_campaign() -> bool:
    """Whether this run takes what is too long for every run."""
    return bool(_GIVEN)
