"""Loop nests: what a schedule is lowered to, and all that the emitters of LLVM and CUDA ever see.

`program` is the representation, `text` and `parse` write and read it, `verify` is what every nest satisfies, `interpret` runs one
naively (the oracle of schedules, lowering and emitters), `walks` goes through statements, `names` renames buffers and loops, `order`
puts kernels where they need less memory, `absorb` and `batches` leave out what lies between them, `early` takes apart what is made of
constants once, `picture` draws one for notebooks.
"""

from tensorexpr.codegen.nest.program import (
    GRID,
    IN_WARP,
    LANES,
    LOOP_KINDS,
    MEMORIES,
    MOST_BLOCKS,
    MOST_DEEP,
    MOST_THREADS,
    THREADS,
    WARP_LANES,
    Ahead,
    Alloc,
    Block,
    Buffer,
    Call,
    Check,
    CheckSite,
    Filled,
    For,
    If,
    Kernel,
    LoopNest,
    Stmt,
    Store,
    buffers_of,
)

__all__ = [
    "GRID",
    "IN_WARP",
    "LANES",
    "LOOP_KINDS",
    "MEMORIES",
    "MOST_BLOCKS",
    "MOST_DEEP",
    "MOST_THREADS",
    "THREADS",
    "WARP_LANES",
    "Ahead",
    "Alloc",
    "Block",
    "Buffer",
    "Call",
    "Check",
    "CheckSite",
    "Filled",
    "For",
    "If",
    "Kernel",
    "LoopNest",
    "Stmt",
    "Store",
    "buffers_of",
]
