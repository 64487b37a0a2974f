"""The benchmark of derivations: it measures what it says, lists what is not exact, and writes the same as JSON."""

from __future__ import annotations

import json

import pytest

import tensorexpr as te
from tensorexpr.autodiff import Row
from tensorexpr.benchmarks import operations
from tensorexpr.benchmarks.samples import library
from tensorexpr.benchmarks.subjects import derivation
from tensorexpr.cli.main import main

EXACT = Row("x", "y", "x[i]", "substitute", 8, 8)
TWICE = Row("x", "y", "x[t[i]]", "segments", 16, 8)
FOUND = [
    derivation.Derivation("plain", 0.001, 0.002, 0.001, (EXACT,)),
    derivation.Derivation("gathered", 0.001, 0.02, 0.03, (EXACT, TWICE)),
]


def test_one_operation():
    a, b = te.placeholder((4, 5), name="a"), te.placeholder((5, 6), name="b")
    found = derivation.measured("matmul", lambda: operations.matmul(a, b), [a, b])
    assert min(found.trace, found.derive, found.simplify) > 0
    assert [(row.tensor, row.iterations, row.reads) for row in found.rows] == [("a", 120, 120), ("b", 120, 120)]
    assert found.counted("reads") == 240 and found.lowerings == ("substitute",) and not found.exceptions


def test_the_table():
    assert derivation.table(FOUND).splitlines() == [
        "case       trace ms derive ms simplify ms  rows  lowering               iterations    reads  ratio",
        "plain           1.0       2.0         1.0     1  substitute                      8        8   1.00",
        "gathered        1.0      20.0        30.0     2  substitute, segments           24       16   1.50",
    ]


def test_the_summary_lists_what_is_not_exact_and_what_depends_on_data():
    assert derivation.summary(FOUND).splitlines() == [
        "2 cases, 3 reads: 2 substitute, 1 segments",
        "derive and simplify: median 26.5 ms (meant to be under 100.0 ms), 95 % under 50.0 ms, most 50.0 ms",
        "slowest: gathered 50.0 ms, plain 3.0 ms",
        "iterations / reads is 1.00 in 2 of 2 affine reads",
        "  not 1.00: gathered: x at x[t[i]]: 16 / 8 (segments)",
        "  segments: gathered: x at x[t[i]]",
    ]


def test_the_command_runs_the_table_and_writes_json(monkeypatch, capsys, tmp_path):
    chosen = derivation.cases()[:3]
    monkeypatch.setattr(derivation, "cases", lambda: chosen)
    path = tmp_path / "found.json"
    assert main(["bench", "derivation", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert all(case.name in out for case in chosen) and "with the extents: matmul 8x8 " in out
    document = json.loads(path.read_text())
    assert [case["case"] for case in document["cases"]] == [case.name for case in chosen]
    assert all(row["iterations"] == row["reads"] for case in document["cases"] for row in case["rows"])


def test_without_the_repository_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "__file__", str(tmp_path / "benchmarks" / "samples" / "library.py"))
    with pytest.raises(te.ArgumentError, match="bench derivation: expected a checkout of the repository, got an installed package"):
        derivation.cases()
