"""Costly terms that several statements of a shared loop compute are computed by the first of them, and kept for the others.

sum = sum(exp(x[i, k] - m) ...); y[j] = exp(x[i, j] - m) / sum      the exponentials of a row are kept while it is gone through
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.operations import costly
from tensorexpr.codegen.nest import Alloc, Block, For, Store
from tensorexpr.codegen.nest.walks import behind_declarations
from tensorexpr.codegen.rewrites.data.keep import shape_of
from tensorexpr.codegen.rewrites.kernels.room import MOST, bytes_of
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.traversal import children


def kept(made: Candidate, at: str) -> Candidate:
    """The candidate with terms that statements in the copies of a loop repeat kept there."""
    loop = next((s for _, s in walk_nest(made.nest) if isinstance(s, For) and s.index == at), None)
    for first, term in () if loop is None else _repeated(loop.body):
        name = fresh(made.nest, f"{_reads(term)}_kept")[0]
        try:
            one = made.then("keep", first, term, name)
        except ScheduleError:
            continue
        sizes = [bytes_of(s) for _, s in walk_nest(one.nest) if isinstance(s, Alloc) and s.buffer.name == name]
        if all(size <= MOST or size == inf for size in sizes):  # rows of open length are seldom longer
            made = one
    return made


def _repeated(body: Block) -> Iterator[tuple[str, Expr]]:
    """Costly terms of a statement that another one behind it repeats, the largest ones, with the statement's outermost loop."""
    statements = list(_flat(body))
    shapes = [{shape_of(term) for store in _stores((s,)) for term, _ in costly(store.value)} for s in statements]
    for place, s in enumerate(statements):
        later = {shape for others in shapes[place + 1 :] for shape in others}
        if isinstance(s, For) and shapes[place] & later:
            for store in _stores((s,)):
                for term in _largest(store.value, later):
                    yield s.index, term


def _flat(block: Block) -> Iterator[For | Store]:
    """Statements of a block, local buffers looked through."""
    return (s for s in behind_declarations(block) if isinstance(s, For | Store))


def _stores(block: Block) -> Iterator[Store]:
    for s in _flat(block):
        if isinstance(s, Store):
            yield s
        else:
            yield from _stores(s.body)


def _largest(value: Expr, shapes: set[object]) -> Iterator[Expr]:
    """The outermost costly terms of some shapes."""
    if isinstance(value, Apply) and shape_of(value) in shapes:
        yield value
    elif not isinstance(value, Access):
        for child in children(value):
            yield from _largest(child, shapes)


def _reads(term: Expr) -> str:
    if isinstance(term, Access):
        return term.tensor
    return next((name for child in children(term) if (name := _reads(child)) != "term"), "term")
