"""Buffers in slots of which one is done with before another begins, as one.

    for slot: for i: { A[slot] = f(i); B[slot] = g(A[slot]); C[slot] = h(B[slot]); ... C[slot] ... }
    -->  for slot: for i: { A[slot] = f(i); B[slot] = g(A[slot]); A[slot] = h(B[slot]); ... A[slot] ... }

What an iteration keeps for itself alone it writes before it reads it, so nothing is in a buffer from one iteration to the next, and two
that no statement of an iteration needs at once have the same memory. They have the same shape: then each slot of one is that slot of the
other, and what runs in other slots touches neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, Stmt, Store
from tensorexpr.codegen.nest.verify import touched
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, tensors_read


def with_shared_slots(kernels: Sequence[Kernel], slots: Mapping[str, Buffer]) -> list[Kernel]:
    """The kernels with buffers in `slots` that are not needed at once as one of them."""
    users: dict[str, int] = {}
    for kernel in kernels:
        for name in touched((kernel,)):
            users[name] = users.get(name, 0) + 1
    alone = {n: b for n, b in slots.items() if users.get(n) == 1}
    return [kernel if any(map(_calls, kernel.body)) else _shared(kernel, alone) for kernel in kernels]


def _shared(kernel: Kernel, slots: Mapping[str, Buffer]) -> Kernel:
    steps = _steps(kernel.body, slots)
    lives: dict[str, tuple[int, int]] = {}
    for at, step in enumerate(steps):
        for name in touched((Kernel("", (step,)),)):
            if name in slots and (name in lives or _begins(step, name)):
                lives[name] = lives.get(name, (at, at))[0], at
            elif name in slots:
                slots = {n: b for n, b in slots.items() if n != name}
    ends: dict[str, int] = {}
    stands: dict[str, str] = {}
    for name, (first, last) in lives.items():
        alike = (n for n in ends if name in slots and _form(slots[n]) == _form(slots[name]) and ends[n] < first)
        home = next(alike, name)
        if name in slots:
            ends[home] = last
            if home != name:
                stands[name] = home
    return replace(kernel, body=_renamed(kernel.body, stands)) if stands else kernel


def _form(buffer: Buffer) -> Buffer:
    return replace(buffer, name="")


def _steps(block: Block, names: Mapping[str, Buffer]) -> list[Stmt]:
    """The statements of the innermost loop that all that touches the buffers stands in, in order."""
    while True:
        found: list[Stmt] = []
        for s in block:
            found += _flat(s)
        mine = [s for s in found if any(n in names for n in touched((Kernel("", (s,)),)))]
        if len(mine) != 1 or not isinstance(mine[0], For) or mine[0].kind not in ("parallel", "serial"):
            return found
        block = mine[0].body


def _flat(s: Stmt) -> list[Stmt]:
    return [inner for x in s.body for inner in _flat(x)] if isinstance(s, Alloc) else [s]


def _begins(step: Stmt, name: str) -> bool:
    """Whether a statement writes a buffer without conditions, and reads nothing of it."""
    match step:
        case If():
            return False
        case For() | Alloc():
            return all(_begins(s, name) for s in step.body if name in set(touched((Kernel("", (s,)),))))
        case Store():
            read = any(name in tensors_read(e) for e in (*step.indices, step.value))
            return step.buffer == name and not read
    return False


def _calls(s: Stmt) -> bool:
    """Whether instructions of their own are in a statement, which name their operands themselves."""
    match s:
        case For():
            return s.call is not None or any(map(_calls, s.body))
        case Alloc():
            return any(map(_calls, s.body))
        case If():
            return any(map(_calls, (*s.then, *s.otherwise)))
    return False


def _renamed(block: Block, names: Mapping[str, str]) -> Block:
    """The statements with some buffers called as others."""

    def visit(node: Expr) -> Expr:
        return replace(node, tensor=names[node.tensor]) if isinstance(node, Access) and node.tensor in names else node

    def at(e: Expr) -> Expr:
        return bottom_up(e, visit)

    made: list[Stmt] = []
    for s in block:
        match s:
            case For():
                made.append(replace(s, start=at(s.start), stop=at(s.stop), body=_renamed(s.body, names)))
            case If():
                made.append(replace(s, condition=at(s.condition), then=_renamed(s.then, names), otherwise=_renamed(s.otherwise, names)))
            case Alloc():
                made.append(replace(s, body=_renamed(s.body, names)))
            case Store():
                made.append(Store(names.get(s.buffer, s.buffer), tuple(map(at, s.indices)), at(s.value)))
            case Check():
                made.append(replace(s, index=at(s.index), extent=at(s.extent)))
    return tuple(made)
