"""Products, maxima, minima and folds over prefixes and suffixes, differentiated as the running tables that they are compiled as.

The derivative of a product over k <= j by its terms has a product for each pair of them, that of a maximum asks every pair for its winner.
Of a running table both are one recurrence backwards. A maximum is taken by a choice there, the earlier one of equals, so that its gradient
goes to the first winner. Sums stay as they are: their derivative is a sum over a suffix, a running table of its own (`tensorexpr.algebra`).
"""

from __future__ import annotations

from tensorexpr.algebra.monoids import Monoid
from tensorexpr.algebra.recurrences import ways
from tensorexpr.algebra.tables import Tables
from tensorexpr.autodiff.local.workspace import Place, Workspace
from tensorexpr.ir import Define, Expr, Reduce, Scan
from tensorexpr.traversal import free_names


def running_table(node: Reduce, place: Place, workspace: Workspace, owner: str) -> tuple[Scan, tuple[Expr, ...]] | None:
    """A scan that a reduction at `place` can be read from, and the reads, one per component; None where there is none that pays.

    The scan is added to the workspace, behind the tensors that it starts from.
    """
    if node.combiner.name == "sum" or workspace.steps or not {a.index for a in place.axes}.issuperset(free_names(node)):
        return None
    types = workspace.types
    shapes = {name: type_.shape for name, type_ in types.items()}
    for way in ways(node, place.axes, place.guards, shapes, types[owner].shape if owner in types else ()):
        if way.outer or way.inner or all(way.moving):
            continue
        taken = set(workspace.taken)
        label = workspace.labels.get(owner, owner)
        tables = Tables(way, Monoid(node, selects=node.combiner.name in ("max", "min")), shapes, label, taken, None)
        reads = tables.results()
        if reads is None or not all(isinstance(d, Define) for d in tables.definitions[:-1]):
            continue
        scan = tables.definitions[-1]
        assert isinstance(scan, Scan)
        workspace.taken |= taken
        for definition in tables.definitions:
            workspace.add(definition)
        return scan, reads
    return None
