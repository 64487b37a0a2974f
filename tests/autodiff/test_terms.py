"""Costly terms inside reductions are swept as where they have names: the same derivative, in the form that costs less."""

import numpy as np
import pytest

from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Apply, Define, Expr, Program, Reduce
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.simplify.passes import terms
from tensorexpr.traversal import walk
from tensorexpr.verify import verify
from tests.autodiff.test_laws import EVERYTHING, SMOOTH, with_inputs
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

SUMS = {
    "a product": "sum(exp(a[i, k]) * b[k, j] for k in range(n))",
    "the same term twice": "sum(exp(a[i, k]) * b[k, j] for k in range(n)) / sum(exp(a[i, l]) + 1.0 for l in range(n))",
    "what is not selected has no derivative": "sum(where(a[i, k] > 0.0, sqrt(a[i, k] - 0.25), 0.0) * b[k, j] for k in range(n))",
    "one condition on all that is read": "sum(where(a[i, k] > 0.25, sqrt(a[i, k] - 0.25) * b[k, j], b[k, j]) for k in range(n))",
    "a condition on other elements, as written": "sum(where(b[k, j] > 0.25, sqrt(a[i, k]) * b[k, j], 0.0) for k in range(n))",
    "fewer points for some, as written": "sum(exp(a[i, k]) * b[k, j] for k in range(j))",
    "a greatest, as written": "max(tanh(a[i, k]) + b[k, j] for k in range(n))",
    "a term in a term": "sum(exp(a[i, k] * c[k]) * b[k, j] * exp(c[k]) for k in range(n))",
    "a sum in a term": "sum(exp(sum(a[i, l] * b[l, k] for l in range(n))) * b[k, j] for k in range(n))",
}


def derivative(program: Program, keeping: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, list[str]]:
    """The adjoints of all inputs, with every term that may be one kept, or none."""
    monkeypatch.setattr(terms, "STORED", -1e9 if keeping else 1e9)
    monkeypatch.setattr(terms, "LEAST", -1e9 if keeping else 1e9)
    monkeypatch.setattr(terms, "REPEATED", 0)
    monkeypatch.setattr(terms, "_read", lambda *_: float("inf"))
    outputs = [name for name in dict.fromkeys(program.outputs) if program.types[name].dtype.is_float]
    wrt = [item.name for item in program.inputs if item.type.dtype.is_float and not item.name.endswith("_head")]
    found = reverse(program, [(name, f"{name}_head") for name in outputs], wrt)
    verify(found.program)
    return found.program, [found.adjoints[name] for name in wrt if name in found.adjoints]


def agree(program: Program, seed: int, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Checks that both derivatives are the same numbers, NaN and infinities too; gives whether they are different programs."""
    (kept, names), (written, others) = (derivative(program, keeping, monkeypatch) for keeping in (True, False))
    if kept == written:
        return False
    inputs = random_inputs(program, seed, sizes=sizes)
    found, want = evaluate_program(kept, inputs, sizes), evaluate_program(written, inputs, sizes)
    for name, other in zip(names, others, strict=True):
        tolerance = {2: 5e-2, 4: 1e-4, 8: 1e-9}[want[other].dtype.itemsize]
        values = want[other].astype(np.float64)
        scale = 1 + np.abs(values).max(where=np.isfinite(values), initial=0)
        np.testing.assert_allclose(found[name].astype(np.float64) / scale, values / scale, 0, tolerance, err_msg=f"seed {seed}\n{kept}")
    return True


@pytest.mark.parametrize("options", [SMOOTH, EVERYTHING], ids=["smooth", "everything"])
def test_derivatives_of_random_programs_are_the_same(options, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in share_of(range(3000, 3060)):
        program = random_program(seed, **options)
        outputs = [name for name in dict.fromkeys(program.outputs) if program.types[name].dtype.is_float]
        if outputs:
            whole = with_inputs(program, outputs, "_head")
            agree(whole, seed, random_sizes(program, seed), monkeypatch)


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("name", SUMS)
def test_derivatives_of_terms_are_the_same(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(
        "sizes(n)\na: f64[n, n] = input()\nb: f64[n, n] = input()\nc: f64[n] = input()\ny_head: f64[n, n] = input()\n"
        f"y[i, j]: f64[n, n] = {SUMS[name]}\nreturn y\n"
    )
    assert agree(program, 7, {"n": size}, monkeypatch) == (not name.endswith("as written"))


def test_a_product_of_exponentials_has_the_gradient_of_one_with_names() -> None:
    shapes = "a: f32[256, 256] = input()\nb: f32[256, 256] = input()\ny_head: f32[256, 256] = input()\n"
    inline = f"{shapes}y[i, j]: f32[256, 256] = sum(exp(a[i, k]) * b[k, j] for k in range(256))\nreturn y\n"
    named = (
        f"{shapes}e[i, k]: f32[256, 256] = exp(a[i, k])\ny[i, j]: f32[256, 256] = sum(e[i, k] * b[k, j] for k in range(256))\nreturn y\n"
    )
    found = []
    for text in (inline, named):
        program = simplify(reverse(parse_program(text), [("y", "y_head")], ["a", "b"]).program)
        values = [d.value for d in program.definitions if isinstance(d, Define)]
        found.append(sorted(str([n.op.name if isinstance(n, Apply) else type(n).__name__ for n in walk(value)]) for value in values))
        assert not any(_is_exp(n) for value in values for r in walk(value) if isinstance(r, Reduce) for n in walk(r))
    assert found[0] == found[1]


def test_a_term_may_be_read_at_quotients_and_remainders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of merged heads: what reaches a weight is summed over the features of its head before it goes on."""
    inputs = "e: f64[6, 5, 7] = input()\nz: f64[6, 5] = input()\nv: f64[7, 24] = input()\ny_head: f64[5, 24] = input()\n"
    for place, terms_made in {"f // 4": 1, "f % 6": 1, "f % 5": 0, "f // 5": 0, "(f + 1) // 5": 0}.items():
        weight = f"e[{place}, i, j] / (z[{place}, i] * z[{place}, i] + 1.0)"
        text = f"{inputs}y[i, f]: f64[5, 24] = sum({weight} * v[j, f] for j in range(7))\nreturn y\n"
        program = parse_program(text)
        assert agree(program, 3, {}, monkeypatch) == bool(terms_made)


def _is_exp(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name == "exp"
