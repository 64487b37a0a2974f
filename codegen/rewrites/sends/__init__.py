"""Rewrites of what is sent to elements that data chooses.

| page | what it does |
|---|---|
| `own` | blocks of elements have owners, each of which takes in what is sent to its own |
| `sort` | the same, with a list for each owner |

Results of their own for the iterations of a loop are `data.rfactor` in the workspace.
"""

from __future__ import annotations

from tensorexpr.codegen.rewrites.sends.own import own
from tensorexpr.codegen.rewrites.sends.sort import sort

__all__ = ["own", "sort"]
