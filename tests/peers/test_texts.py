"""The text of a row, which the measure `sweep` runs in JAX: what it gives there is what PyTorch gives."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.benchmarks.harness import difference
from tensorexpr.benchmarks.samples import texts

ROWS = [
    ("lambda x, w: F.conv2d(F.pad(x, (1, 1, 2, 2), 'reflect'), w, stride=2)", (2, 3, 5, 6), (4, 3, 3, 3)),
    ("lambda x: F.max_pool2d(x, 3, 2, padding=1)", (2, 3, 7, 8)),
    ("lambda x: (x - x.mean(1, keepdim=True)).abs().amax(1, keepdim=True)", (4, 5)),
    ("lambda q, k: torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1).cumsum(-1)[:, :, 1:]", (2, 3, 4), (2, 5, 4)),
    ("lambda x: (lambda a, b: a * torch.logsumexp(b, 0, True))(*x)", (2, 3)),
    ("lambda x, y: torch.add(x, y, alpha=-2).clamp(min=-0.5)", (3, 4), (4,)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:30])
def test_jax_means_what_pytorch_means(row):
    pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")
    pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
    rng = np.random.default_rng(0)
    text, *shapes = row
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    (output,) = texts.candidate("torch", text, arrays, None)()
    heads = [rng.standard_normal(tuple(output.shape), np.float32)]
    found = {peer: [np.asarray(array) for array in texts.candidate(peer, text, arrays, heads)()] for peer in ("torch", "jax")}
    assert len(found["jax"]) == 1 + len(arrays) and difference(found["torch"], found["jax"]) < 1e-5


def test_what_jax_has_not_got_is_told():
    pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")
    with pytest.raises(AttributeError, match="JAX has no grid_sample"):
        texts.candidate("jax", "lambda x: F.grid_sample(x, x)", [np.ones((2, 2), np.float32)], None)()
