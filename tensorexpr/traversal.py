"""Walking and rebuilding expressions and definitions: children, mapping with identity kept, substitution, free names.

Every rebuilding function returns the same object when nothing changed, so passes can tell by `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

from tensorexpr.ir import (
    FALSE,
    TRUE,
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    apply,
    conjuncts,
)
from tensorexpr.records import replace


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in the order of the text (axes of a reduction: start and stop of each, then where, then values)."""
    if type(expr) is Apply:  # not `isinstance`, which takes longer: every pass asks this of every node
        return expr.args
    if type(expr) is Access:
        return expr.indices
    if type(expr) is Cast:
        return (expr.arg,)
    if isinstance(expr, Reduce):
        bounds = tuple([e for axis in expr.axes for e in (axis.start, axis.stop)])
        return bounds + (() if expr.where is None else (expr.where,)) + expr.values
    assert isinstance(expr, Const | Index | Size | Param), type(expr)
    return ()


def map_axes(axes: tuple[Axis, ...], function: Callable[[Expr], Expr]) -> tuple[Axis, ...]:
    """The axes with `function` applied to every start and stop."""
    mapped = []
    for axis in axes:
        start, stop = function(axis.start), function(axis.stop)
        mapped.append(axis if start is axis.start and stop is axis.stop else Axis(axis.index, start, stop))
    return axes if all(a is b for a, b in zip(axes, mapped, strict=True)) else tuple(mapped)


def _map_all(items: tuple[Expr, ...], function: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    if len(items) == 2:  # most operations: no list
        a, b = items
        x, y = function(a), function(b)
        return items if x is a and y is b else (x, y)
    mapped, same = [], True
    for item in items:  # no comprehension: one frame less at each level of a deep expression
        found = function(item)
        same = same and found is item
        mapped.append(found)
    return items if same else tuple(mapped)


def map_children(expr: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """The same node over mapped children; the same object if no child changed."""
    kind = type(expr)  # told by identity, the most frequent first: no function is called more often
    node: Any = expr  # checkers narrow no type by `is`
    if kind is Apply:
        args = _map_all(node.args, function)
        return expr if args is node.args else Apply(node.op, args)
    if kind is Access:
        indices = _map_all(node.indices, function)
        return expr if indices is node.indices else Access(node.tensor, indices, node.dtype, node.location)
    if kind is Cast:
        arg = function(node.arg)
        return expr if arg is node.arg else Cast(node.dtype, arg)
    if isinstance(expr, Reduce):
        axes = map_axes(expr.axes, function)
        where = None if expr.where is None else function(expr.where)
        values = _map_all(expr.values, function)
        if axes is expr.axes and where is expr.where and values is expr.values:
            return expr
        return replace(expr, axes=axes, where=where, values=values)
    return expr


MOST_KEPT = 48
"""Nodes of an expression that remembers them: every pass goes through every definition, most of which no pass changes."""


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, parents before children, left to right, `expr` first."""
    try:
        below = expr._below
    except AttributeError:
        below = _below(expr)
        object.__setattr__(expr, "_below", below)
    return _walk(expr) if below is None else chain((expr,), below)


def _below(expr: Expr) -> tuple[Expr, ...] | None:
    """The subexpressions of an expression but itself, as `walk` has them; None where they are many."""
    found = tuple(islice(_walk(expr), 1, MOST_KEPT + 1))
    return found if len(found) < MOST_KEPT else None


def _walk(expr: Expr) -> Iterator[Expr]:
    stack: list[Any] = [expr]  # of expressions: checkers narrow no type by `is`
    pop, extend = stack.pop, stack.extend
    while stack:
        node = pop()
        yield node
        kind = type(node)  # as `children`, without calls: nothing is gone through more often
        if kind is Apply:
            extend(node.args[::-1])
        elif kind is Access:
            extend(node.indices[::-1])
        elif kind is Cast:
            stack.append(node.arg)
        elif kind is Reduce:
            extend(children(node)[::-1])


def is_within(expr: Expr, nodes: int, depth: int) -> bool:
    """Whether an expression, written out, has at most so many nodes, and at most so many inside each other: for what is shown to people."""
    stack = [(expr, 1)]
    seen = 0
    while stack:
        node, level = stack.pop()
        seen += 1
        if seen > nodes or level > depth:
            return False
        stack.extend((child, level + 1) for child in children(node))
    return True


class _BottomUp:
    """Visits nodes after their children. No function inside of another: one that calls itself holds itself and all that it has found,
    and only the collector of cycles frees that."""

    __slots__ = ("done", "function")

    def __init__(self, function: Callable[[Expr], Expr]) -> None:
        self.function = function
        self.done: dict[Expr, Expr] = {}

    def __call__(self, node: Expr) -> Expr:
        found = self.done.get(node)
        if found is None:
            found = self.function(map_children(node, self))
            self.done[node] = found
        return node if found is node or found == node else found  # an equal subtree elsewhere is another object


def bottom_up(expr: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """`function` applied to every node after its children; equal subtrees are visited once."""
    return _BottomUp(function)(expr)


def replaced(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """The expression with what `values` has in place of each node that is a key of it, inner ones first."""
    return bottom_up(expr, lambda node: values.get(node, node))


def put_term(expr: Expr, term: Expr, by: Expr) -> Expr:
    """The expression with `by` in place of every `term`, in which nothing more is looked for."""
    return by if expr == term else map_children(expr, lambda child: put_term(child, term, by))


def has_points(axis: Axis) -> bool:
    """Whether an axis is known to have at least one point."""
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and axis.start.value < axis.stop.value


def signed_terms(expr: Expr, sign: int = 1) -> Iterator[tuple[int, Expr]]:
    """The terms of a sum of sums and differences, each with its sign, 1 or -1."""
    if isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        yield from signed_terms(expr.args[0], sign)
        yield from signed_terms(expr.args[1], sign if expr.op.name == "add" else -sign)
    else:
        yield sign, expr


def free_names(expr: Expr) -> tuple[str, ...]:
    """Names of the indices that occur in `expr` and are not bound by a reduction in it, in order of first occurrence; remembered by each
    node, so that what is asked of an expression is known of its parts."""
    try:
        return expr._free
    except AttributeError:
        pass
    if isinstance(expr, Index):
        names: tuple[str, ...] = (expr.name,)
    elif isinstance(expr, Reduce):
        found: dict[str, None] = {}
        bound: set[str] = set()
        for axis in expr.axes:
            found.update(dict.fromkeys(n for e in (axis.start, axis.stop) for n in free_names(e) if n not in bound))
            bound.add(axis.index)
        inside = expr.values if expr.where is None else (expr.where, *expr.values)
        found.update(dict.fromkeys(n for e in inside for n in free_names(e) if n not in bound))
        names = tuple(found)
    else:
        names = ()
        for child in children(expr):
            more = free_names(child)
            if more and more is not names:
                names = tuple(dict.fromkeys(names + more)) if names else more
    object.__setattr__(expr, "_free", names)
    return names


def tensors_read(expr: Expr) -> tuple[str, ...]:
    """The tensors that `expr` reads, also in indices, bounds and conditions, in order of first occurrence; remembered by each node."""
    try:
        return expr._tensors
    except AttributeError:
        pass
    names: tuple[str, ...] = (expr.tensor,) if isinstance(expr, Access) else ()
    for child in children(expr):
        more = tensors_read(child)
        if more and more is not names:
            names = tuple(dict.fromkeys(names + more)) if names else more
    object.__setattr__(expr, "_tensors", names)
    return names


def size_names(expr: Expr) -> tuple[str, ...]:
    """Names of the symbolic sizes in `expr`, in order of first occurrence."""
    return tuple(dict.fromkeys(node.name for node in walk(expr) if isinstance(node, Size)))


def definition_sizes(definitions: Iterable[Definition]) -> tuple[str, ...]:
    """Names of the symbolic sizes in definitions and in the shapes of their results, in order of first occurrence."""
    found: dict[str, None] = {}
    for definition in definitions:
        for expr in (*expressions(definition), *(e for _, type_ in definition.results for e in type_.shape)):
            found.update(dict.fromkeys(size_names(expr)))
        if isinstance(definition, Scan):
            found.update(dict.fromkeys(definition_sizes(definition.body)))
    return tuple(found)


def bound_names(expr: Expr) -> tuple[str, ...]:
    """Names of the indices bound by the reductions in `expr`."""
    return tuple(dict.fromkeys(axis.index for node in walk(expr) if isinstance(node, Reduce) for axis in node.axes))


class _Substitution:
    __slots__ = ("replacements",)

    def __init__(self, replacements: Mapping[str, Expr]) -> None:
        self.replacements = replacements

    def __call__(self, node: Expr) -> Expr:
        if isinstance(node, Index):
            return self.replacements.get(node.name, node)
        return map_children(node, self)


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """`expr` with free indices replaced; reductions inside must not bind a name that a replacement mentions (rename first)."""
    return _Substitution(replacements)(expr) if replacements else expr


def fresh_name(stem: str, taken: set[str]) -> str:
    """`stem`, or the first of `stem_1`, `stem_2`, ... that is not taken (one of those behind a taken one); it is added to `taken`."""
    if stem not in taken:
        taken.add(stem)
        return stem
    below, count = 0, 1
    while f"{stem}_{count}" in taken:
        below, count = count, 2 * count
    while count - below > 1:  # programs have thousands of tensors of one stem
        middle = (below + count) // 2
        below, count = (middle, count) if f"{stem}_{middle}" in taken else (below, middle)
    name = f"{stem}_{count}"
    taken.add(name)
    return name


def rename_bound(expr: Expr, taken: set[str]) -> Expr:
    """`expr` with the indices of its reductions renamed where they are in `taken`; the new names are added to `taken`."""
    return _rename_bound(expr, {}, taken)


def _rename_bound(node: Expr, names: Mapping[str, Expr], taken: set[str]) -> Expr:
    if isinstance(node, Index):
        return names.get(node.name, node)
    if not isinstance(node, Reduce):
        return map_children(node, lambda child: _rename_bound(child, names, taken))
    inner = dict(names)
    axes = []
    for axis in node.axes:
        start, stop = _rename_bound(axis.start, inner, taken), _rename_bound(axis.stop, inner, taken)
        name = fresh_name(axis.index, taken)
        if name != axis.index:
            inner[axis.index] = Index(name)
        else:
            inner.pop(axis.index, None)
        same = name == axis.index and start is axis.start and stop is axis.stop
        axes.append(axis if same else Axis(name, start, stop))
    where = None if node.where is None else _rename_bound(node.where, inner, taken)
    values = tuple(_rename_bound(v, inner, taken) for v in node.values)
    unchanged = (
        all(a is b for a, b in zip(axes, node.axes, strict=True))
        and where is node.where
        and all(a is b for a, b in zip(values, node.values, strict=True))
    )
    return node if unchanged else replace(node, axes=tuple(axes), where=where, values=values)


def expressions(definition: Definition) -> Iterator[Expr]:
    """The expressions of a definition: bounds, guards, indices, values; of a scan also those of its body."""
    match definition:
        case Define():
            for axis in definition.axes:
                yield axis.start
                yield axis.stop
            yield definition.value
        case Scatter():
            for axis in definition.axes:
                yield axis.start
                yield axis.stop
            yield from definition.indices
            if definition.where is not None:
                yield definition.where
            yield definition.value
        case Segments():
            for axis in definition.loops:
                yield axis.start
                yield axis.stop
            yield from definition.extents
            yield from definition.keys
            if definition.where is not None:
                yield definition.where
        case Scan():
            yield definition.length
            for inner in definition.body:
                yield from expressions(inner)


def with_bodies(definitions: Iterable[Definition]) -> Iterator[Definition]:
    """The definitions, and behind each scan those of its body."""
    for definition in definitions:
        yield definition
        if isinstance(definition, Scan):
            yield from with_bodies(definition.body)


def map_expressions(definition: Definition, function: Callable[[Expr], Expr]) -> Definition:
    """The definition with `function` applied to its values, guards, indices and bounds (of a scan: of its body too)."""
    match definition:
        case Define():
            axes, value = map_axes(definition.axes, function), function(definition.value)
            if axes is definition.axes and value is definition.value:
                return definition
            return replace(definition, axes=axes, value=value)
        case Scatter():
            axes, indices = map_axes(definition.axes, function), _map_all(definition.indices, function)
            where = None if definition.where is None else function(definition.where)
            value = function(definition.value)
            if axes is definition.axes and indices is definition.indices and where is definition.where and value is definition.value:
                return definition
            return replace(definition, axes=axes, indices=indices, where=where, value=value)
        case Segments():
            batch, axes = map_axes(definition.batch, function), map_axes(definition.axes, function)
            extents, keys = _map_all(definition.extents, function), _map_all(definition.keys, function)
            where = None if definition.where is None else function(definition.where)
            before = (definition.batch, definition.axes, definition.extents, definition.keys, definition.where)
            if all(a is b for a, b in zip(before, (batch, axes, extents, keys, where), strict=True)):
                return definition
            return replace(definition, batch=batch, axes=axes, extents=extents, keys=keys, where=where)
        case Scan():
            body = tuple(map_expressions(inner, function) for inner in definition.body)
            length = function(definition.length)
            if length is definition.length and all(a is b for a, b in zip(body, definition.body, strict=True)):
                return definition
            return replace(definition, length=length, body=body)
    raise AssertionError(type(definition))


def reads(definition: Definition) -> tuple[str, ...]:
    """Names of the tensors a definition reads, in order of first occurrence (a scan: from outside, its inits included).

    Remembered by the definition: every pass over a program asks.
    """
    try:
        return definition._reads
    except AttributeError:
        found = _reads(definition)
        object.__setattr__(definition, "_reads", found)
        return found


def _reads(definition: Definition) -> tuple[str, ...]:
    if isinstance(definition, Scan):
        local = {name for name, _ in definition.states} | {name for inner in definition.body for name, _ in inner.results}
        outer = [name for inner in definition.body for name in reads(inner) if name not in local]
        return tuple(dict.fromkeys([*definition.inits, *outer]))
    return tuple(dict.fromkeys(name for e in expressions(definition) for name in tensors_read(e)))


class Read(NamedTuple):
    """One read occurrence: the access, the axes that enclose it (outermost first) and the guards on the way to it."""

    access: Access
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]


def read_occurrences(value: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...] = ()) -> Iterator[Read]:
    """Every access in `value` with its iteration space: enclosing axes, and conditions under which it is evaluated.

    The guards are the conjuncts of `where` conditions on the path (negated for the other branch) and of the reductions'
    `where`. Accesses inside index expressions, conditions and bounds are reported too.
    """
    if not tensors_read(value):  # most of what indices and bounds are made of
        return
    match value:
        case Access():
            for index in value.indices:
                if tensors_read(index):
                    yield from read_occurrences(index, axes, guards)
            yield Read(value, axes, guards)
        case Apply() if value.op.name == "where":
            condition, taken, otherwise = value.args
            yield from read_occurrences(condition, axes, guards)
            yield from read_occurrences(taken, axes, guards + tuple(conjuncts(condition)))
            yield from read_occurrences(otherwise, axes, (*guards, negate(condition)))
        case Reduce():
            inner = axes
            for axis in value.axes:
                yield from read_occurrences(axis.start, inner, guards)
                yield from read_occurrences(axis.stop, inner, guards)
                inner = (*inner, axis)
            if value.where is not None:
                yield from read_occurrences(value.where, inner, guards)
                guards = guards + tuple(conjuncts(value.where))
            for item in value.values:
                yield from read_occurrences(item, inner, guards)
        case _:
            for child in children(value):
                if tensors_read(child):
                    yield from read_occurrences(child, axes, guards)


_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def negate(condition: Expr) -> Expr:
    """The opposite condition; comparisons of integers turn around, the rest is wrapped in a logical not."""
    if condition in (TRUE, FALSE):
        return FALSE if condition == TRUE else TRUE
    if isinstance(condition, Apply):
        if condition.op.name == "invert":
            return condition.args[0]
        if condition.op.name in _NEGATED and not condition.args[0].dtype.is_float:
            return apply(_NEGATED[condition.op.name], *condition.args)
    return apply("invert", condition)
