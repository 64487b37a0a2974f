"""JAX on CUDA without a GPU: handlers are called as XLA calls them (`tests.peers.xla`), kernels run on this CPU by a fake driver. Skipped
without JAX, or without a C++ compiler."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tensorexpr as te

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")

from tensorexpr.interop.jax import as_jax, cuda, cuda_text  # noqa: E402
from tensorexpr.interop.jax.handler import Handlers, Kernel  # noqa: E402
from tensorexpr.interop.jax.handler_text import TARGET  # noqa: E402
from tensorexpr.interop.jax.primitive import types_of  # noqa: E402
from tests.codegen.cuda.driver import cubin, driver, fake, needs_compiler  # noqa: E402
from tests.peers.xla import Executable, Header, Struct, XlaError, close_all  # noqa: E402

pytestmark = [needs_compiler, pytest.mark.usefixtures("fake")]
assert fake  # a fixture
_made: dict[str, Handlers] = {}
LAUNCHES, MODULES, _, WAITS, BLOCKS = range(5)  # what the driver counts


@pytest.fixture
def handlers(fake) -> Iterator[Handlers]:
    """The handlers, against the fake driver; nothing is left on its devices."""
    if not _made:
        _made["fake"] = Handlers("CUDA", cuda_text.TEXT, cuda_text.OWN, cuda_text.STRINGS, cuda.driver(), register=False)
    before = count(MODULES), count(BLOCKS)
    yield _made["fake"]
    close_all()
    gc.collect()
    assert _made["fake"].open == 0 and (count(MODULES), count(BLOCKS)) == before


def count(what: int) -> int:
    return driver().fake_count(what)


def kernel(handlers, operation, *arrays, images=None) -> tuple[Kernel, list]:
    """The kernel of an op for arrays, and the types of its results."""
    (equation,) = jax.make_jaxpr(as_jax(operation))(*arrays).eqns
    call = equation.params["call"]
    types = types_of([atom.aval for atom in equation.invars], call)
    code = cuda.gpu_code(call.program(types))
    images = {"sm_90": cubin(code.source)} if images is None else images
    return cuda.kernel_with(handlers, call.program(types), code, images), call.result_types(types)


def launched(handlers, function, *arrays) -> list[np.ndarray]:
    """What a function of JAX's arrays gives, where every equation of ours is launched by the handlers."""
    closed = jax.make_jaxpr(function)(*arrays)
    values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True)) | dict(zip(closed.jaxpr.invars, arrays, strict=True))

    def value(atom):
        return atom.val if hasattr(atom, "val") else values[atom]

    for equation in closed.jaxpr.eqns:
        given = [value(atom) for atom in equation.invars]
        if equation.primitive.name == "tensorexpr":
            call = equation.params["call"]
            types = types_of([atom.aval for atom in equation.invars], call)
            code = cuda.gpu_code(call.program(types))
            made = cuda.kernel_with(handlers, call.program(types), code, {"sm_90": cubin(code.source)})
            executable = Executable(handlers, made.number)
            results = executable([np.asarray(g) for g in given], call.result_types(types))
        else:
            results = equation.primitive.bind(*given, **equation.params)
            results = results if equation.primitive.multiple_results else [results]
        values.update(zip(equation.outvars, results, strict=True))
    return [np.asarray(value(atom)) for atom in closed.jaxpr.outvars]


def array(*shape, seed=0):
    return jax.numpy.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


WEIGHTS = np.random.default_rng(7).standard_normal((7, 3)).astype(np.float32)


@te.op
def layer(x):
    """A constant, sums that are read twice at other places (a workspace), several kernels."""
    n, m = x.shape
    w = te.constant(WEIGHTS, name="w")
    sums = te.compute((n,), lambda i: te.sum(lambda j: te.exp(x[i, j] * 0.5), m))
    scaled = te.compute((n, m), lambda i, j: x[i, j] / sums[i] + sums[n - 1 - i])
    return te.compute((n, 3), lambda i, k: te.sum(lambda j: scaled[i, j] * w[j, k], m))


@te.op
def taken(x, ids):
    return te.compute((ids.shape[0], x.shape[1]), lambda i, j: x[ids[i], j])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: as_jax(layer)(x),
        jax.grad(lambda x: jax.numpy.sum(as_jax(layer)(x) ** 2)),
        jax.vmap(jax.grad(lambda x: jax.numpy.sum(as_jax(layer)(x[None, :]) ** 2))),
        lambda x: jax.jvp(jax.grad(lambda x: jax.numpy.sum(as_jax(layer)(x) ** 2)), (x,), (x,))[1],
    ],
    ids=["forward", "gradient", "batch of gradients", "second order"],
)
def test_programs_of_jax_launched_on_a_device_give_what_they_give_on_the_cpu(handlers, function):
    x = array(5, 7)
    for found, expected in zip(launched(handlers, function, x), [np.asarray(function(x))], strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_one_call_launches_many_kernels_in_memory_of_xla_and_waits_for_nothing(handlers):
    x = array(5, 7)
    made, results = kernel(handlers, layer, x)
    executable, before = Executable(handlers, made.number), (count(LAUNCHES), count(MODULES), count(BLOCKS), count(WAITS))
    for _ in range(2):
        (found,) = executable([np.asarray(x)], results)
    np.testing.assert_allclose(found, np.asarray(as_jax(layer)(x)), rtol=2e-5)
    launches, modules, blocks, waits = (now - then for now, then in zip(map(count, (0, 1, 4, 3)), before, strict=True))
    assert launches >= 4 and launches % 2 == 0 and modules == 1 and waits == 0
    assert blocks == 1, "the constant was copied there once"
    assert executable.most >= 256


def test_constants_and_modules_are_there_once_per_device(handlers, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    x = array(5, 7)
    before = count(MODULES), count(BLOCKS)
    made, results = kernel(handlers, layer, x)
    executables = [Executable(handlers, made.number, device) for device in (0, 1, 0)]
    for executable in (*executables, *executables):
        np.testing.assert_allclose(executable([np.asarray(x)], results)[0], np.asarray(as_jax(layer)(x)), rtol=2e-5)
    assert (count(MODULES), count(BLOCKS)) == (before[0] + 2, before[1] + 2)
    del made
    assert handlers.open == 1, "executables of XLA use it"
    close_all()
    assert handlers.open == 0 and (count(MODULES), count(BLOCKS)) == before


def test_the_context_that_was_current_is_current_afterwards(handlers):
    made, results = kernel(handlers, layer, array(5, 7))
    executable, now = Executable(handlers, made.number), ctypes.c_void_p()
    driver().cuCtxGetCurrent(ctypes.byref(now))
    executable([np.asarray(array(5, 7))], results)
    after = ctypes.c_void_p()
    driver().cuCtxGetCurrent(ctypes.byref(after))
    assert after.value == now.value


def test_an_index_out_of_bounds_is_the_error_of_its_call(handlers):
    x, ids = array(4, 3), np.array([1, 3, 9, 0], np.int32)
    made, results = kernel(handlers, taken, x, ids)
    executable, waits = Executable(handlers, made.number), count(WAITS)
    with pytest.raises(XlaError, match="taken: expected an index of x from 0 to 3, got 9") as caught:
        executable([np.asarray(x), ids], results)
    assert caught.value.args[0] == Header.shipped().values["XLA_FFI_Error_Code_OUT_OF_RANGE"]
    (found,) = executable([np.asarray(x), ids % 4], results)
    np.testing.assert_array_equal(found, np.asarray(x)[ids % 4])
    assert count(WAITS) == waits + 2, "a kernel with a check is waited for"


ARGUMENT = "tensorexpr: expected the dtype and the shape that the kernel was compiled for, got another argument %lld"
RESULT = "tensorexpr: expected the dtype and the shape that the kernel was compiled for, got another result %lld"
APART = "tensorexpr: expected buffers that begin at multiples of 16 bytes, got another one (number %lld, arguments first)"
REFUSED = "tensorexpr: expected a launch that CUDA's driver accepts, got: %s"


def test_buffers_that_are_not_the_kernels_are_refused(handlers):
    x, ids = np.asarray(array(4, 3)), np.array([1, 3], np.int32)
    made, results = kernel(handlers, taken, x, ids)
    executable = Executable(handlers, made.number)
    ((shape, type_),) = results
    for arrays, outputs, message in (
        ([x.astype(np.float64), ids], results, ARGUMENT.replace("%lld", "0")),
        ([x, ids.astype(np.int64)], results, ARGUMENT.replace("%lld", "1")),
        ([x[:3], ids], results, ARGUMENT.replace("%lld", "0")),
        ([x.reshape(-1), ids], results, ARGUMENT.replace("%lld", "0")),
        ([x, ids], [(shape, np.dtype(np.float64))], RESULT.replace("%lld", "0")),
        ([x, ids], [((2, 2), type_)], RESULT.replace("%lld", "0")),
        ([x], results, "tensorexpr: expected the numbers of arguments and results of the kernel, got other ones"),
    ):
        with pytest.raises(XlaError) as caught:
            executable(arrays, outputs)
        assert caught.value.args == (Header.shipped().values["XLA_FFI_Error_Code_INVALID_ARGUMENT"], message)
    with pytest.raises(XlaError) as caught:
        executable([x, ids], results, shift=8)
    assert caught.value.args[1] == APART.replace("%lld", "0")


def test_what_the_driver_and_xla_refuse_is_said_in_their_words(handlers):
    x = array(5, 7)
    made, results = kernel(handlers, layer, x, images={"sm_90": b"no cubin"})
    with pytest.raises(XlaError) as caught:
        Executable(handlers, made.number)([np.asarray(x)], results)
    assert caught.value.args[1] == REFUSED % "device kernel image is invalid"
    made, results = kernel(handlers, layer, x)
    for refuses in ("Stream_Get", "DeviceMemory_Allocate", "DeviceMemory_Free"):
        with pytest.raises(XlaError, match=f"no {refuses} today"):
            executable = Executable(handlers, made.number, refuses=refuses)
            executable([np.asarray(x)], results)
    with pytest.raises(XlaError, match="a program made elsewhere: trace and lower it here first"):
        Executable(handlers, 12345)
    # What the launcher says.
    executable = Executable(handlers, made.number)
    record, _ = handlers._open_records[made.number]
    place = handlers.record.index("entry")
    entry = record[place]
    launcher = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
    for status, message in (
        (-1, "tensorexpr: expected a GPU like the one that the kernel was compiled for, got another one"),
        (-2, "tensorexpr: expected CUDA's driver in this process, got none that has what launches need"),
        (-4, "tensorexpr: expected memory of the host for a launch, got none"),
        (-1002, REFUSED % "out of memory"),
    ):
        fails = launcher(lambda *arguments, status=status: status)
        record[place] = ctypes.cast(fails, ctypes.c_void_p).value
        with pytest.raises(XlaError) as caught:
            executable([np.asarray(x)], results)
        assert caught.value.args[1] == message
    record[place] = entry
    np.testing.assert_allclose(executable([np.asarray(x)], results)[0], np.asarray(as_jax(layer)(x)), rtol=2e-5)


def test_many_threads_launch_one_kernel(handlers):
    made, results = kernel(handlers, layer, array(5, 7))
    inputs = [array(5, 7, seed=k) for k in range(4)]
    expected, wrong = [np.asarray(as_jax(layer)(x)) for x in inputs], []

    def work(k: int) -> None:
        executable = Executable(handlers, made.number)
        for _ in range(10):
            found = executable([np.asarray(inputs[k])], results)[0]
            if not np.allclose(found, expected[k], rtol=2e-5):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_handler_says_what_it_is(handlers):
    for stage in ("instantiate", "execute"):
        metadata = Struct("XLA_FFI_Metadata", traits=7)
        extension = Struct("XLA_FFI_Metadata_Extension", metadata=metadata.address)
        ctypes.c_int32.from_address(extension.address + Header.shipped().offset("XLA_FFI_Extension_Base.type")).value = 1
        frame = Struct("XLA_FFI_CallFrame", extension_start=extension.address)
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handlers.address(f"te_jax_{stage}"))(frame.address)
        assert (metadata["api_version.major_version"], metadata["traits"]) == (0, 0)


def test_programs_for_gpus_call_the_kernel_and_no_python(handlers, monkeypatch):
    x = array(5, 7)
    monkeypatch.setattr(cuda, "handlers", lambda: handlers)
    monkeypatch.setattr(cuda, "architecture", lambda operator: "sm_90")
    monkeypatch.setattr(cuda.GpuCode, "compiled", lambda code, arch: type("Compiled", (), {"cubin": cubin(code.source)}))
    traced = jax.jit(jax.grad(lambda x: jax.numpy.sum(as_jax(layer)(x)))).trace(x)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count(f"@{TARGET}") >= 1 and "callback" not in text
    jax.clear_caches()


def test_without_gpus_programs_for_them_are_refused(monkeypatch):
    traced = jax.jit(as_jax(layer)).trace(array(5, 7))
    with pytest.raises(te.TargetError, match="layer: expected GPUs of one kind in JAX, got none"):
        traced.lower(lowering_platforms=("cuda",))
    kinds = [type("Device", (), {"compute_capability": c}) for c in ("9.0", "8.6", "9.0")]
    monkeypatch.setattr(jax, "devices", lambda platform: kinds)
    with pytest.raises(te.TargetError, match=r"layer: expected GPUs of one kind in JAX, got kinds 9.0, 8.6"):
        cuda.architecture("layer")
    monkeypatch.setattr(jax, "devices", lambda platform: kinds[:1])
    assert cuda.architecture("layer") == "sm_90a"
    monkeypatch.setenv("TENSOREXPR_CUDA_DRIVER", "/nowhere/libcuda.so")
    with pytest.raises(te.TargetError, match=r"tensorexpr.interop.jax: expected CUDA's driver as /nowhere/libcuda.so, got: "):
        cuda.driver()
