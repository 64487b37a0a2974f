"""Rules in place of derivatives, as the sweeps meet them: by the names of tensors, also in the bodies of scans.

The derivative of a scan stands in the body of another one, over copies of the definitions of the body under names of their own. A rule of
a tensor in there goes along: `Override.inside` is the same rule for the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorexpr.autodiff.workspace import Workspace
from tensorexpr.ir import Definition, Scan
from tensorexpr.language.renaming import local_names
from tensorexpr.records import field, record, replace

Rule = Callable[[Any, Workspace, "Override"], Any]
"""Reverse: given the name of the adjoint of the tensor, adds definitions to the workspace and gives for each input the name of what it
receives. Forward: given the names of the tangents by input, gives that of the tangent. The last argument tells what tensors are called."""


@record(eq=False)
class Override:
    """A rule for one tensor; nothing flows to what it reads but to `inputs`, all of which come before it.

    In the bodies of scans, `steps` are the indices of their steps, outermost first, `names` what the tensors there are called
    (others keep their names), and `copies` all names that the tensor has got, here and in other bodies.
    """

    inputs: tuple[str, ...]
    rule: Rule
    names: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    copies: dict[str, None] = field(default_factory=dict)

    def inside(self, tensor: str, names: Mapping[str, str], step: str) -> Override:
        """The rule for the copy of the tensor in a body with this step, where tensors have new names."""
        known = dict(names) | {key: names.get(name, name) for key, name in self.names.items()}
        self.copies[names[tensor]] = None
        return replace(self, inputs=tuple(names.get(name, name) for name in self.inputs), names=known, steps=(*self.steps, step))


def inside(rules: Mapping[str, Override], scan: Scan, copy: Scan) -> dict[str, Override]:
    """The rules of the tensors in the body of a scan, for a copy of it."""
    names = dict(zip(local_names(scan), local_names(copy), strict=True))
    return {names[tensor]: rule.inside(tensor, names, copy.step) for tensor, rule in rules.items() if tensor in names}


def inputs_within(definition: Definition, rules: Mapping[str, Override]) -> Iterable[str]:
    """What the rules of tensors in the body of a scan send to."""
    return [name for local in local_names(definition) if local in rules for name in rules[local].inputs] if rules else ()
