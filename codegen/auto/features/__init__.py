"""Numbers of a summary, for many extents of its loops at once: work by block and kind, registers (`work`), footprints and lines by level
of memory (`memory`).

All figures have an axis of candidates last; `Plan` holds what does not depend on extents, so thousands of tile sizes cost a few
operations of NumPy each.
"""

from tensorexpr.codegen.auto.features.memory import LINE, Plan
from tensorexpr.codegen.auto.features.work import Numbers, one_by_one

__all__ = ["LINE", "Numbers", "Plan", "one_by_one"]
