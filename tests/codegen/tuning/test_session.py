"""`te.tune` and what it keeps, on a bench without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.tuning import session
from tensorexpr.codegen.tuning.records import read
from tensorexpr.codegen.tuning.search import OK, OTHER_BITS
from tensorexpr.codegen.tuning.session import TuningResult, duration, tune_program
from tensorexpr.codegen.tuning.timing import Job, Timing, build_function
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import needs_compiler
from tests.codegen.tuning.test_lookup import product
from tests.codegen.tuning.test_search import Clock


def scripted(seconds: Callable[[str], float]) -> Callable[[Job], Any]:
    """A bench in this process that builds and checks for real, where a call takes what a function of the schedule's calls says."""

    class Scripted(Timing):
        def __init__(self, job: Job) -> None:
            clock = Clock()

            def make(schedule: te.Schedule) -> Callable[..., Any]:
                function = build_function(schedule)

                def run(*inputs: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
                    function(*inputs, out=out)
                    clock.now += seconds(schedule.as_python())

                return run

            super().__init__(job, clock, make)

        def close(self) -> None:
            pass

    return Scripted


def tens_are_faster(calls: str) -> float:
    return 0.5e-3 if "split('i', 10" in calls else 1e-3


@pytest.fixture
def bench(monkeypatch):
    """Replaces the process of `te.tune`, and the clock of its search."""

    def use(seconds: Callable[[str], float], budget: float = 3.0) -> None:
        clock = Clock()

        def tick() -> float:
            clock.now += 0.02
            return clock.now

        plain = session.search
        monkeypatch.setattr(session, "search", lambda *args, **options: plain(*args, **{**options, "clock": tick}))
        monkeypatch.setattr(tune_program, "__kwdefaults__", {**tune_program.__kwdefaults__, "bench": scripted(seconds)})

    return use


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSOREXPR_TUNING", str(tmp_path / "tuning.jsonl"))
    return tmp_path / "tuning.jsonl"


def test_what_is_found_is_kept_and_used_and_no_bit_changes(bench, file):
    c, inputs = product(20, 70, 100)
    arrays = [np.random.default_rng(1).random(t.shape, np.float32) for t in inputs]
    before = te.build(c, inputs)(*arrays)
    bench(tens_are_faster)
    result = te.tune(c, inputs, budget=1.0)
    assert result.improved and result.speedup == pytest.approx(2.0) and result.path == file
    assert result.choices["c: contraction"].startswith("10 i, ")
    (record,) = read(file)
    assert record == result.record and record.schedule == result.schedule.calls[-1].arguments
    assert record.shapes == ("a: f32[20, 70]", "b: f32[70, 100]") and not record.reassociated
    after = te.build(c, inputs)
    assert after.schedule.origin.startswith("tuned: 2.00x") and after.schedule.as_python() == result.schedule.as_python()
    assert after(*arrays).tobytes() == before.tobytes() == te.build(result.schedule, inputs)(*arrays).tobytes()


def test_a_result_reads_well(bench, file):
    c, inputs = product(20, 70, 100)
    bench(tens_are_faster)
    text = str(te.tune(c, inputs, budget=1.0))
    assert text.startswith("# c: ") and "2.00x of the model's schedule: 1 ms before, 500 us now" in text
    assert "#   c: contraction: 10 i, " in text and f"# kept in {file}" in text
    again = te.schedule(c, inputs=inputs)
    exec(text, {"s": again})  # the calls, behind comments
    assert "i_i" in again["c"].loops


def test_the_model_stays_where_nothing_is_faster_and_that_is_kept_too(bench, file):
    c, inputs = product(20, 70, 100)
    bench(lambda calls: 1e-3)
    result = te.tune(c, inputs, budget=1.0)
    assert not result.improved and result.speedup == 1.0 and "none is faster than the model's own, 1 ms" in str(result)
    assert te.build(c, inputs).schedule.origin.startswith("the analytic model, the best of")
    assert result.schedule == te.autoschedule(c, inputs=inputs)


def test_a_second_session_starts_from_the_first(bench, file):
    c, inputs = product(20, 70, 100)
    bench(tens_are_faster)
    first = te.tune(c, inputs, budget=1.0)
    seen: list[str] = []
    second = te.tune(c, inputs, budget=0.2, progress=lambda progress: seen.append(progress.now))
    assert second.choices == first.choices and seen[1] == "; ".join(f"{n}: {w}" for n, w in first.choices.items())


def test_sums_in_another_order_ask_for_leave(bench, file):
    x = te.placeholder((64, 70), name="x")
    c, inputs = te.compute((64,), lambda i: te.sum(lambda r: x[i, r], 70), name="c"), [x]
    assert "vectorize('r" in te.autoschedule(c).as_python()
    bench(lambda calls: 0.4e-3 if "vectorize('i" in calls else 1e-3)
    kept = te.tune(c, inputs, budget=4.0)
    assert not kept.improved and kept.outcomes[OTHER_BITS] >= 1
    allowed = te.tune(c, inputs, budget=4.0, reassociate=True)
    assert allowed.improved and read(file)[0].reassociated and "vectorize('i" in allowed.schedule.as_python()
    assert "sums in another order" in te.build(c, inputs).schedule.origin
    again = te.tune(c, inputs, budget=0.2)  # without leave, what was found with it is no start
    assert not again.improved


def test_the_later_of_two_sessions_within_a_second_is_kept(bench, file):
    c, inputs = product(20, 70, 100)
    for faster in (tens_are_faster, lambda calls: 1e-3) * 2:
        bench(faster)
        found = te.tune(c, inputs, budget=0.5)
        assert read(file) == [found.record]


def test_ops_are_tuned_by_specs_or_arrays(bench, file):
    @te.op
    def scaled(x, *, by=2.0):
        return te.compute(x.shape, lambda i: te.exp(x[i]) * by)

    bench(lambda calls: 1e-3)
    by_spec = te.tune(scaled, [((100,), "float32")], budget=0.3, static={"by": 3.0})
    assert by_spec.outcomes[OK] >= 1 and by_spec.record.shapes == ("x: f32[100]",)
    assert te.tune(scaled, [np.ones(100, np.float32)], budget=0.3).record.operation == by_spec.record.operation
    gradient = te.tune(te.vjp(scaled), [((100,), "float32"), ((100,), "float32")], budget=0.3)
    assert gradient.record.shapes == ("x: f32[100]", "head: f32[100]")
    assert te.vjp(scaled).compile(((100,), "float32"), ((100,), "float32")).schedule.origin.startswith("the analytic model, the best of")


def test_open_extents_are_tuned_at_numbers_and_used_at_all(bench, file):
    n = te.dim("n")
    x = te.placeholder((n, 40), name="x")
    y = te.compute((n,), lambda i: te.max(lambda k: x[i, k], 40), name="y")
    bench(lambda calls: 1e-3)
    with pytest.raises(te.ArgumentError, match="tune: expected a number for each size to measure with, got none for n"):
        te.tune(y, [x], budget=1.0)
    assert te.tune(y, [x], budget=0.5, sizes={"n": 33}).record.shapes == ("x: f32[n, 40]",)
    assert te.build(y, [x]).schedule.origin.startswith("the analytic model, the best of")


def test_nothing_is_kept_where_there_is_no_place(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSOREXPR_TUNING", "")
    c, inputs = product(20, 70, 100)
    bench(tens_are_faster)
    result = te.tune(c, inputs, budget=1.0)
    assert result.path is None and "# not kept in a file" in str(result)
    chosen = te.tune(c, inputs, budget=1.0, output=tmp_path / "mine.jsonl")
    assert chosen.path == tmp_path / "mine.jsonl" and len(read(chosen.path)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "te.tune: expected a budget in seconds, more than 0, got 0"),
        ({"budget": "long"}, "te.tune: expected a budget in seconds, more than 0, got 'long'"),
        ({"budget": True}, "te.tune: expected a budget in seconds, more than 0, got True"),
        ({"static": {"by": 1}}, "te.tune: expected static arguments with an op alone, got some with tensors"),
    ],
)
def test_wrong_options_are_refused(options, message):
    c, inputs = product(20, 70, 100)
    with pytest.raises(te.ArgumentError, match=message):
        te.tune(c, inputs, **options)
    with pytest.raises(te.TargetError, match="expected a target, one of cpu, cuda, got 'tpu'"):
        te.tune(c, inputs, target="tpu")
    with pytest.raises(te.DefinitionError, match=r"te.tune: expected a te tensor or a list of them, got the int 3 in it"):
        te.tune([3])


def test_a_file_that_cannot_be_written_is_told_before_the_time_is_spent(bench, tmp_path):
    (tmp_path / "mine.txt").write_text("something else")
    c, inputs = product(20, 70, 100)
    bench(lambda calls: pytest.fail("measured"))
    with pytest.raises(te.ArgumentError, match="expected a file of format 'tensorexpr tuning', got something else"):
        te.tune(c, inputs, output=tmp_path / "mine.txt")


def test_for_real():
    """In another process, on this machine: whatever is found, results stay."""
    c, inputs = product(40, 64, 48)
    arrays = [np.random.default_rng(1).random(t.shape, np.float32) for t in inputs]
    result = te.tune(c, inputs, budget=0.5)
    assert isinstance(result, TuningResult) and result.tried >= 1 and result.path is None
    assert te.build(result.schedule, inputs)(*arrays).tobytes() == te.build(c, inputs)(*arrays).tobytes()
    assert simplify(te.program_of([c], inputs)) == result.schedule.program


@needs_compiler
def test_a_gpu_is_tuned_in_the_same_way(file, monkeypatch):
    """Kernels run on this CPU through the shim; the search, the records and what builds make of them are those of any machine."""
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    x = te.placeholder((3, 40), name="x")
    y = te.compute((3,), lambda i: te.sum(lambda k: x[i, k] * 2.0, 40), name="y")
    result = te.tune(y, [x], target="cuda", precision="tf32", budget=6.0)
    assert result.tried > 1 and result.record.target == "cuda" and result.record.machine["arch"] == "sm_90"
    assert result.record.machine["precision"] == "tf32"
    built = te.build(y, [x], target="cuda", precision="tf32")
    assert built.schedule.as_python() == result.schedule.as_python() and str(file) in built.schedule.origin
    assert te.build(y, [x]).schedule.origin == "the analytic model"


@pytest.mark.parametrize(("seconds", "text"), [(2.0, "2 s"), (1.5e-3, "1.5 ms"), (4.2e-5, "42 us"), (2.5e-7, "0.25 us")])
def test_durations(seconds, text):
    assert duration(seconds) == text
