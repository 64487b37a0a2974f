"""How much speed depends on how an operation is written: time per unit of work of a variant over that of its base.

Rows are workloads of the benchmark's table and samples of the library (in a checkout), each in the variants of
`tensorexpr.benchmarks.samples.variants`, and operations that are written in several ways (`samples.written`), forward and gradient. Base
and variant are timed in turns on the same values. Where a variant says the same mathematics the unit of work is the base's (a leading
axis of two: twice); else the larger one of what its operations and bytes are over those of the base, counted from the programs as they
are written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks import workloads
from tensorexpr.benchmarks.harness import Effort, arrays_of, difference, interleaved
from tensorexpr.benchmarks.measures.journal import Journal, Run
from tensorexpr.benchmarks.measures.report import WORST, Report, distribution, failures, milliseconds, others
from tensorexpr.benchmarks.measures.worker import Request
from tensorexpr.benchmarks.samples import growth, library, variants, written
from tensorexpr.benchmarks.samples.sample import Sample, Traced, sample_of
from tensorexpr.errors import ArgumentError

FIXED_BAR, OPEN_BAR = 1.1, 1.3
"""What 95 % of all variants may take at most, of closed and of open sizes."""
NEVER = 1.5
"""What no variant of closed sizes may take."""
BYTES, OPERATIONS = 4 << 20, 10**8
"""How large samples of the library are made."""
TABLE, LIBRARY, WRITTEN = "table: ", "library: ", "written: "
BASE, VARIANT = "base", "variant"


def rows(request: Request) -> list[str]:
    """What is written in several ways, and every workload by every rule, in both directions; those of the library last."""
    names = [(TABLE + spec.name, spec.differentiable) for spec in workloads.specs()]
    with contextlib.suppress(ArgumentError):  # an installed package has the table alone
        names += [(LIBRARY + sample.name, sample.differentiable) for sample in library.library(request.measure)]
    several = [
        f"{WRITTEN}{family} | {way} | {direction}"
        for family, (_, ways) in written.FAMILIES.items()
        for way in list(ways)[1:]
        for direction in ("forward", "gradient")
    ]
    return several + [
        f"{name} | {rule} | {direction}"
        for name, differentiable in names
        for rule in variants.RULES
        for direction in ("forward", "gradient")
        if differentiable or direction == "forward"
    ]


def measured(key: str, request: Request) -> Run:
    """Seconds of base and variant, and by how much the work grew; "lacking" where the rule does not apply."""
    name, rule, direction = key.split(" | ")[:3]
    if name.startswith(WRITTEN):
        ways = written.samples(name.removeprefix(WRITTEN))
        return compared(next(iter(ways.values())), variants.Variant(ways[rule].traced()), direction == "gradient", request)
    sample = _sample(name, request)
    if sample is None:
        return {"lacking": "the sample cannot be made large"}
    try:
        variant = variants.variant(sample, rule)
    except variants.DoesNotApply as reason:
        return {"lacking": str(reason)}
    return compared(sample, variant, direction == "gradient", request)


def _sample(name: str, request: Request) -> Sample | None:
    if name.startswith(TABLE):
        return sample_of(next(spec for spec in workloads.specs() if TABLE + spec.name == name))
    found = next(sample for sample in library.library(request.measure) if LIBRARY + sample.name == name)
    return growth.grown(found, BYTES, OPERATIONS)


def compared(sample: Sample, variant: variants.Variant, gradient: bool, request: Request) -> Run:
    """Builds both, compares what they give where it is the same mathematics, and times them in turns."""
    base = sample.traced()
    arrays = sample.draw()
    calls, work, results = {}, {}, {}
    heads: list[np.ndarray] = []
    if gradient:
        rng = np.random.default_rng(1)
        heads = [rng.standard_normal(t.shape, np.float32).astype(t.dtype.numpy) for t in base.outputs if t.dtype.is_float]
    for name, traced in ((BASE, base), (VARIANT, variant.traced)):
        given = arrays if name == BASE else variant.arrays(arrays)
        if gradient:
            seeds = heads if name == BASE else _heads(variant, heads)
            traced, given = traced.with_gradient(), [*given, *seeds]
        calls[name] = _call(traced, given, name == BASE or variant.versions)
        if variant.times is None:
            work[name] = growth.work(traced)
        else:
            results[name] = arrays_of(calls[name]())
    calls[BASE](), calls[VARIANT]()
    timings = interleaved(calls, Effort(request.rounds, settle=0.002 if request.threads == 1 else 0.04, limit=4.0))
    found: Run = {
        BASE: timings[BASE].median, VARIANT: timings[VARIANT].median, "least": [timings[name].least for name in (BASE, VARIANT)],
        "work": float(variant.times) if variant.times is not None else _growth(work[BASE], work[VARIANT]),
    }  # fmt: skip
    if variant.times is not None:
        found["difference"] = difference(expected(sample, variant, base, results[BASE], gradient), results[VARIANT])
        found["tolerance"] = sample.tolerance
    return found


def expected(sample: Sample, variant: variants.Variant, base: Traced, results: Sequence[np.ndarray], gradient: bool) -> list[np.ndarray]:
    """What a variant gives where it says the same, from what the base gave: its outputs, and with them the gradients."""
    count = len(base.outputs)
    floating = [k for k, given in enumerate(sample.givens) if given.is_float]
    return [*variant.results(results[:count]), *(variant.gradients(results[count:], floating) if gradient else [])]


def _heads(variant: variants.Variant, heads: Sequence[np.ndarray]) -> list[np.ndarray]:
    if variant.times is not None:
        return variant.results(heads)
    rng = np.random.default_rng(1)
    return [rng.standard_normal(t.shape, np.float32).astype(t.dtype.numpy) for t in variant.traced.outputs if t.dtype.is_float]


def _call(traced: Traced, given: Sequence[np.ndarray], versions: bool) -> Callable[[], Any]:
    function = te.build(traced.outputs, traced.inputs)
    if not versions:
        function.versions = None
    return lambda: function(*given)


def _growth(base: tuple[int, int], variant: tuple[int, int]) -> float:
    """The larger one of what operations and bytes grew by."""
    return max(after / before for before, after in zip(base, variant, strict=True) if before)


def slower(run: Run) -> float | None:
    """Time per unit of work of the variant over the base's; None where there is none."""
    return None if BASE not in run else float(run[VARIANT] / run[BASE] / run["work"])


def report(journal: Journal, keys: Sequence[str], options: Any) -> Report:
    """The distributions for closed and open sizes, of the table and of the library; the worst twenty."""
    del options
    quoted = journal.quoted()
    found = {key: ratio for key in keys if (ratio := slower(quoted[key])) is not None}
    lines = []
    for group in (WRITTEN, TABLE, LIBRARY):
        own = {key: ratio for key, ratio in found.items() if key.startswith(group)}
        for what, is_open, bar in (("fixed sizes", False, FIXED_BAR), ("open sizes", True, OPEN_BAR)):
            values = [ratio for key, ratio in own.items() if (key.split(" | ")[1] in variants.OPEN) == is_open]
            if values:
                never = "" if is_open else f", {sum(value > NEVER for value in values)} above {NEVER:g}"
                lines.append(f"{group}{what}: {distribution(values, bar)}{never} (bar: 95 % within {bar:g})")
    lines += _by_rule(found)
    worst = sorted(found, key=lambda key: -found[key])
    table: list[tuple[str, ...]] = [
        (key, f"{found[key]:.2f}", milliseconds(quoted[key][BASE]), milliseconds(quoted[key][VARIANT]),
         f"{quoted[key]['work']:.2f}", others(journal, key, slower))
        for key in worst[:WORST]
    ]  # fmt: skip
    heads = ("variant", "per unit of work", "base ms", "variant ms", "work", "other runs")
    wrong = [
        f"differs: {key} by {run['difference']:.1e}"
        for key in keys
        if not (run := quoted[key]).get("difference", 0.0) <= run.get("tolerance", math.inf)
    ]
    lacking = sum("lacking" in quoted[key] for key in keys)
    return Report(
        "Spellings: time per unit of work, variant over base", lines, heads, table,
        [*wrong, *failures(journal, keys), f"{lacking} of {len(keys)} rows are combinations that a rule does not apply to"],
    )  # fmt: skip


def _by_rule(found: dict[str, float]) -> list[str]:
    grouped: dict[str, list[float]] = {}
    for key, ratio in found.items():
        grouped.setdefault(key.split(" | ")[1], []).append(ratio)
    return [f"{rule}: {distribution(values)}" for rule, values in grouped.items()]
