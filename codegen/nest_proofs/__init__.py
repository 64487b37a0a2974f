"""Proofs about loop nests: what no schedule, pass or planner may break, decided by something simpler than what made the nest.

`prove(nest)` decides, for every size of the open extents from 0 on:

- **bounds**: every access is inside of its buffer, under its loops and conditions or behind a `Check` (`places`);
- **race**: no two iterations of a loop over cores, lanes, blocks or threads touch one element of which one of them writes it, unless it is
  updated in one piece, or both write what is equal (`races`, `alike`);
- **initial**, **coverage**: nothing is read that nothing has written, and every element of every result is written (`written`, `spans`);
- **claim**: integers that the nest writes lie in the range that is claimed of them: by each store, or by the checked form of a counting
  sort, which also says that its order is written whole (`sorts`).

It shares nothing with what it checks but the nest and the integer sets. Ranges come first and settle nearly everything (`scope`); what is
left are questions of emptiness (`questions`), each asked once, with counted steps. A finding is refuted, with sizes and indices at which
the nest's own terms show it, or undecided.
"""

from __future__ import annotations

from tensorexpr.codegen.nest_proofs.proof import prove
from tensorexpr.codegen.nest_proofs.verdict import KINDS, Finding, Verdict

__all__ = ["KINDS", "Finding", "Verdict", "prove"]
