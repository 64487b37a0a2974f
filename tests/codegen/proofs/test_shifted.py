"""Blocks that are shifted inwards at an open size: both that meet write one value, whatever conditions stand around whole blocks."""

import numpy as np
import pytest

from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest_proofs import prove
from tests.codegen.proofs.faults import trace

BLOCK = """
main(n, X, Y)
n: size
X: parameter(f32[n + 8])
Y: parameter(f32[n], written)

def kernel_0() -> Y:
    for b in parallel(range(0, where(n >= 8, (n + 7) // 8, 0))):
        s: local(f32[8])
{body}
        for v in range(0, 8):
            Y[minimum(b * 8, n - 8) + v] = {value}
"""
SOME = """
        if minimum(b * 8, n - 8) < {below}:
            for v in range(0, 8):
                s[v] = X[minimum(b * 8, n - 8) + v + {start}]
                if minimum(b * 8, n - 8) + v < 3:
                    s[v] = s[v] + 1.0
"""
EITHER = """
        if minimum(b * 8, n - 8) >= {least}:
            for v in range(0, 8):
                s[v] = X[minimum(b * 8, n - 8) + v - 1]{more}
        else:
            for v in range(0, 8):
                s[v] = where(minimum(b * 8, n - 8) + v >= 1, X[minimum(b * 8, n - 8) + v - 1], 0.5)
"""
READ_BELOW = "where(minimum(b * 8, n - 8) + v < 3, s[v], 2.0)"
EARLIER = """
        for k in range(0, 3):
            for v in range(0, 8):
                s[v] = where(minimum(b * 8, n - 8) + v < 3, s[v], 2.0)
            if minimum(b * 8, n - 8) < 3 and k < 2:
                for v in range(0, 8):
                    s[v] = 1.0
"""

BY_ROUND = """
        for k in range(0, 3):
            if minimum(b * 8, n - 8) < 3 * k:
                for v in range(0, 8):
                    if k == 1:
                        s[v] = X[minimum(b * 8, n - 8) + v]
            for v in range(0, 8):
                if minimum(b * 8, n - 8) + v < 3 * k:
                    Y[minimum(b * 8, n - 8) + v] = s[v]
"""


def nest(body, value="s[v]"):
    return parse_nest(BLOCK.format(body=body.strip("\n"), value=value))


def races(made):
    return [str(finding) for finding in prove(made).findings if finding.kind == "race"]


@pytest.mark.parametrize(
    "made",
    [
        nest(SOME.format(below=3, start=0), READ_BELOW),
        nest(EITHER.format(least=1, more="")),
        nest(EITHER.format(least=5, more="")),
    ],
    ids=["some", "either", "either further in"],
)
def test_conditions_of_whole_blocks_do_no_harm(made):
    assert races(made) == []
    for n in (0, 5, 8, 9, 12, 15, 16):
        assert trace(made, {"X": np.arange(n + 8, dtype=np.float32)}, {"n": n}) in (None, "nothing has written Y[0]")


@pytest.mark.parametrize(
    "made",
    [
        nest(SOME.format(below=2, start=0), READ_BELOW),
        nest(SOME.format(below=3, start=0), READ_BELOW.replace("< 3", "< 4")),
        nest(SOME.format(below=3, start="b"), READ_BELOW),
        nest(EITHER.format(least=0, more="")),
        nest(EITHER.format(least=1, more=" + 1.0")),
        nest(EARLIER),
        parse_nest(BLOCK[: BLOCK.index("{body}")].format() + BY_ROUND.strip("\n") + "\n"),
    ],
    ids=[
        "too few",
        "read where it was not written",
        "by the block",
        "the first of all",
        "another value",
        "an iteration before",
        "left by another round",
    ],
)
def test_but_where_they_decide_what_is_written(made):
    assert races(made)


def test_a_quotient_and_a_remainder_are_one_index():
    text = """
main(n, m, Y)
n: size
m: size
Y: parameter(f32[n, m], written)

def kernel_0() -> Y:
    for i in parallel(range(0, n * m)):
        Y[i // {divisor}, i % {other}] = 1.0
"""
    assert races(parse_nest(text.format(divisor="m", other="m"))) == []
    assert races(parse_nest(text.format(divisor="m", other="n")))
