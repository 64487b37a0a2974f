"""Networks of the benchmark of models, small ones: compiled by `torch.compile` they compute what eager mode does."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.benchmarks.harness import difference
from tensorexpr.benchmarks.subjects import networks
from tensorexpr.benchmarks.subjects.networks import first, memory, onnx, times
from tensorexpr.benchmarks.worker import limits

ROW = times.Row("resnet18", "training", 1, 2.0, 5.0, 4.0, 1.0, 9.0, 1e-6, None)


def test_a_network_is_compiled_and_compared(monkeypatch, caplog):
    monkeypatch.setattr(times, "CLOSE", 0.0)
    rows = times.measured("unet", True, 1, None, ("eager", "tensorexpr"))
    assert [(row.direction, row.ours, row.ratio) for row in rows] == [("inference", None, None), ("training", None, None)]
    assert all(row.right and row.difference < 1e-3 for row in rows)
    assert [record for record in caplog.records if record.name == "tensorexpr.torch"] == []  # nothing was left to PyTorch


def test_the_table(monkeypatch, capsys, tmp_path):
    assert times.lines([ROW]) == [("resnet18", "training", "1", "2.00", "5.00", "4.00", "2.00", "1.00", "9.00", "1e-06", "")]
    monkeypatch.setattr(times, "subprocess", SimpleNamespace(Popen=Process, PIPE=-1))
    kept = tmp_path / "models.json"
    assert times.main([1], path=str(kept), parts=["resnet18"]) == 0
    assert "resnet18" in capsys.readouterr().out and json.loads(kept.read_text())["rows"][0]["eager"] == 5.0
    monkeypatch.setattr(Process, "returncode", 1)
    assert times.main([1], parts=["resnet18"]) == 1
    assert "failed: resnet18" in capsys.readouterr().out


def test_results_that_differ_are_those_that_are_farther_from_float64():
    assert ROW.right and not times.Row("n", "training", 1, None, None, None, 1.0, None, 0.1, 3.0).right
    assert times.Row("n", "training", 1, None, None, None, 1.0, None, 0.1, 1.5).right


def test_distances_are_those_of_several_draws_of_numbers_and_of_words():
    torch = times.importlib.import_module("torch")
    seen = []

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(50, 4)

        def forward(self, ids, scale):
            seen.append((ids.clone(), scale.clone()))
            return self.table(ids) * scale

    network, arguments = Words(), {"ids": torch.arange(40).view(2, 20), "scale": torch.ones(4)}
    own = {name: times.copy.deepcopy(network) for name in ("tensorexpr", "eager")}
    compared = {name: (each, networks.calls_of(torch, each, each, arguments)["inference"]) for name, each in own.items()}
    assert times.farther(torch, network, arguments, "inference", compared) == 1.0
    wide, ours, theirs = seen[:3]
    assert torch.equal(wide[0], ours[0]) and torch.equal(ours[0], theirs[0]) and torch.equal(wide[1].float(), ours[1])
    assert len({tuple(ids.flatten().tolist()) for ids, _ in seen}) == times.DRAWS
    assert all(sorted(ids.flatten().tolist()) == list(range(40)) for ids, _ in seen)


def test_the_peak_of_memory_is_that_of_a_call(monkeypatch, capsys, tmp_path):
    found = memory.measured("unet", True, 1, "eager")
    assert found.keys() == {"inference", "training"} and all(value is None or value < 1 << 30 for value in found.values())
    lines = [json.dumps({"inference": 2 << 20, "training": 8 << 20}), json.dumps({"inference": 3 << 20}), "a library's"]
    done = iter([SimpleNamespace(returncode=0, stdout=f"words\n{line}\n") for line in lines])
    monkeypatch.setattr(memory.subprocess, "run", lambda *a, **k: next(done))
    kept = tmp_path / "memory.json"
    assert memory.main([1], str(kept), ["resnet18"]) == 1
    printed = capsys.readouterr().out
    assert "failed: resnet18 by tensorexpr" in printed and "training" in printed
    rows = json.loads(kept.read_text())["rows"]
    assert rows == [
        {"network": "resnet18", "direction": "inference", "threads": 1, "bytes": {"eager": 2 << 20, "inductor": 3 << 20}},
        {"network": "resnet18", "direction": "training", "threads": 1, "bytes": {"eager": 8 << 20}},
    ]
    assert memory.table([memory.Peak("n", "training", 2, {"tensorexpr": 2 << 20, "eager": 3 << 20})]) == [
        ("n", "training", "2", "2", "3", "", "1.50")
    ]


_STEP = """
import sys, torch
from tensorexpr.benchmarks.subjects.memory import peak, resident
torch.set_num_threads(1)
torch.manual_seed(0)
widths = [256, 1024] * 4
blocks = [torch.nn.Sequential(torch.nn.LayerNorm(a), torch.nn.Linear(a, b), torch.nn.GELU()) for a, b in zip(widths, widths[1:])]
network, x = torch.nn.Sequential(*blocks), torch.randn(1024, 256)
def loss(x):
    return network(x).square().mean()
call = loss if sys.argv[1] == "eager" else torch.compile(loss, backend=sys.argv[1])
def step():
    network.zero_grad(set_to_none=True)
    call(x).backward()
for _ in range(3):
    step()
network.zero_grad(set_to_none=True)
print(max(peak(step, resident()) for _ in range(2)))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell the peak")
def test_a_training_step_takes_no_more_memory_than_in_eager_mode():
    """Of results in the C library's heap holes stayed: 44 MiB of 272 in a step of Llama."""
    peaks = {}
    for by in ("eager", "tensorexpr"):
        environment = os.environ | limits(1) | {"TENSOREXPR_MEMORY_POOL": "0"}
        done = subprocess.run([sys.executable, "-c", _STEP, by], capture_output=True, text=True, env=environment, check=True)
        peaks[by] = int(done.stdout)
    assert 16 << 20 < peaks["tensorexpr"] <= peaks["eager"]


def test_first_calls_begin_with_empty_caches(monkeypatch, capsys, tmp_path):
    assert first.measured("unet", True, 1, "training", "tensorexpr") > 0
    folders = []

    class Worker(Process):
        pid = 0

        def __init__(self, command, env, **options):
            self.request = json.loads(command[-1])
            folders.append({env[name] for name in ("TENSOREXPR_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")})

        def communicate(self, timeout):
            if self.request["backend"] == "inductor" and self.request["direction"] == "training":
                raise first.subprocess.TimeoutExpired("worker", timeout)
            return 'words\n{"seconds": 2.5}\n', None

    killed = []
    monkeypatch.setattr(first.subprocess, "Popen", Worker)
    monkeypatch.setattr(first.os, "killpg", lambda *told: killed.append(told))
    kept = tmp_path / "first.json"
    assert first.main([1], str(kept), ["unet"], limit=50.0) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3:] for line in lines[1:]] == [["2.5", "2.5", "1.00"], ["2.5", ">", "50.0", "<", "0.05"]]
    assert len(killed) == 1 and len(set.union(*folders)) == 8
    assert json.loads(kept.read_text())["rows"][1]["ended"] == ["inductor"]
    monkeypatch.setattr(Worker, "returncode", 3)
    assert first.main([1], parts=["unet"]) == 1
    assert "failed: unet by tensorexpr (exit status 3)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["unet", "gpt2", "whisper", "vit_b_16"])
def test_networks_are_exported_and_agree_with_eager_mode(name, tmp_path):
    torch, made = (importlib.import_module(m) for m in ("torch", networks.NETWORKS))
    pytest.importorskip("onnx", reason="onnx is not installed (make test-peers installs it)")
    if name in networks.chosen([name])[1]:
        pytest.skip("transformers is not installed (pip install transformers)")
    network, arguments = made.made(name, True)
    feeds = onnx.exported(torch, network, arguments, str(tmp_path / "n.onnx"))
    model = importlib.import_module("tensorexpr.interop.onnx").from_onnx(str(tmp_path / "n.onnx"))
    with torch.no_grad():
        wanted = networks.result_of(network.eval()(**arguments)).numpy()
    assert model.is_whole and difference([wanted], [model(*(feeds[a] for a in model.arguments))]) < 1e-5


def test_the_table_of_exported_networks(monkeypatch, capsys, tmp_path):
    rows = iter([onnx.Row("unet", 1, 2.0, 3.0, 0.5, 1e-6), onnx.Row("unet", 2, 1.0, 6.0, 0.5, 0.5), None])

    def run(*arguments, **options):
        row = next(rows)
        return SimpleNamespace(returncode=int(row is None), stdout="words\n" if row is None else json.dumps(vars(row)) + "\n")

    monkeypatch.setattr(onnx.subprocess, "run", run)
    kept = tmp_path / "onnx.json"
    assert onnx.main([1, 2, 3], 9, str(kept), ["unet"]) == 1  # one differs
    printed = capsys.readouterr().out
    assert "geometric mean of onnxruntime / ours: 3.00 over 2" in printed and "failed: unet" in printed
    assert [row["ours"] for row in json.loads(kept.read_text())["rows"]] == [2.0, 1.0]


class Process:
    """A worker that says one row."""

    returncode = 0

    def __init__(self, *arguments, **options) -> None:
        self.stdout = [json.dumps(vars(ROW)), "a line of a library's\n"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None
