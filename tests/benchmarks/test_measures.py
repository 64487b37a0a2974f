"""The measures: what figures come to, what is kept and taken up again, one small row of each for real, and what the command refuses."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks import operations
from tensorexpr.benchmarks.measures import command, contest, model, regret, spellings, sweep, worker
from tensorexpr.benchmarks.measures.journal import Journal
from tensorexpr.benchmarks.measures.report import distribution
from tensorexpr.benchmarks.measures.statistics import geometric_mean, quantile, rank_correlation, ranks
from tensorexpr.benchmarks.measures.worker import Request, Worker
from tensorexpr.benchmarks.samples import growth, library, texts
from tensorexpr.benchmarks.samples.by_hand import LEAST, by_hand
from tensorexpr.benchmarks.samples.sample import Given, Sample
from tensorexpr.cli.main import main
from tensorexpr.codegen.handle import Schedule
from tests.seeds import share_of

PRODUCT = Sample("product", operations.matmul, (Given((24, 20)), Given((20, 32))), torch="torch.matmul")
QUICK = Request("any", seconds=0.2, tries=4, rounds=2)


# ----------------------------------------------------------------------------------------------------------- figures


def test_quantiles_are_values():
    values = [5.0, 1.0, math.inf, 2.0]
    assert [quantile(values, share) for share in (0.0, 0.25, 0.5, 0.75, 0.76, 1.0)] == [1.0, 1.0, 2.0, 5.0, math.inf, math.inf]
    assert math.isnan(quantile([], 0.5)) and geometric_mean([1.0, 4.0]) == pytest.approx(2.0) and math.isnan(geometric_mean([]))
    assert distribution([1.0, 1.2], 1.1) == "2 figures: median 1, 90 % 1.2, 95 % 1.2, worst 1.2; 1 above 1.1"


def test_rank_correlation_is_that_of_ranks_with_ties():
    assert ranks([10.0, 30.0, 10.0, 20.0]).tolist() == [1.5, 4.0, 1.5, 3.0]
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, 40).astype(float)
    assert rank_correlation(a, np.exp(a)) == pytest.approx(1.0) and rank_correlation(a, -a) == pytest.approx(-1.0)
    b = rng.standard_normal(40)
    assert rank_correlation(a, b) == pytest.approx(float(np.corrcoef(ranks(a), ranks(b))[0, 1]))
    assert math.isnan(rank_correlation([1.0, 1.0], [1.0, 2.0])) and math.isnan(rank_correlation([1.0], [1.0]))


# ----------------------------------------------------------------------------------------------------------- journal


def test_a_journal_goes_on_and_keeps_every_run(tmp_path):
    path = str(tmp_path / "deep" / "found.json")
    one = Journal("regret", path)
    one.add("a | 1", {"default": 2.0})
    one.add("a | 1", {"default": 3.0})
    two = Journal("regret", path)
    assert two.has("a | 1") and not two.has("b | 1")
    assert two.quoted()["a | 1"]["default"] == 3.0 and [run["default"] for run in two.others("a | 1")] == [2.0]
    two.code = "another"
    assert not two.has("a | 1")  # measured by other code: once more


def test_what_is_no_journal_is_refused(tmp_path):
    path = tmp_path / "found.json"
    Journal("regret", str(path)).add("a", {})
    with pytest.raises(te.ArgumentError, match=r"bench model: expected results of model in .*, got those of regret"):
        Journal("model", str(path))
    document = json.loads(path.read_text())
    document["machine"]["cpu"]["name"] = "abacus"
    path.write_text(json.dumps(document))
    with pytest.raises(te.ArgumentError, match=r"bench regret: expected results of this machine in .*, got those of abacus"):
        Journal("regret", str(path))
    path.write_text("[1]")
    with pytest.raises(te.ArgumentError, match=r"bench regret: expected the results of a measure in .*, got TypeError"):
        Journal("regret", str(path))


# ---------------------------------------------------------------------------------------------------------- samples


def test_axes_that_change_together_are_found_by_what_is_refused():
    assert growth.joints(PRODUCT) == [((0, 0),), ((0, 1), (1, 0)), ((1, 1),)]
    attention = Sample("attention", kernels.scaled_dot_product_attention, (Given((2, 3, 4)), Given((2, 5, 4)), Given((2, 5, 3))))
    assert growth.joints(attention) == [((0, 0), (1, 0), (2, 0)), ((0, 1),), ((0, 2), (1, 2)), ((1, 1), (2, 1)), ((2, 2),)]
    pictures = Sample("correlation", operations.correlation, (Given((3, 5, 6)), Given((3, 5, 6))))
    assert growth.joints(pictures) == [((0, 0), (1, 0)), ((0, 1), (1, 1)), ((0, 2), (1, 2))]


def test_a_sample_grows_to_what_it_is_to_move_but_its_windows():
    convolution = Sample("conv", kernels.conv2d, (Given((1, 2, 5, 5)), Given((3, 2, 3, 3))))
    grown = growth.grown(convolution, 1 << 18, 10**9)
    assert grown is not None and grown.shapes[1][2:] == (3, 3) and growth.work(grown.traced())[1] >= 1 << 18
    odd = growth.grown(PRODUCT, 1 << 16, 10**9, odd=True)
    assert odd is not None and all(growth.prime_up_to(extent) == extent for shape in odd.shapes for extent in shape)
    picked = Sample("embedding", kernels.embedding, (Given((7,), (0, 10)), Given((10, 4))))
    assert picked.at([(9,), (30, 4)]).draw()[0].max() < 30 and picked.at([(9,), (30, 4)]).givens[0].values == (0, 30)
    scalar = Sample("scalar", kernels.add, (Given(()), Given(())))
    assert growth.grown(scalar, 1 << 18, 10**9) is None


@pytest.mark.parametrize("seed", share_of(range(9)))
def test_schedules_by_hand_are_legal_and_keep_values(seed):
    rng = random.Random(seed)
    task = contest.task_of_sample(rng.choice((PRODUCT, Sample("softmax", kernels.softmax, (Given((17, 30)),)))), gradient=False)
    entry = contest.Contest(task)
    for start in entry.starts():
        drawn = by_hand(start, rng)
        assert len(drawn.calls) >= len(start.calls)
        entry.try_("hand", drawn)
    assert not entry.wrong and any(len(e.schedule.calls) >= LEAST for e in entry.entrants if e.kind == "hand")


def test_other_values_and_what_was_there_take_no_part():
    entry = contest.Contest(contest.task_of_sample(PRODUCT, gradient=True))
    assert entry.try_("again", entry.default) is None and not entry.wrong
    assert entry.results is not None
    entry.results = [array + 1 for array in entry.results]
    other = Schedule.plain(entry.written.program)
    other["matmul"].reorder("j", "i")
    assert entry.try_("other", other) is None and "reorder" in entry.wrong[0]


# --------------------------------------------------------------------------------------------------------- measures


def of(monkeypatch, sample):
    """Lets the library be one sample, as large as it is."""
    monkeypatch.setattr(library, "library", lambda what: [sample])
    monkeypatch.setattr(growth, "grown", lambda sample, moved, operations, odd=False: sample)


def journal_of(measure, found):
    journal = Journal(measure)
    for key, run in found.items():
        journal.add(key, run)
    return journal


def test_a_row_of_spellings(monkeypatch):
    of(monkeypatch, PRODUCT)
    keys = ["library: product | batch | gradient", "library: product | primes | forward", "library: product | inline | forward"]
    found = {f"{key} | 1": spellings.measured(key, QUICK) for key in keys}
    batch, primes, inline = found.values()
    assert batch["work"] == 2.0 and batch["difference"] <= batch["tolerance"] and primes["work"] < 1
    assert inline == {"lacking": "no such intermediate tensors"}
    told = spellings.report(journal_of("spellings", found), list(found), None)
    assert told.lines[0].startswith("library: fixed sizes: 2 figures: median") and len(told.table) == 2
    assert told.remarks == ["1 of 3 rows are combinations that a rule does not apply to"]
    wrong = {"library: product | batch | forward | 1": {**batch, "difference": 0.5}}
    assert spellings.report(journal_of("spellings", wrong), list(wrong), None).remarks[0].startswith("differs: library: product")
    several = ["written: trace of a product | product | forward", "written: quadratic form | nested | gradient"]
    for key in several:
        run = spellings.measured(key, QUICK)
        assert run["work"] == 1.0 and run["difference"] <= run["tolerance"]
    assert {*several, keys[0]} <= {*spellings.rows(QUICK)} and "table: gemm 1024 | open | forward" in spellings.rows(QUICK)


def test_a_row_of_regret(monkeypatch):
    of(monkeypatch, PRODUCT)
    found = regret.measured("library: product | forward", QUICK)
    assert found["best"] <= found["default"] and found["winner"] in ("default", "plain", "tuner", "hand") and not found["wrong"]
    journal = journal_of("regret", {"library: product | forward | 1": found})
    journal.add(
        "library: product | forward | 1", {**found, "default": 3 * found["best"], "plain": found["best"], "wrong": ["s['C'].split()"]}
    )
    told = regret.report(journal, ["library: product | forward | 1"], None)
    assert "1 figures: median 3" in told.lines[0] and "slower than the plain schedule: 1 of 1" in told.lines
    assert told.table[0][1] == "3.00" and told.table[0][-1] == f"{found['default'] / found['best']:.3g}"
    assert told.remarks[-1] == "differs: library: product | forward | 1: s['C'].split()"
    page = told.markdown(journal)
    assert page.startswith("# Regret: time of the default schedule") and "| library: product / forward / 1 | 3.00 |" in page


def test_a_row_of_the_model(monkeypatch):
    of(monkeypatch, PRODUCT)
    monkeypatch.setattr(model, "SCHEDULES", 4)
    found = model.measured("library: product | forward", QUICK)
    assert len(found["schedules"]) == 4 and {"default", "plain"} <= {s["by"] for s in found["schedules"]}
    journal = journal_of("model", {"library: product | forward | 1": found})
    told = model.report(journal, list(journal.rows), command.Options("model"))
    assert told.lines[0].startswith("counted: rank correlation") and told.lines[0].endswith("over 4 schedules of 1 programs (bar: 0.9)")
    assert model.predictor_of("tensorexpr.benchmarks.measures.model:counted") is model.counted
    with pytest.raises(te.ArgumentError, match=r"bench model: expected a predictor as MODULE:NAME, got no.such:thing"):
        model.predictor_of("no.such:thing")


def test_a_predictor_is_asked_of_what_was_measured_before(monkeypatch):
    nest = str(te.autoschedule(operations.matmul(te.placeholder((3, 4)), te.placeholder((4, 5)))))
    runs = {f"{name} | 1": {"schedules": [{"by": "plain", "seconds": s, "nest": nest} for s in (1.0, 2.0, 3.0)]} for name in "ab"}
    ordered = iter([1.0, 2.0, 3.0, 30.0, 20.0, 10.0])
    monkeypatch.setattr(model, "counted", lambda nest: next(ordered))
    told = model.report(journal_of("model", runs), list(runs), command.Options("model"))
    assert told.table[0][:2] == ("b | 1", "-1.00") and "median -1.000" in told.lines[1]

    def raising(nest):
        raise ZeroDivisionError

    monkeypatch.setattr(model, "counted", raising)
    told = model.report(journal_of("model", runs), list(runs), command.Options("model"))
    assert told.remarks == ["the predictor raised ZeroDivisionError for 6 nests"]


def test_a_row_of_the_sweep(monkeypatch):
    """Peers are what `texts` gives: one that is slower, one that differs, one that has not got it."""
    of(monkeypatch, PRODUCT)

    def candidate(peer, text, arrays, heads):
        if peer == "jax":
            raise AttributeError("JAX has no product")
        extra = 1.0 if peer == "torch.compile" else 0.0
        a, b = (array.astype(np.float64) for array in arrays)
        return lambda: [a @ b + extra] if heads is None else [a @ b + extra, heads[0] @ b.T, a.T @ heads[0]]

    monkeypatch.setattr(texts, "candidate", candidate)
    request = Request("sweep", peers=("torch", "torch.compile", "jax"), rounds=2)
    found = sweep.measured("product | odd | gradient", request)
    assert set(found["seconds"]) == {"tensorexpr", "torch"} and found["difference"] < 1e-4
    assert found["failed"]["jax"] == "AttributeError: JAX has no product" and found["failed"]["torch.compile"].startswith("differs by ")
    found |= sweep.measured("product | odd | gradient", Request("sweep", rounds=2, pool=False))
    journal = journal_of("sweep", {"product | odd | gradient | 1": found})
    told = sweep.report(journal, list(journal.rows), None)
    assert "at least level with the best peer; geometric mean" in told.lines[0] and any("stock malloc" in line for line in told.lines)
    assert "jax has no time in 1 of 1 rows: it has not got the operation, or not at these shapes" in told.remarks
    assert sweep.rows(request)[:2] == ["product | small | forward", "product | small | gradient"]
    with pytest.raises(te.ArgumentError, match=r"bench sweep: expected peers among torch, torch.compile, jax, got 'fortran'"):
        sweep.requests(Request("sweep", peers=("fortran",)))
    kept, stock = sweep.requests(Request("sweep"))
    assert kept.keeps and kept.pool and not stock.keeps and not stock.pool and not stock.peers


# ---------------------------------------------------------------------------------------------------------- command


def test_the_command_measures_a_row(tmp_path, capsys):
    paths = [str(tmp_path / "deep" / name) for name in ("found.json", "found.md")]
    asked = ["bench", "spellings", "--rows", "add of 16 | batch | forward", "--rounds", "2", "--json", paths[0], "--markdown", paths[1]]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert "[1/1] 1 threads" in err and "table: fixed sizes: 1 figures" in out and "1 rows, 1 runs" in out
    assert "| table: add of 16 / batch / forward / 1 | " in (tmp_path / "deep" / "found.md").read_text()
    assert main(asked) == 0  # it is there: nothing is measured
    assert "threads" not in capsys.readouterr().err


class Answers:
    """A worker that finds something at once, and nothing for a row in the gradient's direction."""

    def __init__(self, request):
        self.request = request

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, key):
        return {"error": "Trace:\nKilled: out of memory"} if key.endswith("gradient") else {"base": 1.0, "variant": 2.0, "work": 1.0}


def test_the_command_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "Worker", Answers)
    asked = ["bench", "spellings", "--rows", "add of 16 | batch", "--json", str(tmp_path / "found.json")]
    assert main([*asked, "--sample", "1"]) == 0
    capsys.readouterr()
    assert main(asked) == 1
    out, err = capsys.readouterr()
    assert "[3/3] 1 threads" in err and "4 rows, 4 runs" in out and "2 above 1.1" in out
    assert "failed: table: add of 16 | batch | gradient | 1: Killed: out of memory" in out
    assert main([*asked, "--again", "--rows", "add of 16 | batch | forward", "--threads", "2", "--seconds", "1e-9"]) == 1
    assert "time is up: 4 rows are left" in capsys.readouterr().err
    assert main([*asked, "--again"]) == 1
    assert "4 rows, 8 runs" in capsys.readouterr().out


def test_what_is_not_there_is_refused(capsys):
    assert main(["bench", "spellings", "--rows", "no such row"]) == 1
    assert "bench spellings: expected part of the name of a row, got no such row\n  hint: there are " in capsys.readouterr().err


def test_rows_are_drawn_by_seed():
    names = [str(number) for number in range(50)]
    drawn = command.chosen(command.Options("regret", sample=5, seed=3), names)
    assert drawn == command.chosen(command.Options("regret", sample=5, seed=3), names) and len(drawn) == 5
    assert drawn != command.chosen(command.Options("regret", sample=5, seed=4), names)
    assert command.chosen(command.Options("regret", parts=("4",)), names)[:2] == ["4", "14"]


def test_a_worker_that_is_gone_is_told(monkeypatch):
    monkeypatch.setattr(worker.sys, "executable", "/bin/false")
    with Worker(Request("spellings")) as gone, pytest.raises(RuntimeError, match="bench: expected an answer of the worker, got status 1"):
        gone.ask("a row")
