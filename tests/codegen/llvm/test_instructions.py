"""Instructions that stand for loops of a nest: wherever they stand, they touch and compute what the loops say.

A case calls one for blocks of a sum, or of a map, with operands at places that are constants, indices and data, in memory and in local
buffers, under conditions, in loops of every kind (in lanes, where the loops run in its place), between plain reads and writes of the same
elements. Operands end or begin at protected pages; everything is compared with the naive interpreter, which runs the loops, bit by bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm.text.casts import memory_type
from tensorexpr.codegen.nest import Alloc, Block, Call, For, If, Stmt
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Cast, Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, read, write
from tests.seeds import share_of

o, i, j, k, q = (Index(name) for name in "oijkq")
TYPES = (dtypes.float32, dtypes.int32, dtypes.float64, dtypes.int64, dtypes.uint16, dtypes.int8)
BLOCKS = 2


def sum_of(dtype: DType, lanes: int, deep: int) -> tuple[str, str]:
    """c[l] += a[q] * b[q, l], in LLVM's own vectors: a name and a body."""
    element = memory_type(dtype)
    vector, align = f"<{lanes} x {element}>", dtype.itemsize
    f = "f" if dtype.is_float else ""
    lines = [f"  %s0 = load {vector}, ptr %c, align {align}"]
    for n in range(deep):
        lines += [
            f"  %p{n} = getelementptr {element}, ptr %a, i64 {n}",
            f"  %e{n} = load {element}, ptr %p{n}, align {align}",
            f"  %i{n} = insertelement {vector} poison, {element} %e{n}, i64 0",
            f"  %v{n} = shufflevector {vector} %i{n}, {vector} poison, <{lanes} x i32> zeroinitializer",
            f"  %r{n} = getelementptr {element}, ptr %b, i64 {n * lanes}",
            f"  %w{n} = load {vector}, ptr %r{n}, align {align}",
            f"  %m{n} = {f}mul {vector} %v{n}, %w{n}",
            f"  %s{n + 1} = {f}add {vector} %s{n}, %m{n}",
        ]
    return f"sum_{dtype.name}_{lanes}_{deep}", "\n".join([*lines, f"  store {vector} %s{deep}, ptr %c, align {align}"])


def map_of(dtype: DType, lanes: int) -> tuple[str, str]:
    """c[l] = a[l] + a[l]: a name and a body."""
    vector, f = f"<{lanes} x {memory_type(dtype)}>", "f" if dtype.is_float else ""
    body = f"  %x = load {vector}, ptr %a, align {dtype.itemsize}\n  %y = {f}add {vector} %x, %x\n"
    return f"map_{dtype.name}_{lanes}", f"{body}  store {vector} %y, ptr %c, align {dtype.itemsize}"


def shifted(e: Expr, by: int) -> Expr:
    return apply("add", e, const(by)) if by else e


AROUND = ("serial", "unroll", "parallel", "lanes", "masked", "tested", "data")


def around(kind: str, call: Stmt, name: str) -> tuple[Stmt, list]:
    """A loop over rows of a tile, of a kind, with the call inside, and what its conditions read."""
    if kind in ("lanes", "masked"):
        test = apply("ne", i, apply("add", o, const(1)))
        return loop("i", 3, *((If(test, (call,)),) if kind == "masked" else (call,)), kind="vectorize"), []
    if kind == "tested":
        return loop("i", 3, If(apply("lt", i, apply("add", o, const(1))), (call,))), []
    if kind == "data":
        marks = buffer(f"M_{name}", dtypes.bool_, BLOCKS, 3)
        return loop("i", 3, If(read(marks, o, i), (call,)), kind="unroll"), [marks]
    return loop("i", 3, call, kind="unroll" if kind == "unroll" else "serial"), []


def sums(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Blocks of a sum, added to what is held or to memory, at rows that are constants, indices or data."""
    for at, (kind, home, row) in enumerate(product(AROUND, ("local", "memory"), ("own", "data", "first"))):
        lanes, deep, steps = draw.choice((1, 2, 4, 8, 16)), draw.choice((1, 2, 3)), draw.choice((0, 1, 3))
        tag, more = f"{name}{at}", draw.choice((0, 1))
        x, y = buffer(f"X_{tag}", dtype, 3, max(1, steps * deep) + more), buffer(f"Y_{tag}", dtype, BLOCKS, 3, lanes + more)
        z, ids = buffer(f"Z_{tag}", dtype, max(1, steps), deep, lanes), buffer(f"I_{tag}", dtypes.uint8, 3)
        acc = buffer(f"a_{tag}", dtype, 3, lanes + more, memory="local") if home == "local" else y
        place = [] if home == "local" else [o]
        rows = {"own": i, "first": const(0), "data": apply("mod", Cast(dtypes.int64, read(ids, i)), const(3))}[row]

        def element(lane: Expr, acc=acc, place=place, more=more) -> Access:
            return read(acc, *place, i, shifted(lane, more))

        def operands(lane: Expr, step: Expr, x=x, z=z, rows=rows, more=more, deep=deep) -> tuple[Access, Access]:
            return read(x, rows, shifted(apply("add", apply("mul", k, const(deep)), step), more)), read(z, k, step, lane)

        a, b = operands(j, q)
        added = write(acc, element(j).indices, apply("add", element(j), apply("mul", a, b)))
        word, body = sum_of(dtype, lanes, deep)
        call = Call(word, ("c", "a", "b"), (element(const(0)), *operands(const(0), const(0))), body)
        lines: Stmt = For("j", const(0), const(lanes), (loop("q", deep, added),), "tensorize", call)
        inner, reads = around(kind, lines, tag)
        step: list[Stmt] = [inner]
        if draw.random() < 0.5:
            # Plain reads and writes of what the instruction changes, before and behind it.
            touch = write(acc, element(const(lanes - 1)).indices, apply("add", element(const(lanes - 1)), Const(1, dtype)))
            step = draw.choice(([loop("i", 3, touch), inner], [inner, loop("i", 3, touch, kind="unroll")]))
        parts: Block = (loop("k", steps, *step),)
        if home == "local":
            clear = loop("i", 3, loop("j", lanes + more, write(acc, [i, j], Const(1, dtype)), kind="vectorize"))
            out = loop("i", 3, loop("j", lanes + more, write(y, [o, i, j], read(acc, i, j)), kind="vectorize"))
            parts = (Alloc(acc, (clear, *parts, out)),)
        yield Case([x, z, ids, *reads], y, (loop("o", BLOCKS, *parts, kind="parallel" if kind == "parallel" else "serial"),))


def maps(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Blocks that are stored to, of another array or of those before in the same one."""
    for at, (kind, same, order) in enumerate(product(AROUND, (False, True), ("down", "up", "data"))):
        lanes, tag, more = draw.choice((1, 2, 4, 8, 16, 32)), f"{name}{at}", draw.choice((0, 1))
        x, ids = buffer(f"X_{tag}", dtype, 3, lanes), buffer(f"I_{tag}", dtypes.uint8, BLOCKS, 3)
        y = buffer(f"Y_{tag}", dtype, BLOCKS + 1, 3, lanes + more)
        there = {"up": i, "down": apply("sub", const(2), i), "data": apply("mod", Cast(dtypes.int64, read(ids, o, i)), const(3))}[order]

        def given(lane: Expr, x=x, y=y, same=same, more=more, there=there) -> Access:
            return read(y, o, there, shifted(lane, more)) if same else read(x, there, lane)

        def target(lane: Expr, more=more) -> list[Expr]:
            return [apply("add", o, const(1)), i, shifted(lane, more)]

        word, body = map_of(dtype, lanes)
        call = Call(word, ("c", "a"), (read(y, *target(const(0))), given(const(0))), body)
        store = write(y, target(j), apply("add", given(j), given(j)))
        inner, reads = around(kind, For("j", const(0), const(lanes), (store,), "tensorize", call), tag)
        yield Case([x, ids, *reads], y, (loop("o", BLOCKS, inner),))


@pytest.mark.parametrize("number", share_of(range(54)))
def test_an_instruction_touches_what_its_loops_touch(number: int) -> None:
    dtype, machine = TYPES[number // 3 % len(TYPES)], machines()[number // 3 % len(machines())]
    draw = random.Random(number)
    cases = [*draw.sample(list(sums(dtype, f"sums{number}_", draw)), 5), *draw.sample(list(maps(dtype, f"maps{number}_", draw)), 4)]
    with np.errstate(over="ignore"):
        assert_agree(cases, machine)
