"""Faults planted into nests, and a run of a nest that shows them: the oracle of the verifier.

`planted(nest, rng)` gives a nest with one fault of one kind somewhere in it. `trace(nest, arrays)` runs a nest naively on given arrays
and says what goes wrong: an access outside of its buffer, a read of what nothing has written, iterations of a loop that runs at once
which touch one element and one of them writes something else there, an element of a result that stays unwritten. A planted nest in
which that shows nothing is no fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tensorexpr.codegen.nest import GRID, LANES, THREADS, Alloc, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.interpret import Machine
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.ir import Access, Apply, Const, Index, apply, const
from tensorexpr.traversal import bottom_up, walk

# ----------------------------------------------------------------------------------------------------------------- plants


def _plus(expr, amount):
    return const(int(expr.value) + amount) if isinstance(expr, Const) else apply("add", expr, const(amount))


def _one_access(statement: Store, rng: random.Random, change):
    """A store with one of the accesses in its value changed."""
    found = [n for n in walk(statement.value) if isinstance(n, Access) and n.indices]
    if not found:
        return None
    chosen = rng.choice(found)
    other = change(chosen)
    if other is None or other == chosen:
        return None
    return replace(statement, value=bottom_up(statement.value, lambda n: other if n == chosen else n))


def _shifted(indices, rng):
    at = rng.randrange(len(indices))
    return (*indices[:at], _plus(indices[at], rng.choice((1, -1))), *indices[at + 1 :])


def _without_choice(expr):
    for node in walk(expr):
        if isinstance(node, Apply) and node.op.name == "where" and any(isinstance(n, Access) for n in walk(node.args[1])):
            return bottom_up(expr, lambda n, node=node: n.args[1] if n == node else n)
    return None


def _swapped(access):
    if len(access.indices) < 2 or access.indices[0] == access.indices[1]:
        return None
    return replace(access, indices=(access.indices[1], access.indices[0], *access.indices[2:]))


def _loop(change):
    return lambda s, rng: change(s) if isinstance(s, For) and s.call is None else None


def _store(change):
    return lambda s, rng: change(s, rng) if isinstance(s, Store) else None


KINDS: dict[str, Callable[[Stmt, random.Random], object]] = {
    "one iteration more": _loop(lambda s: replace(s, stop=_plus(s.stop, 1))),
    "one iteration before": _loop(lambda s: replace(s, start=_plus(s.start, -1))),
    "one iteration less": _loop(lambda s: replace(s, stop=_plus(s.stop, -1))),
    "first iteration left out": _loop(lambda s: replace(s, start=_plus(s.start, 1))),
    "negative stop": _loop(lambda s: replace(s, start=const(-2), stop=const(0))),
    "parallel": _loop(lambda s: replace(s, kind="parallel") if s.kind == "serial" else None),
    "in lanes": _loop(lambda s: replace(s, kind="vectorize") if s.kind == "serial" else None),
    "guard dropped": lambda s, rng: s.then if isinstance(s, If) and not s.otherwise else None,
    "branches exchanged": lambda s, rng: replace(s, then=s.otherwise, otherwise=s.then) if isinstance(s, If) and s.otherwise else None,
    "check dropped": lambda s, rng: () if isinstance(s, Check) else None,
    "store dropped": _store(lambda s, rng: ()),
    "store elsewhere": _store(lambda s, rng: replace(s, indices=_shifted(s.indices, rng)) if s.indices else None),
    "read elsewhere": _store(lambda s, rng: _one_access(s, rng, lambda a: replace(a, indices=_shifted(a.indices, rng)))),
    "indices swapped": _store(lambda s, rng: _one_access(s, rng, _swapped)),
    "choice dropped": _store(lambda s, rng: None if (v := _without_choice(s.value)) is None else replace(s, value=v)),
    "two share an element": _store(
        lambda s, rng: replace(s, indices=(*s.indices[:-1], apply("floordiv", s.indices[-1], const(2)))) if s.indices else None
    ),
}


def _sites(block):
    for s in block:
        yield s
        if isinstance(s, For | Alloc):
            yield from _sites(s.body)
        elif isinstance(s, If):
            yield from _sites((*s.then, *s.otherwise))


def _put(block, at, other):
    """A block in which a statement (by identity) is replaced by others."""
    found = []
    for s in block:
        if s is at:
            found += other if isinstance(other, tuple) else (other,)
        elif isinstance(s, For | Alloc):
            found.append(replace(s, body=_put(s.body, at, other)))
        elif isinstance(s, If):
            found.append(replace(s, then=_put(s.then, at, other), otherwise=_put(s.otherwise, at, other)))
        else:
            found.append(s)
    return tuple(found)


def planted(nest: LoopNest, rng: random.Random, kind: str | None = None) -> tuple[str, LoopNest] | None:
    """The nest with one fault of a kind (any, where none is given), and which; None where there is no place for it."""
    kind = rng.choice(list(KINDS)) if kind is None else kind
    number = rng.randrange(len(nest.kernels))
    sites = list(_sites(nest.kernels[number].body))
    rng.shuffle(sites)
    for site in sites[:40]:
        other = KINDS[kind](site, rng)
        if other is not None:
            kernel = nest.kernels[number]
            changed = Kernel(kernel.name, _put(kernel.body, site, other), kernel.together)
            return kind, replace(nest, kernels=(*nest.kernels[:number], changed, *nest.kernels[number + 1 :]))
    return None


# ------------------------------------------------------------------------------------------------------------------- runs


class Fault(Exception):
    """What goes wrong in a run."""


class _AtOnce:
    """A run of a loop whose iterations run at once: what each of them has touched."""

    def __init__(self, arrays):
        self.outside = {id(array) for array in arrays}
        self.iteration = 0
        self.touched = {}


class Tracer(Machine):
    """A machine that looks at every access."""

    def __init__(self, nest, arrays, sizes):
        super().__init__(nest, arrays, sizes)
        self.fresh = {id(self.arrays[b.name]): self.arrays[b.name] for b in (*nest.parameters, *nest.workspace)
                      if b.memory == "workspace" or b.name in nest.writes}  # fmt: skip
        self.written = set()
        self.at_once = []

    def poisoned(self, buffer):
        array = super().poisoned(buffer)
        if hasattr(self, "fresh"):
            self.fresh[id(array)] = array  # kept, so that no other gets its identity
        return array

    def touch(self, name, base, at, value=None):
        place = (id(base), at)
        if value is None and id(base) in self.fresh and place not in self.written:
            raise Fault(f"nothing has written {name}{list(at)}")
        if value is not None:
            self.written.add(place)
        for loop in self.at_once if name not in self.nest.atomics else ():
            if id(base) not in loop.outside:
                continue
            for iteration, other in loop.touched.get(place, ()):
                if iteration != loop.iteration and (value is None) + (other is None) < 2 and not _equal(value, other):
                    raise Fault(f"iterations meet at {name}{list(at)}")
            loop.touched.setdefault(place, []).append((loop.iteration, value))

    def element(self, name, indices, writes=False):
        values = [self.value(i) for i in indices]

        def place(env):
            base = self.arrays[name]
            at = tuple([int(value(env)) for value in values])
            if len(at) == 1 < base.ndim:
                if not 0 <= at[0] < base.size:
                    raise Fault(f"{name}{list(at)} is outside")
                at = tuple(int(i) for i in np.unravel_index(at[0], base.shape))
            if len(at) != base.ndim or not all(0 <= i < n for i, n in zip(at, base.shape)):
                raise Fault(f"{name}{list(at)} is outside")
            if not writes:
                self.touch(name, base, at)
            return base, at

        return place

    def statement(self, statement):
        if not isinstance(statement, Store):
            return super().statement(statement)
        place, value = self.element(statement.buffer, statement.indices, True), self.value(statement.value)

        def store(env):
            made = value(env)
            array, at = place(env)
            array[at] = made
            self.touch(statement.buffer, array, at, array[at].tobytes())

        return store

    def loop(self, loop):
        if loop.kind not in ("parallel", *LANES, *GRID, *THREADS) or (loop.kind in LANES and _in_turns(loop)):
            return super().loop(loop)
        start, stop, body = self.value(loop.start), self.value(loop.stop), self.compiled(loop.body)

        def repeat(env):
            outer, state = env.get(loop.index), _AtOnce(self.arrays.values())
            self.at_once.append(state)
            for i in range(int(start(env)), int(stop(env))):
                state.iteration = env[loop.index] = np.int64(i)
                for run in body:
                    run(env)
            self.at_once.pop()
            env.pop(loop.index, None) if outer is None else env.update({loop.index: outer})

        return repeat


def _equal(value, other):
    return value is not None and other is not None and value == other


def _in_turns(loop: For) -> bool:
    """Whether some store has one address in all lanes: then they run one after the other."""
    made = {s.buffer.name for s in _sites(loop.body) if isinstance(s, Alloc)}
    for s in _sites(loop.body):
        if isinstance(s, Store) and s.buffer not in made:
            nodes = [n for e in s.indices for n in walk(e)]
            if not any(isinstance(n, Access) or (isinstance(n, Index) and n.name == loop.index) for n in nodes):
                return True
    return False


def trace(nest: LoopNest, arrays: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> str | None:
    """What goes wrong in a run on some arrays; None where nothing does, or where a check ends it before."""
    machine = Tracer(nest, dict(arrays), dict(sizes or {}))
    try:
        with np.errstate(all="ignore"):
            for kernel in nest.kernels:
                machine.block(kernel.body, {})
    except Fault as fault:
        return str(fault)
    except OutOfBoundsError:
        return None
    for name in nest.writes:
        array = machine.arrays[name]
        left = [at for at in np.ndindex(array.shape) if (id(array), at) not in machine.written]
        if left:
            return f"nothing has written {name}{list(left[0])}"
    return None


def arrays_for(nest: LoopNest, seed: int, least: int = 0, most: int = 2) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a nest of fixed sizes; integers from `least` up to `most`, without it."""
    rng = np.random.default_rng(seed)
    found = {}
    for buffer in nest.parameters:
        if buffer.name not in nest.writes:
            shape = tuple(int(e.value) for e in buffer.shape)
            whole = rng.standard_normal(shape) if buffer.dtype.is_float else rng.integers(least, most, shape)
            found[buffer.name] = np.asarray(whole).astype(buffer.dtype.numpy)
    return found
