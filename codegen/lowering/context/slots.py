"""Workspace of the iterations of a parallel loop: slots of it, each for one of them at a time.

What an iteration keeps for itself alone and is too large for a stack stands in a buffer of the workspace with an axis of slots in
front. The parallel loop is then one over slots, each of which runs its share of the iterations in order:

    for i in parallel(range(0, 32)):           for slot in parallel(range(0, 2)):
        ... P[slot, ...] ...          -->          for i in range(slot * 32 // 2, (slot + 1) * 32 // 2):
                                                       ... P[slot, ...] ...

There are two for each core, so that one which is held up gets less to do, or one where they are large, or large beside what a function
reads and writes while all iterations take equally long. How many there are changes who computes an iteration, never what it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, floordiv, mul, sub
from tensorexpr.codegen.lowering.context.tasks import Names
from tensorexpr.codegen.nest import Buffer, For, If, Stmt
from tensorexpr.codegen.nest.walks import expressions_in, map_expressions, statements
from tensorexpr.codegen.schedule.analysis.state import Stage, State
from tensorexpr.ir import Const, Expr, Index, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, substitute, walk

MOST_BYTES = 4 << 20
"""Bytes of all slots up to which there are two for each core."""
MOST_BESIDE, LITTLE = 10, 1 << 16
"""Such slots of equal iterations take at most one of so many parts of inputs and outputs, or little."""


class Slots:
    """The buffers in slots of one lowering, of `size` bytes together; `index` is the index of a slot in the loops that use them."""

    def __init__(self, names: Names, state: State, size: int) -> None:
        self.names = names
        most, cores = MOST_BYTES, state.target.cores
        if 2 * cores * size > max(LITTLE, _kept(state) // MOST_BESIDE):
            most = 0 if all(_is_even(state, s.name) for s in state.stages if state.placed_in(s.name)) else most
        self.count = cores if 2 * cores * size > most else 2 * cores
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
            if constant(count) is None:  # every so many-th iteration, which is affine
                first = add(s.start, self.index)
                rounds = floordiv(add(sub(s.stop, first), const(self.count - 1)), self.count)
                names = {s.index: add(first, mul(Index(s.index), slots))}
                body = map_expressions(s.body, lambda e: substitute(e, names))
                return For(self.index.name, ZERO, slots, (For(s.index, ZERO, rounds, body),), "parallel")
            first = add(s.start, floordiv(mul(self.index, count), self.count))
            last = add(s.start, floordiv(mul(add(self.index, ONE), count), self.count))
            return For(self.index.name, ZERO, slots, (replace(s, start=first, stop=last, kind="serial"),), "parallel")
        if isinstance(s, For) and self._has_parallel(s):
            return replace(s, body=tuple(map(self.shared_out, s.body)))
        if isinstance(s, If) and self._has_parallel(s):
            return replace(s, then=tuple(map(self.shared_out, s.then)), otherwise=tuple(map(self.shared_out, s.otherwise)))
        return For(self.index.name, ZERO, ONE, (s,))

    def _has_parallel(self, s: Stmt) -> bool:
        return any(isinstance(x, For) and x.kind == "parallel" for x in statements((s,)))

    def _uses(self, s: Stmt) -> bool:
        return any(node == self.index for e in expressions_in((s,)) for node in walk(e))


def _kept(state: State) -> int:
    """Bytes of inputs and outputs, as many as there may be where an extent is open."""
    types = [state.program.types[n] for n in dict.fromkeys((*(i.name for i in state.program.inputs), *state.program.outputs))]
    extents = [[int(e.value) if isinstance(e, Const) else MOST_BYTES * MOST_BESIDE for e in t.shape] for t in types]
    return sum(t.dtype.itemsize * prod(shape) for t, shape in zip(types, extents, strict=True))


def _is_even(state: State, root: str) -> bool:
    """Whether iterations of a parallel loop take equally long: no bound or condition of a sum depends on what differs between them."""
    stage = state.stage(root)
    moving = {a for x in stage.order if stage.kind(x) == "parallel" for a in stage.axes_of(x)}
    here, there = _limits(stage), (e for s in state.placed_in(root) for e in _limits(s))
    return not any(moving & set(free_names(e)) for e in here) and all(isinstance(e, Const) for e in there)


def _limits(stage: Stage) -> list[Expr]:
    """Bounds and conditions of the sums of a stage."""
    return [e for g in stage.parts.groups for e in (*(e for a in g.axes for e in (a.start, a.stop)), *g.where, *g.guard)]
