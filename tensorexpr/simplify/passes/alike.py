"""What does not depend on an axis is computed once, and not at each place along it; scatters send it once.

    t[i, j] = sqrt(v[i] + 1)        -->  t[i] = sqrt(v[i] + 1),     and t[i] where t[i, j] was read
    t[j, ids[i]] = max(i for j, i)  -->  t[ids[i]] = max(i for i),  and t[ids[i]] where t[j, ids[i]] was read

So the last index that is copied to a row is found for rows, and not for each element of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorexpr.ir import Access, Const, Define, Definition, Expr, Index, Program, Scan, Scatter
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import bottom_up, expressions, free_names, map_expressions, walk, with_bodies


def drop_alike_axes(program: Program) -> Program:
    """The program with definitions and scatters that have no axis along which all elements are equal, as far as they are read at known
    places.

    Requires: a verified program. Ensures: every value is kept; a key out of its extent is an error as before.
    """
    wanted = {d.name: found for d in program.definitions if isinstance(d, Define | Scatter) and (found := _alike(d))}
    if wanted:
        for name in {*program.outputs, *_whole(program.definitions)}:
            wanted.pop(name, None)
    for d in program.definitions if wanted else ():
        for e in expressions(d):
            for node in walk(e):
                if isinstance(node, Access) and node.tensor in wanted:
                    # What data says is checked where it is read, so the index stays.
                    wanted[node.tensor] = tuple(k for k in wanted[node.tensor] if not _reads(node.indices[k]))
    wanted = {name: found for name, found in wanted.items() if found}
    if not wanted:
        return program

    def visit(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in wanted:
            return replace(node, indices=_rest(node.indices, wanted[node.tensor]))
        return node

    made: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Scatter) and d.name in wanted:
            dropped = wanted[d.name]
            gone = {e.name for k in dropped if isinstance(e := d.indices[k], Index)}
            d = replace(
                d,
                type=replace(d.type, shape=_rest(d.type.shape, dropped)),
                axes=tuple(a for a in d.axes if a.index not in gone),
                indices=_rest(d.indices, dropped),
            )
        elif isinstance(d, Define) and d.name in wanted:
            d = replace(d, axes=_rest(d.axes, wanted[d.name]))
        made.append(map_expressions(d, lambda e: bottom_up(e, visit)))
    return with_definitions(program, made)


def _alike(d: Define | Scatter) -> tuple[int, ...]:
    """The axes on which no element depends; of a scatter those that an axis of its points goes through whole, where nothing else depends
    on that; one axis stays."""
    if isinstance(d, Define):
        names = set(free_names(d.value))
        return tuple(k for k, a in enumerate(d.axes) if a.index not in names and isinstance(a.stop, Const) and int(a.stop.value) > 0)
    found: list[int] = []
    for k, index in enumerate(d.indices):
        axis = next((a for a in d.axes if isinstance(index, Index) and a.index == index.name), None)
        if axis is None or axis.start != Const(0, axis.start.dtype) or axis.stop != d.type.shape[k]:
            continue
        if not isinstance(axis.stop, Const) or int(axis.stop.value) < 1:
            continue  # where there are no points, no key is checked
        bounds = (e for a in d.axes for e in (a.start, a.stop))
        others = (d.value, *(() if d.where is None else (d.where,)), *(e for n, e in enumerate(d.indices) if n != k), *bounds)
        if not any(axis.index in free_names(e) for e in others):
            found.append(k)
    return tuple(found[: len(d.indices) - 1])


def _whole(definitions: tuple[Definition, ...]) -> Iterator[str]:
    """Tensors that are taken as a whole: by a scan, as a state."""
    return (name for d in with_bodies(definitions) if isinstance(d, Scan) for name in (*d.inits, *d.nexts))


def _reads(e: Expr) -> bool:
    return any(isinstance(n, Access) for n in walk(e))


def _rest(items: tuple[Any, ...], dropped: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(item for k, item in enumerate(items) if k not in dropped)
