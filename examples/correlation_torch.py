"""A local correlation as a layer in torch: how far did each image move?

Optical flow networks compare the features of one image with those of another at every displacement within a window (the cost
volume of FlowNet). torch has no such operation: with its own, the second image is copied out once per displacement, and in libraries
it is a CUDA kernel with a backward written by hand. `tensorexpr.kernels.correlation` is the formula; the layer below is a module around it,
its gradients by both images are compiled, and torch trains the features in front of it. Run it with
``python examples/correlation_torch.py``; needs torch.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

from tensorexpr.interop.torch import as_torch
from tensorexpr.kernels import correlation

# ------------------------------------------------------------------------------------------------ 1. the layer

correlate = as_torch(correlation)


class LocalCorrelation(nn.Module):
    """How well x at each place fits y displaced by each (u, v) up to `reach`: [n, c, h, w] twice -> [n, 2 reach + 1, 2 reach + 1, h, w]."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return correlate(x, y, max_displacement=self.reach)


# ------------------------------------------------------------------------------------------------ 2. the same in torch


def in_torch(x: torch.Tensor, y: torch.Tensor, reach: int) -> torch.Tensor:
    """The layer by torch's own operations: a shifted copy of y for each displacement."""
    height, width = x.shape[2:]
    padded = nn.functional.pad(y, (reach,) * 4)
    side = range(2 * reach + 1)
    rows = [torch.stack([(x * padded[:, :, u : u + height, v : v + width]).mean(1) for v in side], 1) for u in side]
    return torch.stack(rows, 1)


def differences(reach: int = 3) -> float:
    """The greatest difference between both, in values and both gradients, in float64."""
    generator = torch.Generator().manual_seed(0)
    images = [torch.randn(2, 5, 9, 11, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    results = []
    for function in (LocalCorrelation(reach), lambda x, y: in_torch(x, y, reach)):
        value = function(*images)
        results.append([value, *torch.autograd.grad(value.sin().sum(), images)])
    return max(float((ours - theirs).detach().abs().max()) for ours, theirs in zip(*results, strict=True))


# ------------------------------------------------------------------------------------------------ 3. a network around it


class Motion(nn.Module):
    """How far the second image is moved against the first, as (rows, columns): features, correlation, and the mean displacement
    weighted by how well it fits."""

    def __init__(self, reach: int, channels: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.Tanh(), nn.Conv2d(channels, channels, 3, padding=1))
        self.correlation = LocalCorrelation(reach)
        self.sharpness = nn.Parameter(torch.tensor(1.0))
        steps = torch.arange(-reach, reach + 1.0)
        self.register_buffer("displacements", torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1).flatten(0, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        costs = self.correlation(self.features(x), self.features(y)).mean((3, 4)).flatten(1)
        return (self.sharpness * costs).softmax(1) @ self.displacements


# ------------------------------------------------------------------------------------------------ 4. training


def pairs(count: int, side: int, reach: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of noisy images of random texture, and how far the second of each is moved."""
    motion = torch.randint(-reach, reach + 1, (count, 2), generator=generator)
    texture = torch.randn(count, 1, side, side, generator=generator)
    moved = torch.stack([image.roll(tuple(shift.tolist()), (1, 2)) for image, shift in zip(texture, motion, strict=True)])
    noise = 0.5 * torch.randn(2, count, 1, side, side, generator=generator)
    return texture + noise[0], moved + noise[1], motion.float()


def train(steps: int, reach: int = 3, side: int = 20, seed: int = 0) -> tuple[Motion, float]:
    """A trained network, and how far off it is on new pairs, in pixels."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Motion(reach)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(1, steps + 1):
        x, y, motion = pairs(16, side, reach, generator)
        loss = (model(x, y) - motion).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 20 == 0:
            print(f"step {step:4}  squared error {loss.item():.3f}")
    with torch.no_grad():
        x, y, motion = pairs(128, side, reach, generator)
        return model, float((model(x, y) - motion).norm(dim=1).mean())


def main(arguments: list[str] | None = None) -> int:
    """Compares with torch, and trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # tensors as small as these gain nothing from more
    print(f"ours and torch's differ by at most {differences():.1e} (values and gradients, float64)")
    start = time.perf_counter()
    _, error = train(options.steps)
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s; off by {error:.2f} pixels on average")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
