"""`vmap`: tensors for every value of a leading axis of what they are computed from.

What a graph computes divides into definitions that depend on the batched tensors, which get the new axis in front
(`batching`), and those that do not, which stay as they are and are computed once. The result are ordinary tensors, of which
further batches and derivatives can be taken. Gradient rules that tensors have of their own do not come along: who has such a
graph (`has_rules`) derives first and batches the derivative.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.autodiff.api.directions import Directions
from tensorexpr.autodiff.api.units import Graph, units_of
from tensorexpr.autodiff.local.batching import fresh_axes
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.ir import Program
from tensorexpr.language import Tensor, lift


def vmap(outputs: Sequence[Tensor], single: Sequence[Tensor], wide: Sequence[Tensor]) -> list[Tensor]:
    """The outputs, functions of the placeholders `single`, for all that `wide` holds along its first axes: each has this axis in front.

    `wide` has, for each of `single`, a tensor of its dtype and shape behind a first axis of one extent for all.
    """
    graph = Graph.of([*wide, *single, *outputs], {})
    workspace = Workspace.behind(graph.program, graph.labels)
    stands = {one.key: many.key for one, many in zip(single, wide, strict=True)}
    axes = fresh_axes([("batch", wide[0].extents[0])], graph.program.definitions, workspace.reserved)
    directions = Directions(workspace, stands, axes, dict.fromkeys(stands.values(), 0))
    derived = directions.spread(graph.program.definitions)
    results = [directions.result(tensor.key) for tensor in outputs]
    derived += [definition for _, copies in results for definition in copies]
    changed = {name for definition in derived for name, _ in definition.results if name in directions.batched}
    known = {key: tensor for key, tensor in graph.known.items() if key not in changed and key not in stands}
    table = lift(Program((), (), tuple(derived), (), graph.program.sizes), known)
    for name in changed:
        table[name].name = graph.labels.get(name, name)
    return [table[name] for name, _ in results]


def has_rules(outputs: Sequence[Tensor]) -> bool:
    """Whether a tensor among those that the outputs are computed from has a gradient rule of its own."""
    return bool(units_of(list(outputs), {}))
