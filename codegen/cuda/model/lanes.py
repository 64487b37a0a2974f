"""Runs the integers of a kernel's PTX, all threads of a block at once: how often each basic block runs, and what each access touches.

A value is an array of int64 with an element for each thread, or one number for all. Threads that part meet again as on a GPU with one
program counter each: those that are furthest behind go on. Only registers that addresses and conditions depend on are worked out
(`Kernel.needed`). Numbers of 32 bits are kept with their sign and read without where the type says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorexpr.codegen.cuda.model import traffic
from tensorexpr.codegen.cuda.model.text import Instruction, Kernel
from tensorexpr.errors import InternalError

Numbers = np.ndarray[Any, Any]
Value = Any
"""An array, a number, or None where it is not known."""
BUFFER_BITS = 40
"""Buffers begin at multiples of so many bytes: which one an address is in is a shift."""
MOST_BLOCKS = 400_000
"""Basic blocks that are run before a count is given up."""
_EXACT = 24
"""Accesses of an instruction to shared memory that are all looked at; of those behind every sixteenth."""
_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "min": np.minimum, "max": np.maximum,
    "div": lambda a, b: _quotient(a, b), "rem": lambda a, b: a - _quotient(a, b) * b,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip


def _quotient(a: Value, b: Value) -> Value:
    """Towards zero; 0 for a divisor of 0."""
    b = np.where(b == 0, 1, b)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def wrapped(value: Value, bits: int) -> Value:
    """A number cut to so many bits, with a sign."""
    if value is None or (bits == 64 and not isinstance(value, int)):
        return value
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half if isinstance(value, int) or bits < 64 else value


def bits_of(type_: str) -> int:
    """The size of a type."""
    return 1 if type_ == "pred" else int(re.sub(r"\D", "", type_) or 32)


@dataclass
class Access:
    """What an instruction touches, over all warps of a block: how often warps ask, sectors and lines (or accesses of shared memory), and
    the same where bytes would lie side by side in as few as they fit."""

    instruction: Instruction
    space: str
    size: int
    place: str = ""
    """The buffer, or the shared variable."""
    requests: float = 0.0
    units: float = 0.0
    least: float = 0.0
    lines: float = 0.0
    seen: int = 0
    touched: list[Numbers] = field(default_factory=list)
    """Sectors of a buffer."""

    @property
    def stores(self) -> bool:
        """Whether it writes to memory beyond the multiprocessor."""
        return self.instruction.opcode.startswith(("st.", "atom", "red"))


@dataclass
class Run:
    """What a block does: how often its warps run each basic block in all, and the warp that runs most of them; accesses by instruction."""

    executed: list[float]
    longest: list[float]
    accesses: dict[tuple[int, int], Access]
    by_data: bool = False
    """Whether an address or a way depends on what is read from memory."""


class Block:
    """A block of threads that runs a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Sequence[str],
        scalars: Sequence[int],
        threads: tuple[int, int, int],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> None:
        self.kernel, self.buffers = kernel, tuple(buffers)
        count = threads[0] * threads[1] * threads[2]
        self.warps = -(-count // traffic.LANES)
        self.count = self.warps * traffic.LANES
        numbers = np.arange(self.count)
        self.alive = numbers < count
        self.full = bool(self.alive.all())
        self.special: dict[str, Value] = {"%laneid": numbers % traffic.LANES, "%warpid": numbers // traffic.LANES}
        places = (numbers % threads[0], numbers // threads[0] % threads[1], numbers // (threads[0] * threads[1]))
        for k, axis in enumerate("xyz"):
            self.special[f"%tid.{axis}"] = places[k]
            self.special |= {f"%ntid.{axis}": threads[k], f"%nctaid.{axis}": grid[k], f"%ctaid.{axis}": block[k]}
        values = [(k + 1) << BUFFER_BITS for k in range(len(buffers))]
        rest = [*scalars, *[(len(buffers) + 1) << BUFFER_BITS] * (len(kernel.parameters) - len(buffers) - len(scalars))]
        self.parameters = dict(zip(kernel.parameters, [*values, *rest], strict=True))
        self.registers: dict[str, Value] = {}
        self.of_data: set[str] = set()
        self.run_ = Run([0.0] * len(kernel.blocks), [], {})
        self.by_warp = np.zeros((len(kernel.blocks), self.warps))

    def run(self) -> Run:
        """Runs all threads to the end."""
        ways: dict[int, Numbers] = {0: self.alive}
        for _ in range(MOST_BLOCKS):
            if not ways:
                break
            number = min(ways)
            mask = ways.pop(number)
            if number >= len(self.kernel.blocks):
                continue
            for to, part in self._block(number, mask):
                ways[to] = part | ways[to] if to in ways else part
        else:
            raise InternalError(f"cuda: expected {self.kernel.name} to come to an end, got more than {MOST_BLOCKS} steps of a block")
        self.run_.executed = [float(n) for n in self.by_warp.sum(axis=1)]
        longest = int(np.argmax(self._weights() @ self.by_warp))
        self.run_.longest = [float(n) for n in self.by_warp[:, longest]]
        return self.run_

    def _weights(self) -> Numbers:
        return np.array([len(block) for block in self.kernel.blocks], float)

    def _block(self, number: int, mask: Numbers) -> list[tuple[int, Numbers]]:
        """Runs a basic block under a mask; where threads go from there."""
        self.by_warp[number] += mask.reshape(self.warps, traffic.LANES).any(axis=1)
        whole = self.full and bool(mask.all())
        for at, i in enumerate(self.kernel.blocks[number]):
            name = i.words[0]
            if name == "bra":
                to = self.kernel.labels[i.operands[-1]]
                if i.guard is None:
                    return [(to, mask)]
                taken = mask & self._condition(i)
                left = mask & ~taken
                return [(k, part) for k, part in ((to, taken), (number + 1, left)) if part.any()]
            if name in ("ret", "exit"):
                if i.guard is None:
                    return []
                left = mask & ~self._condition(i)
                return [(number + 1, left)] if left.any() else []
            if i.addresses and not i.opcode.startswith("ld.param"):
                self._access(number, at, i, mask if i.guard is None else mask & self._condition(i))
            if any(r in self.kernel.needed for r in i.written):
                self._set(i, mask, whole)
        return [(number + 1, mask)]

    # ------------------------------------------------------------------------------------------------------ values

    def _condition(self, i: Instruction) -> Numbers:
        assert i.guard is not None
        value = self._value(i.guard, "pred")
        if i.guard in self.of_data:
            self.run_.by_data = True
        value = False if value is None else value
        held = np.broadcast_to(np.asarray(value, bool), (self.count,))
        return ~held if i.negated else held

    def _value(self, operand: str, type_: str) -> Value:
        """A register, number or place as a type has it."""
        if operand.startswith("%"):
            value = self.special[operand] if operand in self.special else self.registers.get(operand)
        elif operand in self.kernel.shared:
            return self.kernel.shared[operand]
        elif re.fullmatch(r"-?\d+|-?0x[0-9a-fA-F]+", operand):
            value = int(operand, 0)
        else:
            return 0 if operand in self.kernel.local else None
        if value is None or type_ in ("pred",):
            return value
        if type_[0] == "u" and bits_of(type_) < 64:
            return value & ((1 << bits_of(type_)) - 1)
        return value

    def _set(self, i: Instruction, mask: Numbers, whole: bool) -> None:
        if i.guard is not None:
            mask, whole = mask & self._condition(i), False
        values = self._computed(i)
        data = i.words[0] in ("ld", "atom") and not i.opcode.startswith("ld.param")
        for register, value in zip(i.written, values, strict=False):
            if data or not self.of_data.isdisjoint(i.read):
                self.of_data.add(register)
            if not whole:
                old = self.registers.get(register)
                if value is not None and old is not None:
                    value = np.where(mask, value, old)
            self.registers[register] = value

    def _computed(self, i: Instruction) -> Sequence[Value]:
        words, given = i.words, i.operands[1:]
        name, type_ = words[0], words[-1]
        if name == "ld":
            if words[1] == "param":
                return (self.parameters.get(given[0][1:-1].partition("+")[0]),)
            return [None if type_[0] == "f" else 0] * len(i.written)
        if type_[0] == "f" and name not in ("setp", "selp", "cvt"):
            return [None] * len(i.written)
        if name == "setp":
            return self._compared(i, given)
        if name == "cvt":
            source = words[-1]
            value = self._value(given[0], source)
            return (None if source[0] == "f" else wrapped(value, bits_of(words[-2])),)
        if name == "selp":
            chosen = self._value(given[2], "pred")
            yes, no = self._value(given[0], type_), self._value(given[1], type_)
            return (None if yes is None or no is None else np.where(False if chosen is None else chosen, yes, no),)
        if name in ("mov", "cvta"):
            if given[0].startswith("{"):
                return (None,)
            return (self._value(given[0], type_),)
        if name in ("atom", "shfl", "ldmatrix", "mma", "wgmma", "fence", "vote", "call"):
            return [0 if name == "atom" else None] * len(i.written)
        values = [self._value(operand, type_) for operand in given]
        if any(v is None for v in values):
            return (None,)
        return (wrapped(self._integer(name, words, values), 64 if "wide" in words else bits_of(type_)),)

    def _integer(self, name: str, words: tuple[str, ...], values: list[Value]) -> Value:
        bits = bits_of(words[-1])
        match name:
            case "mad" | "mul":
                product = self._product(words, values, bits)
                return product + values[2] if name == "mad" else product
            case "shl":
                amount = values[1] & 0xFFFFFFFF
                return np.where(amount < bits, values[0] << np.minimum(amount, 63), 0)
            case "shr":
                return values[0] >> np.minimum(values[1] & 0xFFFFFFFF, bits - 1 if words[-1][0] == "s" else 63)
            case "not":
                return ~values[0] if words[-1] != "pred" else np.logical_not(values[0])
            case "neg":
                return -values[0]
            case "abs":
                return abs(values[0])
            case "bfe":
                return (values[0] >> values[1]) & ((1 << values[2]) - 1) if isinstance(values[2], int) else None
        if name not in _OPERATORS or len(values) != 2:
            return None
        return _OPERATORS[name](*values)

    @staticmethod
    def _product(words: tuple[str, ...], values: list[Value], bits: int) -> Value:
        if "hi" not in words:
            return values[0] * values[1]
        if bits == 32:
            return values[0] * values[1] >> 32
        exact = np.asarray(values[0], object) * np.asarray(values[1], object)
        high = exact >> 64
        return np.asarray(np.asarray(high, object) % (1 << 64), np.uint64).astype(np.int64) if exact.shape else wrapped(int(high), 64)

    def _compared(self, i: Instruction, given: Sequence[str]) -> Sequence[Value]:
        type_ = i.words[-1]
        a, b = self._value(given[0], type_), self._value(given[1], type_)
        if type_[0] == "f" or a is None or b is None or i.words[1] not in _COMPARED:
            return [False, False][: len(i.written)]
        if type_ == "u64":
            a, b = (np.asarray(v).astype(np.uint64) if not isinstance(v, int) else np.uint64(v % (1 << 64)) for v in (a, b))
        found = _COMPARED[i.words[1]](a, b)
        if len(given) > 2:
            with_ = self._value(given[2].lstrip("!"), "pred")
            with_ = False if with_ is None else with_
            with_ = np.logical_not(with_) if given[2].startswith("!") else with_
            found = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(i.words[2], np.logical_and)(found, with_)
        return [found, np.logical_not(found)][: len(i.written)]

    # ------------------------------------------------------------------------------------------------------ accesses

    def _access(self, number: int, at: int, i: Instruction, mask: Numbers) -> None:
        base, offset = i.addresses[0]
        space, size = space_and_size(i)
        if not space or not mask.any():
            return
        if base in self.of_data:
            self.run_.by_data = True
        start = self._value(base, "s64")
        known = self.run_.accesses.get((number, at))
        if known is None:
            known = self.run_.accesses[number, at] = Access(i, space, size)
        warps = float(mask.reshape(self.warps, -1).any(axis=1).sum())
        known.requests += warps
        known.seen += 1
        if start is None:  # nothing is known of it: one after the other
            known.units, known.least = known.units + warps, known.least + warps
            return
        rows = np.where(mask, np.broadcast_to(np.asarray(start) + offset, (self.count,)), -1).reshape(self.warps, -1)
        if space == "local":  # laid out so that what threads keep lies side by side
            known.units += warps * size / 4
            known.least, known.lines = known.units, known.units
        elif space == "shared":
            self._shared(known, i, rows, size)
        else:
            self._global(known, rows, size)
        if len(i.addresses) > 1:
            self._copied(number, at, i, mask, size)

    def _shared(self, known: Access, i: Instruction, rows: Numbers, size: int) -> None:
        if i.words[0] == "ldmatrix":
            rows = np.where(np.arange(traffic.LANES) < (32 if "x4" in i.words else 16), rows, -1)
        if known.seen > _EXACT and known.seen % 16:
            share = 1.0 + 1.0 / (known.seen - 1)
            known.units, known.least = known.units * share, known.least * share
        else:
            known.units += traffic.wavefronts(rows, size)
            known.least += traffic.least_wavefronts(rows, size)
        if not known.place:
            first = int(rows.max())
            places = {at: name for name, at in self.kernel.shared.items() if at <= first}
            known.place = readable(places[max(places)]) if places else "shared"
        known.lines = known.units

    def _global(self, known: Access, rows: Numbers, size: int) -> None:
        known.units += traffic.sectors(rows)
        known.least += traffic.least_sectors(rows, size)
        known.lines += traffic.lines(rows)
        some = np.unique(rows[rows >= 0] // traffic.SECTOR)
        buffer = (int(some[0]) * traffic.SECTOR >> BUFFER_BITS) - 1
        known.place = self.buffers[buffer] if 0 <= buffer < len(self.buffers) else "the report"
        known.touched.append(some)
        if len(known.touched) > 256:
            known.touched = [np.unique(np.concatenate(known.touched))]

    def _copied(self, number: int, at: int, i: Instruction, mask: Numbers, size: int) -> None:
        """What an asynchronous copy reads: nothing where it only fills up with zeros."""
        base, offset = i.addresses[1]
        start = self._value(base, "s64")
        filled = self._value(i.operands[3], "s32") if len(i.operands) > 3 else None
        mask = mask if filled is None else mask & (np.asarray(filled) > 0)
        known = self.run_.accesses.setdefault((number, -1 - at), Access(i, "copied", size))
        known.requests += float(mask.reshape(self.warps, -1).any(axis=1).sum())
        if base in self.of_data:
            self.run_.by_data = True
        if start is not None:
            rows = np.where(mask, np.broadcast_to(np.asarray(start) + offset, (self.count,)), -1).reshape(self.warps, -1)
            self._global(known, rows, size)


def readable(symbol: str) -> str:
    """A shared variable by the name that the kernel has for it."""
    found = re.match(r"_ZZ\d+\w*?E(\d+)", symbol)
    if found is None:
        return symbol
    rest = symbol[found.end() :]
    return rest[: int(found[1])]


def space_and_size(i: Instruction) -> tuple[str, int]:
    """Where an access goes, and how many bytes a lane takes of it; no place where it is none that counts."""
    words = i.words
    if words[0] == "ldmatrix":
        return "shared", 16
    if words[0] == "cp":
        return ("shared", int(i.operands[2])) if len(i.operands) > 2 else ("", 0)
    if words[0] not in ("ld", "st", "atom", "red"):
        return "", 0
    space = next((w for w in words if w in ("shared", "global", "local")), "global")
    if "param" in words:
        return "", 0
    count = 4 if "v4" in words else 2 if "v2" in words else 1
    return space, count * bits_of(words[-1]) // 8
