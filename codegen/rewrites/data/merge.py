"""The rewrite `merge`: two loops, or kernels, that stand one behind the other as one.

    for i in range(0, n):                               for i in range(0, n):
        a[i] = x[i] * 2.0                                   a[i] = x[i] * 2.0
    for j in range(1, n + 1):                    -->        b[i + 1] = a[i] + 1.0
        b[j] = a[j - 1] + 1.0

The second loop goes as far as the first, perhaps from elsewhere on; an iteration of the merged loop does what both did at the same distance
from their starts. Legal where nothing that an iteration of the second needs, or changes, is done by a later iteration of the first. Loops
that go on further are cut first (`partition`). What stands between the two moves in front of both where it may, else behind. A local buffer
around the first alone lives on to the end of the second.

Two kernels that follow each other are one after `merge_kernels`: always legal on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.lowering.context.arithmetic import add, constant, sub
from tensorexpr.codegen.nest import Alloc, Check, For, LoopNest, Stmt
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement, walk_block, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import apart, are_exclusive, shared
from tensorexpr.ir import Index
from tensorexpr.records import replace


def merge(nest: LoopNest, first: str, second: str) -> LoopNest:
    """The nest with the loop `second` in the loop `first`, which stands before it in the same block, for every pair of their copies.

    Raises `ScheduleError` where no two stand so, they are not as long, or the order of iterations counts.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[8] = input()
    ... a[i]: f32[8] = x[i] * 2.0
    ... b[i]: f32[8] = a[i] + 1.0
    ... return a, b
    ... ''')
    >>> print(merge(merge_kernels(named(plain_nest(program)), 0), "i", "i_1"))
    main(x, a, b)
    x: parameter(f32[8])
    a: parameter(f32[8], written)
    b: parameter(f32[8], written)
    <BLANKLINE>
    def kernel_0() -> (a, b):
        for i in range(0, 8):
            a[i] = x[i] * 2.0
            b[i] = a[i] + 1.0
    <BLANKLINE>
    """
    count, left = 0, 0
    while True:
        ends = loop_paths(nest, second)[left:] if not count or _has_loop(nest, second) else ()
        if not ends:
            break
        start = _partner(nest, loop_paths(nest, first), ends[0])
        if start is None:
            left += 1
            continue
        nest = _merged(nest, start, ends[0])
        count += 1
    if not count:
        raise refuse(
            f"expected two loops one behind the other in one block, got {first} and {second}",
            loop_at(nest, loop_paths(nest, second)[0]),
            hint="merge_kernels, or merge the loops around first",
        )
    return nest


def _has_loop(nest: LoopNest, name: str) -> bool:
    return any(isinstance(s, For) and s.index == name for _, s in walk_nest(nest))


def _partner(nest: LoopNest, starts: Sequence[Path], end: Path) -> Path | None:
    """The loop with which one behind it is merged: the nearest that goes through the same range, else the nearest."""
    before = [path for path in starts if path < end and _only_locals(nest, path, end)]
    before = [path for path in before if not are_exclusive(nest, path, end)]
    other = loop_at(nest, end)
    alike = [path for path in before if (one := loop_at(nest, path)).start == other.start and one.stop == other.stop]
    return next(reversed(alike or before), None)


def _only_locals(nest: LoopNest, first: Path, second: Path) -> bool:
    """Whether between the block that two loops share and each of them there are declarations of local buffers only."""
    level = shared(first, second)
    inner = [path[:end] for path in (first, second) for end in range(level + 1, len(path))]
    if not 0 < level < len(first) or not all(isinstance(statement(nest, path), Alloc) for path in inner):
        return False
    kept = {s.buffer.name for end in range(level + 1, len(first)) if isinstance(s := statement(nest, first[:end]), Alloc)}
    behind = (statement(nest, (*first[:level], at)) for at in range(first[level] + 1, second[level] + 1))
    return not any(isinstance(x, Alloc) and x.buffer.name in kept for s in behind for _, x in walk_block((s,)))


def _widened(nest: LoopNest, first: Path, second: Path) -> tuple[LoopNest, Path]:
    """The nest with local buffers around a first loop alone around a second one behind it as well, and the path of that."""
    while (level := shared(first, second)) < len(first) - 1:
        around = statement(nest, first[: level + 1])
        assert isinstance(around, Alloc)
        low, high = first[level] + 1, second[level]
        more = tuple(statement(nest, (*first[:level], at)) for at in range(low, high + 1))
        for at in range(high, low - 1, -1):
            nest = put(nest, (*first[:level], at), ())
        nest = put(nest, first[: level + 1], (replace(around, body=(*around.body, *more)),))
        second = (*first[: level + 1], len(around.body) + high - low, *second[level + 1 :])
    return nest, second


def _merged(nest: LoopNest, first: Path, second: Path) -> LoopNest:
    """One pair merged."""
    nest, second = _widened(nest, first, second)
    one, other = loop_at(nest, first), loop_at(nest, second)
    length, further = sub(one.stop, one.start), sub(other.stop, other.start)
    if constant(sub(length, further)) != 0 and not (one.start == other.start and one.stop == other.stop):
        raise refuse(f"expected two loops of one length, got {one.index} and {other.index}", other, hint="partition the longer one")
    if one.kind != other.kind or one.call is not None or other.call is not None:
        raise refuse(f"expected two loops of one kind, got {one.kind} and {other.kind}", other)
    shift = constant(sub(other.start, one.start))
    found = dependences(nest)
    if shift is None:
        raise refuse(f"expected two loops that start a known distance apart, got {one.index} and {other.index}", other)
    behind = _moved_behind(found, one, other, _between(nest, first, second))
    allowed = found.may_fuse(one, other, -shift)
    if not allowed:
        raise refuse(f"expected iterations of {other.index} that need none of {one.index} to come: {allowed}", other)
    moved = substituted(other.body, {other.index: add(Index(one.index), sub(other.start, one.start))})
    nest = put(nest, second, (replace(one, body=(*one.body, *moved)), *(s for _, s in behind)))
    for path in sorted((first, *(path for path, _ in behind)), reverse=True):
        nest = put(nest, path, ())
        if path[:-1] == second[: len(path) - 1]:
            second = (*path[:-1], second[len(path) - 1] - 1, *second[len(path) :])
    apart(nest)
    if one.kind not in ("serial", "unroll"):
        made = loop_at(nest, second)
        allowed = dependences(nest).may_run_in_any_order(made)
        if not allowed:
            raise refuse(f"expected iterations of the merged loop that may run at once: {allowed}", made)
    return nest


def _moved_behind(found: Dependences, one: For, other: For, between: Sequence[tuple[Path, Stmt]]) -> list[tuple[Path, Stmt]]:
    """What stands between two loops and cannot move in front of the first, but behind the second."""
    behind: list[tuple[Path, Stmt]] = []
    for path, s in between:
        allowed = next((a for b in (one, *(b for _, b in behind)) if not (a := found.may_move(b, s))), None)
        if allowed is None:
            continue
        if any(isinstance(x, Check) for _, x in walk_block((s,))) or not found.may_move(s, other):
            raise refuse(f"expected nothing between {one.index} and {other.index} that depends on the first: {allowed}", s)
        behind.append((path, s))
    return behind


def _between(nest: LoopNest, first: Path, second: Path) -> list[tuple[Path, Stmt]]:
    """The statements behind a first loop and before a second one, in the blocks of the declarations around that too."""
    found: list[tuple[Path, Stmt]] = []
    low = first[-1] + 1
    for level in range(len(first) - 1, len(second)):
        found += [((*second[:level], at), statement(nest, (*second[:level], at))) for at in range(low, second[level])]
        low = 0
    return found


def merge_kernels(nest: LoopNest, first: int) -> LoopNest:
    """The nest with a kernel, by its number, and the next one as one. Raises `ScheduleError` where there is no next one."""
    if not 0 <= first < len(nest.kernels) - 1:
        raise refuse(f"expected the number of a kernel before another one, got {first} of {len(nest.kernels)}")
    one, other = nest.kernels[first : first + 2]
    names = dict.fromkeys((*one.name.split(" "), *other.name.split(" ")))
    kernel = replace(one, name=" ".join(names), body=(*one.body, *other.body), together=False)
    return replace(nest, kernels=(*nest.kernels[:first], kernel, *nest.kernels[first + 2 :]))
