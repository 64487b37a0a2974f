"""Addresses that differ in constants share what they begin with, long vectors are loaded in order, and loops around many others are
opaque to LLVM: texts, and values."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.ir import Index, Size, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

MACHINE = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f", 512)
k, i, j = Index("k"), Index("i"), Index("j")


def copies(count: int) -> LoopNest:
    """Y[i, k, j] = X[k * 2 + 5 - i, j * 3 + 2 * (i + 1)], rows copied out"""
    x, y = buffer("X", dtypes.float32, 30, 40), buffer("Y", dtypes.float32, count, 8, 5)
    row = apply("sub", apply("add", apply("mul", k, const(2)), const(5)), i)
    column = apply("add", apply("mul", j, const(3)), apply("mul", apply("add", i, const(1)), const(2)))
    body = loop("i", count, write(y, [i, k, j], read(x, row, column)), kind="unroll")
    return nest([x, y], [y], (loop("k", 8, loop("j", 5, body)),))


@pytest.mark.parametrize("count", [2, 6])
def test_copies_of_an_access_have_one_variable_part(count: int) -> None:
    text = emit(copies(count), MACHINE)
    assert text.count("mul i64") == 3  # k * 80 and j * 3 of X, k * 5 of Y
    assert len(re.findall(r"getelementptr float, ptr %X\.\d+, i64 %", text)) == 1
    x = np.arange(1200, dtype=np.float32).reshape(30, 40)
    found = run(copies(count), {"X": x})["Y"]
    n, a, b = np.ogrid[:count, :8, :5]
    np.testing.assert_array_equal(found, x[a * 2 + 5 - n, b * 3 + 2 * (n + 1)])


def deep(depth: int) -> LoopNest:
    """Y[i0, ..., i7] = X[i7, ..., i0] by serial loops"""
    names = [f"i{n}" for n in range(depth)]
    x, y = (buffer(name, dtypes.int64, *[2] * depth) for name in "XY")
    indices = [Index(name) for name in names]
    body = write(y, indices, read(x, *reversed(indices)))
    for name in reversed(names):
        body = loop(name, 2, body)
    return nest([x, y], [y], (body,))


@pytest.mark.parametrize(("depth", "hidden"), [(2, 0), (4, 0), (5, 1), (7, 3)])
def test_loops_around_four_others_are_opaque(depth: int, hidden: int) -> None:
    assert emit(deep(depth), MACHINE).count('asm ""') == hidden
    x = np.random.default_rng(0).integers(0, 99, [2] * depth)
    np.testing.assert_array_equal(run(deep(depth), {"X": x})["Y"], x.transpose())


@pytest.mark.parametrize(("extents", "hidden"), [((9, 31), 0), ((9, 32), 1), ((9, 4, 8), 1), ((9, 2, 40), 2), ((40, 9), 0)])
def test_loops_around_long_ones_are_opaque(extents: tuple[int, ...], hidden: int) -> None:
    names = [f"i{n}" for n in range(len(extents))]
    indices = [Index(name) for name in names]
    x, y = buffer("X", dtypes.int64, *reversed(extents)), buffer("Y", dtypes.int64, *extents)
    body = write(y, indices, read(x, *reversed(indices)))
    for name, extent in zip(reversed(names), reversed(extents), strict=True):
        body = loop(name, extent, body)
    made = nest([x, y], [y], (body,))
    assert emit(made, MACHINE).count('asm ""') == hidden
    data = np.random.default_rng(0).integers(0, 99, extents[::-1])
    np.testing.assert_array_equal(run(made, {"X": data})["Y"], data.transpose())


@pytest.mark.parametrize("size", [0, 1, 7, 33, 300])
def test_loops_around_open_ones_are_opaque(size: int) -> None:
    n = Size("n")
    x, y = buffer("X", dtypes.int64, n, 5), buffer("Y", dtypes.int64, 5, n)
    made = nest([x, y], [y], (loop("i", 5, loop("j", n, write(y, [i, j], read(x, j, i)))),), sizes=["n"])
    assert emit(made, MACHINE).count('asm ""') == 1
    data = np.random.default_rng(0).integers(0, 99, (size, 5))
    np.testing.assert_array_equal(run(made, {"X": data}, {"n": size})["Y"], data.transpose())


def test_constants_beside_symbolic_strides_and_gathers_keep_their_place() -> None:
    n = Size("n")
    ids, x, y = buffer("ids", dtypes.int64, 4), buffer("X", dtypes.float32, 9, n), buffer("Y", dtypes.float32, 4, 3)
    value = read(x, apply("add", read(ids, i), const(2)), apply("add", j, const(1)))
    made = nest([ids, x, y], [y], (loop("j", 3, loop("i", 4, write(y, [i, j], value), kind="vectorize"), kind="unroll"),), sizes=["n"])
    data, rows = np.arange(9 * 7, dtype=np.float32).reshape(9, 7), np.array([3, 0, 6, 3])
    np.testing.assert_array_equal(run(made, {"ids": rows, "X": data}, {"n": 7})["Y"], data[rows + 2, 1:4])


AROUND = """main(Y, A)
Y: parameter(f32[8192], written)
A: parameter(f32[{size}])

def kernel_0() -> Y:
    for o in range(0, {count}):
        for i in vectorize(range(0, 16)):
            Y[o * 16 + i] = where({index} >= 0 and {index} < {size}, A[{index}], -1.0)
"""


@pytest.mark.parametrize("size", [3, 15, 16, 17, 1000])
@pytest.mark.parametrize("index", ["o * 16 + i", "o * 16 + i - 3001", "4007 - o * 16 - i", "o * 16 + i - 8191", "o * 16 + i - 5"])
def test_lanes_that_are_off_are_not_loaded_from_far_away(index: str, size: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(size).astype(np.float32)
    for count in (512, 8):  # pages away from the array, and never a page
        made = parse_nest(AROUND.format(index=index, size=size, count=count))
        places = eval(index, {}, {"o": np.arange(count)[:, None], "i": np.arange(16)}).ravel()
        inside = (places >= 0) & (places < size)
        far = bool((places < -1024).any() or (places > size + 1024).any())
        assert not inside.any() or ("icmp ult i64" in emit(made, MACHINE)) == far
        for before in (False, True):
            found = run(made, {"A": values}, before=before)["Y"][: count * 16]
            np.testing.assert_array_equal(found, np.where(inside, values[np.clip(places, 0, size - 1)], -1.0))


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32], ids=str)
@pytest.mark.parametrize("lanes", [4, 16, 24, 48, 64, 128])
def test_long_vectors_are_loaded_in_order(bits: int, dtype: dtypes.DType, lanes: int) -> None:
    """A register at a time, from any place on, backwards as well."""
    x, y = buffer("X", dtype, 3 * lanes + 1), buffer("Y", dtype, 2, lanes)
    ahead = apply("add", apply("add", apply("mul", k, const(lanes)), j), const(1))
    back = apply("sub", apply("add", apply("mul", k, const(lanes)), const(lanes)), j)
    both = apply("sub", read(x, ahead), read(x, back))
    made = nest([x, y], [y], (loop("k", 2, loop("j", lanes, write(y, [k, j], both), kind="vectorize")),))
    text = emit(made, Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f", bits))
    assert all(int(n) * dtype.bits <= bits for n in re.findall(r"load <(\d+) x", text))
    given = np.arange(3 * lanes + 1).astype(dtype.numpy) ** 2
    n, at = np.ogrid[:2, :lanes]
    np.testing.assert_array_equal(run(made, {"X": given})["Y"], given[n * lanes + at + 1] - given[n * lanes + lanes - at])


def digits(places: list[str]) -> LoopNest:
    """Y[k, i] = X[places of q = K[i]]"""
    x, y, held = buffer("X", dtypes.float32, 5, 2, 3, 4), buffer("Y", dtypes.float32, 5, 40), buffer("K", dtypes.int64, 40)
    q = read(held, i)
    of = {
        "k": k, "q//24": apply("floordiv", q, const(24)), "q//12": apply("floordiv", q, const(12)), "q//4": apply("floordiv", q, const(4)),
        "q%4": apply("mod", q, const(4)),
    }  # fmt: skip
    of |= {f"{e} % {n}": apply("mod", of[e], const(n)) for e in ("q//4", "q//12") for n in (2, 3)}
    at = [of[place] for place in places]
    return nest([x, held, y], [y], (loop("k", 5, loop("i", 40, write(y, [k, i], read(x, *at)), kind="vectorize")),))


@pytest.mark.parametrize(
    ("places", "divided"),
    [
        (["q//24", "q//12 % 2", "q//4 % 3", "q%4"], False),
        (["k", "q//12", "q//4 % 3", "q%4"], False),
        (["k", "q//12 % 2", "q//4 % 3", "q%4"], True),  # the greatest digit is no quotient
        (["k", "q//12", "q//4 % 2", "q%4"], True),  # an axis has more places
    ],
)
def test_digits_of_a_position_are_the_position(places: list[str], divided: bool) -> None:
    program = digits(places)
    limit = 120 if places[0] == "q//24" else 24
    keys = np.random.default_rng(0).integers(0, limit, 40)
    x = np.arange(120, dtype=np.float32).reshape(5, 2, 3, 4)
    assert bool(re.search(" [su](div|rem) ", emit(program, MACHINE))) == divided
    found = run(program, {"X": x, "K": keys})["Y"]
    here = {"k": np.arange(5)[:, None], "q%4": keys % 4} | {f"q//{n}": keys // n for n in (24, 12, 4)}
    here |= {f"q//{n} % {m}": keys // n % m for n in (12, 4) for m in (2, 3)}
    np.testing.assert_array_equal(found, np.broadcast_to(x[tuple(here[place] for place in places)], (5, 40)))


@pytest.mark.parametrize("wrong", [-1, 24, -(1 << 63), (1 << 63) - 1])
def test_positions_beyond_a_tensor_are_told_by_axis(wrong: int) -> None:
    place = te.placeholder((20,), "int64", name="place")
    x = te.placeholder((2, 3, 4), name="x")
    f = te.build(te.compute((20,), lambda n: x[place[n] // 12, place[n] // 4 % 3, place[n] % 4], name="y"), [x, place])
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    where = np.arange(20)
    np.testing.assert_array_equal(f(values, where), np.arange(20))
    where[17] = wrong
    with pytest.raises(te.errors.OutOfBoundsError, match=rf"index of x from 0 to 1, got {wrong // 12}\b"):
        f(values, where)
