"""The contest between the nest of the search and that of the planners: the former runs where the model of cost says that it is clearly faster.

Both are predicted by one model, on one thread and on several, whatever runs now: what is chosen, and with it the order of sums, may not
depend on how many threads a process has.
"""

from __future__ import annotations

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.searching import searched
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.ir import Program

MARGIN = 1.3
"""How much faster a nest has to be predicted: the model's error on one nest beside another of the same program (`bench model`)."""
SEVERAL = 8
"""Threads of the second prediction: enough that a nest that leaves cores without work is seen."""


def faster(program: Program, planned: LoopNest) -> Candidate | None:
    """The nest of the search for a simplified program, where it is clearly faster than the nest that planners made."""
    facts = facts_here()
    found = searched(program, facts)
    ours, theirs = Model(summary_of(found.nest), facts), Model(summary_of(planned), facts)
    wins = all(MARGIN * float(ours.times(None, n)[0]) <= float(theirs.times(None, n)[0]) for n in (1, SEVERAL))
    return found if wins else None
