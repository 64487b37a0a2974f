"""An operator on torch tensors: kernels by signature, derivatives, and the three ways in.

- `call`: the front. Where a gradient is to be recorded, a tangent carried or a transform of torch.func is under way, it goes through
  the autograd functions of `functions`; else straight on.
- `execute`: computes. Plain tensors in eager mode meet the compiled kernel of their signature with nothing in between, on the CPU
  without Python (`native`).
- `dispatch`: by way of torch's dispatcher, for whoever wants to see the operator: fake tensors and other subclasses, modes, traces,
  the profiler (`library`).
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from tensorexpr.autodiff.api.vmap import has_rules
from tensorexpr.codegen.compile import build
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.cost import cost_of
from tensorexpr.codegen.memo import Memo
from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DifferentiationError, user_location
from tensorexpr.interop.operators import Mask, Operator
from tensorexpr.interop.torch.definitions import Origin, operator_of, text_of
from tensorexpr.interop.torch.dtypes import FROM_TORCH, TO_TORCH
from tensorexpr.interop.torch.functions import Recorded, Transformed, batched_by_autograd, is_many
from tensorexpr.interop.torch.kernels import Kernel, kernel_of, models_of, on_stream
from tensorexpr.interop.torch.library import NAMESPACE, Operators
from tensorexpr.interop.torch.native import NativeCalls
from tensorexpr.interop.torch.symbolic import Pattern, extent_value, fits, patterns_of, promised
from tensorexpr.ir import Program
from tensorexpr.language import Tensor, dim, program_of
from tensorexpr.op import Op
from tensorexpr.op.specs import Spec
from tensorexpr.records import cached_property
from tensorexpr.traversal import reads

_SIGNATURES_KEPT = 1024
_TARGETS = {"cpu": "cpu", "cuda": "cuda"}
_recording, _transforming, _modes = torch.is_grad_enabled, torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_C: Any = torch._C  # whose parts are not all declared
_tracing, _set_tracing, _profiling = _C._get_tracing_state, _C._set_tracing_state, _C._autograd._profiler_enabled
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


@dataclass(slots=True)
class Outline:
    """What is known of a signature before anything is compiled: placeholders, outputs, whether a gradient rule is inside, shapes (in which
    names are open extents) and dtypes, and the definition of a node with it, once there was one."""

    inputs: list[Tensor]
    outputs: tuple[Tensor, ...]
    ruled: bool
    at: list[tuple[tuple[int | str, ...], str]]
    text: str | None = None


class TorchOperator:
    """A flat operator on torch tensors. `target` is what it is compiled for where that is not the tensors' device.

    `forms` says how the op nests its results, by their number: None for one that is bare, () for a plain tuple, else a tree.
    `spares` has signatures of which a gradient, compiled by now, reads some inputs only.
    """

    def __init__(self, origin: Origin, operator: Operator, gradient_of: tuple[TorchOperator, Mask] | None = None) -> None:
        self.origin = origin
        self.operator = operator
        self._gradient_of = gradient_of
        self.spares: dict[tuple[Any, ...], Mask] = {}
        self.names = operator.names
        self.target = origin.target
        self._kernels: Memo[Kernel] = Memo(_SIGNATURES_KEPT)
        self._find = self._kernels.find
        self._native = NativeCalls()
        self._outlines: Memo[Outline] = Memo(_SIGNATURES_KEPT)
        self._patterns: dict[tuple[Any, ...], dict[Pattern, None]] = {}
        self._opened: Memo[CompiledFunction] = Memo(_SIGNATURES_KEPT)
        self._derived: dict[tuple[Any, ...], TorchOperator] = {}
        self._unruled = False
        self._functions: dict[CompiledFunction, None] = {}
        self.forms: dict[int, Any] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------------------------ derived

    def _made(self, key: tuple[Any, ...], make: Callable[[], Operator]) -> TorchOperator:
        with self._lock:
            found = self._derived.get(key)
            if found is None:
                source = (self, key[1]) if key[0] == "vjp" and all(key[2]) else None
                origin = self.origin._replace(steps=(*self.origin.steps, key))
                found = self._derived[key] = TorchOperator(origin, make(), source)
            return found

    def vjp(self, wanted: Mask, heads: Mask) -> TorchOperator:
        """The operator `(*inputs, *heads) -> gradients of the inputs that are wanted`."""
        key = ("vjp", wanted, heads)
        return self._derived.get(key) or self._made(key, lambda: self.operator.vjp(wanted, heads))

    def jvp(self, moving: Mask) -> TorchOperator:
        """The operator `(*inputs, *tangents) -> tangents of the floating outputs`."""
        return self._made(("jvp", moving), lambda: self.operator.jvp(moving))

    def batched(self, mask: Mask) -> TorchOperator:
        """The operator with one more axis in front of the inputs in `mask` and of all outputs."""
        return self._made(("batched", mask), lambda: self.operator.batched(mask))

    def read_by_gradient(self, wanted: Mask, tensors: Sequence[torch.Tensor]) -> Mask | None:
        """Which inputs the gradient of those that are wanted reads; None where it reads all, or is not compiled yet.

        None as well for tensors that a graph is made with: extents may be symbols in them, and a graph depends on nothing that ran before.
        """
        plain = all([type(tensor) in (_Tensor, _Parameter) for tensor in tensors])
        return self.spares.get((wanted, *_signature(tensors))) if plain else None

    @property
    def derived(self) -> tuple[TorchOperator, ...]:
        """The derivatives and batches that were needed so far."""
        return tuple(self._derived.values())

    @property
    def functions(self) -> tuple[CompiledFunction, ...]:
        """The functions that were compiled so far."""
        return tuple(self._functions)

    @cached_property
    def shards(self) -> Any:
        """The operator on DTensors, whose module is loaded when the first is met."""
        return importlib.import_module("tensorexpr.interop.sharding.torch").Shards(self)

    # -------------------------------------------------------------------------------------------------------- calls

    def call(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The outputs, as part of whatever torch records or transforms."""
        if _transforming() or forward_ad._current_level >= 0:
            return Transformed.apply(self, *tensors)
        if _recording():
            for tensor in tensors:
                if tensor.requires_grad:
                    if _tracing() is not None:  # the trace is to have the operator, which torch differentiates by its own rule
                        return self.dispatch(tensors)
                    if not self._unruled:
                        self._check_differentiable(tensors)
                    return Recorded.apply(self, *tensors)
        return self.execute(tensors)

    def execute(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The outputs, computed."""
        negated = False
        for tensor in tensors:
            kind = type(tensor)
            if kind is not _Tensor and kind is not _Parameter:
                return self.dispatch(tensors) if not any(map(_is_distributed, tensors)) else self.shards.call(tensors)
            negated = negated or tensor.is_neg()
        if _modes() or _tracing() is not None or _profiling():
            return self.dispatch(tensors)
        run = self._native.run
        if run is not None and not negated:
            found: tuple[torch.Tensor, ...] | None = run(*tensors)
            if found is not None:
                return found
        try:
            kernel = self._find(tuple([part for tensor in tensors for part in (tensor.shape, tensor.dtype, tensor.device)]))
        except RuntimeError:
            self._types(tensors)  # says which tensor has no shape
            raise
        if kernel is None:
            if tensors and all([tensor.is_meta for tensor in tensors]):
                return self.dispatch(tensors)
            kernel = self.kernel(tensors)
        try:
            return kernel(tensors)
        except RuntimeError:
            # A tensor without memory of the type of a plain one: inside of `is_grads_batched` it is many; else it is refused by name.
            if not any(map(is_many, tensors)):
                self._device(tensors)
                raise
        return batched_by_autograd(self, tensors)

    def dispatch(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The outputs by way of torch's dispatcher."""
        state = _tracing()
        _set_tracing(None)  # the shapes that are looked at are no part of a trace
        try:
            if _recording() and not self._unruled and any(tensor.requires_grad for tensor in tensors):
                self._check_differentiable(tensors)
            overload, arguments = self.overload(tensors)
        finally:
            _set_tracing(state)
        return tuple(overload(*arguments))

    def overload(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, tuple[list[torch.Tensor], str]]:
        """The operator of torch that these tensors come to, and its arguments: the tensors, and what is computed of them."""
        outline, _ = self.outline(tensors)
        if outline.text is None:
            outline.text = text_of(self, self.origin, outline.at, program_of(list(outline.outputs), outline.inputs))
        return OPERATORS.called(self.operator.mark).default, (list(tensors), outline.text)

    def program_at(self, at: Sequence[tuple[tuple[int | str, ...], str]]) -> Program:
        """The program for arguments of these shapes, in which extents are numbers or the names of open ones, and dtypes."""
        outline = self._outlined(tuple(shape for shape, _ in at), tuple(TO_TORCH[dtype(type_)] for _, type_ in at))
        return program_of(list(outline.outputs), outline.inputs)

    def operations(self, tensors: Sequence[torch.Tensor]) -> int:
        """Scalar operations of a call, counted exactly: what torch's FlopCounterMode is told."""
        program = self.program_at([(tuple(int(n) for n in tensor.shape), FROM_TORCH[tensor.dtype].name) for tensor in tensors])
        found = cost_of(program).operations
        return found if isinstance(found, int) else found()  # all shapes are numbers: there is no size to ask for

    def _check_differentiable(self, tensors: Sequence[torch.Tensor]) -> None:
        """Refuses a tensor that requires grad where there is none, before anything is computed."""
        outline, _ = self.outline(tensors)
        self._unruled = not outline.ruled
        if self._unruled:
            return
        heads = tuple(output.dtype.is_float for output in outline.outputs)
        specs = [Spec(tuple(t.shape), t.dtype) for t in (*outline.inputs, *(o for o in outline.outputs if o.dtype.is_float))]
        for position, (name, tensor) in enumerate(zip(self.names, tensors, strict=True)):
            if tensor.requires_grad and any(heads):
                wanted = tuple(position == other for other in range(len(tensors)))
                try:
                    self.operator.vjp(wanted, heads).trace(specs)
                except DifferentiationError as error:
                    raise ArgumentError(
                        f"{self.operator.name}: argument {name}: expected a tensor that needs no gradient, got one that requires grad: "
                        f"{error.message}",
                        location=user_location(),
                        hint=f"{name}.detach(), or call it under torch.no_grad()",
                    ) from error

    # --------------------------------------------------------------------------------------------------- signatures

    def outline(self, tensors: Sequence[torch.Tensor]) -> tuple[Outline, dict[str, Any]]:
        """What is known of the outputs for tensors, fake ones too, and torch's symbols for the open extents in it."""
        types = self._types(tensors)
        failure: Exception | None = None
        general: Pattern | None = None
        for pattern, symbols in patterns_of(tensors):
            general = general or pattern
            key = (pattern, types)
            try:
                found = self._outlines.find(key) or self._outlines.get(key, functools.partial(self._outlined, pattern, types))
            except Exception as error:
                # Perhaps not to be had with extents as open as these; whatever the user's function raises on numbers alone is its word.
                failure = error
                continue
            promised(general, pattern, symbols)
            if symbols:
                self._patterns.setdefault(types, {})[pattern] = None
            return found, symbols
        assert failure is not None
        raise failure

    def _outlined(self, pattern: Pattern, types: tuple[Any, ...]) -> Outline:
        specs = [
            Spec(tuple(dim(n) if isinstance(n, str) else n for n in shape), FROM_TORCH[type_])
            for shape, type_ in zip(pattern, types, strict=True)
        ]
        inputs, outputs, form = self.operator.nested(specs)
        self.forms[len(outputs)] = () if form == (None,) * len(outputs) else form
        at = [(shape, FROM_TORCH[type_].name) for shape, type_ in zip(pattern, types, strict=True)]
        return Outline(inputs, outputs, has_rules(outputs), at)

    def _types(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.dtype, ...]:
        for name, tensor in zip(self.names, tensors, strict=True):
            if tensor.is_nested:
                raise self._error(
                    name, "expected a tensor of one shape, got a nested one", hint="call it on each of its tensors (.unbind())"
                )
            if tensor.dtype not in FROM_TORCH:
                known = ", ".join(str(one) for one in FROM_TORCH)
                raise self._error(name, f"expected a dtype of the language, got {tensor.dtype}", hint=f"one of {known}")
        return tuple(tensor.dtype for tensor in tensors)

    def shapes(self, tensors: Sequence[torch.Tensor]) -> list[tuple[tuple[Any, ...], torch.dtype]]:
        """Shapes, perhaps with symbols in them, and types of the outputs."""
        outline, symbols = self.outline(tensors)
        return [(tuple(extent_value(n, symbols) for n in output.extents), TO_TORCH[output.dtype]) for output in outline.outputs]

    def kernel(self, tensors: Sequence[torch.Tensor]) -> Kernel:
        """The compiled signature of plain tensors."""
        key = tuple(part for tensor in tensors for part in (tensor.shape, tensor.dtype, tensor.device))
        found = self._find(key)
        return self._kernels.get(key, lambda: self._make(tensors)) if found is None else found

    def _make(self, tensors: Sequence[torch.Tensor]) -> Kernel:
        device = self._device(tensors)
        target = self.target or _TARGETS[device.type]
        outline, _ = self.outline(tensors)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        with on_stream(device):
            function = self._open_function(shapes, tuple(t.dtype for t in tensors), target, device) or build(
                outline.outputs, outline.inputs, target
            )
            layout = function.layout(shapes)
        self._functions[function] = None
        read = _read(outline)
        if self._gradient_of is not None:
            source, wanted = self._gradient_of
            given = len(source.names)
            if not all(read[:given]):
                source.spares[(wanted, *_signature(tensors[:given]))] = read[:given]
        models = models_of(layout, device)
        if function.plan is not None and device.type == "cpu":
            with self._lock:
                self._native.link(function.plan, tensors, read, models)
        return kernel_of(function, layout, models, device, read)

    def _open_function(self, shapes: Any, types: tuple[Any, ...], target: str, device: torch.device) -> CompiledFunction | None:
        """The function with open extents that a graph was made for, where there is one for these shapes."""
        pattern = next((pattern for pattern in tuple(self._patterns.get(types, ())) if fits(pattern, shapes)), None)
        if pattern is None:
            return None
        outline = self._outlines.get((pattern, types), lambda: self._outlined(pattern, types))
        return self._opened.get((pattern, types, target, device), lambda: build(outline.outputs, outline.inputs, target))

    def _device(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        """The one device of the tensors; refuses several, and others than those that there is code for."""
        first: tuple[str, torch.device] | None = None
        for name, tensor in zip(self.names, tensors, strict=True):
            if tensor.layout is not torch.strided:
                raise self._error(
                    name, f"expected a strided tensor, got one of layout {tensor.layout}", hint=f"{name}.to_dense() makes one"
                )
            if tensor.device.type not in _TARGETS:
                raise self._error(name, f"expected a tensor on the CPU or a CUDA device, got one on {tensor.device}")
            if first is None:
                first = name, tensor.device
            elif tensor.device != first[1]:
                raise self._error(
                    name,
                    f"expected a tensor on {first[1]}, as {first[0]} is, got one on {tensor.device}",
                    hint=f"{name}.to({str(first[1])!r}) copies it there",
                )
        return torch.device("cpu") if first is None else first[1]

    def _error(self, name: str, message: str, *, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{self.operator.name}: argument {name}: {message}", location=user_location(), hint=hint)


def _is_distributed(tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ == "DTensor"


def of_op(operation: Op, trees: Sequence[Any], static: dict[str, Any], target: str | None) -> TorchOperator:
    """The operator of an op for arguments that nest as `trees` do."""
    return TorchOperator(Origin(operation, trees, static, target), Operator.of(operation, trees, static))


OPERATORS: Any = Operators(lambda text: operator_of(text, of_op))
setattr(torch.ops, NAMESPACE, OPERATORS)


def _signature(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [part for tensor in tensors for part in (tensor.shape, tensor.dtype)]


def _read(outline: Outline) -> Mask:
    """Which inputs the outputs are computed from."""
    program = program_of(list(outline.outputs), outline.inputs)
    used = {name for definition in program.definitions for name in reads(definition)} | set(program.outputs)
    return tuple(given.name in used for given in program.inputs)
