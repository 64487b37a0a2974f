"""Tensors in the shapes that they have in code: the same elements in the same order, whatever the shapes in which they are written."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify, with_plain_shapes
from tensorexpr.text import print_program, print_type
from tensorexpr.verify import verify
from tests.random_programs import random_inputs
from tests.random_programs.programs import random_sample
from tests.random_programs.sample import arrays_for
from tests.random_programs.writer import Options
from tests.seeds import share_of

UNITS = """
x: f32[1, 5, 40, 1] = input()
w: f32[40, 1] = input()
top[i, j]: f32[1, 5] = max(x[0, j, k, 0] for k in range(40))
y[i, j, k, l]: f32[1, 5, 40, 1] = exp(x[0, j, k, 0] - top[0, j]) * w[k, 0]
total[i, j]: f32[1, 1] = sum(x[0, p, q, 0] for p in range(5) for q in range(40))
return y, total
"""
MERGED = """
x: f32[1200] = input()
m[i]: f32[30] = max(x[i * 40 + k] for k in range(40))
e[p]: f32[1200] = exp(x[p] - m[p // 40])
s[i]: f32[30] = sum(e[i * 40 + k] for k in range(40))
y[p]: f32[1200] = e[p] / s[p // 40] + x[maximum(p // 40 - 1, 0) * 40 + p % 40]
return y
"""
JOINT = """
x: f32[4, 8, 6, 10] = input()
w: f32[6, 10] = input()
c: f32[8] = input()
m[a, b]: f32[4, 8] = max(x[a, b, i, j] for i in range(6) for j in range(10))
y[a, b, i, j]: f32[4, 8, 6, 10] = exp(x[a, b, i, j] - m[a, b]) * w[i, j]
z[a, b]: f32[4, 8] = sum(y[a, b, i, j] for i in range(6) for j in range(10)) * c[b]
return y, z
"""
STATES = """
x: f32[1, 20, 6] = input()
zero[o, i]: f32[1, 20] = 0.5
one[o, i]: f32[1, 1] = 1.0
for t in range(6):
    h: f32[1, 20] = state(zero)
    c: f32[1, 1] = state(one)
    n[o, i]: f32[1, 20] = h[0, i] * c[0, 0] + x[0, i, t]
    d[o, i]: f32[1, 1] = c[0, 0] * 0.5 + n[0, 3]
    S[t] = h = n
    T[t] = c = d
y[o, i, t]: f32[1, 20, 6] = S[t, 0, i] * T[5 - t, 0, 0] + zero[0, i]
return y, S, one
"""
OPEN = """
sizes(a, b, h, w)
x: f32[a, b, h, w] = input()
v: f32[h, w] = input()
top[i, j]: f32[a, b] = max(x[i, j, k, l] for k in range(h) for l in range(w))
y[i, j, k, l]: f32[a, b, h, w] = exp(x[i, j, k, l] - top[i, j]) * v[k, l]
z: f32 = sum(y[i, j, k, l] for i in range(a) for j in range(b) for k in range(h) for l in range(w)) / f32(w)
return y, z
"""
PICTURES = """
x: f32[3840] = input()
y[p]: f32[3840] = x[p // 960 * 960 + (23 - p // 40 % 24) * 40 + p % 40] - x[p // 40 * 40]
return y
"""


def values(program: Program, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The elements of the outputs for those of the inputs, in order."""
    shapes = {item.name: tuple(map(integer, item.type.shape)) for item in program.inputs}
    found = evaluate_program(program, {name: arrays[name].reshape(shape) for name, shape in shapes.items()})
    return [np.ravel(found[name]) for name in program.outputs]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (UNITS, {"x": "5, 40", "w": "40", "y": "5, 40", "total": "1"}),
        (MERGED, {"x": "30, 40", "e": "30, 40", "y": "30, 40", "s": "30"}),
        (PICTURES, {"x": "4, 24, 40", "y": "4, 24, 40"}),
        (JOINT, {"x": "4, 8, 60", "w": "60", "m": "4, 8", "y": "4, 8, 60", "z": "4, 8"}),
        (STATES, {"x": "20, 6", "zero": "20", "one": "1", "S": "6, 20", "T": "6, 1", "y": "20, 6"}),
    ],
    ids=["units", "merged", "pictures", "joint", "states"],
)
def test_what_is_written_in_other_shapes_is_the_same_program(text, shapes):
    program = simplify(parse_program(text), inline=False)
    found = with_plain_shapes(program)
    assert {name: ", ".join(map(str, map(integer, found.types[name].shape))) for name in shapes} == shapes
    assert "//" not in str(found) and "%" not in str(found)
    assert with_plain_shapes(found) is found
    rng = np.random.default_rng(5)
    arrays = {item.name: rng.standard_normal(tuple(map(integer, item.type.shape))).astype(np.float32) for item in program.inputs}
    for one, other in zip(values(program, arrays), values(found, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_axes_of_open_extents_are_one_where_none_is_below_zero():
    program = simplify(parse_program(OPEN), inline=False)
    found = with_plain_shapes(program)
    types = [print_type(found.types[name]) for name in ("x", "v", "y", "top")]
    assert types == ["f32[a * b, h * w]", "f32[h * w]", "f32[a * b, h * w]", "f32[a * b]"]
    rng = np.random.default_rng(7)
    for sizes in ((2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2), (2, 2, 3, 1)):
        a, b, h, w = sizes
        given = {"x": rng.standard_normal(sizes).astype(np.float32), "v": rng.standard_normal((h, w)).astype(np.float32)}
        known = dict(zip("abhw", sizes, strict=True))
        joint = {"x": given["x"].reshape(a * b, h * w), "v": given["v"].reshape(h * w)}
        one, other = evaluate_program(program, given, known), evaluate_program(found, joint, known)
        for name in program.outputs:
            np.testing.assert_array_equal(np.ravel(one[name]), np.ravel(other[name]))
    below = parse_program("""
sizes(n, m)
x: f32[n, m] = input()
t[i, j]: f32[n - 3, m - 3] = exp(x[i, j])
y[i, j]: f32[n - 3, m - 3] = t[i, j] + 1.0
return y
""")
    assert with_plain_shapes(below) is below


@pytest.mark.parametrize(
    "text",
    [
        "x: f32[1, 40] = input()\nids: i64[9] = input()\ny[i]: f32[9] = x[0, ids[i]]\nreturn y",
        "x: f32[9] = input()\nids: i64[6, 8] = input()\ny[i, j]: f32[6, 8] = x[ids[i, j]]\nreturn y",
        "ids: i64[6, 8] = input()\ny: f32[9] = scatter({(ids[i, j],): 1.0 for i in range(6) for j in range(8)})\nreturn y",
        "x: f32[80] = input()\ny[p]: f32[80] = where(p % 2 == 0, x[p // 2], 0.0)\nreturn y",
        "x: f32[8, 9] = input()\ny[i, j]: f32[8, 9] = x[i, j] * f32(i)\nreturn y",
        "x: f32[9, 9] = input()\ny[i, j]: f32[9, 9] = x[i, j] + x[j, i]\nreturn y",
        "x: f32[9, 9] = input()\ny[i]: f32[9] = sum(x[i, j] for j in range(i))\nreturn y",
        "x: f32[40] = input()\ny[p]: f32[1200] = x[(p * 7 + 3) // 40]\nreturn y",
        "x: i32[40] = input()\ny[p]: i32[40] = x[p] // 2 % 2\nreturn y",
        "z[o]: f32[1] = 0.0\nfor t in range(3):\n    h: f32[1] = state(z)\n    n[o]: f32[1] = h[0] + 1.0\n    S[t] = h = n\nreturn S",
    ],
    ids=[
        "an error names the index",
        "and what it reads",
        "of scatters as well",
        "residue classes",
        "an index by itself",
        "the other way around",
        "a part of a row",
        "no rows",
        "data, no index",
        "the one axis of a state",
    ],
)
def test_what_keeps_its_shape(text):
    program = simplify(parse_program(text))
    assert with_plain_shapes(program) is program


@pytest.mark.parametrize(
    "other",
    [
        "sum(a[j] * w[k, l] for l in range(2) for k in range(4))",
        "sum(a[j] * w[k, l] for k in range(3) for l in range(2))",
        "sum(a[j] * w[k, l] for k in range(4) for l in range(1))",
        "sum(a[k] for k in range(3))",
        "sum(a[j] * w[k, l] for k in range(4) for l in range(2))",
    ],
)
def test_reductions_beside_each_other_have_loops_of_one_name(other):
    """Neighbouring loops of one of them are one only where they are neighbours in all."""
    head = "a: f64[3] = input()\nv: f64[4, 2] = input()\nw: f64[4, 2] = input()\n"
    first = "sum(v[k, l] * a[j] for k in range(4) for l in range(2))"
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(-3, 4, shape).astype("f8") for name, shape in (("a", (3,)), ("v", (4, 2)), ("w", (4, 2)))}
    for value in (f"{first} + {other}", f"{other} + {first}"):
        program = simplify(parse_program(f"{head}y[j]: f64[3] = {value}\nreturn y"))
        for one, other_ in zip(values(program, arrays), values(with_plain_shapes(program), arrays), strict=True):
            np.testing.assert_array_equal(one, other_)


@pytest.mark.parametrize("seed", share_of(range(300)))
def test_random_programs_keep_their_values(seed):
    sample = random_sample(seed, Options(points=4000, open_sizes=0.0))
    traced = sample.traced()
    program = simplify(traced.program)
    found = with_plain_shapes(program)
    if found is program:
        return
    arrays = arrays_for(program, traced.below, {}, seed, exact=True)
    for one, other in zip(values(program, arrays), values(found, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_behind_one_another_are_rows_for_all_that_read_them() -> None:
    """A norm over images whose pixels are written as one axis has the form of one over images: reductions over that axis are split, too."""
    flat = (
        "x: f32[6, 37, 41] = input()\nf[i, p]: f32[6, 1517] = x[i, p // 41, p % 41]\n"
        "m[i]: f32[6] = sum(f[i, p] for p in range(1517)) / 1517.0\n"
        "v[i]: f32[6] = max(abs(f[i, p] - m[i]) for p in range(1517))\n"
        "y[i, k, l]: f32[6, 37, 41] = (f[i, k * 41 + l] - m[i]) / v[i]\nreturn y\n"
    )
    program = parse_program(flat)
    found = simplify(with_plain_shapes(simplify(program)))
    verify(found)
    assert "//" not in print_program(found) and "%" not in print_program(found) and "f[" not in print_program(found)
    inputs = random_inputs(program, 3)
    want = evaluate_program(program, inputs)["y"]
    got = evaluate_program(found, {"x": inputs["x"].reshape(6, -1)})["y"].reshape(want.shape)
    np.testing.assert_allclose(got, want, 1e-6, 1e-6)


def test_heads_that_share_keys_are_groups_for_all_that_read_them() -> None:
    program = parse_program(
        "q: f32[8, 5, 6] = input()\nk: f32[2, 7, 6] = input()\n"
        "s[h, i, j]: f32[8, 5, 7] = sum(q[h, i, r] * k[h // 4, j, r] for r in range(6))\n"
        "t[h, i]: f32[8, 5] = sum(exp(s[h, i, j]) for j in range(7))\n"
        "y[h, i, r]: f32[8, 5, 6] = sum(exp(s[h, i, j]) / t[h, i] * k[h // 4, j, r] for j in range(7))\nreturn y\n"
    )
    found = simplify(with_plain_shapes(simplify(program)))
    verify(found)
    assert "//" not in print_program(found) and "%" not in print_program(found)
    inputs = random_inputs(program, 3)
    want, got = evaluate_program(program, inputs)["y"], evaluate_program(found, {"q": inputs["q"], "k": inputs["k"]})["y"]
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("scattered", [False, True])
def test_states_that_start_from_constants_and_from_what_is_scattered_keep_their_axes(scattered):
    """Of these the shape is not that of a definition which could be changed."""
    n = te.dim("n")
    x, ids, v = te.placeholder((n, 4), name="x"), te.placeholder((6,), "int64", name="ids"), te.placeholder((6,), name="v")
    begun = np.array([2, 1, 1, 2], np.float32)
    start = te.scatter((4, 1), lambda i: ((ids[i], 0), v[i]), 6) if scattered else te.constant(begun.reshape(4, 1))
    run = te.scan(lambda t, s: te.compute((4, 1), lambda i, j: s[i, j] * 0.5 + x[t, i]), start, n)
    f = te.build(te.compute((n, 4), lambda t, i: run[t, i, 0] * 2.0, name="y"), [x, ids, v])
    for steps in (0, 1, 7):
        rows = np.random.default_rng(steps).standard_normal((steps, 4)).astype(np.float32)
        state, want = begun, []
        for row in rows:
            state = state * np.float32(0.5) + row
            want.append(2 * state)
        np.testing.assert_allclose(f(rows, np.array([0, 3, 3, 1, 0, 2]), np.ones(6, np.float32)), np.reshape(want, (steps, 4)), 1e-6)


@pytest.mark.parametrize(
    ("text", "shape", "divisions"),
    [
        (  # rows and columns of small matrices behind one another, taken apart again
            "x: f32[6, 4, 4] = input()\ny: f32[6, 4, 4] = input()\n"
            "T[n, p]: f32[6, 16] = sum(x[n, p // 4, j] * y[n, j, p % 4] for j in range(4))\n"
            "r[n, i, k]: f32[6, 4, 4] = T[n, i * 4 + k]\nreturn r\n",
            "f32[6, 4, 4]",
            False,
        ),
        (  # heads of batches as one axis, through a definition that has it as it is
            "x: f32[2, 5, 12] = input()\nU[p, i, k]: f32[8, 5, 3] = exp(x[p // 4, i, p % 4 * 3 + k])\n"
            "S[p, i, j]: f32[8, 5, 5] = sum(U[p, i, k] * U[p, j, k] for k in range(3))\n"
            "r[q, a, i, j]: f32[2, 4, 5, 5] = S[q * 4 + a, i, j]\nreturn r\n",
            "f32[2, 4, 5, 3]",
            False,
        ),
        (  # a reader with more rows, whole ones
            "x: f32[4, 3, 5] = input()\nT[p, j]: f32[12, 5] = exp(x[p // 3, p % 3, j])\n"
            "r[p, j]: f32[15, 5] = where(p < 12, T[p, j], 0.0)\nreturn r\n",
            "f32[5, 15]",
            False,
        ),
        (  # a reader with a part of a row more
            "x: f32[4, 3, 5] = input()\nT[p, j]: f32[12, 5] = exp(x[p // 3, p % 3, j])\n"
            "r[p, j]: f32[13, 5] = where(p < 12, T[p, j], 0.0)\nreturn r\n",
            "f32[13, 5]",
            True,
        ),
        (  # a reader of a part
            "x: f32[4, 3, 5] = input()\nT[p, j]: f32[12, 5] = exp(x[p // 3, p % 3, j])\n"
            "r[p, j]: f32[10, 5] = T[p, j]\ns[i, a, j]: f32[4, 3, 5] = T[i * 3 + a, j]\nreturn r, s\n",
            "f32[10, 5]",
            True,
        ),
        (  # a reader that needs the axis whole
            "x: f32[6, 4, 4] = input()\nT[n, p]: f32[6, 16] = exp(x[n, p // 4, p % 4])\n"
            "r[n, i, k]: f32[6, 4, 4] = T[n, i * 4 + k] * T[n, 15 - i]\nreturn r\n",
            "f32[6, 16]",
            True,
        ),
    ],
)
def test_short_digits_that_readers_put_together_are_axes(text: str, shape: str, divisions: bool) -> None:
    program = parse_program(text)
    found = with_plain_shapes(program)
    printed = print_program(found)
    assert shape in printed and ("//" in printed) is divisions
    rng = np.random.default_rng(0)
    inputs = {item.name: rng.standard_normal([int(e.value) for e in item.type.shape]).astype(np.float32) for item in program.inputs}
    want = evaluate_program(program, inputs)
    again = {item.name: inputs[item.name].reshape([int(e.value) for e in item.type.shape]) for item in found.inputs}
    np.testing.assert_allclose(evaluate_program(found, again)["r"].ravel(), want["r"].ravel(), rtol=1e-6)
