"""Programs of open sizes in plain index notation beside NumPy, gradients beside fixed sizes, between protected pages.

Extents are expressions of sizes, sizes are strides, dilations, radices and lengths of windows, and facts are known of some.
"""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compiled import versions
from tests.runtime.pages import GuardedArray, guarded_copy

RNG = np.random.default_rng(20)
PAIRS = ((0, 5), (1, 1), (7, 13), (31, 2), (97, 101))


def placed(name, *shape, dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def three_parts(n, m):
    x, y = placed("x", n), placed("y", m)

    def body(i):
        return te.where(
            i < n, x.read(i, outside=0.0), te.where(i < n + m, y.read(i - n, outside=0.0), x.read(2 * n + m - 1 - i, outside=0.0))
        )

    return te.compute((2 * n + m,), body), [x, y], lambda x, y: np.concatenate([x, y, x[::-1]])


def differences(n, m):
    x = placed("x", n, m)
    return (
        te.compute(((n + 1) // 2, m // 2), lambda i, j: x[2 * i, 2 * j + 1] - x[2 * i, 2 * j]),
        [x],
        lambda x: x[::2, 1::2] - x[::2, : x.shape[1] // 2 * 2 : 2],
    )


def triangular(n, m):
    x, y = placed("x", n, n), placed("y", n, m)
    return te.compute((n, m), lambda i, j: te.sum(lambda k: x[i, k] * y[k, j], i + 1)), [x, y], lambda x, y: np.tril(x) @ y


def full_convolution(n, m):
    x, w = placed("x", n), placed("w", m)
    made = te.compute((n + m - 1,), lambda i: te.sum(lambda r: x.read(i - r, outside=0.0) * w[r], m))
    return made, [x, w], lambda x, w: np.convolve(x, w) if len(x) else np.zeros(len(w) - 1)


def dilated(n, d):
    x, w = placed("x", n, 3), placed("w", 3, d)
    made = te.compute((n, 3), lambda i, c: te.sum(lambda r: x.read(i - r * d, c, outside=0.0) * w[r, 0], 3))

    def expected(x, w):
        far = w.shape[1]
        padded = np.pad(x, ((2 * far, 0), (0, 0)))
        return sum(padded[(2 - r) * far :][: len(x)] * w[r, 0] for r in range(3))

    return made, [x, w], expected


def strided(n, s):
    x, z = placed("x", n * s, 3), placed("z", s)
    made = te.compute((n, 3), lambda i, c: te.sum(lambda r: x[i * s + r, c] * z[r], s))
    return made, [x, z], lambda x, z: np.einsum("nsc,s->nc", x.reshape(-1, len(z), 3), z)


def repeated(n, m):
    x, y = placed("x", n, 2), placed("y", m)
    return te.compute((n * m, 2), lambda i, j: x[i // m, j] * y[i % m]), [x, y], lambda x, y: (x[:, None] * y[:, None]).reshape(-1, 2)


def rolled(n, m):
    x = placed("x", n, m)
    made = te.compute((n, m), lambda i, j: x[(i + n // 2) % n, j] - x[n - 1 - i, m - 1 - j])
    return made, [x], lambda x: np.roll(x, -(len(x) // 2), 0) - x[::-1, ::-1]


def anti_diagonals(n, m):
    x = placed("x", n, m)
    made = te.scatter((n + m,), lambda i, j: (i + j, x[i, j]), (n, m))

    def expected(x):
        found = np.zeros(sum(x.shape))
        for i, row in enumerate(x):
            found[i : i + len(row)] += row
        return found

    return made, [x], expected


def recurrence(n, m):
    x, w = placed("x", n, m), placed("w", m, m)
    start = te.compute((m,), lambda j: te.cast(0, "float64"))
    made = te.scan(lambda t, s: te.compute((m,), lambda j: te.tanh(x[t, j] + te.sum(lambda k: w[j, k] * s[k], m) * 0.1)), start, n)

    def expected(x, w):
        states = [np.zeros(len(w))]
        for row in x:
            states.append(np.tanh(row + w @ states[-1] * 0.1))
        return np.array(states[1:]).reshape(-1, len(w))

    return made, [x, w], expected


def blocked(n, m):
    x = placed("x", n, m)
    return (
        te.compute((n // 16, m), lambda i, j: te.sum(lambda r: x[16 * i + r, j], 16)),
        [x],
        lambda x: x.reshape(len(x) // 16, 16, x.shape[1]).sum(1),
    )


def transposed_convolution(n, m):
    x, w = placed("x", n, m), placed("w", 4)
    made = te.compute(
        (n, 2 * m + 2), lambda n, i: te.sum(lambda r: te.where((i - r) % 2 == 0, x.read(n, (i - r) // 2, outside=0.0) * w[r], 0.0), 4)
    )

    def expected(x, w):
        n, m = x.shape
        found = np.zeros((n, 2 * m + 2))
        for r in range(4):
            found[:, r : r + 2 * m : 2] += x * w[r]
        return found

    return made, [x, w], expected


def small_products(n, m):
    x, y = placed("x", n, m, m), placed("y", n, m, m)
    made = te.compute((n, m, m), lambda b, i, j: te.sum(lambda k: x[b, i, k] * y[b, k, j], m))
    return made, [x, y], lambda x, y: x @ y


def uneven_products(n, m):
    x, y = placed("x", n, m), placed("y", m, n + 1)
    return te.compute((n, n + 1), lambda i, j: te.sum(lambda k: x[i, k] * y[k, j], m)), [x, y], lambda x, y: x @ y


def attention(n, m):
    q, k, v = (placed(name, n, m, 16) for name in "qkv")
    s = te.compute((n, m, m), lambda b, i, j: te.sum(lambda d: q[b, i, d] * k[b, j, d], 16) * 0.25, name="s")
    top = te.compute((n, m), lambda b, i: te.max(lambda j: s[b, i, j], m), name="top")
    p = te.compute((n, m, m), lambda b, i, j: te.exp(s[b, i, j] - top[b, i]), name="p")
    total = te.compute((n, m), lambda b, i: te.sum(lambda j: p[b, i, j], m), name="total")
    made = te.compute((n, m, 16), lambda b, i, d: te.sum(lambda j: p[b, i, j] * v[b, j, d], m) / total[b, i])

    def expected(q, k, v):
        weights = np.exp(q @ k.swapaxes(1, 2) * 0.25)
        return weights @ v / weights.sum(2, keepdims=True)

    return made, [q, k, v], expected


CASES = [
    (attention, {}, ((0, 5), (2, 0), (1, 1), (2, 7), (1, 8), (3, 16), (1, 33), (5, 64), (1, 300))),
    (three_parts, {}, PAIRS),
    (differences, {}, PAIRS),
    (triangular, {}, PAIRS),
    (full_convolution, {}, ((0, 1), (1, 1), (5, 3), (40, 7), (97, 101))),
    (dilated, {"m": {"min": 1}}, ((0, 1), (1, 1), (9, 2), (41, 5), (97, 96))),
    (strided, {"m": {"min": 1}}, ((0, 1), (1, 1), (9, 2), (41, 5), (97, 96))),
    (repeated, {}, PAIRS),
    (rolled, {}, PAIRS),
    (anti_diagonals, {}, PAIRS),
    (recurrence, {}, ((0, 1), (1, 1), (3, 7), (17, 5), (31, 33))),
    (blocked, {"n": {"min": 1, "multiple_of": 16}}, ((16, 1), (48, 0), (112, 3), (496, 17))),
    (small_products, {}, ((0, 3), (2, 0), *((3, m) for m in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)))),
    (uneven_products, {}, tuple((n, m) for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 65) for m in (1, 4, 9))),
    (transposed_convolution, {}, ((0, 1), (1, 1), (2, 3), (7, 11), (33, 71))),
]


def with_gradient(make, n, m):
    made, inputs, expected = make(n, m)
    head = te.placeholder(made.shape, "float64", name="head")
    return [made, *te.gradient(made, inputs, head)], [*inputs, head], expected


@pytest.mark.parametrize(("make", "facts", "sizes"), CASES, ids=[make.__name__ for make, *_ in CASES])
def test_every_size_is_as_if_it_were_fixed(make, facts, sizes, monkeypatch):
    monkeypatch.setattr(versions, "WORTH", 1 << 62)
    outputs, inputs, _ = with_gradient(make, *(te.dim(name, **facts.get(name, {})) for name in "nm"))
    function = te.build(outputs, inputs)
    for n, m in sizes:
        fixed, places, expected = with_gradient(make, n, m)
        arrays = [RNG.standard_normal(tuple(map(int, x.shape))) for x in places]
        wanted = te.build(fixed, places)(*arrays)
        np.testing.assert_allclose(wanted[0], expected(*arrays[:-1]), rtol=1e-9, atol=1e-9)
        for at_end in (True, False):
            out = tuple(GuardedArray(array.shape, array.dtype, at_end).array for array in wanted)
            function(*(guarded_copy(array, at_end) for array in arrays), out=out)
            for found, other in zip(out, wanted, strict=True):
                np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-9)
