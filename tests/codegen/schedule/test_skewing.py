"""Skewed steps of scans: which may be, what lies between them, and that every schedule of them means the same to the last bit."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.schedule.analysis.skewing import wave_of
from tensorexpr.codegen.target import H200, Target
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Program, Scan
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE, assert_means, by_planners, plain, planned
from tests.seeds import share_of

HEAT = """
U: f32[21, 18] = input()
for t in range(7):
    v: f32[21, 18] = state(U)
    w[i, j]: f32[21, 18] = where(i >= 1 and i < 20 and j >= 1 and j < 17, v[i - 1, j] + v[i + 1, j] + v[i, j - 1] * v[i, j + 1], v[i, j])
    S[t] = v = w
Y[i, j]: f32[21, 18] = S[6, i, j]
return Y
"""
ONE_ROW = """
U: f32[8, 4] = input()
for t in range(3):
    v: f32[8, 4] = state(U)
    w[i, j]: f32[8, 4] = {}
    S[t] = v = w
Y[i, j]: f32[8, 4] = S[{}, i, j]
return Y
"""
SMALL = Target("small", vector_bits=256, registers=16, cores=2, l1_bytes=1 << 10, l2_bytes=1 << 12)


def stencil(seed: int) -> Program:
    """A scan of random stencils: one or two states, definitions between, reads a few rows before or after, clamped or under conditions,
    of the number of the step, of what stands outside, and of reductions over rows nearby."""
    rng = random.Random(seed)
    rows, width, length, states = rng.randint(1, 14), rng.randint(1, 20), rng.randint(2, 9), rng.randint(1, 2)
    between = rng.random() < 0.4

    def read(tensor: str) -> str:
        far, side = rng.randint(-2, 3), rng.randint(-1, 1)
        inside = f"i + {far} >= 0 and i + {far} < {rows} and j + {side} >= 0 and j + {side} < {width}"
        return rng.choice((
            f"where({inside}, {tensor}[i + {far}, j + {side}], {rng.randint(0, 2)}.0)",
            f"{tensor}[maximum(i - {rng.randint(0, 2)}, 0), j]",
            f"{tensor}[minimum(i + {rng.randint(0, 2)}, {rows - 1}), {width - 1} - j]",
            f"sum(where(i + d < {rows}, {tensor}[i + d, j], 1.0) for d in range({rng.randint(1, 3)}))",
            f"{tensor}[i, j]",
        ))  # fmt: skip

    def value(tensors: list[str]) -> str:
        terms = [read(rng.choice(tensors)) for _ in range(rng.randint(1, 3))]
        terms += rng.sample(["F[i, j]", "F[t % 2, j]", "f32(t)", f"F[ids[j] % {rows}, j]"], rng.randint(0, 1))
        return " + ".join(terms)

    formal = [f"v{k}" for k in range(states)]
    lines = [f"U{k}: f32[{rows}, {width}] = input()" for k in range(states)]
    lines += [f"F: f32[{max(2, rows)}, {width}] = input()", f"ids: i64[{width}] = input()", f"for t in range({length}):"]
    lines += [f"    {v}: f32[{rows}, {width}] = state(U{k})" for k, v in enumerate(formal)]
    if between:
        lines.append(f"    m[i, j]: f32[{rows}, {width}] = {value(formal)}")
    sources = [*formal, *(["m"] if between else [])]
    lines += [f"    w{k}[i, j]: f32[{rows}, {width}] = {value(sources)}" for k in range(states)]
    lines += [f"    S{k}[t] = v{k} = w{k}" for k in range(states)]
    lines += [f"Y{k}[i, j]: f32[{rows}, {width}] = S{k}[{length - 1}, i, j]{rng.choice(('', ' * 2.0'))}" for k in range(states)]
    return parse_program("\n".join([*lines, f"return {', '.join(f'Y{k}' for k in range(states))}"]))


@pytest.mark.parametrize("block", range(4))
def test_random_stencils_give_what_they_give_step_by_step(block):
    skewed = 0
    seeds = list(share_of(range(block * 30, (block + 1) * 30)))
    for seed in seeds:
        program, rng = stencil(seed), random.Random(seed)
        s = schedule(program, WIDE) if rng.random() < 0.5 else autoschedule(program, WIDE)
        (scan,) = (d for d in s.state.program.definitions if isinstance(d, Scan))
        try:
            s.skew(scan.names[0], rng.randint(2, 6), rng.randint(1, 9))
        except ScheduleError:
            continue
        skewed += 1
        for d in scan.body:
            if rng.random() < 0.5:
                s[d.results[0][0]].parallel("i")
        assert_means(s, seed, random_arrays(program, seed))
    assert skewed > len(seeds) // 3


def random_arrays(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        i.name: rng.integers(0, 99, [int(e.value) for e in i.type.shape]).astype(i.type.dtype.numpy) % (99 if i.name == "ids" else 3)
        for i in program.inputs
    }


def test_steps_follow_each_other_and_the_output_is_written_by_the_last():
    s = plain(HEAT)
    s.skew("S", 7, 8)
    s["w"].parallel("i")
    nest = assert_means(s)
    assert [(b.name, [int(e.value) for e in b.shape]) for b in nest.workspace] == [("w_rows", [4, 7, 3, 18])]
    assert [k.name for k in nest.kernels] == ["S"] and "Y[i, j] = where(" in str(nest)
    assert "w_rows[slot, s - 1, i % 3, j] = where(" in str(nest) and "for s in range(2, 7):" in str(nest)


def test_passes_alternate_between_two_entries_before_the_last():
    for steps in (2, 3, 4, 5, 6):
        s = plain(HEAT)
        s.skew("S", steps, 5)
        assert_means(s)
        kept = plain(HEAT.replace("S[6, i, j]", "S[6, i, j] + S[6, 0, j]"))
        kept.skew("S", steps, 5)
        assert_means(kept)


def test_a_definition_in_the_loops_of_the_copy_keeps_it():
    s = plain(
        HEAT.replace("Y[i, j]:", "Z[i, j]: f32[21, 18] = U[i, j] + U[0, j]\nY[i, j]:").replace(
            "return Y", "V[i, j]: f32[21, 18] = Z[i, j] + Y[i, j]\nreturn Y, V"
        )
    )
    s["Y"].compute_at("V", "i")
    s.skew("S", 7, 8)
    assert [k.name for k in assert_means(s).kernels] == ["S", "Z", "V"]


def test_the_default_skews_what_is_larger_than_the_second_level():
    program = simplify(parse_program(HEAT.replace("21", "96").replace("i < 20", "i < 95")))
    s = autoschedule(program, SMALL)
    assert "s.skew('S', " in s.as_python() and "s['w'].parallel('i')" in s.as_python()
    assert_means(s)
    assert "skew" not in autoschedule(program, WIDE).as_python()
    assert "skew" not in autoschedule(program, H200).as_python()


def test_compiled_stencils_and_their_gradients_are_those_step_by_step():
    @te.op
    def heat(u):
        h, w = u.shape

        def step(t, v):
            inside = lambda i, j: (i > 0) & (i < h - 1) & (j > 0) & (j < w - 1)  # noqa: E731
            return te.compute((h, w), lambda i, j: te.where(inside(i, j), v[i - 1, j] + v[i + 1, j] * v[i, j - 1] + v[i, j + 1], v[i, j]))

        states = te.scan(step, u, 9, name="states")
        return te.compute((h, w), lambda i, j: states[8, i, j], name="heat")

    u = te.placeholder((70, 33), name="u")
    y = heat(u)
    s, plain_one = by_planners(y), by_planners(y)
    s.skew("states", 4, 16)
    given = np.random.default_rng(0).uniform(-0.5, 0.5, (70, 33)).astype(np.float32)
    np.testing.assert_array_equal(te.build(s, [u])(given), te.build(plain_one, [u])(given))


def test_a_scan_starts_from_what_its_start_is_a_copy_of():
    copied = HEAT.replace("for t", "C[i, j]: f32[21, 18] = U[i, j]\nD[i, j]: f32[21, 18] = C[i, j]\nfor t").replace("state(U)", "state(D)")
    assert simplify(parse_program(copied)) == simplify(parse_program(HEAT))
    turned = HEAT.replace("for t", "C[i, j]: f32[21, 18] = U[20 - i, j]\nfor t").replace("state(U)", "state(C)")
    assert "state(C)" in str(simplify(parse_program(turned)))


def refusal(text: str, *arguments: object, target: Target = WIDE) -> str:
    s = schedule(parse_program(text), target)
    with pytest.raises(ScheduleError) as caught:
        s.skew(*arguments)
    return str(caught.value)


def test_what_cannot_be_skewed_is_refused_with_the_reason():
    assert "expected the first name of a scan outside of others, got 'Y'" in refusal(HEAT, "Y", 2, 4)
    assert "expected 2 to 7 steps in a pass, got 1" in refusal(HEAT, "S", 1, 4)
    assert "expected 2 to 7 steps in a pass, got 8" in refusal(HEAT, "S", 8, 4)
    n = te.dim("n")
    u = te.placeholder((8, 4), name="u")
    states = te.scan(lambda t, v: te.compute((8, 4), lambda i, j: v[i, j] * 2.0, name="w"), u, n, name="S")
    s = planned(te.compute((8, 4), lambda i, j: states[n - 1, i, j], name="y"))
    with pytest.raises(ScheduleError, match=r"expected 2 to 0 steps in a pass, got 2(.|\n)*the scan needs a constant length"):
        s.skew("S", 2, 4)
    assert "expected a positive number of rows, got 0" in refusal(HEAT, "S", 2, 0)
    assert "expected a CPU, whose cores each keep the rows of a few steps near, got a GPU" in refusal(HEAT, "S", 2, 4, target=H200)
    assert "expected a scan of which the last entry alone is read, got S, of which others are" in refusal(
        ONE_ROW.format("v[i, j]", 1), "S", 2, 4
    )
    far = refusal(ONE_ROW.format("v[79 - i, j]", 2).replace("8,", "80,"), "S", 2, 4)
    assert "expected reads of states a few rows from their own, got one at 79 - i" in far


TWO = """
U: f32[80, 4] = input()
Q: f32[{rows}, 4] = input()
for t in range(3):
    v: f32[80, 4] = state(U)
    q: f32[{rows}, 4] = state(Q)
    {body}
    S[t] = v = {first}
    R[t] = q = {second}
Y[i, j]: f32[80, 4] = S[2, i, j] + R[2, i, j]
return Y
"""
PLAIN = "w[i, j]: f32[80, 4] = v[i, j]"
BODIES = {
    "expected rows of constant extents in the body, got m": (
        "m: f32[80, 4] = scatter({(i, j): v[i, j] for i in range(80) for j in range(4)})",
        "p[i, j]: f32[80, 4] = m[i, j]", "p", 80,
    ),
    "expected every next state to be a definition of its own in the body": (PLAIN, PLAIN.replace("w", "p"), "w", 80),
    "expected states with one number of rows": (PLAIN, "p[i, j]: f32[90, 4] = q[i, j]", "p", 90),
    "expected next states that nothing else in the body reads, got w": (PLAIN, "p[i, j]: f32[80, 4] = w[i, j]", "p", 80),
    "expected steps that read at most 64 rows of what they need, got 81": (
        PLAIN, "p[i, j]: f32[80, 4] = where(i >= 40 and i < 48, q[i - 40, j], 0.0) + where(i < 40, q[i + 40, j], 0.0)", "p", 80,
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", BODIES)
def test_bodies_that_cannot_be_skewed_are_refused_with_the_reason(message):
    before, after, second, rows = BODIES[message]
    body = "\n    ".join((before, after) if before == PLAIN else (PLAIN, before, after))
    assert message in refusal(TWO.format(rows=rows, body=body, first="w", second=second), "S", 2, 4)


def test_the_rows_stay_the_outermost_loop():
    s = plain(HEAT)
    s.skew("S", 7, 8)
    for call in (lambda: s["w"].split("i", 4), lambda: s["w"].reorder("j", "i"), lambda: s["w"].fuse("i", "j")):
        with pytest.raises(ScheduleError, match="expected the rows of w, i, as its outermost loop, serial or parallel, got "):
            call()
    with pytest.raises(ScheduleError, match="inline first"):
        t = plain(HEAT.replace("for t", "Z[i, j]: f32[21, 18] = U[i, j] + 1.0\nfor t").replace(", v[i, j])", ", Z[i, j])"))
        t.skew("S", 7, 8)
        t.inline("Z")


def test_a_scan_of_which_other_entries_are_read_since_runs_step_by_step():
    s = plain(HEAT)
    s.skew("S", 7, 8)
    s["Y"].stage("S", (1, 0, 2))
    assert "w_rows" not in str(assert_means(s))


def test_distances_are_those_of_the_reads():
    program = parse_program(ONE_ROW.format("v[maximum(i - 2, 0), j] + sum(where(i + d < 8, v[i + d, j], 0.0) for d in range(4))", 2))
    (scan,) = (d for d in program.definitions if isinstance(d, Scan))
    wave = wave_of(schedule(program, WIDE).state, scan)
    assert (wave.behind, wave.before, wave.after, wave.rows["w"].kept) == (3, 2, 3, 6)
