"""Instructions as text: a builder that writes one function, and the module that functions grow into.

All helpers take operands of any lane count (see `values`) and broadcast as needed, so whoever writes an operation or a polynomial with
them has written the scalar and every vector form at once.

Text is made with f-strings and nothing else: LLVM's own builder objects are twenty times slower.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd

import numpy as np

from tensorexpr.codegen.llvm.text.dominators import ENTRY, Dominators
from tensorexpr.codegen.llvm.text.values import (
    Operand,
    Value,
    bounded,
    difference_of,
    fits,
    known,
    literal,
    mangle,
    negated,
    product_of,
    sum_of,
)
from tensorexpr.records import field, record

INTRINSIC = "te.intrinsic."
"""How the name of a function begins that is an instruction declared by its text."""

MOST_COPIED = 3000
"""Instructions up to which a helper is copied into its callers: its length times its calls. A chain of a thousand sines would
otherwise take LLVM ten times as long, for the price of as many calls."""


@record(frozen=False)
class Module:
    """The text of a module as it grows: finished functions in order, external declarations, helper functions by name.

    `scales` says that the machine multiplies by powers of two in one instruction of its own (AVX-512's scalef); its registers have
    `vector_bits`, and lanes up to `spread` bytes apart are loaded as whole vectors.
    """

    scales: bool = False
    vector_bits: int = 128
    spread: int = 0
    scalar: bool = False
    """Whether some loop is to stay one iteration after the other (`SCALAR_LOOP`)."""
    functions: list[str] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    beside: dict[str, str] | None = None
    """Functions that a process has once, each the text of a module of its own, by name; None where the module stands alone."""

    def declare(self, name: str, signature: str) -> None:
        """Declares an external function; `signature` is "result (arguments)"."""
        result, _, arguments = signature.partition(" ")
        self.declarations[name] = f"declare {result} @{name}{arguments}"

    def helper(self, name: str, make: Callable[[], str]) -> None:
        """Adds the function `name` once and counts the call that asks for it; `make` gives its text."""
        self.calls[name] = self.calls.get(name, 0) + 1
        if name not in self.helpers:
            self.helpers[name] = ""
            self.helpers[name] = make()

    def _finished(self, name: str) -> str:
        """The text of a helper, which too many calls keep from being copied into each of them."""
        text = self.helpers[name]
        if text.count("\n") * self.calls[name] <= MOST_COPIED:
            return text
        header, body = text.split(" {\n", 1)
        return f"{header.removesuffix(' alwaysinline')} noinline {{\n{body}"

    @property
    def text(self) -> str:
        return "\n".join([*self.declarations.values(), "", *map(self._finished, self.helpers), *self.functions])


_FOLDED: dict[str, Callable[..., np.floating]] = {"fadd": operator.add, "fsub": operator.sub, "fmul": operator.mul}
_DIVISIONS = ("sdiv", "udiv", "srem", "urem")
_PURE = ("add ", "sub ", "mul ", "and ", "or ", "icmp ", "getelementptr ", "insertelement ", "shufflevector ", "select ")
"""Instructions that depend on nothing but their operands, and that index arithmetic is made of."""


SCALAR_LOOP = "!2"
"""Metadata of loops that LLVM is not to vectorize. Its vectorizer (22.1) takes what is computed of a division that stands under a
condition, of operands that the loop does not change, from the first lane alone, also where that lane is off and did not divide."""

LONGEST_WORD = 100
"""Characters of a user's name that are part of a value's: LLVM takes names of 1,024."""


class Builder:
    """Writes the body of one function into `lines`; stack slots go to the entry block."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.count = 0
        self.block = ENTRY
        self.dominators = Dominators()
        self.scopes: list[dict[object, tuple[Value, str]]] = [{}]
        """What is remembered: values by what they are, each with the block that it stands in."""
        self.halves: dict[str, Value] = {}
        """Of vectors of int64, by name: the same numbers in 32 bits, from which they were widened."""
        self.known: dict[str, str] = {}
        """Names of results in the block at hand by the instruction: values never change, so the same text is the same value."""
        self.here: dict[object, Value] = {}
        """Values in the block at hand by all that they follow from, whatever scope they were made in."""
        self.rests: dict[str, tuple[int, int]] = {}
        """Of scalars, by name: what is left of them where they are divided by a number, and this number, where something is."""
        self.parts: dict[str, tuple[str, int]] = {}
        """Scalars (of ramps: their bases) that are another one and a constant."""
        self.divisions = 0
        """Divisions of scalars so far that could trap for all that LLVM knows."""
        self.branches = 0

    # ------------------------------------------------------------------------------------------------ text

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def emit(self, text: str, type_: str, lanes: int = 1) -> Value:
        """An instruction with a result of `lanes` elements of `type_`; one of arithmetic that stands in the block already is that."""
        found = self.known.get(text)
        if found is not None:
            return Value(found, type_, lanes)
        name = f"%{self.name()}"
        self.lines.append(f"  {name} = {text}")
        if text.startswith(_PURE):
            self.known[text] = name
        return Value(name, type_, lanes)

    def slot(self, type_: str, align: int) -> str:
        """A stack slot, allocated once at entry."""
        name = f"%{self.name('slot')}"
        self.slots.append(f"  {name} = alloca {type_}, align {align}")
        return name

    def begin(self, label: str) -> None:
        """Begins a block; whatever goes there has been written, but for the ends of a loop that the block is the head of."""
        self.dominators.begin(label)
        self.lines.append(f"{label}:")
        self.block = label
        self.known, self.here = {}, {}

    def jump(self, label: str) -> None:
        self.dominators.edge(self.block, label)
        self.line(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str, hint: str = "") -> None:
        """Goes to one of two blocks; `hint` is metadata about how often."""
        self.branches += 1
        for label in (yes, no):
            self.dominators.edge(self.block, label)
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no}{hint}")

    def mark(self) -> tuple[int, int, str]:
        """The place at hand, to which `rewind` goes back."""
        return len(self.lines), len(self.slots), self.block

    def rewind(self, mark: tuple[int, int, str]) -> None:
        """Takes back what was written since a mark, in scopes that have ended."""
        lines, slots, self.block = mark
        del self.lines[lines:]
        del self.slots[slots:]
        self.known, self.here = {}, {}

    def phi(self, choices: list[tuple[Value, str]]) -> Value:
        """A phi over values of one type and the blocks they come from."""
        first = choices[0][0]
        return self.emit(f"phi {first.full_type} " + ", ".join(f"[ {v.text}, %{block} ]" for v, block in choices), first.type, first.lanes)

    def function(self, header: str) -> str:
        """The finished function: `header` is everything from `define` up to the brace."""
        return "\n".join([f"{header} {{", "entry:", *self.slots, *self.lines, "}", ""])

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is remembered inside is forgotten afterwards: there names and masks mean something else."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def recall(self, key: object) -> Value | None:
        """What was remembered, where its block dominates the one at hand."""
        for table in reversed(self.scopes):
            found = table.get(key)
            if found is not None and self.dominators.dominates(found[1], self.block):
                return found[0]
        return None

    def remember(self, key: object, value: Value) -> Value:
        """Remembers a value that stands in the block at hand, or in one that dominates it."""
        self.scopes[-1][key] = value, self.block
        return value

    # ------------------------------------------------------------------------------------------------ lanes

    def vector(self, value: Value, lanes: int) -> Value:
        """The value as a full vector: a scalar broadcast, a ramp spelled out."""
        if lanes == 1 or (value.lanes == lanes and not value.stride):
            return value
        if value.const is not None and not value.stride:
            return Value(f"splat ({value.type} {value.text})", value.type, lanes, 0, value.const, value.low, value.high, value.multiple)
        key = ("vector", value.text, value.stride, lanes)
        found = self.here.get(key) or self.recall(key)
        if found is not None:
            return found
        half = self.half(value) if value.stride else None
        if half is not None:
            result = self.widened(half)
        elif value.stride and value.const is not None:
            result = self._steps(value.type, lanes, value.stride, int(value.const))
        else:
            type_ = f"<{lanes} x {value.type}>"
            one = self.emit(f"insertelement {type_} poison, {value.type} {value.text}, i64 0", value.type, lanes)
            result = self.emit(f"shufflevector {one.typed}, {type_} poison, <{lanes} x i32> zeroinitializer", value.type, lanes)
            if value.stride:
                result = self.op("add", result, self._steps(value.type, lanes, value.stride, 0))
        found = self.here[key] = self.remember(key, Value(result.text, value.type, lanes, 0, None, value.low, value.high))
        return found

    def shuffled(self, x: Value, picks: Iterable[int], y: Value | str = "poison") -> Value:
        """The elements at these places of a vector, and behind it of another of its type, which may be a word for one."""
        order = [f"i32 {pick}" for pick in picks]
        other = y.typed if isinstance(y, Value) else f"{x.full_type} {y}"
        return self.emit(f"shufflevector {x.typed}, {other}, <{len(order)} x i32> <{', '.join(order)}>", x.type, len(order))

    def joined(self, parts: Sequence[Value]) -> Value:
        """Vectors of one length, a power of two of them, as one."""
        while len(parts) > 1:
            parts = [self.shuffled(x, range(2 * x.lanes), y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    @staticmethod
    def _steps(type_: str, lanes: int, stride: int, start: int) -> Value:
        items = ", ".join(f"{type_} {start + lane * stride}" for lane in range(lanes))
        return Value(f"<{items}>", type_, lanes)

    def unify(self, *operands: Operand) -> list[Value]:
        """The operands with one lane count; Python numbers take the type of the first value."""
        values = [o for o in operands if isinstance(o, Value)]
        type_ = values[0].type
        # A ramp alone is as good as a vector here: whoever can use ramps asks before.
        lanes = max(v.lanes for v in values)
        return [self.vector(o if isinstance(o, Value) else literal(o, type_), lanes) for o in operands]

    # ------------------------------------------------------------------------------------------------ half the width

    def half(self, value: Value) -> Value | None:
        """An int64 value in 32 bits, where it is known to fit and is no vector that was made in 64.

        Indices nearly always fit: twice the lanes to a register, and products, extremes and conversions in one instruction each,
        which in 64 bits only AVX-512 has.
        """
        if value.type != "i64" or not fits(value, 32):
            return None
        if value.lanes > 1 and not value.stride:
            return literal(int(value.const), "i32") if value.const is not None else self.halves.get(value.text)
        if value.const is not None:
            base = literal(int(value.const), "i32")
            return self._steps("i32", value.lanes, value.stride, int(value.const)) if value.stride else base
        base = self.emit(f"trunc i64 {value.text} to i32", "i32")
        return self.op("add", base, self._steps("i32", value.lanes, value.stride, 0)) if value.stride else base

    def halved(self, make: Callable[..., Value], operands: tuple[Value, ...], low: int | None, high: int | None) -> Value | None:
        """A vector of int64 between two bounds, made of the halves of its operands and widened for those who need it so (LLVM
        drops what nobody reads); None where it is not known to be right, or nothing but scalars."""
        limit = 1 << 31
        if low is None or high is None or low < -limit or high >= limit or all(v.lanes == 1 for v in operands):
            return None
        halves = [self.half(v) for v in operands]
        if any(half is None for half in halves):
            return None
        wide = self.widened(make(*halves))
        return Value(wide.text, "i64", wide.lanes, 0, None, low, high)

    def widened(self, half: Value) -> Value:
        """A vector of int32 as int64; what reads it may still take it in 32 bits."""
        wide = self.convert("sext", half, "i64")
        self.halves[wide.text] = half
        return wide

    # ------------------------------------------------------------------------------------------------ instructions

    def op(self, opcode: str, a: Operand, b: Operand) -> Value:
        """A two-operand instruction, lane by lane."""
        a, b = self.unify(a, b)
        if opcode in _FOLDED and a.const is not None and b.const is not None and not a.stride and not b.stride:
            number = np.float32 if a.type == "float" else np.float64
            with np.errstate(all="ignore"):
                return self.vector(literal(float(_FOLDED[opcode](number(a.const), number(b.const))), a.type), a.lanes)
        self.divisions += b.const is None and b.lanes == 1 and opcode in _DIVISIONS
        return self.emit(f"{opcode} {a.full_type} {a.text}, {b.text}", a.type, a.lanes)

    def compare(self, predicate: str, a: Operand, b: Operand) -> Value:
        """`icmp ...` or `fcmp ...`; the result is i1."""
        a, b = self.unify(a, b)
        return self.emit(f"{predicate} {a.full_type} {a.text}, {b.text}", "i1", a.lanes)

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        if condition.const is not None:
            chosen, other = (a, b) if condition.const else (b, a)
            return chosen if isinstance(chosen, Value) else literal(chosen, other.type)  # type: ignore[union-attr]  # where one is a number the other is a value
        a, b = self.unify(a, b)
        lanes = max(a.lanes, condition.lanes)
        a, b = self.vector(a, lanes), self.vector(b, lanes)
        # A scalar condition chooses between whole vectors, which `select` allows.
        result = self.emit(f"select {condition.typed}, {a.typed}, {b.typed}", a.type, a.lanes)
        if a.low is not None and b.low is not None and a.high is not None and b.high is not None:
            return Value(result.text, result.type, result.lanes, 0, None, min(a.low, b.low), max(a.high, b.high))
        return result

    def convert(self, opcode: str, value: Value, type_: str) -> Value:
        """zext, sext, trunc, fpext, fptrunc, sitofp, bitcast, ... to another element type."""
        if value.stride:
            value = self.vector(value, value.lanes)
        target = type_ if value.lanes == 1 else f"<{value.lanes} x {type_}>"
        return self.emit(f"{opcode} {value.typed} to {target}", type_, value.lanes)

    def intrinsic(self, name: str, *operands: Operand, extra: str = "", flags: str = "") -> Value:
        """`@llvm.<name>` overloaded on the type of its operands; `extra` are further typed immediate arguments."""
        values = self.unify(*operands)
        first = values[0]
        arguments = ", ".join(v.typed for v in values) + extra
        flag = f"{flags} " if flags else ""
        return self.emit(f"call {flag}{first.full_type} @llvm.{name}.{mangle(first)}({arguments})", first.type, first.lanes)

    def call(self, function: str, result: str, *arguments: Value) -> Value:
        """A call of a scalar function, lane by lane on vectors."""
        values = self.unify(*arguments) if arguments else []
        lanes = values[0].lanes if values else 1
        if lanes == 1:
            return self.emit(f"call {result} @{function}({', '.join(v.typed for v in values)})", result)
        whole = f"<{lanes} x {result}>"
        vector = Value("poison", result, lanes)
        for lane in range(lanes):
            parts = [self.extract(v, lane) for v in values]
            one = self.emit(f"call {result} @{function}({', '.join(v.typed for v in parts)})", result)
            vector = self.emit(f"insertelement {whole} {vector.text}, {one.typed}, i64 {lane}", result, lanes)
        return vector

    def extract(self, value: Value, lane: Value | int) -> Value:
        """One lane of a vector (of a scalar: itself)."""
        if value.lanes == 1:
            return value
        value = self.vector(value, value.lanes)
        where = f"i64 {lane}" if isinstance(lane, int) else lane.typed
        return self.emit(f"extractelement {value.typed}, {where}", value.type)

    def any(self, mask: Value) -> Value:
        """Whether some lane of an i1 vector is set."""
        if mask.lanes == 1:
            return mask
        return self.emit(f"call i1 @llvm.vector.reduce.or.{mangle(mask)}({mask.typed})", "i1")

    # ------------------------------------------------------------------------------------------------ logic

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two masks; None stands for all lanes."""
        if a is None or (b is not None and a.const is True):
            return b
        if b is None or b.const is True:
            return a
        return self.op("and", a, b)

    def opaque(self, mask: Value) -> Value:
        """The mask as LLVM does not see through it.

        A choice by a mask that it knows becomes a shuffle of the old and the new vector, both of which then live in registers.
        """
        bits = max(32, mask.lanes)
        mask = self.vector(mask, mask.lanes)
        packed = self.emit(f"bitcast {mask.typed} to i{mask.lanes}", f"i{mask.lanes}")
        wide = packed if bits == mask.lanes else self.emit(f"zext {packed.typed} to i{bits}", f"i{bits}")
        hidden = self.emit(f'call i{bits} asm "", "=r,0"({wide.typed}) nounwind willreturn memory(none)', f"i{bits}")
        narrow = hidden if bits == mask.lanes else self.emit(f"trunc {hidden.typed} to i{mask.lanes}", f"i{mask.lanes}")
        return self.emit(f"bitcast {narrow.typed} to <{mask.lanes} x i1>", "i1", mask.lanes)

    def negation(self, condition: Value) -> Value:
        if condition.const is not None:
            return literal(not condition.const, "i1")
        return self.op("xor", condition, literal(True, "i1"))

    # ------------------------------------------------------------------------------------------------ index arithmetic

    def add(self, a: Operand, b: Operand) -> Value:
        """Sum of int64 values; ramps stay ramps."""
        a, b = self._int(a), self._int(b)
        if a.const is not None and not a.stride and b.const is not None and not b.stride:
            return literal(int(a.const) + int(b.const), "i64")
        if a.const == 0 and not a.stride:
            return b
        if b.const == 0 and not b.stride:
            return a
        low, high = bounded(*sum_of(a, b))
        if self._scalar_base(a) and self._scalar_base(b):
            stride = a.stride + b.stride
            lanes = max(a.lanes, b.lanes) if stride else 1
            if a.const is not None and b.const is not None:
                base = literal(int(a.const) + int(b.const), "i64")
            elif a.const == 0 or b.const == 0:
                base = a if b.const == 0 else b
            else:
                base = self._scalar("add", a, b)
                by, left = self._rest(a)
                other, right = self._rest(b)
                if (common := gcd(by, other)) and (left + right) % common:
                    self.rests[base.text] = (common, (left + right) % common)
            return Value(base.text, "i64", lanes, stride, base.const, low, high, gcd(a.multiple, b.multiple))
        return self._lanes("add", a, b, low, high)

    def wrapping(self, value: Value) -> Value:
        """An integer that may have wrapped around, unless its bounds are known: a ramp's lanes may not be in order, and what divides the
        number that it stands for divides its bits only as far as it is a power of two."""
        if value.low is not None and value.high is not None:
            return value
        if value.stride:
            return self.vector(value, value.lanes)
        return known(value, None, None, value.multiple & -value.multiple)

    def _rest(self, value: Value) -> tuple[int, int]:
        """A number, and what is left of a value (of a ramp: its base) where it is divided by it; the number of a constant is 0."""
        if value.const is not None:
            return 0, int(value.const)
        return self.rests.get(value.text, (value.multiple, 0))

    def rest(self, value: Value, divisor: int) -> int | None:
        """What is left of an int64 value (of a ramp: its base) where it is divided by a number; None where that is not known."""
        by, left = self._rest(value)
        return left % divisor if by % divisor == 0 else None

    def sub(self, a: Operand, b: Operand) -> Value:
        """Difference of int64 values."""
        a, b = self._int(a), self._int(b)
        if b.const is not None and self._scalar_base(b):
            return self.add(a, negated(b, int(b.const)))
        if self._scalar_base(a) and self._scalar_base(b):
            low, high = bounded(*difference_of(a, b))
            stride = a.stride - b.stride
            if a.text == b.text:
                base = literal(0, "i64")
            else:
                base = self._scalar("sub", a, b)
            if stride == 0 and base.const is not None:
                return base
            lanes = max(a.lanes, b.lanes) if stride else 1
            return Value(base.text, "i64", lanes, stride, base.const, low, high, gcd(a.multiple, b.multiple))
        return self._lanes("sub", a, b, *bounded(*difference_of(a, b)))

    def mul(self, a: Operand, b: Operand) -> Value:
        """Product of int64 values; a ramp times a constant is a ramp."""
        a, b = self._int(a), self._int(b)
        if a.const is not None and not a.stride:
            a, b = b, a
        low, high = bounded(*product_of(a, b))
        if b.const == 1 and not b.stride:
            return a
        if b.const is not None and not b.stride and self._scalar_base(a):
            factor = int(b.const)
            if a.const is not None and not a.stride:
                return literal(int(a.const) * factor, "i64")
            if factor == 0:
                return literal(0, "i64")
            base = literal(int(a.const) * factor, "i64") if a.const is not None else self._scalar("mul", a, b)
            return Value(base.text, "i64", a.lanes, a.stride * factor, base.const, low, high, a.multiple * abs(factor))
        if a.lanes == 1 and b.lanes == 1:
            found = self._scalar("mul", a, b)
            return Value(found.text, "i64", low=low, high=high, multiple=max(1, a.multiple) * max(1, b.multiple))
        return self._lanes("mul", a, b, low, high)

    def _lanes(self, opcode: str, a: Value, b: Value, low: int | None, high: int | None) -> Value:
        found = self.halved(lambda x, y: self.op(opcode, x, y), (a, b), low, high)
        return known(self.op(opcode, a, b), low, high) if found is None else found

    @staticmethod
    def _int(value: Operand) -> Value:
        return value if isinstance(value, Value) else literal(value, "i64")

    @staticmethod
    def _scalar_base(value: Value) -> bool:
        return value.lanes == 1 or value.stride != 0

    def _scalar(self, opcode: str, a: Value, b: Value) -> Value:
        key = (opcode, a.text, b.text)
        found = self.recall(key)
        return found if found is not None else self.remember(key, self.emit(f"{opcode} i64 {a.text}, {b.text}", "i64"))
