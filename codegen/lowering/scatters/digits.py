"""A sort plan on a GPU: points go to their places by one digit of their keys after the other, the least first.

    for c in parallel:                                                   a block
        for t in lanes: mine[d, t] = how many points of thread t have digit d, which are next to each other
        for d in lanes: counts[c, d] = the sum of mine[d, :]
    counts[c, d] = where the first point of chunk c with digit d goes    one block: of smaller digits, then of chunks before
    for c in parallel:
        for t in lanes: mine[d, t] once more
        for d in lanes: mine[d, t] = counts[c, d] + the sum of mine[d, :t]
        for t in lanes: keys and points of thread t to mine[d, t], in their order
    for v in parallel: offsets[v] = the first place whose key is v or more, by bisection

Each pass keeps the order of what it finds, so the result is the one order that is sorted and stable, for any number of chunks. Time hangs
neither on keys nor on how they collide. Points without a key get the key behind the last one, and zeros in their places at the end. Where a
check has refused a key nothing of this runs.

A digit is some bits of the key. A thread loads a few points at once, which then do not wait for each other. Where the number of points is
open, so is how often it does; where the number of keys is, the passes after the first are a loop, from one of two buffers into the other.
Each point of a batch has chunks, digits and offsets of its own, side by side with those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, floordiv, maximum, minimum, mul, sub
from tensorexpr.codegen.lowering.scatters.sorting import NO_KEY, Place, Sorting, unflattened
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.ir import Access, Expr, Index, apply, const, product
from tensorexpr.records import record
from tensorexpr.traversal import fresh_name

MANY_POINTS = 1 << 9
"""Points from which on many threads sort."""
MOST_BITS = 7
"""Bits of a digit."""
OWN = 16
"""Points that a thread loads at once."""
COUNTERS = 1 << 12
"""Counters of a block, one of each thread for each digit, where that makes neither fewer nor more threads than `THREADS`."""
THREADS = (32, 256)
MOST_CHUNKS = 1 << 10
"""Chunks of points, of all plans of a batch together: one block goes through the counts of all."""
SCANNERS = 1 << 10
"""Threads of that block."""
MOST_PLACES = 48
"""Halvings of an open number of points until one is left."""
WORDS = ("sorted_keys", "points", "counts")
"""What the buffers of a sort are called."""


@record
class Digits:
    """A sort by `passes` digits of `bits` bits, in `chunks`, of whose points each thread loads `OWN` so many times (`steps`). Its buffers
    by what they hold: `keys` and `points` behind each pass (in one of
    two slots in turns; where the number of passes is known the last leaves its points in the plan itself), `counts` of each
    chunk and digit, which become places."""

    passes: Expr
    bits: int
    chunks: Expr
    steps: Expr
    keys: str
    points: str
    counts: str

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return _threads(self.bits)

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
        }
        if self.passes == ONE:
            del shapes[self.points]
        return tuple(Buffer(name, dtypes.int64, shape, "workspace", (0, most)) for name, (shape, most) in shapes.items())


def _threads(bits: int) -> int:
    least, most = THREADS
    return max(least, min(most, COUNTERS >> bits))


def digits_of(sorting: Sorting) -> tuple[Expr, int, Expr, Expr] | None:
    """Passes, bits of a digit, chunks and steps for a plan; None where one thread sorts as well."""
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
    batch = constant(product(tuple(axis.stop for axis in sorting.batch)))
    most, step = max(1, MOST_CHUNKS // (batch or THREADS[0])), _threads(bits) * OWN
    steps = maximum(ONE, _ceil(sorting.points, const(step * most)))
    return passes, bits, maximum(ONE, _ceil(sorting.points, mul(steps, const(step)))), steps


def _ceil(count: Expr, each: Expr) -> Expr:
    """How many of `each` so many are, the last one cut off."""
    known, size = constant(count), constant(each)
    if known is not None and size is not None:
        return const(-(-known // size))
    return apply("floordiv", apply("add", count, apply("sub", each, ONE)), each)


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
        self.q, self.c, self.d, self.s, self.k, self.t = (Index(fresh_name(name, taken)) for name in ("q", "c", "d", "s", "k", "t"))
        *batch, chunk = unflattened(self.q, (*(axis.stop for axis in sorting.batch), plan.chunks))
        self.batch, self.chunk = tuple(batch), chunk
        known = constant(number)
        self.to: Expr = const(known % 2) if known is not None else apply("mod", number, const(2))
        from_: Expr = const(1 - known % 2) if known is not None else apply("sub", ONE, self.to)
        own = mul(plan.steps, const(OWN))
        thread = add(mul(self.chunk, mul(own, const(plan.threads))), mul(self.t, own))
        self.p = add(add(thread, mul(self.s, const(OWN))), self.k)
        self.is_there = apply("lt", self.p, sorting.points)
        shift = const(plan.bits * known) if known is not None else apply("mul", number, const(plan.bits))
        self.number, self.shift = known, shift
        self.is_last = add(number, ONE) == plan.passes
        kept = self.local("kept", OWN, least=-1 if known == 0 and sorting.partial else 0, most=sorting.extent)
        self.held = [(kept, sorting.keys((*self.batch, self.p)) if known == 0 else (plan.keys, (from_, *self.batch, self.p)))]
        self.key: Expr = Access(kept.name, (self.k,), dtypes.int64)
        self.point = self.p
        if known == 0:
            self.key = apply("where", apply("lt", self.key, ZERO), sorting.extent, self.key) if sorting.partial else self.key
        else:
            before = self.local("before", OWN, most=behind(sorting.points))
            self.held.append((before, (plan.points, (from_, *self.batch, self.p))))
            self.point = Access(before.name, (self.k,), dtypes.int64)

    def local(self, name: str, *shape: int, least: int = 0, most: Expr | None = None) -> Buffer:
        """A buffer of a thread or of a block, of numbers of points where nothing else is said."""
        most = self.sorting.points if most is None else most
        return Buffer(self.fresh(name), dtypes.int64, tuple(map(const, shape)), "local", (least, most))

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
        plan, chunks = self.plan, self.plan.chunks
        mine, total, key, place = self.local("mine", 1 << plan.bits, plan.threads), self.local("total"), self.key_of(), self.local("place")
        of_chunk, sum_, held, at = (*self.batch, self.chunk, self.d), _read(total), _read(key), _read(place)
        added = Store(total.name, (), apply("add", sum_, self.own(mine)))
        summed = self.digits(Alloc(total, (Store(total.name, (), ZERO), self.each_thread(added), Store(plan.counts, of_chunk, sum_))))
        begun = self.running(mine, (self.d, self.t), total)
        begins = Store(total.name, (), Access(plan.counts, of_chunk, dtypes.int64))
        placed = self.digits(Alloc(total, (begins, self.each_thread(begun))))
        next_ = self.own(mine, self.digit(held))
        there = self.sorting.order((*self.batch, at)) if self.is_last else (plan.points, (self.to, *self.batch, at))
        moved: Block = (
            Store(key.name, (), self.key),
            Store(place.name, (), next_),
            Store(plan.keys, (self.to, *self.batch, at), held),
            Store(*there, self.point),
            Store(mine.name, next_.indices, apply("add", at, ONE)),
        )
        sent = self.threads(self.points(self.held, (Alloc(key, (Alloc(place, moved),)),)))
        counted = self.counted(mine)
        return (
            self.over(chunks, Alloc(mine, (counted, summed))),
            self.over(ONE, *self.scanned()),
            self.over(chunks, Alloc(mine, (counted, placed, sent))),
        )

    def over(self, extent: Expr, *body: Stmt) -> For:
        return For(self.q.name, ZERO, _times(self.sorting, extent), body, "parallel")

    def threads(self, *body: Stmt) -> For:
        return For(self.t.name, ZERO, const(self.plan.threads), body, "vectorize")

    def digits(self, *body: Stmt) -> For:
        return For(self.d.name, ZERO, self.base, body, "vectorize")

    def each_thread(self, *body: Stmt) -> For:
        return For(self.t.name, ZERO, const(self.plan.threads), body)

    def key_of(self) -> Buffer:
        return self.local("key", most=self.sorting.extent)

    def own(self, mine: Buffer, digit: Expr | None = None) -> Access:
        """The counter of a thread for a digit."""
        return Access(mine.name, (self.d if digit is None else digit, self.t), dtypes.int64)

    def points(self, held: Sequence[tuple[Buffer, Place]], body: Block) -> For:
        """The points of a thread, some at once: what is `held` of them is loaded first."""
        loads: Block = ()
        for buffer, place in held:
            read, zero = Store(buffer.name, (self.k,), _element(place)), Store(buffer.name, (self.k,), ZERO)
            loads += (For(self.k.name, ZERO, const(OWN), (If(self.is_there, (read,), (zero,)),), "unroll"),)
        block: Block = (*loads, For(self.k.name, ZERO, const(OWN), (If(self.is_there, body),), "unroll"))
        for buffer, _ in reversed(held):
            block = (Alloc(buffer, block),)
        return For(self.s.name, ZERO, self.plan.steps, block)

    def counted(self, mine: Buffer) -> For:
        """How many points each thread has of each digit."""
        key = self.key_of()
        own = self.own(mine, self.digit(_read(key)))
        more: Block = (Store(key.name, (), self.key), Store(mine.name, own.indices, apply("add", own, ONE)))
        cleared = For(self.d.name, ZERO, self.base, (Store(mine.name, (self.d, self.t), ZERO),))
        return self.threads(cleared, self.points(self.held[:1], (Alloc(key, more),)))

    def running(self, buffer: Buffer, at: tuple[Expr, ...], total: Buffer) -> Alloc:
        """A number becomes the sum of those before it, which `total` has."""
        next_ = self.local("next")
        read = Store(next_.name, (), Access(buffer.name, at, dtypes.int64))
        return Alloc(next_, (read, Store(buffer.name, at, _read(total)), Store(total.name, (), apply("add", _read(total), _read(next_)))))

    def scanned(self) -> Block:
        """Counts become places: threads for each digit share the chunks."""
        plan, c, d, width = self.plan, self.c, self.d, 1 << self.plan.bits
        groups = max(1, SCANNERS // width)
        parts, totals, total = self.local("parts", groups * width), self.local("totals", width), self.local("total")
        batch = unflattened(self.q, tuple(axis.stop for axis in self.sorting.batch)) if self.sorting.batch else ()
        group, digit = floordiv(self.t, width), apply("mod", self.t, self.base)
        each = _ceil(plan.chunks, const(groups))
        chunks = minimum(plan.chunks, mul(group, each)), minimum(plan.chunks, mul(add(group, ONE), each))
        counts = Buffer(plan.counts, dtypes.int64, (), "workspace")
        at, sum_ = (*batch, c, digit), _read(total)

        def more(found: Access) -> Store:
            return Store(total.name, (), apply("add", sum_, found))

        def lanes(extent: int, index: Index, *body: Stmt) -> For:
            return For(index.name, ZERO, const(extent), (Alloc(total, body),), "vectorize")

        below = Index(self.s.name)
        part = add(mul(c, self.base), d)
        summed = For(c.name, *chunks, (more(Access(plan.counts, at, dtypes.int64)),))
        before = For(below.name, ZERO, digit, (more(Access(totals.name, (below,), dtypes.int64)),))
        block: Block = (
            lanes(groups * width, self.t, Store(total.name, (), ZERO), summed, Store(parts.name, (self.t,), sum_)),
            lanes(
                width,
                d,
                Store(total.name, (), ZERO),
                For(c.name, ZERO, const(groups), (self.running(parts, (part,), total),)),
                Store(totals.name, (d,), sum_),
            ),
            lanes(
                groups * width,
                self.t,
                Store(total.name, (), Access(parts.name, (self.t,), dtypes.int64)),
                before,
                For(c.name, *chunks, (self.running(counts, at, total),)),
            ),
        )
        return (Alloc(parts, (Alloc(totals, block),)),)


def _read(buffer: Buffer) -> Access:
    """The number that a buffer of a thread holds."""
    return Access(buffer.name, (), dtypes.int64)


def _element(place: Place) -> Access:
    return Access(*place, dtypes.int64)


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
