"""From definitions to a compiled function: `te.build`, and the schedules that lead to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorexpr.codegen.auto.gpus import GpuFacts, shipped
from tensorexpr.codegen.compiled.arguments import signature_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.compiled.versions import Versions
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.executable import executable_of, executable_of_schedule
from tensorexpr.codegen.folding import folded
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.stages import default_schedule
from tensorexpr.codegen.target import H200, Gpu, Target, host_target
from tensorexpr.errors import ArgumentError, DefinitionError, TargetError, user_location
from tensorexpr.hints import checked, described, suggestion
from tensorexpr.ir import Program
from tensorexpr.language import Tensor, names_of, program_of
from tensorexpr.records import replace
from tensorexpr.simplify import simplify

TARGETS = ("cpu", "cuda")
PRECISIONS = ("float32", "tf32")


@checked(
    instead={
        "threads": "TENSOREXPR_NUM_THREADS=1 in the environment says how many threads functions run on",
        "dtype": "te.cast in a definition chooses a dtype",
        "dynamic": 'open sizes are made by te.dim("n") in the shapes of placeholders',
        "name": "the tensors have names: te.compute(..., name=...)",
        "schedule": "a schedule has its tensors: te.build(s), with s = te.schedule(C)",
    }
)
def build(
    outputs: Tensor | Sequence[Tensor] | Schedule | Planned,
    inputs: Sequence[Tensor] | None = None,
    target: str = "cpu",
    *,
    precision: str = "float32",
) -> CompiledFunction:
    """Compiles tensors as a function of the placeholders `inputs`, in this order; or a schedule of them.

    One tensor (or a schedule of one) gives a function that returns an array, a list or tuple of tensors one that returns a
    tuple. Without `inputs` the arguments are the placeholders in order
    of appearance. What depends on constants alone is computed now (not where a schedule is given: that says what is computed).

    `precision="tf32"` lets a GPU round the factors of sums of products of float32 to ten bits of fraction, for its tensor cores;
    sums stay float32, and so does everything else. On the CPU it changes nothing. Without it, float32 is float32.

    Raises `TargetError` for a target that is unknown or not there and a schedule for another one (or precision), `ArgumentError` for a
    precision that is none, `DefinitionError` for what is not a tensor and for placeholders that the outputs need and `inputs` lacks
    (a computed tensor among `inputs` is taken as given).

    >>> A = te.placeholder((2, 3), name="A")
    >>> f = te.build(te.compute((3,), lambda j: te.sum(lambda i: A[i, j], 2), name="column"), [A])
    >>> f(np.ones((2, 3), np.float32))
    array([2., 2., 2.], dtype=float32)
    """
    check_target(target)
    check_precision(precision)
    if isinstance(outputs, Schedule | Planned):
        if isinstance(outputs.target, Gpu):
            if precision not in ("float32", outputs.target.precision):
                raise TargetError(
                    f"te.build: expected a schedule for the precision {precision!r}, got one for {outputs.target.precision!r}",
                    location=user_location(),
                    hint=f"te.autoschedule(..., precision={precision!r})",
                )
        elif target != "cpu":
            raise TargetError(
                f"te.build: expected a schedule for {target!r}, got one for 'cpu'",
                location=user_location(),
                hint=f"te.schedule(..., target={target!r})",
            )
        return build_schedule(outputs, None if inputs is None else _order(outputs.program, inputs))
    program = program_from(outputs, inputs, "te.build")
    return build_program(program, single=isinstance(outputs, Tensor), target=target, precision=precision)


def program_from(outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] | None, what: str) -> Program:
    """The program of tensors as a function of placeholders, as written. Raises as `build` does, in the name of `what`."""
    tensors = [outputs] if isinstance(outputs, Tensor) else _tensors(outputs, f"{what}: expected a te tensor or a list of them")
    if not tensors:
        hint = "what te.compute, te.scatter and te.scan give"
        raise DefinitionError(f"{what}: expected at least one tensor to compute, got none", location=user_location(), hint=hint)
    if inputs is None:
        return program_of(tensors)
    given = _tensors(inputs, f"{what}: expected a list of te tensors as inputs")
    for position, tensor in enumerate(given):
        if any(tensor is other for other in given[:position]):
            raise DefinitionError(
                f"{what}: expected every input once, got {tensor.name} twice",
                term=tensor,
                location=user_location(),
                hint="a function takes an array once, however often it is read",
            )
    return program_of(tensors, given)


def _tensors(values: object, expected: str) -> list[Tensor]:
    if not isinstance(values, Sequence):
        hint = "of an op, op.compile(*specs) is the function; a plain function is made an op by @te.op" if callable(values) else None
        hint = f"a list of one: [{values.name}]" if isinstance(values, Tensor) else hint
        hint = "a list: arrays are given when the function is called, and results come as a tuple" if isinstance(values, dict) else hint
        hint = _ARRAYS if hasattr(values, "__array__") and not isinstance(values, Tensor) else hint
        hint = "an op that is called with placeholders gives tensors; op.trace shows their program" if isinstance(values, Program) else hint
        raise DefinitionError(f"{expected}, got {_kind(values)}", location=user_location(), hint=hint)
    for value in values:
        if not isinstance(value, Tensor):
            hint = _ARRAYS if hasattr(value, "__array__") else None
            hint = "the tensors themselves, not their names" if isinstance(value, str) else hint
            raise DefinitionError(f"{expected}, got {_kind(value)} in it", location=user_location(), hint=hint)
    return list(values)


_ARRAYS = (
    "tensors are defined, te.compute(...) of placeholders, and what is built of them is called with arrays; an op takes arrays as they are"
)


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"the tensor {value.name}"
    text = described(value)
    return text if value is None or text != repr(value) else f"the {type(value).__name__} {text}"


def _order(program: Program, inputs: Sequence[Tensor]) -> tuple[int, ...]:
    """For every input of the program its position among `inputs`, which are told by their names."""
    given = [tensor.name if isinstance(tensor, Tensor) else repr(tensor) for tensor in inputs]
    wanted = [item.name for item in program.inputs]
    if sorted(given) != sorted(wanted):
        raise DefinitionError(
            f"te.build: expected the inputs of the schedule ({', '.join(wanted) or 'none'}), got {', '.join(given) or 'none'}",
            location=user_location(),
            hint="placeholders are told by their names: te.placeholder(..., name=...)",
        )
    return tuple(given.index(name) for name in wanted)


@checked()
def schedule(
    outputs: Tensor | Sequence[Tensor], target: str = "cpu", inputs: Sequence[Tensor] | None = None, *, precision: str = "float32"
) -> Schedule:
    """The plain schedule of tensors: every definition by itself, loops in the order in which it is written.

    `print(s)` is the loop nest. Nothing is inlined, so every tensor that was named has a stage. `precision` is that of `build`,
    which is what a GPU may do with the loops. Raises as `build` does.

    >>> A = te.placeholder((2, 3), name="A")
    >>> s = te.schedule(te.compute((2, 3), lambda i, j: A[i, j] * 2.0, name="B"))
    >>> s["B"].vectorize("j")
    >>> print(s.as_python().strip())
    s['B'].vectorize('j')
    """
    check_target(target)
    check_precision(precision)
    written = program_from(outputs, inputs, "te.schedule")
    program = simplify(written, inline=False)
    machine, names, single = machine_of(target, precision), _names(outputs, inputs), isinstance(outputs, Tensor)
    return Schedule.plain(program, machine, names=names, single=single, written=written)


@checked()
def autoschedule(
    outputs: Tensor | Sequence[Tensor], target: str = "cpu", inputs: Sequence[Tensor] | None = None, *, precision: str = "float32"
) -> Schedule:
    """The schedule that `build` uses by default: from an analysis of the program alone, or as tuned where there is a record of it
    (`te.tune`); `origin` says which. `precision` is that of `build`. Raises as `build` does.

    >>> A = te.placeholder((2, 3), name="A")
    >>> s = te.autoschedule(te.compute((2, 3), lambda i, j: te.exp(A[i, j]), name="B"))
    >>> type(s).__name__, s.origin
    ('Schedule', 'the analytic model')
    """
    check_target(target)
    check_precision(precision)
    written = fold_constants(program_from(outputs, inputs, "te.autoschedule"))
    found = default_schedule(written, machine_of(target, precision))
    names, single = _names(outputs, inputs), isinstance(outputs, Tensor)
    if isinstance(found, Schedule):
        return Schedule(found.form, found.target, names, single, found.origin, written)
    return Schedule.of_planned(found, names=names, single=single, written=written)


def _names(outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] | None) -> dict[str, str]:
    return names_of([outputs] if isinstance(outputs, Tensor) else outputs, inputs)


def build_schedule(scheduled: Schedule | Planned, order: tuple[int, ...] | None = None) -> CompiledFunction:
    """Compiles a schedule; `order` says where each input of its program stands among the arguments."""
    written = scheduled.written if isinstance(scheduled, Schedule) else scheduled.program  # tensors may have other shapes in code
    signature = signature_of(written, scheduled.single)
    if isinstance(scheduled.target, Gpu):
        made: CompiledFunction = GpuFunction(GpuCode.of_schedule(scheduled), current_device(), signature, order)
    else:
        made = CompiledFunction(executable_of_schedule(scheduled), signature, order)
    kept = scheduled.copy()
    made.origin = lambda _: (build_schedule, (kept, order))
    return made


def build_program(
    program: Program, single: bool = False, target: str = "cpu", precision: str = "float32", searching: bool = True
) -> CompiledFunction:
    """Compiles a program as a function of its inputs; it returns a tuple unless it is to return its `single` output bare. Without
    `searching` it has the nest of the planners, as pieces of long programs have."""
    check_target(target)
    program = fold_constants(program)
    signature = signature_of(program, single)
    if target == "cuda":
        made: CompiledFunction = GpuFunction(GpuCode.of_program(program, machine_of(target, precision)), current_device(), signature)
    else:
        made = CompiledFunction(executable_of(program, searching), signature)
        if program.sizes:
            made.versions = Versions(
                signature, lambda: program, lambda fixed: build_program(fixed, single, searching=searching), made.statements
            )
    made.origin = lambda _: (build_program, (program, single, target, precision, searching))
    return made


def fold_constants(program: Program) -> Program:
    """The program with what depends on constants alone computed, as code of this CPU computes it."""

    def run(part: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        results: Sequence[np.ndarray] = build_program(part)(*arrays)
        return results

    return folded(program, run)


def machine_of(target: str, precision: str = "float32", arch: str | None = None) -> Target:
    """What schedules for a target are made for: this CPU, or a GPU whether there is one or not: of an architecture as shipped facts have
    it, by default the current device with its multiprocessors, caches and shared memory. CPUs compute in full precision."""
    if target != "cuda":
        return host_target()
    facts = _current_facts() if arch is None else shipped(arch)
    if facts is None:
        return replace(H200, precision=precision)
    machine = replace(H200, cores=facts.cores, l2_bytes=facts.l2_bytes, l3_bytes=facts.l2_bytes, precision=precision)
    return machine.running(facts.arch if arch is None else arch)


def _current_facts() -> GpuFacts | None:
    try:
        device = current_device()
    except TargetError:
        return None
    return None if device.arch is None or device.facts is None else replace(device.facts, arch=device.arch)


def check_target(target: object) -> None:
    """Raises `TargetError` for what is no target."""
    if not isinstance(target, str) or target not in TARGETS:
        raise TargetError(
            f"expected a target, one of {', '.join(TARGETS)}, got {target!r}",
            location=user_location(),
            hint=suggestion(target, TARGETS, "the inputs of te.build are one list" if isinstance(target, Tensor) else "cpu is the default"),
        )


def check_precision(precision: object) -> None:
    """Raises `ArgumentError` for what is no precision of products."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ArgumentError(
            f"expected a precision, one of {', '.join(PRECISIONS)}, got {precision!r}",
            location=user_location(),
            hint=suggestion(precision, PRECISIONS),
        )
