"""The search: for each group of kernels the cheapest of a few ways to compute it, by the model of cost."""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.auto.candidate import Candidate, plain
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.fusing import fused
from tensorexpr.codegen.auto.search.groups import Group, groups_of, joined, part_of
from tensorexpr.codegen.auto.tiles import tiled
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.ir import Program


def searched(program: Program, facts: Facts) -> Candidate:
    """The nest for a simplified program on a machine, with the rewrites that make it of the plain nest."""
    start = plain(program)
    best = [_best(start.nest, group, facts) for group in groups_of(start.nest)]
    calls = tuple(call for one in best for call in one.calls)
    return Candidate(joined(start.nest, [one.nest for one in best]), calls)


def nanoseconds(nest: LoopNest, facts: Facts, threads: int = 1) -> float:
    """What a nest costs."""
    return float(Model(summary_of(nest), facts).times(None, threads)[0])


def _best(nest: LoopNest, group: Group, facts: Facts) -> Candidate:
    """The cheapest way to compute a group."""
    return min(_ways(nest, group, facts), key=lambda one: nanoseconds(one.nest, facts))


def finished(made: Candidate, facts: Facts, at: str | None = None) -> Candidate:
    """The candidate with all its kernels tiled."""
    for kernel in range(len(made.nest.kernels)):
        made = tiled(made, kernel, facts)
    return made


def _ways(nest: LoopNest, group: Group, facts: Facts) -> Iterator[Candidate]:
    part = Candidate(part_of(nest, group))
    yield finished(part, facts, None)
    if len(group.members) > 1:
        for made, at in fused(part, group):
            yield finished(made, facts, at)
