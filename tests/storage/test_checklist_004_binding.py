"""Part 004 of the acceptance lists, lines 01 to 19: two kinds of storage, binding by a context, threads."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import executable
from tensorexpr.codegen.llvm import set_threads
from tensorexpr.codegen.nest import Buffer, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.dtypes import float32
from tensorexpr.ir import Axis, Const, Constant, Define, Input, Program, const
from tensorexpr.language import program_of
from tensorexpr.verify import verify
from tests.codegen.cuda.driver import needs_compiler
from tests.messages import said
from tests.storage.models import Bare, OnDevice, close, dense, dense_program, expected, floats, target

__all__ = ["target"]


def test_004_01_two_kinds_of_storage_and_nothing_else_holds_state():
    x, w, y = dense()
    table = te.constant(floats(4))
    z = te.compute((5, 4), lambda i, j: y[i, j] + table[j], name="z")
    program = program_of([z], [x, w])
    assert [type(item) for item in program.inputs] == [Input, Input] and [type(item) for item in program.constants] == [Constant]
    assert x.data is None and y.data is None and table.data is not None
    f = te.compile(z, [x, w])
    assert {p.kind for p in f.placeholders} == {"input", "output"} and not any(isinstance(p, np.ndarray) for p in f.placeholders)
    assert next(iter(f.constants.values())) is table.data


def test_004_02_nothing_writes_to_a_constant():
    data = np.ones(3, np.float32)
    define = Define("c", (Axis("i", const(0), const(3)),), Const(1.0, float32))
    with pytest.raises(te.InternalError, match="expected each tensor to be named once, got c twice"):
        verify(Program((), (Constant("c", data),), (define,), ("c",)))
    store = Store("c", (const(0),), Const(1.0, float32))
    out = Buffer("y", float32, (const(3),), "parameter")
    with pytest.raises(te.InternalError, match="expected c to be read only"):
        verify_nest(LoopNest("f", (out,), (Constant("c", data),), (), (Kernel("k", (store,)),), ("y",)))
    c = te.constant(data)
    assert not c.data.flags.writeable
    with pytest.raises(te.DefinitionError, match="tensors are never written"):
        c[0] = 1.0


def test_004_03_a_placeholder_has_no_memory_before_a_run():
    tracemalloc.start()
    big = te.placeholder((256, 1 << 20), name="big")  # a gigabyte
    f = te.compile(te.compute((256,), lambda i: te.sum(lambda k: big[i, k], 1 << 20)), [big])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert f.workspace_bytes() < 1 << 20
    assert peak < 64 << 20


def test_004_04_compiling_needs_no_binding():
    f = te.compile(dense_program())
    assert f.context().workspace == 0 and len(f.context()) == 0


def test_004_05_constants_are_folded_and_placeholders_never():
    variance = np.abs(floats(4)) + 1
    x, w, y = dense()
    scale = te.compute((4,), lambda j: 1 / te.sqrt(te.constant(variance, name="variance")[j] + 1e-5), name="scale")
    z = te.compute((5, 4), lambda i, j: y[i, j] * scale[j], name="z")
    f = te.compile(z, [x, w])
    assert [d.name for d in f.program.definitions if d.name == "scale"] == [] and list(f.constants) == ["scale"]
    close(f.constants["scale"], 1 / np.sqrt(variance + 1e-5))
    a, context = floats(5, 6), te.Context()
    for _ in range(2):
        context["layers.0.w"] = floats(6, 4)
        close(f.run(context, x=a), expected(a, context["layers.0.w"]) / np.sqrt(variance + 1e-5))


def test_004_06_the_text_tells_them_apart():
    x, table = te.placeholder((3,), name="x"), te.constant(np.arange(3, dtype=np.float32), name="table")
    text = str(program_of([te.compute((3,), lambda i: x[i] * table[i], name="y")], [x]))
    assert "x: f32[3] = input()" in text and "table: f32[3] = constant([0.0, 1.0, 2.0])" in text


def test_004_07_a_run_without_a_binding_names_the_placeholder():
    f = te.compile(dense_program())
    lines = said(te.ArgumentError, lambda: f.run(te.Context(), x=floats(5, 6)))
    assert lines[0] == "y: expected an array for the placeholder layers.0.w, got none"
    assert "context['layers.0.w'] = array, or run(context, layers_0_w=array)" in lines[-1]


def test_004_08_a_binding_that_does_not_fit_is_named():
    f = te.compile(dense_program())
    context = f.context()
    cases = (
        ("context: layers.0.w: expected dtype float32, got float64", lambda: context.bind("layers.0.w", np.zeros((6, 4)))),
        ("context: layers.0.w: expected shape [6, 4], got [4, 6]", lambda: context.bind("layers.0.w", floats(4, 6))),
        ("context: layers.0.w: expected shape [6, 4], got [6]", lambda: context.bind("layers.0.w", floats(6))),
        ("context: expected the name of a placeholder (x, layers.0.w, y), got v", lambda: context.bind("v", floats(6, 4))),
        ("context: expected an array for x, got a list", lambda: context.bind("x", [1.0])),
        ("context: expected names of placeholders, got 3", lambda: context.bind(3, floats(5, 6))),
    )
    for message, use in cases:
        assert said(te.ArgumentError, use)[0] == message
    assert len(context) == 0
    context["layers.0.w"] = floats(6, 4)
    run = lambda **given: said(te.ArgumentError, lambda: f.run(context, **given))[0]  # noqa: E731
    assert run(x=floats(5, 6), z=floats(2)) == "y: expected the name of a placeholder (x, layers.0.w, y), got z"
    x, table = te.placeholder((2,), name="x"), te.constant(np.ones(2, np.float32), name="table")
    scaled = te.compile(te.compute((2,), lambda i: x[i] * table[i], name="scaled"), [x])
    lines = said(te.ArgumentError, lambda: scaled.run(te.Context(), x=floats(2), table=floats(2)))
    assert lines[0] == "scaled: expected the name of a placeholder (x, scaled), got table"
    assert "table is a constant, which nothing is written to" in lines[-1]
    assert "argument x: expected extent 5, got 4" in run(x=floats(4, 6))
    assert "argument x: expected dtype float32, got float64" in run(x=np.zeros((5, 6)))
    assert "out y: expected shape [5, 4], got [4, 5]" in run(x=floats(5, 6), y=floats(4, 5))
    twice = "y: expected one array for layers.0.w, got two: bound in the context and given to this run"
    assert run(x=floats(5, 6), layers_0_w=floats(6, 4)) == twice
    lines = said(te.ArgumentError, lambda: context.bind("layers.0.w", floats(6, 4)))
    assert lines[0] == "context: expected layers.0.w to be bound once, got another array for it"
    assert said(te.ArgumentError, lambda: context["v"])[0] == "context: expected the name of an array that is bound (layers.0.w), got v"
    assert said(te.ArgumentError, lambda: te.Context([floats(2)]))[0] == "context: expected arrays by name, got a list"

    class Elsewhere:
        """An array of another library that has no memory here."""

        def __array__(self, *_, **__):
            raise TypeError("it is on the moon")

    message = "context: expected an array in this machine's memory for x, got a Elsewhere: it is on the moon"
    assert said(te.ArgumentError, lambda: context.bind("x", Elsewhere()))[0] == message
    assert said(te.ArgumentError, lambda: f.run(context, x=Elsewhere()))[0] == message
    assert said(te.ArgumentError, lambda: f.run({}, x=floats(5, 6)))[0] == "y: expected a te.Context to run in, got a dict"
    late = te.Context({"v": floats(2)})
    assert said(te.ArgumentError, lambda: late.declare(f))[0].endswith("(x, layers.0.w, y), got v")


def test_004_09_outputs_are_placeholders_written_in_place():
    f = te.compile(dense()[2])
    a, w, buffer = floats(5, 6), floats(6, 4), np.zeros((5, 4), np.float32)
    at = buffer.ctypes.data
    assert f.run(te.Context({"layers.0.w": w}), x=a, y=buffer) is buffer and buffer.ctypes.data == at
    close(buffer, expected(a, w))
    bound = te.Context({"layers.0.w": w, "y": np.zeros_like(buffer)})
    assert f.run(bound, x=a) is bound["y"]
    apart = np.zeros((5, 8), np.float32)[:, ::2]
    assert f.run(te.Context({"layers.0.w": w}), x=a, y=apart) is apart
    np.testing.assert_array_equal(apart, buffer)


def test_004_10_memory_from_outside_is_not_copied():
    f = te.compile(dense()[2])
    w = floats(6, 4)
    context = te.Context({"layers.0.w": w})
    assert context["layers.0.w"] is w
    a = floats(5, 6)
    before = f.run(context, x=a)
    w *= 2
    assert np.abs(f.run(context, x=a) - before).max() > 0
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(floats(6, 4).copy())
    context = f.context({"layers.0.w": tensor})
    assert context["layers.0.w"].ctypes.data == tensor.data_ptr()
    tensor.zero_()
    np.testing.assert_array_equal(f.run(context, x=torch.ones(5, 6)), 0)


@pytest.mark.parametrize("kind", [OnDevice, Bare])
def test_004_10_neither_is_memory_of_a_gpu(kind: type, target: str):
    """On a CPU that stands in for the GPU; the target "cpu" refuses such arrays by name."""
    f = te.compile(dense()[2], target=target)
    a, w = floats(5, 6), floats(6, 4)
    context = f.context({"layers.0.w": kind(w)})
    if target == "cpu":
        lines = said(te.ArgumentError, lambda: f.run(context, x=a))
        assert lines[0] == f"y: argument layers_0_w: expected a NumPy array, got a {kind.__name__}"
        return
    close(f.run(context, x=kind(a)), expected(a, w))
    frozen = te.freeze(dense_program(), context)
    w *= 2
    close(f.run(context, x=a), expected(a, w))
    assert np.array_equal(2 * frozen.constants[0].data, w)
    message = "context: layers.0.w: expected dtype float32, got float64"
    assert said(te.ArgumentError, lambda: f.context({"layers.0.w": kind(w.astype(float))}))[0] == message
    message = "context: layers.0.w: expected shape [6, 4], got [5, 6]"
    assert said(te.ArgumentError, lambda: f.context({"layers.0.w": kind(a)}))[0] == message


def test_004_10_a_tensor_that_its_library_does_not_hand_over_is_named():
    class Recording:
        @property
        def __cuda_array_interface__(self) -> object:
            raise RuntimeError("it requires grad")

    message = "context: expected an array in this machine's memory for w, got a Recording: it requires grad"
    assert said(te.ArgumentError, lambda: te.Context({"w": Recording()}))[0] == message


def test_004_11_no_address_is_in_the_code(monkeypatch: pytest.MonkeyPatch):
    """Arrays and workspace lie elsewhere each time, and nothing is compiled for that."""
    x, y = long_program()
    table = te.constant(floats(64), name="table")
    f = te.compile(te.compute((64, 64), lambda i, j: y[i, j] + table[j], name="z"), [x])
    monkeypatch.setattr(executable, "nest_code", lambda nest: pytest.fail("compiled again"))
    arrays = [floats(64, 64) for _ in range(3)]
    blocks = [np.zeros(f.workspace_bytes() + 64, np.uint8) for _ in range(3)]
    assert len({a.ctypes.data for a in (*arrays, *blocks)}) == 6
    for a, block in zip(arrays, blocks, strict=True):
        s = a.astype(float) @ a
        np.testing.assert_allclose(f.run(te.Context(workspace=block), x=a), s @ s.T + table.data, rtol=1e-3, atol=1e-2)


def test_004_12_two_contexts_are_two_models():
    f, a = te.compile(dense()[2]), floats(5, 6)
    models = [te.Context({"layers.0.w": floats(6, 4)}) for _ in range(2)]
    for _ in range(2):
        for context in models:
            close(f.run(context, x=a), expected(a, context["layers.0.w"]))


def long_program() -> tuple[te.Tensor, te.Tensor]:
    """Something that stores an intermediate result."""
    x = te.placeholder((64, 64), name="x")
    s = te.compute((64, 64), lambda i, j: te.sum(lambda k: x[i, k] * x[k, j], 64), name="s")
    return x, te.compute((64, 64), lambda i, j: te.sum(lambda k: s[i, k] * s[j, k], 64), name="y")


def test_004_13_memory_of_activations_belongs_to_the_context_and_can_be_lent():
    x, y = long_program()
    f, a = te.compile(y, [x]), floats(64, 64)
    size = f.workspace_bytes()
    assert size >= 64 * 64 * 4
    own = te.Context()
    wanted = f.run(own, x=a)
    assert size <= own.workspace < 2 * size + 256
    memory = np.full(size + 63, 7, np.uint8)
    lent = te.Context(workspace=memory)
    np.testing.assert_array_equal(f.run(lent, x=a), wanted)
    assert lent.workspace == memory.nbytes and (memory != 7).any()
    small = te.Context(workspace=np.zeros(100, np.uint8))
    message = (
        f"context: expected a workspace of at least {size} bytes that begins at a multiple of {64} "
        f"(or {size + 63} bytes anywhere), got {small.workspace}"
    )
    assert said(te.ArgumentError, lambda: f.run(small, x=a))[0] == message
    message = "context: expected a contiguous, writeable array as workspace, got another one"
    assert said(te.ArgumentError, lambda: te.Context(workspace=memory[::2]))[0] == message
    message = "context: expected an array as workspace, got a list"
    assert said(te.ArgumentError, lambda: te.Context(workspace=[1]))[0] == message
    message = "y: workspace: expected an array in this machine's memory, got a Bare"
    assert said(te.ArgumentError, lambda: f.run(te.Context(workspace=Bare(memory)), x=a))[0] == message
    n = te.dim("n")
    v = te.placeholder((n, 64), name="v")
    s = te.compute((n, 64), lambda i, j: te.sum(lambda k: v[i, k] * te.exp(v[i, j]), 64), name="s")
    g = te.compile(s, [v])
    assert g.workspace_bytes(n=10) >= 0
    assert said(te.ArgumentError, lambda: g.workspace_bytes(m=10))[0] == "s: expected the sizes n, got m"
    assert said(te.ArgumentError, lambda: g.workspace_bytes(n=-1))[0] == "s: expected sizes of at least 0, got -1 for n"


@needs_compiler
@pytest.mark.parametrize("kind", [OnDevice, Bare])
def test_004_13_memory_of_a_gpu_can_be_lent(kind: type, monkeypatch: pytest.MonkeyPatch):
    """By those who have it; an address that is no multiple of 64 takes as much more."""
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    x, y = long_program()
    f, a = te.compile(y, [x], target="cuda"), floats(64, 64)
    size, wanted = f.workspace_bytes(), f(a)
    room = np.zeros(size + 128, np.uint8)
    start = -room.ctypes.data % 64
    for offset, length in ((start, size), (start + 1, size + 63)):
        lent = room[offset : offset + length]
        context = te.Context(workspace=kind(lent))
        np.testing.assert_array_equal(f.run(context, x=a), wanted)
        assert lent.any() and context.workspace == length and not room[offset + length :].any() and not room[:offset].any()
        room[:] = 0
    short = te.Context(workspace=kind(room[start + 1 : start + 1 + size]))
    assert said(te.ArgumentError, lambda: f.run(short, x=a))[0].startswith(f"context: expected a workspace of at least {size} bytes")
    array = type(f._device).array
    monkeypatch.setattr(type(f._device), "array", lambda self, value: None if isinstance(value, kind) else array(self, value))
    lines = said(te.ArgumentError, lambda: f.run(te.Context(workspace=kind(room)), x=a))
    assert lines[0] == f"y: workspace: expected an array on host, got a {kind.__name__}"


def test_004_14_initialization_is_apart_from_building():
    x, w, y = dense(initial=te.initial.normal(0.0, 0.5))
    v = te.placeholder((4,), path="head.v", initial=3.0)
    u = te.placeholder((4,), "float64", path="head.u", initial=np.arange(4.0))
    z = te.compute((5, 4), lambda i, j: y[i, j] * v[j] + te.cast(u[j], "float32"), name="z")
    f, g = te.compile(z, [x, w, v, u]), te.compile(y, [x, w])
    first, second, other = f.context().initialize(7), f.context().initialize(7), f.context().initialize(8)
    np.testing.assert_array_equal(first["layers.0.w"], second["layers.0.w"])
    np.testing.assert_array_equal(first["layers.0.w"], g.context().initialize(7)["layers.0.w"])
    assert (first["layers.0.w"] != other["layers.0.w"]).all() and 0.2 < first["layers.0.w"].std() < 0.8
    assert list(first["head.v"]) == [3, 3, 3, 3] and list(first["head.u"]) == [0, 1, 2, 3] and "x" not in first
    given = f.context({"layers.0.w": floats(6, 4)})
    kept = given["layers.0.w"]
    assert given.initialize(7)["layers.0.w"] is kept
    assert te.Context().declare([w]).initialize(7)["layers.0.w"].shape == (6, 4)
    hint = "context: expected placeholders to initialise, got a context that knows of none"
    assert said(te.ArgumentError, lambda: te.Context().initialize(0))[0] == hint
    open_ = te.placeholder((te.dim("n"),), name="o", initial=0.0)
    message = "context: expected constant extents to initialise o, got [n]"
    assert said(te.ArgumentError, lambda: te.Context().declare([open_]).initialize(0))[0] == message
    wrong = te.placeholder((3,), name="q", initial=np.zeros(2))
    message = "q: expected an initial value of shape [3], got one of shape [2]"
    assert said(te.ArgumentError, lambda: te.Context().declare([wrong]).initialize(0))[0] == message
    lines = said(te.DefinitionError, lambda: te.placeholder((3,), initial="zeros"))
    assert lines[0].startswith(
        "te.placeholder: expected a number, an array or a function of generator and shape as initial value, got a str"
    )
    zeros = te.placeholder((3,), name="z0", initial=te.initial.zeros)
    ones = te.placeholder((3,), "int8", name="z1", initial=te.initial.ones)
    drawn = te.placeholder((300,), name="z2", initial=te.initial.uniform(2.0, 3.0))
    made = te.Context().declare([zeros, ones, drawn]).initialize(1)
    assert not made["z0"].any() and made["z1"].dtype == np.int8 and made["z1"].all() and 2 <= made["z2"].min() < made["z2"].max() < 3


def test_004_15_the_short_way_is_one_line():
    a, w = floats(5, 6), floats(6, 4)
    close(te.build(dense()[2])(a, w), expected(a, w))
    close(te.compile(dense()[2]).run(te.Context(), x=a, layers_0_w=w), expected(a, w))


def test_004_16_eight_threads_a_context_each():
    f = te.compile(dense()[2])
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        w = rng.standard_normal((6, 4)).astype(np.float32)
        context, inputs = te.Context({"layers.0.w": w}), [rng.standard_normal((5, 6)).astype(np.float32) for _ in range(10)]
        wanted = [f(a, w) for a in inputs]
        for k in range(1000):
            if not np.array_equal(f.run(context, x=inputs[k % 10]), wanted[k % 10]):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_004_17_the_interpreter_works_while_compiled_code_runs():
    """How much two threads do is measured in benchmarks; what lets them: Python's lock is free during a run."""
    x = te.placeholder((), "int64", name="x")
    n = 1 << 28
    f = te.compile(te.compute((), lambda: te.max(lambda i: (i * x[()]) % 1000003, n), name="y"), [x])
    before = set_threads()
    set_threads(1)
    try:
        done = threading.Event()

        def work() -> None:
            f.run(te.Context(), x=np.asarray(12345, np.int64))
            done.set()

        thread = threading.Thread(target=work)
        ticks, interval = 0, sys.getswitchinterval()
        thread.start()
        while not done.is_set():
            time.sleep(interval)
            ticks += 1
        thread.join()
    finally:
        set_threads(before)
    assert ticks > 3


def test_004_18_a_context_is_used_by_one_thread_at_a_time():
    f = te.compile(dense()[2])
    context = te.Context({"layers.0.w": floats(6, 4)})
    context.enter()
    try:
        lines = said(te.ArgumentError, lambda: f.run(context, x=floats(5, 6)))
        assert lines[0] == "context: expected one user at a time, got a second one while it is in use"
        with pytest.raises(te.ArgumentError, match="expected one user at a time"):
            context["layers.0.w"] = floats(6, 4)
    finally:
        context.leave()
    f.run(context, x=floats(5, 6))
    with pytest.raises(te.ArgumentError):
        f.run(context, x=floats(1, 1))
    f.run(context, x=floats(5, 6))


def test_004_19_two_threads_compile_functions_of_one_program():
    results: dict[int, np.ndarray] = {}
    x, w, y = dense(te.dim("n"))
    shifted = [te.compute((x.shape[0], 4), lambda i, j, k=k: y[i, j] + float(k), name=f"y{k}") for k in range(4)]
    a, b = floats(3, 6), floats(6, 4)

    def work(k: int) -> None:
        results[k] = te.compile(shifted[k], [x, w]).run(te.Context({"layers.0.w": b}), x=a)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        close(results[k], expected(a, b) + k)
