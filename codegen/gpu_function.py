"""Compiled functions of arrays on a GPU.

A call takes arrays of the device as they are (those of other libraries by the interfaces they share), checks them against the
signature, allocates results and workspace from the device's pool and launches every kernel on the caller's current stream; it does
not wait. Where an index hangs on data, the first one outside of its tensor is noted by the kernel, and the call waits for the
kernels and raises what was noted. Nothing is shared between calls but read-only data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tensorexpr.codegen.arguments import Arguments, Layout, Signature, extent_value, shape_text
from tensorexpr.codegen.context import Context, Symbol
from tensorexpr.codegen.cost import Cost
from tensorexpr.codegen.cuda.build import GpuCode
from tensorexpr.codegen.cuda.device import Device, Kernels
from tensorexpr.codegen.cuda.nvrtc import Compiled, Resources
from tensorexpr.codegen.cuda.packs import ALIGNMENT
from tensorexpr.codegen.cuda.run import run_plan
from tensorexpr.codegen.cuda.uploads import uploaded
from tensorexpr.codegen.function import CompiledFunction, Entry
from tensorexpr.codegen.llvm.abi import ALIGNMENT as WORKSPACE_ALIGNMENT
from tensorexpr.codegen.nest import Buffer, LoopNest
from tensorexpr.codegen.schedule import Schedule
from tensorexpr.errors import ArgumentError, TargetError, user_location
from tensorexpr.ir import Program
from tensorexpr.records import replace

STAGES = ("nest", "cuda", "ptx", "sass")
_APART = 256
_BYTES = np.dtype(np.uint8)


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
        again: Callable[[], GpuCode] | None = None,
    ) -> None:
        """As `CompiledFunction`; with `again` the stages are not held but made once more when someone looks at them."""
        if order is not None:
            places = {position: k for k, position in enumerate(order)}
            signature = replace(signature, inputs=tuple(signature.inputs[places[k]] for k in range(len(order))))
        self.signature = signature
        self._symbols = symbols
        self._bare = signature.single
        self._code: Callable[[], GpuCode] = cache(again) if again is not None else lambda: code
        self._device = device
        self._order = order
        nest = code.nest
        self._sizes, self._buffers = nest.sizes, nest.workspace
        self._parameters = tuple(b.name for b in nest.parameters)
        self._checks = nest.checks
        self._steps = code.source.plan
        self._arguments = Arguments(signature, self._workspace_bytes)
        self._find_layout = self._arguments.find_layout
        self._cost: Cost | None = None
        self.plan = None
        self._compiled: Compiled | None = None if device.arch is None else code.compiled(device.arch)
        self._kernels: Kernels = device.load(code.source, self._compiled)
        self._constants = [(c.name, uploaded(device, c)) for c in nest.constants]
        self.constants = {c.name: c.data for c in nest.constants}
        self._reports = any(launch.reports for launch in code.source.launches)

    # ------------------------------------------------------------------------------------------------------ calls

    def call(self, *arrays: Any, out: Any = None) -> Any:
        """Computes the outputs of the arrays."""
        results = self._computed(arrays, None if out is None else self._arguments.targets(out), None)
        return results[0] if self.signature.single else tuple(results)

    __call__ = call

    def upload(self, array: np.ndarray) -> Any:
        """A copy of an array of NumPy's on the device of this function."""
        return self._device.upload(np.ascontiguousarray(array))

    def _computed(self, arrays: Sequence[Any], out: Sequence[Any] | None, context: Context | None) -> list[Any]:
        inputs = [self._input(k, a) for k, a in enumerate(self._counted(arrays))]
        layout = self._arguments.layout(tuple(tuple(a.shape) for a in inputs))
        results, returned = self._results(out, layout, inputs)
        self._launch(inputs, results, layout, context)
        for target, result in zip(returned, results, strict=True):
            if target is not result:
                target[...] = result
        return returned

    def _counted(self, arrays: Sequence[Any]) -> Sequence[Any]:
        inputs = self.signature.inputs
        if len(arrays) != len(inputs):
            names = ", ".join(p.name for p in inputs) or "none"
            raise self._error(f"expected {len(inputs)} argument{'' if len(inputs) == 1 else 's'} ({names}), got {len(arrays)}")
        return arrays

    def _input(self, position: int, value: Any) -> Any:
        parameter, device = self.signature.inputs[position], self._device
        array = device.array(value)
        if array is None and isinstance(value, bool | int | float) and not parameter.shape:
            array = device.upload(self._arguments._from_scalar(parameter, parameter.dtype.numpy, value))
        if array is None:
            there = f"an array on {device.name}"
            hint = "cupy.asarray(...) copies one there" if isinstance(value, np.ndarray) else None
            raise self._error(f"argument {parameter.name}: expected {there}, got a {type(value).__name__}", hint=hint)
        if array.dtype != parameter.dtype.numpy:
            raise self._error(
                f"argument {parameter.name}: expected dtype {parameter.dtype.name}, got {array.dtype.name}",
                hint=f"nothing is cast silently: {parameter.name}.astype({parameter.dtype.name!r})",
            )
        if array.ndim != len(parameter.shape):
            count = len(parameter.shape)
            axes = f"{count} {'axis' if count == 1 else 'axes'}"
            raise self._error(f"argument {parameter.name}: expected {axes}, got {array.ndim} (shape {shape_text(array.shape)})")
        array = device.contiguous(array)
        return array if device.address(array) % ALIGNMENT == 0 else device.copy(array)

    def _results(self, out: Sequence[Any] | None, layout: Layout, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        """Arrays to compute into, and arrays to return; None in `out` is a new one."""
        device = self._device
        if out is None:
            made = [device.empty(shape, type_) for shape, type_ in layout.outputs]
            return made, made
        targets = [device.empty(*made) if t is None else t for t, made in zip(out, layout.outputs, strict=True)]
        direct = []
        taken = [(f"argument {p.name}", self._span(a)) for p, a in zip(self.signature.inputs, inputs, strict=True)]
        for parameter, (shape, type_), target in zip(self.signature.outputs, layout.outputs, targets, strict=True):
            label = "out" if self.signature.single else f"out {parameter.name}"
            array = device.array(target)
            if array is None:
                raise self._error(f"{label}: expected an array on {device.name}, got a {type(target).__name__}")
            if array.dtype != type_:
                raise self._error(f"{label}: expected dtype {parameter.dtype.name}, got {array.dtype.name}")
            if tuple(array.shape) != shape:
                raise self._error(f"{label}: expected shape {shape_text(shape)}, got {shape_text(array.shape)}")
            if not getattr(array.flags, "writeable", True):
                raise self._error(f"{label}: expected a writeable array, got a read-only one")
            low, high = self._span(array)
            for name, (start, stop) in taken:
                if low < stop and start < high:
                    raise self._error(f"{label}: expected memory of its own, got an array that overlaps {name}")
            taken.append((label, (low, high)))
            fits = array.flags.c_contiguous and device.address(array) % ALIGNMENT == 0
            direct.append(array if fits else device.empty(shape, type_))
        return direct, targets

    def _span(self, array: Any) -> tuple[int, int]:
        """The addresses between which the elements of an array lie."""
        start = self._device.address(array)
        if not array.size:
            return start, start
        reach = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + array.itemsize

    def _launch(self, inputs: list[Any], results: list[Any], layout: Layout, context: Context | None) -> None:
        device = self._device
        workspace, block = 0, None
        if layout.workspace:
            block = self.block(layout.workspace) if context is None else context.memory(layout.workspace, self.block)
            workspace = device.address(block)
        if context is not None:
            workspace += -workspace % WORKSPACE_ALIGNMENT
        addresses = [device.address(array) for array in inputs]
        self.enter(addresses, [device.address(array) for array in results], layout, workspace)

    def block(self, size: int) -> Any:
        """Memory of the device for activations."""
        return self._device.empty((size,), _BYTES)

    def own(self, array: np.ndarray) -> Any:
        """A copy of an array on the device."""
        return self._device.upload(array)

    def assign(self, target: Any, value: Any) -> None:
        """Writes the elements of an array of the device into another one."""
        self._device.array(target)[...] = value

    def enter(self, inputs: Sequence[int], outputs: Sequence[int], layout: Layout, workspace: int = 0) -> None:
        """Launches on memory that the caller holds, all of it aligned to sixteen bytes, on the current stream: see `CompiledFunction`."""
        device = self._device
        scalars = dict(zip(self._sizes, layout.sizes, strict=True))
        ordered = inputs if self._order is None else [inputs[k] for k in self._order]
        buffers = dict(zip(self._parameters, (*ordered, *outputs), strict=True))
        buffers.update((name, device.address(a)) for name, a in self._constants)
        for b in self._buffers:
            buffers[b.name] = workspace
            workspace += self._bytes(b, scalars)
        report = None
        if self._reports:
            report = device.empty((3,), np.dtype(np.int64))
            device.clear(report)
        run_plan(self._steps, self._kernels, buffers, scalars, 0 if report is None else device.address(report))
        if report is not None:
            check, index, extent = (int(n) for n in device.read(report))
            if check:
                raise self.failure(check - 1, index, extent)

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
        return ArgumentError(f"{self.signature.name}: {message}", term=self.signature, location=user_location(), hint=hint)

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
        raise TargetError(f"expected a stage, one of {', '.join(STAGES)}, got {stage!r}", location=user_location())
