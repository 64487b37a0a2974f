"""Contractions on tensor cores: fragments as the PTX ISA has them, the same results as the interpreter, and what the machine code is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.launch.run import launches, value
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.lowering.program import lower_state
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.rewrites.kernels.versions import by_lines
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError, TargetError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.cuda.grids import evaluated
from tests.codegen.cuda.test_blocks import batched, matmul
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)
"""A GPU for which small tensors are large."""
SMALL_TF32 = replace(SMALL, precision="tf32")
TRANSPOSED = """
A: bf16[32, 64] = input()
B: bf16[32, 64] = input()
C[i, j]: f32[64, 64] = sum(f32(A[k, i]) * f32(B[k, j]) for k in range(32))
return C
"""
STRIDED = """
X: f16[32, 130] = input()
W: f16[32, 32, 3] = input()
Y[k, o]: f16[32, 64] = sum(X[c, 2 * o + r] * W[k, c, r] for c in range(32) for r in range(3))
return Y
"""
BIASED = """
A: bf16[64, 64] = input()
B: bf16[64, 64] = input()
b: bf16[64] = input()
C[i, j]: bf16[64, 64] = sum(A[i, k] * B[k, j] for k in range(64))
D[i, j]: bf16[64, 64] = maximum(C[i, j] + b[j], 0.0)
return D
"""
PADDED = """
X: bf16[32, 64] = input()
W: bf16[32, 32, 3] = input()
Y[k, o]: bf16[32, 64] = sum(W[k, c, r] * where(o + r >= 1 and o + r < 65, X[c, o + r - 1], 0.0) for c in range(32) for r in range(3))
return Y
"""
BATCH = """
X: bf16[4, 32, 66] = input()
W: bf16[32, 32, 3] = input()
Y[n, k, o]: bf16[4, 32, 64] = sum(W[k, c, r] * X[n, c, o + r] for c in range(32) for r in range(3))
return Y
"""
RESTS = """
X: bf16[2, 32, 60] = input()
G: bf16[2, 64, 43] = input()
W[o, c, r]: f32[64, 32, 3] = sum(f32(G[n, o, x]) * f32(X[n, c, x + r]) for n in range(2) for x in range(41))
return W
"""
"""Weights of a convolution whose steps end where neither tensor does."""
WINDOW = """
W: bf16[32, 32, 2] = input()
G: bf16[32, 63] = input()
X[c, q]: bf16[32, 64] = sum(G[k, q - s] * W[k, c, s] for k in range(32) for s in range(maximum(q - 62, 0), minimum(q + 1, 2)))
return X
"""


def planned(text: str, target=SMALL) -> Planned:
    return autoschedule(parse_program(text), target)


def assert_means(s: Planned) -> str:
    """Runs a schedule in several orders of threads; gives its text."""
    inputs, made = random_inputs(s.program, 7), Program(verify_nest(lower(s)))
    inputs = {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in inputs.items()}
    (want,) = evaluated(s.program, inputs).values()
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    return made.source.text


def test_the_oracle_of_products_is_the_interpreter():
    """On products of the same forms that are small."""
    fewer = [("[32, ", "[4, "), ("32, 3]", "4, 3]"), ("32, 2]", "4, 2]"), ("[4, 32, 6", "[2, 4, 6"), ("range(32)", "range(4)")]
    fewer += [("[64, 64]", "[12, 12]"), ("range(64)", "range(12)"), ("[64]", "[12]")]
    shrunk = [TRANSPOSED, STRIDED, BIASED, PADDED, BATCH, WINDOW]
    for word, other in fewer:
        shrunk = [text.replace(word, other) for text in shrunk]
    forms = [matmul(9, 12, 8, "f16"), matmul(9, 12, 8, "bf16", b="B[j, k]"), matmul(9, 12, 8, "f64"), batched(2, 9, 5, 8)]
    for text in (*forms, *shrunk):
        program = parse_program(text)
        inputs = {name: np.round(a.astype(np.float32) * 2) / 2 for name, a in random_inputs(program, 7).items()}
        given = {i.name: inputs[i.name].astype(i.type.dtype.numpy) for i in program.inputs}
        for want, got in zip(evaluate_program(program, given).values(), evaluated(program, given).values(), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@needs_compiler
def test_what_lies_behind_the_last_step_is_not_read():
    """Tiles have zeros there: an infinity in the tensor would not be multiplied away."""
    program = parse_program(RESTS)
    inputs = {name: np.round(a.astype(np.float32) * 2) / 2 for name, a in random_inputs(program, 7).items()}
    (want,) = evaluated(program, {i.name: inputs[i.name].astype(i.type.dtype.numpy) for i in program.inputs}).values()
    inputs["X"][:, :, 43:], inputs["G"][:, :, 41:] = np.inf, np.nan
    made = Program(verify_nest(lower(autoschedule(program, SMALL))))
    (got,) = made({i.name: inputs[i.name].astype(i.type.dtype.numpy) for i in program.inputs}).values()
    np.testing.assert_array_equal(got, want)
    assert "te_mma_bf16(" in made.source.text


@needs_compiler
@pytest.mark.parametrize(("dtype", "word"), [("float32", "a_tile"), ("bfloat16", "te_mma_bf16(")])
def test_open_extents_have_tiles_too(dtype, word):
    m, k, n = te.dim("m"), te.dim("k"), te.dim("n")
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    c = te.compute((m, n), lambda i, j: te.sum(lambda q: a[i, q] * b[q, j], k), name="c")
    made = Program(verify_nest(lower(autoschedule(simplify(te.program_of([c], [a, b])), SMALL))))
    assert word in made.source.text
    rng = np.random.default_rng(0)
    for sizes in ((130, 33, 129), (5, 1, 7), (3, 0, 2), (128, 64, 256)):
        first, second = rng.integers(-2, 3, (sizes[0], sizes[1])), rng.integers(-2, 3, (sizes[1], sizes[2]))
        kind = dtypes.dtype(dtype).numpy
        (got,) = made({"a": first.astype(kind), "b": second.astype(kind)}, dict(zip("mkn", sizes, strict=True))).values()
        np.testing.assert_array_equal(got.astype(np.float64), (first @ second).astype(kind).astype(np.float64))


LINES = 8
OPEN = {
    "plain": """
sizes(m, k, n)
A: DTYPE[m, k] = input()
B: DTYPE[k, n] = input()
C[i, j]: f32[m, n] = sum(f32(A[i, q]) * f32(B[q, j]) for q in range(k))
return C
""",
    "across": """
sizes(m, k, n)
A: DTYPE[k, m] = input()
B: DTYPE[n, k] = input()
C[i, j]: DTYPE[m, n] = sum(A[q, i] * B[j, q] for q in range(k))
return C
""",
    "batch": """
sizes(m, k, n)
A: DTYPE[3, m, k] = input()
B: DTYPE[3, k, n] = input()
b: DTYPE[n] = input()
C[s, i, j]: f32[3, m, n] = sum(f32(A[s, i, q]) * f32(B[s, q, j]) for q in range(k))
D[s, i, j]: DTYPE[3, m, n] = DTYPE(maximum(C[s, i, j] + f32(b[j]), 0.0))
return D
""",
}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("plain", kind) for kind in ("bf16", "f32", "f64", "tf32", "warpgroups")), ("across", "bf16"), ("across", "f32"), ("batch", "f16")],
)
def test_lines_of_open_length_are_copied_in_packs_where_they_are_as_long(name, kind):
    """Such calls have kernels of their own; others those for any size."""
    dtype = {"tf32": "f32", "warpgroups": "bf16"}.get(kind, kind)
    target = SMALL_TF32 if kind == "tf32" else replace(SMALL, arch="sm_90a") if kind == "warpgroups" else SMALL
    text = OPEN[name].replace("DTYPE(", "(" if dtype == "f32" else f"{dtype}(").replace("DTYPE", dtype)
    text = text.replace("f32(", "(") if dtype in ("f32", "f64") else text
    text = text.replace("f32[", "f64[") if dtype == "f64" else text
    program = parse_program(text)
    first, second = (lower(autoschedule(program, replace(target, lines=lines))) for lines in (1, LINES))
    made = Program(verify_nest(by_lines(first, second, LINES)))
    assert len(made.source.launches) > len(first.kernels)
    rng = np.random.default_rng(0)
    for sizes in ((72, 40, 136), (16, 0, 24), (34, 33, 65), (3, 24, 16), (5, 8, 7)):
        known = dict(zip("mkn", sizes, strict=True))
        shapes = {i.name: tuple(value(e, known) for e in i.type.shape) for i in program.inputs}
        inputs = {i.name: rng.integers(-2, 3, shapes[i.name]).astype(i.type.dtype.numpy) for i in program.inputs}
        a, b, *bias = (inputs[i.name].astype(np.float64) for i in program.inputs)
        want = a.T @ b.T if name == "across" else np.maximum(a @ b + bias[0], 0) if bias else a @ b
        (got,) = made(inputs, known).values()
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        assert len(list(launches(made.source.plan, known))) <= len(first.kernels)


@needs_compiler
@pytest.mark.parametrize(
    ("text", "word", "loads"),
    [
        (matmul(64, 64, 64, "bf16"), "te_mma_bf16(", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(60, 90, 96, "f16"), "te_mma_f16(", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(61, 31, 80, "f16", b="B[j, k]"), "te_mma_f16(", ("te_matrices<false>(a", "te_matrices<false>(b")),
        (batched(2, 64, 30, 32).replace("f32[", "bf16["), "te_mma_bf16(", ("te_matrices<false>(a", "te_matrices<false>(b")),
        (TRANSPOSED, "te_mma_bf16(", ("te_matrices<true>(a", "te_matrices<true>(b")),
        (STRIDED, "te_mma_f16(", ("te_pair(",)),
        (BIASED, "te_mma_bf16(", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(60, 64, 48, "f64"), "te_mma_f64(", ()),
        (PADDED, "te_mma_bf16(", ("te_matrices<false>(x", "te_matrices<true>(w")),
        (matmul(61, 63, 75, "bf16"), "te_mma_bf16(", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(61, 62, 76, "bf16"), "te_copy_async<8>(&A", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(61, 62, 76, "f16"), "te_copy_async<4>(&B", ("te_matrices<false>(a", "te_matrices<true>(b")),
        (matmul(60, 64, 70, "f64"), "te_mma_f64(", ()),
        (RESTS, "te_mma_bf16(", ("te_matrices<true>(g", "te_matrices<true>(x")),
        (BATCH, "te_mma_bf16(", ("te_matrices<false>(x", "te_matrices<true>(w")),
        (WINDOW, "te_mma_bf16_columns(", ("te_matrices<true>(g",)),
        (WINDOW.replace("bf16", "f64"), "te_mma_f64_columns(", ()),
    ],
    ids=["bf16", "f16 with ends", "f16 transposed", "batched", "both transposed", "strided", "with a bias", "f64", "padded",
         "no extent is whole", "packs of four", "packs of two", "f64 with ends", "steps that end inside", "staged",
         "columns that count", "columns that count in f64"],
)  # fmt: skip
def test_results_are_those_of_the_interpreter(text, word, loads):
    made = assert_means(planned(text))
    lower_case = re.sub(r"\b([A-Z])(_staged)?(_panel)?_tile", lambda found: found[1].lower(), made)
    assert word in made
    for load in loads:
        head, _, name = load.partition("(")
        assert any(head in line and name in line for line in lower_case.splitlines()), load


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        matmul(64, 64, 32),
        matmul(60, 90, 48),
        matmul(61, 31, 40, b="B[j, k]"),
        batched(2, 64, 30, 32),
        TRANSPOSED.replace("bf16", "f32"),
        STRIDED.replace("f16", "f32"),
        BIASED.replace("bf16", "f32"),
        WINDOW.replace("bf16", "f32"),
    ],
    ids=["f32", "with ends", "transposed", "batched", "both transposed", "strided", "with a bias", "columns that count"],
)
def test_tf32_of_numbers_that_need_no_rounding_is_exact(text):
    made = assert_means(planned(text, SMALL_TF32))
    assert "te_mma_tf32" in made and "te_tf32(" in made and "te_matrices<true>" not in made
    # What lies side by side along k comes by ldmatrix, and is rounded then.
    assert ("te_matrices<false>" in made) == any(read in text for read in ("A[i, k]", "B[j, k]", "h, i, k", "W[k, c, r]"))
    assert "tf32" not in emit(verify_nest(lower(planned(text)))).text


def convolution(last: bool, stride: int, channels: int = 32):
    """A convolution that is padded with zeros, and its two gradients, channels first or last."""
    n, h, w, c, k = 2, 9, 7, channels, channels
    x = te.placeholder((n, h, w, c) if last else (n, c, h, w), "bfloat16", name="x")
    f = te.placeholder((3, 3, c, k) if last else (k, c, 3, 3), "bfloat16", name="f")
    places = ((h - 1) // stride + 1, (w - 1) // stride + 1)

    def at(b, o, y, z, i, r, s):
        row, column = stride * y + r - 1, stride * z + s - 1
        if last:
            return x.read(b, row, column, i, outside=0.0) * f[r, s, i, o]
        return x.read(b, i, row, column, outside=0.0) * f[o, i, r, s]

    if last:
        y = te.compute((n, *places, k), lambda b, y, z, o: te.sum(lambda i, r, s: at(b, o, y, z, i, r, s), (c, 3, 3)), name="y")
    else:
        y = te.compute((n, k, *places), lambda b, o, y, z: te.sum(lambda i, r, s: at(b, o, y, z, i, r, s), (c, 3, 3)), name="y")
    head = te.placeholder(y.shape, "bfloat16", name="head")
    return [y, *te.gradient(y, [x, f], head)], [x, f, head]


@needs_compiler
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["forward", "by input", "by weights"])
def test_convolutions_of_any_extent_are_products_of_panels(last, which):
    """The points of all images are one side of tiles, or the steps; borders are zeros that copies fill up with."""
    outputs, inputs = convolution(last, 1)
    program = simplify(te.program_of([outputs[which]], inputs))
    given = {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in random_inputs(program, 7).items()}
    made = Program(verify_nest(lower(autoschedule(program, SMALL))))
    reference = te.build(outputs[which], inputs)
    want = reference(*(given[i.name] for i in program.inputs))
    for order in (0, 1):
        (got,) = made(given, order=order).values()
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    assert "te_mma_bf16(" in made.source.text and "_panel_tile[" in made.source.text and "? 16 : 0);" in made.source.text
    if which == 1:  # what is left out of a sum is not multiplied with: an infinity there changes nothing else
        assert f"te_mma_bf16_{'rows' if last else 'columns'}(" in made.source.text and "te_zeros_bf16(" in made.source.text
        given["f"][(0, 0) if last else (..., 0, 0)] = np.inf
        (got,) = made(given).values()
        with np.errstate(invalid="ignore"):
            want = reference(*(given[i.name] for i in program.inputs))
        np.testing.assert_array_equal(np.isfinite(got.astype(np.float64)), np.isfinite(want.astype(np.float64)))


@needs_compiler
@pytest.mark.parametrize("which", [0, 1], ids=["forward", "by input"])
def test_strided_convolutions_take_residue_classes_of_panels(which):
    outputs, inputs = convolution(True, 2)
    program = simplify(te.program_of([outputs[which]], inputs))
    given = {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in random_inputs(program, 7).items()}
    (got,) = Program(verify_nest(lower(autoschedule(program, SMALL))))(given).values()
    want = te.build(outputs[which], inputs)(*(given[i.name] for i in program.inputs))
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


MIXED = """
A: f32[61, 75] = input()
B: bf16[75, 63] = input()
C[i, j]: f32[61, 63] = sum(A[i, k] * f32(B[k, j]) for k in range(75))
return C
"""
MIXED_COLUMNS = MIXED.replace("A: f32", "A: bf16").replace("B: bf16", "B: f32").replace("A[i, k] * f32(B[k, j])", "f32(A[i, k]) * B[k, j]")
MIXED_ACROSS = MIXED.replace("A: f32[61, 75]", "A: f32[75, 61]").replace("A[i, k]", "A[k, i]")
TRIANGLE = """
A: f32[96, 96] = input()
B: bf16[96, 64] = input()
C[i, j]: f32[96, 64] = sum(A[i, k] * f32(B[k, j]) for k in range(i + 1))
return C
"""
TRIANGLE_ACROSS = TRIANGLE.replace("A[i, k]", "A[k, i]").replace("range(i + 1)", "range(i, 96)")
TRIANGLE_OF_COLUMNS = """
A: bf16[64, 96] = input()
B: f16[96, 96] = input()
C[i, j]: f32[64, 96] = sum(f32(A[i, k]) * f32(B[k, j]) for k in range(j + 1))
return C
""".replace("bf16", "f16")
OPEN_TRIANGLE = """
sizes(n, m)
A: f32[n, n] = input()
B: bf16[n, m] = input()
C[i, j]: f32[n, m] = sum(A[i, k] * f32(B[k, j]) for k in range(i + 1))
return C
"""


def in_float64(text: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The sums of such a program over what they count alone."""
    a, b = (inputs[name].astype(np.float64) for name in "AB")
    a = a.T if "A[k, i]" in text else a
    counts = np.ones((a.shape[0], a.shape[1], b.shape[1]), bool)
    i, k, j = np.ogrid[: a.shape[0], : a.shape[1], : b.shape[1]]
    counts &= k <= i if "i + 1" in text else k >= i if "range(i, " in text else k <= j if "j + 1" in text else True
    with np.errstate(invalid="ignore"):
        return np.where(counts, a[:, :, None] * b[None], 0.0).sum(1)


@needs_compiler
@pytest.mark.parametrize(
    ("text", "word"),
    [(MIXED, "te_split("), (MIXED_COLUMNS, "te_split("), (MIXED_ACROSS, "te_split("), (TRIANGLE, "te_split("),
     (TRIANGLE_ACROSS, "te_counted("), (TRIANGLE.replace("f32[96, 96]", "bf16[96, 96]").replace("A[i, k]", "f32(A[i, k])"), "te_mask("),
     (TRIANGLE_OF_COLUMNS, "te_mma_f16_columns("), (OPEN_TRIANGLE, "te_split(")],
    ids=["rows", "columns", "across", "triangle", "triangle across", "triangle of 16 bits", "triangle of columns", "open triangle"],
)  # fmt: skip
def test_factors_of_float32_in_pieces_and_triangles(text, word):
    """Sums are as near as those of float32, and what is not finite comes where it counts, and nowhere else."""
    program = parse_program(text)
    made = Program(verify_nest(lower(autoschedule(program, SMALL))))
    assert word in made.source.text and "te_mma_" in made.source.text
    rng = np.random.default_rng(0)
    for sizes in ({"n": 1, "m": 1}, {"n": 33, "m": 7}, {"n": 130, "m": 72}) if "sizes" in text else ({},):
        shapes = {i.name: tuple(value(e, sizes) for e in i.type.shape) for i in program.inputs}
        inputs = {i.name: rng.standard_normal(shapes[i.name]).astype(np.float32).astype(i.type.dtype.numpy) for i in program.inputs}
        for odd in (False, True):
            if odd:
                inputs["A"].flat[[0, 5 % inputs["A"].size, inputs["A"].size // 3]] = np.inf, np.nan, -np.inf
                inputs["B"].flat[[0, inputs["B"].size // 2, inputs["B"].size - 1]] = -np.inf, np.nan, np.inf
            (got,), want = made(inputs, sizes).values(), in_float64(text, inputs)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
            np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
            near = np.isfinite(want)
            np.testing.assert_allclose(got[near], want[near], rtol=1e-6, atol=4e-5)


CHOSEN = """
A: f32[128, 16] = input()
B: f32[192, 16] = input()
W: f32[128, 192] = input()
t: f32[128] = input()
C[i, j]: f32[128, 192] = sum(A[i, k] * B[j, k] for k in range(16))
D[i, j]: f32[128, 192] = where(CONDITION, (C[i, j] + t[i]) * W[i, j], ELSE)
return D
"""


@needs_compiler
@pytest.mark.parametrize(
    ("condition", "otherwise", "apart"),
    [("j <= i", "0.0", True), ("j + i < 90", "t[i]", True), ("j >= i", "C[i, j]", True), ("W[i, j] > 0.0", "0.0", False)],
)
def test_what_a_tile_stores_of_a_triangle_is_asked_as_a_whole(condition, otherwise, apart):
    text = CHOSEN.replace("CONDITION", condition).replace("ELSE", otherwise)
    for rows, columns in ((128, 192), (130, 150)):
        s = planned(text.replace("128", str(rows)).replace("192", str(columns)))
        inputs, made = random_inputs(s.program, 5), Program(verify_nest(lower(s)))
        assert rows == 130 or (" >= 0) {" in made.source.text) == apart
        i, j = np.ogrid[:rows, :columns]
        w, t, c = inputs["W"], inputs["t"][:, None], inputs["A"] @ inputs["B"].T
        holds = {"j <= i": j <= i, "j + i < 90": j + i < 90, "j >= i": j >= i}.get(condition, w > 0)
        want = np.where(holds, (c + t) * w, {"0.0": 0.0, "t[i]": t, "C[i, j]": c}[otherwise])
        (got,) = made(inputs).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


TWICE = """
A: f16[2, 128, 128] = input()
B: f16[2, 128, 256] = input()
C[i, j]: f32[128, 256] = sum(f32(A[r, i, k]) * f32(B[r, k, j]) for r in range(2) for k in range(128))
return C
"""


@needs_compiler
@pytest.mark.parametrize(
    ("text", "target", "formula"),
    [
        (matmul(128, 256, 128, "bf16"), SMALL, "ik,kj->ij"),
        (TWICE, SMALL, "rik,rkj->ij"),
        (matmul(256, 128, 64, b="B[j, k]"), SMALL_TF32, "ik,jk->ij"),
    ],
    ids=["bf16", "in a loop", "tf32"],
)
def test_fragments_of_large_tiles_are_loaded_ahead(text, target, formula):
    s = planned(text, target)
    made = Program(verify_nest(lower(s)))
    inputs = {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in random_inputs(s.program, 7).items()}
    want = np.einsum(formula, *(a.astype(np.float32) for a in inputs.values()), optimize=True)
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got, want.astype(got.dtype))
    loop = made.source.text[re.search(r"for \(int (r_)?k_o = ", made.source.text).start() :]
    # The wait and the barrier stand between the loads of the last points of a step and their products.
    assert 0 < loop.index("te_matrices") < loop.index("__syncthreads") < loop.index("te_copy_async") < loop.index("te_mma")
    assert re.search(r"(k_o_next|next) % 3\]", loop)


@needs_compiler
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_no_step_reads_tiles_that_are_not_there(steps):
    """A step behind the last read a fourth of three tiles where there are three steps: beyond the memory that the block has."""
    assert "te_mma_bf16(" in assert_means(planned(matmul(128, 256, 32 * steps, "bf16")))


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "found"),
    [("__syncthreads();", "writes byte .* without a barrier"), ("te_copies_wait<1>();", "before thread 0 has waited for its copy")],
)
def test_a_fault_of_loads_ahead_is_found(fault, found):
    s = planned(matmul(128, 256, 128, "bf16"))
    made = Program(verify_nest(lower(s)), on_cpu=True)
    before, loop = made.source.text.split("for (int k_o = ")
    made.source = replace(made.source, text=f"{before}for (int k_o = {loop.replace(fault, '', 1)}")
    with pytest.raises(InternalError, match=found):
        made(random_inputs(s.program, 7))


def test_fragments_are_loaded_ahead_where_a_lane_has_room_for_two_sets():
    for text in (matmul(128, 128, 128, "bf16"), matmul(128, 256, 48, "bf16"), matmul(64, 64, 64, "f64")):
        assert "_next" not in emit(verify_nest(lower(planned(text)))).text


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_tf32_at_random_lengths(seed):
    m, n, k = (int(x) for x in np.random.default_rng(seed).integers((104, 56, 2), (129, 65, 9)))
    assert "te_mma_tf32(" in assert_means(planned(matmul(m, n, 8 * k, b="B[j, k]" if seed % 2 else "B[k, j]"), SMALL_TF32))


def test_products_that_are_none_stay_as_they_are():
    for text in (matmul(64, 64, 64), matmul(64, 64, 64, "i32"), matmul(64, 64, 40, "bf16").replace("A[i, k] *", "(A[i, k] + 1.0) *")):
        assert "te_mma" not in emit(verify_nest(lower(planned(text)))).text
    plain = autoschedule(parse_program(matmul(64, 64, 64, "bf16")), SMALL, Decisions(Choices({"C: tensor cores": "no"})))
    assert "te_mma" not in emit(verify_nest(lower(plain))).text


def test_a_tile_asks_for_shared_memory_where_a_device_has_it():
    s = planned(matmul(4096, 4096, 4096, "bf16"), H200)
    made = [emit(verify_nest(lower_state(replace(s.state, target=H200.running(arch))))) for arch in ("sm_90", "sm_80", "sm_75")]
    assert [f"te_arena<te_bf16[{n}][128][40]>(0)" in m.text for n, m in zip((3, 3), made, strict=False)] == [True] * 2
    assert [m.launches[0].shared for m in made] == [81408, 81408, 0]
    assert ["__shared__" in m.text for m in made] == [False, False, True]
    small = emit(verify_nest(lower(planned(matmul(64, 64, 96, "bf16"))))).launches[0]
    assert small.shared == 0


def test_a_tile_of_warps_can_be_asked_for():
    asked = Decisions(Choices({"C: tile of warps": "64 i, 64 j by 32 k"}))
    s = autoschedule(parse_program(matmul(4096, 4096, 4096, "bf16")), H200, asked)
    assert "split('i', 64, 'guard')" in s.as_python()


# ---------------------------------------------------------------------------------------------------- machine code


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize(
    ("text", "instruction", "blocks"),
    [
        (matmul(4096, 4096, 4096, "bf16"), "HMMA.16816.F32.BF16", 1),
        (matmul(1024, 1024, 1024, "f16"), "HMMA.16816.F32", 2),
        (matmul(1024, 1024, 1024, "f64"), "DMMA.", 2),
    ],
    ids=["bf16", "f16", "f64"],
)  # fmt: skip
def test_tensor_cores_in_machine_code_without_spills(text, instruction, blocks):
    source = emit(verify_nest(lower(planned(text, H200))))
    made = nvrtc.compile_text(source.text, "sm_90")
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.spill_loads and found.registers <= 255 // blocks + 1
    assert "te_mma" in source.text and "mma.sync.aligned" in made.ptx and "ldmatrix.sync.aligned.m8n8.x2" not in made.ptx
    assert blocks * (source.launches[0].shared + found.shared) <= H200.shared_bytes
    try:
        code = made.sass()
    except TargetError:
        return
    assert instruction in code and (instruction.startswith("D") or "LDSM.16" in code)


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_lines_of_any_length_of_16_bits_take_no_more_registers_than_there_are(arch):
    made = nvrtc.compile_text(emit(verify_nest(lower(planned(matmul(4095, 4095, 4095, "f16"), H200)))).text, arch)
    assert all(not r.spill_stores and not r.stack for r in made.resources.values())


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_tf32_in_machine_code_without_spills(arch):
    texts = [emit(verify_nest(lower(planned(matmul(2048, 2048, 1024), replace(H200, precision=p))))).text for p in ("float32", "tf32")]
    full, made = (nvrtc.compile_text(text, arch) for text in texts)
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.spill_loads and found.registers <= 255
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in made.ptx and "cvt.rna.tf32.f32" in made.ptx
    assert "tf32" not in texts[0] + full.ptx and "mma.sync" not in full.ptx and ".ftz" not in full.ptx + made.ptx
    try:
        code = [compiled.sass() for compiled in (full, made)]
    except TargetError:
        return
    assert "HMMA.1688.F32.TF32" in code[1] and "HMMA" not in code[0]


# -------------------------------------------------------------------------------------------------- older machines

BEFORE_AMPERE = [(d, p) for d, p in (("bf16", "float32"), ("f16", "float32"), ("f64", "float32"), ("f32", "tf32"))]


def for_sm_75(dtype: str, precision: str, size: int) -> list[LoopNest]:
    """A product for a machine whose tensor cores have other instructions: by its own schedule, and by that of a later one."""
    target = replace(SMALL, precision=precision)
    old, text = target.running("sm_75"), matmul(size, size, size, dtype)
    return [lower(planned(text, old)), lower_state(replace(planned(text, target).state, target=old))]


@needs_compiler
@pytest.mark.parametrize(("dtype", "precision"), BEFORE_AMPERE)
def test_machines_without_these_instructions_multiply_without_them(dtype, precision):
    assert "te_mma" in emit(verify_nest(lower(planned(matmul(64, 64, 64, dtype), replace(SMALL, precision=precision))))).text
    for nest in for_sm_75(dtype, precision, 64):
        made = Program(verify_nest(nest))
        assert "te_mma" not in made.source.text
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-2, 3, (64, 64)).astype(p.dtype.numpy) for p in nest.parameters[:2])
        (got,) = made({"A": a, "B": b}).values()
        np.testing.assert_array_equal(got.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize(("dtype", "precision"), BEFORE_AMPERE)
def test_they_are_assembled_for_sm_75(dtype, precision):
    for nest in for_sm_75(dtype, precision, 64):
        made = nvrtc.compile_text(emit(verify_nest(nest)).text, "sm_75")
        assert "mma.sync" not in made.ptx and "cp.async" not in made.ptx


# ------------------------------------------------------------------------------------------- asynchronous copies


def test_operands_come_by_themselves_while_the_step_before_is_worked_on():
    text = emit(verify_nest(lower(planned(matmul(1024, 1024, 1024, "bf16"), H200)))).text
    steps = text[text.index("for (int k_o") :]
    assert text.count("__syncthreads();") == steps.count("__syncthreads();") == 1
    assert (
        steps.index("te_copies_wait<1>();")
        < steps.index("__syncthreads();")
        < steps.index("te_copy_async<16>")
        < steps.index("te_mma_bf16(")
    )
    assert "a_tile[3][" in text.replace("A_tile", "a_tile") and "te_load" not in text


@needs_compiler
@pytest.mark.parametrize("line", ["te_copies_wait<1>();", "__syncthreads();", "te_copies_commit();"])
def test_waits_and_barriers_cannot_be_taken_out(line):
    s = planned(matmul(64, 64, 128, "bf16"))
    inputs, made = random_inputs(s.program, 7), Program(verify_nest(lower(s)), on_cpu=True)  # where what is missing is seen
    head, tail = made.source.text.split("for (int k_o", 1)
    assert line in tail
    made.source = replace(made.source, text=f"{head}for (int k_o{tail.replace(line, '', 1)}")
    for order in (0, 1, 5):
        with pytest.raises(InternalError, match="of shared memory"):
            made(inputs, order=order)


@needs_compiler
def test_a_block_of_one_warp_waits_for_its_copies():
    """Its barriers are those of a warp, which say nothing of copies that are under way."""
    s = schedule(parse_program(matmul(64, 64, 64)), H200)
    rows, row = s["C"].split("i", 4)
    columns, column = s["C"].split("j", 8)
    far, near = s["C"].split("k", 8)
    s["C"].reorder(rows, columns, far, near, row, column)
    s["C"].parallel(s["C"].fuse(rows, columns))
    s["C"].vectorize(s["C"].fuse(row, column))
    for operand in "AB":
        s["C"].cache(operand, far, (0, 1))
    inputs, made = random_inputs(s.program, 7), Program(verify_nest(lower(s)), on_cpu=True)  # where what is missing is seen
    assert "__syncthreads" not in made.source.text and "te_copy_async" in made.source.text
    want = inputs["A"] @ inputs["B"]
    for order in (0, 1, 5):
        np.testing.assert_allclose(made(inputs, order=order)["C"], want, rtol=1e-4, atol=1e-4)
    text = made.source.text
    waits = [line for line in text.splitlines() if "te_copies_wait" in line]
    made = Program(verify_nest(lower(s)), on_cpu=True)
    made.source = replace(made.source, text="\n".join(line for line in text.splitlines() if line not in waits))
    with pytest.raises(InternalError, match="has waited for its copy"):
        made(inputs, order=0)


def pipelined(a_order, b_loop, step=8):
    """A product whose operands are cached at the outer one of two loops over k, B at the inner one where `b_loop` is 1."""
    s = schedule(parse_program(matmul(16, 32, 128)), H200)
    rows, row = s["C"].split("i", 8)
    columns, column = s["C"].split("j", 16)
    far, near = s["C"].split("k", 32)
    middle, near = s["C"].split(near, step)
    s["C"].reorder(rows, columns, far, middle, near, row, column)
    s["C"].parallel(s["C"].fuse(rows, columns))
    s["C"].vectorize(s["C"].fuse(row, column))
    s["C"].cache("A", far, a_order)
    s["C"].cache("B", (far, middle)[b_loop], (0, 1))
    return s


STEPS = (
    ((0, 1), 0, 8, ["<1>"]),
    ((1, 0), 0, 8, ["<1>", "<2>"]),  # A goes through registers: behind the copies of the step there is one group more ahead
    ((0, 1), 1, 8, ["<1>", "<1>"]),
    ((0, 1), 1, 32, ["<1>", "_all", "_all"]),  # a loop inside of one iteration is no longer there: its only group comes last
)


@needs_compiler
def test_barriers_wait_for_the_copies_of_their_step_and_no_others():
    given = [pipelined(*case) for *case, _ in STEPS]
    made = [Program(verify_nest(lower(s)), f"s{k}_", on_cpu=True) for k, s in enumerate(given)]
    laxer = [Program(p.nest, f"l{k}_", on_cpu=True) for k, p in enumerate(made)]
    for p, one, (*_, waits) in zip(made, laxer, STEPS, strict=True):
        head, tail = p.source.text.split("for (int k_o", 1)
        assert re.findall(r"te_copies_wait(<\d>|_all)\(", tail) == waits and "te_copies_wait" not in head
        later = re.sub(r"te_copies_wait(?:<(\d)>|_all)", lambda m: f"te_copies_wait<{int(m[1] or 1) + 1}>", one.source.text)
        one.source = replace(one.source, text=later)
    compiled_together([*made, *laxer])
    for s, p, one in zip(given, made, laxer, strict=True):
        inputs = random_inputs(s.program, 7)
        for order in (0, 1, 2):
            np.testing.assert_allclose(p(inputs, order=order)["C"], inputs["A"] @ inputs["B"], rtol=1e-4, atol=1e-4)
        with pytest.raises(InternalError, match="has waited for its copy"):
            one(inputs, order=0)


COPIED_ROWS = """
A: f32[64, 256] = input()
W: f32[64, 64] = input()
P[i, k]: f32[64, 256] = A[i, k]
C[i, j]: f32[64, 64] = sum(P[i, k] for k in range(256)) * W[i, j]
return C
"""


@needs_compiler
def test_copies_in_a_step_that_are_not_ahead_have_arrived_where_they_are_read():
    """Rows that are only copied, where rows of W come some steps ahead: these copies were part of no group, and nothing waited for them."""
    s = schedule(parse_program(COPIED_ROWS), H200)
    rows, row = s["C"].split("i", 8)
    s["C"].reorder(rows, row, "k", "j")
    s["C"].parallel(rows)
    s["C"].vectorize("j")
    s["P"].compute_at("C", row)
    for part in s["P"].split("k", 4):
        s["P"].vectorize(part)
    s["C"].cache("W", row, (0, 1))
    inputs, made = random_inputs(s.program, 3), Program(verify_nest(lower(s)), on_cpu=True)
    assert "te_copy_async" in made.source.text and "P_1[" in made.source.text
    for order in (0, 1, 2):
        np.testing.assert_allclose(made(inputs, order=order)["C"], inputs["A"].sum(1)[:, None] * inputs["W"], rtol=1e-5, atol=1e-5)
