"""Barriers of a block of threads, as they follow from its nest: one stands before a statement that touches what another thread has written
or read since the last; a barrier of warps where both are the work of the first warp alone.

Buffers that are filled ahead have a stage for each of a few iterations. Stages of two iterations are not each other's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorexpr.codegen.cuda.block.lanes import accesses, is_lanes, is_own, is_placed, lanes_of
from tensorexpr.codegen.cuda.block.shuffles import WARP, Warps
from tensorexpr.codegen.nest import THREADS, Ahead, Alloc, Block, For, If, Stmt
from tensorexpr.codegen.nest.walks import behind_declarations, statements
from tensorexpr.ir import Apply, Const, Expr
from tensorexpr.regions import affine_of


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(Stmt):
    """All threads of the block wait for each other here; those of each warp alone with `warp`."""

    warp: bool = False


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
class Region:
    """What barriers follow from: how many threads there are, where buffers are kept and what shapes they have, how many stages those have
    that are filled ahead, and which of them some write and others read."""

    threads: int
    homes: dict[str, str]
    shapes: dict[str, tuple[Expr, ...]]
    stages: dict[str, int]
    tracked: frozenset[str] = frozenset()

    def touched(self, *statements: Stmt) -> frozenset[_Touch]:
        """What statements touch of the buffers that are tracked."""
        return frozenset(t for s in statements for t in touches(s, self) if t.buffer in self.tracked)


def stages_of(block: Block) -> dict[str, int]:
    """How many stages the buffers have that statements fill ahead."""
    found: dict[str, int] = {}
    for s in statements(block):
        if isinstance(s, Ahead):
            stages = ((name, _stage(indices[0])) for name, indices, write, _ in accesses(s, None) if write and indices)
            found |= {name: stage[2] for name, stage in stages if stage is not None and stage[2]}
    return found


def stages_ahead(loop: For) -> int:
    """How many stages of tiles there are that statements in a loop fill for its iterations to come; 0 where they fill none."""
    return max((stages_filled(s, loop.index) for s in behind_declarations(loop.body) if isinstance(s, Ahead)), default=0)


def stages_filled(s: Ahead, loop: str) -> int:
    """How many stages there are of the tiles that a statement fills for iterations of a loop to come; 0 if they are no such loop's."""
    stages = [_stage(indices[0]) for _, indices, write, _ in accesses(s, None) if write and indices]
    return max((count for found in stages if found is not None for name, _, count in [found] if name == loop), default=0)


def touches(s: Stmt, region: Region) -> Iterator[_Touch]:
    for name, indices, write, lane in accesses(s, None):
        home = region.homes.get(name)
        if home in ("lane", "uniform"):
            continue
        if lane is None:
            yield _Touch(name, write, "first" if write else "", write)
        elif home != "shared":
            # Elements of other buffers are not told apart from loop to loop.
            yield _Touch(name, write, "", _in_first_warp(lane))
        else:
            who = "lane" if is_own(indices, lane, region.threads) else ""
            if not who and is_placed(indices, region.shapes[name], lane, region.threads):
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


def _in_first_warp(lane: For) -> bool:
    return lane.kind not in THREADS and lanes_of(lane) <= WARP and not isinstance(lane, Warps)


def _conflict(now: _Touch, before: _Touch) -> bool:
    if now.warp and before.met:
        return False
    if now.stage is not None and before.stage is not None and now.stage[0] == before.stage[0] and now.stage != before.stage:
        return False
    return now.buffer == before.buffer and (now.write or before.write) and (now.who != before.who or now.who == "")


def with_barriers(block: Block, since: frozenset[_Touch], region: Region) -> tuple[Block, frozenset[_Touch]]:
    """The statements with barriers between, and what was touched since the last one."""
    found: list[Stmt] = []
    for s in block:
        match s:
            case For() if not is_lanes(s):
                made, since = _loop_with_barriers(s, since, region)
                found += made
            case Alloc():
                body, since = with_barriers(s.body, since, region)
                found.append(replace(s, body=body))
            case If():
                # The condition is read by all before either branch, and may be written in them.
                asked = region.touched(If(s.condition, ()))
                # What fills the next stage waits outside: where it does not run, what reads this one would have to.
                ahead = frozenset(t for t in region.touched(s) if t.write and t.stage is not None)
                since, before = _waited(asked | ahead, since)
                found += before
                then, after_then = with_barriers(s.then, since | asked, region)
                otherwise, after_else = with_barriers(s.otherwise, since | asked, region)
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


def _loop_with_barriers(s: For, since: frozenset[_Touch], region: Region) -> tuple[list[Stmt], frozenset[_Touch]]:
    """A loop with barriers also between one iteration and the next; what is before it is waited for outside, unless every iteration
    begins by waiting anyway."""
    inside = region.touched(*s.body)
    every = _in_all_iterations(inside, s.index)
    if not any(_conflict(now, before) for now in inside for before in every | since):
        return [s], frozenset(t.behind(s.index) for t in every | since)
    alone, _ = _iterations(s, frozenset(), region)
    first = next(iter(behind_declarations(alone.body)), None)
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


def _iterations(s: For, entry: frozenset[_Touch], region: Region) -> tuple[For, frozenset[_Touch]]:
    """A loop with barriers within and between iterations, given what was touched before it."""
    while True:
        body, after = with_barriers(s.body, entry, region)
        carried = frozenset(t.later(s.index) for t in after)
        if carried <= entry:
            return replace(s, body=body), frozenset(t.behind(s.index) for t in entry | after)
        entry |= carried
