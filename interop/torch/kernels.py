"""Compiled functions on torch tensors: from data pointer to data pointer, without arrays in between.

On a GPU results and workspace come from torch's allocator, so that it knows of them and of the stream they are made on. On a CPU large ones
are blocks of ours, which calls use again: new memory is cleared page by page, in as much time as many a kernel takes.
What is not contiguous is copied by torch. On a GPU the kernels are launched on torch's current stream of the device of the tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tensorexpr.codegen.compiled.arguments import Layout
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.cuda.thread.packs import ALIGNMENT as PACKED
from tensorexpr.codegen.llvm.process.call import empty
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.dtypes import dtype
from tensorexpr.interop.torch.dtypes import TO_TORCH
from tensorexpr.interop.torch.native import Result

Tensors = Sequence[torch.Tensor]
Kernel = Callable[[Tensors], tuple[torch.Tensor, ...]]
_BYTES = np.dtype(np.uint8)


def models_of(layout: Layout, device: torch.device) -> list[torch.Tensor]:
    """Tensors after which results are made."""
    return [_model(shape, TO_TORCH[dtype(type_)], device) for shape, type_ in layout.outputs]


def kernel_of(
    function: CompiledFunction, layout: Layout, models: Sequence[torch.Tensor], device: torch.device, read: Sequence[bool]
) -> Kernel:
    """A compiled function as a function of tensors of one signature, which is not checked again. Only inputs in `read` are looked at."""
    make = _gpu_kernel if isinstance(function, GpuFunction) else _cpu_kernel
    kernel = make(function, layout, models, device)
    if all(read):
        return kernel
    nothing = torch.empty(1, dtype=torch.uint8, device=device)
    return lambda tensors: kernel([tensor if used else nothing for tensor, used in zip(tensors, read, strict=True)])


def _model(shape: tuple[int, ...], type_: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of no memory to speak of, after which results are made: sooner done than by shape and dtype."""
    with torch.inference_mode(False):
        model = torch.empty((), dtype=type_, device=device).expand(shape)
    return model if torch.empty_like(model).is_contiguous() else torch.empty(shape, dtype=type_, device=device)


def _cpu_kernel(function: CompiledFunction, layout: Layout, models: Sequence[torch.Tensor], device: torch.device) -> Kernel:
    enter, made = function.entry(layout), [Result(model) for model in models]
    space = layout.workspace + ALIGNMENT if layout.workspace else 0

    def run(tensors: Tensors) -> tuple[torch.Tensor, ...]:
        addresses = []
        copies = []  # alive until the end
        for tensor in tensors:
            if not tensor.is_contiguous() or tensor.is_neg() or not tensor.data_ptr():
                tensor = written(tensor.contiguous())
                copies.append(tensor)
            addresses.append(tensor.data_ptr())
        results = tuple([result.make() for result in made])
        places = [result.data_ptr() for result in results]
        if space:
            block = workspace(space, device)
            enter(addresses, places, block.data_ptr())
        else:
            enter(addresses, places)
        return results

    return run


def written(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its elements in memory: negated where it is to be, zeros where it has no memory, as tangents in forward mode."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_neg()


def workspace(size: int, device: torch.device) -> torch.Tensor:
    """So many bytes for one call."""
    if device.type == "cpu":
        return torch.from_numpy(empty((size,), _BYTES))
    return torch.empty(size, dtype=torch.uint8, device=device)


def _gpu_kernel(function: CompiledFunction, layout: Layout, models: Sequence[torch.Tensor], device: torch.device) -> Kernel:
    enter = function.entry(layout)

    def run(tensors: Tensors) -> tuple[torch.Tensor, ...]:
        inputs = [_packed(written(t.contiguous())) for t in tensors]
        results = tuple([torch.empty_like(model) for model in models])
        block = workspace(layout.workspace, device)
        with on_stream(device):
            enter([t.data_ptr() for t in inputs], [t.data_ptr() for t in results], block.data_ptr())
        return results

    return run


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that begins where kernels may read several elements at once."""
    return tensor.clone() if tensor.data_ptr() % PACKED else tensor


@contextlib.contextmanager
def on_stream(device: torch.device) -> Iterator[None]:
    """Makes a GPU of torch the current one of CuPy, and torch's current stream there the current stream."""
    if device.type != "cuda":
        yield
        return
    import cupy  # noqa: PLC0415 -- half a second, and an extra

    stream = torch.cuda.current_stream(device)
    external: Any = getattr(cupy.cuda.Stream, "from_external", None) if hasattr(stream, "__cuda_stream__") else None
    with cupy.cuda.Device(device.index), external(stream) if external else cupy.cuda.ExternalStream(stream.cuda_stream):
        yield
