"""What may fault is evaluated under all conditions under which the program evaluates it, wherever loops are moved to."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest.text import print_block
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.conditioned import conditioned_program, conditioned_sizes
from tests.codegen.programs import WIDE, assert_means, outputs, plain
from tests.codegen.schedule.test_laws import shuffled
from tests.random_programs import random_inputs
from tests.runtime.pages import guarded_copy
from tests.seeds import share_of


def _border(rng: random.Random, axis: str, extent: int) -> str:
    return f"{axis} {rng.choice(('<', '>=', '<=', '>'))} {rng.randint(0, extent)}"


def _tried(call: object, *args: object) -> None:
    """A primitive where it is legal."""
    with contextlib.suppress(ScheduleError):
        call(*args)  # type: ignore[operator]


def _piecewise(seed: int) -> Planned:
    """Definitions by cases, each computed in some loop of its reader, whose loops stand in any order; some loops run in lanes."""
    rng = random.Random(seed)
    m, p = rng.randint(2, 6), rng.randint(2, 6)
    conditions = [" and ".join(_border(rng, *rng.choice((("i", m), ("j", p)))) for _ in range(rng.randint(1, 2))) for _ in range(2)]
    s = plain(f"""
X: f32[{m}, {p}] = input()
a[i, j]: f32[{m}, {p}] = where({conditions[0]}, X[i, j] * 2.0, 0.0)
b[i, j]: f32[{m}, {p}] = where({conditions[1]}, X[i, j] * a[i, j], 1.0)
c[i, j]: f32[{m}, {p}] = X[i, j] + b[i, j]
return a, b, c
""")
    for name in "abc":
        if rng.random() < 0.3:
            _tried(s[name].split, rng.choice("ij"), rng.randint(2, 4), rng.choice(("peel", "shift", "guard", "stride")))
        loops = list(s[name].loops)
        _tried(s[name].reorder, *rng.sample(loops, len(loops)))
        _tried(s[name].vectorize, s[name].loops[-1])
    for name, reader in (("b", "c"), ("a", "b")):
        if name == "a" and s.state.stage("b").place is not None:
            reader = rng.choice("bc")
        _tried(s[name].compute_at, reader, rng.choice(s[reader].loops))
    return s


@pytest.mark.parametrize("seed", share_of(range(120)))
def test_piecewise_definitions_computed_in_loops_in_any_order(seed):
    assert_means(_piecewise(seed), seed)


def test_the_point_of_a_placed_definition_is_no_range_to_cut():
    s = plain("""
X: f32[4, 2] = input()
a[i, j]: f32[4, 2] = where(j < 1, X[i, j] * 2.0, 0.0)
c[i, j]: f32[4, 2] = X[i, j] + a[i, j]
return a, c
""")
    s["a"].vectorize("j")
    s["c"].reorder("j", "i")
    s["a"].compute_at("c", "i")
    assert "if j < 1:" in str(lower(s))
    assert_means(s)


def _assert_agrees(s: Planned, program: Program, sizes: Iterable[Mapping[str, int]], seed: int) -> None:
    """Checks that a nest gives what the program means, every access inside its buffer, and fails where that does."""
    nest = lower(s)
    assert not prove(nest).refuted, f"{program}\n{s.as_python()}\n{prove(nest)}"
    for each in sizes:
        inputs = random_inputs(program, seed, sizes=each)
        try:
            want = evaluate_program(program, inputs, each)
        except OutOfBoundsError:
            if "s.inline(" not in s.as_python():  # elements that nobody reads are not computed then
                with pytest.raises(OutOfBoundsError):
                    outputs(nest, s.program, inputs, each)
            continue
        for name, found in outputs(nest, s.program, inputs, each).items():
            np.testing.assert_array_equal(found, want[name], err_msg=f"{seed} at {each}: {name} of\n{program}\n{s.as_python()}")


@pytest.mark.parametrize("seed", share_of(range(100, 190)))
def test_conditions_hold_wherever_loops_are_moved_to(seed):
    program = conditioned_program(seed)
    made = simplify(program)
    sizes = [conditioned_sizes(program, seed * 10 + variant) for variant in range(2)]
    _assert_agrees(schedule(program, WIDE), program, sizes, seed)
    _assert_agrees(autoschedule(program, WIDE), program, sizes, seed)
    _assert_agrees(shuffled(schedule(program, WIDE), random.Random(seed)), program, sizes, seed)
    _assert_agrees(autoschedule(made, WIDE), made, sizes, seed)


def _nested(seed: int) -> Planned:
    """A reduction inside of a sum that keeps its reads in bounds, by bounds or a condition; the sum in parts, its loops in any order."""
    rng = random.Random(seed)
    n, j, q = rng.choice((5, 9, 17, 33, 57)), rng.randint(1, 4), rng.randint(1, 3)
    other = rng.randint(1, 4)
    bound, condition = rng.choice(
        ((f"{n}", ""), (f"minimum({n}, i + {n + 1 - other})", ""), (f"{n + other}", f" if k < {n}"), ("i + 1", ""))
    )
    inner = rng.choice((f"max(T[k, q] for q in range({q}))", f"sum(T[k, q] * T[{n - 1} - k, q] for q in range({q}))"))
    s = plain(f"""
H: f32[{n + other}, {j}] = input()
T: f32[{n}, {q}] = input()
Y[z]: f32[{j}] = sum(H[k, z] * {inner} for i in range({n}) for k in range({bound}){condition})
return Y
""")
    loop = rng.choice("ikkk")
    if rng.random() < 0.9:
        _tried(s["Y"].split, loop, -(-n // rng.randint(2, 4)))
        _tried(s["Y"].rfactor, rng.choice((f"{loop}_o", f"{loop}_o", f"{loop}_i")))
    for name in [d.name for d in s.state.program.definitions]:
        for _ in range(2):
            if rng.random() < 0.2:
                _tried(s[name].split, rng.choice(s[name].loops), rng.randint(2, 4), rng.choice(("peel", "shift", "guard")))
        loops, data = list(s[name].loops), [x for x in s[name].loops if x[0] in ("z", loop) and x.endswith(("z", "_o"))]
        inside = [x for x in loops if x not in data] + data
        _tried(s[name].reorder, *(inside if rng.random() < 0.8 else rng.sample(loops, len(loops))))
        if rng.random() < 0.5:
            _tried(s[name].vectorize, s[name].loops[-1])
    return s


@pytest.mark.parametrize("seed", share_of(range(240)))
def test_what_stands_in_a_reduction_runs_at_its_points_alone(seed):
    s = _nested(seed)
    nest = lower(s)
    assert not prove(nest).refuted, f"{s.as_python()}\n{prove(nest)}"
    assert_means(s, seed)


HEAD = """
sizes(m, n)
A: f32[m, n] = input()
X: f32[n] = input()
W: f32[3, 4] = input()
L: i64[4] = input()
"""
FOUND = (
    # A maximum inside a sum inside a condition on the rows: a tile of rows shares the loops.
    "Y[i]: f32[64] = where(i < 3, sum(max(W[i, q] for q in range(4)) for k in range(8)), 0.0)",
    # Conditions on data that loops inside do not change: the loops may be empty.
    "Y[i, j]: f32[m, n] = where(A[i, 0] > 0.0, A[i, j], 0.0)",
    "Y[i, j]: f32[17, maximum(n - 2, 0)] = where(X[2] > 0.0, X[j], 0.0)",
    "Y[i]: f32[17] = sum(X[j] for j in range(n - 2) if X[2] > 0.0)",
    "Y[i]: f32[m] = sum(where(A[i, 0] > 0.0, A[i, j], 0.0) for j in range(n))",
    "Y[i, j]: f32[m, n] = sum(where(A[i, 0] > 0.0, A[i, k], 0.0) for k in range(n)) * A[i, j]",
    # The condition of a sum reads what a condition on the row around it makes legal; so do bounds.
    "Y[i]: f32[20] = where(i < 3, sum(W[i, k] for k in range(4) if W[i, 3 - k] > 0.0), 0.0)",
    "Y[i]: f32[20] = where(i < 4, sum(X[0] for k in range(minimum(L[i], n))), 0.0)",
    # A sum that does not depend on the points of a definition of which there are none, or none at small sizes.
    "Y[i, j]: f32[4, 0] = sum(X[j + 99] + X[k + 99] for k in range(3))",
    'Y: f32[3] = scatter({(0,): sum(X[1] * W[0, k] for k in range(4)) for i in range(n) for j in range(i)}, combine="sum")',
    # A definition is computed in a loop around one that may be empty, at an element that exists where that is not.
    "T[i, j]: i64[4, n] = L[i] + i64(X[minimum(maximum(L[i], 0), n - 1)])\nY[i, j]: i64[4, n] = T[i, n - 1] * 2",
    # A sum that does not depend on the rows is taken apart, and there may be none.
    "Y[i]: f32[maximum(n - 2, 0)] = sum(X[2] + A[k, 2] for k in range(m))",
)


@pytest.mark.parametrize("body", FOUND)
def test_reduced_programs(body):
    program = parse_program((HEAD + body + "\nreturn Y\n").lstrip())
    function = build_program(program)
    all_sizes = [{"m": m, "n": n} for m, n in ((3, 0), (0, 5), (3, 2), (2, 5))]
    for s in (schedule(program, WIDE), autoschedule(program, WIDE)):
        _assert_agrees(s, program, all_sizes, 0)
    for sizes in all_sizes:
        inputs = random_inputs(program, 0, sizes=sizes)
        want = evaluate_program(program, inputs, sizes)["Y"]
        for at_end in (False, True):
            found = function(*(guarded_copy(inputs[i.name], at_end) for i in program.inputs))[0]
            np.testing.assert_array_equal(found, want, err_msg=f"{sizes}")


def test_the_condition_of_a_sum_and_its_checks_stay_under_the_guard_of_the_sum():
    @te.op
    def least(x, rows, columns):
        return te.scatter(
            (16, 2),
            lambda i, j: ((rows[i], columns[j]), x.read(0, j // 2, i, j, outside="clamp")),
            (8, 6),
            combine="min",
            where=lambda i, j: i + j > te.minimum(i, j),
        )

    noise = np.random.default_rng(0)
    x, head = noise.standard_normal((1, 2, 2, 7)).astype("f"), np.ones((16, 2), "f")
    rows, columns = noise.integers(0, 16, 8).astype("i2"), noise.integers(0, 2, 6).astype("i4")
    arrays = [guarded_copy(a, True) for a in (x, rows, columns, head)]
    (gradient,) = te.vjp(least, wrt="x")(*arrays)
    assert gradient.sum() == len({(r, c) for i, r in enumerate(rows) for j, c in enumerate(columns) if i + j > min(i, j)})


def _chosen(rng: random.Random, depth: int) -> str:
    """A value by cases on results of reductions, which stand in conditions, in values and in further reductions."""
    result = rng.choice(
        ("sum(X[k, i] for k in range(m))", "max(X[k, i] for k in range(3))", "sum(X[k, i] * X[0, i] for k in range(m))", "T[i]")
    )
    if depth == 0:
        return result if rng.random() < 0.8 else "X[0, i]"
    if rng.random() < 0.25:
        # What stands in a loop that may have no iteration may be computed in front of it, but not what only an iteration may read.
        extent, condition = rng.choice((("2", ""), ("3", " if i % 2 == 0"), ("m", ""), ("m", " if X[m - 1, i] > 0.0"), ("m", " if i < 9")))
        return f"sum(({_chosen(rng, depth - 1)}) * f32(q{depth} + 1) for q{depth} in range({extent}){condition})"
    condition = rng.choice((f"{result} > 0.0", f"{result} != 0.0 and i % 2 == 0", "i % 3 == 0", f"i < 2 or {result} < 1.0"))
    return f"where({condition}, {_chosen(rng, depth - 1)}, {_chosen(rng, depth - 1)})"


@pytest.mark.parametrize("seed", share_of(range(100)))
def test_results_of_reductions_under_conditions_on_results(seed):
    rng = random.Random(seed)
    program = parse_program(f"""sizes(m, n)
X: f32[m + 3, n] = input()
T[i]: f32[n] = sum(X[k, i] for k in range(m))
Y[i]: f32[n] = {_chosen(rng, 3)}
return Y""")
    sizes = [{"m": rng.randint(0, 4), "n": rng.choice((0, 1, 5, 17))} for _ in range(2)]
    for made in (program, simplify(program)):
        _assert_agrees(schedule(made, WIDE), made, sizes, seed)
        _assert_agrees(autoschedule(made, WIDE), made, sizes, seed)
    _assert_agrees(shuffled(schedule(program, WIDE), rng), program, sizes, seed)


TOGETHER = """
sizes(n)
X: f32[n] = input()
W: f32[4096] = input()
a[i]: f32[4096] = exp(W[i]) * X[0]
b[i]: f32[2048] = sin(W[i]) * 2.0
c[i]: f32[4096] = sum(X[1] * W[k] for k in range(i // 64))
return a, b, c
"""


def test_a_check_stands_in_the_loops_that_read():
    program = parse_program(TOGETHER.lstrip())
    nest = lower(autoschedule(program, WIDE))
    assert any(kernel.together for kernel in nest.kernels)
    for kernel in nest.kernels:
        checks, reads = "check(", "X["
        for statement in kernel.body:
            text = "\n".join(print_block((statement,)))
            assert text.count(reads) == 0 or checks in text, text
    function, noise = build_program(program), np.ones(4096, "f")
    for _ in range(20):
        with pytest.raises(OutOfBoundsError):
            function(guarded_copy(np.zeros(0, "f"), True), guarded_copy(noise, True))
    np.testing.assert_allclose(function(np.full(2, 3, "f"), noise)[0], np.exp(1.0) * 3, rtol=1e-6)


def test_what_others_read_is_computed_where_a_condition_of_its_host_does_not_hold():
    s = plain("""
X: f32[4, 5] = input()
T[i, j]: f32[4, 5] = X[i, j] * 2.0
Y: f32[4] = scatter({(i,): T[i, j] for i in range(4) for j in range(5) if i > 1}, combine="sum")
return T, Y
""")
    s["T"].compute_at("Y", "j")
    assert_means(s)


def test_a_placed_definition_is_computed_at_elements_that_it_has():
    s = plain(HEAD + "T[i, j]: f32[4, n] = X[minimum(maximum(L[i], 0), n - 1)]\nY[i, j]: f32[4, n] = T[i, n - 1] * 2.0\nreturn Y\n")
    s["T"].compute_at("Y", "i")
    for n in (0, 1, 3):
        assert_means(s, m=1, n=n)


PLACED_READS = (
    "Z[i, j]: f32[6, 7] = where(T[i, i] < 0.0 and X[5 - i, i] < 1.0, Y[i, j], 2.0)",
    "Z[i, j]: f32[6, 7] = where(T[i, i] < 0.0, sum(Y[i, k] * Y[i, j] for k in range(7) if X[i, 0] > 0.0), Y[i, j])",
    "Z[i, j]: f32[6, 7] = where(X[i, i] < 0.5, sum(Y[i, k] * Y[i, j] for k in range(7) if T[i, 5 - i] > 0.0), 1.0)",
    "Z[i, j]: f32[6, 7] = sum(where(T[i, i] > 0.0, Y[i, k] * Y[i, j], 1.0) for k in range(7))",
    'Z: f32[6] = scatter({(i,): Y[i, j] for i in range(6) for j in range(7) if T[i, i] > 0.0}, combine="sum")',
)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("text", PLACED_READS)
def test_a_choice_waits_for_what_is_computed_in_the_loops(text, outer):
    """The indices of the condition are known further out than the loop in which what it reads is computed."""
    s = plain(f"""
X: f32[6, 6] = input()
Y: f32[6, 7] = input()
T[i, j]: f32[6, 6] = X[i, j] * 2.0
{text}
return Z
""")
    s["T"].compute_at("Z", "i" if outer else "j")
    assert not prove(lower(s)).refuted
    assert_means(s)


def _sums_by_cases(seed: int) -> str:
    """A choice among sums by conditions on either axis, one of which is short: copies of its points, lanes along the other."""
    rng = random.Random(seed)
    n, m = rng.choice((17, 31, 33, 40)), rng.randint(2, 5)
    value = "0.0"
    for _ in range(rng.randint(2, 4)):
        row = rng.choice(("i", "i", str(rng.randrange(n))))
        term = rng.choice((f"X[{row}, k]", f"X[{row}, k] * Y[p, k]"))
        condition = rng.choice((f"p == {rng.randrange(m)}", _border(rng, "i", n - 1), f"i == {rng.randrange(n)}", _border(rng, "p", m - 1)))
        chosen = f"where({_border(rng, 'i', n - 1)}, sum({term} for k in range(9)), 0.0)"
        value = f"where({condition}, {chosen}, {value})"
    return f"X: f32[{n}, 9] = input()\nY: f32[{m}, 9] = input()\nZ[i, p]: f32[{n}, {m}] = {value}\nreturn Z\n"


@pytest.mark.parametrize("seed", [3, 12, 28, 29, *share_of(range(40, 50))])
def test_sums_that_are_held_in_tiles_are_chosen_at_their_own_points(seed: int) -> None:
    """Of the rows behind a border, which lanes run through in other blocks, the sums of other rows were stored: the gradient of a read
    that is clamped was wrong."""
    assert_means(autoschedule(simplify(parse_program(_sums_by_cases(seed)))))
