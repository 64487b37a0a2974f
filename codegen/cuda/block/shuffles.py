"""Lanes combined by halves, as shuffles within warps with one exchange between them.

    L[i] = f(L[i], L[i + 128])  for i < 128          held[k] = L[lane + 32 k]            for k < 8   (from shared memory)
    L[i] = f(L[i], L[i + 64])   for i < 64           held[k] = f(held[k], held[k + 4])   for k < 4
    ...                                        -->   ...                                 (whole warps apart: own registers)
    L[i] = f(L[i], L[i + 1])    for i < 1            held[0] = f(held[0], shuffled down by 16), by 8, 4, 2, 1
    ... L[0] ...                                     ... what lane 0 holds, from there by a shuffle ...

The same values are combined in the same order, so results keep every bit. Every warp does this for itself, with the same result: what is
read afterwards is in a register of each thread, no barrier follows, and a block of one warp needs neither barriers nor shared memory.
Where a step reads lanes that an earlier one did not combine, what it makes is not asked for: lane 0 depends on the lanes of its half alone.

That L is not asked for again but for its first lane is proved on the nest, else the steps stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, map_expressions, statements, with_blocks
from tensorexpr.ir import Access, Expr, Index, Size, apply, const, integer
from tensorexpr.regions import affine_of
from tensorexpr.traversal import bottom_up, fresh_name, walk

WARP = 32
MOST_HELD = 128
"""Bytes that a thread may hold of lanes of other warps; what is more is combined in shared memory first."""
ZERO = const(0)


class Warps(For):
    """A loop over the lanes of a warp, which every warp of the block runs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle(Stmt):
    """`into` is what the lane `distance` further on holds of `source`; with a distance of 0 what the first lane holds."""

    into: Buffer
    source: Access
    distance: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Statements `first` to `stop` of a block that combine the lanes of buffers at one place by halves, down to the first lane."""

    first: int
    stop: int
    steps: tuple[For, ...]
    buffers: tuple[str, ...]
    at: tuple[Expr, ...]


def with_shuffles(body: Block, threads: int, taken: set[str]) -> Block:
    """The statements of a block of `threads` threads along one axis, lanes combined by shuffles; `taken` are names in use."""
    return _Shuffled(threads, taken).block(body, {})


class _Shuffled:
    def __init__(self, threads: int, taken: set[str]) -> None:
        self.threads = threads
        self.taken = taken
        self.lane, self.part = fresh_name("lane", taken), fresh_name("part", taken)

    def block(self, block: Block, buffers: Mapping[str, Buffer]) -> Block:
        """Statements, of which those that combine lanes of `buffers` become others."""
        for run in _runs(block):
            if all(name in buffers for name in run.buffers):
                run = _shortened(run, sum(buffers[name].dtype.itemsize for name in run.buffers))
                return (*self.block(block[: run.first], buffers), *self.combined(run, buffers, block[run.stop :]))
        found: list[Stmt] = []
        for s in block:
            match s:
                case Alloc():
                    known = {**buffers, s.buffer.name: s.buffer} if _ends_combined(s.body, s.buffer.name) is not None else buffers
                    found.append(replace(s, body=self.block(s.body, known)))
                case For() if s.kind == "vectorize":
                    found.append(s)
                case _:
                    found.append(with_blocks(s, lambda body: self.block(body, buffers)))
        return tuple(found)

    def fresh(self, name: str, buffer: Buffer, shape: tuple[Expr, ...] = ()) -> Buffer:
        return Buffer(fresh_name(f"{buffer.name}_{name}", self.taken), buffer.dtype, shape, "local")

    def combined(self, run: _Run, buffers: Mapping[str, Buffer], rest: Block) -> Block:
        """A run as work of every warp, and the statements behind it."""
        width = 2 * integer(run.steps[0].stop)
        count = max(1, width // WARP)
        mine = [buffers[name] for name in run.buffers]
        held = {b.name: self.fresh("held", b, (const(count),) if count > 1 else ()) for b in mine}
        far = {b.name: self.fresh("far", b) for b in mine}
        result = {b.name: self.fresh("all", b) for b in mine}
        registers = {name: Access(b.name, (), b.dtype) for name, b in far.items()}

        def own(k: Expr) -> dict[str, Access]:
            return {name: Access(b.name, (k,) if count > 1 else (), b.dtype) for name, b in held.items()}

        def each(number: int, made: Block) -> Block:
            return made if number == 1 else (For(self.part, ZERO, const(number), made, "unroll"),)

        def part(number: int) -> Expr:
            return ZERO if number == 1 else Index(self.part)

        place: Expr = Index(self.lane) if width >= WARP else apply("mod", Index(self.lane), const(width))
        place = place if count == 1 else apply("add", place, apply("mul", part(count), const(WARP)))
        fetched = ((own(part(count))[b.name], Access(b.name, (*run.at, place), b.dtype)) for b in mine)
        body = list(each(count, tuple(Store(to.tensor, to.indices, from_) for to, from_ in fetched)))
        for step in run.steps:
            half = integer(step.stop)
            if half >= WARP:
                k = part(half // WARP)
                further = const(half // WARP) if k == ZERO else apply("add", k, const(half // WARP))
                body += each(half // WARP, _moved(step, own(k), own(further)))
            else:
                body += [Shuffle(far[name], a, half) for name, a in own(ZERO).items()]
                body += _moved(step, own(ZERO), registers)
        body += [Shuffle(result[name], a, 0) for name, a in own(ZERO).items()]
        made: Block = tuple(body)
        for b in reversed((*held.values(), *far.values())):
            made = (Alloc(b, made),)
        # Where the block is one warp its lanes are the threads, each of which has its own element.
        kind = For if self.threads == width == WARP else Warps
        loop = kind(self.lane, ZERO, const(WARP), made, "vectorize")

        def result_of(e: Expr) -> Expr:
            return Access(result[e.tensor].name, (), e.dtype) if isinstance(e, Access) and e.tensor in result else e

        after = self.block(map_expressions(rest, lambda e: bottom_up(e, result_of)), buffers)
        block: Block = (loop, *after)
        for b in reversed(result.values()):
            block = (Alloc(b, block),)
        return block


def _runs(block: Block) -> Iterator[_Run]:
    """The runs of a block, each as long as it can be."""
    k = 0
    while k < len(block):
        steps: list[For] = []
        found = _step(block[k])
        while found is not None and k + len(steps) < len(block):
            s = _as_loop(block[k + len(steps)])
            same = _step(s)
            if same != found or not isinstance(s, For) or (steps and 2 * integer(s.stop) != integer(steps[-1].stop)):
                break
            steps.append(s)
        if found is not None and steps and integer(steps[-1].stop) == 1:
            yield _Run(k, k + len(steps), tuple(steps), *found)
        k += max(1, len(steps))


def _as_loop(s: Stmt) -> Stmt:
    """The last step of a run, which may stand without its loop of one iteration."""
    return For("", ZERO, const(1), (s,), "vectorize") if isinstance(s, Store) else s


def _shortened(run: _Run, bytes_: int) -> _Run:
    """The end of a run for which a thread holds no more than it may."""
    first = next(k for k, s in enumerate(run.steps) if 2 * integer(s.stop) * bytes_ <= MOST_HELD * WARP)
    return replace(run, first=run.first + first, steps=run.steps[first:])


def _step(s: Stmt) -> tuple[tuple[str, ...], tuple[Expr, ...]] | None:
    """The buffers B, and where, of `B[at, i] = f(B[at, i], B[at, i + n])` for i < n; None for any other statement."""
    if not isinstance(s, For) or s.kind != "vectorize" or s.start != ZERO:
        return None
    local = {inner.buffer.name for inner in statements(s.body) if isinstance(inner, Alloc)}
    written: dict[str, None] = {}
    read: set[str] = set()
    further: set[str] = set()
    places: set[tuple[Expr, ...]] = set()
    for name, indices, write in _touched(s.body):
        if name in local:
            continue
        offset = _offset(indices[-1], s) if indices else None
        if offset is None or (write and offset) or any(isinstance(n, Index) and n.name == s.index for i in indices[:-1] for n in walk(i)):
            return None
        places.add(indices[:-1])
        if write:
            written[name] = None
        else:
            read.add(name)
            further |= {name} if offset else set()
    # What only starts lanes looks alike but for this.
    nested = any(isinstance(inner, For | If | Check) for inner in statements(s.body))
    if len(places) != 1 or not read <= set(written) or not further or nested:
        return None
    return tuple(written), places.pop()


def _offset(index: Expr, s: For) -> int | None:
    """How far on an index is in a loop that combines by halves: nothing or as far as the loop is long."""
    form, half = affine_of(index), integer(s.stop)
    if form is None or any(name != s.index or factor != 1 for name, factor in form.terms) or (not form.terms and half != 1):
        return None
    return form.constant if form.constant in (0, half) else None


def _ends_combined(block: Block, name: str) -> tuple[Expr, ...] | None:
    """Where the lanes of a buffer are combined so that nothing is asked of them afterwards but the first."""
    for run in _runs(block):
        if name in run.buffers:
            after = [(indices, write) for n, indices, write in _touched(block[run.stop :]) if n == name]
            return run.at if all(indices == (*run.at, ZERO) and not write for indices, write in after) else None
    touching = [s for s in block if any(n == name for n, _, _ in _touched((s,)))]
    match touching[-1] if touching else None:
        case For() as s if s.kind != "vectorize":
            at = _ends_combined(s.body, name)
            # What another iteration has combined is another element.
            apart = at is not None and Index(s.index) in at and all(i[:-1] == at for n, i, _ in _touched(s.body) if n == name)
            return at if apart else None
        case If() as s:
            branches = [b for b in (s.then, s.otherwise) if any(n == name for n, _, _ in _touched(b))]
            return _ends_combined(branches[0], name) if len(branches) == 1 else None
        case Alloc() as s:
            return _ends_combined(s.body, name)
    return None


def _moved(step: For, near: Mapping[str, Access], far: Mapping[str, Access]) -> Block:
    """What a step does to one lane, which is elsewhere: of each buffer the lane itself and the one further on."""

    def access(a: Expr) -> Expr:
        if not isinstance(a, Access) or a.tensor not in near:
            return a
        return (far if _offset(a.indices[-1], step) else near)[a.tensor]

    def statement(s: Stmt) -> Stmt:
        match s:
            case Alloc():
                return replace(s, body=tuple(map(statement, s.body)))
            case Store():
                to = near.get(s.buffer)
                return Store(s.buffer if to is None else to.tensor, s.indices if to is None else to.indices, bottom_up(s.value, access))
        return s

    return tuple(map(statement, step.body))


def names_in(block: Block) -> set[str]:
    """The names of all buffers, indices and sizes that statements have."""
    found = {s.index for s in statements(block) if isinstance(s, For)} | {s.buffer.name for s in statements(block) if isinstance(s, Alloc)}
    for s in statements(block):
        found |= {s.buffer} if isinstance(s, Store) else set()
        nodes = (n for e in expressions_of(s) for n in walk(e))
        found |= {n.tensor if isinstance(n, Access) else n.name for n in nodes if isinstance(n, Access | Index | Size)}
    return found


def _touched(block: Block) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """Every access: buffer, indices, whether a write."""
    for s in statements(block):
        if isinstance(s, Store):
            yield s.buffer, s.indices, True
        for e in expressions_of(s):
            for n in walk(e):
                if isinstance(n, Access):
                    yield n.tensor, n.indices, False
