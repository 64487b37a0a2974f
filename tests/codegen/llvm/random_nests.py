"""Random loop nests with every statement and loop kind, and a program that checks native code against the naive interpreter.

Run in a process of its own (`python -m tests.codegen.llvm.random_nests START STOP STEP [CPU BITS]`), because LLVM ends the process where
it is given something that it did not expect. Data are small integers in float64, so results are exact in any order.
"""

from __future__ import annotations

import random
import sys

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import Machine, compile_nest, host
from tensorexpr.codegen.nest import Alloc, If, LoopNest, Stmt
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.ir import Cast, Const, Expr, Index, Size, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

_WIDTHS = (1, 2, 3, 4, 7, 8, 10, 16, 17, 24, 32, 40, 100)


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.rows = self.random.choice((1, 3, 6))
        self.symbolic = self.random.random() < 0.3
        self.width = self.random.choice(_WIDTHS)
        self.A = buffer("A", dtypes.float64, 7, 29)
        self.B = buffer("B", self.random.choice((dtypes.float32, dtypes.int32, dtypes.int8, dtypes.float16, dtypes.bool_)), 53)
        self.ids = buffer("ids", dtypes.int64, 31)
        self.triples = buffer("triples", self.random.choice((dtypes.int64, dtypes.int32, dtypes.uint8)), 31, 3)

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # -------------------------------------------------------------------------------------------- indices and values

    def linear(self, indices: list[str]) -> Expr:
        """A small affine form of some indices."""
        total: Expr = const(self.random.randint(-3, 5))
        for name in self.random.sample(indices, min(len(indices), self.random.randint(1, 3))):
            term: Expr = Index(name)
            factor = self.random.choice((1, 1, 1, 2, 3, -1, -2, 5))
            if factor != 1:
                term = apply("mul", term, const(factor))
            total = apply(self.random.choice(("add", "add", "sub")), total, term)
        if self.random.random() < 0.2:
            total = apply("floordiv", total, const(self.random.choice((2, 3, 4, 8, -3))))
        return total

    def inside(self, indices: list[str], extent: int) -> Expr:
        """An index in 0..extent: wrapped, clamped, or looked up."""
        form = self.linear(indices)
        match self.random.randint(0, 4):
            case 0:
                return apply("maximum", const(0), apply("minimum", form, const(extent - 1)))
            case 1:
                looked = read(self.ids, apply("mod", form, const(31)))
                return apply("mod", looked, const(extent))
            case _:
                return apply("mod", form, const(extent))

    def access(self, indices: list[str]) -> Expr:
        """A float64 read of A or B; without a wrap where a guard makes it safe."""
        if self.random.random() < 0.35:
            form = self.linear(indices)
            guard = apply("and", apply("ge", form, const(0)), apply("lt", form, const(53)))
            value = Cast(dtypes.float64, read(self.B, form))
            return apply("where", guard, value, Const(float(self.random.randint(-2, 2)), dtypes.float64))
        if self.random.random() < 0.5:
            return Cast(dtypes.float64, read(self.B, self.inside(indices, 53)))
        return read(self.A, self.inside(indices, 7), self.inside(indices, 29))

    def together(self, indices: list[str]) -> Expr:
        """Reads that differ in constants, of an index array or through it, under conditions: addresses with a part in common."""
        form = self.linear(self.random.sample(indices, self.random.randint(1, len(indices))))
        guarded = self.random.random() < 0.7  # else wrapped: then no lane leaves the array
        row = form if guarded else apply("mod", form, const(29))
        through = self.random.random() < 0.5
        total: Expr | None = None
        for column in self.random.sample(range(3), self.random.randint(2, 3)):
            down = self.random.randint(0, 2)
            looked = read(self.triples, apply("add", row, const(down)), column)
            value: Expr = Cast(dtypes.float64, looked)
            if through:
                place = apply("mod", looked if looked.dtype is dtypes.int64 else Cast(dtypes.int64, looked), const(7))
                value = read(self.A, place, self.inside(indices, 29))
            if self.random.random() < 0.3:
                value = apply("where", self.condition(indices), value, Const(float(column), dtypes.float64))
            total = value if total is None else apply("add", total, value)
        assert total is not None
        tests = [apply("ge", form, const(0)), apply("lt", form, const(29))] if guarded else []
        if self.random.random() < 0.7:
            tests.insert(0, self.condition(indices))
        for test in reversed(tests):
            total = apply("where", test, total, Const(-1.0, dtypes.float64))
        return total

    def condition(self, indices: list[str]) -> Expr:
        made = apply(self.random.choice(("lt", "ge", "eq", "ne")), self.linear(indices), const(self.random.randint(-2, 9)))
        if self.random.random() < 0.3:
            made = apply(self.random.choice(("and", "or")), made, apply("gt", self.access(indices), Const(0.0, dtypes.float64)))
        return made

    def value(self, indices: list[str], depth: int = 2) -> Expr:
        if depth == 0 or self.random.random() < 0.2:
            if self.random.random() < 0.2:
                return Cast(dtypes.float64, self.linear(indices))
            return self.together(indices) if self.random.random() < 0.3 else self.access(indices)
        match self.random.randint(0, 5):
            case 0:
                return apply("where", self.condition(indices), self.value(indices, depth - 1), self.value(indices, depth - 1))
            case 1:
                return apply("maximum", self.value(indices, depth - 1), self.value(indices, depth - 1))
            case 2:
                return apply("floor", apply("mul", self.value(indices, depth - 1), Const(0.5, dtypes.float64)))
            case _:
                return apply(self.random.choice(("add", "sub")), self.value(indices, depth - 1), self.value(indices, depth - 1))

    # -------------------------------------------------------------------------------------------- statements

    def bound(self, indices: list[str]) -> tuple[Expr, Expr]:
        """Bounds of a loop, often dependent on what is outside."""
        start = const(self.random.choice((0, 0, 1, 2)))
        if indices and self.random.random() < 0.5:
            return start, apply("minimum", apply("add", Index(self.random.choice(indices)), const(self.random.randint(-1, 2))), const(9))
        return start, const(self.random.randint(0, 6))

    def accumulated(self, indices: list[str]) -> Stmt:
        """A scalar accumulator around a loop, with conditions inside, and its store by `finish`."""
        t = buffer(self.name("t"), dtypes.float64, 2, memory="local")
        k = self.name("k")
        start, stop = self.bound(indices)
        inner = [*indices, k]
        update: Stmt = write(t, [0], apply("add", read(t, 0), self.value(inner)))
        if self.random.random() < 0.5:
            other = (write(t, [1], self.value(inner)),) if self.random.random() < 0.5 else ()
            update = If(self.condition(inner), (update,), other)
        kind = self.random.choice(("serial", "serial", "unroll"))
        body = (
            write(t, [0], self.value(indices)),
            write(t, [1], Const(1.0, dtypes.float64)),
            loop(k, stop, update, start=start, kind=kind),
        )
        return Alloc(t, (*body, *self.finish(apply("add", read(t, 0), read(t, 1)))))

    def finish(self, value: Expr) -> tuple[Stmt, ...]:
        place = Index("l")
        if self.random.random() < 0.2:
            place = apply("sub", const(self.width - 1), place)
        store = write(self.Y, [Index("i"), place, const(0)] if self.deep else [Index("i"), place], value)
        return (store,)

    def shared(self) -> tuple[Stmt, ...]:
        """A row of accumulators outside of the vectorized loops, as lowering makes them."""
        acc = buffer(self.name("acc"), dtypes.float64, self.width, memory="local")
        names = [self.name("l") for _ in range(2)]
        k = self.name("k")
        start, stop = self.bound(["i"])
        init = loop(names[0], self.width, write(acc, [Index(names[0])], self.value(["i", names[0]])), kind="vectorize")
        add = apply("add", read(acc, Index(names[1])), self.value(["i", k, names[1]]))
        step: Stmt = write(acc, [Index(names[1])], add)
        if self.random.random() < 0.4:
            step = If(self.condition(["i", k, names[1]]), (step,))
        main = loop(k, stop, loop(names[1], self.width, step, kind=self.random.choice(("vectorize", "unroll"))), start=start)
        last = loop("l", self.width, *self.finish(read(acc, Index("l"))), kind=self.random.choice(("vectorize", "serial")))
        return (Alloc(acc, (init, main, last)),)

    def reduction(self) -> tuple[Stmt, ...]:
        """A reduction over a vectorized loop that nobody split: it must come out as if it were serial."""
        acc = buffer(self.name("s"), dtypes.float64, memory="local")
        v = self.name("v")
        inside = loop(v, self.random.choice(_WIDTHS), write(acc, [], apply("add", read(acc), self.value(["i", v]))), kind="vectorize")
        fill = loop("l", self.width, *self.finish(read(acc)), kind="vectorize")
        return (Alloc(acc, (write(acc, [], Const(0.0, dtypes.float64)), inside, fill)),)

    def nest(self) -> LoopNest:
        self.deep = self.random.random() < 0.3
        rows = Size("n") if self.symbolic else self.rows
        shape = (rows, self.width, 2) if self.deep else (rows, self.width)
        self.Y = buffer("Y", dtypes.float64, *shape)
        match self.random.randint(0, 3):
            case 0:
                body = self.shared()
            case 1:
                body = self.reduction()
            case _:
                kind = self.random.choice(("vectorize", "vectorize", "vectorize", "serial", "unroll"))
                inner = self.accumulated(["i", "l"]) if self.random.random() < 0.7 else self.finish(self.value(["i", "l"], 3))[0]
                body = (loop("l", self.width, inner, kind=kind),)
        kind = self.random.choice(("serial", "parallel", "unroll"))
        sizes = ("n",) if self.symbolic else ()
        return nest([self.A, self.B, self.ids, self.triples, self.Y], [self.Y], (loop("i", rows, *body, kind=kind),), sizes=sizes)


def random_nest(seed: int) -> LoopNest:
    """One random nest."""
    return _Writer(seed).nest()


def check(seed: int, machine: Machine) -> None:
    """Compares one random nest, natively and naively."""
    writer = _Writer(seed)
    made = writer.nest()
    generator = np.random.default_rng(seed)
    arrays = {
        "A": generator.integers(-9, 9, (7, 29)).astype(np.float64),
        "B": generator.integers(-9, 9, 53).astype(writer.B.dtype.numpy),
        "ids": generator.integers(0, 99, 31),
        "triples": generator.integers(0, 99, (31, 3)).astype(writer.triples.dtype.numpy),
    }
    sizes = {"n": writer.rows} if writer.symbolic else {}
    want = run_nest(made, arrays, sizes)["Y"]
    got = run(made, arrays, sizes, before=seed % 2 == 1, compiled=compile_nest(made, machine))["Y"]
    if writer.deep:
        want, got = want[..., 0], got[..., 0]
    if not np.array_equal(want, got):
        raise AssertionError(f"seed {seed}: native and naive results differ\n{made}")


def main() -> None:
    seeds = range(*map(int, sys.argv[1:4]))
    machine = host()
    if len(sys.argv) > 4:
        machine = Machine(machine.triple, sys.argv[4], "", int(sys.argv[5]))
    for seed in seeds:
        print(seed, flush=True)
        check(seed, machine)
    print("passed", flush=True)


if __name__ == "__main__":
    main()
