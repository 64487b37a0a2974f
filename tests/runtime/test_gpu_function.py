"""Functions for the target "cuda": calls, arguments, errors and a look inside, on the GPU where there is one, else on the CPU."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tests.codegen.cuda.device import gpu, needs_compiler

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def device(monkeypatch):
    if gpu() is None:
        monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    return current_device()


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def matmul(n=4, k=5, m=6):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k), name="C"), [a, b]


def refused(kind, call, *arguments, **keywords) -> str:
    with pytest.raises(kind) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


def test_the_same_numbers_as_on_the_cpu(device):
    x, g = te.placeholder((7, 300), name="x"), te.placeholder((7, 300), name="g")
    y = kernels.softmax(x)
    outputs = [y, *te.gradient(y, [x], g)]
    a, h = floats(7, 300), floats(300, 7).T.copy()
    want = te.build(outputs, [x, g])(a, h)
    got = te.build(outputs, [x, g], target="cuda")(device.upload(a), device.upload(h))
    assert isinstance(got, tuple)
    for found, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(device.read(found), expected, rtol=2e-6, atol=1e-7)


def test_the_same_bits_every_time(device):
    table, ids, g = te.placeholder((9, 4), name="t"), te.placeholder((50,), "int64", name="ids"), te.placeholder((50, 4), name="g")
    y = te.compute((50, 4), lambda i, d: table[ids[i], d], name="y")
    f = te.build(te.gradient(y, [table], g)[0], [table, ids, g], target="cuda")
    given = [device.upload(a) for a in (floats(9, 4), np.arange(50) % 3, floats(50, 4))]
    first = device.read(f(*given))
    assert all(np.array_equal(device.read(f(*given)), first) for _ in range(3))


def test_open_extents(device):
    n = te.dim("n")
    x = te.placeholder((n, 3), name="x")
    f = te.build(te.compute((n,), lambda i: te.sum(lambda j: x[i, j], 3), name="y"), [x], target="cuda")
    for count in (0, 1, 700):
        a = floats(count, 3)
        np.testing.assert_allclose(device.read(f(device.upload(a))), a.sum(1), rtol=1e-5, atol=1e-6)


def test_strides_offsets_and_scalars(device):
    x, s = te.placeholder((8, 8), name="x"), te.placeholder((), name="s")
    f = te.build(te.compute((8, 8), lambda i, j: x[i, j] * s[()], name="y"), [x, s], target="cuda")
    a = device.upload(floats(9, 9))
    for view in (a[:8, :8], a[1:, 1:], a[:8, :8].T, a[8:0:-1, :8]):
        np.testing.assert_array_equal(device.read(f(view, 2.0)), device.read(view) * np.float32(2))


def test_order_of_inputs_and_out(device):
    c, inputs = matmul()
    f = te.build(c, inputs[::-1], target="cuda")
    a, b = floats(4, 5), floats(5, 6)
    out = device.empty((4, 6), np.dtype(np.float32))
    assert f(device.upload(b), device.upload(a), out=out) is out
    np.testing.assert_allclose(device.read(out), a @ b, rtol=1e-5)
    wide = device.empty((4, 7), np.dtype(np.float32))
    f(device.upload(b), device.upload(a), out=wide[:, 1:])
    np.testing.assert_allclose(device.read(wide)[:, 1:], a @ b, rtol=1e-5)


def test_arguments_that_do_not_fit(device):
    c, inputs = matmul()
    f = te.build(c, inputs, target="cuda")
    a, b = device.upload(floats(4, 5)), device.upload(floats(5, 6))
    cases = (
        ((a,), {}, "C: expected 2 arguments (A, B), got 1"),
        ((a, [1.0]), {}, f"C: argument B: expected an array on {device.name}, got a list"),
        ((a, b.astype(np.float64)), {}, "C: argument B: expected dtype float32, got float64"),
        ((a, b[0]), {}, "C: argument B: expected 2 axes, got 1 (shape [6])"),
        ((a, a), {}, "C: argument B: expected extent 5, got 4"),
        ((a, b), {"out": 1}, f"C: out: expected an array on {device.name}, got a int"),
        ((a, b), {"out": a}, "C: out: expected shape [4, 6], got [4, 5]"),
        ((a, b), {"out": device.empty((4, 6), np.dtype(np.int32))}, "C: out: expected dtype float32, got int32"),
    )
    for arguments, keywords, message in cases:
        assert message in refused(te.ArgumentError, f, *arguments, **keywords)
    s, x = matmul(4, 4, 4)
    square = te.build(s, x, target="cuda")
    one, other = device.upload(floats(4, 4)), device.upload(floats(4, 4))
    assert "C: out: expected memory of its own, got an array that overlaps argument A" in refused(
        te.ArgumentError, square, one, other, out=one
    )
    pair = te.build([s], x, target="cuda")
    assert "C: out: expected a tuple of 1 array, got a " in refused(te.ArgumentError, pair, one, other, out=one)


def test_read_only_results(device):
    if device.arch is not None:
        pytest.skip("arrays on a GPU are writeable")
    c, inputs = matmul()
    out = device.empty((4, 6), np.dtype(np.float32))
    out.flags.writeable = False
    text = refused(te.ArgumentError, te.build(c, inputs, target="cuda"), floats(4, 5), floats(5, 6), out=out)
    assert "C: out: expected a writeable array, got a read-only one" in text


def test_an_index_outside_of_its_tensor(device):
    table, ids = te.placeholder((4,), name="table"), te.placeholder((300,), "int64", name="ids")
    f = te.build(te.compute((300,), lambda i: table[ids[i]], name="y"), [table, ids], target="cuda")
    wrong = np.zeros(300, np.int64)
    wrong[270] = 9
    text = refused(IndexError, lambda: device.read(f(device.upload(floats(4)), device.upload(wrong))))  # a GPU says it to who reads
    assert "y: expected an index of table from 0 to 3, got 9" in text and __file__ in text
    np.testing.assert_array_equal(
        device.read(f(device.upload(floats(4)), device.upload(np.zeros(300, np.int64)))), floats(4)[:1].repeat(300)
    )


def test_steps_of_a_scan_are_launches(device):
    u = te.placeholder((40,), name="u")
    states = te.scan(lambda t, v: te.compute((40,), lambda i: 0.5 * (v[(i + 1) % 40] + v[i])), u, 12)
    y, a = te.compute((40,), lambda i: states[11, i], name="y"), floats(40)
    found = te.build(y, [u], target="cuda")(device.upload(a))
    np.testing.assert_allclose(device.read(found), te.build(y, [u])(a), rtol=1e-6)


def test_a_look_inside(device):
    c, inputs = matmul()
    f = te.build(c, inputs, target="cuda")
    assert isinstance(f, te.CompiledFunction) and f.name == "C" and "sum(" in str(f.program)
    assert "parallel" in f.source("nest") and str(f.nest) == f.source("nest") and f.source() == f.source("cuda")
    assert "__global__ void __launch_bounds__(256) k0_C(" in f.source("cuda")
    assert f.cost == te.build(c, inputs).cost and str(f.schedule)
    assert "expected a stage, one of nest, cuda, ptx, sass, got 'llvm'" in refused(te.TargetError, f.source, "llvm")
    if device.arch is None:
        assert f.resources == {}
        assert "expected a GPU for the stage 'ptx', got kernels that run on a CPU" in refused(te.TargetError, f.source, "ptx")
    else:
        assert all(r.spill_stores == 0 for r in f.resources.values()) and ".entry" in f.source("ptx")


def test_schedules_for_a_gpu(device):
    c, inputs = matmul(64, 64, 64)
    s = te.schedule(c, "cuda")
    outer = s["C"].fuse("i", "j")
    s["C"].parallel(outer)
    a, b = floats(64, 64), floats(64, 64)
    f = te.build(s, inputs)
    np.testing.assert_allclose(device.read(f(device.upload(a), device.upload(b))), a @ b, rtol=1e-4, atol=1e-5)
    s = te.schedule(c, "cuda")
    s["C"].bind("i", "block.x")
    s["C"].bind(s["C"].split("r", 24)[1], "warp")  # the last part of the sum has fewer lanes
    f = te.build(s, inputs)
    assert "__syncwarp" in f.source("cuda")
    np.testing.assert_allclose(device.read(f(device.upload(a), device.upload(b))), a @ b, rtol=1e-4, atol=1e-5)
    assert te.build(te.autoschedule(c, "cuda"), inputs).source("cuda") == te.build(c, inputs, target="cuda").source("cuda")
    assert "te.build: expected a schedule for 'cuda', got one for 'cpu'" in refused(te.TargetError, te.build, te.schedule(c), target="cuda")


def test_which_device(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "tpu")
    c, inputs = matmul()
    assert "TENSOREXPR_CUDA: expected nothing or 'host', got 'tpu'" in refused(te.TargetError, te.build, c, inputs, target="cuda")


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_cubins_are_kept_by_content(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path))
    c, inputs = matmul()
    made = [GpuCode.of_schedule(te.autoschedule(c, "cuda", inputs)) for _ in range(2)]
    first = made[0].compiled("sm_90")
    calls = []
    monkeypatch.setattr(nvrtc, "compile_text", lambda *given: calls.append(given))
    again = made[1].compiled("sm_90")
    assert not calls and (again.cubin, again.ptx, again.resources) == (first.cubin, first.ptx, first.resources)
    assert first.cubin[:4] == b"\x7fELF" and ".entry k0_C" in first.ptx and first.resources["k0_C"].spill_stores == 0
