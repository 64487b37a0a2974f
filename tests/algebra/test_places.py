"""Sums over the segments of plans, an element for each point, are sent to their places: the same values, and the same errors."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_sums_by_place
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, Scatter, Segments
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify

HEAD = "h: f32[5, 3] = input()\nt: i32[5] = input()\n"
SUMS = {
    "an element for each point": (
        "o, k = segments[100](i64(t[i]) for i in range(5))\n"
        "y[p]: f32[100] = 2.0 * sum(h[k[j], 1] for j in range(o[p], o[p + 1]))\nreturn y\n"
    ),
    "points of two axes": (
        "o, k = segments[100](i64(t[i]) + c for i in range(5) for c in range(3))\n"
        "y[p]: f32[50] = sum(h[k[j] // 3, k[j] % 3] for j in range(o[p * 2 + 1], o[p * 2 + 2]))\nreturn y\n"
    ),
    "points left out": (
        "o, k = segments[100](i64(t[i]) for i in range(5) if t[i] > 7)\n"
        "y[p]: f32[100] = sum(h[k[j], 0] for j in range(o[p], o[p + 1])) + sum(h[k[j], 1] for j in range(o[p], o[p + 1]))\nreturn y\n"
    ),
    "keys that are few": (
        "o, k = segments[13](i64(t[i]) for i in range(5))\ny[p]: f32[13] = sum(h[k[j], 1] for j in range(o[p], o[p + 1]))\nreturn y\n"
    ),
    "what is found at the key": (
        "g: f32[13] = input()\no, k = segments[13](i64(t[i]) for i in range(5))\n"
        "y[p]: f32[13] = sum(h[k[j], 1] / (g[p] + f32(t[k[j]])) for j in range(o[p], o[p + 1]))\nreturn y\n"
    ),
    "keys of two axes": (
        "o, k = segments[2, 13]((i64(t[i]) % 2, i64(t[i])) for i in range(5))\n"
        "y[p, q]: f32[2, 13] = sum(h[k[j], 2] * f32(q) + f32(p) for j in range(o[p * 13 + q], o[p * 13 + q + 1]))\nreturn y\n"
    ),
    "under a condition": (
        "o, k = segments[100](i64(t[i]) for i in range(5))\n"
        "y[p]: f32[100] = where(p >= 7, sum(h[k[j], 1] * f32(p) for j in range(o[p], o[p + 1])), 1.0)\nreturn y\n"
    ),
    "some of the keys": (
        "g: f32[9] = input()\no, k = segments[100](i64(t[i]) for i in range(5) if i >= 1)\n"
        "y[p]: f32[9] = sum(h[k[j] - 1, 1] for j in range(o[p], o[p + 1])) + g[p]\nreturn y\n"
    ),
    "a plan for each row": (
        "o, k = segments[14](i64(t[i]) + b for b in batch(2) for i in range(5))\n"
        "y[p, r]: f32[14, 2] = sum(h[k[r, j], 1] * f32(p + r) for j in range(o[r, p], o[r, p + 1]))\nreturn y\n"
    ),
}
KEPT = {
    "keys of two axes, read turned": "o, k = segments[13, 13]((i64(t[i]), i64(t[i])) for i in range(5))\n"
    "y[p, q]: f32[13, 13] = sum(h[k[j], 2] for j in range(o[p + q * 12], o[p + q * 12 + 1]))\nreturn y\n",
    "a plan that rows read too": "o, k = segments[13](i64(t[i]) for i in range(5))\n"
    "z[p, c]: f32[13, 3] = sum(h[k[j], c] for j in range(o[p], o[p + 1]))\n"
    "y[p]: f32[13] = z[p, 0] + sum(h[k[j], 1] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "a plan of another row": "o, k = segments[14](i64(t[i]) + b for b in batch(2) for i in range(5))\n"
    "y[r, p]: f32[2, 14] = sum(h[k[1 - r, j], 1] for j in range(o[1 - r, p], o[1 - r, p + 1]))\nreturn y\n",
    "rows": "o, k = segments[100](i64(t[i]) for i in range(5))\n"
    "y[p, c]: f32[100, 3] = sum(h[k[j], c] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "what is read only under a condition": "g: f32[13] = input()\no, k = segments[14](i64(t[i]) for i in range(5))\n"
    "y[p]: f32[14] = where(p >= 1, sum(h[k[j], 1] * g[p - 1] for j in range(o[p], o[p + 1])), 0.0)\nreturn y\n",
    "what is read for some of the keys": "g: f32[9] = input()\no, k = segments[13](i64(t[i]) for i in range(5))\n"
    "y[p]: f32[9] = sum(h[k[j], 1] * g[p] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "a maximum": "o, k = segments[100](i64(t[i]) for i in range(5))\n"
    "y[p]: f32[100] = max(h[k[j], 0] for j in range(o[p], o[p + 1]))\nreturn y\n",
}


def made(program: Program, kind: type) -> int:
    return sum(isinstance(d, kind) for d in program.definitions)


@pytest.mark.parametrize("name", SUMS)
def test_sums_over_segments_of_few_points_are_scatters(name: str) -> None:
    program = simplify(parse_program(HEAD + SUMS[name]))
    found = with_sums_by_place(program)
    assert made(program, Segments) == 1 and made(found, Segments) == 0 and made(found, Scatter) >= 1
    rng = np.random.default_rng(0)
    for _ in range(3):
        arrays = {"h": rng.standard_normal((5, 3)).astype(np.float32), "t": rng.integers(5, 12, 5).astype(np.int32)}
        for g in (t for t in program.inputs if t.name == "g"):
            arrays["g"] = np.ones([int(e.value) for e in g.type.shape], np.float32)
        for one, other in zip(evaluate_program(program, arrays).values(), evaluate_program(found, arrays).values(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("points", "value"), [("", "h[k[j], 1]"), (" for c in range(3)", "h[k[j] // 3, k[j] % 3]")])
def test_points_and_keys_may_be_open(points: str, value: str) -> None:
    """The gradient of a gather of open size was a plan: 24 to 36 times as long as at fixed sizes."""
    text = f"""
sizes(m, n)
h: f32[m, 3] = input()
t: i32[m] = input()
o, k = segments[n](i64(t[i]) for i in range(m){points})
y[p]: f32[n] = sum({value} for j in range(o[p], o[p + 1]))
return y
"""
    program = simplify(parse_program(text))
    found = with_sums_by_place(program)
    assert made(found, Segments) == 0 and made(found, Scatter) == 1
    rng = np.random.default_rng(0)
    for m, n in ((0, 1), (1, 1), (5, 3), (3, 50), (40, 7)):
        arrays = {"h": rng.integers(-3, 4, (m, 3)).astype(np.float32), "t": rng.integers(0, n, m).astype(np.int32)}
        np.testing.assert_array_equal(*(evaluate_program(p, arrays, {"m": m, "n": n})["y"] for p in (program, found)))


def test_a_sum_that_is_all_of_a_definition_is_sent_there() -> None:
    found = with_sums_by_place(simplify(parse_program(HEAD + SUMS["keys that are few"])))
    assert [d.name for d in found.definitions if isinstance(d, Scatter)] == ["y"] and len(found.definitions) == 1


@pytest.mark.parametrize("name", KEPT)
def test_other_sums_stay(name: str) -> None:
    program = simplify(parse_program(HEAD + KEPT[name]))
    assert with_sums_by_place(program) is program


def test_a_class_that_is_part_of_a_flat_index_is_differentiated_in_one_pass() -> None:
    x, t = te.placeholder((40,), "float64", name="x"), te.placeholder((4,), "int32", name="t")
    y = te.compute((4,), lambda i: x[i * 10 + t[i]] * x[i * 10], name="y")
    head = te.placeholder((4,), "float64", name="head")
    g = te.gradient([y], [x], [head])
    rng = np.random.default_rng(0)
    arrays = {x: rng.standard_normal(40), t: np.array([3, 9, 0, 4], np.int32), head: rng.standard_normal(4)}
    f = te.build(list(g), [x, t, head])
    np.testing.assert_array_equal(f(*arrays.values())[0], te.evaluate(g[0], arrays))
    with pytest.raises(IndexError):
        f(arrays[x], np.array([3, 9, 0, 40], np.int32), arrays[head])


def test_a_plan_of_a_single_point_has_no_axes() -> None:
    """Found by the fuzzer (seed 1795903622170): a gradient forced into segments of what reads one element, once."""
    x, head = te.placeholder((4,), "float64", name="x"), te.placeholder((), "float64", name="head")
    y = te.compute(
        (), lambda: te.reduce(lambda a, b: (1.0, b[0]), (1.0, 0.0), lambda i: (x[1], 1.0), 4, where=lambda i: i == 0)[1], name="y"
    )
    f = te.build(list(te.gradient([y], [x], [head], lowering="segments")), [x, head])
    np.testing.assert_array_equal(f(np.ones(4), np.array(1.5))[0], [0, 1.5, 0, 0])
