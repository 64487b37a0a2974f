"""A nest read for its summary: `nests` counts statements, `values` what they compute; `places` says where they stand, how accesses move."""

from tensorexpr.codegen.auto.reading.nests import summary_of

__all__ = ["summary_of"]
