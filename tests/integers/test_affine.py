"""Affine expressions: normal form, arithmetic laws against plain evaluation, text, and messages."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest

from tensorexpr.errors import DefinitionError
from tensorexpr.integers import Affine, FloorDiv, ge
from tests.integers.oracles import NAMES, random_affine

i, j, n, x, k = (Affine.of(name) for name in "ijnxk")


def test_equal_meanings_are_equal_objects():
    assert (6 * i + j) // 3 == 2 * i + j // 3
    assert (i // 4 + 3) // 2 == (i + 12) // 8
    assert (x // 28) % 32 == x // 28 - 32 * (x // 896)
    assert (4 * i + 6) // 8 == (2 * i + 3) // 4
    assert (4 * i + 7) // 8 == (2 * i + 3) // 4
    assert -(-x // 3) == (x + 2) // 3
    assert x % 12 % 4 == x % 4
    assert x % 7 // 7 == Affine.of(0)
    assert (7 * i + j) % 7 == j % 7
    assert i + j - i == j and hash(i + j) == hash(j + i)
    assert Affine({"i": 0}) == Affine()
    assert x // 1 == x and x // -2 == -x // 2


def test_pickles_and_copies_hold_nothing_of_this_process():
    for seed in range(20):
        expression = random_affine(random.Random(seed), NAMES, 9, True)
        for one in (expression, ge(expression // 2, "k")):
            before = pickle.dumps(one)
            one.sort_key(), one.names()  # what is remembered
            assert pickle.dumps(one) == before and str(hash(one)).encode() not in pickle.dumps(one, 0)
            for made in (pickle.loads(before), copy.copy(one), copy.deepcopy(one)):
                assert made == one and hash(made) == hash(one) and made.sort_key() == one.sort_key()


def test_reading():
    e = 2 * i - 3 + n // 4
    assert e.coefficient("i") == 2 and e.coefficient("j") == 0 and e.constant == -3
    assert e.coefficient(FloorDiv(n, 4)) == 1
    assert e.names() == ("i", "n")
    assert not e.is_constant and Affine.of(3).is_constant
    assert e.atoms() == ("i", FloorDiv(n, 4))
    assert e.has_division() and not i.has_division()
    assert Affine.of(np.int64(3)) == Affine.of(3)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (2 * i + j // 3 - 1, "2*i + j//3 - 1"),
        (n - i - 1, "n - i - 1"),
        (-i, "-i"),
        (Affine(), "0"),
        (x % 7, "x % 7"),
        (i + 2 * ((x + j) % 3), "i + 2*((j + x) % 3)"),
        (2 * (i // 3), "2*(i//3)"),
        ((2 * i) // 3, "(2*i)//3"),
        (x % 7 + x, "x + x % 7"),
        (-(x % 3), "-(x % 3)"),
        (x - 6 * (x // 3), "x - 6*(x//3)"),
        ((x // 2 + j // 3) % 5, "(j//3 + x//2) % 5"),
    ],
)
def test_text(expr, text):
    assert str(expr) == text


def test_arithmetic_agrees_with_integers_at_random_points():
    rng = random.Random(1)
    for _ in range(1500):
        a, b = random_affine(rng, NAMES[:4], 9, divisions=True), random_affine(rng, NAMES[:4], 9, divisions=True)
        point = {name: rng.randint(-40, 40) for name in NAMES[:4]}
        va, vb = a.evaluate(point), b.evaluate(point)
        d = rng.choice([-7, -3, -1, 1, 2, 3, 4, 6, 12])
        assert (a + b).evaluate(point) == va + vb
        assert (a - b).evaluate(point) == va - vb
        assert (a * d).evaluate(point) == va * d
        assert (a // d).evaluate(point) == va // d
        assert (a % d).evaluate(point) == va % d
        assert (((a // 3) * 2 + b) // 4).evaluate(point) == ((va // 3) * 2 + vb) // 4
        assert a.substitute({"i": b, "j": 3}).evaluate(point) == a.evaluate({**point, "i": vb, "j": 3})
        assert eval(str(a), dict(point)) == va  # the text is Python with the same meaning


def test_substitution_is_simultaneous():
    assert (i - j).substitute({"i": "j", "j": "i"}) == j - i
    assert (x // 7).rename({"x": "y"}) == Affine.of("y") // 7


def test_immutable_values_in_sets():
    assert len({i + 1, 1 + i, Affine({"i": 1}, 1)}) == 1
    assert i != "i" and repr(i + 1) == "Affine('i + 1')"
    assert repr(FloorDiv(i, 2)) == "FloorDiv(Affine('i'), 2)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Affine.of(1.5), "expected an int, a name or an affine expression, got 1.5"),
        (lambda: Affine.of(True), "expected an int, a name or an affine expression, got True"),
        (lambda: i * j, "expected an integer factor of i, got j"),
        (lambda: i // 0, "expected a nonzero integer divisor of i, got 0"),
        (lambda: i // n, "expected a nonzero integer divisor of i, got n"),
        (lambda: (i + j).evaluate({"i": 1}), "expected a value for 'j', got values for i"),
    ],
)
def test_messages(call, message):
    with pytest.raises(DefinitionError) as caught:
        call()
    assert caught.value.message == message


def test_within_a_box_the_value_is_the_same():
    rng, simpler = random.Random(0), 0
    for _ in range(300):
        low = {name: rng.randint(-9, 9) for name in NAMES[:3]}
        high = {name: low[name] + rng.randint(0, 6) for name in low}
        open_ends = {name: (None if rng.random() < 0.1 else low[name], None if rng.random() < 0.1 else high[name]) for name in low}
        e = random_affine(rng, NAMES[:3], 20, divisions=True) // rng.choice((4, 6, 8, 16, 24)) + random_affine(rng, NAMES[:3], 9) % 12
        found = e.within(open_ends)
        simpler += found != e
        for _ in range(20):
            at = {name: rng.randint(low[name], high[name]) for name in low}
            assert found.evaluate(at) == e.evaluate(at), (str(e), open_ends)
    assert simpler > 30
    assert ((6 * i + j) // 4).within({"j": (0, 1)}) == 3 * i // 2
