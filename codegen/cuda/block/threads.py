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

Barriers follow from the nest: one stands before a statement that touches what another thread has written or read since the last;
a barrier of warps where both are the work of the first warp alone.

Where loops are bound to the lanes of a warp, each warp does by itself what a block of 32 threads would do: its shared memory is its own,
and its barriers are those of a warp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from tensorexpr.codegen.cuda.block.bound import chain, in_warps, inside_warps, with_inside
from tensorexpr.codegen.cuda.block.shuffles import WARP, Warps, names_in, with_shuffles
from tensorexpr.codegen.cuda.thread.expressions import row_major
from tensorexpr.codegen.nest import IN_WARP, THREADS, Ahead, Alloc, Block, Buffer, Check, For, If, Stmt, Store
from tensorexpr.ir import Access, Apply, Const, Expr, Index, const, integer
from tensorexpr.regions import affine_of
from tensorexpr.traversal import bottom_up, fresh_name, walk

MOST_ALIKE = 4 << 10
"""Bytes of a buffer that all threads would write alike up to which the first one writes it for all."""
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(Stmt):
    """All threads of the block wait for each other here; those of each warp alone with `warp`."""

    warp: bool = False


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


@dataclass(frozen=True, slots=True)
class _Touch:
    """An access: which buffer, a write or a read, and by whom: "lane" for the element of the thread's own lane, "place" for one whose
    place in memory is the thread's number but for multiples of how many there are, "first" for the first thread, "" for what may be
    any thread's; whether by threads of the first warp alone, and whether these have met since;
    and of a buffer with a stage for an iteration and one for the next, whose: the loop, how many iterations on, and how many there are."""

    buffer: str
    write: bool
    who: str
    warp: bool
    met: bool = False
    stage: tuple[str, int, int] | None = None

    def later(self, loop: str) -> _Touch:
        """The same as the next iteration of a loop sees it."""
        if self.stage is None or self.stage[0] != loop:
            return self
        _, number, count = self.stage
        return replace(self, stage=(loop, (number - 1) % count, count))

    def behind(self, loop: str) -> _Touch:
        """The same as what is behind a loop sees it."""
        return replace(self, stage=None) if self.stage is not None and self.stage[0] == loop else self


@dataclass(frozen=True, slots=True)
class _Region:
    """What barriers follow from: how many threads there are, where buffers are kept and what shapes they have, how many stages those have
    that are filled ahead, and which of them some write and others read."""

    threads: int
    homes: dict[str, str]
    shapes: dict[str, tuple[Expr, ...]]
    stages: dict[str, int]
    tracked: frozenset[str] = frozenset()

    def touched(self, *statements: Stmt) -> frozenset[_Touch]:
        """What statements touch of the buffers that are tracked."""
        return frozenset(t for s in statements for t in _touches(s, self) if t.buffer in self.tracked)


def team_of(body: Block) -> Team | None:
    """The team of a region; None where no loop is long enough for threads."""
    taken = names_in(body)
    if in_warps(body):
        alone, homes = _planned(with_shuffles(_as_vectors(inside_warps(body)), WARP, taken), WARP, taken)
        loops = [s for s in _lane_loops(body) if s.kind in THREADS]
        return Team((WARP, *_bound_shape(loops)[1:]), with_inside(body, _for_warps(alone)), homes, warps=True)
    found = list(_lane_loops(body))
    if any(s.kind in THREADS for s in found):
        shape = _bound_shape(found)
    else:
        longest = max(map(_lanes, found), default=0)
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
    region = _Region(threads, homes, {b.name: b.shape for b in buffers}, _stages(body))
    shared = {name for name, home in homes.items() if home == "shared"}
    touches = [t for s in body for t in _touches(s, region)]
    both = {t.buffer for t in touches if t.write} & {t.buffer for t in touches if not t.write}
    tracked = shared | (both - set(homes) - _allocated(body))
    body, _ = _with_barriers(body, frozenset(), replace(region, tracked=frozenset(tracked)))
    return body, homes


def _as_vectors(block: Block) -> Block:
    """Loops over the lanes of a warp as those over lanes of a block that is one."""
    return _changed(block, lambda s: replace(s, kind="vectorize") if isinstance(s, For) and s.kind == IN_WARP else s)


def _for_warps(block: Block) -> Block:
    """Barriers as those of each warp."""
    return _changed(block, lambda s: Barrier(warp=True) if isinstance(s, Barrier) else s)


def _changed(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """Statements changed one by one, those inside first."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For() | Alloc():
                s = replace(s, body=_changed(s.body, change))
            case If():
                s = replace(s, then=_changed(s.then, change), otherwise=_changed(s.otherwise, change))
        found.append(change(s))
    return tuple(found)


def _bound_shape(loops: list[For]) -> tuple[int, int, int]:
    """The threads of a block along x, y and z, where loops are bound to them: as many as the longest along each has."""
    longest: dict[str, int] = dict.fromkeys(THREADS, 1)
    for loop in (inner for outer in loops for inner in chain(outer)):
        longest[loop.kind] = max(longest[loop.kind], _lanes(loop))
    x, y, z = longest.values()
    while x * y * z > MOST_THREADS:  # of different definitions: a loop longer than the threads goes around
        x, y, z = (-(-x // 2), y, z) if x > 1 else (x, -(-y // 2), -(-z // 2))
    return x, y, z


def is_lanes(s: Stmt) -> bool:
    """Whether a statement outside of loops over lanes is one."""
    return isinstance(s, For) and (s.kind == "vectorize" or s.kind in THREADS)


def idle_axes(s: For, team: Team) -> list[int]:
    """The axes of a block along which a loop over lanes is for the first threads alone."""
    if team.warps:
        return []
    used = {inner.kind if inner.kind in THREADS else THREADS[0] for inner in chain(s)}
    return [k for k, axis in enumerate(THREADS) if axis not in used and team.shape[k] > 1]


def _lanes(s: For) -> int:
    return integer(s.stop) - integer(s.start)


def _lane_loops(block: Block) -> Iterator[For]:
    for s in block:
        match s:
            case For() if is_lanes(s):
                yield s
            case For() | Alloc():
                yield from _lane_loops(s.body)
            case If():
                yield from _lane_loops(s.then)
                yield from _lane_loops(s.otherwise)


def _locals(block: Block) -> Iterator[Buffer]:
    """The local buffers around loops over lanes."""
    for s in block:
        match s:
            case Alloc():
                yield s.buffer
                yield from _locals(s.body)
            case For() if not is_lanes(s):
                yield from _locals(s.body)
            case If():
                yield from _locals(s.then)
                yield from _locals(s.otherwise)


def _allocated(block: Block) -> set[str]:
    """All local buffers; inside loops over lanes each thread has its own."""
    found: set[str] = set()
    for s in block:
        match s:
            case Alloc():
                found |= {s.buffer.name} | _allocated(s.body)
            case For():
                found |= _allocated(s.body)
            case If():
                found |= _allocated((*s.then, *s.otherwise))
    return found


def _is_number(lane: For | None, threads: int) -> bool:
    """Whether the number of an iteration over lanes is that of the thread that makes it."""
    if lane is None or lane.kind in THREADS or isinstance(lane, Warps):
        return False
    return isinstance(lane.start, Const) and lane.start.value == 0 and _lanes(lane) <= threads


def _is_own(indices: tuple[Expr, ...], lane: For | None, threads: int) -> bool:
    """Whether an access asks for the element of its own lane, as every thread has one."""
    if lane is None or not indices or not _is_number(lane, threads):
        return False
    last = indices[-1]
    others = {n.name for i in indices[:-1] for n in walk(i) if isinstance(n, Index)}
    return isinstance(last, Index) and last.name == lane.index and lane.index not in others


def _is_placed(indices: tuple[Expr, ...], shape: tuple[Expr, ...], lane: For, threads: int) -> bool:
    """Whether the place that an access asks for is the number of its thread, but for multiples of the number of threads: rows of several
    axes that the threads go through side by side are nobody else's from one step to the next."""
    if not indices or len(indices) != len(shape) or not _is_number(lane, threads):
        return False
    position = row_major(indices, shape)
    form = affine_of(position) if position is not None else None
    if form is None or form.constant % threads:
        return False
    return sum(factor == 1 for name, factor in form.terms if name == lane.index) == 1 and all(
        factor % threads == 0 for name, factor in form.terms if name != lane.index
    )


def _accesses(s: Stmt, lane: For | None) -> Iterator[tuple[str, tuple[Expr, ...], bool, For | None]]:
    """Every access below a statement: buffer, indices, whether a write, the loop over lanes around it."""

    def reads(*exprs: Expr) -> Iterator[tuple[str, tuple[Expr, ...], bool, For | None]]:
        for e in exprs:
            for node in walk(e):
                if isinstance(node, Access):
                    yield node.tensor, node.indices, False, lane

    match s:
        case For():
            yield from reads(s.start, s.stop)
            inner = s if is_lanes(s) and lane is None else lane
            for below in s.body:
                yield from _accesses(below, inner)
        case If():
            yield from reads(s.condition)
            for below in (*s.then, *s.otherwise):
                yield from _accesses(below, lane)
        case Alloc():
            for below in s.body:
                yield from _accesses(below, lane)
        case Store():
            yield from reads(*s.indices, s.value)
            yield s.buffer, s.indices, True, lane
        case Check():
            yield from reads(s.index, s.extent)


def _home(buffer: Buffer, body: Block, threads: int) -> str:
    """Where a local buffer is kept."""
    uses = [(i, w, lane) for s in body for name, i, w, lane in _accesses(s, None) if name == buffer.name]
    if uses and all(_is_own(indices, lane, threads) for indices, _, lane in uses):
        return "lane"
    if not all(not write or lane is None for _, write, lane in uses):
        return "shared"
    size = prod(int(n.value) for n in buffer.shape if isinstance(n, Const)) * buffer.dtype.itemsize
    # What only a run knows the place of would be in memory, an array of every thread.
    return "uniform" if _in_fixed_places(body, buffer.name, whole=True) or size > MOST_ALIKE else "shared"


# ------------------------------------------------------------------------------------------------ registers before sharing


def _in_registers_first(block: Block, threads: int, taken: set[str]) -> Block:
    """Buffers that are accumulated lane by lane before lanes are combined have a copy of their own for the first part."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case Alloc():
                inner = _in_registers_first(s.body, threads, taken)
                found.append(_parted(replace(s, body=inner), threads, taken))
            case For() if not is_lanes(s):
                found.append(replace(s, body=_in_registers_first(s.body, threads, taken)))
            case If():
                then, otherwise = (_in_registers_first(b, threads, taken) for b in (s.then, s.otherwise))
                found.append(replace(s, then=then, otherwise=otherwise))
            case _:
                found.append(s)
    return tuple(found)


def _parted(alloc: Alloc, threads: int, taken: set[str]) -> Alloc:
    name, shape = alloc.buffer.name, alloc.buffer.shape
    # The statements stand in the body of the innermost of the buffers declared here.
    inside: list[Alloc] = []
    body = alloc.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        inside.append(body[0])
        body = body[0].body
    own = [all(_is_own(i, lane, threads) for n, i, _, lane in _accesses(s, None) if n == name) for s in body]
    first = own.index(False) if False in own else len(own)
    before, after = body[:first], body[first:]
    touched = [n for s in before for n, _, w, _ in _accesses(s, None) if w]
    lanes = int(shape[-1].value) if shape and isinstance(shape[-1], Const) else 0
    if first == len(own) or name not in touched or not WARP <= lanes <= threads or not _in_fixed_places(before, name):
        return alloc
    copy = fresh_name(f"{name}_own", taken)
    mine = replace(alloc.buffer, name=copy)
    before = tuple(_renamed(s, name, copy) for s in before)
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
        match s:
            case For():
                known = fixed | {s.index} if s.kind == "unroll" or (is_lanes(s) and not whole) else fixed
                if not _in_fixed_places(s.body, name, known, whole):
                    return False
            case Alloc() | If():
                inner = s.body if isinstance(s, Alloc) else (*s.then, *s.otherwise)
                if not _in_fixed_places(inner, name, fixed, whole):
                    return False
            case _:
                touched = [indices for n, indices, _, _ in _accesses(s, None) if n == name]
                places = [i for indices in touched for i in (indices if whole else indices[:-1])]
                if any(isinstance(n, Index) and n.name not in fixed for i in places for n in walk(i)):
                    return False
    return True


def _renamed(s: Stmt, name: str, to: str) -> Stmt:
    def expr(e: Expr) -> Expr:
        return bottom_up(e, lambda n: replace(n, tensor=to) if isinstance(n, Access) and n.tensor == name else n)

    match s:
        case For():
            return replace(s, start=expr(s.start), stop=expr(s.stop), body=tuple(_renamed(b, name, to) for b in s.body))
        case If():
            then, otherwise = (tuple(_renamed(b, name, to) for b in part) for part in (s.then, s.otherwise))
            return If(expr(s.condition), then, otherwise)
        case Alloc():
            return replace(s, body=tuple(_renamed(b, name, to) for b in s.body))
        case Store():
            return Store(to if s.buffer == name else s.buffer, tuple(map(expr, s.indices)), expr(s.value))
        case Check():
            return replace(s, index=expr(s.index), extent=expr(s.extent))
    return s


# ---------------------------------------------------------------------------------------------------------------- barriers


def _touches(s: Stmt, region: _Region) -> Iterator[_Touch]:
    for name, indices, write, lane in _accesses(s, None):
        home = region.homes.get(name)
        if home in ("lane", "uniform"):
            continue
        if lane is None:
            yield _Touch(name, write, "first" if write else "", write)
        elif home != "shared":
            # Elements of other buffers are not told apart from loop to loop.
            yield _Touch(name, write, "", _in_first_warp(lane))
        else:
            who = "lane" if _is_own(indices, lane, region.threads) else ""
            if not who and _is_placed(indices, region.shapes[name], lane, region.threads):
                who = "place"
            stage = _stage(indices[0], region.stages.get(name, 0)) if len(indices) > 1 else None
            yield _Touch(name, write, who, _in_first_warp(lane), stage=stage)


def _stage(index: Expr, stages: int = 0) -> tuple[str, int, int] | None:
    """The stage that `(k + n) % count` is: the loop, n and the count; of a number itself, whatever loops do. Of a buffer that is known to
    have so many stages `k + n` is one, too: an index lies in its axis, so in a loop that is no longer there is nothing to divide."""
    if isinstance(index, Const):
        return "", int(index.value), 0
    if isinstance(index, Apply) and index.op.name == "mod" and isinstance(index.args[1], Const):
        form, count = affine_of(index.args[0]), int(index.args[1].value)
    else:
        form, count = affine_of(index), stages
    if form is None or len(form.terms) != 1 or count < 2:
        return None
    ((name, factor),) = form.terms
    return (name, form.constant % count, count) if isinstance(name, str) and factor == 1 else None


def _stages(block: Block) -> dict[str, int]:
    """How many stages the buffers have that statements fill ahead."""
    found: dict[str, int] = {}
    for s in block:
        match s:
            case Ahead():
                written = ((name, _stage(indices[0])) for name, indices, write, _ in _accesses(s, None) if write and indices)
                found |= {name: stage[2] for name, stage in written if stage is not None and stage[2]}
            case For() | Alloc():
                found |= _stages(s.body)
            case If():
                found |= _stages((*s.then, *s.otherwise))
    return found


def stages_ahead(loop: For) -> int:
    """How many stages of tiles there are that statements in a loop fill for its iterations to come; 0 where they fill none."""
    return max((stages_filled(s, loop.index) for s in _inside_of(loop.body) if isinstance(s, Ahead)), default=0)


def stages_filled(s: Ahead, loop: str) -> int:
    """How many stages there are of the tiles that a statement fills for iterations of a loop to come; 0 if they are no such loop's."""
    stages = [_stage(indices[0]) for _, indices, write, _ in _accesses(s, None) if write and indices]
    return max((count for found in stages if found is not None for name, _, count in [found] if name == loop), default=0)


def _inside_of(block: Block) -> Iterator[Stmt]:
    """The statements of a block, those of its buffers included."""
    for s in block:
        if isinstance(s, Alloc):
            yield from _inside_of(s.body)
        else:
            yield s


def _in_first_warp(lane: For) -> bool:
    return lane.kind not in THREADS and _lanes(lane) <= WARP and not isinstance(lane, Warps)


def _conflict(now: _Touch, before: _Touch) -> bool:
    if now.warp and before.met:
        return False
    if now.stage is not None and before.stage is not None and now.stage[0] == before.stage[0] and now.stage != before.stage:
        return False
    return now.buffer == before.buffer and (now.write or before.write) and (now.who != before.who or now.who == "")


def _with_barriers(block: Block, since: frozenset[_Touch], region: _Region) -> tuple[Block, frozenset[_Touch]]:
    """The statements with barriers between, and what was touched since the last one."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For() if not is_lanes(s):
                made, since = _loop_with_barriers(s, since, region)
                found += made
            case Alloc():
                body, since = _with_barriers(s.body, since, region)
                found.append(replace(s, body=body))
            case If():
                # The condition is read by all before either branch, and may be written in them.
                asked = region.touched(If(s.condition, ()))
                # What fills the next stage waits outside: where it does not run, what reads this one would have to.
                ahead = frozenset(t for t in region.touched(s) if t.write and t.stage is not None)
                since, before = _waited(asked | ahead, since)
                found += before
                then, after_then = _with_barriers(s.then, since | asked, region)
                otherwise, after_else = _with_barriers(s.otherwise, since | asked, region)
                found.append(replace(s, then=then, otherwise=otherwise))
                since = after_then | after_else
            case _:
                now = region.touched(s)
                since, before = _waited(now, since)
                found += [*before, s]
                since |= now
    return tuple(found), since


def _waited(now: frozenset[_Touch], since: frozenset[_Touch]) -> tuple[frozenset[_Touch], list[Stmt]]:
    """A barrier before what conflicts with something since the last one."""
    pairs = [(a, b) for a in now for b in since if _conflict(a, b)]
    if not pairs:
        return since, []
    if all(a.warp and b.warp for a, b in pairs):
        return frozenset(replace(b, met=True) if b.warp else b for b in since), [Barrier(warp=True)]
    return frozenset(), [Barrier()]


def _loop_with_barriers(s: For, since: frozenset[_Touch], region: _Region) -> tuple[list[Stmt], frozenset[_Touch]]:
    """A loop with barriers also between one iteration and the next; what is before it is waited for outside, unless every iteration
    begins by waiting anyway."""
    inside = region.touched(*s.body)
    every = _in_all_iterations(inside, s.index)
    if not any(_conflict(now, before) for now in inside for before in every | since):
        return [s], frozenset(t.behind(s.index) for t in every | since)
    alone, _ = _iterations(s, frozenset(), region)
    first = next(iter(_inside_of(alone.body)), None)
    if isinstance(first, Barrier) and not first.warp:
        made, after = _iterations(s, since, region)
        return [made], after
    since, before = _waited(inside, since)
    made, after = _iterations(s, since, region)
    return [*before, made], after


def _in_all_iterations(inside: frozenset[_Touch], loop: str) -> frozenset[_Touch]:
    """What an iteration of a loop touches, as it and all later ones see it."""
    every = inside
    while not (later := frozenset(t.later(loop) for t in every)) <= every:
        every |= later
    return every


def _iterations(s: For, entry: frozenset[_Touch], region: _Region) -> tuple[For, frozenset[_Touch]]:
    """A loop with barriers within and between iterations, given what was touched before it."""
    while True:
        body, after = _with_barriers(s.body, entry, region)
        carried = frozenset(t.later(s.index) for t in after)
        if carried <= entry:
            return replace(s, body=body), frozenset(t.behind(s.index) for t in entry | after)
        entry |= carried
