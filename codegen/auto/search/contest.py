"""The contest between the nest of the search and that of the planners: the former runs where the model of cost says that it is clearly
faster.

Both are predicted by one model, whatever runs now: clearly faster on one thread, and no slower on several. What is chosen, and with it the
order of sums, may not depend on how many threads a process has. Nothing is searched where the planners' nest is close to what no nest goes
below, as a whole and in what it waits for memory, which is all that counts on many threads; where there are microseconds to gain, which a
search pays back after thousands of calls; where scatters have rows whose length is data. Open sizes count as typical ones
(`auto.points`). A search may take the time that it can save in some ten thousand calls, and no more than some seconds, the fewer the nearer
planners are to the least; what it does is counted (`auto.candidate`), so that the winner does not hang on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tensorexpr.codegen.auto.candidate import UNIT, Candidate, Spent, effort
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.earlier import Choice, earlier
from tensorexpr.codegen.auto.search.forms import in_two_forms
from tensorexpr.codegen.auto.search.searching import begun, searched
from tensorexpr.codegen.auto.tiles.bound import least, least_from_memory
from tensorexpr.codegen.auto.tiles.one_pass import in_one_pass
from tensorexpr.codegen.auto.tiles.pieces import cut_up
from tensorexpr.codegen.nest import Buffer, LoopNest
from tensorexpr.codegen.rewrites.cuts import statements_of
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.constants.freezing import with_sizes
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Const, Definition, Program, Scatter
from tensorexpr.traversal import tensors_read

MARGIN = 1.3
"""How much faster a nest has to be predicted: the model's error on one nest beside another of the same program (`bench model`)."""
SURE, LEVEL = 1.08, 0.02
"""The same where it takes no more of any port or level of memory, give or take a part of all: it does not matter then what these cost."""
IDLE = 0.25
"""The part of what the busiest port does up to which it does not matter that another one does more: that of stores, say, where the row of a
softmax is kept in the first cache and each exponential computed once."""
CLOSE = 1.4
"""How far above the least a nest is still as good as it gets: real nests have loops, rests, and loads beside their arithmetic."""
CLOSER, QUICK = 1.12, 1600
"""The same of several kernels, which may be one pass, where a search is expected to take no more than so many units of effort, a quarter
of a second."""
CLOSE_OPEN, LOST = 1.65, 1.25
"""The same of open sizes, whose blocks seldom fit, unless a nest for fixed ones is so many times faster: of 19 such nests of planners the
search found none to be more than 1.04 times as fast (predicted), of three products that lose more all, by 1.26 to 1.57."""
SEVERAL = 8
"""Threads of the second prediction: enough that a nest that leaves cores without work is seen."""
WORTH = 10_000.0
"""Nanoseconds that there must be to gain: a search takes some 1e8, so that they are paid back after ten thousand calls."""
PAID_BACK = 30_000
"""Calls after which a search is to be paid back where all is gained that there is: so much time may it take."""
FEW_SECONDS, MOST_SECONDS = 0.5, 4.0
"""Seconds that a search may take however much there is to gain, near the least and `FAR` from it: somebody waits. Of 1,033 programs one
made 211 faster, and would have so within these; gradients of strided and depthwise convolutions took 3 to 5 s for nothing."""
LONGER, MOST_OPEN, TWICE = 2.5, 1.5, 1.6
"""How many times longer a unit of effort takes where sizes are open, as intervals decide less (1 to 2.5, on Zen 4), the seconds that a
search may take there, as how large sizes will be is not known, and how many times more units are expected of a search for two forms."""
MOST_STATEMENTS = 12
"""Statements of a kernel of the plain nest: of longer ones, such as gradients of windows with borders, the search seldom makes more than
planners do, unless what they made is far from the least."""
FAR = 3.0
"""How far that is, in times of the least."""
A_PAIR = 6.0
"""Units of effort for each pair of statements: from 2 for long products of many factors to 23 for several attentions; a search that is
expected to take too long is not begun."""
LEAST_A_PAIR = 2.0
"""The same where planners are `FAR` from the least: a search that may fit is begun (a Chebyshev series of ten terms, whose gradient takes
0.84 ms by the search and 4.8 by planners, takes 3 units a pair)."""
IN_A_KERNEL = 8.0
"""Units for each pair of statements of one kernel, with loops in pieces: tiles of each piece are looked at with all others beside them.
Of 206 searches that found a nest half took more than 11, and none would not have been begun. Gradients of strided and depthwise
convolutions, whose sums over windows are 25 to 31 statements in pieces, take 16 to 27, and find none."""

MOST_BETWEEN = 8
"""How many times the memory of inputs and results the search may take for what lies between, where planners take less and caches do not
hold it: terms as large as rows times columns are computed again, not stored, however fast that is."""


def faster(program: Program, planned: LoopNest, fixed: Callable[[Program], LoopNest]) -> Candidate | None:
    """The nest of the search for a simplified program, where it is clearly faster than the nest that planners made; `fixed` gives theirs
    for a program of known sizes."""
    if any(_sends_rows_of_data(d) for d in program.definitions):
        return None
    facts = facts_here()
    theirs = Model(summary_of(planned), facts)
    now = float(theirs.times()[0])
    if now < WORTH:
        return None
    start = begun(program)
    statements = [statements_of(kernel.body) for kernel in start.nest.kernels]
    for kernel in range(len(start.nest.kernels)):  # whichever branches of choices are left out, however many sums share what they add up
        start = cut_up(in_one_pass(start, kernel), kernel)
    kept = {b.name for b in start.nest.parameters}
    bound = least(start.nest, facts, kept)
    sizes = typical(planned)
    far = now > FAR * bound
    expected = sum(statements) ** 2 * (A_PAIR * TWICE if sizes else LEAST_A_PAIR if far else A_PAIR)
    close = CLOSER if len(statements) > 1 and expected <= QUICK else CLOSE
    gain, waits = _gain(now, bound, close), float(theirs.explained().levels[-1].sum())
    if SEVERAL * waits > now:  # that is then what several threads take
        gain = max(gain, _gain(waits, least_from_memory(start.nest, facts, kept), close))
    if not gain:
        return None
    longest, unit = (MOST_OPEN, UNIT * LONGER) if sizes else (MOST_SECONDS, UNIT)
    most = min(gain * 1e-9 * PAID_BACK, longest) / unit
    if expected > most or (max(statements, default=0) > MOST_STATEMENTS and not far):
        return None
    if sizes and now <= CLOSE_OPEN * bound and _are_legal(program, sizes):  # last: a second plan takes as long as the rest of these
        known = Model(summary_of(fixed(with_sizes(program, sizes))), facts)
        if now <= LOST * float(known.times()[0]):
            return None
    if not sizes:
        most = min(most, max(FEW_SECONDS, MOST_SECONDS * min(1.0, (now - bound) / max(1.0, (FAR - 1) * bound)) ** 2) / unit)

    def winner(found: Candidate) -> Candidate | None:
        if _bytes(found.nest.workspace) > max(_bytes(planned.workspace), MOST_BETWEEN * _bytes(planned.parameters), facts.caches[-1]):
            return None
        ours = Model(summary_of(in_memory(found.nest)), facts)
        alone, together = (float(theirs.times(None, n)[0]) / float(ours.times(None, n)[0]) for n in (1, SEVERAL))
        # Blocks of planners do not become shorter with their loops, which typical sizes do not show.
        margin = 1.0 if sizes else SURE if _takes_no_more(ours, theirs) else MARGIN
        return found if alone >= margin and together >= 1.0 else None

    def time(found: Candidate | None) -> float:
        return now if found is None else float(Model(summary_of(in_memory(found.nest)), facts).times()[0])

    left = [most]

    def searching() -> Candidate | None:
        nonlocal left
        if not sizes and IN_A_KERNEL * sum(statements_of(kernel.body) ** 2 for kernel in start.nest.kernels) > most:
            return None
        try:
            with effort(most) as left:
                return winner(in_two_forms(program, facts) if sizes else searched(program, facts))
        except Spent:
            return None

    before = earlier()
    if before is None:
        return searching()
    choices = before.of(program)
    again = filter(None, (winner(made) for choice in choices for made in choice.at(program)))
    best, marks = min((None, *again), key=time), (bound, float(Model(summary_of(start.nest), facts).explained().ports.max(axis=1).sum()))
    if not any(choice.is_as_good(time(best), marks) for choice in choices):
        best = min(best, searching(), key=time)
        if most - left[0] >= before.least:
            choices.append(Choice(None if best is None else best.calls, time(best), marks))
    return best


def _are_legal(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether a call may have these sizes: no result has an extent below zero."""
    shapes = (type_.shape for d in program.definitions for _, type_ in d.results)
    return all(extent_value(e, sizes) >= 0 for shape in shapes for e in shape)


def _gain(now: float, bound: float, close: float) -> float:
    """Nanoseconds that there are to gain; none where a nest is as close to the least as it gets, or where they are too few."""
    return 0.0 if now <= close * bound or now - bound < WORTH else now - bound


def _takes_no_more(ours: Model, theirs: Model) -> bool:
    """Whether a nest keeps no port busy for longer than another one, but for those with little to do, and waits no longer for any level of
    memory."""
    mine, other = ours.explained(), theirs.explained()
    spare = LEVEL * float(other.total[0])
    busy, by_level = mine.ports.sum(axis=0), mine.levels.sum(axis=1) - other.levels.sum(axis=1)
    by_port = (busy - other.ports.sum(axis=0))[busy > IDLE * busy.max()]
    return bool(max(by_port.max(), by_level.max()) <= spare)


def _bytes(buffers: Sequence[Buffer]) -> int:
    """The bytes of buffers whose extents are known."""
    return sum(prod(int(e.value) for e in b.shape if isinstance(e, Const)) * b.dtype.itemsize for b in buffers)


def _sends_rows_of_data(d: Definition) -> bool:
    """Whether a scatter has rows whose length is data: how many of them may be added up at once is not known to the model."""
    bounds = (e for a in d.axes for e in (a.start, a.stop)) if isinstance(d, Scatter) else ()
    return any(map(tensors_read, bounds))
