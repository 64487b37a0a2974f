"""Large temporaries that need not be: terms are added up where they are made, and what is read for the last time gives its place.

    def kernel_0() -> p:                            def kernel_0() -> y:
        for i in range(0, n):                           for i in range(0, n):
            p[i] = f(x, i)                                  y[i] = f(x, i)
    def kernel_1() -> q:                            def kernel_1() -> y:
        for j in range(0, n):               -->         for j in range(0, n):
            q[j] = g(x, j)                                  y[j] = y[j] + g(x, j)
    def kernel_2() -> y:
        for i in range(0, n):
            y[i] = p[i] + q[i]

The gradient of a table that is read at several places is such a sum: each term is as large as the table. Two rules, for temporaries of at
least `LEAST` bytes:

- *absorbed*: a part of an elementwise kernel that reads a temporary for the only time is computed where that is stored, if all else that it
  reads is there by then. A kernel that is too early for it, and reads less than it writes, moves down. What is left as a copy goes.
- *in place*: a buffer that a kernel writes, and none before, takes the place of one that is read for the last time there, where each
  element is read only for the element that is stored at its place.

Both need that a kernel stores each element once: it has as many stores as there are elements, and what is read is written whole. Values
are computed in the order in which they are written, so they keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from tensorexpr.codegen.nest.names import NestNames
from tensorexpr.codegen.nest.program import Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.walks import elements_read, expressions_of, iterations, map_statements, statements, written
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, integer
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, walk

LEAST = 1 << 20
_HERE = (Index("*"),)
"""The indices of an element at the place that is stored to."""


def absorbed(nest: LoopNest) -> LoopNest:
    """The nest with fewer large temporaries, or the nest as it is where none can go."""
    for rule in (_absorbed, _in_place):
        number, facts = 0, _Facts(nest)
        while facts.large and number < len(nest.kernels):
            made = None if facts.large.keys().isdisjoint(nest.kernels[number].buffers) else rule(facts, number)
            if made is None:
                number += 1
            else:
                number -= len(nest.kernels) - len(made.kernels)
                nest, facts = made, _Facts(made)
    return nest


class _Facts:
    """A nest, its buffers, the temporaries that count, and the kernels that use each buffer."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.buffers = {b.name: b for b in (*nest.parameters, *nest.workspace)}
        self.large = {b.name: b for b in nest.workspace if _bytes(b) >= LEAST and b.within is None and b.name not in nest.atomics}
        self.users: dict[str, list[int]] = {}
        for number, kernel in enumerate(nest.kernels if self.large else ()):
            for name in kernel.buffers:
                self.users.setdefault(name, []).append(number)

    def last_written(self, name: str) -> int:
        """The last kernel that writes a buffer; -1 of an argument."""
        return max((n for n in self.users.get(name, ()) if name in written(self.nest.kernels[n].body)), default=-1)

    def maker(self, name: str, reader: int) -> int | None:
        """The kernel that makes a temporary that another one alone reads: each element once, and without reading it."""
        users = self.users.get(name, [])
        if name not in self.large or len(users) != 2 or users[1] != reader:
            return None
        body = self.nest.kernels[users[0]].body
        return users[0] if _stores_once(body, self.large[name]) and name not in _read(body) else None

    def held(self, at: int, names: set[str]) -> int:
        """How many large temporaries there are while a kernel runs that reads `names`, too: what it makes may take the place of one."""
        return len(self.large.keys() & {*self.nest.kernels[at].buffers, *names})

    def may_wait(self, at: int, number: int, buffer: Buffer) -> bool:
        """Whether a kernel may as well stand in front of a later one, and what it reads takes less than what it makes."""
        kernel, kernels = self.nest.kernels[at], self.nest.kernels
        reads = sum(_bytes(b) for b in self.nest.workspace if b.name in kernel.buffers and b.name != buffer.name)
        return (
            2 * reads <= _bytes(buffer)
            and set().union(*(written(k.body) for k in kernels[at + 1 : number])).isdisjoint(kernel.buffers)
            and written(kernel.body).intersection(kernel.buffers) == {buffer.name}
            and not any(isinstance(s, Check) for s in statements(kernel.body))
        )


def _bytes(buffer: Buffer) -> int:
    return buffer.dtype.itemsize * _elements(buffer)


def _elements(buffer: Buffer) -> int:
    return prod(map(integer, buffer.shape)) if all(isinstance(extent, Const) for extent in buffer.shape) else -1


# ------------------------------------------------------------------------------------------------------------ what kernels do


def _read(block: Block) -> set[str]:
    """The buffers that statements read."""
    return {access.tensor for access in elements_read(block)}


def _stores_once(block: Block, buffer: Buffer) -> bool:
    """Whether statements store as often as a buffer has elements, without a condition or an instruction around."""
    return _stores(block, buffer.name) == _elements(buffer)


def _stores(block: Block, name: str) -> int:
    """How often statements store to a buffer; so far below zero that nothing makes up for it where that is not known."""
    count = 0
    for s in block:
        match s:
            case For():
                inside = _stores(s.body, name)
                times = iterations(s)
                if inside and s.call is None and times is not None:
                    count += inside * times
                elif inside:
                    count -= 1 << 80
            case Alloc():
                count += _stores(s.body, name)
            case If():
                count -= (name in written((s,))) << 80
            case Store():
                count += s.buffer == name
    return count


def _elementwise(kernel: Kernel) -> tuple[str, Expr] | None:
    """The buffer that a kernel of loops alone writes, and what it stores there, elements at the same place marked; None for others."""
    inside = [s for s in statements(kernel.body) if not isinstance(s, For) or s.call is not None]
    stores = [s for s in inside if isinstance(s, Store)]
    if not stores or len(stores) < len(inside):
        return None
    found = {(s.buffer, _marked(s)) for s in stores}
    return found.pop() if len(found) == 1 else None


def _marked(store: Store) -> Expr:
    """The value of a store, elements at the same place marked."""
    return bottom_up(
        store.value, lambda node: replace(node, indices=_HERE) if isinstance(node, Access) and node.indices == store.indices else node
    )


def _placed(value: Expr, store: Store, values: Mapping[str, Expr]) -> Expr:
    """Such a value at the place of a store, with what `values` has for elements there."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Access) and node.indices == _HERE:
            return values.get(node.tensor) or replace(node, indices=store.indices)
        return node

    return bottom_up(value, visit)


def _here(part: Expr) -> set[str]:
    """The buffers that an expression reads at the place that is stored to; none where it reads anything else, or depends on the place."""
    names = set()
    for node in walk(part):
        if (isinstance(node, Access) and node.indices != _HERE) or (isinstance(node, Index) and node != _HERE[0]):
            return set()
        if isinstance(node, Access):
            names.add(node.tensor)
    return names


def _stored(block: Block, name: str, change: Callable[[Store], Expr]) -> Block:
    """A block with other values in its stores to a buffer."""
    return map_statements(block, lambda s: (replace(s, value=change(s)),) if isinstance(s, Store) and s.buffer == name else None)


# -------------------------------------------------------------------------------------------------------------------- the rules


def _absorbed(facts: _Facts, number: int) -> LoopNest | None:
    """The nest with a part of an elementwise kernel where what it reads is made; None where there is no such part."""
    nest, large = facts.nest, facts.large
    found = _elementwise(nest.kernels[number])
    if found is None or found[0] not in facts.buffers:
        return None
    to, value = facts.buffers[found[0]], found[1]
    if to.name in _read(nest.kernels[number].body) or not _stores_once(nest.kernels[number].body, to):
        return None
    if isinstance(value, Access):
        fits = _here(value) and facts.maker(value.tensor, number) is not None and facts.users[to.name][0] == number and to.within is None
        if not fits or large[value.tensor].shape != to.shape or value.dtype != to.dtype:
            return None
        return _renamed(_cached(replace(nest, kernels=nest.kernels[:number] + nest.kernels[number + 1 :]), to.name), value.tensor, to.name)
    for part in reversed([node for node in walk(value) if isinstance(node, Apply | Cast)]):
        names = _here(part)
        makers = {name: at for name in sorted(names & large.keys()) if (at := facts.maker(name, number)) is not None}
        for name, at in sorted(makers.items(), key=lambda item: (facts.held(item[1], names), -item[1])):
            without = bottom_up(value, lambda node, part=part: Const(0, node.dtype) if node == part else node)  # type: ignore[misc]  # mypy has no type for a lambda with a default
            others = names - {name}
            alike = large[name].shape == to.shape and large[name].dtype == part.dtype
            if not alike or name in {n.tensor for n in walk(without) if isinstance(n, Access)}:
                continue
            if all(facts.last_written(other) < at for other in others):
                return _with_part(nest, at, number, name, part)
            if facts.may_wait(at, number, large[name]):
                kernels = (*nest.kernels[:at], *nest.kernels[at + 1 : number], nest.kernels[at], *nest.kernels[number:])
                return _with_part(replace(nest, kernels=kernels), number - 1, number, name, part)
    return None


def _with_part(nest: LoopNest, at: int, number: int, name: str, part: Expr) -> LoopNest:
    """The nest with a part of a kernel stored in place of the temporary that it reads."""
    element = Access(name, _HERE, part.dtype)

    def made(store: Store) -> Expr:
        return _placed(part, store, {name: store.value})

    def read(store: Store) -> Expr:
        return _placed(bottom_up(_marked(store), lambda node: element if node == part else node), store, {})

    kernels = list(nest.kernels)
    (to,) = written(kernels[number].body)
    kernels[at] = replace(kernels[at], body=_stored(kernels[at].body, name, made))
    kernels[number] = replace(kernels[number], body=_stored(kernels[number].body, to, read))
    return replace(nest, kernels=tuple(kernels))


def _in_place(facts: _Facts, number: int) -> LoopNest | None:
    """The nest with a buffer that a kernel begins to write in the place of one that it is the last to read; None where there are no two."""
    nest, body = facts.nest, facts.nest.kernels[number].body
    ahead, writes = dict(nest.ahead), written(body)
    ending = [facts.large[n] for n in nest.kernels[number].buffers if n in facts.large and facts.users[n][-1] == number]
    ending = [b for b in ending if b.name not in ahead and b.name not in writes]
    for to in (facts.buffers[n] for n in nest.kernels[number].buffers if n in facts.buffers and n in writes and ending):
        if to.within is not None or to.name in nest.atomics or facts.users[to.name][0] != number or not _stores_once(body, to):
            continue
        for buffer in ending:
            if buffer.dtype == to.dtype and buffer.shape == to.shape and _only_there(body, buffer.name, to.name):
                return _renamed(_cached(nest, to.name), buffer.name, to.name)
    return None


def _only_there(body: Block, name: str, to: str) -> bool:
    """Whether elements of `name` are read for the element of `to` at the same place alone, and none of `to`."""
    for s in statements(body):
        if isinstance(s, Store) and s.buffer == to:
            at_place, others = [_marked(s)], s.indices
        else:
            at_place, others = [], expressions_of(s)
        if any(isinstance(n, Access) and n.tensor in (name, to) for e in others for n in walk(e)):
            return False
        if any(isinstance(n, Access) and (n.tensor == to or (n.tensor == name and n.indices != _HERE)) for e in at_place for n in walk(e)):
            return False
    return True


def _cached(nest: LoopNest, name: str) -> LoopNest:
    """The nest with a buffer that is not written past the caches: it is read again, or written in other loops than it was."""
    return replace(nest, streams=tuple(n for n in nest.streams if n != name))


def _renamed(nest: LoopNest, name: str, to: str) -> LoopNest:
    """The nest with one buffer in the place of another."""
    kernels = []
    for kernel in nest.kernels:
        if name in kernel.buffers:
            own = [s.buffer.name for s in statements(kernel.body) if isinstance(s, Alloc)]
            names = {**{n: n for n in (*kernel.buffers, *own)}, name: to}
            made = replace(kernel, body=NestNames(names, {}, 0).block(kernel.body))
            if kernel.like is not None and to not in kernel.buffers:
                made.made_like(kernel.like[0], {formal: names.get(actual, actual) for formal, actual in kernel.like[1].items()})
            kernel = made
        kernels.append(kernel)
    return replace(nest, kernels=tuple(kernels), workspace=tuple(b for b in nest.workspace if b.name != name))
