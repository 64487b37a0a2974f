"""The rewrites `move_kernel` and `side_by_side`: the order of kernels, and two that run at once.

    def kernel_0() -> y:                            def kernel_0() -> together(y, w):
        for i in parallel(range(0, 8)): ...             for i in parallel(range(0, 8)): ...
    def kernel_1() -> w:                     -->        for j in parallel(range(0, 6)): ...
        for j in parallel(range(0, 6)): ...

A kernel may pass others that do not need it and that it does not need. The iterations of the parallel loops of two kernels may run in any
order, so that all cores meet once for both: legal where each is parallel loops alone and neither touches what the other writes.
"""

from __future__ import annotations

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.nest import For, LoopNest
from tensorexpr.codegen.rewrites.data.merge import merge_kernels
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.records import replace


def move_kernel(nest: LoopNest, number: int, to: int) -> LoopNest:
    """The nest with a kernel at another place among the kernels.

    Raises `ScheduleError` where one that it passes needs it, or is needed by it.
    """
    found = dependences(nest)
    low, high = min(number, to), max(number, to)
    for other in range(low, high + 1):
        if other == number:
            continue
        first, second = (other, number) if other < number else (number, other)
        conflict = next(found.between(nest.kernels[first].body, nest.kernels[second].body), None)
        if conflict is not None:
            raise refuse(f"expected nothing between {nest.kernels[number].name} and its new place that waits, got {conflict}")
    kernels = list(nest.kernels)
    kernels.insert(to, kernels.pop(number))
    return replace(nest, kernels=tuple(kernels))


def side_by_side(nest: LoopNest, first: int, second: int) -> LoopNest:
    """The nest with two kernels, by their numbers, as one whose parallel loops run together: their iterations in any order.

    Raises `ScheduleError` where a kernel is more than parallel loops, or one touches what the other writes.
    """
    number, other = sorted((first, second))
    if number == other:
        raise refuse(f"expected two kernels to run side by side, got one, {nest.kernels[number].name}")
    for kernel in (nest.kernels[number], nest.kernels[other]):
        serial = next((s for s in kernel.body if not isinstance(s, For) or s.kind != "parallel"), None)
        if serial is not None:
            raise refuse(f"expected parallel loops alone in {kernel.name} to run them side by side, got another statement", serial)
    conflict = next(dependences(nest).between(nest.kernels[number].body, nest.kernels[other].body), None)
    if conflict is not None:
        names = f"{nest.kernels[number].name} and {nest.kernels[other].name}"
        raise refuse(f"expected kernels that do not depend on each other, got {names}: {conflict}")
    nest = merge_kernels(move_kernel(nest, other, number + 1), number)
    kernels = list(nest.kernels)
    kernels[number] = replace(kernels[number], together=True)
    return replace(nest, kernels=tuple(kernels))
