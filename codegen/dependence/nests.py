"""The dependences of a nest, asked for one by one: what a rewrite may do, and what stands in its way.

Two accesses of one buffer of which at least one writes conflict where iterations of theirs touch one element; a rewrite is legal where all
that conflict keep their order. An iteration runs before another one if it does in the outermost loop around both in which they differ, and
within one iteration by the order of the text; loops of every kind are taken for serial ones, for that is what they mean. Nothing is asked
before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensorexpr.codegen.dependence.apart import Reach, Taken
from tensorexpr.codegen.dependence.pairs import AFTER, ANY, BEFORE, SAME, Pair, Tie, common
from tensorexpr.codegen.dependence.questions import Meeting, decide
from tensorexpr.codegen.dependence.updates import update_of
from tensorexpr.codegen.facts.places import Home, Loop, Places, Touch
from tensorexpr.codegen.facts.questions import Point, Questions
from tensorexpr.codegen.facts.scope import Scope
from tensorexpr.codegen.nest import Block, For, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import blocks_of
from tensorexpr.errors import InternalError
from tensorexpr.records import record
from tensorexpr.text import print_expr

Place = Stmt | Sequence[Stmt] | Touch
"""What is asked about: a statement with all in it, several of them, or one access."""


@record(eq=False)
class Conflict:
    """Two accesses that may touch one element, `first` in an iteration that runs before that of `second`.

    `order` says of each loop around both how the first iteration stands to the second (`=`, `<`, `>`, `*`: any), `carrier` is the loop
    that carries it (None: they meet within one iteration). `update` is the operation where both are updates of the element by the same
    one. Where it `is_certain` that they meet, `at` is a point at which they do: sizes and indices, those of the second one with a quote.
    """

    first: Touch
    second: Touch
    order: tuple[str, ...]
    carrier: For | None
    update: str | None
    is_certain: bool
    at: Point

    @property
    def kind(self) -> str:
        """ "flow" (what is written is read), "anti" (what is read is overwritten) or "output" (written twice)."""
        return "output" if self.first.write and self.second.write else "flow" if self.first.write else "anti"

    def __str__(self) -> str:
        places = " and ".join(dict.fromkeys(map(element, (self.first, self.second))))
        point = f" at {', '.join(f'{name} = {value}' for name, value in self.at)}" if self.at else ""
        loop = f" in iterations of {self.carrier.index}" if self.carrier is not None else ""
        return f"{places} {'meet' if self.is_certain else 'may meet'}{loop}{point} ({self.kind})"


@record
class Allowed:
    """Whether something is legal, as a truth value; where not, the conflict that it would turn around."""

    obstacle: Conflict | None = None

    def __bool__(self) -> bool:
        return self.obstacle is None

    def __str__(self) -> str:
        return "allowed" if self.obstacle is None else str(self.obstacle)


def dependences(nest: LoopNest) -> Dependences:
    """The dependences of a nest, each found when it is asked for. Requires: a nest that `verify_nest` accepts."""
    return Dependences(nest)


class Dependences:
    """What conflicts in one nest. Statements are those of the nest, by identity: none of them may stand in it twice."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.touches: list[Touch] = []
        self.places = Places(nest, held(nest), self.touches.append)
        self.places.run()
        claims = {b.name: b.within for b in (*nest.parameters, *nest.workspace) if b.within is not None}
        self.questions = Questions(nest.sizes, claims)
        self._spans: dict[int, tuple[int, int]] = {}
        self._loops = {id(loop.statement): loop for loop in self.places.all_loops}
        self._number(self.nest)
        self._writes = [(touch.number, touch.home.buffer.name) for touch in self.touches if touch.write]
        self._meetings: dict[tuple[Touch, Touch, tuple[Tie, ...]], Meeting] = {}

    # ------------------------------------------------------------------------------------------------------ the nest

    def _number(self, nest: LoopNest) -> None:
        count = 0

        def block(statements: Block) -> None:
            nonlocal count
            for s in statements:
                count += 1
                own = count
                for inner in blocks_of(s):
                    block(inner)
                self._spans[id(s)] = own, count

        for kernel in nest.kernels:
            block(kernel.body)

    def loop(self, statement: For) -> Loop:
        """A loop of the nest with what is known in it."""
        found = self._loops.get(id(statement))
        if found is None:
            raise InternalError(f"expected a loop of the nest, got another one over {statement.index}")
        return found

    def span(self, place: Stmt | Sequence[Stmt]) -> tuple[int, int]:
        """The first and the last number of statements that stand together, in the order of the text."""
        each = [place] if isinstance(place, Stmt) else list(place)
        found = [self._spans[id(s)] for s in each if id(s) in self._spans]
        if not found or len(found) != len(each):
            raise InternalError("expected statements of the nest, got others")
        return min(low for low, _ in found), max(high for _, high in found)

    def touched_in(self, place: Place) -> list[Touch]:
        """The accesses in a place, in the order in which they run."""
        if isinstance(place, Touch):
            return [place]
        each = [place] if isinstance(place, Stmt) else place
        spans = [self.span(s) for s in each]
        return [t for t in self.touches if any(low <= t.number <= high for low, high in spans)]

    # -------------------------------------------------------------------------------------------------- one question

    def meeting(self, first: Touch, second: Touch, ties: Sequence[Tie]) -> Meeting:
        """Whether two accesses of one buffer never touch one element where their iterations are tied so, perhaps, or at which point."""
        key = first, second, tuple(ties)
        found = self._meetings.get(key)
        if found is None:
            pair = Pair(first, second, key[2], self._changed(first, second, key[2]))
            found = self._meetings[key] = decide(pair, self.nest)
        return found

    def _changed(self, first: Touch, second: Touch, ties: Sequence[Tie]) -> frozenset[str]:
        """The buffers that may be written between the two."""
        moving = [loop for tie in ties if not tie.is_same for loop in (tie.first, tie.second)]
        if moving:
            return frozenset().union(*(loop.writes for loop in moving), self._between(first, second, len(ties)))
        return self._between(first, second, common(first, second))

    def _between(self, first: Touch, second: Touch, count: int) -> frozenset[str]:
        own = [(self.span(t.loops[count].statement) if len(t.loops) > count else (t.number, t.number)) for t in (first, second)]
        low, high = min(a for a, _ in own), max(b for _, b in own)
        if first.statement is second.statement and first.loops == second.loops:  # what one statement reads is read before it writes
            return frozenset()
        return frozenset(name for number, name in self._writes if low <= number <= high)

    def _conflict(self, first: Touch, second: Touch, ties: Sequence[Tie], carrier: Loop | None) -> Conflict | None:
        found = self.meeting(first, second, ties)
        if not found.may:
            return None
        update = update_of(first)
        order = tuple(tie.order for tie in ties if tie.first is tie.second)
        loop = None if carrier is None else carrier.statement
        return Conflict(first, second, order, loop, update if update == update_of(second) else None, found.is_certain, found.at)

    # ------------------------------------------------------------------------------------------------------ conflicts

    def between(self, a: Place, b: Place) -> Iterator[Conflict]:
        """The conflicts of what is touched in two places, by the loop that carries them: each is in the order in which it runs."""
        seen = set()
        for one, other in self._pairs(self.touched_in(a), self.touched_in(b)):
            if (other, one) in seen:
                continue
            seen.add((one, other))
            for first, second in dict.fromkeys(((one, other), (other, one))):
                yield from self._ordered(first, second)

    def _pairs(self, one: Iterable[Touch], other: Iterable[Touch]) -> Iterator[tuple[Touch, Touch]]:
        by_home = {touches[0].home: touches for touches in _by_home(other)}
        for a in one:
            for b in by_home.get(a.home, ()):
                if a.write or b.write:
                    yield a, b

    def _ordered(self, first: Touch, second: Touch) -> Iterator[Conflict]:
        """The conflicts in which one access runs before the other one, those of outer loops first."""
        shared = first.loops[: common(first, second)]
        for level in range(first.home.depth, len(shared)):
            found = self._conflict(first, second, self._carried_at(shared, level), shared[level])
            if found is not None:
                yield found
        if (first.number, first.write) < (second.number, second.write):
            found = self._conflict(first, second, [Tie(loop, SAME, loop) for loop in shared], None)
            if found is not None:
                yield found

    def _carried_at(self, shared: Sequence[Loop], level: int) -> list[Tie]:
        orders = [SAME] * level + [BEFORE] + [ANY] * (len(shared) - level - 1)
        return [Tie(loop, order, loop) for loop, order in zip(shared, orders, strict=True)]

    def carried(self, loop: For) -> Iterator[Conflict]:
        """The conflicts between different iterations of a loop, of which those of the loops around it are the same."""
        own = self.loop(loop)
        level = self._depth(own)
        taken = Taken(own)
        reach = Reach(taken, self.questions)
        for touches in _by_home(_distinct(own.touches)):
            if taken.apart(touches):
                continue
            for first, second in self._pairs(touches, touches):
                if reach.is_apart(first, second):
                    continue
                found = self._conflict(first, second, self._carried_at(first.loops[: common(first, second)], level), own)
                if found is not None:
                    yield found

    def _depth(self, loop: Loop) -> int:
        """How many loops are around a loop."""
        return len(loop.around)

    # ------------------------------------------------------------------------------------------------------- legality

    def may_run_in_any_order(self, loop: For, updates: bool = False) -> Allowed:
        """Whether the iterations of a loop may run in any order, and at once; with `updates` those of one element may change places."""
        return _first(self.carried(loop), updates)

    def may_swap(self, outer: For, inner: For, updates: bool = False) -> Allowed:
        """Whether a loop and one inside of it may change places, those between them staying where they are: no conflict runs forward in
        the one and backward in what comes before it then. Bounds are the affair of who swaps."""
        band = self.loop(inner).around[self._depth(self.loop(outer)) :]
        between = [loop.statement for loop in band if loop.statement is not outer]
        return self.may_reorder([outer, *between, inner], [inner, *between, outer], updates)

    def may_reorder(self, before: Sequence[For], after: Sequence[For], updates: bool = False) -> Allowed:
        """Whether loops, one right inside of the other, may stand in another order."""
        old, new = [self.loop(s) for s in before], [self.loop(s) for s in after]
        return _first(self._turned(old, new), updates)

    def _turned(self, old: list[Loop], new: list[Loop]) -> Iterator[Conflict]:
        """The conflicts that run forward in one order of loops and backward in another one."""
        level = self._depth(old[0])
        touches = _distinct(old[-1].touches)
        pairs = list(self._pairs(touches, touches))
        for at, loop in enumerate(old):
            for back in new[: new.index(loop)]:
                if back not in old[at + 1 :]:
                    continue
                same = {id(one) for one in (*old[:at], *new[: new.index(back)])}
                for first, second in pairs:
                    shared = first.loops[: common(first, second)]
                    if first.home.depth > level + at:
                        continue
                    ties = []
                    for number, one in enumerate(shared):
                        order = BEFORE if one is loop else AFTER if one is back else SAME if number < level or id(one) in same else ANY
                        ties.append(Tie(one, order, one))
                    found = self._conflict(first, second, ties, loop)
                    if found is not None:
                        yield found

    def may_fuse(self, first: For, second: For, shift: int = 0, updates: bool = False) -> Allowed:
        """Whether two loops that stand one behind the other may run as one, iteration `i` of the first together with iteration `i - shift`
        of the second and before it."""
        one, other = self.loop(first), self.loop(second)
        around = [Tie(loop, SAME, loop) for loop in one.around]
        return _first(self._overtaken(self.touched_in(first), self.touched_in(second), [*around, Tie(one, AFTER, other, shift)]), updates)

    def _overtaken(self, ahead: Iterable[Touch], behind: Iterable[Touch], ties: list[Tie]) -> Iterator[Conflict]:
        for first, second in self._pairs(_distinct(ahead), _distinct(behind)):
            found = self._conflict(first, second, ties, None)
            if found is not None:
                yield found

    def may_move(self, statement: Stmt, over: Stmt | Sequence[Stmt], updates: bool = False) -> Allowed:
        """Whether a statement may change places with those that stand right before or right behind it in its block: nothing in it and in
        them conflicts within one iteration of the loops around. Requires: no `Check` that the statement needs is among them."""
        around = self._around(statement)
        ties = [Tie(loop, SAME, loop) for loop in around]
        own, others = self.touched_in(statement), self.touched_in(over)
        ahead, behind = (own, others) if self.span(statement) < self.span(over) else (others, own)
        return _first(self._overtaken(ahead, behind, ties), updates)

    def _around(self, statement: Stmt) -> tuple[Loop, ...]:
        """The loops around a statement."""
        low, high = self.span(statement)
        found = []
        for loop in self.places.all_loops:
            first, last = self._spans[id(loop.statement)]
            if first < low and high <= last:
                found.append(loop)
        return tuple(found)


def _distinct(touches: Iterable[Touch]) -> list[Touch]:
    """One of those that every question about other iterations answers alike."""
    found = {(t.home, t.indices, t.write, t.loops, t.scope.facts, t.scope.forgotten, update_of(t)): t for t in reversed(list(touches))}
    return list(found.values())[::-1]


def _by_home(touches: Iterable[Touch]) -> list[list[Touch]]:
    """The accesses of each buffer."""
    found: dict[Home, list[Touch]] = {}
    for touch in touches:
        found.setdefault(touch.home, []).append(touch)
    return list(found.values())


def _first(conflicts: Iterator[Conflict], updates: bool) -> Allowed:
    return Allowed(next((c for c in conflicts if not (updates and c.update)), None))


def held(nest: LoopNest) -> dict[str, tuple[float, float]]:
    """Ranges of what buffers of integers hold: as claimed, and constants as they are."""
    start = Scope((), {}, {})
    claims = ((b.name, b.within) for b in (*nest.parameters, *nest.workspace) if b.within is not None)
    found = {name: (float(low), start.interval(high)[1]) for name, (low, high) in claims}
    for constant in nest.constants:
        if constant.type.dtype.is_integer and constant.data.size:
            found[constant.name] = (int(constant.data.min()), int(constant.data.max()))
    return found


def element(touch: Touch) -> str:
    """The element that is touched, as text."""
    return f"{touch.home.buffer.name}[{', '.join(map(print_expr, touch.indices)) or '()'}]"
