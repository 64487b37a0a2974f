"""The decisions of the default schedule: none asked for gives the model's own, any asked for gives a legal schedule."""

import random

import pytest

from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.schedule.decisions import MOST_OPTIONS, Choices, Decision
from tensorexpr.codegen.target import H200, Target
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, SOFTMAX, WIDE, assert_means
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program, schedules
from tests.seeds import share_of


def decided(program: Program, choices: Choices, target: Target = WIDE) -> tuple[Planned, tuple[Decision, ...]]:
    return schedules.decided(program, choices, target)


def wandered(program: Program, rng: random.Random, steps: int = 4, target: Target = WIDE) -> Choices:
    return schedules.wandered(program, rng, target, steps)


@pytest.mark.parametrize("block", range(4))
def test_any_choices_give_the_interpreters_result(block):
    for seed in share_of(range(block * 40, (block + 1) * 40)):
        program = random_program(seed)
        s, _ = decided(program, wandered(program, random.Random(seed)))
        assert_same_meaning(s, seed)


def test_any_choices_for_a_gpu_give_the_interpreters_result():
    for seed in share_of(range(40)):
        program = random_program(seed)
        s, _ = decided(program, wandered(program, random.Random(seed), target=H200), H200)
        assert_same_meaning(s, seed)


@pytest.mark.parametrize("target", [WIDE, H200])
def test_the_first_options_are_the_model_itself(target):
    for seed in share_of(range(40)):
        program = random_program(seed)
        plain = autoschedule(program, target)
        s, made = decided(program, Choices(), target)
        again, _ = decided(program, Choices({d.name: d.options[0] for d in made}), target)
        assert plain.as_python() == s.as_python() == again.as_python()
        assert all(d.taken == d.options[0] and 1 < len(d.options) <= MOST_OPTIONS for d in made)
        assert all(len(set(d.options)) == len(d.options) for d in made)


def test_choices_rebuild_a_schedule_and_its_text_does():
    for seed in share_of(range(40)):
        program = random_program(seed)
        choices = wandered(program, random.Random(seed))
        s, _ = decided(program, choices)
        again, _ = decided(program, Choices(dict(choices)))
        by_text = schedule(program, WIDE)
        exec(s.as_python(), {"s": by_text})
        assert again == s == by_text


def test_words_that_are_not_there_are_passed_over():
    program = parse_program(MATMUL)
    s, made = decided(program, Choices({"C: tile": "7 q, 3 z", "nowhere: tile": "1"}))
    assert s == autoschedule(program, WIDE)
    assert "nowhere: tile" not in {d.name for d in made}


def options_of(text: str, name: str) -> tuple[str, ...]:
    _, made = decided(parse_program(text), Choices())
    return {d.name: d.options for d in made}[name]


def test_a_contraction_has_lanes_and_tile_to_decide():
    assert options_of(MATMUL, "C: lanes along")[0] == "j"
    assert {"6 i, 16 j", "12 i, 16 j", "4 i, 3 x 16 j"} <= set(options_of(MATMUL, "C: tile"))
    s, _ = decided(parse_program(MATMUL), Choices({"C: tile": "6 i, 16 j"}))
    assert "s['C'].split('i', 6" in s.as_python()
    assert_means(s)


def test_a_softmax_may_keep_its_rows_apart():
    assert options_of(SOFTMAX, "m: computed in Y at") == ("i", "no loop")
    s, _ = decided(parse_program(SOFTMAX), Choices({"m: computed in Y at": "no loop"}))
    assert "s['m'].compute_at" not in s.as_python()
    assert_means(s, exact=False)


def test_choices_are_values():
    choices = Choices({"b": "2", "a": "1"})
    assert choices == Choices({"a": "1", "b": "2"}) and hash(choices) == hash(Choices({"a": "1", "b": "2"}))
    assert choices.with_choice("a", None) == Choices({"b": "2"}) and choices.with_choice("a", "3")["a"] == "3"
    assert repr(choices) == "Choices({'a': '1', 'b': '2'})" and dict(choices) == {"a": "1", "b": "2"}
