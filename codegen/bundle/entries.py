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
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.codegen.llvm.text.arithmetic import Arithmetic


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
        lines += [f"variant{number}:", *gathered(f"{number}", code.places, code.constants)]
        lines += [
            f"  %r{number} = call i64 @{code.symbol}(ptr %b{number}, ptr %sizes, ptr %workspace, ptr %error)",
            f"  ret i64 %r{number}",
        ]
    return "\n".join([*lines, "none:", "  ret i64 -1", "}"])


def gathered(name: str, places: Sequence[int], constants: Sequence[int]) -> list[str]:
    """Lines that make the array of pointers `%bNAME` that a nest takes: of `%placeholders` those at the places of its parameters, then
    its constants, which begin at these offsets of `%constants`."""
    count = len(places)
    lines = [f"  %b{name} = alloca [{max(1, count + len(constants))} x ptr], align 16"]
    for k, place in enumerate(places):
        lines += [
            f"  %p{name}.{k} = getelementptr ptr, ptr %placeholders, i64 {place}",
            f"  %v{name}.{k} = load ptr, ptr %p{name}.{k}, align 8",
            f"  %s{name}.{k} = getelementptr ptr, ptr %b{name}, i64 {k}",
            f"  store ptr %v{name}.{k}, ptr %s{name}.{k}, align 8",
        ]
    for k, offset in enumerate(constants):
        lines += [
            f"  %c{name}.{k} = getelementptr i8, ptr %constants, i64 {offset}",
            f"  %d{name}.{k} = getelementptr ptr, ptr %b{name}, i64 {count + k}",
            f"  store ptr %c{name}.{k}, ptr %d{name}.{k}, align 8",
        ]
    return lines


def _workspace(name: str, codes: Sequence[Code]) -> str:
    lines = [f"define i64 @{name}_workspace(ptr %sizes) nounwind {{", *_switch(len(codes))]
    for number, code in enumerate(codes):
        lines.append(f"variant{number}:")
        arithmetic = Arithmetic(f"t{number}.", code.interface.sizes)
        total = arithmetic.bytes(code.interface.workspace, code.interface.buffers, ALIGNMENT)
        lines += [*arithmetic.lines, f"  ret i64 {total}"]
    return "\n".join([*lines, "none:", "  ret i64 -1", "}"])
