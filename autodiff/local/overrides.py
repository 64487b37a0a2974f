"""Rules in place of derivatives, as the sweeps meet them: by the names of tensors, also in the bodies of scans.

The derivative of a scan stands in the body of another one, over copies of the definitions of the body under names of their own. A rule of
a tensor in there goes along: `Override.inside` is the same rule for the copies. Where a derivative holds copies, it has their rules itself
(`copies`, `units.with_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.ir import Definition, Expr, Index, Scan
from tensorexpr.language.core.renaming import local_names
from tensorexpr.records import field, record, replace
from tensorexpr.traversal import substitute

Rule = Callable[[Any, Workspace, "Override"], Any]
"""Reverse: given the name of the adjoint of the tensor, adds definitions to the workspace and gives pairs of an input and the name of what
it receives (one input may come twice). Forward: given the names of the tangents by input, gives that of the tangent. The last argument
tells what tensors are called."""


@record(eq=False)
class Copy:
    """What a tensor with a rule is computed again as: `names` are those of the tensors beside it, by what they are called where it was
    first, `steps` the steps of the scans around it there, outermost first, as far as they are not around the copy, too."""

    names: Mapping[str, str]
    steps: tuple[Expr, ...]


@record(eq=False)
class Override:
    """A rule for one tensor; nothing flows to what it reads but to `inputs`, all of which come before it.

    In the bodies of scans, `steps` are the indices of their steps, outermost first, `names` what the tensors there are called
    (others keep their names), and `copies` all that the tensor is computed again as, here and in other bodies.
    """

    inputs: tuple[str, ...]
    rule: Rule
    names: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    copies: dict[str, Copy] = field(default_factory=dict)

    def inside(self, tensor: str, names: Mapping[str, str], step: str) -> Override:
        """The rule for the copy of the tensor in a body with this step, where tensors have new names."""
        steps = (*self.steps, step)
        known = self.copied(tensor, names, tuple(map(Index, steps)))
        return replace(self, inputs=tuple(names.get(name, name) for name in self.inputs), names=known, steps=steps)

    def copied(self, tensor: str, names: Mapping[str, str], steps: tuple[Expr, ...]) -> Mapping[str, str]:
        """Notes a copy of the tensor where tensors have new names; gives them by the first."""
        known = dict(names) | {key: names.get(name, name) for key, name in self.names.items()}
        self.copies[names[tensor]] = Copy(known, steps)
        return known

    def moved(self, names: Collection[str], steps: Mapping[str, Expr]) -> None:
        """Notes that the copies with some names stand where steps are other expressions now."""
        for name in self.copies.keys() & names:
            copy = self.copies[name]
            self.copies[name] = replace(copy, steps=tuple(substitute(step, dict(steps)) for step in copy.steps))


def inside(rules: Mapping[str, Override], scan: Scan, copy: Scan) -> dict[str, Override]:
    """The rules of the tensors in the body of a scan, for a copy of it."""
    names = dict(zip(local_names(scan), local_names(copy), strict=True))
    return {names[tensor]: rule.inside(tensor, names, copy.step) for tensor, rule in rules.items() if tensor in names}


def inputs_within(definition: Definition, rules: Mapping[str, Override]) -> Iterable[str]:
    """What the rules of tensors in the body of a scan send to."""
    return [name for local in local_names(definition) if local in rules for name in rules[local].inputs] if rules else ()
