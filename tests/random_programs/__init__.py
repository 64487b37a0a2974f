"""Random programs for the laws of every room and for the fuzzer (see `writer`)."""

from __future__ import annotations

import random

from tests.random_programs.patterns import Patterns
from tests.random_programs.sample import Sample
from tests.random_programs.writer import Options, Refused


def random_sample(seed: int, options: Options | None = None) -> Sample:
    """The random program of a seed, as text: the same for the same seed and options."""
    options = Options() if options is None else options
    for attempt in range(100):
        rng = random.Random(f"{seed} {attempt}")
        try:
            writer = Patterns(rng, options)
            writer.write(min(rng.choice((1, 1, 2, 2, 3, options.most)), options.most))
            return writer.sample(seed)
        except Refused:
            continue
    raise AssertionError(f"seed {seed}: expected a program in a hundred attempts")
