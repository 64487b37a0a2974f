"""Many heads (or tangents) at once: a derivative for one direction, run for every value of leading indices.

A derivative is linear in its head, so what it computes divides into definitions that depend on the head, which get the new
axes in front (`batching`), and those that do not, which are computed once. All directions run in one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tensorexpr.autodiff.local.batching import batch, fresh_axes
from tensorexpr.autodiff.local.workspace import Workspace, plain_axes
from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Index
from tensorexpr.language.core.renaming import ProgramRenaming
from tensorexpr.records import field, record
from tensorexpr.traversal import reads


@record(frozen=False)
class Directions:
    """`heads` maps the stand-in for each head of one direction to the tensor that holds it for all; `axes` count the directions.

    `batched` are the tensors that have these axes, with the place at which they stand.
    """

    workspace: Workspace
    heads: Mapping[str, str]
    axes: tuple[Axis, ...]
    batched: dict[str, int] = field(default_factory=dict)

    @classmethod
    def over(cls, extents: Iterable[tuple[str, Expr]], heads: Mapping[str, str], workspace: Workspace) -> Directions:
        """Directions along axes of the given stems and extents."""
        axes = fresh_axes(extents, workspace.definitions, workspace.reserved)
        return cls(workspace, heads, axes, dict.fromkeys(heads.values(), 0))

    def spread(self, definitions: Iterable[Definition]) -> list[Definition]:
        """The definitions for all directions."""
        rename = ProgramRenaming(self.heads, ())
        found: list[Definition] = []
        for definition in map(rename.definition, definitions):
            if any(name in self.batched for name in reads(definition)):
                found += batch([definition], self.axes, self.batched, self.workspace.types, self._wide_name)
            else:
                found.append(definition)
        return found

    def result(self, name: str) -> tuple[str, list[Definition]]:
        """The tensor that holds `name` for all directions, these in front, and what defines it if none does so far."""
        name = self.heads.get(name, name)
        at = self.batched.get(name)
        if at == 0:
            return name, []
        type_ = self.workspace.types[name]
        own = plain_axes(type_, (*self.workspace.reserved, *(axis.index for axis in self.axes)))
        indices = tuple(Index(axis.index) for axis in own)
        if at is not None:  # behind the steps of a scan
            indices = (*indices[:at], *(Index(axis.index) for axis in self.axes), *indices[at:])
        copy = self._wide_name(name)
        self.batched[copy] = 0
        return copy, [Define(copy, (*self.axes, *own), Access(name, indices, type_.dtype))]

    def _wide_name(self, name: str) -> str:
        return self.workspace.new_name(name, "_wide")
