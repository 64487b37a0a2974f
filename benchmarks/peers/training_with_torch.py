"""The examples' models in PyTorch, eager, as one writes them there: the same weights, the same steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[np.ndarray, np.ndarray], float]


class Digits(nn.Module):
    """Two convolutions, a max-pool between them, a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.last = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        hidden = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.last(F.relu(self.second(hidden)).flatten(1))


class Block(nn.Module):
    """A block of the transformer."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(features)
        self.inputs = nn.Linear(features, 3 * features)
        self.outputs = nn.Linear(features, features)
        self.before_features = nn.LayerNorm(features)
        self.widen = nn.Linear(features, 4 * features)
        self.narrow = nn.Linear(4 * features, features)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        query, key, value = self.inputs(self.before_attention(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.outputs(seen.transpose(1, 2).reshape(b, t, d))
        return x + self.narrow(F.gelu(self.widen(self.before_features(x))))


class Transformer(nn.Module):
    """The character-level transformer."""

    def __init__(self, characters: int, context: int, features: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, features)
        self.positions = nn.Parameter(torch.zeros(context, features))
        self.blocks = nn.ModuleList([Block(features, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(features)
        self.scores = nn.Linear(features, characters, bias=False)

    def forward(self, characters: Any) -> Any:
        x = self.embedding(characters) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def digits(state: dict[str, np.ndarray], rates: Sequence[float]) -> Step:
    """A step of the digits' network from our weights: cross-entropy and Adam."""
    names = {
        f"{layer}.{ours}": f"{layer}.{theirs}" for layer in ("first", "second", "last") for ours, theirs in (("w", "weight"), ("b", "bias"))
    }
    model = Digits()
    model.load_state_dict({names[path]: torch.from_numpy(value.T.copy() if path == "last.w" else value) for path, value in state.items()})
    return _step(model, torch.optim.Adam(model.parameters()), rates, None)


def transformer(state: dict[str, np.ndarray], sizes: dict[str, int], rates: Sequence[float]) -> Step:
    """A step of the transformer from our weights: cross-entropy, gradients clipped to norm 1, AdamW."""
    model = Transformer(**sizes)
    model.load_state_dict(
        {
            path.replace("attention.inputs", "inputs").replace("attention.outputs", "outputs"): torch.from_numpy(value)
            for path, value in state.items()
        }
    )
    return _step(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01), rates, 1.0)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, rates: Sequence[float], clip: float | None) -> Step:
    taken = 0

    def step(x: np.ndarray, targets: np.ndarray) -> float:
        nonlocal taken
        optimizer.param_groups[0]["lr"] = rates[min(taken, len(rates) - 1)]
        taken += 1
        optimizer.zero_grad()
        scores = model(torch.from_numpy(x))
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), torch.from_numpy(targets).reshape(-1))
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.item()

    return step


def threads(number: int) -> None:
    """How many threads PyTorch takes from now on."""
    torch.set_num_threads(number)
