"""The GPU benchmark at tiny sizes on the CPU, so that no GPU minute goes to slips."""

import json

import pytest

from tensorexpr.benchmarks import gpu
from tensorexpr.codegen.cuda.host import compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU")


def test_workloads_run_and_are_written_down(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    names = ("gemm 9", "softmax", "copy", "embedding", "max-pool 2x2")
    arguments = [str(tmp_path), "--tiny", "--peers", "torch", *(word for name in names for word in ("--filter", name))]
    assert gpu.main(arguments) == 0
    document = json.loads((tmp_path / "gpu.json").read_text())
    rows = {(row["name"], row["direction"]): row for row in document["rows"]}
    assert ("copy 64", "forward") in rows and ("copy 64", "gradient") not in rows and ("gemm 9", "gradient") in rows
    assert all(row["ms"]["tensorexpr"] > 0 and row["gbs"] > 0 for row in rows.values())
    assert all(row["error"] < 1e-3 for row in rows.values() if "error" in row)
    assert document["machine"]["device"] == "host"
    assert (tmp_path / "gpu.txt").read_text().count("\n") == len(rows) + 1
    assert "gemm 9" in capsys.readouterr().out


def test_a_failure_is_written_down_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    right = gpu.ours

    def ours(spec, arrays, head):
        if spec.name == "copy 64":
            raise ValueError("planted")
        return right(spec, arrays, head)

    monkeypatch.setattr(gpu, "ours", ours)
    assert gpu.main([str(tmp_path), "--tiny", "--peers", "", "--filter", "copy", "--filter", "gemm 10"]) == 1
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    failed = next(row for row in rows if row["name"] == "copy 64")
    assert failed["problems"] == {"tensorexpr": "ValueError: planted"} and "failed: ValueError" in (tmp_path / "gpu.txt").read_text()
    assert any(row["name"] == "gemm 10" and "ms" in row for row in rows)
    capsys.readouterr()
