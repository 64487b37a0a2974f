"""What the quick proof asks, as every build does, is bounded in proportion to the statements of the nest: counted, never timed."""

import random

import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_proofs import proof
from tensorexpr.codegen.nest_proofs.forms import Forms
from tensorexpr.codegen.nest_proofs.questions import steps_for
from tensorexpr.codegen.schedule import autoschedule, schedule
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE
from tests.codegen.proofs.test_faults import nest_of
from tests.kernels.table import ALL
from tests.random_programs import random_program
from tests.seeds import share_of

FORMS_PER_STATEMENT = 24
LEAST_FORMS = 200


def check_cost(nest, monkeypatch):
    """No more steps than a question and a half of what the nest may take, no more forms than so many for each statement."""
    asked = 0
    inner = Forms.is_natural

    def counted(self, form, loops):
        nonlocal asked
        asked += 1
        return inner(self, form, loops)

    monkeypatch.setattr(Forms, "is_natural", counted)
    made = proof._Proof(nest, 1, quick=True, launched=False)
    made.verdict()
    statements = sum(proof._statements(kernel.body) for kernel in nest.kernels)
    assert made.questions.steps <= 1.5 * steps_for(statements)
    assert asked <= max(LEAST_FORMS, FORMS_PER_STATEMENT * statements)


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_quick_proofs_of_the_library_ask_in_proportion(seed, monkeypatch):
    rng = random.Random(seed)
    check_cost(nest_of(rng.randrange(len(ALL)) // 7 * 7, rng.random() < 0.5, rng.random() < 0.2), monkeypatch)


@pytest.mark.parametrize("seed", share_of(range(900, 930)))
def test_quick_proofs_of_random_programs_ask_in_proportion(seed, monkeypatch):
    simple = simplify(random_program(seed))
    check_cost(lower(autoschedule(simple, WIDE)), monkeypatch)
    check_cost(lower(schedule(simple, WIDE)), monkeypatch)
