"""Where a graph is cut, so that what was saved for it is freed on the way.

A program holds its arguments to its end, and all that a forward pass saved is among the arguments of a backward graph. Of several
programs each takes the last hold on what no later one reads, and by the time most gradients are there most of what was saved is gone. A
cut is made where little is passed on beside gradients that are results anyway: between layers, as a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import accumulate
from typing import Any

import torch
from torch.fx import Graph, Node

from tensorexpr.interop.torch.backend.sizes import hint

PARTS = 8
"""Each part frees an eighth of what was saved, or more."""
_WORTH = 1 << 22  # bytes that are saved for a graph that is worth a cut


def bytes_of(value: Any) -> int:
    """The bytes of a fake tensor at the sizes that it was traced with; 0 of anything else."""
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.element_size()
    for extent in value.shape:
        count *= hint(extent)
    return count


def steps(graph: Graph, saved: Collection[Node], root: Callable[[Node], Node]) -> dict[Node, int]:
    """The part of the graph that each node of its is in, from 0; none for a graph that stays whole.

    `saved` are the arguments that nobody else holds, `root` gives what a view is a view of.
    """
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    last: dict[Node, int] = {}
    for position, node in enumerate(nodes):
        if root(node) is node:
            last.update((root(source), position) for source in node.all_input_nodes)
    results = {root(node) for node in next(node for node in graph.nodes if node.op == "output").all_input_nodes}
    frees, passes = [0] * len(nodes), [0] * (len(nodes) + 1)
    for node in saved:
        if node in last and node not in results:
            frees[last[node]] += bytes_of(node.meta.get("val"))
    for position, node in enumerate(nodes):
        if node in last and node not in results:
            size = bytes_of(node.meta.get("val"))
            passes[position] += size
            passes[last[node]] -= size
    total = sum(frees)
    if total < _WORTH:
        return {}
    cuts = _cuts(list(accumulate(frees)), list(accumulate(passes)), total / PARTS)
    return {node: sum(cut < position for cut in cuts) for position, node in enumerate(nodes)}


def _cuts(freed: list[int], passed: list[int], share: float) -> list[int]:
    """The positions behind which it is cut: where least is passed on, of those by which one to two shares are freed since the last one."""
    found: list[int] = []
    before = 0.0
    while True:
        places = [k for k, done in enumerate(freed) if before + share <= done <= min(before + 2 * share, freed[-1] - share)]
        if not places:  # one argument may be more than two shares
            places = [k for k, done in enumerate(freed) if before + share <= done <= freed[-1] - share][:1]
        if not places:
            return found
        best = min(places, key=lambda k: (passed[k], k))
        if 2 * passed[best] <= freed[best] - before:
            found.append(best)
        before = freed[best]
