"""A kernel with straight loops: ranges that change with a loop around, and indices that are divided, keep lanes and copies from going along
it. So that loop is taken in blocks of as many iterations as it is divided by, and what stands in it runs over one range, under a condition.

    for q in range(0, 56):                                      for q_o in range(0, 28):
        for z in range(q // 2, minimum((q + 3) // 2, 28)):          for q_i in range(0, 2):
            y[q] = y[q] + x[z]                            -->           for z in range(0, 2):
                                                                            if z < (q_i + 3) // 2 and z < 28 - q_o:
                                                                                y[q_i + q_o * 2] = y[q_i + q_o * 2] + x[z + q_o]

Gradients of windows with borders and strides are such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.tiles.survey import DATA, Survey, alone
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.rewrites.cuts import moduli_of
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import walk_kernel
from tensorexpr.errors import ScheduleError
from tensorexpr.traversal import free_names

MOST_CLASSES = 4
"""Iterations that a loop is taken in blocks of for the indices that are divided: strides of windows are 2, seldom 3 or 4."""
WASTE = 1.6
"""How many more iterations a loop may have over one range: every second one of a stride of two has one more, which is half as many beside
two in a row, and more beside fewer at borders; a triangle would have twice as many."""


def straightened(candidate: Candidate, kernel: int) -> Candidate | None:
    """The candidate with the innermost loops of a kernel along which lanes or copies may go made straight; None where they are."""
    survey, made = Survey(candidate.nest, kernel), candidate
    for name in _bent(survey):
        one = _straight(made, survey, name, kernel)
        if one is not None and len(one.nest.kernels) == len(made.nest.kernels):  # else it was empty
            made = one
    return None if made is candidate else made


def _bent(survey: Survey) -> Iterator[str]:
    """For each leaf the innermost loop whose iterations may run in any order, where something inside changes its range with it, or where
    its index is divided."""
    found: dict[str, None] = {}
    for leaf in survey.leaves:
        data = [name for name in leaf.path if survey.kind(name) == DATA]
        bent = [name for name in data if survey.bounds_others(name)]
        found.update(dict.fromkeys(bent[-1:] or [name for name in data[-1:] if 1 < _classes(survey, name) <= MOST_CLASSES]))
    yield from found


def _classes(survey: Survey, name: str) -> int:
    """The number of iterations after which a loop's index is divided as before."""
    return lcm(*(m for s in survey.loops[name] for m in moduli_of(s)))


def _straight(made: Candidate, survey: Survey, name: str, kernel: int) -> Candidate | None:
    """The candidate with one loop made straight, where that can be."""
    count = _classes(survey, name)
    parts: tuple[str, ...] = (name,)
    if 1 < count <= MOST_CLASSES:
        parts = fresh(made.nest, f"{name}_o", f"{name}_i")
        kernels = len(made.nest.kernels)
        made = made.then("split", name, count, "peel", parts).then("simplify")
        if len(made.nest.kernels) < kernels:
            return None  # one that runs nowhere is gone: nothing is to be made straight
    before = {loop.name: loop.extent for loop in summary_of(alone(made.nest, kernel)).loops}
    for inner in dict.fromkeys(s.index for s in _bounded(made, parts, kernel)):
        one = _over_one_range(made, inner, parts, kernel)
        if _most(one, inner, kernel) > WASTE * before.get(inner, 1.0):
            return None
        made = one
    return made.then("simplify")


def _bounded(made: Candidate, parts: Sequence[str], kernel: int) -> Iterator[For]:
    """The loops whose bounds change with one of some loops."""
    for _, s in walk_kernel(made.nest, kernel):
        if isinstance(s, For) and any(x in parts for e in (s.start, s.stop) for x in free_names(e)):
            yield s


def _over_one_range(made: Candidate, inner: str, parts: Sequence[str], kernel: int) -> Candidate:
    """The candidate with a loop over the shortest range that serves all iterations of those around it, begun later with each of them
    where its bounds grow with that."""
    for outer in parts:
        best: tuple[int, Candidate] | None = None
        for factor in _growth(made, inner, outer, kernel):
            try:
                one = made if factor == 0 else made.then("skew", outer, inner, -factor)
                one = one.then("widen", inner, outer)
            except ScheduleError:
                continue
            length = _most(one, inner, kernel)
            if best is None or length < best[0]:
                best = length, one
        if best is not None:
            made = best[1]
    return made


def _growth(made: Candidate, inner: str, outer: str, kernel: int) -> list[int]:
    """By how much bounds of a loop may grow with each iteration of one around it."""
    found = {0: None}
    for path, s in walk_kernel(made.nest, kernel):
        if isinstance(s, For) and s.index == inner:
            facts = Facts.at(made.nest, path)
            forms = (form for e, above in ((s.start, False), (s.stop, True)) for bound in facts.bounds(e, above) for form in bound)
            found.update(dict.fromkeys(form.coefficient(outer) for form in forms))
    return list(found)


def _most(made: Candidate, inner: str, kernel: int) -> int:
    """The most iterations that a loop has, as far as the ranges of what is around say."""
    most = 0
    for path, s in walk_kernel(made.nest, kernel):
        if isinstance(s, For) and s.index == inner:
            known = constant(sub(s.stop, s.start))
            facts = Facts.at(made.nest, path)
            high = facts.interval(facts.form(sub(s.stop, s.start)))[1] if known is None else known
            most = max(most, int(min(high, 1 << 40)))
    return most
