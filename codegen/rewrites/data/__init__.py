"""Rewrites of where values are kept and when they are computed.

| module | before | after |
|---|---|---|
| `inline` | a buffer is computed, then read | its value stands where it was read |
| `fuse_at` | a buffer is computed whole, then read in a loop | an iteration of the loop computes what it reads |
| `merge` | two loops, or kernels, one behind the other | one |
| `stage` | a part of a buffer is read, or updated, in a loop | a copy of it, in another layout |
| `rfactor` | a reduction into one accumulator | into several, which are combined |
| `keep` | a term is computed in a loop, and again behind it | once, kept for each iteration |
| `hoist` | a term is computed in a loop that it does not depend on | in front of the loop |
| `contract` | a buffer of which an iteration needs a part | a buffer of that part |
| `slide` | a window that moves with a loop, computed anew in each iteration | a ring, in which new elements are computed |
| `narrow` | small integers in 64 bits | in fewer |
| `pipeline` | an iteration computes something for itself first | for one some iterations on |

What they ask of the nest stands in `codegen.rewrites.touched`.
"""

from __future__ import annotations

from tensorexpr.codegen.rewrites.data.contract import contract
from tensorexpr.codegen.rewrites.data.fuse_at import fuse_at
from tensorexpr.codegen.rewrites.data.hoist import hoist
from tensorexpr.codegen.rewrites.data.inline import inline
from tensorexpr.codegen.rewrites.data.keep import keep
from tensorexpr.codegen.rewrites.data.merge import merge, merge_kernels
from tensorexpr.codegen.rewrites.data.narrow import narrow
from tensorexpr.codegen.rewrites.data.pipeline import pipeline
from tensorexpr.codegen.rewrites.data.rfactor import rfactor
from tensorexpr.codegen.rewrites.data.slide import slide
from tensorexpr.codegen.rewrites.data.stage import stage

__all__ = [
    "contract",
    "fuse_at",
    "hoist",
    "inline",
    "keep",
    "merge",
    "merge_kernels",
    "narrow",
    "pipeline",
    "rfactor",
    "slide",
    "stage",
]
