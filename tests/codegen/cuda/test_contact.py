"""First contact with a GPU, beside the instructions of the prelude (`test_prelude_behaviour`): threads, streams, graphs, checks, and
other GPUs. `test_rehearsal` runs them where there is none."""

from __future__ import annotations

import gc
import importlib
import threading
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tests.codegen.cuda.device import gpu

pytestmark = pytest.mark.skipif(gpu() is None or gpu().arch is None, reason="no GPU to meet")
N = 1 << 20


@pytest.fixture
def cupy() -> Any:
    return importlib.import_module("cupy")


def gather() -> te.CompiledFunction:
    x, ids = te.placeholder((N,), name="x"), te.placeholder((N,), "int64", name="ids")
    return te.build(te.compute((N,), lambda i: x[ids[i]] * 2.0, name="y"), [x, ids], target="cuda")


def test_a_call_from_a_new_thread(cupy: Any) -> None:
    x = te.placeholder((N,), name="x")
    f = te.build(te.compute((N,), lambda i: x[i] + 1.0, name="y"), [x], target="cuda")
    given, out, failed = cupy.arange(N, dtype=np.float32), cupy.empty(N, np.float32), []

    def work() -> None:
        try:
            f(given, out=out)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
    np.testing.assert_array_equal(out.get(), np.arange(N, dtype=np.float32) + 1)


def test_the_current_stream_is_launched_on(cupy: Any) -> None:
    x = te.placeholder((N,), name="x")
    f = te.build(te.compute((N,), lambda i: x[i] * 3.0, name="y"), [x], target="cuda")
    given, busy = cupy.zeros(N, np.float32), cupy.ones((4096, 4096), np.float32)
    cupy.cuda.runtime.deviceSynchronize()  # a stream that does not block waits for nothing of the default stream
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        given += 7.0
        found = f(given)
        assert (found.get() == 21.0).all()


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
def test_a_side_stream_of_pytorch_is_waited_for() -> None:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    x = te.placeholder((N,), name="x")
    f = te.build(te.compute((N,), lambda i: x[i] * 3.0, name="y"), [x], target="cuda")
    busy, given = torch.ones((4096, 4096), device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        given += 7.0
        found = f(given)
    assert (found.get() == 21.0).all()


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
def test_a_side_stream_of_pytorch_waits_for_what_is_written() -> None:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    x = te.placeholder((512, 4096), name="x")
    f = te.build(te.compute((512, 4096), lambda i, j: te.sum(lambda k: x[i, k] * x[k % 512, j], 4096), name="y"), [x], target="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        given, out = torch.ones((512, 4096), device="cuda"), torch.zeros((512, 4096), device="cuda")
        for _ in range(20):
            f(given, out=out)
        total = out.sum()
    assert float(total) == 512 * 4096 * 4096


def test_a_function_is_collected_while_its_kernels_run(cupy: Any) -> None:
    x, table = te.placeholder((N,), name="x"), te.constant(np.arange(N, dtype=np.float32), name="table")
    f = te.build(te.compute((N,), lambda i: x[i] * table[i], name="y"), [x], target="cuda")
    given, busy, default = cupy.ones(N, np.float32), cupy.ones((4096, 4096), np.float32), cupy.cuda.get_current_stream()
    cupy.cuda.runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        found = f(given)
        del f
        gc.collect()
        with default:
            others = [cupy.ones(N, np.float32) for _ in range(8)]
            assert all((other.get() == 1.0).all() for other in others)
        np.testing.assert_array_equal(found.get(), np.arange(N, dtype=np.float32))


def test_checks_do_not_stop_the_stream_and_are_raised(cupy: Any) -> None:
    f, x, ids = gather(), cupy.arange(N, dtype=np.float32), cupy.arange(N)
    np.testing.assert_array_equal(f(x, ids).get(), 2 * np.arange(N, dtype=np.float32))
    ids[N // 3] = N + 5
    bad = f(x, ids)
    for use in (bad.get, lambda: cupy.asnumpy(bad[:3]), bad.__dlpack__):
        with pytest.raises(te.OutOfBoundsError, match=f"expected an index of x from 0 to {N - 1}, got {N + 5}"):
            use()
    f(x, ids, out=cupy.empty(N, np.float32))
    with pytest.raises(te.OutOfBoundsError):
        te.synchronize()
    te.synchronize()


def test_checked_kernels_in_a_graph(cupy: Any) -> None:
    f, x, ids = gather(), cupy.arange(N, dtype=np.float32), cupy.arange(N)
    out = cupy.empty(N, np.float32)
    f(x, ids, out=out)
    te.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        f(x, ids, out=out)
        graph = stream.end_capture()
        for wrong in (False, True, False):
            ids[5] = N if wrong else 5
            graph.launch(stream)
            if wrong:
                with pytest.raises(te.OutOfBoundsError):
                    te.synchronize()
            else:
                te.synchronize()
    np.testing.assert_array_equal(out.get(), 2 * np.arange(N, dtype=np.float32))


def test_calls_beside_the_capture_of_another_stream(cupy: Any) -> None:
    """As PyTorch captures, so that no thread may ask for an event."""
    f, x, ids = gather(), cupy.arange(N, dtype=np.float32), cupy.arange(N)
    out, there = cupy.empty(N, np.float32), cupy.empty(N, np.float32)
    f(x, ids, out=out)
    te.synchronize()
    captured, beside = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    with beside:
        f(x, ids, out=out)
    captured.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    with beside:
        for _ in range(3):
            f(x, ids, out=out)
    thread = threading.Thread(target=lambda: f(x, ids, out=there))
    thread.start()
    thread.join()
    with captured:
        f(x, ids, out=out)
        graph = captured.end_capture()
        out[...] = 0.0
        graph.launch(captured)
    te.synchronize()
    for found in (out, there):
        np.testing.assert_array_equal(found.get(), 2 * np.arange(N, dtype=np.float32))


def test_constants_are_there_for_all_streams(cupy: Any) -> None:
    x, table = te.placeholder((N,), name="x"), te.constant(np.arange(N, dtype=np.float32), name="table")
    given, busy = cupy.ones(N, np.float32), cupy.ones((4096, 4096), np.float32)
    cupy.cuda.runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        f = te.build(te.compute((N,), lambda i: x[i] * table[i], name="y"), [x], target="cuda")
    with cupy.cuda.Stream(non_blocking=True):
        np.testing.assert_array_equal(f(given).get(), np.arange(N, dtype=np.float32))


def test_a_graph_has_numbers_and_memory_of_its_own(cupy: Any) -> None:
    """What a call makes for itself: a workspace, copies of what lies apart, numbers."""
    x, by = te.placeholder((512, 256), name="x"), te.placeholder((), name="by")
    total = te.compute((256,), lambda j: te.sum(lambda i: x[i, j], 512), name="total")
    y = te.compute((512, 256), lambda i, j: x[i, j] / total[j] * by[()], name="y")
    f = te.compile(y, [x, by], target="cuda")
    given, out = cupy.ones((512, 512), np.float32)[:, ::2], cupy.empty((512, 256), np.float32)
    f(given, 1.0, out=out)
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        f(given, 512.0, out=out)
        graph = stream.end_capture()
        f(given, 3.0)
        others = [cupy.ones(256 * size, np.float32) for size in (1, 2, 512) for _ in range(40)]
        graph.launch(stream)
        np.testing.assert_array_equal(out.get(), np.ones((512, 256), np.float32))
        assert all((other.get() == 1.0).all() for other in others)


def test_arrays_of_the_host_are_refused_in_a_capture(cupy: Any) -> None:
    x = te.placeholder((N,), name="x")
    f = te.build(te.compute((N,), lambda i: x[i] * 3.0, name="y"), [x], target="cuda")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        wrong = "expected arrays that lie on the GPU while a stream is captured, got one of NumPy's to be copied there"
        with pytest.raises(te.TargetError, match=wrong):
            f.upload(np.ones(N, np.float32))
        stream.end_capture()


def test_an_array_of_another_gpu_is_refused(cupy: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    f, ids = gather(), cupy.arange(N)
    with cupy.cuda.Device(1):
        there = cupy.arange(N, dtype=np.float32)
    with pytest.raises(te.ArgumentError, match="expected an array on cuda:0"):
        f(there, ids)
