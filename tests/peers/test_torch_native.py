"""Calls on torch tensors that do not enter Python: what goes that way, and that what may not does not. Skipped without torch."""

from __future__ import annotations

import copy
import ctypes
import pickle
import queue
import sys
import threading
import weakref

import numpy as np
import pytest

import tensorexpr as te

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.codegen.llvm.process.call import memory  # noqa: E402
from tensorexpr.codegen.llvm.process.memory import default_bound  # noqa: E402
from tensorexpr.interop.torch import as_torch, native  # noqa: E402


@te.op
def scaled(x):
    """With a workspace: the sums are read at two places."""
    n, m = x.shape
    sums = te.compute((n,), lambda i: te.sum(lambda j: te.exp(x[i, j]), m))
    return te.compute((n, m), lambda i, j: x[i, j] / sums[i] + sums[n - 1 - i]), sums


def expected(x):
    x = x.detach().numpy()
    sums = np.exp(x).sum(1)
    return x / sums[:, None] + sums[::-1, None], sums


def calls(function, *tensors):
    """The chain of calls that go without Python."""
    function(*tensors)
    return function.operator(*tensors)._native


def agree(found, x):
    for ours, numbers in zip(found, expected(x), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), numbers, rtol=1e-6)


def test_plain_tensors_go_without_python():
    x, function = torch.randn(3, 5, dtype=torch.float64), as_torch(scaled)
    run = calls(function, x).run
    for tensor in (x, torch.nn.Parameter(x), torch.randn(6, 5, dtype=torch.float64)[3:], x.clone().requires_grad_()):
        found = run(tensor)
        agree(found, tensor)
        assert [type(f) for f in found] == [torch.Tensor] * 2 and not found[0].requires_grad


def test_large_workspace_is_kept_for_the_next_call():
    @te.op
    def mirrored(x):
        sums = te.compute(x.shape[:1], lambda i: te.sum(lambda j: te.exp(x[i, j]), x.shape[1]))
        return te.compute(x.shape[:1], lambda i: sums[i] - sums[x.shape[0] - 1 - i])

    x = torch.randn(1 << 14, 5)
    run = calls(as_torch(mirrored), x).run
    memory.bound(0)
    memory.bound(1 << 20)
    try:
        (found,) = run(x)
        kept = memory.kept
        assert kept >= x.shape[0] * 4
        assert torch.equal(*run(x), found) and memory.kept == kept
        sums = x.exp().sum(1)
        torch.testing.assert_close(found, sums - sums.flip(0))
    finally:
        memory.bound(default_bound())


@pytest.fixture
def pool():
    """Nothing is kept yet, and much may be."""
    memory.bound(0)
    memory.bound(64 << 20)
    yield memory
    memory.bound(default_bound())


def doubled():
    return as_torch(te.op(lambda x: te.compute(x.shape, lambda *i: x[i] + x[i])))


TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_large_results_are_memory_of_ours_and_tensors_like_any_other(pool, type_):
    plus = doubled()
    for shape in ((130, 1, 128), (2**15,), (1, 300, 301)):
        x = torch.ones(shape).to(type_)
        for found in (plus(x), plus(x), calls(plus, x).run(x)[0]):  # by Python, and without
            assert found.data_ptr() % 64 == 0 and found.dtype == type_ and found.shape == x.shape and found.is_contiguous()
            assert (
                torch.equal(found, x + x)
                and not found.requires_grad
                and type(found) is torch.Tensor
                and found.untyped_storage().nbytes() == x.nbytes
            )
        before, view = pool.kept, found.flatten()[1:]
        del found
        assert pool.kept == before  # the view needs it
        del view
        assert pool.kept >= before + x.nbytes
    with torch.inference_mode():
        assert plus(x).is_inference()


def test_large_results_are_passed_on_by_whatever_torch_has(pool):
    x, plus = torch.randn(300, 300), doubled()
    found = plus(x)
    torch.testing.assert_close(pickle.loads(pickle.dumps(found)), x + x)
    torch.testing.assert_close(copy.deepcopy(found), x + x)
    array = found.numpy()
    found.add_(1.0)
    torch.testing.assert_close(torch.from_numpy(array), x + x + 1.0)
    del found
    assert pool.kept < x.nbytes and np.isfinite(array).all()
    shared = plus(x).share_memory_()
    assert shared.is_shared() and torch.equal(shared, x + x)
    with pytest.raises(RuntimeError, match="not resizable"):
        plus(x).resize_(400, 400)
    leaf = plus(x).requires_grad_()
    plus(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, torch.full_like(x, 2.0))


def test_results_that_lie_otherwise_are_memory_of_ours_too(pool):
    """Those of compiled graphs have the strides that the graph promises."""
    image = torch.randn(2, 16, 32, 32).to(memory_format=torch.channels_last)
    for run in (torch.compile(torch.sin, backend="tensorexpr"), torch.compile(torch.sin, backend="tensorexpr", dynamic=True)):
        for _ in range(3):
            found = run(image)
            torch.testing.assert_close(found, image.sin())
            assert found.stride() == image.stride()
            before = pool.kept
            del found
            assert pool.kept >= before + image.nbytes


def test_results_die_in_any_thread(pool):
    """Threads drop what others made, each its own values, while kernels run."""
    plus, wrong, line = doubled(), [], queue.SimpleQueue()

    def work(first):
        for k in range(100):
            x = torch.full((5000 + 100 * (k % 3),), float(first + k))
            line.put((plus(x), x))
            found, given = line.get()
            if not torch.equal(found, given + given):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 0 < pool.kept <= 64 << 20


def test_a_result_that_no_memory_holds_is_an_error():
    x = torch.zeros(1).expand(1 << 45)
    with pytest.raises(MemoryError):
        native.Result(x.to("meta")).make()


def test_what_does_not_fit_goes_the_long_way():
    x, function = torch.randn(3, 5, dtype=torch.float64), as_torch(scaled)
    run = calls(function, x).run
    transposed = torch.randn(5, 3, dtype=torch.float64).t()
    for tensor in (transposed, x.float(), x[:2], x[0], torch.randn(3, 5, 1, dtype=torch.float64), x.to("meta"), x.to_sparse(), x[:, ::2]):
        assert run(tensor) is None
    assert run() is None and run(x, x) is None and run(1) is None and run(x.numpy()) is None
    agree(function(transposed), transposed)


def test_axes_without_steps_have_any_stride():
    first = as_torch(te.op(lambda x: te.compute(x.shape, lambda i, j: x[i, j] + 1.0)))
    for shape in ((1, 4), (4, 1), (1, 1), (0, 4)):
        x = torch.randn(*shape)
        run = calls(first, x).run
        odd = torch.as_strided(torch.randn(100), shape, [7 if n == 1 else s for n, s in zip(shape, x.stride(), strict=True)])
        torch.testing.assert_close(run(odd)[0], odd + 1.0)


def test_negated_tensors_are_not_read_as_they_lie():
    plus = as_torch(te.op(lambda x: te.compute(x.shape, lambda i: x[i] + 1.0)))
    plus(torch.randn(1)), plus(torch.randn(4))
    for lazy in (torch.randn(1, dtype=torch.complex64).conj().imag, torch._neg_view(torch.randn(4))):
        assert lazy.is_neg()
        torch.testing.assert_close(plus(lazy), lazy + 1.0)


def test_zeros_without_memory_are_zeros():
    """Forward mode makes such tensors."""
    plus, product = as_torch(te.op(lambda x: te.compute(x.shape, lambda i: x[i] + 1.0))), torch.compile(torch.mul, backend="tensorexpr")
    nothing, x = torch._efficientzerotensor((4,)), torch.randn(4)
    for _ in range(3):  # by Python, and without
        assert nothing._is_zerotensor() and torch.equal(plus(nothing), torch.ones(4)) and torch.equal(plus(x), x + 1.0)
        assert torch.equal(product(x, x), x * x) and torch.equal(product(x, nothing), torch.zeros(4))
    jacobian = torch.compile(torch.func.jacfwd(lambda x: x.cumsum(0) * x[0]), backend="tensorexpr")
    torch.testing.assert_close(jacobian(x), torch.func.jacrev(lambda x: x.cumsum(0) * x[0])(x))


def test_an_index_outside_is_an_error_with_its_words():
    taken = as_torch(te.op(lambda x, ids: te.compute(ids.shape, lambda i: x[ids[i]])))
    x, ids = torch.arange(4.0), torch.tensor([3, 0])
    run = calls(taken, x, ids).run
    assert run(x, ids)[0].tolist() == [3.0, 0.0] and run(x, ids + 1) is None
    with pytest.raises(IndexError, match="expected an index of x from 0 to 3, got 4"):
        taken(x, ids + 1)


def test_signatures_beyond_those_kept_are_found_by_their_hash():
    double = as_torch(te.op(lambda x: te.compute(x.shape, lambda i: x[i] * 2.0)))
    for n in range(1, native._MOST + 4):
        torch.testing.assert_close(double(torch.ones(n)), torch.full((n,), 2.0))
    chain = double.operator(torch.ones(1))._native
    assert len(chain._tables) == native._MOST and chain.run(torch.ones(native._MOST + 3)) is None
    torch.testing.assert_close(chain.run(torch.ones(3))[0], torch.full((3,), 2.0))


def test_threads_call_while_signatures_are_added():
    double, wrong = as_torch(te.op(lambda x: te.compute(x.shape, lambda i: x[i] * 2.0))), []

    def work(first):
        for k in range(200):
            x = torch.full((1 + (first + k) % 7,), float(k))
            if not torch.equal(double(x), x * 2.0):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_are_given_back():
    x = torch.randn(3, 5, dtype=torch.float64)
    run = calls(as_torch(scaled), x).run
    found, made = run(x), (torch.empty_like(x),)
    counts = [sys.getrefcount(value) for value in (found, made, found[0], made[0])]
    assert counts[0] == counts[1] and counts[2] == counts[3]
    gone = weakref.ref(found[0])
    del found
    assert gone() is None
    before = sys.getrefcount(None)
    for _ in range(100):
        run(x[0])
    assert abs(sys.getrefcount(None) - before) < 50


def test_a_torch_that_shows_tensors_otherwise_is_not_asked(monkeypatch):
    assert not native._shows(ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p).value)
    monkeypatch.setattr(native, "_exchange", lambda: 0)
    x, function = torch.randn(3, 5, dtype=torch.float64), as_torch(te.op(lambda x: scaled(x)))
    assert calls(function, x).run is None
    agree(function(x), x)


def test_the_first_call_of_a_kernel_may_be_on_many_heads():
    """A tensor that stands for many has no memory that could be looked at; the kernel is made all the same."""

    @te.op
    def scaled(x):
        return te.compute(x.shape, lambda i: x[i] * x[i] * 3.0)

    x = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    heads = torch.eye(4, dtype=torch.float64)
    (found,) = torch.autograd.grad(as_torch(scaled)(x), x, heads, is_grads_batched=True)
    torch.testing.assert_close(found, torch.diag(6.0 * x.detach()))
