"""Files of records: what is written is read, what is damaged or foreign is passed over and told, writers do not lose each other's work."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tensorexpr as te
from tensorexpr.codegen.schedule.decisions import Choices
from tensorexpr.codegen.target import H200, host_target
from tensorexpr.codegen.tuning import records
from tensorexpr.codegen.tuning.records import Record, machine_digest, machine_facts, merged, read, write

RECORD = Record(
    operation="a1",
    machine={"cpu": "zen5", "cores": 2, "threads": 2},
    target="cpu",
    version="0.1.0",
    choices=Choices({"C: tile": "6 i, 64 j"}),
    schedule=("s['C'].split('i', 6, 'shift')", "s['C'].unroll('i_i')"),
    program="p1",
    shapes=("A: f32[12, 8]",),
    baseline="b1",
    seconds=0.5e-3,
    baseline_seconds=1e-3,
    reassociated=False,
    tried=7,
    date="2026-11-20T10:00:00+00:00",
)


def other(number: int) -> Record:
    return replace(RECORD, operation=f"op{number}")


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tuning.jsonl"
    assert write(path, [RECORD, other(1)]) == 2
    assert read(path) == [RECORD, other(1)]
    assert json.loads(path.read_text().splitlines()[0]) == {"format": "tensorexpr tuning", "version": 1}
    assert json.loads(path.read_text().splitlines()[1])["schedule"] == list(RECORD.schedule)
    assert RECORD.speedup == 2.0
    assert [p.name for p in path.parent.iterdir() if p.suffix == ".jsonl"] == ["tuning.jsonl"]


def test_the_younger_of_two_counts_in_any_order_of_files() -> None:
    younger = replace(RECORD, seconds=0.4e-3, date="2026-11-21T10:00:00+00:00")
    assert merged([RECORD, younger]) == merged([younger, RECORD]) == [younger]
    assert merged([other(2), RECORD, other(1)]) == [RECORD, other(1), other(2)]
    elsewhere = replace(RECORD, machine={**RECORD.machine, "cores": 64})
    assert len(merged([RECORD, elsewhere, replace(RECORD, target="cuda"), replace(RECORD, version="0.2.0")])) == 4


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ("[1, 2]", "expected an object, got list"),
        ("{}", "operation"),
        ('"text"', "expected an object, got str"),
        (json.dumps({**RECORD.as_data(), "choices": [1]}), "choices: got a list"),
        (json.dumps({**RECORD.as_data(), "choices": {"C: tile": 6}}), "choices: got something that is no text"),
        (json.dumps({**RECORD.as_data(), "schedule": [None]}), "schedule: got something that is no text"),
        (json.dumps({**RECORD.as_data(), "seconds": "fast"}), "seconds: got a str"),
        (json.dumps({**RECORD.as_data(), "seconds": -1.0}), "seconds: got a number that is no time"),
        (json.dumps({**RECORD.as_data(), "seconds": float("nan")}), "seconds: got a number that is no time"),
        ("\x00\xff" * 40, "Expecting value"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_lines_that_are_no_records_are_passed_over(tmp_path, caplog, line, reason):
    path = tmp_path / "tuning.jsonl"
    write(path, [RECORD])
    with path.open("a") as file:
        file.write(f"{line}\n\n{json.dumps(other(1).as_data())}\n")
    with caplog.at_level(logging.WARNING, "tensorexpr.tuning"):
        assert read(path) == [RECORD, other(1)]
    assert f"{path}:3: passed over, no record" in caplog.text and reason in caplog.text
    write(path, [other(2)])
    assert read(path) == [RECORD, other(1), other(2)] and len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("something else\n", "expected a file of format 'tensorexpr tuning', got something else"),
        ('{"format": "tensorexpr tuning", "version": 2}\n', "expected version 1 of the format, got 2"),
        ("\x7fELF", "expected a file of format 'tensorexpr tuning', got something else"),
    ],
)
def test_files_that_are_not_ours_are_left_alone(tmp_path, caplog, text, reason):
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with caplog.at_level(logging.WARNING, "tensorexpr.tuning"):
        assert read(path) == []
    assert f"{path}: not read: {reason}" in caplog.text
    with pytest.raises(te.ArgumentError, match=f"{path.name}: {reason[:20]}"):
        write(path, [RECORD])
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(te.ArgumentError, match="expected a file that can be written, got Not a directory"):
        write(tmp_path / "file" / "tuning.jsonl", [RECORD])


def test_a_cut_off_last_line_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    write(path, [RECORD, other(1)])
    path.write_bytes(path.read_bytes()[:-40])
    assert read(path) == [RECORD]


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "tuning.jsonl"
    code = (
        "import sys; from pathlib import Path; from tests.codegen.tuning.test_records import other; "
        "from tensorexpr.codegen.tuning.records import write\n"
        f"for n in range(10): write(Path({str(path)!r}), [other(int(sys.argv[1]) * 10 + n)])"
    )
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(k)], cwd=root, env=environment) for k in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert {record.operation for record in read(path)} == {f"op{n}" for n in range(40)}
    assert not list(tmp_path.glob(".tuning.jsonl-*"))


# -------------------------------------------------------------------------------------------------------------- places


def test_files_are_named_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSOREXPR_TUNING", f"{tmp_path}/a.jsonl{os.pathsep}{os.pathsep}{tmp_path}/b.jsonl")
    assert records.places() == (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    monkeypatch.setenv("TENSOREXPR_TUNING", "")
    assert records.places() == ()
    monkeypatch.delenv("TENSOREXPR_TUNING")
    assert records.places() == ()  # the tests keep nothing on disk
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path / "cache"))
    assert records.places() == (tmp_path / "cache" / "tuning.jsonl",)


def test_records_are_found_by_operation_and_machine_earlier_files_first(monkeypatch, tmp_path):
    mine = replace(RECORD, machine=machine_facts(host_target()), version=te.__version__)
    slower = replace(mine, seconds=0.9e-3, date="2027-01-01T00:00:00+00:00")
    write(tmp_path / "a.jsonl", [mine])
    write(tmp_path / "b.jsonl", [slower, replace(mine, operation="a2"), replace(other(3), version=te.__version__)])
    monkeypatch.setenv("TENSOREXPR_TUNING", f"{tmp_path}/a.jsonl{os.pathsep}{tmp_path}/absent.jsonl{os.pathsep}{tmp_path}/b.jsonl")
    assert records.find("a1", host_target()) == (mine, tmp_path / "a.jsonl")
    assert records.find("a2", host_target()) == (replace(mine, operation="a2"), tmp_path / "b.jsonl")
    assert records.find("op3", host_target()) is None  # of another machine
    assert records.find("a1", H200) is None
    write(tmp_path / "a.jsonl", [slower])
    assert records.find("a1", host_target()) == (slower, tmp_path / "a.jsonl")  # read again
    monkeypatch.setenv("TENSOREXPR_NUM_THREADS", "1")
    assert records.find("a1", host_target()) is None


def test_a_machine_is_its_features_cores_threads_and_caches():
    facts = machine_facts(host_target())
    assert {"cpu", "features", "vector_bits", "cores", "threads", "l1_bytes", "l2_bytes", "l3_bytes"} <= set(facts)
    assert machine_digest(facts) == machine_digest(dict(reversed(facts.items()))) != machine_digest({**facts, "cores": 999})
    gpu = machine_facts(H200)
    assert gpu["arch"] == "sm_90" and "cpu" not in gpu and "threads" in gpu


def test_a_pipe_is_not_waited_for(tmp_path, caplog):
    os.mkfifo(tmp_path / "pipe")
    with caplog.at_level(logging.WARNING, "tensorexpr.tuning"):
        assert read(tmp_path / "pipe") == []
    assert f"{tmp_path / 'pipe'}: not read: no plain file" in caplog.text
