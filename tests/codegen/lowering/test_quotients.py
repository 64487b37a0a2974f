"""Quotients and remainders of indices that the bounds of loops decide are gone from the nest; those of data stay."""

from tensorexpr.codegen.lowering.kernels.quotients import with_quotients
from tensorexpr.codegen.nest import Check, For, If, Kernel, Store
from tensorexpr.codegen.nest.text import print_kernel
from tensorexpr.dtypes import float32, int64
from tensorexpr.ir import Access, Const, Index, apply, const


def plus(a, b):
    return apply("add", a, b)


def times(a, n):
    return apply("mul", a, const(n))


def test_indices_are_decided_by_the_loops_around_and_data_is_not():
    o, i, n = Index("o"), Index("i"), Index("n")
    j = plus(times(o, 16), i)
    ids = Access("ids", (apply("mod", i, const(16)),), int64)
    store = Store(
        "y",
        (apply("floordiv", j, const(16)), apply("mod", j, const(16)), apply("floordiv", j, const(64)), apply("mod", i, const(8))),
        Access("x", (apply("mod", ids, const(16)), apply("minimum", apply("floordiv", i, const(16)), n)), float32),
    )
    inner = For("i", const(0), const(16), (Check(apply("floordiv", i, const(20)), const(4), 0), store))
    outer = For("o", times(n, 4), plus(times(n, 4), const(4)), (If(apply("lt", apply("floordiv", i, const(16)), o), (inner,)), inner))
    assert "\n".join(print_kernel(with_quotients(Kernel("y", (For("n", const(0), const(3), (outer,)),))))) == (
        "def kernel_0() -> y:\n"
        "    for n in range(0, 3):\n"
        "        for o in range(n * 4, n * 4 + 4):\n"
        "            if i // 16 < o:\n"  # of an index without a loop around nothing is known
        "                for i in range(0, 16):\n"
        "                    check(0, 4, 0)\n"
        "                    y[o, i, o // 4, i % 8] = x[ids[i] % 16, minimum(0, n)]\n"
        "            for i in range(0, 16):\n"
        "                check(0, 4, 0)\n"
        "                y[o, i, o // 4, i % 8] = x[ids[i] % 16, minimum(0, n)]"
    )


def test_nothing_to_decide_is_nothing_done():
    store = Store("y", (Index("k"),), Const(0.0, float32))
    assert with_quotients(Kernel("y", (store,))).body[0].indices == store.indices
