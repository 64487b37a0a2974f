"""`python -m tensorexpr bench interop`: every call is right, every library that is there is timed, and the table says so."""

import importlib
import json

import numpy as np
import pytest

from tensorexpr.benchmarks.subjects import interop
from tensorexpr.cli.main import main


@pytest.mark.parametrize("host", interop.HOSTS)
def test_the_calls_of_a_library_are_right(host):
    if host not in interop.installed():
        pytest.skip(f"{host} is not installed")
    calls = importlib.import_module(f"tensorexpr.benchmarks.calls.with_{host}").calls()
    first = next(iter(calls))
    assert first == "x * x"
    expected = np.linspace(0, 1, 8, dtype=np.float32) ** 2
    for name, call in calls.items():
        result = call()
        result = result[0] if isinstance(result, tuple) else result
        result = np.asarray(result.detach() if hasattr(result, "detach") else result)
        wanted = 2 * np.sqrt(expected) if name.endswith(", and back") else 2 * expected if name.startswith("vjp") else expected
        np.testing.assert_allclose(result, wanted, rtol=1e-6, err_msg=name)


def test_the_table(capsys, tmp_path):
    file = tmp_path / "made" / "calls.json"
    assert main(["bench", "interop", "--rounds", "1", "--json", str(file)]) == 0
    lines, scaling, bundle = (part.splitlines() for part in capsys.readouterr().out.split("\n\n"))
    assert lines[0].split() == ["library", "call", "us", "x", "own"]
    found = json.loads(file.read_text())
    rows = found["rows"]
    assert scaling[0].split() == ["workload", "threads", "calls/s", "x", "one"] and len(scaling) == 1 + len(found["threads"])
    assert bundle[0].startswith("bundle of x * x and its gradient: ") and found["bundle"]["load"] > 0 < found["bundle"]["kilobytes"]
    assert {row["host"] for row in rows} == set(interop.installed()) and len(lines) == 1 + len(rows)
    assert all(row["ratio"] == 1 for row in rows if row["call"].startswith("x * x"))


def test_costs_are_medians_of_turns():
    found = interop.measured({"nothing": lambda: None, "something": lambda: sum(range(2000))}, rounds=3, batch=0.001)
    assert found["something"] > found["nothing"]
