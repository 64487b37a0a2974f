"""Scans in parts: running sums, products and extremes of a GPU, which a thread alone would go along from the first element to the last.

    for i in parallel(range(0, 8)):                     for i_p in parallel(range(0, 728)):     a block for each part but the last
        s: local(f32[()])                                   totals[i, p] = the sum of x[i, p * 11520 ...]
        s[()] = 0.0                                     for i_p in parallel(range(0, 736)):     a block for each part
        for t in range(0, 1048576):           -->           carry[()] = 0.0 + the sum of totals[i, : p]
            s[()] = s[()] + x[i, t]                         for b in range(0, 3):               its tiles, one after the other
            y[i, t] = s[()]                                     tile[...] = x[i, ...]           threads side by side
                                                                own[v, c] = the sums of the few elements of thread c
                                                                s_0[c], ..., s_8[c] = those of all threads up to c, by doubling
                                                                y[i, ...] = carry[()] + s_8[c - 1] + own[v, c]

What each step adds to the state must not read it, so the additions may be taken in another order, as those of a reduction are. The order
is the same whatever runs. Where lines lie across (`y[t, i]`) a thread has a part of a line, one element after the other. One part is
enough where there are many lines: then the totals are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import prod

from tensorexpr.codegen.auto.tiles.survey import Survey
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, minimum, mul, normal, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.rewrites.expressions import substituted_in
from tensorexpr.codegen.rewrites.names import taken_names
from tensorexpr.codegen.target import Gpu
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, const
from tensorexpr.records import record, replace
from tensorexpr.simplify.rules.reduce import identity_value
from tensorexpr.traversal import bottom_up, fresh_name, tensors_read, walk

OPERATIONS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}
"""Associative operations, and the reductions of the same."""
LEAST_LINE = 64
"""Steps of a scan from which on it is taken apart."""
TEAMS = (32, 64, 128, 256)
"""Threads of a block: as few as have a line."""
OWN = 15
"""Elements of a thread at most. They are odd, so that threads side by side are in different banks of shared memory."""
BLOCKS = 8
"""Blocks of the largest team per multiprocessor that keep memory busy."""
FEW_BLOCKS = 2
"""The same with which lines are left whole, as the totals of parts read everything once more."""
THREADS = 512
"""Threads per multiprocessor that each have a part of a line."""
AHEAD = 8
"""Elements that such a thread loads at once."""
FEW_THREADS = 256
"""The same with which lines are left whole."""


@record
class _State:
    """What a scan carries: where, what it starts from, the operation of a step, and the other operand."""

    buffer: Buffer
    start: Expr
    operation: str
    term: Expr

    @property
    def old(self) -> Access:
        """The state before a step."""
        return Access(self.buffer.name, (), self.buffer.dtype)

    @property
    def new(self) -> Access:
        """The state behind it: a name that nothing else has."""
        return Access(f"{self.buffer.name}'", (), self.buffer.dtype)

    @property
    def identity(self) -> Const:
        zero = self.operation == "add" and self.buffer.dtype.is_float
        return Const(-0.0, self.buffer.dtype) if zero else identity_value(OPERATIONS[self.operation], self.buffer.dtype)

    def joined(self, before: Expr, behind: Expr) -> Expr:
        return apply(self.operation, before, behind)


@record
class _Scan:
    """A kernel that is one scan: the loops around, the loop over steps, its states, and what is stored in each step."""

    kernel: Kernel
    loops: tuple[For, ...]
    step: For
    states: tuple[_State, ...]
    stores: tuple[Store, ...]

    @property
    def length(self) -> int:
        return int(constant(self.step.stop) or 0)

    @property
    def lines(self) -> list[int]:
        return [int(constant(s.stop) or 0) for s in self.loops]


@record
class _Tile:
    """What is done with one state in a tile: buffers, loads with and without a condition, sums of threads, and the state behind it."""

    tile: Buffer
    buffers: tuple[Buffer, ...]
    loads: Block
    guarded: Block
    sums: Block
    end: Stmt


def with_scans(nest: LoopNest, target: Gpu) -> LoopNest:
    """The nest with those of its kernels taken apart that are scans of too few threads."""
    taken = taken_names(nest)
    kernels: list[Kernel] = []
    workspace = [*nest.workspace]
    for kernel in nest.kernels:
        scan = _scan_of(kernel)
        made = None if scan is None else _Parts(scan, target, taken).made(_goes_along(nest, scan))
        kernels += [kernel] if made is None else made[0]
        workspace += [] if made is None else made[1]
    same = all(a is b for a, b in zip_longest(kernels, nest.kernels))
    return nest if same else replace(nest, kernels=tuple(kernels), workspace=tuple(workspace))


def _scan_of(kernel: Kernel) -> _Scan | None:
    """A kernel as one scan of constant length whose states are sums, or the like, of what does not depend on them."""
    body, loops, buffers = kernel.body, [], []
    while len(body) == 1 and isinstance(s := body[0], For) and s.kind in ("serial", "parallel") and _is_whole(s):
        loops.append(s)
        body = s.body
    while len(body) == 1 and isinstance(inner := body[0], Alloc):
        buffers.append(inner.buffer)
        body = inner.body
    *starts, step = body if body else (None,)
    if not buffers or any(b.shape for b in buffers) or not isinstance(step, For) or step.kind != "serial" or not _is_whole(step):
        return None
    begins = {s.buffer: s.value for s in starts if isinstance(s, Store)}
    names = set(begins)
    if len(begins) != len(starts) or names != {b.name for b in buffers} or any(names & {*tensors_read(e)} for e in begins.values()):
        return None
    values: dict[str, Expr] = {}
    stores = list(_stores(step.body, values, names))
    written = {s.buffer for s in stores if isinstance(s, Store)}
    read = {name for s in stores if isinstance(s, Store) for e in (*s.indices, s.value) for name in tensors_read(e)}
    read |= {name for e in values.values() for name in tensors_read(e)}
    if any(not isinstance(s, Store) for s in stores) or written & read:
        return None
    states = []
    for buffer in buffers:
        state = _state_of(buffer, begins[buffer.name], values.get(buffer.name), names)
        if state is None:
            return None
        states.append(state)
    plain = [s for s in stores if isinstance(s, Store)]
    if any(names & {*tensors_read(i)} for s in plain for i in s.indices):
        return None
    return _Scan(kernel, tuple(loops), step, tuple(states), tuple(replace(s, value=_behind(s.value, states)) for s in plain))


def _is_whole(s: For) -> bool:
    return s.start == ZERO and constant(s.stop) is not None


def _stores(block: Block, values: dict[str, Expr], states: set[str]) -> Iterator[Stmt]:
    """The stores of a step to memory, with values of local numbers and states in their places; other statements as they are."""
    for s in block:
        match s:
            case Alloc() if not s.buffer.shape:
                values[s.buffer.name] = Const(0, s.buffer.dtype)
                yield from _stores(s.body, values, states)
            case Store():
                *indices, value = (_with_values(e, values) for e in (*s.indices, s.value))
                if s.buffer in values or s.buffer in states:
                    values[s.buffer] = value
                else:
                    yield Store(s.buffer, tuple(indices), value)
            case _:
                yield s


def _with_values(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with the values of numbers in their places."""

    def value(node: Expr) -> Expr:
        return values.get(node.tensor, node) if isinstance(node, Access) else node

    return bottom_up(e, value)


def _state_of(buffer: Buffer, start: Expr, value: Expr | None, states: set[str]) -> _State | None:
    if not isinstance(value, Apply) or value.op.name not in OPERATIONS or value.dtype is not buffer.dtype:
        return None
    old = Access(buffer.name, (), buffer.dtype)
    for own, term in (value.args, value.args[::-1]):
        if own == old and not states & {*tensors_read(term)}:
            return _State(buffer, start, value.op.name, term)
    return None


def _behind(value: Expr, states: list[_State]) -> Expr:
    """A value with the new states where it computes them."""
    known: dict[Expr, Expr] = {apply(s.operation, *pair): s.new for s in states for pair in ((s.old, s.term), (s.term, s.old))}
    return bottom_up(value, lambda node: known.get(node, node))


def _goes_along(nest: LoopNest, scan: _Scan) -> bool:
    """Whether the elements of a line lie side by side."""
    survey = Survey(replace(nest, kernels=(scan.kernel,)), 0)
    states = {s.buffer.name for s in scan.states}
    found = [*scan.stores, *(a for e in (*(s.term for s in scan.states), *(s.value for s in scan.stores)) for a in walk(e))]
    touched = [a for a in found if isinstance(a, Store) or (isinstance(a, Access) and a.tensor.rstrip("'") not in states)]
    strides = [survey.stride(a, scan.step.index) for a in touched]
    return 2 * sum(abs(n) == 1 for n in strides) >= sum(n != 0 for n in strides)


class _Parts:
    """The kernels of a scan in parts."""

    def __init__(self, scan: _Scan, target: Gpu, taken: set[str]) -> None:
        self.scan = scan
        self.target = target
        self.taken = taken
        self.index = self.fresh(f"{scan.step.index}_p")
        self.lane, self.round = self.fresh(f"{scan.step.index}_c"), self.fresh(f"{scan.step.index}_v")

    def fresh(self, stem: str) -> str:
        name = fresh_name(stem, self.taken)
        self.taken.add(name)
        return name

    def made(self, along: bool) -> tuple[list[Kernel], list[Buffer]] | None:
        """The kernels, and the tensors between them; None where the scan has threads enough, or few steps."""
        lines, length = prod(self.scan.lines), self.scan.length
        if length < LEAST_LINE or not lines:
            return None
        if not along:
            parts = min(-(-self.target.cores * THREADS // lines), length // LEAST_LINE * 2)
            if lines >= self.target.cores * FEW_THREADS or parts < 2:
                return None
            block = -(-length // parts // AHEAD) * AHEAD
            return self.kernels(-(-length // block), block, self.total_of_thread, self.scan_of_thread, False)
        self.team = next((n for n in TEAMS if n * OWN >= length), TEAMS[-1])
        self.own = min(OWN, -(-length // self.team) // 2 * 2 + 1)
        tiles = -(-length // (self.team * self.own))
        few = lines < self.target.cores * FEW_BLOCKS
        steps = -(-tiles // min(tiles, -(-self.target.cores * BLOCKS // lines))) if few else tiles
        self.steps = steps
        return self.kernels(-(-tiles // steps), steps * self.team * self.own, self.total_of_block, self.scan_of_block, True)

    # -------------------------------------------------------------------------------------------------------- kernels

    def kernels(
        self, parts: int, block: int, total: Callable[[Expr], Block], scan: Callable[[Expr], Block], inner: bool
    ) -> tuple[list[Kernel], list[Buffer]]:
        """Totals of all parts but the last, and the scans of all; parts are next to each other or, `inner` first, lines are."""
        self.parts, self.block = parts, block
        lines = tuple(s.stop for s in self.scan.loops)
        shape = (*lines, const(parts - 1)) if inner else (const(parts - 1), *lines)
        self.totals = [Buffer(self.fresh(f"{s.buffer.name}_totals"), s.buffer.dtype, shape, "workspace") for s in self.scan.states]
        self.inner = inner
        made = [self.grid(f"{self.scan.kernel.name} totals", parts - 1, total)] if parts > 1 else []
        return [*made, self.grid(self.scan.kernel.name, parts, scan)], self.totals if parts > 1 else []

    def grid(self, name: str, parts: int, body: Callable[[Expr], Block]) -> Kernel:
        """A kernel with one parallel loop over lines and parts."""
        lines = self.scan.lines
        count = prod(lines)
        whole: Expr = Index(self.index)
        part, line = (_mod(whole, parts), floordiv(whole, parts)) if self.inner else (floordiv(whole, count), _mod(whole, count))
        part, line = (ZERO, whole) if parts == 1 else (whole, ZERO) if count == 1 else (part, line)
        self.places: dict[str, Expr] = {}
        for s, n in reversed([*zip(self.scan.loops, lines, strict=True)]):
            self.places[s.index] = ZERO if n == 1 else _mod(line, n) if s is not self.scan.loops[0] else line
            line = floordiv(line, n)
        return Kernel(name, (For(self.index, ZERO, const(count * parts), body(part), "parallel"),))

    def at(self, e: Expr, place: Expr) -> Expr:
        """An expression in the line of the grid, at a step."""
        return substituted_in(e, {**self.places, self.scan.step.index: place})

    def total(self, number: int, part: Expr) -> tuple[Expr, ...]:
        line = tuple(self.places[s.index] for s in self.scan.loops)
        return (*line, part) if self.inner else (part, *line)

    def lanes(self, body: Callable[[Expr], Block], count: int | None = None) -> Stmt:
        return For(self.lane, ZERO, const(self.team if count is None else count), body(Index(self.lane)), "vectorize")

    # ------------------------------------------------------------------------------------------ a thread for each part

    def total_of_thread(self, part: Expr) -> Block:
        states = self.scan.states
        sums = [self.local(s, "sum") for s in states]
        there = add(add(mul(part, const(self.block)), mul(Index(self.scan.step.index), const(AHEAD))), Index(self.round))
        added = tuple(Store(b.name, (), s.joined(_element(b), self.at(s.term, there))) for s, b in zip(states, sums, strict=True))
        step = (For(self.round, ZERO, const(AHEAD), added, "unroll"),)
        stores = (Store(t.name, self.total(k, part), _element(b)) for k, (t, b) in enumerate(zip(self.totals, sums, strict=True)))
        starts = (Store(b.name, (), s.identity) for s, b in zip(states, sums, strict=True))
        return _declared(sums, (*starts, replace(self.scan.step, stop=const(self.block // AHEAD), body=step), *stores))

    def scan_of_thread(self, part: Expr) -> Block:
        before = self.fresh("part")
        states = self.scan.states
        first = mul(part, const(self.block))
        starts: list[Stmt] = [Store(s.buffer.name, (), self.at(s.start, ZERO)) for s in states]
        earlier = [
            Store(s.buffer.name, (), s.joined(s.old, Access(t.name, self.total(k, Index(before)), t.dtype)))
            for k, (s, t) in enumerate(zip(states, self.totals, strict=True))
        ]
        there = add(first, Index(self.scan.step.index))
        news = [self.local(s, "now") for s in states]
        renamed = {s.new.tensor: _element(b) for s, b in zip(states, news, strict=True)}
        step = [Store(b.name, (), s.joined(s.old, self.at(s.term, there))) for s, b in zip(states, news, strict=True)]
        step += [self.stored(s, there, renamed) for s in self.scan.stores]
        step += [Store(s.buffer.name, (), _element(b)) for s, b in zip(states, news, strict=True)]
        stop = minimum(const(self.block), sub(const(self.scan.length), first))
        loop = replace(self.scan.step, stop=stop, body=_declared(news, tuple(step)))
        return _declared([s.buffer for s in states], (*starts, For(before, ZERO, part, tuple(earlier)), loop))

    def stored(self, s: Store, place: Expr, renamed: Mapping[str, Expr]) -> Store:
        """A store of a step, with the states that have other names."""
        value = _with_values(s.value, renamed)
        return Store(s.buffer, tuple(self.at(i, place) for i in s.indices), self.at(value, place))

    # ------------------------------------------------------------------------------------------- a block for each part

    def total_of_block(self, part: Expr) -> Block:
        lanes = [self.local(s, "lanes", self.team) for s in self.scan.states]
        tile = self.fresh(f"{self.scan.step.index}_b")
        base = add(mul(part, const(self.block)), mul(Index(tile), const(self.team * self.own)))
        body: list[Stmt] = []
        steps: list[Stmt] = []
        for s, b in zip(self.scan.states, lanes, strict=True):

            def clear(c: Expr, s: _State = s, b: Buffer = b) -> Block:
                return (Store(b.name, (c,), s.identity),)

            def step(c: Expr, s: _State = s, b: Buffer = b) -> Block:
                there = add(add(base, mul(Index(self.round), const(self.team))), c)
                return (Store(b.name, (c,), s.joined(_element(b, c), self.at(s.term, there))),)

            body.append(self.lanes(clear))
            steps.append(self.rounds(step))
        body.append(For(tile, ZERO, const(self.steps), tuple(steps)))
        for s, b in zip(self.scan.states, lanes, strict=True):
            body += self.halved(s, b)
        body += [Store(t.name, self.total(k, part), _element(b, ZERO)) for k, (t, b) in enumerate(zip(self.totals, lanes, strict=True))]
        return _declared(lanes, tuple(body))

    def halved(self, s: _State, lanes: Buffer) -> Iterator[Stmt]:
        """Lanes combined by halves, down to the first."""
        half = self.team // 2
        while half:

            def step(c: Expr, half: int = half) -> Block:
                return (Store(lanes.name, (c,), s.joined(_element(lanes, c), _element(lanes, add(c, const(half))))),)

            yield self.lanes(step, half)
            half //= 2

    def scan_of_block(self, part: Expr) -> Block:
        carries = [self.local(s, "carry") for s in self.scan.states]
        body: list[Stmt] = []
        for k, (s, carry) in enumerate(zip(self.scan.states, carries, strict=True)):
            body.append(Store(carry.name, (), self.at(s.start, ZERO)))
            if self.parts > 1:
                body += self.carried(k, s, carry, part)
        tile = self.fresh(f"{self.scan.step.index}_b")
        base = add(mul(part, const(self.block)), mul(Index(tile), const(self.team * self.own)))
        body.append(For(tile, ZERO, const(self.steps), self.tile(base, carries)))
        return _declared(carries, tuple(body))

    def carried(self, number: int, s: _State, carry: Buffer, part: Expr) -> Block:
        """The totals of the parts before, by all threads."""
        lanes, totals, rounds = self.local(s, "earlier", self.team), self.totals[number], self.fresh("round")

        def step(c: Expr) -> Block:
            there = add(mul(Index(rounds), const(self.team)), c)
            total = s.joined(_element(lanes, c), Access(totals.name, self.total(number, there), totals.dtype))
            return (If(apply("lt", there, part), (Store(lanes.name, (c,), total),)),)

        loop = For(rounds, ZERO, const(-(-(self.parts - 1) // self.team)), (self.lanes(step),))
        clear = self.lanes(lambda c: (Store(lanes.name, (c,), s.identity),))
        last = Store(carry.name, (), s.joined(_element(carry), _element(lanes, ZERO)))
        return _declared([lanes], (clear, loop, *self.halved(s, lanes), last))

    def tile(self, base: Expr, carries: list[Buffer]) -> Block:
        """Elements of all threads: loaded side by side, added up by each thread and among the threads, stored side by side."""
        length, rounds = const(self.scan.length), Index(self.round)
        is_whole = self.parts * self.block == self.scan.length
        made = [self.tile_of(s, carry, base) for s, carry in zip(self.scan.states, carries, strict=True)]

        def store(c: Expr) -> Block:
            place = add(mul(rounds, const(self.team)), c)
            states: dict[str, Expr] = {}
            for s, one, carry in zip(self.scan.states, made, carries, strict=True):
                states[s.new.tensor] = _element(one.tile, place)
                earlier = _element(one.tile, sub(place, const(1)))
                states[s.buffer.name] = apply("where", apply("ge", place, const(1)), earlier, _element(carry))
            stores = tuple(self.stored(s, add(base, place), states) for s in self.scan.stores)
            return stores if is_whole else (If(apply("lt", add(base, place), length), stores),)

        loads, guarded = tuple(x for one in made for x in one.loads), tuple(x for one in made for x in one.guarded)
        if not is_whole:  # those of whole tiles wait for no condition
            loads = (If(apply("le", add(base, const(self.team * self.own)), length), loads, guarded),)
        body = (*loads, *(x for one in made for x in one.sums), self.rounds(store), *(one.end for one in made))
        return _declared([b for one in made for b in one.buffers], body)

    def tile_of(self, s: _State, carry: Buffer, base: Expr) -> _Tile:
        """What is done with one state in a tile."""
        team, own, rounds = self.team, self.own, Index(self.round)
        tile, mine = self.local(s, "tile", team * own), self.local(s, "own", own, team)

        def load(c: Expr) -> Block:
            place = add(mul(rounds, const(team)), c)
            return (Store(tile.name, (place,), self.at(s.term, add(base, place))),)

        def load_guarded(c: Expr) -> Block:
            place = add(mul(rounds, const(team)), c)
            inside = apply("lt", add(base, place), const(self.scan.length))
            return (Store(tile.name, (place,), apply("where", inside, self.at(s.term, add(base, place)), s.identity)),)

        def first(c: Expr) -> Block:
            return (Store(mine.name, (ZERO, c), _element(tile, mul(c, const(own)))),)

        def prefix(c: Expr) -> Block:
            v = add(rounds, const(1))
            return (Store(mine.name, (v, c), s.joined(_element(mine, rounds, c), _element(tile, add(mul(c, const(own)), v)))),)

        upto = [self.local(s, "upto", team) for _ in range(team.bit_length())]
        sums = [self.lanes(first), *([self.rounds(prefix, own - 1)] if own > 1 else [])]
        sums.append(self.lanes(lambda c: (Store(upto[0].name, (c,), _element(mine, const(own - 1), c)),)))
        for k in range(1, len(upto)):

            def doubled(c: Expr, k: int = k) -> Block:
                return (Store(upto[k].name, (c,), _doubled(s, upto[k - 1], c, 1 << (k - 1))),)

            sums.append(self.lanes(doubled))
        last = upto[-1]

        def placed(c: Expr) -> Block:
            earlier = s.joined(_element(carry), _element(last, sub(c, const(1))))
            before = apply("where", apply("ge", c, const(1)), earlier, _element(carry))
            return (Store(tile.name, (add(mul(c, const(own)), rounds),), s.joined(before, _element(mine, rounds, c))),)

        end = Store(carry.name, (), s.joined(_element(carry), _element(last, const(team - 1))))
        return _Tile(tile, (tile, mine, *upto), (self.rounds(load),), (self.rounds(load_guarded),), (*sums, self.rounds(placed)), end)

    def rounds(self, body: Callable[[Expr], Block], count: int | None = None) -> Stmt:
        """What each thread does with its elements, one after the other."""
        return For(self.round, ZERO, const(self.own if count is None else count), (self.lanes(body),), "unroll")

    def local(self, s: _State, what: str, *shape: int) -> Buffer:
        return Buffer(self.fresh(f"{s.buffer.name}_{what}"), s.buffer.dtype, tuple(map(const, shape)), "local")


def _doubled(s: _State, sums: Buffer, c: Expr, apart: int) -> Expr:
    """Sums of twice as many threads."""
    here = _element(sums, c)
    return apply("where", apply("ge", c, const(apart)), s.joined(_element(sums, sub(c, const(apart))), here), here)


def _element(buffer: Buffer, *indices: Expr) -> Access:
    return Access(buffer.name, indices, buffer.dtype)


def _mod(e: Expr, n: int) -> Expr:
    return normal(apply("mod", e, const(n)))


def _declared(buffers: Sequence[Buffer], body: Block) -> Block:
    for buffer in reversed(buffers):
        body = (Alloc(buffer, body),)
    return body
