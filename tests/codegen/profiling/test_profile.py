"""Profiles: the stamped function computes what the function does, and what is counted agrees with what is counted elsewhere."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.auto.machine import AVX2
from tensorexpr.codegen.llvm.emitter.module import MOST_CALLS
from tensorexpr.codegen.profiling import Profile, Stamped, counted, profiled
from tensorexpr.codegen.profiling.counting import Part, Traffic, Work
from tensorexpr.errors import Location
from tests.messages import said

RNG = np.random.default_rng(0)
X, W = te.placeholder((40, 30), name="X"), te.placeholder((30, 20), name="W")


def two_steps():
    h = te.compute((40, 20), lambda i, j: te.sum(lambda k: X[i, k] * W[k, j], 30), name="h")
    a = te.compute((40, 20), lambda i, j: te.tanh(h[i, j]), name="a")
    return te.compute((40,), lambda i: te.sum(lambda j: a[i, j] * a[i, j], 20), name="s")


def plain(tensors, inputs=None):
    return te.build(te.schedule(tensors, inputs=inputs), inputs)


@pytest.fixture(scope="module")
def profile():
    f = plain(two_steps(), [X, W])
    return f, f.profile(RNG.random((40, 30), np.float32), RNG.random((30, 20), np.float32), seconds=0.02)


def test_each_kernel_has_its_time_and_its_counts(profile):
    f, found = profile
    assert [row.name for row in found.kernels] == [kernel.name for kernel in f.nest.kernels] == ["h", "a", "s"]
    assert [row.operations for row in found.kernels] == [2 * 40 * 30 * 20, 40 * 20, 2 * 40 * 20]
    assert [row.bytes for row in found.kernels] == [4 * (1200 + 600 + 800), 4 * 1600, 4 * 840]
    assert all(row.nanoseconds > 0 and row.limit > 0 and not row.assumed for row in found.kernels)
    assert found.inside == pytest.approx(sum(row.nanoseconds for row in found.kernels)) and found.nanoseconds > 0 and found.runs >= 5


def test_times_are_those_of_definitions_and_of_lines(profile):
    _, found = profile
    assert {share.what for share in found.definitions} == {"h", "a", "s"}
    first = two_steps.__code__.co_firstlineno
    assert {share.location.line - first for share in found.lines} == {1, 2, 3} and found.lines[0].location.file == __file__
    for shares in (found.definitions, found.lines):
        assert sum(share.nanoseconds for share in shares) == pytest.approx(found.inside)
        assert list(shares) == sorted(shares, key=lambda share: -share.nanoseconds)


SAMPLES = {
    "pairs": lambda: (te.op(lambda x, y: te.compute((7,), lambda i: te.sum(lambda j: te.exp(x[i] - y[j]), 9))), [(7,), (9,)], {}),
    "matmul": lambda: (kernels.matmul, [(17, 5), (5, 9)], {}),
    "convolution": lambda: (kernels.conv2d, [(2, 3, 9, 8), (4, 3, 3, 3)], {"padding": 1}),
    "layer norm": lambda: (kernels.layer_norm, [(6, 10)], {}),
    "triangle": lambda: (te.op(lambda x: te.compute((20,), lambda i: te.sum(lambda j: x[i, j] * x[i, j], i + 1))), [(20, 20)], {}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_counts_of_plain_loops_are_those_of_integer_sets(name):
    op, shapes, static = SAMPLES[name]()
    inputs = [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    made = op(*inputs, **static)
    f = plain(made, inputs)
    work = counted(f.nest, {}, f.program)
    total = sum(one.operations for one in work)
    wanted = f.cost.operations
    # A condition at a border is counted as what it is by integer sets, here as a mean over at most 512 points.
    assert total == wanted or abs(total - wanted) / wanted < 0.02
    if len(work) == 1:
        moved = work[0].traffic.read + work[0].traffic.written
        assert moved == f.cost.bytes or abs(moved - f.cost.bytes) / f.cost.bytes < 0.02


@pytest.mark.parametrize("gradient", [False, True])
def test_the_stamped_function_computes_the_same_bits(gradient):
    x, w = RNG.random((40, 30), np.float32), RNG.random((30, 20), np.float32)
    arrays = [x, w]
    outputs, inputs = [two_steps()], [X, W]
    if gradient:
        head = te.placeholder((40,), name="head")
        outputs, inputs = list(te.gradient(outputs[0], [X, W], head)), [X, W, head]
        arrays.append(RNG.random(40, np.float32))
    f = te.build(outputs, inputs)
    results = [np.zeros(tuple(int(e.value) for e in p.shape), np.float32) for p in f.signature.outputs]
    stamped = Stamped(f.nest, [])
    workspace = np.zeros(f.workspace_bytes() + 64, np.uint8)
    start = -(-workspace.ctypes.data // 64) * 64
    failure = stamped.native([array.ctypes.data for array in (*arrays, *results)], (), start)
    assert failure is None
    for mine, wanted in zip(results, f(*arrays), strict=True):
        assert (mine == wanted).all()
    times = stamped.stamps[:, 0] * 10**9 + stamped.stamps[:, 1]
    assert len(times) == len(f.nest.kernels) + 1 and (np.diff(times) >= 0).all() and times[0] > 0


def test_many_kernels_are_stamped_from_several_functions():
    t = te.placeholder((4,), name="t")
    steps = [t]
    for k in range(MOST_CALLS + 5):
        steps.append(te.compute((4,), lambda i, last=steps[-1]: last[i] + 1.0, name=f"step_{k}"))
    f = plain(steps[-1], [t])
    found = f.profile(np.zeros(4, np.float32), seconds=0.01)
    assert len(found.kernels) == MOST_CALLS + 5 and all(0 <= row.nanoseconds < 1e6 for row in found.kernels)
    assert (f(np.zeros(4, np.float32)) == MOST_CALLS + 5).all()


def test_open_sizes_are_those_of_the_call():
    n = te.dim("n")
    x = te.placeholder((n, 3), name="x")
    f = te.build(te.compute((n,), lambda i: te.sum(lambda j: x[i, j] * 2.0, 3), name="y"), [x])
    found = f.profile(np.ones((50, 3), np.float32), seconds=0.01)
    assert found.sizes == {"n": 50} and ", n = 50;" in str(found) and found.kernels[0].bytes == 4 * (150 + 50)


def test_what_data_decides_is_said_to_be_assumed():
    lengths = te.placeholder((8,), "int64", name="lengths")
    x = te.placeholder((8, 100), name="x")
    f = te.build(te.compute((8,), lambda i: te.sum(lambda j: x[i, j] * 2.0, te.minimum(lengths[i], 100)), name="y"), [x, lengths])
    found = f.profile(np.ones((8, 100), np.float32), np.arange(8), seconds=0.01)
    assert any(row.assumed for row in found.kernels) and "~: data decides" in str(found)


def test_copies_belong_to_what_they_copy():
    a, b = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="b")
    s = te.schedule(te.compute((64, 64), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 64), name="c"))
    s["c"].stage("b", ((1, 16), 0))
    found = te.build(s).profile(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32), seconds=0.01)
    assert {share.what for share in found.definitions} == {"b", "c"}
    assert "made for b" in [share.what for share in found.lines]


def test_a_profile_is_a_table_a_page_and_a_trace(profile, tmp_path):
    _, found = profile
    text = str(found)
    assert text.startswith("s: ") and re.search(r"^h +[\d.]+ .s +[\d.]+ % +48,000 +10,400 ", text, re.MULTILINE)
    assert "test_profile.py:" in text and "te.tanh(h[i, j])" in text and repr(found).startswith("<profile of s: ")
    page = found.save(tmp_path / "p.html").read_text()
    HTMLParser().feed(page)
    assert page.startswith("<!doctype html>") and "<svg" in page and "48,000" in page and "<script" not in page
    events = json.loads(found.save(tmp_path / "p.json").read_text())["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    for row in (0, 1):
        assert sum(event["dur"] for event in timed if event["tid"] == row) == pytest.approx(found.inside / 1000)
    inner = [event for event in timed if event["tid"] == 0]
    assert [event["name"] for event in inner] == ["h", "a", "s"] and inner[1]["ts"] == pytest.approx(inner[0]["dur"])
    assert "&lt;" not in found._repr_html_()


def test_the_roofline_is_the_greater_of_compute_and_memory():
    machine = AVX2  # 8 floats a vector, 0.125 ns each
    line = Location("file.py", 3)
    parts = (Part("y", (line,), 3.0), Part("z", (), 1.0))
    compute = Work("y z", 16_000, 64_000, Traffic(1000, 1000, 2000), False, parts)
    memory = Work("copy", 0, 0, Traffic(1 << 30, 1 << 30, 2 << 30), False, (Part("copy", (), 1.0),))
    found = profiled("f", np.array([[250.0, 1e9], [250.0, 1e9]]), 2e9, [compute, memory], machine, 1, {})
    first, second = found.kernels
    assert first.bound == "compute" and first.limit == pytest.approx(16_000 / 8 / 2 * 0.125) and first.roofline == pytest.approx(0.5)
    assert second.bound == "memory" and second.limit == pytest.approx((1 << 24) * (4.0 + 7.0))
    two = profiled("f", np.array([[250.0, 1e9]]), 2e9, [compute, memory], machine, 2, {})
    assert two.kernels[0].limit == pytest.approx(first.limit / 2) and two.kernels[1].limit == pytest.approx((1 << 24) * 5.5)
    assert [(s.what, s.nanoseconds) for s in found.parts[0]] == [("y", 187.5), ("z", 62.5)]
    assert {s.what: s.nanoseconds for s in found.lines} == {"file.py:3": 187.5, "made for z": 62.5, "made for copy": 1e9}


def test_errors():
    x = te.placeholder((4,), name="x")
    ids = te.placeholder((3,), "int64", name="ids")
    f = te.build(te.compute((3,), lambda t: x[ids[t]], name="picked"), [x, ids])
    ones = np.ones(4, np.float32)
    assert "picked: expected a number of seconds above 0, got -1" in said(te.ArgumentError, lambda: f.profile(ones, ids, seconds=-1))[0]
    assert "picked: expected an index of x from 0 to 3, got 9" in said(te.OutOfBoundsError, lambda: f.profile(ones, np.array([0, 9, 1])))[0]
    assert "expected extent 4, got 5" in said(te.ArgumentError, lambda: f.profile(np.ones(5, np.float32), np.array([0, 1, 1])))[0]
    found = f.profile(ones, np.array([0, 1, 2]), seconds=0.01)
    assert isinstance(found, Profile)
    assert said(te.ArgumentError, lambda: found.save("p.txt"))[0] == "picked: expected a file that ends in .html or .json, got 'p.txt'"


def test_a_gpu_is_refused(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    x = te.placeholder((4,), name="x")
    try:
        f = te.build(te.compute((4,), lambda i: x[i] * 2.0, name="y"), [x], target="cuda")
    except te.TargetError:
        pytest.skip("no C++ compiler for the CUDA shim")
    message = said(te.TargetError, lambda: f.profile(np.ones(4, np.float32)))[0]
    assert message == "y: expected a function for the CPU to profile, got one for a GPU"
