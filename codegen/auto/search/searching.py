"""The search: for each group of kernels the cheapest of a few ways to compute it, by the model of cost."""

from __future__ import annotations

from tensorexpr.codegen.auto.candidate import Candidate, plain
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search.fusing import fused
from tensorexpr.codegen.auto.search.groups import Group, groups_of, joined, part_of
from tensorexpr.codegen.auto.search.past import past_caches
from tensorexpr.codegen.auto.tiles import tiled
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.ir import Program


def searched(program: Program, facts: Facts) -> Candidate:
    """The nest for a simplified program on a machine, with the rewrites that make it of the plain nest."""
    start = plain(program)
    taken, parts, calls = taken_names(start.nest), [], []
    for group in groups_of(start.nest):
        best = _best(Candidate(part_of(start.nest, group, taken)), group, facts)
        taken |= taken_names(best.nest)
        made = tuple(name for member in group.members for name in member.stored if name in taken)
        calls += [call._replace(arguments=made) if call.word == "simplify" else call for call in best.calls]
        parts.append(best.nest)
    return past_caches(Candidate(joined(start.nest, parts), tuple(calls)), facts)


def nanoseconds(nest: LoopNest, facts: Facts, threads: int = 1) -> float:
    """What a nest costs as it is built: large local buffers in the workspace."""
    return float(Model(summary_of(in_memory(nest)), facts).times(None, threads)[0])


def _best(part: Candidate, group: Group, facts: Facts) -> Candidate:
    """The cheapest way to compute a group: in shared loops, where it has several members, else one after the other."""
    ways = list(fused(part, group)) if len(group.members) > 1 else []
    return min((finished(way, facts) for way in ways or [part]), key=lambda one: nanoseconds(one.nest, facts))


def finished(made: Candidate, facts: Facts) -> Candidate:
    """The candidate with all its kernels tiled."""
    for kernel in reversed(range(len(made.nest.kernels))):
        made = tiled(made, kernel, facts)
    return made
