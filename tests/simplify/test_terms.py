"""Costly terms become tensors where that pays, whatever the phrasing; every value and every check is kept."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import build_program
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.rewrite.passes import Pass
from tensorexpr.simplify import keep_terms, simplify
from tensorexpr.simplify.passes import terms
from tensorexpr.simplify.passes.terms import steps
from tensorexpr.text import print_program
from tensorexpr.verify import verify
from tests.codegen.programs import as_built
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of


def body(text: str) -> str:
    return "\n".join(line for line in print_program(simplify(parse_program(text))).splitlines() if "input()" not in line)


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("kept_by", [keep_terms, steps.keep_terms_of_steps])
def test_terms_keep_every_value_wherever_they_are_legal(kept_by: Pass, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "STORED", -1e9)
    monkeypatch.setattr(steps, "FUNCTION", 0)
    monkeypatch.setattr(terms, "LEAST", -1e9)
    monkeypatch.setattr(terms, "REPEATED", 0)
    for seed in share_of(range(21000 + 100 * block, 21000 + 100 * block + 40)):
        program = random_program(seed)
        kept = kept_by(program)
        text = f"seed {seed}\n{print_program(program)}\n-->\n{print_program(kept)}"
        verify(kept)
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        if kept is program:
            continue
        try:
            before = evaluate_program(program, inputs, sizes)
        except OutOfBoundsError:
            with pytest.raises(OutOfBoundsError):
                evaluate_program(kept, inputs, sizes)
            continue
        after = evaluate_program(kept, inputs, sizes)
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=f"{name} of {text}")


PRODUCT = "a: f32[256, 256] = input()\nb: f32[256, 256] = input()\n"


@pytest.mark.parametrize("written, kept", [("exp(a[i, k])", "exp(a[i, k])"), ("maximum(a[i, k], 0.0)", "maximum(a[i, k], 0.0)")])
def test_a_product_has_the_same_form_inline_and_named(written: str, kept: str) -> None:
    inline = f"{PRODUCT}c[i, j]: f32[256, 256] = sum({written} * b[k, j] for k in range(256))\nreturn c\n"
    named = f"{PRODUCT}t[i, k]: f32[256, 256] = {written}\nc[i, j]: f32[256, 256] = sum(t[i, k] * b[k, j] for k in range(256))\nreturn c\n"
    assert body(inline).splitlines()[0].endswith(f"= {kept}")
    name = body(inline).split("[")[0]
    assert body(inline).replace(name, "t") == body(named)


@pytest.mark.parametrize(
    "first, second, stored",
    [
        ("sum(x[i, k] for k in range(256)) * x[i, j]", "a[i, j] + 1.0", True),  # for each j again
        ("sum(x[i // 8, k] * x[j, k] for k in range(256))", "a[i, j] + 1.0", True),  # eight times as many points as elements
        ("sum(x[i, k] * x[j, k] for k in range(256)) + 1.0", "sum(x[i, k] * x[j, k] for k in range(256)) * a[i, j]", True),
        ("sum(x[i, k] * x[j, k] for k in range(256)) + 1.0", "sum(x[i, k] * y[j, k] for k in range(256)) * a[i, j]", False),
        ("sum(x[i, k] * x[j, k] for k in range(256)) + 1.0", "exp(sum(x[j, k] * x[i, k] for k in range(256)) * a[j, i])", True),
    ],
)
def test_a_sum_is_a_tensor_where_it_is_computed_again(first: str, second: str, stored: bool) -> None:
    inputs = "x: f32[256, 256] = input()\ny: f32[256, 256] = input()\n"
    made = f"a[i, j]: f32[256, 256] = {first}\nb[i, j]: f32[256, 256] = {second}\nreturn a, b\n"
    program = parse_program(inputs + made)
    assert (len(keep_terms(program).definitions) > 2) == stored


def test_a_term_of_several_definitions_is_one_tensor() -> None:
    assert body(
        "q: f32[n, 64] = input()\nv: f32[n, 64] = input()\n"
        "z[c]: f32[64] = sum(exp(q[j, c]) for j in range(n))\n"
        "s[c, d]: f32[64, 64] = sum(exp(q[i, c]) * v[i, d] for i in range(n))\n"
        "o[i, d]: f32[n, 64] = sum(exp(q[i, c]) * s[c, d] for c in range(64)) + exp(q[i, d])\n"
        "return z, o\n".replace("q:", "sizes(n)\nq:", 1)
    ).splitlines()[1:] == [
        "q_exp[j, c]: f32[n, 64] = exp(q[j, c])",
        "z[c]: f32[64] = sum(q_exp[j, c] for j in range(n))",
        "s[c, d]: f32[64, 64] = sum(q_exp[i, c] * v[i, d] for i in range(n))",
        "o[i, d]: f32[n, 64] = sum(q_exp[i, c] * s[c, d] for c in range(64)) + q_exp[i, d]",
        "return z, o",
    ]


def test_what_is_read_at_shifted_places_is_kept_whole() -> None:
    text = body(
        "x: f32[66, 66] = input()\nw: f32[64, 3, 3] = input()\n"
        "y[o, h, v]: f32[64, 64, 64] = sum(tanh(x[h + r, v + s]) * w[o, r, s] for r in range(3) for s in range(3))\nreturn y\n"
    )
    assert text.startswith("x_tanh[i, i_1]: f32[66, 66] = tanh(x[i, i_1])\n") and "x_tanh[h + r, v + s] * w[o, r, s]" in text


def test_pairs_of_few_points_are_kept_near() -> None:
    pairs = "exp((x[i] - x[j]) * (x[i] - x[j]))"
    text = f"x: f32[400] = input()\nv: f32[400, 8] = input()\ny[i, c]: f32[400, 8] = sum({pairs} * v[j, c] for j in range(400))\nreturn y\n"
    assert body(text).splitlines() == [
        f"x_exp[i, j]: f32[400, 400] = {pairs}",
        "y[i, c]: f32[400, 8] = sum(x_exp[i, j] * v[j, c] for j in range(400))",
        "return y",
    ]


@pytest.mark.parametrize(
    "text",
    [
        # pairs of points are far more than the points
        "x: f32[4096] = input()\nv: f32[4096, 8] = input()\n"
        "y[i, c]: f32[4096, 8] = sum(exp(-(x[i] - x[j]) * (x[i] - x[j])) * v[j, c] for j in range(4096))\nreturn y\n",
        # elementwise in its reader
        "x: f32[512, 512] = input()\ny[i]: f32[512] = sum(exp(x[i, j]) for j in range(512))\nreturn y\n",
        # the same in all turns of the reduction
        "x: f32[512] = input()\nv: f32[512, 512] = input()\ny[i]: f32[512] = sum(exp(x[i]) * v[i, j] for j in range(512))\nreturn y\n",
        # to be computed again
        f"{PRODUCT}c[i, j]: f32[256, 256] = sum(recompute(exp(a[i, k])) * b[k, j] for k in range(256))\nreturn c\n",
        # too little to matter
        "a: f32[4, 4] = input()\nb: f32[4, 4] = input()\nc[i, j]: f32[4, 4] = sum(exp(a[i, k]) * b[k, j] for k in range(4))\nreturn c\n",
        # an element that is not certain to be there is read only where it is now
        f"{PRODUCT}c[i, j]: f32[256, 256] = sum(exp(a[i, k] - a[i, k + 1]) * b[k, j] for k in range(256) if k < j)\nreturn c\n",
    ],
)
def test_what_is_not_worth_a_tensor_or_may_not_be_one_stays(text: str) -> None:
    program = parse_program(text)
    assert keep_terms(program) is program


def test_a_read_that_a_condition_guards_does_not_place_the_term() -> None:
    program = parse_program(
        f"{PRODUCT}c[i, j]: f32[256, 256] = sum(where(k > 0, exp(a[i, k - 1]), 1.0) * b[k, j] for k in range(256))\nreturn c\n"
    )
    kept = keep_terms(program)
    assert "sum(a_where[i, k] * b[k, j] for k in range(256))" in print_program(kept)
    rng = np.random.default_rng(3)
    inputs = {name: rng.standard_normal((256, 256)).astype(np.float32) for name in "ab"}
    np.testing.assert_array_equal(build_program(program, single=True)(*inputs.values()), build_program(kept, single=True)(*inputs.values()))


def test_a_reduction_in_loops_that_it_does_not_depend_on_has_the_same_form_inline_and_named() -> None:
    inputs = "x: f32[32, 40, 512] = input()\n"
    mean = "sum(x[a, c, b] for a in range(32) for b in range(512)) / 16384.0"
    inline = f"{inputs}y[n, c, w]: f32[32, 40, 512] = x[n, c, w] - {mean}\nz[c]: f32[40] = {mean} * 0.1\nreturn y, z\n"
    named = f"{inputs}m[c]: f32[40] = {mean}\ny[n, c, w]: f32[32, 40, 512] = x[n, c, w] - m[c]\nz[c]: f32[40] = m[c] * 0.1\nreturn y, z\n"
    name = body(inline).split("[")[0]
    assert body(inline).replace(name, "m") == body(named)


def test_sums_in_loops_that_they_do_not_depend_on_are_made_once() -> None:
    columns = "x: f32[500, 300] = input()\ny[i, j]: f32[500, 300] = x[i, j] / sum(x[k, j] for k in range(500))\nreturn y\n"
    assert body(columns).startswith("x_sum[j]: f32[300] = sum(x[k, j] for k in range(500))\n")
    rows = "x: f32[500, 300] = input()\ny[i, j]: f32[500, 300] = x[i, j] / sum(x[i, k] for k in range(300))\nreturn y\n"
    assert body(rows).startswith("x_sum[i]: f32[500] = sum(x[i, k] for k in range(300))\n")
    short = "x: f32[50000, 3] = input()\ny[i, j]: f32[50000, 3] = x[i, j] / sum(x[i, k] for k in range(3))\nreturn y\n"
    assert body(short).startswith("y[i, j]")


def test_a_sum_for_a_single_place_is_one_element() -> None:
    """Gradients of literal subscripts have a piece for each."""
    text = body(
        "x: f32[65536] = input()\n"
        "y[p]: f32[64] = where(p == 3, sum(exp(x[i]) for i in range(65536)), 0.0) + where(p == 5, sum(x[i] for i in range(65536)), 0.0)\n"
        "return y\n"
    )
    assert text.startswith("x_sum: f32 = sum(exp(x[i]) for i in range(65536))\nx_sum_1: f32 = sum(x[i] for i in range(65536))\n")
    assert "where(p == 3, x_sum[()], 0.0)" in text and "where(p == 5, x_sum_1[()], 0.0)" in text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("minimum(maximum(t[i], 0), 99)", "x[i, k] * x[i, minimum(maximum(t[i], 0), 99)]"),
        ("t[i]", None),  # a read at what is out of bounds would be an error where there is none
    ],
)
def test_a_sum_at_the_place_that_data_says_is_made_for_that_place(given: str, kept: str | None) -> None:
    text = body(
        "x: f32[300, 100] = input()\nt: i64[300] = input()\n"
        f"y[i, j]: f32[300, 100] = where({given} == j, sum(x[i, k] * exp(x[i, k] * x[i, j]) for k in range(100)), 0.0)\nreturn y\n"
    )
    assert kept in text if kept is not None else "x[i, k] * x[i, j]" in text
    assert (text.splitlines()[0].split("[")[0] == "y") == (kept is None)


def test_a_reduction_that_two_definitions_need_is_made_once() -> None:
    both = (
        "x: f32[500, 300] = input()\ny[i, j]: f32[500, 300] = x[i, j] / exp(sum(x[i, k] for k in range(300)))\n"
        "z[i]: f32[500] = tanh(exp(sum(x[i, k] for k in range(300))))\nreturn y, z\n"
    )
    assert body(both).count("sum(") == 1


def test_a_sum_inside_a_sum_is_made_once_where_another_definition_needs_it() -> None:
    w, c = te.placeholder((500, 200), name="w"), te.placeholder((200, 200), name="c")
    risk = te.compute((500,), lambda p: te.sum(lambda i, j: w[p, i] * c[i, j] * w[p, j], (200, 200)), name="risk")
    inner = te.compute((500, 200), lambda p, j: te.exp(te.sum(lambda i: w[p, i] * c[i, j], 200)), name="inner")
    text = print_program(as_built([risk, inner]))
    assert "w_sum[p, j]: f32[500, 200] = sum(w[p, i] * c[i, j] for i in range(200))\n" in text
    assert text.count("sum(") == 2, text  # the tensor, and the risk


def test_sums_with_a_common_factor_are_one_sum() -> None:
    w, c = te.placeholder((500, 200), name="w"), te.placeholder((200, 200), name="c")
    risk = te.compute((500,), lambda p: te.sum(lambda i, j: w[p, i] * c[i, j] * w[p, j], (200, 200)), name="risk")
    text = print_program(as_built(list(te.gradient(risk, [w], te.placeholder((500,), name="head")))))
    assert "w_bar[p, j]: f32[500, 200] = head[p] * sum(w[p, i] * c_add[i, j] for i in range(200))\n" in text, text
    assert text.count("sum(") == 1, text


def test_products_are_one_term_in_either_order_of_their_factors() -> None:
    both = (
        "x: f32[500, 300] = input()\nz: f32[500, 300] = input()\n"
        "y[i, j]: f32[500, 300] = x[i, j] / exp(sum(x[i, k] * z[i, k] for k in range(300)))\n"
        "v[i, j]: f32[500, 300] = z[i, j] * tanh(sum(z[i, k] * x[i, k] for k in range(300)))\nreturn y, v\n"
    )
    assert body(both).count("sum(") == 1


def test_sums_of_components_go_into_the_sum_that_reads_them_once() -> None:
    kernel = (
        "x: f32[500, {0}] = input()\nz: f32[300, {0}] = input()\n"
        "k[i, j]: f32[500, 300] = exp(-sum((x[i, e] - z[j, e]) * (x[i, e] - z[j, e]) for e in range({0})))\n"
    )
    once = f"{kernel}y[i]: f32[500] = sum(k[i, j] for j in range(300))\nreturn y\n"
    assert body(once.format(3)).startswith("y[i]: f32[500] = sum(exp(-sum(")
    assert body(once.format(60)).startswith("k[i, j]")  # a product of its own
    twice = f"{kernel}y[i]: f32[500] = sum(k[i, j] for j in range(300))\nv[j]: f32[300] = sum(k[i, j] for i in range(500))\nreturn y, v\n"
    assert body(twice.format(3)).startswith("k[i, j]")


def test_the_class_of_a_point_is_found_without_a_loop_also_under_a_minus() -> None:
    text = (
        "h: f32[40] = input()\nt: i32[40] = input()\ny[i]: f32[40] = sum(-where(i64(t[i]) == j, h[i], 0.0) for j in range(500))\nreturn y\n"
    )
    program = parse_program(text)
    assert "sum(" not in body(text) and "-h[i]" in body(text)
    inputs = {"h": np.float32([0.0, -0.0, np.nan, np.inf] * 10), "t": np.arange(-5, 35, dtype=np.int32) * 20}
    np.testing.assert_array_equal(evaluate_program(simplify(program), inputs)["y"], evaluate_program(program, inputs)["y"])


def test_factors_leave_sums_also_where_they_were_written_elsewhere() -> None:
    x, y = te.placeholder((400, 256), name="x"), te.placeholder((400, 256), name="y")
    norms = [te.compute((400,), lambda i, a=a: te.sqrt(te.sum(lambda k: a[i, k] * a[i, k], 256) + 1e-8)) for a in (x, y)]
    u, v = (te.compute((400, 256), lambda i, k, a=a, n=n: a[i, k] / n[i]) for a, n in zip((x, y), norms, strict=True))
    cosine = te.compute((400,), lambda i: te.sum(lambda k: u[i, k] * v[i, k], 256), name="cosine")
    assert "cosine[i]: f32[400] = sum(x[i, k] * y[i, k] for k in range(256)) / " in print_program(as_built(cosine, [x, y]))


def test_windows_that_are_written_where_they_are_read_are_not_made_terms_again() -> None:
    # Large inputs elsewhere leave room for a tensor of windows, which inlining takes away: rounds that undo each other went on to the last.
    program = parse_program(
        "x: f32[128, 28, 28] = input()\nw: f32[128, 128, 3, 3] = input()\nz: f32[1000000] = input()\n"
        "t[i]: f32[1000000] = z[i] + 1.0\n"
        "y[k, i, j]: f32[128, 28, 28] = sum(w[k, c, r, s] * where(i + r >= 1 and i + r < 29 and j + s >= 1 and j + s < 29, "
        "x[c, i + r - 1, j + s - 1], 0.0) for c in range(128) for r in range(3) for s in range(3))\nreturn t, y\n"
    )
    once = simplify(program)
    assert simplify(once) is once


def test_a_function_of_fewer_indices_than_lie_along_rows_is_computed_once() -> None:
    program = parse_program(
        "x: f32[64, 96] = input()\na: f32[64] = input()\nb: f32[96] = input()\n"
        "y[i, j]: f32[64, 96] = exp(x[i, j]) * exp(a[i]) * exp(b[j])\nreturn y\n"
    )
    found = simplify(program)
    assert "exp(x[i, j]) * exp(a[i]) * b_exp[j]" in print_program(found)  # what is the same along a row leaves its loop by itself
    inputs = random_inputs(program, 3)
    np.testing.assert_array_equal(evaluate_program(found, inputs)["y"], evaluate_program(program, inputs)["y"])


@pytest.mark.parametrize("value", ["tanh(v[i])", "tanh(v[j])", "tanh(v[3])"])
def test_a_broadcast_that_is_stored_is_what_it_repeats(value: str) -> None:
    program = parse_program(
        f"x: f32[40, 40] = input()\nv: f32[40] = input()\nb[i, j]: f32[40, 40] = {value}\n"
        "s[i]: f32[40] = sum(x[i, j] * b[i, j] for j in range(40))\nm[j]: f32[40] = max(x[i, j] * b[i, j] for i in range(40))\n"
        "y[i, j]: f32[40, 40] = x[i, j] / b[i, j] + s[i] + m[j]\nreturn y\n"
    )
    found = simplify(program)
    assert all(len(d.axes) < 2 for d in found.definitions if d.name != "y")
    inputs = random_inputs(program, 3)
    np.testing.assert_array_equal(evaluate_program(found, inputs)["y"], evaluate_program(program, inputs)["y"])


def test_terms_of_steps_that_depend_on_no_state_are_computed_before() -> None:
    """What is the same for other indices, in all steps, or both; `exp(c[t, i])` once for each of its elements stays where it is read."""
    lines = body(
        "k: f32[256] = input()\nc: f32[100, 200] = input()\nw: f32[200, 16] = input()\nv: f32[200] = input()\n"
        "z[b, i]: f32[256, 200] = 0.0\n"
        "for t in range(100):\n"
        "    s: f32[256, 200] = state(z)\n"
        "    r[b, i]: f32[256, 200] = s[b, i] + exp(c[t, i]) + k[b] * sum(tanh(w[i, j]) for j in range(16)) + s[b, i] * exp(v[i])\n"
        "    y[t] = s = r\n"
        "return y\n"
    ).splitlines()
    assert lines[1:] == [
        "c_exp[t, i]: f32[100, 200] = exp(c[t, i])",
        "w_sum[i]: f32[200] = sum(tanh(w[i, j]) for j in range(16))",
        "v_exp[i]: f32[200] = exp(v[i])",
        "for t in range(100):",
        "    s: f32[256, 200] = state(z)",
        "    r[b, i]: f32[256, 200] = s[b, i] + c_exp[t, i] + k[b] * w_sum[i] + s[b, i] * v_exp[i]",
        "    y[t] = s = r",
        "return y",
    ]
    text = (
        "c: f32[100, 200] = input()\nz[i]: f32[200] = 0.0\n"
        "for t in range(100):\n    s: f32[200] = state(z)\n    r[i]: f32[200] = s[i] + exp(c[t, i])\n    y[t] = s = r\nreturn y\n"
    )
    program = parse_program(text)
    assert steps.keep_terms_of_steps(program) is program
