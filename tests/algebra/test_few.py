"""Sums over the segments of plans with few keys go over all points under a condition: the same values, whatever the keys are."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.algebra import with_few_keys
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Segments
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.verify import verify

HEAD = "h: f64[2, 9] = input()\nt: i32[9] = input()\n"
KEY = "i64(minimum(maximum(t[i], 0), 3))"
CHANGED = {
    "an element for each key": f"o, k = segments[4]({KEY} for i in range(9))\n"
    "y[p]: f64[4] = 2.0 * sum(h[1, k[j]] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "several for each key": f"o, k = segments[4]({KEY} for i in range(9))\n"
    "y[c, p]: f64[2, 4] = sum(h[c, k[j]] * f64(p) for j in range(o[p], o[p + 1]))\nreturn y\n",
    "points left out": f"o, k = segments[4]({KEY} for i in range(9) if t[i] > 1)\n"
    "y[p]: f64[4] = sum(h[0, k[j]] for j in range(o[p], o[p + 1])) + sum(h[1, k[j]] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "a plan for each place": "o, k = segments[4](i64(minimum(maximum(t[i + b], 0), 3)) for b in batch(3) for i in range(7))\n"
    "y[c, b, p]: f64[2, 3, 4] = sum(h[c, k[b, j]] for j in range(o[b, p], o[b, p + 1]))\nreturn y\n",
    "keys of two axes": "u: i32[9] = input()\n"
    "o, k = segments[2, 3]((i64(minimum(maximum(t[i], 0), 1)), i64(minimum(maximum(u[i], 0), 2))) for i in range(9))\n"
    "y[p, q]: f64[2, 3] = sum(h[1, k[j]] for j in range(o[p * 3 + q], o[p * 3 + q + 1]))\nreturn y\n",
    "points of two axes": "o, k = segments[4](minimum(maximum(i64(t[i]) + a, 0), 3) for a in range(2) for i in range(9))\n"
    "y[p]: f64[4] = sum(h[k[j] // 9, k[j] % 9] for j in range(o[p], o[p + 1]))\nreturn y\n",
}
KEPT = {
    "keys that may be out of range": "o, k = segments[4](i64(t[i]) for i in range(9))\n"
    "y[p]: f64[4] = sum(h[1, k[j]] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "many keys": f"o, k = segments[9]({KEY} for i in range(9))\ny[p]: f64[9] = sum(h[1, k[j]] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "rows": f"g: f64[9, 2] = input()\no, k = segments[4]({KEY} for i in range(9))\n"
    "y[p, c]: f64[4, 2] = sum(g[k[j], c] for j in range(o[p], o[p + 1]))\nreturn y\n",
    "segments that data says": f"o, k = segments[4]({KEY} for i in range(9))\n"
    "y[i]: f64[9] = sum(h[1, k[j]] for j in range(o[i64(minimum(maximum(t[i], 0), 3))], o[i64(minimum(maximum(t[i], 0), 3)) + 1]))\n"
    "return y\n",
    "the plan itself": f"o, k = segments[4]({KEY} for i in range(9))\n"
    "y[p]: f64[4] = sum(h[1, k[j]] for j in range(o[p], o[p + 1]))\nreturn y, k\n",
}


@pytest.mark.parametrize("keys", ["all", "one", "out of range"])
@pytest.mark.parametrize("name", CHANGED)
def test_few_keys_are_told_apart_by_a_condition(name: str, keys: str) -> None:
    program = simplify(parse_program(HEAD + CHANGED[name]))
    found = with_few_keys(program)
    verify(found)
    assert not any(isinstance(d, Segments) for d in found.definitions) and with_few_keys(found) is found
    rng = np.random.default_rng(3)
    places = {"all": rng.integers(0, 4, 9), "one": np.full(9, 2), "out of range": rng.integers(-9, 9, 9)}[keys]
    given = {"h": rng.standard_normal((2, 9)), "t": places.astype(np.int32), "u": rng.integers(-1, 4, 9).astype(np.int32)}
    given = {i.name: given[i.name] for i in program.inputs}
    given["h"][0, 0], given["h"][1, 3] = np.nan, np.inf
    for one, two in zip(evaluate_program(program, given).values(), evaluate_program(found, given).values(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", KEPT)
def test_other_plans_stay(name: str) -> None:
    program = simplify(parse_program(HEAD + KEPT[name]))
    assert with_few_keys(program) is program


@pytest.mark.parametrize("length", [0, 1, 7, 33, 300])
def test_a_gradient_by_few_keys_of_any_length(length: int) -> None:
    n = te.dim("n")
    t, w, head = te.placeholder((n,), "int32", name="t"), te.placeholder((3, 4), name="w"), te.placeholder((3, n), name="head")
    y = te.compute((3, n), lambda c, i: w[c, te.clip(t[i], 0, 3)])
    (gradient,) = te.gradient([y], [w], [head])
    f = te.build(gradient, [t, w, head])
    assert "order" not in f.source("nest")
    rng = np.random.default_rng(length)
    places, given = rng.integers(-1, 5, length).astype(np.int32), rng.standard_normal((3, length)).astype(np.float32)
    want = np.stack([given[:, np.clip(places, 0, 3) == p].sum(1) for p in range(4)], 1)
    np.testing.assert_allclose(f(places, np.zeros((3, 4), np.float32), given), want, rtol=1e-4, atol=1e-4)
