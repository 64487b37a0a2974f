"""`tune FILE:OP`: measures schedules of an operation, or of its gradient, and keeps the best; `--merge` puts files of records together."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorexpr.autodiff import gradient
from tensorexpr.cli.show import find_operation, outputs_and_inputs
from tensorexpr.cli.specs import parse_size, parse_static, specs_for
from tensorexpr.codegen.tuning import records
from tensorexpr.codegen.tuning.search import Progress
from tensorexpr.codegen.tuning.session import TuningResult, duration
from tensorexpr.errors import ArgumentError, DefinitionError
from tensorexpr.language import Tensor, placeholder
from tensorexpr.op import Op
from tensorexpr.op.transforms import vjp
from tensorexpr.op.trees import leaves
from tensorexpr.tuning import tune

_SILENCE = 5.0
"""Seconds between lines where there is no terminal and nothing gets better."""


def tune_reference(
    reference: str,
    specs: list[str],
    static: list[str],
    sizes: list[str],
    *,
    with_gradient: bool,
    budget: float,
    reassociate: bool,
    output: str | None,
    seed: int,
    target: str = "cpu",
    precision: str = "float32",
) -> TuningResult:
    """Tunes the operation that `FILE:OP` refers to, as it is called, or as its gradient is, and shows how far it is."""
    name, found = find_operation(reference)
    operation: Any = found
    keywords: dict[str, Any] = {}
    inputs: list[Tensor] | None = None
    if isinstance(found, Op):
        keywords = dict(parse_static(text) for text in static)
        inputs, guessed = specs_for(found, specs, keywords)
        if guessed:
            hint = "python -m tensorexpr tune FILE:OP 'f32[1024, 1024]' ..."
            raise DefinitionError(f"{name}: expected a spec like f32[8, 3] for each argument, got none", hint=hint)
        if with_gradient:
            results = list(leaves(found(*inputs, **keywords)))
            heads = [placeholder(o.shape, o.dtype.name, name=f"head_{k}") for k, o in enumerate(results) if o.dtype.is_float]
            operation, inputs = vjp(found), [*inputs, heads[0] if len(results) == 1 else tuple(heads)]  # type: ignore[list-item]  # several heads are one tuple
    elif with_gradient:
        outputs, given, _ = outputs_and_inputs(found, specs, static)
        heads = [placeholder(o.shape, o.dtype.name, name=f"{o.name}_bar") for o in outputs]
        operation, inputs = list(gradient(outputs, [t for t in given if t.dtype.is_float], heads)), [*given, *heads]
    numbers = dict(parse_size(text) for text in sizes)
    with _shown() as tell:
        return tune(
            operation,
            inputs,
            budget=budget,
            target=target,
            precision=precision,
            static=keywords,
            sizes=numbers,
            reassociate=reassociate,
            output=output,
            progress=tell,
            seed=seed,
        )


def as_data(result: TuningResult) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "improved": result.improved,
        "speedup": result.speedup,
        "seconds": result.seconds,
        "baseline_seconds": result.baseline_seconds,
        "choices": dict(result.choices),
        "schedule": result.schedule.as_python().splitlines(),
        "tried": result.tried,
        "outcomes": dict(result.outcomes),
        "elapsed": result.elapsed,
        "interrupted": result.interrupted,
        "file": None if result.path is None else str(result.path),
    }


def merge(files: list[str], output: str | None) -> tuple[Path, int]:
    """Puts the records of files together in one, of equal ones the youngest; gives it and the number of its records."""
    missing = [name for name in files if not Path(name).is_file()]
    if missing:
        raise ArgumentError(f"tune --merge: expected files of records, got {missing[0]!r}, which is not there")
    path = Path(output) if output is not None else next(iter(records.places()), None)
    if path is None:
        raise ArgumentError("tune --merge: expected a file to write, got none", hint=f"--output FILE, or {records.VARIABLE}")
    return path, records.write(path, [record for name in files for record in records.read(Path(name))])


# ---------------------------------------------------------------------------------------------------------- progress


@contextmanager
def _shown() -> Iterator[Callable[[Progress], None]]:
    """Shows how far a search is: a bar on a terminal where rich is installed, lines elsewhere; on standard error."""
    if not sys.stderr.isatty() or "NO_COLOR" in os.environ or importlib.util.find_spec("rich") is None:
        yield _Lines()
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (TextColumn("tuning"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(progress: Progress) -> None:
            bar.update(task, total=progress.budget, completed=min(progress.elapsed, progress.budget), description=_line(progress))

        yield tell


class _Lines:
    """A line where something got better, and now and then."""

    def __init__(self) -> None:
        self._best, self._last = 0.0, 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.best != self._best or progress.elapsed >= self._last + _SILENCE:
            self._best, self._last = progress.best, progress.elapsed
            print(f"{progress.elapsed:5.1f} s  {_line(progress)}", file=sys.stderr, flush=True)


def _line(progress: Progress) -> str:
    if progress.best == float("inf"):
        return progress.now
    speedup = progress.baseline / progress.best
    return f"{progress.trials} tried, {duration(progress.baseline)} -> {duration(progress.best)} ({speedup:.2f}x)  {progress.now}"
