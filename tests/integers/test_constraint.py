"""Constraints: tightening, negation, text, and messages."""

from __future__ import annotations

import random

import pytest

from tensorexpr.errors import DefinitionError
from tensorexpr.integers import Affine, Constraint, congruent, eq, ge, gt, le, lt
from tests.integers.oracles import NAMES, random_affine

i, j, n, x = (Affine.of(name) for name in "ijnx")


def test_constructors_mean_what_they_say():
    for a in range(-3, 4):
        for b in range(-3, 4):
            point = {"i": a, "j": b}
            assert ge(i, j).holds(point) == (a >= b)
            assert gt(i, j).holds(point) == (a > b)
            assert le(i, j).holds(point) == (a <= b)
            assert lt(i, j).holds(point) == (a < b)
            assert eq(i, j).holds(point) == (a == b)


def test_tightened_forms():
    assert Constraint(2 * i - 1, ">=") == ge(i, 1)
    assert Constraint(4 * i - 6, "==").is_false
    assert eq(i, j) == eq(j, i)
    assert eq(2 * i, 2 * j) == eq(i, j)
    assert ge(3, 2).is_true and ge(2, 3).is_false and eq(1, 1).is_true


def test_congruences_have_one_form():
    assert congruent(x - 1, 3) == congruent(1 - x, 3) == congruent(4 * x + 2, 3)
    assert str(congruent(2 * i - j, 5)) == "(2*i - j) % 5 == 0"
    for value in range(-10, 10):
        assert congruent(2 * x + 1, 5).holds({"x": value}) == ((2 * value + 1) % 5 == 0)
    assert congruent(x, 1).is_true and congruent(6, 4).is_false


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (ge(i, 0), "i >= 0"),
        (lt(i, n), "i < n"),
        (le(i, 7), "i <= 7"),
        (eq(x, 7 * i + j), "x == 7*i + j"),
        (eq(x % 3, 1), "x % 3 == 1"),
        (ge(2 * i, n + 1), "n < 2*i"),
        (ge(2 * i, n + 3), "n <= 2*i - 3"),
        (ge(-i, 3), "i <= -3"),
        (eq(i, -2), "i == -2"),
    ],
)
def test_text(constraint, text):
    assert str(constraint) == text


def test_exactly_one_of_constraint_and_negations_holds():
    rng = random.Random(2)
    for _ in range(500):
        one = Constraint(random_affine(rng, NAMES[:3], 9, divisions=True), rng.choice(["==", ">="]))
        point = {name: rng.randint(-9, 9) for name in NAMES[:3]}
        assert one.holds(point) + sum(other.holds(point) for other in one.negate()) == 1
        moved = one.substitute({"i": j - 2})
        assert moved.holds(point) == one.holds({**point, "i": point["j"] - 2})


def test_message():
    with pytest.raises(DefinitionError) as caught:
        Constraint(i, "<=")
    assert caught.value.message == "expected a constraint of kind '>=' or '==', got '<='"
