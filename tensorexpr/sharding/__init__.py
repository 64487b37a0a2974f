"""Sharding, derived from index notation: how an operation may be cut over devices, and the program of each part.

    op.sharding(*specs) -> Sharding: the rules, which print as a table
    links       which loops move together
    partial     which results are addends, and of what kind
    demand      which box of every tensor a block needs: what is split, with which halo, what has to be whole
    rules       the choices that go together
    parts       the program that a device runs, in the numbers of the whole

A rule speaks of one dimension of a mesh; several dimensions are restrictions at the same time. Nothing here knows an operation or a host
library: `tensorexpr.interop.sharding` hands rules to those that move data.
"""

from tensorexpr.sharding.partial import Share
from tensorexpr.sharding.parts import Bounds, Part, part_of
from tensorexpr.sharding.placements import UNREAD, WHOLE, Partial, Placement, Site, Split, Unread, Whole
from tensorexpr.sharding.rules import Rule, rules_of
from tensorexpr.sharding.table import Row, Sharding

__all__ = [
    "UNREAD",
    "WHOLE",
    "Bounds",
    "Part",
    "Partial",
    "Placement",
    "Row",
    "Rule",
    "Share",
    "Sharding",
    "Site",
    "Split",
    "Unread",
    "Whole",
    "part_of",
    "rules_of",
]
