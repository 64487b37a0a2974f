"""Renaming whole definitions: tensors from keys to names and back, indices away from the sizes of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorexpr.ir import Access, Axis, Const, Define, Definition, Expr, Index, Reduce, Scan, Scatter, Segments
from tensorexpr.records import replace
from tensorexpr.traversal import expressions, fresh_name, map_axes, map_children, tensors_read, walk


def local_names(definition: Definition) -> Iterator[str]:
    """The names that live inside a scan: its states and the results of its body, of nested scans too."""
    if isinstance(definition, Scan):
        for name, _ in definition.states:
            yield name
        for inner in definition.body:
            for name, _ in inner.results:
                yield name
            yield from local_names(inner)


class ProgramRenaming:
    """Renames the tensors of a program by `names` (others keep theirs), and indices that have the name of a size."""

    def __init__(self, names: Mapping[str, str], sizes: Iterable[str]) -> None:
        self._names = names
        self._sizes = frozenset(sizes)

    def definition(self, definition: Definition) -> Definition:
        """The definition under its new names."""
        clashes: dict[str, str] = {}
        if self._sizes:
            used = dict.fromkeys(index_names(definition))
            taken = set(used) | self._sizes
            clashes = {name: fresh_name(name, taken) for name in used if name in self._sizes}
        return renamed(definition, self._names, clashes)


def renamed(definition: Definition, tensors: Mapping[str, str], indices: Mapping[str, str]) -> Definition:
    """The definition with tensors and indices renamed, bound ones too; names that are not in the tables stay."""
    if not tensors and not indices:
        return definition
    rename = Renaming(tensors, indices)

    def name(old: str) -> str:
        return tensors.get(old, old)

    match definition:
        case Define():
            return replace(definition, name=name(definition.name), axes=rename.axes(definition.axes), value=rename(definition.value))
        case Scatter():
            return replace(
                definition,
                name=name(definition.name),
                axes=rename.axes(definition.axes),
                indices=tuple(map(rename, definition.indices)),
                value=rename(definition.value),
                where=None if definition.where is None else rename(definition.where),
            )
        case Segments(names=(offsets, order)):
            return replace(
                definition,
                names=(name(offsets), name(order)),
                extents=tuple(map(rename, definition.extents)),
                batch=rename.axes(definition.batch),
                axes=rename.axes(definition.axes),
                keys=tuple(map(rename, definition.keys)),
                where=None if definition.where is None else rename(definition.where),
            )
        case Scan():
            return replace(
                definition,
                names=tuple(map(name, definition.names)),
                step=indices.get(definition.step, definition.step),
                states=tuple((name(n), type_) for n, type_ in definition.states),
                inits=tuple(map(name, definition.inits)),
                body=tuple(renamed(inner, tensors, indices) for inner in definition.body),
                nexts=tuple(map(name, definition.nexts)),
            )
    raise AssertionError(type(definition))


def index_names(definition: Definition) -> Iterator[str]:
    """The names that a definition binds: axes, reductions, steps of scans."""
    if isinstance(definition, Scan):
        yield definition.step
        for inner in definition.body:
            yield from index_names(inner)
        return
    for axis in definition.loops if isinstance(definition, Segments) else definition.axes:
        yield axis.index
    for expr in expressions(definition):
        for node in walk(expr):
            if isinstance(node, Reduce):
                for axis in node.axes:
                    yield axis.index


class Renaming:
    """Renames within expressions; every object is rewritten once, so shared parts stay shared."""

    def __init__(self, tensors: Mapping[str, str], indices: Mapping[str, str]) -> None:
        self._tensors, self._indices = tensors, indices
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, node: Expr) -> Expr:
        if type(node) is Const or not (self._indices or tensors_read(node)):
            return node
        found = self._done.get(id(node))
        if found is not None:
            return found[1]
        if isinstance(node, Index):
            result: Expr = Index(self._indices[node.name]) if node.name in self._indices else node
        elif isinstance(node, Access):
            result = self._access(node)
        else:
            result = map_children(node, self)
            if isinstance(result, Reduce) and self._indices:
                result = replace(result, axes=self._renamed(result.axes))
        hash(result)
        self._done[id(node)] = (node, result)
        return result

    def _access(self, node: Access) -> Access:
        tensor = self._tensors.get(node.tensor, node.tensor)
        indices = tuple(map(self, node.indices))
        if tensor == node.tensor and all(a is b for a, b in zip(indices, node.indices, strict=True)):
            return node
        return Access(tensor, indices, node.dtype, node.location)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Axes with everything in them renamed."""
        return self._renamed(map_axes(axes, self))

    def _renamed(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        if not any(axis.index in self._indices for axis in axes):
            return axes
        return tuple(Axis(self._indices.get(axis.index, axis.index), axis.start, axis.stop) for axis in axes)
