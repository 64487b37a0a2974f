"""Sort plans as a form of the program: text, meaning, invariants, passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError, InternalError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Axis, Const, Program, Segments, const
from tensorexpr.language.core.renaming import renamed
from tensorexpr.parse import parse_program
from tensorexpr.simplify import remove_dead_definitions, share_definitions, simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import map_expressions, reads
from tensorexpr.verify import verify

TEXT = """\
sizes(n)
ids: i32[2, n] = input()
flags: bool[n] = input()
offsets, order = segments[5](i64(ids[b, t]) for b in range(2) for t in range(n))
starts, places = segments[5](i64(ids[b, t]) for b in batch(2) for t in range(n) if flags[t])
rows, cells = segments[2, n + 5]((b, i64(ids[b, t]) + t) for b in range(2) for t in range(n))
none, one = segments[()](() for () in [()])
return offsets, order, starts, places, rows, cells, none, one"""
IDS = np.array([[3, 0, 3, 1], [0, 0, 4, 3]], np.int32)
FLAGS = np.array([True, False, True, True])


def plan(program: Program, at: int = 0) -> Segments:
    found = program.definitions[at]
    assert isinstance(found, Segments)
    return found


def by_hand(keys: np.ndarray, extent: int, chosen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and order by a stable sort."""
    chosen = np.ones(len(keys), bool) if chosen is None else chosen
    order = np.zeros(len(keys), np.int64)
    positions = np.flatnonzero(chosen)
    order[: len(positions)] = positions[np.argsort(keys[positions], kind="stable")]
    return np.concatenate([[0], np.cumsum(np.bincount(keys[positions], minlength=extent))]), order


def test_text_reads_back():
    program = parse_program(TEXT)
    verify(program)
    assert print_program(program) == TEXT
    assert [type_.shape for _, type_ in plan(program, 3).results] == [(const(2),), (const(1),)]
    assert {name: type_.dtype for name, type_ in plan(program).results} == {"offsets": dtypes.int64, "order": dtypes.int64}


@pytest.mark.parametrize(
    "line",
    ["a, b, c = segments[5](0)", "a, b = sorted[5]((t for t in range(4)))", "a, b = segments[5]([t for t in range(4)])"],
)
def test_text_that_is_no_plan_is_refused(line):
    with pytest.raises(DefinitionError) as caught:
        parse_program(f"{line}\nreturn a")
    assert caught.value.message == f"expected offsets, order = segments[extent](key for ...), got {line}"


def test_meaning():
    found = evaluate_program(parse_program(TEXT), {"ids": IDS, "flags": FLAGS})
    for (offsets, order), keys, extent in (
        (("offsets", "order"), IDS.ravel(), 5),
        (("rows", "cells"), (np.arange(2)[:, None] * 9 + IDS + np.arange(4)).ravel(), 18),
        (("none", "one"), np.zeros(1, np.int64), 1),
    ):
        for name, expected in zip((offsets, order), by_hand(keys, extent), strict=True):
            np.testing.assert_array_equal(found[name], expected, name)
    for b in range(2):
        offsets, order = by_hand(IDS[b], 5, FLAGS)
        np.testing.assert_array_equal(found["starts"][b], offsets)
        np.testing.assert_array_equal(found["places"][b], order)


def test_a_key_out_of_range_is_an_error_that_names_it():
    with pytest.raises(OutOfBoundsError, match=r"offsets: expected 0 <= index < 5 on axis 0 of offsets, got 7") as caught:
        evaluate_program(parse_program(TEXT), {"ids": IDS + 4, "flags": FLAGS})
    assert caught.value.term == "offsets[i64(ids[b, t])]"


BROKEN = {
    "names": (lambda p: replace(p, names=("a", "b", "c")), "'segments': expected the names of offsets and order, got a, b, c"),
    "twice": (lambda p: replace(p, names=("a", "a")), "'names': expected each tensor to be named once, got a twice"),
    "keys": (lambda p: replace(p, keys=()), "'segments': expected 1 keys, one per extent, got 0"),
    "key": (lambda p: replace(p, keys=(Const(1, dtypes.int32),)), "'index types': expected int64, got int32"),
    "where": (lambda p: replace(p, where=const(1)), "'segments': expected a bool for where, got int64"),
    "start": (lambda p: replace(p, axes=(Axis("t", const(1), const(4)),)), "'shapes': expected an axis that starts at 0, got 1"),
    "batch": (lambda p: replace(p, batch=p.axes[:1]), "'scope': expected an index that is not bound yet, got b again"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_invariant_is_named(case):
    program = parse_program(TEXT)
    change, message = BROKEN[case]
    with pytest.raises(InternalError, match=message):
        verify(replace(program, definitions=(change(plan(program)), *program.definitions[1:]), outputs=()))


def test_equal_plans_are_one_whatever_their_indices_are_called():
    lines = ["a, b = segments[5](i64(ids[t]) for t in range(4))", "c, d = segments[5](i64(ids[u]) + 0 for u in range(4))"]
    program = parse_program("\n".join(["ids: i32[4] = input()", *lines, "y[i]: i64[4] = b[i] + d[i] + c[i]", "return y"]))
    text = print_program(simplify(program))
    assert text.count("segments") == 1 and "c" not in text.split("segments")[1]
    assert share_definitions(program) is program and len(share_definitions(simplify(program, inline=False)).definitions) == 2


def test_keys_and_conditions_are_simplified_and_inlined():
    program = parse_program(
        "x: i64[4] = input()\n"
        "two[i]: i64[4] = x[i] * 2\n"
        "a, b = segments[9](two[t] + (t - t) for t in range(4) if t >= 0 and x[t] > 1 and t < 7)\n"
        "return a, b"
    )
    assert print_program(simplify(program)).split("\n")[1:] == [
        "a, b = segments[9](x[t] * 2 for t in range(4) if x[t] >= 2)",
        "return a, b",
    ]


def test_plans_that_nothing_reads_go_away():
    program = parse_program("ids: i64[4] = input()\na, b = segments[5](ids[t] for t in range(4))\ny[i]: i64[4] = b[i]\nreturn y")
    assert remove_dead_definitions(program) is program
    assert remove_dead_definitions(replace(program, outputs=())).definitions == ()


def test_walking_and_renaming():
    found = plan(parse_program(TEXT), 1)
    assert map_expressions(found, lambda e: e) is found
    assert reads(found) == ("ids", "flags")
    moved = renamed(found, {"ids": "codes", "starts": "s"}, {"b": "c", "t": "u"})
    assert (moved.names, [a.index for a in moved.loops], reads(moved)) == (("s", "places"), ["c", "u"], ("codes", "flags"))
