"""The benchmark of training steps: it measures what it says, compares losses, and prints a table."""

from __future__ import annotations

import json

import numpy as np

import tensorexpr as te
from tensorexpr.benchmarks.harness import Effort
from tensorexpr.benchmarks.subjects import training
from tensorexpr.cli.main import main
from tensorexpr.graph.optimizers import SGD

QUICK = Effort(rounds=3, sample=1e-4, settle=0.0, limit=1.0)
ROWS = [
    training.Row("transformer", 1, 9.5, 16.0, 0.5, 5.0, 156, 7e-7),
    training.Row("100 variables of 4", 1, 0.1, None, 0.1, 0.5, 101, None),
]


class Line(te.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = te.Variable(np.zeros(3, np.float32))
        self.optimizer = SGD([self.w], 0.1)

    @te.function
    def step(self, x, y):
        loss = te.compute((), lambda: te.square(te.sum(lambda i: self.w[i] * x[i], 3) - y[()]))
        self.optimizer.apply(te.gradients(loss, [self.w]))
        return loss


def case(wrong=1.0):
    """A line fitted to a point, and the same in NumPy; `wrong` bends the second."""

    def made(room):
        w = np.zeros(3, np.float32)

        def step(x, y):
            nonlocal w
            error = w @ x - y
            w = w - np.float32(0.2) * error * x
            return float(error**2) * wrong

        return step

    return training.Case("line", Line().step, [(np.full(3, 0.5, np.float32), np.float32(1.0))] * 4, made)


def test_a_case_is_compiled_compared_and_timed():
    row = training.measured(case(), 1, QUICK, torch=object())
    assert (row.case, row.threads) == ("line", 1) and row.kernels >= 1
    assert min(row.ours, row.torch, row.trace, row.compile) > 0 and row.ratio == row.torch / row.ours
    assert row.difference < 1e-5
    assert training.measured(case(1.5), 1, QUICK, torch=object()).difference > training.CLOSE


def test_without_the_peer_only_ours_is_timed():
    row = training.measured(case(), 1, QUICK, torch=None)
    assert row.ours > 0 and row.torch is None and row.ratio is None and row.difference is None


def test_the_table():
    assert training.lines(ROWS) == [
        ("transformer", "1", "9.500", "16.000", "1.68", "0.50", "5.00", "156", "7e-07"),
        ("100 variables of 4", "1", "0.100", "", "", "0.10", "0.50", "101", ""),
    ]


def test_a_run_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "CASES", {"hundred": training.hundred})
    file = tmp_path / "training.json"
    assert training.main([1], rounds=3, path=str(file), names=["hundred"]) == 0
    out = capsys.readouterr().out
    assert "100 variables of 4" in out and "torch / ours" in out
    (row,) = json.loads(file.read_text())["rows"]
    # Variables are updated side by side, in one kernel for each piece of a long program.
    assert row["kernels"] == 7 and row["threads"] == 1


def test_the_command_line_knows_it(monkeypatch):
    asked = []
    monkeypatch.setattr(training, "main", lambda threads, rounds, path: asked.append((threads, rounds, path)) or 0)
    assert main(["bench", "training", "--threads", "2", "--rounds", "4", "--json", "x.json"]) == 0
    assert main(["bench", "training"]) == 0
    assert asked == [([2], 4, "x.json"), ([1], 9, None)]


def test_the_cases_of_the_examples_have_peers_and_batches():
    digits = training.digits()
    assert digits.peer is not None and len(digits.batches) == 20 and digits.batches[0][0].shape == (32, 1, 8, 8)
    model = training.transformer(blocks=1)
    assert model.name == "transformer, 1 blocks of 64" and model.batches[3][1].shape == (16, 64)
