"""Residue classes: a gradient that keeps a congruence runs as one dense loop per class, without a test or a division inside."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.analysis.reductions import take_apart
from tensorexpr.codegen.schedule.analysis.residues import classes, in_class, moduli
from tensorexpr.codegen.schedule.analysis.residues import tested as axes_tested
from tensorexpr.ir import Define, const
from tensorexpr.language import program_of
from tensorexpr.parse import parse_expr, parse_program
from tests.codegen.programs import WIDE, assert_means, plain


def conv(shape, filters, out, index, extents):
    x, w = te.placeholder(shape, name="x"), te.placeholder(filters, name="w")
    y = te.compute(out, lambda o, *at: te.sum(lambda c, *r: x[(c, *index(at, r))] * w[(o, c, *r)], extents), name="y")
    return y, x


def copy(shape, out, body):
    x = te.placeholder(shape, name="x")
    return te.compute(out, lambda *at: x[body(*at)] * 2.0, name="y"), x


CASES = {
    "kernel 1 stride 3": lambda: conv((4, 48), (5, 4), (5, 16), lambda at, r: (3 * at[0],), 4),
    "kernel 2 stride 3": lambda: conv((4, 48), (5, 4, 2), (5, 16), lambda at, r: (3 * at[0] + r[0],), (4, 2)),
    "kernel 2 stride 3 with a rest": lambda: conv((4, 50), (5, 4, 2), (5, 16), lambda at, r: (3 * at[0] + r[0],), (4, 2)),
    "kernel 1 stride 2 in two axes": lambda: conv((4, 12, 16), (5, 4), (5, 6, 8), lambda at, r: (2 * at[0], 2 * at[1]), 4),
    "kernel 3 stride 2": lambda: conv((4, 33), (5, 4, 3), (5, 16), lambda at, r: (2 * at[0] + r[0],), (4, 3)),
    "subsample": lambda: copy((64,), (32,), lambda i: 2 * i),
    "subsample with a rest": lambda: copy((65,), (32,), lambda i: 2 * i + 1),
    "every third": lambda: copy((4, 96), (4, 32), lambda b, i: (b, 3 * i + 2)),
    "slice of space to depth": lambda: copy((32, 64), (16, 32), lambda i, j: (2 * i, 2 * j + 1)),
    "repeat": lambda: copy((4, 32), (4, 64), lambda b, i: (b, i // 2)),
    "average pool": lambda: (lambda x: (te.compute((4, 32), lambda b, i: te.sum(lambda r: x[b, 2 * i + r], 2), name="y"), x))(
        te.placeholder((4, 64), name="x")
    ),
    "maximum pool stride 3": lambda: (lambda x: (te.compute((4, 16), lambda b, i: te.max(lambda r: x[b, 3 * i + r], 2), name="y"), x))(
        te.placeholder((4, 48), name="x")
    ),
}


def gradient_of(name):
    y, x = CASES[name]()
    gradient = te.gradient(y, [x], head=te.placeholder(y.shape, name="Y"))
    return gradient, next(row.lowering for row in gradient.report().rows if row.tensor == "x")


def inside_vectors(nest):
    """The lines of each vectorized loop of `x_bar`."""
    found, lines = [], str(nest).splitlines()
    for at, line in enumerate(lines):
        if "vectorize(" in line:
            depth = len(line) - len(line.lstrip())
            stop = next((k for k in range(at + 1, len(lines)) if len(lines[k]) - len(lines[k].lstrip()) <= depth), len(lines))
            found.append("\n".join(lines[at + 1 : stop]))
    return [body for body in found if "x_bar" in body]


@pytest.mark.parametrize("name", CASES)
def test_each_class_is_a_dense_loop(name):
    gradient, _ = gradient_of(name)
    schedule = autoschedule(program_of([gradient[0]]), WIDE)
    nest = assert_means(schedule)
    loops = inside_vectors(nest)
    assert loops, nest
    for body in loops:
        assert "%" not in body and "//" not in body, nest
        assert "if " not in body or name == "kernel 3 stride 2", nest


def test_the_report_names_them():
    found = {name: gradient_of(name)[1] for name in CASES}
    assert found == {
        "kernel 1 stride 3": "residues",
        "kernel 2 stride 3": "residues",
        "kernel 2 stride 3 with a rest": "residues",
        "kernel 1 stride 2 in two axes": "residues",
        "kernel 3 stride 2": "lattice",
        "subsample": "residues",
        "subsample with a rest": "residues",
        "every third": "residues",
        "slice of space to depth": "residues",
        "repeat": "reshape",
        "average pool": "reshape",
        "maximum pool stride 3": "residues",
    }


def test_the_nest_of_a_convolution():
    gradient, _ = gradient_of("kernel 1 stride 3")
    assert (
        "\n".join(str(assert_means(autoschedule(program_of([gradient[0]]), WIDE))).splitlines()[5:])
        == """\
def kernel_0() -> x_bar:
    x_bar_sum: local(f32[4, 16])
    for c in unroll(range(0, 4)):
        for p_o in vectorize(range(0, 16)):
            x_bar_sum[c, p_o] = 0.0
    for o in range(0, 5):
        for c in unroll(range(0, 4)):
            for p_o in vectorize(range(0, 16)):
                x_bar_sum[c, p_o] = x_bar_sum[c, p_o] + Y[o, p_o] * w[o, c]
    for c in unroll(range(0, 4)):
        for p_o in vectorize(range(0, 16)):
            x_bar[c, p_o * 3] = x_bar_sum[c, p_o]
            x_bar[c, p_o * 3 + 1] = 0.0
            x_bar[c, p_o * 3 + 2] = 0.0"""
    )


def test_the_nest_of_a_slice():
    gradient, _ = gradient_of("slice of space to depth")
    assert (
        "\n".join(str(assert_means(autoschedule(program_of([gradient[0]]), WIDE))).splitlines()[4:])
        == """\
def kernel_0() -> x_bar:
    for p_o in parallel(range(0, 16)):
        for q_o_o in range(0, 2):
            for q_o_i in vectorize(range(0, 16)):
                x_bar[p_o * 2, q_o_i * 2 + q_o_o * 32] = 0.0
                x_bar[p_o * 2, q_o_i * 2 + q_o_o * 32 + 1] = Y[p_o, q_o_i + q_o_o * 16] * 2.0
        for q_o_o in range(0, 2):
            for q_o_i in vectorize(range(0, 16)):
                x_bar[p_o * 2 + 1, q_o_i * 2 + q_o_o * 32] = 0.0
                x_bar[p_o * 2 + 1, q_o_i * 2 + q_o_o * 32 + 1] = 0.0"""
    )


@pytest.mark.parametrize("name", ["subsample", "subsample with a rest", "every third", "slice of space to depth", "repeat", "average pool"])
def test_stores_of_all_classes_leave_no_gap(name):
    """Vectors without masks, loads that are gathers, or stores that are scatters."""
    gradient, _ = gradient_of(name)
    given = [t for t in (gradient[0].sources) if t.definition is None]
    text = te.build(gradient[0], given).source("llvm")
    assert "shufflevector" in text
    for word in ("llvm.masked.gather", "llvm.masked.scatter", "llvm.masked.store"):
        assert f"@{word}" not in text.split("define", 1)[1], word


@pytest.mark.parametrize("name", CASES)
def test_compiled(name):
    y, x = CASES[name]()
    head = te.placeholder(y.shape, name="Y")
    gradient = te.gradient(y, [x], head=head)[0]
    given: dict[str, te.Tensor] = {}
    todo = [gradient]
    while todo:
        tensor = todo.pop()
        if tensor.definition is None:
            given.setdefault(tensor.key, tensor)
        todo += tensor.sources
    rng = np.random.default_rng(0)
    arrays = {t: rng.integers(-4, 5, t.shape).astype(np.float32) for t in given.values()}
    np.testing.assert_array_equal(te.build(gradient, list(arrays))(*arrays.values()), te.evaluate(gradient, arrays))


PARTS = """
A: f32[12, 40] = input()
C[i, j]: f32[12, 40] = where(j % 3 == 1 and i % 2 == 0, sum(A[k, j // 4] for k in range((i + 1) // 5, (i + 1) // 5 + 3)), 0.0)
return C
"""


def test_classes_of_conditions_and_bounds():
    program = parse_program(PARTS)
    (definition,) = program.definitions
    assert isinstance(definition, Define)
    parts = take_apart(definition, {"A": program.types["A"].shape})
    assert classes(parts) == {"j": 3}  # i would need 10, and subscripts do not count beside a reduction
    assert list(axes_tested(parts)) == ["i", "j"]
    inside = in_class(parts, {"j": 3})
    assert inside.axes[1].stop == const(14) and inside.groups[0].axes == parts.groups[0].axes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("i % 3", (3,)), ("(2*i + 1)//6", (3,)), ("(i//2 + 1)//3 + j//5", (6,)), ("4*i//2", ()), ("i//2 + i % 3", (2, 3)), ("n//2 + i", ())],
)
def test_moduli(text, expected):
    assert moduli([parse_expr(text, {}, sizes=("n",))], "i") == expected


@pytest.mark.parametrize("tail", ["peel", "shift", "guard"])
@pytest.mark.parametrize("order", [("j_o_i_o", "j_o_i_i", "j_i"), ("j_i", "j_o_i_o", "j_o_i_i"), ("j_i", "j_o_i_i", "j_o_i_o")])
def test_strides_of_a_rest_that_is_no_multiple_of_them(tail: str, order: tuple[str, ...]) -> None:
    """The block of 8 is a multiple of 4, the one that there is, of a single block, is not: it was read and written 32 elements long."""
    s = plain("X: f32[8] = input()\nY[j]: f32[8] = X[j] * 2.0\nreturn Y")
    s["Y"].split("j", 8)
    s["Y"].split("j_o", 8, tail)
    s["Y"].split("j_o_i", 4, "stride")
    s["Y"].reorder("j_o_o", *order)
    assert_means(s)
