"""How far apart in memory the elements are that neighboring iterations of a loop touch."""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.ir import Access, Const, Expr
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names, read_occurrences

FAR = 1 << 30
"""Stands for a stride that is large or not the same everywhere."""


@record
class Reach:
    """The strides of one access by index name, in elements; indices that do not matter to it are left out."""

    access: Access
    strides: Mapping[str, int]

    def stride(self, index: str) -> int:
        return self.strides.get(index, 0)


def reach(access: Access, shape: tuple[Expr, ...]) -> Reach:
    """The strides of an access to a row-major tensor of this shape."""
    strides: dict[str, int] = {}
    width = 1
    for index, extent in zip(reversed(access.indices), reversed(shape), strict=True):
        form = affine_of(index)
        if form is None:
            for name in free_names(index):
                strides[name] = FAR
        else:
            for atom, factor in form.terms:
                if isinstance(atom, str):
                    strides[atom] = min(FAR, strides.get(atom, 0) + factor * width) if width < FAR else FAR
                else:
                    for name in atom.numerator.names():
                        strides[name] = FAR
        width = min(FAR, width * int(extent.value)) if isinstance(extent, Const) else FAR
    return Reach(access, {n: s for n, s in strides.items() if s})


def reaches(exprs: tuple[Expr, ...], shapes: Mapping[str, tuple[Expr, ...]]) -> tuple[Reach, ...]:
    """The strides of every access in the expressions, each access once."""
    found: dict[Access, Reach] = {}
    for expr in exprs:
        for access, _, _ in read_occurrences(expr, ()):
            if access not in found:
                found[access] = reach(access, shapes[access.tensor])
    return tuple(found.values())
