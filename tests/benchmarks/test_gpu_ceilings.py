"""The kernels that measure a GPU's ceilings, and the functions for sanitizers, on this CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tensorexpr.benchmarks.gpu import ceilings as gpu_ceilings
from tensorexpr.benchmarks.gpu import kernels as gpu_kernels
from tensorexpr.benchmarks.gpu.ceilings import TEXT, Bench, measured
from tensorexpr.codegen.auto.gpus import H200, KINDS, facts_of, with_measured
from tensorexpr.codegen.cuda.host import HostKernels, Memory, compiler
from tensorexpr.codegen.cuda.host.device import HostDevice
from tensorexpr.codegen.cuda.model.prediction import predict_launch
from tensorexpr.codegen.cuda.model.text import kernels_of
from tensorexpr.codegen.cuda.nvidia import nvrtc

on_cpu = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU")


@pytest.fixture(autouse=True)
def host(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")


class Watched(HostDevice):
    """This CPU, every access of a kernel looked at."""

    def __init__(self) -> None:
        self.memory: list[np.ndarray] = []

    def load(self, source, compiled):
        self.kernels = HostKernels(source, checked=True)
        launch = self.kernels.launch

        def watched(*given):
            self.kernels.watch(Memory(f"array {k}", a.ctypes.data, a.nbytes, a.itemsize, True, True) for k, a in enumerate(self.memory))
            launch(*given)

        self.kernels.launch = watched
        return self.kernels

    def upload(self, array):
        self.memory.append(super().upload(array))
        return self.memory[-1]


@on_cpu
def test_no_kernel_goes_beyond_its_arrays():
    found = dict(pair for _, some in measured(Bench(Watched(), H200, True)) for pair in some.items())
    assert set(found) == {"clock", "mma", "wavefront", "l2", "memory", "l2_latency", "memory_latency", "launch"}
    assert len(found["mma"]) == len(KINDS) and all(np.all(np.asarray(value) > 0) for value in found.values())


@on_cpu
def test_what_is_measured_becomes_facts(tmp_path: Path, capsys):
    assert gpu_ceilings.main([str(tmp_path), "--tiny"]) == 0
    document = json.loads((tmp_path / "host.json").read_text())
    facts = with_measured(facts_of("sm_90"), document)
    assert facts.name == "host" and facts.memory == document["memory"] and facts.mma == tuple(document["mma"]) and facts.warps == H200.warps
    assert facts.source.startswith("measured by benchmarks/gpu/ceilings.py on ") and len(document["measured"]) == 11
    capsys.readouterr()


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_the_compiler_leaves_the_loops_to_be_measured():
    """By the model of time, each kernel does what it is there for, as often as it says, and at the rate that the facts say."""
    made = nvrtc.compile_text(TEXT, "sm_90")
    kernels, rounds, blocks = kernels_of(made.ptx), 256, 4 * H200.cores
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_text", lambda *_: made)
        launches = Bench(HostDevice(), H200, True).launches if compiler() is not None else pytest.skip("no C++ compiler")
    warps = blocks * 8

    def predicted(name: str, *scalars: int):
        launch = launches[name]
        sizes = {"out": 4.0 * blocks * 256, "x": 4.0 * (1 << 22), "next": 1e6}
        return predict_launch(kernels[name], launch, (blocks, 1, 1), scalars, sizes, made.resources[name], H200)

    for kind, operations in gpu_ceilings._OPERATIONS.items():
        found = predicted(f"mma_{kind}", rounds)
        assert found.operations == pytest.approx(warps * 8 * operations * rounds, rel=0.01) and found.bound == "tensor cores"
    found = predicted("fma_f32", 4 * rounds)
    assert found.operations == pytest.approx(2 * blocks * 256 * 16 * 4 * rounds, rel=0.01) and found.bound in ("fp32", "issue")
    found = predicted("shared_reads", rounds)
    assert found.bound == "L1 and shared memory"
    reads = sum(a.units for a in found.accesses if a.space == "shared" and a.instruction.opcode.startswith("ld"))
    assert reads == pytest.approx(8 * 8 * 4 * rounds, rel=0.01)  # eight warps, eight reads, four quarters
    found = predicted("read_all", 1 << 22, 4)
    assert found.l2_bytes == pytest.approx(4 * 4 * (1 << 22), rel=0.05) and found.bound == "L2"


@on_cpu
@pytest.mark.parametrize("name", gpu_kernels.FUNCTIONS)
def test_functions_for_sanitizers_are_right(name: str, capsys, monkeypatch):
    assert gpu_kernels.main([name, "--tiny"]) == 0
    assert f"{name}: right" in capsys.readouterr().out
    monkeypatch.setattr(gpu_kernels, "run", lambda *_: float("nan"))
    assert gpu_kernels.main([name, "--tiny"]) == 1 and "WRONG" in capsys.readouterr().out


def test_chains_go_through_every_line():
    found, at, seen = gpu_ceilings._chain(1 << 12), 0, set()
    for _ in range(32):
        seen.add(at)
        at = int(found[at])
    assert at == 0 and seen == {16 * k for k in range(32)}
