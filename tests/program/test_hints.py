"""What a mistaken name may have meant, everywhere that names are taken, and calls that do not fit."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.errors import (
    ArgumentError,
    CallError,
    DefinitionError,
    DifferentiationError,
    ScheduleError,
    TargetError,
    UnknownNameError,
)
from tensorexpr.hints import WORDS, checked, nearest, suggestion
from tests.messages import said

A = te.placeholder((4, 5), name="A")
B = te.placeholder((5, 3), name="B")
X = te.placeholder((6,), name="x")
IDS = te.placeholder((6,), "int32", name="ids")
C = te.compute((4, 3), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j], 5), name="C")
V = np.ones(6)
ROOT = Path(__file__).resolve().parents[2]


@te.op
def add(a, b, *, axis=1):
    return te.compute(a.shape, lambda i: axis * (a[i] + b[i]))


def test_completion_offers_what_is_public_and_nothing_else():
    for module in (te, kernels):
        assert dir(module) == sorted(module.__all__) and all(hasattr(module, name) for name in dir(module))


def test_the_nearest_name():
    assert nearest("Float32", ["int8", "float32"]) == "float32"
    assert nearest("dim", ["axis", "din"]) == "axis"
    assert nearest("dim", ["din"]) == "din"
    assert nearest("flaot32", ["float16", "float32"]) == "float32"
    assert nearest("complex", ["int8", "float32"]) is None
    assert suggestion("sm", ("sum", "max")) == "did you mean sum?"
    assert suggestion("sm", ("sum", "max"), "names: sum, max") == "did you mean sum? names: sum, max"
    assert suggestion(3, ("sum",)) is None and suggestion("q", ("sum",), "names: sum") == "names: sum"


@pytest.mark.parametrize(
    ("kind", "use", "hint"),
    [
        (UnknownNameError, lambda: te.palceholder, "did you mean placeholder?"),
        (UnknownNameError, lambda: te.pow, "did you mean power?"),
        (UnknownNameError, lambda: te.array, "did you mean constant?"),
        (UnknownNameError, lambda: te.DefinitonError, "did you mean DefinitionError?"),
        (UnknownNameError, lambda: te.matmul, "tensorexpr.kernels.matmul takes whole tensors and arrays"),
        (UnknownNameError, lambda: te.zeros, "te.constant(numpy array) has data; te.compute(shape, lambda i, j: ...) says each element"),
        (UnknownNameError, lambda: te.schedule(C)["C"].vectorise("j"), "did you mean vectorize?"),
        (UnknownNameError, lambda: te.schedule(C).split("i", 2), "it acts on the loops of a definition: s['C'].split(...)"),
        (CallError, lambda: te.build(C, [A, B], traget="cpu"), "did you mean target?"),
        (CallError, lambda: te.schedule(C, device="cpu"), "did you mean target?"),
        (CallError, lambda: te.gradient(C, [A], heads=None), "did you mean head?"),
        (CallError, lambda: te.placeholder((3,), dtpye="f32"), "did you mean dtype?"),
        (CallError, lambda: te.schedule(C)["C"].split("i", factr=2), "did you mean factor?"),
        (DefinitionError, lambda: te.placeholder((3,), "flaot32"), "did you mean float32? use one of bool, int8"),
        (DefinitionError, lambda: te.cast(1.0, "fp16"), "did you mean float16? use one of"),
        (DefinitionError, lambda: X.read(0, outside="edge"), "did you mean clamp? numbers are given as they are: outside=0.0"),
        (DefinitionError, lambda: X.read(0, outside="zero"), "numbers are given as they are: outside=0.0"),
        (DefinitionError, lambda: te.scatter((6,), lambda i: (IDS[i], X[i]), 6, combine="add"), "did you mean sum?"),
        (DefinitionError, lambda: te.build(add), "of an op, op.compile(*specs) is the function; a plain function is made an op by @te.op"),
        (ScheduleError, lambda: te.schedule(C)["c"], "did you mean C? definitions: C"),
        (ScheduleError, lambda: te.schedule(C)["C"].split("ii", 2), "did you mean i? loops: i, j, k"),
        (ScheduleError, lambda: te.schedule(C)["C"].split("i", 3, tail="peal"), "did you mean peel?"),
        (ScheduleError, lambda: te.schedule(C)["C"].bind("i", "thread.xx"), "did you mean thread.x?"),
        (TargetError, lambda: te.build(C, target="gpu"), "did you mean cuda?"),
        (TargetError, lambda: te.build(C, A, B), "the inputs of te.build are one list"),
        (ArgumentError, lambda: te.build(C, precision="tf23"), "did you mean tf32?"),
        (ArgumentError, lambda: add(V, V, axs=2), "did you mean axis? keyword-only parameters of the function are its static arguments"),
        (ArgumentError, lambda: add.compile(V, V, taget="cpu"), "did you mean target?"),
        (ArgumentError, lambda: add.trace(V, V, dynamic={"aa": (0,)}), "did you mean a?"),
        (ArgumentError, lambda: kernels.pad(V, pads=(1, 1), mode="replicat"), "did you mean replicate?"),
        (DifferentiationError, lambda: te.vjp(add, wrt="aa")(V, V, V), "did you mean a?"),
        (DifferentiationError, lambda: te.gradient(C, [A], lowering="atomic", head=C), "did you mean atomics?"),
    ],
)
def test_did_you_mean(kind, use, hint):
    assert said(kind, use)[-1].startswith(f"  hint: {hint}")


def test_a_module_that_nobody_imported(monkeypatch):
    monkeypatch.delattr(te, "examples", raising=False)
    assert said(UnknownNameError, lambda: te.examples)[-1] == "  hint: it is a module: import tensorexpr.examples"


def test_axes_of_what_has_none():
    lines = said(ArgumentError, lambda: kernels.sum(np.float32(2.0), axis=1))
    assert lines[0].startswith("sum: expected a tensor with axes, got x without any and axis 1")
    assert said(ArgumentError, lambda: kernels.sum(V, axs=0))[-1].startswith("  hint: did you mean axis?")


def test_calls_that_do_not_fit():
    lines = said(CallError, lambda: te.build(C, traget="cpu"))
    assert lines[0] == "te.build: expected keywords among outputs, inputs, target, precision, got traget"
    assert lines[1].startswith("  in:   te.build(outputs, inputs=None, target='cpu', *, precision='float32') (")
    assert said(CallError, lambda: te.sum(lambda k: X[k]))[0] == "te.sum: expected a value for extents, got none"
    assert said(CallError, lambda: te.dim("n", name="m"))[0] == "te.dim: expected one value for name, got two"
    lines = said(CallError, lambda: te.build(C, [A, B], "cpu", "float32"))
    assert lines[0] == "te.build: expected at most 3 arguments by position, got 4"
    assert lines[-1] == "  hint: given by name: precision"
    assert issubclass(CallError, TypeError) and issubclass(UnknownNameError, AttributeError)


FUNCTIONS = [name for name in dir(te) if callable(getattr(te, name)) and not isinstance(getattr(te, name), type)]
CLASSES = ["Context", "Generator", "Variable"]


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "load"] + CLASSES)  # `load` is that of tensorexpr_runtime
def test_every_public_function_explains_a_call_that_does_not_fit(name):
    lines = said(CallError, lambda: getattr(te, name)(unheard_of=1))
    assert lines[0].startswith("te.") and ", got " in lines[0]


def test_functions_of_scalars_count_their_arguments():
    assert said(CallError, lambda: te.where(True, 1.0))[0] == "te.where: expected a value for b, got none"
    assert said(CallError, lambda: te.round(0.5, 2))[0] == "te.round: expected at most 1 arguments by position, got 2"


@pytest.mark.parametrize(
    ("kind", "use", "hint"),
    [
        (te.DefinitionError, lambda: te.compute((3,), lambda i: X[X[i] > 0]), "te.where(condition, a, b) chooses one of two values"),
        (te.DefinitionError, lambda: te.compute((3,), lambda i: X[i] * 1j), "a complex number is a pair of scalars"),
        (te.DefinitionError, lambda: te.placeholder((3,), "complex64"), "a complex number is a pair of floats"),
        (te.DefinitionError, lambda: te.reduce(0.0, te.minimum, lambda k: X[k], 3), "te.reduce(combine, identity, body, extents)"),
        (te.DefinitionError, lambda: te.build(C, [np.ones(3)]), "tensors are defined, te.compute(...) of placeholders"),
        (te.DifferentiationError, lambda: te.jvp(add)(np.ones(3), np.ones(3), np.ones(3)), "jvp(add)(a, b, a_tangent, b_tangent)"),
        (te.ArgumentError, lambda: te.export("nowhere", f=add), "op.compile(*specs) and te.build(outputs, inputs) give them"),
    ],
)
def test_remedies(kind, use, hint):
    assert said(kind, use)[-1].startswith(f"  hint: {hint}")


def test_the_identity_of_a_combiner_is_a_number():
    lines = said(te.DefinitionError, lambda: te.reduce(0.0, te.maximum, lambda k: X[k], 3))
    assert lines[0] == "te.reduce: expected an identity made of numbers, got a function"


def test_compiled_functions_take_arrays_by_position():
    a, b = (np.ones(t.shape, t.dtype.name) for t in (A, B))
    text = said(te.CallError, lambda: te.build(C, [A, B])(A=a, B=b))[0]
    assert text == "C: expected arrays by position (A, B) and out, got the keyword A"

    class Other:
        def __dlpack__(self): ...

    lines = said(te.ArgumentError, lambda: te.build(C, [A, B])(Other(), b))
    assert lines[0] == "C: argument A: expected a NumPy array, got a Other"
    assert lines[-1].startswith("  hint: np.from_dlpack(...) is a view of it")


def test_what_fails_inside_of_a_function_is_its_own():
    @checked()
    def calls(f):
        return f(1)

    assert calls(abs) == 1
    with pytest.raises(TypeError, match="takes 0 positional arguments") as caught:
        calls(lambda: 0)
    assert type(caught.value) is TypeError


def test_attributes_that_are_not_there():
    assert said(UnknownNameError, lambda: te.palceholder)[0] == "expected an attribute of tensorexpr, got palceholder"
    assert not hasattr(te, "palceholder") and not hasattr(te, "_repr_html_")
    assert said(UnknownNameError, lambda: te.schedule(C)["C"].paralel("i"))[0] == "expected an attribute of the loops of C, got paralel"


def test_types_are_shipped():
    """Type checkers read the annotations of what is installed (`scripts/typecheck.sh` checks a user's file against it)."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in ("tensorexpr", "tensorexpr_runtime"):
        assert "py.typed" in data[package] and (ROOT / package / "py.typed").is_file()


def test_words_of_other_libraries_lead_to_words_of_ours():
    assert all(word not in ours for word, ours in WORDS.items())
