"""How many random programs the laws draw: every third one in a run, all of them in a campaign.

`TENSOREXPR_TEST_SEEDS=all` is the campaign (`make test-seeds`); a number n is n times as many, for long runs. What a campaign finds is
reduced and added to a list of its own beside the law, which every run takes as a whole.
"""

from __future__ import annotations

import os

_GIVEN = os.environ.get("TENSOREXPR_TEST_SEEDS", "")
_SHARE = 3


def share_of(seeds: range) -> range:
    """The seeds that this run takes of those of a law (of a block of them: behind it others begin, which a longer run takes as well)."""
    if not _GIVEN:
        return seeds[::_SHARE]
    return seeds if _GIVEN == "all" else range(seeds.start, seeds.start + int(_GIVEN) * len(seeds))
