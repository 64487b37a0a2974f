"""Axes that are one in all but name: neighbours in memory that every loop goes through together.

    x: f32[8, 64, 100] = input()                                        x: f32[512, 100] = input()
    m[b, i]: f32[8, 64] = max(x[b, i, k] for k in range(100))           m[b]: f32[512] = max(x[b, k] for k in range(100))

A pair of loops is one where the index of the second stands behind that of the first at such axes and nowhere else, over all of them, and
all reductions of a definition that have loops of these names have this pair; a pair of axes is one where a pair of loops stands wherever
the tensor is read or made. The largest sets of both are found by dropping what does not fit. Points come in the same order.
Extents may be open where their form says that none is below zero: two of these would be a product above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

from tensorexpr.ir import Access, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, TensorType, const, product
from tensorexpr.ir.expressions import is_natural
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up, children, expressions, reads, walk


def with_joint_axes(program: Program, free: Mapping[str, TensorType]) -> Program:
    """The program with one axis for neighbouring ones of `free` tensors that every loop goes through together."""
    read = {name for d in program.definitions if not isinstance(d, Define) for name in reads(d)}
    shapes = {name: type_.shape for name, type_ in free.items() if name not in read and _fits_integers(type_.shape)}
    pairs = {(name, at) for name, shape in shapes.items() for at in range(len(shape) - 1) if all(map(is_natural, shape[at : at + 2]))}
    if not pairs:
        return program
    loops = {d.name: _Loops.of(d, shapes) for d in program.definitions if isinstance(d, Define)}
    settled = False
    while not settled:  # to and fro: what does not fit goes along a chain of definitions in one turn
        turn = (*loops.values(), *reversed(loops.values()))
        settled = not any([own.drop(pairs) for own in turn])
    return _merged(program, pairs, loops) if pairs else program


@record(frozen=False, eq=False)
class _Loops:
    """What of a definition counts here.

    `pairs` of neighbouring loops, by the name of the first; at which indices it has `touched` free tensors, its own elements among them
    (None for what is no index by itself); the indices that are `loose`: that stand elsewhere.
    """

    pairs: dict[str, tuple[Axis, Axis]]
    touched: set[tuple[str, tuple[str | None, ...]]]
    loose: set[str]
    shapes: Mapping[str, tuple[Expr, ...]]

    @staticmethod
    def of(d: Define, shapes: Mapping[str, tuple[Expr, ...]]) -> _Loops:
        """Those of a definition."""
        nests = [d.axes, *(node.axes for node in walk(d.value) if isinstance(node, Reduce))]
        around: dict[str, list[set[tuple[Axis, Axis]]]] = {}  # reductions beside each other may have loops of one name
        for axes in nests:
            near = set(pairwise(axes))
            for axis in axes:
                around.setdefault(axis.index, []).append(near)
        pairs = {
            a.index: (a, b)
            for a, b in dict.fromkeys(pair for axes in nests for pair in pairwise(axes))
            if a.start == b.start == const(0)
            and is_natural(a.stop)
            and is_natural(b.stop)
            and all((a, b) in near for near in (*around[a.index], *around[b.index]))
        }
        found = _Loops(pairs, {(d.name, tuple(axis.index for axis in d.axes))}, set(), shapes)
        for e in expressions(d):
            found._visit(e)
        if d.name not in shapes:
            found.loose |= {axis.index for axis in d.axes}
        return found

    def _visit(self, e: Expr) -> None:
        stack = [e]
        while stack:
            node = stack.pop()
            if isinstance(node, Index):
                self.loose.add(node.name)
            elif isinstance(node, Access):
                names = tuple(index.name if isinstance(index, Index) else None for index in node.indices)
                stack += [index for index in node.indices if not isinstance(index, Index)]
                if node.tensor in self.shapes:
                    self.touched.add((node.tensor, names))
                else:
                    self.loose |= {name for name in names if name is not None}
            else:
                stack += children(node)

    def drop(self, axes: set[tuple[str, int]]) -> bool:
        """Drops pairs of loops that do not fit pairs of axes, and those that do not fit these; whether there were any."""
        bad = {name for name, (a, b) in self.pairs.items() if name in self.loose or b.index in self.loose}
        behind = {b.index: name for name, (_, b) in self.pairs.items()}
        dropped = set()
        for tensor, names in self.touched:
            for at, name in enumerate(names):
                if name in self.pairs and not self._fits(tensor, names, at, axes):
                    bad.add(name)
                if name in behind and (not at or names[at - 1] != behind[name]):
                    bad.add(behind[name])
        for name in bad:
            del self.pairs[name]
        for tensor, names in self.touched:
            dropped |= {(tensor, at) for at in range(len(names) - 1) if (tensor, at) in axes and not self._fits(tensor, names, at, axes)}
        axes -= dropped
        return bool(bad or dropped)

    def _fits(self, tensor: str, names: Sequence[str | None], at: int, axes: set[tuple[str, int]]) -> bool:
        """Whether a pair of loops, over all of a pair of axes, stands at a place of an access."""
        pair = self.pairs.get(names[at] or "")
        if pair is None or (tensor, at) not in axes:
            return False
        return names[at + 1] == pair[1].index and (pair[0].stop, pair[1].stop) == self.shapes[tensor][at : at + 2]


def _merged(program: Program, pairs: set[tuple[str, int]], loops: Mapping[str, _Loops]) -> Program:
    """The program with one axis for each chain of pairs."""

    def kept(tensor: str, count: int) -> list[int]:
        return [at for at in range(count) if (tensor, at - 1) not in pairs]

    def shape(tensor: str, extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(product(extents[at:end]) for at, end in pairwise((*kept(tensor, len(extents)), len(extents))))

    def moved(d: Definition) -> Definition:
        if not isinstance(d, Define):
            return d
        behind = {b.index for _, b in loops[d.name].pairs.values()}

        def one(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            first = [at for at, axis in enumerate(axes) if axis.index not in behind]
            chains = (axes[at:end] for at, end in pairwise((*first, len(axes))))
            return tuple(
                chain[0] if len(chain) == 1 else replace(chain[0], stop=product(tuple(axis.stop for axis in chain))) for chain in chains
            )

        def visit(node: Expr) -> Expr:
            if isinstance(node, Reduce):
                return replace(node, axes=one(node.axes))
            if isinstance(node, Access):
                return replace(node, indices=tuple(node.indices[at] for at in kept(node.tensor, len(node.indices))))
            return node

        return replace(d, axes=one(d.axes), value=bottom_up(d.value, visit))

    inputs = tuple(replace(item, type=replace(item.type, shape=shape(item.name, item.type.shape))) for item in program.inputs)
    return replace(program, inputs=inputs, definitions=tuple(map(moved, program.definitions)))


def _fits_integers(shape: Sequence[Expr]) -> bool:
    """Whether any axes of a shape, as one, have an extent that is an int64: tensors that no memory holds may have more elements."""
    return prod(int(extent.value) for extent in shape if isinstance(extent, Const)) < 1 << 62
