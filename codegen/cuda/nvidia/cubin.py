"""What a cubin says of its kernels' parameters: where each lies and how large it is, so that what a launch packs can be compared.

A cubin is an ELF file of 64 bits. Section `.nv.info.NAME` is a list of attributes of kernel NAME, each a format, a number and two bytes
(a value, or the length of what follows); KPARAM_INFO has the number, the offset and the size of one parameter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_KPARAM_INFO = 0x17
_SIZED = 4
"""The format of attributes that are as long as they say."""
_PREFIX = ".nv.info."


def parameters_of(cubin: bytes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Offset and size in bytes of every parameter, in order, of each kernel by name."""
    return {name[len(_PREFIX) :]: _parameters(data) for name, data in _sections(cubin) if name.startswith(_PREFIX)}


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + k * size) for k in range(count)]
    text = headers[names][4]
    for name, _, _, _, start, length in headers:
        end = elf.index(b"\0", text + name)
        yield elf[text + name : end].decode(), elf[start : start + length]


def _parameters(data: bytes) -> tuple[tuple[int, int], ...]:
    found: dict[int, tuple[int, int]] = {}
    at = 0
    while at < len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute == _KPARAM_INFO:
            _, ordinal, offset, flags = struct.unpack_from("<IHHI", data, at)
            found[ordinal] = (offset, flags >> 18)
        at += length
    return tuple(found[k] for k in sorted(found))
