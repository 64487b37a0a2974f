"""Quotients and remainders that the bounds of loops decide: what tiles leave of an axis that is cut into blocks.

    for j_i in range(0, 16):                               for j_i in range(0, 16):
        ... P[j_o + j_i // 16, k, j_i % 16]        -->         ... P[j_o, k, j_i]

Expressions over data stay as they are: their values may wrap around, indices never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tensorexpr.codegen.nest import Block, For, Kernel, Stmt
from tensorexpr.codegen.nest.walks import map_own_expressions, with_blocks
from tensorexpr.integers.forms.affine import Interval
from tensorexpr.records import replace
from tensorexpr.regions import affine_of, within

Box = Mapping[str, Interval]


def with_quotients(kernel: Kernel) -> Kernel:
    """The kernel with quotients and remainders of indices replaced by what they are in the loops around them."""
    return replace(kernel, body=_block(kernel.body, {}))


def _block(block: Block, box: Box) -> Block:
    made = tuple(_statement(s, box) for s in block)
    return block if all(new is old for new, old in zip(made, block, strict=True)) else made


def _statement(s: Stmt, box: Box) -> Stmt:
    known = {**box, s.index: _bounds(s, box)} if isinstance(s, For) else box
    return with_blocks(map_own_expressions(s, partial(within, box=box)), lambda block: _block(block, known))


def _bounds(loop: For, box: Box) -> Interval:
    """The least and the greatest index of a loop, as far as its bounds are affine in what has bounds."""
    start, stop = (affine_of(e) for e in (loop.start, loop.stop))
    low = None if start is None else start.interval(box)[0]
    high = None if stop is None else stop.interval(box)[1]
    return low, None if high is None else high - 1
