"""Programs that are compiled once and run on many arrays: `te.compile` and `te.freeze`.

`te.build` is the short way: a function that shows how it came about. `te.compile` gives the same code for use: the mode is
settled, and the function holds code and the data of its constants, and nothing of the IR that it was made of. (What shows
the IR, `.program`, `.nest`, makes it again from the program's text.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorexpr.bounds.wrapping import program_with_wraps
from tensorexpr.codegen.compile import build_program, check_precision, check_target, fold_constants, machine_of, program_from
from tensorexpr.codegen.compiled.arguments import shape_text, signature_of
from tensorexpr.codegen.compiled.context import Context, Symbol, symbol_of, symbols_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.compiled.versions import Versions
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.executable import executable_of, look_at
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.constants import data
from tensorexpr.constants.freezing import with_constants, with_literals
from tensorexpr.errors import ArgumentError, DefinitionError, InternalError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import Const, Input, Program, content_of
from tensorexpr.language import Tensor
from tensorexpr.language.definitions.modes import MODE_PATH, asked_for
from tensorexpr.parse import parse_program
from tensorexpr.simplify import remove_dead_definitions
from tensorexpr.text import print_program, print_type
from tensorexpr.verify import verify

MODES = ("inference", "training")


@checked()
def compile(
    what: Program | Tensor | Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None,
    *,
    target: str = "cpu",
    mode: str = "inference",
    updates: Mapping[Tensor, Tensor] | None = None,
    precision: str = "float32",
) -> CompiledFunction:
    """Compiles a program, or tensors as a function of `inputs` as `te.build` does, for runs in contexts.

    No array is needed and none is made: placeholders are types. What depends on constants alone is computed now. `mode`
    is what `te.training()` asks for. `updates` maps placeholders to tensors: in mode "training" a run computes them too, and then
    stores them in the context's arrays of the placeholders; in mode "inference" they are left out. `precision` is that of `te.build`.

    Raises as `te.build` does, and `ArgumentError` for a mode that is none, `DefinitionError` for updates that do not fit.

    >>> x, w = te.placeholder((3,), name="x"), te.placeholder((3,), name="w")
    >>> f = te.compile(te.compute((3,), lambda i: x[i] * w[i], name="y"), [x, w])
    >>> context = te.Context({"w": np.full(3, 2.0, np.float32)})
    >>> f.run(context, x=np.ones(3, np.float32))
    array([2., 2., 2.], dtype=float32)
    """
    check_target(target)
    check_precision(precision)
    if mode not in MODES:
        raise ArgumentError(f"te.compile: expected a mode, one of {', '.join(MODES)}, got {mode!r}", location=user_location())
    bare = isinstance(what, Tensor)
    new = _checked_updates(updates or {}) if mode == "training" else {}
    if isinstance(what, Program):
        if inputs is not None or updates:
            raise DefinitionError("te.compile: expected a program alone, got inputs or updates with it", location=user_location())
        program = _verified(what, "te.compile")
    else:
        wanted = [what] if isinstance(what, Tensor) else what
        made_of = [*wanted, *new.values()] if new else what
        if inputs is not None:
            tensors = [t for t in ([made_of] if isinstance(made_of, Tensor) else made_of) if isinstance(t, Tensor)]
            inputs = [*inputs, *asked_for(tensors)]  # the mode is told by `mode`, not by a caller
        program = program_from(made_of, inputs, "te.compile")
    names = {symbol_of(t).path: t.name for t in new}
    known = {i.path or i.name: i.name for i in program.inputs}
    for path, name in names.items():
        if path not in known:
            raise DefinitionError(f"te.compile: expected updates of inputs of the program, got one of {name}", location=user_location())
    made = _compiled(program, target, mode, bare and not new, precision)
    return _updated(made, mode, tuple(known[path] for path in names), bare)


def _verified(program: Program, user: str) -> Program:
    """The program, which may come from a text that somebody wrote: arithmetic that may wrap around says so then.

    Raises `DefinitionError` where it breaks an invariant.
    """
    try:
        verify(program)
        return program_with_wraps(program)
    except RecursionError:
        raise DefinitionError(f"{user}: expected a program, got one that nests deeper than can be read", location=user_location()) from None
    except InternalError as error:
        raise DefinitionError(
            f"{user}: expected a program, got one that breaks the {error.message}",
            term=error.term,
            at=error.at,
            location=error.location or user_location(),
            hint="tensorexpr.verify says what every program satisfies",
        ) from None


def _checked_updates(updates: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    for old, new in updates.items():
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            raise DefinitionError(
                f"te.compile: expected updates from placeholders to tensors, got {old!r}: {new!r}",
                location=user_location(),
                hint="updates={w: w_new}",
            )
        if old.type != new.type:
            raise DefinitionError(
                f"te.compile: expected a new value of {old.name} of its type {print_type(old.type)}, got {print_type(new.type)}",
                term=new,
                location=user_location(),
            )
    return dict(updates)


def _compiled(program: Program, target: str, mode: str, single: bool, precision: str) -> CompiledFunction:
    flag = {i.name: np.asarray(mode == "training") for i in program.inputs if i.path == MODE_PATH}
    program = remove_dead_definitions(with_constants(program, {name: data.frozen(array) for name, array in flag.items()}))
    return _built(fold_constants(program), symbols_of(program), target, single, precision)


def _built(program: Program, symbols: tuple[Symbol, ...], target: str, single: bool, precision: str) -> CompiledFunction:
    signature = signature_of(program, single)
    text, arrays = print_program(program), {c.name: c.data for c in program.constants}

    def again() -> Program:
        return parse_program(text, arrays)

    if target == "cuda":
        device = current_device()
        code, machine = GpuCode.of_program(program, machine_of("cuda", precision)), machine_of("cuda", precision)
        made, plainly = GpuFunction(code, device, signature, symbols=symbols), code.stages.failure is not None
        found: CompiledFunction = made.remade(lambda: GpuCode.of_program(again(), machine, plainly))
    else:
        built = executable_of(program)
        found = CompiledFunction(built._replace(look=look_at(again, built.look.failure)), signature, symbols=symbols)
        if program.sizes:
            found.versions = Versions(signature, again, lambda fixed: build_program(fixed, single), found.statements)
    found.origin = lambda own: (
        _remade,
        (again(), symbols, target, single, precision, own.mode, own.updates, own._bare),
    )
    return found


def _remade(
    program: Program, symbols: Any, target: str, single: bool, precision: str, mode: str, updates: tuple[str, ...], bare: bool
) -> CompiledFunction:
    """What pickle calls to compile a function again."""
    return _updated(_built(program, symbols, target, single, precision), mode, updates, bare)


def _updated(made: CompiledFunction, mode: str, updates: tuple[str, ...], bare: bool) -> CompiledFunction:
    made.mode = mode
    return made.updated(updates, bare) if updates else made


@checked()
def freeze(
    what: Program | Tensor | Sequence[Tensor], context: Context, names: Sequence[str] | None = None, inputs: Sequence[Tensor] | None = None
) -> Program:
    """The program with constants for the placeholders that are bound in a context, or for those of `names`.

    The data is that of this moment: binding or writing other weights later changes nothing. Equal data is kept once, however many
    programs it is frozen into; an array that nobody can write to is not copied. Inputs that are not bound, and outputs, stay as
    they are. Raises `ArgumentError` for a name that is no input or not bound, and for arrays that do not fit.

    >>> x, w = te.placeholder((3,), name="x"), te.placeholder((3,), name="w")
    >>> y = te.compute((3,), lambda i: x[i] * w[i], name="y")
    >>> frozen = te.compile(te.freeze(y, te.Context({"w": np.full(3, 2.0, np.float32)})))
    >>> frozen(np.ones(3, np.float32))
    (array([2., 2., 2.], dtype=float32),)
    """
    program = _verified(what, "te.freeze") if isinstance(what, Program) else program_from(what, inputs, "te.freeze")
    if not isinstance(context, Context):
        raise ArgumentError(f"te.freeze: expected a te.Context, got a {type(context).__name__}", location=user_location())
    for symbol in symbols_of(program):
        context.once(symbol)
    known = {name: i for i in program.inputs for name in (i.name, i.path or i.name)}
    chosen = [name for name in context if name in known] if names is None else list(names)
    arrays: dict[str, np.ndarray] = {}
    for name in chosen:
        if name not in known:
            inputs_ = ", ".join(i.path or i.name for i in program.inputs) or "none"
            raise ArgumentError(
                f"te.freeze: expected the name of an input of the program ({inputs_}), got {name}", location=user_location()
            )
        arrays[known[name].name] = _data(known[name], context[name])
    return with_literals(with_constants(program, arrays))


def _data(item: Input, array: Any) -> np.ndarray:
    """The contents of an array for an input, read-only, one array for equal contents."""
    if hasattr(array, "__cuda_array_interface__"):
        device = current_device()
        host = device.read(device.array(array))
    else:
        host = np.asarray(array)
    extents = [int(e.value) if isinstance(e, Const) else n for e, n in zip(item.type.shape, host.shape, strict=False)]
    if host.dtype != item.type.dtype.numpy or extents != list(host.shape) or len(item.type.shape) != host.ndim:
        raise ArgumentError(
            f"te.freeze: expected {print_type(item.type)} for {item.path or item.name}, got {host.dtype.name}{shape_text(host.shape)}",
            location=user_location(),
        )
    return data.shared(content_of(host), data.frozen(host))
