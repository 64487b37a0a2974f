"""One primitive of JAX for all operators: its value, derivatives, batches and the custom call that it becomes.

An equation `tensorexpr[operator]` holds a flat `Operator`, which derives what JAX asks for as operators again: tangents are
the operator `jvp`, a batch is the operator `batched`, and so on at every order. JAX transposes what is linear: of the tangents of an
operator that is its `vjp`; of anything else linear (`Call.linear`: a batch of tangents, gradients in their heads) the gradient
of the call by its linear arguments, which may be taken anywhere: at zero.

Integer arguments and results have no tangents. Nothing is known here of shapes before JAX knows them: an operator is traced at
the types of its arguments, once for each (`Call.result_types`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DefinitionError, DifferentiationError, TargetError, user_location
from tensorexpr.interop.jax import cuda
from tensorexpr.interop.jax.calls import called
from tensorexpr.interop.jax.handler import Kernel, kernel_of
from tensorexpr.interop.jax.manual import alike, lowered_for_devices, result_type
from tensorexpr.interop.operators import Operator
from tensorexpr.interop.sharding.jax import is_split, lowered
from tensorexpr.ir import Const, Program
from tensorexpr.language import placeholder, program_of

_KERNELS_KEPT = 256  # per operator

_CONFIG: Any = jax.config  # its switches are attributes that it makes at run time

primitive = Primitive("tensorexpr")
primitive.multiple_results = True

Types = tuple[tuple[tuple[int, ...], str], ...]
"""Shape and dtype of each argument."""


@dataclass(frozen=True, eq=False)
class Call:
    """What an equation computes: an operator, the positions of the arguments in which it is (jointly) linear, and, where it gives the
    tangents of `base` for the inputs in `moving`, those two."""

    operator: Operator
    linear: tuple[int, ...] = ()
    base: Call | None = None
    moving: tuple[bool, ...] = ()
    _programs: Memo[Program] = field(default_factory=lambda: Memo(_KERNELS_KEPT))
    _kernels: Memo[Kernel] = field(default_factory=lambda: Memo(_KERNELS_KEPT))
    _derived: Memo[Call] = field(default_factory=lambda: Memo(_KERNELS_KEPT))
    _jitted: Memo[Any] = field(default_factory=lambda: Memo(1))

    def __repr__(self) -> str:
        return self.operator.name

    # ---------------------------------------------------------------------------------------------------- derived

    def tangents(self, moving: tuple[bool, ...]) -> Call:
        """The call `(*arguments, *tangents) -> tangents` of the floating results, for the arguments that move."""
        count = len(self.operator.names)

        def make() -> Call:
            return Call(self.operator.jvp(moving), tuple(range(count, count + sum(moving))), self, moving)

        return self._derived.get(("jvp", moving), make)

    def gradients(self, wanted: tuple[bool, ...], heads: tuple[bool, ...]) -> Call:
        """The call `(*arguments, *heads) -> gradients` of the arguments that are wanted."""
        count = len(self.operator.names)

        def make() -> Call:
            return Call(self.operator.vjp(wanted, heads), tuple(range(count, count + sum(heads))))

        return self._derived.get(("vjp", wanted, heads), make)

    def batched(self, mask: tuple[bool, ...]) -> Call:
        """The call for a batch: the arguments in `mask` and all results have one more axis in front."""
        return self._derived.get(("batch", mask), lambda: Call(self.operator.batched(mask), self.linear))

    # ---------------------------------------------------------------------------------------------------- at types

    def program(self, types: Types) -> Program:
        """The program for arguments of these types."""

        return self._programs.get(types, lambda: self.trace(types))

    def trace(self, types: Types) -> Program:
        """The program, made anew."""
        inputs = [placeholder(shape, type_, name=name) for name, (shape, type_) in zip(self.operator.names, types, strict=True)]
        return program_of(list(self.operator.compose(inputs)), inputs)

    def result_types(self, types: Types) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of each result."""
        program = self.program(types)
        found = [program.types[name] for name in program.outputs]
        return [(tuple(int(e.value) for e in t.shape if isinstance(e, Const)), t.dtype.numpy) for t in found]

    def kernel(self, types: Types) -> Kernel:
        """The compiled kernel for arguments of these types on the CPU."""
        return self._kernels.get(types, lambda: kernel_of(self.program(types)))

    def cuda_kernel(self, types: Types) -> Kernel:
        """The compiled kernel for arguments of these types on the GPUs of JAX."""
        return self._kernels.get(("cuda", types), lambda: cuda.kernel_of(self.program(types), self.operator.name))

    def bind(self, *arguments: Any) -> list[Any]:
        """The results for arrays and tracers. In programs and profiles of XLA the call has the name of the operation."""
        with jax.named_scope(self.operator.mark):
            results: list[Any] = primitive.bind(*alike(self.operator.name, self.operator.names, arguments), call=self)
        return results

    def run(self, *arguments: Any) -> Any:
        """The results as arrays of JAX, compiled for the call alone."""
        alone = self._jitted.get((), self._alone)
        if not _CONFIG.jax_disable_jit:
            return alone(*arguments)
        with jax.disable_jit(False):  # which is about programs; this is one operation
            return alone(*arguments)

    def _alone(self) -> Any:
        def one(*given: Any) -> Any:
            return primitive.bind(*given, call=self)

        one.__name__ = one.__qualname__ = self.operator.name
        # JAX looks for what made a NaN by calling the functions in a program one by one, and ends where it meets this mark.
        one._apply_primitive = True  # type: ignore[attr-defined]  # functions take attributes
        return jax.jit(one)


def check_dtype(operator: str, name: str, type_: np.dtype) -> None:
    """Raises `ArgumentError` for an argument of a dtype that the language does not have."""
    try:
        dtype(type_)
    except DefinitionError as error:
        raise ArgumentError(f"{operator}: argument {name}: {error.message}", location=user_location(), hint=error.hint) from None


def types_of(avals: Sequence[Any], call: Call) -> Types:
    """The types of arguments. Raises `ArgumentError` for dtypes that the language does not have, `TargetError` for extents that JAX leaves
    open."""
    for name, aval in zip(call.operator.names, avals, strict=True):
        check_dtype(call.operator.name, name, np.dtype(aval.dtype))
        if not all(isinstance(extent, int) for extent in aval.shape):
            raise TargetError(
                f"{call.operator.name}: argument {name}: expected constant extents, got ({', '.join(map(str, aval.shape))})",
                location=user_location(),
                hint="export with a constant shape: kernels for XLA are compiled for one",
            )
    return tuple((tuple(aval.shape), np.dtype(aval.dtype).name) for aval in avals)


# ---------------------------------------------------------------------------------------------------- rules


@primitive.def_impl
def _run(*arguments: Any, call: Call) -> list[Any]:
    results: list[Any] = call.run(*arguments)
    return results


@primitive.def_abstract_eval
def _types(*avals: Any, call: Call) -> list[Any]:
    return [result_type(avals, shape, type_) for shape, type_ in call.result_types(types_of(avals, call))]


def _zero(value: Any) -> Any:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def _push(arguments: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[list[Any], list[Any]]:
    results = call.bind(*arguments)
    moving = tuple(not isinstance(tangent, ad.Zero) for tangent in tangents)
    floating = [dtype(np.dtype(result.dtype)).is_float for result in results]
    if not any(moving) or not any(floating):
        return results, [_zero(result) for result in results]
    moved = [tangent for tangent, moves in zip(tangents, moving, strict=True) if moves]
    found = iter(call.tangents(moving).bind(*arguments, *moved))
    return results, [next(found) if is_float else _zero(result) for result, is_float in zip(results, floating, strict=True)]


def _transpose(cotangents: Sequence[Any], *arguments: Any, call: Call) -> list[Any]:
    missing = [ad.is_undefined_primal(argument) for argument in arguments]
    foreign = [name for position, name in enumerate(call.operator.names) if missing[position] and position not in call.linear]
    if foreign:
        raise DifferentiationError(
            f"{call.operator.name}: expected an operation that is linear in {foreign[0]}, got one that may not be",
            location=user_location(),
            hint="jax.vjp differentiates it; jax.linear_transpose takes the function that jax.linearize gives",
        )
    given = [not isinstance(cotangent, ad.Zero) for cotangent in cotangents]
    heads = [cotangent for cotangent, has in zip(cotangents, given, strict=True) if has]
    avals = [argument.aval if gone else jax.typeof(argument) for argument, gone in zip(arguments, missing, strict=True)]
    if not heads:
        return [ad.Zero(aval) if gone else None for aval, gone in zip(avals, missing, strict=True)]
    if call.base is not None and all(missing[position] for position in call.linear):
        base = call.base
        inputs = arguments[: len(base.operator.names)]
        types = base.result_types(types_of(avals[: len(inputs)], base))
        cotangent_of = iter(given)
        marks = tuple(dtype(type_).is_float and next(cotangent_of) for _, type_ in types)
        found = iter(base.gradients(call.moving, marks).bind(*inputs, *heads))
    else:
        filled = [ad.zeros_like_aval(argument.aval) if gone else argument for argument, gone in zip(arguments, missing, strict=True)]
        found = iter(call.gradients(tuple(missing), tuple(given)).bind(*filled, *heads))
    return [next(found) if gone else None for gone in missing]


def _batch(arguments: Sequence[Any], axes: Sequence[Any], *, call: Call) -> tuple[list[Any], list[int]]:
    mask = tuple(axis is not None for axis in axes)
    moved = [argument if axis is None else jax.numpy.moveaxis(argument, axis, 0) for argument, axis in zip(arguments, axes, strict=True)]
    results = call.batched(mask).bind(*moved)
    return results, [0] * len(results)


def _lower(context: Any, *operands: Any, call: Call) -> Any:
    types = types_of(context.avals_in, call)
    if is_split(context):
        return lowered(context, operands, call.program(types))
    return called(context, operands, call.kernel(types), call.operator.mark)


def _lower_cuda(context: Any, *operands: Any, call: Call) -> Any:
    types = types_of(context.avals_in, call)
    if is_split(context):
        return lowered(context, operands, call.program(types))
    return called(context, operands, call.cuda_kernel(types), call.operator.mark)


def _refuse(context: Any, *operands: Any, call: Call) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise TargetError(
        f"{call.operator.name}: expected arrays of JAX on the cpu or on GPUs of CUDA, got a program for {platforms}",
        location=user_location(),
        hint="jax.device_put(array, jax.devices('cpu')[0])",
    )


lowered_for_devices(primitive)
ad.primitive_jvps[primitive] = _push
ad.primitive_transposes[primitive] = _transpose
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, _refuse)
mlir.register_lowering(primitive, _lower, platform="cpu")
mlir.register_lowering(primitive, _lower_cuda, platform=cuda.PLATFORM)
