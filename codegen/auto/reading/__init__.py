"""A nest read for its summary: `nests` counts what statements do, `places` says where they stand and how accesses move."""

from tensorexpr.codegen.auto.reading.nests import summary_of

__all__ = ["summary_of"]
