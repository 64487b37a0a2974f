"""The bench in another process: the same answers, and a search that goes on where a candidate crashes or hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.schedule.decisions import Choices
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning import remote
from tensorexpr.codegen.tuning.remote import Remote
from tensorexpr.codegen.tuning.search import FAILED, OK, SAME, search
from tensorexpr.codegen.tuning.timing import Job
from tensorexpr.errors import InternalError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL
from tests.codegen.tuning.test_timing import PICK

JOB = Job(parse_program(MATMUL), host_target(), {})
FOURS = Choices({"C: tile": "4 i, 3 x 16 j"})

MISBEHAVING = """
import os, sys, time
from tensorexpr.codegen.tuning import worker
from tensorexpr.codegen.tuning.timing import Timing

class Bad(Timing):
    def trial(self, choices, limit):
        match choices.get("C: tile"):
            case "4 i, 3 x 16 j":
                os.kill(os.getpid(), 11)
            case "3 i, 3 x 16 j":
                time.sleep(1000)
            case "2 i, 3 x 16 j":
                raise ValueError("of its own")
        print("what a candidate prints is no answer", flush=True)
        return super().trial(choices, limit)

worker.BENCHES = {"cpu": Bad}
worker.main()
"""


@pytest.fixture
def misbehaving(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "bad.py"
    path.write_text(MISBEHAVING)
    return (sys.executable, str(path))


def test_it_answers_as_a_bench_does():
    with Remote(JOB) as bench:
        first, other = bench.trial(Choices(), float("inf")), bench.trial(FOURS, 60.0)
        assert first.outcome == other.outcome == OK and 0 < first.seconds < 10
        assert "C: tile" in {d.name for d in first.decisions} and first.schedule != other.schedule
        rounds = bench.rounds((Choices(), FOURS), 4)
        assert len(rounds) == 4 and all(len(r) == 2 and min(r) > 0 for r in rounds)
        assert bench.trial(Choices({"C: tile": "6 i, 3 x 16 j"}), 60.0).outcome == SAME


def test_what_crashes_hangs_or_raises_has_failed_and_the_next_is_tried(misbehaving, monkeypatch):
    monkeypatch.setattr(remote, "LEAST", 1.0)
    with Remote(JOB, misbehaving) as bench:
        bench.trial(Choices(), float("inf"))
        monkeypatch.setattr(bench, "_first", 0.1)
        crashed = bench.trial(FOURS, 1e-3)
        assert (crashed.outcome, crashed.reason) == (FAILED, "ended the process with status -11")
        began = time.monotonic()
        hung = bench.trial(Choices({"C: tile": "3 i, 3 x 16 j"}), 1e-3)
        assert hung.outcome == FAILED and hung.reason.startswith("took longer than") and time.monotonic() - began < 60
        monkeypatch.setattr(remote, "LEAST", 60.0)
        raised = bench.trial(Choices({"C: tile": "2 i, 3 x 16 j"}), 1e-3)
        assert (raised.outcome, raised.reason) == (FAILED, "ValueError: of its own")
        assert bench.trial(Choices({"C: parallel": "yes"}), 60.0).outcome == OK
        assert len(bench.rounds((Choices(), Choices({"C: parallel": "yes"})), 2)) == 2
        assert bench.rounds((Choices(), Choices({"no": "such"})), 1)


def test_a_search_goes_on_behind_a_crash(misbehaving, monkeypatch):
    monkeypatch.setattr(remote, "LEAST", 2.0)
    with Remote(JOB, misbehaving) as bench:
        found = search(bench, 8.0, first=[FOURS])  # a candidate that hangs takes 3.4
    assert found.trials[1].outcome == FAILED and len(found.trials) > 3
    assert sum(t.outcome == OK for t in found.trials) > 1


def test_a_model_that_cannot_be_measured_is_told():
    ids = (np.zeros(9, np.float32), np.full(20, 9))
    reason = "tune: expected an operation that runs, got OutOfBoundsError: Y: expected an index of table"
    with Remote(Job(parse_program(PICK), host_target(), {}, ids)) as bench, pytest.raises(te.ArgumentError, match=reason):
        bench.trial(Choices(), float("inf"))
    reason = "tune: the default schedule of C cannot be measured: ended the process with status 0"
    with Remote(JOB, (sys.executable, "-c", "")) as bench, pytest.raises(InternalError, match=reason):
        bench.trial(Choices(), float("inf"))


def test_nothing_is_left_running():
    with Remote(JOB) as bench:
        bench.trial(Choices(), float("inf"))
        process = bench._process
        assert process is not None and process.poll() is None
    assert process.poll() is not None
