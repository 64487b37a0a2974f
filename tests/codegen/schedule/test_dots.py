"""Products of narrow numbers as instructions: every shape, orientation and tail has the values of exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import shipped
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.llvm import Machine
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule as planned
from tensorexpr.codegen.target import DOTS, Target, host_target
from tests.codegen.programs import assert_means

WIDE = Target("test", 512, 32, features=tuple(dot.feature for dot in DOTS))
PAIRS = [("uint8", "int8"), ("int8", "int8"), ("int16", "int16"), ("bfloat16", "bfloat16")]


def product(left: str, right: str, text: str, n: int, k: int, m: int, batch: int = 3) -> tuple[te.Tensor, list[te.Tensor]]:
    """A product of matrices: `text` has the axes of both operands, e.g. "ik,kj" or "bik,bjk"."""
    sizes = {"i": n, "k": k, "j": m, "b": batch}
    one, other = text.split(",")
    a = te.placeholder(tuple(sizes[x] for x in one), left, name="a")
    b = te.placeholder(tuple(sizes[x] for x in other), right, name="b")
    wide = "float32" if "float" in left else "int32"
    data = [x for x in "bij" if x in one + other]

    def value(*indices):
        known = dict(zip(data, indices, strict=True))

        def term(r):
            at = {**known, "k": r}
            return te.cast(a[tuple(at[x] for x in one)], wide) * te.cast(b[tuple(at[x] for x in other)], wide)

        return te.cast(te.sum(term, k), wide)

    return te.compute(tuple(sizes[x] for x in data), value, name="c"), [a, b]


def given(tensors: list[te.Tensor], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for t in tensors:
        low, high = (-64, 65) if t.dtype.is_float else (int(t.dtype.least), int(t.dtype.greatest) + 1)
        if t.dtype == "int16":
            low, high = -700, 701
        array = rng.integers(low, high, t.shape).astype(t.dtype.numpy)
        array.reshape(-1)[0], array.reshape(-1)[-1] = low, high - 1
        made.append(array)
    return made


TEXTS = ("ik,kj", "ik,jk", "ki,kj", "bik,kj", "bik,bkj")
SHAPES = ((33, 37, 49), (64, 128, 96), (7, 301, 130), (150, 66, 17))
BOTH = [(text, shape) for k, text in enumerate(TEXTS) for shape in (SHAPES[k % 4], SHAPES[(k + 1) % 4])]


@pytest.mark.parametrize("left, right", PAIRS)
@pytest.mark.parametrize("text, shape", BOTH)
def test_every_shape_has_exact_values(left: str, right: str, text: str, shape: tuple[int, int, int]) -> None:
    c, tensors = product(left, right, text, *shape)
    arrays = given(tensors, sum(shape))
    output = ",".join(text.split(",")) + "->" + "".join(x for x in "bij" if x in text)
    expected = np.einsum(output, *(array.astype(np.float64) for array in arrays))
    assert np.abs(expected).max() < 2**31
    found = te.build(c, tensors)(*arrays)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0 if left != "bfloat16" else 1e-6)


@pytest.mark.parametrize("left, right", PAIRS)
def test_the_nest_says_what_is_computed(left: str, right: str) -> None:
    c, tensors = product(left, right, "ik,kj", 40, 50, 53)
    schedule = te.schedule(c, inputs=tensors)
    made = planned(schedule.program, WIDE)
    assert "s['c'].stage('b', ((1, " in made.as_python()
    assert_means(made, inputs=dict(zip("ab", given(tensors, 1), strict=True)))


def test_what_follows_may_read_the_sum_as_often_as_it_likes() -> None:
    c, tensors = product("bfloat16", "bfloat16", "ik,jk", 40, 50, 53)
    y = te.compute(c.shape, lambda i, j: te.cast(c[i, j] * te.sigmoid(c[i, j]), "bfloat16"), name="y")
    made = planned(te.schedule(y, inputs=tensors).program, WIDE)
    assert "s['y'].stage('b', ((0, " in made.as_python()
    assert_means(made, inputs=dict(zip("ab", given(tensors, 1), strict=True)))


@pytest.mark.parametrize("left, right", PAIRS)
def test_instructions_of_this_machine_are_used(left: str, right: str) -> None:
    dot = next(d for d in DOTS if (d.shared, d.own) == (left, right))
    if dot.feature not in host_target().features:
        pytest.skip(f"this machine has no {dot.feature}")
    c, tensors = product(left, right, "ik,kj", 64, 128, 96)
    word = {"int16": "vpdpwssd", "bfloat16": "vdpbf16ps"}.get(left, "vpdpbusd")
    assert te.build(c, tensors).source("asm").count(word) > 8


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    c, tensors = product("bfloat16", "bfloat16", "ik,kj", 130, 260, 200)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in tensors]
    f = te.build(c, tensors)
    first = f(*arrays)
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "1")
    np.testing.assert_array_equal(f(*arrays), first)


def test_the_model_of_cost_counts_an_instruction_for_its_products() -> None:
    machine = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512bf16,+avx512bw,+avx512f,+avx512vl,+avx512vnni", 512)
    times = {}
    for left, right in (*PAIRS, ("float32", "float32")):
        c, tensors = product(left, right, "ik,kj", 128, 256, 192)
        nest = lower(planned(te.schedule(c, inputs=tensors).program, WIDE))
        times[left, right] = float(Model(summary_of(nest, machine=machine), shipped(WIDE)).times()[0])
    floats = times["float32", "float32"]
    assert times["uint8", "int8"] < times["int8", "int8"] < 0.65 * floats and times["uint8", "int8"] < 0.4 * floats
    assert times["bfloat16", "bfloat16"] < 0.65 * floats and times["int16", "int16"] < 0.65 * floats
