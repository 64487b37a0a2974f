"""Definitions whose loops came out alike, and which compute the same costly value at each point (the exponential of a distance, for a
result and for gradients by it), as one kernel: the value is computed once.

    for i: { A; for k: B; C }      for j: { D; for l: E }
    -->  for i: { A; D; for k: { B; E }; C }

Where none of the definitions touches what another writes, any order of their statements is right in which those of each keep theirs.
Loops of equal bounds are paired from the outside inwards, those that most is in first, as many as can be without changing that order.
A definition may also read what an earlier one stores, where each iteration stores the element that it reads there before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from tensorexpr.codegen.lowering.context.arithmetic import substituted
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, Kernel, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_read, inside, map_expressions, statements, touched_in, written
from tensorexpr.ir import Access, Apply, Expr, Index
from tensorexpr.records import replace
from tensorexpr.traversal import children, fresh_name, tensors_read

KINDS = ("serial", "parallel", "vectorize", "unroll")
WORTH = 8
"""Cost of operations beyond which a value that sums need is worth computing once: more than what is kept near for it."""


def merged(kernels: Sequence[Kernel], definitions: Sequence[range]) -> list[Kernel]:
    """The kernels (those of each definition by number) with definitions that compute the same costly values in sums as one, in the place of
    the first or of the last; what is left behind has no statements.

    A definition that something on the way there waits for, or that waits for another one, keeps its kernels, as does one of
    which no parallel loop is that of another.
    """
    known: dict[Hashable, int] = {}
    groups: list[tuple[list[range], frozenset[int]]] = []
    for numbers in definitions:
        values = _values(tuple(s for k in numbers for s in kernels[k].body), known)
        group = next((members for members, theirs in groups if values & theirs), None)
        if group is not None:
            group.append(numbers)
        elif values:
            groups.append(([numbers], values))
    found = list(kernels)
    for members, _ in groups:
        taken, block = max((_gathered(found, members), _gathered(found, members[::-1])), key=lambda made: len(made[0]))
        if len(taken) > 1:
            joined = [k for one in sorted(taken, key=lambda one: one.start) for k in one]
            names = dict.fromkeys(found[k].name for k in joined)
            for k in joined:
                found[k] = Kernel(found[k].name, ())
            found[taken[0].start] = Kernel(" ".join(names), block)
    return found


def _values(block: Block, numbers: dict[Hashable, int]) -> frozenset[int]:
    """The costly values that are summed up, by numbers: equal ones, with the places and bounds of loops for indices and what is computed on
    the way for local buffers, are computed at the same iterations of loops that are alike. None where something is checked."""
    found = list(statements(block))
    local = dict.fromkeys(s.buffer.name for s in found if isinstance(s, Alloc))
    stores: dict[str, list[tuple[Expr, Mapping[str, Hashable]]]] = {name: [] for name in local}
    for s, loops in _stores(block, {}):
        if s.buffer in local:
            stores[s.buffer].append((s.value, loops))
    sums = [(value, loops) for name in local for value, loops in stores[name] if name in tensors_read(value)]
    if not sums or any(isinstance(s, Check) for s in found):
        return frozenset()
    known: dict[object, tuple[int, int]] = {}
    costly: dict[int, None] = {}

    def visit(e: Expr, loops: Mapping[str, Hashable]) -> tuple[int, int]:
        """What a value costs, and its number. Values may be nested thousands deep."""
        stack = [e]
        while stack:
            if (stack[-1], id(loops)) in known:
                stack.pop()
            elif missing := [child for child in children(stack[-1]) if (child, id(loops)) not in known]:
                stack += missing
            else:
                node = stack.pop()
                known[node, id(loops)] = _visit(node, loops)
        return known[e, id(loops)]

    def _visit(e: Expr, loops: Mapping[str, Hashable]) -> tuple[int, int]:
        parts = [known[child, id(loops)] for child in children(e)]
        key: Any
        cost, key = sum(cost for cost, _ in parts), (type(e).__name__, str(e.dtype), *(number for _, number in parts))
        match e:
            case Index():
                key = loops.get(e.name, e)
            case Access() if e.tensor in local:
                cost, number = made(e.tensor)
                key = (*key, number)
            case Access():
                cost, key = 0, (*key, e.tensor)
            case Apply():
                cost, key = cost + e.op.cost, (*key, e.op.name)
            case _ if not parts:
                key = e
        number = numbers.setdefault(key, len(numbers))
        if cost > WORTH and e.dtype.is_float:
            costly[number] = None
        return cost, number

    def made(name: str) -> tuple[int, int]:
        """The same of all that is stored to a local buffer, which is nothing where it is summed up."""
        if name not in known:
            known[name] = 0, numbers.setdefault(None, len(numbers))
            parts = [visit(value, loops) for value, loops in stores[name]]
            key = frozenset(number for _, number in parts)
            known[name] = sum(cost for cost, _ in parts), numbers.setdefault(key, len(numbers))
        return known[name]

    for value, loops in sums:
        visit(value, loops)
    return frozenset(costly)


def _stores(block: Block, loops: Mapping[str, Hashable]) -> Iterator[tuple[Store, Mapping[str, Hashable]]]:
    """The stores of a block, each with the loops around it: their places and bounds."""
    for s in block:
        if isinstance(s, Store):
            yield s, loops
        inner = {**loops, s.index: (len(loops), s.start, s.stop, s.kind)} if isinstance(s, For) else loops
        yield from _stores(inside(s), inner)


def in_one(a: Stmt, b: Stmt) -> For | None:
    """Two loops, neither of which touches what the other writes, as one in which every loop of theirs is a pair; None where one is left."""
    if not _alike(a, b) or not isinstance(a, For) or not isinstance(b, For) or _loops(a) != _loops(b):
        return None
    found = _loop(a, b, frozenset())
    return found if found is not None and _loops(found) == _loops(a) else None


def _gathered(kernels: Sequence[Kernel], members: Sequence[range]) -> tuple[list[range], Block]:
    """The definitions that can run where the first of the list does, and their statements there."""
    taken: list[range] = []
    block: Block = ()
    for numbers in members:
        own = tuple(s for k in numbers for s in kernels[k].body)
        needed = _needed(kernels, numbers, taken) if taken else frozenset()
        if not taken:
            taken, block = [numbers], own
        elif needed is not None:
            together = _blocks(block, own, needed)
            if together is not None and (len(together) == 1 or not any(map(_is_parallel, together))):
                taken, block = [*taken, numbers], together
    return taken, block


def _needed(kernels: Sequence[Kernel], numbers: range, taken: Sequence[range]) -> frozenset[str] | None:
    """What a definition needs of those taken, so that it may run where the first of these does; None where it may not."""
    touches, writes = _touches(kernels, numbers)
    members = {k for ks in (*taken, numbers) for k in ks}
    between = range(min(numbers.start, taken[0].start), max(numbers.stop, taken[0].stop))
    needed: set[str] = set()
    for other in (*taken, *(range(k, k + 1) for k in between if k not in members)):
        theirs, stored = _touches(kernels, other)
        if other in taken and other.start < numbers.start:
            needed |= stored & touches
            stored = stored - touches
        if not writes.isdisjoint(theirs) or not stored.isdisjoint(touches):
            return None
    return frozenset(needed)


def _touches(kernels: Sequence[Kernel], numbers: range) -> tuple[set[str], set[str]]:
    """What kernels touch, and what they write."""
    found = tuple(kernels[k] for k in numbers)
    return {name for kernel in found for name in touched_in(kernel.body)}, {name for kernel in found for name in written(kernel.body)}


def _is_parallel(s: Stmt) -> bool:
    return isinstance(s, For) and (s.kind == "parallel" or any(map(_is_parallel, s.body)))


def _blocks(first: Block, second: Block, needed: frozenset[str]) -> Block | None:
    """The statements of both, each in their order, with the loops that are paired as one; local buffers live around all.

    None where the second cannot have what is `needed` of the first.
    """
    buffers: list[Buffer] = []
    a, b = _statements(first, buffers), _statements(second, buffers)
    after = _places(a, b, needed) if needed else [0] * len(b)
    pairs = None if after is None else _pairs(a, b, after)
    if after is None or pairs is None:
        return None
    made: list[Stmt] = []
    at, to = 0, 0
    for i, k in pairs:
        one, other = a[i], b[k]
        assert isinstance(one, For) and isinstance(other, For), "pairs are of loops"
        loop = _loop(one, other, needed & written((one,)))
        if loop is None:
            return None
        made += [*a[at:i], *b[to:k], loop]
        at, to = i + 1, k + 1
    block: Block = (*made, *a[at:], *b[to:])
    for buffer in reversed(buffers):
        block = (Alloc(buffer, block),)
    return block


def _places(a: Sequence[Stmt], b: Sequence[Stmt], needed: frozenset[str]) -> list[int] | None:
    """For each statement of the second list, behind how many of the first it must stand; None where that does not give it what it needs.

    A store there gives the element that it names. What is stored inside a loop is there in the same iteration of that loop alone: they
    must be paired, which is said by the number of the loop itself, negated less one.
    """
    found: list[int] = []
    for s in b:
        mine = needed & touched_in((s,)).keys()
        writers = [i for i, other in enumerate(a) if mine & written((other,))]
        loops = [i for i in writers if not isinstance(a[i], Store)]
        if len(loops) > 1 or (loops and (loops[0] != writers[-1] or not _alike(a[loops[0]], s))):
            return None
        stored = {(x.buffer, x.indices) for i in writers if isinstance(x := a[i], Store)}
        if not loops and not {(n.tensor, n.indices) for n in elements_read((s,)) if n.tensor in mine} <= stored:
            return None
        found.append(-loops[0] - 1 if loops else max((i + 1 for i in writers), default=0))
    return found


def _statements(block: Block, buffers: list[Buffer]) -> list[Stmt]:
    """The statements of a block without the local buffers around them, which are noted."""
    found: list[Stmt] = []
    for s in block:
        if isinstance(s, Alloc):
            buffers.append(s.buffer)
            found += _statements(s.body, buffers)
        else:
            found.append(s)
    return found


def _pairs(a: Sequence[Stmt], b: Sequence[Stmt], after: Sequence[int]) -> list[tuple[int, int]] | None:
    """The loops of two lists that become one, in the order of both: those with most loops inside, together. Of the second list each stands
    behind so many statements of the first, or with one of them (see `_places`); None where they cannot."""
    behind = list(accumulate((n if n >= 0 else -n - 1 for n in after), max))
    best: list[list[tuple[int, tuple[tuple[int, int], ...]]]] = [[(0, ())] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for k in reversed(range(len(b))):
            found = max(best[i + 1][k], best[i][k + 1], key=lambda item: item[0])
            if behind[k] <= i and (after[k] >= 0 or i == -after[k] - 1) and _alike(a[i], b[k]):
                weight, pairs = best[i + 1][k + 1]
                weight += min(_loops(a[i]), _loops(b[k]))
                found = (weight, ((i, k), *pairs)) if weight > found[0] else found
            best[i][k] = found
    made = list(best[0][0][1])
    return made if all(n >= 0 or (-n - 1, k) in made for k, n in enumerate(after)) else None


def _alike(a: Stmt, b: Stmt) -> bool:
    if not isinstance(a, For) or not isinstance(b, For) or a.call is not None or b.call is not None:
        return False
    return a.kind in KINDS and (a.start, a.stop, a.kind) == (b.start, b.stop, b.kind)


def _loops(s: Stmt) -> int:
    """How many loops there are in a statement, itself included."""
    return sum(isinstance(x, For) for x in statements((s,)))


def _loop(a: For, b: For, needed: frozenset[str]) -> For | None:
    """One loop for two of the same bounds, with the name of the first, or a new one where the second has that inside."""
    if a.index != b.index:
        bound = {s.index for s in statements((*a.body, *b.body)) if isinstance(s, For)}
        a, b = (_renamed(s, fresh_name(a.index, set(bound))) for s in (a, b))
    body = _blocks(a.body, b.body, needed)
    return None if body is None else replace(a, body=body)


def _renamed(s: For, name: str) -> For:
    def renamed(e: Expr) -> Expr:
        return substituted(e, lambda n: Index(name if n == s.index else n), lambda parameter: parameter, lambda access: access)

    return s if s.index == name else replace(s, index=name, body=map_expressions(s.body, renamed))
