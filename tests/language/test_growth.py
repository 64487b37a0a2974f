"""Twice the operations take twice the calls of Python's functions: counts, which do not depend on what else the machine does."""

import sys
from collections.abc import Callable

import pytest

import tensorexpr as te
from tensorexpr.codegen.memo import forget
from tensorexpr.simplify import simplify

MOST = 2.3
"""What twice the size may take: a part is the same for all sizes, and some of it sorts."""


def calls(run: Callable[[], object]) -> int:
    """How many functions of Python's are called, or go on where they stopped."""
    found = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def steps(count: int, let: Callable[..., te.Scalar]) -> tuple[te.Tensor, te.Tensor]:
    z = te.placeholder((5,), name="z")

    def body(i: te.Scalar) -> te.Scalar:
        value = z[i]
        for k in range(count):
            value = let(te.tanh(value) * 0.5 + value if k % 2 else value * value + 1.0)
        return value

    return te.compute((5,), body, name="y"), z


def nested(count: int) -> tuple[te.Tensor, te.Tensor]:
    z = te.placeholder((5,), name="z")

    def body(i: te.Scalar) -> te.Scalar:
        value = z[i]
        for _ in range(count):
            value = value * 0.5 + 1.0
        return value

    return te.compute((5,), body, name="y"), z


def wide(count: int) -> tuple[te.Tensor, te.Tensor]:
    z = te.placeholder((5,), name="z")

    def body(i: te.Scalar) -> te.Scalar:
        shared = te.let(te.tanh(z[i]), "shared")
        terms = [shared * float(k) for k in range(count)]
        while len(terms) > 1:
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + terms[len(terms) & ~1 :]
        return terms[0]

    return te.compute((5,), body, name="y"), z


MADE = {
    "shared": lambda count: steps(count, lambda value: value),
    "named": lambda count: steps(count, te.let),
    "nested": nested,
    "wide": wide,
}


@pytest.mark.parametrize(
    ("stage", "name"),
    [(stage, name) for stage in ("define", "simplify", "print", "differentiate", "print the gradient") for name in MADE]
    + [("build", "shared")],
)
def test_twice_the_operations_take_twice_the_calls(stage: str, name: str) -> None:
    def work(count: int) -> int:
        forget()
        if stage == "define":
            return calls(lambda: MADE[name](count))
        y, z = MADE[name](count)
        program = te.program_of([y], [z])
        if stage in ("simplify", "print"):
            return calls(lambda: simplify(program) if stage == "simplify" else str(program))
        if stage == "build":
            return calls(lambda: te.build(y, [z]))
        total = te.compute((), lambda: te.sum(lambda i: y[i], 5))
        if stage == "differentiate":
            return calls(lambda: te.gradient(total, [z]))
        found = te.gradient(total, [z])
        return calls(lambda: str(found))

    work(20)  # what a process makes once
    small, large = work(150), work(300)
    assert large <= MOST * small, f"{small} calls, then {large}"
