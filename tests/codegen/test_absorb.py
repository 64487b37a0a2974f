"""Large temporaries go: terms are added up where they are made, in place; what a program means and the proof of its nest stay."""

from __future__ import annotations

import random

import pytest

import tensorexpr as te
from tensorexpr.codegen import stages
from tensorexpr.codegen.nest import absorb
from tensorexpr.codegen.nest.absorb import absorbed
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.target import host_target
from tensorexpr.simplify import simplify
from tests.codegen.programs import assert_means_sample
from tests.random_programs import Options, random_sample
from tests.seeds import share_of

N = 1 << 17
BUFFERS = f"""
main(x, a, y, z)
x: parameter(f64[{N}])
a: parameter(i64[1])
y: parameter(f64[{N}], written, streamed)
z: parameter(f64[{N}], written)
p: workspace(f64[{N}])
q: workspace(f64[{N}])
r: workspace(f64[{N}])
"""


def made(*kernels):
    """What is left of kernels, given as their loops, by lines."""
    text = BUFFERS + "".join(f"\ndef kernel_{n}() -> {to}:\n{body}" for n, (to, body) in enumerate(kernels))
    nest = absorbed(parse_nest(text))
    assert not prove(verify_nest(nest)).refuted
    return str(nest).split("\n\n", 1)[1].strip().splitlines(), nest


def loop(target, value, start=0, stop=N):
    to = target.split("[")[0]
    return to, f"    for i in range({start}, {stop}):\n        {target} = {value}\n"


P, Q, R = loop("p[i]", "x[i] * 2.0"), loop("q[i]", f"x[{N - 1} - i]"), loop("r[i]", f"x[(i + 1) % {N}]")
Z = loop("z[i]", "x[i]")


def test_terms_are_added_up_where_they_are_made():
    lines, nest = made(P, Q, R, loop("y[i]", "p[i] + q[i] + r[i]"), Z)
    stores = [line.strip() for line in lines if " = " in line]
    assert stores == ["y[i] = x[i] * 2.0", f"y[i] = y[i] + x[{N - 1} - i]", f"y[i] = y[i] + x[(i + 1) % {N}]", "z[i] = x[i]"]
    assert not nest.workspace and nest.streams == ()


def test_a_term_that_is_too_early_moves_down():
    lines, _ = made(R, P, Q, loop("y[i]", "p[i] + q[i] + r[i]"), Z)
    assert [line.strip() for line in lines if " = " in line][-2] == f"y[i] = y[i] + x[(i + 1) % {N}]"


def test_the_order_of_a_sum_stays():
    lines, nest = made(P, Q, R, loop("y[i]", "p[i] + (q[i] + r[i])"), Z)
    stores = [line.strip() for line in lines if " = " in line]
    assert stores == [f"y[i] = x[{N - 1} - i]", f"y[i] = x[i] * 2.0 + (y[i] + x[(i + 1) % {N}])", "z[i] = x[i]"]
    assert not nest.workspace


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param((P, loop("y[i]", f"p[{N - 1} - i]"), Z), id="read elsewhere"),
        pytest.param((P, loop("y[i]", "p[0] + x[i]"), Z), id="one element"),
        pytest.param((P, loop("y[i]", f"p[i] + p[{N - 1} - i]"), Z), id="read elsewhere, too"),
        pytest.param(
            (P, ("(y, z)", "    for i in range(0, 131072):\n        y[i] = p[i]\n        z[i] = p[131071 - i]\n")), id="two readers"
        ),
        pytest.param(
            (
                ("p", "    for i in range(0, 131072):\n        for j in range(0, 2):\n            p[i] = x[i] * 2.0\n"),
                loop("y[i]", "p[i]"),
                Z,
            ),
            id="stored twice",
        ),
    ],
)
def test_what_is_read_otherwise_stays(kernels):
    _, nest = made(*kernels)
    assert "p" in [b.name for b in nest.workspace] or [k.name for k in nest.kernels] == ["p", "y", "z"]


def test_a_buffer_takes_the_place_of_one_that_is_read_for_the_last_time():
    lines, nest = made(P, loop("q[i]", f"p[i] + x[{N - 1} - i]"), loop("y[i]", "q[i] * 2.0"), loop("z[i]", f"q[{N - 1} - i]"))
    assert "p" not in [b.name for b in nest.workspace]
    assert lines[-1].strip() == f"z[i] = q[{N - 1} - i]"


def test_what_is_small_stays(monkeypatch):
    monkeypatch.setattr(absorb, "LEAST", 1 << 21)
    text = BUFFERS + "\n".join(f"\ndef kernel_{n}() -> {to}:\n{body}" for n, (to, body) in enumerate((P, loop("y[i]", "p[i]"), Z)))
    nest = parse_nest(text)
    assert absorbed(nest) is nest


@pytest.mark.parametrize("seed", share_of(range(200)))
@pytest.mark.parametrize("plainly", [False, True])
def test_random_programs_keep_their_values_and_their_proof(seed, plainly, monkeypatch):
    monkeypatch.setattr(absorb, "LEAST", 1)
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), most=8))
    try:
        program = sample.traced().program
    except te.TensorExprError:
        return
    if plainly:
        nest = absorbed(stages.plain_stages(simplify(program, inline=False), host_target()).nest)
    else:
        _, nest = stages.made_of_program(program, host_target(), lambda found: found.nest)
    assert not prove(verify_nest(nest)).refuted
    assert_means_sample(nest, program, sample, rng, seed, 1)
