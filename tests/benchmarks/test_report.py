"""Tables, summaries and pages are made from the document of a run, and say what is behind a bar."""

from __future__ import annotations

import json

import pytest

from tensorexpr.benchmarks import page, readme, report
from tensorexpr.benchmarks.roofline import Roofline
from tensorexpr.benchmarks.run import FORMAT

ROOF = Roofline(1, 100e9, {"copy": {8 << 20: 40e9, 32 << 20: 20e9}, "copy_nt": {8 << 20: 10e9, 32 << 20: 30e9}})


def timing(seconds):
    return {"median": seconds, "lower": seconds * 0.9, "upper": seconds * 1.1, "least": seconds * 0.8, "samples": 5}


def row(workload, direction, ours, peers, **more):
    return {
        "workload": workload, "direction": direction, "group": "contraction", "operations": 1e9, "bytes": 6e6, "inputs": 8e6,
        "in_and_out": 1e7, "added": 2e6, "compile": {"tensorexpr": 0.1}, "warm": 0.003, "failed": {}, "differs": {}, "reference": "torch",
        "timings": {"tensorexpr": timing(ours), **{name: timing(seconds) for name, seconds in peers.items()}}, **more,
    }  # fmt: skip


LACKING = {"numba": "has not got it"}
RUN = {
    "threads": 1,
    "roofline": ROOF.as_json(),
    "errors": {},
    "rows": [
        row("gemm", "forward", 0.0125, {"numpy": 0.02, "torch": 0.015}),
        row("gemm", "gradient", 0.05, {"torch": 0.04}, failed={"halide": "RuntimeError: no code"}, differs={"jax": 0.5}, lacking=LACKING),
    ],
}
DOCUMENT = {
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": {"name": "some<cpu>"}, "platform": "Linux"},
    "peers": {"numpy": "2.0", "torch": None},
    "runs": [RUN],
}


def test_a_line_of_the_table():
    assert dict(zip(report.COLUMNS, report.lines(RUN)[0], strict=True)) == {
        "workload": "gemm", "": "forward", "ours ms": "12.5", "best peer ms": "15.0", "peer": "torch", "peer / ours": "1.20x",
        "Gflop/s": "80.0", "of peak": "80%", "GB/s": "0.5", "of stream": "1%", "memory": "1.00", "build ms": "100.0", "warm ms": "3.000",
        "beside": "numpy torch",
    }  # fmt: skip


def test_what_is_small_has_no_stream_and_no_weight():
    small = row("add", "forward", 1e-7, {}, bytes=192.0, operations=0.0, in_and_out=192)
    assert report.cells(small, ROOF)[2:] == ["0.00010", "-", "-", "-", "-", "-", "1.9", "-", "-", "100.0", "3.000", "-"]


def test_bandwidth_is_that_of_streams_of_the_same_size():
    assert ROOF.bandwidth(8e6) == 40e9 and ROOF.bandwidth(1e9) == 30e9 and ROOF.bandwidth(1e6) is None
    assert Roofline.of_json(ROOF.as_json()) == ROOF


def test_the_summary_names_what_is_behind_and_what_was_left_out():
    pool = row("pool", "forward", 0.01, {"torch": 0.02}, added=6e6, group="memory", failed={"tensorexpr": "X: y"})
    heavy = {**RUN, "rows": [*RUN["rows"], pool]}
    heavy["errors"] = {"scan": "expected an answer within 60 s, got none"}
    assert report.summary(heavy).splitlines() == [
        "2 of 3 at least as fast as the best peer; geometric mean of peer / ours 1.24",
        "  behind: gemm forward: 0.80 of the peak of multiply-adds",
        "  behind: gemm gradient: 0.80 of torch",
        "  behind: gemm gradient: 4.0 times the forward",
        "  behind: gemm gradient: 0.20 of the peak of multiply-adds",
        "  behind: pool forward: 1.40 times the memory of inputs and outputs",
        "  behind: pool forward: 0.01 of the best stream",
        "  skipped: numba in 1 of 3 rows (has not got it)",
        "  scan: expected an answer within 60 s, got none",
        "  gemm gradient: halide failed (RuntimeError: no code)",
        "  gemm gradient: jax differs from torch by 5.0e-01",
        "  pool forward: tensorexpr failed (X: y)",
    ]
    assert report.wrong(heavy) and not report.wrong(RUN)


def test_bars_that_depend_on_what_a_workload_is():
    """Fused ones are compared with array frameworks alone, small ones with everyone; a peer that is ahead is said once."""
    fused = row("heat", "forward", 0.01, {"numba": 0.012, "jax": 0.025, "torch": 0.5}, group="fused", added=0)
    small = row("add", "forward", 0.01, {"numpy": 0.018}, group="small", added=0)
    ahead = [row(name, "forward", 0.01, {"jax": 0.031}, group=name, added=0) for name in ("fused", "small")]
    assert list(report.behind({**RUN, "rows": [fused, small, *ahead]})) == [
        "heat forward: 2.50 of jax, where 3 is meant",
        "add forward: 1.80 of numpy, where 2 is meant",
    ]


def test_scaling_and_markdown():
    both = {**RUN, "threads": 2, "rows": [row("gemm", "forward", 0.00625, {}), row("gemm", "gradient", 0.04, {})]}
    assert report.scaling([RUN, both]) == "2 threads against 1: median 2.00x, least 1.25x, most 2.00x"
    assert report.scaling([RUN]) == ""
    assert report.markdown([RUN, both]).splitlines() == [
        "| workload | forward ms, 1 thread | best peer / ours | gradient ms, 1 thread | best peer / ours "
        "| forward ms, 2 threads | best peer / ours | gradient ms, 2 threads | best peer / ours |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| gemm | 12.5 | 1.20 (torch) | 50.0 | 0.80 (torch) | 6.250 | - | 40.0 | - |",
    ]
    assert report.headline(both) == "no peers"


def test_the_readme_quotes_the_newest_results(tmp_path):
    assert readme.text(tmp_path) == "Not measured yet beside its peers: `benchmarks/measure.sh` does it, and writes this paragraph."
    kept = {**DOCUMENT, "format": FORMAT, "rounds": 9, "startup_ms": {"import beyond NumPy": 70.4}}
    kept["machine"] = {"cpu": {"name": "zen", "vector_bits": 512}}
    kept["peers"] = {"numpy": "2.0", "torch": "2.13", "pykeops": "2.3"}  # the last is installed, and was not asked
    kept["skipped"] = {"keops": "left out by --quick"}
    for name, date in (("a.json", "2026-01-02"), ("b.json", "2026-01-01")):
        (tmp_path / name).write_text(json.dumps({**kept, "date": date}))
    (tmp_path / "old.json").write_text(json.dumps({"date": "2030-01-01"}))
    text = readme.text(tmp_path)
    assert "Measured on 2026-01-02 on a zen (vectors of 512 bits), float32, beside numpy 2.0, torch 2.13:" in text
    assert "is not for it): numpy in 1, torch in 2.\nNot measured: keops (left out by --quick).\n" in text
    assert "(../benchmarks/results/a.json)" in text and "- 1 thread: 1 of 2 at least as fast as the best peer" in text
    assert "| gemm | 12.5 | 1.20 (torch) | 50.0 | 0.80 (torch) |" in text and text.endswith("import beyond NumPy 70 ms.")


def test_results_beside_more_peers_stay_on_the_page_and_do_not_take_the_place_of_newer_ones(tmp_path):
    kept = {**DOCUMENT, "format": FORMAT, "rounds": 9, "startup_ms": {}, "machine": {"cpu": {"name": "zen", "vector_bits": 512}}}
    kept["peers"] = {"numpy": "2.0", "torch": "2.13", "halide": "21"}
    (tmp_path / "new.json").write_text(json.dumps({**kept, "date": "2026-01-02"}))
    beside = {**RUN, "rows": [row("gemm", "forward", 0.01, {"numpy": 0.02, "halide": 0.012})]}
    (tmp_path / "old.json").write_text(json.dumps({**kept, "date": "2026-01-01", "runs": [beside]}))
    text = readme.text(tmp_path)
    assert "Measured on 2026-01-02 on a zen" in text and "| gemm | 12.5 | 1.20 (torch) |" in text
    assert (
        "Halide was measured last on 2026-01-01, with the others and the code of that day\n([all figures](../benchmarks/results/old.json))"
        in text
    )
    assert "- 1 thread: 1 of 1 at least as fast as the best peer; geometric mean of peer / ours 1.20." in text


def test_the_page_stands_alone(monkeypatch):
    text = page.page(DOCUMENT)
    assert text.startswith("<!doctype html>") and "some&lt;cpu&gt;" in text and "<span class='behind'>0.80x</span>" in text
    assert "src=" not in text and "http" not in text.split("</style>")[0]
    assert ("<svg" in text) == page.can_plot()
    monkeypatch.setattr(page, "can_plot", lambda: False)
    assert "<svg" not in page.page(DOCUMENT)


def test_the_roofline_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    page.png(RUN, str(tmp_path / "roofline.png"))
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_has_a_few_figures(tmp_path):
    assert readme.figures(tmp_path).startswith("Not measured yet")
    kept = {**DOCUMENT, "format": FORMAT, "date": "2026-01-02", "rounds": 9, "startup_ms": {}}
    kept["startup_ms"] = {"build cold, a": 120.4, "build warm, a": 3.2, "build cold, b": 90.0, "build warm, b": 4.4}
    kept["machine"] = {"cpu": {"name": "zen", "vector_bits": 512}}
    (tmp_path / "training").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(kept))
    rows = [{"torch": 3.0, "ours": 2.0}, {"torch": None, "ours": 1.0}, {"torch": 8.0, "ours": 2.0}]
    (tmp_path / "training" / "2026-01-01-zen.json").write_text(json.dumps({"rows": rows}))
    told = readme.figures(tmp_path).splitlines()
    assert told[0] == "On a zen, float32, 2026-01-02, beside the fastest of NumPy and PyTorch in each row:" and told[2].startswith(
        "- Operations: 1 of 2 at least as fast"
    )
    assert "(1 thread)" in told[2] and told[3:] == [
        "- Training steps (loss, gradients, update), 2026-01-01: PyTorch eager / ours 1.5 to 4.0 over 2 rows.",
        "- Compiling an operation with its gradient: 90 to 120 ms over 2 of them, and 3 to 4 ms with the code in the cache on disk.",
    ]


def test_the_readme_quotes_the_newest_products(tmp_path):
    assert readme.odd_products(tmp_path).startswith("Products of odd shapes have not been measured yet")
    rows = [
        {"product": "1x2x3", "threads": 1, "ours": 1.0, "numpy": 2.0, "torch": 4.0, "difference": 0.0},
        {"product": "At 3x2x1", "threads": 1, "ours": 2.0, "numpy": 4.0, "torch": 1.0, "difference": 0.0},
        {"product": "1x2x3", "threads": 2, "ours": 1.0, "numpy": 3.0, "torch": None, "difference": 0.0},
    ]
    document = {"machine": {"cpu": {"name": "some"}}, "rows": rows}
    (tmp_path / "2026-01-02-some.json").write_text(json.dumps(document))
    assert readme.odd_products(tmp_path).splitlines()[1:] == [
        "2026-01-02 on a some (`python -m tensorexpr bench products`; [figures](../benchmarks/results/products/2026-01-02-some.json)):",
        "",
        "- 1 thread: faster peer / ours 1.00 in the geometric mean of 2, worst 0.50 (At 3x2x1), 1 behind.",
        "- 2 threads: faster peer / ours 3.00 in the geometric mean of 1, worst 3.00 (1x2x3), 0 behind.",
    ]


def test_the_readme_quotes_the_newest_training_steps(tmp_path):
    assert readme.training(tmp_path).startswith("Training steps have not been measured yet")
    row = {"case": "digits", "threads": 1, "ours": 0.1, "torch": 1.8, "trace": 0.25, "compile": 1.0, "kernels": 29, "difference": 1e-7}
    rows = [row, {**row, "case": "hundred", "torch": None}]
    for name, cpu in (("2026-01-02-zen.json", "zen"), ("2026-01-01-old.json", "old")):
        (tmp_path / name).write_text(json.dumps({"machine": {"cpu": {"name": cpu}}, "rows": rows}))
    assert readme.training(tmp_path).splitlines()[1:] == [
        "zen (`python -m tensorexpr bench training`; [figures](../benchmarks/results/training/2026-01-02-zen.json)):",
        "",
        "| training step | threads | ms | PyTorch ms | PyTorch / ours | traced and compiled in s |",
        "| --- | --- | --- | --- | --- | --- |",
        "| digits | 1 | 0.100 | 1.80 | 18.00 | 1.2 |",
        "| hundred | 1 | 0.100 | - | - | 1.2 |",
    ]


def test_the_page_on_libraries_quotes_the_newest_calls(tmp_path):
    assert readme.interop(tmp_path).startswith("Not measured yet")
    document = {
        "info": {"cpu": {"name": "zen"}},
        "rows": [{"host": "numpy", "call": "op", "microseconds": 0.084, "ratio": 0.28}],
        "threads": [{"workload": "matmul", "threads": count, "scaling": float(count)} for count in (1, 2)],
        "bundle": {"function": "x * x", "kilobytes": 18.6, "load": 0.261},
    }
    (tmp_path / "2026-01-02-zen.json").write_text(json.dumps(document))
    text = readme.interop(tmp_path)
    assert text.startswith("Measured on 2026-01-02 on a zen:") and "| numpy | `op` | 0.08 | 0.28 |" in text
    assert text.endswith("times those by one: 2.00 (`matmul`).\nA bundle of x * x is 19 KB, loaded in 0.26 ms.")
