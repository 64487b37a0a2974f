"""Predicted times: limits that are known, what bounds kernels of one kind, and how they are shown. Nothing here is measured."""

from __future__ import annotations

import json

import pytest

import tensorexpr as te
from tensorexpr.benchmarks.gpu import resources as cuda_resources
from tensorexpr.benchmarks.gpu import workloads as gpu_workloads
from tensorexpr.benchmarks.gpu.resources import limit_of
from tensorexpr.cli.main import main
from tensorexpr.codegen.auto import gpus
from tensorexpr.codegen.auto.gpus import A100, H200, facts_of
from tensorexpr.codegen.cuda.model.prediction import Prediction, limits_of
from tensorexpr.codegen.cuda.model.report import explained, predictions
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200 as TARGET
from tensorexpr.errors import TargetError
from tensorexpr.records import replace
from tensorexpr.simplify import simplify

with_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")


def predicted(outputs, inputs, arch: str = "sm_90", **sizes: int) -> list[Prediction]:
    code = GpuCode.of_schedule(autoschedule(simplify(te.program_of(outputs, inputs)), TARGET.running(arch)))
    return predictions(code.source, code.compiled(arch), code.nest, facts_of(arch), sizes)


@pytest.mark.parametrize(
    "threads, registers, shared, facts, blocks, by",
    [  # as the occupancy calculator has them
        (256, 32, 0, H200, 8, "warps"),
        (256, 64, 0, H200, 4, "registers"),
        (256, 255, 0, H200, 1, "registers"),
        (128, 16, 0, H200, 16, "warps"),
        (32, 16, 0, H200, 32, "blocks"),
        (256, 32, 81408, H200, 2, "shared memory"),
        (256, 32, 81408, A100, 2, "shared memory"),
        (1024, 64, 0, A100, 1, "registers"),
    ],
)
def test_blocks_that_are_there_at_once(threads, registers, shared, facts, blocks, by):
    found = limits_of(threads, registers, shared, facts)
    assert (found.blocks, found.by) == (blocks, by)


def gemm(n: int, dtype: str, inner: int):
    a, b = te.placeholder((n, inner), dtype, name="a"), te.placeholder((inner, n), dtype, name="b")
    return [te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], inner), name="c")], [a, b]


@with_nvrtc
def test_what_bounds_kernels_whose_limits_are_known():
    x = te.placeholder((1 << 24,), name="x")
    (copy,) = predicted([te.compute((1 << 24,), lambda i: x[i] * 2.0, name="y")], [x])
    assert copy.bound == "memory" and copy.share(H200) > 0.95
    assert copy.memory_bytes == copy.least_bytes == pytest.approx(8 << 24) and copy.nanoseconds == pytest.approx((8 << 24) / H200.memory)
    (product,) = predicted(*gemm(2048, "float32", 512))
    assert product.bound in ("issue", "fp32") and 0.7 < product.share(H200) < 1
    assert product.operations == pytest.approx(2 * 2048**2 * 512, rel=0.01)
    (half,) = predicted(*gemm(2048, "bfloat16", 512))
    cycles = 2 * 2048**2 * 512 / 132 / (4096 * H200.mma[0])
    assert cycles / H200.clock <= half.times["tensor cores"] < 1.5 * cycles / H200.clock  # and a rest of a wave
    assert half.share(H200) < 0.62  # what mma.sync reaches of the data sheet


@with_nvrtc
@pytest.mark.parametrize("facts", gpus.SHIPPED, ids=lambda facts: facts.arch)
def test_no_gpu_moves_bytes_faster_than_its_memory(facts):
    """The PTX of some architectures says more of parameters that are pointers: bytes are counted there, too."""
    x = te.placeholder((1 << 26,), name="x")
    (copy,) = predicted([te.compute((1 << 26,), lambda i: x[i] * 2.0, name="y")], [x], facts.arch)
    assert copy.least_bytes == pytest.approx(8 << 26) and copy.nanoseconds >= (8 << 26) / facts.memory * 0.999


@with_nvrtc
def test_a_transposition_is_scattered_and_a_kernel_of_one_thread_waits():
    x = te.placeholder((4096, 4096), name="x")
    (turned,) = predicted([te.compute((4096, 4096), lambda i, j: x[j, i], name="y")], [x])
    straight = predicted([te.compute((4096, 4096), lambda i, j: x[i, j] + 1.0, name="y")], [x])[0]
    assert turned.nanoseconds >= straight.nanoseconds
    s = te.schedule(te.compute((), lambda: te.sum(lambda k: x[0, k], 4096), name="y"), "cuda", [x])  # plain: one result, one thread
    code = GpuCode.of_schedule(s)
    (alone,) = predictions(code.source, code.compiled("sm_90"), code.nest, H200)
    assert alone.grid == (1, 1, 1) and alone.bound == "latency" and alone.share(H200) < 0.01


@with_nvrtc
def test_what_all_blocks_read_stays_in_the_first_cache_where_there_is_room():
    """Weights of a row beside the rows of the blocks that are there at once; a vector as long as the cache does not."""
    for length, scaled in ((8192, True), (1 << 16, False)):
        rows = (1 << 27) // length
        x, w = te.placeholder((rows, length), name="x"), te.placeholder((length,), name="w")
        (one,) = predicted([te.compute((rows, length), lambda i, j: x[i, j] * w[j], name="y")], [x, w])  # noqa: B023 -- called at once
        moved = 8 << 27
        assert one.l2_bytes == pytest.approx(moved + 132 * 4 * length if scaled else 12 << 27, rel=1e-3)
        assert one.memory_bytes == pytest.approx(moved, rel=1e-2) and (one.bound == "memory") == scaled


@with_nvrtc
def test_open_sizes_are_said():
    n = te.dim("n")
    x = te.placeholder((n, 512), name="x")
    outputs, inputs = [te.compute((n, 512), lambda i, j: x[i, j] * 2.0, name="y")], [x]
    small, large = predicted(outputs, inputs, n=4096), predicted(outputs, inputs, n=65536)
    assert large[0].least_bytes == 16 * small[0].least_bytes and large[0].nanoseconds > 8 * small[0].nanoseconds


@with_nvrtc
def test_copies_of_short_rows_meet_in_no_bank():
    a, b = (te.placeholder((1024, 256), "bfloat16", name=name) for name in "ab")
    outputs = [te.compute((1024, 1024), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k], 256), name="c")]
    (one,) = predicted(outputs, [a, b])
    shared = [x for x in one.accesses if x.space == "shared"]
    assert shared and all(x.units == x.least for x in shared) and "bank conflicts" not in explained([one], H200)


@with_nvrtc
def test_launches_of_a_scan_are_counted_and_looked_at_once():
    u = te.placeholder((4096,), name="u")
    states = te.scan(lambda t, v: te.compute((4096,), lambda i: 0.5 * (v[(i + 1) % 4096] + v[i])), u, 300)
    found = predicted([te.compute((4096,), lambda i: states[299, i], name="y")], [u])
    assert len({id(one) for one in found}) < 10 and len(found) <= 302
    if len(found) > 100:
        assert ", 300 times" in explained(found, H200) or " times, bound by" in explained(found, H200)


@with_nvrtc
def test_instructions_are_about_those_of_the_machine():
    """Main loops as the assembler has them: instructions of the model to one multiplication against those of the machine."""
    for name, arch in (("gemm 4096^3 fp32", "sm_90"), ("gemm 4096^3 tf32", "sm_90")):
        row = next(cuda_resources.listing(arch, [name]))
        if "main loop" not in row:
            pytest.skip("no cuobjdump to print machine code")
        loop = row["main loop"]
        multiplying = max(loop["tensor cores"], loop["multiply-adds"])
        by_unit = row["predicted"]["us by unit"]
        assert multiplying and by_unit["issue"]
        flops = 2 * 4096**3 / (4096 if loop["tensor cores"] and "tf32" not in name else 2048 if loop["tensor cores"] else 64)
        issued = by_unit["issue"] * 1e3 * 1.75 * 4 * 132
        machine = flops * loop["all"] / multiplying
        assert 0.85 < issued / machine < 1.3, (name, issued / machine)


@with_nvrtc
def test_show_explains(tmp_path, capsys):
    file = tmp_path / "ops.py"
    file.write_text("import tensorexpr as te\n@te.op\ndef double(x):\n    return te.compute(x.shape, lambda i: x[i] * 2.0)\n")
    assert main(["show", f"{file}:double", "f32[16777216]", "--stage", "cuda", "--explain"]) == 0
    out = capsys.readouterr().out
    assert "__global__" in out and "// predicted for H200 (sm_90), not measured: 31.2 us in 1 launch" in out and "bound by memory" in out
    assert main(["show", f"{file}:double", "--explain"]) == 1
    assert "expected --explain with --stage cuda, got it with --stage program" in capsys.readouterr().err


@with_nvrtc
def test_the_bench_prints_shares_of_peak(tmp_path, capsys, monkeypatch):
    loads = [load for load in gpu_workloads.all_of(True) if load.spec.name in ("softmax 5x40", "copy 2^6", "gemm any size bf16")]
    monkeypatch.setattr(gpu_workloads, "all_of", lambda tiny: loads)

    def none(made):
        raise TargetError("none")

    monkeypatch.setattr(nvrtc.Compiled, "sass", none)  # it goes without machine code
    assert main(["bench", "cuda-resources", "--json", str(tmp_path / "rows.json")]) == 0
    out = capsys.readouterr().out
    assert "sm_90: softmax 5x40, gradient: k0_" in out and "% of peak; " in out and "predicted " in out
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["facts"]["sm_90"]["source"] == H200.source
    kernels_ = [row for row in document["rows"] if "kernel" in row]
    assert all(0 < row["predicted"]["share of peak"] <= 1 and row["predicted"]["us"] > 0 for row in kernels_)
    whole = {row["workload"]: row["whole"] for row in document["rows"] if "whole" in row}
    assert list(whole) == [f"{load.spec.name}{end}" for load in loads for end in ("", ", gradient")[: 1 + load.spec.differentiable]]
    assert all(0 < row["share of the limit"] <= 1 for row in whole.values())
    for name, row in whole.items():
        mine = [one for one in kernels_ if one["workload"] == name]
        assert sum(one["times"] for one in mine) == row["launches"]
        gaps = (row["launches"] - 1) * H200.launch / 1e3
        assert row["us"] == pytest.approx(sum(one["times"] * one["predicted"]["us"] for one in mine) + gaps, rel=1e-4)


def test_limits_of_workloads():
    """Operations at the rate of the unit that may do them, or what goes in and out at the rate of copies."""
    loads = {load.spec.name: load for load in gpu_workloads.all_of(False)}
    peak = {kind: H200.cores * H200.clock * H200.tensor[gpus.KINDS.index(kind)] for kind in gpus.KINDS}
    assert limit_of(loads["gemm 4096^3 bf16"], False, H200) == pytest.approx(2 * 4096**3 / peak["bf16"])
    assert limit_of(loads["gemm 4096^3 tf32"], True, H200) == pytest.approx(3 * 2 * 4096**3 / peak["tf32"])
    assert limit_of(loads["gemm 4096^3 fp32"], False, H200) == pytest.approx(2 * 4096**3 / (256 * H200.cores * H200.clock))
    assert limit_of(loads["gemm 16 rows bf16"], False, H200) == pytest.approx(2 * (2 * 16 * 4096 + 4096**2) / H200.memory)
    assert limit_of(loads["layer norm 16384x8192"], True, H200) == pytest.approx(4 * (4 * 16384 * 8192 + 2 * 8192) / H200.memory, rel=1e-3)


def test_facts_of_gpus(tmp_path, monkeypatch):
    archs = [facts.arch for facts in gpus.SHIPPED]
    assert archs == ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"]
    for facts in gpus.SHIPPED:
        assert facts.source and facts.l2 > facts.memory and len(facts.tensor) == len(gpus.KINDS) and facts.warps * 32 in (1536, 2048)
    assert gpus.shipped("sm_90a").name == "H200" and gpus.shipped("sm_86").arch == "sm_89" and gpus.shipped("sm_103").arch == "sm_100"
    assert gpus.shipped("sm_75").arch == "sm_80" and gpus.shipped("sm_130").arch == "sm_120" and gpus.shipped("sm_52").arch == "sm_80"
    monkeypatch.setattr(gpus, "FOLDER", tmp_path)
    gpus._measured.cache_clear()
    assert gpus.file_name("NVIDIA H200 (141 GB)") == "nvidia-h200-141-gb.json"
    (tmp_path / "nvidia-test.json").write_text(json.dumps({"source": "measured", "memory": 4200.0, "tensor": [1, 2, 3, 4], "when": "now"}))
    found = facts_of("sm_90", "NVIDIA Test")
    assert (found.name, found.memory, found.tensor, found.source) == ("NVIDIA Test", 4200.0, (1, 2, 3, 4), "measured")
    assert facts_of("sm_90", "another") == facts_of("sm_90") == H200 and replace(found, name="x") != found
    gpus._measured.cache_clear()


@with_nvrtc
def test_what_a_block_has_stored_before_is_not_read_from_memory():
    q, k, v = (te.placeholder((8, 1024, 64), "bfloat16", name=n) for n in "qkv")
    found = predicted([te.kernels.scaled_dot_product_attention(q, k, v, is_causal=True)], [q, k, v])
    row = next(one for one in found if "total" in one.kernel)  # stores weights, and sums them then
    assert row.memory_bytes < 0.8 * row.l2_bytes and row.memory_bytes > 1.5 * 4 * 8 * 1024 * 1024
