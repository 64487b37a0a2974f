"""LLVM IR of integer arithmetic on sizes: what a caller of emitted code works out before it enters it (bytes of a workspace, grids).

Expressions are plain data (see `abi.plain`): a number, a name, or an operation and its operands. Truth values are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.llvm.text.abi import Extent
from tensorexpr.errors import InternalError

_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
MOST = 1 << 62
"""Bytes that no memory has: counts of them stop here, so that none wraps around."""
_TESTS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}


class Arithmetic:
    """A line of IR per operation, in `lines`; names of values begin with `prefix`.

    A name in an expression is a value of `scope`, else one of `sizes`, which the array `%sizes` holds in this order.
    """

    def __init__(self, prefix: str, sizes: Sequence[str]) -> None:
        self.prefix = prefix
        self.sizes = list(sizes)
        self.scope: dict[str, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def new(self, text: str) -> str:
        """A value by the instruction that makes it."""
        name = f"%{self.prefix}{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def binary(self, operation: str, left: str, right: str) -> str:
        """An instruction on two integers."""
        return self.new(f"{operation} i64 {left}, {right}")

    def chosen(self, test: str, left: str, right: str) -> str:
        """Whichever of two integers a comparison prefers."""
        condition = self.new(f"icmp {test} i64 {left}, {right}")
        return self.new(f"select i1 {condition}, i64 {left}, i64 {right}")

    def value(self, extent: Extent) -> str:
        """The value of an expression."""
        if isinstance(extent, int):
            return str(int(extent))
        if isinstance(extent, str):
            if extent in self.scope:
                return self.scope[extent]
            place = self.new(f"getelementptr i64, ptr %sizes, i64 {self.sizes.index(extent)}")
            return self.new(f"load i64, ptr {place}, align 8")
        name, *operands = list(extent)
        values = [self.value(operand) for operand in operands]
        match name, values:
            case "neg", [value]:
                return self.binary("sub", "0", value)
            case "minimum", [left, right]:
                return self.chosen("slt", left, right)
            case "maximum", [left, right]:
                return self.chosen("sgt", left, right)
            case "floordiv" | "mod", [left, right]:
                return self.divided(name, left, right)
            case "where", [condition, left, right]:
                test = self.new(f"icmp ne i64 {condition}, 0")
                return self.new(f"select i1 {test}, i64 {left}, i64 {right}")
            case _, [left, right] if name in _PLAIN:
                return self.binary(_PLAIN[name], left, right)
            case _, [left, right] if name in _TESTS:
                test = self.new(f"icmp {_TESTS[name]} i64 {left}, {right}")
                return self.new(f"zext i1 {test} to i64")
        raise InternalError(f"llvm: expected an operation on extents, got {name}")

    def divided(self, name: str, left: str, right: str) -> str:
        """Division that rounds down, and its remainder; 0 by zero."""
        zero = self.new(f"icmp eq i64 {right}, 0")
        by = self.new(f"select i1 {zero}, i64 1, i64 {right}")
        quotient, rest = self.binary("sdiv", left, by), self.binary("srem", left, by)
        inexact = self.new(f"icmp ne i64 {rest}, 0")
        sign = self.binary("xor", rest, by)
        apart = self.new(f"icmp slt i64 {sign}, 0")
        down = self.new(f"and i1 {inexact}, {apart}")
        step = self.new(f"zext i1 {down} to i64")
        found = self.binary("sub", quotient, step) if name == "floordiv" else self.binary("add", rest, self.binary("mul", step, by))
        return self.new(f"select i1 {zero}, i64 0, i64 {found}")

    def bytes(self, fixed: int, buffers: Sequence[tuple[int, Sequence[Extent]]], alignment: int) -> str:
        """The bytes of `fixed` and of buffers, given by bytes per element and extents, each padded to the alignment; `MOST` where there are
        more than an integer holds, which no memory has."""
        total, found = str(min(fixed, MOST)), []
        for itemsize, extents in buffers:
            length = str(itemsize)
            for extent in extents:
                length = self.product(length, self.value(extent))
            found.append(self.binary("and", self.binary("add", length, str(alignment - 1)), str(-alignment)))
        for length in found:
            total = self.chosen("ult", self.binary("add", total, length), str(MOST))
        return total

    def product(self, left: str, right: str) -> str:
        """The product of two counts, `MOST` at most."""
        wide = self.new(f"mul i128 {self.new(f'zext i64 {left} to i128')}, {self.new(f'zext i64 {right} to i128')}")
        fits = self.new(f"icmp ult i128 {wide}, {MOST}")
        return self.new(f"trunc i128 {self.new(f'select i1 {fits}, i128 {wide}, i128 {MOST}')} to i64")

    def padded(self, itemsize: int, extents: Sequence[Extent], alignment: int) -> str:
        """The bytes of one buffer, padded to the alignment."""
        length = str(itemsize)
        for extent in extents:
            length = self.binary("mul", length, self.value(extent))
        return self.binary("and", self.binary("add", length, str(alignment - 1)), str(-alignment))
