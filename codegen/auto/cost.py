"""What a nest costs in nanoseconds, explained by block, port and level of memory.

The time of a block (see `features`) is that of its busiest resource: a port (arithmetic, shuffles, divisions, loads, stores, branches), all
its instructions in order, the longest chain, or the data that it waits for. Ports work side by side, so the greatest counts and not the sum
(llvm-mca counts likewise); lines from one level come after those from another, as in the ECM model (Hofmann, Fey and Wellein 2018). Blocks
run one after the other. With several threads the iterations of a parallel loop are dealt out evenly, and lines from memory take at least as
long as all cores need for them; a kernel that is faster on one thread runs on one.

    cost_of(nest)                         `print` shows the table
    predict(nest)                         nanoseconds alone
    Model(summary, facts).times({3: [8, 16, 32]}, threads=2)      a search: an extent of loop 3 for each candidate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from tensorexpr.codegen.auto import operations
from tensorexpr.codegen.auto.features import Numbers, Plan
from tensorexpr.codegen.auto.machine import Facts, shipped
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.summary import AUTO, HELD, LOAD, PARALLEL, PARALLEL_AUTO, UNROLL, VECTORIZE, Chain, Summary, Work
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.target import Gpu, Target
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import Explained, suggestion
from tensorexpr.markup import listing
from tensorexpr.records import cached_property, record

PORTS = ("arithmetic", "shuffle", "divide", "load", "store", "branch", "in order", "chain")
LEVELS = ("from L2", "from L3", "from memory")
SPARE = 6
"""Registers that hold operands, masks and constants while others hold sums."""
FORETOLD = 24
"""Iterations up to which the end of a loop is predicted (branch histories of current cores hold some dozens)."""
INTERLEAVED = 4
"""Registers that LLVM goes through in one iteration of a loop of which it makes vectors."""
_ARITHMETIC, _SHUFFLE, _DIVIDE, _LOAD, _STORE, _BRANCH, _ORDER, _CHAIN = range(len(PORTS))
REACH = 128
"""Lines of a run that come as if at places that no one foresaw: two pages. (Pieces of rows of 256 to 8,192 bytes come at half the speed of
whole rows on Zen 4, of 16 KiB at two thirds, of 64 KiB at nearly all.)"""
PAGE = 4096
"""Bytes of a page of memory, as `Facts.page` counts them."""
_LEAST = 1e-9


class Times(NamedTuple):
    """Nanoseconds by candidate (the last axis): in all, by block and port, by level and block, of mispredicted branches by block, by block
    in all, and how many registers hold elements in each block."""

    total: Numbers
    ports: Numbers
    levels: Numbers
    mispredicted: Numbers
    blocks: Numbers
    registers: Numbers


class _Parts(NamedTuple):
    """What the time of candidates is made of, whatever threads there are."""

    extents: Numbers
    bodies: Numbers
    ports: Numbers
    levels: Numbers
    mispredicted: Numbers
    registers: Numbers


class Model:
    """The cost of a summary's candidates on a machine."""

    def __init__(self, summary: Summary, facts: Facts) -> None:
        self.summary, self.facts = summary, facts
        self.plan = Plan(summary, facts.vector_bits // 8, facts.auto_bits // 8, facts.unit_bits // 8, facts.caches[1])

    def times(self, sizes: Mapping[int, Sequence[float] | Numbers] | None = None, threads: int = 1) -> Numbers:
        """Nanoseconds of each candidate: `sizes` has for loops by number an extent for each (one candidate, as summarised, without)."""
        return self.explained(sizes, threads).total

    def busy(self, sizes: Mapping[int, Sequence[float] | Numbers]) -> Numbers:
        """Nanoseconds of each candidate that never waits for data: no more than it takes on one thread, and told in a third of the time."""
        parts = self._parts(sizes, waits=False)
        return np.asarray((parts.ports.max(axis=1) + parts.mispredicted).sum(axis=0) + self.facts.call)

    def explained(self, sizes: Mapping[int, Sequence[float] | Numbers] | None = None, threads: int = 1) -> Times:
        """The same with its parts."""
        parts = self._as_summarised if sizes is None else self._parts(sizes)
        blocks = np.maximum(parts.ports.max(axis=1), parts.levels.sum(axis=0)) + parts.mispredicted
        return Times(self._total(parts, blocks, threads), parts.ports, parts.levels, parts.mispredicted, blocks, parts.registers)

    @cached_property
    def _as_summarised(self) -> _Parts:
        """What is asked for several numbers of threads."""
        return self._parts(None)

    def _parts(self, sizes: Mapping[int, Sequence[float] | Numbers] | None, waits: bool = True) -> _Parts:
        plan, facts = self.plan, self.facts
        extents = plan.extents(sizes)
        executed, bodies, registers = plan.repeated(extents), plan.iterations(extents), plan.registers(extents)
        shape = (len(plan.blocks), len(PORTS), extents.shape[1])
        ports = (self._usage @ executed).reshape(shape) + (self._loops @ bodies).reshape(shape)
        self._spill(ports, executed, registers)
        self._wait(ports, extents)
        ends = np.where(extents > FORETOLD, bodies / np.maximum(extents, 1.0), 0.0) * self._branches[:, None]
        mispredicted = np.zeros((shape[0], shape[2]))
        np.add.at(mispredicted, self._loop_blocks, ends * facts.mispredicted)
        levels = self._memory(extents) if waits else np.zeros((len(LEVELS), shape[0], shape[2]))
        return _Parts(extents, bodies, ports, levels, mispredicted, registers)

    # --------------------------------------------------------------------------------------------------------- the core

    @cached_property
    def _usage(self) -> Numbers:
        """Nanoseconds of each block and port for one execution of each piece of work."""
        lanes = self.plan.in_lanes
        found = np.zeros((len(self.plan.blocks), len(PORTS), len(self.plan.work)))
        for number, work in enumerate(self.plan.work):
            found[self.plan.work_block[number], :, number] = self._ports(work, bool(lanes[number]))
        return found.reshape(len(self.plan.blocks) * len(PORTS), len(self.plan.work))

    def _ports(self, work: Work, lanes: bool) -> Numbers:
        """Nanoseconds of each port for one register (or single element, where lanes share the work)."""
        facts, row = self.facts, np.zeros(len(PORTS))
        row[_ORDER] = facts.instruction
        match work.kind:
            case operations.ARITHMETIC | operations.INDEX:
                row[_ARITHMETIC] = facts.arithmetic
            case operations.SHUFFLE:
                row[_SHUFFLE] = facts.shuffle
            case operations.DIVIDE:
                row[_DIVIDE] = (facts.divide if lanes else facts.divide_one) * (work.size / 4.0 if lanes else 1.0)
            case operations.INTEGER_DIVIDE:
                row[_DIVIDE] = facts.divide_integer
            case operations.GATHER:
                row[_LOAD] = row[_ARITHMETIC] = facts.gather
            case "load" | "store":
                self._access(row, work, lanes)
            case "held":
                row[_ORDER] = 0.0
        return row

    def _access(self, row: Numbers, work: Work, lanes: bool) -> None:
        """A load or store by the stride of its lanes: side by side, shared, every other element, or elements one by one."""
        facts, stride = self.facts, abs(work.stride)
        port, whole, element = (_LOAD, facts.load, facts.gather) if work.kind == LOAD else (_STORE, facts.store, facts.scatter)
        across = whole * facts.across / facts.load
        if not lanes or stride == 0:  # of no more than a unit does at once
            row[port] = whole * facts.unit_bits / facts.vector_bits
        elif stride == 1:
            row[port] = whole if work.aligned else across
            row[_SHUFFLE] = facts.shuffle if work.stride < 0 else 0.0
        elif stride == 2:
            row[port], row[_SHUFFLE] = 2 * across, facts.shuffle * (1 if work.kind == LOAD else 2)
            row[_ORDER] *= 3
        else:  # instructions that take elements apart and put them together, on the units for arithmetic
            row[port] = row[_ARITHMETIC] = element

    @cached_property
    def _loop_blocks(self) -> Numbers:
        return np.array([block for _, block in self.plan.overhead], int)

    @cached_property
    def _branches(self) -> Numbers:
        """Branches at the end of each loop's body: none of what is copied out, few of what LLVM makes vectors of."""
        found = []
        for number, (kind, _) in enumerate(self.plan.overhead):
            copied = kind in (UNROLL, VECTORIZE) or number < len(self.summary.kernels)
            automatic = kind in (AUTO, PARALLEL_AUTO)
            found.append(0.0 if copied else 1.0 / (INTERLEAVED * self.facts.auto_bits / 32) if automatic else 1.0)
        return np.array(found, float)

    @cached_property
    def _loops(self) -> Numbers:
        """Nanoseconds of each block and port for one iteration of each loop: an addition, and a comparison with its branch."""
        found = np.zeros((len(self.plan.blocks), len(PORTS), len(self.plan.overhead)))
        for number, block in enumerate(self._loop_blocks):
            found[block, _BRANCH, number] = self._branches[number] * self.facts.iteration
            found[block, _ORDER, number] = self._branches[number] * 2 * self.facts.instruction
        return found.reshape(len(self.plan.blocks) * len(PORTS), len(self.plan.overhead))

    @cached_property
    def _held(self) -> Numbers:
        return np.flatnonzero([w.kind == HELD for w in self.plan.work])

    def _spill(self, ports: Numbers, executed: Numbers, registers: Numbers) -> None:
        """Loads and stores of held elements that there is no register for: a load for each use, a store for every second."""
        rows, facts = self._held, self.facts
        if not len(rows) or registers.max() <= facts.registers - SPARE:
            return
        share = np.clip(1.0 - (facts.registers - SPARE) / np.maximum(registers, _LEAST), 0.0, 1.0)
        blocks = self.plan.work_block[rows]
        times = executed[rows] * share[blocks]
        for port, each in ((_LOAD, facts.load), (_STORE, facts.store / 2), (_ORDER, facts.instruction)):
            np.add.at(ports[:, port], blocks, times * each)

    def _wait(self, ports: Numbers, extents: Numbers) -> None:
        """Chains: links one after the other, of as many chains side by side as the window of instructions reaches."""
        chains, facts = self.summary.chains, self.facts
        if not chains:
            return
        links, runs, free = self.plan.chained(extents)
        each = np.array([self._link(chain) * chain.share for chain in chains])
        blocks = self.plan.chain_block
        length = ports[blocks, _ORDER] / facts.instruction / np.maximum(runs, 1.0)
        overlap = np.clip(facts.window / np.maximum(length, 1.0), 1.0, np.maximum(free, 1.0))
        np.maximum.at(ports[:, _CHAIN], blocks, links * each[:, None] / overlap)

    def _link(self, chain: Chain) -> float:
        """Nanoseconds of one link of a chain; additions of single numbers may be faster than of registers."""
        facts, lanes = self.facts, any(self.plan.kinds[x] == VECTORIZE for x in chain.path)
        each = facts.latency if lanes else facts.add_latency
        return chain.additions * each + chain.others * facts.latency + (facts.forward if chain.memory else 0.0)

    # --------------------------------------------------------------------------------------------------------- memory

    def _memory(self, extents: Numbers) -> Numbers:
        """Nanoseconds that each block waits for lines from each level."""
        plan, facts = self.plan, self.facts
        found = np.zeros((len(LEVELS), len(plan.blocks), extents.shape[1]))
        if not self.summary.touches:
            return found
        lines, runs, alike = plan.traffic(extents, facts.caches)
        further = np.concatenate([lines[1:], np.zeros_like(lines[:1])])
        share = np.clip(1.0 - further / np.maximum(lines, _LEAST), 0.0, 1.0)
        each, jump = self._line
        times = share * (lines * each + np.minimum(runs * REACH, lines) * jump)
        # A place of the first cache changes hands while lines come from the second; those from further away are waited for besides.
        beyond, swaps = further[0] / np.maximum(lines[0], _LEAST), alike * self._swap
        times[0] += np.maximum(swaps - times.sum(axis=0), swaps * beyond)
        for level in range(len(LEVELS)):
            np.add.at(found[level], plan.touch_block, times[level])
        return found

    @cached_property
    def _line(self) -> tuple[Numbers, Numbers]:
        """Nanoseconds of a line by level and touch, and how many more where no line went before it."""
        facts, touches = self.facts, self.summary.touches
        each, jump = np.zeros((len(LEVELS), len(touches), 1)), np.zeros((len(LEVELS), len(touches), 1))
        for level in range(len(LEVELS)):
            for number, touch in enumerate(touches):
                if not touch.store:
                    each[level, number] = facts.lines[level]
                elif self.summary.buffers[touch.buffer].streamed and level == len(LEVELS) - 1:
                    each[level, number] = facts.stream
                else:  # had first, then written back; an element that is updated has been had
                    each[level, number] = facts.writes[level] - (facts.lines[level] if touch.updates else 0.0)
                jump[level, number] = facts.jumps[level] - facts.lines[level]
        return each, jump

    @cached_property
    def _swap(self) -> Numbers:
        """Nanoseconds in which a place of the first cache takes another line, by touch: what is stored goes back first."""
        return np.array([self.facts.swaps[touch.store] for touch in self.summary.touches])[:, None]

    # --------------------------------------------------------------------------------------------------------- threads

    def _total(self, parts: _Parts, alone: Numbers, threads: int) -> Numbers:
        facts, plan = self.facts, self.plan
        extents, bodies, ports, levels, mispredicted, _ = parts
        if threads == 1:
            return np.asarray(alone.sum(axis=0) + facts.call)
        total = np.full(extents.shape[1], facts.call)
        everyone = levels[-1] * facts.line_all / facts.lines[-1]
        for kernel in range(len(self.summary.kernels)):
            own = [n for n, path in enumerate(plan.blocks) if path[:1] == (kernel,)]
            serial, shared = np.zeros_like(total), np.zeros_like(total)
            forks: dict[int, Numbers] = {}
            for block in own:
                serial += alone[block]
                dealt = next((x for x in plan.blocks[block] if plan.kinds[x] in (PARALLEL, PARALLEL_AUTO)), None)
                if dealt is None:
                    shared += alone[block]
                    continue
                forks[dealt] = bodies[dealt] / np.maximum(extents[dealt], 1.0) * facts.fork
                part = np.ceil(extents[dealt] / threads) / np.maximum(extents[dealt], 1.0)
                waits = levels[:-1, block].sum(axis=0) * part + np.maximum(levels[-1, block] * part, everyone[block])
                shared += np.maximum(ports[block].max(axis=0) * part, waits) + mispredicted[block] * part
            total += np.minimum(serial, shared + sum(forks.values())) if forks else serial
        return total


def predict(nest: LoopNest, sizes: Mapping[str, int] | None = None, threads: int = 1) -> float:
    """Nanoseconds of one call of a nest on this machine, arrays where the last call left them. `sizes` are its open sizes by name
    (`points.typical` for those that are not said)."""
    return float(Model(summary_of(nest, sizes), facts_here()).times(None, threads)[0])


def cost_of(nest: LoopNest, sizes: Mapping[str, int] | None = None, threads: int = 1, target: Target | None = None) -> Cost:
    """The cost of a nest on this machine (on all of a GPU, where the target is one), with what it is made of."""
    if isinstance(target, Gpu):
        facts, threads = shipped(target), target.cores
        model = Model(summary_of(nest, sizes, block=target.threads), facts)
    else:
        facts = facts_here()
        model = Model(summary_of(nest, sizes), facts)
    return Cost(nest, facts, dict(sizes or {}), threads, target, model.plan, model.explained(None, threads))


@record(eq=False)
class Cost(Explained):
    """Nanoseconds of one call, and why. `print` shows a row for each block that takes a hundredth of the time: how often it runs, what it
    waits for, and the time of each port and level; in brackets local elements that no register was left for."""

    noun = "the predicted cost of a schedule"
    offered = ("at", "facts", "first_touch", "nanoseconds", "nest", "sizes", "target", "threads")
    habits: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("flops", "operations", "bytes", "memory"), "f.cost.operations and f.cost.bytes of a compiled function count them"),
        **dict.fromkeys(("time", "seconds", "total"), "nanoseconds is the time of a call"),
    }
    nest: LoopNest
    facts: Facts
    sizes: Mapping[str, int]
    threads: int
    target: Target | None
    plan: Plan
    times: Times

    @property
    def nanoseconds(self) -> float:
        """The time of one call."""
        return float(self.times.total[0])

    @property
    def first_touch(self) -> float:
        """Nanoseconds more where results and workspace are memory that nobody has touched yet: its pages must be cleared."""
        summary = self.plan.summary
        written = {touch.buffer for touch in summary.touches if touch.store and not summary.buffers[touch.buffer].local}
        return sum(prod(summary.buffers[n].extents) * summary.buffers[n].size for n in written) / PAGE * self.facts.page

    def at(self, threads: int | None = None, **sizes: int) -> Cost:
        """The cost at other open sizes, or on so many threads. Raises `ArgumentError` for a size that the program does not have."""
        unknown = next((name for name in sizes if name not in self.nest.sizes), None)
        if unknown is not None:
            message = f"cost: expected an open size among {', '.join(self.nest.sizes) or 'none'}, got {unknown}"
            raise ArgumentError(message, location=user_location(), hint=suggestion(unknown, ("threads", *self.nest.sizes)))
        return cost_of(self.nest, {**self.sizes, **sizes}, self.threads if threads is None else threads, self.target)

    def __repr__(self) -> str:
        return f"<cost of {self.nest.name}: {spell(self.nanoseconds)}>"

    def _repr_html_(self) -> str:
        return listing(str(self))

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("loops", "iterations", "time", "waits for", *PORTS, *LEVELS, "registers")]
        extents, loops = self.plan.extents(), self.plan.summary.loops
        bodies = self.plan.iterations(extents)[:, 0]
        for number, path in enumerate(self.plan.blocks):
            time = self.times.blocks[number, 0]
            if time < self.nanoseconds / 100:
                continue
            parts = [*self.times.ports[number, :, 0], *self.times.levels[:, number, 0]]
            waits = (
                (*PORTS, *LEVELS)[int(np.argmax(parts))] if max(self.times.ports[number, :, 0]) >= sum(parts[len(PORTS) :]) else "memory"
            )
            names = " ".join(loops[x].name for x in path[1:]) or f"({loops[path[0]].name})"
            held = self.times.registers[number, 0]
            over = max(0.0, held - self.facts.registers + SPARE)
            shown = [spell(part) if part >= time / 100 else "" for part in parts]
            rows.append((names, f"{bodies[path[-1]]:,.0f}", spell(time), waits, *shown, f"{held:.0f}" + (f" ({over:.0f})" if over else "")))
        kept = [n for n in range(len(rows[0])) if n < 4 or any(row[n] not in ("", "0") for row in rows[1:])]
        widths = [max(len(row[n]) for row in rows) for n in kept]
        lines = [
            "  ".join(row[n].ljust(w) if n in (0, 3) else row[n].rjust(w) for n, w in zip(kept, widths, strict=True)).rstrip()
            for row in rows
        ]
        many = "multiprocessors" if isinstance(self.target, Gpu) else "threads"
        on = "one thread" if self.threads == 1 else f"{self.threads} {many}"
        at = "".join(f", {name} = {size}" for name, size in self.sizes.items())
        return f"{spell(self.nanoseconds)} on {on}{at} ({self.facts.name}, {self.facts.source})\n" + "\n".join(lines) + "\n"


def spell(nanoseconds: float) -> str:
    """A time in the unit that suits it, to three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
