"""The GPU benchmark at tiny sizes on the CPU, so that no GPU minute goes to slips."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.benchmarks.gpu import peers as gpu_peers
from tensorexpr.benchmarks.gpu import run as gpu
from tensorexpr.benchmarks.gpu import workloads as gpu_workloads
from tensorexpr.codegen.cuda.host import compiler
from tensorexpr.codegen.cuda.nvidia import nvrtc

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU")
torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


@pytest.fixture(autouse=True)
def host(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    monkeypatch.setattr(gpu, "ROUNDS", 1)
    monkeypatch.setattr(gpu, "SAMPLE", 1e-4)
    for name in gpu_peers.ENVIRONMENT:
        monkeypatch.setenv(name, os.environ.get(name, gpu_peers.ENVIRONMENT[name]))


def run(folder, *names, peers="", options=()):
    arguments = [str(folder), "--tiny", "--peers", peers, *(word for name in names for word in ("--filter", name)), *options]
    status = gpu.main(arguments)
    document = json.loads((folder / "gpu.json").read_text())
    return status, {(row["name"], row["direction"]): row for row in document["rows"]}, document


def test_the_table_has_the_workloads_that_are_meant_to_be_measured():
    loads = {load.spec.name: load for load in gpu_workloads.all_of(False)}
    for side in (4096, 8192):
        for kind, dtype in (("fp32", "float32"), ("tf32", "float32"), ("bf16", "bfloat16")):
            load = loads[f"gemm {side}^3 {kind}"]
            assert load.spec.shapes() == [((side, side), dtype)] * 2 and load.precision == ("tf32" if kind == "tf32" else None)
    assert loads["conv 3x3 32x256x56x56"].spec.shapes()[0][0] == (32, 256, 56, 56)
    assert {"softmax 16384x8192", "layer norm 16384x8192", "RMS norm 16384x8192", "attention 16384x64", "attention 16384x128"} < set(loads)
    assert {"Gaussian product 100000", "Gaussian product 1000000", "copy 2^27", "gemm 1024", "bilateral 9x9 1024"} < set(loads)
    assert loads["Gaussian product 1000000"].alone and loads["Gaussian product 1000000"].checked
    scattering = [name for name, load in loads.items() if load.scatters]
    assert sum(name.startswith("embedding") for name in scattering) == 4 and "conv 3x3 stride 2 32x256x56x56" in scattering
    assert {"grid sample 32x64x112x112", "bilinear x2", "average pool 3x3/2"} < set(scattering)
    tiny = gpu_workloads.all_of(True)
    assert len({load.spec.name for load in tiny}) == len(tiny) and len(loads) == len(gpu_workloads.all_of(False))


def test_without_peers_there_are_times_alone(tmp_path, capsys):
    status, rows, _ = run(tmp_path, "copy", "gemm 9^3 fp32")
    assert status == 0 and [set(row["ms"]) for row in rows.values()] == [{"tensorexpr"}] * 3
    capsys.readouterr()


@torch
@jax
def test_workloads_run_and_are_written_down(tmp_path, capsys):
    names = (
        "gemm 9^3 fp32",
        "gemm 9^3 bf16",
        "copy",
        "embedding 10x4, 7 equal",
        "grid sample",
        "conv 3x3 stride 2 2x",
        "Gaussian product 14",
    )
    status, rows, document = run(tmp_path, *names, peers="torch,deterministic,jax")
    assert status == 0 and all(not row["problems"] for row in rows.values())
    assert ("copy 2^6", "forward") in rows and ("copy 2^6", "gradient") not in rows and ("gemm 9^3 fp32", "gradient") in rows
    assert all(row["ms"]["tensorexpr"] > 0 and row["gbs"] > 0 for row in rows.values())
    assert all(row["error"] < (1e-2 if "bf16" in row["name"] else 1e-5) for row in rows.values())
    assert [set(row["ms"]) for key, row in rows.items() if key == ("Gaussian product 14", "forward")] == [{"tensorexpr"}]
    assert set(rows["conv 3x3 stride 2 2x4x6x6", "gradient"]["ms"]) == {"tensorexpr", "torch", "deterministic", "jax"}
    assert set(rows["gemm 9^3 bf16", "gradient"]["ms"]) == {"tensorexpr", "torch", "jax"}
    assert rows["embedding 10x4, 7 equal", "gradient"]["of_copy"] > 0 and rows["gemm 9^3 fp32", "forward"]["of_copy"] is None
    assert document["machine"]["device"] == "host"
    assert (tmp_path / "gpu.txt").read_text().count("\n") == len(rows) + 1
    assert "gemm 9^3 fp32" in capsys.readouterr().out


def test_tf32_is_asked_for(monkeypatch):
    asked, build = [], te.build

    def noted(outputs, inputs, target, **options):
        asked.append(options)
        return build(outputs, inputs, target=target)

    monkeypatch.setattr(te, "build", noted)
    loads = {load.spec.name: load for load in gpu_workloads.all_of(True)}
    for name in ("gemm 9^3 tf32", "gemm 9^3 fp32"):
        gpu.ours(loads[name], loads[name].spec.draw(), None)
    assert asked == [{"precision": "tf32"}, {}]


@torch
def test_a_failure_is_written_down_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    right, peer = gpu.ours, gpu_peers.candidate

    def ours(load, arrays, head):
        if load.spec.name == "copy 2^6":
            raise ValueError("planted")
        return right(load, arrays, head)

    def candidate(name, *rest):
        if name == "torch":
            raise RuntimeError("out of memory")
        return peer(name, *rest)

    monkeypatch.setattr(gpu, "ours", ours)
    monkeypatch.setattr(gpu_peers, "candidate", candidate)
    status, rows, _ = run(tmp_path, "copy", "gemm 16^3 fp32", peers="torch")
    assert status == 1 and rows["copy 2^6", "forward"]["problems"] == {"tensorexpr": "ValueError: planted"}
    row, text = rows["gemm 16^3 fp32", "forward"], (tmp_path / "gpu.txt").read_text()
    assert row["problems"] == {"torch": "RuntimeError: out of memory"} and row["ms"]["tensorexpr"] > 0
    assert "failed: ValueError" in text and "torch: RuntimeError: out of memory" in text
    capsys.readouterr()


def test_a_run_goes_on_behind_an_error_that_stays(tmp_path, monkeypatch, capsys):
    right = gpu.ours
    with monkeypatch.context() as broken:

        def ours(load, arrays, head):
            if load.spec.name == "copy 2^6":
                broken.setattr(gpu_peers.Clock, "synchronize", ours)
            return right(load, arrays, head)

        broken.setattr(gpu, "ours", ours)
        status, rows, _ = run(tmp_path, "copy", "gemm 16^3 fp32")
    assert (
        status == gpu.AGAIN
        and list(rows) == [("copy 2^6", "forward")]
        and "TypeError" in rows["copy 2^6", "forward"]["problems"]["tensorexpr"]
    )
    status, rows, _ = run(tmp_path, "copy", "gemm 16^3 fp32", options=["--resume"])
    assert status == 1 and len(rows) == 3 and "ms" not in rows["copy 2^6", "forward"] and "ms" in rows["gemm 16^3 fp32", "gradient"]
    capsys.readouterr()


@torch
def test_peers_that_were_not_tried_come_with_the_next_run(tmp_path, capsys):
    run(tmp_path, "copy", "gemm 16^3 fp32")
    _, rows, _ = run(tmp_path, "gemm 16^3 fp32", peers="torch", options=["--resume", "--seconds", "-1"])
    assert len(rows) == 3 and "torch" not in rows["gemm 16^3 fp32", "forward"]["ms"]  # no time: nothing is started
    _, rows, _ = run(tmp_path, "gemm 16^3 fp32", peers="torch", options=["--resume"])
    assert len(rows) == 3 and "torch" in rows["gemm 16^3 fp32", "forward"]["ms"]  # a peer that was not tried yet
    capsys.readouterr()


def test_a_turn_alone_and_predictions_behind_it(tmp_path, capsys):
    """The model's times are put beside rows that are there, on a machine without a GPU, by what a run of the ceilings has left."""
    names = ("gemm any size fp32", "transpose", "copy")
    status, rows, _ = run(tmp_path, *names, options=["--turn", "1"])
    assert status == 0 and "predicted" not in rows["copy 2^6", "forward"]
    if not nvrtc.available():
        pytest.skip("no NVRTC to compile CUDA kernels")
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "host.json").write_text(json.dumps({"name": "half", "memory": 2150.0, "launch": 1.0}))
    status, rows, _ = run(tmp_path, *names, options=["--predict"])
    assert status == 0 and all(row["predicted"] > 0 and "model" not in row["problems"] for row in rows.values())
    assert rows["gemm any size fp32", "gradient"]["predicted"] > rows["gemm any size fp32", "forward"]["predicted"]
    out = capsys.readouterr().out
    assert " model " in out and "gemm any size fp32" in out
    before = {key: row["predicted"] for key, row in rows.items()}
    _, rows, _ = run(tmp_path, *names, options=["--predict"])
    assert before == {key: row["predicted"] for key, row in rows.items()}
    assert gpu.facts_for(tmp_path, {"arch": "sm_90"}).memory == 2150.0


def test_rows_of_the_audit_are_among_the_workloads():
    loads = {load.spec.name: load for load in gpu_workloads.all_of(False)}
    assert {"gemm odd depth bf16", "gemm 16 rows bf16", "gemm 256x256x8192 bf16", "transpose 8192"} < set(loads)
    assert {"causal attention 32x2048x64 bfloat16", "conv 3x3 32x256x56x56 bf16"} < set(loads)
    for name in ("gemm any size fp32", "gemm any size bf16"):
        a, b = loads[name].placeholders()
        assert len({str(n) for n in (*a.shape, *b.shape)}) == 3 and str(a.shape[1]) == str(b.shape[0]) == "n4000"


@torch
def test_wrong_results_are_told_from_right_ones():
    device = gpu.current_device()
    loads = {load.spec.name: load for load in gpu_workloads.all_of(True)}
    for name in ("gemm 9^3 fp32", "Gaussian product 14"):
        load, arrays = loads[name], loads[name].spec.draw()
        results = [np.array(r) for r in gpu.ours(load, arrays, None)[0]()]
        assert gpu_peers.error(load, arrays, None, results, device) < 1e-6
        results[0][1, 0] += 1.0
        assert gpu_peers.error(load, arrays, None, results, device) > 1e-2
        results[0][1, 0] = np.nan
        assert not gpu_peers.error(load, arrays, None, results, device) < 1.0


def test_what_takes_too_long_is_given_up():
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"more than 0\.05 seconds"), gpu_peers.limited(0.05):
        while time.monotonic() - began < 5:
            time.sleep(0.01)
    assert time.monotonic() - began < 4


def test_a_process_that_nothing_comes_back_to_ends_and_is_started_again():
    """As one whose kernel waits for itself: no signal reaches it."""
    hangs = """
import ctypes
from tensorexpr.benchmarks.gpu import peers
peers.GRACE = 0.2
library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
with peers.limited(0.1):
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)
"""
    done = subprocess.run([sys.executable, "-c", hangs], capture_output=True, text=True, timeout=60)
    assert done.returncode == gpu_peers.AGAIN and "more than 0.3 seconds, and nothing comes back" in done.stderr


def test_without_a_device_nothing_is_tried(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TENSOREXPR_CUDA"}
    environment |= {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}  # a device that is there is not seen
    done = subprocess.run(["bash", str(SCRIPT), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "no device: see " in done.stdout and "TargetError" in (tmp_path / "machine.txt").read_text()
    assert not (tmp_path / "steps.txt").exists()


@torch
def test_the_cost_of_a_call():
    device = gpu.current_device()
    found = gpu.overheads(device, gpu_peers.Clock(device), ["torch", "cupy"])
    assert set(found) == {"tensorexpr", "torch"} and all(isinstance(value, float) and value > 0 for value in found.values())
    assert "microseconds of the host per call: tensorexpr " in gpu.table([], found)


def test_triton_is_a_peer_where_it_is_installed(monkeypatch):
    if not gpu_peers.installed("triton"):
        pytest.skip("triton is not installed")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    device, wanted = gpu.current_device(), ("gemm 16^3 fp32", "softmax 5x40", "layer norm 5x40")
    for load in (load for load in gpu_workloads.all_of(True) if load.spec.name in wanted):
        arrays, head = load.spec.draw(), load.spec.head()
        made = gpu_peers.candidate("triton", load, arrays, head, arrays, device)
        assert gpu_peers.error(load, arrays, head, [t.cpu().numpy() for t in made()], device) < 1e-5


def test_one_call_lays_out_the_packages_and_runs_tests_and_workloads(tmp_path):
    environment = {**os.environ, "PYTHON": sys.executable, "GPU_WORKERS": "", "GPU_TESTS": "tests/codegen/cuda/test_missing.py"}
    command = ["bash", str(SCRIPT), str(tmp_path), "150", "--tiny", "--peers", "", "--filter", "copy"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in (tmp_path / "tests.txt").read_text().splitlines()[-1]
    probe = (tmp_path / "machine.txt").read_text()
    assert (
        "device host" in probe and "the first kernel is right" in probe and str(SCRIPT.parents[1]) not in probe
    )  # the packages that were laid out, not the checkout's
    assert json.loads((tmp_path / "gpu.json").read_text())["rows"][0]["ms"]["tensorexpr"] > 0
    # All steps have come to an end; each has written what it said.
    steps = ("contact", "sanitizer", "tests", "rows", "ceilings", "ncu", "tiles", "compiled", "predict")
    assert all(f"== {name}: ended with 0 " in (tmp_path / "steps.txt").read_text() for name in steps)
    assert all((tmp_path / f"{name}.txt").exists() for name in steps)
    assert json.loads((tmp_path / "facts" / "host.json").read_text())["memory"] > 0


@pytest.mark.parametrize("options", [(), ("--filter", "conv 3x3"), ("--tiny",)], ids=["none", "of several words", "one"])
def test_steps_get_the_options_of_the_call(options):
    """Those of none are none: an empty word would be refused, and no row measured."""
    own = "\n".join(re.findall(r"^in_bash\(\) \{.*?^\}$", SCRIPT.read_text(), re.DOTALL | re.MULTILINE))
    text = f"""{own}\nset -u; options=("$@"); bash -c "$(in_bash 'printf "<%s>" "${{#options[@]}}" ${{options[@]+"${{options[@]}}"}}')" """
    done = subprocess.run(["bash", "-c", text, "x", *options], capture_output=True, text=True, timeout=20)
    assert done.stdout == "".join(f"<{word}>" for word in (len(options), *options)), done.stderr


def test_all_tests_of_a_gpu_are_found_where_the_packages_are_laid_out(tmp_path):
    """One that imports what is not there would end the whole run, a minute of a GPU."""
    environment = {**os.environ, "PYTHON": sys.executable, "GPU_WORKERS": "--collect-only -qqq"}
    environment.pop("GPU_TESTS", None)
    environment["GPU_STEPS"] = "contact tests"
    command = ["bash", str(SCRIPT), str(tmp_path), "90", "--tiny", "--peers", "", "--filter", "no-such-workload"]
    subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    found = (tmp_path / "tests.txt").read_text()
    assert " passed" in (tmp_path / "contact.txt").read_text()
    assert "tests/codegen/cuda/test_kernels.py" in found and "ERROR" not in found and "error" not in found.splitlines()[-1]
