"""A sort plan on a GPU: points go to their places digit by digit of their keys, the least first, by many threads.

    for c in parallel: counts[c, d] of chunk c, for each digit d          a thread for each chunk of points
    for d in parallel: counts[c, d] = how many chunks before c have;  starts[d + 1] = how many there are
    starts[d + 1] += starts[d]                                            one thread: there are few digits
    for c in parallel: keys and points of chunk c to starts[d] + counts[c, d], in their order
    for v in parallel: offsets[v] = the first place whose key is v or more, by bisection

Each pass keeps the order of what it finds, so the result is the one order that is sorted and stable, for any number of chunks. Time hangs
neither on keys nor on how they collide: no thread does more than its chunk, its digit or its bisection. Points without a key get the
key behind the last one, and zeros in their places at the end. So do points whose key a check has refused: what is launched behind the
check runs all the same, and must stay inside of its buffers.
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.arithmetic import ONE, ZERO, add, mul
from tensorexpr.codegen.lowering.sorting import NO_KEY, Sorting
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Store
from tensorexpr.ir import Access, Expr, Index, apply, const
from tensorexpr.records import record
from tensorexpr.traversal import fresh_name

MANY_POINTS = 1 << 9
"""Points from which on many threads sort."""
MOST_DIGITS = 1 << 10
"""Values of a digit."""
CHUNKS = (32, 1 << 12)
"""Chunks of points, at least and at most."""


@record
class Digits:
    """A sort by `passes` digits of `base` values, in `chunks`. Its buffers, by what they hold: two for `keys` and one for `points` in
    the order of all passes but the last (which writes the plan's own), `counts` and `starts`."""

    passes: int
    base: int
    chunks: int
    keys: tuple[str, str]
    points: str
    counts: str
    starts: str


def digits_of(points: int, extent: int) -> tuple[int, int, int] | None:
    """Passes, values of a digit and chunks for so many points and keys; None where one thread sorts as well."""
    if points < MANY_POINTS:
        return None
    passes = 1
    while MOST_DIGITS**passes < extent + 1:
        passes += 1
    base = 1
    while base**passes < extent + 1:
        base *= 2
    least, most = CHUNKS
    return passes, base, max(least, min(most, points // max(base, 64)))


def without_keys(sorting: Sorting, taken: set[str]) -> Block:
    """No point has a key yet."""
    p = Index(fresh_name("p", taken))
    return (For(p.name, ZERO, sorting.points, (Store(*sorting.keys((p,)), NO_KEY),), "parallel"),)


def sorted_by_digits(sorting: Sorting, plan: Digits, points: int, extent: int, taken: set[str]) -> Block:
    """The points in order of their keys, which are kept by then. There is no batch."""
    block: Block = ()
    for number in range(plan.passes):
        block += _Pass(sorting, plan, points, extent, number, taken).block()
    return (*block, *_offsets(sorting, plan, points, extent, taken))


class _Pass:
    """One digit."""

    def __init__(self, sorting: Sorting, plan: Digits, points: int, extent: int, number: int, taken: set[str]) -> None:
        self.sorting, self.plan, self.number = sorting, plan, number
        self.c, self.d, self.p = (Index(fresh_name(name, taken)) for name in ("c", "d", "p"))
        chunk = const(-(-points // plan.chunks))
        self.mine = (mul(self.c, chunk), apply("minimum", const(points), mul(add(self.c, ONE), chunk)))
        if number:
            # Of the two buffers for keys a pass writes the one that the last did not.
            self.key: Expr = Access(plan.keys[(number - 1) % 2], (self.p,), dtypes.int64)
            self.point: Expr = Access(self._order(number - 1), (self.p,), dtypes.int64)
        else:
            name, indices = sorting.keys((self.p,))
            kept = Access(name, indices, dtypes.int64)
            self.key = apply("where", apply("lt", kept, ZERO), const(extent), kept)
            self.point = self.p
        digit = self.key if number == 0 else apply("floordiv", self.key, const(plan.base**number))
        self.digit = digit if number == plan.passes - 1 else apply("mod", digit, const(plan.base))

    def _order(self, number: int) -> str:
        """Where a pass leaves the points, so that the last leaves them in the plan and each reads what it does not write."""
        mine = self.sorting.order((ZERO,))[0]
        return mine if (self.plan.passes - 1 - number) % 2 == 0 else self.plan.points

    def block(self) -> Block:
        plan, c, d = self.plan, self.c, self.d
        own, count = (Access(plan.counts, (c, at), dtypes.int64) for at in (self.digit, d))
        end, begin = (Access(plan.starts, (at,), dtypes.int64) for at in (add(d, ONE), d))
        place = apply("add", Access(plan.starts, (self.digit,), dtypes.int64), own)
        base = const(plan.base)
        one_more = Store(plan.counts, own.indices, apply("add", own, ONE))
        before: Block = (
            Store(plan.starts, end.indices, apply("add", end, count)),
            Store(plan.counts, count.indices, apply("sub", end, count)),
        )
        moved: Block = (
            Store(plan.keys[self.number % 2], (place,), self.key),
            Store(self._order(self.number), (place,), self.point),
            one_more,
        )
        counted: Block = (For(d.name, ZERO, base, (Store(plan.counts, count.indices, ZERO),)), For(self.p.name, *self.mine, (one_more,)))
        return (
            self._chunks(counted),
            For(d.name, ZERO, base, (Store(plan.starts, end.indices, ZERO), For(c.name, ZERO, const(plan.chunks), before)), "parallel"),
            Store(plan.starts, (ZERO,), ZERO),
            For(d.name, ZERO, base, (Store(plan.starts, end.indices, apply("add", end, begin)),)),
            self._chunks((For(self.p.name, *self.mine, moved),)),
        )

    def _chunks(self, body: Block) -> For:
        return For(self.c.name, ZERO, const(self.plan.chunks), body, "parallel")


def _offsets(sorting: Sorting, plan: Digits, points: int, extent: int, taken: set[str]) -> Block:
    """Where each key begins, and zeros for the points behind the last."""
    v, p, step = (Index(fresh_name(name, taken)) for name in ("v", "p", "step"))
    low, high = (Buffer(fresh_name(name, taken), dtypes.int64, (), "local") for name in ("low", "high"))
    first, last = (Access(b.name, (), dtypes.int64) for b in (low, high))
    middle = apply("floordiv", apply("add", first, last), const(2))
    key = Access(plan.keys[(plan.passes - 1) % 2], (middle,), dtypes.int64)
    halved: Block = (If(apply("lt", key, v), (Store(low.name, (), apply("add", middle, ONE)),), (Store(high.name, (), middle),)),)
    body: Block = (
        Store(low.name, (), ZERO),
        Store(high.name, (), const(points)),
        For(step.name, ZERO, const(points.bit_length()), (If(apply("lt", first, last), halved),)),
        Store(*sorting.offsets((v,)), first),
    )
    found: Block = (For(v.name, ZERO, const(extent + 1), (Alloc(low, (Alloc(high, body),)),), "parallel"),)
    if sorting.partial:
        end, indices = sorting.offsets((const(extent),))
        behind = apply("ge", p, Access(end, indices, dtypes.int64))
        found += (For(p.name, ZERO, const(points), (If(behind, (Store(*sorting.order((p,)), ZERO),)),), "parallel"),)
    return found
