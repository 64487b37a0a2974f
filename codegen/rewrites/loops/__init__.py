"""Rewrites of loops: their bounds, order and kinds, and copies of what they have inside.

| page | what it does |
|---|---|
| `split` | a loop in blocks, with a remainder |
| `fuse` | two loops as one |
| `directions` | `skew`, `reverse`: a loop that begins later with each iteration of one around it, or goes backward |
| `reorder` | loops in another order, also where they are not alone in each other |
| `distribute` | a loop for each of the statements inside |
| `partition` | a loop cut at points, into residue classes, or in two by a condition: the only one that copies what is inside |
| `widen` | a loop over one range in all iterations of one around it, under a condition |
| `simplify` | indices, conditions, bounds and literals as what they are under the loops around |
| `tensorize` | a nest of loops is an instruction of the machine |
| `kinds` | `unroll`, `vectorize`, `parallel`, `bind`, `serial` |

`order` asks `dependence`; where tests change along a loop is found by `codegen.rewrites.cuts`.
"""

from __future__ import annotations

from tensorexpr.codegen.rewrites.loops.directions import reverse, skew
from tensorexpr.codegen.rewrites.loops.distribute import distribute
from tensorexpr.codegen.rewrites.loops.fuse import fuse
from tensorexpr.codegen.rewrites.loops.kinds import bind, parallel, serial, unroll, vectorize
from tensorexpr.codegen.rewrites.loops.partition import partition
from tensorexpr.codegen.rewrites.loops.reorder import reorder
from tensorexpr.codegen.rewrites.loops.simplify import simplify
from tensorexpr.codegen.rewrites.loops.split import split
from tensorexpr.codegen.rewrites.loops.tensorize import tensorize
from tensorexpr.codegen.rewrites.loops.widen import widen

__all__ = [
    "bind",
    "distribute",
    "fuse",
    "parallel",
    "partition",
    "reorder",
    "reverse",
    "serial",
    "simplify",
    "skew",
    "split",
    "tensorize",
    "unroll",
    "vectorize",
    "widen",
]
