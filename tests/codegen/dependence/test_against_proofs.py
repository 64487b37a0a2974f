"""The dependences against the proofs of races, on loops that run at once in nests of random schedules and in affine nests."""

import random

import pytest

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import LANES, For
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.nest_proofs.races import AT_ONCE
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.records import replace
from tests.codegen.dependence.enumerated import random_affine_nest
from tests.codegen.programs import WIDE
from tests.random_programs import random_program
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_loops_of_schedules(seed):
    program = random_program(seed)
    nest = lower(shuffled(schedule(program, WIDE), random.Random(seed)) if seed % 2 else autoschedule(program, WIDE))
    deps = dependences(nest)
    for loop in deps.places.all_loops:
        if loop.statement.kind in AT_ONCE and loop.statement.kind not in LANES:
            found = [c for c in deps.carried(loop.statement) if c.first.home.buffer.name not in nest.atomics]
            # what a sound loop may have is one element written twice with one value, by blocks that are shifted inwards
            assert all(c.kind == "output" and c.first.indices == c.second.indices for c in found), f"{found[0]} in\n{nest}"


@pytest.mark.parametrize("seed", share_of(range(120)))
def test_affine_loops_that_run_at_once(seed):
    nest = random_affine_nest(random.Random(seed))
    (kernel,) = nest.kernels
    body = tuple(replace(s, kind="parallel") if isinstance(s, For) else s for s in kernel.body)
    nest = replace(nest, kernels=(replace(kernel, body=body),))
    deps, races = dependences(nest), [finding for finding in prove(nest).findings if finding.kind == "race"]
    for loop in body:
        if isinstance(loop, For):
            own = [finding for finding in races if finding.about.startswith(f"iterations of {loop.index} ")]
            found = deps.may_run_in_any_order(loop)
            assert not (found and any(finding.refuted for finding in own)), f"{own[0]} in\n{nest}"
            assert found or own or not found.obstacle.is_certain or found.obstacle.kind == "output", f"{found} in\n{nest}"
