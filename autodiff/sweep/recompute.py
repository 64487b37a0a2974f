"""`te.checkpoint` in a derivative: what derived definitions read of marked tensors is defined again, just before it is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tensorexpr.autodiff.local.overrides import Override
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.ir import Define, Definition, Scan, Scatter, apply
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.records import replace
from tensorexpr.traversal import reads


def with_copies(
    derived: Sequence[Definition],
    forward: Iterable[Definition],
    marked: Collection[str],
    rules: Mapping[str, Override],
    workspace: Workspace,
) -> list[Definition]:
    """The definitions `derived` reading copies of the tensors that are `marked`, each defined before its first reader.

    A copy reads copies of what is marked too, and has the rule of its tensor. Their names and types are added to the workspace.
    """
    table = {name: definition for definition in forward for name, _ in definition.results}
    wanted = {name for tensor in marked if tensor in table for name, _ in table[tensor].results}
    copies: dict[str, str] = {}
    found: list[Definition] = []
    for definition in derived:
        stack = [name for name in reads(definition) if name in wanted and name not in copies]
        while stack:  # without recursion: marked chains are long
            name = stack[-1]
            before = [source for source in reads(table[name]) if source in wanted and source not in copies]
            if before:
                stack += before
                continue
            stack.pop()
            if name not in copies:
                found.append(_copy(table[name], copies, rules, workspace))
        found.append(ProgramRenaming(copies, ()).definition(definition))
    return found


def _copy(definition: Definition, copies: dict[str, str], rules: Mapping[str, Override], workspace: Workspace) -> Definition:
    """A definition under new names, which are added to `copies`, and marked as a computation of its own."""
    copies.update((name, workspace.new_name(name, "_again")) for name, _ in definition.results)
    inner = {name: workspace.new_name(name, "_again") for name in local_names(definition)}
    copy = _marked(ProgramRenaming(copies | inner, ()).definition(definition))
    workspace.types.update(copy.results)
    for tensor in (*(name for name, _ in definition.results), *inner):
        if tensor in rules:
            rules[tensor].copied(tensor, copies | inner, ())
    return copy


def _marked(definition: Definition) -> Definition:
    match definition:
        case Define() | Scatter():
            return replace(definition, value=apply("recompute", definition.value))
        case Scan():
            return replace(definition, body=tuple(map(_marked, definition.body)))
    return definition
