"""What must hold of a program: compiled code gives what the program means, at every size, in every layout, on any number of threads, and
touches nothing else; derivatives agree with each other, with forward mode and with differences.

A `Failure` says which law broke, in words that stay the same while the program is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

import tensorexpr as te
from tensorexpr.codegen.auto.machine import ZEN_4
from tensorexpr.codegen.auto.search import joining, passes, searched
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.compiled import versions
from tensorexpr.codegen.compiled.arguments import address, signature_of, size_sources
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.executable import executable_of_schedule
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.llvm import set_threads
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import H200, host_target
from tensorexpr.errors import ArgumentError, DefinitionError, DifferentiationError, OutOfBoundsError
from tensorexpr.ir import Program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program as CudaProgram
from tests.codegen.handle import words
from tests.fuzz.plan import Plan
from tests.random_programs.bounds import Near, agrees
from tests.random_programs.layouts import LAYOUTS, Target, guarded_inputs, guarded_memory, laid_out
from tests.random_programs.reference import TooMuch, evaluate
from tests.random_programs.sample import Traced, arrays_for, sizes_of
from tests.random_programs.schedules import decided, shuffled, wandered

_LITERALS = {"float64": 1e-12, "float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""What a few roundings of literals change, relative to what is summed."""
SMALL = (
    (joining, "LEAST_APART", 2),
    (joining, "LEAST_POINTS", 1),
    (joining, "FEWER", 0),
    (joining, "MUCH", 0),
    (joining, "LEAST_SHARED", 1),
    (passes, "LEAST_BLOCKS", 2),
)
"""From which size on the search does what only large programs are worth: as small as it can be."""
_WORKSPACE = 1 << 30
"""Bytes; programs that ask for more are not run."""


class Failure(Exception):
    """A law that does not hold: `kind` names it, the message tells what was expected and what came."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message

    def __reduce__(self) -> tuple[Any, ...]:
        return (Failure, (self.kind, self.message))


class Skipped(Exception):
    """A program that cannot be asked: too many points for the reference, or no derivative."""


Arrays = Mapping[str, np.ndarray]
Case = tuple[dict[str, int], Arrays, dict[str, Near] | None]
"""Sizes, inputs, and what the outputs are (None where an index leaves its tensor)."""


def check(plan: Plan, notes: set[str] | None = None) -> None:
    """Runs a plan; notes what was reached. Raises `Failure`, or `Skipped`."""
    notes = set() if notes is None else notes
    traced = traced_of(plan)
    program = traced.program
    try:
        size_sources(signature_of(program, False))
    except DefinitionError as error:
        raise Skipped(str(error)) from error
    rng = random.Random(f"check {plan.sample.seed}")
    sizes = sizes_of(plan.sample, program, rng, plan.runs)
    if plan.only is not None:
        sizes = sizes[plan.only : plan.only + 1]
    cases = cases_of(program, traced, sizes, plan)
    if plan.schedules:
        for name in plan.schedules:
            check_schedule(program, name, cases, plan, notes)
    if plan.derivatives:
        check_derivatives(traced, sizes, plan, notes)


def traced_of(plan: Plan) -> Traced:
    try:
        return plan.sample.traced()
    except te.InternalError as error:
        raise Failure("language: InternalError", str(error)) from error
    except te.TensorExprError as error:
        raise Skipped(str(error)) from error


def cases_of(program: Program, traced: Traced, sizes: Sequence[dict[str, int]], plan: Plan) -> list[Case]:
    """Inputs at sizes with what the outputs are there; sizes that are none of the program's are left out."""
    cases: list[Case] = []
    for one in sizes:
        arrays = arrays_for(program, traced.below, one, plan.sample.seed, plan.exact, plan.wild)
        try:
            found: dict[str, Near] | None = evaluate(program, arrays, one)
        except OutOfBoundsError:
            found = None
        except ArgumentError:
            continue
        except TooMuch as error:
            raise Skipped(str(error)) from error
        cases.append((one, arrays, found))
    return cases


# ------------------------------------------------------------------------------------------------------- compiled code


def built(kind: str, program: Program, schedule_of: Any = None) -> CompiledFunction:
    """A compiled program (by a schedule). Raises `Failure` for every error."""
    try:
        if schedule_of is None:
            return build_program(program)
        made: Schedule | Planned = schedule_of()
        return CompiledFunction(executable_of_schedule(made), signature_of(program, False))
    except Exception as error:
        raise Failure(f"{kind}: {type(error).__name__}", f"{type(error).__name__}: {error}") from error


def by_words(program: Program, rng: random.Random) -> Schedule:
    """The plain schedule after random words."""
    s = Schedule.plain(program, host_target())
    words.shuffled(s, rng, 10, lambda s: None)
    return s


def by_search(program: Program, rng: random.Random) -> Schedule:
    """The schedule of the search over nests for a simplified program; for two in three on a machine so small that what is done to large
    programs is done to this one."""
    if rng.randrange(3) == 0:
        return Schedule.of_candidate(program, host_target(), searched(program, ZEN_4))
    with ExitStack() as small:
        for module, name, least in SMALL:
            small.enter_context(patch.object(module, name, least))
        return Schedule.of_candidate(program, host_target(), searched(program, replace(ZEN_4, caches=(128, 256, 512))))


def check_schedule(program: Program, name: str, cases: Sequence[Case], plan: Plan, notes: set[str]) -> None:
    """One way to compile the program, at all sizes."""
    if name == "versions" and not program.sizes:
        return
    rng = random.Random(f"{name} {plan.sample.seed}")
    plain = simplify(program, inline=False) if name in ("plain", "random") else None
    notes.add(f"schedule {name}")
    match name:
        case "default" | "versions":
            function = built(name, program)
        case "plain":
            function = built(name, program, lambda: Schedule.plain(plain, host_target()))
        case "random":
            function = built(name, program, lambda: by_words(plain, rng))
        case "tuned":
            simple = simplify(program)
            choices = wandered(simple, rng, host_target(), 3)
            function = built(name, program, lambda: decided(simple, choices, host_target())[0])
        case "searched":
            function = built(name, program, lambda: by_search(simplify(program), rng))
        case _:
            check_cuda(program, cases, plan, notes)
            return
    with patch.object(versions, "WORTH", 0 if name == "versions" else versions.WORTH):
        for sizes, arrays, expected in cases:
            run_guarded(name, function, program, sizes, arrays, expected, plan)
        if plan.threads and cases:
            sizes, arrays, expected = cases[rng.randrange(len(cases))]
            notes.add("two threads")
            run_laid_out(name, function, program, sizes, arrays, expected, rng, notes)


def compare(kind: str, program: Program, found: Mapping[str, np.ndarray], expected: Mapping[str, Near], sizes: Mapping[str, int]) -> None:
    """Raises `Failure` where a result is further from what it is than rounding explains."""
    for name in program.outputs:
        dtype = program.types[name].dtype
        same = agrees(found[name], expected[name], dtype)
        if not np.all(same):
            at = tuple(int(k) for k in np.argwhere(~same)[0])
            near = expected[name]
            error = 0.0 if near.error is None else np.broadcast_to(near.error, np.shape(near.value))[at]
            raise Failure(
                f"{kind}: values",
                f"{name}{list(at)}: expected {near.value[at]!r} within {float(error):.3g}, got {found[name][at]!r} "
                f"({int((~same).sum())} of {same.size} elements differ{f' at {dict(sizes)}' if sizes else ''})",
            )


def run_guarded(
    kind: str,
    function: CompiledFunction,
    program: Program,
    sizes: Mapping[str, int],
    arrays: Arrays,
    expected: dict[str, Near] | None,
    plan: Plan,
) -> None:
    """A run on memory that ends at protected pages, workspace included, on one thread."""
    rng = random.Random(f"{plan.sample.seed} {sizes}")
    given = guarded_inputs([np.ascontiguousarray(arrays[i.name]).reshape(arrays[i.name].shape) for i in program.inputs], rng)
    try:
        layout = function.layout(tuple(a.shape for a in given))
    except ArgumentError as error:
        if expected is None:
            return
        raise Failure(f"{kind}: ArgumentError", str(error)) from error
    if layout.workspace > _WORKSPACE:
        raise Skipped("a large workspace")
    fill, at_end = rng.choice((0xFF, 0x55)), rng.random() < 0.7
    results = [guarded_memory(shape, dtype, at_end, fill) for shape, dtype in layout.outputs]
    size = layout.workspace if layout.workspace % 64 == 0 and at_end else layout.workspace + 64
    block = guarded_memory((size,), np.dtype(np.uint8), at_end, fill)
    set_threads(1)
    try:
        function.enter([address(a) for a in given], [address(a) for a in results], layout, address(block))
    except OutOfBoundsError as error:
        if expected is None:
            return
        raise Failure(f"{kind}: OutOfBoundsError", f"expected no error, got {error}") from error
    if expected is not None:
        compare(kind, program, dict(zip(program.outputs, results, strict=True)), expected, sizes)


def run_laid_out(
    kind: str,
    function: CompiledFunction,
    program: Program,
    sizes: Mapping[str, int],
    arrays: Arrays,
    expected: dict[str, Near] | None,
    rng: random.Random,
    notes: set[str],
) -> None:
    """A call by the user's way in, on two threads, with odd layouts of inputs and results; the bits are those of one thread."""
    layouts = []
    for item in program.inputs:
        array = arrays[item.name]
        level = array.ndim > 0 and array.shape[0] > 1 and np.array_equal(array, np.broadcast_to(array[:1], array.shape))
        layouts.append("broadcast" if level else rng.choice(LAYOUTS[:-1]))
    given = [laid_out(arrays[i.name], layout) for i, layout in zip(program.inputs, layouts, strict=True)]
    notes.update(f"layout {layout}" for layout in layouts)
    set_threads(2)
    try:
        shapes = function.layout(tuple(a.shape for a in given)).outputs
        plain = function(*given)
        targets = [Target(shape, dtype, rng.choice(LAYOUTS[:-1])) for shape, dtype in shapes]
        results = [target.array for target in targets]
        function(*given, out=tuple(results))
        notes.add("layout of out")
    except (OutOfBoundsError, ArgumentError) as error:
        if expected is None:
            return
        raise Failure(f"{kind}: {type(error).__name__}", f"expected no error, got {error}") from error
    except Exception as error:
        raise Failure(f"{kind}: {type(error).__name__}", f"{type(error).__name__}: {error}") from error
    finally:
        set_threads(1)
    if expected is None:
        return
    named = dict(zip(program.outputs, results, strict=True))
    compare(f"{kind}, laid out", program, named, expected, sizes)
    once = function(*given)
    for name, one, other, again in zip(program.outputs, results, once, plain, strict=True):
        if one.tobytes() != other.tobytes() or again.tobytes() != other.tobytes():
            raise Failure(f"{kind}: bits depend on threads", f"{name}: expected the same bits on one thread and two, got others")
    if any(target.strayed() for target in targets):
        raise Failure(f"{kind}: stray write", "expected nothing around `out` to be written, got other bytes there")


def check_cuda(program: Program, cases: Sequence[Case], plan: Plan, notes: set[str]) -> None:
    """The text for GPUs, compiled for this CPU, all accesses checked."""
    rng = random.Random(f"cuda {plan.sample.seed}")
    try:
        simple = simplify(program)
        made = autoschedule(simple, H200) if rng.random() < 0.7 else shuffled(schedule(simple, H200), rng)
        nest = verify_nest(lowered(made))
        run = CudaProgram(nest)
        run.kernels  # noqa: B018 -- compiled now
    except Exception as error:
        raise Failure(f"cuda: {type(error).__name__}", f"{type(error).__name__}: {error}") from error
    notes.add("cuda text on the CPU")
    for sizes, arrays, expected in cases[:2]:
        try:
            found = run(arrays, sizes, rng.randrange(5))
        except IndexError as error:
            if expected is None:
                continue
            raise Failure("cuda: IndexError", f"expected no error, got {error}") from error
        except Exception as error:
            raise Failure(f"cuda: {type(error).__name__}", f"{type(error).__name__}: {error}") from error
        if expected is not None:
            named = {name: found[parameter] for name, parameter in zip(program.outputs, nest.writes, strict=True)}
            compare("cuda", program, named, expected, sizes)


# --------------------------------------------------------------------------------------------------------- derivatives


def check_derivatives(traced: Traced, sizes: Sequence[dict[str, int]], plan: Plan, notes: set[str]) -> None:
    """The gradient by all floating inputs, and by its inputs again."""
    wrt = [t for t in traced.inputs if t.dtype.is_float]
    outputs = [t for t in traced.outputs if t.dtype.is_float]
    if not wrt or not outputs:
        raise Skipped("nothing to differentiate")
    found = check_order(traced, outputs, wrt, list(traced.inputs), sizes[:3], plan, notes, 1)
    if "second" in plan.derivatives and found is not None:
        gradient, inputs = found
        again = [t for t in inputs if t.dtype.is_float]
        notes.add("second order")
        check_order(traced, list(gradient), again, inputs, sizes[:2], plan, notes, 2)


def check_order(
    traced: Traced,
    outputs: list[te.Tensor],
    wrt: list[te.Tensor],
    inputs: list[te.Tensor],
    sizes: Sequence[dict[str, int]],
    plan: Plan,
    notes: set[str],
    order: int,
) -> tuple[Sequence[te.Tensor], list[te.Tensor]] | None:
    """One order of derivatives: compiled code, both forms, forward mode, differences. Gives the gradient and its inputs."""
    kind = "gradient" if order == 1 else "second gradient"
    heads = [te.placeholder(t.shape, t.dtype, name=f"H{order}_{k}") for k, t in enumerate(outputs)]
    tangents = [te.placeholder(t.shape, t.dtype, name=f"V{order}_{k}") for k, t in enumerate(wrt)]
    everything = [*inputs, *heads]
    try:
        gradient = te.gradient(outputs, wrt, heads)
        pushed = te.jvp(outputs, wrt, tangents)
        pushed = [pushed] if isinstance(pushed, te.Tensor) else list(pushed)
        forced = None if plan.lowering is None else te.gradient(outputs, wrt, heads, lowering=plan.lowering)
        program = te.program_of(list(gradient), everything)
        forward = te.program_of(outputs, [*inputs, *heads, *tangents])
        tangent = te.program_of(pushed, [*inputs, *heads, *tangents])
        other = None if forced is None else te.program_of(list(forced), everything)
    except DifferentiationError as error:
        raise Skipped(str(error)) from error
    except Exception as error:
        raise Failure(f"{kind}: {type(error).__name__}", f"{type(error).__name__}: {error}") from error
    notes.add(kind)
    function = built(kind, program)
    # Literals are numbers of their dtype: where they are multiplied, or a function of one is, in a derived formula, they are rounded.
    exactness = max((_LITERALS[t.dtype.name] for t in program.types.values() if t.dtype.is_float), default=0.0)
    for one in sizes:
        arrays = arrays_for(tangent, traced.below, one, plan.sample.seed, plan.exact)
        names = [t.name for t in program.inputs]
        given = {n: arrays[n] for n in names}
        try:
            ideal = evaluate(forward, arrays, one, ideal=True)
            expected = evaluate(program, given, one)
            run_guarded(kind, function, program, one, given, expected, plan)
            exact = evaluate(program, given, one, ideal=True)
            if other is not None:
                notes.add("forced lowering")
                compare_forms(
                    kind, exact, evaluate(other, given, one, ideal=True), list(zip(program.outputs, other.outputs, strict=True)), exactness
                )
                run_guarded(f"forced {kind}", built(f"forced {kind}", other), other, one, given, evaluate(other, given, one), plan)
            slope = evaluate(tangent, arrays, one, ideal=True)
            check_product(kind, arrays, exact, program.outputs, slope, tangent.outputs, order, exactness)
            if order == 1 and not plan.exact:
                check_differences(kind, forward, arrays, one, ideal, slope, tangent.outputs, [t.name for t in wrt], notes)
        except OutOfBoundsError:
            continue
        except ArgumentError:
            continue
        except TooMuch as error:
            raise Skipped(str(error)) from error
    return gradient, everything


def compare_forms(
    kind: str, one: Mapping[str, Near], other: Mapping[str, Near], pairs: Sequence[tuple[str, str]], exactness: float
) -> None:
    """The gradient as a gather and as the form that was forced, in exact arithmetic."""
    for name, partner in pairs:
        a, b = one[name], other[partner]
        error = (0 if a.error is None else a.error) + (0 if b.error is None else b.error)
        with np.errstate(all="ignore"):
            gap = np.abs(a.value - b.value)
        both = np.isfinite(a.value) & np.isfinite(b.value)
        scale = np.max(np.abs(np.where(both, a.value, 0)), initial=1.0)
        if np.any(both & (gap > 4 * error + exactness * scale)):
            raise Failure(
                f"{kind}: forms differ", f"{name}: expected both forms to agree, got a difference of {np.max(np.where(both, gap, 0)):.3g}"
            )


def check_product(
    kind: str,
    arrays: Arrays,
    gradient: Mapping[str, Near],
    names: Sequence[str],
    slope: Mapping[str, Near],
    tangents: Sequence[str],
    order: int,
    exactness: float,
) -> None:
    """The inner product of head and tangent is that of gradient and direction."""
    left, left_error, left_size = _inner(slope, tangents, arrays, f"H{order}_")
    right, right_error, right_size = _inner(gradient, names, arrays, f"V{order}_")
    error = 4 * (left_error + right_error) + exactness * (left_size + right_size)
    if np.isfinite(left) and np.isfinite(right) and np.isfinite(error) and abs(left - right) > error:
        raise Failure(
            f"{kind}: forward and reverse differ",
            f"expected one inner product, got {left!r} forward and {right!r} in reverse, within {error:.3g}",
        )


def _inner(results: Mapping[str, Near], names: Sequence[str], arrays: Arrays, prefix: str) -> tuple[float, float, float]:
    value = error = size = 0.0
    with np.errstate(all="ignore"):
        for k, name in enumerate(names):
            near, partner = results[name], arrays[f"{prefix}{k}"].astype(np.float64)
            terms = near.value * partner
            value += float(terms.sum())
            size += float(np.abs(terms).sum()) * (1 + terms.size * 2.0**-40)
            if near.error is not None:
                error += float((near.error * np.abs(partner)).sum())
    return value, error, size


def slope_of(here: Near, near: tuple[Near, Near], far: tuple[Near, Near], step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The slopes by values one step to both sides and two, where these tell of one slope, and how far they may be off.

    A kink of d within a step is told by the even parts in the nearer half (by d / 4 at least), by the odd parts in the other (by d / 8),
    and moves the slope by d / 2 at most; one behind it moves the slope by a third of what the odd parts tell. So a kink that is not told
    is within the tolerance.
    """
    with np.errstate(all="ignore"):
        small, wide = ((a.value - b.value) / (2 * length) for (a, b), length in ((near, step), (far, 2 * step)))
        numeric = (4 * small - wide) / 3
        scale = 1 + np.abs(numeric) + np.max(np.abs(here.value), initial=0.0)
        inner, outer = (a.value + b.value - 2 * here.value for a, b in (near, far))
        smooth = (np.abs(small - wide) < 1e-6 * scale) & (np.abs(outer - 4 * inner) / (2 * step) < 2e-6 * scale)
        roundings = sum(weight * (0 if x.error is None else x.error) for pair, weight in ((near, 8), (far, 1)) for x in pair)
    return numeric, smooth, 1e-5 * scale + roundings / (12 * step)


def check_differences(
    kind: str,
    forward: Program,
    arrays: Arrays,
    sizes: Mapping[str, int],
    here: Mapping[str, Near],
    slope: Mapping[str, Near],
    tangents: Sequence[str],
    wrt: Sequence[str],
    notes: set[str],
) -> None:
    """Differences along the direction, where there is no kink in between (`slope_of`)."""

    def at(distance: float) -> dict[str, Near]:
        moved = dict(arrays)
        for k, name in enumerate(wrt):
            moved[name] = arrays[name].astype(np.float64) + distance * arrays[f"V1_{k}"].astype(np.float64)
        return evaluate(forward, moved, sizes, ideal=True)

    step = 1e-4
    try:
        near, far = (at(step), at(-step)), (at(2 * step), at(-2 * step))
    except (OutOfBoundsError, TooMuch):
        return
    for name, result in zip(tangents, forward.outputs, strict=True):
        numeric, smooth, tolerance = slope_of(here[result], (near[0][result], near[1][result]), (far[0][result], far[1][result]), step)
        found = slope[name].value
        error = 0 if slope[name].error is None else slope[name].error
        with np.errstate(all="ignore"):
            wrong = smooth & np.isfinite(found) & (np.abs(found - numeric) > tolerance + 1e-5 * np.abs(found) + 4 * error)
        notes.update(word for word, some in (("differences", smooth), ("differences at a kink", ~smooth)) if np.any(some))
        if np.any(wrong):
            at_ = tuple(int(k) for k in np.argwhere(wrong)[0])
            raise Failure(f"{kind}: differences", f"{result}{list(at_)}: expected the slope {numeric[at_]!r}, got {found[at_]!r}")
