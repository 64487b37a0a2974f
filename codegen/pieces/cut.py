"""Where a program is cut, and its pieces as programs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from tensorexpr.ir import (
    Access,
    Apply,
    Const,
    Constant,
    Define,
    Definition,
    Expr,
    Input,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    TensorType,
    integer,
)
from tensorexpr.language.core.renaming import index_names, local_names, renamed
from tensorexpr.records import record, replace
from tensorexpr.traversal import expressions, free_names, reads, tensors_read, walk

MOST_WHOLE = 96
"""Definitions of a program that is scheduled as a whole."""
LEAST, MOST = 4, 14
"""Definitions of a piece; more only where it cannot be cut. The shorter pieces are, the more of them are equal: at the ends of a program,
too, where a long one differs somewhere."""
OPEN_EXTENT = 1000
"""What an open size counts in bytes that cross a cut."""
STORED_ANYWAY, IN_ROWS = 0.25, 2.0
"""What a byte counts that others read, too, and one that is read by other than a sum of products."""

FEW = 1 << 16
"""Bytes of a tensor that are near whoever read them last."""


@record
class Piece:
    """A program of its own, in which the tensor called `letter` and a number stands for that one of `names` of the whole."""

    program: Program
    names: tuple[str, ...]
    letter: str


def pieces_of(program: Program) -> tuple[Piece, ...]:
    """The pieces of a simplified program, in order; none where it is not long or cannot be cut."""
    computed = {name for d in program.definitions for name, _ in d.results}
    if sum(map(_size, program.definitions)) <= MOST_WHOLE or len(computed.intersection(program.outputs)) < len(program.outputs):
        return ()  # a result that is an input, or is there twice, is a copy that no piece makes
    ordered = _ordered(program)
    borders = _borders(program, ordered)
    if len(borders) <= 2:
        return ()
    parts = [ordered[a:b] for a, b in pairwise(borders)]
    groups = [g for part, kept in zip(parts, wanted(program, parts), strict=True) for g in _groups(program, part, set(kept))]
    return tuple(piece_of(program, group, outputs) for group, outputs in zip(groups, wanted(program, groups), strict=True))


def _size(definition: Definition) -> int:
    return 1 + sum(map(_size, definition.body)) if isinstance(definition, Scan) else 1


# --------------------------------------------------------------------------------------------------------- where to cut


def _ordered(program: Program) -> list[Definition]:
    """The definitions: one that is only read far behind stands directly before its first reader."""
    readers: dict[str, list[int]] = {}
    for number, definition in enumerate(program.definitions):
        for name in reads(definition):
            readers.setdefault(name, []).append(number)
    keys = list(range(len(program.definitions)))
    for number, definition in reversed(list(enumerate(program.definitions))):
        first = min((keys[reader] for name, _ in definition.results for reader in readers.get(name, ())), default=number)
        keys[number] = first if first - number > MOST else number
    return [program.definitions[number] for number in sorted(range(len(keys)), key=lambda number: (keys[number], number))]


def _borders(program: Program, ordered: Sequence[Definition]) -> list[int]:
    """Where pieces begin, and the end."""
    costs = _costs(program, ordered)
    borders = [0]
    while len(ordered) - borders[-1] > MOST + LEAST:
        start = borders[-1]
        places = [e for e in range(start + LEAST, start + MOST + 1) if costs[e] != float("inf")]
        places = places or [e for e in range(start + MOST + 1, len(ordered) - LEAST) if costs[e] != float("inf")][:1]
        if not places:
            break
        alike = len({costs[e] for e in places}) == 1  # nothing says where a part begins: the fewest pieces
        borders.append(places[-1] if alike else min(places, key=lambda e: costs[e]))
    return [*borders, len(ordered)]


def _costs(program: Program, ordered: Sequence[Definition]) -> list[float]:
    """What is lost by a cut in front of each definition."""
    costs = [0.0] * (len(ordered) + 1)
    places: dict[str, list[int]] = {}
    for number, definition in enumerate(ordered):
        for name in reads(definition):
            places.setdefault(name, []).append(number)
    contracting, placing = [_is_contraction(d) for d in ordered], [_placing(d) for d in ordered]
    outputs = set(program.outputs)
    for number, definition in enumerate(ordered):
        for name, type_ in definition.results:
            at = places.get(name, [])
            stored = name in outputs or any(r - number > MOST for r in at)
            weight = _bytes(type_) * (STORED_ANYWAY if stored else 1.0)
            before = number
            for reader in at:
                known = (isinstance(definition, Scan) and not stored) or (type_.dtype.is_integer and name in placing[reader])
                first = before if known else max(before, reader - MOST)
                lost = float("inf") if known else weight if contracting[reader] else weight * IN_ROWS
                for cut in range(first + 1, reader + 1):
                    costs[cut] += lost
                before = reader
    return costs


def _placing(definition: Definition) -> set[str]:
    """Tensors by whose elements a definition says where it reads or writes, or how far it goes: what is known of them is needed there. (One
    that is compared alone, as the place of a maximum is with the points of its gradient, is data as any other.)"""
    if isinstance(definition, Scan | Scatter | Segments):
        return set(reads(definition))
    nodes = [node for e in expressions(definition) for node in walk(e)]
    places = [e for axis in definition.axes for e in (axis.start, axis.stop)]
    places += [e for node in nodes if isinstance(node, Access) for e in node.indices]
    places += [e for node in nodes if isinstance(node, Reduce) for axis in node.axes for e in (axis.start, axis.stop)]
    return {name for e in places for name in tensors_read(e)}


def _bytes(type_: TensorType) -> int:
    return type_.dtype.itemsize * prod(integer(e) if isinstance(e, Const) else OPEN_EXTENT for e in type_.shape)


def _is_contraction(definition: Definition) -> bool:
    """Whether a definition sums products of elements."""
    return isinstance(definition, Define) and any(
        isinstance(node, Reduce) and node.combiner.name == "sum" and any(map(_is_product, walk(node.values[0])))
        for node in walk(definition.value)
    )


def _is_product(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name == "mul" and sum(isinstance(n, Access) for n in walk(node)) > 1


def _groups(program: Program, part: Sequence[Definition], kept: set[str]) -> list[list[Definition]]:
    """Definitions between two cuts, apart where they would not share loops, in an order in which each reads those before it.

    Those stand together of which one reads what the other computes, but for a sum of products that reads what is `kept` in memory for
    others anyway, or windows. So do those that go through one large tensor, and those that sum up nothing, which may be one parallel
    region.
    """
    group = list(range(len(part)))

    def join(a: int, b: int) -> None:
        low, high = sorted((group[a], group[b]))
        group[:] = [low if g == high else g for g in group]

    made = {name: number for number, definition in enumerate(part) for name, _ in definition.results}
    first: dict[str, int] = {}
    for number, definition in enumerate(part):
        contracting = _is_contraction(definition)
        for name in reads(definition):
            type_ = program.types[name]
            if name in made:
                whole = name in kept or _is_read_in_windows(definition, name)
                in_memory = whole and type_.dtype.is_float and isinstance(part[made[name]], Define)
                if not (contracting and in_memory):
                    join(number, made[name])
            if not contracting and _bytes(type_) > FEW:
                join(number, first.setdefault(name, number))
    summed = {g for g, definition in zip(group, part, strict=True) if not _is_pointwise(definition)}
    pointwise = [g for g in dict.fromkeys(group) if g not in summed]
    for g in pointwise[1:]:
        join(pointwise[0], g)
    found: list[list[Definition]] = []
    waiting = {g: [d for d, at in zip(part, group, strict=True) if at == g] for g in dict.fromkeys(group)}
    while waiting:
        left = {name for definitions in waiting.values() for d in definitions for name, _ in d.results}
        for g, definitions in waiting.items():
            own = {name for d in definitions for name, _ in d.results}
            if all(name in own or name not in left for d in definitions for name in reads(d)):
                found.append(waiting.pop(g))
                break
        else:  # each waits for another: they stay together
            return [*found, [d for d, at in zip(part, group, strict=True) if at in waiting]]
    return found


def _is_read_in_windows(definition: Definition, name: str) -> bool:
    """Whether elements of a tensor are each read for several results and several terms of their sums, as a convolution does: who shared
    loops with what makes it would make it again for each window."""
    rows = {axis.index for axis in definition.axes} if isinstance(definition, Define) else set()
    nodes = [node for e in expressions(definition) for node in walk(e) if isinstance(node, Access) and node.tensor == name]
    return any(not rows.isdisjoint(free := free_names(e)) and not rows.issuperset(free) for node in nodes for e in node.indices)


def _is_pointwise(definition: Definition) -> bool:
    return isinstance(definition, Define) and not any(isinstance(node, Reduce) for node in walk(definition.value))


# ------------------------------------------------------------------------------------------------------ pieces as programs


def wanted(program: Program, parts: Sequence[Sequence[Definition]]) -> list[list[str]]:
    """What leaves each piece: results of the program and what later pieces read."""
    readers = [{name for d in part for name in reads(d)} for part in parts]
    needed, found = set(program.outputs), []
    for part, read in zip(reversed(parts), reversed(readers), strict=True):
        found.append([name for d in part for name, _ in d.results if name in needed])
        needed |= read
    return found[::-1]


def piece_of(program: Program, part: Sequence[Definition], outputs: Sequence[str]) -> Piece:
    types = program.types
    inside = {name for d in part for name, _ in d.results}
    outside = [name for name in dict.fromkeys(n for d in part for n in reads(d)) if name not in inside]
    constants = {c.name: c for c in program.constants}
    names = [*outside, *(n for d in part for n in (*(name for name, _ in d.results), *local_names(d)))]
    taken = {*program.sizes, *(i for d in part for i in index_names(d))}
    letter = "T"
    while any(name.startswith(letter) for name in taken):
        letter += "T"
    called = {name: f"{letter}{number}" for number, name in enumerate(names)}
    return Piece(
        Program(
            tuple(Input(called[n], types[n]) for n in outside if n not in constants),
            tuple(_known(constants[n], called[n]) for n in outside if n in constants),
            tuple(renamed(d, called, {}) for d in part),
            tuple(called[n] for n in outputs),
            program.sizes,
        ),
        tuple(names),
        letter,
    )


def _known(constant: Constant, name: str) -> Constant:
    """A constant as pieces know it. What floats are says nothing about loops, so weights of layers are told by their types alone."""
    type_ = constant.type
    return Constant.of_type(name, type_) if type_.dtype.is_float else replace(constant, name=name)
