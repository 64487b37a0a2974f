"""Networks that PyTorch exports, and their gradients by every weight, beside PyTorch in float64: with an open batch, at two sizes."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (make test-peers installs it)")
torch = pytest.importorskip("torch", reason="torch is not installed (make test-peers installs it)")

from torch import nn  # noqa: E402

from tensorexpr.interop.onnx import from_onnx  # noqa: E402


class Residual(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.a = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.n, self.m = nn.BatchNorm2d(2 * channels), nn.BatchNorm2d(2 * channels)
        self.b = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1, bias=False)
        self.short = nn.Conv2d(channels, 2 * channels, 1, stride)

    def forward(self, x):
        return torch.relu(self.short(x) + self.m(self.b(torch.relu(self.n(self.a(x))))))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mid = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        a = torch.relu(self.down(x))
        b = torch.relu(self.mid(nn.functional.max_pool2d(a, 2)))
        return self.out(torch.cat([self.up(b), a], 1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.out = kind(3, 4, batch_first=False, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.cells(x)[0])


class Attention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (y.reshape(n, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(x)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(11, 5), nn.Linear(5, 3)

    def forward(self, ids):
        return torch.log_softmax(self.out(self.table(ids).mean(1)), -1)


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 2 * k, 2, 3, padding=1) for k in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, torch.tanh(layer(x))], 1)
        return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)


def images(batch, size=8):
    return torch.randn(batch, 3, size, size, dtype=torch.float64)


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), lambda n: torch.randn(n, 5, dtype=torch.float64), 0),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3), nn.Softmax(-1)
        ),
        images, 0,
    ),
    "residual": (lambda: nn.Sequential(Residual(3), Residual(6, 2), nn.AvgPool2d(4), nn.Flatten()), images, 0),
    "mobile": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 1), nn.SiLU(), nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.LeakyReLU(0.25), nn.Conv2d(6, 2, 1), nn.ELU()
        ),
        images, 0,
    ),
    "unet": (UNet, images, 0),
    "dense": (Dense, images, 0),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda n: torch.randn(5, n, 3, dtype=torch.float64), 1),
    "gru": (lambda: Recurrent(nn.GRU), lambda n: torch.randn(5, n, 3, dtype=torch.float64), 1),
    "attention": (lambda: nn.Sequential(Attention(), Attention()), lambda n: torch.randn(n, 6, 8, dtype=torch.float64), 0),
    "words": (Words, lambda n: torch.randint(0, 11, (n, 7)), 0),
    "norms": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.PReLU(4), nn.InstanceNorm1d(4, affine=True),
            nn.ConvTranspose1d(4, 2, 3, 2),
        ),
        lambda n: torch.randn(n, 3, 9, dtype=torch.float64), 0,
    ),
}  # fmt: skip


def exported(network, x, axis):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (x,), file, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": {axis: "n"}, "y": {axis: "n"}},
            do_constant_folding=False, keep_initializers_as_inputs=False,
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_and_gradients(name):
    torch.manual_seed(0)
    make, data, axis = NETWORKS[name]
    network = make().double().eval()
    with torch.no_grad():  # equal ones would be one initializer
        for value in (*network.parameters(), *network.buffers()):
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) * 0.5 + 0.25)
    model = exported(network, data(2), axis)
    weights = dict(network.named_parameters())
    held = {item.name for item in model.graph.initializer}
    names = [*(["x"] if data(2).is_floating_point() else []), *(key for key in weights if key in held)]
    assert len(names) >= 2
    f = from_onnx(model)
    g = f.gradient(names)
    for batch in (2, 3):
        x = data(batch)
        x = x.requires_grad_(x.is_floating_point())
        y = network(x)
        np.testing.assert_allclose(f(x.detach().numpy()), y.detach().numpy(), rtol=1e-9, atol=1e-12)
        head = torch.randn_like(y)
        wanted = torch.autograd.grad(y, [x if key == "x" else weights[key] for key in names], head)
        for key, found, true in zip(names, g(x.detach().numpy(), head.numpy()), wanted, strict=True):
            scale = float(true.abs().max())
            np.testing.assert_allclose(found, true.numpy(), rtol=1e-8, atol=1e-10 * (1 + scale), err_msg=key)
    if data(2).is_floating_point():
        assert f.is_whole and g.is_whole
