"""Where an optimisation fails the plain form runs: results are right, one warning names the operation and a file for a report."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.sweep import accumulate
from tensorexpr.building import fallback
from tensorexpr.codegen import executable, gpu_code, stages
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.lowering.context.arithmetic import add
from tensorexpr.codegen.memo import forget
from tensorexpr.codegen.nest import Alloc, For, If, LoopNest, Store
from tensorexpr.codegen.target import host_target
from tensorexpr.errors import InternalError
from tensorexpr.integers import Domain
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Index, apply, const
from tensorexpr.op.trees import leaves
from tensorexpr.records import replace
from tests.kernels.case import Case, flat
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, gradients, heads_of, traced, values
from tests.random_programs import random_inputs, random_program
from tests.seeds import share_of

ALL_SEEDS = len(share_of(range(3))) == 3

X, W = te.placeholder((37, 19), "float64", name="X"), te.placeholder((19, 23), "float64", name="W")
BLEND = te.compute((37, 23), lambda i, j: te.exp(-te.abs(te.sum(lambda k: X[i, k] * W[k, j], 19))), name="blend")
ARRAYS = np.linspace(-1, 1, 37 * 19).reshape(37, 19), np.linspace(-2, 1, 19 * 23).reshape(19, 23)
RIGHT = np.exp(-np.abs(ARRAYS[0] @ ARRAYS[1]))


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing made before, reports in a folder of the test, and failures that are no errors."""
    forget()
    monkeypatch.setenv("TENSOREXPR_STRICT", "0")
    monkeypatch.setattr(fallback.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fallback, "_said", set())
    monkeypatch.setattr(executable, "_looks", WeakValueDictionary())  # errors that are kept hold frames, which hold these
    yield
    forget()


def failing(error: Exception) -> Callable[..., None]:
    """A function that fails, and not in a file that counts as a user's."""
    made: dict[str, Any] = {"error": error}
    exec("def fails(*arguments, **named):\n    raise error", made)
    return made["fails"]


def built_with_one_warning(target: str = "cpu") -> tuple[te.CompiledFunction, str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = te.build(BLEND, [X, W], target)
    (one,) = [w for w in said if w.category is te.FallbackWarning]
    assert Path(one.filename) == Path(__file__)
    return made, str(one.message)


def report(message: str) -> str:
    (path,) = re.findall(r"with (\S+)\.$", message)
    return Path(path).read_text()


FAILURES = [
    ("simplified", KeyError("u")),
    ("scheduled", ZeroDivisionError("division by zero")),
    ("scheduled", te.ScheduleError("expected a loop, got none")),
    ("lowered", te.ScheduleError("expected a loop of main, got 'j_o'")),
    ("lowered", te.DefinitionError("expected an integer, got 0.5")),
    ("scheduled", RecursionError("maximum recursion depth exceeded")),
    ("scheduled", MemoryError()),
    ("verify_nest", InternalError("loop nest main: expected an index in its buffer")),
]


@pytest.mark.parametrize(("stage", "error"), FAILURES, ids=lambda value: value if isinstance(value, str) else type(value).__name__)
def test_a_stage_that_fails(stage: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = getattr(stages, stage)
    calls = []

    def fails_first(*arguments: object, **named: object) -> object:
        calls.append(arguments)
        if stage == "verify_nest" and len(calls) > 1:
            return whole(*arguments, **named)
        return failing(error)()

    monkeypatch.setattr(stages, stage, fails_first)
    made, message = built_with_one_warning()
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)
    once = stage == "verify_nest"  # then the planners' own form is taken, else nothing before the plain schedule can be made
    assert message.startswith("blend: the default schedule could not be made (")
    assert ("schedule of the planners" if once else "plain schedule") in message
    text = report(message)
    assert "Traceback" in text and type(error).__name__ in text and "blend[i, j]" in text and "llvmlite" in text
    assert str(made.schedule.origin) == (stages.ANALYTIC if once else stages.PLAIN) and "blend" in made.source("nest")


def test_where_all_schedules_fail_the_plain_nest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lowered", "_plainly"):
        monkeypatch.setattr(stages, name, failing(KeyError("u")))
    made, message = built_with_one_warning()
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)
    assert message.startswith("blend: the default schedule could not be made (") and "plain nest" in message
    assert "for i in range(0, 37)" in made.source("nest")
    with pytest.raises(te.ScheduleError, match="expected code made by a schedule, got the plain nest, the last form of a build"):
        made.schedule  # noqa: B018 -- the property refuses


@pytest.mark.parametrize("seed", share_of(range(2000, 2030)))
def test_the_plain_nest_as_native_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(seed)
    for name in ("lowered", "_plainly"):
        monkeypatch.setattr(stages, name, failing(KeyError("u")))
    monkeypatch.setattr(fallback, "warn", lambda *_: None)
    inputs = random_inputs(program, seed)
    try:
        expected = evaluate_program(program, inputs)
    except te.OutOfBoundsError:
        with pytest.raises(te.OutOfBoundsError):
            build_program(program)(*inputs.values())
        return
    for found, wanted in zip(build_program(program)(*inputs.values()), expected.values(), strict=True):
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=1e-5, atol=1e-5)


def test_text_that_llvm_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = executable.nest_code, []

    def first_refused(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise InternalError("llvm: expected valid IR, got Instruction does not dominate all uses!")
        return whole(*arguments)

    monkeypatch.setattr(executable, "nest_code", first_refused)
    made, message = built_with_one_warning()
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)
    assert "does not dominate" in message and "schedule of the planners" in message and made.schedule.origin == stages.ANALYTIC


def test_a_schedule_of_the_users_whose_code_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = te.schedule(BLEND, inputs=[X, W])
    schedule["blend"].split("i", 8)
    whole, calls = stages.verify_nest, []

    def first_fails(nest: LoopNest) -> LoopNest:
        calls.append(nest)
        if len(calls) == 1:
            failing(KeyError("i_o"))()
        return whole(nest)

    monkeypatch.setattr(stages, "verify_nest", first_fails)
    with pytest.warns(te.FallbackWarning, match=r"blend: this schedule could not be made \(KeyError: 'i_o'\)"):
        made = te.build(schedule)
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)


def test_loops_that_the_verifier_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = stages.lowered, []

    def first_one_too_far(*arguments: Any, **named: Any) -> LoopNest:
        calls.append(arguments)
        nest = whole(*arguments, **named)
        return moved(nest) if len(calls) == 1 else nest

    monkeypatch.setattr(stages, "lowered", first_one_too_far)
    made, message = built_with_one_warning()
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)
    assert "the verifier refuses its loops" in message and made.schedule.origin == stages.ANALYTIC


def moved(nest: LoopNest) -> LoopNest:
    """The nest with every store to a result one element further."""

    def visit(node: object) -> object:
        match node:
            case Store() if node.buffer in nest.writes:
                return replace(node, indices=(*node.indices[:-1], add(node.indices[-1], const(1))))
            case For() | Alloc():
                return replace(node, body=tuple(map(visit, node.body)))
            case If():
                return replace(node, then=tuple(map(visit, node.then)), otherwise=tuple(map(visit, node.otherwise)))
        return node

    return replace(nest, kernels=tuple(replace(k, body=tuple(map(visit, k.body))) for k in nest.kernels))


def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "scheduled", failing(KeyError("u")))
    built_with_one_warning()
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        te.build(BLEND, [X, W])


def test_another_process_that_finds_the_code_says_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(stages, "scheduled", failing(KeyError("u")))
    _, first = built_with_one_warning()
    forget()
    monkeypatch.setattr(fallback, "_said", set())
    monkeypatch.undo()
    monkeypatch.setenv("TENSOREXPR_STRICT", "0")
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(fallback, "_said", set())
    made, again = built_with_one_warning()
    assert again == first and made.schedule.origin == stages.PLAIN
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)


def test_where_no_report_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback.tempfile, "mkstemp", failing(OSError(28, "No space left on device")))
    monkeypatch.setattr(stages, "scheduled", failing(KeyError("u")))
    made, message = built_with_one_warning()
    np.testing.assert_allclose(made(*ARRAYS), RIGHT, rtol=1e-12)
    assert message.endswith("please report it.")


def test_strict_raises_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_STRICT", "1")
    monkeypatch.setattr(stages, "scheduled", failing(KeyError("u")))
    with pytest.raises(KeyError):
        te.build(BLEND, [X, W])


def test_where_no_form_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lowered", "_plainly"):
        monkeypatch.setattr(stages, name, failing(KeyError("u")))
    monkeypatch.setattr(stages, "plain_nest", failing(KeyError("v")))
    with pytest.raises(InternalError, match=r"blend: expected code in some form, got KeyError: 'u' for the default schedule") as caught:
        te.build(BLEND, [X, W])
    assert re.search(r"please report it with \S+", str(caught.value))


def test_what_is_the_users_to_mend_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (te.TargetError("expected a GPU"), te.ArgumentError("expected a number of MiB")):
        monkeypatch.setattr(stages, "scheduled", failing(error))
        with pytest.raises(type(error), match="expected"):
            te.build(BLEND, [X, W])


def test_the_schedule_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "scheduled", failing(KeyError("u")))
    with pytest.warns(te.FallbackWarning, match="blend"):
        assert te.autoschedule(BLEND).origin == stages.PLAIN


def test_a_text_that_the_compiler_of_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def first_refused(text: str, arch: str) -> nvrtc.Compiled:
        texts.append(text)
        if len(texts) == 1:
            raise InternalError("cuda: expected text that NVRTC takes, got error")
        return nvrtc.Compiled(arch, b"", "", "", {})

    monkeypatch.setattr(gpu_code.nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(gpu_code.nvrtc, "compile_text", first_refused)
    a, b = (te.placeholder((256, 256), name=name) for name in "ab")
    c = te.compute((256, 256), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], 256), name="c")
    code = gpu_code.GpuCode.of_schedule(te.autoschedule(c, "cuda", [a, b]))
    before = code.source.text
    with pytest.warns(te.FallbackWarning, match=r"c: the text of its kernels could not be made \(cuda: expected text that NVRTC takes"):
        code.compiled("sm_90")
    assert texts == [before, code.source.text] and before != code.source.text and code.schedule.origin == stages.PLAIN


def test_a_gradient_that_cannot_be_derived_by_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulate, "invert_read", failing(KeyError("u")))
    x = te.placeholder((9,), "float64", name="x")
    y = te.compute((7,), lambda i: x[i] * x[i + 2], name="y")
    h = te.placeholder((7,), "float64", name="h")
    with pytest.warns(
        te.FallbackWarning, match=r"y: its gradient by gathers could not be made \(KeyError: 'u'\)\. Its gradient by scatters"
    ):
        gradient = te.gradient(y, x, h)
    assert [row.lowering for row in gradient.report().rows] == ["atomics"] * 2
    values, head = np.arange(9.0), np.arange(7.0) + 1
    expected = np.zeros(9)
    expected[:7] += head * values[2:]
    expected[2:] += head * values[:7]
    np.testing.assert_allclose(te.build(gradient[0], [x, h])(values, head), expected)


def test_a_gradient_by_gathers_that_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a gather says is a program like any other: one with an index that nothing binds is not compiled."""
    inverted = accumulate.invert_read

    def unbound(indices, axes, guards, target, reserved):
        inverse = inverted(indices, axes, guards, target, reserved)
        layers = [[replace(g, outer=(*g.outer, apply("lt", Index("nobody"), const(3)))) for g in layer] for layer in inverse.layers]
        return replace(inverse, layers=tuple(map(tuple, layers)))

    def wrong_set(indices, axes, guards, target, reserved):
        return Domain(["i"], (), ["i"])

    x, h = te.placeholder((9,), "float64", name="x"), te.placeholder((7,), "float64", name="h")
    for fault, said in (
        (unbound, "invariant 'scope': expected a bound index, got nobody"),
        (wrong_set, "inversion of a read: expected distinct names for dims and sizes, got 'i' twice"),
    ):
        monkeypatch.setattr(accumulate, "invert_read", fault)
        y = te.compute((7,), lambda i: x[i] * 2.0 + x[i + 2], name=f"y_{fault.__name__}")
        with pytest.warns(te.FallbackWarning, match=re.escape(said)):
            gradient = te.gradient(y, x, h)
        head = np.arange(7.0) + 1
        expected = np.zeros(9)
        expected[:7] += 2 * head
        expected[2:] += head
        np.testing.assert_allclose(te.build(gradient[0], [x, h])(np.zeros(9), head), expected)


def test_an_error_of_a_users_rule_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(output, inputs, head):
        return {}["no such"]

    x = te.placeholder((9,), "float64", name="x")
    y = te.compute((9,), lambda i: x[i] * x[i], name="y")
    with warnings.catch_warnings(), pytest.raises(KeyError, match="no such"):
        warnings.simplefilter("error")
        te.gradient(y, x, te.placeholder((9,), "float64", name="h"), override={y: rule})


# ------------------------------------------------------------------------------------------------- the plain form is right


def check_plain(program: te.Program, arrays: list[np.ndarray], expected: Sequence[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both plain forms, of the simplified program and of the program as written, give the values of the interpreter."""
    for stage in ("scheduled", "simplify"):
        forget()
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True):
            patch.setattr(stages, stage, failing(KeyError("u")))
            made = build_program(program)
        assert made.schedule.origin == stages.PLAIN
        for one, other in zip(made(*arrays), expected, strict=True):
            tolerance = {2: 2e-2, 4: 1e-5}.get(one.dtype.itemsize, 1e-10) if one.dtype.kind not in "biu" else 0
            np.testing.assert_allclose(one.astype(np.float64), np.asarray(other).astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", list(ALL)[:: 1 if ALL_SEEDS else 24], ids=lambda c: c.name)
def test_plain_forms_of_the_library(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, result, _ = traced(case)
    arrays = flat(case.arrays())
    check_plain(te.program_of([t for t in leaves(result) if t is not None], inputs), arrays, values(case), monkeypatch)
    if case.differentiable:
        check_plain(derived(case)[1], [*arrays, *flat(heads_of(case))], gradients(case), monkeypatch)


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_plain_forms_of_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(seed)
    arrays = random_inputs(program, seed)
    expected = evaluate_program(program, arrays)
    check_plain(program, [arrays[i.name] for i in program.inputs], [expected[n] for n in program.outputs], monkeypatch)


def test_the_plain_form_keeps_the_last_state_of_a_scan_alone() -> None:
    x = te.placeholder((64,), name="x")
    states = te.scan(lambda t, q: te.compute((64,), lambda i: q[i] * 0.5 + x[i], name="n"), x, 100, name="states")
    last = te.compute((64,), lambda i: states[99, i], name="last")
    assert "states: workspace(f32[1, 64])" in str(stages.plain_stages(te.program_of([last], [x]), host_target()).nest)
