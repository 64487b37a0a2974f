"""Where a graph is cut, so that what was saved for it is freed on the way.

A program holds its arguments to its end, and has memory for all of its results from its beginning; all that a forward pass saved is among
the arguments of a backward graph. Of several programs each takes the last hold on what no later one reads. Where cuts are made follows
from bytes alone: so that at no time more stands there than has to, of what is saved still, what is passed on from part to part, and the
gradients so far. That is seldom in equal parts: where most of the gradients are there only the least bit may be saved still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.fx import Graph, Node

from tensorexpr.interop.torch.backend.sizes import hint

PARTS, PLACES = 8, 128
"""The most parts, and the places that are looked at."""
_WORTH, _EACH = 1 << 22, 1 << 20  # bytes that are saved for a graph that is worth a cut, and those that each part more has to spare


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
    frees, passes, gives = [0] * len(nodes), [0] * (len(nodes) + 1), [0] * len(nodes)
    for node in saved:
        if node in last and node not in results:
            frees[last[node]] += bytes_of(node.meta.get("val"))
    for position, node in enumerate(nodes):
        size = bytes_of(node.meta.get("val"))
        if node in results:
            gives[position] = size
        elif node in last:
            passes[position] += size
            passes[last[node]] -= size
    total = sum(frees)
    if total < _WORTH:
        return {}
    cuts = _cuts([total - freed for freed in accumulate(frees, initial=0)], [0, *accumulate(passes)], [*accumulate(gives, initial=0)])
    return {node: sum(cut <= position for cut in cuts) for position, node in enumerate(nodes)}


def _cuts(held: Sequence[int], passed: Sequence[int], given: Sequence[int]) -> tuple[int, ...]:
    """How many nodes there are in front of each cut, so that the part that needs most memory needs little.

    Behind so many nodes so much is `held` still of what was saved, is `passed` on to later ones, and has been `given` as results. A part
    stands beside what is held at its beginning and all that is given by its end. What else a program needs for itself is not known here,
    and more of a long one: so that less stands there on average counts, too.
    """
    places = _places(held, passed, given)
    most = [max(passed[a : b + 1]) for a, b in pairwise(places)]
    needs = {}
    for i, begin in enumerate(places):
        inside = 0
        for j, end in enumerate(places[i + 1 :], i + 1):
            inside = max(inside, most[j - 1])
            needs[i, j] = held[begin] + given[end] + max(inside, passed[begin] + passed[end])
    last, count = len(places) - 1, places[-1]
    best: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, ())}
    found = []
    for part in range(PARTS):
        best = {
            j: min(
                (max(best[i][0], needs[i, j]), best[i][1] + needs[i, j] * (places[j] - places[i]), (*best[i][2], places[j]))
                for i in best
                if i < j
            )
            for j in range(part + 1, last + 1)
        }
        if last in best:
            found.append((best[last][0] + best[last][1] // count + part * _EACH, best[last][2][:-1]))
    return min(found, key=lambda way: way[0])[1]


def _places(held: Sequence[int], passed: Sequence[int], given: Sequence[int]) -> list[int]:
    """Where least is passed on: one place for each share of what is freed and given on the way, between the first and the last."""
    most = held[0] + given[-1]
    found: dict[int, int] = {}
    for place in range(1, len(held) - 1):
        share = PLACES * (held[0] - held[place] + given[place]) // most
        if share not in found or passed[place] <= passed[found[share]]:
            found[share] = place
    return [0, *sorted(found.values()), len(held) - 1]
