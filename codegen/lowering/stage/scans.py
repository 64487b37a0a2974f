"""Scans: step after step, or several steps in one pass where these are skewed (see `schedule.skewing`).

Step 0 reads the initial states, the others the entry before. A scan whose steps are skewed goes through its rows `P` times:

    for block in parallel(range(0, blocks)):
        for y in range(...):                                  # the row that step 0 would be at
            for i in range(y - 1, y): R[0, i % 3] = f(U[i - 1 .. i + 1])       # only rows that the block needs
            for s in range(1, steps - 1):
                for i in range(y - s - 1, y - s): R[s, i % 3] = f(R[s - 1, ...])
            for i in ...: S[i] = f(R[steps - 2, ...])
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, maximum, minimum, mul, normal, sub
from tensorexpr.codegen.lowering.context.scope import Scope, replaced
from tensorexpr.codegen.lowering.stage.placing import Home, Placing, all_axes, slot
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.schedule.analysis.skewing import Wave, wave_of
from tensorexpr.codegen.schedule.analysis.state import Skew, State, program_facts
from tensorexpr.codegen.schedule.analysis.steps import Sweep
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import (
    Access,
    Const,
    Define,
    Expr,
    Index,
    Program,
    Scan,
    Scatter,
    Segments,
    TensorType,
    apply,
    const,
    integer,
)
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, fresh_name


class Scans(Placing):
    """The part of lowering a program that makes the loops of scans."""

    state: State
    program: Program
    rings: frozenset[str]
    written: set[str]
    """Outputs that are the last entry of a scan, which has written them."""

    @abstractmethod
    def define(self, definition: Define, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """The loops of a `Define`."""

    @abstractmethod
    def scatter(self, definition: Scatter, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """The loops of a `Scatter`."""

    @abstractmethod
    def segments(self, definition: Segments, names: frozenset[str], outside: dict[str, Expr], at_root: bool) -> Block:
        """The loops of a `Segments`."""

    @abstractmethod
    def copy(self, type_: TensorType, to: Home, source: Home, names: frozenset[str]) -> Block:
        """Loops that copy a tensor."""

    @abstractmethod
    def buffer(self, tensor: str, type_: TensorType) -> Buffer:
        """The workspace of a tensor."""

    @abstractmethod
    def shape(self, tensor: str) -> tuple[Expr, ...]:
        """The shape of a tensor that can be named where lowering stands."""

    def scan(self, definition: Scan, names: frozenset[str], outside: dict[str, Expr]) -> Block:
        """Step 0 from the initial states, then a serial loop over the others, which read the entry before."""
        results = tuple(self.homes[n] for n in definition.names)
        step = definition.step
        while step in names:
            step = f"{step}_"
        for inner in definition.body:
            for name, type_ in inner.results:
                self.types[name] = type_
                self.homes[name] = Home(name, ring=2 if name in self.rings else 0)
        self.types.update(definition.states)
        inits = tuple(self.homes[n] for n in definition.inits)
        skewed = self.skewed(definition)
        if skewed is not None:
            return self.passes(definition, *skewed)
        first = self.step(definition, names, {**outside, definition.step: ZERO}, inits, _entries(results, ZERO))
        length = constant(definition.length)
        if length == 0:
            return ()
        if length is None and self.state.target.is_gpu:
            # Around what is launched there are loops of the host, no conditions.
            once = fresh_name(f"{step}_first", {*names, step})
            first = (For(once, ZERO, apply("minimum", definition.length, ONE), first),)
        elif length is None:
            first = (If(apply("gt", definition.length, ZERO), first),)
        if length == 1:
            return first
        here = Index(step)
        later = self.step(
            definition,
            names | {step},
            {**outside, definition.step: here},
            _entries(results, sub(here, ONE)),
            _entries(results, here),
        )
        return (*first, For(step, ONE, definition.length, later))

    def sweep(self, made: Sweep) -> Block:
        """A scan whose points do not communicate, and the readers computed in its steps: at each point its states, and the steps."""
        states = [Buffer(self.names.fresh(f"{made.names[0]}_state"), s.dtype, (), "local") for s in made.states]
        known: dict[str, Expr] = {s.parameter: Access(b.name, (), b.dtype) for s, b in zip(made.states, states, strict=True)}
        kept: list[Buffer] = []
        step: list[Stmt] = []

        def keep(word: str, value: Expr) -> Expr:
            kept.append(Buffer(self.names.fresh(f"{made.names[0]}_{word}"), value.dtype, (), "local"))
            step.append(Store(kept[-1].name, (), value))
            return Access(kept[-1].name, (), value.dtype)

        def plainly(node: Expr) -> Expr:
            return replace(node, indices=tuple(map(normal, node.indices))) if isinstance(node, Access) else node

        for moment in made.moments:
            now = known[moment.parameter] = keep("now", self.read(bottom_up(replaced(moment.value, known), plainly)))
            for tensor, at in moment.stores:
                step.append(Store(self.homes[tensor].buffer, self.homes[tensor].at(tuple(map(self.read, at))), now))
        following = [known[name] for name in made.nexts]
        if any(f.tensor in {b.name for b in states} for f in following if isinstance(f, Access)):
            # A state that becomes another one is read before either is set.
            following = [keep("next", value) for value in following]
        step += [Store(b.name, (), value) for b, value in zip(states, following, strict=True)]
        begun = tuple(Store(b.name, (), self.read(s.start)) for s, b in zip(made.states, states, strict=True))
        body = (*begun, For(made.step.index, ZERO, made.step.stop, allocated(kept, tuple(step))))
        block = allocated(states, body)
        for axis in reversed(made.axes):
            block = (For(axis.index, ZERO, axis.stop, block),)
        return block

    def step(
        self, definition: Scan, names: frozenset[str], outside: dict[str, Expr], before: tuple[Home, ...], after: tuple[Home, ...]
    ) -> Block:
        """One step: the body, with the states read from `before`; next states go straight to `after` where the body makes them."""
        for (formal, _), home in zip(definition.states, before, strict=True):
            self.homes[formal] = home
        made = {name for inner in definition.body for name, _ in inner.results}
        direct: dict[str, Home] = {}
        for following, home in zip(definition.nexts, after, strict=True):
            if following in made:
                direct.setdefault(following, home)
        block: list[Stmt] = []
        for inner in definition.body:
            for name, type_ in inner.results:
                if name in direct:
                    self.homes[name] = direct[name]
                elif not any(b.name == name for b in self.names.workspace):
                    self.names.workspace.append(self.buffer(name, type_))
            match inner:
                case Define():
                    block.extend(self.define(inner, names, outside, True))
                case Scatter():
                    block.extend(self.scatter(inner, names, outside, self.state.target.is_gpu))
                case Segments():
                    block.extend(self.segments(inner, names, outside, self.state.target.is_gpu))
                case Scan():
                    block.extend(self.scan(inner, names, outside))
        for following, home, (_, type_) in zip(definition.nexts, after, definition.states, strict=True):
            if direct.get(following) is not home:
                block.extend(self.copy(type_, home, self.homes[following], names))
        return tuple(block)

    # ------------------------------------------------------------------------------------------------------- skewed

    def skewed(self, definition: Scan) -> tuple[Skew, Wave] | None:
        """How the steps of a scan are skewed, where those of its whole body are (what was put into it since then is not)."""
        found = {stage.skewed for d in definition.body if (stage := self.stages.get(d.results[0][0])) is not None}
        (skew,) = found if len(found) == 1 else (None,)
        if skew is None or skew.scan != definition.names[0]:
            return None
        try:
            return skew, wave_of(self.state, definition)
        except ScheduleError:  # somebody reads other entries since: a copy of it, say
            return None

    def ring_bytes(self) -> int:
        """The bytes of the rings of rows of all scans whose steps are skewed."""
        found = 0
        for definition in self.program.definitions:
            skewed = self.skewed(definition) if isinstance(definition, Scan) else None
            if skewed is not None and isinstance(definition, Scan):
                found += skewed[1].bytes_of(definition, skewed[0].steps)
        return found

    def passes(self, definition: Scan, skew: Skew, wave: Wave) -> Block:
        """A scan whose steps are skewed: pass after pass, the first of them perhaps shorter."""
        length = integer(definition.length)
        count = -(-length // skew.steps)
        results = tuple(self.homes[n] for n in definition.names)
        inits = tuple(self.homes[n] for n in definition.inits)
        rings = {
            d.name: self.slots.buffer(d.name, lambda name: self.ring(name, skew, wave)) for d in definition.body if isinstance(d, Define)
        }
        ends = tuple(self.copied_to(name, length) for name in definition.names)

        def entries(number: Expr) -> tuple[Home, ...]:
            """What a pass writes: the last one the last entry, every other one the other entry than the one before."""
            return _entries(results, add(number, const(length - count & 1)))

        def last() -> tuple[Home, ...]:
            """What the last pass writes: where that is copied to, if it is."""
            return tuple(e if c is None else Home(c) for e, c in zip(entries(const(count - 1)), ends, strict=True))

        one = _Pass(self, definition, skew, wave, {n: b.name for n, b in rings.items()})
        first = length - (count - 1) * skew.steps
        block = one.block(first, ZERO, inits, last() if count == 1 else entries(ZERO), frozenset())
        apart = any(end is not None for end in ends) and count > 1
        if count - apart > 1:
            number = Index(fresh_name("pass", {definition.step, *self.program.sizes}))
            begin = add(const(first - skew.steps), mul(number, const(skew.steps)))
            later = one.block(skew.steps, begin, entries(sub(number, ONE)), entries(number), frozenset((number.name,)))
            block = (*block, For(number.name, ONE, const(count - apart), later))
        if apart:
            block = (*block, *one.block(skew.steps, const(length - skew.steps), entries(const(count - 2)), last(), frozenset()))
        for name, end in zip(definition.names, ends, strict=True):
            if end is not None:
                self.written.add(end)
                self.homes[name] = Home(end, axes=tuple(range(1, len(self.types[name].shape))))
        return block

    def copied_to(self, name: str, length: int) -> str | None:
        """The output that is the last entry of a scan and nothing else, with loops of its own: the scan writes it itself."""
        for reader in program_facts(self.program).readers.get(name, ()):
            made, stage = self.definitions[reader], self.stages.get(reader)
            if reader not in self.program.outputs or not isinstance(made, Define) or stage is None:
                continue
            element = Access(name, (const(length - 1), *(Index(a.index) for a in made.axes)), made.value.dtype)
            shape = tuple(a.stop for a in made.axes)
            alone = stage.place is None and not self.state.placed_in(reader)
            if made.value == element and shape == self.types[name].shape[1:] and alone:
                return reader
        return None

    def ring(self, name: str, skew: Skew, wave: Wave) -> Buffer:
        """The last rows of a definition in the body, for every step of a pass."""
        type_ = self.types[name]
        return Buffer(
            self.names.fresh(f"{name}_rows"), type_.dtype, (const(skew.steps), const(wave.rows[name].kept), *type_.shape[1:]), "local"
        )


class _Pass:
    """One pass over the rows of a scan whose steps are skewed."""

    def __init__(self, lowering: Scans, scan: Scan, skew: Skew, wave: Wave, rings: dict[str, str]) -> None:
        self.lowering = lowering
        self.scan = scan
        self.skew = skew
        self.wave = wave
        self.rings = rings
        self.body = [d for d in scan.body if isinstance(d, Define)]
        self.extent = wave.rows[scan.nexts[0]].extent
        taken = {scan.step, *lowering.program.sizes}
        self.block_name, self.row_name, self.step_name = (fresh_name(word, taken) for word in ("block", "y", "s"))

    def block(self, steps: int, begin: Expr, sources: tuple[Home, ...], results: tuple[Home, ...], around: frozenset[str]) -> Block:
        """All blocks of rows, for so many steps from step `begin` on."""
        wave, rows, each = self.wave, self.wave.rows.values(), self.skew.rows
        low = mul(Index(self.block_name), const(each))
        high = add(low, const(each)) if self.extent % each == 0 else minimum(add(low, const(each)), const(self.extent))
        ends = (1, steps)
        first = min(s * wave.behind + r.behind - (steps - s) * wave.before - r.before for s in ends for r in rows)
        last = max(s * wave.behind + r.behind + (steps - s) * wave.after + r.after for s in ends for r in rows)
        names = around | {self.block_name, self.row_name}
        inner: list[Stmt] = []
        for s in range(1, steps + 1):
            if 2 < s < steps:
                continue
            here: Expr = Index(self.step_name) if 1 < s < steps and steps > 3 else const(s)
            reads = sources if s == 1 else tuple(self.home(n, sub(here, ONE)) for n in self.scan.nexts)
            writes = dict(zip(self.scan.nexts, results, strict=True)) if s == steps else {}
            bound = names if isinstance(here, Const) else names | {self.step_name}
            made = self.step(here, steps, add(begin, sub(here, ONE)), reads, writes, (low, high), bound)
            inner.extend(made if isinstance(here, Const) else (For(self.step_name, const(2), const(steps), made),))
        along = For(self.row_name, add(low, const(first)), add(high, const(last)), tuple(inner))
        kind = self.lowering.stages[self.body[0].name].kind(self.skew.axis)
        return (For(self.block_name, ZERO, const(-(-self.extent // each)), (along,), kind),)

    def home(self, name: str, step: Expr) -> Home:
        """The last rows of a definition that a step has made."""
        return Home(self.rings[name], (self.lowering.slots.index, sub(step, ONE)), ring=self.wave.rows[name].kept)

    def step(
        self,
        step: Expr,
        steps: int,
        number: Expr,
        reads: tuple[Home, ...],
        writes: dict[str, Home],
        ends: tuple[Expr, Expr],
        names: frozenset[str],
    ) -> Block:
        """The rows that one step works on, where the pass is at one row."""
        lowering, wave = self.lowering, self.wave
        for (formal, _), home in zip(self.scan.states, reads, strict=True):
            lowering.homes[formal] = home
        block: list[Stmt] = []
        left = sub(const(steps), step)
        for definition in self.body:
            row = wave.rows[definition.name]
            lowering.homes[definition.name] = writes.get(definition.name, self.home(definition.name, step))
            at = sub(Index(self.row_name), add(mul(step, const(wave.behind)), const(row.behind)))
            first = sub(ends[0], add(mul(left, const(wave.before)), const(row.before)))
            last = add(ends[1], add(mul(left, const(wave.after)), const(row.after)))
            axis = row.axis
            while axis in names:
                axis = f"{axis}_"
            whole = lowering.stages[definition.name]
            stage = replace(whole, kinds=tuple((x, kind) for x, kind in whole.kinds if x != row.axis))  # the blocks run in parallel, if so
            scope = Scope(stage, all_axes(stage), values={row.axis: Index(axis)}, names=names | {axis}, outside={self.scan.step: number})
            body = lowering.defined(definition, scope, False)
            start, stop = maximum(at, maximum(first, ZERO)), minimum(add(at, ONE), minimum(last, const(row.extent)))
            block.append(For(axis, start, stop, body))
        return tuple(block)


def allocated(buffers: Sequence[Buffer], block: Block) -> Block:
    """A block with local buffers around it."""
    for buffer in reversed(buffers):
        block = (Alloc(buffer, block),)
    return block


def _entries(results: tuple[Home, ...], step: Expr) -> tuple[Home, ...]:
    return tuple(Home(r.buffer, (*r.leading, slot(step, 2) if r.ring else step)) for r in results)
