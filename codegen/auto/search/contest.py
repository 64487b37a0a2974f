"""The contest between the nest of the search and that of the planners: the former runs where the model of cost says that it is clearly
faster.

Both are predicted by one model, on one thread and on several, whatever runs now: what is chosen, and with it the order of sums, may not
depend on how many threads a process has. Nothing is searched where the planners' nest is close to what no nest goes below, where there are
microseconds to gain, which a search pays back after thousands of calls, where a kernel has many cases, whose pieces take long to search, or
where sizes are open: rests of unknown length still run without vectors.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.features import LINE
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.operations import ARITHMETIC
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.searching import searched
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.rewrites.loops.cuts import statements_of
from tensorexpr.ir import Program

MARGIN = 1.3
"""How much faster a nest has to be predicted: the model's error on one nest beside another of the same program (`bench model`)."""
CLOSE = 1.5
"""How far above the least a nest is still as good as it gets: real nests have loops, rests, and loads beside their arithmetic."""
SEVERAL = 8
"""Threads of the second prediction: enough that a nest that leaves cores without work is seen."""
WORTH = 10_000.0
"""Nanoseconds that there must be to gain: a search takes some 1e8, so that they are paid back after ten thousand calls."""
MOST_STATEMENTS = 12
"""Statements of a kernel of the plain nest, up to which its search takes tenths of a second: a sum under conditions has some nine."""

MOST_TOGETHER = 40
"""Statements of all kernels together: a softmax and its gradient have some twenty."""


def faster(program: Program, planned: LoopNest) -> Candidate | None:
    """The nest of the search for a simplified program, where it is clearly faster than the nest that planners made."""
    if planned.sizes:
        return None
    facts = facts_here()
    theirs = Model(summary_of(planned), facts)
    now = float(theirs.times()[0])
    if now < WORTH:
        return None
    start = plain_nest(program)
    bound = least(program, start, facts)
    statements = [statements_of(kernel.body) for kernel in start.kernels]
    if now <= CLOSE * bound or now - bound < WORTH or max(statements, default=0) > MOST_STATEMENTS or sum(statements) > MOST_TOGETHER:
        return None
    found = searched(program, facts)
    ours = Model(summary_of(in_memory(found.nest)), facts)
    wins = all(MARGIN * float(ours.times(None, n)[0]) <= float(theirs.times(None, n)[0]) for n in (1, SEVERAL))
    return found if wins else None


def least(program: Program, plain: LoopNest, facts: Facts) -> float:
    """Nanoseconds on one thread that no nest goes below, by the model: inputs and results once through the level of memory that holds them,
    and the arithmetic of the program as written, in whole registers. (Where terms are shared a nest may, which then is not looked for.)"""
    summary = summary_of(plain)
    parameters = {b.name for b in plain.parameters}
    arrays = {b.name: prod(b.extents) * b.size for b in summary.buffers if b.name in parameters}
    levels = (0.0, *facts.lines)
    at = sum(sum(arrays.values()) > size for size in facts.caches)
    moved = sum(arrays.values()) / LINE * levels[at]
    arithmetic = 0.0
    for work in summary.work:
        if work.kind == ARITHMETIC:
            often = prod(summary.loops[loop].extent for loop in work.path if loop in work.changed or summary.loops[loop].extent < 1)
            arithmetic += often * work.share * work.instructions * work.size * 8 / facts.vector_bits * facts.arithmetic
    return max(moved, arithmetic)
