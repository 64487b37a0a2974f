"""Scans as loops of their own: which may, what joins their steps, and that every schedule of them means the same."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.algebra import with_copies_read
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.auto.tiles.steps import with_steps
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, Scan
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE, assert_means, by_planners, plain, random_inputs
from tests.codegen.programs import outputs as results_of
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

RUNNING = """
X: f32[6, 9] = input()
G: f32[6, 9] = input()
zero[i]: f32[6] = 0.0
for t in range(9):
    h: f32[6] = state(zero)
    n[i]: f32[6] = h[i] + X[i, t]
    S[t] = h = n
Y[i, t]: f32[6, 9] = S[t, i]
for u in range(9):
    b: f32[6] = state(zero)
    m[i]: f32[6] = b[i] + G[i, 8 - u] * Y[i, 8 - u]
    B[u] = b = m
D[i, t]: f32[6, 9] = G[i, t] + where(t < 8, B[7 - t, i], 0.0) * where(t > 0, S[t - 1, i], zero[i])
return Y, D
"""
COUPLED = """
X: f32[8] = input()
for t in range(4):
    v: f32[8] = state(X)
    w[i]: f32[8] = v[i] + where(i > 0, v[i - 1], 0.0)
    S[t] = v = w
Y[i]: f32[8] = S[3, i]
return Y
"""


def in_blocks(s: Planned, bits: int = 512, cores: int = 2, **sizes: int) -> LoopNest:
    """The nest of a schedule with blocks for its sweeps, after a check that it computes what the program means."""
    made = with_steps(lower(s), s.state.sweeps, replace(WIDE, vector_bits=bits, cores=cores))
    inputs = random_inputs(s.program, 0, exact=True, sizes=sizes)
    want = evaluate_program(s.program, inputs, sizes)
    for name, found in results_of(made, s.program, inputs, sizes).items():
        np.testing.assert_array_equal(found, want[name], err_msg=f"{name} of\n{s.program}\n{made}")
    assert not prove(verify_nest(made)).refuted
    return made


def test_a_scan_gets_its_data_axes_around_the_steps_and_its_reader_into_them():
    s = plain(RUNNING)
    s.sweep("S", "Y")
    assert "n" not in s.stages and "Y" not in s.stages
    nest = str(assert_means(s))
    assert nest.index("for i in") < nest.index("S_state: local(f32[()])") < nest.index("for t in") < nest.index("Y[i, t] = S_now")


def test_no_history_is_kept_where_every_reader_joined():
    s = schedule(with_copies_read(parse_program(RUNNING)), WIDE)
    s.sweep("B", "D")
    s.sweep("S", "Y")
    nest = assert_means(s)
    assert not nest.workspace
    assert "zero" not in str(nest)


def test_the_state_before_the_first_step_is_its_start():
    s = schedule(with_copies_read(parse_program(RUNNING)), WIDE)
    s.sweep("B", "D")
    assert "where(u" not in str(lower(s)) and "8 - u < 8" not in str(lower(s))


def running(points: int | str, steps: int | str) -> Planned:
    """A running sum and its gradient, all in sweeps."""
    sizes = ", ".join(e for e in (points, steps) if isinstance(e, str))
    text = RUNNING.replace("6", str(points)).replace("9", str(steps))
    for number in (8, 7):
        text = text.replace(f"{number} -", f"{steps} - {9 - number} -").replace(f"< {number}", f"< {steps} - {9 - number}")
    s = schedule(with_copies_read(parse_program((f"sizes({sizes})" if sizes else "") + text)), WIDE)
    s.sweep("B", "D")
    s.sweep("S", "Y")
    return s


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize(("points", "steps"), [(6, 9), (16, 32), (19, 33), (37, 18), (3, 40), (21, 5)])
def test_steps_go_in_squares_of_any_size_and_tail(points, steps, bits):
    nest = str(in_blocks(running(points, steps), bits))
    lanes = min(bits // 32, 1 << points.bit_length() - 1)
    assert f"vectorize(range(0, {lanes}))" in nest
    assert ("X_of" in nest) == ("D_of" in nest) == (steps >= lanes)


@pytest.mark.parametrize(("points", "steps"), [("n", 9), (9, "m"), ("n", "m")])
def test_steps_of_open_scans_go_in_blocks(points, steps):
    s = running(points, steps)
    for n, m in ((1, 1), (7, 3), (16, 16), (41, 35), (0, 4)):
        sizes = {name: size for name, size in (("n", n), ("m", m)) if name in (points, steps)}
        assert "vectorize" in str(in_blocks(s, 128, **sizes))


@pytest.mark.parametrize("points", [1, 2, 3, 5])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 17])
def test_squares_of_a_single_element_stay_where_they_are(points, steps):
    """At few points and steps what a block reads may be no row, or one element, and what it does not read there is not copied either."""
    x, z = te.placeholder((points,), name="x"), te.placeholder((points, steps), name="z")
    for body in (
        lambda t, s: te.compute((points,), lambda i: te.where(t > i, z.read(i, t, outside="symmetric"), 1.5)),
        lambda t, s: te.compute((points,), lambda i: te.where(t == 1, z[i, t], s[i] * 0.5)),
        lambda t, s: te.compute((points,), lambda i: z[i, t // 2] + s[i]),
        lambda t, s: te.compute((points,), lambda i: z[points - 1 - i, steps - 1 - t] * s[i]),
    ):
        program = simplify(te.program_of([te.scan(body, x, steps, name="y")], [x, z]))
        found, arrays = lowered(autoschedule(program, WIDE)), random_inputs(program, 1)
        np.testing.assert_array_equal(results_of(found, program, arrays, {})["y"], evaluate_program(program, arrays)["y"])


@pytest.mark.parametrize(("i", "t"), [("x", "i"), ("t", "z"), ("i", "t")])
def test_a_tensor_may_have_the_name_of_a_loop(i, t):
    x, z = te.placeholder((37,), name=i), te.placeholder((37, 18), name=t)
    states = te.scan(lambda t, s: te.compute((37,), lambda i: te.tanh(s[i]) + z[i, t]), x, 18, name="y")
    program = simplify(te.program_of([states], [x, z]))
    found, arrays = lowered(autoschedule(program, WIDE)), random_inputs(program, 1)
    assert "vectorize" in str(found)
    np.testing.assert_array_equal(results_of(found, program, arrays, {})["y"], evaluate_program(program, arrays)["y"])


def test_states_of_a_block_stay_in_the_first_cache_where_elements_lie_along_the_points():
    text = RUNNING.replace("X[i, t]", "X[t, i]").replace("X: f32[6, 9]", "X: f32[9, 6]").replace("Y[i, t]: f32[6, 9]", "Y[t, i]: f32[9, 6]")
    text = text[: text.index("for u")].replace("6", "1040") + "return Y"
    s = plain(text)
    s.sweep("S", "Y")
    nest = str(in_blocks(s, cores=1))
    assert "S_state: local(f32[8, 64])" in nest and "_of" not in nest
    assert "for i_o in parallel" in str(in_blocks(s))


def test_what_a_sweep_refuses():
    s = plain(COUPLED)
    with pytest.raises(ScheduleError, match="expected every point to read its own state, got w, which reads v\\[i - 1\\]"):
        s.sweep("S")
    with pytest.raises(ScheduleError, match="expected the first name of a scan outside of others, got 'Y'"):
        s.sweep("Y")
    s = plain(RUNNING)
    with pytest.raises(ScheduleError, match="expected a reader of S, element by element, got zero"):
        s.sweep("S", "zero")
    with pytest.raises(ScheduleError, match="expected a reader of B, element by element, got Y"):
        s.sweep("B", "Y")
    with pytest.raises(ScheduleError, match="expected readers once each, in the order of the program"):
        s.sweep("S", "Y", "Y")
    with pytest.raises(ScheduleError, match="expected plain definitions to compute in the steps of a scan, got B"):
        s.sweep("S", "B")
    with pytest.raises(ScheduleError, match="expected other readers after the last of these, got B before it"):
        s.sweep("S", "Y", "D")
    s["Y"].split("i", 2)
    with pytest.raises(ScheduleError, match="expected plain loops of Y, got changed ones"):
        s.sweep("S", "Y")
    s.sweep("S")
    with pytest.raises(ScheduleError, match="expected definitions with loops of their own, got S, swept before"):
        s.sweep("S")


def changed(text: str, old: str, new: str) -> Planned:
    assert old in text
    return plain(text.replace(old, new))


def test_bodies_and_readers_that_no_sweep_takes():
    with pytest.raises(ScheduleError, match="expected the body to compute elements alone, got a reduction in n"):
        changed(RUNNING, "h[i] + X[i, t]", "h[i] + sum(X[k, t] for k in range(6))").sweep("S")
    with pytest.raises(ScheduleError, match="expected Y to read S once per step and point, at the same or the next"):
        changed(RUNNING, "= S[t, i]", "= S[t, 5 - i] + S[t, i]").sweep("S", "Y")
    with pytest.raises(ScheduleError, match="expected accesses of n that are certainly in bounds, got some to check"):
        program = RUNNING.replace("X[i, t]", "X[ids[t], t]").replace("G: f32", "ids: i64[9] = input()\nG: f32")
        plain(program).sweep("S")
    with pytest.raises(ScheduleError, match="expected the body to compute one element per point of the state, got k"):
        changed(RUNNING, "    S[t] = h = n", "    k[j]: f32[2] = n[j]\n    S[t] = h = n").sweep("S")
    two = """h: f32[6] = state(zero)
    g: f32[9] = state(other)
    n[i]: f32[6] = h[i] + X[i, t]
    r[i]: f32[9] = g[i]
    S[t] = h = n
    R[t] = g = r"""
    text = RUNNING.replace("h: f32[6] = state(zero)\n    n[i]: f32[6] = h[i] + X[i, t]\n    S[t] = h = n", two)
    with pytest.raises(ScheduleError, match="expected states of one shape, got those of S, which differ"):
        plain(text.replace("zero[i]: f32[6] = 0.0", "zero[i]: f32[6] = 0.0\nother[i]: f32[9] = 0.0")).sweep("S")
    with pytest.raises(ScheduleError, match="expected next states from the body, got zero"):
        changed(RUNNING, "S[t] = h = n", "S[t] = h = zero").sweep("S")


def test_inlining_comes_first():
    s = changed(RUNNING, "G: f32[6, 9] = input()", "G: f32[6, 9] = input()\nP[i, t]: f32[6, 9] = X[i, t] * 2.0").copy()
    text = RUNNING.replace("G: f32[6, 9] = input()", "G: f32[6, 9] = input()\nP[i, t]: f32[6, 9] = X[i, t] * 2.0").replace(
        "h[i] + X", "h[i] + P"
    )
    s = plain(text)
    s.sweep("S")
    with pytest.raises(ScheduleError, match="expected definitions that no sweep reads to inline, got P"):
        s.inline("P")


# ------------------------------------------------------------------------------------------------------------------- laws


def swept(s: Planned, rng: random.Random) -> Planned:
    """The schedule with scans swept where that is legal, each with the readers that a coin chose."""
    for definition in rng.sample(s.program.definitions, len(s.program.definitions)):
        if isinstance(definition, Scan):
            chosen = [d.results[0][0] for d in s.state.program.definitions if rng.random() < 0.5]
            for readers in ([], *([*chosen[:n]] for n in range(1, len(chosen) + 1))):
                before = s.copy()
                try:
                    s.sweep(definition.names[0], *readers)
                    if rng.random() < 0.5:
                        break
                    s.state = before.state
                except ScheduleError:
                    assert s == before
    return s


TWO = """
X: f32[5, 3, 7] = input()
W: f32[3, 7] = input()
first[i, j]: f32[5, 7] = W[2, j]
none[i, j]: i64[5, 7] = 0
for t in range(3):
    a: f32[5, 7] = state(first)
    b: i64[5, 7] = state(none)
    p[i, j]: f32[5, 7] = a[i, j] * W[t, j] + X[i, t, j]
    q[i, j]: i64[5, 7] = where(p[i, j] > a[i, j], t, b[i, j])
    A[t] = a = p
    B[t] = b = q
Y[j, t, i]: f32[7, 3, 5] = A[2 - t, i, j] + where(t < 2, A[1 - t, i, j], 1.0)
Z[i, j, t]: f32[5, 7, 3] = Y[j, 2 - t, i] * f32(B[t, i, j])
L[i]: f32[5] = A[2, i, 3]
return Y, Z, L
"""
SWAPPED = """
X: f32[6] = input()
Z: f32[6] = input()
for t in range(4):
    a: f32[6] = state(X)
    b: f32[6] = state(Z)
    p[i]: f32[6] = a[i] + b[i]
    A[t] = a = b
    B[t] = b = p
Y[i, t]: f32[6, 4] = A[t, i] * B[t, i]
return Y, B
"""


def test_random_sweeps_mean_the_same():
    done = 0
    for seed in share_of(range(60)):
        rng = random.Random(seed)
        program = parse_program(rng.choice((RUNNING, TWO, SWAPPED)))
        s = shuffled(swept(schedule(program, WIDE), rng), rng, 14)
        done += "sweep" in s.as_python()
        assert_same_meaning(s, seed)
        in_blocks(s, rng.choice((64, 128, 512)))
    assert done > 3


def test_default_sweeps_of_these_mean_the_same():
    for text in (RUNNING, TWO, SWAPPED):
        s = autoschedule(parse_program(text), WIDE)
        assert "sweep" in s.as_python()
        assert_same_meaning(s, 0)


def test_sweeps_in_random_programs_mean_the_same():
    for seed in share_of(range(5000, 5100)):
        program = random_program(seed)
        if any(isinstance(d, Scan) for d in program.definitions):
            rng = random.Random(seed)
            assert_same_meaning(shuffled(swept(schedule(program, WIDE), rng), rng), seed)


def program_of(op: te.Op, *shapes: tuple[int, ...], gradient: bool = True, **static: object) -> Program:
    inputs = [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    result = op(*inputs, **static)
    if not gradient:
        return simplify(te.program_of(list(result) if isinstance(result, tuple) else [result], inputs))
    head = te.placeholder(result.shape, name="head")
    return with_copies_read(simplify(te.program_of([result, *te.gradient(result, inputs, head)], [*inputs, head])))


OPS = [
    (kernels.cumsum, [(37, 40)], {"axis": 1}),
    (kernels.cumsum, [(20, 300)], {"axis": 0}),
    (kernels.cumsum, [(19, 33)], {"axis": 1, "exclusive": True, "reverse": True}),
    (kernels.cumsum, [(3, 20, 70)], {"axis": 1}),
    (kernels.cumsum, [(3, 20, 5)], {"axis": 2}),
    (kernels.cumsum, [(50,)], {}),
    (kernels.cumprod, [(17, 34)], {}),
    (kernels.cummax, [(21, 35)], {"gradient": False}),
    (kernels.logcumsumexp, [(18, 20)], {}),
    (kernels.linear_recurrence, [(33, 40), (33, 40)], {"axis": 1}),
    (kernels.ema, [(16, 40)], {"alpha": 0.25}),
]


@pytest.mark.parametrize(("op", "shapes", "static"), OPS, ids=lambda x: getattr(x, "name", None))
def test_running_kernels_are_swept_forward_and_backward(op, shapes, static):
    program = program_of(op, *shapes, **static)
    s = autoschedule(program, WIDE)
    assert s.as_python().count("s.sweep(") == sum(isinstance(d, Scan) for d in program.definitions)
    assert not any(isinstance(program.types.get(b.name), type(None)) for b in lower(s).workspace)
    inputs = {
        i.name: np.random.default_rng(n).integers(-2, 3, [int(e.value) for e in i.type.shape]).astype("f")
        for n, i in enumerate(program.inputs)
    }
    nest = str(lowered(s))
    assert "vectorize" in nest or len(shapes[0]) == 1
    function = te.build(s)
    found = function(*inputs.values())
    want = evaluate_program(program, inputs)
    for array, name in zip(found if isinstance(found, tuple) else (found,), program.outputs, strict=True):
        np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-5)
    again = schedule(program, WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s


def test_a_running_sum_and_its_gradient_need_no_workspace():
    assert not lower(autoschedule(program_of(kernels.cumsum, (64, 64), axis=1), WIDE)).workspace
    assert not lower(autoschedule(program_of(kernels.linear_recurrence, (64, 64), (64, 64), axis=1), WIDE)).workspace


def test_steps_of_a_scan_in_another_stay_there():
    text = """
X: f32[4, 5] = input()
zero[i]: f32[5] = 0.0
for t in range(4):
    h: f32[5] = state(zero)
    for u in range(3):
        g: f32[5] = state(h)
        m[i]: f32[5] = g[i] + X[t, i]
        R[u] = g = m
    n[i]: f32[5] = R[2, i]
    S[t] = h = n
return S
"""
    s = schedule(parse_program(text), WIDE)
    with pytest.raises(ScheduleError, match="expected the body to compute one element per point of the state"):
        s.sweep("S")
    assert_means(autoschedule(s.program, WIDE))


N, M = 512, 1031
STEPS = {
    "columns": lambda t, s, x, y: te.compute((M,), lambda j: te.sum(lambda i: x[i, j] * y[i], N) + s[j]),
    "columns at a step": lambda t, s, x, y: te.compute((M,), lambda j: te.sum(lambda i: x[i, j] * y[(i + t) % N], N) + s[j]),
    "rows of a window": lambda t, s, x, y: te.compute((M,), lambda j: te.max(lambda i: x[i, j] - y[t], N) + s[j]),
    "there and back": lambda t, s, x, y: _there_and_back(s, x, y),
    "a normal row": lambda t, s, x, y: te.compute((M,), lambda j: te.exp(s[j] - te.max(lambda k: s[k] + x[t, k], M)) + x[t, j]),
    "products": lambda t, s, x, y: te.compute((M,), lambda j: te.sum(lambda i, k: x[i, k] * x[i, j] * s[k] * y[t], (N, M))),
}


def _there_and_back(s, x, y):
    u = te.compute((N,), lambda i: y[i] / te.sum(lambda j: x[i, j] * s[j], M), name="u")
    return te.compute((M,), lambda j: s[j] / te.sum(lambda i: x[i, j] * u[i], N), name="v")


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_any_size_have_a_schedule(name):
    """What planners ask of a reduction may name the step of the scan around it, which is no loop of theirs."""
    x, y, s0 = te.placeholder((N, M), name="x"), te.placeholder((N,), name="y"), te.placeholder((M,), name="s0")
    states = te.scan(lambda t, s: STEPS[name](t, s, x, y), s0, 20)
    loss = te.compute((), lambda: te.sum(lambda j: states[19, j], M))
    for outputs in ([states], list(te.gradient(loss, [x, y, s0]))):
        lower(by_planners(outputs))
