"""Workspace of the iterations of a parallel loop: slots of it, each for one of them at a time.

What an iteration keeps for itself alone and is too large for a stack stands in a buffer of the workspace with an axis of slots in
front. The parallel loop is then one over slots, each of which runs its share of the iterations in order:

    for i in parallel(range(0, 32)):           for slot in parallel(range(0, 2)):
        ... P[slot, ...] ...          -->          for i in range(slot * 32 // 2, (slot + 1) * 32 // 2):
                                                       ... P[slot, ...] ...

There are two for each core, so that one which is held up gets less to do, or one where they are large. How many there are
changes who computes an iteration, never what it gives.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.lowering.arithmetic import ONE, ZERO, add, floordiv, mul, sub
from tensorexpr.codegen.lowering.tasks import Names
from tensorexpr.codegen.nest import Alloc, Buffer, For, If, Stmt, Store
from tensorexpr.ir import Expr, Index, const
from tensorexpr.records import replace
from tensorexpr.traversal import walk

MOST_BYTES = 4 << 20
"""Bytes of all slots up to which there are two for each core."""


class Slots:
    """The buffers in slots of one lowering, of `size` bytes together; `index` is the index of a slot in the loops that use them."""

    def __init__(self, names: Names, cores: int, size: int) -> None:
        self.names = names
        self.count = cores if cores * size > MOST_BYTES // 2 else 2 * cores
        self.index = Index(names.fresh("slot"))
        self.buffers: dict[str, Buffer] = {}

    def buffer(self, name: str, made: Callable[[str], Buffer]) -> Buffer:
        """The buffer in slots for a definition, one for all loops that it is computed in."""
        found = self.buffers.get(name)
        if found is None:
            one = made(name)
            found = self.buffers[name] = replace(one, shape=(const(self.count), *one.shape), memory="workspace")
            self.names.workspace.append(found)
        return found

    def shared_out(self, statement: Stmt) -> Stmt:
        """A statement at the top level, with its parallel loops shared out to slots where buffers in slots are used."""
        if not self.buffers or not self._uses(statement):
            return statement
        return self._with_slots(statement)

    def _with_slots(self, s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "parallel":
            count, slots = sub(s.stop, s.start), const(self.count)
            first = add(s.start, floordiv(mul(self.index, count), self.count))
            last = add(s.start, floordiv(mul(add(self.index, ONE), count), self.count))
            return For(self.index.name, ZERO, slots, (replace(s, start=first, stop=last, kind="serial"),), "parallel")
        if isinstance(s, For) and self._has_parallel(s):
            return replace(s, body=tuple(map(self.shared_out, s.body)))
        if isinstance(s, If) and self._has_parallel(s):
            return replace(s, then=tuple(map(self.shared_out, s.then)), otherwise=tuple(map(self.shared_out, s.otherwise)))
        return For(self.index.name, ZERO, ONE, (s,))

    def _has_parallel(self, s: Stmt) -> bool:
        return any(isinstance(x, For) and x.kind == "parallel" for x in _statements(s))

    def _uses(self, s: Stmt) -> bool:
        return any(node == self.index for x in _statements(s) for e in _expressions(x) for node in walk(e))


def _statements(s: Stmt) -> list[Stmt]:
    """A statement and all those in it."""
    found, todo = [], [s]
    while todo:
        one = todo.pop()
        found.append(one)
        match one:
            case For() | Alloc():
                todo.extend(one.body)
            case If():
                todo.extend((*one.then, *one.otherwise))
    return found


def _expressions(s: Stmt) -> tuple[Expr, ...]:
    match s:
        case For():
            return s.start, s.stop
        case If():
            return (s.condition,)
        case Store():
            return (*s.indices, s.value)
        case Alloc():
            return ()
    return s.index, s.extent  # type: ignore[attr-defined]
