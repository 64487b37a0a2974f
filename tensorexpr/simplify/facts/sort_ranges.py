"""What is known of the results of a sort plan, so that reads through it need no check while they run.

A plan that the program computes itself (`Segments`) holds positions below the number of its points, and offsets between 0
and that number; of a plan that is handed in nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.ir import Access, Definition, Expr, Segments, apply, const, product
from tensorexpr.traversal import walk

Ranges = Mapping[str, tuple[str, Expr]]
"""What every element of a tensor satisfies, by its name: a comparison (`le` or `lt`) with a limit over sizes; all are at least 0."""


def ranges_of(definitions: Iterable[Definition]) -> dict[str, tuple[str, Expr]]:
    """The ranges of the results of all plans."""
    found: dict[str, tuple[str, Expr]] = {}
    for definition in definitions:
        if isinstance(definition, Segments):
            points = product(tuple(axis.stop for axis in definition.axes))
            offsets, order = definition.names
            found |= {offsets: ("le", points), order: ("lt", points)}
    return found


def known_of(exprs: Iterable[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """Conditions that hold because of what is read in some expressions."""
    found: dict[Expr, None] = {}
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Access) and node.tensor in ranges:
                comparison, limit = ranges[node.tensor]
                found |= {apply("ge", node, const(0)): None, apply(comparison, node, limit): None}
    return tuple(found)
