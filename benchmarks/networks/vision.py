"""Networks on images, plainly in PyTorch, as their authors define them: residual networks, MobileNetV3, ConvNeXt, ViT, a U-Net.

Weights are random. Widths and depths are arguments, so that tests have small ones of the same make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def _normed(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, act: Any = None) -> nn.Sequential:
    """A convolution without bias, a norm over the batch, an activation."""
    layers = [nn.Conv2d(inputs, outputs, size, stride, (size - 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([] if act is None else [act]))


# ---------------------------------------------------------------------------------------------------- residual networks (He 2016)


class Residual(nn.Module):
    """A block of two convolutions, or of three through a bottleneck, beside the identity."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        relu = nn.ReLU(inplace=True)
        self.body = (
            nn.Sequential(_normed(inputs, width, 1, act=relu), _normed(width, width, 3, stride, act=relu), _normed(width, outputs, 1))
            if bottleneck
            else nn.Sequential(_normed(inputs, width, 3, stride, act=relu), _normed(width, outputs, 3))
        )
        self.beside = nn.Identity() if stride == 1 and inputs == outputs else _normed(inputs, outputs, 1, stride)

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.beside(x), inplace=True)


def resnet(blocks: Sequence[int], bottleneck: bool, width: int = 64, classes: int = 1000) -> nn.Module:
    """A residual network of four stages."""
    layers: list[nn.Module] = [_normed(3, width, 7, 2, act=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(blocks):
        for k in range(count):
            layers.append(Residual(inputs, width << stage, 2 if stage and not k else 1, bottleneck))
            inputs = (width << stage) * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


# ---------------------------------------------------------------------------------------------------- MobileNetV3 (Howard 2019)


class Squeeze(nn.Module):
    """Channels scaled by what is seen of the whole image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = _rounded(channels / 4)
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Any) -> Any:
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """Wide inside: a convolution of each channel alone between two of points."""

    def __init__(self, inputs: int, size: int, wide: int, outputs: int, squeezed: bool, hard: bool, stride: int) -> None:
        super().__init__()
        act = nn.Hardswish() if hard else nn.ReLU()
        layers = [_normed(inputs, wide, 1, act=act)] if wide != inputs else []
        layers.append(_normed(wide, wide, size, stride, wide, act))
        self.body = nn.Sequential(*layers, *([Squeeze(wide)] if squeezed else []), _normed(wide, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.residual else self.body(x)


def _rounded(channels: float) -> int:
    """The nearest multiple of eight that is not less than nine tenths."""
    found = max(8, int(channels + 4) // 8 * 8)
    return found + 8 if found < 0.9 * channels else found


_LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1), (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1), (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip
"""Size, channels inside, channels behind, squeezed, hardswish, stride: "large" of the paper's table 1."""


def mobilenet(rows: int = len(_LARGE), classes: int = 1000, dropout: float = 0.2) -> nn.Module:
    """MobileNetV3-Large, or the first of its rows."""
    layers: list[nn.Module] = [_normed(3, 16, 3, 2, act=nn.Hardswish())]
    inputs = 16
    for size, wide, outputs, squeezed, hard, stride in _LARGE[:rows]:
        layers.append(Inverted(inputs, size, wide, outputs, squeezed, hard, stride))
        inputs = outputs
    head = [nn.Linear(6 * inputs, 8 * inputs), nn.Hardswish(), nn.Dropout(dropout), nn.Linear(8 * inputs, classes)]
    return nn.Sequential(*layers, _normed(inputs, 6 * inputs, 1, act=nn.Hardswish()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


# ---------------------------------------------------------------------------------------------------- ConvNeXt (Liu 2022)


class LayerNorm2d(nn.LayerNorm):
    """A norm over the channels of an image."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Next(nn.Module):
    """A wide convolution of each channel, then two layers at each point; rows of the batch are dropped at random in training."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.space, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.rate = nn.Parameter(torch.full((width, 1, 1), 1e-6)), rate

    def forward(self, x: Any) -> Any:
        y = self.down(F.gelu(self.up(self.norm(self.space(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2) * self.scale
        if self.training and self.rate:
            y = y * (torch.empty(y.shape[0], 1, 1, 1, dtype=y.dtype).bernoulli_(1 - self.rate) / (1 - self.rate))
        return x + y


def convnext(blocks: Sequence[int] = (3, 3, 9, 3), width: int = 96, classes: int = 1000, rate: float = 0.1) -> nn.Module:
    """ConvNeXt; as it stands the tiny one."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), LayerNorm2d(width, eps=1e-6)]
    total, done = sum(blocks), 0
    for stage, count in enumerate(blocks):
        if stage:
            layers += [LayerNorm2d(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [Next(width, rate * (done + k) / max(total - 1, 1)) for k in range(count)]
        done += count
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), LayerNorm2d(width, eps=1e-6), nn.Flatten(), nn.Linear(width, classes))


# ---------------------------------------------------------------------------------------------------- vision transformer (Dosovitskiy 2021)


class Encoder(nn.Module):
    """Attention and two layers, each behind a norm and beside the identity."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.one, self.attention = nn.LayerNorm(width, eps=1e-6), nn.MultiheadAttention(width, heads, batch_first=True)
        self.two, self.layers = nn.LayerNorm(width, eps=1e-6), nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: Any) -> Any:
        y = self.one(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.layers(self.two(x))


class VisionTransformer(nn.Module):
    """Patches as tokens, a token of the class in front; as it stands ViT-B/16."""

    def __init__(
        self, size: int = 224, patch: int = 16, depth: int = 12, width: int = 768, heads: int = 12, inner: int = 3072, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Encoder(width, heads, inner) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.places
        return self.head(self.norm(self.blocks(y))[:, 0])


# ---------------------------------------------------------------------------------------------------- U-Net (Ronneberger 2015)


class UNet(nn.Module):
    """Down and up again, each level joined with what it was on the way down."""

    def __init__(self, width: int = 64, levels: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << k for k in range(levels + 1)]
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.joined = nn.ModuleList(_twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        passed = []
        for k, layer in enumerate(self.down):
            x = layer(x if k == 0 else F.max_pool2d(x, 2))
            passed.append(x)
        for up, joined, beside in zip(self.up, self.joined, reversed(passed[:-1]), strict=True):
            x = joined(torch.cat([beside, up(x)], 1))
        return self.head(x)


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*_normed(inputs, outputs, 3, act=nn.ReLU(inplace=True)), *_normed(outputs, outputs, 3, act=nn.ReLU(inplace=True)))
