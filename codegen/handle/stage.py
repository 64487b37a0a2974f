"""The loops of one definition in a schedule: the words that users write, as rewrites of the nest.

`s[C]` says "i" for the loop that the nest calls "i_1", understands both, and gives and prints its own names. What a word makes is named
after what it was made of: `split` of "i" gives "i_o" and "i_i", also where the nest has them as "i_1_o" and "i_1_i".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.nest import Alloc, For, LoopNest, Store
from tensorexpr.codegen.rewrites import data, loops
from tensorexpr.codegen.rewrites.loops.kinds import check_length
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths, walk_block
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import checked, suggestion, unknown_name
from tensorexpr.markup import listed
from tensorexpr.traversal import free_names, fresh_name

if TYPE_CHECKING:
    from tensorexpr.codegen.handle.schedule import Schedule


class StageHandle:
    """The loops of one definition; its methods are the words, each refused with a `ScheduleError` where illegal."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self._schedule = schedule
        self.name = name

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python looks for
                raise AttributeError(name)
            raise unknown_name(f"the loops of {self.name}", name, vars(StageHandle))

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops, outermost first."""
        return tuple(map(self._own, self._schedule.loops_of(self.name)))

    def __repr__(self) -> str:
        if self.name in self._schedule.form.buffers and self.name not in self._schedule.stages:
            return f"<loops of {self.name}, which has none of its own any more>"
        nest = self._nest
        kinds = {name: loop_at(nest, loop_paths(nest, name)[0]).kind for name in self._schedule.loops_of(self.name)}
        shown = [self._own(name) if kind == "serial" else f"{self._own(name)} ({kind})" for name, kind in kinds.items()]
        return f"<loops of {self.name}: {listed(shown)}>"

    # ---------------------------------------------------------------------------------------------------------------- names

    @property
    def _nest(self) -> LoopNest:
        return self._schedule.form.nest

    @property
    def _table(self) -> Mapping[str, str]:
        return self._schedule.form.loops.get(self.name, {})

    @property
    def _buffer(self) -> str:
        return self._schedule.buffer_of(self.name)

    def _own(self, loop: str) -> str:
        """What the definition calls a loop of the nest."""
        return next((user for user, name in self._table.items() if name == loop), loop)

    def _there(self, loop: object) -> str:
        """What the nest calls a loop of the definition."""
        here = {s.index for s in _loops(self._nest)}
        name = self._table.get(loop, loop) if isinstance(loop, str) else loop
        if isinstance(name, str) and name in here:
            return name
        why = next(
            (f", which was {_PAST[c.word]}" for c in reversed(self._schedule.calls) if c.word in _PAST and self._is_about(c, loop)), ""
        )
        raise ScheduleError(
            f"expected a loop of {self.name}, got {loop!r}{why}",
            hint=suggestion(loop, self.loops, f"its loops are {', '.join(self.loops)}" if self.loops else None),
        )

    def _is_about(self, call: Any, loop: object) -> bool:
        return call.on == self.name and loop in call.arguments

    def _apply(
        self, word: str, arguments: tuple[Any, ...], rewrite: Callable[[LoopNest], LoopNest], made: Mapping[str, str] | None = None
    ) -> None:
        """Makes the nest another one. `made` are the new loops of the definition, by its own names."""
        try:
            nest = rewrite(self._nest)
        except ScheduleError as error:
            raise self._translated(error) from None
        table = {**self._schedule.form.loops, self.name: {**self._table, **(made or {})}}
        self._schedule.became(word, arguments, self.name, nest=nest, loops=table)

    def _translated(self, error: ScheduleError) -> ScheduleError:
        """An error with the loops of the definition as it calls them."""
        others = {name: user for user, name in self._table.items() if name != user}
        if not others:
            return error
        pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(others, key=len, reverse=True))) + r")(?!\w)")

        def told(text: str | None) -> str | None:
            return None if text is None else pattern.sub(lambda found: others[found[0]], text)

        message = told(error.message) or error.message
        return ScheduleError(message, term=error.term, location=error.location, at=told(error.at), hint=told(error.hint))

    def _new(self, *stems: str) -> tuple[str, ...]:
        """Names for loops of the definition."""
        taken = {user for user, name in self._table.items() if name in {s.index for s in _loops(self._nest)}}
        return tuple(fresh_name(stem, taken) for stem in stems)

    # ------------------------------------------------------------------------------------------------------ the list of loops

    @checked()
    def split(self, axis: str, factor: int, tail: str = "peel") -> tuple[str, str]:
        """Splits a loop into blocks of `factor`: gives the names of the loop over blocks and of the loop inside one.

        `tail` is what happens to a rest: "peel" (a smaller block of its own), "shift" (the last block moves back) or "guard".
        """
        loop = self._there(axis)
        outer, inner = self._new(f"{self._own(loop)}_o", f"{self._own(loop)}_i")
        names = fresh(self._nest, f"{loop}_o", f"{loop}_i")
        made = {outer: names[0], inner: names[1]}
        self._apply("split", (axis, factor, tail), lambda nest: loops.split(nest, loop, factor, tail, names), made)
        return outer, inner

    @checked()
    def fuse(self, outer: str, inner: str) -> str:
        """Makes one loop of two that stand directly inside each other; gives its name."""
        first, second = self._there(outer), self._there(inner)
        (name,) = fresh(self._nest, f"{first}_{second}")
        (own,) = self._new(f"{self._own(first)}_{self._own(second)}")
        self._apply("fuse", (outer, inner), lambda nest: loops.fuse(nest, first, second, name), {own: name})
        return own

    @checked()
    def reorder(self, *axes: str) -> None:
        """Puts the named loops in this order, into the places that they have now."""
        names = tuple(map(self._there, axes))
        self._apply("reorder", axes, lambda nest: loops.reorder(nest, *names))

    @checked()
    def tile(self, a: str, b: str, a_factor: int, b_factor: int, tail: str = "peel") -> tuple[str, str, str, str]:
        """Splits two loops and puts the blocks of both outside: gives the names of the loops over blocks, then of those inside."""
        with self._at_once("tile", (a, b, a_factor, b_factor, tail)):
            a_o, a_i = self.split(a, a_factor, tail)
            b_o, b_i = self.split(b, b_factor, tail)
            self.reorder(a_o, b_o, a_i, b_i)
        return a_o, b_o, a_i, b_i

    def _at_once(self, word: str, arguments: tuple[Any, ...]) -> _AtOnce:
        return _AtOnce(self._schedule, word, arguments, self.name)

    # --------------------------------------------------------------------------------------------------------- how loops run

    @checked()
    def parallel(self, axis: str) -> None:
        """Runs the iterations of a loop on all cores."""
        loop = self._there(axis)
        self._apply("parallel", (axis,), lambda nest: loops.parallel(nest, loop))

    @checked()
    def vectorize(self, axis: str) -> None:
        """Runs the iterations of a loop of constant extent in the lanes of vectors.

        Of a reduction: every lane has an accumulator, combined in a fixed order at the end (a reassociation).
        """
        loop = self._there(axis)

        def in_lanes(nest: LoopNest) -> LoopNest:
            check_length(nest, loop, "vectorize")
            return loops.vectorize(_in_parts(nest, loop), loop)

        self._apply("vectorize", (axis,), in_lanes)

    @checked()
    def unroll(self, axis: str) -> None:
        """Copies out the iterations of a loop of constant extent."""
        loop = self._there(axis)
        self._apply("unroll", (axis,), lambda nest: loops.unroll(nest, loop))

    @checked()
    def bind(self, axis: str, gpu_axis: str) -> None:
        """Runs the iterations of a loop as the blocks of a GPU's grid ("block.x" to "block.z") or as the threads of a block
        ("thread.x" to "thread.z")."""
        loop = self._there(axis)
        if not self._schedule.target.is_gpu:
            raise ScheduleError(f"expected a GPU as the target to bind {axis} to {gpu_axis}, got {self._schedule.target.name}")
        self._apply("bind", (axis, gpu_axis), lambda nest: loops.bind(nest, loop, gpu_axis))

    @checked()
    def serial(self, axis: str) -> None:
        """Takes back `parallel`, `vectorize`, `unroll` or `bind`."""
        loop = self._there(axis)
        self._apply("serial", (axis,), lambda nest: loops.serial(nest, loop))

    # ---------------------------------------------------------------------------------------- where a definition is computed

    def inline(self) -> None:
        """Computes the definition where it is read, and stores it nowhere. Its own stage goes away."""
        buffer = self._buffer
        if buffer in self._nest.writes:
            raise ScheduleError(f"expected a definition between others to inline, got the output {self.name}")
        self._apply("inline", (), lambda nest: data.inline(nest, buffer))

    @checked()
    def compute_at(self, consumer: object, axis: str) -> None:
        """Computes the definition in a loop of another that reads it, once per iteration, at the elements read there."""
        other = self._schedule[consumer]
        loop, buffer = other._there(axis), self._buffer
        self._apply("compute_at", (other.name, axis), lambda nest: data.fuse_at(nest, buffer, loop))

    @checked()
    def cache(self, tensor: str, axis: str, order: Sequence[int] | None = None) -> str:
        """Copies what an iteration of a loop reads of a tensor to a local buffer first, its axes in the order given; gives its name."""
        loop = self._there(axis)
        buffer = self._schedule.form.buffers.get(tensor, tensor)
        (name,) = fresh(self._nest, f"{buffer}_of")
        given = (tensor, axis) if order is None else (tensor, axis, tuple(order))
        self._apply("cache", given, lambda nest: data.stage(nest, buffer, loop, order, None, "local", name))
        return name


_PAST = {"split": "split", "fuse": "fused", "tile": "split"}


class _AtOnce:
    """Several words as one call: all of them, or none."""

    def __init__(self, schedule: Schedule, word: str, arguments: tuple[Any, ...], on: str) -> None:
        self.schedule, self.before = schedule, schedule.form
        self.call = word, arguments, on

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *rest: object) -> None:
        made = self.schedule.form
        self.schedule.form = self.before
        if kind is None:
            self.schedule.became(*self.call, nest=made.nest, buffers=made.buffers, loops=made.loops)


def _loops(nest: LoopNest) -> list[For]:
    return [s for kernel in nest.kernels for _, s in walk_block(kernel.body) if isinstance(s, For)]


def _in_parts(nest: LoopNest, loop: str) -> LoopNest:
    """The nest in which what a loop accumulates has an accumulator for each of its iterations."""
    own = {s.buffer.name for path in loop_paths(nest, loop) for _, s in walk_block(loop_at(nest, path).body) if isinstance(s, Alloc)}
    stores = [s for path in loop_paths(nest, loop) for _, s in walk_block(loop_at(nest, path).body) if isinstance(s, Store)]
    held = [s.buffer for s in stores if s.buffer not in own and operation_of(s) and not any(loop in free_names(i) for i in s.indices)]
    for buffer in dict.fromkeys(held):
        nest = data.rfactor(nest, buffer, loop)
    return nest
