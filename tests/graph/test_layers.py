"""Layers: what they compute, on arrays and in a traced function; dropout from a key; what they refuse."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph import layers
from tests.graph.models import holding


def rng():
    return np.random.default_rng(0)


def array(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def linear(layer, x):
    return x @ layer.weight.value.T + (0 if layer.bias is None else layer.bias.value)


def softmax(x):
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def attention(layer, x):
    b, t, d = x.shape
    q, k, v = linear(layer.inputs, x).reshape(b, t, 3, layer.heads, d // layer.heads).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d // layer.heads)
    if layer.causal:
        scores = np.where(np.tri(t, dtype=bool), scores, -np.inf)
    return linear(layer.outputs, (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, d))


def conv(layer, x):
    p, s = layer.padding, layer.stride
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, layer.weight.shape[2:], axis=(2, 3))[:, :, ::s, ::s]
    return np.einsum("ncyzij,kcij->nkyz", windows, layer.weight.value) + layer.bias.value[:, None, None]


def norm(layer, x):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.eps)
    return y * layer.weight.value + layer.bias.value


CASES = {
    "linear": (lambda: layers.Linear(5, 3, rng()), array(2, 4, 5), linear),
    "linear without bias": (lambda: layers.Linear(5, 3, rng(), bias=False), array(4, 5), linear),
    "conv2d": (lambda: layers.Conv2d(2, 3, 3, rng(), stride=2, padding=1), array(2, 2, 7, 6), conv),
    "embedding": (lambda: layers.Embedding(6, 3, rng()), np.array([[0, 5], [2, 2]]), lambda layer, x: layer.weight.value[x]),
    "layer norm": (lambda: layers.LayerNorm(5), array(2, 4, 5), norm),
    "attention": (lambda: layers.Attention(6, 2, rng()), array(2, 5, 6), attention),
    "causal attention": (lambda: layers.Attention(6, 3, rng(), causal=True), array(2, 5, 6), attention),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_on_arrays_and_traced(case):
    make, x, expected = CASES[case]
    layer = make()
    np.testing.assert_allclose(layer(x), expected(layer, x), rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(te.function(lambda x: layer(x))(x), expected(layer, x), rtol=2e-5, atol=2e-6)
    assert all(v.name.startswith(f"{layer.name}/") and v.dtype == "float32" for v in layer.variables)


def test_the_same_generator_gives_the_same_layer():
    one, other = (te.state_dict(layers.Attention(6, 2, rng())) for _ in range(2))
    assert all(np.array_equal(one[path], other[path]) for path in one) and list(one) == [
        "inputs.bias", "inputs.weight", "outputs.bias", "outputs.weight",
    ]  # fmt: skip


def test_dropout_depends_on_its_key_alone():
    x = np.ones((300, 70), "float32")
    dropout = layers.Dropout(0.25)
    one, again, other = (dropout(x, np.int64(key)) for key in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert set(np.unique(one)) == {np.float32(0), np.float32(1 / 0.75)}
    for mask in (one == 0, other == 0):
        assert abs(mask.mean() - 0.25) < 0.01 and np.abs(mask.mean(0) - 0.25).max() < 0.12
    assert abs(np.corrcoef((one == 0).ravel(), (other == 0).ravel())[0, 1]) < 0.03
    assert layers.Dropout(0.0)(x, np.int64(1)) is x


def test_dropout_has_the_gradient_of_its_mask():
    x, head = array(20, 7), array(20, 7)
    gradient = te.vjp(layers.dropout, wrt="x")(x, np.int64(5), head, p=0.5)
    kept = layers.dropout(np.ones_like(x), np.int64(5), p=0.5)
    assert np.array_equal(gradient, kept * head)


def test_uniform_numbers_fill_the_interval():
    places = te.compute((100_000,), lambda i: layers.uniform(7, i))
    numbers = np.sort(te.build(places, [])())
    assert numbers[0] >= 0 and numbers[-1] < 1
    assert np.abs(numbers - (np.arange(100_000) + 0.5) / 100_000).max() < 0.006  # Kolmogorov and Smirnov, far beyond one in a thousand


def test_what_is_refused():
    with pytest.raises(te.ArgumentError, match="heads: expected a divisor of the 6 features, got 4"):
        layers.Attention(6, 4, rng())
    with pytest.raises(te.ArgumentError, match="p: expected a probability from 0 to below 1, got 1"):
        layers.Dropout(1)


def test_layers_are_found_by_path():
    model = holding(blocks=[layers.Attention(6, 2, rng()) for _ in range(2)], norm=layers.LayerNorm(6))
    assert list(te.state_dict(model))[-3:] == ["blocks.1.outputs.weight", "norm.bias", "norm.weight"]
