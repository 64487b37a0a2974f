"""Shared memory beyond what a kernel may declare: one arena of bytes that its launch asks for, in which all its shared buffers lie.

Declared buffers are known to the assembler, which takes 48 KiB of them at most. Where a kernel needs more, none is declared: each is a
place in memory whose size is said at the launch, and a driver wants to be told once that the kernel may have so much
(`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`). How much there is, says the target (`codegen.target.Gpu.shared_bytes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DECLARED = 48 << 10
"""Bytes of shared memory that a kernel may declare."""
ALIGNMENT = 128
"""Bytes of which every buffer of an arena begins at a multiple: one row of all banks."""


def arena(sizes: Mapping[str, int], aligned: Mapping[str, int] = MappingProxyType({})) -> tuple[dict[str, int], int]:
    """Where each buffer of so many bytes begins, at multiples of what is said of it in `aligned`, and the bytes of all; nothing where they
    may be declared.

    No two share a place, also where one is dead before the other is born: barriers order what touches one buffer.
    """
    places, end = {}, 0
    for name, size in sizes.items():
        end += -end % aligned.get(name, ALIGNMENT)
        places[name] = end
        end += -(-size // ALIGNMENT) * ALIGNMENT
    # Declared ones begin at multiples of something, too.
    return (places, end) if end > DECLARED else ({}, 0)
