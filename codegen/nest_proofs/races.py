"""No two iterations of a loop that runs in any order, or at once, touch one element of which one of them writes it.

Asked of each loop over blocks, threads, lanes or cores, about the buffers that are made outside of it; elements that are updated in one
piece (`LoopNest.atomics`) are excepted. First the quick tests of `dependence.apart`, of all that is touched of a buffer, then of pairs. The
pairs that are left are put to the sets: two copies of the loops inside, of two different iterations, with equal indices.

Lanes: the emitter runs a loop over lanes one iteration after the other where a store has the same address in all lanes (a sum that nobody
split; on a GPU it is combined by shuffles). So a loop over lanes is asked about unless some store in it stands at indices that mention
neither the lane nor what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorexpr.codegen.dependence.apart import Reach, Taken
from tensorexpr.codegen.dependence.pairs import APART, SAME, Pair, Tie, renamed
from tensorexpr.codegen.facts.places import Home, Loop, Touch
from tensorexpr.codegen.facts.questions import Answer, Questions
from tensorexpr.codegen.facts.scope import Scope, mentioned, negation
from tensorexpr.codegen.nest import GRID, LANES, THREADS, LoopNest
from tensorexpr.codegen.nest_proofs.alike import equal_where_alike, may_be_alike, same_value
from tensorexpr.ir import Const, Expr, Index, apply

AT_ONCE = ("parallel", *LANES, *GRID, *THREADS)


def close(nest: LoopNest, loops: list[Loop], questions: Questions) -> Iterator[tuple[Loop, Touch, Touch]]:
    """The pairs of touches that may meet in different iterations of a loop, as far as the quick tests say."""
    for loop in loops:
        kind = loop.statement.kind
        if kind not in AT_ONCE or _once(loop) or (kind in LANES and _in_turns(loop)):
            continue
        taken = Taken(loop)
        for touches in _by_home(loop, nest).values():
            if not taken.apart(touches):
                yield from _pairs(taken, touches, questions)


def _once(loop: Loop) -> bool:
    start, stop = loop.statement.start, loop.statement.stop
    return isinstance(start, Const) and isinstance(stop, Const) and stop.value - start.value <= 1


def _in_turns(loop: Loop) -> bool:
    """Whether some store has one address in all lanes."""
    for touch in loop.touches:
        if touch.write:
            names, reads = mentioned(touch.indices)
            if loop.statement.index not in names and not reads:
                return True
    return False


def _by_home(loop: Loop, nest: LoopNest) -> dict[Home, list[Touch]]:
    found: dict[Home, list[Touch]] = {}
    written = {touch.home for touch in loop.touches if touch.write and touch.home.buffer.name not in nest.atomics}
    for touch in loop.touches:
        if touch.home in written:
            found.setdefault(touch.home, []).append(touch)
    return found


# -------------------------------------------------------------------------------------------------------------- pairs by sets


def _pairs(taken: Taken, touches: list[Touch], questions: Questions) -> Iterator[tuple[Loop, Touch, Touch]]:
    found: dict[object, Touch] = {}
    for touch in touches:
        found.setdefault((touch.indices, touch.write, questions.relevant(touch.scope, touch.indices)), touch)
    distinct = list(found.values())
    asked = set()
    reach = Reach(taken, questions)
    for write in distinct:
        for other in distinct:
            if not write.write or (other, write) in asked:
                continue
            asked.add((write, other))
            if not taken.apart((write, other)) and not taken.beyond(write, other) and not reach.is_apart(write, other):
                yield taken.loop, write, other


def meet(loop: Loop, first: Touch, second: Touch, questions: Questions) -> Answer:
    """Whether two touches never meet in different iterations of a loop."""
    around = [Tie(one, SAME, one) for one in loop.around]
    pair = Pair(first, second, (*around, Tie(loop, APART, loop)), loop.writes)
    found = pair.meeting()
    if found is None:
        return Answer(None, "undecided")
    meeting, both = found

    def there(expr: Expr) -> Expr:
        return renamed(expr, pair.renamed, loop.writes)

    if not may_be_alike(loop, first, second):
        return questions.never(meeting, both)
    if first.indices == second.indices and _are_alike(loop, first, second, meeting, both, there, questions):
        return Answer(True, "written alike")
    return questions.never(meeting, both, refute=False)  # not refuted: values may be equal


def _are_alike(
    loop: Loop, first: Touch, second: Touch, meeting: tuple[Expr, ...], both: Scope, there: Callable[[Expr], Expr], questions: Questions
) -> bool:
    """Whether two stores at the same indices write equal values where two iterations meet; or one store and what reads it right behind."""

    def holds(condition: Expr) -> bool:
        return condition in meeting or questions.never((*meeting, negation(condition)), both, refute=False).holds is True

    if second.write and not same_value(first, second, (holds, lambda condition: holds(there(condition)))):
        return False
    for store in dict.fromkeys((first, second) if second.write else (first,)):
        alike = equal_where_alike(
            loop,
            store,
            lambda write, read: meet(loop, write, read, questions).holds is True,
            lambda condition, scope: questions.never((negation(condition),), scope, refute=False).holds is True,
        )
        if alike is None or Index(loop.statement.index) in alike or not all(holds(apply("eq", e, there(e))) for e in alike):
            return False
    return True
