"""Sums of narrow numbers in wider or narrower types: integers keep every bit, 16-bit floats come no further from the exact sum."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_narrow_factors, with_narrow_sums
from tensorexpr.algebra.sums import bounds
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of


def suited(text: str) -> str:
    return print_program(with_narrow_sums(simplify(parse_program(text))))


INTEGERS = (
    "a: i8[40, K] = input()\nb: i8[K, 30] = input()\n"
    "c[i, j]: i64[40, 30] = sum(i64(i32(a[i, k]) * i32(b[k, j])) for k in range(K))\nreturn c\n"
)


@pytest.mark.parametrize("terms, narrow", [(2, True), (2**17 - 1, True), (2**17, False)])
def test_integers_are_added_in_32_bits_where_no_sum_leaves_them(terms: int, narrow: bool) -> None:
    # The least product is -128 * 127, the greatest 128 * 128 = 2**14: 2**17 of them are 2**31, one more than fits.
    found = suited(INTEGERS.replace("K", str(terms)))
    assert ("i64(sum(i32(a[i, k]) * i32(b[k, j])" in found) is narrow, found


FACTORS = {
    "both": ("(i32(a[i, k]) - 7) * (i32(b[j, k]) + 100)", True),
    "one": ("i32(b[j, k]) * (i32(a[i, k]) + 5)", True),
    "by channel": ("(i32(a[i, k]) - i32(y[i])) * (i32(b[j, k]) - i32(y[k]))", True),
    "none": ("i32(a[i, k]) * i32(b[j, k])", False),
    "too wide": ("(i32(a[i, k]) * 300) * i32(b[j, k])", False),
    "points of a window": ("(i32(a[i, k + i]) - 7) * i32(b[j, k])", False),
}


@pytest.mark.parametrize("name", FACTORS)
def test_computed_factors_of_products_are_definitions_of_16_bits(name: str) -> None:
    value, made = FACTORS[name]
    text = (
        "a: u8[20, 50] = input()\nb: i8[18, 30] = input()\ny: u8[30] = input()\n"
        f"c[i, j]: i32[20, 18] = 3 * sum({value} for k in range(30))\nreturn c\n"
    )
    program = simplify(parse_program(text))
    found = with_narrow_factors(program)
    assert (found is not program) is made and (not made or print_program(found).count("]: i16[") == 2)
    rng = np.random.default_rng(0)
    arrays = {}
    for t in program.inputs:
        shape = tuple(int(e.value) for e in t.type.shape)
        arrays[t.name] = rng.integers(int(t.type.dtype.least), int(t.type.dtype.greatest) + 1, shape).astype(t.type.dtype.numpy)
    (before,), (after,) = (tuple(evaluate_program(p, arrays).values()) for p in (program, found))
    np.testing.assert_array_equal(before, after)


def test_a_factor_of_two_sums_is_one_definition() -> None:
    sums = "sum((i32(a[i, k]) - 7) * i32(b[j, k]) for k in range(30))", "sum((i32(a[i, k]) - 7) * (i32(b[j, k]) - 1) for k in range(30))"
    text = f"a: u8[20, 30] = input()\nb: i8[18, 30] = input()\nc[i, j]: i32[20, 18] = {sums[0]} * {sums[1]}\nreturn c\n"
    assert print_program(with_narrow_factors(simplify(parse_program(text)))).count("]: i16[") == 3


def test_products_with_zero_points_are_exact() -> None:
    a, b = te.placeholder((37, 130), "uint8", name="a"), te.placeholder((50, 130), "int8", name="b")
    c = te.compute((37, 50), lambda i, j: te.sum(lambda k: (te.cast(a[i, k], "int32") - 7) * (te.cast(b[j, k], "int32") - 3), 130))
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 256, (37, 130)).astype(np.uint8), rng.integers(-128, 128, (50, 130)).astype(np.int8)
    expected = (one.astype(np.int64) - 7) @ (other.astype(np.int64) - 3).T
    np.testing.assert_array_equal(te.build(c, [a, b])(one, other), expected)


@pytest.mark.parametrize("value, expected", [
    ("i32(a[i]) * i32(a[i]) - i32(b[i])", (-127 * 128 - 255, 128 * 128)),
    ("where(c[i] > 0.0, i32(b[i]), -i32(a[i]))", (-127, 255)),
    ("i64(c[i] > 0.0) * 3", (0, 3)),
    ("i32(d[i]) + 1", None),
    ("a[i] * a[i]", None),  # wraps in 8 bits
])  # fmt: skip
def test_ranges_follow_from_types(value: str, expected: tuple[int, int] | None) -> None:
    inputs = "a: i8[9] = input()\nb: u8[9] = input()\nc: f32[9] = input()\nd: i32[9] = input()\n"
    dtype = {"i64(c": "i64", "a[i] ": "i8"}.get(value[:5], "i32")
    (definition,) = parse_program(f"{inputs}y[i]: {dtype}[9] = {value}\nreturn y\n").definitions
    assert isinstance(definition, Define) and bounds(definition.value) == expected


@pytest.mark.parametrize("block", range(3))
def test_values_are_kept(block: int) -> None:
    for seed in share_of(range(23000 + 100 * block, 23000 + 100 * block + 40)):
        program = simplify(random_program(seed))
        found = with_narrow_sums(program)
        if found is program:
            continue
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        before, after = evaluate_program(program, inputs, sizes), evaluate_program(found, inputs, sizes)
        for name, value in before.items():
            if value.dtype.kind in "iub":
                np.testing.assert_array_equal(after[name], value, err_msg=f"{seed}: {name}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_16_bits_are_added_as_they_are(dtype: str) -> None:
    a = te.placeholder((13, 300), dtype, name="a")
    b = te.placeholder((300, 17), dtype, name="b")
    c = te.compute((13, 17), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 300), name="c")
    f = te.build(c, [a, b])
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in (a, b)]
    exact = given[0].astype(np.float64) @ given[1].astype(np.float64)
    rounded = np.abs(exact.astype(c.dtype.numpy).astype(np.float64) - exact)  # what storing the result costs
    terms = np.abs(given[0].astype(np.float64)) @ np.abs(given[1].astype(np.float64))
    assert np.all(np.abs(f(*given).astype(np.float64) - exact) <= 2 * rounded + 300 * 2.0**-24 * terms)


@pytest.mark.parametrize("shape", [(5, 3, 7), (33, 65, 49), (64, 512, 96)])
@pytest.mark.parametrize("left, right", [("int8", "int8"), ("uint8", "int8"), ("int16", "int8")])
def test_integer_products_keep_every_bit(shape: tuple[int, int, int], left: str, right: str) -> None:
    n, k, m = shape
    a, b = te.placeholder((n, k), left, name="a"), te.placeholder((k, m), right, name="b")
    c = te.compute((n, m), lambda i, j: te.sum(lambda r: te.cast(a[i, r], "int32") * te.cast(b[r, j], "int32"), k), name="c")
    rng = np.random.default_rng(3)
    given = []
    for t in (a, b):
        info = np.iinfo(t.dtype.numpy)
        array = rng.integers(info.min, info.max, t.shape, t.dtype.numpy, endpoint=True)
        array[0], array[:, 0] = info.min, info.max
        given.append(array)
    found = te.build(c, [a, b])(*given)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, given[0].astype(np.int64) @ given[1].astype(np.int64))
