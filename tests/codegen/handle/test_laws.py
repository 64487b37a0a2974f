"""Every legal schedule of a random program computes what it means, is proved, reads back as text, and is rebuilt by its calls."""

from __future__ import annotations

import random

import pytest

from tensorexpr.codegen.handle import Schedule
from tests.codegen.handle import words
from tests.codegen.handle.words import shuffled
from tests.codegen.programs import WIDE
from tests.codegen.rewrites.law import UNITS, Kept, kept_of
from tests.seeds import share_of


def wandered(kept: Kept, seed: int, steps: int = 8) -> Schedule:
    """A schedule after random words, checked after each: the nest with all its loops, and as it is shown."""
    s = Schedule.plain(kept.program, WIDE)

    def check(s: Schedule) -> None:
        try:
            kept.check(s.form.nest, UNITS)
            kept.check(s.nest, UNITS)
        except Exception as error:
            raise AssertionError(f"{seed}:\n{s.as_python()}\n{s.form.nest}") from error

    shuffled(s, random.Random(seed), steps, check)
    return s


@pytest.mark.parametrize("block", range(10))
def test_random_schedules(block):
    for seed in share_of(range(block * 30, (block + 1) * 30)):
        kept = kept_of(seed, 60)
        if kept is not None and kept.program.definitions:
            wandered(kept, seed)


def test_calls_rebuild_a_schedule():
    for seed in share_of(range(60)):
        kept = kept_of(seed, 60)
        if kept is None or not kept.program.definitions:
            continue
        s = Schedule.plain(kept.program, WIDE)
        shuffled(s, random.Random(seed), 8, lambda s: None)
        again = Schedule.plain(kept.program, WIDE)
        exec(s.as_python(), {"s": again})
        assert again == s and str(again) == str(s) and hash(again) == hash(s)


WINDOWS = """
X: f32[9, 8] = input()
P[i, j]: f32[9, 8] = X[i, j] * 2.0 + 1.0
Q[i, j]: f32[8, 8] = P[i, j] + P[i + 1, 7 - j]
C[i, j]: f32[6, 8] = max(Q[i + k, j] * P[i + k, j] for k in range(3))
return C
"""
CLAMPED = """
sizes(n)
X: f32[n] = input()
P[i]: f32[n] = sum(X[minimum(maximum(i + k - 1, 0), n - 1)] for k in range(3))
C[i]: f32[n] = where(i > 0, P[i - 1], 0.0) + P[i] * 2.0 + where(i + 1 < n, P[i + 1], 0.0)
return C
"""
SHARED = """
X: f32[6, 10] = input()
P[i, j]: f32[6, 10] = X[i, j] * 3.0
S[i]: f32[6] = sum(X[i, k] * X[i, k] for k in range(10))
M[i]: f32[6] = max(P[i, k] for k in range(10))
C[i, j]: f32[6, 10] = P[i, j] + M[i]
return C, S
"""


@pytest.mark.parametrize("text", (WINDOWS, CLAMPED, SHARED), ids=("windows", "clamped", "shared"))
@pytest.mark.parametrize("block", range(4))
def test_random_schedules_of_what_is_computed_in_loops(text, block):
    """Definitions computed in the loops of others first, and then what acts on such loops more often than chance would."""
    kept = Kept.of_text(text, *([{"n": n} for n in (0, 1, 2, 5, 9)] if text is CLAMPED else [{}]))
    often = [words.bare("slide"), words.pipeline, words.with_another("compute_with"), words.with_another("alongside")]
    for seed in share_of(range(block * 12, (block + 1) * 12)):
        s, rng = Schedule.plain(kept.program, WIDE), random.Random(seed)

        def check(s: Schedule) -> None:
            try:
                kept.check(s.form.nest, UNITS)
                kept.check(s.nest, UNITS)
            except Exception as error:
                raise AssertionError(f"{s.as_python()}\n{s.form.nest}") from error

        shuffled(s, rng, 4, check, [words.compute_at, words.compute_at, words.of_a_loop("parallel")])
        shuffled(s, rng, 8, check, [*often, *often, *words.WORDS])
