"""Pairwise terms: computed again by each reader, once per pair, in the loops of its sums; no matrix of the pairs is stored."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Block, Buffer, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply, Const
from tensorexpr.parse import parse_program
from tensorexpr.traversal import walk
from tests.codegen.programs import WIDE, as_built, assert_means, loops, plain, statements

N, M = 64, 96

WEIGHTS = """
x: f32[64, 3] = input()
y: f32[96, 3] = input()
S[i, j]: f32[64, 96] = sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]) for k in range(3))
P[i, j]: f32[64, 96] = exp(-S[i, j])
X[i, k]: f32[64, 3] = sum(P[i, j] * (x[i, k] - y[j, k]) for j in range(96))
Y[j, k]: f32[96, 3] = sum(P[i, j] * (x[i, k] - y[j, k]) for i in range(64))
return X, Y
"""
CHANNELS = """
x: f32[64, 3] = input()
y: f32[96, 3] = input()
b: f32[96, 5] = input()
Z[i, c]: f32[64, 5] = sum(exp(-sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]) for k in range(3))) * b[j, c] for j in range(96))
return Z
"""
TOTAL = """
x: f32[40, 3] = input()
y: f32[90, 3] = input()
T[u]: f32[1] = sum(1.0 + sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]) for k in range(3)) for i in range(40) for j in range(90))
return T
"""
GIVEN = """
x: f32[64, 3] = input()
y: f32[96, 3] = input()
G: f32[64, 96] = input()
P[i, j]: f32[64, 96] = G[i, j] * (1.0 + sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]) for k in range(3)))
X[i, k]: f32[64, 3] = sum(P[i, j] * (x[i, k] - y[j, k]) for j in range(96))
Y[j, k]: f32[96, 3] = sum(P[i, j] * (x[i, k] - y[j, k]) for i in range(64))
return X, Y
"""


@te.op
def distance_loss(x, y):
    distance = kernels.cdist(x, y)
    return te.compute((N,), lambda i: te.sum(lambda j: te.square(distance[i, j] - 1.0), M))


CASES = {
    "gaussian": (kernels.gaussian_product, ((N, 3), (M, 3), (M, 1)), {}, 4),
    "gaussian, two channels": (kernels.gaussian_product, ((N, 3), (M, 3), (M, 2)), {"gamma": 0.5}, None),
    "laplacian": (kernels.laplacian_product, ((N, 3), (M, 3), (M, 1)), {}, 4),
    "cauchy": (kernels.cauchy_product, ((N, 3), (M, 3), (M, 1)), {}, None),
    "logsumexp": (kernels.gaussian_logsumexp, ((N, 3), (M, 3), (M,)), {}, 4),
    "sinkhorn": (kernels.sinkhorn_step, ((N, 3), (M, 3), (M,), (M,)), {"eps": 0.5}, None),
    "distance loss": (distance_loss, ((N, 3), (M, 3)), {}, None),
    "attention of short vectors": (kernels.scaled_dot_product_attention, ((1, N, 4), (1, M, 4), (1, M, 4)), {}, None),
}


def forward_and_gradient(name):
    op, shapes, static, _ = CASES[name]
    inputs = [te.placeholder(shape, "float32", name=f"x{k}") for k, shape in enumerate(shapes)]
    output = op(*inputs, **static)
    head = te.placeholder(output.shape, "float32", name="head")
    return [output, *te.gradient(output, inputs, head)], [*inputs, head]


def scheduled(name) -> Planned:
    return autoschedule(as_built(*forward_and_gradient(name)), WIDE)


def elements(buffer: Buffer) -> int:
    count = 1
    for extent in buffer.shape:
        assert isinstance(extent, Const)
        count *= int(extent.value)
    return count


def evaluations(nest: LoopNest, operation: str) -> int:
    """How often an operation is evaluated in a nest of constant loops."""

    def count(body: Block) -> int:
        total = 0
        for s in body:
            match s:
                case For():
                    assert isinstance(s.start, Const) and isinstance(s.stop, Const)
                    total += (int(s.stop.value) - int(s.start.value)) * count(s.body)
                case Store():
                    total += sum(isinstance(n, Apply) and n.op.name == operation for n in walk(s.value))
                case If():
                    total += count(s.then) + count(s.otherwise)
                case _:
                    total += count(getattr(s, "body", ()))
        return total

    return sum(count(kernel.body) for kernel in nest.kernels if isinstance(kernel, Kernel))


@pytest.mark.parametrize("name", CASES)
def test_no_matrix_of_the_pairs_is_stored(name):
    nest = lower(scheduled(name))
    assert [b.name for b in nest.workspace if elements(b) >= N * M] == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3]])
def test_each_reader_evaluates_a_pair_once(name):
    assert evaluations(lower(scheduled(name)), "exp") == CASES[name][3] * N * M


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_interpreter(name):
    outputs, inputs = forward_and_gradient(name)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(t.shape, dtype=np.float32) for t in inputs]
    want = te.evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
    for found, expected in zip(te.build(outputs, inputs)(*arrays), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


def test_sizes_known_at_run_time():
    n, m = te.dim("n"), te.dim("m")
    inputs = [te.placeholder(shape, "float32", name=name) for name, shape in zip("xyb", ((n, 3), (m, 3), (m, 1)), strict=True)]
    output = kernels.gaussian_product(*inputs)
    head = te.placeholder(output.shape, "float32", name="head")
    outputs = [output, *te.gradient(output, inputs, head)]
    compiled = te.build(outputs, [*inputs, head])
    assert compiled.nest.workspace == ()
    rng = np.random.default_rng(5)
    for rows, columns in ((33, 70), (5, 3)):
        arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, 3), (columns, 3), (columns, 1), (rows, 1))]
        want = te.evaluate(outputs, dict(zip([*inputs, head], arrays, strict=True)))
        for found, expected in zip(compiled(*arrays), want, strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


def test_the_rows_of_a_reader_are_lanes_and_its_coordinates_share_the_value():
    s = autoschedule(parse_program(WEIGHTS), WIDE)
    assert s.stages == ("X", "Y")
    nest = assert_means(s, exact=False)
    assert ("i_i", "vectorize") in loops(nest) and ("j_i", "vectorize") in loops(nest)
    assert {elements(b.buffer) // 32 for b in statements(nest.kernels) if hasattr(b, "buffer") and isinstance(b.buffer, Buffer)} == {1, 3}
    assert evaluations(nest, "exp") == 2 * 64 * 96


def test_recompute_is_a_primitive_with_a_loop_over_one_point():
    few = WEIGHTS.replace("64", "8").replace("96", "12")
    s = plain(few)
    s.recompute("S", "P")
    assert s["X"].loops == ("i", "k", "j", "k_1", "p")
    assert evaluations(assert_means(s, exact=False), "exp") == 2 * 3 * 8 * 12
    s["X"].reorder("i", "j", "k_1", "p", "k")
    assert evaluations(assert_means(s, exact=False), "exp") == (3 + 1) * 8 * 12
    again = plain(few)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)


def test_channels_share_what_is_written_inside_their_sum():
    few = CHANNELS.replace("64", "8").replace("96", "12")
    s = plain(few)
    assert evaluations(assert_means(s, exact=False), "exp") == 5 * 8 * 12
    s["Z"].share()
    s["Z"].reorder("i", "j", "k", "p", "c")
    assert evaluations(assert_means(s, exact=False), "exp") == 8 * 12
    again = plain(few)
    exec(s.as_python(), {"s": again})
    assert again == s
    assert evaluations(assert_means(autoschedule(parse_program(CHANNELS), WIDE), exact=False), "exp") == 64 * 96


def test_what_a_sum_does_not_depend_on_is_shared_by_its_points():
    text = "a: f32[4, 6] = input()\nb: f32[6, 5] = input()\nZ[i, j]: f32[4, 6] = sum(b[j, c] * exp(a[i, j]) for c in range(5))\nreturn Z"
    s = plain(text)
    assert evaluations(assert_means(s, exact=False), "exp") == 4 * 6 * 5
    s["Z"].share()
    assert evaluations(assert_means(s, exact=False), "exp") == 4 * 6


def test_sharing_is_refused_where_nothing_is_shared():
    s = plain(WEIGHTS)
    with pytest.raises(ScheduleError, match="expected values in S that points of some data axis have in common, got none"):
        s["S"].share()
    s = plain("V: f32[8] = input()\nY: f32[8] = scatter({(i): V[i] for i in range(8)})\nreturn Y")
    with pytest.raises(ScheduleError, match="expected a plain definition outside of scans to share values in, got Y"):
        s["Y"].share()
    s = plain(CHANNELS)
    s["Z"].reorder("c", "i")
    with pytest.raises(ScheduleError, match="expected plain loops of Z, whose values are to be shared, got changed ones"):
        s["Z"].share()


def test_lanes_along_an_outer_reduction_hold_the_inner_ones():
    s = plain(TOTAL)
    handle = s["T"]
    assert handle.loops == ("i", "j", "k", "u")
    with pytest.raises(ScheduleError, match="expected j outside of the reduction over k, which depends on it, got it inside"):
        handle.reorder("i", "k", "j")
    handle.split("j", 16)
    with pytest.raises(ScheduleError, match="expected j_o outside of the reduction over k, which depends on it, got it inside"):
        handle.reorder("i", "k", "j_o", "j_i")
    handle.reorder("i", "j_o", "k", "j_i")
    handle.vectorize("j_i")
    nest = assert_means(s)
    assert loops(nest).count(("j_i", "vectorize")) > 6  # two of them for what is left of j


@pytest.mark.parametrize(("length", "kind"), [(5, "unroll"), (40, "serial")])
def test_sums_inside_of_rows_are_copied_out_while_registers_hold_what_lanes_share(length: int, kind: str) -> None:
    text = f"""
x: f32[24, {length}] = input()
a: f32[{length}, 40] = input()
z: f32[24, 40] = input()
y[n]: f32[24] = sum(z[n, j] * exp(sum(x[n, i] * a[i, j] for i in range({length}))) for j in range(40))
return y
"""
    nest = lower(autoschedule(parse_program(text), WIDE))
    assert {k for name, k in loops(nest) if name == "i"} == {kind}


def test_a_sum_over_all_pairs_runs_in_lanes():
    nest = assert_means(autoschedule(parse_program(TOTAL), WIDE))
    assert {("j_o", "serial"), ("j_i", "vectorize")} < set(loops(nest)) and all(elements(b) == 1 for b in nest.workspace)


def test_a_matrix_of_the_pairs_is_read_along_its_rows():
    s = autoschedule(parse_program(GIVEN), WIDE)
    assert "s['X'].vectorize('j_i')" in s.as_python() and "s['X'].unroll('i_i')" in s.as_python()
    assert "s['Y'].vectorize('j_i')" in s.as_python()
    assert lower(s).workspace == () and assert_means(s)


def test_a_value_that_is_recomputed_keeps_its_bits():
    text = "a: f32[4] = input()\nP[i, j]: f32[4, 3] = -a[i]\nZ[i, k]: f32[4, 2] = max(1.0 / P[i, j] for j in range(3))\nreturn Z"
    s = plain(text)
    s["P"].recompute()
    found = assert_means(s, inputs={"a": np.array([0.0, -0.0, np.nan, 1e-45], np.float32)})
    assert "P" not in str(found)


def test_what_cannot_be_inlined_cannot_be_recomputed():
    s = plain(WEIGHTS)
    with pytest.raises(ScheduleError, match="expected a definition between others to inline, got the output X"):
        s.recompute("X")
    with pytest.raises(ScheduleError, match="expected a definition of the program, got 'Z'"):
        s.recompute("Z")
    assert s == plain(WEIGHTS)


def test_a_row_that_is_divided_by_its_sum_is_evaluated_once():
    rows = "t[i]: f32[64] = sum(P[i, j] for j in range(96))\nW[i, j]: f32[64, 96] = P[i, j] / t[i]\nreturn W"
    nest = assert_means(autoschedule(parse_program(WEIGHTS.replace("return X, Y", rows)), WIDE), exact=False)
    assert evaluations(nest, "exp") < 1.1 * 64 * 96  # blocks at the end overlap


def test_indices_are_not_shared() -> None:
    """Bounds of reductions divide the same quantities: they stay expressions over indices, of which loops can be put in order."""
    x, w, head = te.placeholder((40,), name="x"), te.placeholder((9,), name="w"), te.placeholder((2, 3), name="head")
    y = te.compute(
        (2, 3),
        lambda k, i: te.sum(lambda q: x[(5 - k - i) // 2] * te.cast((1 + k + 5 * i + 3 * q) // 2 % 2, "float32") * w[4 + 2 * k - 2 * i], 3),
    )
    gradients = te.gradient(y, [x, w], head)
    arrays = [np.arange(np.prod(t.shape), dtype=np.float32).reshape(t.shape) for t in (x, w, head)]
    for gradient, found in zip(gradients, te.build(list(gradients), [x, w, head])(*arrays), strict=True):
        np.testing.assert_array_equal(found, te.evaluate(gradient, dict(zip((x, w, head), arrays, strict=True))))


def test_values_are_not_shared_along_an_axis_that_bounds_the_sum() -> None:
    """Lanes along it visit different points of the sum at the same time."""
    x, h = te.placeholder((9,), name="x"), te.placeholder((5, 8), name="h")
    w = te.compute(
        (6,),
        lambda p: te.sum(lambda i: te.sum(lambda t: h[i, t] * te.exp(x[t]) * x[p], (p + 1) // 3 + 1), 5),
    )
    data = [np.linspace(0, 1, t.shape[-1] * (t.shape[0] if len(t.shape) > 1 else 1), dtype=np.float32).reshape(t.shape) for t in (x, h)]
    np.testing.assert_allclose(te.build(w, [x, h])(*data), te.evaluate(w, dict(zip((x, h), data, strict=True))), rtol=1e-5)


@pytest.mark.parametrize(("depth", "stored"), [(16, True), (4, False)])
def test_scores_of_open_rows_that_several_read_are_stored_where_they_are_long_products(depth, stored):
    n = te.dim("n")
    q, k = te.placeholder((n, depth), name="q"), te.placeholder((n, depth), name="k")
    scores = te.compute((n, n), lambda i, j: te.sum(lambda d: q[i, d] * k[j, d], depth), name="scores")
    top = te.compute((n,), lambda i: te.max(lambda j: scores[i, j], n), name="top")
    total = te.compute((n,), lambda i: te.sum(lambda j: te.exp(scores[i, j] - top[i]), n), name="total")
    nest = te.build(total, [q, k]).source("nest")
    assert ("scores: workspace" in nest) is stored, nest


@pytest.mark.parametrize(("channels", "stored"), [(5, []), (24, ["t"])])
def test_an_operand_of_a_product_is_stored_where_accumulators_are_no_registers(channels: int, stored: list[str]) -> None:
    text = f"""
x: f32[200, 8] = input()
y: f32[8, 400] = input()
z: f32[400, {channels}] = input()
t[i, j]: f32[200, 400] = sum(x[i, k] * y[k, j] for k in range(8))
u[i, c]: f32[200, {channels}] = sum(t[i, j] * z[j, c] for j in range(400))
return u
"""
    assert [b.name for b in lower(autoschedule(parse_program(text), WIDE)).workspace] == stored


@pytest.mark.parametrize(("length", "stored"), [(2, []), (20, ["v"])])
def test_work_inside_of_a_sum_counts_for_each_of_its_points(length: int, stored: list[str]) -> None:
    text = f"""
x: f32[200, 4] = input()
y: f32[4, {length}, 400] = input()
t[i, j, l]: f32[200, 400, {length}] = exp(sum(x[i, k] * y[k, l, j] for k in range(4)))
v[i, j]: f32[200, 400] = sum(t[i, j, l] for l in range({length}))
u[i]: f32[200] = sum(v[i, j] * v[i, j] * v[i, j] for j in range(400))
return u
"""
    assert [b.name for b in lower(autoschedule(parse_program(text), WIDE)).workspace if b.name in "tv"] == stored
