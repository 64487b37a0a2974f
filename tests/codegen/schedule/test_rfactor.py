"""The primitive `rfactor`: partial results along a loop of a reduction, and what it refuses."""

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, loops, plain

TOTAL = """
x: f32[100] = input()
S: f32 = sum(x[k] * x[k] for k in range(100))
return S
"""
COLUMNS = """
y: f16[100, 6] = input()
b[j]: f16[6] = sum(y[i, j] for i in range(100)) + f16(1.0)
return b
"""
BEST = """
x: f32[6, 7] = input()
M[i]: i64[6] = argmax(x[i, k] for k in range(7) if x[i, k] < 3.0)
P: i64 = argmin(x[i, k] for i in range(6) for k in range(2, 7))
return M, P
"""
WORDS = """
x: i64[11] = input()
y: i64[11] = input()
a: i64 = reduce(lambda a, b, c, d: (a * c, b * c + d), (i64(1), i64(0)), ((x[k], y[k]) for k in range(11)), name='affine')[0]
b: i64 = reduce(lambda a, b, c, d: (a * c, b * c + d), (i64(1), i64(0)), ((x[k], y[k]) for k in range(11)), name='affine')[1]
return a, b
"""
TOGETHER = """
x: f32[4, 32] = input()
v[i]: f32[4] = sum(x[i, k] * x[i, k] for k in range(32)) - sum(x[i, k] for k in range(32)) * sum(x[i, k] for k in range(32))
return v
"""
GUARDED = """
x: f32[9] = input()
S[i]: f32[12] = where(i < 9, sum(x[i] * x[k] for k in range(9)), 0.0)
return S
"""
SIZES = """
sizes(n)
x: f32[n] = input()
S: f32 = sum(x[k] for k in range(n))
M: i64 = argmax(x[k] for k in range(n))
return S, M
"""
SHIFTED = """
x: f32[3, 40] = input()
S[i]: f32[3] = where(isinf(max(x[i, k] for k in range(40))), 0.0, max(x[i, k] for k in range(40)))
return S
"""
RAGGED = """
sizes(n)
x: f32[n, n, n] = input()
S: f32 = sum(x[k, j, i] for k in range(n) for j in range(k) for i in range(j // 2, n - k))
R[r]: f32[n] = sum(x[r, j, i] for j in range(r + 1) for i in range(r - j, n) if i + j < n)
M[r]: f32[n] = sum(x[r, j, i] for j in range(n - r % 3) for i in range((j + r) % 4 - n % 2, n) if i >= 0)
return S, R, M
"""
CHECKED = """
x: f32[9] = input()
ids: i64[12] = input()
S: f32 = sum(x[ids[k]] for k in range(12))
return S
"""


def test_bounds_that_were_widened_are_conditions_of_the_parts():
    """A loop whose bounds leave out few points has constant ones; what they said holds in the parts, too."""
    s = plain("""
x: f32[20] = input()
y[p]: f32[4] = sum(x[p + q * 6 - 3] for q in range(-((p - 3) // 6), 4))
return y
""")
    assert s["y"].loops == ("p", "q")
    assert s["y"].rfactor("q") == ("y_parts",)
    assert_means(s)


@pytest.mark.parametrize("factor", [2, 3, 64])
@pytest.mark.parametrize("loop", ["k", "q"])
@pytest.mark.parametrize("combiners", [("sum", "sum"), ("prod", "sum"), ("max", "sum")])
def test_a_sum_whose_condition_bounds_it_says_nothing_of_one_beside_it(combiners, loop, factor):
    """Both are written over as many points: the condition of the first is a bound of its loop alone."""
    s = plain(f"""
sizes(n)
x: f32[n] = input()
z: f32[3] = input()
y[i, j]: f32[9, 3] = {combiners[0]}(x[k] for k in range(i + 1) if k < n) * {combiners[1]}(z[j] for q in range(i + 1))
return y
""")
    s["y"].rfactor(s["y"].split(loop, factor)[0])
    for n in (1, 2, 5, 9, 11):
        assert_means(s, n=n)


def test_parts_are_a_definition_with_loops_of_its_own():
    s = plain(TOTAL)
    outer, _ = s["S"].split("k", 16)
    assert s["S"].rfactor(outer) == ("S_parts",)
    assert s.stages == ("S_parts", "S")
    s["S_parts"].parallel("k_o")
    text = str(s.state.program)
    assert "S_parts[k_o]: f32[7] = sum(x[k_o * 16 + k_i] * x[k_o * 16 + k_i] for k_i in range(minimum(16, 100 - k_o * 16)))" in text
    assert "S: f32 = sum(S_parts[k_o] for k_o in range(7))" in text
    assert loops(assert_means(s))[0] == ("k_o", "parallel")


@pytest.mark.parametrize("factor", [1, 4, 7, 100, 128])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("tail", ["peel", "guard", "stride"])
def test_either_loop_of_a_split_and_any_tail(factor, which, tail):
    s = plain(TOTAL)
    s["S"].rfactor(s["S"].split("k", factor, tail)[which])
    assert_means(s)


@pytest.mark.parametrize("factor", [2, 7, 16, 25, 99, 100])
def test_even_parts_add_each_point_once(factor):
    s = plain(TOTAL)
    s["S"].rfactor(s["S"].split("k", factor)[0], even=True)
    assert f"for k_i in range({factor})" in str(s.state.program)
    assert_means(s)


def test_even_parts_are_blocks_of_sums():
    for text, stage, block in ((TOTAL, "S", 128), (TOTAL, "S", 1), (BEST, "M", 2)):
        s = plain(text)
        loop = s[stage].loops[-1]
        with pytest.raises(ScheduleError, match="expected a sum over blocks of at most all its points for even parts, got k"):
            s[stage].rfactor(s[stage].split(loop, block)[0] if block > 1 else loop, even=True)


def test_a_whole_axis_of_a_reduction_over_two():
    s = plain("x: f32[5, 6, 7] = input()\nS[j]: f32[6] = sum(x[i, j, k] for i in range(5) for k in range(7))\nreturn S")
    s["S"].rfactor("i")
    assert "S_parts[i, j]: f32[5, 6] = sum(x[i, j, k] for k in range(7))" in str(s.state.program)
    assert_means(s)


def test_sums_of_short_floats_keep_their_parts_in_float32():
    s = plain(COLUMNS)
    s["b"].rfactor(s["b"].split("i", 16)[0])
    assert "b_parts[i_o, j]: f32[7, 6]" in str(s.state.program)
    assert_means(s)


@pytest.mark.parametrize("row", [[3, 7, 1, 7, 0, 7, 7], [np.nan, 1, np.nan, 2, 0, 1, 1], [-np.inf] * 7, [5] * 7])
def test_the_first_winner_is_kept(row):
    x = np.tile(np.array(row, np.float32), (6, 1))
    s = plain(BEST)
    s["M"].rfactor(s["M"].split("k", 2)[0])
    s["P"].rfactor(s["P"].split("i", 4)[0])
    assert_means(s, inputs={"x": x})


def test_a_users_combiner_keeps_the_order_of_parts():
    s = plain(WORDS)
    for name in "ab":
        s[name].rfactor(s[name].split("k", 4)[0])
    assert s.stages == ("a_parts", "a_parts_1", "a", "b_parts", "b_parts_1", "b")
    rng = np.random.default_rng(0)
    assert_means(s, inputs={"x": rng.integers(-2, 3, 11), "y": rng.integers(-3, 4, 11)})


def test_reductions_in_the_same_loops_are_taken_apart_together():
    s = plain(TOGETHER)
    assert s["v"].rfactor(s["v"].split("k", 8)[0]) == ("v_parts", "v_parts_1")
    assert s["v"].loops == ("i", "k_o")
    assert_means(s)


def test_conditions_around_a_reduction_go_with_its_parts():
    s = plain(GUARDED)
    s["S"].rfactor(s["S"].split("k", 4)[0])
    assert_means(s)


def test_parts_do_not_ask_for_results_of_reductions():
    """The conditions of a reduction may be others over the same points: each part would run through all of them."""
    s = plain(SHIFTED)
    assert s["S"].rfactor(s["S"].split("k", 8)[0]) == ("S_parts",)
    assert "S_parts[k_o, i]: f32[5, 3] = max(x[i, k_o * 8 + k_i] for k_i in range(8))" in str(s.state.program)
    x = np.linspace(-3, 3, 120, dtype=np.float32).reshape(3, 40)
    x[1, 7], x[2] = np.inf, -np.inf
    assert_means(s, inputs={"x": x})


def test_sizes_known_only_at_run_time():
    for n in (0, 1, 7, 8, 9, 30):
        s = plain(SIZES)
        for name in "SM":
            s[name].rfactor(s[name].split("k", 8)[0])
        assert_means(s, n=n)


@pytest.mark.parametrize("factor", [1, 3, 8])
@pytest.mark.parametrize(("name", "axis"), [("S", "k"), ("S", "j"), ("S", "i"), ("R", "j"), ("R", "i"), ("M", "j"), ("M", "i")])
def test_bounds_that_depend_on_other_axes_are_cut_over_all_that_they_ever_hold(name, axis, factor):
    s = plain(RAGGED)
    s[name].rfactor(axis if factor == 1 else s[name].split(axis, factor)[0])
    assert not [f for f in prove(lower(s)).findings if f.refuted]
    for n in (0, 1, 2, 7, 11):
        assert_means(s, n=n)


def test_reads_that_are_checked_still_are():
    s = plain(CHECKED)
    s["S"].rfactor(s["S"].split("k", 5)[0])
    x = np.arange(9, dtype=np.float32)
    assert_means(s, inputs={"x": x, "ids": np.array([0, 8, 3] * 4)})
    with pytest.raises(OutOfBoundsError):
        assert_means(s, inputs={"x": x, "ids": np.array([0, 8, 9] * 4)})


def test_python_text_rebuilds_it():
    s = plain(TOTAL)
    s["S"].rfactor(s["S"].split("k", 16)[0])
    s["S_parts"].split("k_i", 8)
    again = schedule(parse_program(TOTAL), WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (TOTAL, "s['S'].rfactor('q')", "expected a loop of S, got 'q'"),
        (COLUMNS, "s['b'].rfactor('j')", "expected a loop of a reduction to keep a partial result for each iteration, got the data loop j"),
        (COLUMNS, "s['b'].vectorize('j'); s['b'].rfactor('i')", "expected plain loops of b but for one split of i, got changed ones"),
        (BEST, "s['P'].rfactor('k')", "expected the outermost loop of argmin, which depends on the order of its points, got k"),
        (BEST, "s['M'].split('k', 2); s['M'].rfactor('k_i')",
         "expected the outermost loop of argmax, which depends on the order of its points, got k_i"),
        ("x: f32[4, 4] = input()\nn: i64[4] = input()\nS[i]: f32[4] = sum(x[i, k] for k in range(minimum(n[i], 4)))\nreturn S",
         "s['S'].rfactor('k')",
         "expected bounds of k that are known before the loops run to take k apart, got ones that are not"),
        ("x: f32[4, 4] = input()\nS: i64 = argmax(x[i, k] for i in range(4) for k in range(i, 4))\nreturn S", "s['S'].rfactor('i')",
         "expected bounds of k that are known before the loops run to take i apart, got ones that are not"),
        ("x: f32[4, 4] = input()\nS: f32 = max(sum(x[i, k] for k in range(4)) for i in range(4))\nreturn S", "s['S'].rfactor('k')",
         "expected a reduction of S itself over k, got one inside another"),
        (CHECKED.replace("sum(x[ids[k]] for k in range(12))",
         "where(any(x[i] > 0.0 for i in range(9)), sum(x[ids[k]] for k in range(12)), 0.0)"),
         "s['S'].rfactor('k')", "expected reads in bounds whatever other reductions give to take k apart, got one that depends"),
        ("h0: f32[4] = input()\nfor t in range(3):\n    h: f32[4] = state(h0)\n    g[i]: f32[4] = sum(h[k] for k in range(4))\n"
         "    H[t] = h = g\nreturn H",
         "s['g'].rfactor('k')", "expected a plain definition or a scatter outside of scans to take apart, got g"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    s = plain(text)
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)
