"""What the quick proof asks, as every build does, is bounded in proportion to the statements of the nest: counted, never timed."""

import random

import pytest

from tensorexpr.codegen.facts import questions
from tensorexpr.codegen.facts.forms import Forms
from tensorexpr.codegen.facts.questions import steps_for
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.codegen.nest_proofs import proof, prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.integers.solving import emptiness
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE
from tests.codegen.proofs.test_faults import nest_of
from tests.kernels.table import ALL
from tests.random_programs import random_program
from tests.seeds import share_of

FORMS_PER_STATEMENT = 24
LEAST_FORMS = 200


def check_cost(nest, monkeypatch):
    """No more steps than the nest may take, and half as many for what the last question began; so many forms for each statement."""
    asked = 0
    inner = Forms.is_natural

    def counted(self, form, loops):
        nonlocal asked
        asked += 1
        return inner(self, form, loops)

    monkeypatch.setattr(Forms, "is_natural", counted)
    made = proof._Proof(nest, 1, quick=True, launched=False)
    made.verdict()
    count = sum(1 for kernel in nest.kernels for _ in statements(kernel.body))
    assert made.questions.steps <= 1.5 * steps_for(count)
    assert asked <= max(LEAST_FORMS, FORMS_PER_STATEMENT * count)


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_quick_proofs_of_the_library_ask_in_proportion(seed, monkeypatch):
    rng = random.Random(seed)
    check_cost(nest_of(rng.randrange(len(ALL)) // 7 * 7, rng.random() < 0.5, rng.random() < 0.2), monkeypatch)


@pytest.mark.parametrize("seed", share_of(range(900, 930)))
def test_quick_proofs_of_random_programs_ask_in_proportion(seed, monkeypatch):
    simple = simplify(random_program(seed))
    check_cost(lower(autoschedule(simple, WIDE)), monkeypatch)
    check_cost(lower(schedule(simple, WIDE)), monkeypatch)


def nest_of_random_program(seed):
    return lower(autoschedule(simplify(random_program(seed)), WIDE))


def test_what_would_take_more_steps_is_undecided(monkeypatch):
    bound = 0
    for seed in range(900, 916):
        nest = nest_of_random_program(seed)
        monkeypatch.setattr(questions, "LEAST_STEPS", questions.MOST_STEPS)
        free = prove(nest, quick=True)
        monkeypatch.setattr(questions, "LEAST_STEPS", 100)
        monkeypatch.setattr(questions, "STEPS_PER_STATEMENT", 0)
        scarce = proof._Proof(nest, 1, quick=True, launched=False)
        found = scarce.verdict()
        assert not found.refuted and set(free.findings) <= set(found.findings)
        bound += found != free
        assert found == free or scarce.questions.steps >= 100
        assert dict(prove(nest).decided).get("undecided", 0) <= dict(found.decided).get("undecided", 0)  # the whole proof is not bound
    assert bound > 3


def test_the_steps_are_the_same_whatever_was_proved_before():
    counts = []
    nests = [nest_of_random_program(seed) for seed in range(900, 908)]
    for order in (nests, nests[::-1], nests):
        made = [proof._Proof(nest, 1, quick=True, launched=False) for nest in order]
        found = [(one.verdict(), one.questions.steps) for one in made]
        counts.append(found if order is nests else found[::-1])
        emptiness._has_point.cache_clear()
    assert counts[0] == counts[1] == counts[2] and any(steps for _, steps in counts[0])
