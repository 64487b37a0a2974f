"""Networks of the benchmark of models, small ones: compiled by `torch.compile` they compute what eager mode does."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.benchmarks.subjects import models, networks_memory

ROW = models.Row("resnet18", "training", 1, 2.0, 5.0, 4.0, 1.0, 9.0, 1e-6, None)


def test_a_network_is_compiled_and_compared(monkeypatch, caplog):
    monkeypatch.setattr(models, "CLOSE", 0.0)
    rows = models.measured("unet", True, 1, None, ("eager", "tensorexpr"))
    assert [(row.direction, row.ours, row.ratio) for row in rows] == [("inference", None, None), ("training", None, None)]
    assert all(row.right and row.difference < 1e-3 for row in rows)
    assert [record for record in caplog.records if record.name == "tensorexpr.torch"] == []  # nothing was left to PyTorch


def test_the_table(monkeypatch, capsys, tmp_path):
    assert models.lines([ROW]) == [("resnet18", "training", "1", "2.00", "5.00", "4.00", "2.00", "1.00", "9.00", "1e-06", "")]
    monkeypatch.setattr(models, "subprocess", SimpleNamespace(Popen=Process, PIPE=-1))
    kept = tmp_path / "models.json"
    assert models.main([1], path=str(kept), parts=["resnet18"]) == 0
    assert "resnet18" in capsys.readouterr().out and json.loads(kept.read_text())["rows"][0]["eager"] == 5.0
    monkeypatch.setattr(Process, "returncode", 1)
    assert models.main([1], parts=["resnet18"]) == 1
    assert "failed: resnet18" in capsys.readouterr().out


def test_results_that_differ_are_those_that_are_farther_from_float64():
    assert ROW.right and not models.Row("n", "training", 1, None, None, None, 1.0, None, 0.1, 3.0).right
    assert models.Row("n", "training", 1, None, None, None, 1.0, None, 0.1, 1.5).right


def test_distances_are_those_of_several_draws_of_numbers_and_of_words():
    torch = models.importlib.import_module("torch")
    seen = []

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(50, 4)

        def forward(self, ids, scale):
            seen.append((ids.clone(), scale.clone()))
            return self.table(ids) * scale

    network, arguments = Words(), {"ids": torch.arange(40).view(2, 20), "scale": torch.ones(4)}
    own = {name: models.copy.deepcopy(network) for name in ("tensorexpr", "eager")}
    compared = {name: (each, models.calls_of(torch, each, each, arguments)["inference"]) for name, each in own.items()}
    assert models.farther(torch, network, arguments, "inference", compared) == 1.0
    wide, ours, theirs = seen[:3]
    assert torch.equal(wide[0], ours[0]) and torch.equal(ours[0], theirs[0]) and torch.equal(wide[1].float(), ours[1])
    assert len({tuple(ids.flatten().tolist()) for ids, _ in seen}) == models.DRAWS
    assert all(sorted(ids.flatten().tolist()) == list(range(40)) for ids, _ in seen)


def test_the_peak_of_memory_is_that_of_a_call(monkeypatch, capsys, tmp_path):
    found = networks_memory.measured("unet", True, 1, "eager")
    assert found.keys() == {"inference", "training"} and all(value is None or value < 1 << 30 for value in found.values())
    lines = [json.dumps({"inference": 2 << 20, "training": 8 << 20}), json.dumps({"inference": 3 << 20}), "a library's"]
    done = iter([SimpleNamespace(returncode=0, stdout=f"words\n{line}\n") for line in lines])
    monkeypatch.setattr(networks_memory.subprocess, "run", lambda *a, **k: next(done))
    kept = tmp_path / "memory.json"
    assert networks_memory.main([1], str(kept), ["resnet18"]) == 1
    printed = capsys.readouterr().out
    assert "failed: resnet18 by tensorexpr" in printed and "training" in printed
    rows = json.loads(kept.read_text())["rows"]
    assert rows == [
        {"network": "resnet18", "direction": "inference", "threads": 1, "bytes": {"eager": 2 << 20, "inductor": 3 << 20}},
        {"network": "resnet18", "direction": "training", "threads": 1, "bytes": {"eager": 8 << 20}},
    ]
    assert networks_memory.table([networks_memory.Peak("n", "training", 2, {"tensorexpr": 2 << 20, "eager": 3 << 20})]) == [
        ("n", "training", "2", "2", "3", "", "1.50")
    ]


class Process:
    """A worker that says one row."""

    returncode = 0

    def __init__(self, *arguments, **options) -> None:
        self.stdout = [json.dumps(vars(ROW)), "a line of a library's\n"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None
