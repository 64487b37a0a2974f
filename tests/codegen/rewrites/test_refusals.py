"""What rewrites of nests refuse, and what they say then."""

from __future__ import annotations

import pytest

import tensorexpr as te
from tensorexpr.codegen.nest import LoopNest, Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.rewrites.data.keep import keep
from tensorexpr.codegen.rewrites.data.narrow import narrow
from tensorexpr.codegen.rewrites.data.pipeline import pipeline
from tensorexpr.codegen.rewrites.data.slide import slide
from tensorexpr.codegen.rewrites.kernels import divide, in_memory, move_kernel, pack, prefetch, separate, side_by_side
from tensorexpr.codegen.rewrites.loops.tensorize import tensorize
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.errors import ScheduleError
from tests.codegen.rewrites.law import Kept

HEAD = """
main(n, x, y, z)
n: size
x: parameter(f32[12])
y: parameter(f32[12], written)
z: parameter(f32[12], written)
a: workspace(f32[12])
"""


def nest_of(*kernels: str) -> LoopNest:
    """A nest of kernels, each given by what it writes, a colon, and its lines."""
    text = HEAD
    for number, kernel in enumerate(kernels):
        writes, body = kernel.strip().split(":\n", 1)
        text += f"\ndef kernel_{number}() -> {writes}:\n" + "".join(f"    {line}\n" for line in body.splitlines())
    return parse_nest(text)


MAKES = """a:
for i in parallel(range(0, 12)):
    a[i] = x[i] * 2.0
"""
USES = """y:
for j in parallel(range(0, 12)):
    y[j] = a[11 - j]
"""
SERIAL = """z:
for k in range(0, 12):
    z[k] = x[k]
"""


def test_keep_what_is_not_computed_again():
    nest = nest_of("y:\nfor k in range(0, 12):\n    y[k] = exp(x[k])")
    (term,) = (s.value for _, s in walk_nest(nest) if isinstance(s, Store))
    with pytest.raises(
        ScheduleError, match=r"expected a term of k that stays the same, got exp\(x\[k\]\): nothing behind computes it again"
    ):
        keep(nest, "k", term)


def test_pipeline_of_what_the_loop_itself_makes():
    needs = nest_of("""(z, y):
for i in range(0, 12):
    p: local(f32[4])
    for j in range(0, 4):
        p[j] = z[j]
    for k in range(0, 4):
        z[k] = p[3 - k]
    y[i] = p[0]
""")
    with pytest.raises(ScheduleError, match="expected what i computes first to need nothing that it writes, got z"):
        pipeline(needs, "i", ["p"], 2)
    later = nest_of("""y:
for i in range(0, 12):
    p: local(f32[4])
    for j in range(0, 4):
        p[j] = x[j]
    y[i] = p[0]
    p[0] = x[i]
""")
    with pytest.raises(ScheduleError, match="expected i to compute p before anything else"):
        pipeline(later, "i", ["p"], 2)
    ahead = """y:
for i in parallel(range(0, 12)):
    p: local(f32[8000])
    for j in range(0, 8000):
        p[j] = x[i]
    y[i] = p[0]
"""
    with pytest.raises(ScheduleError, match="expected 2 to 8 stages, got 1"):
        pipeline(later, "i", ["p"], 1)
    with pytest.raises(ScheduleError, match="expected a serial loop to pipeline, got i, marked parallel"):
        pipeline(nest_of(ahead), "i", ["p"], 2)
    with pytest.raises(ScheduleError, match="expected at most 65536 bytes for 3 stages of p, got 96000"):
        pipeline(nest_of(ahead.replace("parallel(range(0, 12))", "range(0, 12)")), "i", ["p"], 3)


def test_slide_of_what_has_no_window_that_moves():
    with pytest.raises(ScheduleError, match="expected a loop whose iterations keep a for themselves, got j"):
        slide(nest_of(MAKES, USES), "a", "j")
    stays = nest_of("""y:
for i in range(0, 12):
    p: local(f32[3])
    for w in range(0, 3):
        p[w] = x[w]
    y[i] = p[0]
""")
    with pytest.raises(ScheduleError, match="expected a window of p that moves with i: it stays"):
        slide(stays, "p", "i")


POSITIONS = """
main(x, y)
x: parameter(f32[40])
y: parameter(f32[40], written)
a: workspace(i64[40])
b: workspace(i64[40])

def kernel_0() -> y:
    for i in range(0, 40):
        a[i] = i * 4
        b[i] = i64(x[i])
        y[i] = where(a[i] == b[i], x[i], 0.0)
"""


def test_narrow_of_what_is_large():
    nest = parse_nest(POSITIONS)
    assert "a[i] = i16(i * 4)" in str(narrow(nest, "a", "int16"))
    with pytest.raises(ScheduleError, match="expected values of a that are known to be within int8"):
        narrow(nest, "a", "int8")
    with pytest.raises(ScheduleError, match="expected values of b that are known to be within int32"):
        narrow(nest, "b")
    with pytest.raises(ScheduleError, match="expected a type among int8, int16, int32, got 'int64'"):
        narrow(nest, "a", "int64")
    with pytest.raises(ScheduleError, match="expected int64 values that only statements of main need, got those of y"):
        narrow(nest, "y")


def test_what_is_narrow_already_is_compared_as_that():
    nest = parse_nest("""
main(x, y)
x: parameter(f32[40])
y: parameter(f32[40], written)
a: workspace(i8[40])

def kernel_0() -> y:
    for i in range(0, 40):
        a[i] = i8(maximum(i * 3, 2))
        y[i] = where(i64(a[i]) == i * 3, x[i], 0.0) + where(i64(a[i]) < i * 4, x[i], 0.0)
""")
    made = str(narrow(nest, "a", "int8"))
    assert "where(a[i] == i8(i * 3), x[i], 0.0) + where(i16(a[i]) < i16(i * 4), x[i], 0.0)" in made  # 39 * 4 is no number of 8 bits
    with pytest.raises(ScheduleError, match="expected int64 values that only statements of main need, got those of a"):
        narrow(nest, "a", "int16")


def test_divide_what_is_no_axis_of_a_nests_own():
    nest = nest_of(MAKES, USES)
    assert "a: workspace(f32[3, 4])" in str(divide(nest, "a", 0, (4,)))
    with pytest.raises(ScheduleError, match="expected a buffer that only statements of main need, got y"):
        divide(nest, "y", 0, (4,))
    with pytest.raises(ScheduleError, match="expected an axis of a from 0 to 0, got 1"):
        divide(nest, "a", 1, (4,))
    with pytest.raises(ScheduleError, match=r"expected positive ints as the lengths of axes of a, got \[0\]"):
        divide(nest, "a", 0, (0,))
    with pytest.raises(ScheduleError, match=r"expected the axes 0 to 1, each once, as the order of those of a, got \[0, 0\]"):
        divide(nest, "a", 0, (4,), (0, 0))


def test_prefetch_of_what_is_not_read_in_rows():
    nest = nest_of(MAKES, USES, SERIAL)
    with pytest.raises(ScheduleError, match="expected an input or what was made of inputs to fetch ahead, got y"):
        prefetch(nest, "y", "j")
    with pytest.raises(ScheduleError, match="expected what i only reads to fetch ahead, got a, which it writes"):
        prefetch(nest, "a", "i")
    with pytest.raises(ScheduleError, match="expected a loop over rows of x of constant length to fetch ahead, got j"):
        prefetch(nest, "x", "j")


def test_kernels_that_stay_where_they_are():
    nest = nest_of(MAKES, USES, SERIAL)
    with pytest.raises(ScheduleError, match="expected nothing between a and its new place that waits, got "):
        move_kernel(nest, 0, 2)
    with pytest.raises(ScheduleError, match="expected two kernels to run side by side, got one, y"):
        side_by_side(nest, 1, 1)
    with pytest.raises(ScheduleError, match="expected parallel loops alone in z to run them side by side, got another statement"):
        side_by_side(nest, 1, 2)
    with pytest.raises(ScheduleError, match="expected kernels that do not depend on each other, got a and y: "):
        side_by_side(nest, 1, 0)


def test_pack_of_what_is_not_whole():
    nest = nest_of(MAKES, USES)
    with pytest.raises(ScheduleError, match="expected a buffer that what computes y reads, got x"):
        pack(nest, "x", "y", (0,))
    with pytest.raises(ScheduleError, match="expected a positive int as the length of blocks of a, got 0"):
        pack(nest, "a", "y", ((0, 0),))
    local = nest_of("y:\nfor i in range(0, 12):\n    p: local(f32[1])\n    p[0] = x[i]\n    y[i] = p[0]")
    with pytest.raises(ScheduleError, match="expected a tensor that is kept in memory to copy it whole, got p") as caught:
        pack(local, "p", "y", (0,))
    assert caught.value.hint == "cache, in a loop"
    together = nest_of("(a, y):\nfor i in range(0, 12):\n    a[i] = x[i]\nfor j in range(0, 12):\n    y[j] = a[j]")
    with pytest.raises(ScheduleError, match="expected a to be whole before what reads it, got it computed in a y"):
        pack(together, "a", "y", (0,))
    half = nest_of("a:\nfor i in range(0, 6):\n    a[i] = x[i]", "y:\nfor j in range(0, 6):\n    y[j] = a[j]")
    with pytest.raises(ScheduleError, match="expected all of a to be written before it is copied"):
        pack(half, "a", "y", (0,))


def test_large_buffers_in_lanes():
    nest = nest_of("""y:
for i in vectorize(range(0, 12)):
    p: local(f32[4])
    for j in range(0, 4):
        p[j] = x[i]
    y[i] = p[3]
""")
    with pytest.raises(ScheduleError, match="expected local buffers of at most 32768 bytes in vectorize i, got p"):
        in_memory(nest, 8)


def summed(line: str, kind: str = "range(0, 4)", inside: str = "", start: str = "0") -> LoopNest:
    """A sum `p` by a loop `k` in a loop `i`: the statement in `k`, the loop `i`, lines behind the statement, where `k` begins."""
    return nest_of(f"""(a, z, y):
for i in {kind}:
    p: local(f32[()])
    p[()] = 0.0
    a[i] = x[i]
    for k in range({start}, 12):
        {line}
{inside}    y[i] = p[()]
""")


ADDS = "p[()] = p[()] + x[k]"


@pytest.mark.parametrize(
    ("nest", "said"),
    [
        (summed("z[k] = x[k]"), "expected one loop k that updates p, got 0"),
        (summed("p[()] = x[k]"), "expected nothing but updates of p by one operation without order"),
        (summed(ADDS, "parallel(range(0, 4))"), "expected serial loops around and at k to separate it"),
        (summed(ADDS, inside="        z[k] = x[k]\n"), "expected k to write p alone, got z"),
        (summed("p[()] = p[()] + a[k]"), "expected k to need nothing that is computed around it, got a"),
        (summed(ADDS, start="i"), "expected bounds of k that no loop around it changes"),
    ],
)
def test_separate_what_is_no_sum_by_itself(nest, said):
    with pytest.raises(ScheduleError, match=said):
        separate(nest, "p", "k")


def test_separate_a_sum_that_is_taken_otherwise():
    kept = Kept.of_text("""
x: f32[9, 8] = input()
y[i]: f32[9] = where(i < 4, x[i, 0], sum(x[i, k] for k in range(8)))
return y
""")
    kept.check(separate(kept.nest, "sum", "k"))


def test_separate_what_is_checked():
    checked = summed("p[()] = p[()] + x[k + 1]", inside="        check(k + 1, 12, 0)\n")
    nest = parse_nest(f'{checked}\ncheck_0 = site("x[k + 1]", tensor="x", axis=0, definition="y", location="a:b.py:7")\n')
    with pytest.raises(ScheduleError, match="expected accesses in k that are known to be in bounds, got one that is checked"):
        separate(nest, "p", "k")


def test_separate_takes_the_checks_of_what_it_reads_along():
    kept = Kept.of_text("""
x: f32[9, 8] = input()
t: i64[9] = input()
y[i]: f32[9] = where(x[t[i], 0] < 1.0, sum(x[i, k] for k in range(8)), 0.5)
return y
""")
    nest = separate(kept.nest, "sum", "k")
    assert str(nest).count("check(t[") == 2
    kept.check(nest)


def test_separate_what_is_kept_in_memory():
    nest = nest_of("y:\ny[0] = 0.0\nfor k in range(0, 12):\n    y[0] = y[0] + x[k]")
    with pytest.raises(ScheduleError, match="expected a local buffer of constant shape to separate what is added to it, got y"):
        separate(nest, "y", "k")


def test_tensorize_a_loop_of_threads():
    a = te.placeholder((2,), name="a")
    c = te.compute((2,), lambda i: a[i] * 2, name="c")
    body = "  %x = load <2 x float>, ptr %a, align 4\n  %y = fadd <2 x float> %x, %x\n  store <2 x float> %y, ptr %c, align 4"
    te.intrinsic("twice_of_refusals", c, body)
    with pytest.raises(ScheduleError, match="expected a serial loop to tensorize, got parallel i"):
        tensorize(nest_of(MAKES), "i", "twice_of_refusals")
