"""What is sent to elements that data chooses: owners, sorted lists, results of their own; lanes of an argmax."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.rewrites.data.rfactor import rfactor
from tensorexpr.codegen.rewrites.loops import parallel, reorder, split, vectorize
from tensorexpr.codegen.rewrites.sends import own, sort
from tensorexpr.errors import ScheduleError
from tests.codegen.llvm.nests import run
from tests.codegen.rewrites import data_moves, moves
from tests.codegen.rewrites.law import UNITS, Kept, wandered
from tests.codegen.rewrites.test_data import nest_of

ROWS = """
sizes(n, m)
x: f32[n, 3] = input()
k: i64[n] = input()
S: f32[m, 3] = scatter({(k[t], d): x[t, d] for t in range(n) for d in range(3) if t > 2}, combine="max")
return S
"""
SUMS = """
x: f32[40] = input()
k: i64[40] = input()
S: f32[9] = scatter({k[t]: x[t] for t in range(40)})
return S
"""
PAIRS = """
x: f32[6, 5] = input()
k: i64[6, 5] = input()
S: f32[4, 5] = scatter({(k[t, d], d): x[t, d] for t in range(6) for d in range(5)})
return S
"""


def below(kept: Kept, most: int) -> Kept:
    """The cases with indices that are in bounds."""
    for at, (arrays, sizes) in enumerate(kept.cases):
        kept.cases[at] = {n: np.abs(a) % max(1, sizes.get("m", most)) if a.dtype.kind == "i" else a for n, a in arrays.items()}, sizes
    return Kept(kept.program, kept.cases)


@pytest.mark.parametrize("word", (own, sort))
def test_owners_run_on_all_cores_and_every_bit_stays(word):
    kept = below(Kept.of_text(ROWS, *({"n": n, "m": m} for n, m in ((9, 5), (0, 3), (40, 9), (2, 0)))), 1)
    nest = kept.check(word(kept.nest, "S", "t", 4))
    assert not prove(nest).findings
    nest = kept.check(parallel(nest, "t_own"))
    assert not prove(nest).findings
    for (arrays, sizes), expected in zip(kept.cases, kept.expected, strict=True):
        assert expected is not None and run(nest, arrays, sizes)["S"].tobytes() == expected["S"].tobytes()


def test_an_index_out_of_bounds_is_found_by_whoever_owns_nothing_of_it():
    kept = Kept.of_text(SUMS)  # some indices are negative
    assert kept.expected == [None]
    kept.check(own(kept.nest, "S", "t", 4))
    kept.check(sort(kept.nest, "S", "t", 4))


def test_places_known_in_inner_loops():
    kept = below(Kept.of_text(PAIRS), 4)
    nest = kept.check(own(kept.nest, "S", "t", 2))
    kept.check(parallel(nest, "t_own"))
    with pytest.raises(ScheduleError, match="expected one place of S, known at once, for an iteration of t, got others"):
        sort(kept.nest, "S", "t", 2)


def test_results_of_their_own_are_added_up_in_order():
    kept = below(Kept.of_text(SUMS, exact=False), 9)
    nest = kept.check(rfactor(split(kept.nest, "t", 8), "S", "t_o", None, "workspace"), UNITS)
    kept.check(parallel(nest, "t_o"), UNITS)


@pytest.mark.parametrize("text", (ROWS, SUMS, PAIRS), ids=("rows", "sums", "pairs"))
@pytest.mark.parametrize("block", range(3))
def test_random_rewrites_of_what_is_sent(text, block):
    sizes = [{"n": n, "m": m} for n, m in ((9, 5), (0, 3), (20, 7))] if text is ROWS else [{}]
    kept = below(Kept.of_text(text, *sizes), 4)
    words = [*[data_moves.owned] * 3, data_moves.rfactored, moves.of_a_loop("parallel"), moves.split, *moves.ALL]
    for seed in range(block * 8, block * 8 + 8):
        wandered(kept, words, random.Random(seed), 6)


WINNERS = """
x: {dtype}[7, 21] = input()
y[i]: i64[7] = {name}(x[i, k] for k in range(21))
z[i]: i64[7] = {name}(x[i, k * 3 + j] for k in range(7) for j in range(3) if i != k)
return y, z
"""


def winners(name: str, dtype: str) -> Kept:
    kept = Kept.of_text(WINNERS.format(name=name, dtype=dtype))
    ((arrays, sizes),) = kept.cases
    x = np.array(arrays["x"])
    x[1] = 2
    if dtype == "f32":
        x[2, 5], x[2, 9], x[3], x[4] = np.nan, np.nan, np.inf, -np.inf
        x[5, 20] = np.nan
    return Kept(kept.program, [({"x": x}, sizes)])


@pytest.mark.parametrize("dtype", ("f32", "i16"))
@pytest.mark.parametrize("name", ("argmax", "argmin"))
def test_lanes_of_an_argmax(name, dtype):
    kept = winners(name, dtype)
    nest = kept.check(rfactor(kept.check(split(kept.nest, "k", 8)), name, "k_i"))
    nest = kept.check(vectorize(nest, "k_i"))
    nest = kept.check(vectorize(kept.check(rfactor(nest, f"{name}_1", "j")), "j"))
    arrays, sizes = kept.cases[0]
    assert kept.expected[0] is not None
    for output, value in kept.expected[0].items():
        np.testing.assert_array_equal(run(nest, arrays, sizes)[output], value)


@pytest.mark.parametrize("seed", range(12))
def test_random_rewrites_of_an_argmax(seed):
    kept = winners(("argmax", "argmin")[seed % 2], ("f32", "i16")[seed // 2 % 2])
    words = [*[data_moves.rfactored] * 4, *moves.KINDS, moves.split, moves.split, *moves.ALL]
    wandered(kept, words, random.Random(seed), 8)


def test_positions_have_to_grow():
    kept = winners("argmax", "f32")
    nest = kept.check(reorder(kept.check(split(kept.nest, "i", 2)), "k", "i_i"))
    kept.check(rfactor(nest, "argmax", "k"))
    with pytest.raises(ScheduleError, match="expected an argmax or argmin that is declared around i"):
        rfactor(kept.nest, "argmax", "i")
    read = str(kept.nest).replace("value[()] = x[i, k]\n", "value[()] = x[i, k] + best[()]\n")
    with pytest.raises(ScheduleError, match="expected nothing but updates of an argmax or argmin to touch best"):
        rfactor(parse_nest(read), "argmax", "k")
    text = str(kept.nest).replace("argmax[()] = k\n", "argmax[()] = 20 - k\n")
    with pytest.raises(ScheduleError, match="expected one update of argmax, by positions that grow with the loops"):
        rfactor(parse_nest(text), "argmax", "k")


COUNTED = """
main(n, x, p, y)
n: size
x: parameter(f32[n])
p: parameter(i64[1])
y: parameter(f32[n], written)

def kernel_0() -> y:
    for t in range(0, p[0]):
        if t < n:
            y[t] = x[t]
"""


def test_lists_have_a_known_length():
    with pytest.raises(ScheduleError, match="expected as many iterations of t as arithmetic of sizes says"):
        sort(parse_nest(COUNTED), "y", "t", 4)


SENT = "for t in range(0, 12):\n    a[t // 2] = x[t]\n"


@pytest.mark.parametrize(
    ("body", "rewrite", "message"),
    [
        (SENT, lambda n: own(n, "a", "t", 0), "expected a positive int as the width of a block, got 0"),
        (SENT, lambda n: own(n, "x", "t", 4), "expected a loop that stores to a buffer of parameters or workspace, got t and x"),
        (SENT, lambda n: own(n, "a", "t", 4, 1), "expected an axis of a below 1, got 1"),
        (SENT + "    y[t] = x[t]\n", lambda n: own(n, "a", "t", 4), "expected t to store to a alone, got y"),
        (SENT + "    a[t] = a[0]\n", lambda n: own(n, "a", "t", 4), "expected t to read of a what it stores to in the same statement"),
        (
            "for t in range(0, 6):\n    for k in vectorize(range(0, 2)):\n        a[t*2 + k] = x[t]\n",
            lambda n: own(n, "a", "t", 4),
            "expected serial loops at and inside of t, got another",
        ),
        (
            "for i in range(0, 2):\n    for t in range(0, 6):\n        a[t*2 + i] = x[t]\n",
            lambda n: sort(n, "a", "t", 4),
            "expected one loop t that sends to a, with no loop around it",
        ),
        (
            "for t in range(0, 12):\n    a[t] = a[t] + x[t]\n",
            lambda n: rfactor(n, "a", "t", None, "stack"),
            "expected parts in local or workspace memory, got 'stack'",
        ),
    ],
)
def test_refusals(body, rewrite, message):
    with pytest.raises(ScheduleError, match=message):
        rewrite(nest_of(body))
