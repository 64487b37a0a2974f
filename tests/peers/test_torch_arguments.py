"""What `as_torch` takes: strides, types, trees, numbers, autocast; and what it refuses. Skipped by name where PyTorch is not installed."""

from __future__ import annotations

import copy
import functools
import gc
import threading
import weakref

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.host import compiler
from tests.peers.torch_cases import CASES, as_torch, mixed, torch

assert_close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


@te.op
def double(x):
    return te.compute(x.shape, lambda *i: x[i] + x[i])


@te.op
def added(x, y):
    return te.compute(x.shape, lambda *i: x[i] + y[i])


def strided():
    x = torch.arange(24.0).reshape(4, 6)
    yield "transposed", x.t()
    yield "stepped", x[::2, 1::3]
    yield "expanded", x[:, :1].expand(4, 5)
    yield "channels last", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "offset", torch.arange(7.0)[3:]
    yield "imaginary part of a conjugate", torch.randn(5, dtype=torch.complex64).conj().imag
    yield "one imaginary part", torch.randn(1, dtype=torch.complex64).conj().imag
    yield "no axes", torch.tensor(3.0)
    yield "no elements", torch.empty(0, 3)
    yield "no elements, strided", torch.empty(3, 0).t()
    yield "no memory of its own", torch.from_numpy(np.arange(6.0, dtype=np.float32)[::1].reshape(2, 3).T)


@pytest.mark.parametrize(("name", "x"), list(strided()), ids=lambda value: value if isinstance(value, str) else "")
def test_any_strides(name, x):
    found = as_torch(double)(x)
    assert_close(found, x + x)
    assert found.is_contiguous() and found.shape == x.shape


def test_results_are_new_and_arguments_are_as_they_were():
    x = torch.ones(3)
    same = te.op(lambda x: x)
    found = as_torch(same)(x)
    assert found.data_ptr() != x.data_ptr()
    found += 1
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
              torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str,
)  # fmt: skip
def test_every_dtype(dtype):
    @te.op
    def same(x):
        return te.compute(x.shape, lambda i: x[i])

    x = torch.tensor([0, 1, 1]).to(dtype)
    found = as_torch(same)(x)
    assert found.dtype == dtype and found.tolist() == x.tolist()


def test_bfloat16_with_gradient():
    x = torch.randn(5, dtype=torch.bfloat16, requires_grad=True)
    found = as_torch(double)(x)
    assert found.dtype == torch.bfloat16
    found.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [2] * 5


def test_trees_what_is_left_out_and_static_arguments():
    @te.op
    def layer(pair, bias=None, *, scale):
        a, (b,) = pair
        total = te.compute(a.shape, lambda i: scale * (a[i] * b[i] + (0 if bias is None else bias[i])))
        return total, (te.compute((), lambda: te.sum(lambda i: a[i], a.shape[0])), [b])

    function = as_torch(layer)
    a, b, bias = (torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    total, (summed, (same,)) = function((a, (b,)), scale=2.0)
    assert_close((total, summed, same), (2 * a * b, a.sum(), b))
    assert_close(function((a, [b]), bias=bias, scale=0.5)[0], 0.5 * (a * b + bias))
    assert_close(torch.autograd.grad(function((a, (b,)), bias, scale=3.0)[0].sum(), (a, b, bias)), (3 * b, 3 * a, torch.full_like(a, 3)))
    assert_close(layer((a, (b,)), scale=2.0)[0], 2 * a * b)


def test_numbers_are_weak():
    function = as_torch(te.op(lambda x, y: te.compute(x.shape, lambda i: x[i] * y[()])))
    for dtype in (torch.float32, torch.bfloat16):
        assert function(torch.ones(2, dtype=dtype), 0.5).dtype == dtype
    assert function(torch.ones(2), 3).tolist() == [3, 3] and function(torch.ones(2, dtype=torch.int64), True).dtype == torch.int64
    assert function(torch.ones(2), np.float32(0.25)).tolist() == [0.25, 0.25]
    assert "argument y: expected an integer that int64 holds, got 9223372036854775808" in refused(
        te.ArgumentError, function, torch.ones(2), 2**63
    )


def test_integer_arguments_and_results():
    found = as_torch(added)(torch.tensor([1, 2]), torch.tensor([3, 4]))
    assert found.dtype == torch.int64 and found.tolist() == [4, 6]
    x = torch.randn(2, requires_grad=True)
    mixed_types = as_torch(te.op(lambda x, n: te.compute(x.shape, lambda i: x[i] * n[i])))
    mixed_types(x, torch.tensor([2, 3])).sum().backward()
    assert x.grad.tolist() == [2, 3]


def test_autocast():
    x, y = torch.randn(4), torch.randn(4, dtype=torch.bfloat16)
    plain, half, region = (as_torch(added, autocast=choice) for choice in (None, torch.float16, True))
    assert half(x, y).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plain(x, y).dtype == torch.float32
        assert half(x, y).dtype == torch.float16
        assert region(x, y).dtype == torch.bfloat16
        assert half(x.double(), y).dtype == torch.float64
        w = torch.randn(4, requires_grad=True)
        region(w, y).float().sum().backward()
        assert w.grad.dtype == torch.float32
        assert half(torch.tensor([1, 2]), torch.tensor([1, 2])).dtype == torch.int64


def test_options_that_there_are_not():
    message = r"as_torch: argument autocast: expected None, a truth value or a floating dtype of torch, got torch\.int32"
    with pytest.raises(te.ArgumentError, match=message):
        as_torch(mixed, autocast=torch.int32)
    with pytest.raises(te.ArgumentError, match="as_torch: argument target: expected None, 'cpu' or 'cuda', got 'tpu'"):
        as_torch(mixed, target="tpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert as_torch(mixed, autocast=False)(torch.ones(3), torch.ones(2, 3)).dtype == torch.float32


def test_eight_threads():
    function = as_torch(mixed)
    x, w = CASES["mixed"].tensors(requires_grad=True)
    expected = torch.autograd.grad(CASES["mixed"].theirs(x, w).sum(), (x, w))
    failures = []

    def work():
        try:
            for _ in range(200):
                assert_close(torch.autograd.grad(function(x, w).sum(), (x, w)), expected)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler for GPU kernels on a CPU (g++, clang++, c++)")
def test_kernels_for_gpus(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    for name in ("mixed", "looked_up", "recurrence"):
        case = CASES[name]
        function = as_torch(case.op, target="cuda")
        tensors = case.tensors(requires_grad=True)
        floats = tensors[: len(case.shapes)]
        found, expected = function(*tensors), case.theirs(*tensors)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found.sin().sum(), floats), torch.autograd.grad(expected.sin().sum(), floats))
        assert all(
            "cuda" in compiled.source("cuda") or "__global__" in compiled.source("cuda")
            for compiled in function.operator(*tensors).functions
        )
    # Views that begin anywhere, and what depends on data.
    x = torch.randn(9)[1:]
    assert x.data_ptr() % 16
    torch.testing.assert_close(as_torch(double, target="cuda")(x), x + x)
    with pytest.raises(te.OutOfBoundsError, match="looked_up: expected an index of table from 0 to 2, got 3"):
        as_torch(CASES["looked_up"].op, target="cuda")(torch.randn(3, 2), torch.tensor([0, 3]))


# ------------------------------------------------------------------------------------------------------------- refused


def refused(kind, function, *arguments, **keywords):
    with pytest.raises(kind) as caught:
        function(*arguments, **keywords)
    assert caught.value.location is not None and caught.value.location.file == __file__
    return str(caught.value)


def test_wrong_and_mixed_devices():
    x, there = torch.ones(2), torch.ones(2, device="meta")
    text = refused(te.ArgumentError, as_torch(added), x, there)
    assert "added: argument y: expected a tensor on the CPU or a CUDA device, got one on meta" in text
    operator = as_torch(added).operator(x, x)

    class Elsewhere:
        layout, dtype, shape, device = torch.strided, torch.float32, (2,), torch.device("cuda:1")

    text = refused(te.ArgumentError, operator._device, [x, Elsewhere()])
    assert "added: argument y: expected a tensor on cpu, as x is, got one on cuda:1" in text and "hint: y.to('cpu') copies it there" in text


def test_unsupported_dtypes_and_layouts():
    text = refused(te.ArgumentError, as_torch(double), torch.ones(2, dtype=torch.complex64))
    assert "double: argument x: expected a dtype of the language, got torch.complex64" in text and "hint: one of torch.bool" in text
    dense = torch.eye(3)
    as_torch(double)(dense)
    text = refused(te.ArgumentError, as_torch(double), dense.to_sparse())
    assert (
        "double: argument x: expected a strided tensor, got one of layout torch.sparse_coo" in text
        and "hint: x.to_dense() makes one" in text
    )


def test_a_tensor_that_requires_grad_through_an_op_that_has_none():
    @te.op(differentiable=False)
    def rounded(x, y):
        return te.compute(x.shape, lambda i: te.round(x[i]) + y[i])

    @te.op
    def around(x, y):
        return te.compute(x.shape, lambda i: 2 * x[i] * rounded(x, y)[i])

    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    for op in (rounded, around):
        text = refused(te.ArgumentError, as_torch(op), x, w)
        assert f"{op.name}: argument y: expected a tensor that needs no gradient, got one that requires grad: " in text
        assert "rounded, which is marked differentiable=False" in text and "hint: y.detach(), or call it under torch.no_grad()" in text
        assert as_torch(op)(x, w.detach()).grad_fn is None
    with torch.no_grad():
        as_torch(rounded)(x, w)


def test_what_is_no_tensor():
    text = refused(te.ArgumentError, as_torch(added), torch.ones(2), np.ones(2, np.float32))
    assert (
        "added: argument y: expected a torch tensor, as others are, got a ndarray" in text and "hint: torch.as_tensor(y) makes one" in text
    )
    assert "added: argument x: expected a torch tensor, as others are, got a str" in refused(te.ArgumentError, as_torch(added), "x", "y")
    assert "added: argument y: expected a torch tensor" in refused(te.ArgumentError, added, torch.ones(2), [1.0, 2.0])
    assert "added: expected 2 tensor arguments (x, y), got 1" in refused(te.ArgumentError, as_torch(added), torch.ones(2))
    assert "as_torch: expected a te.op, got an int" in refused(te.DefinitionError, as_torch, 3)
    text = refused(te.ArgumentError, added, torch.ones(2), torch.ones(2), out=torch.empty(2))
    assert "added: expected no out with torch tensors, got a Tensor" in text and "hint: out.copy_(...) copies a result" in text


def test_indices_out_of_bounds():
    with pytest.raises(te.OutOfBoundsError, match="looked_up: expected an index of table from 0 to 2, got 5"):
        as_torch(CASES["looked_up"].op)(torch.randn(3, 2), torch.tensor([0, 5]))


def test_tensors_that_the_body_is_not_written_for():
    with pytest.raises(te.DefinitionError, match=r"y\[i0\]: expected an index in range\(2\) on axis 0, got i0 from 0 to 2"):
        as_torch(added)(torch.ones(3), torch.ones(2))


def test_ops_that_are_dropped_are_gone():
    def used():
        op = te.op(lambda x: te.compute(x.shape, lambda i: te.sin(x[i])))
        function, x = as_torch(op), torch.ones(3, requires_grad=True)
        torch.autograd.grad((function(x) + op(x)).sum(), x)
        torch.func.vmap(function)(torch.ones(2, 3))
        return weakref.ref(op), weakref.ref(function), weakref.ref(function.operator(x))

    left = used()
    gc.collect()
    assert [reference() for reference in left] == [None, None, None]


def test_modules_with_the_function_are_copied():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.function, self.w = as_torch(double), torch.nn.Parameter(torch.ones(2))

        def forward(self):
            return self.function(self.w)

    layer = Layer()
    copied = copy.deepcopy(layer)
    copied().sum().backward()
    assert layer.w.grad is None and copied.w.grad.tolist() == [2, 2]
