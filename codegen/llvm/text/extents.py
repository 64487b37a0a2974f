"""Arithmetic on sizes as text of routines: what a caller of emitted code works out before it enters it (bytes of a workspace, grids).

Expressions are plain data (see `abi.plain`): a number, a name, or an operation and its operands. Truth values are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.codegen.llvm.text.abi import Extent
from tensorexpr.errors import InternalError

_BETWEEN = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_TESTS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
MOST = 1 << 62
"""Bytes that no memory has: counts of them stop here, so that none wraps around."""
SIZES = f"""
# Division that rounds down; 0 by zero.
def size_floordiv(left: i64, right: i64) -> i64:
    if right == 0:
        return 0
    quotient = left // right
    rest = left - quotient * right
    return quotient - 1 if rest != 0 and (rest ^ right) < 0 else quotient

def size_mod(left: i64, right: i64) -> i64:
    return left - size_floordiv(left, right) * right if right != 0 else 0

# Products and sums of counts, up to what no memory has.
def size_product(left: i64, right: i64) -> i64:
    wide = u128(left) * u128(right)
    return i64(wide) if ult(wide, {MOST}) else {MOST}

def size_sum(left: i64, right: i64) -> i64:
    total = left + right
    return total if ult(total, {MOST}) else {MOST}
"""
"""What the texts of `size` and `bytes_of` call."""


def names_of(sizes: Sequence[str]) -> dict[str, str]:
    """Where routines find sizes that an array has in this order."""
    return {name: f"sizes.i64[{k}]" for k, name in enumerate(sizes)}


def size(extent: Extent, names: Mapping[str, str]) -> str:
    """The text of an expression."""
    if isinstance(extent, int):
        return f"i64({int(extent)})"
    if isinstance(extent, str):
        return names[extent]
    name, *operands = list(extent)
    values = [size(operand, names) for operand in operands]
    match name, values:
        case "neg", [value]:
            return f"(0 - {value})"
        case "minimum" | "maximum", [left, right]:
            return f"{name[:3]}({left}, {right})"
        case "floordiv" | "mod", [left, right]:
            return f"size_{name}({left}, {right})"
        case "where", [condition, left, right]:
            return f"({left} if {condition} != 0 else {right})"
        case _, [left, right] if name in _BETWEEN:
            return f"({left} {_BETWEEN[name]} {right})"
        case _, [left, right] if name in _TESTS:
            return f"i64({left} {_TESTS[name]} {right})"
    raise InternalError(f"llvm: expected an operation on extents, got {name}")


def bytes_of(fixed: int, buffers: Sequence[tuple[int, Sequence[Extent]]], alignment: int, names: Mapping[str, str]) -> str:
    """The text of the bytes of `fixed` and of buffers, given by bytes per element and extents, each padded to the alignment; `MOST` where
    there are more than an integer holds, which no memory has."""
    total = f"i64({min(fixed, MOST)})"
    for itemsize, extents in buffers:
        length = f"i64({itemsize})"
        for extent in extents:
            length = f"size_product({length}, {size(extent, names)})"
        total = f"size_sum({total}, {length} + {alignment - 1} & {-alignment})"
    return total
