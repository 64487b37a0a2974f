"""Networks as others define them, with random weights: what `python -m tensorexpr bench models` compiles.

`NAMES` are those there are. `made(name, small)` gives a network and what it is called with: as its authors have it, or, for tests, one of
the same make with fewer layers and narrower ones. Those on words need the `transformers` package.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

FULL: dict[str, tuple[str, dict[str, Any], tuple[int, ...] | None]] = {
    "resnet18": ("vision.resnet", {"blocks": (2, 2, 2, 2), "bottleneck": False}, (1, 3, 224, 224)),
    "resnet50": ("vision.resnet", {"blocks": (3, 4, 6, 3), "bottleneck": True}, (1, 3, 224, 224)),
    "mobilenet_v3": ("vision.mobilenet", {}, (1, 3, 224, 224)),
    "convnext_tiny": ("vision.convnext", {}, (1, 3, 224, 224)),
    "vit_b_16": ("vision.VisionTransformer", {}, (1, 3, 224, 224)),
    "unet": ("vision.UNet", {}, (1, 3, 128, 128)),
    "bert": ("language.bert", {}, None),
    "gpt2": ("language.gpt2", {}, None),
    "llama": ("language.llama", {}, None),
    "t5": ("language.t5", {}, None),
    "whisper": ("language.whisper", {}, None),
}
"""Where each is defined, its arguments, and the shape of its images (None: it comes with what it is called with)."""

_NARROW = {"layers": 2, "width": 32, "heads": 2, "words": 100, "batch": 2, "length": 16}
SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...] | None]] = {
    "resnet18": ({"blocks": (1, 1, 1, 1), "width": 8, "classes": 10}, (2, 3, 64, 64)),
    "resnet50": ({"blocks": (1, 1, 1, 1), "width": 8, "classes": 10}, (2, 3, 64, 64)),
    "mobilenet_v3": ({"rows": 4, "classes": 10}, (2, 3, 32, 32)),
    "convnext_tiny": ({"blocks": (1, 1, 2, 1), "width": 16, "classes": 10}, (2, 3, 64, 64)),
    "vit_b_16": ({"size": 64, "depth": 2, "width": 32, "heads": 2, "inner": 64, "classes": 10}, (2, 3, 64, 64)),
    "unet": ({"width": 4, "levels": 1}, (1, 3, 16, 16)),
    "bert": (_NARROW, None),
    "gpt2": (_NARROW, None),
    "llama": ({**_NARROW, "heads": 4}, None),
    "t5": (_NARROW, None),
    "whisper": ({**_NARROW, "frames": 64}, None),
}
NAMES = tuple(FULL)


def made(name: str, small: bool = False) -> tuple[Any, dict[str, Any]]:
    """A network, and the arguments that it is called with, by name."""
    place, options, shape = FULL[name]
    if small:
        given, shape = SMALL[name]
        options = {**options, **given}
    room, _, maker = place.partition(".")
    build = getattr(importlib.import_module(f"{__name__}.{room}"), maker)
    if shape is None:
        network, arguments = build(**options)
        return network, arguments
    return build(**options), {_FIRST[maker]: torch.randn(*shape)}


_FIRST = {"resnet": "input", "mobilenet": "input", "convnext": "input", "VisionTransformer": "x", "UNet": "x"}
"""What the argument of `forward` is called: sequences of modules call it `input`."""
