"""`python -m tensorexpr bench threads`: every workload on every number of threads, and the table says so."""

import json

from tensorexpr.benchmarks.subjects import threads
from tensorexpr.cli.main import main


def test_the_table(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(threads.measured, "__defaults__", (0.01,))
    file = tmp_path / "made" / "threads.json"
    assert main(["bench", "threads", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["workload", "threads", "calls/s", "x", "one"]
    rows = json.loads(file.read_text())["rows"]
    assert len(lines) == 1 + len(rows) and {row["workload"] for row in rows} == set(threads.workloads())
    assert all(row["scaling"] == 1 for row in rows if row["threads"] == 1) and all(row["calls"] > 0 for row in rows)


def test_numbers_of_threads():
    assert sorted({row.threads for row in threads.measured(6, 0.005)}) == [1, 2, 4, 6]
