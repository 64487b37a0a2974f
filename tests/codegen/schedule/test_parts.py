"""Where the default schedule takes reductions apart: few results, long reductions; and that cores have no say in it."""

from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.tiles import parts as auto_parts
from tensorexpr.codegen.target import Target, host_target
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, by_planners, loops
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program
from tests.seeds import share_of


def total(n: int | str, value: str = "x[k] * x[k]", combiner: str = "sum") -> str:
    sizes = "" if isinstance(n, int) else f"sizes({n})\n"
    dtype = "i64" if combiner == "argmax" else "f32"
    return f"{sizes}x: f32[{n}] = input()\nS: {dtype} = {combiner}({value} for k in range({n}))\nreturn S"


def auto(text: str, cores: int = 2):
    return autoschedule(parse_program(text), Target("test", vector_bits=512, registers=32, cores=cores))


def text_of(text: str, cores: int = 2) -> str:
    return str(auto(text, cores).state.program)


def test_a_long_reduction_to_one_number_has_a_part_for_every_core():
    s = auto(total(1 << 18))
    assert s.stages == ("S_parts", "S")
    assert loops(lower(s))[0] == ("k_o", "parallel")


@pytest.mark.parametrize("name", ["sum", "max", "argmax"])
def test_results(name):
    n = (1 << 18) + 3
    x = te.placeholder((n,), name="x")
    s = by_planners(te.compute((), lambda: getattr(te, name)(lambda k: x[k], n), name="S"))
    assert s.stages == ("S_parts", "S")
    data = ((np.arange(n) * 7919) % 1009 - 500).astype(np.float32)
    assert te.build(s)(data) == getattr(np, name)(data)


def test_cores_have_no_say_in_the_parts():
    assert text_of(total(1 << 22), 1) == text_of(total(1 << 22), 2) == text_of(total(1 << 22), 64)


def test_a_part_has_work_enough_and_none_is_shorter_where_that_can_be():
    assert "S_parts[k_o]: f32[128]" in text_of(total(1 << 21))
    assert "S_parts[k_o]: f32[256]" in text_of(total(1 << 26))
    assert "for k_i in range(20000))" in text_of(total(1000000))
    assert "_parts" not in text_of(total(1 << 14))


def test_blocks_of_the_least_work_where_the_size_is_known_only_at_run_time():
    s = auto(total("n"))
    assert "S_parts[k_o]: f32[(n + 16383) // 16384]" in str(s.state.program)
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    f = te.build(te.compute((), lambda: te.sum(lambda k: x[k], n)))
    for length in (0, 3, 16384, 16390, 100000):
        assert f(np.ones(length, np.float32)) == length


def test_columns_that_fit_the_lanes_have_parts_and_many_columns_none():
    def columns(n: int, m: int) -> str:
        return f"y: f32[{n}, {m}] = input()\nb[j]: f32[{m}] = sum(y[i, j] for i in range({n}))\nreturn b"

    assert "b_parts[i_o, j]: f32[128, 64]" in text_of(columns(1 << 16, 64))
    assert "_parts" not in text_of(columns(4096, 4096))


def test_the_gradient_of_a_bias_is_taken_apart_along_an_outer_axis():
    sums = "sum(y[n, h, w, c] for n in range(8) for h in range(96) for w in range(96))"
    text = f"y: f32[8, 96, 96, 64] = input()\nb[c]: f32[64] = {sums}\nreturn b"
    assert "b_parts[h, c]: f32[96, 64] = sum(y[n, h, w, c] for n in range(8) for w in range(96))" in text_of(text)


def test_a_long_contraction_with_few_results_stays_near():
    def product(n: int, a: int, b: int) -> str:
        return (
            f"y: f32[{n}, {a}] = input()\nz: f32[{n}, {b}] = input()\n"
            f"w[i, j]: f32[{a}, {b}] = sum(y[k, i] * z[k, j] for k in range({n}))\nreturn w"
        )

    assert "w_parts[k_o, i, j]: f32[32, 64, 48]" in text_of(product(1 << 15, 64, 48))
    assert "_parts" not in text_of(product(1024, 1024, 1024))
    assert "_parts" not in text_of(product(1 << 15, 2048, 2048))  # the parts would be larger than what is read


def test_two_passes_over_everything_have_parts_each():
    x = te.placeholder((1 << 17,), name="x")
    m = te.compute((), lambda: te.max(lambda k: x[k], 1 << 17), name="m")
    s = te.compute((), lambda: te.log(te.sum(lambda k: te.exp(x[k] - m[()]), 1 << 17)) + m[()], name="s")
    assert by_planners(s).stages == ("m_parts", "m", "s_parts", "s")
    data = np.linspace(-5, 5, 1 << 17, dtype=np.float32)
    want = np.log(np.exp(data.astype(np.float64) - 5).sum()) + 5
    assert abs(float(te.build(s)(data)) - want) < 1e-5


def test_random_programs_with_all_that_can_be_taken_apart(monkeypatch):
    monkeypatch.setattr(auto_parts, "LEAST_WORK", 3)
    monkeypatch.setattr(auto_parts, "LEAST_SERIAL", 3)
    found = 0
    for seed in share_of(range(100)):
        s = autoschedule(random_program(seed), WIDE)
        found += any("rfactor" in call for call in s.state.calls)
        assert_same_meaning(s, seed)
    assert found > 6


@pytest.mark.parametrize("value", ["x[k] * x[k]", "exp(x[k])"])
def test_the_same_bits_for_any_number_of_cores(value):
    program = parse_program(total(300_001, value))
    data = np.random.default_rng(0).standard_normal(300_001).astype(np.float32)
    found = {te.build(autoschedule(program, replace(host_target(), cores=cores)))(data)[0].tobytes() for cores in (1, 2, 7, 64)}
    assert len(found) == 1
