"""Scans of which two entries are enough: a step writes one while it reads the other.

Where only the last entry is ever read, the states of all steps are not stored; entry t stands at t % 2.
"""

from __future__ import annotations

from tensorexpr.ir import Access, Definition, Expr, Program, Scan
from tensorexpr.regions import affine_of
from tensorexpr.traversal import expressions, walk


def last_entries(program: Program) -> frozenset[str]:
    """The scans of which only the last entry is ever read: two entries are enough for them. Outputs and what a scan hands on are not."""
    lengths: dict[str, Expr] = {}
    whole = set(program.outputs)
    accesses: list[Access] = []

    def visit(definition: Definition) -> None:
        if not isinstance(definition, Scan):
            accesses.extend(node for e in expressions(definition) for node in walk(e) if isinstance(node, Access))
            return
        whole.update((*definition.inits, *definition.nexts))
        lengths.update((name, definition.length) for name in definition.names)
        for inner in definition.body:
            visit(inner)

    for definition in program.definitions:
        visit(definition)
    for access in accesses:
        if access.tensor in lengths and not _is_last(access.indices[0], lengths[access.tensor]):
            whole.add(access.tensor)
    return frozenset(name for name in lengths if name not in whole)


def _is_last(index: Expr, length: Expr) -> bool:
    found, extent = affine_of(index), affine_of(length)
    return found is not None and extent is not None and found == extent - 1
