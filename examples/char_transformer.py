"""A character-level transformer, trained on this repository's own documents: modules, one compiled step, checkpoints.

    python -m tensorexpr.examples.char_transformer --steps 1000 --checkpoint model.safetensors

Interrupted, the same command goes on from its last checkpoint.

The model is modules that hold variables (`Block`, `Transformer`). A training step is one traced function: loss, gradients and the
optimizer's update become one compiled function, one call from Python. What a step sees depends on its number alone, and the number, the
weights and the optimizer's moments are in the checkpoint: a run that was interrupted goes on, bit for bit, as if it had not been.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from tqdm import tqdm

import tensorexpr as te
from tensorexpr.graph import layers, optimizers, rates

ROOT = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------------------------------------------- 1. operations


@te.op
def added(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """x + y, element by element."""
    return te.compute(x.shape, lambda *i: x[i] + y[i])


@te.op
def with_positions(x: te.Tensor, positions: te.Tensor) -> te.Tensor:
    """x (B, T, D) with the vector of each position added."""
    return te.compute(x.shape, lambda b, t, d: x[b, t, d] + positions[t, d])


@te.op
def gelu(x: te.Tensor) -> te.Tensor:
    """The Gaussian error linear unit, `x * Phi(x)`."""
    return te.compute(x.shape, lambda *i: 0.5 * x[i] * (1.0 + te.erf(x[i] * 0.5**0.5)))


@te.op
def cross_entropy(logits: te.Tensor, targets: te.Tensor) -> te.Tensor:
    """Mean of `-log softmax(logits)[b, t, targets[b, t]]`: the surprise, in nats, at each next character."""
    b, t, v = logits.shape
    top = te.stop_gradient(te.compute((b, t), lambda b, t: te.max(lambda c: logits[b, t, c], v), name="top"))
    total = te.compute((b, t), lambda b, t: te.sum(lambda c: te.exp(logits[b, t, c] - top[b, t]), v), name="total")
    return te.compute(
        (), lambda: te.sum(lambda i, j: te.log(total[i, j]) + top[i, j] - logits[i, j, targets[i, j]], (b, t)) / (b * t), name="loss"
    )


# ---------------------------------------------------------------------------------------------------- 2. the model


class Block(te.Module):
    """Attention to earlier characters, then a layer of features; each is added to what comes in, after a normalization."""

    def __init__(self, features: int, heads: int, rng: np.random.Generator) -> None:
        super().__init__()
        with self.name_scope:
            self.before_attention = layers.LayerNorm(features)
            self.attention = layers.Attention(features, heads, rng, causal=True)
            self.before_features = layers.LayerNorm(features)
            self.widen = layers.Linear(features, 4 * features, rng)
            self.narrow = layers.Linear(4 * features, features, rng)

    @te.Module.with_name_scope
    def __call__(self, x: Any) -> Any:
        x = added(x, self.attention(self.before_attention(x)))
        return added(x, self.narrow(gelu(self.widen(self.before_features(x)))))


class Transformer(te.Module):
    """Characters (B, T), as numbers below `characters`, to scores (B, T, characters) of what comes next at each place."""

    def __init__(self, characters: int, context: int, features: int, heads: int, blocks: int, rng: np.random.Generator) -> None:
        super().__init__()
        with self.name_scope:
            self.embedding = layers.Embedding(characters, features, rng)
            self.positions = te.Variable(0.02 * rng.standard_normal((context, features)).astype(np.float32), name="positions")
            self.blocks = [Block(features, heads, rng) for _ in range(blocks)]
            self.norm = layers.LayerNorm(features)
            self.scores = layers.Linear(features, characters, rng, bias=False)

    @te.function
    def __call__(self, characters: Any) -> Any:
        x = with_positions(self.embedding(characters), self.positions)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


class Training(te.Module):
    """A model and its optimizer: all the state of a run. `step` is the loss before the step that it takes."""

    def __init__(self, model: Transformer, steps: int, rate: float) -> None:
        super().__init__()
        self.model = model
        schedule = rates.Warmup(min(50, steps), rates.Cosine(rate, steps, final=rate / 10))
        self.optimizer = optimizers.AdamW(model.trainable_variables, schedule, clip_norm=1.0)

    @te.function
    def step(self, characters: Any, targets: Any) -> Any:
        loss = cross_entropy(self.model(characters), targets)
        self.optimizer.apply(te.gradients(loss, self.model.trainable_variables))
        return loss


# ---------------------------------------------------------------------------------------------------- 3. the text


class Text:
    """Characters as numbers. A batch depends on its number and the seed alone."""

    def __init__(self, text: str) -> None:
        self.characters = "".join(sorted(set(text)))
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        numbers = {character: number for number, character in enumerate(self.characters)}
        self.numbers = np.array([numbers[character] for character in text], np.int64)

    def batch(self, number: int, size: int, context: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows of the text, and the same moved on by one character."""
        starts = np.random.default_rng([seed, number]).integers(0, len(self.numbers) - context, size)
        windows = self.numbers[starts[:, None] + np.arange(context + 1)]
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def documents() -> str:
    """The documents of the repository."""
    return "\n".join(file.read_text() for file in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))])


def continuation(model: Transformer, text: Text, context: int, length: int, seed: int) -> str:
    """What the model writes, one character after the other, each drawn by its probability."""
    rng = np.random.default_rng(seed)
    written = [int(text.numbers[0])]
    for _ in range(length):
        window = written[-context:]
        given = np.zeros((1, context), np.int64)
        given[0, : len(window)] = window
        scores = model(given)[0, len(window) - 1].astype(np.float64)
        shares = np.exp(scores - scores.max())
        written.append(int(rng.choice(len(shares), p=shares / shares.sum())))
    return "".join(text.characters[number] for number in written)


# ---------------------------------------------------------------------------------------------------- 4. the run


def train(training: Training, text: Text, options: argparse.Namespace) -> tuple[list[float], float]:
    """Steps from where the optimizer is to `options.steps`; the losses, and seconds for a step after the first."""
    losses: list[float] = []
    begun = int(training.optimizer.steps.value)
    start = time.perf_counter()
    with tqdm(total=options.steps, initial=begun, desc="training", unit="step", disable=options.quiet) as progress:
        for number in range(begun, options.steps):
            losses.append(float(training.step(*text.batch(number, options.batch, options.context, options.seed))))
            if number == begun:
                start = time.perf_counter()
            progress.update()
            if number % 10 == 0:
                progress.set_postfix(loss=f"{np.mean(losses[-10:]):.3f}")
            if options.checkpoint and (number + 1 == options.steps or (number + 1) % options.every == 0):
                te.save_state(training, options.checkpoint, metadata={"text": text.digest})
    return losses, (time.perf_counter() - start) / max(1, len(losses) - 1)


def made(options: argparse.Namespace, text: Text) -> Training:
    """A new run, from the seed."""
    rng = np.random.default_rng(options.seed)
    model = Transformer(len(text.characters), options.context, options.features, options.heads, options.blocks, rng)
    return Training(model, options.steps if options.schedule is None else options.schedule, options.rate)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser("char_transformer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="steps in all, those before a checkpoint included (default: 500)")
    parser.add_argument("--schedule", type=int, help="steps that the learning rate falls over (default: all of them)")
    parser.add_argument("--batch", type=int, default=16, help="windows of text per step (default: 16)")
    parser.add_argument("--context", type=int, default=64, help="characters per window (default: 64)")
    parser.add_argument("--features", type=int, default=64, help="features per character (default: 64)")
    parser.add_argument("--heads", type=int, default=4, help="heads of attention (default: 4)")
    parser.add_argument("--blocks", type=int, default=2, help="blocks of the transformer (default: 2)")
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate (default: 0.003)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the batches (default: 0)")
    parser.add_argument("--text", type=Path, nargs="+", help="files to learn from (default: the documents of the repository)")
    parser.add_argument("--checkpoint", type=Path, help="safetensors file to write, and to go on from if it is there")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints (default: 100)")
    parser.add_argument("--write", type=int, default=300, help="characters to write at the end (default: 300)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    if options.text is None and not (ROOT / "docs").is_dir():
        parser.error("expected --text FILE ..., got none: this installation has no documents to learn from")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and shows what the model writes; exit status 1 if the loss did not fall."""
    options = parsed(arguments)
    console = Console()
    text = Text(documents() if options.text is None else "\n".join(file.read_text() for file in options.text))
    training = made(options, text)
    console.print(str(te.summary(training.model)), highlight=False, soft_wrap=True)
    if options.checkpoint and options.checkpoint.exists():
        if te.load_state(training, options.checkpoint).metadata.get("text") != text.digest:
            raise SystemExit(f"char_transformer: expected the text that {options.checkpoint} was trained on, got another")
        console.print(f"going on at step {int(training.optimizer.steps.value)} from {options.checkpoint}", highlight=False)

    start = time.perf_counter()
    step = training.step.compiled(*text.batch(0, options.batch, options.context, options.seed))
    seconds = time.perf_counter() - start
    console.print(f"one step (loss, gradients, update) traced and compiled in {seconds:.1f} s: {step.kernels} kernels", highlight=False)
    losses, seconds = train(training, text, options)
    if losses:
        console.print(f"loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f}, {1e3 * seconds:.2f} ms a step", highlight=False)
    if options.write:
        console.print(continuation(training.model, text, options.context, options.write, options.seed), highlight=False, markup=False)
    return 0 if not losses or np.mean(losses[-10:]) <= losses[0] else 1


if __name__ == "__main__":
    raise SystemExit(main())
