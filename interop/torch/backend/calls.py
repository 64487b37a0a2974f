"""Compiled regions on torch tensors: from data pointers to data pointers.

Where all extents are numbers, a call of tensors that lie as the graph was made for never enters Python between torch and the kernel
(`interop.torch.native`). All others come here: tensors that lie otherwise are copied, sizes are read from shapes. Results have the strides
that the graph promises, and, on the CPU, memory of ours if they are large: what was saved for the way back leaves no holes behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensorexpr.codegen.compiled.arguments import Layout
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.compiled.versions import Entry
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.interop.torch.backend.sizes import Memory
from tensorexpr.interop.torch.kernels import on_stream, workspace
from tensorexpr.interop.torch.native import NativeCalls, Result


class Region:
    """A compiled program on torch tensors: `call(*tensors, *sizes)` gives a tuple of results.

    `inputs` and `outputs` say how tensors lie; `sizes` how many integers follow the tensors, for open extents that no shape tells.
    """

    def __init__(
        self,
        function: CompiledFunction,
        inputs: Sequence[Memory],
        outputs: Sequence[Memory],
        types: Sequence[torch.dtype],
        sizes: int,
        device: torch.device,
    ) -> None:
        self.function = function
        self._inputs, self._outputs, self._types = tuple(inputs), tuple(outputs), tuple(types)
        self._sizes, self._device = sizes, device
        self._native = NativeCalls()
        self._entries: dict[tuple[tuple[int, ...], ...], tuple[Layout, Entry]] = {}

    def caller(self, name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The function that graphs call."""
        native, general = self._native, self._general

        def region(*given: Any) -> tuple[torch.Tensor, ...]:
            run = native.run
            if run is not None:
                found: tuple[torch.Tensor, ...] | None = run(*given)
                if found is not None:
                    return found
            return general(given)

        region.__name__ = region.__qualname__ = name
        return region

    def _general(self, given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        count = len(self._inputs)
        tensors = [memory.fitted(tensor) for memory, tensor in zip(self._inputs, given, strict=False)]
        shapes = tuple(
            [
                tuple(tensor.shape) if memory.plain else tuple([tensor.shape[k] for k in memory.order])
                for memory, tensor in zip(self._inputs, tensors, strict=True)
            ]
        )
        shapes += tuple([(int(size),) for size in given[count:]])
        found = self._entries.get(shapes)
        if found is None:
            layout = self.function.layout(shapes)
            found = self._entries[shapes] = layout, self.function.entry(layout)
        layout, enter = found
        results = tuple(
            [
                self._result(memory, shape, type_)
                for memory, (shape, _), type_ in zip(self._outputs, layout.outputs, self._types, strict=True)
            ]
        )
        addresses = [tensor.data_ptr() for tensor in tensors] + [0] * self._sizes
        places = [result.data_ptr() for result in results]
        if layout.workspace:
            block = workspace(layout.workspace + ALIGNMENT, self._device)
            run: Callable[[], None] = lambda: enter(addresses, places, block.data_ptr())  # noqa: E731
        else:
            run = lambda: enter(addresses, places)  # noqa: E731
        if self._device.type == "cpu":
            run()
        else:
            with on_stream(self._device):
                run()
        if self.function.plan is not None and self._native.run is None and not self._sizes and self._device.type == "cpu":
            self._link(given)
        return results

    def _result(self, memory: Memory, physical: Sequence[int], type_: torch.dtype) -> torch.Tensor:
        shape: Sequence[int] = physical
        if not memory.plain:
            extents = dict(zip(memory.order, physical, strict=True))
            shape = tuple(extents.get(k, 1) for k in range(len(memory.shape)))
        if self._device.type == "cpu":
            return Result(torch.empty_strided(shape, memory.strides(shape), dtype=type_, device="meta")).make()
        return torch.empty_strided(shape, memory.strides(shape), dtype=type_, device=self._device)

    def _link(self, given: Sequence[torch.Tensor]) -> None:
        """Has calls like this one go straight to the code from now on."""
        if any(tensor.is_neg() or type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in given):
            return
        strides = [memory.strides(tensor.shape) for memory, tensor in zip(self._inputs, given, strict=True)]
        models = [_model(memory, type_, self._device) for memory, type_ in zip(self._outputs, self._types, strict=True)]
        plan = self.function.plan
        assert plan is not None
        self._native.link(plan, given, [True] * len(given), models, strides)


def _model(memory: Memory, type_: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor without memory after which a result is made (`torch.empty_like` keeps strides)."""
    with torch.inference_mode(False):
        model = torch.empty_strided(memory.shape, memory.strides(memory.shape), dtype=type_, device=device)
        model.untyped_storage().resize_(0)
    return model
