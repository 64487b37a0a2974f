"""Values and gradients against PyTorch, float64, relative 1e-9. Skipped by name where PyTorch is not installed."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tests.peers.cases import CASES, Case


@pytest.mark.parametrize("case", [c for c in CASES if c.torch], ids=lambda c: c.name)
def test_value_and_gradients_equal_torch(case: Case) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(s) for s in case.shapes]
    if case.positive:
        arrays = [np.abs(a) + 0.5 for a in arrays]
    theirs_in = [torch.tensor(a, requires_grad=True) for a in arrays]
    function = eval(case.torch, {"torch": torch, "F": torch.nn.functional})
    theirs = function(*theirs_in)
    ours = case.op(*arrays, **case.static)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)

    head = rng.standard_normal(ours.shape)
    expected = torch.autograd.grad(theirs, theirs_in, torch.tensor(head))
    got = te.vjp(case.op)(*arrays, head, **case.static)
    for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        np.testing.assert_allclose(g, e.numpy(), rtol=1e-9, atol=1e-11)
