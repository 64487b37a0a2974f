"""Constants as a file in the format safetensors: a header in JSON, then the data, to be mapped into memory as it is.

Tensors stand in the order of their element sizes, the widest first, and the data begins at a multiple of 64, so each is aligned
without gaps (the format allows none). Where a GPU is to read them, which wants wider accesses, padding stands between them, as
tensors of its own. Equal data stands there once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

_ALIGN = 64
_PADDING = "padding."
_NAMES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


def tensors_file(arrays: Mapping[str, np.ndarray], alignment: int = 1) -> tuple[bytes, dict[str, int], list[memoryview]]:
    """The header of a file of these arrays, where each begins in the data, and the data in parts.

    With an `alignment` every array begins at a multiple of it: those whose bytes are no multiple stand last, padding between them.
    """
    ordered = sorted(arrays, key=lambda name: (arrays[name].nbytes % alignment != 0, -arrays[name].dtype.itemsize))
    table: dict[str, object] = {"__metadata__": {"format": "tensorexpr constants"}}
    offsets: dict[str, int] = {}
    parts: list[memoryview] = []
    at = 0
    for name in ordered:
        gap = -at % alignment
        if gap:
            table[_unused(f"{_PADDING}{len(parts)}", arrays)] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            parts.append(memoryview(bytes(gap)))
            at += gap
        array = arrays[name]
        offsets[name] = at
        table[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        at += array.nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGN)
    return len(text).to_bytes(8, "little") + text, offsets, parts


def _unused(name: str, taken: Mapping[str, np.ndarray]) -> str:
    while name in taken:
        name += "_"
    return name
