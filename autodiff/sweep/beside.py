"""Derived tensors that are a product of what is read beside them: not stored, but computed there, next to a function.

The gradient of a quotient a / b sends t / b to the dividend and -(t / b) * (a / b) to the divisor. Where both are sums over the same
neighbors, each neighbor reads both, and the second is a product of the first and of the result:

    b_bar[i] = -(t[i] / b[i] * y[i]);  sum(exp(..) * (a_bar[k] * x[i] + b_bar[k]))  -->  sum(exp(..) * (a_bar[k] * (x[i] - y[k])))

One multiplication beside a function costs less than a tensor, and its factor is often common to what it is added to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorexpr.autodiff.sweep.neighbors import added_up
from tensorexpr.ir import Access, Apply, Define, Definition, Expr, Index, Reduce
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, children, map_children, reads, substitute, walk

FUNCTION = 12
"""Operations of at least this cost are functions: beside one, a product is next to nothing."""
MOST = 2
"""What a product may cost: the multiplication and a sign."""


def written_beside(definitions: Sequence[Definition], kept: frozenset[str]) -> list[Definition]:
    """The definitions, with products of what is read beside them written where they are read; none of those `kept`, which are asked for.

    Every definition stays, for who asks for it; what nobody does is dropped when a program is made of them.
    """
    found = list(definitions)
    own = {name for d in definitions for name, _ in d.results}
    readers: dict[str, list[int]] = {}
    for k, definition in enumerate(definitions):
        for name in reads(definition):
            readers.setdefault(name, []).append(k)
    computed: dict[tuple[tuple[Expr, Expr], ...], dict[Expr, Expr]] = {}
    for product in definitions:
        if not isinstance(product, Define) or not product.axes or not _is_computed(product.value):
            continue
        at = tuple(Index(str(n)) for n in range(len(product.axes)))
        whole = substitute(product.value, {axis.index: index for axis, index in zip(product.axes, at, strict=True)})
        known = computed.setdefault(tuple((axis.start, axis.stop) for axis in product.axes), {})
        value = _in_terms_of_others(whole, at, known)
        known.setdefault(whole, Access(product.name, at, whole.dtype))
        # A reader that a product was written in reads no further derived tensor: all that are part of it are read beside it.
        at_work = readers.get(product.name, [])
        if value is None or product.name in kept or not at_work:
            continue
        if all(_is_beside(found[k], product.name, own & {n.tensor for n in _accesses(value)}) for k in at_work):
            for k in at_work:
                found[k] = _written(found[k], product.name, at, value)
    return found


def _in_terms_of_others(whole: Expr, at: tuple[Index, ...], known: Mapping[Expr, Expr]) -> Expr | None:
    """The value as a product of elements at the place `at`, where `known` derived ones that are part of it are read; None if it is none."""
    if not _is_factor(whole):
        return None
    value = bottom_up(whole, lambda node: known.get(node, node))
    nodes = list(walk(value))
    plain = all(isinstance(n, Index) or (isinstance(n, Access) and n.indices == at) or _is_factor(n) for n in nodes)
    cost = sum(n.op.cost for n in nodes if isinstance(n, Apply))
    return value if plain and 0 < cost <= MOST and any(isinstance(n, Apply) and n.op.name == "mul" for n in nodes) else None


def _is_computed(value: Expr) -> bool:
    return isinstance(value, Apply) and value.dtype.is_float and not any(isinstance(n, Reduce) for n in walk(value))


def _is_factor(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name in ("mul", "neg") and node.dtype.is_float


def _accesses(value: Expr) -> Iterator[Access]:
    return (n for n in walk(value) if isinstance(n, Access))


def _is_beside(reader: Definition, name: str, others: set[str]) -> bool:
    """Whether every read of a tensor is in a reduction that computes a function and reads the others at the same place."""
    if not isinstance(reader, Define):
        return False

    def holds(node: Expr, inside: Reduce | None) -> bool:
        if isinstance(node, Access) and node.tensor == name:
            if inside is None or not any(isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION for n in walk(inside)):
                return False
            there = {n.tensor for n in _accesses(inside) if n.indices == node.indices}
            return others <= there
        return all(holds(child, node if isinstance(node, Reduce) else inside) for child in children(node))

    return holds(reader.value, None)


def _written(reader: Definition, name: str, at: tuple[Index, ...], value: Expr) -> Define:
    """A definition with the product, `value` at the place `at`, for its reads; what the terms of sums with it share is taken out."""
    assert isinstance(reader, Define)

    def visit(node: Expr) -> tuple[Expr, bool]:
        """The expression, and whether it is the product or a term that contains it."""
        if isinstance(node, Access) and node.tensor == name:
            places: Mapping[str, Expr] = {axis.name: index for axis, index in zip(at, node.indices, strict=True)}
            return substitute(value, places), True
        changed = False

        def child(inner: Expr) -> Expr:
            nonlocal changed
            made, has = visit(inner)
            changed = changed or has
            return made

        made = map_children(node, child)
        is_sum = isinstance(made, Apply) and made.op.name in ("add", "sub")
        return (added_up(made), False) if changed and is_sum else (made, changed and isinstance(made, Apply))

    return replace(reader, value=visit(reader.value)[0])
