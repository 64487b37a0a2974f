"""How the loops of a nest run in the end, after what LLVM does to them: copied out, in lanes, one iteration after the other.

Lanes stay lanes only where every store goes to elements of its own, and not inside of other lanes (`llvm/emitter/statements.py`). In a nest
without vectors LLVM copies out short loops and makes vectors of innermost ones, also of copies whose stores lie side by side. A local
buffer is held in registers where all that moves its indices is copied out or in lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tensorexpr.codegen.auto import operations
from tensorexpr.codegen.auto.moves import Move, move_of
from tensorexpr.codegen.auto.summary import AUTO, PARALLEL, PARALLEL_AUTO, SERIAL, UNROLL, VECTORIZE
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import declared_in, iterations, statements, stores_in
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.records import field, record
from tensorexpr.traversal import free_names, walk

COPIED = 150
"""Instructions of all iterations of a constant loop up to which LLVM copies it out by itself (its `UnrollThreshold`)."""
LARGEST_HELD = 256
"""Lanes of a loop beyond which it is emitted as a loop over pieces (`llvm/emitter/statements.py`), so that nothing is held across it."""
WORTH_SCATTERING = 16
"""Instructions of a body from which on LLVM makes vectors of it although their elements are stored far apart."""


@record
class Kinds:
    """Of one nest: the machine, whether LLVM makes vectors (`passes_for`), how indices move, and how many elements an access to a buffer
    moves with a loop."""

    machine: Machine
    alone: bool
    moves: dict[Expr, Move]
    step: Callable[[str, tuple[Expr, ...], str], float]
    lengths: dict[int, tuple[Block, float]] = field(default_factory=dict)
    """What `_length` found, by the identity of a block, which is kept with it: every loop around a block asks for it again."""

    def of(self, s: For, extent: float, in_lanes: bool) -> str:
        """How a loop of so many iterations runs, inside of lanes or not."""
        if s.kind == VECTORIZE:
            if extent == 1:
                return UNROLL
            return VECTORIZE if not in_lanes and self._spreads(s) else SERIAL
        if s.kind == UNROLL or not self.alone:
            return s.kind
        copied = self._copied(s)
        if in_lanes or any(isinstance(x, (For, Check)) and not self._copied(x) for x in statements(s.body)):
            return UNROLL if copied else s.kind
        automatic = extent >= 4 and self._suits(s)
        if copied:
            return AUTO if automatic and self._neighbours(s) else UNROLL
        if not automatic or any(isinstance(x, For) and self._neighbours(x) for x in statements(s.body)):
            return s.kind
        return PARALLEL_AUTO if s.kind == PARALLEL else AUTO

    def _copied(self, s: Stmt) -> bool:
        """Whether LLVM copies a loop out by itself."""
        copies = iterations(s)
        if not isinstance(s, For) or s.kind not in (SERIAL, UNROLL) or copies is None:
            return False
        return s.kind == UNROLL or copies * self._length(s.body) <= COPIED

    def _length(self, body: Block) -> float:
        """About as many instructions as LLVM sees in a block, local elements in registers; infinite with a loop that stays one."""
        found = self.lengths.get(id(body))
        if found is None:
            found = self.lengths[id(body)] = (body, self._counted(body))
        return found[1]

    def _counted(self, body: Block) -> float:
        total = 0.0
        for s in body:
            match s:
                case For():
                    copies = iterations(s) if self._copied(s) else None
                    total += (inf if copies is None else copies) * self._length(s.body)
                case If():
                    total += 1.0 + self._length(s.then) + self._length(s.otherwise)
                case Alloc():
                    total += self._length(s.body)
                case Store():
                    total += 0.5 + sum(self._share(n) for n in walk(s.value))
        return total

    def _share(self, e: Expr) -> float:
        return instructions_of(e, self.machine) if isinstance(e, Apply) and e.dtype.is_float else 0.5 * isinstance(e, Access)

    def _spreads(self, s: For) -> bool:
        """Whether every store in a loop goes to other elements in other iterations."""
        own = declared_in(s.body)
        return all(x.buffer in own or any(s.index in free_names(i) for i in x.indices) for x in stores_in(s.body))

    def _suits(self, s: For) -> bool:
        """Whether LLVM's vectorizer finds a loop to its taste: every iteration stores to elements of its own, neighbours unless there is
        much to compute; nothing branches, and nothing is read that an iteration before has stored."""
        own = declared_in(s.body)
        worth = self._length(s.body) >= WORTH_SCATTERING
        for store in stores_in(s.body):
            step = 1.0 if store.buffer in own else self.step(store.buffer, store.indices, s.index)
            if step != step or step == 0 or (abs(step) != 1 and not worth):
                return False
            for node in walk(store.value):
                if isinstance(node, Access) and node.tensor == store.buffer and node.tensor not in own and node.indices != store.indices:
                    return False
                if isinstance(node, Apply) and node.dtype.is_float and node.op.name != "where":
                    if operations.branches(node.op.name, node.args[0].dtype, self.machine):
                        return False
        return True

    def _neighbours(self, s: For) -> bool:
        """Whether copies of a loop store to neighbouring elements: those are made vectors, too (superword parallelism)."""
        own = declared_in(s.body)
        return not own and all(abs(self.step(x.buffer, x.indices, s.index)) == 1 for x in stores_in(s.body))

    def holds(self, body: Block, buffer: str, kinds: dict[str, str]) -> bool:
        """Whether registers may hold a local buffer that lives in a block; `kinds` are those of the loops around, by name."""
        for s in body:
            match s:
                case For():
                    extent = iterations(s) or 0
                    kind = self.of(s, extent, VECTORIZE in kinds.values()) if extent <= LARGEST_HELD else SERIAL
                    if self.alone and self._copied(s):
                        kind = UNROLL
                    if not self.holds(s.body, buffer, {**kinds, s.index: kind}):
                        return False
                case If():
                    if not self.holds((*s.then, *s.otherwise), buffer, kinds):
                        return False
                case Alloc():
                    if not self.holds(s.body, buffer, kinds):
                        return False
                case Store():
                    places = [s.indices] if s.buffer == buffer else []
                    places += [n.indices for n in walk(s.value) if isinstance(n, Access) and n.tensor == buffer]
                    for index in (i for indices in places for i in indices):
                        move = move_of(index, self.moves)
                        if move.random or any(kinds.get(n, SERIAL) not in (UNROLL, VECTORIZE) for n in move.steps):
                            return False
        return True


def instructions_of(e: Apply, machine: Machine) -> float:
    """Instructions of one operation, its operands apart."""
    return 1.0 if e.op.name == "where" else sum(n for _, n in operations.instructions(e.op.name, e.args[0].dtype, machine))
