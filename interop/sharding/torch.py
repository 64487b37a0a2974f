"""DTensors: an op called on them runs on the shards.

The rules of an operator are derived from its program at the shapes of the whole, those of its gradient from the gradient's. For
arguments that lie as they do the plan that moves least is chosen. DTensor's own redistribution brings arguments to it. What a
part reads beyond its block comes from the neighbors in point-to-point messages (`exchange`), each element once. Results are
DTensors: split where a rule splits them, `Partial` where it makes addends, which the next operation or `.full_tensor()` combines.
The same is registered as the rule of our operators in torch's dispatcher for this class of tensors.

`traffic()` counts what the messages of `exchange` carry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import Partial as TorchPartial

from tensorexpr.codegen.compile import build_program
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.interop.sharding.plan import Layout, Plan, choose
from tensorexpr.interop.torch.definitions import operator_of
from tensorexpr.interop.torch.kernels import kernel_of, models_of, on_stream
from tensorexpr.interop.torch.library import rule_for
from tensorexpr.interop.torch.operator import of_op
from tensorexpr.sharding import WHOLE, Partial, Placement, Sharding, Split

COMBINERS = {"sum": "sum", "prod": "product", "max": "max", "min": "min"}
_FROM_TORCH = {name: ours for ours, name in COMBINERS.items()}


@dataclass
class Traffic:
    """Bytes that this process received from its neighbors, and in how many messages."""

    received: int = 0
    messages: int = 0


_COUNTING: list[Traffic] = []


@contextlib.contextmanager
def traffic() -> Iterator[Traffic]:
    """Counts the messages of `exchange` inside of it."""
    counted = Traffic()
    _COUNTING.append(counted)
    try:
        yield counted
    finally:
        _COUNTING.remove(counted)


class Shards:
    """An operator on DTensors: plans and compiled parts, by how the arguments lie."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        self._shardings: dict[Any, Sharding] = {}
        self._plans: dict[Any, Plan] = {}
        self._kernels: dict[Any, Any] = {}

    def call(self, tensors: Sequence[torch.Tensor]) -> tuple[DTensor, ...]:
        """The results on DTensors of one mesh, and numbers."""
        mesh = next(tensor.device_mesh for tensor in tensors if isinstance(tensor, DTensor))
        given = [self._distributed(name, tensor, mesh) for name, tensor in zip(self._operator.names, tensors, strict=True)]
        types = tuple((tuple(tensor.shape), tensor.dtype) for tensor in given)
        layouts = [tuple(_placement(one, tensor.ndim) for one in tensor.placements) for tensor in given]
        counts = tuple(mesh.shape)
        key = types, counts, tuple(layouts)
        plan = self._plans.get(key)
        if plan is None:
            sharding = self._shardings.get(types)
            if sharding is None:
                sharding = self._shardings[types] = Sharding(self._operator.program_at([(s, _name(t)) for s, t in types]))
            plan = self._plans[key] = choose(sharding, counts, layouts, known=frozenset(COMBINERS))
        here = tuple(mesh.get_coordinate() or ())
        locals_ = [self._brought(plan, position, tensor, mesh, here) for position, tensor in enumerate(given)]
        results = self._kernel(plan, here, locals_)(locals_)
        program = plan.sharding.program
        return tuple(
            self._result(local, mesh, layout, plan.sharding.extents(name))
            for local, layout, name in zip(results, plan.outputs, program.outputs, strict=True)
        )

    def _distributed(self, name: str, tensor: torch.Tensor, mesh: Any) -> DTensor:
        if isinstance(tensor, DTensor):
            if tensor.device_mesh != mesh:
                raise self._error(name, f"expected a DTensor on the mesh {mesh}, as others are, got one on {tensor.device_mesh}")
            return tensor
        if tensor.ndim:
            raise self._error(
                name,
                "expected a DTensor, as others are, got a tensor that lies here alone",
                hint=f"torch.distributed.tensor.distribute_tensor({name}, mesh, placements)",
            )
        return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)

    def _error(self, name: str, message: str, *, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{self._operator.operator.name}: argument {name}: {message}", location=user_location(), hint=hint)

    def _brought(self, plan: Plan, position: int, tensor: DTensor, mesh: Any, here: tuple[int, ...]) -> torch.Tensor:
        """What the part here takes of an argument."""
        name = plan.sharding.program.inputs[position].name
        layout, needs = plan.inputs[position], plan.part(here).inputs[name]
        if all(plan.part(at).inputs[name] is None for at in plan.places()):
            return torch.zeros([min(n, 1) for n in tensor.shape], dtype=tensor.dtype, device=tensor.device)
        wanted = [Shard(one.axis) if isinstance(one, Split) else Replicate() for one in layout]
        local = tensor.redistribute(mesh, wanted).to_local()
        split = dict.fromkeys(one.axis for one in layout if isinstance(one, Split))
        for axis in split:
            local = self._with_halo(plan, position, local, mesh, here, axis)
        if needs is None:
            return torch.zeros([min(n, 1) for n in tensor.shape], dtype=tensor.dtype, device=tensor.device)
        for axis in range(tensor.ndim):
            if axis not in split:
                local = self._with_halo(plan, position, local, mesh, here, axis)
        return local.contiguous()

    def _with_halo(self, plan: Plan, position: int, local: torch.Tensor, mesh: Any, here: tuple[int, ...], axis: int) -> torch.Tensor:
        """What the part reads of a block along an axis, and beyond it: from those who share the rest of the box, or from its other end."""
        name = plan.sharding.program.inputs[position].name
        along = [isinstance(one, Split) and one.axis == axis for one in plan.inputs[position]]
        line = [at for at in plan.places() if all(vary or a == b for vary, a, b in zip(along, at, here, strict=True))]
        holds = [plan.held(position, at)[axis] for at in line]
        boxes = [plan.part(at).inputs[name] for at in line]
        needs = [hold if box is None else box[axis] for hold, box in zip(holds, boxes, strict=True)]
        ranks = [int(mesh.mesh[at]) for at in line]
        return exchange(local, axis, holds, needs, plan.sharding.extents(name)[axis], ranks, line.index(here))

    def _kernel(self, plan: Plan, here: tuple[int, ...], locals_: Sequence[torch.Tensor]) -> Any:
        key = id(plan), here, locals_[0].device if locals_ else None
        found = self._kernels.get(key)
        if found is None:
            device = locals_[0].device
            program = plan.part(here).program
            with on_stream(device):
                function = build_program(program, target=self._operator.target or device.type)
                layout = function.layout(tuple(tuple(tensor.shape) for tensor in locals_))
            found = self._kernels[key] = kernel_of(function, layout, models_of(layout, device), device, [True] * len(locals_))
        return found

    def _result(self, local: torch.Tensor, mesh: Any, layout: Layout, shape: tuple[int, ...]) -> DTensor:
        placements = [
            Shard(one.axis) if isinstance(one, Split) else TorchPartial(COMBINERS[one.combine]) if isinstance(one, Partial) else Replicate()
            for one in layout
        ]
        strides = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=strides)


def exchange(
    local: torch.Tensor,
    axis: int,
    holds: Sequence[tuple[int, int]],
    needs: Sequence[tuple[int, int]],
    extent: int,
    ranks: Sequence[int],
    rank: int,
) -> torch.Tensor:
    """The part of an axis that this process needs, where that of `ranks[k]` holds `holds[k]` and needs `needs[k]`; it is the one at `rank`.

    What lies below zero or beyond the extent is the other end. Each of them calls it.
    """
    if all(_inside(need, hold) for need, hold in zip(needs, holds, strict=True)):
        begin, end = needs[rank]
        return local.narrow(axis, begin - holds[rank][0], end - begin)
    begin, end = needs[rank]
    shape = list(local.shape)
    shape[axis] = max(0, end - begin)
    result = local.new_empty(shape)
    work, incoming = [], []
    for other in range(len(ranks)):
        for first, last, at in _pieces(needs[other], holds[rank], extent):  # what they need of mine
            piece = local.narrow(axis, first - holds[rank][0], last - first)
            if other == rank:
                result.narrow(axis, at - begin, last - first).copy_(piece)
            else:
                work.append(dist.P2POp(dist.isend, piece.contiguous(), ranks[other], tag=at % extent))
        if other != rank:
            for first, last, at in _pieces(needs[rank], holds[other], extent):  # what I need of theirs
                shape[axis] = last - first
                buffer = local.new_empty(shape)
                incoming.append((buffer, at - begin))
                work.append(dist.P2POp(dist.irecv, buffer, ranks[other], tag=at % extent))
    for one in dist.batch_isend_irecv(work) if work else ():
        one.wait()
    for buffer, at in incoming:
        result.narrow(axis, at, buffer.shape[axis]).copy_(buffer)
        for counted in _COUNTING:
            counted.received += buffer.numel() * buffer.element_size()
            counted.messages += 1
    return result


def _inside(need: tuple[int, int], hold: tuple[int, int]) -> bool:
    return need[0] >= need[1] or (hold[0] <= need[0] and need[1] <= hold[1])


def _pieces(need: tuple[int, int], hold: tuple[int, int], extent: int) -> Iterator[tuple[int, int, int]]:
    """The intervals of what is held that are needed, each with the place that it has in what is needed."""
    for turn in range((need[0] - hold[1]) // extent, (need[1] - hold[0]) // extent + 1) if extent else ():
        begin, end = max(need[0], hold[0] + turn * extent), min(need[1], hold[1] + turn * extent)
        if begin < end:
            yield begin - turn * extent, end - turn * extent, begin


def _placement(one: Any, rank: int) -> Placement:
    if isinstance(one, Shard):
        return Split(one.dim % rank)
    if isinstance(one, TorchPartial):
        return Partial(_FROM_TORCH.get(one.reduce_op, "sum"))
    return WHOLE


def _name(type_: torch.dtype) -> str:
    return str(type_).removeprefix("torch.")


rule_for(DTensor, lambda tensors, definition: list(operator_of(definition, of_op).shards.call(tensors)))

__all__ = ["Shards", "Traffic", "exchange", "traffic"]
