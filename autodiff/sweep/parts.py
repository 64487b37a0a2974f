"""What several definitions of the same points compute is swept as a definition of its own: what reaches it is summed before it goes on.

    a[i] = f(g(x[i]));  b[i] = h(g(x[i]))     -->     p[i] = g(x[i]);  a[i] = f(p[i]);  b[i] = h(p[i])

Inside of one definition the sweep meets a value once, however often it stands there. The components of a state (a step of Runge and Kutta,
a recurrent cell that returns a tuple) share most of what they compute, and a stage that each of them goes back through by itself takes
three times as long for three of them. A part is a value that one of the definitions computes at all of its points, outside of reductions;
where it is the value of the first of them, that one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tensorexpr.autodiff.local.contributions import cost
from tensorexpr.ir import Access, Apply, Define, Definition, Expr, Index, Reduce, Scan
from tensorexpr.records import replace
from tensorexpr.traversal import children, map_children, substitute, walk

LEAST = 4
"""Operations from which a value is a part: its adjoint costs about as many for each definition that it would be swept in."""
MOST_ROUNDS = 8
"""Parts of parts are found one round later."""


def with_parts(
    definitions: Sequence[Definition], active: Collection[str] | None, fixed: Collection[str], new_name: Callable[[str], str]
) -> list[Definition]:
    """The definitions, each part in front of the first that has it; in the bodies of scans as well.

    Values keep their bits. Parts read one of the `active` tensors (None: any of floats); definitions of `fixed` names stay as they are.
    """
    found: list[Definition] = []
    for d in definitions:
        if isinstance(d, Scan) and not any(name in fixed for name in d.names):
            d = replace(d, body=tuple(with_parts(d.body, None, fixed, new_name)))
        found.append(d)
    for _ in range(MOST_ROUNDS):
        groups: dict[object, list[Define]] = {}
        for d in found:
            if isinstance(d, Define) and d.axes and d.name not in fixed and d.value.dtype.is_float and d.value.dtype.bits >= 32:
                groups.setdefault(tuple((a.start, a.stop) for a in d.axes), []).append(d)
        changed: dict[str, list[Define]] = {}
        for group in groups.values():
            if len(group) > 1:
                changed.update(_apart(group, active, new_name))
        if not changed:
            break
        found = [one for d in found for one in (changed.get(d.name, [d]) if isinstance(d, Define) else [d])]
    return found


def _apart(group: Sequence[Define], active: Collection[str] | None, new_name: Callable[[str], str]) -> dict[str, list[Define]]:
    """What becomes of definitions over equal axes: the parts that have to stand in front of each, and itself, where that changes."""
    at = tuple(Index(f"%{k}") for k in range(len(group[0].axes)))
    values = [substitute(d.value, {a.index: i for a, i in zip(d.axes, at, strict=True)}) for d in group]
    users: dict[Expr, dict[int, None]] = {}
    always: set[Expr] = set()
    for k, value in enumerate(values):
        for node, holds in _places(value):
            users.setdefault(node, {})[k] = None
            if holds:
                always.add(node)
    shared = {e for e, own in users.items() if len(own) > 1 and e in always and _is_worth(e, active)}
    chosen = dict.fromkeys(e for k, value in enumerate(values) for e in _outermost(value, shared) if e != value or k != min(users[e]))
    parts = sorted(chosen, key=lambda e: sum(1 for _ in walk(e)))  # what is part of another one is smaller
    names = {e: group[first].name if values[first := min(users[e])] == e else new_name(group[first].name) for e in parts}
    found: dict[str, list[Define]] = {}
    for k, (d, value) in enumerate(zip(group, values, strict=True)):
        own = tuple(Index(a.index) for a in d.axes)
        back: dict[str, Expr] = {i.name: Index(a.index) for i, a in zip(at, d.axes, strict=True)}
        reads: dict[Expr, Expr] = {}
        made: list[Define] = []
        for e in parts:
            if names[e] == d.name:
                continue
            if min(users[e]) == k:
                made.append(Define(names[e], d.axes, _reading(e, reads, back), d.location))
            reads[e] = Access(names[e], own, e.dtype)
        read = _reading(value, reads, back)
        if read != d.value:
            found[d.name] = [*made, replace(d, value=read)]
    return found


def _places(value: Expr, holds: bool = True) -> Iterator[tuple[Expr, bool]]:
    """The values in an expression outside of reductions, and whether they are computed at every point."""
    if isinstance(value, Apply) and value.dtype.is_float:
        yield value, holds
    if isinstance(value, Access | Reduce):
        return
    choice = isinstance(value, Apply) and value.op.name == "where"
    for k, child in enumerate(children(value)):
        yield from _places(child, holds and not (choice and k > 0))


def _outermost(value: Expr, shared: Collection[Expr]) -> Iterator[Expr]:
    if value in shared:
        yield value
    elif not isinstance(value, Access | Reduce):
        for child in children(value):
            yield from _outermost(child, shared)


def _reading(value: Expr, reads: Mapping[Expr, Expr], back: Mapping[str, Expr]) -> Expr:
    """A value under the names of its own axes, with parts of it read."""
    if value in reads:
        return reads[value]
    if isinstance(value, Access | Reduce | Index) or not children(value):
        return substitute(value, back)
    return map_children(value, lambda child: _reading(child, reads, back))


def _is_worth(value: Expr, active: Collection[str] | None) -> bool:
    accesses = (n.tensor for n in walk(value) if isinstance(n, Access) and n.dtype.is_float)
    return cost(value) >= LEAST and any(active is None or name in active for name in accesses)
