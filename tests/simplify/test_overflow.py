"""Normal forms of integers of tensors: what is multiplied out, shifted or turned around stays what int64 makes of the original.

Elements are the ends of int64, and numbers on both sides of where multiples of the literals wrap around.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tests.seeds import share_of

COUNT = 48
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
DIVISORS = (2, 3, 7, 8, -2, -3, -5, 1 << 40, -(1 << 40) - 1, GREATEST, -GREATEST, LEAST)


def numbers(rng: random.Random) -> np.ndarray:
    edges = (0, 1, LEAST, GREATEST, LEAST // 3, GREATEST // 8, 1 << 62, -(1 << 62))
    drawn = [
        rng.choice((rng.choice(edges) + rng.randrange(-9, 10), rng.randrange(-20, 20), rng.randrange(LEAST, GREATEST)))
        for _ in range(COUNT)
    ]
    return np.array([min(max(x, LEAST), GREATEST) for x in drawn], np.int64)


class Terms:
    """Random int64 terms of two columns of int64, one of int32 and an index."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.A, self.B = (te.placeholder((COUNT,), "int64", name=name) for name in "AB")
        self.C = te.placeholder((COUNT,), "int32", name="C")

    def leaf(self, i):
        return self.random.choice((self.A[i], self.A[i], self.B[i], te.cast(self.C[i], "int64"), i))

    def term(self, i, depth: int):
        rng = self.random
        if depth == 0:
            return self.leaf(i)
        x = self.term(i, depth - 1)
        match rng.choice(("//", "%", ">>", "<<", "+", "-", "*", "neg", "min", "where", "&")):
            case "//":
                return x // rng.choice(DIVISORS)
            case "%":
                return x % rng.choice(DIVISORS)
            case ">>":
                return x >> rng.choice((1, 3, 61))
            case "<<":
                return x << rng.choice((1, 3))
            case "+":
                return x + rng.choice((self.leaf(i), 1, 5, -3))
            case "-":
                return rng.choice((self.leaf(i), 7)) - x
            case "*":
                return x * rng.choice((3, -1, 4))
            case "neg":
                return -x
            case "min":
                return te.minimum(x, self.leaf(i))
            case "&":
                return x & rng.choice((1, 7))
        return te.where(self.leaf(i) < x, x, self.leaf(i))

    def test(self, i):
        x, y = self.term(i, self.random.randint(0, 2)), self.term(i, self.random.randint(0, 2))
        match self.random.choice(("<", "<=", ">", ">=", "==", "!=")):
            case "<":
                return x < y
            case "<=":
                return x <= y
            case ">":
                return x > y
            case ">=":
                return x >= y
            case "==":
                return x == y
        return x != y

    def value(self, i):
        if self.random.random() < 0.4:
            return self.term(i, self.random.randint(1, 3))
        test = self.test(i)
        if self.random.random() < 0.3:
            test = test & self.test(i) if self.random.random() < 0.5 else test | self.test(i)
        return te.where(test, self.term(i, 1), 0)


@pytest.mark.parametrize("block", share_of(range(12)))
def test_integers_of_tensors(block):
    for seed in range(block * 60, block * 60 + 60):
        terms = Terms(seed)
        rng = random.Random(seed)
        program = program_of([te.compute((COUNT,), terms.value, name="T")], [terms.A, terms.B, terms.C])
        edges = rng.choices((-(1 << 31), (1 << 31) - 1, 0, 5, -7), k=COUNT)
        inputs = {"A": numbers(rng), "B": numbers(rng), "C": np.array(edges, np.int32)}
        want = evaluate_program(program, inputs)["T"]
        found = evaluate_program(simplify(program), inputs)["T"]
        np.testing.assert_array_equal(found, want, err_msg=f"{seed}\n{program}\n{simplify(program)}")


NARROW = ("int8", "uint8", "int16", "int32")


def narrow(seed: int):
    """A program of conditions on two columns of one narrow dtype, and its inputs: small numbers, and the ends of the dtype."""
    rng = random.Random(seed)
    dtype = rng.choice(NARROW)
    A, B = (te.placeholder((COUNT,), dtype, name=name) for name in "AB")
    least, greatest = int(A.dtype.least), int(A.dtype.greatest)
    numbers = (least, least + 1, greatest, greatest // 2, 0, 1, 2, 5, max(least, -3))

    def term(i, depth):
        if depth == 0:
            return rng.choice((A[i], A[i], B[i]))
        x, y = term(i, depth - 1), rng.choice((A[i], B[i], rng.choice((1, 2, 3, 5))))
        name = rng.choice(("+", "-", "*", "//", "%", "abs", "neg", "min"))
        if name in ("abs", "neg"):
            return te.abs(x) if name == "abs" else -x
        if name == "min":
            return te.minimum(x, B[i])
        return {"+": x + y, "-": x - y, "*": x * y, "//": x // y, "%": x % y}[name]

    def test(i):
        x, bound = term(i, rng.randint(0, 2)), rng.choice((B[i], *numbers[4:]))
        found = rng.choice((x < bound, x >= bound, x <= bound, x > bound))
        if rng.random() < 0.4:  # two bounds that leave one number, or leave one out
            at = rng.choice(numbers[4:8])
            found = rng.choice(((x >= at) & (x < at + 1), (x < at) | (x > at), (x >= at) & (x <= at)))
        return found & (A[i] >= 0) if rng.random() < 0.3 else found

    program = program_of([te.compute((COUNT,), lambda i: te.where(test(i) & test(i), 1.0, 0.0), name="T")], [A, B])
    return program, {name: np.array(rng.choices(numbers, k=COUNT), A.dtype.numpy) for name in "AB"}


@pytest.mark.parametrize("block", share_of(range(9)))
def test_narrow_integers(block):
    for seed in range(block * 40, block * 40 + 40):
        program, inputs = narrow(seed)
        want = evaluate_program(program, inputs)["T"]
        found = evaluate_program(simplify(program), inputs)["T"]
        np.testing.assert_array_equal(found, want, err_msg=f"{seed}\n{program}\n{simplify(program)}")
