"""Where time goes: the kernels of a compiled function, timed one by one and set beside what is counted in them.

    stamped   the function once more, with the clock read between its kernels
    counting  operations and bytes of each kernel at the sizes of a call, by integer sets, and which definitions and lines they are for
    profile   both together, with the roofline of the machine that the model of cost knows
    tables    as text, for notebooks, and as a page; `trace` as events for Chrome and Perfetto

The code of the kernels is that of the function itself, and they run in order, so each finds the caches as it does in a call. The time of a
kernel is measured; what part of it a definition or a line has is its share of the operations and of the elements that are touched.
"""

from tensorexpr.codegen.profiling.counting import counted
from tensorexpr.codegen.profiling.profile import KernelRow, Profile, Share, profiled
from tensorexpr.codegen.profiling.stamped import Stamped, median_call

__all__ = ["KernelRow", "Profile", "Share", "Stamped", "counted", "median_call", "profiled"]
