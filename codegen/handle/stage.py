"""The loops of one definition in a schedule: the words that users write, as rewrites of the nest.

`s[C]` says "i" for the loop that the nest calls "i_1", understands both, and gives and prints its own names. What a word makes is named
after what it was made of: `split` of "i" gives "i_o" and "i_i", also where the nest has them as "i_1_o" and "i_1_i".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.handle.loops import loops_in
from tensorexpr.codegen.handle.nests import (
    accumulators_of,
    copies_of,
    every_loop,
    home_of,
    in_parts,
    kernel_of,
    loops_at,
    merged,
    put_before,
)
from tensorexpr.codegen.nest import IN_WARP, For, LoopNest
from tensorexpr.codegen.nest.walks import elements_read, stores_in
from tensorexpr.codegen.rewrites import data, kernels, loops, sends
from tensorexpr.codegen.rewrites.intrinsics import intrinsic_named
from tensorexpr.codegen.rewrites.loops.kinds import WORDS, check_length
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths, walk_block
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import checked, suggestion, unknown_name
from tensorexpr.markup import listed
from tensorexpr.records import replace
from tensorexpr.traversal import fresh_name

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

    def _named(self, tensor: Any) -> str:
        """The name of a tensor, which is given by its name or as it is."""
        named: str = self._schedule.names.get(getattr(tensor, "key", ""), getattr(tensor, "name", tensor))
        return named

    def _own(self, loop: str) -> str:
        """What the definition calls a loop of the nest."""
        return next((user for user, name in self._table.items() if name == loop), loop)

    def _there(self, loop: object) -> str:
        """What the nest calls a loop of the definition."""
        here = {s.index for s in every_loop(self._nest)}
        name = self._table.get(loop, loop) if isinstance(loop, str) else loop
        if isinstance(name, str) and name in here:
            return name
        why = next(
            (f", which was {_PAST[c.word]}" for c in reversed(self._schedule.calls) if c.word in _PAST and self._is_about(c, loop)), ""
        )
        if isinstance(loop, list | tuple):
            raise ScheduleError(f"expected loops one by one, got {loop!r}", hint=f"without the brackets: {', '.join(map(repr, loop))}")
        raise ScheduleError(
            f"expected a loop of {self.name}, got {loop!r}{why}",
            hint=suggestion(loop, self.loops, f"loops: {', '.join(self.loops)}" if self.loops else None),
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
        """An error with loops as their definitions call them."""
        others = {name: user for own in self._schedule.form.loops.values() for user, name in own.items() if name != user}
        if not others:
            return error
        pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(others, key=len, reverse=True))) + r")(?!\w)")

        def told(text: str | None) -> str | None:
            return None if text is None else pattern.sub(lambda found: others[found[0]], text)

        message = told(error.message) or error.message
        return ScheduleError(message, term=error.term, location=error.location, at=told(error.at), hint=told(error.hint))

    def _new(self, *stems: str) -> tuple[str, ...]:
        """Names for loops of the definition."""
        taken = {user for user, name in self._table.items() if name in {s.index for s in every_loop(self._nest)}}
        return tuple(fresh_name(stem, taken) for stem in stems)

    # ------------------------------------------------------------------------------------------------------ the list of loops

    @checked()
    def split(self, axis: str, factor: int, tail: str = "peel") -> tuple[str, str]:
        """Splits a loop into blocks of `factor`: gives the names of the loop over blocks and of the loop inside one.

        `tail` is what happens to a rest: "peel" (a smaller block of its own), "shift" (the last block moves back) or "guard"; with
        "stride" the loop inside a block runs outside, and the other one over every so many points: a residue class.
        """
        loop = self._there(axis)
        outer, inner = self._new(f"{self._own(loop)}_o", f"{self._own(loop)}_i")
        first, second = fresh(self._nest, f"{loop}_o", f"{loop}_i")
        names, made = (first, second), {outer: first, inner: second}
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
    def skew(self, outer: str, inner: str, factor: int) -> None:
        """Begins a loop `factor` later with every iteration of one around it. Nothing changes by that alone: but where steps need what
        the step before has made beside it, the two may change places then (`reorder`)."""
        first, second = self._there(outer), self._there(inner)
        self._apply("skew", (outer, inner, factor), lambda nest: loops.skew(nest, first, second, factor))

    @checked()
    def reverse(self, axis: str) -> None:
        """Runs the iterations of a loop from the last to the first."""
        loop = self._there(axis)
        self._apply("reverse", (axis,), lambda nest: loops.reverse(nest, loop))

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
            return loops.vectorize(in_parts(nest, loop), loop)

        self._apply("vectorize", (axis,), in_lanes)

    @checked()
    def unroll(self, axis: str) -> None:
        """Copies out the iterations of a loop of constant extent."""
        loop = self._there(axis)
        self._apply("unroll", (axis,), lambda nest: loops.unroll(nest, loop))

    @checked()
    def bind(self, axis: str, gpu_axis: str) -> None:
        """Runs the iterations of a loop as the blocks of a GPU's grid ("block.x" to "block.z"), as the threads of a block
        ("thread.x" to "thread.z"), or in the lanes of a warp ("warp").

        Of a reduction a warp's lanes have an accumulator each, combined in a fixed order at the end (a reassociation).
        """
        loop = self._there(axis)
        if gpu_axis not in WORDS:
            raise ScheduleError(f"expected an axis of a GPU among {', '.join(WORDS)}, got {gpu_axis!r}", hint=suggestion(gpu_axis, WORDS))
        if not self._schedule.target.is_gpu:
            raise ScheduleError(f"expected a GPU as the target to bind {axis} to {gpu_axis}, got {self._schedule.target.name}")

        def bound(nest: LoopNest) -> LoopNest:
            if gpu_axis != IN_WARP:
                return loops.bind(nest, loop, gpu_axis)
            check_length(nest, loop, gpu_axis)
            apart = in_parts(nest, loop)
            known = {s.index for s in every_loop(nest)} - {loop}
            for name in dict.fromkeys(s.index for s in every_loop(apart)):  # with those that begin the parts and add them up
                apart = apart if name in known else loops.bind(apart, name, gpu_axis)
            return apart

        self._apply("bind", (axis, gpu_axis), bound)

    @checked()
    def serial(self, axis: str) -> None:
        """Takes back `parallel`, `vectorize`, `unroll` or `bind`."""
        loop = self._there(axis)
        self._apply("serial", (axis,), lambda nest: loops.serial(nest, loop))

    @checked()
    def tensorize(self, axis: str, intrinsic: str) -> None:
        """Runs the loops from one inwards as an instruction of the machine, known by name (`te.intrinsic` declares one)."""
        loop, found, target = self._there(axis), intrinsic_named(intrinsic), self._schedule.target
        missing = [feature for feature in found.features if feature not in target.features]
        if missing:
            raise ScheduleError(f"expected a machine with {', '.join(missing)} for {intrinsic}, got {target.name} without")
        self._apply("tensorize", (axis, intrinsic), lambda nest: loops.tensorize(nest, loop, intrinsic))

    @checked()
    def alongside(self, other: object) -> None:
        """Runs the iterations of its parallel loops in any order with those of another definition: one parallel region for both."""
        name = self._schedule[other].name
        self._apply("alongside", (name,), lambda nest: kernels.side_by_side(nest, *self._kernels(nest, name)))

    def _kernels(self, nest: LoopNest, other: str) -> tuple[int, int]:
        """The kernels in which another definition and this one are computed."""
        if other == self.name:
            raise ScheduleError(f"expected another definition to run {self.name} with, got itself")
        return kernel_of(nest, self._schedule.buffer_of(other)), kernel_of(nest, self._buffer)

    @checked()
    def compute_with(self, other: object) -> None:
        """Runs the definition in the loops of another, as far as the loops of both are alike: they have the same bounds and kind, from the
        outermost inwards, and every iteration finds what it needs."""
        name = self._schedule[other].name
        self._together("compute_with", (name,), name, self._schedule.loops_of(name))

    def _together(self, word: str, arguments: tuple[Any, ...], name: str, theirs: Sequence[str]) -> None:
        """Merges loops with some of another definition."""
        mine = self._schedule.loops_of(self.name)
        became: dict[str, str] = {}

        def together(nest: LoopNest) -> LoopNest:
            first, second = self._kernels(nest, name)
            if first != second:
                nest = kernels.move_kernel(nest, max(first, second), min(first, second) + 1)
                nest = data.merge_kernels(nest, min(first, second))
            nest, became_of = merged(nest, theirs, mine)
            became.update(became_of)
            return nest

        self._apply(word, arguments, together)
        renamed = {d: {u: became.get(n, n) for u, n in own.items()} for d, own in self._schedule.form.loops.items()}
        self._schedule.form = replace(self._schedule.form, loops=renamed)

    # ---------------------------------------------------------------------------------------- where a definition is computed

    def inline(self) -> None:
        """Computes the definition where it is read, and stores it nowhere. Its own stage goes away."""
        buffer = self._buffer
        if buffer in self._nest.writes:
            raise ScheduleError(f"expected a definition between others to inline, got the output {self.name}")
        self._apply("inline", (), lambda nest: data.inline(nest, buffer))

    @checked()
    def compute_at(self, consumer: object, axis: str) -> None:
        """Computes the definition in a loop of another that reads it, once per iteration, at the elements read there; of one that does not
        read it, in the same iterations, as far as the loops of both are alike."""
        other = self._schedule[consumer]
        if other.name == self.name:
            others = [name for name in self._schedule.stages if name != self.name]
            hint = f"definitions: {listed(others)}" if others else "the program has no other"
            raise ScheduleError(f"expected another definition to compute {self.name} in, got itself", hint=hint)
        loop, buffer = other._there(axis), self._buffer
        bodies = [loop_at(self._nest, path).body for path in loop_paths(self._nest, loop)]
        if any(a.tensor == buffer for body in bodies for a in elements_read(body)):
            self._apply("compute_at", (other.name, axis), lambda nest: data.fuse_at(nest, buffer, loop))
            return
        theirs = self._schedule.loops_of(other.name)
        if loop not in theirs:
            raise ScheduleError(f"expected a loop of {other.name} to compute {self.name} in, got {axis}")
        self._together("compute_at", (other.name, axis), other.name, theirs[: theirs.index(loop) + 1])

    @checked()
    def rfactor(self, axis: str) -> tuple[str, ...]:
        """Takes a reduction apart along one of its loops: what each iteration adds up is computed in a kernel of its own, that loop
        outermost. Gives the names of the partial results, which have loops of their own."""
        loop = self._there(axis)
        buffers = accumulators_of(self._nest, loop)
        stores = stores_in(tuple(copies_of(self._nest, loop)))
        if not buffers and any(x.buffer == self._buffer and operation_of(x) for x in stores):
            return self._with_own_results(axis, loop)
        if not buffers:
            reducing = [name for name in self.loops if accumulators_of(self._nest, self._there(name))]
            hint = f"loops that do: {listed(reducing)}" if reducing else f"{self.name} has no reduction"
            raise ScheduleError(f"expected a loop of a reduction to take apart, got {axis}, which adds nothing up", hint=hint)
        if len(buffers) > 1:
            raise ScheduleError(f"expected a loop of one reduction to take apart, got {axis}, which updates {listed(buffers)}")
        own = self._own(loop)
        (name,) = fresh(self._nest, f"{self.name}_{own}")
        around, inner = loops_at(self._nest, loop)
        before = self._nest
        self._apply("rfactor", (axis,), lambda nest: kernels.separate(nest, buffers[0], loop, name))
        # The loop and those inside went to the parts; copies of those around have names that come after theirs.
        new = [n for n in loops_in(self._nest) if n not in loops_in(before)]
        copies = {n: next(x for x in new if re.fullmatch(rf"{re.escape(n)}_\d+", x)) for n in (*around, loop)}
        moved = {user: n for user, n in self._table.items() if n == loop or n in inner}
        parts = moved | {user: copies[n] for user, n in self._table.items() if n in around}
        rest = {s.index for _, s in walk_block(self._nest.kernels[kernel_of(self._nest, self._buffer)].body) if isinstance(s, For)}
        left = {user: copies[loop] if n == loop else n for user, n in self._table.items() if n not in inner or n in rest}
        form = self._schedule.form
        table = {**form.loops, self.name: left, name: parts}
        self._schedule.form = replace(form, loops=table, buffers=put_before(form.buffers, name, self.name))
        return (name,)

    def _with_own_results(self, axis: str, loop: str) -> tuple[str, ...]:
        """Gives each iteration of a loop of a scatter a result of its own."""
        buffer, before = self._buffer, loops_in(self._nest)
        (name,) = fresh(self._nest, f"{self.name}_{self._own(loop)}")
        self._apply("rfactor", (axis,), lambda nest: data.rfactor(nest, buffer, loop, name, "workspace"))
        form, made = self._schedule.form, [n for n in loops_in(self._nest) if n not in before]
        around = [s.index for s in every_loop(self._nest) if s.index in made or s.index == loop]
        table = {**form.loops, name: {n: n for n in dict.fromkeys(around)}, self.name: {**self._table, **{n: n for n in made}}}
        self._schedule.form = replace(form, loops=table, buffers=put_before(form.buffers, name, self.name))
        return (name,)

    @checked()
    def own(self, axis: str, width: int, along: int = 0) -> str:
        """Gives blocks of `width` elements of a scatter, along an axis of it, owners, which may run on all cores: each goes through what
        the loop sends, and takes in what is sent to its own. Gives the name of the loop over owners.
        """
        loop, buffer = self._there(axis), self._buffer
        (name,), (own,) = fresh(self._nest, f"{loop}_own"), self._new(f"{self._own(loop)}_own")
        self._apply("own", (axis, width, along), lambda nest: sends.own(nest, buffer, loop, width, along, name), {own: name})
        return own

    @checked()
    def sort(self, axis: str, width: int, along: int = 0) -> tuple[str, str]:
        """Sorts what a loop of a scatter sends by blocks of `width` elements along an axis of it, each with an owner. Gives the names of
        the loops over owners, which may run on all cores, and over what one takes in.
        """
        loop, buffer = self._there(axis), self._buffer
        names = fresh(self._nest, f"{loop}_own", f"{loop}_k")
        made = dict(zip(self._new(f"{self._own(loop)}_own", f"{self._own(loop)}_k"), names, strict=True))
        pair = (names[0], names[1])
        self._apply("sort", (axis, width, along), lambda nest: sends.sort(nest, buffer, loop, width, along, pair), made)
        owner, taken_in = made
        return owner, taken_in

    @checked()
    def stage(self, tensor: object, layout: Sequence[int | tuple[int, int]]) -> str:
        """Reads a copy of a tensor, its axes in the order given; gives the name of the copy, which has loops of its own.

        `(axis, length)` in place of an axis cuts it into blocks: their number stands there, the elements of a block innermost. The loops
        are `a0`, `a1`, ... by axis, over blocks and in one `a0_o` and `a0_i`.
        """
        layout = tuple(item if isinstance(item, int) else (item[0], item[1]) for item in layout)
        tensor = self._named(tensor)
        buffer, reader = self._schedule.form.buffers.get(tensor, tensor), self._buffer
        (name,) = fresh(self._nest, f"{buffer}_staged")
        before = loops_in(self._nest)
        self._apply("stage", (tensor, layout), lambda nest: kernels.pack(nest, buffer, reader, layout, name))
        made = {f"a{n[len(buffer) :]}": n for n in loops_in(self._nest) if n not in before}
        form = self._schedule.form
        self._schedule.form = replace(form, loops={**form.loops, name: made}, buffers=put_before(form.buffers, name, self.name))
        return name

    @checked()
    def pipeline(self, axis: str, stages: int = 2) -> None:
        """Computes what is computed in a loop `stages` - 1 iterations ahead, into as many buffers as there are stages."""
        loop, form = self._there(axis), self._schedule.form
        names = [buffer for name, buffer in form.buffers.items() if name != self.name and buffer in form.stored]
        self._apply("pipeline", (axis, stages), lambda nest: data.pipeline(nest, loop, names, stages))

    @checked()
    def contract(self, axis: str) -> None:
        """Keeps of the definition what an iteration of a loop needs; where that reads what earlier ones made, in a ring of the last
        entries, or, where each is read before the next is made, in their place."""
        loop, buffer = self._there(axis), self._buffer
        self._apply("contract", (axis,), lambda nest: data.contract(nest, buffer, loop))

    def slide(self) -> None:
        """Computes of the window that an iteration of the loop around reads what the one before did not; the rest is kept in a ring."""
        buffer = self._buffer
        loop = home_of(self._nest, buffer)
        if loop is None:
            raise ScheduleError(f"expected a definition computed in a loop of another to slide, got {self.name}", hint="compute_at first")
        self._apply("slide", (), lambda nest: data.slide(nest, buffer, loop))

    def stream(self) -> None:
        """Writes the results past the caches: for outputs so large that they would not be found there anyway.

        Memory is not read first then, and what the caches hold stays. Only rows of whole, aligned vectors go this way.
        """
        buffer = self._buffer
        self._apply("stream", (), lambda nest: kernels.stream(nest, buffer))

    @checked()
    def prefetch(self, tensor: object, axis: str, rows: int = 1) -> None:
        """Fetches a row of an input that lies so many iterations of a loop ahead, while this one is computed on."""
        tensor = self._named(tensor)
        loop, buffer = self._there(axis), self._schedule.form.buffers.get(tensor, tensor)
        self._apply("prefetch", (tensor, axis, rows), lambda nest: kernels.prefetch(nest, buffer, loop, rows))

    @checked()
    def cache(self, tensor: object, axis: str, order: Sequence[int] | None = None) -> str:
        """Copies what an iteration of a loop reads of a tensor to a local buffer first, its axes in the order given; gives its name."""
        loop = self._there(axis)
        tensor = self._named(tensor)
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
