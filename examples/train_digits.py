"""Train a small convolutional network on handwritten digits, every operation written as index mathematics.

Read it top to bottom: the operations (a few lines each), the network as modules, what the compiler makes of an operation, the
training step as one compiled function, and what the same step costs in NumPy. Run it with ``make demo`` or
``python examples/train_digits.py``. The data are the 1,797 real digits of 8 x 8 pixels that come with scikit-learn; nothing is
downloaded. With ``--checkpoint FILE`` a run that was interrupted goes on from its last epoch when it is started again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.syntax import Syntax
from sklearn.datasets import load_digits
from tqdm import tqdm

import tensorexpr as te
from tensorexpr.graph import optimizers, rates

# ------------------------------------------------------------------------------------------------ 1. the operations
# An operation is a Python function on tensors. `te.compute(shape, body)` says what each element is; keyword-only
# arguments are static. Every access is proved to be in bounds when the operation is traced: `x.read(..., outside=0.0)`
# is how one asks for zero padding, and without it the convolution below would be refused with a counterexample.


@te.op
def conv2d(x: te.Tensor, w: te.Tensor, b: te.Tensor, *, stride: int = 1, padding: int = 1) -> te.Tensor:
    """Convolution: x[n, c, h, l], w[k, c, r, s], b[k] -> [n, k, (h + 2 padding - r) // stride + 1, ...]."""
    n, c, h, l = x.shape
    k, _, r, s = w.shape
    return te.compute(
        (n, k, (h + 2 * padding - r) // stride + 1, (l - s + 2 * padding) // stride + 1),
        lambda n, k, y, z: (
            b[k]
            + te.sum(
                lambda c, i, j: x.read(n, c, y * stride + i - padding, z * stride + j - padding, outside=0.0) * w[k, c, i, j],
                (c, r, s),
            )
        ),
    )


@te.op
def relu(x: te.Tensor) -> te.Tensor:
    """max(x, 0), element by element; written so that its derivative at 0 is 0 (te.maximum would split the tie in half)."""
    return te.compute(x.shape, lambda *i: te.where(x[i] > 0, x[i], 0.0))


@te.op
def max_pool(x: te.Tensor, *, size: int = 2) -> te.Tensor:
    """The maximum of each size x size block."""
    n, c, h, l = x.shape
    return te.compute(
        (n, c, h // size, l // size),
        lambda n, c, y, z: te.max(lambda i, j: x[n, c, y * size + i, z * size + j], (size, size)),
    )


@te.op
def flatten(x: te.Tensor) -> te.Tensor:
    """[n, c, h, l] -> [n, c * h * l], by index arithmetic."""
    n, c, h, l = x.shape
    return te.compute((n, c * h * l), lambda n, f: x[n, f // (h * l), f // l % h, f % l])


@te.op
def dense(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
    """x[n, f] w[f, k] + b[k]."""
    (n, f), (_, k) = x.shape, w.shape
    return te.compute((n, k), lambda n, k: b[k] + te.sum(lambda f: x[n, f] * w[f, k], f))


@te.op
def log_softmax(z: te.Tensor) -> te.Tensor:
    """z - log(sum(exp(z))) along the last axis, shifted by the row's maximum so that nothing overflows."""
    n, k = z.shape
    top = te.compute((n,), lambda n: te.max(lambda k: z[n, k], k), name="top")
    total = te.compute((n,), lambda n: te.sum(lambda k: te.exp(z[n, k] - top[n]), k), name="total")
    return te.compute((n, k), lambda n, k: z[n, k] - top[n] - te.log(total[n]))


@te.op
def cross_entropy(log_p: te.Tensor, labels: te.Tensor) -> te.Tensor:
    """Mean of -log_p[n, labels[n]]; a label outside the classes is an IndexError when the kernel runs."""
    n, _ = log_p.shape
    return te.compute((), lambda: -te.sum(lambda i: log_p[i, labels[i]], n) / n)


# ------------------------------------------------------------------------------------------------ 2. the network
# A module is an object that holds variables, and other modules; what it computes is whatever methods it has. Operations called on
# variables compose. A function marked `te.function` is traced once for each shape and compiled whole.


class Layer(te.Module):
    """A weight (He-initialized) and a bias (zero), float32."""

    def __init__(self, shape: tuple[int, ...], outputs: int, rng: np.random.Generator) -> None:
        super().__init__()
        fan_in = np.prod(shape) / outputs
        self.w = te.Variable((rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32), name="w")
        self.b = te.Variable(np.zeros(outputs, np.float32), name="b")


class Network(te.Module):
    """Two convolutions (the second with stride 2), a max-pool between them, a dense layer: [n, 1, 8, 8] -> [n, 10]."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.first = Layer((16, 1, 3, 3), 16, rng)
        self.second = Layer((32, 16, 3, 3), 32, rng)
        self.last = Layer((128, 10), 10, rng)

    @te.function
    def logits(self, x: Any) -> Any:
        hidden = max_pool(relu(conv2d(x, self.first.w, self.first.b)))
        hidden = relu(conv2d(hidden, self.second.w, self.second.b, stride=2))
        return dense(flatten(hidden), self.last.w, self.last.b)


class Training(te.Module):
    """The network and its optimizer. A step (loss, all gradients, the update of all variables) is one compiled function."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__()
        self.network = Network(seed)
        self.optimizer = optimizers.Adam(self.network.trainable_variables, rates.Cosine(3e-3, steps))

    @te.function
    def step(self, x: Any, labels: Any) -> Any:
        loss = cross_entropy(log_softmax(self.network.logits(x)), labels)
        self.optimizer.apply(te.gradients(loss, self.network.trainable_variables))
        return loss


# ------------------------------------------------------------------------------------------------ 3. a look inside


def look_inside(console: Console, batch: int) -> None:
    """Prints the strided convolution, its gradient, the gradient's loop nest, the report, and checks the derivative."""

    def heading(title: str) -> None:
        console.print(f"\n[bold]{title}[/bold]", soft_wrap=True)

    def show(title: str, code: object) -> None:
        heading(title)
        console.print(Syntax(str(code), "python", theme="ansi_dark", background_color="default"), soft_wrap=True)

    x = te.placeholder((batch, 16, 4, 4), name="x")
    w = te.placeholder((32, 16, 3, 3), name="w")
    b = te.placeholder((32,), name="b")
    head = te.placeholder((batch, 32, 2, 2), name="y_bar")
    show("The strided convolution as the compiler sees it", conv2d.trace(x, w, b, stride=2))

    y = conv2d(x, w, b, stride=2)
    gradient = te.gradient(y, [x, w, b], head)
    compiled = te.build(list(gradient), [x, w, b, head])
    show("Its gradient, derived: each element gathers exactly what read it (no atomics, no Jacobian)", compiled.program)
    parameters, kernel, *_ = compiled.source("nest").split("\n\n")
    show("The loop nest of the gradient: its first kernel, which makes x_bar", f"{parameters}\n\n{kernel}")
    heading("The gradient report: one row per read, with what its loops visit and the exact number of reads")
    console.print(str(gradient.report()), highlight=False, markup=False, soft_wrap=True)

    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(t.shape) for t in (te.placeholder((2, 16, 4, 4)), w, b)]
    heading("Gradient check against finite differences")
    console.print(str(te.check_gradient(conv2d, *arrays, stride=2)), highlight=False, markup=False, soft_wrap=True)


# ------------------------------------------------------------------------------------------------ 4. training


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images in [0, 1] as [n, 1, 8, 8] float32, labels int64; a fixed shuffle, one fifth for testing."""
    digits: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    split = len(labels) * 4 // 5
    return images[:split], labels[:split], images[split:], labels[split:]


def train(training: Training, epochs: int, batch: int, seed: int, checkpoint: Path | None = None) -> tuple[float, int]:
    """Trains the network from the epoch where its optimizer is; gives the seconds spent and the number of steps."""
    images, labels, _, _ = load_data()
    each = len(labels) // batch
    done = int(training.optimizer.steps.value)
    start = time.perf_counter()
    with tqdm(total=epochs * each, initial=done, desc="training", unit="step") as progress:
        for epoch in range(done // each, epochs):
            order, loss = np.random.default_rng([seed, epoch]).permutation(len(labels)), float("nan")
            for first in range(0, each * batch, batch):
                chosen = order[first : first + batch]
                loss = training.step(images[chosen], labels[chosen])
                progress.update()
            progress.set_postfix(epoch=epoch + 1, loss=f"{float(loss):.4f}")
            if checkpoint:
                te.save_state(training, checkpoint)
    return time.perf_counter() - start, epochs * each - done


def accuracy(network: Network) -> float:
    """The share of test digits that the network names rightly."""
    _, _, images, labels = load_data()
    return float((np.argmax(network.logits(images), axis=1) == labels).mean())


# ------------------------------------------------------------------------------------------------ 5. the same in NumPy
# What one writes without a compiler: windows and einsum forward, the backward of every layer by hand.


def _windows(x: np.ndarray, stride: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]


def numpy_loss_and_gradients(x: np.ndarray, labels: np.ndarray, *parameters: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
    """The value and gradients of `loss`, in NumPy."""
    w1, b1, w2, b2, w3, b3 = parameters
    n = len(x)
    windows1 = _windows(x, 1)
    h1 = np.einsum("ncyzij,kcij->nkyz", windows1, w1, optimize=True) + b1[:, None, None]
    a1 = np.maximum(h1, 0)
    blocks = a1.reshape(n, 16, 4, 2, 4, 2).swapaxes(3, 4).reshape(n, 16, 4, 4, 4)
    winner = blocks.argmax(-1)[..., None]
    pooled = np.take_along_axis(blocks, winner, -1)[..., 0]
    windows2 = _windows(pooled, 2)
    h2 = np.einsum("ncyzij,kcij->nkyz", windows2, w2, optimize=True) + b2[:, None, None]
    features = np.maximum(h2, 0).reshape(n, -1)
    z = features @ w3 + b3
    shifted = z - z.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    value = -log_p[np.arange(n), labels].mean()

    z_bar = np.exp(log_p)
    z_bar[np.arange(n), labels] -= 1
    z_bar /= n
    h2_bar = (z_bar @ w3.T).reshape(h2.shape) * (h2 > 0)
    windows2_bar = np.einsum("nkyz,kcij->ncyzij", h2_bar, w2, optimize=True)
    pooled_bar = np.zeros((n, 16, 6, 6), np.float32)
    for i in range(3):
        for j in range(3):
            pooled_bar[:, :, i : i + 3 : 2, j : j + 3 : 2] += windows2_bar[..., i, j]
    blocks_bar = np.zeros_like(blocks)
    np.put_along_axis(blocks_bar, winner, pooled_bar[:, :, 1:-1, 1:-1, None], -1)
    h1_bar = blocks_bar.reshape(n, 16, 4, 4, 2, 2).swapaxes(3, 4).reshape(a1.shape) * (h1 > 0)
    return value, (
        np.einsum("ncyzij,nkyz->kcij", windows1, h1_bar, optimize=True),
        h1_bar.sum((0, 2, 3)),
        np.einsum("ncyzij,nkyz->kcij", windows2, h2_bar, optimize=True),
        h2_bar.sum((0, 2, 3)),
        features.T @ z_bar,
        z_bar.sum(0),
    )


def variables_of(training: Training) -> list[te.Variable]:
    """The variables in the order of the arguments of `numpy_loss_and_gradients`."""
    network = training.network
    return [variable for layer in (network.first, network.second, network.last) for variable in (layer.w, layer.b)]


class NumpyTraining:
    """The same variables, trained in NumPy."""

    def __init__(self, training: Training) -> None:
        self.parameters = [variable.value.copy() for variable in variables_of(training)]
        self.first = [np.zeros_like(p) for p in self.parameters]
        self.second = [np.zeros_like(p) for p in self.parameters]
        self.rate = training.optimizer.rate
        self.steps = 0

    def step(self, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Adam, updating the parameters in place."""
        value, gradients = numpy_loss_and_gradients(x, labels, *self.parameters)
        rate = self.rate.at(self.steps)
        self.steps += 1
        scale = np.float32(rate / (1 - 0.9**self.steps))
        root = np.float32(np.sqrt(1 - 0.999**self.steps))
        for p, m, v, g in zip(self.parameters, self.first, self.second, gradients, strict=True):
            m += np.float32(0.1) * (g - m)
            v += np.float32(0.001) * (g * g - v)
            p -= scale * m / (np.sqrt(v) / root + np.float32(1e-8))
        return value


def compare_with_numpy(batch: int, seed: int, rounds: int = 200) -> tuple[float, float, float]:
    """Median milliseconds of one step, compiled and in NumPy, in turn; and the largest difference of a weight after the first five."""
    images, labels, _, _ = load_data()
    x, y = images[:batch], labels[:batch]
    training = Training(seed, rounds)
    numpy = NumpyTraining(training)
    times: dict[str, list[float]] = {"compiled": [], "numpy": []}
    difference = 0.0
    for count in range(rounds):
        for name, step in (("compiled", training.step), ("numpy", numpy.step)):
            start = time.perf_counter()
            step(x, y)
            times[name].append(time.perf_counter() - start)
        if count == 4:
            difference = max(float(np.abs(v.value - p).max()) for v, p in zip(variables_of(training), numpy.parameters, strict=True))
    return 1e3 * float(np.median(times["compiled"])), 1e3 * float(np.median(times["numpy"])), difference


def main(arguments: list[str] | None = None) -> int:
    """Runs the tutorial; exit status 1 if the network stays below 97 % on the test digits."""
    parser = argparse.ArgumentParser("train_digits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training digits (default: 20)")
    parser.add_argument("--batch", type=int, default=32, help="digits per step (default: 32)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and the order of the digits (default: 0)")
    parser.add_argument("--checkpoint", type=Path, help="safetensors file to write after every epoch, and to go on from")
    parser.add_argument("--quiet", action="store_true", help="train and report only, without the look inside")
    options = parser.parse_args(arguments)
    console = Console()
    if not options.quiet:
        look_inside(console, options.batch)

    console.print("\n[bold]Training on 1,437 digits, testing on 360 others[/bold]")
    images, labels, _, _ = load_data()
    training = Training(options.seed, options.epochs * (len(labels) // options.batch))
    console.print(str(te.summary(training.network)), highlight=False, soft_wrap=True)
    start = time.perf_counter()
    step = training.step.compiled(images[: options.batch], labels[: options.batch])
    console.print(
        f"traced and compiled a step (loss, six gradients, update) in {time.perf_counter() - start:.2f} s: {step.kernels} kernels",
        highlight=False,
    )
    if options.checkpoint and options.checkpoint.exists():
        te.load_state(training, options.checkpoint)
        console.print(f"going on at step {int(training.optimizer.steps.value)} from {options.checkpoint}", highlight=False)
    seconds, steps = train(training, options.epochs, options.batch, options.seed, options.checkpoint)
    reached = accuracy(training.network)
    console.print(f"test accuracy [bold]{100 * reached:.2f} %[/bold] after {steps} steps in {seconds:.1f} s", highlight=False)
    compiled, numpy, difference = compare_with_numpy(options.batch, options.seed)
    console.print(
        f"one step (loss, all gradients, update; batch of {options.batch}): [bold]{compiled:.3f} ms[/bold] compiled, "
        f"{numpy:.3f} ms in NumPy ({numpy / compiled:.1f}x)\n"
        f"after five steps the weights of both differ by at most {difference:.1e}",
        highlight=False,
        soft_wrap=True,
    )
    return 0 if reached >= 0.97 else 1


if __name__ == "__main__":
    raise SystemExit(main())
