"""The default schedules of `Planned`: planners that choose loops from an analysis of the program alone, with no measuring.

They stand beside the search over nests (`codegen.auto`) until it wins without them. `default` runs them in their order: `programs` are
those that look at several definitions at once, `tiles` choose the loops of one definition, `steps` those of scans and scatters, and `gpu`
what runs on the threads of a GPU.
"""

from tensorexpr.codegen.planners.default import autoschedule

__all__ = ["autoschedule"]
