"""Which threads of a block do what: loops over lanes as threads, buffers in registers or shared memory, barriers between.

A parallel region whose loops have 32 lanes or more runs a block of threads per iteration: what a CPU does in the lanes of a vector,
the threads of a block do. So do loops that a schedule binds to threads, along up to three axes. Statements outside of the loops over
lanes are executed by all threads alike (the values are the same everywhere), stores there by the first one. A local buffer around such
loops is kept

- in registers, where every loop over lanes asks it for the element of its own lane: each thread has its own;
- in registers of every thread, the same value in each, where it is written outside of loops over lanes alone, at places that are
  numbers ("uniform");
- in shared memory else. What is first accumulated lane by lane and then combined across lanes is in registers until then, and is
  combined by shuffles (see `shuffles`).

Barriers between follow from the nest (see `barriers`).

Where loops are bound to the lanes of a warp, each warp does by itself what a block of 32 threads would do: its shared memory is its own,
and its barriers are those of a warp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from tensorexpr.codegen.cuda.block.barriers import Barrier, Region, stages_of, touches, with_barriers
from tensorexpr.codegen.cuda.block.bound import chain, in_warps, inside_warps, with_inside
from tensorexpr.codegen.cuda.block.lanes import accesses, is_lanes, is_own, lane_loops, lanes_of
from tensorexpr.codegen.cuda.block.shuffles import WARP, names_in, with_shuffles
from tensorexpr.codegen.nest import IN_WARP, MOST_DEEP, MOST_THREADS, THREADS, Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import declared_in, inside, map_accesses, with_blocks
from tensorexpr.ir import Access, Const, Index, const
from tensorexpr.traversal import fresh_name, walk

MOST_ALIKE = 4 << 10
"""Bytes of a buffer that all threads would write alike up to which the first one writes it for all."""


@dataclass(frozen=True, slots=True)
class Team:
    """How a region is run by the threads of a block: how many along x, y and z, its statements with barriers, and where its local
    buffers are kept ("lane": an element per thread, without the last axis; "uniform"; "shared"). With `warps` the threads along x are the
    lanes of a warp, each of which does all of it by itself."""

    shape: tuple[int, int, int]
    body: Block
    homes: dict[str, str]
    warps: bool = False

    @property
    def first(self) -> str:
        """The condition that holds for the first thread, of a block or of a warp."""
        if self.warps:
            return "threadIdx.x == 0"
        axes = [f"threadIdx.{axis}" for axis, n in zip("xyz", self.shape, strict=True) if n > 1] or ["threadIdx.x"]
        return f"{' + '.join(axes)} == 0"


def team_of(body: Block) -> Team | None:
    """The team of a region; None where no loop is long enough for threads."""
    taken = names_in(body)
    if in_warps(body):
        alone, homes = _planned(with_shuffles(_as_vectors(inside_warps(body)), WARP, taken), WARP, taken)
        loops = [s for s in lane_loops(body) if s.kind in THREADS]
        return Team((WARP, *_bound_shape(loops)[1:]), with_inside(body, _for_warps(alone)), homes, warps=True)
    found = list(lane_loops(body))
    if any(s.kind in THREADS for s in found):
        shape = _bound_shape(found)
    else:
        longest = max(map(lanes_of, found), default=0)
        if longest < WARP:
            return None
        shape = (min(MOST_THREADS, -(-longest // WARP) * WARP), 1, 1)
        body = with_shuffles(body, shape[0], taken)
    return Team(shape, *_planned(body, prod(shape), taken))


def _planned(body: Block, threads: int, taken: set[str]) -> tuple[Block, dict[str, str]]:
    """The statements with barriers, and where their local buffers are kept."""
    body = _in_registers_first(body, threads, taken)
    buffers = list(_locals(body))
    homes = {b.name: _home(b, body, threads) for b in buffers}
    region = Region(threads, homes, {b.name: b.shape for b in buffers}, stages_of(body))
    shared = {name for name, home in homes.items() if home == "shared"}
    touched = [t for s in body for t in touches(s, region)]
    both = {t.buffer for t in touched if t.write} & {t.buffer for t in touched if not t.write}
    tracked = shared | (both - set(homes) - declared_in(body))
    body, _ = with_barriers(body, frozenset(), replace(region, tracked=frozenset(tracked)))
    return body, homes


def _as_vectors(block: Block) -> Block:
    """Loops over the lanes of a warp as those over lanes of a block that is one."""
    return _changed(block, lambda s: replace(s, kind="vectorize") if isinstance(s, For) and s.kind == IN_WARP else s)


def _for_warps(block: Block) -> Block:
    """Barriers as those of each warp."""
    return _changed(block, lambda s: Barrier(warp=True) if isinstance(s, Barrier) else s)


def _changed(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """Statements changed one by one, those inside first."""
    return tuple(change(with_blocks(s, lambda inner: _changed(inner, change))) for s in block)


def _bound_shape(loops: list[For]) -> tuple[int, int, int]:
    """The threads of a block along x, y and z, where loops are bound to them: as many as the longest along each has."""
    longest: dict[str, int] = dict.fromkeys(THREADS, 1)
    for loop in (inner for outer in loops for inner in chain(outer)):
        longest[loop.kind] = max(longest[loop.kind], lanes_of(loop))
    x, y, z = longest.values()
    z = min(z, MOST_DEEP)
    while x * y * z > MOST_THREADS:  # of different definitions: a loop longer than the threads goes around
        x, y, z = (-(-x // 2), y, z) if x > 1 else (x, -(-y // 2), -(-z // 2))
    return x, y, z


def idle_axes(s: For, team: Team) -> list[int]:
    """The axes of a block along which a loop over lanes is for the first threads alone."""
    if team.warps:
        return []
    used = {inner.kind if inner.kind in THREADS else THREADS[0] for inner in chain(s)}
    return [k for k, axis in enumerate(THREADS) if axis not in used and team.shape[k] > 1]


def _locals(block: Block) -> Iterator[Buffer]:
    """The local buffers around loops over lanes."""
    for s in block:
        if isinstance(s, Alloc):
            yield s.buffer
        if not is_lanes(s):
            yield from _locals(inside(s))


def _home(buffer: Buffer, body: Block, threads: int) -> str:
    """Where a local buffer is kept."""
    uses = [(i, w, lane) for s in body for name, i, w, lane in accesses(s, None) if name == buffer.name]
    if uses and all(is_own(indices, lane, threads) for indices, _, lane in uses):
        return "lane"
    if not all(not write or lane is None for _, write, lane in uses):
        return "shared"
    size = prod(int(n.value) for n in buffer.shape if isinstance(n, Const)) * buffer.dtype.itemsize
    # What only a run knows the place of would be in memory, an array of every thread.
    return "uniform" if _in_fixed_places(body, buffer.name, whole=True) or size > MOST_ALIKE else "shared"


# ------------------------------------------------------------------------------------------------ registers before sharing


def _in_registers_first(block: Block, threads: int, taken: set[str]) -> Block:
    """Buffers that are accumulated lane by lane before lanes are combined have a copy of their own for the first part."""

    def one(s: Stmt) -> Stmt:
        s = s if is_lanes(s) else with_blocks(s, lambda body: _in_registers_first(body, threads, taken))
        return _parted(s, threads, taken) if isinstance(s, Alloc) else s

    return tuple(map(one, block))


def _parted(alloc: Alloc, threads: int, taken: set[str]) -> Alloc:
    name, shape = alloc.buffer.name, alloc.buffer.shape
    # The statements stand in the body of the innermost of the buffers declared here.
    inside: list[Alloc] = []
    body = alloc.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        inside.append(body[0])
        body = body[0].body
    own = [all(is_own(i, lane, threads) for n, i, _, lane in accesses(s, None) if n == name) for s in body]
    first = own.index(False) if False in own else len(own)
    before, after = body[:first], body[first:]
    touched = [n for s in before for n, _, w, _ in accesses(s, None) if w]
    lanes = int(shape[-1].value) if shape and isinstance(shape[-1], Const) else 0
    if first == len(own) or name not in touched or not WARP <= lanes <= threads or not _in_fixed_places(before, name):
        return alloc
    copy = fresh_name(f"{name}_own", taken)
    mine = replace(alloc.buffer, name=copy)
    before = map_accesses(before, lambda a: replace(a, tensor=copy) if a.tensor == name else a)
    axes = [fresh_name(f"x{axis}", taken) for axis in range(len(shape))]
    at = tuple(map(Index, axes))
    moved: Block = (Store(name, at, Access(copy, at, mine.dtype)),)
    moved = (For(axes[-1], const(0), shape[-1], moved, "vectorize"),)
    for axis, extent in zip(reversed(axes[:-1]), reversed(shape[:-1]), strict=True):
        moved = (For(axis, const(0), extent, moved, "unroll"),)
    made: Block = (*before, *moved, *after)
    for outer in reversed(inside):
        made = (replace(outer, body=made),)
    return replace(alloc, body=(Alloc(mine, made),))


def _in_fixed_places(block: Block, name: str, fixed: frozenset[str] = frozenset(), whole: bool = False) -> bool:
    """Whether a thread touches its elements of a buffer at places that are numbers once loops are unrolled: an array in registers has no
    others. The last axis goes along the lanes, unless a thread has the `whole` buffer."""
    for s in block:
        if isinstance(s, For | Alloc | If):
            is_known = isinstance(s, For) and (s.kind == "unroll" or (is_lanes(s) and not whole))
            if not _in_fixed_places(inside(s), name, fixed | {s.index} if isinstance(s, For) and is_known else fixed, whole):
                return False
            continue
        touched = [indices for n, indices, _, _ in accesses(s, None) if n == name]
        places = [i for indices in touched for i in (indices if whole else indices[:-1])]
        if any(isinstance(n, Index) and n.name not in fixed for i in places for n in walk(i)):
            return False
    return True
