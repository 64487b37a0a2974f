"""The entry points of a bundle as routines: what C calls, handed on to the code for the CPU that it runs on.

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
from tensorexpr.codegen.llvm.text.extents import SIZES, bytes_of, names_of
from tensorexpr.codegen.llvm.text.routines import Routines


@dataclass(frozen=True, slots=True)
class Code:
    """A function for one variant: the symbol of its entry, its interface, where each of its constants begins, and for each of its
    parameters the place among the placeholders."""

    symbol: str
    interface: Interface
    constants: tuple[int, ...]
    places: tuple[int, ...]


def entries(triple: str, functions: Sequence[tuple[str, Sequence[Code]]]) -> Routines:
    """The entry points of functions by name; each has a code per variant."""
    lines = [SIZES, "def te_bundle_variant() -> i32: ..."]
    for name, codes in functions:
        lines += [f"def {code.symbol}(buffers: ptr, sizes: ptr, workspace: ptr, error: ptr) -> i64: ..." for code in codes]
        lines += ["@exported", f"def {name}(constants: ptr, placeholders: ptr, sizes: ptr, workspace: ptr, error: ptr) -> i64:"]
        for number, code in enumerate(codes):
            lines.append(f"    if te_bundle_variant() == {number}:")
            lines += [f"    {line}" for line in gathered(code.places, code.constants)]
            lines.append(f"        return {code.symbol}(buffers, sizes, workspace, error)")
        lines += ["    return -1", "@exported", f"def {name}_workspace(sizes: ptr) -> i64:"]
        for number, code in enumerate(codes):
            total = bytes_of(code.interface.workspace, code.interface.buffers, ALIGNMENT, names_of(code.interface.sizes))
            lines += [f"    if te_bundle_variant() == {number}:", f"        return {total}"]
        lines.append("    return -1")
    return Routines("\n".join(lines) + "\n", {}, f'target triple = "{triple}"\n')


def gathered(places: Sequence[int], constants: Sequence[int]) -> list[str]:
    """Statements that make the array `buffers` of pointers that a nest takes: of `placeholders` those at the places of its parameters, then
    its constants, which begin at these offsets of `constants`."""
    lines = [f"    buffers = stack(ptr, {max(1, len(places) + len(constants))})"]
    lines += [f"    buffers.ptr[{k}] = placeholders.ptr[{place}]" for k, place in enumerate(places)]
    return lines + [f"    buffers.ptr[{len(places) + k}] = constants + {offset}" for k, offset in enumerate(constants)]
