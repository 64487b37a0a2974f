"""What planners of definitions choose, as words of nests: their calls, made on a schedule of the plain nest.

Both have the same words, but for names: a planner's definition that a rewrite makes is called otherwise here, and loops of one iteration
are gone from a nest. So every call is made on both sides, and names that come back are matched. Kernels that run side by side are put so at
the end, when all loops have their kinds. Where a word is refused, or has no rewrite, there is no translation.
"""

from __future__ import annotations

import ast
import contextlib
from typing import Any, NamedTuple

from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.measure import facts_here
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.handle.calls import Call, replay
from tensorexpr.codegen.handle.schedule import Schedule, plain_form
from tensorexpr.codegen.handle.stage import StageHandle
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.schedule.schedule import schedule as planned_schedule
from tensorexpr.errors import DefinitionError, ScheduleError
from tensorexpr.markup import listed
from tensorexpr.records import replace
from tensorexpr.traversal import reads

ON_LOOPS = ("split", "fuse", "reorder", "tile", "parallel", "vectorize", "unroll", "serial", "rfactor", "pipeline", "tensorize")
"""Words all of whose arguments that are text are loops of the definition itself, but for the name of a tail or of an instruction."""
OTHERS = ("own", "sort", "partition")
"""Words that mean something else here."""
KEPT = ("peel", "shift", "guard", "stride")
MARKS = ("parallel", "vectorize", "unroll", "serial", "reorder")
"""Words that say nothing where their loop has one iteration."""


class _Said(NamedTuple):
    """A call of a planner: the word, the definition (None: the schedule), the arguments."""

    word: str
    on: str | None
    arguments: tuple[Any, ...]


SLOWER = 1.02
"""How much slower a nest may be predicted that has the same loops: what the two spell differently, such as an index."""
MOST_CALLS = 32
MOST_STATEMENTS = 80
"""Calls, and statements of the nest, up to which a translation takes some tenths of a second at most."""


def translated(planned: Planned, schedule: Schedule) -> Schedule:
    """A plain schedule of the program of a planner's, with the calls of that as its words. Raises `ScheduleError` where one is refused."""
    calls = planned.as_python().splitlines()
    for said in map(_read, calls):
        if said.word in OTHERS or not hasattr(StageHandle, said.word) or (said.on is None and said.word != "inline"):
            raise ScheduleError(f"expected a word that is a rewrite, got {said.word}")
    made = _Translation(planned, schedule)
    for line in calls:
        if len(calls) > MOST_CALLS or sum(1 for _ in walk_nest(made.schedule.form.nest)) > MOST_STATEMENTS:
            raise ScheduleError(f"expected at most {MOST_CALLS} calls, and {MOST_STATEMENTS} statements, to translate a schedule, got more")
        made.say(line)
    made.finish()
    return made.schedule


def in_words(planned: Planned, nest: LoopNest | None = None) -> Schedule | None:
    """The schedule of a planner for a simplified program in words that are rewrites; None where there is none, or where its nest is
    predicted to be slower than the one to which the planner's is lowered."""
    try:
        made = translated(planned, simple_schedule(planned))
    except (ScheduleError, DefinitionError):
        return None
    facts = facts_here()
    ours, theirs = (float(Model(summary_of(one), facts).times()[0]) for one in (made.nest, lower(planned) if nest is None else nest))
    return made if ours <= SLOWER * theirs else None


def simple_schedule(planned: Planned) -> Schedule:
    """The plain schedule of a planner's program, which is in the form in which builds have it."""
    form = replace(plain_form(planned.program), calls=(Call("simplify"),))
    return Schedule(form, planned.target, origin=planned.origin)


class _Translation:
    """The planner's schedule and ours, call by call; what ours calls the definitions and loops of the other."""

    def __init__(self, planned: Planned, schedule: Schedule) -> None:
        self.theirs = planned_schedule(planned.program, planned.target)
        self.schedule = schedule
        self.definitions: dict[str, str] = {}
        self.loops: dict[str, dict[str, str]] = {}
        self.later: list[tuple[str, str]] = []
        self.hints: list[_Said] = []

    def say(self, line: str) -> None:
        """Makes a call on both sides."""
        said = _read(line)
        before = self.theirs.stages
        replay(self.theirs, line)
        if said.on is None:
            self.whole(said)
            return
        if said.word == "rfactor" and len(said.arguments) > 1:  # results that take turns
            raise ScheduleError(f"expected a word that is a rewrite, got {said.word}")
        name = self.definition(said.on)
        if said.word == "alongside":
            self.later.append((name, self.definition(said.arguments[0])))
            return
        if said.word == "prefetch":  # a hint, which rewrites give where they may
            self.hints.append(said)
            return
        arguments = self.arguments(said)
        if arguments is None:
            return
        given = self.make(name, said.word, *arguments)
        self.match(said, given, [name for name in self.theirs.stages if name not in before])

    def make(self, name: str, word: str, *arguments: Any) -> Any:
        """What a word of a definition of ours gives."""
        return getattr(self.schedule[name], word)(*arguments)

    def whole(self, said: _Said) -> None:
        assert said.word == "inline"  # the only word of a planner's schedule as a whole that is a rewrite
        for name in map(self.definition, said.arguments):
            try:
                self.schedule[name].inline()
            except ScheduleError:
                self.near_its_reader(name)

    def near_its_reader(self, name: str) -> None:
        """Computes a definition, which has statements of its own, in the innermost loop of what reads it."""
        readers = [
            d.results[0][0] for d in self.schedule.program.definitions if name in reads(d) and d.results[0][0] in self.schedule.stages
        ]
        loops = [self.schedule[reader].loops for reader in readers]
        if len(readers) != 1 or not loops[0]:
            raise ScheduleError(f"expected one reader of {name}, with loops, to compute it in, got {listed(readers) or 'none'}")
        self.schedule[name].compute_at(readers[0], loops[0][-1])

    def definition(self, name: str) -> str:
        """What ours calls a definition."""
        return self.definitions.get(name, name)

    def there(self, said: _Said, definition: str, name: str) -> str:
        """What ours calls a loop that a call needs."""
        found = self.loop(definition, name)
        if found is None:
            raise ScheduleError(f"expected a loop of {definition} to {said.word}, got {name}, which has a single iteration")
        return found

    def loop(self, definition: str, name: str) -> str | None:
        """What ours calls a loop; None where it is gone."""
        found = self.loops.get(definition, {}).get(name, name)
        return found if found in self.schedule[self.definition(definition)].loops else None

    def arguments(self, said: _Said) -> tuple[Any, ...] | None:
        """The arguments of a call in our names; None where there is nothing to do."""
        own = said.on or ""
        if said.word in ON_LOOPS:
            if said.word in MARKS:
                mapped = [loop for a in said.arguments if (loop := self.loop(own, a)) is not None]
                return tuple(mapped) if len(mapped) > (said.word == "reorder") else None
            names = said.arguments[:1] if said.word == "tensorize" else [a for a in said.arguments if isinstance(a, str) and a not in KEPT]
            return tuple(self.there(said, own, a) if a in names else a for a in said.arguments)
        if said.word == "compute_at":
            other, axis = said.arguments
            return self.definition(other), self.there(said, other, axis)
        first, *rest = said.arguments or (None,)
        if first is None:
            return ()
        if said.word in ("cache", "prefetch"):
            rest[0] = self.there(said, own, rest[0])
        return (self.definition(first) if isinstance(first, str) else first, *rest)

    def match(self, said: _Said, given: Any, made: list[str]) -> None:
        """Matches names that a call has made: definitions, and loops."""
        own = said.on or ""
        if said.word in ("rfactor", "stage"):
            ours = [given] if isinstance(given, str) else list(given or ())
            if len(made) != len(ours):
                raise ScheduleError(f"expected a word that is a rewrite, got {said.word}")
            for name, mine in zip(made, ours, strict=True):
                self.definitions[name] = mine
                theirs, loops = self.theirs[name].loops, self.schedule[mine].loops
                if len(theirs) == len(loops):
                    self.loops[name] = dict(zip(theirs, loops, strict=True))
        elif said.word in ("split", "fuse", "tile"):
            names = [given] if isinstance(given, str) else list(given)
            axes = [a for a in said.arguments if isinstance(a, str) and a not in KEPT]
            theirs_made = ["_".join(axes)] if said.word == "fuse" else [f"{a}{end}" for end in ("_o", "_i") for a in axes]
            known = self.theirs[own].loops
            if all(n in known for n in theirs_made) and len(theirs_made) == len(names):
                self.loops.setdefault(own, {}).update(zip(theirs_made, names, strict=True))

    def finish(self) -> None:
        """Puts kernels side by side, and fetches ahead where that may be."""
        for name, other in self.later:
            self.make(name, "alongside", other)
        for said in self.hints:
            with contextlib.suppress(ScheduleError):
                self.make(self.definition(said.on or ""), said.word, *(self.arguments(said) or ()))


def _read(line: str) -> _Said:
    """A call of a planner from its text."""
    call = ast.parse(line.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    on = call.func.value.slice.value if isinstance(call.func.value, ast.Subscript) else None  # type: ignore[attr-defined]
    return _Said(call.func.attr, on, tuple(ast.literal_eval(a) for a in call.args))
