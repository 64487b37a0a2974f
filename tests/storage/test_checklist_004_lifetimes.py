"""Part 004 of the acceptance lists, lines 20 to 35: lifetimes, from placeholder to constant, backends."""

from __future__ import annotations

import inspect
import weakref

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.ir import Constant, Program
from tensorexpr.language import program_of
from tests.codegen.cuda.driver import needs_compiler
from tests.messages import said
from tests.storage.models import close, dense, dense_program, expected, floats, is_gone, target

__all__ = ["target"]


def test_004_20_code_outlives_the_ir(target):
    x, w, y = dense()
    program = program_of([y], [x, w])
    f, g = te.compile(program, target=target), te.compile(y, [x, w], target=target)
    gone = [weakref.ref(item) for item in (program, x, w, y)]
    del program, x, w, y
    assert all(map(is_gone, gone))
    a, b = floats(5, 6), floats(6, 4)
    close(f.run(te.Context({"layers.0.w": b}), x=a)[0], expected(a, b))
    close(g.run(te.Context(), x=a, layers_0_w=b), expected(a, b))
    assert "tanh" in str(g.program) and "for " in g.source("nest")  # made again, for who looks


def test_004_21_a_compiled_function_refers_to_no_ir(target):
    program = te.freeze(dense_program(), te.Context({"layers.0.w": floats(6, 4)}))
    f = te.compile(program, target=target)
    gone = weakref.ref(program)
    del program
    assert is_gone(gone)
    assert list(f.constants) == ["layers_0_w"]
    assert f.program is f.program


def test_004_22_constants_folded_into_others_are_gone(target):

    def made() -> tuple[te.CompiledFunction, np.ndarray, weakref.ref]:
        big = te.constant(floats(512, 512), name="big")
        column = te.compute((512,), lambda i: te.sum(lambda k: big[i, k], 512), name="column")
        x = te.placeholder((512,), name="x")
        f = te.compile(te.compute((512,), lambda i: x[i] * column[i], name="y"), [x], target=target)
        assert big.data is not None
        return f, big.data.sum(1, dtype=np.float64), weakref.ref(big.data)

    f, wanted, gone = made()
    assert is_gone(gone)
    assert {name: c.nbytes for name, c in f.constants.items()} == {"column": 2048}
    np.testing.assert_allclose(f(np.ones(512, np.float32)), wanted, rtol=1e-4, atol=1e-3)


def test_004_23_a_constant_that_stays_is_not_copied():
    data = floats(6, 4)
    data.flags.writeable = False
    x, w, y = dense()
    f = te.compile(te.freeze(program_of([y], [x, w]), te.Context({"layers.0.w": data})))
    (kept,) = f.constants.values()
    assert kept.ctypes.data == data.ctypes.data
    table = te.constant(data)
    assert np.shares_memory(table.data, data)
    writable = floats(6, 4)
    assert not np.shares_memory(te.constant(writable).data, writable)
    view = writable.view()
    view.flags.writeable = False
    assert not np.shares_memory(te.constant(view).data, writable)  # someone can still write to what it is a view of


def test_004_24_two_batch_sizes_share_one_pool(target):
    context = te.Context({"layers.0.w": floats(6, 4)})
    functions = [te.compile(te.freeze(dense_program(n), context), target=target) for n in (1, 8)]
    kept = [f.constants["layers_0_w"] for f in functions]
    assert kept[0] is kept[1]
    assert len({c.ctypes.data for f in functions for c in f.constants.values()}) == 1
    folded = te.constant(floats(300, 4), name="table")
    mean = te.compute((4,), lambda j: te.sum(lambda i: folded[i, j], 300) / 300, name="mean")
    made = []
    for n in (1, 8):
        x = te.placeholder((n, 4), name="x")
        made.append(te.compile(te.compute((n, 4), lambda i, j, x=x: x[i, j] - mean[j]), [x], target=target))
    assert made[0].constants["mean"] is made[1].constants["mean"]


def test_004_25_the_pool_goes_with_its_last_user(target):
    context = te.Context({"layers.0.w": floats(6, 4)})
    w = np.array(context["layers.0.w"])
    one, eight = (te.compile(te.freeze(dense_program(n), context), target=target) for n in (1, 8))
    gone = weakref.ref(one.constants["layers_0_w"])
    del context, one
    assert not is_gone(gone)
    a = floats(8, 6)
    close(eight(a)[0], expected(a, w))
    del eight
    assert is_gone(gone)


@needs_compiler
def test_004_26_constants_are_uploaded_once(monkeypatch):
    seen: list[int] = []
    upload = HostDevice.upload

    def counted(self: HostDevice, array: np.ndarray) -> np.ndarray:
        seen.append(array.nbytes)
        return upload(self, array)

    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    monkeypatch.setattr(HostDevice, "upload", counted)
    context = te.Context({"layers.0.w": floats(6, 4)})
    functions = [te.compile(te.freeze(dense_program(n), context), target="cuda") for n in (1, 8)]
    for n, f in zip((1, 8), functions, strict=True):
        for _ in range(3):
            f.run(te.Context(), x=floats(n, 6))
    assert seen == [96]


def test_004_27_weights_are_placeholders_by_default():
    f = te.compile(dense()[2])
    assert [p.path for p in f.placeholders if p.kind == "input"] == ["x", "layers.0.w"] and not f.constants


def test_004_28_freeze_makes_constants_of_weights(target):
    x, w, _ = dense()
    squared = te.compute((6, 4), lambda k, j: w[k, j] * w[k, j], name="squared")
    z = te.compute((5, 4), lambda i, j: te.sum(lambda k: x[i, k] * squared[k, j], 6), name="z")
    program = program_of([z], [x, w])
    integers = np.arange(24, dtype=np.float32).reshape(6, 4)
    context = te.Context({"layers.0.w": integers})
    frozen = te.freeze(program, context)
    assert [i.name for i in frozen.inputs] == ["x"] and frozen.outputs == program.outputs
    assert frozen.constants == (Constant("layers_0_w", integers),)
    f, g = te.compile(program, target=target), te.compile(frozen, target=target)
    assert list(g.constants) == ["squared"] and len(g.program.definitions) == 1
    a = np.arange(30, dtype=np.float32).reshape(5, 6)
    np.testing.assert_array_equal(f.run(context, x=a)[0], g.run(te.Context(), x=a)[0])
    named = te.freeze(z, context, ["layers.0.w"], inputs=[x, w])
    assert named == frozen
    n = te.dim("n")
    v, u = te.placeholder((n, 3), name="v"), te.placeholder((n,), name="u")
    open_ = program_of([te.compute((n,), lambda i: te.sum(lambda k: v[i, k], 3) * u[i], name="r")], [v, u])
    bound = te.freeze(open_, te.Context({"v": floats(7, 3)}))
    assert bound.sizes == () and str(bound.inputs[0].type.shape[0].value) == "7"
    close(te.compile(bound, target=target)(np.ones(7, np.float32))[0], bound.constants[0].data.sum(1))
    cases = (
        ("te.freeze: expected the name of an input of the program (x, layers.0.w), got q", lambda: te.freeze(program, context, ["q"])),
        ("te.freeze: expected f32[5, 6] for x, got float32[2]", lambda: te.freeze(program, te.Context({"x": floats(2)}))),
        ("te.freeze: expected a te.Context, got a dict", lambda: te.freeze(program, {})),
    )
    for message, use in cases:
        assert said(te.ArgumentError, use)[0] == message


def test_004_29_after_freezing_the_context_changes_nothing():
    context = te.Context({"layers.0.w": floats(6, 4)})
    program, a = dense_program(), floats(5, 6)
    f, g = te.compile(program), te.compile(te.freeze(program, context))
    before, frozen = f.run(context, x=a)[0], g.run(te.Context(), x=a)[0]
    context["layers.0.w"] *= 3
    assert (f.run(context, x=a)[0] != before).any()
    np.testing.assert_array_equal(g.run(te.Context(), x=a)[0], frozen)


def regression() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """x, t, w, the loss and its gradient by w."""
    x, t = te.placeholder((20, 3), "float64", name="x"), te.placeholder((20,), "float64", name="t")
    w = te.placeholder((3,), "float64", name="w", initial=0.0)
    error = te.compute((20,), lambda i: te.sum(lambda k: x[i, k] * w[k], 3) - t[i], name="error")
    loss = te.compute((), lambda: te.sum(lambda i: error[i] * error[i], 20) / 20, name="loss")
    return x, t, w, loss, te.gradient(loss, [w])[0]


def test_004_30_an_update_step_writes_through_the_context(target):
    x, t, w, loss, slope = regression()
    new = te.compute((3,), lambda k: w[k] - 0.2 * slope[k], name="new")
    step = te.compile(loss, [x, t, w], target=target, mode="training", updates={w: new})
    assert step.updates == ("w",) and step.mode == "training"
    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 3))
    truth = data @ np.array([1.0, -2.0, 0.5])
    context = step.context().initialize(0)
    held = context["w"]
    losses = [float(step.run(context, x=data, t=truth)) for _ in range(200)]
    assert losses[-1] < 1e-6 * losses[0] and context["w"] is held
    np.testing.assert_allclose(held, [1.0, -2.0, 0.5], atol=1e-3)
    evaluation = te.compile(loss, [x, t, w], target=target, updates={w: new})
    assert evaluation.updates == () and float(evaluation.run(context, x=data, t=truth)) <= losses[-1]
    np.testing.assert_array_equal(held, context["w"])
    held.flags.writeable = False
    lines = said(te.ArgumentError, lambda: step.run(context, x=data, t=truth))
    assert lines[0] == "loss_new: expected an array for w in the context that takes its new value, got a read-only one"
    lines = said(te.ArgumentError, lambda: step.run(te.Context(), x=data, t=truth, w=np.zeros(3)))
    assert lines[0].endswith("that takes its new value, got none")
    other = te.compute((2,), lambda k: w[k], name="other")
    wrong = said(te.DefinitionError, lambda: te.compile(loss, mode="training", updates={w: other}))
    assert wrong[0] == "te.compile: expected a new value of w of its type f64[3], got f64[2]"
    wrong = said(te.DefinitionError, lambda: te.compile(loss, mode="training", updates={"w": new}))
    assert wrong[0].startswith("te.compile: expected updates from placeholders to tensors, got 'w': new")
    stranger = te.placeholder((3,), "float64", name="stranger")
    wrong = said(te.DefinitionError, lambda: te.compile(loss, mode="training", updates={stranger: new}))
    assert wrong[0] == "te.compile: expected updates of inputs of the program, got one of stranger"
    wrong = said(te.DefinitionError, lambda: te.compile(program_of([loss]), inputs=[x]))
    assert wrong[0] == "te.compile: expected a program alone, got inputs or updates with it"


def test_004_31_a_gradient_check_through_contexts():
    x, t, w, loss, slope = regression()
    f = te.compile([loss, slope], [x, t, w])
    context = f.context({"x": np.random.default_rng(1).standard_normal((20, 3)), "t": np.ones(20), "w": np.array([0.3, -0.2, 0.9])})
    value, found = f.run(context)
    direction, h = np.array([0.5, 0.25, -1.0]), 1e-6
    ends = []
    at = context["w"]
    for sign in (1, -1):
        context["w"] = at + sign * h * direction
        ends.append(float(f.run(context)[0]))
    assert abs((ends[0] - ends[1]) / (2 * h) - found @ direction) < 1e-6 * abs(float(value) + 1)


def test_004_32_training_or_inference_is_an_argument_of_compile(target):
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: te.where(te.training(), x[i] * 2, x[i]), name="y")
    modes = {mode: te.compile(y, target=target, mode=mode) for mode in ("training", "inference")}
    a = floats(4)
    np.testing.assert_array_equal(modes["training"].run(te.Context(), x=a), 2 * a)
    np.testing.assert_array_equal(modes["inference"].run(te.Context(), x=a), a)
    assert all("training" not in str(f.program) and [p.name for p in f.placeholders] == ["x", "y"] for f in modes.values())
    assert te.compile(y, target=target).mode == "inference"
    listed = te.compile(y, [x], target=target, mode="training")  # the mode is no input that a caller has to list
    np.testing.assert_array_equal(listed.run(te.Context(), x=a), 2 * a)
    flag = te.build(y)
    assert sorted(p.name for p in flag.signature.inputs) == ["training", "x"]
    np.testing.assert_array_equal(flag.run(te.Context(), training=np.True_, x=a), 2 * a)
    lines = said(te.ArgumentError, lambda: te.compile(y, mode="test"))
    assert lines[0] == "te.compile: expected a mode, one of inference, training, got 'test'"


def test_004_33_no_low_level_ir_in_public_signatures():
    public = [value for name in te.__all__ if inspect.isroutine(value := getattr(te, name))]
    for holder in (te.CompiledFunction, te.Context):
        public += [m for name, m in inspect.getmembers(holder, inspect.isroutine) if not name.startswith("_")]
    for function in public:
        text = str(inspect.signature(function))
        assert not any(word in text for word in ("LoopNest", "Native", "Executable", "Built", "GpuCode")), (function, text)
    assert len(public) > 80 and [*inspect.signature(te.compile).parameters][:4] == ["what", "inputs", "target", "mode"]
    assert isinstance(te.compile(dense_program(), mode="training"), te.CompiledFunction)


def test_004_34_both_backends_have_one_low_level_ir(target):
    f = te.compile(dense_program(), target=target)
    assert type(f.nest) is LoopNest and isinstance(f.program, Program)


def test_004_35_the_callers_code_is_the_same_on_both_backends(target):
    f = te.compile(dense(initial=te.initial.normal())[2], target=target)
    context = f.context().initialize(2)
    a = floats(5, 6)
    close(f.run(context, x=a), expected(a, np.asarray(context["layers.0.w"])))
    out = np.zeros((5, 4), np.float32)
    f.run(context, x=a, y=out)
    close(out, expected(a, np.asarray(context["layers.0.w"])))
    with pytest.raises(te.ArgumentError, match="expected an array for the placeholder x, got none"):
        f.run(context)
