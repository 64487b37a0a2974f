"""`tune` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tensorexpr.cli import tune
from tensorexpr.cli.main import main
from tensorexpr.codegen.tuning.records import read, write
from tensorexpr.codegen.tuning.search import Progress
from tests.cli.test_cli import FILE, run
from tests.codegen.tuning.test_records import RECORD, other


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSOREXPR_TUNING", str(tmp_path / "tuning.jsonl"))
    path = tmp_path / "ops.py"
    path.write_text(FILE)
    return path


def test_an_operation_is_tuned_and_its_schedule_printed(capsys, file, tmp_path):
    status, out, err = run(capsys, "tune", f"{file}:matmul", "f32[40, 30]", "f32[30, 50]", "--budget", "0.3")
    assert status == 0 and out.startswith("# matmul: ") and "s['matmul'].split(" in out
    assert f"# kept in {tmp_path / 'tuning.jsonl'}" in out and "the model's own schedule" in err
    assert len(read(tmp_path / "tuning.jsonl")) == 1
    _, out, _ = run(capsys, "show", f"{file}:matmul", "f32[40, 30]", "f32[30, 50]", "--stage", "calls")
    assert out.startswith(("# schedule: tuned: ", "# schedule: the analytic model, the best of ")) and "tuning.jsonl" in out


def test_a_gradient_is_tuned_as_te_vjp_calls_it_and_told_to_machines(capsys, file, tmp_path):
    arguments = (
        "f64[3, n]",
        "--static",
        "by=3.0",
        "--size",
        "n=50",
        "--gradient",
        "--budget",
        "0.2",
        "--json",
        "--output",
        tmp_path / "mine.jsonl",
    )
    status, out, _ = run(capsys, "tune", f"{file}:scaled", *arguments)
    assert status == 0
    data = json.loads(out)
    assert data["tried"] >= 1 and data["file"] == str(tmp_path / "mine.jsonl") and data["speedup"] >= 1.0
    assert {"choices", "schedule", "seconds", "baseline_seconds", "outcomes", "elapsed", "interrupted", "improved"} <= set(data)
    (record,) = read(tmp_path / "mine.jsonl")
    assert record.shapes == ("x: f64[n * 3]", "head: f64[n * 3]")


def test_a_tensor_of_the_file_and_its_gradient(capsys, file):
    for options in ((), ("--gradient",)):
        status, out, _ = run(capsys, "tune", f"{file}:doubled", "--budget", "0.1", *options)
        assert status == 0 and "schedules in" in out


def test_files_are_merged(capsys, file, tmp_path):
    write(tmp_path / "a.jsonl", [RECORD, other(1)])
    write(tmp_path / "b.jsonl", [other(1), other(2)])
    status, out, _ = run(capsys, "tune", "--merge", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--output", tmp_path / "c.jsonl")
    assert (status, out) == (0, f"{tmp_path / 'c.jsonl'}: 3 records\n")
    assert read(tmp_path / "c.jsonl") == [RECORD, other(1), other(2)]
    _, out, _ = run(capsys, "tune", "--merge", tmp_path / "a.jsonl", "--json")
    assert json.loads(out) == {"file": str(tmp_path / "tuning.jsonl"), "records": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{file}:matmul",), "matmul: expected a spec like f32[8, 3] for each argument, got none"),
        (("{file}:matmul", "f32[3]"), "expected 2 specs (a, b), got 1"),
        (("{file}:scaled", "f64[3, n]", "--size", "n"), "expected a size like n=1000, got 'n'"),
        (("{file}:scaled", "f64[3, n]"), "tune: expected a number for each size to measure with, got none for n"),
        (("--merge", "{file}.absent"), "tune --merge: expected files of records, got '{file}.absent', which is not there"),
        (("{file}:absent",), "expected an operation of {file}, got 'absent'"),
        (("{file}:doubled", "--output", "{file}"), "{file}: expected a file of format 'tensorexpr tuning', got something else"),
    ],
)
def test_errors_of_the_user(capsys, file, arguments, message):
    status, out, err = run(capsys, "tune", *(a.format(file=file) for a in arguments), "--budget", "0.1")
    assert (status, out) == (1, "") and message.format(file=file) in err and "Traceback" not in err


def test_a_merge_needs_a_place(capsys, file, tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", [RECORD])
    monkeypatch.setenv("TENSOREXPR_TUNING", "")
    status, _, err = run(capsys, "tune", "--merge", tmp_path / "a.jsonl")
    assert status == 1 and "tune --merge: expected a file to write, got none" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "tune: expected either FILE:OP or --merge FILE ..."),
        (("x.py:f", "--merge", "a"), "tune: expected either FILE:OP or --merge FILE ..."),
        (("x.py:f", "--budget", "0"), "expected a number of seconds, got '0'"),
        (("x.py:f", "--budget", "long"), "expected a number of seconds, got 'long'"),
        (("x.py:f", "--precision", "float16"), "argument --precision: invalid choice: 'float16' (choose from"),
        (("x.py:f", "--target", "tpu"), "argument --target: invalid choice: 'tpu' (choose from"),
        (("x.py:f", "--colour"), "unrecognized arguments: --colour"),
    ],
)
def test_command_lines_that_cannot_be_read(capsys, arguments, message):
    with pytest.raises(SystemExit) as done:
        main(["tune", *arguments])
    assert done.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="signals of another kind")
def test_an_interrupt_keeps_the_best_so_far(file, tmp_path):
    command = [sys.executable, "-m", "tensorexpr", "tune", f"{file}:matmul", "f32[60, 70]", "f32[70, 80]", "--budget", "600", "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while "tried" not in running.stderr.readline():
        assert running.poll() is None
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    data = json.loads(out)
    assert running.returncode == 0 and data["interrupted"] and data["elapsed"] < 300 and "Traceback" not in err
    assert len(read(tmp_path / "tuning.jsonl")) == 1


def test_progress_is_a_line_where_something_is_new(capsys):
    tell = tune._Lines()
    tell(Progress(0.0, 20.0, 0, float("inf"), float("inf"), "the model's own schedule"))
    for elapsed, best in ((1.0, 2e-3), (1.5, 2e-3), (2.0, 1e-3), (9.0, 1e-3)):
        tell(Progress(elapsed, 20.0, 7, 2e-3, best, "c: tile: 6 i"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "  0.0 s  the model's own schedule" and len(lines) == 4
    assert lines[2] == "  2.0 s  7 tried, 2 ms -> 1 ms (2.00x)  c: tile: 6 i"


def test_a_terminal_shows_a_bar(file):
    command = [sys.executable, "-m", "tensorexpr", "tune", f"{file}:doubled", "--budget", "0.5"]
    code = f"import pty, sys; sys.exit(pty.spawn({command!r}))"
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, env=environment
    )
    assert "tuning" in done.stdout and "\x1b[" in done.stdout and "schedules in" in done.stdout
