"""Loads and stores of whole vectors, all their forms: strides, lanes, conditions, types, alignment, room around, on three machines.

A case is a loop over lanes inside of another, which shifts what it touches; buffers end where the outermost elements that are on lie
("tight"), or have some elements around. Every element is compared with the naive interpreter bit by bit, at protected pages.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Block, Check, If, Stmt
from tensorexpr.dtypes import DType
from tensorexpr.ir import Cast, Const, Expr, Index, apply, const
from tests.codegen.llvm.below import Case, assert_agree, machines
from tests.codegen.llvm.nests import buffer, loop, read, write
from tests.seeds import share_of

o, j, k = Index("o"), Index("j"), Index("k")
TYPES = (
    dtypes.float32,
    dtypes.bool_,
    dtypes.int8,
    dtypes.float64,
    dtypes.uint16,
    dtypes.int32,
    dtypes.float16,
    dtypes.int64,
    dtypes.bfloat16,
    dtypes.uint64,
)
LANES = (2, 3, 4, 5, 7, 8, 12, 16, 29, 32, 64)
STRIDES = (1, -1, 2, -2, 3, 0)
CONDITIONS = ("none", "first", "last", "odd", "data", "outer", "outer data")
ROOM = ((0, 0), (0, 1), (1, 0), (2, 3))
ROWS = 3


def plus(e: Expr, number: int) -> Expr:
    return apply("add", e, const(number)) if number else e


class Mask(NamedTuple):
    """Which lanes of which rows are on: an expression, the same in Python (None where data says), and the buffers that it reads."""

    test: Expr | None
    on: object
    reads: tuple


def mask_of(kind: str, lanes: int, name: str) -> Mask:
    limit = (lanes * 2 // 3, 1, lanes - 1)[zlib.crc32(name.encode()) % 3] or 1
    match kind:
        case "first":
            return Mask(apply("lt", j, const(limit)), lambda row, lane: lane < limit, ())
        case "last":
            return Mask(apply("ge", j, const(limit)), lambda row, lane: lane >= limit, ())
        case "odd":
            odd = apply("eq", apply("mod", apply("add", j, o), const(2)), const(1))
            return Mask(odd, lambda row, lane: (lane + row) % 2 == 1, ())
        case "outer":
            return Mask(apply("ge", o, const(1)), lambda row, lane: row >= 1, ())
        case "data":
            mark = buffer(f"M_{name}", dtypes.bool_, ROWS, lanes)
            return Mask(read(mark, o, j), None, (mark,))
        case "outer data":
            mark = buffer(f"M_{name}", dtypes.bool_, ROWS)
            return Mask(read(mark, o), None, (mark,))
    return Mask(None, lambda row, lane: True, ())


def placed(lanes: int, stride: int, mask: Mask, apart: int, room: tuple[int, int]) -> tuple[Expr, int]:
    """The place of a lane in a buffer, rows `apart` elements from each other, and the size of the buffer."""
    places = [row * apart + lane * stride for row, lane in product(range(ROWS), range(lanes)) if mask.on is None or mask.on(row, lane)]
    shift = room[0] - min(places)
    along = j if stride == 1 else apply("mul", j, const(stride))
    return plus(apply("add", apply("mul", o, const(apart)), along), shift), max(places) + shift + 1 + room[1]


def under(mask: Mask, *body: Stmt) -> Block:
    return body if mask.test is None else (If(mask.test, body),)


def lanes_of(count: int, *body: Stmt) -> Block:
    return (loop("o", ROWS, loop("j", count, *body, kind="vectorize")),)


def loads(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    for at, (stride, kind) in enumerate(product(STRIDES, CONDITIONS)):
        lanes = draw.choice(LANES)
        mask = mask_of(kind, lanes, f"{name}{at}")
        place, size = placed(lanes, stride, mask, draw.choice((1, 2, lanes, 2 * lanes + 1)), draw.choice(ROOM))
        x, y = buffer(f"X_{name}{at}", dtype, size), buffer(f"Y_{name}{at}", dtype, ROWS, lanes)
        value: Expr = read(x, place)
        if mask.test is not None and draw.random() < 0.5:
            body: Block = (write(y, [o, j], apply("where", mask.test, value, Const(1, dtype))),)
        else:
            body = under(mask, write(y, [o, j], value))
        yield Case([x, *mask.reads], y, lanes_of(lanes, *body))


def stores(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    for at, (stride, kind) in enumerate(product(STRIDES, CONDITIONS)):
        lanes = draw.choice(LANES)
        mask = mask_of(kind, lanes, f"{name}{at}")
        # Rows in between each other, one behind the other, and on each other: the last is the one that stays.
        place, size = placed(lanes, stride, mask, draw.choice((0, 1, abs(stride) * lanes + 1)), draw.choice(ROOM))
        x, y = buffer(f"X_{name}{at}", dtype, ROWS, lanes), buffer(f"Y_{name}{at}", dtype, size)
        yield Case([x, *mask.reads], y, lanes_of(lanes, *under(mask, write(y, [place], read(x, o, j)))))


def cuts(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Numbers cut to a narrower type as they are stored, to memory and to local buffers, where a single lane is on, or all but one."""
    wider = {1: dtypes.int32, 2: dtypes.int32, 4: dtypes.int64}.get(dtype.itemsize, dtypes.float64)
    for at, (lanes, inner, one) in enumerate(product((4, 8, 16, 32), (False, True), ("eq", "ne", "lt"))):
        lane = draw.randrange(lanes) if one != "lt" else 1
        test = apply(one, j, const(lane))
        size = {"eq": lane + 1, "lt": 1, "ne": lanes}[one]
        x, y = buffer(f"X_{name}{at}", wider, ROWS, lanes), buffer(f"Y_{name}{at}", dtype, ROWS * size)
        place = apply("add", apply("mul", o, const(size)), j)
        value = Cast(dtype, apply("floordiv", read(x, o, j), Const(4, wider)))
        if inner:
            t = buffer(f"t_{name}{at}", dtype, lanes, memory="local")
            clear = loop("j", lanes, write(t, [j], Const(1, dtype)), kind="vectorize")
            new = loop("j", lanes, If(test, (write(t, [j], value),)), kind="vectorize")
            last = loop("k", size, write(y, [apply("add", apply("mul", o, const(size)), k)], read(t, k)))
            yield Case([x], y, (loop("o", ROWS, Alloc(t, (clear, new, last))),))
        else:
            yield Case([x], y, lanes_of(lanes, If(test, (write(y, [place], value),))))


def together(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Several stores side by side in each lane, as many as lanes are apart or not."""
    for at, (count, more, back, kind) in enumerate(product((2, 3, 4, 5), (0, 1), (False, True), ("none", "first", "data"))):
        lanes = draw.choice(LANES)
        mask = mask_of(kind, lanes, f"{name}{at}")
        apart = count + more
        x, y = buffer(f"X_{name}{at}", dtype, count, lanes), buffer(f"Y_{name}{at}", dtype, 2 + apart * (lanes + ROWS) + count)
        along = apply("sub", plus(o, lanes - 1), j) if back else apply("add", j, o)
        places = [plus(apply("mul", along, const(apart)), n + 1) for n in range(count)]
        body = [write(y, [p], read(x, n, j)) for n, p in enumerate(places)]
        yield Case([x, *mask.reads], y, lanes_of(lanes, *under(mask, *body)))


def locals_(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Local buffers around the lanes, and one for each lane: at constant places, at those of lanes, at places that are data."""
    for at, (inner, where, kind) in enumerate(product((False, True), ("constant", "lane", "back", "twice", "data"), CONDITIONS)):
        lanes = draw.choice(LANES)
        mask = mask_of(kind, lanes, f"{name}{at}")
        size = 2 * lanes
        x, ids = buffer(f"X_{name}{at}", dtype, ROWS, lanes), buffer(f"I_{name}{at}", dtypes.int64, lanes)
        y = buffer(f"Y_{name}{at}", dtype, ROWS, lanes)
        t = buffer(f"t_{name}{at}", dtype, size, memory="local")
        if not inner and where in ("constant", "data"):
            continue  # lanes would meet
        place = {
            "constant": const(1),
            "lane": j,
            "back": apply("sub", const(lanes - 1), j),
            "twice": apply("mul", j, const(2)),
            "data": apply("mod", read(ids, j), const(size)),
        }[where]
        clear = loop("k", size, write(t, [k], Const(1, dtype)))
        fill, take = under(mask, write(t, [place], read(x, o, j))), write(y, [o, j], read(t, place))
        if inner:
            yield Case([x, ids, *mask.reads], y, lanes_of(lanes, Alloc(t, (clear, *fill, take))))
        else:
            parts = (clear, loop("j", lanes, *fill, kind="vectorize"), loop("j", lanes, take, kind="vectorize"))
            yield Case([x, ids, *mask.reads], y, (loop("o", ROWS, Alloc(t, parts)),))


def uneven(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Loops in lanes whose bounds differ between these, empty for some; off lanes have none."""
    for at, (bounds, kind) in enumerate(product(("below", "from", "near", "data", "back"), CONDITIONS)):
        lanes = draw.choice(LANES[:8])
        mask = mask_of(kind, lanes, f"{name}{at}")
        ends = buffer(f"E_{name}{at}", dtypes.int64, 2, lanes)
        start, stop = {
            "below": (const(0), apply("add", j, o)),
            "from": (apply("sub", j, const(2)), const(lanes - 2)),
            "near": (apply("maximum", plus(j, -2), const(0)), apply("minimum", plus(j, 2), const(lanes))),
            "back": (const(1), apply("sub", const(lanes), apply("mul", j, const(2)))),
            "data": (apply("mod", read(ends, 0, j), const(5)), apply("mod", read(ends, 1, j), const(7))),
        }[bounds]
        x, y = buffer(f"X_{name}{at}", dtype, lanes + 8), buffer(f"Y_{name}{at}", dtype, ROWS, lanes)
        t = buffer(f"t_{name}{at}", dtype, memory="local")
        step = write(t, [], apply("maximum", read(t), read(x, apply("add", k, const(2)))))
        body = Alloc(t, (write(t, [], Const(0, dtype)), loop("k", stop, step, start=start), write(y, [o, j], read(t))))
        yield Case([x, ends, *mask.reads], y, lanes_of(lanes, *under(mask, body)))


def gathers(dtype: DType, name: str, draw: random.Random) -> Iterator[Case]:
    """Reads at places that are data, checked where lanes are on: what stands in those that are off may be anything."""
    for at, (rows, kind) in enumerate(product((False, True), CONDITIONS)):
        lanes = draw.choice(LANES)
        mask = mask_of(kind, lanes, f"{name}{at}")
        ids = buffer(f"I_{name}{at}", dtypes.uint8, *((ROWS,) if rows else (ROWS, lanes)))
        shape = (100, lanes) if rows else (100,)
        x, y = buffer(f"X_{name}{at}", dtype, *shape), buffer(f"Y_{name}{at}", dtype, ROWS, lanes)
        found = Cast(dtypes.int64, read(ids, o) if rows else read(ids, o, j))
        # Numbers of data are below 100: places in reach, and where a test of them says so.
        value = read(x, found, j) if rows else read(x, found)
        body: Block = (Check(found, const(100), 0), write(y, [o, j], value))
        if draw.random() < 0.5:
            near = apply("lt", found, const(40))
            small = buffer(f"X_{name}{at}", dtype, *((40, lanes) if rows else (40,)))
            x, body = small, (If(near, (Check(found, const(40), 0), write(y, [o, j], value))),)
        yield Case([x, ids, *mask.reads], y, lanes_of(lanes, *under(mask, *body)))


FAMILIES = (loads, stores, cuts, together, locals_, uneven, gathers)


@pytest.mark.parametrize("number", share_of(range(60)))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_vectors_touch_what_the_nest_touches(family, number: int) -> None:
    dtype, machine = TYPES[number % len(TYPES)], machines()[number // len(TYPES) % len(machines())]
    draw = random.Random(f"{family.__name__} {number}")
    cases = list(family(dtype, f"{number}_", draw))
    cases = cases if family is cuts else draw.sample(cases, len(cases) // 5)
    assert_agree(cases, machine, streams=draw.random() < 0.3, ahead=draw.choice((0, 0, 1, 100)), sites=1)
