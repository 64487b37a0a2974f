"""How values lie on a mesh of devices, as JAX's types say it, and what a primitive of ours has to do about it.

Inside of `jax.shard_map` the type of a value names the axes of the mesh over which it differs from device to device. From these JAX derives
where sums over devices belong: an argument that is the same on all devices is cast to one that varies before it meets one that
does, and the transpose of the cast is the sum. JAX's own operations cast so; a primitive of ours does by `alike` before it is bound, and
gives its results the axes of its arguments by `result_type`. Without `check_vma` there are no such axes, and nothing to cast.

On a mesh with explicit axes types name the axes over which a value is split. Ours take whole values: `alike` gathers them, and the
transpose splits their gradients again.

The names of these types move from one version of JAX to the next; this page alone knows them, and how JAX is told that a primitive
asks for the devices of a program when it is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src import dispatch
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

from tensorexpr.errors import ArgumentError, user_location

_KIND = "manual_axis_type" if hasattr(ShapedArray, "manual_axis_type") else "vma"
_NONE: frozenset[Any] = frozenset()


def _axes(aval: Any, which: str) -> frozenset[Any]:
    """The axes of the mesh over which a value is "varying", "unreduced" (a sum yet to be taken), or "reduced" (its gradient is one)."""
    kind = getattr(aval, _KIND)
    found: frozenset[Any] = (kind if which == "varying" else _NONE) if isinstance(kind, frozenset) else getattr(kind, which)
    return found


def alike(operator: str, names: Sequence[str], arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments, all of them whole and varying over every axis that one of them does.

    Raises `ArgumentError` for one that is a sum over devices yet to be taken.
    """
    avals = [jax.typeof(argument) for argument in arguments]
    if all(aval.sharding.mesh.empty for aval in avals):
        return arguments
    varying = _NONE.union(*(_axes(aval, "varying") for aval in avals))
    found = []
    for name, argument, aval in zip(names, arguments, avals, strict=True):
        if unreduced := _axes(aval, "unreduced"):
            raise ArgumentError(
                f"{operator}: argument {name}: expected an array of values, got one that is a sum over "
                f"{', '.join(map(repr, _ordered(unreduced)))} yet to be taken",
                location=user_location(),
                hint="jax.lax.psum takes it",
            )
        if any(part is not None for part in aval.sharding.spec):
            argument = jax.reshard(argument, _whole(aval.sharding.mesh, aval.ndim))
        missing = varying - _axes(aval, "varying")
        for part in (missing & _axes(aval, "reduced"), missing - _axes(aval, "reduced")):
            if part:
                argument = jax.lax.pcast(argument, _ordered(part), to="varying")
        found.append(argument)
    return found


def _ordered(axes: frozenset[Any]) -> tuple[Any, ...]:
    return tuple(sorted(axes, key=str))


def _whole(mesh: Any, rank: int) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*[None] * rank))


def lowered_for_devices(primitive: Any) -> None:
    """Has JAX hand the devices of a program to the lowering of a primitive, as it does for `custom_partitioning`."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def result_type(avals: Sequence[Any], shape: tuple[int, ...], type_: Any) -> ShapedArray:
    """The type of a result that each device computes from arguments of these types, which are `alike`."""
    placed = next((aval for aval in avals if not aval.sharding.mesh.empty), None)
    if placed is None:
        return ShapedArray(shape, type_)
    own: dict[str, Any] = {_KIND: getattr(placed, _KIND)}
    return ShapedArray(shape, type_, sharding=_whole(placed.sharding.mesh, len(shape)), **own)
