"""`profile FILE:OP`: where the time of an operation of the user's file goes, or of its gradient, on made-up values."""

from __future__ import annotations

from typing import Any

from tensorexpr.cli.show import find_operation, gradient_of, outputs_and_inputs
from tensorexpr.cli.specs import parse_size
from tensorexpr.codegen.compile import build
from tensorexpr.codegen.profiling import Profile
from tensorexpr.codegen.tuning.timing import made_up
from tensorexpr.errors import DefinitionError
from tensorexpr.language import program_of


def profile_reference(
    reference: str, specs: list[str], static: list[str], sizes: list[str], *, with_gradient: bool, seconds: float, seed: int
) -> Profile:
    """The profile of the operation that `FILE:OP` refers to. Raises `DefinitionError` where shapes, or numbers for open extents,
    are missing.
    """
    name, found = find_operation(reference)
    outputs, inputs, note = outputs_and_inputs(found, specs, static)
    if note is not None:
        hint = "python -m tensorexpr profile FILE:OP 'f32[1024, 1024]' ..."
        raise DefinitionError(f"{name}: expected a spec like f32[8, 3] for each argument, got none", hint=hint)
    if with_gradient:
        derived, heads = gradient_of(reference, outputs, inputs)
        outputs, inputs = list(derived), [*inputs, *heads]
    compiled, numbers = build(outputs, inputs), dict(parse_size(text) for text in sizes)
    if sorted(numbers) != sorted(compiled.signature.sizes):
        wanted = ", ".join(compiled.signature.sizes) or "none"
        hint = " ".join(f"--size {size}=1000" for size in compiled.signature.sizes) or "all extents are numbers: leave --size out"
        raise DefinitionError(f"{name}: expected numbers for the sizes {wanted}, got {', '.join(numbers) or 'none'}", hint=hint)
    return compiled.profile(*made_up(program_of(outputs, inputs), numbers, seed, -1.75), seconds=seconds)


def as_data(profile: Profile) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "name": profile.name,
        "nanoseconds": profile.nanoseconds,
        "threads": profile.threads,
        "machine": profile.machine,
        "kernels": [
            {
                "name": row.name,
                "nanoseconds": row.nanoseconds,
                "operations": row.operations,
                "bytes": row.bytes,
                "roofline": row.roofline,
                "bound by": row.bound,
                "assumed": row.assumed,
            }
            for row in profile.kernels
        ],
        "definitions": [{"name": share.what, "nanoseconds": share.nanoseconds} for share in profile.definitions],
        "lines": [
            {
                "file": share.location and share.location.file,
                "line": share.location and share.location.line,
                "nanoseconds": share.nanoseconds,
            }
            for share in profile.lines
        ],
    }
