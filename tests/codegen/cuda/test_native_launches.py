"""Launches by native code (`launch_text`), against a driver that runs kernels on this CPU."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.compiled.gpu_function import GpuFunction
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import Launch
from tensorexpr.codegen.cuda.launch.launch_text import launches
from tensorexpr.codegen.cuda.launch.plan import Plan, Step, planned
from tensorexpr.codegen.cuda.launch.run import run_plan, value
from tensorexpr.codegen.llvm import host, load
from tensorexpr.codegen.llvm.text.extents import SIZES, names_of, size
from tensorexpr.codegen.llvm.text.routines import Routines
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import InternalError, TargetError
from tensorexpr.ir import Expr, Index, apply, const
from tests.codegen.cuda.driver import cubin, driver, fake, needs_compiler
from tests.codegen.cuda.test_laws import TEAMS
from tests.random_programs import random_program, random_sizes

pytestmark = needs_compiler
assert fake  # a fixture
_NUMBERS = [ctypes.c_void_p] * 5


class Native:
    """A function for a GPU, launched natively."""

    def __init__(self, function: GpuFunction, images: dict[str, bytes] | None = None) -> None:
        self.nest, source = function.nest, function._code().source
        self.plan = Plan.of(self.nest, source)
        images = {"sm_90": cubin(source)} if images is None else images
        self.module = load(launches(host().triple, [("f", self.plan, images)]).text(), passes="none")
        self.load, self.unload = (ctypes.CFUNCTYPE(ctypes.c_int64)(self.module.address(f"f_{n}")) for n in ("load", "unload"))
        self.enter = ctypes.CFUNCTYPE(ctypes.c_int64, *_NUMBERS)(self.module.address("f"))
        self.read = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(
            self.module.address("te_gpu_read")
        )

    def __call__(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], **sizes: int) -> tuple[int, list[int]]:
        """Computes into arrays of the host by way of memory of the device; gives the result and the report."""
        assert self.load() == 0
        held = [_upload(a) for a in (*arrays, *outputs, *(c.data for c in self.nest.constants))]
        room = self.plan.workspace_bytes(sizes)
        workspace, report = _allocated(room) if room else None, _allocated(24)
        buffers, extents = (ctypes.c_void_p * len(held))(*held), (ctypes.c_int64 * len(sizes))(*(sizes[n] for n in self.plan.sizes))
        result = self.enter(buffers, extents, workspace, report if self.plan.reports else None, None)
        said = (ctypes.c_int64 * 3)()
        if self.plan.reports:
            assert self.read(said, report, 24, None) == 0
        for array, place in zip(outputs, held[len(arrays) :], strict=False):
            driver().cuMemcpyDtoH_v2(ctypes.c_void_p(array.ctypes.data), ctypes.c_void_p(place), ctypes.c_size_t(array.nbytes))
        for place in (*held, report, *([] if workspace is None else [workspace])):
            driver().cuMemFree_v2(ctypes.c_void_p(place))
        return result, list(said)


def _allocated(size: int) -> int:
    place = ctypes.c_void_p()
    assert driver().cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(max(1, size))) == 0
    return place.value or 0


def _upload(array: np.ndarray) -> int:
    place = _allocated(array.nbytes)
    driver().cuMemcpyHtoD_v2(
        ctypes.c_void_p(place), ctypes.c_void_p(np.ascontiguousarray(array).ctypes.data), ctypes.c_size_t(array.nbytes)
    )
    return place


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _everything() -> tuple[te.Tensor, te.Tensor, list[te.Tensor]]:
    """Open sizes, a workspace, a constant, a check, and a loop of the host around kernels."""
    n = te.dim("n")
    x, ids = te.placeholder((n, 8), name="x"), te.placeholder((n,), "int64", name="ids")
    w = te.constant(_floats(8, 8), name="w")
    s = te.compute((n, 8), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], 8), name="s")
    total = te.compute((8,), lambda j: te.sum(lambda i: te.tanh(s[i, j]), n), name="total")
    steps = te.scan(lambda t, state: te.compute((8,), lambda j: te.tanh(state[j] + te.sum(lambda k: w[j, k] * state[k], 8))), total, n)
    picked = te.compute((n, 8), lambda i, j: s[ids[i], j] * total[j], name="picked")
    return x, ids, [picked, steps]


def test_what_is_launched_natively_gives_the_same_bits(fake: ctypes.CDLL):
    x, ids, outputs = _everything()
    function = te.compile(outputs, [x, ids], target="cuda")
    native = Native(function)
    assert native.plan.workspace and native.plan.reports and native.plan.constants == tuple(c.name for c in function.nest.constants)
    for n in (1, 5, 300):
        a, places = _floats(n, 8), np.arange(n)[::-1].copy()
        made = [np.zeros((n, 8), np.float32), np.zeros((n, 8), np.float32)]
        before = fake.fake_count(0)
        assert native([a, places], made, n=n) == (0, [0, 0, 0])
        for found, wanted in zip(made, function(a, places), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert fake.fake_count(0) > before
    said = native([_floats(3, 8), np.array([0, 7, 1])], [np.zeros((3, 8), np.float32)] * 2, n=3)
    assert said[0] == 0 and said[1][1:] == [7, 3] and "ids" in function.nest.checks[said[1][0] - 1].access
    assert native.unload() == 0


def test_a_grid_of_nothing_is_left_out_and_too_large_a_one_refused(fake: ctypes.CDLL):
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    native = Native(te.compile(te.compute((n,), lambda i: 2 * x[i], name="y"), [x], target="cuda"))
    before = fake.fake_count(0)
    assert native.load() == 0
    empty = (ctypes.c_void_p * 2)(256, 256)
    assert native.enter(empty, (ctypes.c_int64 * 1)(0), None, None, None) == 0
    assert native.enter(empty, (ctypes.c_int64 * 1)(1 << 42), None, None, None) == -1001
    assert fake.fake_count(0) == before


def test_modules_are_loaded_once_per_context_and_go(fake: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    x = te.placeholder((40,), name="x")
    function = te.compile(te.compute((40,), lambda i: te.exp(x[i]), name="y"), [x], target="cuda")
    native, start = Native(function), fake.fake_count(1)
    a, out, second = _floats(40), np.zeros(40, np.float32), ctypes.c_void_p()

    def runs() -> None:
        out[:] = 0
        assert native([a], [out]) == (0, [0, 0, 0])
        np.testing.assert_array_equal(out, function(a))

    threads = [threading.Thread(target=lambda: native.load()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs()
    loaded = fake.fake_count(1)
    assert start < loaded <= start + 4
    runs()
    assert fake.fake_count(1) == loaded
    fake.cuDevicePrimaryCtxRetain(ctypes.byref(second), 1)
    fake.cuCtxPushCurrent_v2(second)
    runs()
    assert fake.fake_count(1) == loaded + 1
    fake.fake_reset(1)
    fake.cuDevicePrimaryCtxRetain(ctypes.byref(second), 1)
    fake.cuCtxSetCurrent(second)
    runs()
    assert fake.fake_count(1) == loaded + 2
    fake.cuCtxPopCurrent_v2(ctypes.byref(second))
    native.unload()
    assert start <= fake.fake_count(1) <= start + 1  # what was in the context that is gone went with it
    runs()
    native.unload()


@pytest.mark.parametrize(
    ("capability", "made", "chosen"),
    [("90", "sm_80 sm_90 sm_90a", "sm_90a"), ("90", "sm_80 sm_86 sm_90", "sm_90"), ("89", "sm_80 sm_86 sm_90", "sm_86"),
     ("80", "sm_86 sm_80", "sm_80"), ("120", "sm_90 sm_120", "sm_120"), ("90", "sm_80 sm_100", None), ("75", "sm_80", None),
     ("91", "sm_90a", None), ("103", "sm_100 sm_103 sm_110", "sm_103")],
)  # fmt: skip
def test_a_device_takes_the_newest_code_that_runs_on_it(
    fake: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, capability: str, made: str, chosen: str | None
):
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", capability)
    x = te.placeholder((4,), name="x")
    function = te.compile(te.compute((4,), lambda i: x[i] + 1, name="y"), [x], target="cuda")
    good = cubin(function._code().source)
    native = Native(function, {arch: good if arch == chosen else b"damaged" for arch in made.split()})
    assert native.load() == (-1 if chosen is None else 0)
    native.unload()


def test_what_is_missing_has_a_number(fake: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch):
    x = te.placeholder((4,), name="x")
    function = te.compile(te.compute((4,), lambda i: x[i] + 1, name="y"), [x], target="cuda")
    other = te.compile(te.compute((4,), lambda i: x[i] + 1, name="other"), [x], target="cuda")
    assert Native(function, {"sm_90": b"damaged"}).load() == -1200
    assert Native(function, {"sm_90": cubin(other._code().source)}).load() == -1500  # a module without our kernel
    assert Native(function, {}).load() == -1
    with monkeypatch.context() as patch:
        patch.setenv("FAKE_CUDA_DEVICES", "0")
        assert Native(function).load() == -1100
    for library, result in (("/nowhere/libcuda.so", -2), ("libm.so.6", -3)):
        monkeypatch.setenv("TENSOREXPR_CUDA_DRIVER", library)
        native = Native(function)
        assert native.load() == result and native.enter(None, None, None, None, None) == result
        assert native.read(None, None, 24, None) == result
    with pytest.raises(TargetError, match="expected architectures of GPUs such as sm_90, got 'gfx90a'"):
        launches(host().triple, [("f", Plan.of(function.nest, function._code().source), {"gfx90a": b""})])


def test_shared_memory_is_asked_for(fake: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch):
    """The driver is told at load, a launch has the bytes, and a device that has fewer refuses."""
    steps = (Step("k", ("x",), (), False, (32, 1, 1), (2, 1, 1), 150 << 10), Step("j", ("x",), (), False, (32, 1, 1), (2, 1, 1)))
    images = dict.fromkeys(("sm_80", "sm_90"), b"fake notes\0")
    text = launches(host().triple, [("f", Plan(("x",), (), (), (), steps), images)]).text()
    for capability, result in (("90", 0), ("80", 0), ("86", -1001)):
        monkeypatch.setenv("FAKE_CUDA_CAPABILITY", capability)
        module = load(text, passes="none")
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("f_load"))() == result
        enter = ctypes.CFUNCTYPE(ctypes.c_int64, *_NUMBERS)(module.address("f"))
        assert enter((ctypes.c_void_p * 1)(4096), None, None, None, None) == result
        noted = ctypes.create_string_buffer(1 << 10)
        fake.fake_notes(noted, ctypes.c_size_t(len(noted)))
        assert noted.value.decode().splitlines() == ([] if result else ["k 2 1 1 32 1 1 +153600 4096", "j 2 1 1 32 1 1 4096"])
        ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("f_unload"))()


def test_random_programs_launch_what_the_host_launches(fake: ctypes.CDLL):
    """The same kernels on the same grids with the same arguments, in the same order, as `run_plan` hands to a device."""
    given, functions = [], []
    for seed in range(30):
        program = random_program(seed)
        nest = verify_nest(lower(autoschedule(program, TEAMS)))
        source = emit(nest)
        plan = Plan.of(nest, source)
        given.append((random_sizes(program, seed), nest, source, plan))
        functions.append((f"f{seed}", plan, {"sm_90": b"fake notes\0"}))
    module = load(launches(host().triple, functions).text(), passes="none")
    launched = 0
    for seed, (sizes, nest, source, plan) in enumerate(given):
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(module.address(f"f{seed}_load"))() == 0
        names = (*plan.parameters, *plan.constants)
        buffers, at = {name: 4096 * (k + 1) for k, name in enumerate(names)}, 1 << 30
        for buffer in nest.workspace:
            buffers[buffer.name] = at
            at += -(-prod(value(e, sizes) for e in buffer.shape) * buffer.dtype.itemsize // 256) * 256
        assert plan.workspace_bytes(sizes) == at - (1 << 30)
        wanted: list[str] = []

        class Noting:
            def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int], wanted: list[str] = wanted) -> None:
                wanted.append(" ".join(map(str, (launch.kernel, *blocks, *launch.threads, *arguments))))

        report = _allocated(24)
        run_plan(source.plan, Noting(), buffers, sizes, report)
        enter = ctypes.CFUNCTYPE(ctypes.c_int64, *_NUMBERS)(module.address(f"f{seed}"))
        pointers, extents = (
            (ctypes.c_void_p * len(names))(*(buffers[n] for n in names)),
            (ctypes.c_int64 * len(sizes))(*(sizes[n] for n in plan.sizes)),
        )
        assert enter(pointers, extents, 1 << 30, report, None) == 0
        text = ctypes.create_string_buffer(1 << 20)
        assert fake.fake_notes(text, ctypes.c_size_t(len(text))) < len(text)
        assert text.value.decode().splitlines() == wanted, f"{seed}:\n{nest}"
        fake.cuMemFree_v2(ctypes.c_void_p(report))
        launched += len(wanted)
    assert launched > 30


def test_expressions_of_a_plan_are_worked_out_as_the_host_does():
    """Random expressions over sizes and indices, in native code and by `run.value`."""
    random = np.random.default_rng(0)
    i, j = Index("i"), Index("j")

    def made(depth: int) -> Expr:
        if not depth or random.random() < 0.1:
            return [i, j, const(int(random.integers(-9, 10)))][random.integers(3)]
        if random.random() < 0.2:
            tests = [apply(str(random.choice(["eq", "ne", "lt", "le", "gt", "ge"])), made(depth - 1), made(depth - 1)) for _ in range(2)]
            test = tests[0] if random.random() < 0.5 else apply(str(random.choice(["and", "or"])), *tests)
            return apply("where", test, made(depth - 1), made(depth - 1))
        name = str(random.choice(["add", "sub", "mul", "floordiv", "mod", "minimum", "maximum", "neg"]))
        return apply(name, *(made(depth - 1) for _ in range(1 if name == "neg" else 2)))

    expressions = [made(4) for _ in range(60)]
    names = names_of(["i", "j"])
    lines = "".join(f"    out.i64[{k}] = {size(planned(e), names)}\n" for k, e in enumerate(expressions))
    module = load(Routines(f"{SIZES}\ndef te_f(sizes: ptr, out: ptr):\n{lines}", {}).text(), passes="none")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(module.address("te_f"))
    for a, b in ((0, 0), (7, -3), (-8, 5), (100, 9)):
        out = np.zeros(len(expressions), np.int64)
        function((ctypes.c_int64 * 2)(a, b), out.ctypes.data)
        with np.errstate(all="ignore"):
            assert out.tolist() == [value(e, {"i": a, "j": b}) for e in expressions]
    with pytest.raises(InternalError, match="cuda: expected an expression over sizes and indices, got Apply"):
        planned(apply("sign", i))
    with pytest.raises(InternalError, match="llvm: expected an operation on extents, got pow"):
        size(("pow", 2, 3), names)
