"""Combiners of sums and maxima are taken apart: the values are those of the combiner, and those that are nothing of the kind stay whole."""

import numpy as np
import pytest

from tensorexpr.algebra import without_carries
from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Reduce
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tensorexpr.verify import verify

INPUTS = "x: f64[3, K] = input()\ny: f64[3, K] = input()\n"
RISE = "maximum(m, n)"
WEIGHTED = f"s * exp(m - {RISE}) + t * exp(n - {RISE})"
TURNED = f"exp(n - {RISE}) * t + exp(m - {RISE}) * s"


def program_of(results: str, starts: str, component: int, extent: int, where: str = "", values: str = "x[i, j], y[i, j]"):
    combined = f"reduce(lambda m, s, n, t: ({results}), ({starts}), (({values}) for j in range({extent}){where}))[{component}]"
    return parse_program(f"{INPUTS.replace('K', str(extent))}z[i]: f64[3] = {combined}\nreturn z\n")


APART = {
    "a maximum and what it weights": (f"{RISE}, {WEIGHTED}", "f64(-1e+30), f64(0.0)"),
    "from no number": (f"{RISE}, {TURNED}", "f64(-inf), f64(0.0)"),
    "a sum and a maximum": ("m + n, maximum(s, t)", "f64(0.0), f64(-inf)"),
    "a sum and a product": ("m + n, t * s", "f64(0.0), f64(1.0)"),
    "a least": ("minimum(n, m), s + t", "f64(5.0), f64(0.0)"),
}
WHOLE = {
    "another sign": (f"{RISE}, s * exp({RISE} - m) + t * exp({RISE} - n)", "f64(-1e+30), f64(0.0)"),
    "weighted with the other side": (f"{RISE}, s * exp(n - {RISE}) + t * exp(m - {RISE})", "f64(-1e+30), f64(0.0)"),
    "weighted on one side": (f"{RISE}, s + t * exp(n - {RISE})", "f64(-1e+30), f64(0.0)"),
    "a mean": ("m + n, (s * m + t * n) / (m + n)", "f64(0.0), f64(0.0)"),
    "a carry that begins with something": (f"{RISE}, {WEIGHTED}", "f64(-1e+30), f64(1.0)"),
    "along a least": (f"{RISE}, {WEIGHTED}".replace("maximum", "minimum"), "f64(1e+30), f64(0.0)"),
}
NUMBERS = {
    "usual": lambda rng, shape: rng.standard_normal(shape),
    "far apart": lambda rng, shape: rng.standard_normal(shape) * 400,
    "masked": lambda rng, shape: np.where(rng.random(shape) < 0.6, -np.inf, rng.standard_normal(shape)),
    "not a number": lambda rng, shape: np.where(rng.random(shape) < 0.2, np.nan, rng.standard_normal(shape)),
    "infinite": lambda rng, shape: np.where(rng.random(shape) < 0.2, np.inf, rng.standard_normal(shape)),
}


def is_apart(program) -> bool:
    return all(n.combiner.is_builtin for d in program.definitions for e in expressions(d) for n in walk(e) if isinstance(n, Reduce))


@pytest.mark.parametrize("where", ["", " if j != 1 and j != i"], ids=["everywhere", "some points"])
@pytest.mark.parametrize("extent", [0, 1, 2, 19])
@pytest.mark.parametrize("name", APART)
def test_values_are_kept(name: str, extent: int, where: str) -> None:
    results, starts = APART[name]
    rng = np.random.default_rng(extent)
    for component in (0, 1):
        program = program_of(results, starts, component, extent, where)
        apart = without_carries(program)
        verify(apart)
        assert is_apart(apart) and not is_apart(program)
        assert without_carries(apart) is apart
        for kind, draw in NUMBERS.items():
            given = {"x": draw(rng, (3, extent)), "y": rng.standard_normal((3, extent))}
            with np.errstate(all="ignore"):
                before, after = evaluate_program(program, given)["z"], evaluate_program(apart, given)["z"]
            if name == "from no number" and kind == "masked":  # two runs of nothing have no weights, in some orders of combining
                after = np.where(np.isnan(before), np.nan, after)
            np.testing.assert_allclose(after, before, 1e-12, 1e-12, err_msg=f"{kind}\n{print_program(apart)}")


@pytest.mark.parametrize("name", WHOLE)
def test_other_combiners_stay_whole(name: str) -> None:
    for component in (0, 1):
        program = program_of(*WHOLE[name], component, 19)
        assert without_carries(program) is program


def test_an_online_sum_has_the_gradient_of_one_with_names() -> None:
    """The maximum cancels in the logarithm, also with the number beside it that a reduction begins with."""
    online = program_of(f"{RISE}, {WEIGHTED}", "f64(-1e+30), f64(0.0)", 0, 19, values="x[i, j], 1.0")
    text = print_program(online).replace("return z", "").replace("z[i]", "m[i]")
    reduction = text[text.index("= reduce") + 2 :].strip()
    summed = f"{reduction.removesuffix('[0]')}[1]"
    program = parse_program(f"h: f64[3] = input()\n{text}\nz[i]: f64[3] = m[i] + log({summed})\nreturn z\n")
    written = parse_program(
        f"h: f64[3] = input()\n{INPUTS.replace('K', '19')}"
        "m[i]: f64[3] = max(x[i, j] for j in range(19))\nz[i]: f64[3] = m[i] + log(sum(exp(x[i, j] - m[i]) for j in range(19)))\nreturn z\n"
    )
    rng = np.random.default_rng(3)
    given = {"x": rng.standard_normal((3, 19)), "y": rng.standard_normal((3, 19)), "h": rng.standard_normal(3)}
    found = []
    for one in (program, written):
        made = reverse(one, [("z", "h")], ["x"])
        verify(made.program)
        found.append((simplify(made.program), evaluate_program(made.program, given)[made.adjoints["x"]]))
    np.testing.assert_allclose(found[0][1], found[1][1], 1e-12, 1e-12)
    assert len(found[0][0].definitions) == len(found[1][0].definitions), print_program(found[0][0])
