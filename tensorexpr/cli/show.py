"""`show FILE:OP`: an operation of the user's file, or its gradient, at any stage of the way through."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from tensorexpr.autodiff import Gradient, gradient
from tensorexpr.cli.specs import DEFAULT_EXTENT, parse_static, specs_for
from tensorexpr.codegen.auto.gpus import facts_of
from tensorexpr.codegen.compile import autoschedule, build
from tensorexpr.codegen.cuda.model.report import explained, predictions
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.target import H200, Gpu
from tensorexpr.errors import DefinitionError, Location, TensorExprError
from tensorexpr.hints import suggestion
from tensorexpr.language import Tensor, placeholder, program_of
from tensorexpr.latex import latex
from tensorexpr.op import Op
from tensorexpr.simplify import simplify

STAGES = ("written", "program", "latex", "schedule", "calls", "nest", "llvm", "asm", "cuda", "ptx")
"""The program as written, simplified, and as formulas; its loops, the calls that make the schedule, the loop nest, the code."""
_CUDA_STAGES = ("cuda", "ptx")


def find_operation(reference: str) -> tuple[str, Any]:
    """The name and the object that `FILE:OP` refers to.

    Raises `DefinitionError` when file or name is not there, or when the file does not run.
    """
    file, separator, name = reference.rpartition(":")
    if not separator or not file or not name:
        hint = "a file, a colon, and the name of an operation in it: examples/train_digits.py:conv2d"
        raise DefinitionError(f"expected FILE:OP, got {reference!r}", hint=hint)
    path = Path(file)
    if path.is_dir():
        raise DefinitionError(f"expected a Python file, got {file!r}, which is a folder", hint=_files_in(path, name))
    if not path.is_file():
        raise DefinitionError(f"expected a Python file, got {file!r}, which is not there", hint=_files_in(path.parent, path.name))
    sys.path.insert(0, str(path.resolve().parent))
    try:
        names = runpy.run_path(str(path), run_name="__tensorexpr_show__")
    except TensorExprError:
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        hint = f"python {path} shows the whole error"
        raise DefinitionError(f"expected a Python file that runs, got {cause}", location=_line_of(error, str(path)), hint=hint) from error
    finally:
        sys.path.pop(0)
    if name not in names:
        known = sorted(n for n, v in names.items() if isinstance(v, Op | Tensor))
        raise DefinitionError(
            f"expected an operation of {file}, got {name!r}", hint=suggestion(name, known, f"it has {', '.join(known) or 'none'}")
        )
    if not (isinstance(names[name], Op | Tensor)):
        raise DefinitionError(f"{name}: expected a te.op or a tensor, got {type(names[name]).__name__}", hint="decorate it with @te.op")
    return name, names[name]


def _files_in(folder: Path, name: str) -> str | None:
    """A hint at the file of a folder that may have been meant, or at those that are there."""
    files = sorted(found.name for found in folder.glob("*.py")) if folder.is_dir() else []
    few = f"{folder.resolve()} has {', '.join(files) or 'no Python file'}" if len(files) <= 8 else None
    return suggestion(name, files, few) if folder.is_dir() else f"there is no folder {folder.resolve()}"


def _line_of(error: Exception, file: str) -> Location:
    """Where in the file an error came from: the innermost line of it, of a syntax error the line that it names."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return Location(file, error.lineno or 1)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return Location(file, (lines[-1] if lines else None) or 1)


def outputs_and_inputs(found: Any, specs: list[str], static: list[str]) -> tuple[list[Tensor], list[Tensor], str | None]:
    """The tensors of the operation and its inputs, and a note where shapes were guessed."""
    if isinstance(found, Tensor):
        return [found], list(_placeholders(found)), None
    keywords = dict(parse_static(text) for text in static)
    inputs, guessed = specs_for(found, specs, keywords)
    result = found(*inputs, **keywords)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    note = f"no shapes were given: every extent is {DEFAULT_EXTENT}; a spec like f32[8, 3] for each argument chooses" if guessed else None
    return outputs, inputs, note


def _arch(code: GpuCode) -> str:
    target = code.schedule.target
    return target.arch if isinstance(target, Gpu) else H200.arch


def _explained(code: GpuCode) -> str:
    """How long the kernels are likely to take, as comments."""
    arch = _arch(code)
    compiled, facts = code.compiled(arch), facts_of(arch)
    lines = explained(predictions(code.source, compiled, code.nest, facts), facts).splitlines()
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _placeholders(tensor: Tensor) -> list[Tensor]:
    """The placeholders that a tensor is computed from, in the order of its program."""
    program = program_of([tensor], keys=True)
    wanted = [i.name for i in program.inputs]
    found: dict[str, Tensor] = {}
    stack, seen = [tensor], {tensor.key}
    while stack:
        current = stack.pop()
        if current.key in wanted:
            found[current.key] = current
        for source in current.sources:
            if source.key not in seen:
                seen.add(source.key)
                stack.append(source)
    return [found[key] for key in wanted]


def gradient_of(reference: str, outputs: list[Tensor], inputs: list[Tensor]) -> tuple[Gradient, list[Tensor]]:
    """The gradient by every floating input, and its heads. Raises `DefinitionError` where there is no such input."""
    heads = [placeholder(o.shape, str(o.dtype), name=f"{o.name}_bar") for o in outputs]
    wrt = [t for t in inputs if t.dtype.is_float]
    if not wrt:
        name = reference.rpartition(":")[2]
        raise DefinitionError(f"{name}: expected a floating input to differentiate by, got none")
    return gradient(outputs, wrt, heads), heads


def show(
    reference: str,
    specs: list[str],
    static: list[str],
    with_gradient: bool,
    stage: str,
    precision: str = "float32",
    explain: bool = False,
) -> tuple[str, list[str]]:
    """The text of the stage and the notes to print before it; as LaTeX, a gradient has the forward pass in front. `precision` is that of
    `te.build` on a GPU; to `explain` kernels is to say how long they are likely to take there, and why."""
    if explain and stage not in _CUDA_STAGES:
        raise DefinitionError(f"expected --explain with --stage cuda, got it with --stage {stage}", hint="print(s.cost) is that of a CPU")
    _, found = find_operation(reference)
    forward, inputs, note = outputs_and_inputs(found, specs, static)
    outputs, notes = forward, [] if note is None else [note]
    if with_gradient:
        derived, heads = gradient_of(reference, outputs, inputs)
        notes.append(str(derived.report()))
        outputs, inputs = list(derived), [*inputs, *heads]
    written = program_of(outputs, inputs)
    match stage:
        case "written":
            return str(written), notes
        case "program":
            return str(simplify(written)), notes
        case "latex":
            programs = [*([program_of(forward)] if with_gradient else []), written]
            return "\n".join(f"\\[\n{latex(simplify(one))}\n\\]" for one in programs), notes
    if stage in _CUDA_STAGES:
        schedule = autoschedule(outputs, "cuda", inputs, precision=precision)
        code = GpuCode.of_schedule(schedule)
        text = code.source.text if stage == "cuda" else code.compiled(_arch(code)).ptx
        return f"{text.rstrip()}\n\n{_explained(code)}" if explain else text, notes
    compiled = build(outputs, inputs)
    if stage in ("schedule", "calls"):
        notes.append(f"schedule: {compiled.schedule.origin}")
    if stage == "schedule":
        return str(compiled.schedule), notes
    if stage == "calls":
        return compiled.schedule.as_python(), notes
    return compiled.source(stage), notes
