"""The contest between the nest of the search and that of the planners: the former runs where the model of cost says that it is clearly
faster.

Both are predicted by one model, whatever runs now: clearly faster on one thread, and no slower on several. What is chosen, and with it the
order of sums, may not depend on how many threads a process has. Nothing is searched where the planners' nest is close to what no nest goes
below, where there are microseconds to gain, which a search pays back after thousands of calls, where scatters have rows whose length is
data, or where sizes are open: rests of unknown length still run without vectors. Nor is it where there are many statements, which take
seconds to search, unless the planners' nest is far from the least.
"""

from __future__ import annotations

from tensorexpr.codegen.auto.candidate import Candidate, plain
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.digits import in_digits
from tensorexpr.codegen.auto.search.searching import searched
from tensorexpr.codegen.auto.tiles.bound import least
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.rewrites.loops.cuts import statements_of
from tensorexpr.ir import Access, Definition, Program, Scatter
from tensorexpr.traversal import walk

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
FAR = 3.0
"""How far above the least a nest is worth seconds of search, however many statements there are: the gradient of an
LSTM cell is 3.5 times the least as planned, and 2.2 times as fast when searched."""
WORTH_SECONDS = 1e6
"""Nanoseconds that there must be to gain for that: some seconds are paid back after a few thousand calls."""


def faster(program: Program, planned: LoopNest) -> Candidate | None:
    """The nest of the search for a simplified program, where it is clearly faster than the nest that planners made."""
    if planned.sizes or any(_sends_rows_of_data(d) for d in program.definitions):
        return None
    facts = facts_here()
    theirs = Model(summary_of(planned), facts)
    now = float(theirs.times()[0])
    if now < WORTH:
        return None
    start = in_digits(plain(program)).nest
    bound = least(summary_of(start), facts, {b.name for b in start.parameters})
    statements = [statements_of(kernel.body) for kernel in start.kernels]
    if now <= CLOSE * bound or now - bound < WORTH:
        return None
    many = max(statements, default=0) > MOST_STATEMENTS or sum(statements) > MOST_TOGETHER
    if many and (now <= FAR * bound or now - bound < WORTH_SECONDS):
        return None
    found = searched(program, facts)
    ours = Model(summary_of(in_memory(found.nest)), facts)
    alone, together = (float(theirs.times(None, n)[0]) / float(ours.times(None, n)[0]) for n in (1, SEVERAL))
    return found if alone >= MARGIN and together >= 1.0 else None


def _sends_rows_of_data(d: Definition) -> bool:
    """Whether a scatter has rows whose length is data: how many of them may be added up at once is not known to the model."""
    bounds = (e for a in d.axes for e in (a.start, a.stop)) if isinstance(d, Scatter) else ()
    return any(isinstance(n, Access) for e in bounds for n in walk(e))
