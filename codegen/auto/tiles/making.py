"""A tile made by rewrites: loops split, sums in parts, tiles inside of all other loops, copied out and in lanes, the outermost loop on all cores."""

from __future__ import annotations

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.tiles.sketch import Tile
from tensorexpr.codegen.auto.tiles.survey import DATA, SUM, Survey
from tensorexpr.codegen.lowering.arithmetic import constant, sub
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import around, loop_paths, statement, walk_block, walk_nest
from tensorexpr.errors import ScheduleError


def tiled_by(candidate: Candidate, survey: Survey, tile: Tile, kernel: int) -> Candidate:
    """The candidate with a tile of one of its kernels. Raises `ScheduleError` where a rewrite is not legal."""
    first = _outermost(survey)
    inner: dict[str, str] = {}
    for name, size in tile.sizes.items():
        length = survey.length(name)
        if length is not None and length <= size:
            inner[name] = name
            continue
        outer, inside = fresh(candidate.nest, f"{name}_o", f"{name}_i")
        inner[name] = inside
        candidate = _split(candidate, name, size, first, (outer, inside), survey)
    vectors = [inner[name] for name in tile.lanes]
    for name in tile.lanes:
        if survey.kind(name) == SUM:
            for buffer in survey.updated(name):
                before = _names(candidate.nest, kernel)
                (parts,) = fresh(candidate.nest, f"{buffer}_parts")
                candidate = candidate.then("rfactor", buffer, inner[name], parts)
                vectors += [x for x in _names(candidate.nest, kernel) if x not in before]
    copies = [inner[name] for name in tile.copies]
    candidate = _sunk(candidate, [*copies, *(inner[name] for name in tile.lanes)], kernel)
    candidate = candidate.then("simplify")
    present = _names(candidate.nest, kernel)
    for word, names in (("unroll", copies), ("vectorize", vectors)):
        for name in names:
            if name in present:
                candidate = candidate.then(word, name)
    return candidate.then("simplify")


def _split(candidate: Candidate, name: str, size: int, first: str | None, names: tuple[str, str], survey: Survey) -> Candidate:
    """A loop in blocks; a rest is a block moved back where iterations may run twice and no cores share blocks."""
    length = survey.length(name)
    if name != first and survey.kind(name) == DATA and length is not None and length % size:
        try:
            return candidate.then("split", name, size, "shift", names)
        except ScheduleError:
            pass
    return candidate.then("split", name, size, "peel", names)


def _outermost(survey: Survey) -> str | None:
    """The outermost loop whose iterations cores may share."""
    return next((name for name in survey.roots if survey.kind(name) == DATA), None)


def _sunk(candidate: Candidate, sunk: list[str], kernel: int) -> Candidate:
    """Loops inside of all others, in their order."""
    for _ in range(64):
        found = next((order for order in _paths(candidate.nest, kernel) if _wanted(order, sunk) != order), None)
        if found is None:
            return candidate
        goal = _wanted(found, sunk)
        at = next(n for n, (a, b) in enumerate(zip(found, goal, strict=True)) if a != b)
        candidate = candidate.then("reorder", *goal[at:])
    raise ScheduleError(f"tile: expected {', '.join(sunk)} inside of all other loops, got others in them")


def _wanted(order: list[str], sunk: list[str]) -> list[str]:
    return [*(x for x in order if x not in sunk), *(x for x in sunk if x in order)]


def _paths(nest: LoopNest, kernel: int) -> list[list[str]]:
    """The loops around each innermost loop, itself last."""
    found = []
    for path, s in walk_nest(nest):
        if path[0] == kernel and isinstance(s, For) and not any(isinstance(x, For) for _, x in walk_block(s.body)):
            found.append([*(x.index for x in around(nest, path).loops), s.index])
    return found


def _names(nest: LoopNest, kernel: int) -> list[str]:
    return list(dict.fromkeys(s.index for path, s in walk_nest(nest) if path[0] == kernel and isinstance(s, For)))


def shared(candidate: Candidate, kernel: int) -> Candidate:
    """The candidate with its outermost loops on all cores, where that is legal."""
    nest = candidate.nest
    for at, s in enumerate(nest.kernels[kernel].body):
        if isinstance(statement(candidate.nest, (kernel, at)), For) and _loop(candidate.nest, kernel, at).kind == "serial":
            candidate = _shared(candidate, kernel, at)
    return candidate


def _loop(nest: LoopNest, kernel: int, at: int) -> For:
    found = statement(nest, (kernel, at))
    assert isinstance(found, For)
    return found


def _shared(candidate: Candidate, kernel: int, at: int) -> Candidate:
    """The outermost loop at a position on all cores, with loops right inside of it where it is short."""
    loop = _loop(candidate.nest, kernel, at)
    length = constant(sub(loop.stop, loop.start))
    if length is not None and length < 2:
        return candidate
    try:
        return candidate.then("parallel", loop.index)
    except ScheduleError:
        return candidate


__all__ = ["loop_paths", "shared", "tiled_by"]
