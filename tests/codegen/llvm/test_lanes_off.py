"""Accumulators of lanes that are off: they do as the others where nobody reads them, and keep what they have where somebody does."""

import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.emitter.statements import _of_lanes_alone
from tensorexpr.codegen.nest import Alloc, If
from tensorexpr.ir import Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, read, write

o, j, k = Index("o"), Index("j"), Index("k")
A, T = buffer("A", dtypes.float32, 6, 16), buffer("T", dtypes.float32, 4, 16)
ACC = buffer("acc", dtypes.float32, 16, memory="local")
ZERO = Const(0.0, dtypes.float32)


def lanes(*body):
    return loop("j", 16, *body, kind="vectorize")


def below(limit: Expr):
    return apply("lt", j, limit)


def summed(first: Expr | None, step: Expr, last: Expr | None, at: Expr = j, otherwise: bool = False):
    """A sum of rows of A under conditions on lanes: where it is started, where it goes on, and where `at` of it is stored."""

    def under(condition, *body):
        return body if condition is None else (If(condition, body),)

    more = (write(ACC, (j,), ZERO),) if otherwise else ()
    added = If(step, (write(ACC, (j,), apply("add", read(ACC, j), read(A, k, j))),), more)
    stored = write(T, (o, j), read(ACC, at))
    return Alloc(ACC, (lanes(*under(first, write(ACC, (j,), ZERO))), loop("k", 6, lanes(added)), lanes(*under(last, stored))))


ON = below(apply("add", apply("mul", o, const(3)), const(4)))
CASES = {
    "alone": (summed(ON, ON, ON), 2),
    "read in all lanes": (summed(None, ON, None), 0),
    "a condition that changes": (summed(None, below(apply("add", k, const(3))), None), 0),
    "two conditions": (summed(ON, below(const(2)), ON), 0),
    "read by another lane": (summed(ON, ON, ON, apply("mod", apply("add", j, const(1)), const(4))), 0),
    "another case": (summed(ON, ON, ON, otherwise=True), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_lanes_that_are_off_store(name: str) -> None:
    made, alone = CASES[name]
    assert len(_of_lanes_alone(made)) == alone
    for machine in machines():
        assert_agree([Case((A,), T, (loop("o", 4, made),))], machine)
