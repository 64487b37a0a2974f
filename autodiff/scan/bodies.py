"""The bodies of scans, written anew: under other names, over what is stored, and what they read and send to. Both modes use this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorexpr.autodiff.local.overrides import Override, inputs_within
from tensorexpr.autodiff.local.workspace import Workspace, plain_axes
from tensorexpr.ir import Access, Define, Definition, Expr, Index, Scan, apply, const
from tensorexpr.language.core.renaming import ProgramRenaming, local_names
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, map_expressions, reads


def renamed_scan(scan: Scan, workspace: Workspace) -> Scan:
    """The scan with fresh names for its states and body (copies of the body will stand beside it)."""
    names = {name: workspace.new_name(name, "_again") for name in local_names(scan)}
    renamed = ProgramRenaming(names, ()).definition(scan)
    assert isinstance(renamed, Scan)
    return renamed


def before(scan: Scan, c: int, step: Expr, indices: tuple[Expr, ...]) -> Expr:
    """State `c` before a step: what the step before left, or the initial state."""
    dtype = scan.states[c][1].dtype
    first = Access(scan.inits[c], indices, dtype)
    if scan.length == const(1):
        return first
    earlier = Access(scan.names[c], (apply("sub", step, const(1)), *indices), dtype)
    return apply("where", apply("gt", step, const(0)), earlier, first)


def recalled(
    scan: Scan, definitions: Sequence[Definition], outputs: Sequence[str], known: Mapping[str, str], rules: Mapping[str, Override]
) -> list[Definition]:
    """What `outputs` need of definitions over the step of a scan, with everything that is stored read instead of computed again.

    Stored are the states, before the step and after it, and the definitions of the body that `known` has for all steps. A scan
    among the definitions starts from a copy, and what the rules of tensors within it send to is a copy.
    """
    scans = [definition for definition in definitions if isinstance(definition, Scan)]
    whole = {name for inner in scans for name in (*_starts(inner), *inputs_within(inner, rules))}
    position = {name: c for c, (name, _) in enumerate(scan.states) if name not in whole}
    after = {d.name for d in scan.body if isinstance(d, Define)} - whole
    stored = {name: result for name, result in zip(scan.nexts, scan.names, strict=True) if name in after} | dict(known)

    def read(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in position:
            return before(scan, position[node.tensor], Index(scan.step), node.indices)
        if isinstance(node, Access) and node.tensor in stored:
            return replace(node, tensor=stored[node.tensor], indices=(Index(scan.step), *node.indices))
        return node

    found: list[Definition] = []
    for c, (name, type_) in enumerate(scan.states):
        if name in whole:
            axes = plain_axes(type_, (scan.step,))
            found.append(Define(name, axes, before(scan, c, Index(scan.step), tuple(Index(axis.index) for axis in axes))))
    found += [map_expressions(definition, lambda e: bottom_up(e, read)) for definition in live(definitions, outputs)]
    return live(found, outputs)


def _starts(scan: Scan) -> list[str]:
    return [*scan.inits, *(name for inner in scan.body if isinstance(inner, Scan) for name in _starts(inner))]


def live(definitions: Sequence[Definition], outputs: Sequence[str]) -> list[Definition]:
    """The definitions that the outputs need."""
    needed = set(outputs)
    kept = []
    for definition in reversed(definitions):
        if any(name in needed for name, _ in definition.results):
            needed.update(reads(definition))
            kept.append(definition)
    return list(reversed(kept))


def sent_to(definition: Definition, rules: Mapping[str, Override]) -> list[str]:
    """What the rules of a definition, and of those within it, send to."""
    return [name for result in results(definition) if result in rules for name in rules[result].inputs] + [
        *inputs_within(definition, rules)
    ]


def results(definition: Definition) -> Iterator[str]:
    return (name for name, _ in definition.results)
