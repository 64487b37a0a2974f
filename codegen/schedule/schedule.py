"""The schedule that planners hold: a value of `State` behind the words of TVM and Halide.

`s[C]` is a handle on the loops of a definition; its primitives replace the state of `s` by another one, so a schedule that
was copied before is not affected. Loops are named by strings, first the names of the axes; `split` and `fuse` give the
names of what they make, which follow from the names before, so `as_python()` needs no variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr.codegen.schedule.analysis import skewing
from tensorexpr.codegen.schedule.analysis.state import Stage, State, plain_state
from tensorexpr.codegen.schedule.decisions import Decisions
from tensorexpr.codegen.schedule.definitions import staging, sweeps
from tensorexpr.codegen.schedule.definitions.clone import clone
from tensorexpr.codegen.schedule.definitions.inline import inline
from tensorexpr.codegen.schedule.definitions.recompute import recompute, share
from tensorexpr.codegen.schedule.definitions.rfactor import rfactor
from tensorexpr.codegen.schedule.loops.bind import bind
from tensorexpr.codegen.schedule.loops.cache import cache
from tensorexpr.codegen.schedule.loops.compute_at import compute_at
from tensorexpr.codegen.schedule.loops.fuse import fuse
from tensorexpr.codegen.schedule.loops.reorder import reorder
from tensorexpr.codegen.schedule.loops.rewriting import mark
from tensorexpr.codegen.schedule.loops.split import split
from tensorexpr.codegen.schedule.scatters.own import own
from tensorexpr.codegen.schedule.scatters.part import part
from tensorexpr.codegen.schedule.scatters.sort import sort
from tensorexpr.codegen.target import Target, host_target
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Program
from tensorexpr.markup import amount, listed
from tensorexpr.records import replace


class Planned:
    """A program and how it runs. Equal schedules have equal programs, targets and loops.

    `print(s)` shows the loop nest, `s.as_python()` the calls that rebuild it from `schedule(program)`, `s[C]` is a handle
    on the loops of a definition. A primitive that is refused raises `ScheduleError` with the reason and changes nothing.
    `names` gives the definitions of tensors by their keys, where the program was made from tensors; `single` says that it was made
    from one tensor, whose array a compiled function returns bare. `origin` says in words where a default schedule comes from: the
    analytic model, or a record of tuning.
    """

    def __init__(self, state: State, names: Mapping[str, str] | None = None, single: bool = False, origin: str = "") -> None:
        self.state = state
        self.names: Mapping[str, str] = {} if names is None else names
        self.single = single
        self.origin = origin
        self.decisions = Decisions()
        """What `autoschedule` asks where it chooses."""

    @property
    def program(self) -> Program:
        """The program as given (without definitions that no output needs)."""
        return self.state.source

    @property
    def target(self) -> Target:
        """The machine it is made for."""
        return self.state.target

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the definitions that have loops, in order."""
        return tuple(self.state.table)

    def copy(self) -> Planned:
        """Another schedule with the same loops."""
        return Planned(self.state, self.names, self.single, self.origin)

    def __getitem__(self, definition: object) -> StageHandle:
        """The loops of a definition, given by its name or by the tensor.

        Raises `ScheduleError` for what the program does not compute (also where simplifying or inlining removed it).
        """
        name = definition if isinstance(definition, str) else getattr(definition, "name", None)
        name = self.names.get(getattr(definition, "key", ""), name)  # tensors may share a name, or have none of their own
        if not isinstance(name, str):
            raise ScheduleError(f"expected a tensor or the name of a definition, got {definition!r}")
        self.state.stage(name)
        return StageHandle(self, name)

    def inline(self, *definitions: str) -> None:
        """Computes definitions where they are read and stores them nowhere. Their own stages go away."""
        state = inline(self.state, definitions)
        self.state = replace(state, calls=(*state.calls, f"s.inline({', '.join(map(repr, definitions))})"))

    def recompute(self, *definitions: str) -> None:
        """Computes definitions again where they are read, once for all points there that ask for one element; stores them nowhere.

        Their own stages go away; a reader has a loop over one point for each, inside which its value stays the same.
        """
        state = recompute(self.state, definitions)
        self.state = replace(state, calls=(*state.calls, f"s.recompute({', '.join(map(repr, definitions))})"))

    def sweep(self, scan: str, *readers: str) -> None:
        """Gives a scan whose points do not communicate loops of its own, the data axes around the steps, and computes readers
        that ask for the same points step by step (transposed, reversed) in them."""
        state = sweeps.sweep(self.state, scan, readers)
        self.state = replace(state, calls=(*state.calls, f"s.sweep({', '.join(map(repr, (scan, *readers)))})"))

    def skew(self, scan: str, steps: int, rows: int) -> None:
        """Makes `steps` steps of a scan in one pass over its states, each a few rows behind the one before, in blocks of `rows` rows."""
        state = skewing.skew(self.state, scan, steps, rows)
        self.state = replace(state, calls=(*state.calls, f"s.skew({scan!r}, {steps!r}, {rows!r})"))

    def tried(self, way: Callable[..., object], *arguments: object) -> bool:
        """Whether a way to plan is legal; where it is not, nothing is changed."""
        before = self.state
        try:
            way(*arguments)
        except ScheduleError:
            self.state = before
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Planned) and self.state == other.state

    def __hash__(self) -> int:
        return hash(self.state)

    def __str__(self) -> str:
        from tensorexpr.codegen.auto.search.memory import lowered  # noqa: PLC0415 -- lowering imports schedules

        return str(lowered(self))

    def __repr__(self) -> str:
        return f"<schedule for {self.target.name} of {listed(self.stages)}: {amount(len(self.state.calls), 'call')}>"

    def as_python(self) -> str:
        """The calls that make this schedule from `s = schedule(program)`, one per line."""
        return "".join(f"{call}\n" for call in self.state.calls)


class StageHandle:
    """The loops of one definition in a schedule; its methods are the primitives, each refused with a `ScheduleError` where illegal."""

    def __init__(self, schedule: Planned, name: str) -> None:
        self._schedule = schedule
        self.name = name

    @property
    def _stage(self) -> Stage:
        return self._schedule.state.stage(self.name)

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops, outermost first."""
        return self._stage.order

    def _apply(self, word: str, state: State, *arguments: object) -> None:
        call = f"s[{self.name!r}].{word}({', '.join(map(repr, arguments))})"
        self._schedule.state = replace(state, calls=(*self._schedule.state.calls, call))

    def split(self, axis: str, factor: int, tail: str = "peel") -> tuple[str, str]:
        """Splits a loop into blocks of `factor`: gives the names of the loop over blocks and of the loop inside one.

        `tail` is what happens to a rest: "peel" (a smaller block of its own), "shift" (the last block moves back) or "guard"; with
        "stride" the loop inside a block runs outside, and the other one over every so many points: a residue class.
        """
        state, made = split(self._schedule.state, self.name, axis, factor, tail)
        self._apply("split", state, axis, factor, tail)
        return made

    def fuse(self, outer: str, inner: str) -> str:
        """Makes one loop of two that stand directly inside each other; gives its name."""
        state, made = fuse(self._schedule.state, self.name, outer, inner)
        self._apply("fuse", state, outer, inner)
        return made

    def reorder(self, *axes: str) -> None:
        """Puts the named loops in this order, into the places that they have now."""
        self._apply("reorder", reorder(self._schedule.state, self.name, axes), *axes)

    def parallel(self, axis: str) -> None:
        """Runs the iterations of the outermost loop on all cores, in any order, so they must touch different elements."""
        self._apply("parallel", mark(self._schedule.state, self.name, axis, "parallel"), axis)

    def vectorize(self, axis: str) -> None:
        """Runs the iterations of a loop of constant extent in the lanes of vectors.

        Of a reduction: every lane has an accumulator, combined in a fixed order at the end (a reassociation).
        """
        self._apply("vectorize", mark(self._schedule.state, self.name, axis, "vectorize"), axis)

    def unroll(self, axis: str) -> None:
        """Copies out the iterations of a loop of constant extent."""
        self._apply("unroll", mark(self._schedule.state, self.name, axis, "unroll"), axis)

    def bind(self, axis: str, gpu_axis: str) -> None:
        """Runs the iterations of a loop as the blocks of a GPU's grid ("block.x" to "block.z"), as the threads of a block
        ("thread.x" to "thread.z"), or in the lanes of a warp ("warp")."""
        self._apply("bind", bind(self._schedule.state, self.name, axis, gpu_axis), axis, gpu_axis)

    def inline(self) -> None:
        """Computes the definition where it is read, and stores it nowhere. Its own stage goes away."""
        self._schedule.inline(self.name)

    def recompute(self) -> None:
        """Computes the definition again where it is read, and stores it nowhere: see `Planned.recompute`."""
        self._schedule.recompute(self.name)

    def share(self) -> None:
        """Computes costly values inside the reductions of the definition once for all points that have them in common.

        The list of loops gets a loop over one point for each; what stands after it shares the value.
        """
        self._apply("share", share(self._schedule.state, self.name))

    def clone(self, *sources: str) -> tuple[str, ...]:
        """Computes definitions that it reads, or that these read, again for it alone: gives the names of the copies, which have loops of
        their own. It runs behind everything that does not read it."""
        state, made = clone(self._schedule.state, self.name, sources)
        self._apply("clone", state, *sources)
        return made

    def stage(self, tensor: str, layout: staging.Layout) -> str:
        """Reads a copy of a tensor, its axes in the order given; gives the name of the copy, which has loops of its own.

        `(axis, length)` in place of an axis cuts it into blocks: their number stands there, the elements of a block innermost.
        """
        layout = tuple(layout)
        state, made = staging.stage(self._schedule.state, self.name, tensor, layout)
        self._apply("stage", state, tensor, layout)
        return made

    def cache(self, tensor: str, axis: str, order: tuple[int, ...], across: bool = False) -> None:
        """Copies what an iteration of a loop reads of a tensor to a local buffer first, its axes in the order given; where loops stand for
        them, `across` puts those of a reduction first."""
        state = cache(self._schedule.state, self.name, tensor, axis, tuple(order), across)
        self._apply("cache", state, tensor, axis, tuple(order), *((across,) if across else ()))

    def rfactor(self, axis: str, turns: int = 1, even: bool = False) -> tuple[str, ...]:
        """Takes a reduction apart along one of its loops, a scatter along its first: gives the names of the partial results, which have
        loops of their own."""
        state, made = rfactor(self._schedule.state, self.name, axis, turns, even)
        self._apply("rfactor", state, axis, *((turns,) if turns != 1 or even else ()), *((even,) if even else ()))
        return made

    def own(self, axis: str) -> str:
        """Lets blocks of the rows of a scatter own their elements where the data keeps rows apart: gives the definition that says so."""
        state, made = own(self._schedule.state, self.name, axis)
        self._apply("own", state, axis)
        return made

    def sort(self) -> tuple[str, ...]:
        """Makes a sort plan and a gather of a scatter: gives the names of the definitions that were put in front of it."""
        state, made = sort(self._schedule.state, self.name)
        self._apply("sort", state)
        return made

    def part(self, axis: str, *lengths: int) -> tuple[str, ...]:
        """Takes long segments of a sort plan apart, at multiples of `lengths` points: gives the names of the sums of parts."""
        state, made = part(self._schedule.state, self.name, axis, lengths)
        self._apply("part", state, axis, *lengths)
        return made

    def compute_at(self, consumer: object, axis: str) -> None:
        """Computes the definition in a loop of another that reads it, once per iteration, at the elements read there."""
        name = self._schedule[consumer].name
        self._apply("compute_at", compute_at(self._schedule.state, self.name, name, axis), name, axis)


def schedule(program: Program, target: Target | None = None) -> Planned:
    """The plain schedule: every definition by itself, all loops serial, in the order of the text."""
    return Planned(plain_state(program, host_target() if target is None else target))
