"""The kernel library against PyTorch: value and all gradients in float64 at relative 1e-9. Skipped by name where it is not installed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tensorexpr as te
from tests.kernels.case import Case, flat
from tests.kernels.table import ALL


@pytest.mark.parametrize("case", [c for c in ALL if c.torch is not None], ids=lambda c: c.name)
def test_kernel_equals_torch(case: Case) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")
    assert case.torch is not None
    arrays = case.arrays()
    theirs_in = [torch.tensor(a, requires_grad=a.dtype.kind == "f" and case.differentiable) for a in flat(arrays)]
    function = eval(case.torch, {"torch": torch, "F": torch.nn.functional, "math": math})
    results = function(*theirs_in)
    theirs = list(results) if isinstance(results, (tuple, list)) else [results]
    ours = case.op(*arrays, **case.static)
    for mine, other in zip(flat(ours), theirs, strict=True):
        np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-9, atol=1e-12)
    if not case.differentiable:
        return

    rng = np.random.default_rng(13)
    floating = [y for y in theirs if y.is_floating_point()]
    heads = tuple(rng.standard_normal(tuple(y.shape)) for y in floating)
    wrt = [x for x in theirs_in if x.requires_grad]
    expected = torch.autograd.grad(floating, wrt, [torch.tensor(h) for h in heads], materialize_grads=True)
    got = te.vjp(case.op)(*arrays, heads if isinstance(ours, tuple) else heads[0], **case.static)
    for mine, other in zip(flat(got), expected, strict=True):
        scale = float(other.abs().max()) if other.numel() else 1.0
        np.testing.assert_allclose(mine, other.numpy(force=True), rtol=1e-9, atol=1e-11 * max(1.0, scale))
