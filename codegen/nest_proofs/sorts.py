"""Counting sorts: that offsets and order stay in their ranges, and that every position gets its point, is no question of affine sets.

    offsets[:] = 0
    for points:  keys[at] = key;  if key < extent - 1: offsets[key + 2] += 1
    for v in range(2, extent + 1):  offsets[v] += offsets[v - 1]
    for p in range(points):  [if keys[p] >= 0:]  order[offsets[keys[p] + 1]] = p;  offsets[keys[p] + 1] += 1
    [for p in range(offsets[extent], points):  order[p] = 0]

What follows from this form is known: offsets lie in 0 ... points and rise, order is written at different places below points, all of them
where every point has a key or the rest is filled. So this form is what is checked, statement by statement, with what it needs: nothing else
writes these buffers, the steps follow each other, offsets are cleared whole, each key is in 0 ... extent - 1 (or none: -1, tested), and no
two iterations keep a key at one place.
"""

from __future__ import annotations

from tensorexpr.codegen.dependence.pairs import common
from tensorexpr.codegen.facts.places import Home, Touch
from tensorexpr.codegen.facts.questions import Questions
from tensorexpr.codegen.facts.scope import Scope
from tensorexpr.codegen.nest_proofs.races import meet
from tensorexpr.codegen.nest_proofs.written import Written
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, const
from tensorexpr.records import record
from tensorexpr.regions import affine_of

ZERO, ONE, TWO = const(0), const(1), const(2)


@record
class Sort:
    """A counting sort whose form holds: the store that places points, and its buffers."""

    placing: Touch
    keys: Home
    offsets: Home
    order: Home


def sorts_of(written: Written, questions: Questions, start: Scope) -> list[Sort]:
    """The counting sorts of a nest."""
    homes = {home.buffer.name: home for home in written.stores}
    found = []
    for stores in list(written.stores.values()):
        for placing in stores:
            sort = _sort(placing, homes, written, questions, start)
            if sort is not None:
                found.append(sort)
    return found


def _sort(placing: Touch, homes: dict[str, Home], written: Written, questions: Questions, start: Scope) -> Sort | None:
    *batch, place = placing.indices or (ZERO,)
    if not (isinstance(place, Access) and place.indices and isinstance(placing.value, Index)):
        return None
    key = _less_one(place.indices[-1])
    point = placing.value
    if not isinstance(key, Access) or key.indices != (*batch, point) or place.indices[:-1] != tuple(batch):
        return None
    if place.tensor not in homes or key.tensor not in homes:
        return None
    offsets, keys, order = homes[place.tensor], homes[key.tensor], placing.home
    clears = [t for t in written.stores[offsets] if t.value == ZERO]
    counts = [t for t in written.stores[offsets] if _is_count(t, keys)]
    sums = [t for t in written.stores[offsets] if _is_sum(t)]
    moves = [t for t in written.stores[offsets] if t.indices == place.indices and t.value == apply("add", place, ONE)]
    none = [t for t in written.stores[keys] if t.value == const(-1)]
    kept = [t for t in written.stores[keys] if t not in none]
    rests = [t for t in written.stores[order] if t is not placing]
    if len(written.stores[offsets]) != len(clears) + 3 or not (len(counts) == len(sums) == len(moves) == len(kept) == 1):
        return None
    (count,), (total,), (move,), (keep,) = counts, sums, moves, kept
    holds = (
        _follow(clears + none, keep, count, total, placing, move)
        and _extents(offsets, keys, order, total, placing, count, keep, key)
        and _guarded(placing, key, bool(none))
        and _rests(rests, placing, place, offsets, order, bool(none))
        and _cleared(offsets, keep, total, placing, written, start)
        and _keys(keep, offsets, questions)
        and all(meet(loop, keep, keep, questions).holds for loop in keep.loops[common(keep, placing) :])
    )
    return Sort(placing, keys, offsets, order) if holds else None


def _less_one(expr: Expr) -> Expr | None:
    return expr.args[0] if isinstance(expr, Apply) and expr.op.name == "add" and expr.args[1] == ONE else None


def _is_count(touch: Touch, keys: Home) -> bool:
    """offsets[key + 2] += 1"""
    at = touch.indices[-1]
    own = Access(touch.home.buffer.name, touch.indices, touch.home.buffer.dtype)
    return (
        isinstance(at, Apply) and at.op.name == "add" and at.args[1] == TWO
        and isinstance(at.args[0], Access) and at.args[0].tensor == keys.buffer.name and at.args[0].indices[:-1] == touch.indices[:-1]
        and touch.value == apply("add", own, ONE)
    )  # fmt: skip


def _is_sum(touch: Touch) -> bool:
    """offsets[v] += offsets[v - 1], in a loop over v"""
    *batch, v = touch.indices or (ZERO,)
    name, dtype = touch.home.buffer.name, touch.home.buffer.dtype
    before = Access(name, (*batch, apply("sub", v, ONE)), dtype)
    return touch.value == apply("add", Access(name, touch.indices, dtype), before) and bool(touch.loops) and v == Index(_last(touch))


def _last(touch: Touch) -> str:
    return touch.loops[-1].statement.index


def _follow(first: list[Touch], keep: Touch, count: Touch, total: Touch, placing: Touch, move: Touch) -> bool:
    """The steps one after the other: no loop around two of them but those around all, and those over the batch around the last two."""
    around = common(keep, placing)
    batch = tuple(loop.statement.index for loop in total.loops[around:-1])
    return (
        all(t.number < keep.number and common(t, keep) <= around for t in first)
        and keep.loops == count.loops and keep.number < count.number < total.number < placing.number < move.number
        and common(keep, total) == around and total.loops[:-1] == placing.loops[:-1] and placing.loops == move.loops
        and tuple(map(Index, batch)) == total.indices[:-1] == placing.indices[:-1]
        and all(loop.statement.kind in ("serial", "unroll") for loop in placing.loops[around:] + total.loops[around:])
        and count.indices[-1].args[0] == Access(keep.home.buffer.name, keep.indices, keep.home.buffer.dtype)  # type: ignore[attr-defined]  # matched as an operation above
        and move.scope.facts == placing.scope.facts
    )  # fmt: skip


def _extents(offsets: Home, keys: Home, order: Home, total: Touch, placing: Touch, count: Touch, keep: Touch, key: Access) -> bool:
    """The loops go over all keys and all points; the last key is not counted, for none comes after it."""
    points, last = keys.buffer.shape[-1], affine_of(offsets.buffer.shape[-1])
    over_v, over_p = total.loops[-1].statement, placing.loops[-1].statement
    own = [f.condition for f in count.scope.facts if f.axis is None and f not in keep.scope.facts]
    counted = Access(key.tensor, keep.indices, key.dtype)
    return (
        last is not None
        and over_v.start == TWO and affine_of(over_v.stop) == last
        and over_p.start == ZERO and over_p.stop == points == order.buffer.shape[-1]
        and len(own) == 1 and isinstance(own[0], Apply) and own[0].op.name == "lt" and own[0].args[0] == counted
        and affine_of(own[0].args[1]) == last - 2
        and all(f.axis is not None or f.sure for f in total.scope.facts if f not in keep.scope.facts)
    )  # fmt: skip


def _guarded(placing: Touch, key: Access, partial: bool) -> bool:
    """Points without a key are not placed, all others are."""
    own = {f.condition for f in placing.scope.facts if f.axis is None and not f.sure and f not in placing.loops[0].scope.facts}
    return own == ({apply("ge", key, ZERO)} if partial else set())


def _rests(rests: list[Touch], placing: Touch, place: Access, offsets: Home, order: Home, partial: bool) -> bool:
    """What is behind the last point with a key is filled."""
    if not partial:
        return not rests
    if len(rests) != 1 or rests[0].value != ZERO or rests[0].number < placing.number or rests[0].loops[:-1] != placing.loops[:-1]:
        return False
    loop, begin = rests[0].loops[-1].statement, rests[0].loops[-1].statement.start
    end = affine_of(offsets.buffer.shape[-1])
    return (
        isinstance(begin, Access) and begin.tensor == place.tensor and begin.indices[:-1] == place.indices[:-1]
        and end is not None and affine_of(begin.indices[-1]) == end - 1
        and loop.stop == order.buffer.shape[-1] and rests[0].indices == (*place.indices[:-1], Index(loop.index))
    )  # fmt: skip


def _cleared(offsets: Home, keep: Touch, total: Touch, placing: Touch, written: Written, start: Scope) -> bool:
    around = common(keep, placing)
    scope, indices = (keep.loops[around - 1].scope if around else start), []
    for axis, extent in enumerate(offsets.buffer.shape):
        indices.append(Index(f"axis {axis}"))
        scope = scope.loop(f"axis {axis}", ZERO, extent)
    whole = Touch(offsets, tuple(indices), False, keep.loops[:around], scope, keep.statement, keep.number, keep.kernel)
    return written.covered(whole, max(written.effort, 1)).holds is True


def _keys(keep: Touch, offsets: Home, questions: Questions) -> bool:
    """Each key that is kept is one, by its own terms."""
    assert keep.value is not None
    extent = offsets.buffer.shape[-1]
    below = const(int(extent.value) - 1) if isinstance(extent, Const) else apply("sub", extent, ONE)
    return questions.inside(keep.value, below, keep.scope).holds is True
