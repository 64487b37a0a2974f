"""What hosts make of ops is copied and saved with what holds it: models, averages of weights, workers of data loaders."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import tensorexpr as te

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.interop.torch import as_torch  # noqa: E402


@te.op
def scaled(x, w, *, factor=2.0):
    return te.compute(x.shape, lambda i, j: factor * te.sin(x[i, j]) * w[j])


@as_torch
@te.op
def decorated(x, w):
    return te.compute(x.shape, lambda i, j: x[i, j] + w[j])


function = as_torch(scaled, autocast=torch.bfloat16)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(4.0))
        self.own, self.other, self.op = as_torch(scaled), decorated, scaled

    def forward(self, x):
        return self.other(self.own(x, self.w, factor=3.0), self.w) + self.op(x, self.w)


class Rows(torch.utils.data.Dataset):
    """Rows that an op computes in the worker."""

    def __init__(self):
        self.own = as_torch(scaled)

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return self.own(torch.full((1, 2), float(k)), torch.ones(2))


def test_models_are_copied_and_saved():
    model, x = Model(), torch.randn(3, 4)
    expected = model(x)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    for again in (copy.deepcopy(model), torch.load(saved, weights_only=False), pickle.loads(pickle.dumps(model)), average):
        found = again(x)
        assert torch.equal(found, expected)
        found.sum().backward()
    assert copy.deepcopy(model).own is model.own


def test_functions_come_back_with_their_options():
    again = pickle.loads(pickle.dumps(function))
    assert again.op is scaled and again.door.autocast is torch.bfloat16
    assert pickle.loads(pickle.dumps(decorated)).op is decorated.op
    slope = as_torch(te.vjp(scaled, wrt="w"))
    x, w = torch.randn(3, 4), torch.randn(4)
    assert torch.equal(pickle.loads(pickle.dumps(slope))(x, w, x), slope(x, w, x))


def test_workers_of_data_loaders_get_ops():
    rows = torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    for found, expected in zip(rows, Rows(), strict=False):
        assert torch.equal(found, expected)


def test_functions_of_jax_come_back():
    as_jax = pytest.importorskip("tensorexpr.interop.jax", reason="JAX is not installed (make test-peers installs it)").as_jax
    ours, x, w = as_jax(scaled), np.ones((2, 3), np.float32), np.ones(3, np.float32)
    assert copy.deepcopy(ours) is ours
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again(x, w, factor=3.0), ours(x, w, factor=3.0))
