"""The oracle of the dependences: all accesses of a run, and random affine nests.

`events(nest, arrays, sizes)` runs a nest naively and notes every access with the indices around it and the element. `meetings` gives the
pairs that touch one element, of which at least one writes, with the outermost loop around both in which they differ.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Buffer, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.interpret import Machine
from tensorexpr.ir import Access, Const, Index, Size, apply, const


class Key(NamedTuple):
    """An access by its statement and what it touches there."""

    statement: int
    buffer: str
    indices: tuple
    write: bool


class Event(NamedTuple):
    """One access in a run: the loops around it with their values, the outermost first, and the element."""

    key: Key
    at: tuple[tuple[int, int], ...]
    element: tuple[int, ...]


class TooMany(Exception):
    """A run with more accesses than anybody wants to compare."""


class Tracer(Machine):
    """Runs a nest and notes every access by element."""

    def __init__(self, nest, arrays, sizes, most):
        super().__init__(nest, arrays, sizes)
        self.by_element: dict[tuple[int, int], list[Event]] = defaultdict(list)
        self.alive, self.most, self.count = [], most, 0
        self.around: list[tuple[int, int]] = []
        self.owner, self.write = None, False

    def poisoned(self, buffer):
        array = super().poisoned(buffer)
        if hasattr(self, "alive"):
            self.alive.append(array)  # so that no other one gets its address
        return array

    def statement(self, statement):
        outer, self.owner = self.owner, statement
        self.write = isinstance(statement, Store)
        run = super().statement(statement)
        self.owner = outer
        return run

    def loop(self, loop):
        start, stop = self.value(loop.start), self.value(loop.stop)
        body = self.compiled(loop.body)

        def repeat(env):
            outer = env.get(loop.index)
            for i in range(int(start(env)), int(stop(env))):
                env[loop.index] = np.int64(i)
                self.around.append((id(loop), i))
                for run in body:
                    run(env)
                self.around.pop()
            env.pop(loop.index, None)
            if outer is not None:
                env[loop.index] = outer

        return repeat

    def element(self, name, indices):
        write, self.write = self.write, False  # of a store, what it writes is asked for first
        key = Key(id(self.owner), name, indices, write)
        place = super().element(name, indices)

        def noted(env):
            array, at = place(env)
            base = self.arrays[name]
            flat = at[0] if len(at) == 1 else int(np.ravel_multi_index(at, array.shape)) if at else 0
            self.count += 1
            if self.count > self.most:
                raise TooMany
            if not write:
                self.by_element[id(base), flat].append(Event(key, tuple(self.around), at))
            else:
                self.later = (id(base), flat), Event(key, tuple(self.around), at)
            return _Stored(self, array) if write else array, at

        return noted


class _Stored:
    """What a store assigns to: the write comes behind the reads of its value."""

    def __init__(self, tracer, array):
        self.array, self.tracer, self.event = array, tracer, tracer.later

    def __setitem__(self, at, value):
        where, event = self.event
        self.tracer.by_element[where].append(event)
        self.array[at] = value


def events(nest: LoopNest, arrays, sizes=None, most: int = 20_000) -> list[list[Event]]:
    """The accesses of a run by element, in the order in which they run."""
    machine = Tracer(nest, dict(arrays), dict(sizes or {}), most)
    with np.errstate(all="ignore"):
        for kernel in nest.kernels:
            machine.block(kernel.body, {})
    return list(machine.by_element.values())


def order_of(first: Event, second: Event) -> tuple[str, ...]:
    """How the iterations of the loops around both stand to each other."""
    found = []
    for (loop, a), (other, b) in zip(first.at, second.at):
        if loop != other:
            break
        found.append("=" if a == b else "<" if a < b else ">")
    return tuple(found)


def meetings(accesses: list[list[Event]]) -> set[tuple[Key, Key, tuple[str, ...]]]:
    """The pairs of accesses of one element, the first before the second, of which one writes, with the order of their iterations."""
    found = set()
    for each in accesses:
        if any(event.key.write for event in each):
            for number, second in enumerate(each):
                for first in each[:number]:
                    if first.key.write or second.key.write:
                        found.add((first.key, second.key, order_of(first, second)))
    return found


# ---------------------------------------------------------------------------------------------------------- random nests

ONE = Const(1.0, dtypes.float32)
SLACK = 80
"""Elements at both ends of an axis, so that any index of a random nest is inside."""


def _add(a, b):
    return apply("add", a, const(b) if isinstance(b, int) else b)


def _index(rng, names):
    """An affine index, sometimes with a quotient, a remainder or a bound."""
    found = const(rng.randrange(-2, 3))
    for name in rng.sample(names, min(len(names), rng.choice((0, 1, 1, 1, 2)))):
        term = apply("mul", Index(name), const(rng.choice((1, 1, 1, 1, 2, 3, -1))))
        kind = rng.random()
        if kind < 0.1:
            term = apply(rng.choice(("floordiv", "mod")), term, const(rng.choice((2, 3))))
        elif kind < 0.2:
            term = apply(rng.choice(("minimum", "maximum")), term, const(rng.randrange(5)))
        found = _add(found, term)
    return _add(found, SLACK)


def random_affine_nest(rng: random.Random) -> LoopNest:
    """A few loops, some triangular, some of an open extent, with shifted, strided and guarded accesses of two buffers."""
    extents = {"A": rng.choice((1, 2)), "B": rng.choice((1, 2))}
    shape = {name: (const(2 * SLACK),) * rank for name, rank in extents.items()}
    count = iter(range(100))

    def access(names):
        buffer = rng.choice(("A", "A", "B"))
        return buffer, tuple(_index(rng, names) for _ in range(extents[buffer]))

    def store(names):
        buffer, at = access(names)
        value = ONE
        for _ in range(rng.choice((0, 1, 1, 2))):
            name, place = access(names)
            value = apply("add", value, Access(name, place, dtypes.float32))
        if rng.random() < 0.2:
            value = apply(rng.choice(("add", "maximum")), Access(buffer, at, dtypes.float32), value)
        return Store(buffer, at, value)

    def block(names, depth):
        found = []
        for _ in range(rng.choice((1, 1, 2))):
            kind = rng.random()
            if depth and kind < 0.75:
                name = f"i{next(count)}"
                start, stop = const(rng.randrange(2)), const(rng.randrange(1, 5))
                if names and rng.random() < 0.25:
                    start = Index(rng.choice(names))
                if rng.random() < 0.25:
                    stop = Size("n")
                elif names and rng.random() < 0.2:
                    stop = _add(Index(rng.choice(names)), rng.randrange(2))
                found.append(For(name, start, stop, block([*names, name], depth - 1)))
            elif names and kind < 0.85:
                left, right = Index(rng.choice(names)), rng.choice((const(rng.randrange(3)), Index(rng.choice(names))))
                test = apply(rng.choice(("lt", "ge", "ne", "eq")), left, right)
                found.append(If(test, (store(names),), (store(names),) if rng.random() < 0.5 else ()))
            else:
                found.append(store(names))
        return tuple(found)

    parameters = tuple(Buffer(name, dtypes.float32, shape[name], "parameter") for name in shape)
    body = block([], rng.choice((1, 2, 3)))
    return LoopNest("test", parameters, (), (), (Kernel("A", body),), ("A", "B"), ("n",))
