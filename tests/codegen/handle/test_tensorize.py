"""The word `tensorize`: instructions declared by what they mean, matched with loops, run, and what is refused."""

import random
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.rewrites.intrinsics import intrinsic
from tensorexpr.codegen.target import host_target
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, planned, statements
from tests.seeds import share_of

BYTES = """
A: u8[6, 32] = input()
B: i8[8, 50, 4] = input()
C[i, j]: i32[6, 50] = sum(i32(A[i, k * 4 + q]) * i32(B[k, j, q]) for k in range(8) for q in range(4))
return C
"""
ROWS = """
X: f32[10, 12] = input()
Y: f32[12, 4] = input()
Z[i, j]: f32[10, 4] = sum(Y[k, j] * X[i, k] for k in range(12))
return Z
"""
SCALED = """
X: f32[10, 8] = input()
Z[i, j]: f32[10, 8] = X[i, j] * 2.0 + 1.0
return Z
"""
VNNI = WIDE.with_features("avx512_vnni", "avx512_bf16")

# Instructions in LLVM's own vectors, which any machine has.
ROWS2 = """  %old = load <4 x float>, ptr %c, align 4
  %a0 = load float, ptr %a, align 4
  %at1 = getelementptr float, ptr %a, i64 1
  %a1 = load float, ptr %at1, align 4
  %x0 = insertelement <4 x float> poison, float %a0, i64 0
  %y0 = shufflevector <4 x float> %x0, <4 x float> poison, <4 x i32> zeroinitializer
  %x1 = insertelement <4 x float> poison, float %a1, i64 0
  %y1 = shufflevector <4 x float> %x1, <4 x float> poison, <4 x i32> zeroinitializer
  %b0 = load <4 x float>, ptr %b, align 4
  %at2 = getelementptr float, ptr %b, i64 4
  %b1 = load <4 x float>, ptr %at2, align 4
  %mid = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %y0, <4 x float> %b0, <4 x float> %old)
  %new = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %y1, <4 x float> %b1, <4 x float> %mid)
  store <4 x float> %new, ptr %c, align 4"""
FMULADD = {"llvm.fmuladd.v4f32": "<4 x float> (<4 x float>, <4 x float>, <4 x float>)"}
intrinsic(
    "rows2",
    parse_program("a: f32[2] = input()\nb: f32[2, 4] = input()\nc[l]: f32[4] = sum(a[q] * b[q, l] for q in range(2))\nreturn c"),
    ROWS2,
    declarations=FMULADD,
)
intrinsic(
    "twice1",
    parse_program("a: f32[4] = input()\nc[l]: f32[4] = a[l] * 2.0 + 1.0\nreturn c"),
    """  %x = load <4 x float>, ptr %a, align 4
  %y = fmul <4 x float> %x, splat (float 2.0)
  %z = fadd <4 x float> %y, splat (float 1.0)
  store <4 x float> %z, ptr %c, align 4""",
)


def rows(k: int = 2, text: str = ROWS) -> Schedule:
    s = Schedule.plain(parse_program(text), WIDE)
    s["Z"].split("k", k)
    s["Z"].split("i", 3)
    s["Z"].reorder("i_o", "k_o", "i_i", "j", "k_i")
    s["Z"].unroll("i_i")
    return s


def calls(s: Schedule) -> list[str]:
    return [x.call.name for x in statements(s.nest.kernels) if isinstance(x, For) and x.call is not None]


def run(s: Schedule, *arrays: np.ndarray) -> np.ndarray:
    (result,) = te.build(s)(*arrays)
    return result


def test_loops_are_an_instruction_and_stay_what_it_means():
    s = rows()
    s["Z"].tensorize("j", "rows2")
    text = str(assert_means(s))
    assert "for j in tensorize(range(0, 4), rows2(sum[i_i, 0], X[i_i + i_o * 3, k_o * 2], Y[k_o * 2, 0])):" in text
    assert "sum[i_i, j] = sum[i_i, j] + Y[k_i + k_o * 2, j] * X[i_i + i_o * 3, k_i + k_o * 2]" in text


def test_it_runs():
    s = rows()
    s["Z"].tensorize("j", "rows2")
    s["Z"].parallel("i_o")
    x, y = (np.random.default_rng(n).integers(-4, 5, shape).astype(np.float32) for n, shape in enumerate([(10, 12), (12, 4)]))
    np.testing.assert_array_equal(run(s, x, y), x @ y)
    assert "te.intrinsic.rows2" in te.build(s).source("llvm")


def test_without_a_sum_it_stores():
    s = Schedule.plain(parse_program(SCALED), WIDE)
    _, inner = s["Z"].split("j", 4)
    s["Z"].tensorize(inner, "twice1")
    assert calls(s) == ["twice1"]
    assert_means(s)
    x = np.arange(80, dtype=np.float32).reshape(10, 8)
    np.testing.assert_array_equal(run(s, x), 2 * x + 1)


def test_a_rest_runs_as_loops():
    s = rows(text=ROWS.replace("12", "13"))
    s["Z"].tensorize("j", "rows2")
    found = [x.stop.value for x in statements(assert_means(s).kernels) if isinstance(x, For) and x.index == "j" and x.call is None]
    assert calls(s) == ["rows2", "rows2"] and found


def test_an_operand_that_is_copied_for_the_block():
    text = ROWS.replace("Z[i", "P[k, j]: f32[12, 4] = Y[k, j] + 1.0\nZ[i").replace("Y[k, j] * X", "P[k, j] * X")
    s = rows(text=text)
    s["P"].compute_at("Z", "i_o")
    s["Z"].pipeline("i_o")
    s["Z"].tensorize("j", "rows2")
    assert "rows2(sum[i_i, 0], X[i_i + i_o * 3, k_1_o * 2], P[i_o % 2, k_1_o * 2, 0])" in str(assert_means(s))


def packed(tail: str, columns: int = 8, block: int = 4) -> Schedule:
    """A product of which the second operand lies in panels of `block` columns."""
    s = Schedule.plain(parse_program(ROWS.replace("4]", f"{columns}]")), WIDE)
    s["Z"].stage("Y", ((1, block), 0))
    s["Z"].tile("i", "j", 3, 4, tail)
    s["Z"].split("k", 2)
    s["Z"].reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i")
    s["Z"].unroll("i_i")
    return s


def test_an_operand_in_panels():
    s = packed("shift")
    s["Z"].tensorize("j_i", "rows2")
    assert "rows2(sum[i_i, 0], X[minimum(i_o * 3, 7) + i_i, k_o * 2], Y_staged[j_o, k_o * 2, 0])" in str(assert_means(s))
    s = packed("peel", 9)
    s["Z"].tensorize("j_i", "rows2")
    assert calls(s) and assert_means(s)


@pytest.mark.parametrize(("tail", "columns", "block"), [("shift", 9, 4), ("peel", 8, 6)])
def test_a_block_that_reaches_over_panels_is_refused(tail, columns, block):
    with pytest.raises(ScheduleError, match="expected elements of b that lie 1 apart along j_i, got Y_staged"):
        packed(tail, columns, block)["Z"].tensorize("j_i", "rows2")


def bytes_of(text: str = BYTES, target=VNNI) -> Schedule:
    s = Schedule.plain(parse_program(text), target)
    s["C"].split("j", 16)
    s["C"].reorder("i", "j_o", "k", "j_i", "q")
    return s


def test_dot_products_of_bytes():
    s = bytes_of()
    s["C"].tensorize("j_i", "vpdpbusd")
    assert calls(s) == ["vpdpbusd"]
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (6, 32), np.uint8), rng.integers(-128, 128, (8, 50, 4), np.int8)
    assert_means(s, inputs={"A": a, "B": b})
    if "avx512_vnni" in host_target().features:
        s = bytes_of(target=host_target())
        s["C"].tensorize("j_i", "vpdpbusd")
        want = a.astype(np.int32) @ b.transpose(0, 2, 1).reshape(32, 50).astype(np.int32)
        np.testing.assert_array_equal(run(s, a, b), want)
        assert "vpdpbusd" in te.build(s).source("asm")


def test_pairs_of_bfloat16():
    text = BYTES.replace("u8", "bf16").replace("i8", "bf16").replace("i32", "f32").replace("4", "2").replace("32]", "16]")
    s = bytes_of(text)
    s["C"].tensorize("j_i", "vdpbf16ps")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, shape).astype(ml_dtypes.bfloat16) for shape in ((6, 16), (8, 50, 2)))
    assert_means(s, inputs={"A": a, "B": b})
    if "avx512_bf16" in host_target().features:
        s = bytes_of(text, host_target())
        s["C"].tensorize("j_i", "vdpbf16ps")
        want = a.astype(np.float32) @ b.astype(np.float32).transpose(0, 2, 1).reshape(16, 50)
        np.testing.assert_array_equal(run(s, a, b), want)


def test_integer_sums_of_the_language_match():
    a, b = te.placeholder((8, 32), "uint8", name="a"), te.placeholder((8, 16, 4), "int8", name="b")
    product = lambda i, j: lambda k, q: te.cast(a[i, k * 4 + q], "int32") * te.cast(b[k, j, q], "int32")  # noqa: E731
    c = te.compute((8, 16), lambda i, j: te.cast(te.sum(product(i, j), (8, 4)), "int32"), name="c")
    s = Schedule.plain(planned(c).program, VNNI)
    s["c"].reorder("i", "k", "j", "q")
    s["c"].tensorize("j", "vpdpbusd")
    assert calls(s) == ["vpdpbusd"]


def test_python_text_rebuilds_it():
    s = rows()
    s["Z"].tensorize("j", "rows2")
    again = Schedule.plain(parse_program(ROWS), WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s and str(again) == str(s)


HEAD = "a: f32[4] = input()\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}b[l]: f32[4] = a[l]\nc[l]: f32[4] = b[l]\nreturn c", "intrinsic odd: expected one definition, got 2"),
        (f"{HEAD}c: f32 = max(a[q] for q in range(4))\nreturn c", "intrinsic odd: expected a sum without conditions, got max("),
        ("sizes(n)\na: f32[n] = input()\nc[l]: f32[n] = a[l]\nreturn c",
         "intrinsic odd: expected constant extents, got ones known only when it runs"),
        (f"{HEAD}c[l]: f32[4] = a[l] * f32(l)\nreturn c", "intrinsic odd: expected operations on elements alone, got a[l] * f32(l)"),
        (f"{HEAD}c[l]: f32[4] = a[l]\nreturn c", "expected a new name for an intrinsic, got rows2, which is another one"),
    ],
)  # fmt: skip
def test_definitions_that_could_not_be_matched_are_refused(text, message):
    with pytest.raises(ScheduleError) as caught:
        intrinsic("rows2" if "rows2" in message else "odd", parse_program(text), "")
    assert message in str(caught.value)


SCATTER = """
X: f32[8, 4] = input()
ids: i64[8] = input()
Z: f32[9, 4] = scatter({(ids[t], j): X[t, j] for t in range(8) for j in range(4)})
return Z
"""


@pytest.mark.parametrize(
    ("s", "code", "message"),
    [
        (rows(), "s['Z'].tensorize('q', 'rows2')", "expected a loop of Z, got 'q'"),
        (rows(), "s['Z'].tensorize('j', 'rows9')", "expected an intrinsic, got 'rows9'"),
        (rows(), "s['Z'].tensorize('j', 'rows2'); s['Z'].tensorize('k_i', 'rows2')",
         "expected loops of extent 4, 2, got 2 along k_i"),
        (bytes_of(target=WIDE), "s['C'].tensorize('j_i', 'vpdpbusd')",
         "expected a machine with avx512_vnni for vpdpbusd, got test without"),
        (Schedule.plain(parse_program(SCATTER), WIDE), "s['Z'].tensorize('j', 'twice1')",
         "expected serial loops of constant extent with one statement for twice1, got j"),
        (rows(), "s['Z'].tensorize('j', 'rows2'); s['Z'].split('j', 2)",
         "expected a serial loop, got one to tensorize"),
        (rows(), "s['Z'].unroll('k_i'); s['Z'].tensorize('j', 'rows2')",
         "expected serial loops of constant extent with one statement for rows2, got k_i"),
        (rows(), "s['Z'].tensorize('j', 'rows2'); s['Z'].vectorize('j')",
         "expected iterations of j that may run in lanes in any order: sum[i_i, 0] and sum[i_i, j] meet"),
        (rows(), "s['Z'].tensorize('j', 'twice1')",
         "expected a[l] * 2.0, got sum[i_i, j]"),
        (Schedule.plain(parse_program(SCALED), WIDE), "s['Z'].tensorize('j', 'rows2')",
         "expected a sum for rows2, got another statement"),
        (rows(), "s['Z'].serial('i_i'); s['Z'].reorder('j', 'k_o'); s['Z'].tensorize('j', 'rows2')",
         "expected loops of extent 4, 2, got 4 along j, 3 along i_i, 6 along k_o, 2 along k_i"),
        (rows(3), "s['Z'].tensorize('j', 'rows2')", "expected loops of extent 4, 2, got 4 along j, 3 along k_i"),
        (rows(text=ROWS.replace("4]", "8]")), "s['Z'].split('j', 4); s['Z'].reorder('j_o', 'i_i'); s['Z'].tensorize('j_i', 'rows2')",
         "expected elements of b that lie 4 apart along k_i, got Y[k_i + k_o * 2, j_i + j_o * 4]: 8 apart"),
        (rows(text=ROWS.replace("X[i, k]", "X[i, k * k // 12]")), "s['Z'].tensorize('j', 'rows2')",
         "lie 1 apart along k_i, got X[i_i + i_o * 3, (k_i + k_o * 2) * (k_i + k_o * 2) // 12]: no fixed distance"),
        (rows(text=ROWS.replace("* X", "+ X")), "s['Z'].tensorize('j', 'rows2')", "expected a[q] * b[q, l], got"),
        (rows(text=ROWS.replace("f32", "f64")), "s['Z'].tensorize('j', 'rows2')",
         "expected an element of f32 for a, got Y[k_i + k_o * 2, j] of f64"),
        (rows(text=ROWS.replace("* X[i, k]", "* 3.0")), "s['Z'].tensorize('j', 'rows2')",
         "expected an element of f32 for b, got f32(3.0) of f32"),
    ],
)  # fmt: skip
def test_what_is_refused(s, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": s})
    assert message in str(caught.value)


def test_an_operand_that_stands_twice_is_the_same_element():
    square = parse_program("a: f32[4] = input()\nc[l]: f32[4] = a[l] * a[l]\nreturn c")
    intrinsic("square4", square, "  ret void")
    s = Schedule.plain(parse_program("X: f32[4] = input()\nY: f32[4] = input()\nZ[i]: f32[4] = X[i] * Y[i]\nreturn Z"), WIDE)
    with pytest.raises(ScheduleError, match=r"expected X\[i\] for a again, got Y\[i\]"):
        s["Z"].tensorize("i", "square4")
    wrong = parse_program("a: f32[4] = input()\nc[l]: f64[4] = f64(a[l])\nreturn c")
    intrinsic("widened", wrong, "")
    text = "X: f32[4] = input()\nZ: f64 = sum(f64(X[i]) for i in range(4))\nreturn Z"
    with pytest.raises(ScheduleError, match=r"expected f64\(a\[l\]\), got sum"):
        Schedule.plain(parse_program(text), WIDE)["Z"].tensorize("i", "widened")


def test_wherever_it_is_legal_the_instruction_gives_the_same_bits():
    used = 0
    for seed in share_of(range(40)):
        rng = random.Random(seed)
        n, k, flip = rng.randint(1, 9), rng.randint(2, 9), rng.random() < 0.5
        product = "X[i, k] * Y[k, j]" if flip else "Y[k, j] * X[i, k]"
        s = Schedule.plain(parse_program(ROWS.replace("10", str(n)).replace("12", str(k)).replace("Y[k, j] * X[i, k]", product)), WIDE)
        s["Z"].split("k", 2, rng.choice(("peel", "guard", "stride")))
        if rng.random() < 0.5:
            s["Z"].split("i", rng.randint(1, 4), rng.choice(("peel", "shift", "guard")))
        for _ in range(3):
            inner = rng.sample(["j", "k_i"], rng.randint(1, 2))
            around = [x for x in s["Z"].loops if x not in inner]
            with suppress(ScheduleError):
                s["Z"].reorder(*rng.sample(around, len(around)), *inner)
        for loop in s["Z"].loops:
            with suppress(ScheduleError):
                s["Z"].tensorize(loop, "rows2")
                used += bool(calls(s))
        x, y = (np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32) for shape in ((n, k), (k, 4)))
        np.testing.assert_array_equal(run(s, x, y), x @ y, err_msg=s.as_python())
    assert used > 2


def test_an_operand_that_lies_otherwise_is_read_by_the_loops():
    s = rows()
    s["Z"].tensorize("j", "rows2")
    s["Z"].cache("Y", "k_o", (1, 0))
    nest = assert_means(s)
    assert "Y_of[j, k_i]" in str(nest) and calls(s) == []


def test_a_body_that_llvm_does_not_read_is_told_as_the_users():
    x = te.placeholder((8,), name="x")
    y = te.compute((4,), lambda l: x[l] * 3.0, name="c")
    te.intrinsic("unreadable", te.compute((4,), lambda l: te.placeholder((4,), name="a")[l] * 3.0, name="c"), "  %x = lod float, ptr %a")
    s = te.schedule(y)
    s["c"].tensorize("l", "unreadable")
    with pytest.raises(ScheduleError, match="intrinsic unreadable: expected a body that LLVM reads, got LLVM IR parsing error"):
        te.build(s)
