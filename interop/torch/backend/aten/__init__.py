"""The definitions of ATen's operators, a page per family; importing one fills the table (`backend.table`)."""

from __future__ import annotations

from tensorexpr.interop.torch.backend.aten import indexing, networks, norms, pointwise, reductions, shapes

__all__ = ["indexing", "networks", "norms", "pointwise", "reductions", "shapes"]
