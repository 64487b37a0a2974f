"""Primitives that write definitions anew, after others that named what is gone then: what was said stays, or there is a reason."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, outputs, planned
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program
from tests.random_programs.reference import TooMuch
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

ANEW = (
    "inline",
    "inline",
    "recompute",
    "stage",
    "stage",
    "share",
    "rfactor",
    "sort",
    "sweep",
)
SAID = (
    "cache",
    "cache",
    "compute_at",
    "compute_at",
    "own",
)
LOOPS = ("split", "reorder", "parallel")


@pytest.mark.parametrize("block", range(4))
def test_what_is_said_of_tensors_in_any_order_is_kept_or_refused(block: int) -> None:
    """Law: such schedules are lowered, can be written down and made again, and compute the program."""
    for seed in share_of(range(block * 60, (block + 1) * 60)):
        program = random_program(seed)
        s = shuffled(schedule(program, WIDE), random.Random(seed), 16, (*ANEW, *SAID, *SAID, *LOOPS))
        again = schedule(program, WIDE)
        exec(s.as_python(), {"s": again})
        assert again == s
        if seed % 4:
            lower(s)
        else:
            with suppress(TooMuch):  # places that depend on a rounding
                assert_same_meaning(s, seed)


@pytest.mark.parametrize("order", [False, True])
def test_what_is_computed_in_a_loop_is_not_copied_there_before(order: bool) -> None:
    x = te.placeholder((8, 32), name="x")
    a = te.compute((8, 32), lambda i, k: x[i, k] + 1.0, name="a")
    s = planned(te.compute((8, 16), lambda i, j: te.sum(lambda k: a[i, k] * x[j % 8, k], 32), name="y"))
    for step in (order, not order):
        if step != order:
            with pytest.raises(ScheduleError, match="expected a to be there before the loop that it is cached in, got it computed in j"):
                s["y"].cache("a", "i", (1, 0)) if step else s["a"].compute_at("y", "j")
        else:
            s["y"].cache("a", "i", (1, 0)) if step else s["a"].compute_at("y", "j")


SENT = """
x: f32[4, 5] = input()
v: f32[4] = input()
q: i64[4] = input()
p[i]: f32[4] = v[i] + 1.0
n[i]: i64[4] = minimum(maximum(q[i], 0), 5)
at[i]: i64[4] = q[i] + 1
sent: f32[7] = scatter({(j + at[i],): x[i, j] for i in range(4) for j in range(n[i]) if p[i] > 0.0})
return sent
"""


@pytest.mark.parametrize("name", ["p", "n", "at"])
@pytest.mark.parametrize("loop", ["i", "j"])
def test_conditions_and_checks_wait_for_what_is_computed_in_the_loops(name: str, loop: str) -> None:
    """A condition, the bound of a loop and a checked index that are computed where they are read, or too late."""
    program = parse_program(SENT)
    s = schedule(program, WIDE)
    if (name, loop) == ("n", "j"):
        with pytest.raises(ScheduleError, match="expected a loop outside of j, whose bounds n gives, got j"):
            s[name].compute_at("sent", loop)
        return
    s[name].compute_at("sent", loop)
    rng = np.random.default_rng(0)
    given = {"x": rng.integers(0, 9, (4, 5)).astype(np.float32), "v": np.array([1, -2, 3, 4], np.float32), "q": np.array([0, 2, -1, 1])}
    found = outputs(lower(s), program, given, {})["sent"]
    expected = outputs(lower(schedule(program, WIDE)), program, given, {})["sent"]
    np.testing.assert_array_equal(found, expected)


def chain() -> Planned:
    """x -> a (element by element) -> t (sums of rows), c (a copy the other way round) and y, which reads all."""
    x = te.placeholder((16, 8), name="x")
    a = te.compute((16, 8), lambda i, j: x[i, j] + 1.0, name="a")
    t = te.compute((16,), lambda i: te.sum(lambda k: te.exp(a[i, k]) + x[i, k], 8), name="t")
    c = te.compute((8, 16), lambda j, i: a[i, j], name="c")
    y = te.compute((16, 8), lambda i, j: te.exp(a[i, j]) * t[i] + x[i, j], name="y")
    return planned([c, t, y])


REWRITES = [
    ("inline", lambda s: s["a"].inline()),
    ("inline", lambda s: s["a"].recompute()),
    ("stage", lambda s: s["t"].stage("x", (1, 0))),
    ("rfactor", lambda s: s["t"].rfactor("k")),
]


@pytest.mark.parametrize(("word", "rewrite"), REWRITES)
def test_what_depends_on_loops_is_said_later(word: str, rewrite) -> None:
    for name in ("t", "y"):
        s = chain()
        s[name].cache("x", "i", (0, 1))
        before = s.copy()
        if name == "y" and word in ("stage", "rfactor"):  # of t alone
            rewrite(s)
            assert s.state.stage("y").cached
            continue
        expected = f"expected loops of {name} that nothing depends on, for they are made anew, got x copied in i"
        with pytest.raises(ScheduleError, match=expected) as caught:
            rewrite(s)
        assert caught.value.hint == f"{word} first" and s == before


def test_guests_stay_where_they_are() -> None:
    """What is computed in the loops of a definition that does not read it."""
    x, z = te.placeholder((6, 7), name="x"), te.placeholder((6, 7), name="z")
    t = te.compute((6,), lambda i: te.sum(lambda k: x[i, k], 7), name="t")
    a = te.compute((6, 7), lambda i, j: z[i, j] + 1.0, name="a")
    y = te.compute((6, 7), lambda i, j: a[i, j] * x[i, j], name="y")
    s = planned([t, y])
    s["t"].compute_at("y", "i")
    with pytest.raises(ScheduleError, match="expected loops of y that nothing depends on, for they are made anew, got t computed in i"):
        s["a"].inline()
    sent = te.scatter((3,), lambda i, j: (i % 3, a[i, j]), (6, 7), name="sent")
    s = planned(sent)
    s["a"].compute_at("sent", "j")
    with pytest.raises(ScheduleError, match="expected loops of sent that nothing depends on, for they are made anew, got a computed in j"):
        s["sent"].rfactor("i")


@pytest.mark.parametrize(("word", "rewrite"), REWRITES)
def test_what_does_not_depend_on_loops_is_kept(word: str, rewrite) -> None:
    s = chain()
    rewrite(s)
    data = np.random.default_rng(0).random((16, 8), np.float32)
    for found, expected in zip(te.build(s)(data), te.build(chain())(data), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
