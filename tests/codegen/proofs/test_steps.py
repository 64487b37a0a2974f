"""Every step of the lowering gives a nest that holds: the step that breaks one is named."""

import pytest

from tensorexpr.codegen.lowering import lower, program
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import InternalError
from tensorexpr.ir import const
from tensorexpr.language import program_of
from tensorexpr.op.trees import leaves
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE, plain
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, placed
from tests.random_programs import random_program
from tests.seeds import share_of


def check_steps(made):
    """Verifies the nest behind each step, where the step has changed it."""
    before = None

    def seen(step, nest):
        nonlocal before
        if nest != before:
            try:
                refuted = prove(verify_nest(nest), quick=True).refuted
            except InternalError as error:
                raise AssertionError(f"{step}: {error}") from error
            assert not refuted, f"{step}: {refuted[0]}"
        before = nest

    return lower(made, seen=seen)


@pytest.mark.parametrize("seed", share_of(range(900, 945)))
def test_every_step_keeps_nests_of_random_programs_sound(seed):
    simple = simplify(random_program(seed))
    for made in (schedule(simple, WIDE), autoschedule(simple, WIDE)):
        assert check_steps(made) == lower(made)


@pytest.mark.parametrize("case", share_of(range(len(ALL)))[1::12], ids=lambda k: ALL[k].name)
def test_every_step_keeps_nests_of_the_library_sound(case):
    inputs, result, wrt = placed(ALL[case])
    check_steps(autoschedule(simplify(program_of(list(leaves(result)), inputs)), WIDE))
    if ALL[case].differentiable and wrt:
        check_steps(autoschedule(simplify(derived(ALL[case])[1]), WIDE))


NEIGHBORS = """
X: f32[100] = input()
Y[i]: f32[100] = where(i >= 1, X[i - 1], 0.0)
return Y
"""


def test_the_step_that_breaks_a_nest_is_named(monkeypatch):
    made = plain(NEIGHBORS)
    check_steps(made)

    def one_more(kernel, shapes):
        return replace(kernel, body=tuple(replace(s, stop=const(int(s.stop.value) + 1)) if isinstance(s, For) else s for s in kernel.body))

    monkeypatch.setattr(program, "at_positions", one_more)
    with pytest.raises(AssertionError, match=r"^at_positions: bounds: .*\(refuted\)"):
        check_steps(made)

    def warped(kernel):
        return replace(kernel, body=tuple(replace(s, kind="warped") if isinstance(s, For) else s for s in kernel.body))

    monkeypatch.setattr(program, "with_quotients", warped)
    with pytest.raises(AssertionError, match=r"^with_quotients: .*warped"):
        check_steps(made)
