"""Elements that are held over a loop, in local buffers that LLVM keeps in registers, and stored behind it.

A case holds a tile (rows unrolled, lanes side by side), or what is one lane's own, over steps which may be none, differ between lanes, be
cut off by a test, read and write the memory that is stored to at the end, and take what is held to other lanes. Everything lies tight at
protected pages, is started where lanes are on alone, and is compared with the naive interpreter bit by bit, on three machines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Block, Buffer, If, Stmt
from tensorexpr.dtypes import DType
from tensorexpr.ir import Cast, Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, read, write
from tests.seeds import share_of

o, i, j, k = Index("o"), Index("i"), Index("j"), Index("k")
TYPES = (
    dtypes.float32,
    dtypes.int64,
    dtypes.float16,
    dtypes.int8,
    dtypes.float64,
    dtypes.uint16,
    dtypes.bfloat16,
    dtypes.bool_,
    dtypes.int32,
    dtypes.uint64,
    dtypes.uint8,
)
LANES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 29, 32)
ON = ("all", "tail", "data", "row", "odd")
"""Which lanes are on: all, those before an end, by data, rows of the tile that are there, every other."""
STEPS = ("some", "one", "none", "open", "lane", "tested", "jumped")
"""How often: a constant, by data for all or for each lane, in steps that a test of a step or of data leaves out."""
BLOCKS = 2


def no(test: Expr | None, *body: Stmt) -> Block:
    return body if test is None else (If(test, body),)


def combined(draw: random.Random, dtype: DType, x: Expr, y: Expr) -> Expr:
    names = ("or", "and", "xor") if dtype.is_bool else ("add", "sub", "maximum", "minimum")
    return apply(draw.choice(names), *((x, y) if draw.random() < 0.7 else (y, x)))


class Held:
    """What the cases have in common: buffers of a case, which lanes are on, how often steps run."""

    def __init__(self, dtype: DType, name: str, draw: random.Random, on: str, steps: str) -> None:
        self.dtype, self.name, self.draw = dtype, name, draw
        self.rows, self.lanes, self.sources = draw.choice((1, 2, 3, 4)), draw.choice(LANES), list[Buffer]()
        end = draw.randint(1, self.lanes)
        self.width = end if on == "tail" else self.lanes
        self.there = draw.randint(1, self.rows) if on == "row" else self.rows
        lane = apply("lt", j, const(end))
        odd = apply("eq", apply("mod", apply("add", j, o), const(2)), const(0))
        self.on: Expr | None = {"tail": lane, "row": apply("lt", i, const(self.there)), "odd": odd}.get(on)
        if on == "data":
            self.on = read(self.source("M", dtypes.bool_, BLOCKS, self.lanes), o, j)
        self.count = 1 if steps == "one" else draw.randint(2, 6)
        self.steps = steps

    def source(self, stem: str, dtype: DType, *shape: int) -> Buffer:
        self.sources.append(buffer(f"{stem}_{self.name}", dtype, *shape))
        return self.sources[-1]

    def target(self) -> Buffer:
        return buffer(f"Y_{self.name}", self.dtype, BLOCKS, self.there, self.width)

    def stepping(self, each: bool, *body: Stmt) -> Stmt:
        """A loop over steps around statements, inside of lanes where its bounds may differ between `each` of these."""
        stop: Expr = const(0 if self.steps == "none" else self.count)
        test: Expr | None = None
        if self.steps == "open" or (self.steps == "lane" and not each):
            stop = apply("mod", read(self.source("E", dtypes.int64, BLOCKS), o), const(self.count + 1))
        elif self.steps == "lane":
            ends = read(self.source("E", dtypes.int64, BLOCKS, self.width), o, apply("minimum", j, const(self.width - 1)))
            stop = apply("mod", ends, const(self.count + 1))
        elif self.steps == "tested":
            test = apply("ne", k, apply("add", o, const(1)))
        elif self.steps == "jumped":
            test = read(self.source("S", dtypes.bool_, self.count), k)
        return loop("k", stop, *no(test, *body))

    def value(self) -> Expr:
        """What a step reads: elements side by side, turned around, far apart, the same for all lanes, of another type."""
        along = self.draw.choice(("beside", "back", "apart", "same", "other", "data"))
        rows, lanes = self.there, self.width
        x = ("X", self.dtype)
        row = apply("minimum", i, const(rows - 1)) if self.on is None else i
        match along:
            case "back":
                return read(self.source(*x, self.count, rows, lanes), k, row, apply("sub", const(lanes - 1), j))
            case "apart":
                return read(self.source(*x, lanes, self.count, rows), j, k, row)
            case "same":
                return read(self.source(*x, self.count, rows), k, row)
            case "other":
                other = dtypes.uint8 if self.dtype.is_float else dtypes.bool_
                return Cast(self.dtype, read(self.source("X", other, self.count, lanes), k, j))
            case "data":
                ids = read(self.source("I", dtypes.uint8, lanes), j)
                return read(self.source(*x, self.count, 7), k, apply("mod", Cast(dtypes.int64, ids), const(7)))
        return read(self.source(*x, BLOCKS, self.count, rows, lanes), o, k, row, j)


def tiles(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """A tile around the lanes: acc[i, j] over steps, what is held moved between lanes, the target read and written in between."""
    for at, (on, steps, between) in enumerate(product(ON, STEPS, ("nothing", "moved", "stored", "read", "both"))):
        h = Held(dtype, f"{name}{at}", draw, on, steps)
        acc, y = buffer(f"a_{h.name}", dtype, h.rows, h.lanes, memory="local"), h.target()
        moved = buffer(f"b_{h.name}", dtype, h.rows, h.lanes, memory="local")

        def tile(*body: Stmt, h: Held = h) -> Stmt:
            lanes = loop("j", h.lanes, *no(h.on, *body), kind="vectorize")
            return loop("i", h.rows, lanes, kind=h.draw.choice(("unroll", "serial")))

        out, own = write(y, [o, i, j], read(acc, i, j)), read(acc, i, j)
        step = [tile(write(acc, [i, j], combined(draw, dtype, own, h.value())))]
        if between == "moved" and on in ("all", "odd"):
            # With every other lane on, what is off is as it was started.
            step.append(loop("i", h.rows, loop("j", h.lanes, write(moved, [i, j], own), kind="vectorize")))
            there = draw.choice((apply("sub", const(h.lanes - 1), j), apply("mod", apply("add", j, k), const(h.lanes))))
            step.append(tile(write(acc, [i, j], combined(draw, dtype, own, read(moved, i, there)))))
        if between in ("stored", "both"):
            step.append(tile(out))
        if between in ("read", "both"):
            step.insert(draw.randint(0, len(step)), tile(write(acc, [i, j], combined(draw, dtype, own, read(y, o, i, j)))))
        zero = Const(draw.randint(0, 1), dtype)
        started = tile(write(acc, [i, j], zero)) if on != "odd" else loop("i", h.rows, loop("j", h.lanes, write(acc, [i, j], zero)))
        body: Block = (Alloc(acc, (started, h.stepping(False, *step), tile(out))),)
        yield Case(h.sources, y, (loop("o", BLOCKS, Alloc(moved, body), kind=draw.choice(("serial", "parallel"))),))


def own(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """What is one lane's own: acc[i] inside of lanes, over steps that differ between these, at places that are data or steps."""
    for at, (on, steps, place, between) in enumerate(product(ON, STEPS, ("row", "step", "data"), ("nothing", "stored", "read"))):
        h = Held(dtype, f"{name}{at}", draw, on, steps)
        h.rows = h.there
        acc, y = buffer(f"a_{h.name}", dtype, h.rows, memory="local"), h.target()
        where: Expr = i
        if place == "step":
            where = apply("mod", k, const(h.rows))
        elif place == "data":
            where = apply("mod", Cast(dtypes.int64, read(h.source("P", dtypes.uint8, BLOCKS, h.width), o, j)), const(h.rows))
        on_lane = None if on == "row" else h.on
        h.on = on_lane
        step: list[Stmt] = [write(acc, [where], combined(draw, dtype, read(acc, where), h.value()))]
        if between == "stored":
            step.append(write(y, [o, i, j], read(acc, i)))
        elif between == "read":
            step.insert(draw.randint(0, 1), write(acc, [i], combined(draw, dtype, read(acc, i), read(y, o, i, j))))
        started = loop("i", h.rows, write(acc, [i], Const(draw.randint(0, 1), dtype)), kind="unroll")
        steps_ = h.stepping(True, loop("i", h.rows, *step, kind=draw.choice(("unroll", "serial"))))
        last = loop("i", h.rows, write(y, [o, i, j], read(acc, i)), kind="unroll")
        parts = no(on_lane, started, steps_, last) if draw.random() < 0.5 else (started, *no(on_lane, steps_, last))
        yield Case(h.sources, y, (loop("o", BLOCKS, loop("j", h.width, Alloc(acc, parts), kind="vectorize")),))


def counted(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Elements held of which lanes change the same ones: one after the other, whatever the kind of the loop says."""
    for at, (on, steps, place) in enumerate(product(("all", "tail", "data", "odd"), STEPS, ("same", "data", "half"))):
        h = Held(dtype, f"{name}{at}", draw, on, steps)
        h.there = h.rows = 1
        acc, y = buffer(f"a_{h.name}", dtype, h.lanes, memory="local"), h.target()
        where: Expr = const(0)
        if place == "data":
            ids = read(h.source("P", dtypes.uint8, h.width), apply("minimum", j, const(h.width - 1)))
            where = apply("mod", Cast(dtypes.int64, ids), const(h.lanes))
        elif place == "half":
            where = apply("floordiv", j, const(2))
        x = read(h.source("X", dtype, BLOCKS, h.count, h.width), o, k, j)
        change = loop("j", h.lanes, *no(h.on, write(acc, [where], combined(draw, dtype, read(acc, where), x))), kind="vectorize")
        started = loop("j", h.lanes, write(acc, [j], Const(1, dtype)), kind="vectorize")
        out = loop("j", h.lanes, *no(h.on, write(y, [o, 0, j], read(acc, j))), kind="vectorize")
        yield Case(h.sources, y, (loop("o", BLOCKS, Alloc(acc, (started, h.stepping(False, change), out))),))


FAMILIES = ((tiles, 6), (own, 6), (counted, 3))
"""Kinds of cases, and how many of each a number draws."""


@pytest.mark.parametrize("number", share_of(range(66)))
def test_what_is_held_is_what_memory_would_have(number: int) -> None:
    dtype, machine = TYPES[number // 3 % len(TYPES)], machines()[number // 3 % len(machines())]
    draw, cases = random.Random(number), list[Case]()
    for family, count in FAMILIES:
        cases += draw.sample(list(family(dtype, f"{family.__name__}{number}_", draw)), count)
    with np.errstate(over="ignore"):
        assert_agree(cases, machine, streams=draw.random() < 0.2)
