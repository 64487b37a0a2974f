"""`profile` as a user runs it."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_cli import FILE, run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ops.py"
    path.write_text(FILE)
    return path


def test_an_operation_is_profiled_and_its_page_and_trace_written(capsys, file, tmp_path):
    page, trace = tmp_path / "p.html", tmp_path / "p.json"
    arguments = ("f32[40, 30]", "f32[30, 50]", "--seconds", "0.02", "--save", str(page), "--save", str(trace))
    status, out, _ = run(capsys, "profile", f"{file}:matmul", *arguments)
    assert status == 0 and out.startswith("matmul: ") and "roofline" in out and "ops.py:" in out
    assert page.read_text().startswith("<!doctype html>") and json.loads(trace.read_text())["traceEvents"]


def test_a_gradient_is_profiled_at_numbers_for_open_extents_and_told_to_machines(capsys, file):
    arguments = ("f64[3, n]", "--static", "by=3.0", "--size", "n=50", "--gradient", "--seconds", "0.02", "--json")
    status, out, _ = run(capsys, "profile", f"{file}:scaled", *arguments)
    found = json.loads(out)
    assert status == 0 and found["kernels"][-1]["bytes"] == 2 * 8 * 150 and found["lines"] and found["definitions"]


def test_errors_say_what_is_missing(capsys, file):
    status, _, err = run(capsys, "profile", f"{file}:matmul")
    assert status == 1 and "matmul: expected a spec like f32[8, 3] for each argument, got none" in err
    status, _, err = run(capsys, "profile", f"{file}:scaled", "f64[3, n]", "--static", "by=3.0")
    assert status == 1 and "scaled: expected numbers for the sizes n, got none" in err and "--size n=1000" in err


def test_an_operation_whose_axes_go_together(tmp_path, capsys):
    """The simplified program has one axis where the operation has two; what is called has two."""
    path = tmp_path / "ops.py"
    path.write_text("import tensorexpr as te\n@te.op\ndef twice(x):\n    return te.compute(x.shape, lambda i, j: x[i, j] * 2)\n")
    status, out, _ = run(capsys, "profile", f"{path}:twice", "f32[4, 6]", "--seconds", "0.01")
    assert status == 0 and "twice: " in out
