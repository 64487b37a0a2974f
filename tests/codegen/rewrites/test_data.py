"""Rewrites of where values are kept: at random one after the other, each case that was found broken, and what each refuses."""

from __future__ import annotations

import random

import pytest

from tensorexpr.codegen.nest import LoopNest, Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.rewrites.data.contract import contract
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.hoist import hoist
from tensorexpr.codegen.rewrites.data.inline import inline
from tensorexpr.codegen.rewrites.data.merge import merge, merge_kernels
from tensorexpr.codegen.rewrites.data.pipeline import pipeline
from tensorexpr.codegen.rewrites.data.rfactor import rfactor
from tensorexpr.codegen.rewrites.data.stage import stage
from tensorexpr.codegen.rewrites.loops import parallel, partition, split, vectorize
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Expr
from tests.codegen.rewrites import data_moves, moves
from tests.codegen.rewrites.law import Kept, kept_of, wandered
from tests.seeds import share_of

CHAIN = """
x: f32[23] = input()
a[i]: f32[21] = x[i] + x[i + 1] + x[i + 2]
b[i]: f32[19] = a[i] * a[i + 1] * a[i + 2]
return b
"""


@pytest.mark.parametrize("seed", share_of(range(120)))
def test_random_rewrites_of_data_keep_what_a_nest_computes(seed):
    kept = kept_of(seed)
    if kept is not None:
        wandered(kept, data_moves.ALL, random.Random(seed), 6)


@pytest.mark.parametrize("seed", share_of(range(120, 240)))
def test_random_rewrites_of_both_kinds(seed):
    kept = kept_of(seed)
    if kept is not None:
        wandered(kept, [*data_moves.ALL, *moves.ALL], random.Random(seed), 8)


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_chains_of_windows(seed):
    """Definitions each of which reads windows of the one before, clamped or not, at open and fixed sizes."""
    rng = random.Random(seed)
    lines, last, extent = (
        ["sizes(n)", "x: i32[n + 9] = input()"] if seed % 2 else ["x: i32[17] = input()"],
        "x",
        "n + 9" if seed % 2 else "17",
    )
    for at in range(3):
        terms = []
        for _ in range(rng.choice((1, 2, 3))):
            there = f"i + {rng.randrange(-3, 4)}"
            clamped = f"{last}[minimum(maximum({there}, 0), {extent} - 1)]"
            tested = f"where({there} >= 0 and {there} < {extent}, {last}[{there}], 0)"
            terms.append(clamped if rng.random() < 0.4 else tested)
        lines.append(f"a{at}[i]: i32[{extent}] = {' + '.join(terms)}")
        last = f"a{at}"
    kept = Kept.of_text("\n".join([*lines, f"return {last}"]), *([{"n": n} for n in (0, 1, 5)] if seed % 2 else []))
    words = (
        data_moves.fused_at,
        data_moves.merged,
        data_moves.contracted,
        data_moves.inlined,
        data_moves.staged,
        moves.split,
        moves.partition,
    )
    wandered(kept, list(words), rng, 8)


def value(nest: LoopNest, buffer: str) -> Expr:
    """What is stored to a buffer, by the first store."""
    return next(s.value for _, s in walk_nest(nest) if isinstance(s, Store) and s.buffer == buffer)


def test_overlapping_windows_are_computed_again_and_the_rest_has_its_own():
    kept = Kept.of_text(CHAIN)
    text = print_nest(kept.check(fuse_at(kept.check(split(kept.nest, "i_1", 8)), "a", "i_1_o")))
    assert "a: local(f32[10])" in text and "a: local(f32[5])" in text


def test_what_is_left_beside_blocks_shares_a_region():
    kept = Kept.of_text("""
x: f32[5, 11] = input()
e[i, j]: f32[5, 11] = exp(x[i, j])
y[i, j]: f32[5, 11] = e[i, j] * e[4 - i, j]
return y
""")
    nest = kept.check(partition(kept.check(split(kept.nest, "j_1", 4)), "i_1", at=[2]))
    text = print_nest(kept.check(fuse_at(nest, "e", "j_1_o")))
    assert "workspace" not in text


def test_what_is_left_around_a_loop_is_behind_it():
    """The declaration of the sum is around the loop and around what reads the buffer behind it."""
    kept = Kept.of_text("""
x: f32[2, 3] = input()
a[i, j]: f32[2, 3] = x[i, j] * 2.0
y[p]: f32[1] = sum(a[i, j] for i in range(2) for j in range(3)) + a[1, 1]
return y
""")
    assert print_nest(kept.check(fuse_at(kept.nest, "a", "i_1"))).count("a: local") == 2


def test_a_region_with_threads_and_lanes_moves_into_a_loop():
    kept = Kept.of_text(CHAIN)
    nest = kept.check(vectorize(kept.check(parallel(kept.check(split(kept.nest, "i", 8)), "i_o")), "i_i"))
    assert "parallel" not in print_nest(kept.check(fuse_at(nest, "a", "i_1")))


def test_what_others_need_is_computed_in_place_or_twice():
    kept = Kept.of_text("""
x: f32[6, 5] = input()
a[i, j]: f32[6, 5] = x[i, j] + 1.0
b[i]: f32[6] = sum(a[i, k] for k in range(5))
c[i]: f32[6] = sum(a[5 - i, k] for k in range(4))
return a, b, c
""")
    assert "local(f32[5])" not in print_nest(kept.check(fuse_at(kept.nest, "a", "i_1")))
    assert "a_1: local(f32[4])" in print_nest(kept.check(fuse_at(kept.nest, "a", "i_2")))


def test_splits_are_inlined_by_quotient_and_remainder():
    kept = Kept.of_text(CHAIN)
    text = print_nest(kept.check(inline(kept.check(split(kept.nest, "i", 4, "guard")), "a")))
    assert "workspace" not in text and len(parse_nest(text).kernels) == 1


def test_a_ring_of_what_later_iterations_need():
    kept = Kept.of_text("""
x: f32[9, 4] = input()
a[i, j]: f32[9, 4] = x[i, j] * 2.0
b[i, j]: f32[9, 4] = a[i, j] + where(i >= 2, a[i - 2, j], 0.0)
return b
""")
    nest = kept.check(merge(merge_kernels(kept.nest, 0), "i", "i_1"))
    assert "a: local(f32[3, 4])" in print_nest(kept.check(contract(nest, "a", "i")))


def test_sums_become_one_loop_and_what_stores_them_follows():
    kept = Kept.of_text("""
x: f32[6, 5] = input()
a: f32 = sum(x[i, j] for i in range(6) for j in range(5))
b: f32 = sum(x[i, j] * x[i, j] for i in range(6) for j in range(5))
return a, b
""")
    nest = kept.check(merge(kept.check(merge_kernels(kept.nest, 0)), "i", "i_1"), 4)
    text = print_nest(kept.check(merge(nest, "j", "j_1"), 4))
    assert text.count("for i") == text.count("for j") == 1 and text.index("for j") < text.index("a[()] =") < text.index("b[()] =")


def test_only_what_an_iteration_keeps_is_computed_ahead():
    kept = Kept.of_text("""
x: f32[8, 4] = input()
a[i, j]: f32[8, 4] = x[i, j] * 2.0
b[i, j]: f32[8, 4] = x[i, j] + 1.0
y[i]: f32[8] = sum(b[i, 3 - j] * a[i, j] for j in range(4))
return y
""")
    nest = kept.check(fuse_at(kept.nest, "b", "i_2"))
    kept.check(pipeline(nest, "i_2", ["a", "b"], 3))


def test_a_result_is_held_and_written_back():
    kept = Kept.of_text("""
x: f32[6, 5] = input()
y[i, j]: f32[6, 5] = x[i, j] + 1.0
return y
""")
    text = print_nest(kept.check(stage(kept.nest, "y", "i", memory="workspace")))
    assert "y[i, y_1] = y_of[y_1]" in text


def test_what_was_computed_is_copied():
    kept = Kept.of_text("""
x: f32[6, 5] = input()
a[i, j]: f32[6, 5] = x[i, j] + 1.0
y[i, j]: f32[6, 5] = a[5 - i, j] * a[i, 4 - j]
return y
""")
    assert "a_of: local(f32[6, 5])" in print_nest(kept.check(stage(kept.nest, "a", "i_1")))


def test_copies_in_one_workspace_have_one_rank():
    kept = Kept.of_text("""
x: f32[5, 1] = input()
y[i, j]: f32[5, 1] = x[i, j] + 1.0
return y
""")
    nest = kept.check(split(kept.nest, "i", 2))
    assert "x_of: workspace(f32[1, 1, 2])" in print_nest(kept.check(stage(nest, "x", "i_o", (0, 1), 2, "workspace")))


def test_a_choice_is_tested_for_the_branch_that_is_taken():
    kept = Kept.of_text(
        """
x: f32[5] = input()
y[i, j]: f32[6, 5] = exp(where(i >= 1, x[i - 1], 0.0)) + 1.0 * j
return y
""".replace("1.0 * j", "x[j]")
    )
    term = value(kept.nest, "y").args[0]
    assert "x_of" in print_nest(kept.check(hoist(kept.nest, "j", term)))


HEAD = """
main(n, x, y)
n: size
x: parameter(f32[12])
y: parameter(f32[12], written)
a: workspace(f32[12])
b: workspace(f32[n])
c: workspace(f32[12, n])

def kernel_0() -> y:
"""


def nest_of(body: str) -> LoopNest:
    """A nest with the buffers of `HEAD`."""
    first, *more = body.strip().split("\n\n")
    return parse_nest("\n\n".join([HEAD + "".join(f"    {line}\n" for line in first.splitlines()), *more]) + "\n")


TWO = """
for i in range(0, 12):
    a[i] = x[i]
for j in range(0, 12):
    y[j] = a[j]
"""
SUM = """
for i in range(0, 12):
    s: local(f32[()])
    s[()] = 0.0
    for k in range(0, 12):
        s[()] = s[()] + x[k]
    y[i] = s[()]
"""
CALLED = """
for i in range(0, 12):
    a[i] = x[i]
for j in tensorize(range(0, 1), move(a[0], y[0])):
    y[j] = a[j]

instruction(move(p, q), body="ret void")
"""
KERNELS = """
a[0] = 0.0
for k in range(0, 12):
    a[0] = a[0] + x[k]

def kernel_1() -> y:
    for k in range(0, 12):
        a[0] = a[0] + x[k]
    y[0] = a[0]
"""


@pytest.mark.parametrize(
    ("body", "rewrite", "message"),
    [
        (TWO, lambda n: inline(n, "c"), r"expected a buffer that main computes, got 'c'"),
        (SUM, lambda n: inline(n, "s"), r"expected the value of s as an expression; s is updated: its value is no expression"),
        (
            "for i in range(0, 12):\n    y[i] = where(i > 0, a[i - 1], 0.0)\n    a[i] = x[i]",
            lambda n: inline(n, "a"),
            r"expected the value of a as an expression; the store to a stores in an earlier iteration of a loop around both",
        ),
        (
            "for i in range(0, 12):\n    y[i] = a[i]\nfor i in range(0, 12):\n    a[i] = x[i]",
            lambda n: inline(n, "a"),
            r"nothing is stored before it",
        ),
        (
            "for i in range(0, 11):\n    a[i] = 0.0\n    a[i + 1] = 1.0\nfor j in range(0, 12):\n    y[j] = a[j]",
            lambda n: inline(n, "a"),
            r"it is stored twice, last by the first store: a\[",
        ),
        (
            "for i in range(0, 12):\n    a[i] = x[i]\n    y[i] = where(i > 0, a[i - 1], 0.0)",
            lambda n: inline(n, "a"),
            r"a is stored in another iteration of i",
        ),
        (
            "for i in range(0, 6):\n    for k in range(0, 6):\n        a[i + k] = x[0]\nfor j in range(0, 11):\n    y[j] = a[j]",
            lambda n: inline(n, "a"),
            r"the element does not say which iteration of i, k stores it",
        ),
        (
            "for i in range(0, 12):\n    t: local(f32[()])\n    t[()] = x[i]\n    a[i] = t[()]\nfor j in range(0, 12):\n    y[j] = a[j]",
            lambda n: inline(n, "a"),
            r"its value is kept in t, which is gone there",
        ),
        (
            "for i in range(0, 12):\n    a[i] = y[i]\nfor k in range(0, 12):\n    y[k] = 0.0\nfor j in range(0, 12):\n    y[j] = a[j]",
            lambda n: inline(n, "a"),
            r"what its value is made of is overwritten: ",
        ),
        (TWO, lambda n: fuse_at(n, "a", "i"), r"expected a loop that reads a, got i, which does not"),
        (
            "for i in range(0, 12):\n    y[i] = a[i]\nfor j in range(0, 12):\n    a[j] = x[j]",
            lambda n: fuse_at(n, "a", "i"),
            r"expected a to be computed before i, got it elsewhere",
        ),
        (
            "for i in range(0, 12):\n    a[i] = x[i]\n    y[i] = 0.0\nfor j in range(0, 12):\n    y[j] = a[j]",
            lambda n: fuse_at(n, "a", "j"),
            r"expected what computes a to stand by itself, got it in loops that compute something else, too",
        ),
        (
            "for i in range(0, 12):\n    a[i] = y[i]\nfor k in range(0, 12):\n    y[k] = 0.0\nfor j in range(0, 12):\n    y[j] = a[j]",
            lambda n: fuse_at(n, "a", "j"),
            r"expected what a is made of to stay the same up to j: ",
        ),
        (
            "for i in range(0, 12):\n    for q in range(0, n):\n        c[i, q] = 0.0\nfor j in range(0, 11):\n    for k in range(0, n):\n"
            "        y[j] = c[j, k]\nfor p in range(0, n):\n    y[0] = c[11, p]",
            lambda n: fuse_at(n, "c", "j"),
            r"expected constant windows of c in j, or that its iterations compute all of it for others",
        ),
        (
            "for i in range(0, 12):\n    for q in range(0, n):\n        c[i, q] = 0.0\nfor j in range(0, 11):\n    y[j] = c[j]",
            lambda n: fuse_at(n, "c", "j"),
            r"expected elements of c by an index for each axis, got one by its position",
        ),
        (
            "for i in range(0, 12):\n    for q in range(0, n):\n        c[i, q] = 0.0\nfor j in range(0, 11):\n    y[j] = c[j]",
            lambda n: inline(n, "c"),
            r"c is stored and loaded with other numbers of indices",
        ),
        (CALLED, lambda n: inline(n, "a"), r"expected loads of a by statements, got one by an instruction"),
        (KERNELS, lambda n: rfactor(n, "a", "k"), r"expected the copies of a loop that updates a in one kernel"),
        (
            "for i in range(0, n):\n    b[i] = 0.0\nfor j in parallel(range(0, 12)):\n    for k in range(0, n):\n        y[j] = b[k]",
            lambda n: fuse_at(n, "b", "j"),
            r"expected iterations of j that compute elements of their own: b\[",
        ),
        (
            "for q in range(0, 2):\n    t: local(f32[12])\n    t[q] = x[q]\n    y[q] = t[q]\nfor q in range(2, 12):\n"
            "    t: local(f32[12])\n    t[q] = x[q]\n    y[q] = t[q]",
            lambda n: fuse_at(n, "t", "q"),
            r"expected t in one place, got it in 2",
        ),
        (
            "for i in range(0, 12):\n    a[i] = x[i]\nfor j in range(0, 12):\n    for i in range(0, 2):\n        y[j] = a[j]",
            lambda n: merge(n, "i", "j"),
            r"expected copies of i beside each other, got one inside of another",
        ),
        (TWO, lambda n: merge(n, "j", "i"), r"expected two loops one behind the other in one block, got j and i"),
        (
            TWO.replace("j in range(0, 12)", "j in range(0, 11)"),
            lambda n: merge(n, "i", "j"),
            r"expected two loops of one length, got i and j",
        ),
        (
            TWO.replace("j in range(0, 12)", "j in unroll(range(0, 12))"),
            lambda n: merge(n, "i", "j"),
            r"expected two loops of one kind, got serial and unroll",
        ),
        (TWO.replace("a[j]", "a[11 - j]"), lambda n: merge(n, "i", "j"), r"expected iterations of j that need none of i to come: a\["),
        (
            TWO.replace("for j", "y[0] = a[3]\nfor j"),
            lambda n: merge(n, "i", "j"),
            r"expected nothing between i and j that depends on the first: a\[",
        ),
        (
            TWO.replace("range(0, 12)", "parallel(range(0, 11))").replace("a[j]", "a[j] + where(j > 0, a[j - 1], 0.0)"),
            lambda n: merge(n, "i", "j"),
            r"expected iterations of the merged loop that may run at once: a\[",
        ),
        (
            "for i in range(0, n):\n    b[i] = 0.0\nfor j in range(n, n + n):\n    y[0] = x[0]",
            lambda n: merge(n, "i", "j"),
            r"expected two loops that start a known distance apart, got i and j",
        ),
        (TWO, lambda n: merge_kernels(n, 0), r"expected the number of a kernel before another one, got 0 of 1"),
        (TWO, lambda n: hoist(n, "i", value(n, "y")), r"expected a term of the body of i, got a\[j\]"),
        (
            TWO,
            lambda n: hoist(n, "i", value(n, "a")),
            r"expected a term that can be computed in front of i, got x\[i\]: it depends on its index",
        ),
        (SUM, lambda n: hoist(n, "k", value(n, "y")), r"s is written in it"),
        (
            "for i in range(0, 12):\n    for k in range(0, n):\n        y[i] = exp(b[k])",
            lambda n: hoist(n, "i", value(n, "y")),
            r"no constant number of iterations of k is known",
        ),
        (
            "for i in range(0, 12):\n    y[i] = x[3 // n]",
            lambda n: hoist(n, "i", value(n, "y")),
            r"it divides by an integer that may be 0",
        ),
        (SUM, lambda n: rfactor(n, "y", "k"), r"expected a loop that updates y, got k"),
        (
            SUM.replace("0, 12):\n        s", "0, n):\n        s"),
            lambda n: rfactor(n, "s", "k"),
            r"expected a loop of a known number of iterations, got k",
        ),
        (
            SUM.replace("s[()] + x[k]", "s[()] * 0.5 + x[k]"),
            lambda n: rfactor(n, "s", "k"),
            r"expected nothing but updates of s by an operation without order",
        ),
        (
            SUM.replace("    y[i]", "        s[()] = s[()] * x[k]\n    y[i]"),
            lambda n: rfactor(n, "s", "k"),
            r"expected updates of s by one operation, got add and mul",
        ),
        (
            "for i in range(0, n):\n    b[i] = 0.0\nfor k in range(0, 12):\n    for i in range(0, n):\n        b[i] = b[i] + x[k]\n"
            "for j in range(0, n):\n    y[0] = b[j]",
            lambda n: rfactor(n, "b", "k"),
            r"expected a buffer of constant shape to keep in parts, got b",
        ),
        (TWO, lambda n: stage(n, "x", "i", memory="stack"), r"expected a memory among local, workspace, got 'stack'"),
        (TWO, lambda n: stage(n, "x", "j"), r"expected a buffer that j touches, got x"),
        (TWO, lambda n: stage(n, "x", "i", (1,)), r"expected the axes 0 to 0 of x in some order, got \[1\]"),
        (TWO, lambda n: stage(n, "x", "i", panel=0), r"expected a positive int as the panel of an axis, got 0"),
        (SUM, lambda n: stage(n, "s", "i"), r"expected a buffer that is declared around the loop, got s"),
        (
            "for i in range(0, 12):\n    for k in range(0, n):\n        y[i] = b[k]",
            lambda n: stage(n, "b", "i"),
            r"expected an iteration to touch a part of b of constant size",
        ),
        (
            "for i in parallel(range(0, 12)):\n    y[i] = x[i]",
            lambda n: stage(n, "x", "i", memory="workspace"),
            r"expected loops that run one iteration at a time around a copy in the workspace, got i",
        ),
        (
            "for i in range(0, 2):\n    for j in range(1, 6):\n        y[j] = y[j - 1] * 2.0",
            lambda n: stage(n, "y", "i"),
            r"expected an iteration to write what it reads of y before, to keep it in a copy",
        ),
        (
            "for i in range(0, 2):\n    for j in range(0, 6):\n        y[j * 2] = x[i]",
            lambda n: stage(n, "y", "i"),
            r"expected an iteration to write all of its part of y, to write it back",
        ),
        (
            "for i in range(0, 6):\n    a[i * 2] = x[i]\nfor j in range(0, 2):\n    for k in range(0, 3):\n        y[j] = a[k * 2 + j * 6]",
            lambda n: stage(n, "a", "j"),
            r"expected all of a part of a to be written before j, to copy it",
        ),
        (TWO, lambda n: contract(n, "y", "j"), r"expected a buffer that only main needs, got its output y"),
        (TWO, lambda n: contract(n, "a", "j"), r"expected everything to touch a in j"),
        (
            "for i in range(0, 2):\n    for k in range(0, n):\n        b[k] = 0.0\n    for q in range(0, n):\n        y[i] = b[q]",
            lambda n: contract(n, "b", "i"),
            r"expected an iteration to touch a part of b of constant size",
        ),
        (
            "for i in range(0, 12):\n    a[11 - i] = x[i]\n    y[i] = where(i > 0, a[12 - i], 0.0)",
            lambda n: contract(n, "a", "i"),
            r"expected an iteration of i to write what it reads of a, or a ring of what it touches: no window of constant length goes",
        ),
        (
            "for i in parallel(range(0, 12)):\n    a[i] = x[i]\n    y[i] = where(i > 0, a[i - 1], 0.0)",
            lambda n: contract(n, "a", "i"),
            r"its iterations run to parallel",
        ),
        (
            "for q in range(0, 2):\n    for i in range(0, 12):\n        a[i] = x[i]\n        y[i] = where(i > 0, a[i - 1], 0.0)",
            lambda n: contract(n, "a", "i"),
            r"copies of the loop, or loops around it, touch the same elements along the other axes",
        ),
    ],
)
def test_what_is_refused(body, rewrite, message):
    nest = nest_of(body)
    with pytest.raises(ScheduleError, match=message):
        rewrite(nest)


def test_names_that_are_given_are_not_those_of_loops_inside():
    """The second `i` would be `i_1`, which a loop inside is called already."""
    kept = Kept.of_text("""
x: i32[3, 5] = input()
a[i]: i32[3] = sum(x[i, k] for k in range(5))
b[i]: i32[3] = sum(x[i, i_1] for i_1 in range(5))
return a, b
""")
    kept.check(kept.nest)
