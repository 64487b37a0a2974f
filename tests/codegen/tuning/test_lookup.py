"""What builds make of records: used where they fit, passed over where they do not, and never another bit."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning import records
from tensorexpr.codegen.tuning.lookup import calls_digest, program_digest
from tensorexpr.codegen.tuning.operation import operation_of
from tensorexpr.codegen.tuning.records import Record, machine_facts, write
from tensorexpr.ir import Program
from tensorexpr.simplify import simplify
from tests.codegen.schedule.test_decisions import wandered
from tests.codegen.tuning.test_records import RECORD
from tests.random_programs import random_program
from tests.seeds import share_of

TENS = Choices({"c: contraction": "10 i, 1 vectors of j"})
LANES = Choices({"c: planned as a contraction": "no", "c: lanes along": "r", "c: tile": "no such word"})


def product(n: int, k: int, m: int) -> tuple[te.Tensor, list[te.Tensor]]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k), name="c"), [a, b]


def program_of(n: int, k: int, m: int) -> Program:
    c, inputs = product(n, k, m)
    return simplify(te.program_of([c], inputs))


def record_of(program: Program, choices: Choices, **changes: object) -> Record:
    """What tuning would write, had it found these choices."""
    target = host_target()
    return replace(
        RECORD,
        operation=operation_of(program).digest,
        machine=machine_facts(host_target()),
        version=te.__version__,
        choices=choices,
        schedule=tuple(autoschedule(program, target, Decisions(choices)).as_python().splitlines()),
        program=program_digest(program),
        baseline=calls_digest(autoschedule(program, target)),
        **changes,
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSOREXPR_TUNING", str(tmp_path / "tuning.jsonl"))
    return tmp_path / "tuning.jsonl"


def built(n: int, k: int, m: int) -> tuple[te.CompiledFunction, np.ndarray]:
    c, inputs = product(n, k, m)
    f = te.build(c, inputs)
    rng = np.random.default_rng(0)
    return f, f(rng.random((n, k), np.float32), rng.random((k, m), np.float32))


def test_a_build_uses_the_record_of_its_operation(file, caplog):
    plain, expected = built(20, 70, 100)
    assert plain.schedule.origin == "the analytic model"
    write(file, [record_of(program_of(20, 70, 100), TENS)])
    with caplog.at_level(logging.INFO, "tensorexpr.tuning"):
        tuned, found = built(20, 70, 100)
        assert tuned.schedule.origin == f"tuned: 2.00x of the analytic model on 2026-11-20 ({file})"
    assert f"c: tuned schedule, 2.00x when measured, {file}" in caplog.text
    assert "s['c'].split('i', 10" in tuned.schedule.as_python() and tuned.schedule != plain.schedule
    assert found.tobytes() == expected.tobytes()
    c, inputs = product(20, 70, 100)
    s = te.autoschedule(c, inputs=inputs)
    assert s.origin == tuned.schedule.origin and s.as_python() == tuned.schedule.as_python()
    file.unlink()
    assert built(20, 70, 100)[0].schedule == plain.schedule


def test_other_extents_of_the_class_share_it_and_others_do_not(file):
    write(file, [record_of(program_of(20, 70, 100), TENS)])
    for shape, tuned in (((31, 127, 65), True), ((20, 140, 100), False), ((20, 70, 96), False)):
        f, found = built(*shape)
        assert f.schedule.origin.startswith("tuned") is tuned
        records._tables.clear()
        file_text = file.read_text()
        file.unlink()
        assert found.tobytes() == built(*shape)[1].tobytes()
        file.write_text(file_text)


def test_sums_in_another_order_are_used_with_leave_alone(file, caplog):
    record = record_of(program_of(20, 70, 100), LANES)
    write(file, [record])
    with caplog.at_level(logging.INFO, "tensorexpr.tuning"):
        assert built(31, 127, 65)[0].schedule.origin == "the analytic model"
    assert "not used: made for other extents, its sums are in another order here" in caplog.text
    write(file, [replace(record, reassociated=True)])
    f, _ = built(31, 127, 65)
    assert "sums in another order" in f.schedule.origin and "vectorize('r_i')" in f.schedule.as_python()


@pytest.mark.parametrize("changes", [{"baseline": "another"}, {"schedule": ("s['c'].parallel('i')",)}])
def test_a_record_from_before_the_model_changed_is_not_used(file, caplog, changes):
    write(file, [replace(record_of(program_of(20, 70, 100), TENS), **changes)])
    with caplog.at_level(logging.INFO, "tensorexpr.tuning"):
        assert built(20, 70, 100)[0].schedule.origin == "the analytic model"
    assert f"c: record in {file} not used: the model has changed since" in caplog.text


def test_where_the_model_was_best_it_stays_and_says_so(file):
    write(file, [record_of(program_of(20, 70, 100), Choices())])
    f, _ = built(20, 70, 100)
    assert f.schedule.origin == f"the analytic model, the best of 7 schedules measured 2026-11-20 ({file})"


@pytest.mark.parametrize("changes", [{"version": "0.0.9"}, {"target": "cuda"}, {"machine": {"cpu": "another"}}])
def test_records_of_others_are_not_used(file, changes):
    write(file, [replace(record_of(program_of(20, 70, 100), TENS), **changes)])
    assert built(20, 70, 100)[0].schedule.origin == "the analytic model"


def test_files_are_read_when_something_is_compiled_and_not_when_it_is_called(file, monkeypatch):
    write(file, [record_of(program_of(20, 70, 100), TENS)])

    @te.op
    def c(a, b):
        return product(20, 70, 100)[0] if False else te.compute((20, 100), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], 70))

    arrays = np.ones((20, 70), np.float32), np.ones((70, 100), np.float32)
    c(*arrays)
    monkeypatch.setattr(records, "places", lambda: pytest.fail("looked for files in a call"))
    c(*arrays)


def test_a_record_rebuilds_the_schedule_it_tells(file):
    """For any program, and any choices that keep the order of sums: the schedule of the record, with the same results."""
    for seed in share_of(range(25)):
        program = simplify(random_program(seed))
        choices = wandered(program, __import__("random").Random(seed), 2)
        record = record_of(program, choices, reassociated=True)
        file.unlink(missing_ok=True)
        write(file, [record])
        from_file, _ = records.find(operation_of(program).digest, host_target()) or (None, None)
        assert from_file == record
        again = autoschedule(program, host_target(), Decisions(from_file.choices))
        assert tuple(again.as_python().splitlines()) == record.schedule


PROGRAM = """
import logging, sys
logging.basicConfig(stream=sys.stderr, level=logging.DEBUG)
import tensorexpr as te
from tests.codegen.tuning.test_lookup import product
c, inputs = product(20, 70, 100)
f = te.build(c, inputs)
print("simplify" if "stages" in f._look.__dict__ else "found")
print(f.schedule.origin)
"""


def test_code_of_tuned_schedules_is_kept_apart_on_disk(tmp_path):
    root = Path(__file__).resolve().parents[3]
    file = tmp_path / "tuning.jsonl"

    def run(tuning: str) -> list[str]:
        environment = {**os.environ, "TENSOREXPR_CACHE_DIR": str(tmp_path / "cache"), "TENSOREXPR_TUNING": tuning, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    write(file, [record_of(program_of(20, 70, 100), TENS)])
    tuned = f"tuned: 2.00x of the analytic model on 2026-11-20 ({file})"
    assert run("") == ["simplify", "the analytic model"]
    assert run(str(file)) == ["simplify", tuned]
    assert run(str(file)) == ["found", tuned]
    assert run("") == ["found", "the analytic model"]
