"""What is taken off in front of an exponential and cancels is not differentiated, and the derivative is the same."""

import numpy as np
import pytest

from tensorexpr.autodiff.sweep import reverse as sweep
from tensorexpr.autodiff.sweep.shifts import shifts, written_shifts
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.verify import verify

HEAD = "x: f64[3, 4] = input()\nb: f64[4] = input()\nm[i]: f64[3] = max(x[i, j] for j in range(4))\n"
POWERS = HEAD + "p[i, j]: f64[3, 4] = exp(x[i, j] - m[i])\ns[i]: f64[3] = sum(p[i, j] for j in range(4))\n"
CANCELS = {
    "softmax": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / s[i]\nreturn y",
    "in one definition": HEAD + "y[i, j]: f64[3, 4] = exp(x[i, j] - m[i]) / sum(exp(x[i, k] - m[i]) for k in range(4))\nreturn y",
    "log softmax": POWERS + "y[i, j]: f64[3, 4] = x[i, j] - m[i] - log(s[i])\nreturn y",
    "logarithm of a sum": POWERS + "y[i]: f64[3] = m[i] + log(s[i])\nreturn y",
    "attention": POWERS + "y[i]: f64[3] = sum(p[i, j] * b[j] for j in range(4)) / s[i]\nreturn y",
    "weights in a sum": POWERS + "y[i]: f64[3] = sum(p[i, j] / s[i] * b[j] for j in range(4))\nreturn y",
    "a condition": POWERS + "y[i, j]: f64[3, 4] = where(b[j] > 0.0, p[i, j], 0.0) / s[i]\nreturn y",
    "a scale of the argument": (
        HEAD + "p[i, j]: f64[3, 4] = exp(2.0 * (x[i, j] - m[i]))\ny[i, j]: f64[3, 4] = p[i, j] / sum(p[i, k] for k in range(4))\nreturn y"
    ),
    "a root of squares": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / sqrt(sum(p[i, k] * p[i, k] for k in range(4)))\nreturn y",
    "taken off in a definition of its own": (
        HEAD + "z[i, j]: f64[3, 4] = x[i, j] - m[i]\ny[i, j]: f64[3, 4] = exp(z[i, j]) / sum(exp(z[i, k]) for k in range(4))\nreturn y"
    ),
    "powers of two": POWERS.replace("exp", "exp2") + "y[i, j]: f64[3, 4] = p[i, j] / s[i]\nreturn y",
    "their logarithm": POWERS.replace("exp", "exp2") + "y[i]: f64[3] = m[i] + log2(s[i])\nreturn y",
    "two results": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / s[i]\nz[i]: f64[3] = m[i] + log(s[i])\nreturn y, z",
    "a mean taken off": (
        "x: f64[3, 4] = input()\nb: f64[4] = input()\nm[i]: f64[3] = sum(x[i, j] for j in range(4)) / 4.0\n"
        "y[i, j]: f64[3, 4] = exp(x[i, j] - m[i]) / sum(exp(x[i, k] - m[i]) for k in range(4))\nreturn y"
    ),
}
COUNTS = {
    "an output": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / s[i]\nreturn y, m",
    "numerators alone": POWERS + "return p",
    "one of two": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / (s[i] + 1.0)\nreturn y",
    "another row's": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / s[2 - i]\nreturn y",
    "a sum over rows": POWERS + "y[j]: f64[4] = sum(p[i, j] for i in range(3)) / sum(s[i] for i in range(3))\nreturn y",
    "squares": POWERS + "y[i, j]: f64[3, 4] = p[i, j] * p[i, j] / s[i]\nreturn y",
    "the wrong sign": POWERS + "y[i]: f64[3] = log(s[i]) - m[i]\nreturn y",
    "powers of two, a logarithm to e": POWERS.replace("exp", "exp2") + "y[i]: f64[3] = m[i] + log(s[i])\nreturn y",
    "powers of two over those of e": POWERS + "y[i, j]: f64[3, 4] = exp2(x[i, j] - m[i]) / s[i]\nreturn y",
    "a product": POWERS + "y[i, j]: f64[3, 4] = p[i, j] / prod(p[i, k] for k in range(4))\nreturn y",
    "a scale that is data": (
        HEAD + "y[i, j]: f64[3, 4] = exp(b[j] * (x[i, j] - m[i])) / sum(exp(x[i, k] - m[i]) for k in range(4))\nreturn y"
    ),
    "something else": POWERS + "y[i, j]: f64[3, 4] = tanh(p[i, j]) / s[i]\nreturn y",
}

SENT = (
    "x: f64[5, 3] = input()\nb: f64[5, 3] = input()\nk: i64[5] = input()\n"
    "m: f64[4, 3] = scatter({(k[i], j): x[i, j] for i in range(5) for j in range(3)}, combine='max')\n"
    "s: f64[4, 3] = scatter({(k[i], j): exp(x[i, j] - m[k[i], j]) for i in range(5) for j in range(3)})\n"
)
CANCELS_SENT = {
    "softmax over segments": SENT + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[i], j]) / s[k[i], j]\nreturn y",
    "its logarithm": SENT + "y[i, j]: f64[5, 3] = b[i, j] * (x[i, j] - m[k[i], j] - log(s[k[i], j]))\nreturn y",
    "logarithms of sums": SENT + "y[p, j]: f64[4, 3] = m[p, j] + log(s[p, j] + 0.0)\nreturn y",
    "powers of two": SENT.replace("exp", "exp2") + "y[i, j]: f64[5, 3] = exp2(x[i, j] - m[k[i], j]) / s[k[i], j]\nreturn y",
    "weights sent": SENT
    + "y: f64[4, 3] = scatter({(k[i], j): exp(x[i, j] - m[k[i], j]) / s[k[i], j] * b[i, j] for i in range(5) for j in range(3)})\nreturn y",
}
COUNTS_SENT = {
    "sums alone": SENT + "y[p, j]: f64[4, 3] = s[p, j] * 2.0\nreturn y",
    "another column's": SENT + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[i], j]) / s[k[i], 2 - j]\nreturn y",
    "another segment's": SENT + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[4 - i], j]) / s[k[i], j]\nreturn y",
    "sent to where others go": SENT.replace("s: f64[4, 3] = scatter({(k[i], j)", "s: f64[4, 3] = scatter({(k[i], 0)")
    + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[i], j]) / s[k[i], 0]\nreturn y",
    "products": SENT.replace("range(3)})", "range(3)}, combine='prod')")
    + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[i], j]) / s[k[i], j]\nreturn y",
    "a sum of what is added": SENT.replace("exp(x[i, j] - m[k[i], j])", "x[i, j] - m[k[i], j]")
    + "y[i, j]: f64[5, 3] = exp(x[i, j] - m[k[i], j]) - s[k[i], j]\nreturn y",
}


def found(text: str) -> set[str]:
    program = parse_program(text)
    return shifts(program, program.outputs, {d.name for d in program.definitions}, ())


@pytest.mark.parametrize("name", CANCELS)
def test_what_cancels_is_found_and_the_derivative_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(CANCELS[name]) == {"m"}
    values = []
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(sweep, "shifts", lambda *_: set())
        values.append(derivative(CANCELS[name]))
    (short, few), (long, many) = values
    assert few < many
    for one, other in zip(short, long, strict=True):
        np.testing.assert_allclose(one, other, 1e-12, 1e-12)


@pytest.mark.parametrize("name", CANCELS_SENT)
def test_over_segments_that_data_says_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(CANCELS_SENT[name]) == {"m"}
    (short, few) = derivative(CANCELS_SENT[name])
    monkeypatch.setattr(sweep, "shifts", lambda *_: set())
    (long, many) = derivative(CANCELS_SENT[name])
    assert few < many
    for one, other in zip(short, long, strict=True):
        np.testing.assert_allclose(one, other, 1e-12, 1e-12)


@pytest.mark.parametrize("name", COUNTS_SENT)
def test_what_does_not_cancel_over_segments_is_differentiated(name: str) -> None:
    assert found(COUNTS_SENT[name]) == set()


WRITTEN = {name: text for name, text in CANCELS.items() if text.startswith(HEAD)}


def written(text: str) -> str:
    """The program with its greatest elements written where they are read."""
    lines = [line for line in text.splitlines() if not line.startswith("m[")]
    rows = {"m[i]": "i", "m[2 - i]": "2 - i"}
    for read, row in rows.items():
        lines = [line.replace(read, f"max(x[{row}, q] for q in range(4))") for line in lines]
    return "\n".join(lines)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_maximum_that_is_written_in_the_exponential_cancels_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(written(WRITTEN[name]))
    assert len(written_shifts(program, program.outputs, ())) == 1
    named, _ = derivative(WRITTEN[name])
    short, few = derivative(written(WRITTEN[name]))
    monkeypatch.setattr(sweep, "written_shifts", lambda *_: frozenset())
    long, many = derivative(written(WRITTEN[name]))
    assert few < many
    for one, other, third in zip(named, short, long, strict=True):
        np.testing.assert_allclose(one, other, 1e-12, 1e-12)
        np.testing.assert_allclose(other, third, 1e-12, 1e-12)


@pytest.mark.parametrize("name", [name for name in COUNTS if "return y, m" not in COUNTS[name]])
def test_a_maximum_that_is_written_and_does_not_cancel_is_differentiated(name: str) -> None:
    program = parse_program(written(COUNTS[name]))
    assert written_shifts(program, program.outputs, ()) == frozenset()


@pytest.mark.parametrize("name", COUNTS)
def test_what_does_not_cancel_is_differentiated(name: str) -> None:
    assert found(COUNTS[name]) == set()


def test_what_is_asked_for_is_differentiated() -> None:
    program = parse_program(CANCELS["softmax"])
    assert shifts(program, program.outputs, {"x", "m", "p", "s", "y"}, {"m"}) == set()
    assert shifts(program, program.outputs, {"x", "m", "p", "s", "y"}, {"p"}) == set()  # has a rule of its own


def derivative(text: str) -> tuple[list[np.ndarray], int]:
    """The adjoints of both inputs, and how many definitions the derivative has."""
    program = parse_program(text)
    heads = "".join(f"{n}_head: f64[{', '.join(str(e.value) for e in program.types[n].shape)}] = input()\n" for n in program.outputs)
    program = parse_program(heads + text)
    made = sweep.reverse(program, [(n, f"{n}_head") for n in program.outputs], ["x", "b"])
    verify(made.program)
    random = np.random.default_rng(7)
    given = {i.name: random.standard_normal([int(e.value) for e in i.type.shape]) for i in program.inputs}
    given |= {"k": np.array([2, 0, 2, 3, 0])} if "k" in given else {}
    results = evaluate_program(made.program, given)
    return [results[made.adjoints[n]] for n in ("x", "b")], len(made.program.definitions)
