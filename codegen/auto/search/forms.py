"""Nests for open sizes in two forms: one for sizes as large as its blocks, found as if that were known, and one for all others.

Blocks of a loop whose length is open need a guarded copy for loops that are shorter, and each border and each loop that is blocked as well
doubles these. So a search is first told that sizes are `LARGE`, and finds what it finds for fixed ones; then its calls are made again for
the least sizes that its blocks need. What is left for others has lanes and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.auto.search.searching import begun, searched_from
from tensorexpr.codegen.lowering.context.arithmetic import sub
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.rewrites.cuts import statements_of
from tensorexpr.codegen.rewrites.loops.split import SHORTER
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.errors import ArgumentError, ScheduleError
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Apply, Const, Expr, Program, Size
from tensorexpr.traversal import free_names, size_names

LARGE = 32
"""How large all sizes are at first."""
MORE = 1.2
"""How many times the statements a nest may have where no more is known of sizes than its blocks need."""


def in_two_forms(program: Program, facts: Facts) -> Candidate:
    """The nest for a simplified program of open sizes on a machine; in one form where no block is longer than a loop may be."""
    start = begun(program)
    usual = typical(start.nest)
    known = {name: min(LARGE, size) for name, size in usual.items()}
    large = searched_from(start.then("assume", *known.items()), facts)
    for longest in (SHORTER, inf):  # such blocks as short loops get, or else whole ones
        needed = _needed(large, start.nest, known, usual, longest)
        if needed == known or any(least > known[name] for name, least in needed.items()):
            continue
        if (less := _again(large, start, needed)) is not None:
            large = less
            break
    return searched_from(large.then("otherwise"), facts).then("either") if large.nest.least else large


def _again(large: Candidate, start: Candidate, needed: Mapping[str, int]) -> Candidate | None:
    """The same calls where only so much is known of sizes; None where they are not legal or leave much more."""
    made = start.then("assume", *needed.items()) if needed else start
    try:
        for call in large.calls[len(start.calls) + 1 :]:
            made = made.then(call.word, *call.arguments)
    except ScheduleError:
        return None
    return made if _statements(made.nest) <= MORE * _statements(large.nest) else None


def _statements(nest: LoopNest) -> int:
    return sum(statements_of(kernel.body) for kernel in nest.kernels)


def _needed(large: Candidate, start: LoopNest, known: Mapping[str, int], usual: Mapping[str, int], longest: float) -> dict[str, int]:
    """The least sizes at which loops are as long as the blocks that are moved back at their ends, of those of `longest` at most."""
    lengths = {s.index: sub(s.stop, s.start) for _, s in walk_nest(start) if isinstance(s, For)}
    found: dict[str, int] = {}
    for call in large.calls:
        if call.word != "split" or "shift" not in call.arguments or call.arguments[0] not in lengths:
            continue
        length, block = lengths[call.arguments[0]], min(int(call.arguments[1]), longest)
        for name in size_names(length):
            least = _least(length, block, name, known, usual[name])
            if least > 1:
                found[name] = max(least, found.get(name, 1))
    return found


def _least(length: Expr, block: float, name: str, known: Mapping[str, int], most: int) -> int:
    """The least value of a size at which a loop has so many iterations."""
    if free_names(length):
        return known[name]
    grows = _grows(length)  # with each of its sizes: then all of them count as small ones
    for value in range(1, most):
        sizes = {size: min(value, least) for size, least in known.items()} if grows else {**known, name: value}
        try:
            if extent_value(length, sizes) >= block:
                return value
        except ArgumentError:
            continue
    return most


def _grows(extent: Expr) -> bool:
    """Whether an extent is made of sums and products of sizes."""
    return isinstance(extent, Const | Size) or (
        isinstance(extent, Apply) and extent.op.name in ("add", "mul") and all(map(_grows, extent.args))
    )
