"""The search over nests: what it gives computes what the program means, is the same each time, and is rebuilt by its calls."""

import random
import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.candidate import Candidate, plain
from tensorexpr.codegen.auto.machine import SAPPHIRE_RAPIDS, ZEN_4
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.search import joining, searched
from tensorexpr.codegen.auto.summary import STORE
from tensorexpr.codegen.auto.tiles.bound import least
from tensorexpr.codegen.nest import Buffer
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.walks import buffers_written
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.stages import SEARCH
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.kernels import max_pool2d
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tests.codegen.llvm.nests import run
from tests.codegen.rewrites.law import UNITS, Kept, kept_of, near
from tests.fuzz.checks import SMALL
from tests.random_programs import random_inputs
from tests.seeds import share_of

FACTS = SAPPHIRE_RAPIDS


FOUND = (9000220,)
"""Seeds that a campaign found: a kernel of checks alone."""
EMPTY = (1120, 1189, 1227)
"""Seeds of kernels that have no iteration, and are gone at the end: one, and all."""


@pytest.mark.parametrize("seed", [*share_of(range(240)), *FOUND])
def test_random_programs_keep_their_values(seed):
    check(seed, FACTS)


@pytest.mark.parametrize("seed", dict.fromkeys([*share_of(range(1000, 1240)), *EMPTY]))
def test_random_programs_on_a_tiny_machine_keep_their_values(seed, monkeypatch):
    """Caches of a few lines, and sums that are taken apart however short they are: what large programs meet."""
    for module, name, small in SMALL:
        monkeypatch.setattr(module, name, small)
    check(seed, replace(FACTS, caches=(128, 256, 512)))


def check(seed, facts):
    """That the nest of the search computes a random program, and that its calls make it again."""
    kept = kept_of(seed)
    if kept is None:
        return
    found = searched(kept.program, facts)
    kept.check(found.nest, UNITS)
    again = plain(kept.program)
    for call in found.calls:
        again = again.then(call.word, *call.arguments)
    assert print_nest(again.nest) == print_nest(found.nest)
    if seed % 4:
        return
    for (arrays, sizes), expected in zip(kept.cases, kept.expected, strict=True):
        if expected is not None:
            values = run(found.nest, arrays, sizes)
            for name, parameter in zip(kept.program.outputs, found.nest.writes, strict=True):
                near(values[parameter], expected[name], UNITS, f"{sizes}: {name} of\n{kept.program}\n{found.nest}")


def test_builds_take_what_is_clearly_faster():
    """A matrix times eight columns, whose sums the planners take in parts."""
    a, b = te.placeholder((2048, 2048), name="a"), te.placeholder((2048, 8), name="b")
    y = te.compute((2048, 8), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 2048), name="y")
    f, s = te.build(y, [a, b]), te.autoschedule(y)
    assert s.origin == SEARCH and f.schedule == s and len(s.nest.kernels) == 1 and not s.nest.workspace
    rng = np.random.default_rng(3)
    one, other = (rng.standard_normal(shape, np.float32) for shape in ((2048, 2048), (2048, 8)))
    np.testing.assert_allclose(f(one, other), one.astype(np.float64) @ other, rtol=1e-5, atol=1e-3)
    again = te.schedule(y)
    exec(s.as_python(), {"s": again})
    assert again == s and te.build(again, [a, b]).source("nest") == f.source("nest")


def test_builds_look_for_fewer_passes_where_arithmetic_hides_memory_from_one_thread():
    """The gradients of a scale and an offset behind a hyperbolic tangent: one thread hardly waits for what several would wait for."""
    x, a, b = te.placeholder((1 << 19,), name="x"), te.placeholder((), name="a"), te.placeholder((), name="b")
    y = te.compute(x.shape, lambda i: te.tanh(te.tanh(a[()] * x[i] + b[()])))
    h = te.placeholder(y.shape, name="h")
    s = te.autoschedule(list(te.gradient([y], [x, a, b], [h])), inputs=[x, a, b, h])
    large = [b for b in s.nest.workspace if len(b.shape) == 1 and b.shape[0].value > 256]
    assert s.origin == SEARCH and not large


def test_what_is_made_of_the_elements_of_a_sum_runs_in_its_loops():
    """A result and what a gradient needs of it read a sum each at its own element: the sum is not stored."""
    kept = Kept.of_text("""
x: f32[16, 80] = input()
h: f32[16, 40] = input()
T[i, j]: f32[16, 40] = sum(cosh(x[i, j + k]) for k in range(40))
Y[i, j]: f32[16, 40] = sum(cosh(x[i, j + k]) * x[i, j + k] for k in range(40)) / T[i, j]
B[i, j]: f32[16, 40] = h[i, j] / T[i, j]
return Y, B
""")
    nest = kept.check(searched(kept.program, FACTS).nest, UNITS)
    assert "T" not in [buffer.name for buffer in nest.workspace] and len(nest.kernels) == 1


def test_names_that_another_group_took_stay_taken():
    """A group is searched beside buffers that stand for names taken elsewhere; fusing, which leaves a buffer out, leaves these."""
    x, w = te.placeholder((64, 32), name="x"), te.placeholder((32, 48), name="w")
    t = te.compute((64, 48), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], 32), name="t")
    y = te.compute((64,), lambda i: te.sum(lambda j: t[i, j] * t[i, j], 48), name="y")
    nest = plain(te.program_of([y], [x, w])).nest
    taken = replace(nest, workspace=(*nest.workspace, Buffer("w_staged", te.int64, (), "workspace")))
    fused = Candidate(taken).then("fuse_at", "t", "i_1").then("pack", "w", "y", (1, 0))
    assert [buffer.name for buffer in fused.nest.workspace] == ["w_staged", "w_staged_1"]


@pytest.mark.parametrize("combine", ["all(X[i, k] for k in range(40))", "any(X[i, k] & X[k, i] for k in range(40))"])
def test_reductions_of_booleans(combine):
    kept = Kept.of_text(f"""
X: bool[40, 40] = input()
y[i]: bool[40] = {combine}
return y
""")
    kept.check(searched(kept.program, FACTS).nest)


SOFTMAX = """
x: f32[48, 80] = input()
m[i]: f32[48] = max(x[i, k] for k in range(80))
t[i]: f32[48] = sum(exp(x[i, k] - m[i]) for k in range(80))
y[i, j]: f32[48, 80] = exp(x[i, j] - m[i]) / t[i]
return y
"""


def column_sums(rows: int, columns: int) -> str:
    return f"""
a: f32[{rows}, {columns}] = input()
c[j]: f32[{columns}] = sum(a[i, j] for i in range({rows}))
return c
"""


def test_sums_down_columns_go_through_memory_in_order():
    """Pieces of rows come at half the speed of whole ones: sums of a whole row wait in the first cache."""
    text = print_nest(searched(parse_program(column_sums(4096, 4000)), ZEN_4).nest)
    assert re.search(r"^    for i\w* in range", text, re.MULTILINE) and "c[" in text, text  # rows around what is done in each
    kept = Kept.of_text(column_sums(37, 75))
    kept.check(searched(kept.program, ZEN_4).nest, UNITS)


def test_an_exponential_of_a_row_is_taken_once():
    """A row of exponentials is kept between the sum of them and what is divided by it; the least counts them once."""
    kept = Kept.of_text(SOFTMAX)
    nest = kept.check(searched(kept.program, ZEN_4).nest, UNITS)
    assert print_nest(nest).count("exp(") == 1
    once, twice = (plain(parse_program(text)).nest for text in (SOFTMAX.replace("exp(x[i, k] - m[i])", "x[i, k]"), SOFTMAX))
    one, two = (least(nest, ZEN_4, {b.name for b in nest.parameters}) for nest in (once, twice))
    assert one <= two < 1.2 * one


def test_the_least_counts_once_what_several_kernels_compute():
    """A loss and its gradients are made of the same differences: one loop may serve all of them."""
    term = "x[i] - z[i]"
    for _ in range(30):
        term = f"({term}) * z[i] + 1.0"
    head = "x: f32[4096] = input()\nz: f32[4096] = input()\n"
    one = f"{head}y[i]: f32[4096] = {term}\nreturn y"
    two = f"{head}y[i]: f32[4096] = {term}\nw[i]: f32[4096] = ({term}) * 2.0\nreturn y, w"
    first, second = (least(nest, ZEN_4, {b.name for b in nest.parameters}) for nest in (plain(parse_program(t)).nest for t in (one, two)))
    assert first <= second < 1.1 * first


SCALED = """
x: f32[{n}, 64] = input()
w: f32[64] = input()
h: f32[{n}, 64] = input()
X[i, j]: f32[{n}, 64] = h[i, j] * w[j]
W[j]: f32[64] = sum(h[i, j] * x[i, j] for i in range({n}))
return X, W
"""


@pytest.mark.parametrize("rows", [4096, 4093])
def test_rows_and_a_sum_over_them_are_one_pass(rows):
    """In blocks of rows, the last of which is shorter where they leave a rest: no part of the nest stands twice."""
    text = print_nest(searched(parse_program(SCALED.format(n=rows)), ZEN_4).nest)
    assert text.count(" x[") == text.count(" X[") == 1 and "sum_parts[i_o" in text, text


def gradients(seed: int) -> str:
    """Element by element over rows, beside sums over them of what is made of the same: gradients of parameters."""
    rng = random.Random(seed)
    rows, columns = rng.choice((1000, 1021)), rng.choice((17, 24))
    lines = [f"X: f64[{rows}, {columns}] = input()", f"H: f64[{rows}, {columns}] = input()", f"W: f64[{columns}] = input()"]
    lines.append(f"Y[i, j]: f64[{rows}, {columns}] = {rng.choice(('exp', 'tanh'))}(X[i, j] * W[j])")
    lines.append(f"G[i, j]: f64[{rows}, {columns}] = H[i, j] * tanh(X[i, j] * W[j]) + {rng.choice(('1.0', 'H[i, j]'))}")
    lines.append(f"D[i, j]: f64[{rows}, {columns}] = G[i, j] * W[j]")
    for name in ("S", "T"):
        value = rng.choice(("G[i, j] * X[i, j]", "G[i, j]", "H[i, j] * X[i, j]", "Y[i, j] * 2.0"))
        lines.append(f"{name}[j]: f64[{columns}] = sum({value} for i in range({rows}))")
    return "\n".join((*lines, f"return {rng.choice(('Y, D', 'D'))}, S, T"))


@pytest.mark.parametrize("seed", share_of(range(10)))
def test_rows_and_sums_over_them_keep_their_values(seed):
    kept = Kept.of_text(gradients(seed))
    assert "_parts" in print_nest(kept.check(searched(kept.program, ZEN_4).nest, UNITS))


@pytest.mark.parametrize("count", [1 << 20, (1 << 20) - 3])
def test_a_scale_and_a_bias_are_summed_in_the_pass_over_the_elements(count):
    """The gradient of each is there when that of the input is, and nothing between is stored."""
    nest = searched(
        parse_program(f"""
X: f32[{count}] = input()
H: f32[{count}] = input()
A: f32[()] = input()
G[i]: f32[{count}] = H[i] * tanh(X[i] * A[()])
D[i]: f32[{count}] = G[i] * A[()]
S[()]: f32[()] = sum(G[i] * X[i] for i in range({count}))
T[()]: f32[()] = sum(G[i] for i in range({count}))
return D, S, T
"""),
        ZEN_4,
    ).nest
    assert {"D", "S", "T"} - buffers_written(nest.kernels[0].body) == {"S", "T"} and len(nest.kernels) == 3
    assert all(len(b.shape) == 1 and b.shape[0].value <= 256 for b in nest.workspace)


def test_rows_and_columns_of_one_axis_are_loops():
    """A stencil over a picture that is one axis, with a mean of each row that is read: it is simplified to two axes, and one kernel."""
    program = parse_program("""
x: f32[1200] = input()
m[i]: f32[30] = sum(x[i * 40 + k] for k in range(40))
y[p]: f32[1200] = x[maximum(p // 40 - 1, 0) * 40 + p % 40] + x[p // 40 * 40 + minimum(p % 40 + 1, 39)] - m[p // 40]
return y
""")
    nest = searched(simplified(program, host_target()), ZEN_4).nest
    assert "//" not in print_nest(nest) and "%" not in print_nest(nest) and len(nest.kernels) == 1


@pytest.mark.parametrize("size, stride, extent", [(2, 2, 40), (3, 2, 39)])
def test_gradients_of_windows_store_residue_classes_side_by_side(size, stride, extent):
    """Elements between those of neighbouring lanes are stored with them, and positions are as long as values."""
    x = te.placeholder((2, 3, extent, extent), name="x")
    y = max_pool2d(x, kernel_size=size, stride=stride)
    program = simplified(te.gradient(y, [x], te.placeholder(y.shape)).program, host_target())
    kept = Kept(program, [(random_inputs(program, 3, exact=True, sizes={}), {})])
    nest = kept.check(searched(program, FACTS).nest)
    text = print_nest(nest)
    assert "i64[" not in text and "i32[" in text and "in vectorize(" in text
    assert all(work.stride != stride for work in summary_of(in_memory(nest)).work if work.kind == STORE)
    values = run(nest, kept.cases[0][0], {})
    for parameter, name in zip(nest.writes, program.outputs, strict=True):
        np.testing.assert_array_equal(values[parameter], kept.expected[0][name])


LAYER = """
x: f32[16, 32] = input()
w: f32[64, 32] = input()
v: f32[32, 64] = input()
h[i, j]: f32[16, 64] = sum(x[i, k] * w[j, k] for k in range(32))
g[i, j]: f32[16, 64] = h[i, j] * (erf(h[i, j]) + 1.0)
y[i, j]: f32[16, 32] = sum(g[i, k] * v[j, k] for k in range(64))
m[i]: f32[16] = sum(y[i, j] for j in range(32)) / 32.0
z[i, j]: f32[16, 32] = y[i, j] - m[i]
return h, g, z
"""


def test_products_have_tiles_of_their_own(monkeypatch):
    """What is made of the elements of one is made in its tile; other products, and rows that read it, have loops of their own."""
    monkeypatch.setattr(joining, "MUCH", 1)
    kept = Kept.of_text(LAYER)
    nest = searched(kept.program, ZEN_4).nest
    made = [buffers_written(kernel.body) & {"h", "g", "y", "z"} for kernel in nest.kernels]
    assert [found for found in made if found] == [{"h", "g"}, {"y"}, {"z"}], made
    kept.check(nest, UNITS)


def test_windows_are_no_reason_to_take_a_sum_apart():
    """A window visits each element many times, but the sum reads no more of them than it has results."""
    window = parse_program(
        "x: f32[200, 200] = input()\ny[i, j]: f32[192, 192] = sum(x[i + u, j + v] for u in range(9) for v in range(9))\nreturn y"
    )
    columns = parse_program("x: f32[4096, 64] = input()\ny[j]: f32[64] = sum(x[k, j] for k in range(4096))\nreturn y")
    apart = [joining.groups_of(plain(p).nest, siblings=True, sums=True)[-1].axis for p in (window, columns)]
    assert apart[0] is None and apart[1] is not None
