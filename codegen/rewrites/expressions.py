"""Blocks with other expressions in them: all of them mapped, elements of buffers replaced, indices replaced.

What is replaced is put in normal form where it is arithmetic on indices (`i_o*8 + i_i + 1`, each term once), and left as it is
elsewhere: values keep their bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.codegen.lowering.context import arithmetic
from tensorexpr.codegen.nest import Block, If
from tensorexpr.codegen.nest.walks import expressions_in, map_expressions
from tensorexpr.ir import Expr, Index, conjunction
from tensorexpr.traversal import tensors_read, walk


def substituted(block: Block, values: Mapping[str, Expr]) -> Block:
    """A block with indices replaced. Requires: no loop inside has the name of an index in a value."""

    def value(expr: Expr) -> Expr:
        return substituted_in(expr, values)

    return map_expressions(block, value)


def substituted_in(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with indices replaced, and arithmetic on indices above them in normal form."""
    if not any(isinstance(n, Index) and n.name in values for n in walk(expr)):
        return expr
    return arithmetic.substituted(expr, lambda name: values.get(name, Index(name)), lambda parameter: parameter, lambda access: access)


def mentions(block: Block, name: str) -> bool:
    """Whether an index occurs in a block."""
    return any(isinstance(n, Index) and n.name == name for e in expressions_in(block) for n in walk(e))


def under(conditions: Iterable[Expr], block: Block) -> Block:
    """A block under conditions, of which the first comes first: one that reads data is asked where those before it hold, and not else."""
    runs: list[list[Expr]] = []
    for condition in conditions:
        if not runs or tensors_read(condition):
            runs.append([condition])
        else:
            runs[-1].append(condition)
    for run in reversed(runs):
        block = (If(conjunction(run), block),)
    return block
