"""What depends on constants alone is computed when a program is compiled or built, and no bit of the results changes by it."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.compiled.arguments import signature_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.executable import executable_of
from tensorexpr.ir import Program
from tensorexpr.parse import parse_program
from tests.random_programs import random_inputs, random_program
from tests.runtime.test_laws import same
from tests.storage.models import floats


def unfolded(program: Program) -> CompiledFunction:
    """The program compiled as it is."""
    return CompiledFunction(executable_of(program), signature_of(program, single=False))


@pytest.mark.parametrize("seed", range(8))
def test_folding_changes_no_bit(seed):
    """Of values that are rounded at every step, too."""
    program = random_program(seed, floats_only=True, without=("data", "zero"))
    inputs = random_inputs(program, seed)
    names = [i.name for i in program.inputs]
    frozen = te.freeze(program, te.Context({name: inputs[name] for name in names[::2]}))
    arrays = [inputs[i.name] for i in frozen.inputs]
    for found, wanted in zip(build_program(frozen)(*arrays), unfolded(frozen)(*arrays), strict=True):
        assert same(found, wanted), f"of\n{frozen}"


PRODUCTS = (
    # Products of constants that are terms of sums stay there, fused: in place, by name, under another name, with a sign, in a sum over k.
    ("y[i]: f32[64] = x[i] + c[i] * d[i]", "cd"),
    ("y[i]: f32[64] = x[i] + neg(exp(c[i]) * d[i])", "d "),
    ("p[i]: f32[64] = c[i] * d[i]\ny[i]: f32[64] = p[i] - x[i]", "cd"),
    ("p[i]: f32[64] = c[i] * d[i]\nq[i]: f32[64] = neg(p[63 - i])\ny[i]: f32[64] = x[i] + q[i]", "cd"),
    ("y: f32 = sum(where(x[k] > 0.0, c[k] * d[k], 0.0) for k in range(64))", "cd"),
    # Everywhere else they are folded.
    ("p[i]: f32[64] = c[i] * d[i]\ny[i]: f32[64] = p[i] * x[i]", "p"),
    ("y[i]: f32[64] = x[i] * exp(c[i] * d[i] - c[i])", " "),
)


@pytest.mark.parametrize(("text", "kept"), PRODUCTS)
def test_products_that_stand_in_sums_stay_there(text, kept):
    arrays = {"c": floats(64), "d": floats(64)}
    inputs = "".join(f"{name}: f32[64] = input()\n" for name in "xcd")
    program = te.freeze(parse_program(f"{inputs}{text}\nreturn y"), te.Context(arrays))
    f = build_program(program)
    assert sorted(name if len(name) == 1 else " " for name in f.constants) == sorted(kept)
    x = -arrays["c"] * arrays["d"]  # what is left of the sum are roundings
    assert f(x)[0].tobytes() == unfolded(program)(x)[0].tobytes()


def test_what_is_built_is_folded_as_what_is_compiled(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_TUNING", "")
    c, x = te.constant(np.linspace(1, 2, 8, dtype=np.float32), name="c"), te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] * te.exp(c[i]), name="y")

    @te.op
    def scaled(x):
        return te.compute((8,), lambda i: x[i] * te.exp(c[i]), name="y")

    a = floats(8)
    made = te.compile(y, [x]), te.build(y, [x]), te.build(te.autoschedule(y)), scaled.compile(a)
    for f in made:
        assert list(f.constants) == ["folded"] and f(a).tobytes() == made[0](a).tobytes()
    plain = te.build(te.schedule(y))  # a schedule says what is computed
    assert list(plain.constants) == ["c"] and plain(a).tobytes() == made[0](a).tobytes()
    assert (
        te.build(te.compute((8,), lambda i: te.exp(c[i]), name="z"))().tobytes()
        == np.ascontiguousarray(made[1].constants["folded"]).tobytes()
    )
