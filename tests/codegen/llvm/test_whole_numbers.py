"""Integer arithmetic in lanes, where what is known of numbers chooses a shorter form: at the values at which the choice flips.

What is known are bounds (32 bits for 64, no division, a decided comparison, a conversion of half the width), divisors (a quotient that is
a ramp's base, a remainder that is 0) and strides. Operands of every kind stand around every such edge: literals, sizes, indices of loops,
ramps, numbers cast from narrower types, remainders, chosen ones, the same in all lanes or not, and data of which nothing is known. Every
operation is applied to all of them; every result is compared with the naive interpreter bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import Machine, compile_nest
from tensorexpr.codegen.nest import Buffer, Kernel, LoopNest
from tensorexpr.codegen.nest.interpret import Machine as Interpreter
from tensorexpr.ir import Cast, Const, Expr, Index, Size, apply, const
from tests.codegen.llvm.below import machines
from tests.codegen.llvm.nests import buffer, loop, read, write
from tests.seeds import share_of

o, j = Index("o"), Index("j")
ROWS, LANES = 3, 8
EDGES = (-(1 << 63), -(1 << 62), -(1 << 32), -(1 << 31), -8, 0, 1 << 16, 1 << 31, 1 << 32, 1 << 47, 1 << 62, (1 << 63) - 1)
"""Where a choice flips; numbers lie just below, at and just above."""
DIVISORS = (2, 3, 7, 8, 24, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 3, 3 << 40, (1 << 63) - 1)
FACTORS = (-1, 2, 3, -5, 24, 1 << 16, 1 << 31, 3 << 30, 1 << 62)
DATA = {
    name: buffer(f"D_{name}", dtype, ROWS, LANES)
    for name, dtype in (("i64", dtypes.int64), ("u64", dtypes.uint64), ("i32", dtypes.int32), ("u32", dtypes.uint32), ("i8", dtypes.int8))
}
OPERATIONS = (
    "add", "sub", "mul", "minimum", "maximum", "abs", "neg", "shifted", "scaled", "divided", "where", "unsigned",
    *["steps"] * 2, *["quotient"] * 3,
)  # fmt: skip
SIZES = {"n": (1 << 31) - 1, "m": 1 << 47, "p": 0}


def near(edge: int, draw: random.Random) -> int:
    """A number at an edge, that int64 has."""
    return min(max(edge + draw.choice((-LANES, -2, -1, 0, 1, 5)), -(1 << 63)), (1 << 63) - 1)


def data(draw: random.Random) -> dict[str, np.ndarray]:
    """Numbers at all edges, in each type as it wraps them."""
    found = {}
    for b in DATA.values():
        numbers = [near(draw.choice(EDGES), draw) if draw.random() < 0.8 else draw.getrandbits(64) - (1 << 63) for _ in range(ROWS * LANES)]
        found[b.name] = np.array(numbers, np.int64).astype(b.dtype.numpy).reshape(ROWS, LANES)
        found[b.name][:2, 0] = b.dtype.least, b.dtype.greatest
    return found


class Place(NamedTuple):
    """Where the loops over rows and lanes begin, and what is drawn there."""

    first: int
    begin: int
    draw: random.Random

    @property
    def row(self) -> Expr:
        return apply("sub", o, const(self.first))

    @property
    def lane(self) -> Expr:
        return apply("sub", j, const(self.begin))

    def datum(self, *names: str) -> Expr:
        """An element of data, the same in all lanes or one for each."""
        return read(DATA[self.draw.choice(names)], self.row, self.draw.choice((const(0), self.lane)))

    def edge(self) -> Expr:
        """A number near one where a choice flips, or among those of the loops."""
        draw = self.draw
        own = draw.choice((self.first + draw.randrange(-1, 4), self.begin + draw.randrange(-1, LANES + 2)))
        return const(draw.choice((near(draw.choice(EDGES), draw), own, own, -own)))

    def leaf(self, sizes: bool = True) -> Expr:
        """An int64 operand: of one value in all lanes or of several, of known bounds or of none."""
        draw = self.draw
        kinds: list[Callable[[], Expr]] = [
            self.edge,
            lambda: o,
            lambda: j,
            lambda: apply("add", apply("mul", o, const(draw.choice((LANES, 24, 3)))), j),
            lambda: apply("abs", draw.choice((o, j))),
            lambda: apply("where", apply("lt", j, self.edge()), draw.choice((o, j)), self.edge()),
            lambda: apply("mul", j, const(draw.choice(FACTORS))),
            lambda: Cast(dtypes.int64, self.datum("i32", "u32", "i8")),
            lambda: self.datum("i64"),
            lambda: apply("mod", self.datum("i64"), const(draw.choice(DIVISORS))),
            lambda: self.strided(draw.choice((3, 8, 24))),
            lambda: Cast(dtypes.int64, apply("mod", self.datum("u64"), unsigned(draw.choice((7, 1 << 63, (1 << 64) - 1))))),
        ]
        return draw.choice([*kinds, *[lambda: Size(draw.choice(tuple(SIZES)))] * 2 * sizes])()

    def strided(self, factor: int) -> Expr:
        return apply("add", apply("mul", self.datum("i64"), const(factor)), apply("mul", j, const(self.draw.choice((0, 1, 3, 8)))))

    def steps(self) -> Expr:
        """Quotients and remainders of numbers that lie as far apart in lanes, or from one to the next, as divisors say, or nearly."""
        factor = self.draw.choice((3, 8, 24))
        first = self.draw.choice((o, self.datum("i64"), self.datum("i32", "u32")))
        wide = first if first.dtype is dtypes.int64 else Cast(dtypes.int64, first)
        far = apply("mul", self.draw.choice((wide, apply("add", wide, Size(self.draw.choice(("n", "p")))))), const(factor))
        x = self.draw.choice((far, apply("add", far, apply("mul", self.lane, const(self.draw.choice((1, 3, 8, -8)))))))
        return apply(
            self.draw.choice(("floordiv", "mod")),
            apply("add", x, const(self.draw.choice((0, 0, 1, -8)))),
            const(self.draw.choice((2, 3, 6, 8, 16, 24, 48))),
        )

    def grown(self, depth: int, sizes: bool = True) -> Expr:
        """A term of int64 operations. Sizes stand under no quotient of a sum or product: that of numbers beyond 64 bits is their own."""
        draw = self.draw
        if depth == 0:
            return self.leaf(sizes)
        name = draw.choice(OPERATIONS)
        sizes = sizes and name not in ("quotient", "divided", "unsigned")
        x, y = self.grown(depth - 1, sizes), self.grown(draw.randrange(depth), sizes)
        match name:
            case "steps":
                return self.steps()
            case "shifted":
                return apply(draw.choice(("add", "sub")), x, self.edge())
            case "scaled":
                return apply("mul", x, const(draw.choice(FACTORS)))
            case "abs" | "neg":
                return apply(name, x)
            case "quotient":
                own = self.first + draw.randrange(4), self.begin + draw.randrange(LANES + 2)
                return apply(draw.choice(("floordiv", "mod")), x, const(draw.choice((*DIVISORS, -3, -1, 0, *own, *own))))
            case "divided":
                return apply(draw.choice(("floordiv", "mod")), x, y)
            case "where":
                return apply("where", self.compared(x, y), x, self.leaf(sizes))
            case "unsigned":
                other: Expr = Cast(dtypes.uint64, x)
                if draw.random() < 0.5:
                    other = apply("where", self.compared(x, y), other, unsigned(draw.choice((3, (1 << 63) + 2, (1 << 64) - 1))))
                divisor = unsigned(draw.choice((*DIVISORS, (1 << 63) + 1, (1 << 64) - 1)))
                return Cast(dtypes.int64, apply(draw.choice(("floordiv", "mod")), other, divisor))
        return apply(name, x, y)

    def compared(self, x: Expr, y: Expr) -> Expr:
        name = self.draw.choice(("lt", "le", "gt", "ge", "eq", "ne"))
        return apply(
            name,
            self.draw.choice((x, self.leaf(), o, j, apply("abs", j))),
            self.draw.choice((y, self.edge(), self.edge(), self.datum("i64"))),
        )

    def stored(self, depth: int) -> Expr:
        """A term as it is, as another type, or compared."""
        x = self.grown(depth)
        match self.draw.choice(("int64", "int64", "int64", "float64", "float32", "uint64", "int32", "compared", "compared", "unsigned")):
            case "compared":
                return self.compared(x, self.leaf())
            case "unsigned":
                return Cast(self.draw.choice((dtypes.float64, dtypes.float32)), Cast(dtypes.uint64, x))
            case "int64":
                return x
            case name:
                return Cast(getattr(dtypes, name), x)


def unsigned(number: int) -> Const:
    return Const(np.uint64(number), dtypes.uint64)


def assert_law(number: int, count: int, machine: Machine) -> None:
    """So many terms, each in a kernel of its own: rows from some number on, lanes from another, both around an edge or around 0."""
    draw = random.Random(number)
    arrays, targets, kernels = data(draw), list[Buffer](), list[Kernel]()
    for n in range(count):
        place = Place(*(draw.choice((0, draw.randrange(-2 * LANES, 2), near(draw.choice(EDGES[2:-2]), draw))) for _ in "oj"), draw)
        value = place.stored(draw.choice((1, 1, 2, 3)))
        targets.append(buffer(f"Y{n}", value.dtype, ROWS, LANES))
        kept = loop("j", place.begin + LANES, write(targets[-1], [place.row, place.lane], value), start=place.begin, kind="vectorize")
        kernels.append(Kernel(f"k{n}", (loop("o", place.first + ROWS, kept, start=place.first),)))
    sources = list(DATA.values())
    nest = LoopNest("t", (*sources, *targets), (), (), tuple(kernels), tuple(y.name for y in targets), tuple(SIZES), ())
    naive = Interpreter(nest, dict(arrays), dict(SIZES))
    with np.errstate(all="ignore"):
        for kernel in kernels:
            naive.block(kernel.body, {})
    found = arrays | {y.name: np.zeros((ROWS, LANES), y.dtype.numpy) for y in targets}
    assert compile_nest(nest, machine)([found[b.name].ctypes.data for b in nest.parameters], list(SIZES.values()), 0) is None
    for y, kernel in zip(targets, kernels, strict=True):
        got, want = found[y.name], naive.arrays[y.name]
        assert got.tobytes() == want.tobytes(), f"{machine.cpu}: {kernel.body}\n{got}\n{want}"


@pytest.mark.parametrize("number", share_of(range(12)))
def test_lanes_compute_what_the_nest_says(number: int) -> None:
    assert_law(number, 120, machines()[number // 3 % len(machines())])
