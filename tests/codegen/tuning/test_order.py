"""Schedules that add up in the same order give the same bits, on numbers whose sums are not exact."""

import random

import numpy as np

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.decisions import Decisions
from tensorexpr.codegen.tuning.order import adds_up_otherwise, same_order
from tensorexpr.errors import OutOfBoundsError
from tests.codegen.programs import MATMUL, WIDE, outputs, plain
from tests.codegen.schedule.test_decisions import wandered
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of


def results(s: Planned, seed: int) -> dict[str, bytes] | None:
    sizes = random_sizes(s.program, seed)
    inputs = random_inputs(s.program, seed, exact=False, sizes=sizes)
    try:
        with np.errstate(all="ignore"):
            found = outputs(lower(s), s.program, inputs, sizes)
    except OutOfBoundsError:
        return None
    return {
        name: np.where(np.isnan(a), np.asarray(0, a.dtype), a).tobytes() if a.dtype.kind in "fV" else a.tobytes()
        for name, a in found.items()
    }


def test_the_same_order_gives_the_same_bits():
    compared = 0
    for seed in share_of(range(80)):
        program = random_program(seed)
        analytic = autoschedule(program, WIDE)
        other = autoschedule(program, WIDE, Decisions(wandered(program, random.Random(seed), 3)))
        assert not (same_order(analytic, other) and adds_up_otherwise(analytic, other))
        if same_order(analytic, other) and analytic != other:
            compared += 1
            assert results(analytic, seed) == results(other, seed), f"{seed}\n{program}\n{other.as_python()}"
    assert compared > 4


def changed(*calls: str) -> Planned:
    s = plain(MATMUL)
    for call in calls:
        exec(call, {"s": s})
    return s


def test_tiles_copies_and_blocks_keep_the_order_lanes_of_a_sum_do_not():
    base = changed()
    kept = (
        changed(
            "s['C'].split('i', 4)", "s['C'].split('j', 16)", "s['C'].reorder('i_o', 'j_o', 'k', 'i_i', 'j_i')", "s['C'].vectorize('j_i')"
        ),
        changed("s['C'].split('k', 4)", "s['C'].unroll('k_i')", "s['C'].parallel('i')"),
        changed("s['C'].split('k', 4)", "s['C'].split('k_o', 2)", "s['C'].reorder('k_o_o', 'k_o_i', 'k_i', 'j')"),
        changed("s['C'].stage('B', (1, 0))"),
    )
    for s in kept:
        assert same_order(base, s) and not adds_up_otherwise(base, s)
    lanes = changed("s['C'].split('k', 4)", "s['C'].vectorize('k_i')")
    swapped = changed("s['C'].split('k', 4)", "s['C'].reorder('k_i', 'k_o')")
    for s in (lanes, swapped):
        assert not same_order(base, s) and adds_up_otherwise(base, s)
    assert not same_order(lanes, changed("s['C'].split('k', 2)", "s['C'].vectorize('k_i')"))


def test_maxima_and_integers_have_no_order():
    sums = "C[i]: i32[12] = sum(A[i, k] for k in range(8))\nM[i]: i32[12] = max(A[i, k] for k in range(8))"
    text = f"A: i32[12, 8] = input()\n{sums}\nreturn C, M"
    a, b = plain(text), plain(text)
    for name in ("C", "M"):
        b[name].split("k", 2)
        b[name].vectorize("k_i")
    assert same_order(a, b)


def test_definitions_written_into_others_count():
    text = "A: f32[12] = input()\nB[i]: f32[12] = A[i] * 2.0\nC[i]: f32[12] = B[i] + 1.0\nD[i]: f32[12] = B[i] * 3.0\nreturn C, D"
    a, b = plain(text), plain(text)
    b["B"].inline()
    assert not same_order(a, b) and not adds_up_otherwise(a, b)


def test_the_same_order_gives_the_same_bits_from_llvm():
    """LLVM would fuse a product with a sum or not as they stand in one block or two, and either of two products, as far as it unrolled."""
    inputs = "x: f64[8, 512] = input()\nw: f64[512] = input()\nv: f64[8] = input()\n"
    sums = "S[i]: f64[8] = sum(x[i, j] * x[i, j] for j in range(512))\nT[i]: f64[8] = sum(w[j] * v[j % 8] for j in range(512))\nreturn S, T"
    for factor in (8, 64):
        base, unrolled, outside, lanes = schedules = [plain(inputs + sums) for _ in range(4)]
        for name in ("S", "T"):
            for s in schedules:
                s[name].split("j", factor)
            unrolled[name].unroll("j_i")
            outside[name].reorder("j_o", "j_i", "i")
            lanes[name].reorder("j_o", "j_i", "i")
            lanes[name].vectorize("i")
        functions = [te.build(s) for s in schedules]
        assert all(same_order(base, s) for s in schedules)
        for seed in range(8):
            rng = np.random.default_rng(seed)
            arrays = [rng.standard_normal(shape) for shape in ((8, 512), 512, 8)]
            expected, *others = (f(*arrays) for f in functions)
            for found in others:
                np.testing.assert_array_equal(found, expected)


def test_where_a_border_is_cut_off_or_masked_the_bits_are_the_same():
    """A product under a condition is part of a sum in pieces in which the condition holds, and where lanes are masked."""
    text = "x: f32[67] = input()\nz: f32[67] = input()\n"
    text += "y[i]: f32[67] = z[i] + where(i >= 2 and i < 64, x[i] * z[i], 0.0)\nreturn y"
    schedules = [plain(text)]
    for lanes in (4, 16):
        for tail in ("peel", "guard", "shift"):
            s = plain(text)
            s["y"].split("i", lanes, tail)
            s["y"].vectorize("i_i")
            schedules.append(s)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(67).astype(np.float32) for _ in range(2)]
    expected, *others = (te.build(s)(*arrays) for s in schedules)
    for found in others:
        np.testing.assert_array_equal(found, expected)


def random_expression(rng: random.Random, depth: int) -> str:
    """Sums, differences and choices of few products, so that one often occurs in several places."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(("x[i]", "w[i]", "z[i]", "x[i] * w[i]", "w[i] * z[i]", "1.0"))
    first, second = (random_expression(rng, depth - 1) for _ in range(2))
    match rng.random():
        case chance if chance < 0.5:
            return f"({first} {rng.choice('+-')} {second})"
        case chance if chance < 0.65:
            return rng.choice((f"({first} * {second})", f"(-{first})"))
    return f"where({rng.choice(('i >= 2 and i < 64', 'i < 37', 'i >= 2', 'i >= 5'))}, {first}, {second})"


def test_which_conditions_a_schedule_settles_changes_no_bit():
    """Which sums are fused multiply-adds depends on no product beyond a condition, which is there where lanes are masked alone."""
    inputs = "".join(f"{name}: f32[67] = input()\n" for name in "xwz")
    for seed in share_of(range(9)):
        rng = random.Random(seed)
        sums = "".join(f"y{k}[i]: f32[67] = x[i] + w[i] * z[i] + {random_expression(rng, 4)}\n" for k in range(10))
        text = f"{inputs}{sums}return {', '.join(f'y{k}' for k in range(10))}"
        schedules = [plain(text)]
        for lanes, tail in ((4, "peel"), (16, "guard")):
            s = plain(text)
            for k in range(10):
                s[f"y{k}"].split("i", lanes, tail)
                s[f"y{k}"].vectorize("i_i")
            schedules.append(s)
        arrays = [np.random.default_rng(seed).standard_normal(67).astype(np.float32) for _ in range(3)]
        expected, *others = (te.build(s)(*arrays) for s in schedules)
        for found in others:
            for k in range(10):
                np.testing.assert_array_equal(found[k], expected[k], sums.splitlines()[k])
