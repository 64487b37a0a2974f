"""The C header of a bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_ARGUMENTS = "const void *constants, void *const *placeholders, const int64_t *sizes, void *workspace, int64_t *error"
_KEYWORDS = (
    "_Alignas", "_Alignof", "_Atomic", "_BitInt", "_Bool", "_Complex", "_Decimal128", "_Decimal32", "_Decimal64", "_Generic",
    "_Imaginary", "_Noreturn", "_Static_assert", "_Thread_local", "and_eq", "char16_t", "char32_t", "char8_t", "co_await",
    "co_return", "co_yield", "const_cast", "dynamic_cast", "not_eq", "or_eq", "reinterpret_cast", "static_assert", "static_cast",
    "thread_local", "typeof_unqual", "wchar_t", "xor_eq",
)  # fmt: skip
_INTEGERS = re.compile(r"u?int\w*_t|(?:U?INT|PTRDIFF|SIZE|SIG_ATOMIC|WCHAR|WINT)\w*_(?:C|MAX|MIN|WIDTH)")


def c_name(text: str) -> str:
    """A text as a C identifier."""
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    return f"_{made}" if not made or made[0].isdigit() else made


def is_taken(symbol: str) -> bool:
    """Whether C, C++ or the header <stdint.h> gives a meaning to an identifier of several words."""
    return symbol in _KEYWORDS or bool(_INTEGERS.fullmatch(symbol))


def header_text(
    prefix: str, functions: Mapping[str, Any], constants_offset: int, constants_bytes: int, on_cpus: bool, gpus: Sequence[str]
) -> str:
    """Declarations of the entry points, and where each pointer stands."""
    upper = prefix.upper()
    lines = [
        f"/* The functions of the bundle {prefix}: link with lib{prefix}.so, or load that with dlopen.",
        "",
        "   placeholders: a pointer for each input and output, at the place that the enumeration gives; elements row-major without gaps.",
        f"   constants:    the contents of constants.safetensors from byte {upper}_CONSTANTS_OFFSET on (map the file read-only).",
        "   sizes:        the open extents, at the places that the enumeration gives.",
        "   workspace:    as many bytes as NAME_workspace(sizes) says, at a multiple of 64; null where that is 0.",
        "   error:        two integers, written where an index is out of bounds: the index, and the extent.",
        "   The result is 0; k > 0 where check k - 1 of the table failed; -1 where the code is for other CPUs.",
        "   Any number of threads may be inside at once, each with a workspace of its own.",
    ]
    if gpus:
        lines += ["", *_gpu_words(prefix, gpus)]
    lines[-1] += " */"
    lines += [
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"#define {upper}_CONSTANTS_OFFSET {constants_offset}",
        f"#define {upper}_CONSTANTS_BYTES {constants_bytes}",
        "",
    ]
    if on_cpus:
        lines += [
            f"int32_t {prefix}_variant(void);            /* the number of the code for this CPU in the table, -1: none */",
            f"void {prefix}_threads(int32_t count);      /* how many threads work on a call (1 until this is called) */",
            f"void {prefix}_after_fork(void);            /* to be called in the child after a fork */",
        ]
    if gpus:
        lines.append(f"int64_t {prefix}_cuda_load(void);          /* loads the code for the GPU now, not with the first call */")
    taken: set[str] = set()
    for table in functions.values():
        name = table["symbol"]
        lines += ["", f"/* {_signature(table)} */"]
        places = [_new(f"{name}_{c_name(p['name'])}", taken) for p in table["placeholders"]]
        lines.append(f"enum {{ {', '.join([*places, _new(f'{name}_placeholders', taken)])} }};")
        if table["sizes"]:
            lines.append(f"enum {{ {', '.join(_new(f'{name}_size_{c_name(s)}', taken) for s in table['sizes'])} }};")
        if on_cpus:
            lines += [f"int64_t {name}({_ARGUMENTS});", f"int64_t {name}_workspace(const int64_t *sizes);"]
        if gpus:
            lines += [f"int64_t {name}_cuda({_ARGUMENTS}, void *stream);", f"int64_t {name}_cuda_workspace(const int64_t *sizes);"]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _new(name: str, taken: set[str]) -> str:
    """An enumerator for a name; names that differ in small and capital letters alone are numbered."""
    found, number = name.upper(), 1
    while found in taken:
        number += 1
        found = f"{name.upper()}_{number}"
    taken.add(found)
    return found


def _gpu_words(prefix: str, gpus: Sequence[str]) -> list[str]:
    """What is to be known of entry points for GPUs."""
    return [
        f"   NAME_cuda is the same on a GPU ({', '.join(gpus)}): the pointers in placeholders, and those to constants (a copy of them) and",
        "   to workspace, are the device's, at multiples of 16, the workspace at one of 256. It works in the current context (where there",
        "   is none, in the primary one of device 0), launches on the stream (a CUstream or cudaStream_t), and waits only where it looks",
        "   for an index out of bounds. Below 0: -1 no code for this GPU; -2 no libcuda.so.1 (TENSOREXPR_CUDA_DRIVER names another one);",
        "   -3 a driver that is too old; -4 no memory; -1000 - r where the driver said r.",
    ]


def _signature(table: Mapping[str, Any]) -> str:
    def text(kind: str) -> str:
        found = [p for p in table["placeholders"] if p["kind"] == kind]
        return ", ".join(f"{p['path']}: {p['dtype']}[{', '.join(p['extents'])}]" for p in found)

    return f"{text('input')} -> {text('output')}".replace("*/", "* /")
