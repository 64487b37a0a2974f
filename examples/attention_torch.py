"""Attention with a learned bias in a torch training loop: the operation is ours, everything around it is torch's.

Each head adds to the score of a query and a key a number that it learned for the distance between them. Written with torch's own
operations this makes the bias for all pairs, as large as the scores, and the gradient of the bias is a scatter into it. Here it is
an operation in a few lines; its gradients are compiled too, that of the bias as a sum over the pairs of each distance.

The task is to say the token that came a few places before, a different number of places in each of the two halves of the answer: only
the positions tell where to look, so the bias has to learn it. Run it with ``python examples/attention_torch.py``; needs torch.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import nn

import tensorexpr as te
from tensorexpr.interop.torch import as_torch

# ------------------------------------------------------------------------------------------------ 1. the operation
# `bias` has an entry per head and distance from -reach to reach; pairs that are further apart share the outermost one.


@te.op
def biased_attention(q: te.Tensor, k: te.Tensor, v: te.Tensor, bias: te.Tensor) -> te.Tensor:
    """softmax(q k^T / sqrt(d) + bias[distance]) v for q, k, v [batch, head, place, d] and bias [head, 2 reach + 1]."""
    batch, heads, places, width = q.shape
    reach = bias.shape[1] // 2

    def score(b: te.Scalar, h: te.Scalar, i: te.Scalar, j: te.Scalar) -> te.Scalar:
        distance = te.clip(j - i, -reach, reach) + reach
        return te.sum(lambda d: q[b, h, i, d] * k[b, h, j, d], width) / math.sqrt(width) + bias[h, distance]

    scores = te.compute((batch, heads, places, places), score)
    highest = te.compute((batch, heads, places), lambda b, h, i: te.max(lambda j: scores[b, h, i, j], places))
    weights = te.compute(scores.shape, lambda b, h, i, j: te.exp(scores[b, h, i, j] - highest[b, h, i]))
    total = te.compute(highest.shape, lambda b, h, i: te.sum(lambda j: weights[b, h, i, j], places))
    return te.compute(
        v.shape,
        lambda b, h, i, d: te.sum(lambda j: weights[b, h, i, j] * v[b, h, j, d], places) / total[b, h, i],
    )


# ------------------------------------------------------------------------------------------------ 2. the module
# `as_torch` makes it a function that torch differentiates, compiles and exports like one of its own.

attend = as_torch(biased_attention)


class Attention(nn.Module):
    """Attention over all places, with a learned bias by distance."""

    def __init__(self, width: int, heads: int, reach: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 2 * reach + 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, width = x.shape
        q, k, v = self.qkv(x).view(batch, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(attend(q, k, v, self.bias).transpose(1, 2).reshape(batch, places, width))


class Recaller(nn.Module):
    """Says for every place which tokens came `len(distances)` times before it."""

    def __init__(self, tokens: int, answers: int, width: int = 32, reach: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.attention = Attention(width, answers, reach)
        self.head = nn.Linear(width, answers * tokens)
        self.answers = answers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.head(self.attention(self.embedding(x)))
        return found.view(*x.shape, self.answers, -1)


# ------------------------------------------------------------------------------------------------ 3. the same in torch


def in_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The operation by torch's own: the bias of all pairs is made first."""
    places, reach = q.shape[2], bias.shape[1] // 2
    at = torch.arange(places)
    pairs = bias[:, (at[None] - at[:, None]).clamp(-reach, reach) + reach]
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=pairs[None])


def differences(places: int = 40) -> float:
    """The greatest difference between both, in values and all four gradients, in float64."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, places, 8)] * 3 + [(3, 13)]
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    results = []
    for function in (attend, in_torch):
        value = function(*inputs)
        results.append([value, *torch.autograd.grad(value.sin().sum(), inputs)])
    return max(float((ours - theirs).detach().abs().max()) for ours, theirs in zip(*results, strict=True))


# ------------------------------------------------------------------------------------------------ 4. training


def examples(
    count: int, tokens: int, places: int, distances: tuple[int, ...], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences, and for every place the tokens that came so many places before (around the end, where there are none)."""
    x = torch.randint(tokens, (count, places), generator=generator)
    return x, torch.stack([x.roll(distance, 1) for distance in distances], -1)


def train(steps: int, distances: tuple[int, ...] = (2, 5), tokens: int = 12, places: int = 24, seed: int = 0) -> tuple[Recaller, float]:
    """A trained model, and the share of its answers that are right on new sequences (where the token asked for is there)."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Recaller(tokens, len(distances))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(1, steps + 1):
        x, wanted = examples(64, tokens, places, distances, generator)
        loss = nn.functional.cross_entropy(model(x)[:, max(distances) :].flatten(0, 2), wanted[:, max(distances) :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 50 == 0:
            print(f"step {step:4}  loss {loss.item():.3f}")
    with torch.no_grad():
        x, wanted = examples(256, tokens, places, distances, generator)
        right = (model(x).argmax(-1) == wanted)[:, max(distances) :]
    return model, float(right.float().mean())


def main(arguments: list[str] | None = None) -> int:
    """Compares with torch, trains, and shows what the bias learned."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # tensors as small as these gain nothing from more
    print(f"ours and torch's differ by at most {differences():.1e} (values and gradients, float64)")
    start = time.perf_counter()
    model, accuracy = train(options.steps)
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s; {100 * accuracy:.1f} % of the answers are right")
    reach = model.attention.bias.shape[1] // 2
    for head, row in enumerate(model.attention.bias.detach()):
        print(f"head {head} looks {reach - int(row.argmax())} places back")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
