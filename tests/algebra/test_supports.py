"""Masked weights are summed inside of their masks: values and gradients are those of the program as written, and loops are short."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_supports
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Apply, Axis, Const, Reduce, const
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify

MASKS = {
    "causal": "j <= i",
    "window": "j <= i and j > i - 3",
    "band": "j < i + 2 and i < j + 3",
    "blocks": "i // 4 == j // 4",
    "dilated": "i % 3 == j % 3",
    "dilated by a difference": "(i - j) % 3 == 0",
}
WAYS = {
    "where": ("s[i, j]: f64[N, N] = where(C, a[i, j], -inf)", "max(s[i, j] for j in range(N))", "exp(s[i, j] - m[i])"),
    "added": (
        "k[i, j]: f64[N, N] = where(C, 0.0, -inf)\ns[i, j]: f64[N, N] = a[i, j] + k[i, j]",
        "max(s[i, j] for j in range(N))",
        "exp(s[i, j] - m[i])",
    ),
    "truth values": (
        "k[i, j]: bool[N, N] = C\ns[i, j]: f64[N, N] = where(k[i, j], a[i, j], -inf)",
        "max(s[i, j] for j in range(N))",
        "exp(s[i, j] - m[i])",
    ),
    "chosen weights": ("s[i, j]: f64[N, N] = a[i, j]", "max(s[i, j] for j in range(N) if C)", "where(C, exp(s[i, j] - m[i]), 0.0)"),
    "a product": ("s[i, j]: f64[N, N] = a[i, j]", "max(s[i, j] for j in range(N))", "exp(s[i, j] - m[i]) * where(C, 1.0, 0.0)"),
}


def attention(mask: str, way: str, n: int, results: str = "y"):
    scores, greatest, weight = WAYS[way]
    text = (
        f"a: f64[N, N] = input()\nv: f64[N, 2] = input()\n{scores}\nm[i]: f64[N] = {greatest}\ne[i, j]: f64[N, N] = {weight}\n"
        "t[i]: f64[N] = sum(e[i, j] for j in range(N))\np[i, j]: f64[N, N] = e[i, j] / t[i]\n"
        f"y[i, r]: f64[N, 2] = sum(p[i, j] * v[j, r] for j in range(N))\nreturn {results}\n"
    )
    return simplify(parse_program(text.replace("N", str(n)).replace("C", mask)))


def has_tests(program) -> bool:
    """Whether something chooses between a value and what it is outside of a mask."""
    nodes = (n for d in program.definitions for e in expressions(d) for n in walk(e))
    return any(isinstance(n, Apply) and n.op.name == "where" and isinstance(n.args[2], Const) for n in nodes)


@pytest.mark.parametrize("n", [1, 7, 12, 13])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mask", MASKS)
def test_values_are_kept(mask: str, way: str, n: int) -> None:
    program = attention(MASKS[mask], way, n)
    narrowed = simplify(with_supports(program))
    verify(narrowed)
    rng = np.random.default_rng(n)
    given = {"a": rng.standard_normal((n, n)) * 30, "v": rng.standard_normal((n, 2))}
    np.testing.assert_allclose(evaluate_program(narrowed, given)["y"], evaluate_program(program, given)["y"], rtol=1e-12, atol=1e-300)
    if n > 7 and mask != "causal":  # a half stays
        square = (Axis("j", const(0), const(n)),)
        assert not has_tests(narrowed), print_program(narrowed)
        whole = [n for d in narrowed.definitions for e in expressions(d) for n in walk(e) if isinstance(n, Reduce) and n.axes == square]
        assert len(whole) == (way == "a product")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_returned_keeps_its_zeros(way: str) -> None:
    program = attention("j <= i", way, 9, "p, y")
    narrowed = simplify(with_supports(program))
    rng = np.random.default_rng(0)
    given = {"a": rng.standard_normal((9, 9)), "v": rng.standard_normal((9, 2))}
    for found, wanted in zip(evaluate_program(narrowed, given).values(), evaluate_program(program, given).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


STAY = {
    "a row without a place": "j < i",
    "a column without a place": "j + 1 < i + 2 and j < 9",
    "almost all points": "j < i + 8",
    "what no range says": "i * j < 20",
}


def test_a_large_number_is_a_score() -> None:
    """Where all that a mask lets through is less, what is outside counts."""
    text = print_program(attention("j <= i", "where", 5)).replace("-inf", "-1e+30")
    program = simplify(parse_program(text))
    assert with_supports(program) is program


@pytest.mark.parametrize("mask", STAY)
@pytest.mark.parametrize("way", ["where", "chosen weights"])
def test_others_stay(mask: str, way: str) -> None:
    program = attention(STAY[mask], way, 12)
    assert with_supports(program) is program


def test_a_row_of_nothing_is_nan() -> None:
    program = attention("j < i", "where", 5)
    given = {"a": np.ones((5, 5)), "v": np.ones((5, 2))}
    assert np.isnan(evaluate_program(simplify(with_supports(program)), given)["y"][0]).all()


def test_what_a_test_guards_is_not_read() -> None:
    """A score that reads beyond its tensor outside of the mask keeps its test."""
    program = simplify(
        parse_program(
            "x: f64[9] = input()\n"
            "s[i, j]: f64[9, 9] = where(j <= i, x[i - j], -inf)\nm[i]: f64[9] = max(s[i, j] for j in range(9))\n"
            "e[i, j]: f64[9, 9] = exp(s[i, j] - m[i])\ny[i]: f64[9] = sum(e[i, j] * x[j] for j in range(9))\nreturn y\n"
        )
    )
    narrowed = simplify(with_supports(program))
    verify(narrowed)
    x = np.random.default_rng(0).standard_normal(9)
    np.testing.assert_allclose(evaluate_program(narrowed, {"x": x})["y"], evaluate_program(program, {"x": x})["y"], rtol=1e-12)


@pytest.mark.parametrize("n", [12, 37])
@pytest.mark.parametrize("mask", ["causal", "window", "blocks", "dilated"])
@pytest.mark.parametrize("way", ["where", "reduction"])
def test_gradients_are_those_of_the_whole_square(mask: str, way: str, n: int) -> None:
    keep = {
        "causal": lambda i, j: j <= i,
        "window": lambda i, j: te.logical_and(j <= i, j > i - 5),
        "blocks": lambda i, j: i // 4 == j // 4,
        "dilated": lambda i, j: i % 3 == j % 3,
    }[mask]
    q, k, v, head = (te.placeholder((2, n, 4), "float64", name=name) for name in ("q", "k", "v", "head"))
    s = te.compute((2, n, n), lambda b, i, j: te.sum(lambda r: q[b, i, r] * k[b, j, r], 4))
    if way == "where":
        x = te.compute((2, n, n), lambda b, i, j: te.where(keep(i, j), s[b, i, j], float("-inf")))
        m = te.compute((2, n), lambda b, i: te.max(lambda j: x[b, i, j], n))
        e = te.compute((2, n, n), lambda b, i, j: te.exp(x[b, i, j] - m[b, i]))
        t = te.compute((2, n), lambda b, i: te.sum(lambda j: e[b, i, j], n))
        y = te.compute((2, n, 4), lambda b, i, r: te.sum(lambda j: e[b, i, j] / t[b, i] * v[b, j, r], n))
    else:
        m = te.compute((2, n), lambda b, i: te.max(lambda j: s[b, i, j], n, where=lambda j: keep(i, j)))
        t = te.compute((2, n), lambda b, i: te.sum(lambda j: te.exp(s[b, i, j] - m[b, i]), n, where=lambda j: keep(i, j)))
        weighted = lambda b, i, r: te.sum(  # noqa: E731
            lambda j: te.exp(s[b, i, j] - m[b, i]) / t[b, i] * v[b, j, r], n, where=lambda j: keep(i, j)
        )
        y = te.compute((2, n, 4), weighted)
    rng = np.random.default_rng(n)
    given = [rng.standard_normal((2, n, 4)) for _ in range(4)]
    f = te.build([y, *te.gradient([y], [q, k, v], [head])], [q, k, v, head])
    found = [np.asarray(part) for part in f(*given)]

    places = np.arange(n)
    allowed = np.broadcast_to(
        {
            "causal": places[None, :] <= places[:, None],
            "window": (places[None, :] <= places[:, None]) & (places[None, :] > places[:, None] - 5),
            "blocks": places[None, :] // 4 == places[:, None] // 4,
            "dilated": places[None, :] % 3 == places[:, None] % 3,
        }[mask],
        (2, n, n),
    )
    one, two, three, bar = given
    scores = np.where(allowed, np.einsum("bir,bjr->bij", one, two), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    weights_bar = np.einsum("bir,bjr->bij", bar, three)
    scores_bar = weights * (weights_bar - (weights_bar * weights).sum(-1, keepdims=True))
    wanted = [
        weights @ three,
        scores_bar @ two,
        np.einsum("bij,bir->bjr", scores_bar, one),
        np.einsum("bij,bir->bjr", weights, bar),
    ]
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9)
