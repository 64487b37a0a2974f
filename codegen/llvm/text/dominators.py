"""Which blocks of a function dominate which, known while it is written.

A value may be used where its block dominates. Blocks are begun after all that go to them, but for the ends of loops, which their heads
dominate: so the nearest block that dominates a block is known when it is begun, and what is remembered of values is asked of this tree
(Cytron et al., "Efficiently computing static single assignment form", 1991). Ancestors are found by jumps of growing length
(Myers, "An applicative random-access stack", 1983): in the logarithm of the depth, which grows with every branch.
"""

from __future__ import annotations

from tensorexpr.errors import InternalError

ENTRY = "entry"


class Dominators:
    """The tree of the blocks of one function, by their labels."""

    def __init__(self) -> None:
        self._above = {ENTRY: ENTRY}
        self._far = {ENTRY: ENTRY}
        """An ancestor of each block at a distance that grows with its depth."""
        self._depth = {ENTRY: 0}
        self._reached: dict[str, str] = {}
        """Of blocks that are not begun: the nearest block that dominates all that go there so far."""

    def edge(self, source: str, target: str) -> None:
        """Notes that control may go from a block to another."""
        if target not in self._depth:
            known = self._reached.get(target)
            self._reached[target] = source if known is None else self._common(known, source)

    def begin(self, block: str) -> None:
        """Puts a block into its place; nothing goes there from now on but from blocks that it dominates."""
        above = self._reached.pop(block, None)
        if above is None:
            raise InternalError(f"llvm: expected something to go to block {block} before it is begun")
        depth, far = self._depth, self._far[above]
        self._above[block] = above
        even = depth[above] - depth[far] == depth[far] - depth[self._far[far]]
        self._far[block] = self._far[far] if even else above
        depth[block] = depth[above] + 1

    def dominates(self, block: str, other: str) -> bool:
        """Whether all ways to `other` lead through `block`."""
        return block == other or self._ancestor(other, self._depth[block]) == block

    def _ancestor(self, block: str, depth: int) -> str:
        """The ancestor of a block at a depth, or the block itself where it is no deeper."""
        while self._depth[block] > depth:
            far = self._far[block]
            block = far if self._depth[far] >= depth else self._above[block]
        return block

    def _common(self, a: str, b: str) -> str:
        """The nearest block that dominates both."""
        a, b = self._ancestor(a, self._depth[b]), self._ancestor(b, self._depth[a])
        while a != b:
            apart = self._far[a] != self._far[b]
            a, b = (self._far[a], self._far[b]) if apart else (self._above[a], self._above[b])
        return a
