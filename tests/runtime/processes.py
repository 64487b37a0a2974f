"""What a child process does: calls kernels on several threads, compiles new ones, and says what it got."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.codegen.llvm import set_threads


@te.op
def mixture(x, w):
    """Large enough for several threads: a softmax of rows behind a product."""
    (n, k), (_, m) = x.shape, w.shape
    z = te.compute((n, m), lambda i, j: te.sum(lambda r: x[i, r] * w[r, j], k))
    e = te.compute((n, m), lambda i, j: te.exp(z[i, j] - te.max(lambda r: z[i, r], m)))
    return te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda r: e[i, r], m))


def digest() -> str:
    """The bits of large results, computed on several threads."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((300, 200)), rng.standard_normal((200, 150))
    y = mixture(x, w)
    made = hashlib.sha256()
    for result in (y, *te.vjp(mixture)(x, w, y)):
        made.update(result.tobytes())
    return made.hexdigest()


def compiled(number: int) -> bool:
    """Whether an op that no other process has compiles, and its gradient is right."""

    @te.op
    def shifted(x):
        return te.compute((), lambda: te.sum(lambda i: te.square(x[i] - number), x.shape[0]))

    x = np.arange(2000.0)
    return np.array_equal(te.grad(shifted)(x), 2 * (x - number))


def child(number: int, queue: Any) -> None:
    """Puts the digest of large results and whether compiling works into the queue."""
    set_threads(3)
    queue.put((digest(), compiled(number)))
