"""The schedule that users hold: a program, the nest that computes it, and the calls that made the nest.

    s = te.schedule(C)                     the plain nest
    outer, inner = s[C].split("i", 32)     a rewrite of it, by names of C's loops
    s.rewrite("fuse_at", "m", "i_1")       a rewrite of it, by names of the nest

A schedule is a handle on a value (`Form`): words replace it by another one, so that copies are not affected. What a search found is a
schedule like any other: its calls are rewrites of the nest. A nest that the planners of definitions made, which are older than the nests,
comes by one call of `planned`, which has theirs as text.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensorexpr.codegen.auto import candidate
from tensorexpr.codegen.auto.cost import Cost, cost_of
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.handle.calls import Call, read, replay
from tensorexpr.codegen.handle.loops import Table, apart_by_kernel, buffers_stored, first_table, followed, in_order, table_of
from tensorexpr.codegen.handle.stage import StageHandle
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.plain import plainly
from tensorexpr.codegen.rewrites.kernels import in_memory
from tensorexpr.codegen.rewrites.loops import simplify as simplify_nest
from tensorexpr.codegen.rewrites.loops.tensorize import settled
from tensorexpr.codegen.rewrites.names import named
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.schedule import schedule as planned_schedule
from tensorexpr.codegen.target import Target, host_target
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import Offering, checked, made_by, suggestion, unknown_name
from tensorexpr.ir import Program
from tensorexpr.markup import amount, code, folded, listed, listing, or_reason, page
from tensorexpr.records import cached_property, record, replace


@record(eq=False, slots=False)
class Form:
    """A program as a nest with the calls that made it; `buffers` says where a definition is kept, `loops` what it calls its loops."""

    program: Program
    nest: LoopNest
    buffers: Mapping[str, str]
    loops: Table
    calls: tuple[Call, ...] = ()

    @cached_property
    def _shown(self) -> dict[int, LoopNest]:
        return {}

    def shown(self, cores: int) -> LoopNest:
        """The nest without what is decided: loops of one iteration, and of none, stay for words that name them. Local buffers that are too
        large for a stack, or may be, have room in the workspace."""
        if cores not in self._shown:
            self._shown[cores] = in_memory(simplify_nest(self.nest), cores=cores)
        return self._shown[cores]

    @cached_property
    def stored(self) -> Mapping[str, None]:
        """The buffers that it computes, in order."""
        return buffers_stored(self.nest)


def plain_form(program: Program) -> Form:
    """The plain nest of a program, with unique names."""
    plain = plainly(program)
    nest = named(plain.nest)
    loops = first_table(program.definitions, plain, nest)
    return Form(program, nest, {name: plain.buffers[name] for name in loops}, loops)


class Schedule(Offering):
    """A program and how it runs. Equal schedules have equal programs, targets and nests.

    `print(s)` shows the loop nest, `s.as_python()` the calls that rebuild it from `te.schedule(...)`, `s[C]` is a handle on the loops of a
    definition. A word that is refused raises `ScheduleError` with the reason and changes nothing. `written` is the program before it was
    simplified; `names` gives the definitions of tensors by their keys, where the program was made from tensors; `single` says that it was
    made from one tensor, whose array a compiled function returns bare. `origin` says in words where a default schedule comes from.

    >>> x = te.placeholder((64,), name="x")
    >>> y = te.compute((64,), lambda i: x[i] * 2.0, name="y")
    >>> s = te.schedule(y)
    >>> isinstance(s, te.Schedule)
    True
    >>> s["y"].vectorize("i")
    >>> print(s.as_python().strip())
    s['y'].vectorize('i')
    >>> s == te.schedule(y)
    False
    """

    offered = (
        "as_python", "calls", "copy", "cost", "inline", "loops_of", "nest", "origin", "program", "rewrite", "simplify", "stages", "target",
    )  # fmt: skip

    @checked(made_by("te.schedule(C) makes the schedule of tensors"))
    def __init__(
        self,
        form: Form,
        target: Target,
        names: Mapping[str, str] | None = None,
        single: bool = False,
        origin: str = "",
        written: Program | None = None,
    ) -> None:
        self.form = form
        self.target = target
        self.names: Mapping[str, str] = {} if names is None else names
        self.single = single
        self.origin = origin
        self.written = form.program if written is None else written

    # ------------------------------------------------------------------------------------------------- where they come from

    @staticmethod
    def plain(program: Program, target: Target | None = None, **details: Any) -> Schedule:
        """The plain schedule: every definition by itself, all loops serial, in the order of the text."""
        return Schedule(plain_form(program), host_target() if target is None else target, **details)

    @staticmethod
    def of_candidate(program: Program, target: Target, found: candidate.Candidate, **details: Any) -> Schedule:
        """The schedule of a nest that rewrites made of the plain nest of a program in the form in which builds have it."""
        form = plain_form(program)
        calls = (Call("simplify"), *(Call("rewrite", (call.word, *call.arguments)) for call in found.calls))
        return Schedule(replace(form, nest=found.nest, loops=followed(form.loops, form.nest, found.nest), calls=calls), target, **details)

    @staticmethod
    def of_planned(planned: Planned, simple: bool = True, **details: Any) -> Schedule:
        """The schedule of a nest that planners of definitions made; `simple`: of the program in the form in which builds have it."""
        form = plain_form(planned.program)
        form = replace(form, calls=(Call("simplify"),)) if simple else form
        form = _by_planners(form, planned, lowered(planned))
        return Schedule(form, planned.target, **{"origin": planned.origin, **details})

    def copy(self) -> Schedule:
        """Another schedule with the same loops."""
        return Schedule(self.form, self.target, self.names, self.single, self.origin, self.written)

    # --------------------------------------------------------------------------------------------------------- what it is

    @property
    def program(self) -> Program:
        """The program whose definitions have loops."""
        return self.form.program

    @property
    def nest(self) -> LoopNest:
        """The loops."""
        return self.form.shown(self.target.cores)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that made it of the plain one."""
        return self.form.calls

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the definitions that are computed, in order."""
        return tuple(name for name, buffer in self.form.buffers.items() if buffer in self.form.stored)

    @property
    def cost(self) -> Cost:
        """What the model of cost makes of it, in nanoseconds of one call on one thread; `print` shows why, `.at(threads=..., n=...)` gives
        it on more threads and at other open sizes (without, they are such that the largest argument has a million elements)."""
        return cost_of(self.nest, target=self.target)

    def as_python(self) -> str:
        """The calls that make this schedule from `s = te.schedule(...)`, one per line."""
        return "".join(f"{call}\n" for call in self.calls)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.stages)

    def __getitem__(self, definition: object) -> StageHandle:
        """The loops of a definition, given by its name or by the tensor.

        Raises `ScheduleError` for what the program does not compute (also where simplifying or inlining removed it).
        """
        name = definition if isinstance(definition, str) else getattr(definition, "name", None)
        name = self.names.get(getattr(definition, "key", ""), name)  # tensors may share a name, or have none of their own
        if not isinstance(name, str):
            hint = f"definitions: {', '.join(self.stages)}"
            raise ScheduleError(f"expected a tensor or the name of a definition, got {definition!r}", hint=hint)
        self.buffer_of(name)
        return StageHandle(self, name)

    def buffer_of(self, name: str) -> str:
        """The buffer in which a definition is kept, also one that a word made. Raises `ScheduleError` where nothing computes it."""
        buffer = self.form.buffers.get(name, name)
        if buffer in self.form.stored:
            return buffer
        if name in self.form.buffers:
            raise ScheduleError(f"expected a definition with loops, got {name!r}, which is inlined")
        hint = suggestion(name, self.stages, f"definitions: {', '.join(self.stages)}")
        if name in {item.name for item in self.form.program.inputs}:
            hint = f"{name} is an input, which no loops compute; {hint}"
        raise ScheduleError(f"expected a definition of the program, got {name!r}", hint=hint)

    def loops_of(self, name: str) -> tuple[str, ...]:
        """The loops of a definition in the nest's names, outermost first."""
        return in_order(self.form.nest, self.form.loops.get(name, {}).values())

    # -------------------------------------------------------------------------------------------------------------- words

    def became(self, word: str, arguments: tuple[Any, ...], on: str | None, nest: LoopNest, **changes: Any) -> None:
        """Takes another form after a call."""
        self.form = replace(self.form, nest=settled(nest), **changes, calls=(*self.form.calls, Call(word, arguments, on)))

    @checked()
    def rewrite(self, word: str, *arguments: Any) -> None:
        """Applies a rewrite of nests by its name, to loops and buffers as the nest calls them: `s.rewrite("split", "i_1", 32)`."""
        function = candidate.WORDS.get(word)
        if function is None:
            raise ScheduleError(f"expected the name of a rewrite, got {word!r}", hint=suggestion(word, candidate.WORDS))
        given = read(self.form.nest, word, arguments)
        try:
            inspect.signature(function).bind(self.form.nest, *given)
        except TypeError as error:
            form = f"{word}({', '.join([*inspect.signature(function).parameters][1:])})"
            raise ScheduleError(f"expected the arguments of the rewrite {form}, got {len(arguments)}: {error}") from None
        nest = function(self.form.nest, *given)
        self.became("rewrite", (word, *arguments), None, nest=nest, loops=followed(self.form.loops, self.form.nest, nest))

    @checked()
    def simplify(self) -> None:
        """Takes the program in the form in which builds have it: definitions inlined, running tables for what results share. What depends
        on constants alone is not computed first, as `te.autoschedule` and builds do."""
        self._at_first("simplify")
        form = plain_form(simplified(self.written, self.target))
        self.form = replace(form, calls=(Call("simplify"),))

    @checked()
    def planned(self, *calls: str) -> None:
        """Takes the nest that planners of definitions make: `calls` are theirs, as text. So the default schedule is rebuilt where the
        search of nests was not taken."""
        self._at_first("planned", "simplify")
        planned = planned_schedule(self.program, self.target)
        for call in calls:
            replay(planned, call)
        self.form = _by_planners(self.form, planned, lowered(planned))

    def _at_first(self, word: str, *before: str) -> None:
        others = [call for call in self.calls if call.word not in before]
        if others:
            raise ScheduleError(f"expected {word} before all other calls, got {others[0]} before")

    @checked()
    def inline(self, *definitions: str) -> None:
        """Computes definitions where they are read and stores them nowhere."""
        kept = self.form
        try:
            for name in definitions:
                self[name].inline()
        except ScheduleError:
            self.form = kept
            raise

    # ------------------------------------------------------------------------------------------------------------ a value

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python looks for
                raise AttributeError(name)
            words = [word for word in vars(StageHandle) if not word.startswith("_")]
            hint = f"it acts on the loops of a definition: s[{self.stages[-1]!r}].{name}(...)" if name in words and self.stages else None
            raise unknown_name("the schedule", name, [*self.offered, *words], hint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule) or self.target != other.target:
            return False
        return self.program == other.program and self.form.nest == other.form.nest

    def __hash__(self) -> int:
        return hash((self.program, self.form.nest))

    def __str__(self) -> str:
        return str(self.nest)

    def __repr__(self) -> str:
        return f"<schedule for {self.target.name} of {listed(self.stages)}: {amount(len(self.calls), 'call')}>"

    def _repr_html_(self) -> str:
        calls = folded("calls", listing(self.as_python()))
        return page(code(repr(self)), calls, or_reason(lambda: self.nest._repr_html_()))


def _by_planners(form: Form, planned: Planned, nest: LoopNest) -> Form:
    nest, called = apart_by_kernel(nest)
    call = Call("planned", tuple(planned.as_python().splitlines()))
    return replace(form, nest=nest, loops=table_of(nest, form.buffers, called), calls=(*form.calls, call))
