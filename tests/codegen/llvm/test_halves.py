"""Index arithmetic of lanes in 32 bits: only where it is known to fit, and always with the numbers of 64 bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.llvm.emitter.ops import apply
from tensorexpr.codegen.llvm.text.builder import Builder, Module
from tensorexpr.codegen.llvm.text.values import Value, literal, ramp
from tensorexpr.ops import OPS


def expression(rng, index, depth):
    """Index arithmetic whose values lie within, at and beyond 32 bits."""
    if depth == 0:
        return rng.choice(
            [index, index * rng.choice([1, 2, 3, 7, -5]) + rng.randint(-9, 9), index * (1 << rng.randint(20, 33)) - (1 << 31)]
        )
    left, right = expression(rng, index, depth - 1), expression(rng, index, rng.randint(0, depth - 1))
    kind = rng.choice(["+", "-", "*", "min", "max", "abs", "//", "%", "where"])
    match kind:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * rng.choice([3, -2, 1 << 12])
        case "min":
            return te.minimum(left, right)
        case "max":
            return te.maximum(left, rng.choice([right, 0, -(1 << 31)]))
        case "abs":
            return te.abs(left)
        case "//":
            return left // rng.choice([3, 8, 1 << 20])
        case "%":
            return left % rng.choice([3, 8, (1 << 31) - 1])
    return te.where(left < right, left, right + 1)


def test_random_index_arithmetic():
    """Law: what vectors compute of indices is what the interpreter computes, as integers and as floats."""
    for seed in range(12):
        rng = random.Random(seed)
        results = []
        for _ in range(6):
            chosen = rng.getrandbits(32)
            results.append(te.compute((40,), lambda i, chosen=chosen: expression(random.Random(chosen), i, 3)))
            results.append(te.compute((40,), lambda i, chosen=chosen: te.cast(expression(random.Random(chosen), i, 3), "float64")))
        for found, expected in zip(te.build(results)(), te.evaluate(results), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=f"seed {seed}")


def test_only_what_fits_is_halved():
    b = Builder(Module())
    lanes = b.add(b.mul(ramp(16, 3), 5), Value("%n", "i64", low=-100, high=100))
    assert b.half(lanes).type == "i32"
    assert b.half(Value("%n", "i64", low=-100, high=1 << 31)) is None
    assert b.half(Value("%n", "i64")) is None
    assert b.half(literal(7, "i64")).text == "7"
    far = b.vector(ramp(16, 1 << 28), 16)
    assert b.half(far) is None  # 15 * 2**28 is more than 32 bits hold
    assert b.half(Value("%loaded", "i64", 16, low=0, high=9)) is None  # a vector made in 64 bits has no half


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("stride", [1, -1])
def test_lanes_against_a_literal_are_a_literal(name, stride):
    b = Builder(Module())
    mask = apply(b, name, dtypes.int64, [b.add(ramp(4, stride), 3), literal(4 if stride == 1 else 1, "i64")])
    lanes = [OPS[name].evaluate(np.int64(3 + stride * lane), np.int64(4 if stride == 1 else 1)) for lane in range(4)]
    assert b.lines == [] and mask.text == f"<{', '.join('i1 true' if holds else 'i1 false' for holds in lanes)}>"
