"""The default schedule: what it fuses, tiles, vectorizes and runs in parallel, asserted on loops and counts."""

import inspect
import sys

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes, kernels
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, For
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.windows import most_points
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Reduce
from tensorexpr.parse import parse_expr, parse_program
from tests.codegen.programs import SOFTMAX, WIDE, as_built, assert_means, by_planners, loops, statements

CONVOLUTION = """
x: f32[1, 2, 4, 28] = input()
w: f32[8, 2, 3, 3] = input()
Y[b, o, y, z]: f32[1, 8, 2, 26] = sum(x[b, i, y + r, z + s] * w[o, i, r, s] for i in range(2) for r in range(3) for s in range(3))
return Y
"""
CONVOLUTION_INPUT_GRADIENT = """
h: f32[1, 2, 3, 26] = input()
w: f32[2, 8, 3, 3] = input()
G[b, c, p, q]: f32[1, 8, 5, 28] = sum(
    h[b, o, y, z] * w[o, c, p - y, q - z]
    for o in range(2)
    for y in range(maximum(0, p - 2), minimum(3, p + 1))
    for z in range(maximum(0, q - 2), minimum(26, q + 1))
)
return G
"""
STRIDED_INPUT_GRADIENT = """
h: f32[13] = input()
w: f32[3] = input()
G[q]: f32[28] = sum(h[z] * w[q - 2 * z] for z in range(maximum(0, -((2 - q) // 2)), minimum(13, q // 2 + 1)))
return G
"""


def auto(text: str, target: Target = WIDE) -> Planned:
    return autoschedule(parse_program(text), target)


def matmul(n: int, k: int, m: int, dtype: str = "f32") -> str:
    return (
        f"A: {dtype}[{n}, {k}] = input()\nB: {dtype}[{k}, {m}] = input()\n"
        f"C[i, j]: {dtype}[{n}, {m}] = sum(A[i, k] * B[k, j] for k in range({k}))\nreturn C"
    )


def accumulators(s: Planned) -> list[int]:
    """Elements of the local buffers of a schedule's nest."""
    sizes = []
    for statement in statements(lower(s).kernels):
        if isinstance(statement, Alloc):
            count = 1
            for extent in statement.buffer.shape:
                count *= int(extent.value)
            sizes.append(count)
    return sizes


def test_a_matmul_keeps_a_tile_in_registers():
    s = auto(matmul(24, 2, 128))
    (tile,) = accumulators(s)
    assert 16 * 12 <= tile <= 16 * 31  # vectors of 16 lanes: many, and not more than there are registers
    assert "unroll" in dict(loops(assert_means(s))).values()


@pytest.mark.parametrize(("bits", "dtype", "lanes"), [(512, "f32", 16), (512, "f64", 8), (256, "f32", 8), (256, "f64", 4), (128, "f32", 4)])
def test_lanes_follow_target_and_dtype(bits, dtype, lanes):
    target = Target("test", bits, 32 if bits == 512 else 16, cores=2)
    nest = lower(auto(f"X: {dtype}[64, 64] = input()\nY[i, j]: {dtype}[64, 64] = exp(X[i, j])\nreturn Y", target))
    assert {int(s.stop.value) for s in statements(nest.kernels) if isinstance(s, For) and s.kind == "vectorize"} == {lanes}


def test_operands_that_are_only_contiguous_in_the_reduction_get_lanes_there():
    s = auto("A: f32[8, 64] = input()\nB: f32[6, 64] = input()\nC[i, j]: f32[8, 6] = sum(A[i, k] * B[j, k] for k in range(64))\nreturn C")
    nest = assert_means(s)
    assert "C_sum_lanes" in str(nest) and ("k_i", "vectorize") in loops(nest)


def test_a_convolution_is_tiled_over_output_channels_and_pixels():
    s = auto(CONVOLUTION)
    assert max(accumulators(s)) >= 6 * 32
    assert ("z_i", "vectorize") in loops(assert_means(s))


def test_the_gradient_of_a_convolution_runs_over_windows():
    s = auto(CONVOLUTION_INPUT_GRADIENT)
    nest = assert_means(s)
    window = next(x for x in statements(nest.kernels) if isinstance(x, For) and x.index == "z")
    assert (int(window.start.value), int(window.stop.value)) == (0, 3)
    assert "unroll" in {kind for _, kind in loops(nest)}


def test_the_gradient_of_a_strided_convolution_has_lanes_per_residue():
    nest = assert_means(auto(STRIDED_INPUT_GRADIENT))
    # One loop nest per residue of q modulo 2; the window of the odd one has a single point and is no loop.
    assert [(s.index, int(s.stop.value)) for s in statements(nest.kernels) if isinstance(s, For) and s.index == "z"] == [("z", 2)]
    assert "G[q_o_i * 2 + 1]" in str(nest) or "G[q_o * 2 + 1]" in str(nest)


def test_a_softmax_is_one_kernel_with_its_row_near():
    nest = assert_means(auto(SOFTMAX), exact=False)
    assert len(nest.kernels) == 1 and not nest.workspace


def test_results_of_a_contraction_get_what_is_done_with_them_in_the_same_loops():
    s = auto(matmul(8, 8, 64).replace("return C", "b: f32[64] = input()\nY[i, j]: f32[8, 64] = maximum(C[i, j] + b[j], 0.0)\nreturn Y"))
    nest = assert_means(s)
    assert len(nest.kernels) == 1 and not nest.workspace


@pytest.mark.parametrize("condition, stored", [("m[i, j] > 0.0", True), ("j <= i", False)])
def test_a_product_that_data_select_keeps_its_tile(condition: str, stored: bool):
    text = matmul(32, 16, 64).replace(
        "return C", f"m: f32[32, 64] = input()\nD[i, j]: f32[32, 64] = where({condition}, C[i, j], 0.0)\nreturn D"
    )
    s = auto("\n".join(sorted(text.splitlines(), key=lambda line: "input()" not in line)))
    assert ("C" in s.stages) == stored
    assert_means(s)


def test_elementwise_producers_are_never_stored():
    nest = assert_means(auto("X: f32[64] = input()\nA[i]: f32[64] = X[i] * 2.0\nY[i]: f32[64] = A[i] + 1.0\nreturn Y"))
    assert len(nest.kernels) == 1 and not nest.workspace


def test_small_work_stays_on_one_core_and_large_work_does_not():
    assert not any(kind == "parallel" for _, kind in loops(lower(auto(matmul(8, 8, 8)))))
    assert loops(lower(auto(matmul(256, 64, 64))))[0][1] == "parallel"
    alone = Target("test", 512, 32, cores=1)
    assert not any(kind == "parallel" for _, kind in loops(lower(auto(matmul(256, 64, 64), alone))))


def test_too_few_outer_iterations_are_fused_with_those_inside():
    s = auto("X: f32[3, 64, 256] = input()\nY[a, b, c]: f32[3, 64, 256] = exp(X[a, b, c])\nreturn Y")
    assert loops(lower(s))[0] == ("a_b", "parallel")


def test_lanes_avoid_indices_that_are_checked():
    s = auto("W: f32[50, 32] = input()\nids: i64[16] = input()\nE[t, d]: f32[16, 32] = W[ids[t], d]\nreturn E")
    text = str(lower(s))
    assert text.index("check(ids[t]") < text.index("vectorize")


SEGMENTS = "sizes(n)\nids: i32[n] = input()\no, r = segments[5000](i64(ids[t]) for t in range(n))\n"


def test_sums_over_segments_run_on_all_cores_with_lanes_beside_them():
    s = auto(SEGMENTS + "G: f32[n, 64] = input()\nW[v, d]: f32[5000, 64] = sum(G[r[k], d] for k in range(o[v], o[v + 1]))\nreturn W")
    assert s.as_python().splitlines() == ["s['W'].reorder('v', 'k', 'd')", "s['W'].vectorize('d')", "s['W'].parallel('v')"]
    s = auto(SEGMENTS + "G: f32[n] = input()\nW[v]: f32[5000] = sum(G[r[k]] for k in range(o[v], o[v + 1]))\nreturn W")
    assert s.as_python().splitlines()[1:] == ["s['W'].reorder('v', 'k_o', 'k_i')", "s['W'].vectorize('k_i')", "s['W'].parallel('v')"]


def test_sizes_that_are_bound_late_run_every_extent():
    text = (
        "sizes(n)\n"
        "X: f32[n, n] = input()\n"
        "Y[i]: f32[n] = sum(X[i, k] * X[k, i] for k in range(n))\n"
        "Z[i, j]: f32[n, n] = X[j, i] * 2.0\n"
        "return Y, Z"
    )
    for n in (0, 1, 5, 17):
        assert_means(auto(text), n=n)


def test_the_same_program_has_the_same_schedule():
    assert auto(CONVOLUTION) == auto(CONVOLUTION) and auto(CONVOLUTION).as_python() == auto(CONVOLUTION).as_python()


def test_a_long_chain_of_definitions_takes_no_depth():
    """With a frame for each definition, calls would be deeper than they may be."""
    count, limit = 300, sys.getrecursionlimit()
    sums = [f"T{k + 1}[i]: f32[8] = sum(T{k}[j] for j in range(i + 1))" for k in range(count)]
    sys.setrecursionlimit(len(inspect.stack(0)) + count)
    try:
        assert len(lower(auto("\n".join(["T0: f32[8] = input()", *sums, f"return T{count}"]))).kernels) == count
    finally:
        sys.setrecursionlimit(limit)


def test_a_softmax_and_its_gradient_share_their_rows():
    """What they need of a row (its maximum, the sum) is computed once and stored nowhere; the column sums of a norm are apart."""

    def nest_of(op, *shapes):
        inputs = [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
        head = te.placeholder(shapes[0], name="head")
        output = op(*inputs)
        return lower(autoschedule(as_built([output, *te.gradient(output, inputs, head)], [*inputs, head]), WIDE))

    softmax = nest_of(kernels.softmax, (64, 48))
    assert len(softmax.kernels) == 1 and not softmax.workspace
    norm = nest_of(kernels.layer_norm, (64, 48), (48,), (48,))
    assert sum("layer_norm" in repr(k.body) and "x0_bar" in repr(k.body) for k in norm.kernels) == 1
    assert all(len(b.shape) == 1 for b in norm.workspace)


def test_columns_that_share_what_they_load_get_tiles_instead():
    text = """
A: f32[512, 64] = input()
B: f32[512, 1024] = input()
Y[k, j]: f32[64, 1024] = sum(A[i, k] * B[i, j] for i in range(512))
return Y
"""
    assert "j_i_o" not in autoschedule(parse_program(text), WIDE)["Y"].loops


def pool_with_gradient(pictures, side, target):
    x = te.placeholder((8, pictures, side, side), name="x")
    y = kernels.max_pool2d(x, kernel_size=3, stride=2)
    head = te.placeholder(y.shape, name="head")
    return lower(autoschedule(by_planners([y, *te.gradient(y, [x], head)]).program, target))


def test_steps_that_read_between_the_elements_of_lanes_are_copied_out():
    """Even and odd elements are loaded together; where lanes read side by side, there is nothing to share."""

    def copied_out(stride: int) -> bool:
        text = f"""
x: f32[4, 64, 128] = input()
Y[n, y, z]: f32[4, 32, 63] = max(x[n, y * 2 + r, z * {stride} + s] for r in range(2) for s in range(2))
return Y
"""
        return "s['Y'].unroll('s')" in autoschedule(parse_program(text), WIDE).as_python()

    assert copied_out(2) and not copied_out(1)


def test_classes_that_end_with_a_whole_vector_are_stored_once():
    """56 of each of two classes are 7 vectors of 16 side by side; of 55 the last vector overlaps."""

    def loops_of(width: int) -> tuple[str, ...]:
        text = f"""
h: f32[512, {width // 2}] = input()
Y[n, p]: f32[512, {width}] = where(p % 2 == 0, h[n, p // 2], h[n, p // 2] * 2.0)
return Y
"""
        return autoschedule(parse_program(text), WIDE)["Y"].loops

    assert loops_of(112) == ("n", "p_o", "p_i") and loops_of(110) == ("n", "p_o_o", "p_o_i", "p_i")


def test_a_pool_and_its_winners_read_the_picture_together():
    """Rows that are large together and small one by one: both definitions run in one loop over them, before the gradient."""

    def count(pictures, side, cores):
        return len(pool_with_gradient(pictures, side, Target("cpu", 512, 32, cores, 32 << 10, 1 << 20, 64 << 20)).kernels)

    assert count(64, 112, 2) == count(64, 112, 64) == 2  # sums may not depend on how many cores there are
    assert count(2, 32, 2) == 3  # the whole picture stays near


def depthwise(pictures: int, wide: int, channels: int) -> str:
    return f"""
x: f32[{pictures}, 6, {wide}, {channels}] = input()
w: f32[3, 3, {channels}] = input()
y[n, p, q, k]: f32[{pictures}, 6, {wide}, {channels}] = sum(
    where(i + p >= 1 and i + p < 7 and j + q >= 1 and j + q < {wide + 1}, x[n, i + p - 1, j + q - 1, k], 0.0) * w[i, j, k]
    for i in range(3)
    for j in range(3)
)
return y
"""


def test_rows_of_a_tile_lie_near_each_other_and_taps_along_them_share_what_they_read():
    """Not images, each a stream of its own; and what all rows share is so small that blocks of channels go by inside of those of rows."""
    target = Target("test", vector_bits=512, registers=32, cores=2)
    s, small = (autoschedule(parse_program(depthwise(*extents)), target) for extents in ((8, 32, 64), (2, 20, 32)))
    assert s["y"].loops == ("n", "p", "q_o", "k_o", "i", "j", "q_i", "k_i") and small["y"].loops == ("n_p", *s["y"].loops[2:])
    for made in (s, small):
        assert "s['y'].unroll('q_i')" in made.as_python() and "s['y'].unroll('j')" in made.as_python()
    assert_means(small)


def depthwise_gradients(pictures: int, high: int, wide: int, channels: int) -> str:
    return f"""
x: f32[{pictures}, {high}, {wide}, {channels}] = input()
w: f32[3, 3, {channels}] = input()
g: f32[{pictures}, {high}, {wide}, {channels}] = input()
x_bar[n, p, q, u]: f32[{pictures}, {high}, {wide}, {channels}] = sum(
    g[n, p - i + 1, q - j + 1, u] * w[i, j, u]
    for i in range(maximum(p - {high - 2}, 0), minimum(p + 2, 3))
    for j in range(maximum(q - {wide - 2}, 0), minimum(q + 2, 3))
)
w_bar[n, i, j, k]: f32[{pictures}, 3, 3, {channels}] = sum(
    g[n, y, z, k] * x[n, i + y - 1, j + z - 1, k]
    for y in range(maximum(1 - i, 0), minimum({high + 1} - i, {high}))
    for z in range(maximum(1 - j, 0), minimum({wide + 1} - j, {wide}))
)
return x_bar, w_bar
"""


def test_rows_of_a_depthwise_gradient_are_tiles_where_lanes_have_no_masks():
    """Rows with borders make tiles of their own there; lanes of which none reads what others do are as many as there are."""
    target = Target("test", vector_bits=512, registers=32, cores=2, l2_bytes=1 << 20)
    s, small = (autoschedule(parse_program(depthwise_gradients(*extents)), target) for extents in ((8, 56, 56, 64), (2, 4, 20, 32)))
    for made in (s, small):
        assert made["x_bar"].loops[-2:] == ("q_i", "u_i") and "s['x_bar'].unroll('q_i')" in made.as_python()
        assert made["w_bar"].loops[-2:] == ("i", "k") and "s['w_bar'].unroll('i')" in made.as_python()
    assert_means(small)


def channels_first(high: int, wide: int) -> str:
    return f"""
x: f32[8, 64, {high}, {wide}] = input()
w: f32[64, 3, 3] = input()
g: f32[8, 64, {high}, {wide}] = input()
y[n, c, i, j]: f32[8, 64, {high}, {wide}] = sum(
    where(i + r >= 1 and i + r < {high + 1} and j + s >= 1 and j + s < {wide + 1}, x[n, c, i + r - 1, j + s - 1], 0.0) * w[c, r, s]
    for r in range(3) for s in range(3)
)
x_bar[n, p, q, u]: f32[8, 64, {high}, {wide}] = sum(
    g[n, p, q - r + 1, u - s + 1] * w[p, r, s]
    for r in range(maximum(q - {high - 2}, 0), minimum(q + 2, 3))
    for s in range(maximum(u - {wide - 2}, 0), minimum(u + 2, 3))
)
w_bar[k, r, s]: f32[64, 3, 3] = sum(
    g[n, k, y, z] * x[n, k, r + y - 1, s + z - 1]
    for n in range(8)
    for y in range(maximum(1 - r, 0), minimum({high + 1} - r, {high}))
    for z in range(maximum(1 - s, 0), minimum({wide + 1} - s, {wide}))
)
return y, x_bar, w_bar
"""


def test_windows_that_rows_share_are_written_out():
    """Whichever axis of the reduction goes over them."""
    s = autoschedule(parse_program(channels_first(56, 56)), Target("test", vector_bits=512, registers=32, cores=1, l2_bytes=1 << 20))
    assert s["y"].loops[-4:] == ("r", "i_i", "j_o", "j_i") and "s['y'].unroll('r')" in s.as_python()
    assert s["x_bar"].loops[-4:] == ("r", "q_i", "u_o", "u_i") and "s['x_bar'].unroll('r')" in s.as_python()
    # Rows of 224 bytes begin within a line: their tiles would write parts of lines past the caches.
    assert not lowered(s).streams


@pytest.mark.parametrize("sides", [(7, 18), (10, 33)], ids=str)
def test_windows_written_out_mean_the_same(sides: tuple[int, int]):
    program = parse_program(channels_first(*sides).replace("[8, 64", "[1, 2").replace("[64", "[2").replace("range(8)", "range(1)"))
    s = autoschedule(program, Target("test", vector_bits=512, registers=32, cores=1, l2_bytes=1 << 20))
    assert_means(s)


@pytest.mark.parametrize(
    ("bounds", "most"),
    [("maximum(i - 59, 0), minimum(i + 5, 9)", 9), ("maximum(0, i - 2), i + 1", 3), ("i // 2, (i + 5) // 2", 3), ("0, i + 1", None)],
)
def test_the_most_points_of_a_window_anywhere(bounds: str, most: int | None):
    """Lanes along it need be no more."""
    value = parse_expr(f"sum(x[k] for k in range({bounds}))", {"x": dtypes.float32})
    assert isinstance(value, Reduce) and most_points(value.axes[0]) == most


@pytest.mark.parametrize(("weight", "lanes"), [("exp(-0.5 * (x[i + d] - x[i]))", 32), ("(x[i + d] - x[i])", 64)])
def test_functions_of_a_window_leave_registers_for_what_each_vector_holds(weight: str, lanes: int):
    """Two sums, what is read of the point itself, and the coefficients."""
    sums = f"sum({weight} * x[i + d] for d in range(9)) / sum({weight} for d in range(9))"
    s = auto(f"x: f32[8200] = input()\ny[i]: f32[8192] = {sums}\nreturn y")
    assert f"s['y'].split('i', {lanes}, 'shift')" in s.as_python()


@pytest.mark.parametrize(
    ("value", "extent", "lanes"),
    [
        ("0.5 * x[i] * (1.0 + tanh(x[i] * x[i] + x[i]))", 8192, 64),
        ("0.5 * x[i] * (1.0 + tanh(x[i] * x[i] + x[i]))", 100, 16),
        ("exp(x[i]) * 2.0", 8192, 16),
    ],
)
def test_long_chains_of_functions_run_in_vectors_side_by_side(value: str, extent: int, lanes: int):
    s = auto(f"x: f32[{extent}] = input()\ny[i]: f32[{extent}] = {value}\nreturn y")
    assert f"s['y'].split('i', {lanes}, 'shift')" in s.as_python()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16", "bool"])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_elements_of_each_lane_mean_the_same(dtype, count):
    """Colors of pixels: lanes along the pixels, of which vectors of all colors are stored without gaps; at any number of pixels."""
    n = te.dim("n")
    for rows in (n, 300):
        x, m = te.placeholder((rows, count), dtype, name="x"), te.placeholder((rows,), "bool", name="m")
        turned = te.compute((rows, count), lambda i, c: te.where(m[i], x[i, count - 1 - c], x[i, 0]), name="turned")  # noqa: B023
        run = te.build([turned], [x, m])
        for k in (0, 1, 7, 33, 300) if rows is n else (300,):
            given = np.random.default_rng(k).integers(0, 2 if dtype == "bool" else 100, (k, count)).astype(dtype)
            mask = np.random.default_rng(k).random(k) < 0.5
            np.testing.assert_array_equal(run(given, mask)[0], np.where(mask[:, None], given[:, ::-1], given[:, :1]))


@pytest.mark.parametrize("count, inside", [(2, True), (3, True), (4, True), (5, False)])
def test_few_elements_of_each_lane_are_stored_side_by_side(count, inside):
    terms = " + ".join(f"M[c, {k}] * X[i, {k}]" for k in range(count))
    s = auto(f"X: f32[300, {count}] = input()\nM: f32[{count}, {count}] = input()\nY[i, c]: f32[300, {count}] = {terms}\nreturn Y")
    assert (s["Y"].loops[-1] == "c") == inside
    assert_means(s)
