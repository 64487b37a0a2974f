"""Element types of torch and of the language."""

from __future__ import annotations

import torch

from tensorexpr.dtypes import DTYPES, DType

TO_TORCH: dict[DType, torch.dtype] = {one: getattr(torch, one.name) for one in DTYPES if hasattr(torch, one.name)}
FROM_TORCH: dict[torch.dtype, DType] = {theirs: one for one, theirs in TO_TORCH.items()}
