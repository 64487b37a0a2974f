"""How long programs of many definitions take to define, to differentiate and to build, cold.

Each row runs in this process, one after the other, with no cache on disk: layers of a transformer, blocks of a residual network, a chain of
definitions, a recurrent cell, all with the gradients of all parameters; ResNet-50 and DenseNet-121 for pictures of 224 x 224, forward, and
with gradients. Names ask for some of the rows (`transformer-12`, `chain-2000`); `--profile FILE` keeps what cProfile sees of them. What is
equal to what another row made would be found in memory, so memory is emptied between rows. `--library STEP` takes each STEP-th case of the
library's table instead: its gradient, derived and built, with quantiles and the slowest twenty.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks.subjects import derivation
from tensorexpr.codegen.memo import forget

Made = tuple[te.Tensor, list[te.Tensor]]


def transformer(layers: int, batch: int = 2, length: int = 64, width: int = 768, heads: int = 12, hidden: int = 3072) -> Made:
    """Layers as those of BERT: attention, a norm behind each sum, GELU."""
    depth = width // heads
    shapes = [(width, width)] * 4 + [(width,)] * 6 + [(hidden, width), (hidden,), (width, hidden), (width,), (width,), (width,)]
    x = te.placeholder((batch, length, width), name="x")
    inputs, y = [x], x

    def apart(t: te.Tensor) -> te.Tensor:
        return te.compute((batch, heads, length, depth), lambda b, h, l, e: t[b, l, h * depth + e])

    def added(s: te.Tensor, t: te.Tensor) -> te.Tensor:
        return te.compute(s.shape, lambda b, l, c: s[b, l, c] + t[b, l, c])

    for layer in range(layers):
        p = [te.placeholder(shape, name=f"p{layer}_{k}") for k, shape in enumerate(shapes)]
        inputs += p
        query, key, value = (apart(kernels.linear(y, p[k], p[4 + k])) for k in range(3))
        mixed = kernels.scaled_dot_product_attention(query, key, value)
        joined = te.compute((batch, length, width), lambda b, l, c, m=mixed: m[b, c // depth, l, c % depth])
        near = kernels.layer_norm(added(y, kernels.linear(joined, p[3], p[7])), p[8], p[9])
        far = kernels.linear(kernels.gelu(kernels.linear(near, p[10], p[11])), p[12], p[13])
        y = kernels.layer_norm(added(near, far), p[14], p[15])
    return y, inputs


def residual(blocks: int, channels: int = 64, side: int = 14, batch: int = 2) -> Made:
    """Blocks of two convolutions with scales and shifts."""
    x = te.placeholder((batch, channels, side, side), name="x")
    inputs, y = [x], x

    def scaled(t: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
        return te.compute(t.shape, lambda n, c, h, w: t[n, c, h, w] * scale[c] + shift[c])

    for block in range(blocks):
        w = [te.placeholder((channels, channels, 3, 3), name=f"w{block}_{k}") for k in range(2)]
        s = [te.placeholder((channels,), name=f"s{block}_{k}") for k in range(4)]
        inputs += w + s
        inner = kernels.relu(scaled(kernels.conv2d(y, w[0], padding=1), s[0], s[1]))
        outer = scaled(kernels.conv2d(inner, w[1], padding=1), s[2], s[3])
        y = kernels.relu(te.compute(y.shape, lambda n, c, a, b, o=outer, y=y: o[n, c, a, b] + y[n, c, a, b]))
    return y, inputs


def chain(definitions: int, size: int = 1000) -> Made:
    """One definition behind the other, all of which read the first."""
    x = te.placeholder((size,), name="x")
    y = x
    for k in range(definitions):
        y = te.compute((size,), lambda i, y=y: te.tanh(y[i]) * 0.5 + x[i], name=f"y{k}")
    return y, [x]


def recurrent(steps: int = 16, batch: int = 8, width: int = 32) -> Made:
    """A long short-term memory, as a scan."""
    x = te.placeholder((steps, batch, width), name="x")
    wx, wh = (te.placeholder((width, 4 * width), name=n) for n in ("wx", "wh"))
    b = te.placeholder((4 * width,), name="b")
    h0, c0 = (te.placeholder((batch, width), name=n) for n in ("h0", "c0"))

    def body(t: te.Scalar, state: tuple[te.Tensor, te.Tensor]) -> tuple[te.Tensor, te.Tensor]:
        h, c = state
        gates = te.compute(
            (batch, 4 * width),
            lambda n, j: te.sum(lambda k: x[t, n, k] * wx[k, j], width) + te.sum(lambda k: h[n, k] * wh[k, j], width) + b[j],
        )
        kept = te.compute(
            (batch, width),
            lambda n, j: te.sigmoid(gates[n, j + width]) * c[n, j] + te.sigmoid(gates[n, j]) * te.tanh(gates[n, j + 2 * width]),
        )
        return te.compute((batch, width), lambda n, j: te.sigmoid(gates[n, j + 3 * width]) * te.tanh(kept[n, j])), kept

    states, _ = te.scan(body, (h0, c0), steps)
    return states, [x, wx, wh, b, h0, c0]


class _Network:
    """The inputs of a convolutional network as it is written down."""

    def __init__(self) -> None:
        self.x = te.placeholder((1, 3, 224, 224), name="x")
        self.inputs = [self.x]

    def parameter(self, *shape: int) -> te.Tensor:
        self.inputs.append(te.placeholder(shape, name=f"p{len(self.inputs)}"))
        return self.inputs[-1]

    def convolved(self, x: te.Tensor, channels: int, size: int, stride: int = 1) -> te.Tensor:
        weight = self.parameter(channels, _extent(x, 1), size, size)
        return kernels.conv2d(x, weight, stride=stride, padding=size // 2)

    def normed(self, x: te.Tensor) -> te.Tensor:
        return kernels.batch_norm(x, *(self.parameter(_extent(x, 1)) for _ in range(4)))

    def classified(self, x: te.Tensor) -> te.Tensor:
        n, c, h, w = (_extent(x, axis) for axis in range(4))
        mean = te.compute((n, c), lambda b, k: te.sum(lambda i, j: x[b, k, i, j], (h, w)) / float(h * w))
        return kernels.linear(mean, self.parameter(1000, c), self.parameter(1000))


def _extent(x: te.Tensor, axis: int) -> int:
    return int(x.shape[axis])


def _added(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return te.compute(a.shape, lambda n, c, i, j: a[n, c, i, j] + b[n, c, i, j])


def resnet(blocks: Sequence[int] = (3, 4, 6, 3)) -> Made:
    """ResNet-50."""
    net = _Network()
    y = kernels.relu(net.normed(net.convolved(net.x, 64, 7, 2)))
    y = kernels.max_pool2d(y, kernel_size=3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            z = kernels.relu(net.normed(net.convolved(y, width, 1)))
            z = kernels.relu(net.normed(net.convolved(z, width, 3, stride)))
            z = net.normed(net.convolved(z, 4 * width, 1))
            y = kernels.relu(_added(z, y if block else net.normed(net.convolved(y, 4 * width, 1, stride))))
    return net.classified(y), net.inputs


def densenet(blocks: Sequence[int] = (6, 12, 24, 16), growth: int = 32) -> Made:
    """DenseNet-121."""
    net = _Network()
    y = kernels.relu(net.normed(net.convolved(net.x, 64, 7, 2)))
    y = kernels.max_pool2d(y, kernel_size=3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        for _ in range(count):
            z = net.convolved(kernels.relu(net.normed(y)), 4 * growth, 1)
            z = net.convolved(kernels.relu(net.normed(z)), growth, 3)
            y = kernels.concatenate((y, z), axis=1)
        if stage + 1 < len(blocks):
            y = net.convolved(kernels.relu(net.normed(y)), _extent(y, 1) // 2, 1)
            y = kernels.avg_pool2d(y, kernel_size=2)
    return net.classified(kernels.relu(net.normed(y))), net.inputs


ROWS: dict[str, Callable[[], Made]] = {
    "transformer-1": lambda: transformer(1),
    "transformer-12": lambda: transformer(12),
    "residual-16": lambda: residual(16),
    "chain-250": lambda: chain(250),
    "chain-1000": lambda: chain(1000),
    "chain-2000": lambda: chain(2000),
    "recurrent": recurrent,
    "resnet-50-forward": resnet,
    "resnet-50": resnet,
    "densenet-121-forward": densenet,
    "densenet-121": densenet,
}


def timed(make: Callable[[], Made], gradients: bool = True) -> tuple[float, float, float]:
    """Seconds to define a program, to differentiate it by all of its inputs where `gradients` are wanted, and to build both."""
    marks = [time.perf_counter()]
    y, inputs = make()
    marks.append(time.perf_counter())
    head = te.placeholder(y.shape, name="head")
    outputs = [y, *te.gradient(y, inputs, head)] if gradients else [y]
    marks.append(time.perf_counter())
    te.build(outputs, [*inputs, head] if gradients else inputs)
    marks.append(time.perf_counter())
    define, differentiate, build = (b - a for a, b in pairwise(marks))
    return define, differentiate, build


Result = TypeVar("Result")


def profiled(profile: cProfile.Profile | None, run: Callable[[], Result]) -> Result:
    """What a function gives that starts with nothing in memory, seen by a profile."""
    forget()
    return run() if profile is None else profile.runcall(run)


def library(step: int, profile: cProfile.Profile | None) -> None:
    """Prints how long the gradients of the library's cases take: to derive, and in all; the slowest twenty."""
    found = []
    for case in derivation.cases()[::step]:
        inputs = [derivation.placeholders(tree, f"x{number}") for number, tree in enumerate(case.arrays())]
        given = list(derivation.leaves(inputs))

        def run(case: Any = case, inputs: Any = inputs, given: list[te.Tensor] = given) -> tuple[float, float]:
            start = time.perf_counter()
            outputs = [tensor for tensor in derivation.leaves(case.op(*inputs, **case.static)) if tensor.dtype.is_float]
            heads = [te.placeholder(t.shape, t.dtype.name, name=f"head{number}") for number, t in enumerate(outputs)]
            gradient = te.gradient(outputs, [tensor for tensor in given if tensor.dtype.is_float], heads)
            derived = time.perf_counter()
            te.build(list(gradient), [*given, *heads])
            return derived - start, time.perf_counter() - start

        found.append((*profiled(profile, run), case.name))
    totals = sorted(total for _, total, _ in found)
    most = totals[min(len(totals) - 1, int(0.95 * len(totals)))]
    print(f"{len(found)} gradients, ms: median {1e3 * median(totals):.0f}, 95 % under {1e3 * most:.0f}, most {1e3 * totals[-1]:.0f}")
    print("| slowest | derive, ms | in all, ms |\n| --- | --- | --- |")
    for derive, total, name in sorted(found, key=lambda one: -one[1])[:20]:
        print(f"| {name} | {1e3 * derive:.0f} | {1e3 * total:.0f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for each program."""
    parser = argparse.ArgumentParser(prog="python -m tensorexpr.benchmarks.subjects.compiling", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)} (default: all)")
    parser.add_argument("--library", type=int, metavar="STEP", help="each STEP-th case of the library's table instead")
    parser.add_argument("--profile", metavar="FILE", help="keep a profile of the rows")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.rows if name not in ROWS]
    if unknown:
        parser.error(f"expected rows among {', '.join(ROWS)}, got {', '.join(unknown)}")
    os.environ["TENSOREXPR_CACHE_DIR"] = ""
    te.build(te.compute((4,), lambda i: 1.0 * i))  # what a process makes once
    profile = cProfile.Profile() if given.profile else None
    if given.library:
        library(given.library, profile)
    else:
        print("| program with its gradient | define, s | differentiate, s | build, s |\n| --- | --- | --- | --- |")
        for name in given.rows or ROWS:
            found = profiled(profile, partial(timed, ROWS[name], not name.endswith("-forward")))
            print(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in found)} |", flush=True)
    if profile is not None:
        profile.dump_stats(given.profile)


if __name__ == "__main__":
    main()
