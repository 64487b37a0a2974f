"""What an operation takes in instructions, by kind: counted in the text that our emitter writes for it, not listed.

A function such as `tanh` is a polynomial of ours; its text says how many multiplications, selections and divisions a vector takes, for the
dtype and the machine at hand. What the text calls without being an instruction (bit casts, constants) takes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tensorexpr import ops
from tensorexpr.codegen.llvm.emitter.ops import apply
from tensorexpr.codegen.llvm.math.log import is_root, is_short_power
from tensorexpr.codegen.llvm.text.builder import Builder, Module
from tensorexpr.codegen.llvm.text.casts import cast, register_type
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.llvm.text.values import Value, literal
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.traversal import children

ARITHMETIC, DIVIDE, SHUFFLE, GATHER = "arithmetic", "divide", "shuffle", "gather"
INTEGER_DIVIDE = "integer divide"
INDEX = "index"
"""Arithmetic of indices in lanes: on the same units, but of these loops alone."""

Count = tuple[tuple[str, float], ...]
"""Instructions on whole registers by kind."""

_INSTRUCTION = re.compile(r"^  (?:%[-\w.]+ = )?(?:tail )?(call|[a-z]+)\b(.*)$")
_FREE = {"bitcast", "freeze", "br", "phi", "ret", "insertelement", "extractvalue", "getelementptr"}
"""Instructions of LLVM's that are none of the machine's, or address arithmetic that is part of one."""
_DIVISIONS, _OF_INTEGERS = {"fdiv", "frem"}, {"sdiv", "udiv", "srem", "urem"}
_RARE = "slow"
"""How labels of blocks begin that hardly ever run."""
_LANES = 8
"""Lanes of the text that is counted: helpers of any width are the same."""
COSTLY = 8
"""Instructions of a term from which on it is cheaper to store and load it in a cache: some of each."""


@cache
def instructions(name: str, dtype: DType, machine: Machine) -> Count:
    """What the operation `name` of operands of `dtype` takes, for one register of them."""
    return _counted(*_written(name, dtype, machine))


def is_known_power(dtype: DType, exponent: float) -> bool:
    """Whether a power whose exponent is a constant is made of products or a root."""
    return exponent in (1.0, 2.0) or is_short_power(register_type(dtype), exponent) or is_root(exponent)


@cache
def power(exponent: float, dtype: DType, machine: Machine) -> Count:
    """What such a power takes; of a float32 and more products than `PRODUCTS` has, in registers of doubles."""
    module = Module(scales=machine.scales)
    builder = Builder(module)
    apply(builder, "pow", dtype, [Value("%x0", register_type(dtype), _LANES), literal(exponent, register_type(dtype))])
    return _counted(builder, module)


@cache
def conversion(source: DType, target: DType, machine: Machine) -> Count:
    """What converting one register takes."""
    module = Module(scales=machine.scales)
    builder = Builder(module)
    cast(builder, Value("%x0", register_type(source), _LANES), source, target)
    return _counted(builder, module)


@cache
def branches(name: str, dtype: DType, machine: Machine) -> bool:
    """Whether an operation has cases that are branched to, so that LLVM makes no vectors of a loop around it."""
    builder, module = _written(name, dtype, machine)
    return any(line.startswith("  br ") for line in _lines(builder, module))


def operations_of(value: Expr) -> Iterator[tuple[Apply, Count]]:
    """The operations of a value on floats, each by itself, with what it takes on this machine."""
    if isinstance(value, Apply) and value.args[-1].dtype.is_float:
        name = value.op.name
        yield value, ((ARITHMETIC, 1.0),) if name == "where" else instructions(name, value.args[0].dtype, host())
    if not isinstance(value, Access):
        for child in children(value):
            yield from operations_of(child)


def costly(value: Expr) -> Iterator[tuple[Apply, Count]]:
    """The terms of a value that take `COSTLY` instructions, each operation by itself, with what it takes on this machine."""
    for term, count in operations_of(value):
        if term.dtype.is_float and sum(number for _, number in count) >= COSTLY:
            yield term, count


def _written(name: str, dtype: DType, machine: Machine) -> tuple[Builder, Module]:
    op, module = ops.OPS[name], Module(scales=machine.scales)
    builder = Builder(module)
    apply(builder, name, dtype, [Value(f"%x{k}", register_type(dtype), _LANES) for k in range(op.arity)])
    return builder, module


def _lines(builder: Builder, module: Module) -> Iterator[str]:
    """The lines that run as a rule: not those of helpers and blocks for arguments that hardly ever come."""
    yield from builder.lines
    for text in module.helpers.values():
        header, *lines = text.split("\n")
        rare = False
        for line in () if " cold " in header else lines:
            if not line.startswith(" "):
                rare = line.startswith(_RARE)
            if not rare:
                yield line


def _counted(builder: Builder, module: Module) -> Count:
    found: dict[str, float] = {}
    for line in _lines(builder, module):
        match = _INSTRUCTION.match(line)
        if match is None or match[1] in _FREE:
            continue
        opcode, rest = match[1], match[2]
        if opcode == "call" and "@te." in rest:
            continue  # the helper's own lines are counted
        if opcode in _DIVISIONS or (opcode == "call" and "sqrt" in rest):
            kind = DIVIDE
        elif opcode in _OF_INTEGERS:
            kind = INTEGER_DIVIDE
        elif opcode == "shufflevector":
            kind = SHUFFLE
        else:
            kind = GATHER if opcode == "call" and "gather" in rest else ARITHMETIC
        found[kind] = found.get(kind, 0.0) + 1.0
    return tuple(found.items())
