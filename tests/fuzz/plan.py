"""What one seed of the fuzzer runs: a program, in how many points, and the ways in which it is compiled and called."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.random_programs import Options, Sample, random_sample
from tests.random_programs.notation import notation_sample

POINTS = ((600, 45), (5_000, 32), (60_000, 18), (1_000_000, 5))
"""Budgets of points and how often they are drawn, in percent."""
SCHEDULES = (("default", 100), ("plain", 10), ("random", 12), ("tuned", 12), ("cuda", 2), ("searched", 20))
"""Schedules beside each other and how often, in percent of the programs; `cuda` is the text for GPUs, on the CPU, and
`searched` the nest of the search, whether it is predicted to be faster or not."""
NOTATION, FIRST_NOTATION = 3, 1_000_000
"""Of how many programs one is made of deep terms in index notation, from which seed on: campaigns take them, suites do not."""
VERSIONS = 50
"""How often programs of open sizes run by code for the sizes of each call, in percent."""
GRADIENTS = ((("gradient",), 11), (("gradient", "forced"), 3), (("gradient", "second"), 2))
"""Derivatives and how often: compiled, the form that is forced on every read, derivatives of the derivative."""


@dataclass(frozen=True)
class Plan:
    """A sample and what is done with it; smaller plans find the same failure sooner."""

    sample: Sample
    schedules: tuple[str, ...] = ("default",)
    derivatives: tuple[str, ...] = ()
    exact: bool = True
    wild: bool = False
    """Whether index arrays hold a few indices that leave their extents."""
    threads: bool = True
    """Whether it runs once more on two threads, in other layouts."""
    runs: int = 3
    """Sizes to run at beside those that were drawn, 0 and 1."""
    only: int | None = None
    """The one of these sizes to run at, None for all."""

    @property
    def lowering(self) -> str | None:
        """The form that is forced on every read of the gradient, if one is."""
        return random.Random(self.sample.seed).choice(("segments", "atomics")) if "forced" in self.derivatives else None

    def smaller(self) -> list[Plan]:
        """Plans that do less."""
        found = []
        if len(self.schedules) > 1:
            found += [replace(self, schedules=(one,)) for one in self.schedules]
            found.append(replace(self, schedules=()))
        if self.derivatives and self.schedules:
            found += [replace(self, schedules=()), replace(self, derivatives=())]
        if len(self.derivatives) > 1:
            found.append(replace(self, derivatives=("gradient",)))
        if self.wild:
            found.append(replace(self, wild=False))
        if not self.exact:
            found.append(replace(self, exact=True))
        if self.threads:
            found.append(replace(self, threads=False))
        if self.only is None:
            found += [replace(self, only=k) for k in range(5)]
        return found


def planned(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan {seed}")
    if seed >= FIRST_NOTATION and seed % NOTATION == 0:
        return _of_notation(seed, rng)
    (points,) = rng.choices([p for p, _ in POINTS], [w for _, w in POINTS])
    derivatives: tuple[str, ...] = ()
    roll = rng.randrange(100)
    for words, weight in GRADIENTS:
        if 0 <= roll < weight:
            derivatives = words
        roll -= weight
    options = Options(
        points=points // 4 if derivatives else points,
        floats=bool(derivatives) or rng.random() < 0.4,
        dtypes=("float64",) if derivatives and rng.random() < 0.3 else (),
        open_sizes=rng.choice((0.0, 0.0, 0.0, 0.4) if derivatives else (0.0, 0.0, 0.3, 0.8)),
        most=1 if derivatives else 3,
        without=frozenset(("step",)) if derivatives and rng.random() < 0.7 else frozenset(),
    )
    schedules = tuple(name for name, weight in SCHEDULES if rng.randrange(100) < weight)
    if random.Random(f"versions {seed}").randrange(100) < VERSIONS:
        schedules += ("versions",)
    if points > 5_000:
        schedules = tuple(name for name in schedules if name != "cuda")
    return Plan(
        random_sample(seed, options),
        schedules,
        derivatives,
        exact=not derivatives and rng.random() < 0.5,
        wild=rng.random() < 0.1,
        threads=rng.random() < 0.5,
        runs=rng.choice((0, 1, 2, 3)),
    )


def _of_notation(seed: int, rng: random.Random) -> Plan:
    """The plan of a program in index notation: two in three are differentiated."""
    roll = rng.randrange(100)
    derivatives = ("gradient",) if roll < 50 else ("gradient", "forced") if roll < 60 else ("gradient", "second") if roll < 67 else ()
    schedules = ("default", *(name for name, weight in SCHEDULES[1:] if rng.randrange(100) < weight))
    if rng.randrange(100) < VERSIONS:
        schedules += ("versions",)
    return Plan(notation_sample(seed), schedules, derivatives, exact=False, threads=rng.random() < 0.3, runs=rng.choice((0, 1, 2)))
