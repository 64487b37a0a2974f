"""Rewrites of whole kernels and of what a nest says of memory.

| page | what it does |
|---|---|
| `pack` | a whole buffer in another layout, made once before what reads it |
| `separate` | what the iterations of a reduction's loop add up, in a kernel of its own |
| `order` | kernels in another order, and side by side: `move_kernel`, `side_by_side` |
| `divide` | an axis of a buffer as several, in another order |
| `room` | local buffers too large for a stack, in the workspace: `in_memory` |
| `memory` | results past the caches, rows fetched ahead: `stream`, `prefetch` |
| `versions` | a form for large sizes and one for all others: `assume`, `otherwise`, `either` |
"""

from __future__ import annotations

from tensorexpr.codegen.rewrites.kernels.divide import divide
from tensorexpr.codegen.rewrites.kernels.memory import prefetch, stream
from tensorexpr.codegen.rewrites.kernels.order import move_kernel, side_by_side
from tensorexpr.codegen.rewrites.kernels.pack import pack
from tensorexpr.codegen.rewrites.kernels.room import in_memory
from tensorexpr.codegen.rewrites.kernels.separate import separate
from tensorexpr.codegen.rewrites.kernels.versions import assume, either, otherwise

__all__ = [
    "assume", "divide", "either", "in_memory", "move_kernel", "otherwise", "pack", "prefetch", "separate", "side_by_side", "stream",
]  # fmt: skip
