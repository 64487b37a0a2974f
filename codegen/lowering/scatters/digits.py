"""A sort plan on a GPU: points go to their places digit by digit of their keys, the least first, by many threads.

    for c in parallel: counts[c, d] of chunk c, for each digit d          a thread for each chunk of points
    for g, d in parallel: sums[g, d] of the chunks of group g
    for d in parallel: begins[g, d] = how many the groups before g have;  totals[d] = how many there are
    for g, d in parallel: places[c, d] = totals of the digits before d + begins[g, d] + counts of the chunks of g before c
    for c in parallel: keys and points of chunk c to places[c, d], in their order
    for v in parallel: offsets[v] = the first place whose key is v or more, by bisection

Each pass keeps the order of what it finds, so the result is the one order that is sorted and stable, for any number of chunks. Time hangs
neither on keys nor on how they collide: no thread does more than its chunk, a group of chunks (there are about as many groups as a group
has chunks), or its bisection. Digits are small, so that chunks are short. Points without a key get the key behind the last one, and zeros
in their places at the end. So do points whose key a check has refused: what is launched behind the check runs all the same, and must stay
inside of its buffers.

A digit is some bits of the key. Where the number of points is open, so is that of the chunks; where the number of keys is, the passes after
the first are a loop, from one of two buffers into the other. Each point of a batch has chunks, digits and offsets of its own, side by side
with those of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, floordiv, sub
from tensorexpr.codegen.lowering.scatters.sorting import NO_KEY, Sorting, unflattened
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Store
from tensorexpr.ir import Access, Expr, Index, apply, const, product
from tensorexpr.records import record
from tensorexpr.traversal import fresh_name

MANY_POINTS = 1 << 9
"""Points from which on many threads sort."""
MOST_BITS = 7
"""Bits of a digit."""
CHUNKS = (32, 1 << 15)
"""Chunks of points, of all plans of a batch together, at least and at most."""
LEAST_CHUNK = 64
"""Points of a chunk where there are enough."""
GROUP = 64
"""Chunks of a group where their number is open."""
MOST_PLACES = 48
"""Halvings of an open number of points until one is left."""
WORDS = ("sorted_keys", "points", "counts", "places", "sums", "begins", "totals")
"""What the buffers of a sort are called."""


@record
class Digits:
    """A sort by `passes` digits of `bits` bits, in `chunks`. Its buffers by what they hold: `keys` and `points` behind each pass (in one of
    two slots in turns; where the number of passes is known the last leaves its points in the plan itself), `counts` and `places` of each
    chunk and digit, `sums` and `begins` of each group of chunks and digit, `totals` of each digit."""

    passes: Expr
    bits: int
    chunks: Expr
    keys: str
    points: str
    counts: str
    places: str
    sums: str
    begins: str
    totals: str

    @property
    def group(self) -> int:
        """Chunks of a group: about as many as there are groups."""
        known = constant(self.chunks)
        return GROUP if known is None else max(1, isqrt(max(0, known - 1)) + 1)

    @property
    def groups(self) -> Expr:
        """The number of groups."""
        known = constant(self.chunks)
        return const(-(-known // self.group)) if known is not None else floordiv(add(self.chunks, const(self.group - 1)), self.group)

    @property
    def slots(self) -> int:
        """How many slots the keys have."""
        return 1 if self.passes == ONE else 2

    def buffers(self, sorting: Sorting) -> tuple[Buffer, ...]:
        """Every buffer that is needed."""
        batch, base, slots = tuple(axis.stop for axis in sorting.batch), const(1 << self.bits), const(self.slots)
        last, number = behind(sorting.points), sorting.points
        shapes: dict[str, tuple[tuple[Expr, ...], Expr]] = {
            self.keys: ((slots, *batch, number), sorting.extent),
            self.points: ((slots, *batch, number), last),
            self.counts: ((*batch, self.chunks, base), number),
            self.places: ((*batch, self.chunks, base), number),
            self.sums: ((*batch, self.groups, base), number),
            self.begins: ((*batch, self.groups, base), number),
            self.totals: ((*batch, base), number),
        }
        if self.passes == ONE:
            del shapes[self.points]
        return tuple(Buffer(name, dtypes.int64, shape, "workspace", (0, most)) for name, (shape, most) in shapes.items())


def digits_of(sorting: Sorting) -> tuple[Expr, int, Expr] | None:
    """Passes, bits of a digit and chunks for a plan; None where one thread sorts as well."""
    points, extent = constant(sorting.points), constant(sorting.extent)
    if extent == 0 or (points is not None and points < MANY_POINTS):
        return None
    bits = MOST_BITS
    passes: Expr = ONE
    if extent is None:
        for k in range(1, -(-63 // MOST_BITS)):
            more = apply("ge", sorting.extent, const(1 << MOST_BITS * k))
            passes = apply("add", passes, apply("where", more, ONE, ZERO))
    else:
        count = -(-extent.bit_length() // MOST_BITS)  # keys up to the extent itself, which is that of points without one
        passes, bits = const(count), -(-extent.bit_length() // count)
    batch = product(tuple(axis.stop for axis in sorting.batch))
    least, most = CHUNKS
    size = max(1 << bits, LEAST_CHUNK)
    if points is not None:
        known = constant(batch)
        return passes, bits, const(max(least if known == 1 else 1, min(points // size, most // max(1, known or least))))
    several = constant(batch) != 1
    upper = const(max(1, most // (constant(batch) or least))) if several else const(most)
    return passes, bits, apply("maximum", ONE if several else const(least), apply("minimum", upper, floordiv(sorting.points, size)))


def without_keys(sorting: Sorting, taken: set[str]) -> Block:
    """No point has a key yet."""
    p = Index(fresh_name("p", taken))
    *batch, at = unflattened(p, (*(axis.stop for axis in sorting.batch), sorting.points))
    return (For(p.name, ZERO, _times(sorting, sorting.points), (Store(*sorting.keys((*batch, at)), NO_KEY),), "parallel"),)


def sorted_by_digits(sorting: Sorting, plan: Digits, taken: set[str], fresh: Callable[[str], str]) -> Block:
    """The points in order of their keys, which are kept by then; no index is in `taken`, buffers have `fresh` names."""
    block = _Pass(sorting, plan, ZERO, taken, fresh).block()
    count = constant(plan.passes)
    if count is not None:
        for known in range(1, count):
            block += _Pass(sorting, plan, const(known), taken, fresh).block()
        return (*block, *_offsets(sorting, plan, taken, fresh))
    number = Index(fresh_name("digit", taken))
    again = For(number.name, ONE, plan.passes, _Pass(sorting, plan, number, taken, fresh).block())
    p = Index(fresh_name("p", taken))
    *batch, at = unflattened(p, (*(axis.stop for axis in sorting.batch), sorting.points))
    found = Access(plan.points, (_last(plan), *batch, at), dtypes.int64)
    copied = For(p.name, ZERO, _times(sorting, sorting.points), (Store(*sorting.order((*batch, at)), found),), "parallel")
    return (*block, again, copied, *_offsets(sorting, plan, taken, fresh))


def behind(extent: Expr) -> Expr:
    """The last of so many."""
    known = constant(extent)
    return sub(extent, ONE) if known is None else const(max(0, known - 1))


def _times(sorting: Sorting, extent: Expr) -> Expr:
    """So many for each point of the batch."""
    return product((*(axis.stop for axis in sorting.batch), extent))


def _last(plan: Digits) -> Expr:
    """The slot that the last pass has written."""
    before = sub(plan.passes, ONE)
    count = constant(before)
    return const(count % 2) if count is not None else apply("mod", before, const(2))


class _Pass:
    """One digit: the one of the least weight at number 0, or any of the others."""

    def __init__(self, sorting: Sorting, plan: Digits, number: Expr, taken: set[str], fresh: Callable[[str], str]) -> None:
        self.sorting, self.plan, self.fresh = sorting, plan, fresh
        self.base = const(1 << plan.bits)
        self.q, self.c, self.d, self.p = (Index(fresh_name(name, taken)) for name in ("q", "c", "d", "p"))
        *batch, chunk = unflattened(self.q, (*(axis.stop for axis in sorting.batch), plan.chunks))
        self.batch, self.chunk = tuple(batch), chunk
        points = sorting.points
        length: Expr = apply("floordiv", apply("add", points, apply("sub", plan.chunks, ONE)), plan.chunks)
        whole, parts = constant(points), constant(plan.chunks)
        if whole is not None and parts is not None:
            length = const(-(-whole // parts))
        first = apply("mul", chunk, length)
        self.mine = apply("minimum", points, first), apply("minimum", points, apply("add", first, length))
        known = constant(number)
        self.to: Expr = const(known % 2) if known is not None else apply("mod", number, const(2))
        from_: Expr = const(1 - known % 2) if known is not None else apply("sub", ONE, self.to)
        if known == 0:
            name, indices = sorting.keys((*self.batch, self.p))
            kept = Access(name, indices, dtypes.int64)
            self.key: Expr = apply("where", apply("lt", kept, ZERO), sorting.extent, kept)
            self.point: Expr = self.p
        else:
            self.key = Access(plan.keys, (from_, *self.batch, self.p), dtypes.int64)
            self.point = Access(plan.points, (from_, *self.batch, self.p), dtypes.int64)
        shift = const(plan.bits * known) if known is not None else apply("mul", number, const(plan.bits))
        self.number, self.shift = known, shift
        self.is_last = add(number, ONE) == plan.passes

    def digit(self, key: Expr) -> Expr:
        """The digit of a key."""
        plan, number = self.plan, self.number
        if number is None:
            return apply("and", apply("shift_right", key, self.shift), const((1 << plan.bits) - 1))
        # Keys are none below 0: division is a shift, of which intervals are known.
        above = key if number == 0 else apply("floordiv", key, const(1 << plan.bits * number))
        return above if plan.passes == ONE else apply("mod", above, self.base)

    def block(self) -> Block:
        """Its launches."""
        plan, p, d = self.plan, self.p, self.d
        key = Buffer(self.fresh("key"), dtypes.int64, (), "local", (0, self.sorting.extent))
        held = Access(key.name, (), dtypes.int64)
        digit = self.digit(held)
        kept = Store(key.name, (), self.key)
        own = Access(plan.counts, (*self.batch, self.chunk, digit), dtypes.int64)
        counted = Alloc(key, (kept, Store(plan.counts, own.indices, apply("add", own, ONE))))
        cleared = For(d.name, ZERO, self.base, (Store(plan.counts, (*self.batch, self.chunk, d), ZERO),))
        place = Buffer(self.fresh("place"), dtypes.int64, (), "local", (0, behind(self.sorting.points)))
        at = Access(place.name, (), dtypes.int64)
        next_ = Access(plan.places, (*self.batch, self.chunk, digit), dtypes.int64)
        there = self.sorting.order((*self.batch, at)) if self.is_last else (plan.points, (self.to, *self.batch, at))
        moved: Block = (
            kept,
            Store(place.name, (), next_),
            Store(plan.keys, (self.to, *self.batch, at), held),
            Store(*there, self.point),
            Store(plan.places, next_.indices, apply("add", at, ONE)),
        )
        return (
            self._over(plan.chunks, (cleared, For(p.name, *self.mine, (counted,)))),
            self._sums(),
            self._begins(),
            self._places(),
            self._over(plan.chunks, (For(p.name, *self.mine, (Alloc(key, (Alloc(place, moved),)),)),)),
        )

    def _over(self, extent: Expr, body: Block) -> For:
        return For(self.q.name, ZERO, _times(self.sorting, extent), body, "parallel")

    def _total(self) -> tuple[Buffer, Access]:
        total = Buffer(self.fresh("total"), dtypes.int64, (), "local", (0, self.sorting.points))
        return total, Access(total.name, (), dtypes.int64)

    def _of_group(self) -> tuple[tuple[Expr, ...], tuple[Expr, Expr]]:
        """The batch, group and digit of a thread, and the chunks of its group."""
        axes = (*(axis.stop for axis in self.sorting.batch), self.plan.groups, self.base)
        *batch, group, digit = unflattened(self.q, axes)
        size = const(self.plan.group)
        first = apply("mul", group, size)
        return (*batch, group, digit), (first, apply("minimum", self.plan.chunks, apply("add", first, size)))

    def _sums(self) -> For:
        """How many points with a digit each group of chunks has."""
        plan, c = self.plan, self.c
        (*batch, group, digit), chunks = self._of_group()
        total, here = self._total()
        more = Store(total.name, (), apply("add", here, Access(plan.counts, (*batch, c, digit), dtypes.int64)))
        body: Block = (Store(total.name, (), ZERO), For(c.name, *chunks, (more,)), Store(plan.sums, (*batch, group, digit), here))
        return self._over(product((plan.groups, self.base)), (Alloc(total, body),))

    def _begins(self) -> For:
        """How many the groups before each have, and all of them."""
        plan, g = self.plan, self.c
        *batch, digit = unflattened(self.q, (*(axis.stop for axis in self.sorting.batch), self.base))
        total, here = self._total()
        found = Access(plan.sums, (*batch, g, digit), dtypes.int64)
        step: Block = (Store(plan.begins, found.indices, here), Store(total.name, (), apply("add", here, found)))
        body: Block = (Store(total.name, (), ZERO), For(g.name, ZERO, plan.groups, step), Store(plan.totals, (*batch, digit), here))
        return self._over(self.base, (Alloc(total, body),))

    def _places(self) -> For:
        """Where the first point of each chunk with a digit goes."""
        plan, c, d = self.plan, self.c, self.d
        (*batch, group, digit), chunks = self._of_group()
        total, here = self._total()
        less = Store(total.name, (), apply("add", here, Access(plan.totals, (*batch, d), dtypes.int64)))
        found = Access(plan.counts, (*batch, c, digit), dtypes.int64)
        step: Block = (Store(plan.places, found.indices, here), Store(total.name, (), apply("add", here, found)))
        begun = Store(total.name, (), Access(plan.begins, (*batch, group, digit), dtypes.int64))
        body: Block = (begun, For(d.name, ZERO, digit, (less,)), For(c.name, *chunks, step))
        return self._over(product((plan.groups, self.base)), (Alloc(total, body),))


def _offsets(sorting: Sorting, plan: Digits, taken: set[str], fresh: Callable[[str], str]) -> Block:
    """Where each key begins, and zeros for the points behind the last."""
    v, p, step = (Index(fresh_name(name, taken)) for name in ("v", "p", "step"))
    low, high = (Buffer(fresh(name), dtypes.int64, (), "local", (0, sorting.points)) for name in ("low", "high"))
    first, last = (Access(b.name, (), dtypes.int64) for b in (low, high))
    middle = apply("floordiv", apply("add", first, last), const(2))
    axes, points = tuple(axis.stop for axis in sorting.batch), constant(sorting.points)
    values = add(sorting.extent, ONE)
    *batch, wanted = unflattened(v, (*axes, values))
    key = Access(plan.keys, (_last(plan), *batch, middle), dtypes.int64)
    halved: Block = (If(apply("lt", key, wanted), (Store(low.name, (), apply("add", middle, ONE)),), (Store(high.name, (), middle),)),)
    halvings = const(MOST_PLACES if points is None else points.bit_length())
    body: Block = (
        Store(low.name, (), ZERO),
        Store(high.name, (), sorting.points),
        For(step.name, ZERO, halvings, (If(apply("lt", first, last), halved),)),
        Store(*sorting.offsets((*batch, wanted)), first),
    )
    found: Block = (For(v.name, ZERO, _times(sorting, values), (Alloc(low, (Alloc(high, body),)),), "parallel"),)
    if sorting.partial:
        *batch, at = unflattened(p, (*axes, sorting.points))
        behind = apply("ge", at, Access(*sorting.offsets((*batch, sorting.extent)), dtypes.int64))
        zeros = If(behind, (Store(*sorting.order((*batch, at)), ZERO),))
        found += (For(p.name, ZERO, _times(sorting, sorting.points), (zeros,), "parallel"),)
    return found
