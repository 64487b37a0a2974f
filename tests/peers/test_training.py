"""Optimizers and training steps beside PyTorch's: the same weights after the same steps."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.benchmarks.subjects import training
from tensorexpr.graph.optimizers import SGD, Adam, AdamW

torch = pytest.importorskip("torch")

SHAPES = ((3, 4), (5,), (2, 3, 2))
CASES = {
    "sgd": (lambda v, **o: SGD(v, 0.1, **o), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (
        lambda v, **o: SGD(v, 0.1, momentum=0.9, weight_decay=0.01, **o),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    ),
    "nesterov": (
        lambda v, **o: SGD(v, 0.1, momentum=0.9, nesterov=True, **o),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    ),
    "adam": (lambda v, **o: Adam(v, 0.01, **o), lambda p: torch.optim.Adam(p, 0.01)),
    "adam with decay": (
        lambda v, **o: Adam(v, 0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1, **o),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": (lambda v, **o: AdamW(v, 0.01, weight_decay=0.1, **o), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
}


@pytest.mark.parametrize("clip", [None, 0.7], ids=["", "clipped"])
@pytest.mark.parametrize("case", CASES)
def test_optimizers_step_as_theirs(case, clip):
    make, peer = CASES[case]
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) for shape in SHAPES]
    variables = [te.Variable(w) for w in weights]
    parameters = [torch.nn.Parameter(torch.from_numpy(w.copy())) for w in weights]
    ours, theirs = make(variables, clip_norm=clip), peer(parameters)
    for _ in range(8):
        gradients = [rng.standard_normal(shape) for shape in SHAPES]
        ours.apply(gradients)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(gradient.copy())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        theirs.step()
    for variable, parameter in zip(variables, parameters, strict=True):
        np.testing.assert_allclose(variable.value, parameter.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["digits", "transformer"])
def test_the_examples_train_as_the_same_models_there(name):
    case = training.transformer(blocks=1, features=16) if name == "transformer" else training.digits()
    peer = case.peer(importlib.import_module("tensorexpr.benchmarks.peers.training_with_torch"))
    for batch in case.batches[:10]:
        assert float(case.step(*batch)) == pytest.approx(peer(*batch), rel=1e-4)
