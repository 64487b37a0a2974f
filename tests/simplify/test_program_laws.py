"""Random programs: simplification keeps every output and comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Access
from tensorexpr.simplify import Options, narrow_domains, simplify
from tensorexpr.simplify.expressions import Simplifier
from tensorexpr.simplify.passes import definitions
from tensorexpr.text import print_program
from tensorexpr.traversal import expressions, walk
from tests.random_programs import meaning, random_inputs, random_program, random_sizes
from tests.seeds import share_of
from tests.simplify.points import same


@pytest.mark.parametrize("block", range(10))
def test_simplify_keeps_outputs_and_is_idempotent(block: int) -> None:
    for seed in share_of(range(7000 + 100 * block, 7000 + 100 * block + 30)):
        program = random_program(seed)
        simple = simplify(program)
        text = f"seed {seed}\n{print_program(program)}\n-->\n{print_program(simple)}"
        again = simplify(simple)
        assert again is simple, f"{text}\n-->\n{print_program(again)}"
        assert simple.inputs == program.inputs and simple.outputs == program.outputs, text
        assert [simple.types[n] for n in simple.outputs] == [program.types[n] for n in program.outputs], text
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        if meaning(program, inputs, sizes) is None:
            continue
        before, after = evaluate_program(program, inputs, sizes), evaluate_program(simple, inputs, sizes)
        for name, value in before.items():
            zero = np.zeros((), value.dtype)  # a sum of one term may keep the sign of a zero
            unsigned = (value, after[name]) if value.dtype.kind in "b" else (value + zero, after[name] + zero)
            assert same(*unsigned), f"{name} of {text}"


@pytest.mark.parametrize("block", range(4))
def test_derived_formulas_stay_close_and_come_to_an_end(block: int) -> None:
    options = Options(signed_zeros=False, factor=True, derived=True)
    for seed in share_of(range(9000 + 100 * block, 9000 + 100 * block + 25)):
        program = random_program(seed)
        simple = narrow_domains(program, options)
        text = f"seed {seed}\n{print_program(program)}\n-->\n{print_program(simple)}"
        assert narrow_domains(simple, options) is simple, text
        sizes = random_sizes(program, seed)
        inputs = random_inputs(program, seed, sizes=sizes)
        if meaning(program, inputs, sizes) is None:
            continue
        before, after = evaluate_program(program, inputs, sizes), evaluate_program(simple, inputs, sizes)
        for name, value in before.items():
            found, expected = after[name].astype(np.float64), value.astype(np.float64)
            tolerance = {2: 2e-2, 4: 1e-5, 8: 1e-9}.get(value.dtype.itemsize, 0) if value.dtype.kind not in "biu" else 0
            both = np.isfinite(found) & np.isfinite(expected)
            np.testing.assert_allclose(np.where(both, found, 0), np.where(both, expected, 0), tolerance, tolerance, err_msg=text)


@pytest.mark.parametrize("block", range(2))
def test_definitions_that_share_a_form_are_simplified_as_each_by_itself(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in share_of(range(7000 + 100 * block, 7000 + 100 * block + 60)):
        program = random_program(seed)
        found = []
        for least in (0, 1 << 30):
            monkeypatch.setattr(definitions, "LEAST_SHARED", least)
            simple = narrow_domains(program)
            places = [n.location for d in simple.definitions for e in expressions(d) for n in walk(e) if isinstance(n, Access)]
            found.append((print_program(simple), places, [d.location for d in simple.definitions if hasattr(d, "location")]))
        assert found[0] == found[1], f"seed {seed}\n{print_program(program)}"


@pytest.mark.parametrize("layers", [30, 60])
def test_layers_are_simplified_once(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    first = Simplifier.__init__
    monkeypatch.setattr(Simplifier, "__init__", lambda *given: (made.append(given), first(*given))[1])
    x = te.placeholder((64,), name="y100")
    weights = [te.placeholder((64,), name=f"w{k}") for k in range(layers)]
    y = x
    for k, w in enumerate(weights):
        y = te.compute((64,), lambda i, y=y, w=w: te.where(i < 64, y[i] * w[i + 0], 0.0), name=f"y{k + 101}")
    narrow_domains(te.program_of([y], [x, *weights]))
    assert len(made) <= 4
