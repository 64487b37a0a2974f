"""Rewrites by hand make of a plain nest what a good schedule is: a packed product, softmax, a stencil, layer norm, at odd sizes."""

from __future__ import annotations

from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.walks import expressions_in
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.hoist import hoist
from tensorexpr.codegen.rewrites.data.merge import merge
from tensorexpr.codegen.rewrites.data.narrow import narrow
from tensorexpr.codegen.rewrites.data.rfactor import rfactor
from tensorexpr.codegen.rewrites.data.stage import stage
from tensorexpr.codegen.rewrites.loops import parallel, partition, reorder, simplify, split, unroll, vectorize
from tensorexpr.ir import Apply
from tensorexpr.traversal import walk
from tests.codegen.llvm.nests import run
from tests.codegen.rewrites.law import Kept, near


def made(kept: Kept, *steps, units: int = 0) -> LoopNest:
    """The nest after some rewrites, checked after each, proved and run as machine code at the end."""
    nest = kept.nest
    for rewrite, *arguments in steps:
        nest = kept.check(rewrite(nest, *arguments), units)
    nest = kept.check(simplify(nest), units)
    assert prove(nest).is_clean, f"{nest}\n{prove(nest)}"
    for (arrays, sizes), expected in zip(kept.cases, kept.expected, strict=True):
        assert expected is not None
        found = run(nest, arrays, sizes)
        for name in kept.program.outputs:
            near(found[name], expected[name], max(units, 16), f"{name} of\n{nest}")
    return nest


def test_a_product_in_packed_tiles():
    kept = Kept.of_text("""
A: f32[29, 11] = input()
B: f32[11, 37] = input()
C[i, j]: f32[29, 37] = sum(A[i, k] * B[k, j] for k in range(11))
return C
""")
    nest = made(
        kept,
        (split, "i", 6, "shift"),
        (split, "j", 16),
        (reorder, "j_o", "i_o", "k", "i_i", "j_i"),
        (stage, "B", "j_o"),
        (unroll, "i_i"),
        (vectorize, "j_i"),
        (vectorize, "B_1"),
    )
    assert "sum[i_i, j_i] = sum[i_i, j_i] + A[minimum(i_o * 6, 23) + i_i, k] * B_of[k, j_i]" in print_nest(nest)


ROWS = """
X: f32[5, 37] = input()
m[i]: f32[5] = max(X[i, k] for k in range(37))
e[i, j]: f32[5, 37] = exp(X[i, j] - m[i])
s[i]: f32[5] = sum(e[i, k] for k in range(37))
Y[i, j]: f32[5, 37] = e[i, j] / s[i]
return Y
"""
COLUMNS = """
X: f32[7, 37] = input()
m[j]: f32[37] = max(X[k, j] for k in range(7))
e[i, j]: f32[7, 37] = exp(X[i, j] - m[j])
s[j]: f32[37] = sum(e[k, j] for k in range(7))
Y[i, j]: f32[7, 37] = e[i, j] / s[j]
return Y
"""


def test_softmax_of_rows_in_one_pass_over_each():
    nest = made(
        Kept.of_text(ROWS, exact=False),
        *((fuse_at, name, "i_3") for name in ("s", "e", "m")),
        *((split, name, 8) for name in ("k", "k_1", "j", "j_1")),
        (merge, "j_o", "k_1_o"),
        (merge, "j_i", "k_1_i"),
        (rfactor, "max", "k_i"),
        (rfactor, "sum", "j_i"),
        (vectorize, "k_i"),
        (vectorize, "j_i"),
        (vectorize, "j_1_i"),
        (parallel, "i_3"),
        units=16,
    )
    assert len(nest.kernels) == 1 and not nest.workspace


def test_softmax_of_columns_in_blocks():
    nest = made(
        Kept.of_text(COLUMNS, exact=False),
        (reorder, "j_3", "i_1"),
        (split, "j_3", 16, "shift"),
        *((fuse_at, name, "j_3_o") for name in ("s", "e", "m")),
        (reorder, "k", "j"),
        (reorder, "k_1", "j_2"),
        (reorder, "i_1", "j_3_i"),
        (merge, "i", "k_1"),
        (merge, "j_1", "j_2"),
        *((vectorize, name) for name in ("j", "j_1", "j_2", "j_3_i")),
        units=16,
    )
    assert len(nest.kernels) == 1 and not nest.workspace


def test_a_stencil_with_its_borders_cut_off():
    nest = made(
        Kept.of_text("""
X: f32[4, 29] = input()
Y[i, j]: f32[4, 29] = X[i, j] + where(i >= 1, X[i - 1, j], 0.0) + where(j < 28, X[i, j + 1], X[i, 0])
return Y
"""),
        (partition, "i"),
        (split, "j", 8),
        (partition, "j_o"),
        (vectorize, "j_i"),
    )
    text = print_nest(nest)
    inside = "Y[i, j_i + j_o * 8] = X[i, j_i + j_o * 8] + X[i - 1, j_i + j_o * 8] + X[i, j_i + j_o * 8 + 1]"
    assert text.count("where") == 2 and inside in text


def test_layer_norm_of_rows():
    kept = Kept.of_text(
        """
X: f32[5, 37] = input()
g: f32[37] = input()
mean[i]: f32[5] = sum(X[i, k] for k in range(37)) / 37.0
var[i]: f32[5] = sum((X[i, k] - mean[i]) * (X[i, k] - mean[i]) for k in range(37)) / 37.0
Y[i, j]: f32[5, 37] = (X[i, j] - mean[i]) * rsqrt(var[i] + 1e-05) * g[j]
return Y
""",
        exact=False,
    )

    def hoisted(nest: LoopNest) -> LoopNest:
        found = (n for e in expressions_in(nest.kernels[0].body) for n in walk(e))
        return hoist(nest, "j_o", next(n for n in found if isinstance(n, Apply) and n.op.name == "rsqrt"))

    nest = made(
        kept,
        (fuse_at, "var", "i_2"),
        (fuse_at, "mean", "i_2"),
        *((split, name, 16, "guard") for name in ("k", "k_1")),
        *((partition, name) for name in ("k_o", "k_1_o")),
        (rfactor, "sum", "k_i"),
        (rfactor, "sum_1", "k_1_i"),
        (split, "j", 16, "shift"),
        (hoisted,),
        *((vectorize, name) for name in ("k_i", "k_1_i", "j_i")),
        units=64,
    )
    assert len(nest.kernels) == 1 and print_nest(nest).count("rsqrt") == 1


def test_positions_of_winners_are_as_long_as_their_values():
    """An argmax over lanes in 32 bits, its positions compared as such where they are read."""
    kept = Kept.of_text("""
x: f32[5, 37] = input()
a[i]: i64[5] = argmax(x[i, k] for k in range(37))
y[i, k]: f32[5, 37] = where(a[i] == k, x[i, k], 0.0)
return y
""")
    nest = made(
        kept,
        (narrow, "argmax"),
        (narrow, "a"),
        (fuse_at, "a", "i_1"),
        (split, "k", 8),
        (rfactor, "argmax", "k_i"),
        (vectorize, "k_i"),
        (vectorize, "k_1"),
    )
    text = print_nest(nest)
    assert "i64" not in text.replace("i64(", "") and "a[()] == i32(k_1)" in text


def test_positions_are_as_short_as_what_is_stored_in_other_buffers():
    """An array of winners in bytes, of positions that are taken in 32 bits."""
    kept = Kept.of_text("""
x: f32[5, 37] = input()
a[i]: i64[5] = argmax(x[i, k] for k in range(37))
y[i, k]: f32[5, 37] = where(a[i] == k, x[i, k], 0.0)
return y
""")
    text = print_nest(made(kept, (narrow, "argmax"), (narrow, "a", "int8")))
    assert "a: workspace(i8[5])" in text and "a[i] = i8(maximum(argmax[()], 0))" in text and "a[i_1] == i8(k_1)" in text
