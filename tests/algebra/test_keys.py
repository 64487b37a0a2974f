"""Points that are looked for by key are sent to their keys, and costly values that are sent are computed before: the same values."""

import numpy as np
import pytest

from tensorexpr.algebra import sent_apart, with_chosen_points, with_sent_values, with_sums_by_key
from tensorexpr.algebra.keyed import chosen
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import host_target
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define, Program, Scatter
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_expr, print_program
from tensorexpr.verify import verify
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

INPUTS = "x: f32[7, 9] = input()\nt: i32[7] = input()\nu: i32[3, 7] = input()\n"
BY_KEY = {
    "rows": "y[s, d]: f32[20, 9] = sum(x[i, d] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "rows behind other axes": "y[d, s]: f32[9, 70] = sum(x[i, d] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "points": "y[s]: f32[80] = sum(x[i, 2] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "points of two axes": "y[s]: f32[80] = sum(x[i, j] for i in range(7) for j in range(9) if s == i64(t[i]) + j)\nreturn y\n",
    "a maximum": "y[s]: f32[80] = max(x[i, 2] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "a product in an expression": "y[s]: f32[80] = 1.0 + 2.0 * prod(x[i, 2] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "a masked term": "y[s]: f32[80] = sum(where(i64(t[i]) == s, x[i, 2], 0.0) for i in range(7))\nreturn y\n",
    "keys of a batch": "y[b, s]: f32[3, 80] = sum(x[i, b] for i in range(7) if i64(u[b, i]) == s)\nreturn y\n",
    "another condition": "y[s, d]: f32[20, 9] = sum(x[i, d] for i in range(7) if x[i, 0] > 0.0 and i64(t[i]) == s and i < 5)\nreturn y\n",
    "a term that depends on the key": "y[s]: f32[80] = sum(x[i, s % 9] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "a condition that depends on the key": "y[s, d]: f32[20, 9] = sum(x[i, d] * x[s % 7, d] for i in range(7) "
    "if i64(t[i]) == s and x[s % 7, 0] > x[i, 0])\nreturn y\n",
    "the largest under such a condition": "y[s]: f32[80] = max(x[i, s % 9] for i in range(7) "
    "if i64(t[i]) == s and x[i, s % 9] > 0.0)\nreturn y\n",
    "a choice that reads nothing beyond": "y[s, d]: f32[20, 9] = "
    "where(d < 2, sum(x[i, d] for i in range(7) if i64(t[i]) == s), 0.0)\nreturn y\n",
    "results that are alike": "y[s, d]: f32[80, 4] = sum(x[i, 1] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
}
NOT_BY_KEY = {
    "few keys": "y[s]: f32[9] = sum(x[i, 2] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "no key": "y[s]: f32[80] = sum(x[i, 2] for i in range(7) if i64(t[i]) < s)\nreturn y\n",
    "a position": "y[s]: i64[80] = argmax(x[i, 2] for i in range(7) if i64(t[i]) == s)\nreturn y\n",
    "a choice without which it reads beyond a border": "y[b, s]: f32[9, 80] = "
    "where(b < 3, sum(x[i, b] for i in range(7) if i64(u[b, i]) == s), 0.0)\nreturn y\n",
    "a key that the points do not have": "y[s]: f32[80] = sum(x[i, 2] for i in range(7) if i64(t[0]) == s)\nreturn y\n",
}
SENT = (
    "x: f32[50] = input()\nt: i32[50] = input()\nm: f32[10] = scatter({i64(t[i]): x[i] for i in range(50)}, combine='max')\n".replace(
        "'", '"'
    )
    + "z: f32[10] = scatter({i64(t[i]): exp(x[i] - m[i64(t[i])]) for i in range(50)})\n"
    "y[j]: f32[50] = exp(x[j] - m[i64(t[j])]) / z[i64(t[j])]\nreturn y\n"
)


def check(before: Program, after: Program, arrays: dict[str, np.ndarray]) -> None:
    verify(after)
    for one, other in zip(evaluate_program(before, arrays).values(), evaluate_program(after, arrays).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", BY_KEY)
def test_points_that_are_looked_for_by_key_are_sent(name: str) -> None:
    program = simplify(parse_program(INPUTS + BY_KEY[name]))
    found = with_sums_by_key(program)
    assert sum(isinstance(d, Scatter) for d in found.definitions) == 1, print_program(found)
    rng = np.random.default_rng(0)
    for high in (5, 100):  # keys beyond the last one have no place
        keys = {"t": rng.integers(-2, high, 7).astype(np.int32), "u": rng.integers(-2, high, (3, 7)).astype(np.int32)}
        check(program, found, {"x": rng.standard_normal((7, 9)).astype(np.float32), **keys})


@pytest.mark.parametrize("name", NOT_BY_KEY)
def test_what_has_no_key_or_few_of_them_stays(name: str) -> None:
    program = simplify(parse_program(INPUTS + NOT_BY_KEY[name]))
    assert with_sums_by_key(program) is program


def test_what_takes_a_function_is_computed_before_it_is_sent_and_once() -> None:
    program = simplify(parse_program(SENT))
    found = with_sent_values(program)
    (made,) = [d for d in found.definitions if isinstance(d, Define) and d.name == "z_sent"]
    assert print_program(found).count("exp(") == 1 and [a.index for a in made.axes] == ["i"], print_program(found)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal(50).astype(np.float32), "t": rng.integers(0, 10, 50).astype(np.int32)}
    check(program, found, arrays)
    np.testing.assert_allclose(build_program(program, single=True)(*arrays.values()), evaluate_program(program, arrays)["y"], rtol=1e-5)


def test_what_is_sent_once_is_not_computed_where_it_is_sent() -> None:
    text = "x: f32[50] = input()\nt: i32[50] = input()\nz: f32[10] = scatter({i64(t[i]): exp(x[i]) for i in range(50)})\nreturn z\n"
    program = with_sent_values(simplify(parse_program(text)))
    assert sent_apart(program) == {"z_sent"}
    assert "z_sent" in {b.name for b in lower(autoschedule(program, host_target())).workspace}


def test_numbers_that_floats_are_made_are_found_in_lanes_and_once() -> None:
    """What holds a key in its range stays where it is sent, with the proof that it is."""
    key = "maximum(minimum(i32(x[b, i] * 4.0), 9), 0)"
    text = (
        "x: f32[3, 50] = input()\nh: f32[3, 50] = input()\n"
        f"y: f32[3, 10] = scatter({{(b, i64({key})): h[b, i] for b in range(3) for i in range(50)}})\n"
        f"z: f32[3, 10] = scatter({{(b, i64(9 - {key})): h[b, i] for b in range(3) for i in range(50) if h[b, i] > 0.0}})\nreturn y, z\n"
    )
    program = simplify(parse_program(text))
    found = with_sent_values(program)
    assert sent_apart(found) == {"y_key"} and print_program(found).count("* 4.0") == 1
    rng = np.random.default_rng(0)
    x, h = (rng.standard_normal((3, 50)).astype(np.float32) for _ in range(2))
    x[0, :4] = np.nan, np.inf, -np.inf, 3e9
    check(program, found, {"x": x, "h": h})
    for got, want in zip(build_program(program)(x, h), evaluate_program(program, {"x": x, "h": h}).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("guard", "value"), [("", "h[i, p]"), (" if h[i, q] > 0.0", "exp(h[i, p])")])
@pytest.mark.parametrize("extent", ["50", "n"])
def test_neighbours_share_a_number_and_short_axes_are_in_front(guard: str, value: str, extent: str) -> None:
    """A key has the axes that it depends on, and lanes go along a long one."""
    text = (
        f"{'sizes(n)' * (extent == 'n')}\nx: f32[{extent}] = input()\nh: f32[{extent}, 3] = input()\n"
        f"y: f32[10] = scatter({{maximum(minimum(i64(i32(floor(x[i]))) + p - q, 9), 0): {value} for i in range({extent})"
        f" for p in range(3) for q in range(2){guard}}})\nreturn y\n"
    )
    program = simplify(parse_program(text))
    found = with_sent_values(program)
    made = {d.name: [print_expr(a.stop) for a in d.axes] for d in found.definitions if isinstance(d, Define)}
    assert made["y_key"] == [extent], print_program(found)
    assert made.get("y_sent") == (None if not guard else ["3", "2", extent]), print_program(found)
    rng = np.random.default_rng(0)
    for n in (50,) if extent == "50" else (0, 1, 7, 33, 300):
        arrays = {"x": rng.uniform(-3, 9, n).astype(np.float32), "h": rng.standard_normal((n, 3)).astype(np.float32)}
        arrays["x"][:3] = np.array([np.nan, np.inf, 3e9])[:n]
        check(program, found, arrays)
        (got,) = build_program(program)(*arrays.values())
        np.testing.assert_allclose(got, evaluate_program(program, arrays)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["u8", "i32"])
@pytest.mark.parametrize(("more", "apart"), [("", True), (" + i64(i % 2)", False)])
@pytest.mark.parametrize("extent", ["50", "n"])
def test_numbers_of_many_elements_are_found_in_lanes(dtype: str, more: str, apart: bool, extent: str) -> None:
    """A key that is made of neighbours; one with an axis in it may have rows, and stays."""
    code = " + ".join(f"i32(t[i + {k}]) * {4 ** (3 - k)}" for k in range(4))
    text = (
        (
            f"{'sizes(n)' * (extent == 'n')}\nt: {dtype}[{extent} + 3] = input()\nh: f32[{extent}] = input()\n"
            f"y: f32[99] = scatter({{maximum(minimum(i64({code}){more}, 98), 0): h[i] "
            f"for i in range({extent}) if h[i] > -1.0}})\nreturn y\n"
        )
        .replace("50 + 3", "53")
        .replace("i64(i % 2)", "i % 2")
    )
    program = simplify(parse_program(text))
    found = with_sent_values(program)
    assert sent_apart(found) == {"y_key"}, print_program(found)
    assert ("i % 2" in print_program(found).split("scatter")[1]) != apart, print_program(found)
    rng = np.random.default_rng(0)
    for n in (50,) if extent == "50" else (0, 1, 7, 33, 300):
        arrays = {
            "t": rng.integers(0, 4, n + 3).astype(np.uint8 if dtype == "u8" else np.int32),
            "h": rng.standard_normal(n).astype(np.float32),
        }
        check(program, found, arrays)
        (got,) = build_program(program)(*arrays.values())
        np.testing.assert_allclose(got, evaluate_program(program, arrays)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extent", ["50", "n"])
def test_which_points_are_sent_is_found_in_lanes(extent: str) -> None:
    """What is out of the borders of an image is not sent. Numbers that exist everywhere are one tensor for all four neighbours."""
    sends = [
        f"y{p}{q}: f32[7, 9] = scatter({{(i64(i32(floor(u[i]))) + {p}, i64(i32(floor(v[i]))) + {q}): h[i] * exp(u[i] - floor(v[i])) "
        f"for i in range({extent}) if i64(i32(floor(u[i]))) + {p} >= 0 and i64(i32(floor(u[i]))) + {p} < 7 "
        f"and i64(i32(floor(v[i]))) + {q} >= 0 and i64(i32(floor(v[i]))) + {q} < 9 and h[i] * exp(u[i]) > 0.5}})\n"
        for p in (0, 1)
        for q in (0, 1)
    ]
    inputs = f"{'sizes(n)' * (extent == 'n')}\n" + "".join(f"{name}: f32[{extent}] = input()\n" for name in "uvh")
    program = simplify(parse_program(f"{inputs}{''.join(sends)}return y00, y01, y10, y11\n"))
    found = with_sent_values(program)
    made = [d.name for d in found.definitions if isinstance(d, Define)]
    assert [name.split("_")[1] for name in made] == ["key", "key", *["kept", "sent"] * 4], print_program(found)
    rng = np.random.default_rng(0)
    for n in (50,) if extent == "50" else (0, 1, 7, 33, 300):
        arrays = {name: rng.uniform(-3, 12, n).astype(np.float32) for name in "uvh"}
        arrays["u"][:4] = np.array([np.nan, np.inf, -np.inf, 3e9])[:n]
        check(program, found, arrays)
        for got, want in zip(build_program(program)(*arrays.values()), evaluate_program(program, arrays).values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


KEPT = {
    "a guard": "y: f32[10] = scatter({minimum(maximum(i64(i32(x[i64(t[i])] * 4.0)), 0), 9): h[i] for i in range(50) "
    "if i64(t[i]) >= 0 and i64(t[i]) < 9})\nreturn y\n",
    "a choice": "y: f32[10] = scatter({where(i64(t[i]) >= 0 and i64(t[i]) < 9, minimum(maximum(i64(i32(x[i64(t[i])] * 4.0)), 0), 9), 0): "
    "h[i] for i in range(50)})\nreturn y\n",
    "a choice of numbers": "y: f32[10] = scatter({i64(i32(where(i64(t[i]) >= 0 and i64(t[i]) < 9, 4.0 * x[i64(t[i])], 0.0))): h[i] "
    "for i in range(50)})\nreturn y\n",
    "an empty axis": "y: f32[10] = scatter({minimum(maximum(i64(i32(x[i] * 4.0)), 0), 9): h[i + p] "
    "for i in range(m * 50) for p in range(m)})\nreturn y\n",
}


@pytest.mark.parametrize("name", KEPT)
def test_numbers_read_nothing_that_their_points_do_not_read(name: str) -> None:
    inputs = "x: f32[9] = input()\nt: i32[50] = input()\nh: f32[50] = input()\n"
    if name == "an empty axis":
        inputs = "sizes(m)\nx: f32[m * 50] = input()\nh: f32[m * 51] = input()\n"
    program = simplify(parse_program(inputs + KEPT[name]))
    found = with_sent_values(program)
    assert (found is program) == (name == "an empty axis"), print_program(found)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.uniform(0, 2.4, 9).astype(np.float32), "t": rng.integers(-5, 14, 50).astype(np.int32)}
    arrays["h"] = rng.standard_normal(50).astype(np.float32)
    if name == "an empty axis":
        arrays = {"x": rng.uniform(0, 2.4, 50).astype(np.float32), "h": rng.standard_normal(51).astype(np.float32)}
    check(program, found, arrays)
    (got,) = build_program(program)(*arrays.values())
    np.testing.assert_allclose(got, evaluate_program(program, arrays)["y"], rtol=1e-5, atol=1e-5)


def test_cheap_values_and_rows_are_sent_as_they_are() -> None:
    cheap = "x: f32[50] = input()\nt: i32[50] = input()\nz: f32[10] = scatter({i64(t[i]): x[i] * 2.0 for i in range(50)})\nreturn z\n"
    rows = (
        "x: f32[50, 9] = input()\nt: i32[50] = input()\n"
        "z: f32[10, 9] = scatter({(i64(t[i]), d): exp(x[i, d]) for i in range(50) for d in range(9)})\nreturn z\n"
    )
    for text in (cheap, rows):
        program = simplify(parse_program(text))
        assert with_sent_values(program) is program


CHOSEN = (
    "x: f32[60, 4] = input()\ny: f32[9, 4] = input()\nh: f32[60] = input()\n"
    "t[i]: i64[60] = argmin((x[i, 0] - y[j, 0]) * (x[i, 1] - y[j, 1]) for j in range(9))\n"
    "w[i, j]: f32[60, 9] = {value}\n"
    "a[i]: f32[60] = where({guard}, w[i, t[i]] * x[i, 2], 0.0)\n"
    "b: f32[9] = scatter({{t[i]: w[i, t[i]] * h[i] for i in range(60) if t[i] >= 0 and t[i] < 9}})\n"
    "{more}return a, b\n"
)
W, IN_RANGE = "where(t[i] == j, h[i] * exp(x[i, 0] - y[j, 0]), sin(x[i, 1]))", "t[i] >= 0 and t[i] < 9"


def test_a_tensor_that_is_read_at_one_place_of_each_row_is_made_there() -> None:
    program = parse_program(CHOSEN.format(value=W, guard=IN_RANGE, more=""))
    found = with_chosen_points(program)
    (made,) = [d for d in found.definitions if isinstance(d, Define) and d.name == "w_chosen"]
    assert [a.index for a in made.axes] == ["i"] and "w" not in found.types and "sin" not in print_program(simplify(found))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("x", (60, 4)), ("y", (9, 4)), ("h", (60,)))}
    check(program, found, arrays)


@pytest.mark.parametrize(
    ("value", "guard", "more"),
    [
        (W, IN_RANGE, "c[j]: f32[9] = w[3, j]\n"),
        (W, IN_RANGE, "c[i]: f32[60] = w[i, 3]\n"),
        (W, IN_RANGE, "c[j]: f32[9] = w[j, minimum(maximum(t[j], 0), 8)]\n"),
        (W, IN_RANGE, f"c[i, k]: f32[60, 60] = where(i == k and {IN_RANGE}, w[i, t[i]], 0.0)\n"),
        (W, "t[i] != 7", ""),
        (W, IN_RANGE, "c[i, k]: f32[60, 4] = where(i == 3 and t[k] >= 0 and t[k] < 9, w[k, t[k]] * x[i, k] + w[i, 1], 0.0)\n"),
        (W, IN_RANGE, "c[i, k]: f32[60, 60] = where(k == i + 1 and t[k] >= 0 and t[k] < 9, w[k, t[k]] * x[i, 0], 0.0)\n"),
        ("x[i, 0] * y[minimum(maximum(t[j] + t[i], 0), 8), 0]", IN_RANGE, ""),
    ],
)
def test_a_tensor_that_is_read_elsewhere_or_with_checks_stays(value: str, guard: str, more: str) -> None:
    program = parse_program(CHOSEN.format(value=value, guard=guard, more=more))
    assert with_chosen_points(program) is program


@pytest.mark.parametrize("block", range(4))
def test_random_programs_keep_their_values(block: int) -> None:
    for seed in share_of(range(91000 + 100 * block, 91000 + 100 * block + 30)):
        program = simplify(random_program(seed))
        found = with_sent_values(with_chosen_points(with_sums_by_key(program)))
        if found is not program:
            sizes = random_sizes(program, seed)
            inputs = random_inputs(program, seed, sizes=sizes)
            verify(found)
            expected = evaluate_program(program, inputs, sizes)
            for name, value in evaluate_program(found, inputs, sizes).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"seed {seed}: {name} of\n{print_program(found)}")


def test_places_of_a_program_are_looked_for_once(monkeypatch):
    """A chain in which nothing is chosen is gone through once, not once for each of its definitions."""
    lines = "".join(f"y{k + 1}[i, j]: f32[8, 8] = tanh(y{k}[j, i])\n" for k in range(6))
    program, looked = parse_program(f"y0: f32[8, 8] = input()\n{lines}return y6\n"), []
    real = chosen.places_read
    monkeypatch.setattr(chosen, "places_read", lambda given: looked.append(given) or real(given))
    assert with_chosen_points(program) is program
    assert len(looked) == 1
