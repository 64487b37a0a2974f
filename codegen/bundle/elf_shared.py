"""Relocatable objects joined to a shared object that `dlopen` and linkers take: no linker has to be installed.

The file is what the dynamic loader maps, byte for byte: file offsets are addresses.

    headers, hash table, dynamic symbols and their names, dynamic relocations     read
    code, and a jump for each function that is imported                           read, execute
    constants                                                                     read
    dynamic section, global offset table, list of functions to call at the end,
    data, zeros                                                                   read, write

Code is position-independent, so relocations in it are settled here: to other code and data by distance, through the offset table
where LLVM asked for it. What stands in the offset table and pointers in data are settled by the loader (R_X86_64_RELATIVE;
GLOB_DAT and 64 for imports). Section headers are there for linkers and debuggers alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorexpr.codegen.bundle.elf_object import EXECUTE, WRITE, Object, Relocation, Section, Symbol, read_object
from tensorexpr.errors import InternalError

_PAGE = 4096
_64, _PC32, _PLT32, _GOTPCREL, _PC64, _GOTPCRELX, _REX_GOTPCRELX = 1, 2, 4, 9, 24, 41, 42
_GLOB_DAT, _RELATIVE = 6, 8
_STUB = 8  # bytes of a jump through the offset table
_SEGMENTS = 6


@dataclass(frozen=True, slots=True)
class Input:
    """An object, and the names that its symbols get here where they are to differ."""

    image: bytes
    names: Mapping[str, str]


def shared_object(
    inputs: Sequence[Input], exports: Sequence[str], soname: str, libraries: Mapping[str, str], at_end: Sequence[str]
) -> bytes:
    """A shared object of these objects that exports some of their symbols.

    `libraries` says for every function that may be imported the library that has it; functions in `at_end` are called when the
    object is unloaded. Raises `InternalError` for code that asks for what there is none of.
    """
    return _Linker(inputs, exports, soname, libraries, at_end).image()


Place = tuple[int, int]
"""A section: which object it is of, and its number there."""


class _Linker:
    def __init__(
        self, inputs: Sequence[Input], exports: Sequence[str], soname: str, libraries: Mapping[str, str], at_end: Sequence[str]
    ) -> None:
        self.objects: list[Object] = [read_object(item.image) for item in inputs]
        self.names = [item.names for item in inputs]
        self.exports, self.soname, self.at_end = list(exports), soname, list(at_end)
        self.defined: dict[str, tuple[int, Symbol]] = {}
        for number, found in enumerate(self.objects):
            for symbol in found.symbols:
                if symbol.is_global and symbol.section is not None:
                    name = self.name(number, symbol)
                    if name in self.defined:
                        raise InternalError(f"bundle: expected each function once, got {name} twice")
                    self.defined[name] = (number, symbol)
        self.imports: dict[str, int] = {}
        self.slots: dict[tuple[int, int] | str, int] = {}  # of the offset table: by symbol of an object, or by name
        self.stubs: dict[str, int] = {}
        for number, found in enumerate(self.objects):
            for section in found.sections.values():
                for relocation in section.relocations:
                    self.collect(number, relocation, libraries)
        needed = [libraries[name] for name in self.imports]
        self.needed = list(dict.fromkeys(needed))
        self.groups: list[list[Place]] = [[], [], [], []]  # code, constants, data, zeros
        for number, found in enumerate(self.objects):
            for key, section in found.sections.items():
                self.groups[_group(section)].append((number, key))
        self.addresses: dict[Place, int] = {}

    def name(self, number: int, symbol: Symbol) -> str:
        return self.names[number].get(symbol.name, symbol.name)

    def collect(self, number: int, relocation: Relocation, libraries: Mapping[str, str]) -> None:
        """Notes what a relocation needs: an import, a slot of the offset table, a jump."""
        symbol = self.objects[number].symbols[relocation.symbol]
        name = self.name(number, symbol)
        external = symbol.section is None and name not in self.defined
        if external:
            if name not in libraries:
                raise InternalError(f"bundle: expected code that calls what there is, got a call of {name}")
            self.imports.setdefault(name, len(self.imports) + 1)
        if relocation.kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            self.slots.setdefault(self.slot_key(number, relocation.symbol), len(self.slots))
        elif external and relocation.kind in (_PC32, _PLT32):
            self.slots.setdefault(name, len(self.slots))
            self.stubs.setdefault(name, len(self.stubs))

    def slot_key(self, number: int, index: int) -> tuple[int, int] | str:
        symbol = self.objects[number].symbols[index]
        name = self.name(number, symbol)
        return name if symbol.section is None or symbol.is_global else (number, index)

    # ------------------------------------------------------------------------------------------------------ layout

    def image(self) -> bytes:
        strings = _Strings()
        needed = [strings.add(name) for name in self.needed]
        soname = strings.add(self.soname)
        named = [*self.imports, *self.exports]
        offsets = {name: strings.add(name) for name in named}
        pointers = sum(1 for o in self.objects for s in o.sections.values() for r in s.relocations if r.kind == _64)
        relocations = len(self.slots) + pointers + len(self.at_end)

        hash_at = 64 + 56 * _SEGMENTS
        symbols_at = _up(hash_at + 4 * (2 + len(named) + 1 + 1), 8)
        strings_at = symbols_at + 24 * (len(named) + 1)
        rela_at = _up(strings_at + len(strings.data), 8)
        head = rela_at + 24 * relocations

        code_at = _up(head, _PAGE)
        end = self.place(0, code_at)
        stubs_at = _up(end, 16)
        code_end = stubs_at + _STUB * len(self.stubs)
        constants_at = _up(code_end, _PAGE)
        constants_end = max(self.place(1, constants_at), constants_at + 16)  # a segment of no bytes cannot be mapped
        dynamic_at = _up(constants_end, _PAGE)
        count = len(needed) + 11 + (2 if self.at_end else 0)
        slots_at = dynamic_at + 16 * count
        ends_at = slots_at + 8 * len(self.slots)
        data_end = self.place(2, ends_at + 8 * len(self.at_end))
        zeros_end = self.place(3, data_end)

        self.stub_address = {name: stubs_at + _STUB * k for name, k in self.stubs.items()}
        self.slot_address = {key: slots_at + 8 * k for key, k in self.slots.items()}
        out = bytearray(data_end)
        self.dynamic_relocations: list[tuple[int, int, int, int]] = []
        for number, group in enumerate(self.groups[:3]):
            for place in group:
                section = self.section(place)
                if number < 2 and any(r.kind == _64 for r in section.relocations):
                    raise InternalError(f"bundle: expected pointers in data alone, got one in {section.name}")
                at = self.addresses[place]
                out[at : at + section.size] = section.data or b""
                for relocation in section.relocations:
                    self.settle(out, place[0], at, relocation)
        for name, at in self.stub_address.items():
            struct.pack_into("<HiH", out, at, 0x25FF, self.slot_address[name] - at - 6, 0x9066)  # jmp *slot(%rip); nop
        for key, at in self.slot_address.items():
            self.point(out, at, key)
        for k, name in enumerate(self.at_end):
            self.point(out, ends_at + 8 * k, name)

        addresses = {name: self.defined_address(name) for name in self.exports}
        out[hash_at:symbols_at] = _hash_table(named).ljust(symbols_at - hash_at, b"\0")
        for k, name in enumerate(named, 1):
            is_import = name in self.imports
            where = (0, 0) if is_import else (6, addresses[name])
            struct.pack_into("<IBBHQQ", out, symbols_at + 24 * k, offsets[name], 0x12, 0, *where, 0)
        out[strings_at : strings_at + len(strings.data)] = strings.data
        assert len(self.dynamic_relocations) == relocations
        for k, (at, kind, symbol, addend) in enumerate(self.dynamic_relocations):
            struct.pack_into("<QQq", out, rela_at + 24 * k, at, symbol << 32 | kind, addend)
        dynamic = [(1, at) for at in needed] + [
            (14, soname),
            (4, hash_at),
            (5, strings_at),
            (6, symbols_at),
            (10, len(strings.data)),
            (11, 24),
        ]
        dynamic += [(7, rela_at), (8, 24 * relocations), (9, 24), (30, 8)]  # DT_RELA...; DT_FLAGS: bind everything when loaded
        if self.at_end:
            dynamic += [(26, ends_at), (28, 8 * len(self.at_end))]
        dynamic += [(0, 0)] * (count - len(dynamic))
        for k, entry in enumerate(dynamic):
            struct.pack_into("<QQ", out, dynamic_at + 16 * k, *entry)

        segments = [
            (1, 4, 0, head, head, _PAGE),
            (1, 5, code_at, code_end - code_at, code_end - code_at, _PAGE),
            (1, 4, constants_at, constants_end - constants_at, constants_end - constants_at, _PAGE),
            (1, 6, dynamic_at, data_end - dynamic_at, zeros_end - dynamic_at, _PAGE),
            (2, 6, dynamic_at, 16 * count, 16 * count, 8),
            (0x6474E551, 6, 0, 0, 0, 16),  # the stack is not executable
        ]
        for k, (kind, flags, at, size, memory, align) in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * k, kind, flags, at, at, at, size, memory, align)
        headers = [
            (".hash", 5, 2, hash_at, symbols_at - hash_at, 2, 0, 4),
            (".dynsym", 11, 2, symbols_at, 24 * (len(named) + 1), 3, 1, 24),
            (".dynstr", 3, 2, strings_at, len(strings.data), 0, 0, 0),
            (".rela.dyn", 4, 2, rela_at, 24 * relocations, 2, 0, 24),
            (".dynamic", 6, 3, dynamic_at, 16 * count, 3, 0, 16),
            (".text", 1, 6, code_at, code_end - code_at, 0, 0, 0),
            (".rodata", 1, 2, constants_at, constants_end - constants_at, 0, 0, 0),
            (".data", 1, 3, slots_at, data_end - slots_at, 0, 0, 0),
            (".bss", 8, 3, data_end, zeros_end - data_end, 0, 0, 0),
        ]
        self.finish(out, headers)
        return bytes(out)

    def place(self, group: int, at: int) -> int:
        """Gives the sections of a group their addresses from `at` on; gives the end."""
        for place in self.groups[group]:
            section = self.section(place)
            at = self.addresses[place] = _up(at, section.align)
            at += section.size
        return at

    def section(self, place: Place) -> Section:
        return self.objects[place[0]].sections[place[1]]

    def finish(self, out: bytearray, headers: Sequence[tuple[str, int, int, int, int, int, int, int]]) -> None:
        """Writes the file header, and section headers behind everything."""
        names = _Strings()
        rows = [(names.add(name), *rest) for name, *rest in headers]
        rows.append((names.add(".shstrtab"), 3, 0, len(out), 0, 0, 0, 0))
        strings_at = len(out)
        out += names.data
        out += bytes(-len(out) % 8)
        table = len(out)
        out += bytes(64)
        for name, kind, flags, at, size, link, info, entry in rows:
            if at == strings_at and kind == 3 and not flags:
                size = len(names.data)
            address = at if flags else 0
            out += struct.pack("<IIQQQQIIQQ", name, kind, flags, address, at, size, link, info, 8 if kind != 1 else 64, entry)
        identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        out[:64] = struct.pack("<16sHHIQQQIHHHHHH", identity, 3, 62, 1, 0, 64, table, 0, 64, 56, _SEGMENTS, 64, len(rows) + 1, len(rows))

    # ------------------------------------------------------------------------------------------------- relocations

    def defined_address(self, name: str) -> int:
        if name not in self.defined:
            raise InternalError(f"bundle: expected {name} to be defined, got no object that has it")
        number, symbol = self.defined[name]
        return self.addresses[number, symbol.section] + symbol.value  # type: ignore[index]  # what is defined has a section

    def target(self, number: int, index: int) -> int | str:
        """The address of a symbol, or its name where it is imported."""
        symbol = self.objects[number].symbols[index]
        if symbol.section is not None:
            return self.addresses[number, symbol.section] + symbol.value
        name = self.name(number, symbol)
        return name if name in self.imports else self.defined_address(name)

    def settle(self, out: bytearray, number: int, start: int, relocation: Relocation) -> None:
        """Fills in the place of a relocation, or leaves that to the loader."""
        at, kind = start + relocation.offset, relocation.kind
        if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            slot = self.slot_address[self.slot_key(number, relocation.symbol)]
            struct.pack_into("<i", out, at, slot + relocation.addend - at)
            return
        target = self.target(number, relocation.symbol)
        match kind:
            case 1:
                named = isinstance(target, str)
                symbol = self.imports[target] if isinstance(target, str) else 0
                addend = relocation.addend if isinstance(target, str) else target + relocation.addend
                self.dynamic_relocations.append((at, _64 if named else _RELATIVE, symbol, addend))
            case 2 | 4:
                address = self.stub_address[target] if isinstance(target, str) else target
                struct.pack_into("<i", out, at, address + relocation.addend - at)
            case 24 if isinstance(target, int):
                struct.pack_into("<q", out, at, target + relocation.addend - at)
            case _:
                raise InternalError(f"bundle: expected relocations of position-independent code, got kind {kind}")

    def point(self, out: bytearray, at: int, key: tuple[int, int] | str) -> None:
        """Lets the loader write an address to a place."""
        if isinstance(key, str) and key in self.imports:
            self.dynamic_relocations.append((at, _GLOB_DAT, self.imports[key], 0))
        else:
            address = self.defined_address(key) if isinstance(key, str) else self.target(*key)
            assert isinstance(address, int)
            self.dynamic_relocations.append((at, _RELATIVE, 0, address))


class _Strings:
    """A table of names."""

    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, name: str) -> int:
        at = len(self.data)
        self.data += name.encode() + b"\0"
        return at


def _group(section: Section) -> int:
    if section.flags & EXECUTE:
        return 0
    if not section.flags & WRITE and section.data is not None:
        return 1
    return 3 if section.data is None else 2


def _up(at: int, align: int) -> int:
    return -(-at // align) * align


def _hash_table(names: Sequence[str]) -> bytes:
    """The hash table of the System V ABI with one bucket: few names are looked up, and each once."""
    chain = [0, *range(2, len(names) + 1), 0] if names else [0]
    return struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1 if names else 0, *chain)
