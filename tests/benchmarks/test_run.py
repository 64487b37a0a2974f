"""The command: what it measures, what it refuses, and what it writes. One small workload is measured for real."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tensorexpr.benchmarks import peers, roofline, run, worker, workloads
from tensorexpr.benchmarks.harness import Effort
from tensorexpr.benchmarks.subjects import startup
from tensorexpr.cli.main import main
from tensorexpr.codegen.llvm import Machine


def test_one_workload_from_the_command_line(capsys, tmp_path):
    """Nothing is said about times but that they are positive."""
    paths = [str(tmp_path / "deep" / name) for name in ("bench.json", "bench.html")]
    assert main(["bench", "--quick", "--filter", "add of", "--peers", "numpy", "--json", paths[0], "--html", paths[1]]) == 0
    out, err = capsys.readouterr()
    assert "caches warm" in out and "add of 16  forward" in out and "add of 16  gradient" in out and "[1/1] 1 threads" in err
    document = json.loads((tmp_path / "deep" / "bench.json").read_text())
    (measured,) = document["runs"]
    assert document["format"] == run.FORMAT and document["machine"]["versions"]["numpy"] and measured["threads"] == 1
    assert [r["direction"] for r in measured["rows"]] == ["forward", "gradient"] and not measured["errors"]
    for row in measured["rows"]:
        assert min(t["median"] for t in row["timings"].values()) > 0 and row["warm"] > 0 and not row["differs"] and not row["failed"]
    assert list(measured["rows"][0]["timings"]) == ["tensorexpr", "numpy"]
    assert min(measured["roofline"]["streams"]["copy_nt"].values()) > 0 and measured["roofline"]["flops"] > 0
    assert (tmp_path / "deep" / "bench.html").read_text().startswith("<!doctype html>")


def test_preparing_times_nothing(capsys):
    assert main(["bench", "--prepare", "--filter", "add of", "--peers", "numpy"]) == 0
    assert "peer / ours" not in capsys.readouterr().out


def test_what_is_not_there_is_refused_or_skipped_by_name(capsys, monkeypatch):
    assert main(["bench", "--filter", "no such workload"]) == 1
    message = "bench: expected part of the name of a workload, got no such workload\n  hint: among others gemm 1024, "
    assert message in capsys.readouterr().err
    assert main(["bench", "--peers", "numpy,fortran"]) == 1
    assert "bench: expected peers among numpy, torch, torch.compile, jax, numba, keops, halide, got 'fortran'" in capsys.readouterr().err
    monkeypatch.setattr(run.peers, "missing", lambda wanted: ["keops"] if "keops" in wanted else [])
    monkeypatch.setattr(run, "results", lambda *_: iter([{"workload": "x", "error": "gone"}]))
    assert main(["bench", "--prepare", "--peers", "numpy,keops"]) == 0
    assert "skipped: keops (not installed: pip install 'tensorexpr[bench]')" in capsys.readouterr().out

    assert run.wanted(run.Options(quick=True, peers=("numpy", "halide"))) == (["numpy"], {"halide": "left out by --quick"})


def test_a_peer_that_ends_its_process_costs_nothing_but_itself(monkeypatch):
    """It is named as failed in that direction, and the others are measured anew; what a peer has not got is named, too."""
    spec = next(spec for spec in workloads.specs(tiny=True) if spec.key == "add")
    make = peers.maker
    monkeypatch.setattr(peers, "lacking", lambda name, spec, gradient: "has not got it" if (name, gradient) == ("numba", True) else None)

    def maker(name, spec, arrays, head):
        if name == "numpy" and head is not None:
            return lambda: os._exit(7)
        return None if peers.lacking(name, spec, head is not None) else make(name if name == peers.OURS else "numpy", spec, arrays, head)

    monkeypatch.setattr(peers, "maker", maker)
    forward, gradient = worker.measured(spec, [peers.OURS, "numpy", "numba"], Effort(1, sample=1e-6, settle=0.0), 60.0)["rows"]
    assert list(forward["timings"]) == ["tensorexpr", "numpy", "numba"] and not forward["failed"] and not forward["lacking"]
    assert gradient["failed"] == {"numpy": "expected an answer, got exit status 7"} and gradient["lacking"] == {"numba": "has not got it"}
    assert list(gradient["timings"]) == ["tensorexpr"] and gradient["warm"] > 0


def test_threads_are_numbers_or_all(capsys, monkeypatch):
    given = []
    monkeypatch.setattr(run, "main", lambda options: given.append(options) or 0)
    assert main(["bench", "--threads", "1", "--threads", "all"]) == 0
    assert given[0].threads == tuple(dict.fromkeys((1, run.cores()))) and given[0].peers == run.peers.PEERS
    with pytest.raises(SystemExit):
        main(["bench", "--threads", "some"])
    assert "expected a positive integer, got 'some'" in capsys.readouterr().err


def test_a_worker_that_fails_says_so():
    options = run.Options(peers=())
    with pytest.raises(RuntimeError, match="expected exit status 0 of the worker, got 1"):
        list(run.results(options, 0, ["add of 16"], ["no-such-peer"]))


def test_a_worker_starts_with_as_many_threads_of_every_library_as_are_asked_for(monkeypatch):
    """OpenBLAS reads its number as NumPy is loaded, before a worker's own first line: two threads on one core double every other time."""
    given = {}
    popen = subprocess.Popen
    monkeypatch.setattr(run.subprocess, "Popen", lambda *args, **kwargs: given.update(kwargs["env"]) or popen(*args, **kwargs))
    (found,) = run.results(run.Options(peers=()), 1, [], [])
    assert found.keys() == {"roofline"}
    assert given["OPENBLAS_NUM_THREADS"] == given["TENSOREXPR_NUM_THREADS"] == "1" and "XLA_FLAGS" in given
    assert "XLA_FLAGS" not in run.worker.limits(2)


def test_one_thread_needs_no_rest_and_quick_few_rounds():
    assert run.Options().effort(1).settle < run.Options().effort(2).settle
    assert run.Options(quick=True).effort(1).rounds == 3 and run.Options(rounds=5, limit=3.0).effort(2).limit == 3.0


def test_streams_read_memory_that_was_written_to():
    """Pages that nothing was written to are all one page of zeros: a stream over them never leaves the first cache."""
    found = roofline._aligned(5000)
    assert len(found) == 5000 and found.ctypes.data % 64 == 0 and found.all()


def test_the_kernels_of_the_roofline():
    text = roofline.module_text(Machine("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256))
    assert text.count("call <8 x float> @llvm.fma.v8f32(<8 x float> %acc") == roofline.ACCUMULATORS
    assert text.count("!nontemporal") == 2 * 4 and "define void @triad_nt" in text
    found = roofline.measure(2, sizes=(1 << 20,), multiply_adds=1 << 12, rounds=1)
    assert found.threads == 2 and found.flops > 0 and {name: list(speeds) for name, speeds in found.streams.items()} == {
        name: [1 << 20] for name in roofline.STREAMS
    }  # fmt: skip


def test_startup_is_measured_in_fresh_interpreters(monkeypatch):
    monkeypatch.setattr(startup, "CASES", {"softmax with gradient": ("operations.softmax", "(np.ones((4, 8), 'f'),)")})
    assert startup.import_milliseconds(1) > 0
    found = startup.compile_milliseconds(1)
    assert list(found) == ["cold, softmax with gradient", "warm, softmax with gradient"] and min(found.values()) > 0
