"""Addresses beyond 32 bits: loads and stores of lanes around elements 2^31 and 2^32 of a buffer, and lanes that lie as far apart.

Memory is reserved, and protected but for the pages that hold what a nest may touch: an address that wrapped around, or was extended with
the wrong sign, ends the process. Numbers of elements are reached in every way: by constants, rows of a matrix, indices that begin there,
open sizes, strides, and data.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from typing import NamedTuple

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.nest import Buffer, If, Kernel, LoopNest
from tensorexpr.dtypes import DType
from tensorexpr.ir import Cast, Expr, Index, Size, apply, const
from tests.codegen.llvm.below import machines
from tests.codegen.llvm.nests import buffer, loop, read, write
from tests.seeds import share_of

o, j = Index("o"), Index("j")
ROWS, LANES = 2, 8
EDGES = (1 << 31, 1 << 32, (1 << 32) + (1 << 31))
LENGTH = (1 << 33) + (1 << 16)
WAYS = ("constant", "matrix", "start", "size", "data", "lanes", "narrow lanes")
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def plus(a: Expr, number: int) -> Expr:
    return apply("add", a, const(number))


class Reached(NamedTuple):
    """An element for each row and lane: the indices of a buffer of a shape, what they read, where the loops begin, positions."""

    indices: list[Expr]
    shape: tuple[int | Expr, ...]
    data: np.ndarray | None
    starts: tuple[int, int]
    positions: np.ndarray


def reached(way: str, edge: int, stride: int, name: str, draw: random.Random) -> Reached:
    base = edge - draw.choice((0, 1, LANES // 2, LANES, LANES * abs(stride) // 2)) + (LANES * abs(stride) if stride < 0 else 0)
    if abs(stride) > LANES:  # lanes as far apart
        base = draw.randrange(40) + (0 if stride > 0 else -stride * (LANES - 1))
    apart = draw.choice((1, 3, LANES * 2 + 1))
    rows, lanes = np.arange(ROWS)[:, None], np.arange(LANES)
    positions = base + rows * apart + lanes * stride
    along = apply("add", apply("mul", o, const(apart)), apply("mul", j, const(stride)))
    match way:
        case "constant":
            return Reached([plus(along, base)], (LENGTH,), None, (0, 0), positions)
        case "matrix":
            columns = 1 << 16
            row, rest = divmod(base, columns)
            steps = apply("mul", j, const(stride // columns)), apply("mul", j, const(stride % columns))
            indices = [plus(steps[0], row), apply("add", plus(steps[1], rest), apply("mul", o, const(apart)))]
            return Reached(indices, (LENGTH // columns, columns), None, (0, 0), positions)
        case "start":
            first, begin = base // apart, base % apart
            shifted = apply("mul", apply("sub", j, const(begin)), const(stride))
            return Reached([apply("add", apply("mul", o, const(apart)), plus(shifted, begin))], (LENGTH,), None, (first, begin), positions)
        case "size":
            return Reached([apply("add", apply("sub", Size("n"), const((1 << 33) - base)), along)], (LENGTH,), None, (0, 0), positions)
        case "data":
            table = buffer(f"I_{name}", dtypes.int64, ROWS)
            found = apply("add", read(table, o), apply("mul", j, const(stride)))
            return Reached([found], (LENGTH,), base + rows[:, 0] * apart, (0, 0), positions)
    narrow = way == "narrow lanes" and positions.max() < 1 << 32
    table = buffer(f"I_{name}", dtypes.uint32 if narrow else dtypes.int64, ROWS, LANES)
    value = Cast(dtypes.int64, read(table, o, j)) if narrow else read(table, o, j)
    return Reached([value], (LENGTH,), positions.astype(table.dtype.numpy), (0, 0), positions)


class Far:
    """An array of `LENGTH` elements of which only the pages of those at some positions may be touched."""

    def __init__(self, dtype: DType, positions: np.ndarray) -> None:
        self.memory = mmap.mmap(-1, LENGTH * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.firsts = np.unique(positions * dtype.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE // dtype.itemsize
        self.pages = []
        for first in self.firsts:
            start = self.address + int(first) * dtype.itemsize
            if _LIBC.mprotect(start, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
            self.pages.append(np.frombuffer((ctypes.c_char * mmap.PAGESIZE).from_address(start), dtype.numpy))

    def put(self, numbers: dict[int, int]) -> None:
        for position, number in numbers.items():
            page = int(np.searchsorted(self.firsts, position, "right")) - 1
            self.pages[page][position - self.firsts[page]] = number

    def numbers(self) -> dict[int, int]:
        """What is not 0, by its position."""
        found = zip(self.firsts, self.pages, strict=True)
        return {int(first + at): int(page[at]) for first, page in found for at in np.flatnonzero(page)}


@pytest.mark.parametrize("number", share_of(range(12)))
def test_elements_beyond_32_bits(number: int) -> None:
    draw = random.Random(number)
    dtype = (dtypes.int8, dtypes.float32, dtypes.int16, dtypes.float64)[number // 3 % 4]
    kernels, arrays, writes = list[Kernel](), dict[Buffer, int](), list[str]()
    kept = []
    for n, way in enumerate(WAYS * 4):
        stride = draw.choice((1, 1, -1, 2, -2, 3, 1 << 16, 1 << 28, 1 << 30, -(1 << 30)))
        at = reached(way, draw.choice(EDGES), stride, str(n), draw)
        stores, limit = draw.random() < 0.5, draw.choice((LANES, LANES, 3))
        far, near = buffer(f"X{n}", dtype, *at.shape), buffer(f"Y{n}", dtype, ROWS, LANES)
        place = [apply("sub", index, const(start)) for index, start in zip((o, j), at.starts, strict=True)]
        step = write(far, at.indices, read(near, *place)) if stores else write(near, place, read(far, *at.indices))
        body = step if limit == LANES else If(apply("lt", j, const(at.starts[1] + limit)), (step,))
        lanes = loop("j", at.starts[1] + LANES, body, start=at.starts[1], kind="vectorize")
        kernels.append(Kernel(f"k{n}", (loop("o", at.starts[0] + ROWS, lanes, start=at.starts[0]),)))
        # A load may read elements in between, and those of lanes that are off, where they are inside of the buffer.
        around = at.positions[:, :limit] if stores else np.concatenate([at.positions + by for by in (-1, 0, 1)])
        there, here = Far(dtype, around[around >= 0]), np.zeros((ROWS, LANES), dtype.numpy)
        drawn = np.array(draw.sample(range(1, 100), ROWS * LANES)).reshape(ROWS, LANES)
        numbers = dict(zip(at.positions[:, :limit].flat, drawn[:, :limit].flat, strict=True))  # the last of those that fall together stays
        if stores:
            here[...] = drawn
        else:
            there.put(numbers)
        arrays |= {far: there.address, near: here.ctypes.data}
        if at.data is not None:
            table = buffer(f"I_{n}", dtypes.dtype(str(at.data.dtype)), *at.data.shape)
            arrays[table] = at.data.ctypes.data
        writes.append(far.name if stores else near.name)
        kept.append((way, stride, stores, limit, at, there, here, numbers))
    nest = LoopNest("t", tuple(arrays), (), (), tuple(kernels), tuple(writes), ("n",))
    assert compile_nest(nest, machines()[number // 3 % len(machines())])(list(arrays.values()), [1 << 33], 0) is None
    for way, stride, stores, limit, at, there, here, numbers in kept:
        assert there.numbers() == numbers, (way, stride, stores, limit)
        if not stores:
            read_ = [[numbers[p] if lane < limit else 0 for lane, p in enumerate(row)] for row in at.positions]
            np.testing.assert_array_equal(here, read_, err_msg=str((way, stride, limit)))
