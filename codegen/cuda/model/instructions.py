"""Which unit of a multiprocessor an instruction of PTX takes, for how many of the machine's, and how long its result is waited for.

PTX is not the machine's code: what the assembler folds into others (moves, negations, conversions that only name a part of a register)
takes nothing here, what it makes several of (64-bit integers, divisions) as many as it makes for sm_90.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tensorexpr.codegen.auto.gpus import WHOLE, GpuFacts
from tensorexpr.codegen.cuda.nvidia import ptx

PIPES = ("issue", "fp32", "fp64", "integer", "special", "convert", "shuffle", "tensor")
"""What is counted of instructions; tensor cores in operations, all else in warps' instructions."""


@dataclass(frozen=True, slots=True)
class Use:
    """What an instruction takes: counts by pipe, and which latency its result has."""

    counts: tuple[tuple[str, float], ...] = ()
    latency: str = ""
    operations: float = 0.0
    """Of floating point, that a warp does: two to a multiplication with addition."""
    kind: str = ""
    """The operands of tensor cores."""


FREE = Use()
_ALSO_FREE = ("mov", "cvta", "ret", "exit", "neg", "abs", "pragma")
_EXPANDED = {
    "div.rn.f32": {"fp32": 8.0, "special": 1.0, "integer": 2.0},
    "div.full.f32": {"fp32": 3.0, "special": 1.0},
    "rcp.rn.f32": {"fp32": 4.0, "special": 1.0, "integer": 1.0},
    "sqrt.rn.f32": {"fp32": 6.0, "special": 1.0, "integer": 2.0},
    "div.rn.f64": {"fp64": 9.0, "special": 1.0, "integer": 4.0},
    "rcp.rn.f64": {"fp64": 5.0, "special": 1.0, "integer": 3.0},
    "sqrt.rn.f64": {"fp64": 9.0, "special": 1.0, "integer": 5.0},
}
"""Operations that the assembler writes out (counted in its code for sm_90, on the way that is usual)."""
_DIVISIONS = {32: {"integer": 18.0, "special": 1.0, "convert": 2.0}, 64: {"integer": 70.0, "special": 1.0, "convert": 4.0}}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


@cache
def use_of(opcode: str) -> Use:
    """What an instruction takes; memory is counted elsewhere."""
    words = opcode.split(".")
    name, type_ = words[0], words[-1]
    if opcode in _EXPANDED:
        return _use(_EXPANDED[opcode], "special")
    if name == "mma":
        return _matrix(opcode)
    if name == "wgmma":
        return _matrix(opcode) if words[1] == "mma_async" else _use({}, "", 1.0)
    if name == "fence":
        return _use({}, "memory", 1.0)
    if name in ("ld", "st", "ldmatrix", "cp", "red", "atom", "bra", "bar", "membar", "call", "vote"):
        return FREE if opcode.startswith("ld.param") or name in ("membar",) else _use({}, "memory", 1.0)
    if name == "shfl":
        return _use({"shuffle": 1.0}, "shared")
    if name in ("ex2", "rcp", "rsqrt", "lg2", "sin", "cos", "tanh", "sqrt"):
        return _use({"special": 1.0}, "special")
    if name == "cvt":
        return _conversion(words)
    if name in _ALSO_FREE and (type_.startswith(("f", "b", "u", "s", "p")) or name in ("ret", "exit")):
        return FREE
    if name in ("div", "rem"):
        return _use(_DIVISIONS[64 if type_.endswith("64") else 32], "special")
    if type_ in ("f32", "f64") and name in ("add", "sub", "mul", "fma", "mad"):
        flops = 64.0 if name in ("fma", "mad") else 32.0
        pipe = "fp32" if type_ == "f32" else "fp64"
        return Use((("issue", 1.0), (pipe, 1.0)), "fp64" if type_ == "f64" else "add", flops)
    return _use({"integer": _integers(name, type_, words)}, "add")


def _use(counts: dict[str, float], latency: str, issue: float = 0.0) -> Use:
    slots = issue or sum(counts.values())
    return Use((("issue", slots), *counts.items()), latency)


def _integers(name: str, type_: str, words: list[str]) -> float:
    """Instructions of 32 bits that one of integers or comparisons is."""
    if type_ == "pred":
        return 0.5  # half of them are folded into the comparison before
    if not type_.endswith("64"):
        return 1.0
    if name in ("mul", "mad"):
        return 1.0 if "wide" in words else 4.0
    return 2.0


def _conversion(words: list[str]) -> Use:
    to, given = words[-2], words[-1]
    if to[0] in "su" and given[0] in "su":  # a wider one with sign is an instruction, a narrower one or one without none
        return _use({"integer": 1.0}, "add") if int(to[1:]) > int(given[1:]) and given[0] == "s" else FREE
    wide = to.endswith("64") or given.endswith("64")
    return _use({"special": 1.0} if wide else {"convert": 1.0}, "special")


def _matrix(opcode: str) -> Use:
    row = ptx.INSTRUCTIONS.get(opcode)
    shape = _SHAPE.search(opcode)
    assert row is not None and shape is not None, opcode
    m, n, k = map(int, shape.groups())
    kind = opcode.split(".")[-2]
    if opcode.startswith("wgmma"):  # each of four warps has a part of it, at the rate of the data sheet
        operations = 2.0 * m * n * k / 4
        return Use((("issue", 1.0), ("tensor", operations)), "", operations, f"{WHOLE}{kind}")
    operations = 2.0 * m * n * k
    return Use((("issue", 1.0), ("tensor", operations)), "mma", operations, kind)


def latency_of(use: Use, facts: GpuFacts) -> float:
    """Cycles until a result that is not of memory is there."""
    return {
        "": 0.0,
        "add": facts.add_latency,
        "fp64": facts.fp64_latency,
        "special": facts.special_latency,
        "shared": facts.shared_latency,
        "mma": facts.mma_latency,
        "memory": 1.0,
    }[use.latency]
