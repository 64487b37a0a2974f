"""Loop nests as text, their verifier and their interpreter."""

import ast
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Buffer, Call, Check, CheckSite, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Const, Index, Param, Size, apply, const

X = Buffer("X", dtypes.float32, (const(4),), "parameter")
Y = Buffer("Y", dtypes.float32, (const(4),), "parameter")
ONE = Const(1.0, dtypes.float32)
i = Index("i")


def nest(*body, **fields) -> LoopNest:
    return LoopNest("test", (X, Y), (), (), (Kernel("Y", body),), ("Y",), **fields)


FOUR = const(4)


def over(*body, kind="serial", stop=FOUR) -> For:
    return For("i", const(0), stop, body, kind)


def test_the_text_of_one_nest():
    local = Buffer("acc", dtypes.float32, (), "local")
    body = Alloc(local, (Store("acc", (), ONE), If(apply("lt", i, const(2)), (Store("Y", (i,), Access("acc", (), dtypes.float32)),), ())))
    assert str(nest(over(body, kind="parallel"))) == (
        "test(X, Y)\n"
        "X: parameter(f32[4])\n"
        "Y: parameter(f32[4], written)\n"
        "\n"
        "def kernel_0() -> Y:\n"
        "    for i in parallel(range(0, 4)):\n"
        "        acc: local(f32[()])\n"
        "        acc[()] = 1.0\n"
        "        if i < 2:\n"
        "            Y[i] = acc[()]\n"
    )


def test_expressions_print_as_in_programs_and_long_ones_break():
    condition = apply("or", apply("lt", i, const(1)), apply("lt", i, const(3)))
    long = ONE
    for _ in range(40):
        long = apply("add", long, Access("X", (i,), dtypes.float32))
    text = str(nest(over(If(condition, (Store("Y", (i,), long), Store("Y", (i,), Const(float("-inf"), dtypes.float32)))))))
    assert "if i < 1 or i < 3:" in text
    assert "Y[i] = -inf\n" in text
    assert max(map(len, text.splitlines())) <= 120
    ast.parse(text)


def test_loops_of_every_kind_run_and_checks_raise():
    for kind in ("serial", "parallel", "vectorize", "unroll"):
        found = run_nest(nest(over(Store("Y", (i,), ONE), kind=kind)), {"X": np.zeros(4, np.float32)})
        np.testing.assert_array_equal(found["Y"], [1, 1, 1, 1])


def test_a_stray_access_and_a_value_never_written_show():
    with pytest.raises(InternalError, match=r"expected an access inside X of shape \(4,\), got indices \(4,\)"):
        run_nest(nest(over(Store("Y", (i,), Access("X", (apply("add", i, const(1)),), dtypes.float32)))), {"X": np.zeros(4, np.float32)})
    assert np.isnan(run_nest(nest(), {"X": np.zeros(4, np.float32)})["Y"]).all()


ACC = Buffer("acc", dtypes.float32, (), "local")
ELEMENT = Access("X", (const(0),), dtypes.float32)
DOT = Call("dot", ("a",), (ELEMENT,), "ret void")
BROKEN = [
    (nest(over(Store("Z", (i,), ONE))), "expected a buffer that is declared here, got Z"),
    (nest(over(Store("Y", (i, i), ONE))), "expected 1 indices of Y, got 2"),
    (nest(over(Store("Y", (ONE,), ONE))), "expected int64 indices, got f32"),
    (nest(over(Store("X", (i,), ONE))), "expected X to be read only"),
    (nest(over(Store("Y", (i,), const(1)))), "expected a value of f32, got i64"),
    (nest(over(If(apply("isnan", Access("X", (i,), dtypes.float64)), ()))), "expected an access of f32, got f64"),
    (nest(over(Store("Y", (i,), Param("p", dtypes.float32)))),
     "expected scalars over elements and indices, got a reduction or a parameter"),
    (nest(Store("Y", (i,), ONE)), "expected a loop over i around"),
    (nest(over(), streams=("X",)), "expected an output to be written past the caches, got X"),
    (nest(over(), atomics=("X",)), "expected updates in one piece of a buffer that is written, got X"),
    (nest(over(), ahead=(("Q", 4),)), "expected a parameter or workspace to fetch some elements ahead, got Q"),
    (nest(over(stop=Size("n"))), "expected n among the sizes"),
    (nest(over(over())), "expected a new name for a loop, got i again"),
    (nest(over(kind="wild")),
        "expected a kind among serial, parallel, vectorize, unroll, tensorize, block.x, block.y, block.z, thread.x, thread.y, thread.z, "
        "warp, got 'wild'"),
    (nest(For("j", const(0), const(2), (over(kind="parallel"),), "parallel")),
     "expected nothing but serial loops and conditions around a parallel loop"),
    (nest(over(kind="vectorize", stop=Size("n")), sizes=("n",)), "expected constant bounds of a loop to vectorize"),
    (nest(If(ONE, ())), "expected a bool condition, got f32"),
    (nest(Check(const(0), const(1), 0)), "expected one of 0 checks, got 0"),
    (nest(Alloc(X, ())), "expected a local buffer, got one in parameter"),
    (nest(Alloc(ACC, (Alloc(ACC, ()),))), "expected distinct names of buffers, got acc twice"),
    (nest(over(Alloc(replace(ACC, shape=(i,)), ()))), "expected the shape of a local buffer to depend on sizes alone"),
    (replace(nest(), parameters=(X, replace(Y, memory="disk"))),
     "expected a memory among parameter, constant, workspace, local, got 'disk'"),
    (replace(nest(), writes=("Y", "X")), "expected buffers in the order in which they are declared, got Y, X"),
    (nest(*(replace(over(), call=call) for call in (DOT, replace(DOT, body="unreachable")))),
     "expected one instruction of the name dot, and an operand for each of its pointers"),
    (nest(replace(over(), call=replace(DOT, operands=()))),
     "expected one instruction of the name dot, and an operand for each of its pointers"),
    (replace(nest(), writes=("Q",)), "expected an output that is a parameter, got Q"),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_the_verifier_names_the_broken_invariant(broken, message):
    with pytest.raises(InternalError) as raised:
        verify_nest(broken)
    assert raised.value.message == f"loop nest test: {message}"


def test_the_verifier_gives_a_good_nest_back():
    good = nest(over(Check(i, const(4), 0), Store("Y", (i,), ONE)), checks=(CheckSite("X[i]", "X", 0, "Y", None),))
    assert verify_nest(good) is good
