"""`te.tune`: measures schedules around the one that the model chooses, and keeps the best for later builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.codegen.compile import check_precision, check_target, fold_constants, machine_of, program_from
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.codegen.tuning.search import Progress
from tensorexpr.codegen.tuning.session import TuningResult, tune_program
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import checked
from tensorexpr.language import Tensor, names_of
from tensorexpr.op import Op


@checked()
def tune(
    operation: Op | Tensor | Sequence[Tensor],
    inputs: Sequence[Any] | None = None,
    *,
    budget: float = 20.0,
    target: str = "cpu",
    precision: str = "float32",
    static: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    arrays: Sequence[np.ndarray] | None = None,
    reassociate: bool = False,
    output: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    seed: int = 0,
) -> TuningResult:
    """Looks for a faster schedule for `budget` seconds, and keeps what it finds for builds to come.

    `operation` is an op, with `inputs` as in `op.compile` (and its `static` arguments); or tensors, with `inputs` as in `te.build`.
    Candidates run in another process, in turns with the model's own schedule, on arrays that are made up, on `arrays`, or on the inputs
    of an op where those are arrays. `precision` is that of `te.build`: what is found is for builds with the same. `sizes` are numbers for
    open extents. One that changes a bit of the results is dropped, unless
    `reassociate` allows sums in another order. What is found is kept in the file `output`, by default where TENSOREXPR_TUNING
    says; `te.build`, and ops compiled from then on, use it for this operation at extents of this class. An interrupt from the keyboard
    ends the search and keeps the best so far.

    Raises `ArgumentError` for what does not fit or does not run, `TargetError` for a target that is not there.

    >>> double = te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i]))
    >>> result = te.tune(double, [((1000,), "float32")], budget=0.1)
    >>> result.speedup >= 1.0
    True
    """
    check_target(target)
    check_precision(precision)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 < budget < float("inf"):
        raise ArgumentError(f"te.tune: expected a budget in seconds, more than 0, got {budget!r}", location=user_location())
    names: Mapping[str, str] = {}
    if isinstance(operation, Op):
        specs = list(inputs or ())
        program = operation.trace(*specs, **dict(static or {}))
        if arrays is None and specs and all(isinstance(spec, np.ndarray) for spec in specs):
            arrays = specs
        single = len(program.outputs) == 1
    else:
        if static:
            raise ArgumentError("te.tune: expected static arguments with an op alone, got some with tensors", location=user_location())
        program = program_from(operation, inputs, "te.tune")
        single = isinstance(operation, Tensor)
        names = names_of([operation] if isinstance(operation, Tensor) else operation, inputs)
    found = tune_program(
        simplified(fold_constants(program), machine_of(target, precision)),
        float(budget),
        target=target,
        precision=precision,
        sizes=sizes,
        arrays=arrays,
        reassociate=reassociate,
        output=None if output is None else Path(output),
        seed=seed,
        tell=progress,
    )
    chosen = found.schedule
    return TuningResult(**{**found.__dict__, "schedule": Schedule.of_planned(chosen, names=names, single=single)})
