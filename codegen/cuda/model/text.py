"""PTX as NVRTC writes it: kernels, their instructions in basic blocks, and where shared variables lie."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tensorexpr.records import cached_property

_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)")
_ENTRY = re.compile(r"\.entry (\w+)\(")
_SHARED = re.compile(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d*)\]")
_LOCAL = re.compile(r"\.local \.align (\d+) \.b8 (\w+)\[(\d+)\]")
_LABEL = re.compile(r"(\$\w+):")
_PARAMETER = re.compile(r"\.param(?: \.\w+(?: \d+)?)+ (\w+)")  # of pointers as ".u64 .ptr .align 1" for sm_100 and later
_PIECE = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
SHARED_BEGIN = 1024
"""Where shared memory begins: the first KiB is the system's."""
ARENA_ALIGNMENT = 1024


MOST_PREDICATED = 6
"""Instructions behind a branch that the assembler gives a predicate in its place: loads with their arithmetic, as seen in machine code."""
_FROM_BELOW = ("add", "sub", "mul", "mad", "shl", "and", "or", "xor", "not", "mov", "selp", "neg", "cvt")
"""Instructions whose results depend in their lower half on the lower halves of what they read alone."""
_ALONE = ("bra", "ret", "exit", "bar", "call", "cp", "shfl", "vote", "mma", "wgmma", "ldmatrix", "atom", "red", "fence", "membar")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: the register that decides whether it is done, and whether that is turned around; the operands as they are written,
    those of a vector one by one in `operands` where `parts` says how many the first or last have."""

    opcode: str
    operands: tuple[str, ...]
    guard: str | None = None
    negated: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The opcode's parts."""
        return tuple(self.opcode.split("."))

    @property
    def written(self) -> tuple[str, ...]:
        """The registers that it sets."""
        if not self.operands or self.words[0] in ("st", "bra", "ret", "bar", "cp", "red", "membar", "call"):
            return ()
        return tuple(r.strip() for r in re.split(r"[|,]", self.operands[0].strip("{}")) if r.strip().startswith("%"))

    @property
    def read(self) -> tuple[str, ...]:
        """The registers that it uses."""
        rest = self.operands[1:] if self.written else self.operands
        found = [r for operand in rest for r in re.findall(r"%\w+(?:\.\w+)?", operand)]
        return tuple(found if self.guard is None else [*found, self.guard])

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The base of each place that it touches, and what is added: of a copy what is written first, then what is read."""
        places = [operand[1:-1].partition("+") for operand in self.operands if operand.startswith("[")]
        return [(base.strip(), int(offset) if offset else 0) for base, _, offset in places]


@dataclass(frozen=True)
class Kernel:
    """A kernel: parameters in order, basic blocks in the order of the text, where shared variables begin, bytes that a thread keeps."""

    name: str
    parameters: tuple[str, ...]
    blocks: tuple[tuple[Instruction, ...], ...]
    labels: dict[str, int]
    shared: dict[str, int]
    local: dict[str, int]

    @cached_property
    def made(self) -> dict[str, list[Instruction]]:
        """What writes each register."""
        found: dict[str, list[Instruction]] = {}
        for i in (i for block in self.blocks for i in block):
            for register in i.written:
                found.setdefault(register, []).append(i)
        return found

    def _behind(self, wanted: list[str], goes_through: Callable[[Instruction], bool]) -> set[str]:
        """Registers, and those that they are made of by such instructions."""
        found: set[str] = set()
        while wanted:
            register = wanted.pop()
            if register not in found:
                found.add(register)
                wanted += [r for i in self.made.get(register, ()) if goes_through(i) for r in i.read]
        return found

    @cached_property
    def needed(self) -> frozenset[str]:
        """Registers that addresses, conditions and ways depend on."""
        wanted: list[str] = []
        for i in (i for block in self.blocks for i in block):
            wanted += [*filter(None, [i.guard]), *(base for base, _ in i.addresses if base.startswith("%"))]
        return frozenset(self._behind(wanted, lambda i: not i.opcode.startswith("ld.")))

    @cached_property
    def halves(self) -> frozenset[str]:
        """Registers of 64 bits of which the lower half alone is asked for, as of addresses in shared memory: no other is made."""
        wanted: list[str] = []
        for i in (i for block in self.blocks for i in block):
            places = {base for base, _ in i.addresses} if "shared" in i.words and i.words[0] in ("ld", "st") else set()
            wanted += [] if _is_from_below(i) else [r for r in i.read if r not in places]
        whole = self._behind(wanted, lambda i: _is_from_below(i) and not i.opcode.endswith("32.u64"))
        return frozenset(r for r, by in self.made.items() if r not in whole and all(map(_is_from_below, by)))

    def opcode(self, i: Instruction) -> str:
        """What the assembler makes of an instruction: where the lower half of its result alone is asked for, one of 32 bits."""
        if not i.opcode.endswith("64") or not i.written or not self.halves.issuperset(i.written) or i.words[0] == "cvt":
            return "mov.b32" if i.opcode == "cvt.s64.s32" and self.halves.issuperset(i.written) else i.opcode
        return f"{i.opcode[:-2]}32"


def _is_from_below(i: Instruction) -> bool:
    return i.words[0] in _FROM_BELOW and (i.words[0] != "cvt" or all(w[:1] in "su" for w in i.words[-2:]))


def kernels_of(ptx: str) -> dict[str, Kernel]:
    """The kernels of a text by name."""
    lines = [line.split("//")[0].strip() for line in ptx.splitlines()]
    outer = _shared_of(lines)
    found = {}
    k = 0
    while k < len(lines):
        match = _ENTRY.search(lines[k])
        if match is None:
            k += 1
            continue
        parameters = []
        while "{" not in lines[k]:
            parameters += _PARAMETER.findall(lines[k])
            k += 1
        body, depth = [], 0
        while True:
            depth += lines[k].count("{") - lines[k].count("}")
            body.append(lines[k])
            k += 1
            if depth == 0:
                break
        found[match[1]] = _kernel(match[1], parameters, body, outer)
    return found


def _shared_of(lines: list[str]) -> dict[str, tuple[int, int | None]]:
    """Alignment and size of shared variables; None for the arena, whose size a launch says."""
    return {name: (int(align), int(size) if size else None) for align, name, size in _SHARED.findall("\n".join(lines))}


def _kernel(name: str, parameters: list[str], body: list[str], outer: dict[str, tuple[int, int | None]]) -> Kernel:
    text = " ".join(body)
    own = [(symbol, *place) for symbol, place in outer.items() if re.search(rf"\b{re.escape(symbol)}\b", text)]
    at, shared = SHARED_BEGIN, {}
    for symbol, align, size in sorted(own, key=lambda s: s[2] is None):  # the arena behind the others
        align = ARENA_ALIGNMENT if size is None else align
        at = -(-at // align) * align
        shared[symbol] = at
        at += size or 0
    local = {symbol: int(size) for _, symbol, size in _LOCAL.findall(text)}
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for statement in _statements(body):
        label = _LABEL.fullmatch(statement)
        if label is not None:
            if blocks[-1]:
                blocks.append([])
            labels[label[1]] = len(blocks) - 1
            continue
        match = _STATEMENT.fullmatch(statement)
        if match is None or statement.startswith("."):
            continue
        operands = tuple(p.strip() for p in _PIECE.findall(match[4]))
        blocks[-1].append(Instruction(match[3], operands, match[2], match[1] == "!"))
        if match[3].split(".")[0] in ("bra", "ret", "exit"):
            blocks.append([])
    blocks, labels = _predicated(blocks, labels)
    return Kernel(name, tuple(parameters), tuple(map(tuple, blocks)), labels, shared, local)


def _predicated(blocks: list[list[Instruction]], labels: dict[str, int]) -> tuple[list[list[Instruction]], dict[str, int]]:
    """Basic blocks where a branch over a few instructions is none: the assembler gives these the condition of the branch, so that none of
    those behind waits for it."""
    targets = [labels[b[-1].operands[-1]] for b in blocks if b and b[-1].words[0] == "bra"]
    places = set(labels.values())
    made: list[list[Instruction]] = []
    moved: dict[int, int] = {}
    k = 0
    while k < len(blocks):
        moved[k] = len(made)
        block = blocks[k]
        while (
            block
            and block[-1].words[0] == "bra"
            and block[-1].guard is not None
            and labels[block[-1].operands[-1]] == k + 2 < len(blocks)
            and targets.count(k + 2) == 1
            and k + 1 not in places
            and len(blocks[k + 1]) <= MOST_PREDICATED
            and all(i.guard is None and i.words[0] not in _ALONE for i in blocks[k + 1])
        ):
            skip = block[-1]
            block = [*block[:-1], *(replace(i, guard=skip.guard, negated=not skip.negated) for i in blocks[k + 1]), *blocks[k + 2]]
            k += 2
        made.append(block)
        k += 1
    return made, {name: moved[number] for name, number in labels.items() if number in moved}


def _statements(body: list[str]) -> list[str]:
    found = []
    for part in re.split(r"(?<=:)\s|;|\n", "\n".join(body)):
        for word in re.split(r"(\$\w+:)", part):
            word = word.strip()
            if word and word not in ("{", "}"):
                found.append(word.lstrip("{ ").strip() if word.startswith("{ ") else word)
    return found
