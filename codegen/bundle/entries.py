"""The entry points of a bundle as LLVM IR: what C calls, handed on to the code for the CPU that it runs on.

    int64_t NAME(const void *constants, void *const *placeholders, const int64_t *sizes, void *workspace, int64_t *error)
    int64_t NAME_workspace(const int64_t *sizes)

`constants` is where the data of the constants begins in memory; every other pointer is as in `codegen.llvm.abi`. The first gives what
the entry of a nest gives, or -1 where the CPU is none that the bundle has code for; the second the bytes of workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorexpr.codegen.llvm import Interface
from tensorexpr.codegen.llvm.abi import ALIGNMENT, Extent
from tensorexpr.errors import InternalError


@dataclass(frozen=True, slots=True)
class Code:
    """A function for one variant: the symbol of its entry, its interface, where each of its constants begins, and for each of its
    parameters the place among the placeholders."""

    symbol: str
    interface: Interface
    constants: tuple[int, ...]
    places: tuple[int, ...]


def entries_text(triple: str, functions: Sequence[tuple[str, Sequence[Code]]]) -> str:
    """LLVM IR of the entry points of functions by name; each has a code per variant."""
    parts = [f'target triple = "{triple}"', "declare i32 @te_bundle_variant()"]
    for name, codes in functions:
        parts += [f"declare i64 @{code.symbol}(ptr, ptr, ptr, ptr)" for code in codes]
        parts += [_entry(name, codes), _workspace(name, codes)]
    return "\n".join(parts) + "\n"


def _switch(count: int) -> list[str]:
    cases = " ".join(f"i32 {number}, label %variant{number}" for number in range(count))
    return ["entry:", "  %variant = call i32 @te_bundle_variant()", f"  switch i32 %variant, label %none [ {cases} ]"]


def _entry(name: str, codes: Sequence[Code]) -> str:
    lines = [
        f"define i64 @{name}(ptr %constants, ptr %placeholders, ptr %sizes, ptr %workspace, ptr %error) nounwind {{",
        *_switch(len(codes)),
    ]
    for number, code in enumerate(codes):
        count = code.interface.parameters
        lines += [f"variant{number}:", f"  %b{number} = alloca [{max(1, count + len(code.constants))} x ptr], align 16"]
        for k, place in enumerate(code.places):
            lines += [
                f"  %p{number}.{k} = getelementptr ptr, ptr %placeholders, i64 {place}",
                f"  %v{number}.{k} = load ptr, ptr %p{number}.{k}, align 8",
                f"  %s{number}.{k} = getelementptr ptr, ptr %b{number}, i64 {k}",
                f"  store ptr %v{number}.{k}, ptr %s{number}.{k}, align 8",
            ]
        for k, offset in enumerate(code.constants):
            lines += [
                f"  %c{number}.{k} = getelementptr i8, ptr %constants, i64 {offset}",
                f"  %d{number}.{k} = getelementptr ptr, ptr %b{number}, i64 {count + k}",
                f"  store ptr %c{number}.{k}, ptr %d{number}.{k}, align 8",
            ]
        lines += [
            f"  %r{number} = call i64 @{code.symbol}(ptr %b{number}, ptr %sizes, ptr %workspace, ptr %error)",
            f"  ret i64 %r{number}",
        ]
    return "\n".join([*lines, "none:", "  ret i64 -1", "}"])


def _workspace(name: str, codes: Sequence[Code]) -> str:
    lines = [f"define i64 @{name}_workspace(ptr %sizes) nounwind {{", *_switch(len(codes))]
    for number, code in enumerate(codes):
        lines.append(f"variant{number}:")
        arithmetic = _Arithmetic(f"t{number}.", code.interface.sizes)
        total = str(code.interface.workspace)
        for itemsize, extents in code.interface.buffers:
            length = str(itemsize)
            for extent in extents:
                length = arithmetic.binary("mul", length, arithmetic.value(extent))
            padded = arithmetic.binary("and", arithmetic.binary("add", length, str(ALIGNMENT - 1)), str(-ALIGNMENT))
            total = arithmetic.binary("add", total, padded)
        lines += [*arithmetic.lines, f"  ret i64 {total}"]
    return "\n".join([*lines, "none:", "  ret i64 -1", "}"])


class _Arithmetic:
    """Integer arithmetic on sizes, a line per operation."""

    def __init__(self, prefix: str, sizes: Sequence[str]) -> None:
        self.prefix = prefix
        self.sizes = list(sizes)
        self.lines: list[str] = []
        self.count = 0

    def new(self, text: str) -> str:
        name = f"%{self.prefix}{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def binary(self, operation: str, left: str, right: str) -> str:
        return self.new(f"{operation} i64 {left}, {right}")

    def chosen(self, test: str, left: str, right: str) -> str:
        condition = self.new(f"icmp {test} i64 {left}, {right}")
        return self.new(f"select i1 {condition}, i64 {left}, i64 {right}")

    def value(self, extent: Extent) -> str:
        """The value of an extent that is plain data (see `abi.plain`)."""
        if isinstance(extent, int):
            return str(extent)
        if isinstance(extent, str):
            place = self.new(f"getelementptr i64, ptr %sizes, i64 {self.sizes.index(extent)}")
            return self.new(f"load i64, ptr {place}, align 8")
        name, first, *rest = list(extent)
        left = self.value(first)
        if name == "neg":
            return self.binary("sub", "0", left)
        right = self.value(rest[0])
        match name:
            case "add" | "sub" | "mul":
                return self.binary(name, left, right)
            case "minimum":
                return self.chosen("slt", left, right)
            case "maximum":
                return self.chosen("sgt", left, right)
            case "floordiv" | "mod":
                return self.divided(name, left, right)
        raise InternalError(f"bundle: expected an operation on extents, got {name}")

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
