"""One splitter: what tails, borders, tiles, triangles, unswitching and residue classes leave of the tests inside of loops."""

from __future__ import annotations

import textwrap

import pytest

from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_kernel, print_nest
from tensorexpr.codegen.rewrites.cuts import moduli_of
from tensorexpr.codegen.rewrites.loops import partition, reorder, simplify, split, vectorize
from tensorexpr.errors import ScheduleError
from tests.codegen.rewrites.law import Kept

HEAD = """\
main(n, x, w, y)
n: size
x: parameter(f32[64, 80])
w: parameter(f32[64, 64])
y: parameter(f32[64], written)

def kernel_0() -> y:
"""


def nest_of(body: str) -> LoopNest:
    """A nest of one kernel."""
    return parse_nest(HEAD + textwrap.indent(textwrap.dedent(body), "    "))


def body_of(nest: LoopNest) -> str:
    """The statements of the first kernel, as text."""
    return textwrap.dedent("\n".join(print_kernel(nest.kernels[0])[1:])) + "\n"


CASES = {
    "border of a stencil": (
        "p",
        """\
        for p in range(0, 64):
            y[p] = where(p >= 1 and p < 63, x[0, maximum(p - 1, 0)], 0.0)
        """,
        """\
        y[0] = 0.0
        for p in range(1, 63):
            y[p] = x[0, p - 1]
        y[63] = 0.0
        """,
    ),
    "reflected border": (
        "p",
        """\
        for p in range(0, 64):
            y[p] = x[0, abs(p - 10)]
        """,
        """\
        for p in range(0, 10):
            y[p] = x[0, 10 - p]
        for p in range(10, 64):
            y[p] = x[0, p - 10]
        """,
    ),
    "triangle under a tile": (
        "d",
        """\
        for i_o in range(0, 8):
            for d in range(0, i_o * 8 + 8):
                for i_i in unroll(range(0, 8)):
                    if d < i_i + i_o * 8 + 1:
                        y[i_i + i_o * 8] = y[i_i + i_o * 8] + w[i_i + i_o * 8, d]
        """,
        """\
        for i_o in range(0, 8):
            for d in range(0, i_o * 8 + 1):
                for i_i in unroll(range(0, 8)):
                    y[i_i + i_o * 8] = y[i_i + i_o * 8] + w[i_i + i_o * 8, d]
            for d in range(i_o * 8 + 1, i_o * 8 + 8):
                for i_i in unroll(range(0, 8)):
                    if d < i_i + i_o * 8 + 1:
                        y[i_i + i_o * 8] = y[i_i + i_o * 8] + w[i_i + i_o * 8, d]
        """,
    ),
    "a test of what is around": (
        "c",
        """\
        for z in range(0, 57):
            for c in range(0, 16):
                y[z] = y[z] + where(z >= 1 and z < n, x[z - 1, c], 0.0) * w[0, c]
        """,
        """\
        for z in range(0, 57):
            if z - 1 >= 0 and n - z - 1 >= 0:
                for c in range(0, 16):
                    y[z] = y[z] + x[z - 1, c] * w[0, c]
            else:
                for c in range(0, 16):
                    y[z] = y[z] + 0.0 * w[0, c]
        """,
    ),
    "tiles at a border": (
        "z_o",
        """\
        for z_o in range(0, 4):
            for s in range(0, 3):
                for z_i in unroll(range(0, 14)):
                    if z_o * 14 + z_i + s - 1 >= 0 and z_o * 14 + z_i + s - 1 < 56:
                        y[z_i] = y[z_i] + x[s, z_o * 14 + z_i + s - 1]
        """,
        """\
        for s in range(0, 3):
            for z_i in unroll(range(0, 14)):
                if s + z_i - 1 >= 0:
                    y[z_i] = y[z_i] + x[s, s + z_i - 1]
        for z_o in range(1, 3):
            for s in range(0, 3):
                for z_i in unroll(range(0, 14)):
                    y[z_i] = y[z_i] + x[s, z_o * 14 + z_i + s - 1]
        for s in range(0, 3):
            for z_i in unroll(range(0, 14)):
                if s + z_i + 41 < 56:
                    y[z_i] = y[z_i] + x[s, s + z_i + 41]
        """,
    ),
    "one loop over cores": (
        "p",
        """\
        for p in parallel(range(0, 64)):
            y[p] = x[minimum(p, 50), 0]
        """,
        """\
        for p in parallel(range(0, 64)):
            if p < 51:
                y[p] = x[p, 0]
            else:
                y[p] = x[50, 0]
        """,
    ),
    "lanes whose number is not known": (
        "l",
        """\
        for p in range(0, 4):
            for l in vectorize(range(0, 16)):
                y[l] = x[0, minimum(l, p)]
        """,
        """\
        for p in range(0, 4):
            for l in range(0, p + 1):
                y[l] = x[0, l]
            for l in range(p + 1, 16):
                y[l] = x[0, p]
        """,
    ),
    "a loop shorter than where it is cut": (
        "p",
        """\
        for p in range(0, n):
            y[p] = where(p == 5, 1.0, 2.0)
        """,
        """\
        for p in range(0, minimum(5, n)):
            y[p] = 2.0
        for p in range(minimum(5, n), minimum(6, n)):
            y[p] = 1.0
        for p in range(minimum(6, n), n):
            y[p] = 2.0
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_tests_are_decided(case):
    loop, before, after = CASES[case]
    assert body_of(simplify(partition(nest_of(before), loop))) == textwrap.dedent(after)


def test_a_triangle_turned_around():
    nest = nest_of("""\
        for i in range(0, 64):
            for j in range(0, i):
                w[i, j] = x[i, j]
        """)
    assert body_of(simplify(partition(reorder(nest, "j", "i"), "i"))) == textwrap.dedent("""\
        for j in range(0, 63):
            for i in range(j + 1, 64):
                w[i, j] = x[i, j]
        """)


def test_points_and_conditions_and_classes_are_given():
    nest = nest_of("""\
        for p in range(0, 64):
            y[p] = where(p % 3 == 0, x[p // 3, 0], where(p < n, 1.0, 2.0))
        """)
    assert body_of(partition(nest, "p", residues=3)) == textwrap.dedent("""\
        for p in range(0, 22):
            y[p * 3] = x[p, 0]
        for p in range(0, 21):
            y[p * 3 + 1] = where(p * 3 + 1 < n, 1.0, 2.0)
        for p in range(0, 21):
            y[p * 3 + 2] = where(p * 3 + 2 < n, 1.0, 2.0)
        """)
    assert "range(3, 70)" not in body_of(partition(nest, "p", at=[3, 70, -2])) and "range(0, 3)" in body_of(partition(nest, "p", at=[3]))
    (loop,) = nest.kernels[0].body
    test = loop.body[0].value.args[2].args[0]  # type: ignore[attr-defined]
    assert "range(0, minimum(n, 64))" in body_of(partition(nest, "p", condition=test))


def test_what_residue_classes_are_worth():
    nest = nest_of("""\
        for p in range(0, 60):
            y[p] = x[p // 3, (2 * p + 1) // 8] + x[p // 2 // 3, (p + n) % 5]
        """)
    (loop,) = nest.kernels[0].body
    assert moduli_of(loop) == (2, 3, 4, 5, 6)
    assert body_of(partition(nest, "p", residues="found")).count("y[") == 60 and partition(nest, "p", residues="found", most=50) == nest


def test_neighbors_are_stored_side_by_side():
    nest = nest_of("""\
        for p in range(0, 60):
            y[p] = where(p % 3 == 0, x[p // 3, 0], x[p // 3, 1])
        """)
    assert body_of(simplify(vectorize(partition(split(nest, "p", 3), "p_i", at=[1, 2]), "p_o"))) == textwrap.dedent("""\
        for p_o in vectorize(range(0, 20)):
            y[p_o * 3] = x[p_o, 0]
            y[p_o * 3 + 1] = x[p_o, 1]
            y[p_o * 3 + 2] = x[p_o, 1]
        """)


def test_pieces_stay_few():
    tests = " + ".join(f"where(p < {k}, 1.0, 2.0)" for k in range(1, 9))
    nest = nest_of(f"for p in range(0, 64):\n    y[p] = {tests}\n")
    assert body_of(partition(nest, "p")).count("y[") == 9
    assert body_of(partition(nest, "p", most=4)).count("y[") == 2  # up to the first, and from there on
    assert partition(nest, "p", most=1) == nest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at": [1], "residues": 2}, "expected one of at, condition and residues, got at and residues"),
        ({"residues": 0}, 'expected a positive int or "found" as residues, got 0'),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ScheduleError) as raised:
        partition(nest_of("for p in range(0, 64):\n    y[p] = 0.0\n"), "p", **arguments)
    assert message in str(raised.value)


def test_classes_change_the_order():
    nest = nest_of("for p in range(1, 64):\n    y[p] = y[p - 1] + x[p, 0]\n")
    with pytest.raises(ScheduleError) as raised:
        partition(nest, "p", residues=2)
    assert "expected iterations of p that may run by residue classes in any order: y[p] and y[p - 1] meet" in str(raised.value)


@pytest.mark.parametrize("tail", ["peel", "shift", "guard"])
def test_every_tail_at_every_length(tail):
    kept = Kept.of_text(
        """
        sizes(n)
        X: f32[n] = input()
        Y[i]: f32[n] = where(i >= 2 and i < n - 2, X[maximum(i - 2, 0)] + X[minimum(i + 2, n - 1)], 0.0)
        return Y
        """.replace("\n        ", "\n"),
        *({"n": n} for n in (0, 1, 3, 4, 5, 8, 11)),
    )
    nest = kept.check(split(kept.nest, "i", 4, tail))
    loop = "i_o" if tail != "shift" else "i_i"
    kept.check(simplify(kept.check(partition(nest, loop))))


OPEN_ROWS = """
sizes(n, m)
X: f32[n, m] = input()
Y[i, j]: f32[n, m] = sum({read} for s in range(3))
return Y
"""


@pytest.mark.parametrize(
    "read",
    ["where(j + s >= 1 and j + s <= m, X[i, maximum(minimum(j + s - 1, m - 1), 0)], 0.0)", "X[i, maximum(minimum(j + s - 1, m - 1), 0)]"],
)
def test_shifted_blocks_of_open_rows_are_cut_at_borders(read):
    kept = Kept.of_text(OPEN_ROWS.format(read=read), *({"n": 2, "m": m} for m in (0, 1, 4, 5, 15, 16, 17, 18, 31, 32, 33, 35, 70)))
    nest = kept.check(reorder(kept.check(split(kept.nest, "j", 32, "shift")), "s", "j_i"))
    nest = kept.check(partition(nest, "j_o"))
    text = print_nest(kept.check(vectorize(nest, "j_i")))
    assert "range(0, 32)" in text and "range(0, 16)" in text  # blocks for rows that are shorter
    assert "if True" not in text and "if False" not in text
    assert "X[i, j_i + j_o * 32 + s - 1]" in text  # the middle tests nothing
