"""Kernels whose threads leave together, where a check of one of them fails.

Behind a failed check nothing of a kernel runs: what stands there may be in range for that reason alone. A thread of a team cannot return,
since others wait for it. It leaves its loop, and the others go on with what it has not written. Where that is only added up nothing
happens, and the call is an error anyway. Where it says which element is read or written, how often a loop goes round or which way is
taken, all threads ask behind the loop whether one of them failed, and return:

    for (x = threadIdx.x; ...) {                              bool te_left_0 = false;
      if (te_outside(ids[x], 51)) { ...; break; }             for (x = threadIdx.x; ...) {
      e[x] = t[ids[x]];                                 -->     if (te_outside(ids[x], 51)) { ...; te_left_0 = true; goto te_behind_0; }
    }                                                           e[x] = t[ids[x]];
    __syncthreads();                                          }
    ... A[e[7 - x]] ...                                       te_behind_0:
                                                              if (__syncthreads_or(te_left_0)) return;

A place that a thread has checked itself, just so and before it goes there, needs none of this: the thread that goes there has passed. That
holds of what other kernels or the caller wrote; of what this kernel may have left unwritten in registers no two reads need agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorexpr.codegen.cuda.block.lanes import is_lanes
from tensorexpr.codegen.cuda.block.shuffles import Shuffle
from tensorexpr.codegen.nest import THREADS, Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import inside, statements
from tensorexpr.ir import Access, Apply, Cast, Expr, conjuncts
from tensorexpr.traversal import negate, tensors_read

_Passed = tuple[frozenset[Expr], Expr]
"""An index that has passed a check, and the conditions that this was under."""


def has_check(block: Block) -> bool:
    """Whether a check stands somewhere in statements."""
    return any(isinstance(s, Check) for s in statements(block))


def may_leave(block: Block) -> bool:
    """Whether a check stands in statements outside of their loops."""
    return any(isinstance(s, Check) or (not isinstance(s, For) and may_leave(inside(s))) for s in block)


def leave_together(body: Block, warps: bool) -> bool:
    """Whether the threads of a team, or of a warp of it, must leave together where a check in their lanes fails."""
    loops = [s for s in _lane_loops(body, warps) if has_check(s.body)]
    if not loops:
        return False
    within = [s for loop in loops for s in statements(loop.body)]
    asked = frozenset(name for s in within if isinstance(s, Check) for name in _made_of(s.index))
    return _Places(_unsettled(body, {s.buffer for s in within if isinstance(s, Store)}), asked).block(body, frozenset(), [])


class _Places:
    """The places, bounds and conditions of a kernel: `unsettled` buffers may lack elements where a check failed, the elements of those
    that checks `asked` for may be anything there."""

    def __init__(self, unsettled: frozenset[str], asked: frozenset[str]) -> None:
        self.unsettled = unsettled
        self.asked = asked

    def block(self, block: Block, under: frozenset[Expr], passed: list[_Passed]) -> bool:
        """Whether statements go where only checks that others passed let them; `passed` gets what they check themselves."""
        return any(self.statement(s, under, passed) for s in block)

    def statement(self, s: Stmt, under: frozenset[Expr], passed: list[_Passed]) -> bool:
        match s:
            case For():
                decided = self.hangs(s.start, s.stop) or self.goes(s.start, under, passed) or self.goes(s.stop, under, passed)
                written = {inner.buffer for inner in statements(s.body) if isinstance(inner, Store)}
                kept = [p for p in passed if written.isdisjoint(_read((p[1], *p[0])))]
                return decided or self.block(s.body, under, kept)
            case If():
                decided = self.hangs(s.condition) or self.goes(s.condition, under, passed)
                then = self.block(s.then, under.union(conjuncts(s.condition)), passed)
                return decided or then or self.block(s.otherwise, under.union(conjuncts(negate(s.condition))), passed)
            case Alloc():
                return self.block(s.body, under, passed)
            case Store():
                goes = any(self.goes(e, under, passed) for e in (Access(s.buffer, s.indices, s.value.dtype), s.value))
                passed[:] = [p for p in passed if s.buffer not in _read((p[1], *p[0]))]
                return goes
            case Shuffle():
                return self.goes(s.source, under, passed)
            case Check():
                goes = self.goes(s.index, under, passed) or self.goes(s.extent, under, passed)
                passed.append((under, s.index))
                return goes
        return False

    def goes(self, e: Expr, under: frozenset[Expr], passed: list[_Passed]) -> bool:
        """Whether an expression reads at a place that only checks of others let it."""
        match e:
            case Access():
                return any(self.is_open(i, under, passed) or self.goes(i, under, passed) for i in e.indices)
            case Apply() if e.op.name == "where":
                condition, taken, otherwise = e.args
                decides = self.hangs(condition) and bool(_read((taken, otherwise)))
                ways = ((taken, condition), (otherwise, negate(condition)))
                return (
                    decides
                    or self.goes(condition, under, passed)
                    or any(self.goes(way, under.union(conjuncts(known)), passed) for way, known in ways)
                )
            case Apply():
                return any(self.goes(a, under, passed) for a in e.args)
            case Cast():
                return self.goes(e.arg, under, passed)
        return False

    def is_open(self, index: Expr, under: frozenset[Expr], passed: list[_Passed]) -> bool:
        if self.hangs(index):
            return True
        return not self.asked.isdisjoint(_made_of(index)) and not any(conditions <= under and index == one for conditions, one in passed)

    def hangs(self, *exprs: Expr) -> bool:
        return not _read(exprs).isdisjoint(self.unsettled)


def _unsettled(body: Block, skipped: set[str]) -> frozenset[str]:
    """Buffers that checks let be skipped, and those that are made of them."""
    found = set(skipped)

    def visit(block: Block, hangs: bool) -> None:
        for s in block:
            match s:
                case For():
                    visit(s.body, hangs or not found.isdisjoint(_read((s.start, s.stop))))
                case If():
                    inner = hangs or not found.isdisjoint(_read((s.condition,)))
                    visit(s.then, inner)
                    visit(s.otherwise, inner)
                case Alloc():
                    visit(s.body, hangs)
                case Store() if hangs or not found.isdisjoint(_read((*s.indices, s.value))):
                    found.add(s.buffer)
                case Shuffle() if hangs or not found.isdisjoint(_read((s.source,))):
                    found.add(s.into.name)

    while True:
        before = len(found)
        visit(body, False)
        if len(found) == before:
            return frozenset(found)


def _read(exprs: Iterable[Expr]) -> frozenset[str]:
    """The buffers that expressions read."""
    return frozenset(name for e in exprs for name in tensors_read(e))


def _made_of(e: Expr) -> Iterator[str]:
    """The buffers whose elements a number is made of: those read to find them say nothing of it, nor it of them."""
    match e:
        case Access():
            yield e.tensor
        case Apply():
            for a in e.args:
                yield from _made_of(a)
        case Cast():
            yield from _made_of(e.arg)


def _lane_loops(block: Block, warps: bool) -> Iterator[For]:
    """The loops over lanes outside of others; those over warps are none."""
    for s in block:
        if isinstance(s, For) and is_lanes(s) and not (warps and s.kind in THREADS):
            yield s
        else:
            yield from _lane_loops(inside(s), warps)
