"""Every construct of the language as loops: what runs, how often, and what is never touched."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Check, For, If, Store
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.tiles import parts as auto_parts
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.integers import Domain
from tensorexpr.ir import Define, Reduce
from tensorexpr.parse import parse_program
from tensorexpr.regions import domain_of
from tensorexpr.traversal import walk
from tests.codegen.programs import WIDE, assert_means, loops, plain, statements, tile, visits
from tests.random_programs import random_inputs


def both(text: str, seed: int = 0, exact: bool = True, **sizes: int) -> str:
    """Checks plain and default schedule against the interpreter; gives the plain listing."""
    assert_means(autoschedule(parse_program(text), WIDE), seed, exact=exact, **sizes)
    return str(assert_means(plain(text), seed, exact=exact, **sizes))


def test_a_reduction_runs_at_the_outermost_loop_where_its_indices_are_bound():
    nest = plain(
        "A: f32[3, 4] = input()\nY[i, j]: f32[3, 4] = A[i, j] - sum(A[i, k] for k in range(4)) - sum(A[l, 0] for l in range(3))\nreturn Y"
    )
    assert [x for x, _ in loops(lower(nest))] == ["l", "i", "k", "j"]


def test_equal_reductions_are_computed_once():
    text = "A: f32[3, 4] = input()\nY[i]: f32[3] = sum(A[i, k] for k in range(4)) * sum(A[i, q] for q in range(4))\nreturn Y"
    assert both(text).count("for") == 2


def test_a_reduction_that_is_shared_under_another_guard_takes_along_what_it_needs():
    """The sums stand outside of the loop over one point, each under its guard: for the second use they must be there, too."""
    inner = "prod(where(X[0] > 0, sum(X[k] * 2 for k in range(3)), sum(X[k] * 3 for k in range(3))) for p in range(1))"
    text = f"X: i64[3] = input()\nC[i]: i64[4] = where(i > 1, {inner}, 0) + {inner} * i\nreturn C"
    for first in (-1, 1):
        listing = str(assert_means(plain(text), inputs={"X": np.array([first, 2, 3])}))
        assert "C_sum_1: " in listing and "C_sum_2: " not in listing and "C_prod_1: " not in listing  # computed once


def test_reductions_over_the_same_points_share_a_loop():
    text = "A: f32[3, 4] = input()\nY[i]: f32[3] = max(A[i, k] for k in range(4)) + f32(argmax(A[i, k] for k in range(4)))\nreturn Y"
    assert both(text).count("for") == 2
    text = """
X: f32[6, 9] = input()
V[i]: f32[6] = (
    reduce(lambda a, m, b, n: (a + b, m + n), (f32(0.0), f32(0.0)), ((X[i, k], X[i, k] * X[i, k]) for k in range(9)))[0]
    * reduce(lambda a, m, b, n: (a + b, m + n), (f32(0.0), f32(0.0)), ((X[i, k], X[i, k] * X[i, k]) for k in range(9)))[1]
)
return V
"""
    assert both(text).count("for") == 2


def test_a_reduction_inside_another_leaves_loops_it_does_not_depend_on():
    text = "A: f32[3, 4] = input()\nY[i]: f32[3] = sum(exp(A[i, k] - max(A[i, l] for l in range(4))) for k in range(4))\nreturn Y"
    assert [x for x, _ in loops(lower(plain(text)))] == ["i", "l", "k"]
    both(text, exact=False)


def test_a_branch_that_is_not_taken_is_not_evaluated():
    text = (
        "A: f32[5] = input()\n"
        "n: i64 = input()\n"
        "Y[i]: f32[5] = where(i < n[()], sum(A[i - 1 + k] for k in range(i, 2) if i >= 1), 0.0)\n"
        "return Y"
    )
    for n in range(4):
        data = {"A": np.arange(5, dtype=np.float32), "n": np.array(n)}
        assert_means(plain(text), inputs=data)
        assert_means(autoschedule(parse_program(text), WIDE), inputs=data)


def test_a_condition_on_the_outer_index_stands_outside_of_the_inner_loop():
    listing = both("A: f32[4, 6] = input()\nY[i, j]: f32[4, 6] = where(i >= 1, A[i - 1, j], 0.0)\nreturn Y")
    assert listing.index("if i >= 1") < listing.index("for j")


def test_affine_guards_of_a_reduction_become_bounds():
    listing = both("A: f32[9, 9] = input()\nY[i]: f32[9] = sum(A[i, k] for k in range(9) if 2 * k <= i and k >= i - 3)\nreturn Y")
    assert "range(maximum(0, i - 3), minimum(9, i // 2 + 1))" in listing and "if" not in listing


GRADIENT = """
h: f32[2, 5] = input()
w: f32[3] = input()
G[b, q]: f32[2, 11] = sum(h[b, z] * w[q - 2 * z] for z in range(maximum(0, -((2 - q) // 2)), minimum(5, q // 2 + 1)))
return G
"""


@pytest.mark.parametrize("text", [
    GRADIENT,
    "A: f32[7, 7] = input()\nY[i]: f32[7] = sum(A[i, k] * A[k, l] for k in range(i + 1) for l in range(k, 7) if k + l <= 9)\nreturn Y",
    "A: f32[8] = input()\nY[i]: f32[8] = sum(A[k] for k in range(8) if 3 * k == i)\nreturn Y",
])  # fmt: skip
def test_plain_loops_visit_exactly_the_points_of_the_domain(text):
    program = parse_program(text)
    (definition,) = program.definitions
    assert isinstance(definition, Define)
    (reduction,) = (n for n in walk(definition.value) if isinstance(n, Reduce))
    guards = () if reduction.where is None else (reduction.where,)
    domain: Domain = domain_of((*definition.axes, *reduction.axes), guards).domain
    nest = lower(schedule(program, WIDE))
    found = visits(nest, random_inputs(program, 0))
    assert found[reduction.axes[-1].index] == domain.count()


def test_sixteen_bit_sums_are_carried_in_single_precision():
    for dtype in ("f16", "bf16"):
        listing = both(f"A: {dtype}[300] = input()\nS: {dtype} = sum(A[k] * {dtype}(0.5) for k in range(300))\nreturn S")
        assert "S_sum: local(f32[()])" in listing


@pytest.mark.parametrize("word", ["max", "min", "argmax", "argmin"])
def test_nan_propagates_through_extrema(word):
    kind = "i64" if word.startswith("arg") else "f32"
    text = f"A: f32[4, 37] = input()\nY[i]: {kind}[4] = {word}(A[i, k] for k in range(37))\nreturn Y"
    data = np.random.default_rng(0).integers(-3, 3, (4, 37)).astype(np.float32)
    data[1, 5] = data[1, 20] = np.nan
    data[2] = np.inf
    data[3] = -np.inf
    for s in (plain(text), autoschedule(parse_program(text), WIDE)):
        assert_means(s, inputs={"A": data})


def test_the_winner_of_a_triangle_is_numbered_by_its_points():
    both("A: f32[5, 5] = input()\nY[i]: i64[5] = argmax(A[k, l] for k in range(i + 1) for l in range(k, 5) if (k + l) % 2 == 0)\nreturn Y")


def test_a_winner_over_nothing_is_zero():
    both("A: f32[5] = input()\nY[i]: i64[5] = argmax(A[k] for k in range(i))\nreturn Y")


def test_reductions_over_nothing_give_their_identity():
    text = "A: f32[4, 4] = input()\nY[i]: f32[4] = {}(A[i, k] for k in range(i))\nreturn Y"
    for word in ("sum", "prod", "max", "min"):
        both(text.format(word))


def test_data_dependent_bounds():
    text = "A: f32[6] = input()\nn: i64[3] = input()\nY[i]: f32[3] = sum(A[k] for k in range(minimum(maximum(n[i], 0), 6)))\nreturn Y"
    data = {"A": np.arange(6, dtype=np.float32), "n": np.array([0, 4, 9])}
    assert_means(plain(text), inputs=data)
    assert_means(autoschedule(parse_program(text), WIDE), inputs=data)


def test_scatter_starts_from_the_identity_and_adds_in_order():
    text = """
V: f32[8, 4] = input()
pick3_i: i64[8] = input()
Y: f32[3, 4] = scatter({(pick3_i[t], d): V[t, d] for t in range(8) for d in range(4) if t != 2}, combine="max")
return Y
"""
    assert "Y[x0, x1] = -inf" in both(text)


def test_a_sixteen_bit_scatter_is_carried_in_single_precision():
    text = "V: f16[8] = input()\npick3_i: i64[8] = input()\nY: f16[3] = scatter({pick3_i[t]: V[t] for t in range(8)})\nreturn Y"
    assert "Y_wide: workspace(f32[3])" in both(text)


def test_loops_of_a_scatter_run_in_parallel_where_their_elements_differ():
    text = (
        "V: f32[64, 400] = input()\n"
        "pick3_i: i64[400] = input()\n"
        "Y: f32[64, 3] = scatter({(t, pick3_i[d]): V[t, d] for t in range(64) for d in range(400)})\n"
        "return Y"
    )
    assert ("t", "parallel") in loops(lower(autoschedule(parse_program(text), WIDE)))


def test_a_scan_reads_its_start_and_then_the_entry_before():
    text = """
X: f32[5, 4] = input()
h0: f32[4] = input()
for t in range(5):
    h: f32[4] = state(h0)
    g[i]: f32[4] = h[i] * 2.0 + X[t, i] - sum(h[k] for k in range(4))
    H[t] = h = g
return H
"""
    listing = both(text)
    assert "h0[i]" in listing and "H[t - 1, i]" in listing and "for t in range(1, 5)" in listing


def test_states_may_be_swapped_and_lengths_may_be_sizes():
    text = """
sizes(n)
a0: f32[2] = input()
b0: f32[2] = input()
X: f32[n] = input()
for t in range(n):
    a: f32[2] = state(a0)
    b: f32[2] = state(b0)
    c[i]: f32[2] = a[i] + b[i] + X[t]
    P[t] = a = b
    Q[t] = b = c
return P, Q
"""
    for n in (0, 1, 4):
        both(text, n=n)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_symbolic_and_zero_extents(n, monkeypatch):
    monkeypatch.setattr(auto_parts, "LEAST_WORK", 4)  # parts of few points: several here, and quick in the interpreter of nests
    both(
        "sizes(n)\nA: f32[n, 3] = input()\nY[i]: f32[n] = sum(A[i, k] for k in range(3))\n"
        "Z: f32 = sum(A[i, 0] for i in range(n))\nreturn Y, Z",
        n=n,
    )
    both("sizes(n)\nA: f32[n] = input()\nY[i, j]: f32[2, n] = A[n - 1] * 2.0 + A[j]\nreturn Y", n=n)


def test_outputs_that_are_inputs_constants_or_given_twice_are_copied():
    program = parse_program("A: f32[3] = input()\nW: f32[2] = constant([1.0, 2.0])\nY[i]: f32[3] = A[i] * 2.0\nreturn Y, A, W, Y")
    nest = lower(schedule(program, WIDE))
    assert nest.writes == ("Y", "A_out", "W_out", "Y_out")
    found = run_nest(nest, {"A": np.arange(3, dtype=np.float32)})
    np.testing.assert_array_equal(found["W_out"], [1, 2])
    np.testing.assert_array_equal(found["Y_out"], [0, 2, 4])


def test_a_sort_of_no_points_gives_empty_segments():
    both(
        "X: f32[2] = input()\no, r = segments[3](j + 1 for i in range(6) for j in range(0) if i > 1)\n"
        "C[v]: f32[3] = sum(X[r[k] % 2] + 1.0 for k in range(o[v], o[v + 1]))\nreturn C"
    )


def test_definitions_that_no_output_needs_make_no_code():
    nest = lower(plain("A: f32[3] = input()\nD[i]: f32[3] = A[i] * 2.0\nY[i]: f32[3] = A[i] * 3.0\nreturn Y"))
    assert len(nest.kernels) == 1 and not nest.workspace


def test_data_dependent_accesses_are_checked_before_they_are_read():
    text = "W: f32[5, 3] = input()\nids: i64[4] = input()\nE[t, d]: f32[4, 3] = where(t != 1, W[ids[t], d], 0.0)\nreturn E"
    nest = lower(plain(text))
    (check,) = (s for s in statements(nest.kernels) if isinstance(s, Check))
    assert (nest.checks[check.check].access, nest.checks[check.check].axis) == ("W[ids[t], d]", 0)
    order = [type(s) for s in statements(nest.kernels)]
    assert order.index(If) < order.index(Check) < order.index(Store)
    data = {"W": np.zeros((5, 3), np.float32), "ids": np.array([0, 99, 4, 2])}
    assert_means(plain(text), inputs=data)  # 99 is on the branch not taken
    data["ids"][2] = 5
    with pytest.raises(OutOfBoundsError, match="expected an index of axis 0 of W in 0 <= index < 5, got 5"):
        run_nest(nest, data)


@pytest.mark.parametrize(
    "value",
    [
        "sum(X[D[k]] for k in range(6)) + sum(Y[D[k]] for k in range(6))",
        "sum(max(X[D[k] + j] for j in range(2)) for k in range(6)) + sum(max(Y[D[k]] - X[j] for j in range(2)) for k in range(6))",
        "where(D[i] >= 0 and D[i] < 4, sum(Y[D[i]] + X[k] for k in range(6)), 0.0) + sum(Y[D[i]] + X[k] for k in range(6))",
    ],
)
def test_accesses_are_checked_in_loops_of_another_reduction_and_under_another_guard(value):
    """Reductions that share a loop or a result: each access is checked that some use does not keep in bounds."""
    text = f"X: f32[9] = input()\nY: f32[4] = input()\nD: i64[6] = input()\nC[i]: f32[3] = {value}\nreturn C"
    data = {"X": np.ones(9, np.float32), "Y": np.ones(4, np.float32), "D": np.array([3, 0, 1, 2, 1, 3])}
    assert_means(plain(text), inputs=data)
    data["D"][2] = 5
    for s in (plain(text), autoschedule(parse_program(text), WIDE)):
        with pytest.raises(OutOfBoundsError, match="expected an index of axis 0 of Y in 0 <= index < 4, got 5"):
            run_nest(lower(s), data)


def test_guarded_data_dependent_accesses_need_no_check():
    text = "W: f32[5] = input()\nids: i64[4] = input()\nE[t]: f32[4] = where(ids[t] >= 0 and ids[t] < 5, W[ids[t]], 0.0)\nreturn E"
    assert not lower(plain(text)).checks


def test_a_check_does_not_run_for_loops_that_do_not():
    text = "sizes(n)\nW: f32[5, n] = input()\nids: i64[4] = input()\nE[t, d]: f32[4, n] = W[ids[t], d]\nreturn E"
    data = {"W": np.zeros((5, 0), np.float32), "ids": np.array([0, 99, 4, 2])}
    assert_means(plain(text), inputs=data, n=0)


def test_parallel_loops_after_a_reduction_on_which_all_depends_are_a_kernel_of_their_own():
    s = autoschedule(
        parse_program(
            "X: f32[100, 300] = input()\nY[i, j]: f32[100, 300] = X[i, j] - max(X[a, b] for a in range(10) for b in range(300))\nreturn Y"
        ),
        WIDE,
    )
    nest = lower(s)
    assert len(nest.kernels) == 2 and any(isinstance(x, For) and x.kind == "parallel" for x in nest.kernels[1].body)


def test_a_reduction_over_no_axes_has_one_point():
    x, y = te.placeholder((), name="x"), te.placeholder((5,), name="y")
    assert te.build(te.compute((), lambda: te.sum(lambda: x[()] * 2, ())), [x])(np.float32(3)) == 6
    best = te.compute((5,), lambda i: te.max(lambda: y[i], ()) + te.sum(lambda: y[i], (), where=lambda: y[i] > 1))
    place = te.compute((5,), lambda i: te.argmax(lambda: y[i], ()))
    values, places = te.build([best, place], [y])(np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(values, [0, 1, 4, 6, 8])
    np.testing.assert_array_equal(places, [0] * 5)


CAUSAL = """
Q: f32[40, 8] = input()
K: f32[40, 8] = input()
S[i, j]: f32[40, 40] = where(j <= i, sum(Q[i, e] * K[j, e] for e in range(8)), 0.0)
return S
"""


def tiled(text: str) -> Planned:
    s = plain(text)
    tile(s["S"], "i", "j", (8, 16), "shift")
    s["S"].reorder("e", "i_i", "j_i")
    s["S"].vectorize("j_i")
    return s


def test_a_guard_that_differs_over_a_tile_stands_around_it():
    """Tiles in which no point counts are left out, others are computed whole."""
    assert_means(tiled(CAUSAL))
    listing = str(lower(tiled(CAUSAL)))
    assert "if minimum(j_o * 16, 24) <= i_o * 8 + 7:" in listing
    assert listing.count("if ") == 1


def test_a_guard_that_keeps_reads_in_bounds_stays_at_each_point():
    made = tiled(CAUSAL.replace("K[j, e]", "K[i - j, e]"))
    assert_means(made)
    listing = str(lower(made))
    assert "if minimum(j_o * 16, 24) + j_i <= i_i + i_o * 8:" in listing


def test_a_tile_keeps_to_its_extent_where_bounds_depend_on_a_loop_around_the_reduction():
    """Points beyond the extent are computed only where all reads are in bounds for any value of the enclosing loop, negative ones, too."""
    s = plain("X: f32[6, 4] = input()\nC[i]: f32[4] = sum(max(X[k, i] for k in range(-j)) for j in range(-2, 2) if i > 2)\nreturn C")
    s["C"].split("i", 8, "guard")
    s["C"].reorder("i_o", "j", "k", "i_i")
    assert_means(s)


def test_guards_around_tiles_of_any_comparison():
    for condition in ("i > j", "j < i", "2 * i >= j + 3", "i + j < 50", "j >= i - 4 and j <= i + 4"):
        assert_means(tiled(CAUSAL.replace("j <= i", condition)))
    s = plain(CAUSAL)
    s["S"].fuse("i", "j")
    s["S"].split("i_j", 25)
    s["S"].reorder("i_j_o", "e", "i_j_i")
    assert_means(s)


def test_a_guard_on_elements_asks_for_none_of_missing_lanes():
    """The rest of a sum of products runs with its missing lanes as zeros, but not where a guard would be read in them."""
    program = parse_program(
        "A: f32[21] = input()\nB: f32[21] = input()\nM: bool[21] = input()\n"
        "Y[i]: f32[1] = sum(A[k] * B[k] for k in range(21) if M[k])\nreturn Y"
    )
    s = schedule(program, WIDE)
    _, lane = s["Y"].split("k", 16, "peel")
    s["Y"].vectorize(lane)
    assert_means(s)


def test_steps_of_a_scan_run_their_loops_on_all_cores():
    """A parallel loop inside of the serial one over steps, behind a reduction too, and in the first step of a scan of unknown length."""
    text = """
sizes(n)
x: f32[8, 700] = input()
z: f32[n] = input()
for t in range(n):
    h: f32[8, 700] = state(x)
    total[i]: f32[8] = max(h[i, k] for k in range(700))
    g[i, j]: f32[8, 700] = maximum(minimum(h[i, j] * 2.0 - x[i, j], 9.0), -9.0) + total[i] + z[t]
    H[t] = h = g
return H
"""
    for n in (0, 1, 4):
        nest = assert_means(autoschedule(parse_program(text), WIDE), n=n)
    inside = [s for s in statements(nest.kernels) if isinstance(s, For) and s.kind == "serial" for s in s.body if isinstance(s, For)]
    assert any(s.kind == "parallel" for s in inside)


def test_a_failed_check_in_a_parallel_step_is_the_callers_error():
    x, ids = te.placeholder((4, 3000), name="x"), te.placeholder((3000,), "int64", name="ids")
    steps = te.scan(lambda t, h: te.compute((4, 3000), lambda i, j: te.exp(h[i, ids[j]]) * 0.1 + h[i, j]), x, 5)
    kernel = te.build(steps, [x, ids])
    good = np.arange(3000) % 7
    bad = good.copy()
    bad[2999] = 3000
    values = np.zeros((4, 3000), np.float32)
    assert np.isfinite(kernel(values, good)).all()
    with pytest.raises(OutOfBoundsError, match="got 3000"):
        kernel(values, bad)
