"""Reads whose data is known at every element: what depends on data is then a number like any other, and nothing is sorted.

In `X[b, i + s[b]]` the element's first index is b, so `s[b]` is known there and `i = p - s[b]`; in `X[t, ids[t]]` each element
compares its second index with `ids[t]` (owner computes); a slice that starts at data is a shift. Such data stands for itself
through the inversion, as a parameter of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorexpr import dtypes
from tensorexpr.autodiff.invert.inversion import DATA, Gather
from tensorexpr.autodiff.invert.numerals import has_data
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.ir import Access, Axis, Expr, Index, Reduce, const
from tensorexpr.traversal import children, free_names, map_children, substitute

Invert = Callable[[Sequence[Expr], Sequence[Axis], Sequence[Expr], Sequence[Axis], tuple[str, ...]], "tuple[Gather, ...] | None"]
"""Turns around affine reads: indices, axes, guards, target, reserved names."""


def pinned_axes(c: Contribution, target: Sequence[Axis]) -> dict[str, Axis]:
    """The axes that an element settles, being an index by themselves over its whole extent, with the target's axis of each."""
    own = {axis.index: axis for axis in c.axes}
    found: dict[str, Axis] = {}
    for index, element in zip(c.access.indices, target, strict=True):
        if isinstance(index, Index) and index.name in own and index.name not in found:
            if own[index.name].start == const(0) and own[index.name].stop == element.stop:
                found[index.name] = element
    return found


def fixed_gathers(
    c: Contribution, target: tuple[Axis, ...], steps: Sequence[Axis], reserved: tuple[str, ...], invert: Invert
) -> tuple[Gather, ...] | None:
    """The gathers of a read whose data depends on axes that the element settles; None where it is none.

    No axis of the contribution has the name of one of the target.
    """
    pinned = pinned_axes(c, target)
    settled: dict[str, Expr] = {name: Index(element.index) for name, element in pinned.items()}
    known = {element.index for element in pinned.values()} | {step.index for step in steps}
    names: dict[Expr, str] = {}

    def number(expr: Expr) -> Expr | None:
        """The expression with what is known in place of data; None where some data is not."""
        if not has_data(expr):
            return expr
        if expr.dtype is dtypes.int64 and set(free_names(expr)) <= known:
            return Index(names.setdefault(expr, f"{DATA}{len(names)}"))
        if isinstance(expr, Access | Reduce):
            return None
        parts = {child: number(child) for child in dict.fromkeys(children(expr))}
        if any(part is None for part in parts.values()):
            return None
        return map_children(expr, lambda child: parts[child] or child)

    others = [(index, element) for index, element in zip(c.access.indices, target, strict=True) if element not in pinned.values()]
    indices = [number(substitute(index, settled)) for index, _ in others]
    axes = [Axis(a.index, substitute(a.start, settled), substitute(a.stop, settled)) for a in c.axes if a.index not in pinned]
    guards = [substitute(guard, settled) for guard in c.guards]
    found = [index for index in indices if index is not None]
    if len(found) < len(indices) or not names:
        return None
    gathers = invert(found, axes, [number(guard) or guard for guard in guards], [element for _, element in others], reserved)
    if gathers is None:
        return None
    meaning: dict[str, Expr] = {name: expr for expr, name in names.items()}

    def meant(expr: Expr) -> Expr:
        return substitute(expr, meaning)

    return tuple(
        Gather(
            {name: meant(value) for name, value in g.values.items()} | settled,
            tuple(Axis(a.index, meant(a.start), meant(a.stop)) for a in g.axes),
            tuple(map(meant, g.outer)),
            tuple(map(meant, g.inner)),
            "segments",
        )
        for g in gathers
    )
