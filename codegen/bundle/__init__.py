"""Bundles: compiled functions as files that run without the compiler, from Python (`tensorexpr_runtime`) and from C.

`elf_object` reads what LLVM makes, `elf_shared` joins it to a shared object, `variants` chooses between code for several CPUs when it
is loaded, `entries` emits the entry points, `tensors` and `table` write constants and the table of symbols, `header` what C
includes; `export` does all of it.
"""

from tensorexpr.codegen.bundle.export import export

__all__ = ["export"]
