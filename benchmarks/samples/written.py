"""Operations as different people write them: each with other ways to say the same mathematics, in the language and in full.

`variants` changes a program by rule; what is here no rule gives: a softmax by its logsumexp, a norm by moments, a mask by a product, a
product of three matrices in any order. All take the tensors of the first one, so base and variant are compared value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.benchmarks.samples.sample import Given, Sample

Body = Callable[..., te.Tensor]
FAMILIES: dict[str, tuple[tuple[Given, ...], dict[str, Body]]] = {}
"""What an operation takes, and the ways to write it by name; the first is the base."""


def _family(name: str, *givens: Given | tuple[int, ...]) -> Callable[[Callable[[], dict[str, Body]]], None]:
    def enter(ways: Callable[[], dict[str, Body]]) -> None:
        FAMILIES[name] = tuple(g if isinstance(g, Given) else Given(g) for g in givens), ways()

    return enter


def samples(family: str) -> dict[str, Sample]:
    """The ways to write an operation as samples, the base first."""
    givens, ways = FAMILIES[family]
    return {way: Sample(f"{family}, {way}", te.op(body), givens) for way, body in ways.items()}


def _rows(x: te.Tensor, body: Callable[[Any, Any], Any], combine: Callable[..., Any] = te.sum) -> te.Tensor:
    """A vector with a reduction over each row."""
    n, k = x.shape
    return te.compute((n,), lambda i: combine(lambda j: body(i, j), k))


def _like(x: te.Tensor, body: Callable[..., Any]) -> te.Tensor:
    return te.compute(x.shape, body)


@_family("layer norm", (2048, 768), (768,), (768,))
def _layer_norm() -> dict[str, Body]:
    def two_passes(x: te.Tensor, g: te.Tensor, b: te.Tensor) -> te.Tensor:
        d = x.shape[1]
        mean = _rows(x, lambda i, j: x[i, j] / d)
        var = _rows(x, lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]) / d)
        return _like(x, lambda i, j: (x[i, j] - mean[i]) / te.sqrt(var[i] + 1e-5) * g[j] + b[j])

    def centered(x: te.Tensor, g: te.Tensor, b: te.Tensor) -> te.Tensor:
        n, d = x.shape
        mean = te.compute((n,), lambda i: te.sum(lambda j: x[i, j], d) / d)
        c = _like(x, lambda i, j: x[i, j] - mean[i])
        inverse = te.compute((n,), lambda i: te.rsqrt(te.sum(lambda j: c[i, j] * c[i, j], d) / d + 1e-5))
        return _like(x, lambda i, j: c[i, j] * inverse[i] * g[j] + b[j])

    def moments(x: te.Tensor, g: te.Tensor, b: te.Tensor) -> te.Tensor:
        d = x.shape[1]
        mean, square = _rows(x, lambda i, j: x[i, j] / d), _rows(x, lambda i, j: x[i, j] * x[i, j] / d)
        return _like(x, lambda i, j: (x[i, j] - mean[i]) * te.rsqrt(square[i] - mean[i] * mean[i] + 1e-5) * g[j] + b[j])

    return {"two passes": two_passes, "centered": centered, "moments": moments}


@_family("softmax", (2048, 1000))
def _softmax() -> dict[str, Body]:
    def quotient(x: te.Tensor) -> te.Tensor:
        m = _rows(x, lambda i, j: x[i, j], te.max)
        e = _like(x, lambda i, j: te.exp(x[i, j] - m[i]))
        s = _rows(x, lambda i, j: e[i, j])
        return _like(x, lambda i, j: e[i, j] / s[i])

    def flat(x: te.Tensor) -> te.Tensor:
        k = x.shape[1]
        m = _rows(x, lambda i, j: x[i, j], te.max)
        return _like(x, lambda i, j: te.exp(x[i, j] - m[i]) / te.sum(lambda r: te.exp(x[i, r] - m[i]), k))

    def logsumexp(x: te.Tensor) -> te.Tensor:
        n, k = x.shape
        m = _rows(x, lambda i, j: x[i, j], te.max)
        lse = te.compute((n,), lambda i: m[i] + te.log(te.sum(lambda j: te.exp(x[i, j] - m[i]), k)))
        return _like(x, lambda i, j: te.exp(x[i, j] - lse[i]))

    def log_softmax(x: te.Tensor) -> te.Tensor:
        n, k = x.shape
        m = _rows(x, lambda i, j: x[i, j], te.max)
        log = te.compute((n,), lambda i: te.log(te.sum(lambda j: te.exp(x[i, j] - m[i]), k)))
        y = _like(x, lambda i, j: x[i, j] - m[i] - log[i])
        return _like(x, lambda i, j: te.exp(y[i, j]))

    return {"quotient": quotient, "flat": flat, "logsumexp": logsumexp, "log_softmax": log_softmax}


@_family("cross entropy", (2048, 1000), Given((2048,), (0, 1000)))
def _cross_entropy() -> dict[str, Body]:
    def lse(x: te.Tensor) -> te.Tensor:
        n, k = x.shape
        m = _rows(x, lambda i, j: x[i, j], te.max)
        return te.compute((n,), lambda i: m[i] + te.log(te.sum(lambda j: te.exp(x[i, j] - m[i]), k)))

    def picked(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        n, whole = x.shape[0], lse(x)
        return te.compute((), lambda: te.sum(lambda i: whole[i] - x[i, te.clip(t[i], 0, 999)], n) / n)

    def by_where(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        (n, k), whole = x.shape, lse(x)
        return te.compute((), lambda: te.sum(lambda i: whole[i] - te.sum(lambda j: te.where(t[i] == j, x[i, j], 0.0), k), n) / n)

    def of_log_softmax(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        n, whole = x.shape[0], lse(x)
        y = _like(x, lambda i, j: x[i, j] - whole[i])
        return te.compute((), lambda: -te.sum(lambda i: y[i, te.clip(t[i], 0, 999)], n) / n)

    return {"picked": picked, "where": by_where, "of log_softmax": of_log_softmax}


@_family("causal attention", (8, 256, 64), (8, 256, 64), (8, 256, 64))
def _attention() -> dict[str, Body]:
    def written(late: bool, turned: bool) -> Body:
        def way(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
            h, n, d = q.shape
            kt = te.compute((h, d, n), lambda b, r, j: k[b, j, r])

            def score(b: Any, i: Any, j: Any) -> Any:
                return te.sum(lambda r: q[b, i, r] * (kt[b, r, j] if turned else k[b, j, r]), d) * d**-0.5

            s = te.compute((h, n, n), lambda b, i, j: te.where(j <= i, score(b, i, j), float("-inf")))
            m = te.compute((h, n), lambda b, i: te.max(lambda j: s[b, i, j], n))
            e = te.compute((h, n, n), lambda b, i, j: te.exp(s[b, i, j] - m[b, i]))
            t = te.compute((h, n), lambda b, i: te.sum(lambda j: e[b, i, j], n))
            if late:
                return te.compute((h, n, d), lambda b, i, r: te.sum(lambda j: e[b, i, j] * v[b, j, r], n) / t[b, i])
            p = te.compute((h, n, n), lambda b, i, j: e[b, i, j] / t[b, i])
            return te.compute((h, n, d), lambda b, i, r: te.sum(lambda j: p[b, i, j] * v[b, j, r], n))

        return way

    return {"weights": written(False, False), "divided last": written(True, False), "keys turned": written(False, True)}


@_family("sum by key", (8192, 64), Given((8192,), (0, 128)))
def _by_key() -> dict[str, Body]:
    def sent(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        return te.scatter((128, 64), lambda i, d: ((t[i], d), x[i, d]), x.shape)

    def chosen(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        return te.compute((128, 64), lambda s, d: te.sum(lambda i: te.where(t[i] == s, x[i, d], 0.0), x.shape[0]))

    def one_hot(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        hot = te.compute((x.shape[0], 128), lambda i, s: te.cast(t[i] == s, "float32"))
        return te.compute((128, 64), lambda s, d: te.sum(lambda i: hot[i, s] * x[i, d], x.shape[0]))

    return {"scatter": sent, "where": chosen, "one-hot": one_hot}


@_family("prefix sums", (512, 2048))
def _prefixes() -> dict[str, Body]:
    return {
        "extent": lambda x: _like(x, lambda i, j: te.sum(lambda k: x[i, k], j + 1)),
        "where": lambda x: _like(x, lambda i, j: te.sum(lambda k: te.where(k <= j, x[i, k], 0.0), x.shape[1])),
        "triangle": lambda x: _like(x, lambda i, j: te.sum(lambda k: te.where(k <= j, 1.0, 0.0) * x[i, k], x.shape[1])),
    }


@_family("trace of a product", (512, 512), (512, 512))
def _trace() -> dict[str, Body]:
    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        p = te.compute((512, 512), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 512))
        return te.compute((), lambda: te.sum(lambda i: p[i, i], 512))

    return {"sum": lambda a, b: te.compute((), lambda: te.sum(lambda i, k: a[i, k] * b[k, i], (512, 512))), "product": product}


@_family("quadratic form", (2048, 128), (128, 128))
def _quadratic() -> dict[str, Body]:
    def named(x: te.Tensor, a: te.Tensor) -> te.Tensor:
        t = _like(x, lambda i, j: te.sum(lambda k: x[i, k] * a[k, j], 128))
        return _rows(x, lambda i, j: t[i, j] * x[i, j])

    return {
        "named": named,
        "flat": lambda x, a: te.compute((2048,), lambda i: te.sum(lambda k, j: x[i, k] * a[k, j] * x[i, j], (128, 128))),
        "nested": lambda x, a: _rows(x, lambda i, k: x[i, k] * te.sum(lambda j: a[k, j] * x[i, j], 128)),
    }


@_family("gates", (256, 256), (256, 512), (256, 256), (256, 512))
def _gates() -> dict[str, Body]:
    def named(x: te.Tensor, w: te.Tensor, h: te.Tensor, u: te.Tensor) -> te.Tensor:
        a = te.compute((256, 512), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], 256))
        b = te.compute((256, 512), lambda i, j: te.sum(lambda k: h[i, k] * u[k, j], 256))
        return te.compute((256, 512), lambda i, j: te.tanh(a[i, j] + b[i, j]))

    def inline(x: te.Tensor, w: te.Tensor, h: te.Tensor, u: te.Tensor) -> te.Tensor:
        return te.compute(
            (256, 512), lambda i, j: te.tanh(te.sum(lambda k: x[i, k] * w[k, j], 256) + te.sum(lambda k: h[i, k] * u[k, j], 256))
        )

    return {"named": named, "inline": inline}
