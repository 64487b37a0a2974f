"""Relocatable ELF objects for x86-64, as LLVM writes them: sections that go into memory, symbols, relocations.

What is here is read from the System V ABI (ELF-64 object file format, AMD64 supplement). Unwind tables are left out: nothing in
emitted code throws.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tensorexpr.errors import InternalError

ALLOC, WRITE, EXECUTE, THREAD_LOCAL = 0x2, 0x1, 0x4, 0x400
_SYMTAB, _STRTAB, _RELA, _NOBITS, _NOTE = 2, 3, 4, 8, 7
_ABSOLUTE, _COMMON = 0xFFF1, 0xFFF2


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in a section to be filled in once addresses are known."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section that goes into memory; `data` is None for zeros."""

    name: str
    flags: int
    size: int
    align: int
    data: bytes | None
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name in an object: where it is defined (`section` None: elsewhere), and whether other objects see it."""

    name: str
    section: int | None
    value: int
    is_global: bool
    is_function: bool


@dataclass(frozen=True, slots=True)
class Object:
    """Sections by their number in the file, and symbols in the order of relocations' numbers."""

    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]


def read_object(image: bytes) -> Object:
    """The object in a file's contents. Raises `InternalError` for anything but a relocatable ELF object for x86-64."""
    if image[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", image, 16) != (1, 62):
        raise InternalError("bundle: expected a relocatable object for x86-64, got other code")
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names_at = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + size * k) for k in range(count)]

    def text(section: int, at: int) -> str:
        start = headers[section][4] + at
        return image[start : image.index(b"\0", start)].decode()

    relocations: dict[int, list[Relocation]] = {}
    symbols: tuple[Symbol, ...] = ()
    for _, kind, _, _, offset, length, link, info, _, _ in headers:
        if kind == _RELA:
            found = relocations.setdefault(info, [])
            for at in range(offset, offset + length, 24):
                place, word, addend = struct.unpack_from("<QQq", image, at)
                found.append(Relocation(place, word & 0xFFFFFFFF, word >> 32, addend))
        elif kind == _SYMTAB:
            symbols = tuple(_symbol(image, at, partial(text, link)) for at in range(offset, offset + length, 24))
    sections = {}
    for number, (name_at, kind, flags, _, offset, length, _, _, align, _) in enumerate(headers):
        name = text(names_at, name_at) if number else ""
        if not flags & ALLOC or kind == _NOTE or name.startswith((".eh_frame", ".note")):
            continue
        if flags & THREAD_LOCAL:
            raise InternalError(f"bundle: expected no thread-local section, got {name}")
        data = None if kind == _NOBITS else image[offset : offset + length]
        sections[number] = Section(name, flags, length, max(1, align), data, tuple(relocations.get(number, ())))
    return Object(sections, symbols)


def _symbol(image: bytes, at: int, text: Callable[[int], str]) -> Symbol:
    name_at, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, at)
    name = text(name_at) if name_at else ""
    if section in (_ABSOLUTE, _COMMON) and name and info & 15 != 4:
        raise InternalError(f"bundle: expected symbols in sections, got {name} outside of them")
    return Symbol(name, section if 0 < section < 0xFF00 else None, value, info >> 4 != 0, info & 15 == 2)
