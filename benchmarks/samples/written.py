"""Operations as different people write them: each with other ways to say the same mathematics, in the language and in full.

`variants` changes a program by rule; what is here no rule gives: a softmax by its logsumexp, a norm by moments, a mask by a product, a
product of three matrices in any order. All take the tensors of the first one, so base and variant are compared value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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

    def shifted(x: te.Tensor) -> te.Tensor:
        m = _rows(x, lambda i, j: x[i, j], te.max)
        y = _like(x, lambda i, j: x[i, j] - m[i])
        return _like(x, lambda i, j: te.exp(y[i, j]) / te.sum(lambda r: te.exp(y[i, r]), x.shape[1]))

    return {"quotient": quotient, "flat": flat, "logsumexp": logsumexp, "log_softmax": log_softmax, "shifted": shifted}


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


@_family("attention in blocks", (4, 256, 64), (4, 256, 64), (4, 256, 64))
def _blocks() -> dict[str, Body]:
    def score(q: te.Tensor, k: te.Tensor) -> te.Tensor:
        return te.compute((4, 256, 256), lambda b, i, j: te.sum(lambda r: q[b, i, r] * k[b, j, r], 64) * 0.125)

    def weighted(x: te.Tensor, v: te.Tensor, weight: Callable[..., Any], m: te.Tensor) -> te.Tensor:
        e = _like(x, lambda b, i, j: weight(i, j, te.exp(x[b, i, j] - m[b, i])))
        t = te.compute((4, 256), lambda b, i: te.sum(lambda j: e[b, i, j], 256))
        return te.compute((4, 256, 64), lambda b, i, r: te.sum(lambda j: e[b, i, j] / t[b, i] * v[b, j, r], 256))

    def split(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
        s = te.compute((4, 8, 32, 32), lambda b, o, i, j: te.sum(lambda r: q[b, o * 32 + i, r] * k[b, o * 32 + j, r], 64) * 0.125)
        m = te.compute((4, 8, 32), lambda b, o, i: te.max(lambda j: s[b, o, i, j], 32))
        e = _like(s, lambda b, o, i, j: te.exp(s[b, o, i, j] - m[b, o, i]))
        t = te.compute((4, 8, 32), lambda b, o, i: te.sum(lambda j: e[b, o, i, j], 32))
        y = te.compute((4, 8, 32, 64), lambda b, o, i, r: te.sum(lambda j: e[b, o, i, j] / t[b, o, i] * v[b, o * 32 + j, r], 32))
        return te.compute((4, 256, 64), lambda b, i, r: y[b, i // 32, i % 32, r])

    def scores_masked(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
        s = score(q, k)
        x = _like(s, lambda b, i, j: te.where(i // 32 == j // 32, s[b, i, j], float("-inf")))
        m = te.compute((4, 256), lambda b, i: te.max(lambda j: x[b, i, j], 256))
        return weighted(x, v, lambda i, j, e: e, m)

    def weights_masked(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
        s = score(q, k)
        m = te.compute((4, 256), lambda b, i: te.max(lambda j: s[b, i, j], 256, where=lambda j: i // 32 == j // 32))
        return weighted(s, v, lambda i, j, e: te.where(i // 32 == j // 32, e, 0.0), m)

    def added(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
        s = score(q, k)
        mask = te.compute((256, 256), lambda i, j: te.cast(te.where(i // 32 == j // 32, 0.0, float("-inf")), "float32"))
        x = _like(s, lambda b, i, j: s[b, i, j] + mask[i, j])
        m = te.compute((4, 256), lambda b, i: te.max(lambda j: x[b, i, j], 256))
        return weighted(x, v, lambda i, j, e: e, m)

    return {"split": split, "scores masked": scores_masked, "weights masked": weights_masked, "mask added": added}


@_family("softmax over the leading axis", (500, 1024))
def _leading() -> dict[str, Body]:
    def columns(x: te.Tensor) -> te.Tensor:
        k, n = x.shape
        m = te.compute((n,), lambda j: te.max(lambda i: x[i, j], k))
        e = _like(x, lambda i, j: te.exp(x[i, j] - m[j]))
        t = te.compute((n,), lambda j: te.sum(lambda i: e[i, j], k))
        return _like(x, lambda i, j: e[i, j] / t[j])

    def turned(x: te.Tensor) -> te.Tensor:
        k, n = x.shape
        y = te.compute((n, k), lambda j, i: x[i, j])
        m = _rows(y, lambda j, i: y[j, i], te.max)
        e = _like(y, lambda j, i: te.exp(y[j, i] - m[j]))
        t = _rows(e, lambda j, i: e[j, i])
        return _like(x, lambda i, j: e[j, i] / t[j])

    return {"columns": columns, "turned": turned}


@_family("contrastive loss", (256, 128), (256, 128))
def _contrastive() -> dict[str, Body]:
    def rows(s: Callable[..., Any]) -> te.Tensor:
        m = te.compute((256,), lambda i: te.max(lambda j: s(i, j), 256))
        return te.compute((256,), lambda i: m[i] + te.log(te.sum(lambda j: te.exp(s(i, j) - m[i]), 256)))

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute((256, 256), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k], 128) * 10.0)

    def of(s: te.Tensor, t: Callable[..., Any]) -> te.Tensor:
        one, other = rows(lambda i, j: s[i, j]), rows(t)
        return te.compute((), lambda: te.sum(lambda i: 0.5 * (one[i] + other[i]) - s[i, i], 256) / 256)

    def one_product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        s = product(a, b)
        return of(s, lambda i, j: s[j, i])

    def two_products(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        t = product(b, a)
        return of(product(a, b), lambda i, j: t[i, j])

    return {"one product": one_product, "two products": two_products}


@_family("distances of magnitudes", (512, 64), (512, 64))
def _magnitudes() -> dict[str, Body]:
    def written(term: Callable[[Any, Any], Any]) -> Body:
        return lambda x, y: te.compute((512, 512), lambda i, j: te.sum(lambda k: term(x[i, k], y[j, k]), 64))

    return {"abs": written(lambda a, b: te.abs(a - b)), "maximum": written(lambda a, b: te.maximum(a - b, b - a))}


@_family("covariance", (2048, 64))
def _covariance() -> dict[str, Body]:
    def mean(x: te.Tensor) -> te.Tensor:
        return te.compute((64,), lambda j: te.sum(lambda i: x[i, j], 2048) / 2048)

    def centered(x: te.Tensor) -> te.Tensor:
        m = mean(x)
        c = _like(x, lambda i, j: x[i, j] - m[j])
        return te.compute((64, 64), lambda a, b: te.sum(lambda i: c[i, a] * c[i, b], 2048) / 2048)

    def inline(x: te.Tensor) -> te.Tensor:
        m = mean(x)
        return te.compute((64, 64), lambda a, b: te.sum(lambda i: (x[i, a] - m[a]) * (x[i, b] - m[b]), 2048) / 2048)

    def turned(x: te.Tensor) -> te.Tensor:
        m = mean(x)
        c = te.compute((64, 2048), lambda j, i: x[i, j] - m[j])
        return te.compute((64, 64), lambda a, b: te.sum(lambda i: c[a, i] * c[b, i], 2048) / 2048)

    return {"centered": centered, "inline": inline, "turned": turned}


@_family("space to depth", (3, 240, 252, 5))
def _space_to_depth() -> dict[str, Body]:
    def six_axes(x: te.Tensor) -> te.Tensor:
        y = te.compute((3, 120, 126, 5, 2, 2), lambda n, i, j, c, p, q: x[n, 2 * i + p, 2 * j + q, c])
        return te.compute((3, 120, 126, 20), lambda n, i, j, c: y[n, i, j, c // 4, c // 2 % 2, c % 2])

    return {
        "digits": lambda x: te.compute((3, 120, 126, 20), lambda n, i, j, c: x[n, 2 * i + c // 2 % 2, 2 * j + c % 2, c // 4]),
        "six axes": six_axes,
    }


@_family("zero points", Given((203, 640), np.arange(256, dtype=np.uint8)), Given((320, 640), np.arange(-128, 127, dtype=np.int8)))
def _zero_points() -> dict[str, Body]:
    def wide(x: te.Tensor, i: Any, k: Any) -> Any:
        return te.cast(x[i, k], "int32")

    def centered(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute((203, 320), lambda i, j: te.sum(lambda k: (wide(a, i, k) - 7) * (wide(b, j, k) - 3), 640))

    def expanded(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        one, other = _rows(a, lambda i, k: wide(a, i, k)), _rows(b, lambda j, k: wide(b, j, k))
        both = te.compute((203, 320), lambda i, j: te.sum(lambda k: wide(a, i, k) * wide(b, j, k), 640))
        return te.compute((203, 320), lambda i, j: both[i, j] - 3 * one[i] - 7 * other[j] + 21 * 640)

    return {"centered": centered, "expanded": expanded}


@_family("scores of pairs", (3000,), Given((50000,), (0, 3000)), Given((50000,), (0, 3000)))
def _pairs() -> dict[str, Body]:
    def read(s: te.Tensor, at: te.Tensor) -> te.Tensor:
        return _like(at, lambda n: s[te.clip(at[n], 0, 2999)])

    def named(s: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
        one, other = read(s, a), read(s, b)
        return te.compute((), lambda: te.sum(lambda n: te.log1p(te.exp(other[n] - one[n])), 50000) / 50000)

    def inline(s: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
        def term(n: Any) -> Any:
            return te.log1p(te.exp(s[te.clip(b[n], 0, 2999)] - s[te.clip(a[n], 0, 2999)]))

        return te.compute((), lambda: te.sum(term, 50000) / 50000)

    return {"named": named, "inline": inline}


@_family("exclusive sums", (256, 1024))
def _exclusive() -> dict[str, Body]:
    def one_less(x: te.Tensor) -> te.Tensor:
        whole = _like(x, lambda i, j: te.sum(lambda k: x[i, k], j + 1))
        return _like(x, lambda i, j: whole[i, j] - x[i, j])

    return {
        "extent": lambda x: _like(x, lambda i, j: te.sum(lambda k: x[i, k], j)),
        "where": lambda x: _like(x, lambda i, j: te.sum(lambda k: te.where(k < j, x[i, k], 0.0), x.shape[1])),
        "one less": one_less,
    }


@_family("filter", (64, 1024))
def _filter() -> dict[str, Body]:
    def written(*unit: int) -> Body:
        def way(x: te.Tensor) -> te.Tensor:
            n, length = x.shape
            zero = te.compute((n, *unit), lambda *i: te.cast(0.0, "float32"))
            s = te.scan(lambda t, s: te.compute((n, *unit), lambda i, *o: 0.9 * s[(i, *o)] + 0.1 * x[i, t]), zero, length)
            return _like(x, lambda i, t: s[(t, i, *(0 for _ in unit))])

        return way

    return {"a vector": written(), "a column": written(1)}


@_family("triangle of a matrix times another", (256, 256), (256, 128))
def _triangle() -> dict[str, Body]:
    def product(a: te.Tensor, x: te.Tensor, weight: Callable[..., Any], extent: Callable[..., Any] = lambda i: 256) -> te.Tensor:
        return te.compute((256, 128), lambda i, k: te.sum(lambda j: weight(i, j) * x[j, k], extent(i)))

    def named(a: te.Tensor, x: te.Tensor) -> te.Tensor:
        lower = _like(a, lambda i, j: te.where(j <= i, a[i, j], 0.0))
        return product(a, x, lambda i, j: lower[i, j])

    return {
        "extent": lambda a, x: product(a, x, lambda i, j: a[i, j], lambda i: i + 1),
        "named": named,
        "mask": lambda a, x: product(a, x, lambda i, j: a[i, j] * te.cast(j <= i, "float32")),
    }


@_family("Kronecker product", (64, 768), (32, 32), (24, 24))
def _kronecker() -> dict[str, Body]:
    def two_steps(x: te.Tensor, a: te.Tensor, c: te.Tensor) -> te.Tensor:
        t = te.compute((64, 32, 24), lambda n, k, j: te.sum(lambda i: a[k, i] * x[n, i * 24 + j], 32))
        return _like(x, lambda n, r: te.sum(lambda j: t[n, r // 24, j] * c[r % 24, j], 24))

    def flat(x: te.Tensor, a: te.Tensor, c: te.Tensor) -> te.Tensor:
        return _like(x, lambda n, r: te.sum(lambda i, j: a[r // 24, i] * c[r % 24, j] * x[n, i * 24 + j], (32, 24)))

    return {"two steps": two_steps, "flat": flat}


@_family("maxima around points", (16, 96, 96))
def _maxima() -> dict[str, Body]:
    def inside(x: te.Tensor) -> te.Tensor:
        def holds(i: Any, j: Any) -> Any:
            return (i >= 0) & (i < 96) & (j >= 0) & (j < 96)

        def most(k: Any, i: Any, j: Any) -> Any:
            return te.max(lambda a, b: x[k, i + a - 1, j + b - 1], (3, 3), where=lambda a, b: holds(i + a - 1, j + b - 1))

        return _like(x, most)

    def repeated(x: te.Tensor) -> te.Tensor:
        def at(i: Any) -> Any:
            return te.clip(i, 0, 95)

        return _like(x, lambda k, i, j: te.max(lambda a, b: x[k, at(i + a - 1), at(j + b - 1)], (3, 3)))

    return {"inside": inside, "repeated": repeated}
