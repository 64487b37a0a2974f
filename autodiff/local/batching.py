"""Definitions run for every value of further leading indices: the same mathematics, tensors with more axes.

Tensors in `batched` have the new axes, at the position that is noted with them (behind the steps of a scan, else in
front); what reads them reads them at the same values of these. The body of a scan becomes definitions over all its steps
this way, and a gradient for one head a gradient for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Index, Reduce, Scan, Scatter, Segments, TensorType, const
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, expressions, fresh_name, map_expressions, reads, walk


def index_names(definitions: Iterable[Definition]) -> set[str]:
    """Every name of an index that the definitions bind."""
    found: set[str] = set()
    for definition in definitions:
        if isinstance(definition, Scan):
            found |= {definition.step} | index_names(definition.body)
            continue
        found |= {axis.index for axis in (definition.loops if isinstance(definition, Segments) else definition.axes)}
        found |= {axis.index for e in expressions(definition) for node in walk(e) if isinstance(node, Reduce) for axis in node.axes}
    return found


def fresh_axes(stems: Iterable[tuple[str, Expr]], definitions: Iterable[Definition], sizes: Iterable[str] = ()) -> tuple[Axis, ...]:
    """Axes of the given stems and extents whose names nothing in the definitions binds and no size has."""
    taken = index_names(definitions) | set(sizes)
    return tuple(Axis(fresh_name(stem, taken), const(0), stop) for stem, stop in stems)


def batch(
    definitions: Iterable[Definition],
    axes: tuple[Axis, ...],
    batched: dict[str, int],
    types: dict[str, TensorType],
    new_name: Callable[[str], str],
) -> list[Definition]:
    """The definitions with `axes`; results are added to `batched`, names of indices must differ from those of `axes`."""
    leading = tuple(Index(axis.index) for axis in axes)
    extents = tuple(axis.stop for axis in axes)

    def wide(type_: TensorType) -> TensorType:
        return TensorType((*extents, *type_.shape), type_.dtype)

    def lead(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in batched:
            at = batched[node.tensor]
            return replace(node, indices=(*node.indices[:at], *leading, *node.indices[at:]))
        return node

    def moved(definition: Definition, before: list[Definition]) -> Definition:
        match definition:
            case Define():
                return replace(definition, axes=(*axes, *definition.axes), value=bottom_up(definition.value, lead))
            case Scatter():
                inner = map_expressions(definition, lambda e: bottom_up(e, lead))
                assert isinstance(inner, Scatter)
                return replace(inner, type=wide(definition.type), axes=(*axes, *inner.axes), indices=(*leading, *inner.indices))
            case Segments():
                inner = map_expressions(definition, lambda e: bottom_up(e, lead))
                assert isinstance(inner, Segments)
                return replace(inner, batch=(*axes, *inner.batch)) if varies(definition) else definition
            case Scan():
                batched.update((name, 0) for name, _ in definition.states)
                states = tuple((name, wide(type_)) for name, type_ in definition.states)
                inits = tuple(in_front(name, type_, before) for name, (_, type_) in zip(definition.inits, definition.states, strict=True))
                body: list[Definition] = []
                for inner in definition.body:
                    if varies(inner):
                        batched.update((name, 1 if isinstance(inner, Scan) else 0) for name, _ in inner.results)
                    body.append(moved(inner, body))
                nexts = tuple(in_front(name, type_, body) for name, (_, type_) in zip(definition.nexts, definition.states, strict=True))
                return replace(definition, states=states, inits=inits, body=tuple(body), nexts=nexts)
        raise AssertionError(type(definition))

    def varies(definition: Definition) -> bool:
        """Whether a definition gets the axes: a plan that is the same for all their values does not."""
        if not isinstance(definition, Segments):
            return True
        used = {node.name for e in expressions(definition) for node in walk(e) if isinstance(node, Index)}
        return not used.isdisjoint(axis.index for axis in axes) or any(name in batched for name in reads(definition))

    def in_front(name: str, type_: TensorType, before: list[Definition]) -> str:
        """A tensor with the new axes in front, made of one that lacks them or has them behind the steps of a scan; added to `before`."""
        if batched.get(name) == 0:
            return name
        own = tuple(Axis(f"{axes[0].index}_{d}", const(0), stop) for d, stop in enumerate(type_.shape))
        copy = new_name(name)
        before.append(Define(copy, (*axes, *own), lead(Access(name, tuple(Index(axis.index) for axis in own), type_.dtype))))
        batched[copy] = 0
        return copy

    result: list[Definition] = []
    for definition in definitions:
        result.append(moved(definition, result))
        if varies(definition):
            batched.update((name, 1 if isinstance(definition, Scan) else 0) for name, _ in definition.results)
    return result
