"""The loops of reductions and scatters: fresh indices over extents that may depend on the indices before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorexpr.ir import Axis, Index, const
from tensorexpr.language.core.scalar import Scalar, Sources, merged
from tensorexpr.language.core.tensor import as_extents
from tensorexpr.language.core.tracing import binding, fresh_index, parameters
from tensorexpr.records import record


@record
class Loops:
    """Indices for a body, the axes they run over (unsettled names) and the tensors that the extents read."""

    indices: tuple[Index, ...]
    axes: tuple[Axis, ...]
    sources: Sources

    def run(self, body: Callable[..., Any]) -> Any:
        """What `body` returns on the indices."""
        with binding(self.axes):
            return body(*map(Scalar, self.indices))


def loops_over(what: str, body: Callable[..., Any], extents: Any) -> Loops:
    """Loops for `body`: one per extent, named by its parameters; an extent that is a function gets the indices before it."""
    items = tuple(extents) if isinstance(extents, tuple | list) else (extents,)
    indices = tuple(fresh_index(stem) for stem in parameters(body, len(items), what))
    axes: list[Axis] = []
    scalars: list[Scalar] = []
    for position, item in enumerate(items):
        if callable(item):
            parameters(item, position, f"{what}, extent {position}")
            with binding(tuple(axes)):
                item = item(*map(Scalar, indices[:position]))
        (extent,) = as_extents((item,), what)
        scalars.append(extent)
        axes.append(Axis(indices[position].name, const(0), extent.expr))
    return Loops(indices, tuple(axes), merged(tuple(scalars)))
