"""Every workload at a size of a few elements: ours against the interpreter in float64, and each peer that is installed against ours."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.benchmarks import peers, workloads
from tensorexpr.benchmarks.harness import arrays_of, difference
from tensorexpr.benchmarks.spec import GROUPS
from tensorexpr.interpret import evaluate_program

TINY, FULL = workloads.specs(tiny=True), workloads.specs()
LIBRARIES = ("numpy", "torch", "jax", "numba", "keops")
"""Peers that are quick to compile; torch.compile and Halide are compared at full size, before they are timed."""


def test_the_table_has_the_workloads_that_are_meant_to_be_measured():
    shapes = {spec.name: [tuple(a.shape) for a in spec.draw()] for spec in FULL if "embedding" not in spec.name}
    image, taps = (8, 64, 56, 56), (64, 64, 3, 3)
    last, inner = (8, 56, 56, 64), (3, 3, 64, 64)
    row, picture = (4096, 1024), (8, 64, 112, 112)
    assert shapes == {
        "gemm 1024": [(1024, 1024)] * 2,
        "gemm 1000x777x333": [(1000, 777), (777, 333)],
        "gemm At 1024": [(1024, 1024)] * 2,
        "gemm Bt 1024": [(1024, 1024)] * 2,
        "gemm 64 x (128x128x64)": [(64, 128, 128), (64, 128, 64)],
        "conv 3x3 8x64x56x56": [image, taps],
        "conv 3x3 8x64x56x56 NHWC": [last, inner],
        "conv 3x3 stride 2": [image, taps],
        "conv 3x3 stride 2 NHWC": [last, inner],
        "conv 3x3 dilation 2": [image, taps],
        "conv 3x3 dilation 2 NHWC": [last, inner],
        "conv 3x3 depthwise": [image, (64, 1, 3, 3)],
        "conv 3x3 depthwise NHWC": [last, (3, 3, 1, 64)],
        "conv transposed stride 2": [(8, 64, 28, 28), taps],
        "conv transposed stride 2 NHWC": [(8, 28, 28, 64), inner],
        "softmax 4096x1024": [row],
        "logsumexp 4096x1024": [row],
        "layer norm 4096x1024": [row, (1024,), (1024,)],
        "GELU(a x + b) 2^24": [(1 << 24,), (), ()],
        "attention 32x512x64": [(32, 512, 64)] * 3,
        "attention 32x512x64 causal": [(32, 512, 64)] * 3,
        "Gaussian product 8192": [(8192, 3), (8192, 3), (8192, 1)],
        "max-pool 2x2": [picture],
        "max-pool 3x3/2": [picture],
        "average pool 3x3/2": [picture],
        "bilinear x2": [picture],
        "heat 10 steps 2048": [(2048, 2048)],
        "cumulative sum 4096": [(4096, 4096)],
        "local correlation 64x96x96": [(64, 96, 96)] * 2,
        "bilateral 9x9 1024": [(1024, 1024)],
        "100000 x (8x8x8)": [(100000, 8, 8)] * 2,
        "add of 16": [(16,), (16,)],
    }
    ids, table = next(spec for spec in FULL if spec.name.endswith("equal")).draw()
    assert table.shape == (50000, 128) and ids.shape == (16384,) and len(set(ids)) == 1
    assert {spec.group for spec in FULL} == set(GROUPS) and all(spec.differentiable for spec in FULL)


def test_results_and_what_must_be_moved():
    outputs = {spec.name: spec.output_shape() for spec in FULL if spec.group == "contraction"}
    assert outputs["conv 3x3 stride 2 NHWC"] == (8, 28, 28, 64) and outputs["conv 3x3 stride 2"] == (8, 64, 28, 28)
    assert outputs["conv transposed stride 2 NHWC"] == (8, 56, 56, 64) and outputs["conv transposed stride 2"] == (8, 64, 56, 56)
    for spec in FULL:
        least = sum(a.nbytes for a in spec.draw() if a.dtype.kind == "f" and spec.key != "embedding") + 4 * int(
            np.prod(spec.output_shape())
        )
        assert 0.98 * least <= spec.bytes <= 1.02 * least + 4 * 16384 * 128, spec.name
        assert spec.moved(True) > spec.moved(False) and spec.work(True) >= spec.work(False)
    # Two products, and two for each of their operands.
    attention = next(spec for spec in FULL if spec.key == "attention" and not spec.static["is_causal"])
    assert attention.work(True) == 6 * 2.0 * 32 * 512 * 512 * 64 == 3 * attention.work(False)


@pytest.mark.parametrize("spec", TINY, ids=lambda spec: spec.name)
def test_ours_agrees_with_the_interpreter(spec):
    inputs, head = spec.draw(), spec.head()
    exact = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in (*inputs, head)]
    placeholders = [te.placeholder(a.shape, a.dtype.name, name=f"x{k}") for k, a in enumerate(exact)]
    output = spec.op(*placeholders[:-1], **spec.static)
    gradients = te.gradient(output, [t for t in placeholders[:-1] if t.dtype.is_float], placeholders[-1])
    program = te.program_of([output, *gradients], placeholders)
    values = evaluate_program(program, {f"x{k}": a for k, a in enumerate(exact)})
    expected = [values[name] for name in program.outputs]
    found = arrays_of(peers.ours(spec, inputs, head)())
    assert difference(expected, found) <= spec.tolerance
    assert difference(expected[:1], arrays_of(peers.ours(spec, inputs, None)())) <= spec.tolerance


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("spec", TINY, ids=lambda spec: spec.name)
def test_peers_agree_with_ours(spec, name):
    if name in peers.missing([name]):
        pytest.skip(f"{name} is not installed")
    inputs = spec.draw()
    for head in (None, spec.head()):
        make = peers.maker(name, spec, inputs, head)
        if make is None:
            continue
        expected, found = arrays_of(peers.ours(spec, inputs, head)()), arrays_of(make()())
        assert difference(expected, found) <= spec.tolerance, f"{name}, {'gradient' if head is not None else 'forward'}"


def test_halide_agrees_with_ours(monkeypatch, tmp_path):
    if peers.missing(["halide"]):
        pytest.skip("halide is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    room = peers.module("halide")
    for name in ("SCHEDULERS", "GRADIENT_SCHEDULERS"):
        monkeypatch.setattr(room, name, (None,))  # its autoschedulers take minutes, and long vectors for granted
    specs = [next(spec for spec in TINY if spec.key == key) for key in ("gaussian_product", "avg_pool2d")]  # the last gradient scatters
    assert all(room.has(spec.key, spec.static, True) for spec in specs) and not room.has("matmul", {}, False)
    with pytest.raises(RuntimeError, match="expected code from one of None, got none \\(bench --prepare makes it, with logs in"):
        room.candidate(specs[0].key, {}, specs[0].draw(), None)  # as in a run that times
    monkeypatch.setattr(room, "PATIENCE", 300.0)
    for spec in specs:
        inputs = spec.draw()
        for head in (None, spec.head()):
            make = peers.maker("halide", spec, inputs, head)
            assert make is not None
            assert difference(arrays_of(peers.ours(spec, inputs, head)()), arrays_of(make()())) <= spec.tolerance, spec.name


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(
        peers, "versions", lambda: {"numpy": "2", "torch": None, "jax": "1", "numba": None, "pykeops": None, "halide": None}
    )
    assert peers.missing(peers.PEERS) == ["torch", "torch.compile", "numba", "keops", "halide"]
    assert list(peers.candidates(TINY[0], TINY[0].draw(), None, ("numpy", "torch"))) == ["tensorexpr", "numpy"]
