"""Compiled functions of arrays on a GPU.

A call takes arrays of the device as they are (those of other libraries by the interfaces they share), checks them against the
signature, allocates results and workspace from the device's pool and launches every kernel on the caller's current stream; it does
not wait. Where an index depends on data, the first one outside of its tensor is noted by the kernel, and raised when a result is used, by
the next call or at `te.synchronize()` (`cuda.reports`). Nothing else is shared between calls but read-only data.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tensorexpr.codegen.compiled.arguments import Arguments, Layout, Parameter, Signature, shape_text
from tensorexpr.codegen.compiled.context import Context, Symbol
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.versions import Entry
from tensorexpr.codegen.cost import Cost
from tensorexpr.codegen.cuda.launch.device import Device, Kernels
from tensorexpr.codegen.cuda.launch.reports import Pending
from tensorexpr.codegen.cuda.launch.run import REPORT, Ready, made_ready
from tensorexpr.codegen.cuda.launch.uploads import uploaded
from tensorexpr.codegen.cuda.nvidia.nvrtc import Compiled, Resources
from tensorexpr.codegen.cuda.thread.packs import ALIGNMENT
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT as WORKSPACE_ALIGNMENT
from tensorexpr.codegen.nest import Buffer, LoopNest
from tensorexpr.codegen.profiling import Profile
from tensorexpr.errors import ArgumentError, TargetError, user_location
from tensorexpr.hints import suggestion
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Program
from tensorexpr.records import replace

STAGES = ("nest", "cuda", "ptx", "sass")
_APART = 256
_BYTES = np.dtype(np.uint8)
MOST_LAYOUTS = 64
"""Sizes for which a thread keeps launches ready."""


class GpuFunction(CompiledFunction):
    """A compiled function of arrays on a device: `f(*arrays, out=None)`, as `CompiledFunction` on the CPU.

    Raises `ArgumentError` for arguments that do not fit or lie elsewhere, `OutOfBoundsError` for a data-dependent index outside of its
    tensor, `TargetError` for a stage of the source that is not to be had here.
    """

    target = "cuda"

    def __init__(
        self,
        code: GpuCode,
        device: Device,
        signature: Signature,
        order: tuple[int, ...] | None = None,
        symbols: tuple[Symbol, ...] | None = None,
    ) -> None:
        """As `CompiledFunction`."""
        if order is not None:
            places = {position: k for k, position in enumerate(order)}
            signature = replace(signature, inputs=tuple(signature.inputs[places[k]] for k in range(len(order))))
        self.signature = signature
        self._symbols = symbols
        self._bare = signature.single
        self._code: Callable[[], GpuCode] = lambda: code
        self._device = device
        self._order = order
        self._compiled: Compiled | None = None if device.arch is None else code.compiled(device.arch)
        nest = code.nest
        self._sizes, self._buffers = nest.sizes, nest.workspace
        self._parameters = tuple(b.name for b in nest.parameters)
        self._checks = nest.checks
        self._steps = code.source.plan
        self._arguments = Arguments(signature, self._workspace_bytes)
        self._find_layout = self._arguments.find_layout
        self._cost: Cost | None = None
        self.plan = None
        with device.entered():
            self._kernels: Kernels = device.load(code.source, self._compiled)
            self._constants = [uploaded(device, c) for c in nest.constants]
        self._fixed = [device.address(array) for array in self._constants]
        names = (*self._parameters, *(c.name for c in nest.constants), *(b.name for b in nest.workspace), REPORT)
        self._places = {name: k for k, name in enumerate(names)}
        self._of_thread = threading.local()
        self._wanted = [(p, p.dtype.numpy, len(p.shape)) for p in signature.inputs]
        self.constants = {c.name: c.data for c in nest.constants}
        self._reports = any(launch.reports for launch in code.source.launches)
        self._captured: list[Any] = []
        """Memory that graphs work in."""
        self._uses = device.uses()
        weakref.finalize(self, device.keep, self._uses, (self._kernels, self._constants, self._captured)).atexit = False

    def remade(self, again: Callable[[], GpuCode]) -> GpuFunction:
        """The function, which from now on does not hold its stages but makes them once more when someone looks at them."""
        self._code = cache(again)
        return self

    # ------------------------------------------------------------------------------------------------------ calls

    def call(self, *arrays: Any, out: Any = None, **keywords: Any) -> Any:
        """Computes the outputs of the arrays."""
        if keywords:
            raise self._arguments.named(keywords)
        results = self._computed(arrays, None if out is None else self._arguments.targets(out), None)
        return results[0] if self.signature.single else tuple(results)

    __call__ = call

    def upload(self, array: np.ndarray) -> Any:
        """A copy of an array of NumPy's on the device of this function."""
        with self._device.entered():
            return self._device.upload(np.ascontiguousarray(array))

    def _computed(self, arrays: Sequence[Any], out: Sequence[Any] | None, context: Context | None) -> list[Any]:
        with self._device.entered():
            return self._computed_there(arrays, out, context)

    def _computed_there(self, arrays: Sequence[Any], out: Sequence[Any] | None, context: Context | None) -> list[Any]:
        own: list[Any] = []  # memory of this call alone
        found = [self._input(*wanted, a, own) for wanted, a in zip(self._wanted, self._counted(arrays), strict=True)]
        layout = self._arguments.layout(tuple([tuple(array.shape) for array, _ in found]))
        results, views, returned = self._results(out, layout, found)
        workspace, block = 0, None
        if layout.workspace:
            given = self.block(layout.workspace) if context is None else context.memory(layout.workspace, self.block)
            own.append(given)
            block = self._device.array(given)
            if block is None:
                raise self._error(f"workspace: expected an array on {self._device.name}, got a {type(given).__name__}")
            workspace = self._device.address(block)
            workspace += -workspace % WORKSPACE_ALIGNMENT if context is not None else 0
        pending = self._enter([address for _, address in found], [self._device.address(array) for array in results], layout, workspace)
        if out is not None:
            for view, result in zip(views, results, strict=True):
                if view is not result:
                    own.append(result)
                    view[...] = result
        stream = self._kernels.stream()
        if own and self._device.capturing(stream):
            self._captured.append(own)
        self._device.follow(arrays, stream, written=False)
        if out is not None:
            self._device.follow([target for target in out if target is not None], stream, written=True)
        if out is not None or pending is None:
            return returned
        return [self._device.checked(array, pending) for array in returned]

    def _counted(self, arrays: Sequence[Any]) -> Sequence[Any]:
        inputs = self.signature.inputs
        if len(arrays) != len(inputs):
            names = ", ".join(p.name for p in inputs) or "none"
            raise self._error(f"expected {len(inputs)} argument{'' if len(inputs) == 1 else 's'} ({names}), got {len(arrays)}")
        return arrays

    def _input(self, parameter: Parameter, dtype: np.dtype, rank: int, value: Any, own: list[Any]) -> tuple[Any, int]:
        """An argument as an array that a kernel takes, and where it begins; one that was made for that goes to `own`."""
        device = self._device
        given = array = device.array(value)
        if array is None and isinstance(value, bool | int | float) and not rank:
            array = device.scalar(self._arguments._from_scalar(parameter, dtype, value))
        if array is None:
            there = f"an array on {device.name}"
            hint = "cupy.asarray(...) copies one there" if isinstance(value, np.ndarray) else None
            raise self._error(f"argument {parameter.name}: expected {there}, got a {type(value).__name__}", hint=hint)
        self._check_place(f"argument {parameter.name}", array)
        if array.dtype != dtype:
            raise self._error(
                f"argument {parameter.name}: expected dtype {parameter.dtype.name}, got {array.dtype.name}",
                hint=f"nothing is cast silently: {parameter.name}.astype({parameter.dtype.name!r})",
            )
        if array.ndim != rank:
            axes = f"{rank} {'axis' if rank == 1 else 'axes'}"
            raise self._error(f"argument {parameter.name}: expected {axes}, got {array.ndim} (shape {shape_text(array.shape)})")
        array = device.contiguous(array)
        address = device.address(array)
        if address % ALIGNMENT:
            array = device.copy(array)
            address = device.address(array)
        if array is not given:
            own.append(array)
        return array, address

    def _results(self, out: Sequence[Any] | None, layout: Layout, inputs: list[tuple[Any, int]]) -> tuple[list[Any], list[Any], list[Any]]:
        """Arrays to compute into, arrays of the device that are to hold it in the end, and what to return; None in `out` is a new one."""
        device = self._device
        if out is None:
            made = [device.empty(shape, type_) for shape, type_ in layout.outputs]
            return made, made, made
        targets = [device.empty(*made) if t is None else t for t, made in zip(out, layout.outputs, strict=True)]
        direct, views = [], []
        taken = [(start, start + array.nbytes) for array, start in inputs]
        for parameter, (shape, type_), target in zip(self.signature.outputs, layout.outputs, targets, strict=True):
            label = "out" if self.signature.single else f"out {parameter.name}"
            array = device.array(target)
            if array is None:
                raise self._error(f"{label}: expected an array on {device.name}, got a {type(target).__name__}")
            self._check_place(label, array)
            if array.dtype != type_:
                raise self._error(f"{label}: expected dtype {parameter.dtype.name}, got {array.dtype.name}")
            if tuple(array.shape) != shape:
                raise self._error(f"{label}: expected shape {shape_text(shape)}, got {shape_text(array.shape)}")
            if not getattr(array.flags, "writeable", True):
                raise self._error(f"{label}: expected a writeable array, got a read-only one")
            low, high = self._span(array)
            for other, (start, stop) in enumerate(taken):
                if low < stop and start < high:
                    raise self._error(f"{label}: expected memory of its own, got an array that overlaps {self._label(other)}")
            taken.append((low, high))
            fits = array.flags.c_contiguous and low % ALIGNMENT == 0
            direct.append(array if fits else device.empty(shape, type_))
            views.append(array)
        return direct, views, targets

    def _check_place(self, label: str, array: Any) -> None:
        place, name = self._device.place(array), self._device.name
        if place != name:
            raise self._error(
                f"{label}: expected an array on {name}, which the function was compiled on, got one on {place}",
                hint=f"copy it to {name}, or compile the function while {place} is the current device",
            )

    def _span(self, array: Any) -> tuple[int, int]:
        """The addresses between which the elements of an array lie."""
        start = self._device.address(array)
        if array.flags.c_contiguous or not array.size:
            return start, start + array.nbytes
        reach = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize

    def _label(self, position: int) -> str:
        """What errors call an argument, or behind all arguments a result."""
        inputs, outputs = self.signature.inputs, self.signature.outputs
        return f"argument {inputs[position].name}" if position < len(inputs) else f"out {outputs[position - len(inputs)].name}"

    def block(self, size: int) -> Any:
        """Memory of the device for activations."""
        with self._device.entered():
            return self._device.empty((size,), _BYTES)

    def own(self, array: np.ndarray) -> Any:
        """A copy of an array on the device."""
        with self._device.entered():
            return self._device.upload(array)

    def assign(self, target: Any, value: Any) -> None:
        """Writes the elements of an array of the device into another one."""
        with self._device.entered():
            self._device.array(target)[...] = value

    def enter(self, inputs: Sequence[int], outputs: Sequence[int], layout: Layout, workspace: int = 0) -> None:
        """Launches on memory that the caller holds, all of it aligned to sixteen bytes, on the current stream: see `CompiledFunction`. What
        checks find on a GPU is raised later: see the module."""
        with self._device.entered():
            self._enter(inputs, outputs, layout, workspace)

    def _enter(self, inputs: Sequence[int], outputs: Sequence[int], layout: Layout, workspace: int = 0) -> Pending | None:
        device, stream = self._device, self._kernels.stream()
        device.poll(stream)
        offsets, launches = self._launches(layout)
        ordered = inputs if self._order is None else [inputs[k] for k in self._order]
        addresses = [*ordered, *outputs, *self._fixed, *[workspace + offset for offset in offsets]]
        report = device.report(stream) if self._reports else None
        if report is not None:
            addresses.append(report.address)
        try:
            for launch in launches():
                launch(addresses, stream)
        except BaseException:
            if report is not None:
                report.dropped()
            raise
        finally:
            self._uses.on(stream)
        return None if report is None else report.sent(self.failure)

    def settle(self) -> None:
        if self._reports:
            self._device.settle()

    def _launches(self, layout: Layout) -> tuple[list[int], Callable[[], Iterable[Ready]]]:
        """Where the buffers of the workspace begin, and the launches, for some sizes: worked out once in each thread."""
        known: dict[tuple[int, ...], Any] | None = getattr(self._of_thread, "known", None)
        if known is None:
            known = self._of_thread.known = {}
        found = known.get(layout.sizes)
        if found is None:
            scalars = dict(zip(self._sizes, layout.sizes, strict=True))
            offsets, offset = [], 0
            for buffer in self._buffers:
                offsets.append(offset)
                offset += self._bytes(buffer, scalars)
            if len(known) >= MOST_LAYOUTS:
                known.clear()
            found = known[layout.sizes] = offsets, made_ready(self._steps, self._kernels, self._places, scalars)
        return found

    def entry(self, layout: Layout) -> Entry:
        """Launches for one layout: see `CompiledFunction`."""
        return lambda inputs, outputs, workspace=0: self.enter(inputs, outputs, layout, workspace)

    def _bytes(self, buffer: Buffer, sizes: Mapping[str, int]) -> int:
        """The bytes of the workspace that a buffer takes, with what keeps the next one aligned."""
        size = prod(extent_value(e, sizes) for e in buffer.shape) * buffer.dtype.itemsize
        return -(-size // _APART) * _APART

    def _workspace_bytes(self, sizes: Sequence[int]) -> int:
        scalars = dict(zip(self._sizes, sizes, strict=True))
        return sum(self._bytes(buffer, scalars) for buffer in self._buffers)

    def _error(self, message: str, *, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{self._arguments.known_as}: {message}", term=self.signature, location=user_location(), hint=hint)

    # --------------------------------------------------------------------------------------------- a look inside

    @property
    def code(self) -> GpuCode:
        """The stages on the way to kernels."""
        return self._code()

    @property
    def architecture(self) -> str | None:
        """The GPU that the kernels were compiled for, as NVRTC names it; None where they run on a CPU."""
        return self._device.arch

    @property
    def program(self) -> Program:
        """The program that was compiled, simplified."""
        return self._code().program

    @property
    def schedule(self) -> Schedule:
        """How the program is computed."""
        return self._code().schedule

    @property
    def nest(self) -> LoopNest:
        """The loops that the schedule was lowered to."""
        return self._code().nest

    @property
    def resources(self) -> dict[str, Resources]:
        """Registers, stack, spills and shared memory of every kernel by name; empty where the kernels run on a CPU."""
        return {} if self._compiled is None else dict(self._compiled.resources)

    def profile(self, *arrays: Any, seconds: float = 0.5) -> Profile:
        """Refused: the clock is read between kernels of a CPU. Raises `TargetError`."""
        raise TargetError(
            f"{self.name}: expected a function for the CPU to profile, got one for a GPU",
            location=user_location(),
            hint="Nsight Systems and the profilers of PyTorch and JAX show its kernels by name",
        )

    def source(self, stage: str = "cuda") -> str:
        """The code at a stage: "nest", "cuda", "ptx", or "sass" (where cuobjdump is installed)."""
        match stage:
            case "nest":
                return str(self.nest)
            case "cuda":
                return self._code().source.text
            case "ptx" | "sass" if self._compiled is not None:
                return self._compiled.ptx if stage == "ptx" else self._compiled.sass()
            case "ptx" | "sass":
                raise TargetError(f"expected a GPU for the stage {stage!r}, got kernels that run on a CPU", location=user_location())
        raise TargetError(
            f"expected a stage, one of {', '.join(STAGES)}, got {stage!r}", location=user_location(), hint=suggestion(stage, STAGES)
        )
