"""What the PTX ISA says of the instructions that kernels ask for: a table, from which the shim and the check of the prelude take it.

An instruction is its whole name, suffixes and all, and its operands in order: registers of a type (several in braces, where a lane holds
a part of a matrix), addresses in a state space, immediates. `memory` says that it reads, writes or orders memory, so that a compiler must
neither leave it out nor move accesses across it. `sm` is the first compute capability, ten times the first number plus the second, and
`isa` the first version of PTX that has it. Words of CUDA C++ that stand for instructions (`NATIVES`) have a row for each overload.

Where the elements of a matrix lie in a warp is said by `Layout`: a coordinate is a sum of digits of the lane's number and of the element's,
each with a factor. `host_header` writes the same sums as C++, and the shim's products and loads of matrices know nothing else. Where those
of a matrix lie in shared memory that a product of four warps reads is said by a descriptor of 64 bits, whose fields are in `DESCRIPTOR`.

The source is the manual "Parallel Thread Execution ISA"; `section` is the title of the section there, whose number changes by version.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.records import record

WARP = 32
BITS = {
    ".b16": 16, ".u16": 16, ".f16": 16, ".b32": 32, ".u32": 32, ".s32": 32, ".tf32": 32, ".f32": 32, ".f16x2": 32, ".bf16x2": 32,
    ".b64": 64, ".u64": 64, ".s64": 64, ".f64": 64,
}  # fmt: skip
"""Bits of a register of a type (Fundamental Types)."""
CONSTRAINTS = {
    16: {"h": ("uint16_t",)},
    32: {"r": ("uint32_t", "int"), "f": ("float",)},
    64: {"l": ("pointer", "uint64_t"), "d": ("double",)},
}
"""Letters of inline PTX by bits, and the C++ types in a register of each (Inline PTX Assembly in CUDA: Constraints)."""
IMMEDIATE = "n"
"""The letter of a constant."""
TF32_FRACTION = 10
"""Bits of fraction of a number of TF32 (Alternate Floating-Point Data Formats)."""


@record
class Register:
    """An operand of `count` registers, in braces where a `vector`: what the manual calls it, and its type; whether it is written, and
    `kept`, that is read before."""

    role: str
    type: str
    count: int = 1
    vector: bool = False
    written: bool = False
    kept: bool = False

    @property
    def constraint(self) -> str:
        """The letter of inline PTX: floats have files of their own, numbers of other forms are bits."""
        return {".f32": "f", ".f64": "d"}.get(self.type) or {16: "h", 32: "r", 64: "l"}[BITS[self.type]]


@record
class Address:
    """An address in brackets, in a state space. Shared memory has addresses of 32 bits beside the generic ones of 64."""

    role: str
    space: str

    @property
    def constraint(self) -> str:
        """The letter of inline PTX."""
        return "r" if self.space == "shared" else "l"


@record
class Immediate:
    """A constant of the program: which ones there may be, or any that is not negative."""

    role: str
    values: tuple[int, ...] = ()


Operand = Register | Address | Immediate


@record
class Instruction:
    """A row of the table: see the module."""

    name: str
    operands: tuple[Operand, ...]
    section: str
    sm: int
    isa: tuple[int, int]
    memory: bool = False


def _convert(to: str, of: str, rounding: str = "", sm: int = 53, isa: tuple[int, int] = (4, 2), bits: str = "") -> Instruction:
    operands = (Register("d", bits or to, written=True), Register("a", of))
    return Instruction(f"cvt{rounding}{to}{of}", operands, "Data Movement and Conversion Instructions: cvt", sm, isa)


def _matrices(count: int, trans: str) -> Instruction:
    operands = (Register("r", ".b32", count, vector=True, written=True), Address("p", "shared"))
    name, section = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", "Warp-level matrix load instruction: ldmatrix"
    return Instruction(name, operands, section, 75, (6, 5), memory=True)


def _multiply(shape: str, result: str, factors: str, held: str, counts: tuple[int, int, int]) -> Instruction:
    a, b, c = counts
    operands = (
        Register("d", result, c, vector=True, written=True),
        Register("a", held, a, vector=True),
        Register("b", held, b, vector=True),
        Register("c", result, c, vector=True),
    )
    name, section = f"mma.sync.aligned.{shape}.row.col{result}{factors}{factors}{result}", "Multiply-and-Accumulate Instruction: mma"
    return Instruction(name, operands, section, 80, (7, 0))


def _multiply_and_add(type_: str, sm: int, isa: tuple[int, int]) -> Instruction:
    operands = (Register("d", type_, written=True), Register("a", type_), Register("b", type_), Register("c", type_))
    return Instruction(f"fma.rn{type_}", operands, "Half Precision Floating Point Instructions: fma", sm, isa)


_COPY = "Data Movement and Conversion Instructions: cp.async"
COPY_SIZES = {"ca": (4, 8, 16), "cg": (16,)}
"""Bytes of an asynchronous copy through both levels of cache, and past the first."""


def _copy(level: str) -> Instruction:
    operands = (Address("dst", "shared"), Address("src", "global"), Immediate("cp-size", COPY_SIZES[level]), Register("src-size", ".u32"))
    return Instruction(f"cp.async.{level}.shared.global", operands, _COPY, 80, (7, 0), memory=True)


def _order(name: str, *operands: Operand) -> Instruction:
    return Instruction(f"cp.async.{name}", operands, f"{_COPY}.{name}", 80, (7, 0), memory=True)


GROUP = 4 * WARP
"""Threads of a warpgroup."""
GROUP_ROWS, GROUP_DEPTH = 64, 16
"""Rows of a product of a warpgroup, and terms of each sum of 16-bit floats."""
GROUP_COLUMNS = (64, 128, 256)
"""The columns, of those that the instruction has (8 to 256 in steps of 8), for which there are wrappers."""


def _multiply_in_group(columns: int, factors: str) -> Instruction:
    operands = (
        Register("d", ".f32", GROUP_ROWS * columns // GROUP, vector=True, written=True, kept=True),
        Register("a-desc", ".b64"),
        Register("b-desc", ".b64"),
        Immediate("scale-d", (0, 1)),
        Immediate("imm-scale-a", (1,)),
        Immediate("imm-scale-b", (1,)),
        Immediate("imm-trans-a", (0, 1)),
        Immediate("imm-trans-b", (0, 1)),
    )
    name = f"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{columns}k{GROUP_DEPTH}.f32{factors}{factors}"
    return Instruction(name, operands, "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async", 90, (8, 0), memory=True)


def _group(name: str, *operands: Operand) -> Instruction:
    section = f"Asynchronous wgmma Proxy Operations: wgmma.{name}"
    return Instruction(f"wgmma.{name}.sync.aligned", operands, section, 90, (8, 0), memory=True)


INSTRUCTIONS = {
    i.name: i
    for i in (
        _convert(".f32", ".f16"),
        _convert(".f16", ".f32", ".rn"),
        _convert(".f16", ".f64", ".rn"),
        _convert(".bf16", ".f32", ".rn", 80, (7, 0), ".b16"),
        _convert(".tf32", ".f32", ".rna", 80, (7, 0), ".b32"),
        _copy("ca"),
        _copy("cg"),
        _order("commit_group"),
        _order("wait_group", Immediate("N")),
        _order("wait_all"),
        _matrices(2, ""),
        _matrices(2, ".trans"),
        _matrices(4, ""),
        _matrices(4, ".trans"),
        _multiply_and_add(".f16x2", 53, (4, 2)),
        _multiply_and_add(".bf16x2", 80, (7, 0)),
        _multiply("m16n8k16", ".f32", ".f16", ".f16x2", (4, 2, 4)),
        _multiply("m16n8k16", ".f32", ".bf16", ".bf16x2", (4, 2, 4)),
        _multiply("m16n8k8", ".f32", ".tf32", ".b32", (4, 2, 4)),
        _multiply("m8n8k4", ".f64", ".f64", ".f64", (1, 1, 2)),
        *(_multiply_in_group(columns, factors) for columns in GROUP_COLUMNS for factors in (".f16", ".bf16")),
        _group("fence"),
        _group("commit_group"),
        _group("wait_group", Immediate("N")),
        Instruction("fence.proxy.async.shared::cta", (), "Memory Consistency Model: Proxies; membar, fence", 90, (8, 0), memory=True),
    )
}
"""Every instruction that the prelude writes as PTX."""


@record
class Native:
    """An overload of a word of CUDA C++: the type of its element, and the instruction that it is, without the state space."""

    word: str
    type: str
    instruction: str
    section: str
    sm: int = 0


_ATOM = "Parallel Synchronization and Communication Instructions: atom"
_TYPES = {"int": ".s32", "unsigned int": ".u32", "long long": ".s64", "unsigned long long": ".u64", "float": ".f32", "double": ".f64"}
NATIVES = {
    (n.word, n.type): n
    for n in (
        *(Native("atomicAdd", t, f"atom.add{'.u32' if t == 'int' else _TYPES[t]}", _ATOM, 60 if t == "double" else 20)
          for t in ("int", "unsigned int", "unsigned long long", "float", "double")),
        *(Native(f"atomic{w.capitalize()}", t, f"atom.{w}{_TYPES[t]}", _ATOM, 35)
          for w in ("min", "max") for t in ("int", "unsigned int", "long long", "unsigned long long")),
        *(Native("atomicCAS", t, f"atom.cas.b{b}", _ATOM, 20) for t, b in (("unsigned int", 32), ("unsigned long long", 64))),
    )
}  # fmt: skip
"""Atomics by word and type of the element. A sum wraps, so int64 adds as uint64; an extreme has a sign, and says which."""
SHUFFLES = {"__shfl_sync": "shfl.sync.idx.b32", "__shfl_down_sync": "shfl.sync.down.b32"}
"""Exchanges between lanes (shfl.sync): a mask of all lanes, the value, and the lane or the distance."""


@record
class Digit:
    """`number // divisor % modulus * factor` of the number of the lane ("lane") or of the element in it ("element")."""

    number: str
    divisor: int
    modulus: int
    factor: int


Coordinate = tuple[Digit, ...]


@record
class Layout:
    """Where the elements of a matrix lie: a lane has so many, `parts` to a register, lowest bits first; row and column of each."""

    elements: int
    parts: int
    row: Coordinate
    column: Coordinate

    @property
    def registers(self) -> int:
        """Registers of a lane."""
        return self.elements // self.parts

    def place(self, lane: int, element: int) -> tuple[int, int]:
        """Row and column of an element of a lane."""
        row, column = (sum(_value(d, lane, element) for d in c) for c in (self.row, self.column))
        return row, column


def _value(digit: Digit, lane: int, element: int) -> int:
    number = lane if digit.number == "lane" else element
    return number // digit.divisor % digit.modulus * digit.factor


_GROUP, _MEMBER = Digit("lane", 4, 8, 1), Digit("lane", 1, 4, 1)
_PAIR = (Digit("lane", 1, 4, 2), Digit("element", 1, 2, 1))
"""A group is the four lanes of a row, or of a column; a lane has two elements side by side."""
FRAGMENTS = {
    "m16n8k16": {
        "a": Layout(8, 2, (_GROUP, Digit("element", 2, 2, 8)), (*_PAIR, Digit("element", 4, 2, 8))),
        "b": Layout(4, 2, (*_PAIR, Digit("element", 2, 2, 8)), (_GROUP,)),
        "c": Layout(4, 1, (_GROUP, Digit("element", 2, 2, 8)), _PAIR),
    },
    "m16n8k8": {
        "a": Layout(4, 1, (_GROUP, Digit("element", 1, 2, 8)), (_MEMBER, Digit("element", 2, 2, 4))),
        "b": Layout(2, 1, (_MEMBER, Digit("element", 1, 2, 4)), (_GROUP,)),
        "c": Layout(4, 1, (_GROUP, Digit("element", 2, 2, 8)), _PAIR),
    },
    "m8n8k4": {
        "a": Layout(1, 1, (_GROUP,), (_MEMBER,)),
        "b": Layout(1, 1, (_MEMBER,), (_GROUP,)),
        "c": Layout(2, 1, (_GROUP,), _PAIR),
    },
}
"""Operands of mma by shape (Matrix Fragments for mma.m16n8k16, mma.m16n8k8, mma.m8n8k4 with floating point type)."""
LOADED = Layout(2, 2, (_GROUP,), _PAIR)
"""One of the matrices that ldmatrix loads, 8 x 8 at 16 bits, a register of each lane; with .trans row and column change places. Lane
8 q + r gives the address of row r of matrix q."""


@record
class Field:
    """Bits of a descriptor: the lowest, how many, and how many of the lowest bits of what it says are left out."""

    at: int
    bits: int
    dropped: int = 0

    def of(self, value: int) -> int:
        """A value in its place."""
        return (value >> self.dropped & (1 << self.bits) - 1) << self.at


DESCRIPTOR = {"start": Field(0, 14, 4), "lead": Field(16, 14, 4), "stride": Field(32, 14, 4), "swizzle": Field(62, 2)}
"""Asynchronous Warpgroup Level Matrix: Matrix Descriptor Format. Addresses and distances in bytes without their lowest four bits; the base
offset (49 to 51) is zero where patterns of the swizzle begin at multiples of 1024 bytes."""
SWIZZLED = 1
"""The mode in which the eight chunks of sixteen bytes of a row of 128 lie in another order from row to row (Shared Memory Matrix Layout,
128-byte swizzling): bits 4 to 6 of an address are those exclusive-or its bits 7 to 9, so that eight rows, 1024 bytes, are a pattern."""
ROW_BYTES, CHUNK_BYTES, PATTERN_ROWS = 128, 16, 8
"""Bytes of a row of a pattern and of a chunk of it, and rows of a pattern (Strides: the leading dimension is from one column of patterns to
the next where rows go along the other axis than the terms of sums, and has no meaning else; the stride is from one row of patterns to the
next)."""


def described(start: int, lead: int, stride: int) -> int:
    """The descriptor of a matrix that begins at an address in shared memory."""
    return sum(DESCRIPTOR[name].of(value) for name, value in
               (("start", start), ("lead", lead), ("stride", stride), ("swizzle", SWIZZLED)))  # fmt: skip


def shape_of(layouts: dict[str, Layout]) -> tuple[int, int, int]:
    """Rows, columns and terms of each sum of a product."""
    (rows, depth), (_, columns) = (_extents(layouts[operand]) for operand in "ab")
    return rows, columns, depth


def _extents(layout: Layout) -> tuple[int, int]:
    places = [layout.place(lane, element) for lane in range(WARP) for element in range(layout.elements)]
    return max(row for row, _ in places) + 1, max(column for _, column in places) + 1


def host_header() -> str:
    """The facts that the shim works by as C++: a struct for each shape of a product, one for ldmatrix, sizes of copies, TF32."""
    lines = ["#pragma once", "#include <cstdint>"]
    for shape, layouts in FRAGMENTS.items():
        rows, columns, depth = shape_of(layouts)
        lines += [f"struct te_{shape} {{", f"  static constexpr int m = {rows}, n = {columns}, k = {depth};"]
        for operand, layout in layouts.items():
            lines += _layout_text(layout, f"_of_{operand}")
        lines.append("};")
    lines += ["struct te_ldmatrix {", *_layout_text(LOADED, ""), "};"]
    sizes = " || ".join(f"bytes == {size}" for size in COPY_SIZES["ca"])
    lines.append(f"static constexpr bool te_copies(int bytes) {{ return {sizes}; }}")
    lines.append(f"static constexpr int te_tf32_dropped = {23 - TF32_FRACTION};")
    lines += [
        "struct te_group {",
        f"  static constexpr int threads = {GROUP}, m = {GROUP_ROWS}, k = {GROUP_DEPTH}, warp_rows = {GROUP_ROWS // 4};",
    ]
    lines.append(f"  static constexpr int row_bytes = {ROW_BYTES}, chunk_bytes = {CHUNK_BYTES}, pattern_rows = {PATTERN_ROWS};")
    lines.append(f"  static constexpr unsigned swizzled = {SWIZZLED};")
    for name, field in DESCRIPTOR.items():
        mask = f"{(1 << field.bits) - 1}u"
        lines.append(
            f"  static inline unsigned {name}_of(uint64_t bits) {{ return ((unsigned)(bits >> {field.at}) & {mask}) << {field.dropped}; }}"
        )
    lines.append("};")
    return "\n".join([*lines, ""])


def _layout_text(layout: Layout, name: str) -> Iterator[str]:
    yield f"  static constexpr int elements{name} = {layout.elements}, parts{name} = {layout.parts};"
    for word, coordinate in (("row", layout.row), ("column", layout.column)):
        terms = " + ".join(f"{d.number} / {d.divisor} % {d.modulus} * {d.factor}" for d in coordinate)
        yield f"  static inline int {word}{name}(int lane, int element) {{ return {terms}; }}"
