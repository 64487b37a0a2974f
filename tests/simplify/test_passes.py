"""Passes over programs, as text: inlining, sharing, what is dead, scans, scatters, and the standard list."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.errors import DefinitionError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Access, Axis, Index, Program, Size, apply, const
from tensorexpr.parse import parse_program
from tensorexpr.rewrite.passes import run_passes
from tensorexpr.simplify import (
    Options,
    cheap_names,
    drop_alike_axes,
    drop_stop_gradients,
    factor_reductions,
    fold_constants,
    inline_cheap,
    inline_definitions,
    narrow_domains,
    remove_dead_definitions,
    share_definitions,
    share_reductions,
    simplify,
    simplify_indices,
    slice_definitions,
    take_extrema_apart,
    write_out_cases,
)
from tensorexpr.simplify.passes.amounts import part_of
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify

PASSES = (
    drop_stop_gradients,
    fold_constants,
    simplify_indices,
    narrow_domains,
    factor_reductions,
    inline_cheap,
    share_definitions,
    share_reductions,
    remove_dead_definitions,
    write_out_cases,
    slice_definitions,
    drop_alike_axes,
    take_extrema_apart,
)


def body(program: Program) -> str:
    """The definitions and outputs of a program as text."""
    verify(program)
    head = len(program.inputs) + len(program.constants) + bool(program.sizes)
    return "\n".join(print_program(program).split("\n")[head:])


def program_of(*lines: str) -> Program:
    return parse_program("\n".join(lines))


X = "X: f32[4, 5] = input()"


@pytest.mark.parametrize("run", PASSES, ids=lambda p: p.__name__)
def test_every_pass_says_what_it_requires_and_ensures(run: object) -> None:
    assert "Requires:" in (run.__doc__ or "") and "Ensures:" in (run.__doc__ or "")


@pytest.mark.parametrize("run", [*PASSES, simplify], ids=lambda p: p.__name__)
def test_a_pass_with_nothing_to_do_returns_the_same_program(run) -> None:
    program = program_of(X, "Y[i]: f32[4] = sum(X[i, k] * X[k, k] for k in range(i, 4))", "return Y")
    assert run(program) is program


def test_marks_for_derivatives_go_and_marks_of_copies_stay() -> None:
    program = program_of(X, "Y[i]: f32[4] = stop_gradient(X[i, 0]) * X[i, 1]", "Z[i]: f32[4] = recompute(X[i, 0] * X[i, 1])", "return Y, Z")
    lines = "Y[i]: f32[4] = X[i, 0] * X[i, 1]\nZ[i]: f32[4] = recompute(X[i, 0] * X[i, 1])\nreturn Y, Z"
    assert body(drop_stop_gradients(program)) == body(simplify(program)) == lines


def test_fold_constants_needs_no_context() -> None:
    program = program_of(X, "Y[i]: f32[4] = X[2 - 1, 3] * (f32(1.5) + 2.0)", "return Y")
    assert body(fold_constants(program)) == "Y[i]: f32[4] = X[1, 3] * 3.5\nreturn Y"


def test_inlining_renames_what_would_be_captured() -> None:
    program = program_of(
        X,
        "S[i, j]: f32[4, 4] = sum(X[i, k] * X[j, k] for k in range(5))",
        "Y[i]: f32[4] = sum(S[k, i] * S[i, k] for k in range(4))",
        "return Y",
    )
    after = inline_definitions(program, ["S"])
    assert body(after) == (
        "Y[i]: f32[4] = sum(\n    sum(X[k, k_1] * X[i, k_1] for k_1 in range(5)) * sum(X[i, k_2] * X[k, k_2] for k_2 in range(5))\n"
        "    for k in range(4)\n)\nreturn Y"
    )
    x = {"X": np.arange(20, dtype=np.float32).reshape(4, 5)}
    assert np.array_equal(evaluate_program(after, x)["Y"], evaluate_program(program, x)["Y"])


def test_inlining_swaps_indices_at_once() -> None:
    program = program_of(X, "T[j, i]: f32[5, 4] = X[i, j] * 2.0", "Y[j, i]: f32[4, 5] = T[i, j] + 1.0", "return Y, T")
    assert body(inline_definitions(program, ["T"])) == (
        "T[j, i]: f32[5, 4] = X[i, j] * 2.0\nY[j, i]: f32[4, 5] = X[j, i] * 2.0 + 1.0\nreturn Y, T"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("X", "expected a plain definition to inline, got no definition"),
        ("Z", "expected a plain definition to inline, got a scatter"),
        ("H", "expected a plain definition to inline, got a scan"),
        ("h0", "expected a definition that is read by index, got the start of a scan"),
    ],
)
def test_what_cannot_be_inlined(name: str, message: str) -> None:
    program = program_of(
        X,
        "Z: f32[5] = scatter({k: X[i, k] for i in range(4) for k in range(5)})",
        "h0[j]: f32[5] = 0.0",
        "for t in range(4):",
        "    h: f32[5] = state(h0)",
        "    g[j]: f32[5] = h[j] + X[t, j]",
        "    H[t] = h = g",
        "return Z, H",
    )
    with pytest.raises(DefinitionError, match=message):
        inline_definitions(program, [name])


def test_cheap_definitions_are_inlined_where_no_work_is_repeated() -> None:
    program = program_of(
        X,
        "A[i, j]: f32[4, 5] = exp(X[i, j])",  # read once at each element
        "B[i]: f32[4] = exp(X[i, 0])",  # read at every j again
        "C[i, j]: f32[4, 5] = X[i, j] + 1.0",  # cheap, but a matrix product reads it again and again
        "D[i, j]: f32[4, 5] = A[i, j] * B[i]",
        "E[i, j]: f32[4, 4] = sum(C[i, k] * C[j, k] for k in range(5))",  # a quarter of it is read
        "F[i]: f32[4] = X[i, 1]",  # a new name for an element
        "Y[i]: f32[4] = E[i, i] + F[i] * F[0]",
        "return D, Y",
    )
    assert cheap_names(program) == ("A", "E", "F")


def test_long_chains_are_inlined_up_to_a_size() -> None:
    lines = [X, "T0[i, j]: f32[4, 5] = X[i, j] * 0.5"]
    lines += [f"T{n}[i, j]: f32[4, 5] = tanh(T{n - 1}[i, j])" for n in range(1, 2001)]
    program = program_of(*lines, "return T2000")
    after = simplify(program)
    assert 10 < len(after.definitions) < 100
    assert simplify(after) is after


def test_a_running_sum_of_layers_is_stored() -> None:
    lines = [X, "W: f32[5, 5] = input()", "S0[i, j]: f32[4, 5] = X[i, j] * 0.5"]
    for n in range(8):  # as layers with a norm in front: what each adds to the sum of all before it
        lines += [
            f"R{n}[i]: f32[4] = sum(S{n}[i, j] * S{n}[i, j] for j in range(5))",
            f"N{n}[i, j]: f32[4, 5] = S{n}[i, j] / R{n}[i]",
            f"L{n}[i, j]: f32[4, 5] = sum(N{n}[i, k] * W[k, j] for k in range(5))",
            f"S{n + 1}[i, j]: f32[4, 5] = S{n}[i, j] + L{n}[i, j]",
        ]
    after = simplify(program_of(*lines, "return S8"))
    assert max(len({node for e in expressions(d) for node in walk(e) if isinstance(node, Access)}) for d in after.definitions) <= 4


def test_equal_definitions_are_computed_once() -> None:
    program = program_of(
        X,
        "A[i]: f32[4] = sum(X[i, k] for k in range(5))",
        "B[p]: f32[4] = sum(X[p, q] for q in range(5))",
        "C[i]: f32[4] = exp(A[i])",
        "D[j]: f32[4] = exp(B[j])",
        "E[i]: f32[4] = C[i] * D[i]",
        "return E, D",
    )
    assert body(share_definitions(program)) == (
        "A[i]: f32[4] = sum(X[i, k] for k in range(5))\nC[i]: f32[4] = exp(A[i])\nD[i0]: f32[4] = C[i0]\n"
        "E[i]: f32[4] = C[i] * C[i]\nreturn E, D"
    )


def test_equal_scatters_and_scans_are_computed_once() -> None:
    program = program_of(
        X,
        "P: f32[5] = scatter({k: X[i, k] for i in range(4) for k in range(5)})",
        "Q: f32[5] = scatter({b: X[a, b] for a in range(4) for b in range(5)})",
        "h0[j]: f32[5] = X[0, j]",
        "for t in range(4):",
        "    h: f32[5] = state(h0)",
        "    g[j]: f32[5] = h[j] + P[j]",
        "    H[t] = h = g",
        "for s in range(4):",
        "    u: f32[5] = state(h0)",
        "    v[k]: f32[5] = u[k] + Q[k]",
        "    V[s] = u = v",
        "Y[j]: f32[5] = H[3, j] * V[2, j]",
        "return Y",
    )
    after = body(share_definitions(program))
    assert "Q" not in after and "for s in" not in after
    assert "Y[j]: f32[5] = H[3, j] * H[2, j]" in after


def test_what_nobody_reads_goes_away() -> None:
    program = program_of(
        X,
        "W: f32[2] = constant([1.0, 2.0])",
        "A[i]: f32[4] = X[i, 0]",
        "B[i]: f32[4] = A[i] * W[0]",
        "Y[i]: f32[4] = X[i, 1]",
        "return Y",
    )
    after = remove_dead_definitions(program)
    assert body(after) == "Y[i]: f32[4] = X[i, 1]\nreturn Y"
    assert not after.constants and after.inputs == program.inputs


def test_a_scan_loses_states_and_definitions_that_no_result_needs() -> None:
    program = program_of(
        X,
        "h0[j]: f32[5] = 0.0",
        "for t in range(4):",
        "    h: f32[5] = state(h0)",
        "    c: f32[5] = state(h0)",
        "    d: f32[5] = state(h0)",
        "    g[j]: f32[5] = h[j] + X[t, j]",
        "    e[j]: f32[5] = c[j] * g[j]",
        "    f[j]: f32[5] = d[j] + c[j]",
        "    H[t] = h = g",
        "    C[t] = c = e",
        "    D[t] = d = f",
        "return C",
    )
    after = body(remove_dead_definitions(program))
    assert "D" not in after and "f[j]" not in after
    assert "H[t] = h = g" in after  # c depends on it


def test_bodies_of_scans_are_simplified_in_the_range_of_their_step() -> None:
    program = program_of(
        X,
        "h0: f32 = 0.0",
        "for t in range(4):",
        "    h: f32 = state(h0)",
        "    g: f32 = where(t < 4, h[()] + X[minimum(t, 3), 0 + 1], 1.0)",
        "    H[t] = h = g",
        "return H",
    )
    assert "g: f32 = h[()] + X[t, 1]" in body(simplify(program))


def test_scatters_narrow_and_vanish() -> None:
    program = program_of(
        X,
        "P: f32[5] = scatter({k: where(k == i, X[i, k], 0.0) for i in range(4) for k in range(5)})",
        'Q: f32[5] = scatter({k: X[0, k] for k in range(5) if k > 7}, combine="max")',
        "return P, Q",
    )
    assert body(simplify(program)) == "P: f32[5] = scatter({i: X[i, i] for i in range(4)})\nQ[i0]: f32[5] = -inf\nreturn P, Q"


def test_integer_factors_leave_sums_and_float_factors_stay() -> None:
    program = program_of(
        "A: i32[4, 5] = input()",
        X,
        "P[i]: i32[4] = sum(A[i, k] * A[i, 0] for k in range(5))",
        "Q[i]: f32[4] = sum(X[i, k] * X[i, 0] for k in range(5))",
        "return P, Q",
    )
    assert body(factor_reductions(program)) == (
        "P[i]: i32[4] = sum(A[i, k] for k in range(5)) * A[i, 0]\nQ[i]: f32[4] = sum(X[i, k] * X[i, 0] for k in range(5))\nreturn P, Q"
    )
    assert "Q[i]: f32[4] = sum(X[i, k] for k in range(5)) * X[i, 0]" in body(simplify(program, reassociate=True))


def test_a_solved_convolution_gradient_is_clean_mathematics() -> None:
    program = program_of(
        "x: f32[8, 4, 12, 12] = input()",
        "w: f32[6, 4, 3, 3] = input()",
        "g: f32[8, 6, 5, 5] = input()",
        "head[b, o, y, z]: f32[8, 6, 5, 5] = g[b, o, y, z] * 1.0",
        "dx[b, i, p, q]: f32[8, 4, 12, 12] = sum(where(2*y + r == p and 2*z + s == q, head[b, o, y, z] * w[o, i, r, s], 0.0)"
        " for o in range(6) for y in range(5) for z in range(5) for r in range(3) for s in range(3))",
        "dw[o, i, r, s]: f32[6, 4, 3, 3] = sum(where(b < 8 and i >= 0, head[b, o, y, z] * x[b, i, 2*y + r, 2*z + s], 0.0)"
        " for b in range(8) for y in range(5) for z in range(5))",
        "return dx, dw",
    )
    expected = """dx[b, i, p, q]: f32[8, 4, 12, 12] = sum(
    g[b, o, y, z] * w[o, i, p - y * 2, q - z * 2]
    for o in range(6)
    for y in range(maximum((p - 1) // 2, 0), minimum(p // 2 + 1, 5))
    for z in range(maximum((q - 1) // 2, 0), minimum(q // 2 + 1, 5))
)
dw[o, i, r, s]: f32[6, 4, 3, 3] = sum(
    g[b, o, y, z] * x[b, i, r + y * 2, s + z * 2]
    for b in range(8)
    for y in range(5)
    for z in range(5)
)
return dx, dw"""
    assert body(simplify(program)) == expected


def test_simplification_does_not_depend_on_extents() -> None:
    def count(extent: int) -> int:
        text = f"Y[i]: f32[{extent}] = sum(where(k == 2*i + 1, X[k], 0.0) for k in range({2 * extent + 4}))"
        program = program_of(f"X: f32[{2 * extent + 4}] = input()", text, "return Y")
        return len(body(simplify(program)))

    assert count(10_000_000) - count(10) == len("10000000") - len("10")


def test_the_standard_list_is_verified_after_each_pass() -> None:
    program = program_of(X, "Y[i]: f32[4] = X[i, 0] * 1.0", "return Y")
    assert body(run_passes(program, [simplify])) == "Y[i]: f32[4] = X[i, 0]\nreturn Y"


def test_what_derived_formulas_decide_is_computed_as_the_user_wrote_it() -> None:
    program = program_of(
        X,
        "A[i, j]: f32[4, 5] = X[i, j] * 2.0 * 0.5",
        "S[i]: f32[4] = sum(A[i, j] * where(i > 2, X[i, j], 0.0) for j in range(5))",
        "T[i]: f32[4] = sum(X[i, j] * where(i > 2, X[i, j], 0.0) for j in range(5))",
        "h0[j]: f32[5] = X[0, j]",
        "for t in range(4):",
        "    h: f32[5] = state(h0)",
        "    D[j]: f32[5] = X[t, j] * 2.0 * 0.5",
        "    E[j]: f32[5] = X[t, j] * 2.0 * 0.5",
        "    N[j]: f32[5] = where(D[j] > 1.0, h[j], E[j])",
        "    H[t] = h = N",
        "R[i]: f32[4] = where(S[i] > 1.0, T[i], H[3, i] * 4.0 * 0.5)",
        "return R",
    )
    assert body(narrow_domains(program, Options(signed_zeros=False, derived=True))) == "\n".join(
        [
            "A[i, j]: f32[4, 5] = X[i, j] * 2.0 * 0.5",
            "S[i]: f32[4] = sum(A[i, j] * where(i >= 3, X[i, j], 0.0) for j in range(5))",
            "T[i]: f32[4] = where(i >= 3, sum(X[i, j] * X[i, j] for j in range(5)), 0.0)",
            "h0[j]: f32[5] = X[0, j]",
            "for t in range(4):",
            "    h: f32[5] = state(h0)",
            "    D[j]: f32[5] = X[t, j] * 2.0 * 0.5",
            "    E[j]: f32[5] = X[t, j]",
            "    N[j]: f32[5] = where(D[j] > 1.0, h[j], E[j])",
            "    H[t] = h = N",
            "R[i]: f32[4] = where(S[i] > 1.0, T[i], H[3, i] * 2.0)",
            "return R",
        ]
    )


CASES = program_of(
    "a: f32[4] = input()",
    "b: f32[4, 2] = input()",
    "t[i, c]: f32[4, 2] = where(c == 1, exp(a[i]), 0.0)",
    "y[i]: f32[4] = sum(where(c == 1, t[i, 1] * a[i] * t[i, 1], b[i, c]) for c in range(2))",
    "return y",
)


def test_sums_over_cases_are_written_out() -> None:
    text = body(write_out_cases(CASES))
    assert "y[i]: f32[4] = 0.0 + where(0 == 1, t[i, 1] * a[i] * t[i, 1], b[i, 0]) + where(1 == 1, " in text


def test_places_that_are_read_are_tensors_of_their_own() -> None:
    assert "t[i]: f32[4] = where(1 == 1, exp(a[i]), 0.0)" in body(slice_definitions(CASES))
    assert "t[i]: f32[4] = exp(a[i])\ny[i]: f32[4] = b[i, 0] + t[i] * a[i] * t[i] + 0.0" in body(simplify(CASES))


@pytest.mark.parametrize(
    "lines",
    [
        ("t[i, c]: f32[4, 2] = where(c == 1, a[i], 0.0)", "return t"),  # a result
        ("t[i, c]: f32[4, 2] = where(c == 1, a[i], 0.0)", "y[i]: f32[4] = t[i, 1] + t[i, i % 2]", "return y"),  # read elsewhere
        ("t[i, c]: f32[4, 2] = a[i] * f32(c)", "y[i]: f32[4] = t[i, 1] + t[i, 0]", "return y"),  # one formula
        ("t[i, c]: f32[4, 9] = where(c == 1, a[i], 0.0)", "y[i]: f32[4] = t[i, 1]", "return y"),  # many places
        ("t[i, c]: f32[4, 2] = where(c == 1, a[n[i]], 0.0)", "y[i]: f32[4] = t[i, 1]", "return y"),  # a check that may fail
        ("y[i]: f32[4] = max(where(c == 1, a[i], 0.0) for c in range(2))", "return y"),  # no sum
        ("y[i]: f32[4] = sum(where(c == 1, a[i], 0.0) for c in range(9))", "return y"),  # many terms
        ("y[i]: f32[4] = sum(where(c == i, a[i], 0.0) for c in range(2))", "return y"),  # no case of c alone
    ],
)
def test_what_has_no_cases_stays(lines: tuple[str, ...]) -> None:
    program = program_of("a: f32[4] = input()", "n: i64[4] = input()", *lines)
    assert slice_definitions(program) is program
    assert write_out_cases(program) is program


def test_cases_keep_every_bit() -> None:
    simple, rng = simplify(CASES), np.random.default_rng(0)
    for _ in range(5):
        inputs = {"a": rng.standard_normal(4).astype("f"), "b": rng.choice([0.0, -0.0, np.nan, 1.5], (4, 2)).astype("f")}
        before, after = evaluate_program(CASES, inputs), evaluate_program(simple, inputs)
        assert before["y"].tobytes() == after["y"].tobytes()


PLACES = (
    "a: f32[4, 3] = input()",
    "b: f32[4, 3] = input()",
    "v[i, c]: f32[4, 3] = where(c == 0, a[i, 1], 0.0) - where(c == 1, a[i, 0], 0.0) + where(i >= 1 and c == 2, a[i - 1, 2], 0.0)",
    "w[i, c]: f32[4, 3] = where(c == 0, sum(a[i, 0] * b[k, 0] for k in range(4)), 0.0)"
    " + where(c == 1, sum(a[i, 1] * b[k, 1] for k in range(4)), 0.0) + "
    "where(c == 2, sum(a[i, 2] * b[k, 2] for k in range(4)), 0.0) + b[i, c]",
    "return v, w",
)


def test_a_sum_of_cases_is_a_formula_for_each_place_and_one_where_they_are_alike() -> None:
    program = program_of(*PLACES)
    after = simplify(program)
    text = body(after)
    assert "v[i, c]: f32[4, 3] = where(" in text and text.count("c == ") == 2, text
    assert "\nw[i, c]: f32[4, 3] = sum(a[i, c] * b[k, c] for k in range(4)) + b[i, c]" in text, text
    alike = program_of(
        *PLACES[:2],
        "y[i, c]: f32[4, 3] = where(c == 0, exp(a[i, 0]) * b[0, 0], where(c == 1, exp(a[i, 1]) * b[0, 1], exp(a[i, 2]) * b[0, 2]))",
        "return y",
    )
    assert body(write_out_cases(alike)) == "y[i, c]: f32[4, 3] = exp(a[i, c]) * b[0, c]\nreturn y"
    shifted = program_of(
        "a: f32[4, 5] = input()", "y[i, c]: f32[4, 3] = where(c == 0, a[i, 2], where(c == 1, a[i, 3], a[i, 4]))", "return y"
    )
    assert body(write_out_cases(shifted)) == "y[i, c]: f32[4, 3] = a[i, c + 2]\nreturn y"
    other = program_of(*PLACES[:2], "y[i, c]: f32[4, 3] = where(c == 0, a[i, 1], where(c == 1, a[i, 2], a[i, 0]))", "return y")
    assert write_out_cases(other) is other
    data = program_of(
        *PLACES[:2], "y[i, c]: f32[4, 3] = where(a[i, c] < 1.0, 0.0, b[i, c]) - where(b[i, c] < 1.0, 0.0, a[i, c])", "return y"
    )
    assert simplify(data) is data
    inputs = {name: (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) for name in "ab"}
    expected = evaluate_program(program, inputs)
    for name, value in evaluate_program(after, inputs).items():
        np.testing.assert_array_equal(value, expected[name])


def test_the_gradient_of_components_is_one_formula_for_all_of_them() -> None:
    program = program_of(
        "x: f64[50, 3] = input()",
        "t: i64[40] = input()",
        "h: f64[40] = input()",
        "y[i]: f64[40] = x[t[i], 0] * x[i, 0] + x[t[i], 1] * x[i, 1] + x[t[i], 2] * x[i, 2]",
        "return y",
    )
    derived = simplify(reverse(program, [("y", "h")], ["x"]).program)
    assert "== 0" not in body(derived) and "x[x_order[k], p]" in body(derived), body(derived)


def test_what_a_scatter_sends_along_an_axis_that_nothing_depends_on_is_sent_once() -> None:
    program = program_of(
        "ids: i64[3] = input()",
        'w: i64[5, 7] = scatter({(j, ids[i]): i for j in range(5) for i in range(3)}, combine="max")',
        "Y[p, j]: i64[7, 5] = w[j, p] + w[4 - j, p]",
        "return Y",
    )
    after = drop_alike_axes(program)
    lines = 'w: i64[7] = scatter({ids[i]: i for i in range(3)}, combine="max")\nY[p, j]: i64[7, 5] = w[p] + w[p]\nreturn Y'
    assert body(after) == lines
    arrays = {"ids": np.array([3, 6, 3])}
    for one, other in zip(evaluate_program(program, arrays).values(), evaluate_program(after, arrays).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("scatter", "read", "output"),
    [
        ("scatter({(j, ids[i]): i * j for j in range(5) for i in range(3)})", "w[j, p]", "Y"),
        ("scatter({(j, ids[i]): i for j in range(5) for i in range(3) if i < j})", "w[j, p]", "Y"),
        ("scatter({(j, ids[i]): i for j in range(4) for i in range(3)})", "w[j, p]", "Y"),
        ("scatter({(j, ids[i]): i for j in range(5) for i in range(3)})", "w[ids[2] // 2, p]", "Y"),
        ("scatter({(j, ids[i]): i for j in range(5) for i in range(3)})", "w[j, p]", "Y, w"),
    ],
    ids=["a value", "a condition", "a part of the axis", "a place that is checked", "an output"],
)
def test_scatters_whose_axes_count_stay(scatter: str, read: str, output: str) -> None:
    program = program_of("ids: i64[3] = input()", f"w: i64[5, 7] = {scatter}", f"Y[p, j]: i64[7, 5] = {read} + 1", f"return {output}")
    assert drop_alike_axes(program) is program


WINDOWS = """
x: f32[1, 8, 16, 16] = input()
w: f32[4, 8, 3, 3] = input()
P[n, y, c, r, s, z]: f32[1, 16, 8, 3, 3, 16] = where(
    y + r >= 1 and y + r < 17 and s + z >= 1 and s + z < 17, x[n, c, y + r - 1, s + z - 1], 0.0
)
C[n, k, y, z]: f32[1, 4, 16, 16] = sum(w[k, c, r, s] * P[n, y, c, r, s, z] for c in range(8) for r in range(3) for s in range(3))
return C
"""


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("x[n, c, y + r - 1, s + z - 1], 0.0", "exp(x[n, c, y + r - 1, s + z - 1]), 0.0"),  # a value
        ("return C", "return C, P"),
        ("w[k, c, r, s] * P", "w[k, c, r, s] * P[n, y, c, 0, 0, z] * P[n, y, c, 1, 1, z] * P[n, y, c, 2, 2, z] * P[n, y, c, 1, 2, z] * P"),
    ],
)
def test_windows_side_by_side_are_read_where_they_are_and_no_others(text: str, change: str) -> None:
    assert cheap_names(parse_program(WINDOWS)) == ("P",)
    assert text in WINDOWS and cheap_names(parse_program(WINDOWS.replace(text, change))) == ()


def test_what_says_where_elements_stand_goes_to_what_does_no_more() -> None:
    text = (
        "x: f32[6, 8, 9] = input()\nP[n, y, z]: f32[6, 16, 9] = x[n, y // 2, z]\nC[n, y, z]: f32[6, 16, 18] = P[n, y, z // 2]{}\nreturn C\n"
    )
    assert cheap_names(parse_program(text.format(""))) == ("P",)
    assert cheap_names(parse_program(text.replace("[n, y // 2, z]", "[n, y // 2, z] ** 5.5").format(""))) == ()


def test_a_product_of_smaller_tensors_is_computed_where_each_element_is_read_once() -> None:
    """The gradient of windows as a tensor: as many elements as the windows have."""
    text = (
        "h: f32[6, 40] = input()\nw: f32[6, 3] = input()\nT[c, z, s]: f32[6, 40, 3] = h[c, z] * w[c, s]\n"
        "y[c, q]: f32[6, 42] = sum(T[c, q - s, s] for s in range(maximum(q - 39, 0), minimum(q + 1, 3)))\nreturn y\n"
    ).replace("6", "96")
    assert cheap_names(parse_program(text)) == ("T",)
    kept = [
        text.replace("h[c, z] *", "exp(h[c, z]) *"),  # no cheap one
        text.replace("w[c, s]\n", "w[c, s] * u[c, z, s]\n").replace("T[c, z, s]:", "u: f32[96, 40, 3] = input()\nT[c, z, s]:"),
        text.replace("sum(T[c, q - s, s]", "sum(T[c, q - s, s] * T[0, q - s, k] for k in range(3)"),  # again and again
        text.replace("96", "6"),  # small
    ]
    assert [cheap_names(parse_program(other)) for other in kept] == [()] * len(kept)


@pytest.mark.parametrize(
    "value",
    (
        "where(c[i] > 0.0, where(i >= 1, exp(x[i - 1]), 0.0), exp(x[i]))",  # a condition of its own keeps the read inside
        "where(c[i] > 0.0, exp(x[i]), f32(exp(y[i])))",  # a function of another dtype
        "where(c[i] > 0.0, exp(x[i]), tanh(x[i + 1 - 1] + 1.0))",
    ),
)
def test_functions_of_both_branches_that_stay_two(value: str) -> None:
    program = parse_program(f"x: f32[9] = input()\ny: f64[9] = input()\nc: f32[9] = input()\nr[i]: f32[9] = {value}\nreturn r\n")
    assert print_program(simplify(program)).count("c[i]") == 1


def test_a_number_for_each_row_costs_a_cheap_definition_nothing() -> None:
    text = (
        "x: f32[96, 80] = input()\nm: f32[96] = input()\nl: f32[96] = input()\nP[i, j]: f32[96, 80] = x[i, j] - m[i] - l[i]\n"
        "y[i]: f32[96] = sum(exp(P[i, j]) for j in range(80))\nz[i, j]: f32[96, 80] = exp(P[i, j])\nreturn y, z\n"
    )
    assert cheap_names(parse_program(text)) == ("P",)
    assert cheap_names(parse_program(text.replace("[96] = input", "[80] = input").replace("m[i] - l[i]", "m[j] - l[j]"))) == ()


PADDED = """
x: f32[64, 64] = input()
w: f32[3, 3] = input()
P[i, j]: f32[66, 66] = where(i >= 1 and j >= 1 and i < 65 and j < 65, x[i - 1, j - 1], 0.0)
"""


@pytest.mark.parametrize(
    ("reader", "inlined"),
    [
        ("C[i, j]: f32[64, 64] = P[i, j + 1] + P[i + 2, j + 1] + P[i + 1, j] + P[i + 1, j + 2] - 4.0 * P[i + 1, j + 1]", True),
        ("C[i, j]: f32[64, 64] = max(P[i + r, j + s] for r in range(3) for s in range(3))", True),
        ("C[o, i, j]: f32[3, 64, 64] = sum(P[i + r, j + 1] * w[o, r] for r in range(3))", False),  # each element for each o
    ],
)
def test_a_border_is_one_of_the_loops_that_read_around_a_place(reader: str, inlined: bool) -> None:
    program = parse_program(f"{PADDED}{reader}\nreturn C\n")
    assert cheap_names(program) == (("P",) if inlined else ())
    if inlined:
        assert print_program(simplify(program)).count("f32[66, 66]") == 0


@pytest.mark.parametrize(
    ("row", "column", "inlined"),
    [
        ("(i + 63) % 64", "(j + 63) % 64", True),  # around the end
        ("minimum(maximum(i - 1, 0), 63)", "maximum(minimum(j - 1, 63), 0)", True),  # the edge again
        ("(i + j) % 64", "minimum(j, 63)", False),  # no border of a place
        ("i // 2", "minimum(j, 63)", False),
    ],
)
def test_borders_of_elements_are_read_from_where_they_are(row: str, column: str, inlined: bool) -> None:
    reader = "C[i, j]: f32[64, 64] = P[i, j + 1] + P[i + 2, j + 1] + P[i + 1, j] + P[i + 1, j + 2] - 4.0 * P[i + 1, j + 1]"
    text = f"x: f32[64, 64] = input()\nP[i, j]: f32[66, 66] = x[{row}, {column}]\n{reader}\nreturn C\n"
    program = parse_program(text)
    found = simplify(program)
    assert ("f32[66, 66]" not in print_program(found)) is inlined
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    np.testing.assert_array_equal(evaluate_program(found, {"x": x})["C"], evaluate_program(program, {"x": x})["C"])


COPIED = """
x: f32[6, 8] = input()
w: f32[8, 5] = input()
T[j, i]: f32[5, 6] = sum(x[i, k] * w[k, j] for k in range(8))
y[{axes}]: f32[{shape}] = T[{read}]
return y
"""


@pytest.mark.parametrize(
    "axes, shape, read",
    [
        ("i, j", "6, 5", "j, i"),  # turned around
        ("i, j", "6, 5", "4 - j, i"),  # backwards
        ("i, j", "4, 5", "j, i + 1"),  # without a border
    ],
)
def test_what_is_only_copied_is_computed_in_its_place(axes: str, shape: str, read: str) -> None:
    program = parse_program(COPIED.format(axes=axes, shape=shape, read=read))
    assert cheap_names(program) == ("T",)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((6, 8)).astype("f"), "w": rng.standard_normal((8, 5)).astype("f")}
    for name, array in evaluate_program(program, inputs).items():
        assert array.tobytes() == evaluate_program(inline_cheap(program), inputs)[name].tobytes()


@pytest.mark.parametrize(
    "axes, shape, read",
    [
        ("i, j, k", "6, 5, 2", "j, i"),  # each element twice
        ("a, b, j", "2, 3, 5", "j, a * 2 + b"),  # some of them twice
        ("i, j", "6, 5", "j, i // 2"),
        ("a, b, j", "2, 3, 5", "j, a * 3 + b"),  # rows of an axis
        ("i, j", "6, 5", "j, i] * T[j, i"),
    ],
)
def test_what_is_read_again_is_kept(axes: str, shape: str, read: str) -> None:
    assert cheap_names(parse_program(COPIED.format(axes=axes, shape=shape, read=read))) == ()


@pytest.mark.parametrize(
    "value, renames",
    [
        ("x[i, 7 - j]", True),
        ("x[5 - i, j]", True),
        ("x[i // 3, j]", False),
        ("x[i, j // 2 * 2]", False),
        ("x[i, j] + 1.0", False),
        ("f32(x[5 - i, j])", True),
    ],
)
def test_an_element_in_another_direction_is_a_name(value: str, renames: bool) -> None:
    text = (
        "x: f32[6, 8] = input()\nn: f32[] = input()\nR[i, j]: f32[6, 8] = {}\n"
        "y[i, p]: f32[6, 6] = sum(R[i, k] * R[p, k] for k in range(8))\nreturn y\n"
    )
    assert cheap_names(parse_program(text.replace("n: f32[] = input()\n", "").format(value))) == (("R",) if renames else ())


def test_steps_of_two_and_rows_of_an_axis_are_not() -> None:
    text = "x: f32[6, {}] = input()\nR[i, j]: f32[6, 8] = x[{}]\ny[i, p]: f32[6, 6] = sum(R[i, k] * R[p, k] for k in range(8))\nreturn y\n"
    assert cheap_names(parse_program(text.format(16, "i, j * 2"))) == ()
    assert cheap_names(parse_program(text.format(56, "i, i * 8 + j"))) == ()
    assert cheap_names(parse_program(text.format(9, "i, j + 1"))) == ("R",)


AT_BORDERS = """
x: f32[9] = input()
w: f32[9] = input()
y[i]: f32[9] = sum(where(r == 1, w[i], 0.5) * x[i + r - 1] for r in range({start}, {stop}))
return y
"""


@pytest.mark.parametrize(
    "start, stop, written",
    [
        ("maximum(1 - i, 0)", "minimum(10 - i, 3)", True),
        ("maximum(1 - i, 0)", "2", True),
        ("maximum(0, 1 - i)", "minimum(3, 10 - i)", True),
        ("1 - i", "minimum(10 - i, 3)", False),
        ("maximum(1 - i, 0)", "minimum(10 - i, 9)", False),
    ],
)
def test_sums_over_cases_are_written_out_at_borders(start: str, stop: str, written: bool) -> None:
    text = AT_BORDERS.format(start=start, stop=stop)
    program = parse_program(text)
    found = write_out_cases(program)
    verify(found)
    assert (found is not program) == written
    rng = np.random.default_rng(0)
    for _ in range(5):
        inputs = {name: rng.choice([0.0, -0.0, np.nan, np.inf, 1.5, -2.0], 9).astype("f") for name in "xw"}
        if written:
            before, after = evaluate_program(program, inputs), evaluate_program(simplify(program), inputs)
            np.testing.assert_array_equal(np.signbit(before["y"]) | np.isnan(before["y"]), np.signbit(after["y"]) | np.isnan(after["y"]))
            np.testing.assert_array_equal(before["y"], after["y"])


def test_the_part_of_an_axis_whose_sizes_do_not_go_together() -> None:
    """Each size is counted at one number, where `n - 2 m` is negative."""
    below = apply("lt", Index("i"), const(3))
    count = apply("sub", Size("n"), apply("mul", const(2), Size("m")))
    assert part_of((below,), [Axis("i", const(0), count)]) == 1.0
