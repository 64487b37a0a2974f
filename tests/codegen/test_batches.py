"""Kernels over one batch are one, an element of it at a time: what they share is near, values and proofs stay."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen import stages
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.nest import batches
from tensorexpr.codegen.nest.batches import batched
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.target import host_target
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.programs import assert_means_sample, planned
from tests.codegen.programs import outputs as values_of
from tests.random_programs import Options, random_sample
from tests.seeds import share_of

HEAD = """
main(x, c, y, z)
x: parameter(f32[40, 64])
c: parameter(f32[64])
y: parameter(f32[40, 64], written)
z: parameter(f32[40, 64], written)
p: workspace(f32[40, 64])
q: workspace(f32[2, 64])
"""


def loop(to, value, stop=40):
    return to, f"    for b in parallel(range(0, {stop})):\n        for i in range(0, 64):\n            {to}[b, i] = {value}\n"


def slots(to, value):
    inside = f"            for i in range(0, 64):\n                q[s, i] = x[b, i]\n                {to}[b, i] = {value}\n"
    return to, f"    for s in parallel(range(0, 2)):\n        for b in range(s * 20, s * 20 + 20):\n{inside}"


def made(*kernels, near=1 << 10, head=HEAD):
    """The nest of kernels, given as what they write and their loops."""
    nest = parse_nest(head + "".join(f"\ndef kernel_{n}() -> {to}:\n{body}" for n, (to, body) in enumerate(kernels)))
    found = batched(nest, near, 2, typical(nest))
    assert not prove(verify_nest(found)).refuted
    return found


P, Z = loop("p", "x[b, i] * 2.0"), loop("z", "x[b, 63 - i]")


def test_what_lies_between_is_one_element():
    nest = made(P, loop("y", "p[b, 63 - i]"), Z)
    assert [kernel.name for kernel in nest.kernels] == ["p y z"] and not nest.workspace
    assert "p: local(f32[64])" in str(nest)


def test_a_large_element_is_kept_for_each_core(monkeypatch):
    monkeypatch.setattr(batches, "ON_STACK", 0)
    nest = made(P, loop("y", "p[b, 63 - i]"), Z)
    assert "p: workspace(f32[4, 64])" in str(nest) and "for b in range(slot * 10, (slot + 1) * 10):" in str(nest)


OPEN = HEAD.replace("main(", "main(m, ").replace("x: param", "m: size\nx: param", 1).replace("[40, 64]", "[m, 64]")


@pytest.mark.parametrize("large", [False, True])
def test_a_batch_may_be_open(large, monkeypatch):
    """The share of a slot is every so many-th element: products of slots and sizes would not be affine, and nothing proved."""
    monkeypatch.setattr(batches, "ON_STACK", 0 if large else batches.ON_STACK)
    nest = made(loop("p", "x[b, i] * 2.0", "m"), loop("y", "p[b, 63 - i]", "m"), loop("z", "x[b, 63 - i]", "m"), head=OPEN)
    assert [kernel.name for kernel in nest.kernels] == ["p y z"] and prove(nest).is_clean
    shown = ("p: workspace(f32[4, 64])", "for b in range(0, (m - slot + 3) // 4):") if large else ("p: local(f32[64])",)
    assert all(text in str(nest) for text in shown)
    for m in (0, 1, 3, 5, 8):
        x = np.arange(64.0 * m, dtype=np.float32).reshape(m, 64)
        got = run_nest(nest, {"x": x, "c": np.zeros(64, np.float32)}, {"m": m})
        assert np.array_equal(got["y"], 2 * x[:, ::-1]) and np.array_equal(got["z"], x[:, ::-1])


@pytest.mark.parametrize("kernels", [(slots("p", "q[s, 63 - i]"), loop("y", "p[b, i]")), (P, slots("y", "q[s, 63 - i] + p[b, 0]"))])
def test_kernels_with_slots_keep_them(kernels):
    nest = made(*kernels, Z)
    assert [kernel.name for kernel in nest.kernels] == ["p y z"]
    assert [b.name for b in nest.workspace] == ["q"] and "p: local(f32[64])" in str(nest)


@pytest.mark.parametrize(
    ("kernels", "names"),
    [
        pytest.param((P, loop("y", "p[39 - b, i]"), Z), ["p z", "y"], id="another element"),
        pytest.param((P, loop("y", "p[b, i]"), loop("z", "y[0, i]")), ["p y", "z"], id="one element for all"),
        pytest.param((P, ("y", "    for b in range(0, 40):\n        for i in range(0, 64):\n            y[b, i] = p[b, i]\n"), Z),
                     ["p z", "y"], id="not on all cores"),
    ],
)  # fmt: skip
def test_what_needs_other_elements_stays_apart(kernels, names):
    assert [kernel.name for kernel in made(*kernels).kernels] == names


def test_what_both_read_may_be_a_constant():
    """Weights of a model that was read from a file are constants of its nests: one of them was not found."""
    table = f"k: constant(f32[40, 64]) = {np.arange(2560.0).reshape(40, 64).tolist()}\n"
    nest = made(loop("y", "k[b, i]"), loop("z", "y[b, i] * k[b, 63 - i]"), head=HEAD.replace("p: work", f"{table}p: work"))
    assert [kernel.name for kernel in nest.kernels] == ["y z"]


def test_what_is_near_anyway_stays():
    assert len(made(P, loop("y", "p[b, i]"), Z, near=1 << 20).kernels) == 3


def test_kernels_between_stay_in_front_or_come_behind():
    sums = "    for b in range(0, 40):\n        for i in range(0, 64):\n            y[b, i] = c[i]\n"
    assert [kernel.name for kernel in made(P, ("y", sums), loop("z", "p[b, i] + y[b, 0]")).kernels] == ["y", "p z"]
    assert [kernel.name for kernel in made(P, ("y", sums), loop("z", "p[b, i]")).kernels] == ["p z", "y"]


@pytest.mark.parametrize("seed", share_of(range(200)))
def test_random_programs_keep_their_values_and_their_proof(seed, monkeypatch):
    monkeypatch.setattr(batches, "LEAST", 1)
    monkeypatch.setattr(batches, "ON_STACK", random.Random(seed).choice((0, 1 << 14)))
    monkeypatch.setattr(batches, "_pays", lambda *_: True)
    monkeypatch.setattr(stages, "batched", lambda nest, near, cores, usual: batched(nest, -1, cores, usual))
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), most=8))
    try:
        program = sample.traced().program
    except te.TensorExprError:
        return
    _, nest = stages.made_of_program(program, host_target(), lambda found: found.nest)
    assert not prove(verify_nest(nest)).refuted
    assert_means_sample(nest, program, sample, rng, seed, 1)


# ------------------------------------------------------------------------------------------------ batches of small products


def products(shape: tuple, dtype: str = "float32") -> tuple[list[te.Tensor], list[te.Tensor]]:
    """A product of matrices over a batch with both gradients, and their inputs."""
    *batch, n, k, m = shape
    x, y = te.placeholder((*batch, n, k), dtype, name="x"), te.placeholder((*batch, k, m), dtype, name="y")
    head = te.placeholder((*batch, n, m), dtype, name="head")
    out = kernels.matmul(x, y)
    return [out, *te.gradient(out, [x, y], head)], [x, y, head]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(70, 8, 8, 8), (65, 3, 3, 3), (65, 5, 7, 9), (64, 4, 16, 4), (64, 12, 6, 2), (5, 13, 2, 6, 3)], ids=str)
def test_a_product_and_its_gradients(shape, dtype, monkeypatch):
    monkeypatch.setattr(stages, "batched", lambda nest, near, cores, usual: batched(nest, 0, cores, usual))
    outputs, inputs = products(shape, dtype)
    function = te.build(outputs, inputs)
    if min(shape[-3:]) > 4:  # others have lanes along the batch
        assert function.source("nest").count("def ") == 1
    rng = np.random.default_rng(0)
    x, y, head = (rng.integers(-3, 4, t.shape).astype(dtype) for t in inputs)
    turned = np.swapaxes
    want = (x @ y, head @ turned(y, -1, -2), turned(x, -1, -2) @ head)
    for given, got in zip(want, function(x, y, head), strict=True):
        assert np.array_equal(got, given)


def test_the_operand_across_the_lanes_is_turned_around_for_one_element_at_a_time():
    outputs, inputs = products((30000, 8, 8, 8))
    nest = te.build(outputs, inputs).source("nest")
    assert nest.count("def ") == 1 and "y_of: local(f32[1, 8, 8])" in nest


CHAIN = """
A: f32[70, 4, 5] = input()
B: f32[70, 5, 6] = input()
C: f32[70, 6, 4] = input()
D: f32[70, 4, 4] = input()
P[b, i, j]: f32[70, 4, 6] = sum(A[b, i, k] * B[b, k, j] for k in range(5))
Q[b, i, j]: f32[70, 4, 4] = sum(P[b, i, k] * C[b, {place}] for k in range(6))
R[b, i, j]: f32[70, 4, 4] = {own} + D[b, i, j]
S[b, i, j]: f32[70, 4, 4] = sum(R[b, i, k] * Q[b, k, j] for k in range(4))
return R, S
"""


@pytest.mark.parametrize("place", ["k, j", "5 - k, j"])
@pytest.mark.parametrize("own", ["Q[b, i, j]", "Q[69 - b, i, j]"])
def test_chains_of_products(place, own, monkeypatch):
    """What lies between, read at its own element, is a local; read at another one it is there before."""
    monkeypatch.setattr(stages, "batched", lambda nest, near, cores, usual: batched(nest, 0, cores, usual))
    program = parse_program(CHAIN.replace("{place}", place).replace("{own}", own))
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, [int(e.value) for e in i.type.shape]).astype(np.float32) for i in program.inputs]
    want = evaluate_program(program, {i.name: a for i, a in zip(program.inputs, arrays, strict=True)})
    _, nest = stages.made_of_program(program, host_target(), lambda found: found.nest)
    got = values_of(nest, program, dict(zip([i.name for i in program.inputs], arrays, strict=True)), {})
    assert all(np.array_equal(got[name], given) for name, given in want.items())


def test_a_long_thin_product_of_each_element_is_not_taken_apart():
    """Each element of the batch has operands of its own: parts of the sum would make none of them nearer."""
    assert planned(products((50000, 2, 64, 2))[0][0]).stages == ("matmul",)
