"""`python -m tensorexpr.benchmarks.gpu.ceilings FOLDER`: what a GPU reaches at most, measured by kernels of ours that do one thing.

Loops in registers for tensor cores and multiplications, reads through each cache, chains of reads that wait for each other, empty
launches. What comes out are the facts of the machine (`codegen.auto.gpus`), written to FOLDER/NAME.json after each: put into
`codegen/auto/gpus/`, they are what the model of time counts with on GPUs of that name. With TENSOREXPR_CUDA=host the kernels run on this
CPU, as a test.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.benchmarks.gpu.peers import Clock
from tensorexpr.codegen.auto.gpus import KINDS, GpuFacts, facts_of, file_name
from tensorexpr.codegen.cuda.emitter.source import Launch, Source
from tensorexpr.codegen.cuda.launch.device import Device, Kernels, current_device
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.ir import Const

THREADS = 256
SIDE_BY_SIDE = 8
"""Chains of products in a warp: as many as hide that each waits for its own result."""
_OPERATIONS = {"bf16": 4096, "f16": 4096, "tf32": 2048, "f64": 512}
"""Of one product of matrices of a warp."""
READERS = 2
"""Times as many blocks read as multiply."""
LINE = 128
Found = dict[str, Any]

_MMA = """
extern "C" __global__ void __launch_bounds__(256) mma_{kind}(float *out, int64_t rounds) {{
  uint32_t a[4], b[2];
  for (int k = 0; k < 4; ++k) a[k] = threadIdx.x * 4 + k;
  for (int k = 0; k < 2; ++k) b[k] = threadIdx.x * 2 + k;
  float c[8][4];
  for (int k = 0; k < 8; ++k) for (int e = 0; e < 4; ++e) c[k][e] = 0.0f;
  for (int64_t r = 0; r < rounds; ++r) {{
    #pragma unroll
    for (int k = 0; k < 8; ++k) te_mma_{kind}(c[k][0], c[k][1], c[k][2], c[k][3], a, b);
  }}
  float sum = 0.0f;
  for (int k = 0; k < 8; ++k) for (int e = 0; e < 4; ++e) sum += c[k][e];
  out[(int64_t)blockIdx.x * 256 + threadIdx.x] = sum;
}}
"""
TEXT = (
    "".join(_MMA.format(kind=kind) for kind in ("bf16", "f16", "tf32"))
    + """
extern "C" __global__ void __launch_bounds__(256) mma_f64(float *out, int64_t rounds) {
  double a[1] = {1.0 + threadIdx.x}, b[1] = {2.0 + threadIdx.x}, c[8][2];
  for (int k = 0; k < 8; ++k) c[k][0] = c[k][1] = 0.0;
  for (int64_t r = 0; r < rounds; ++r) {
    #pragma unroll
    for (int k = 0; k < 8; ++k) te_mma_f64(c[k][0], c[k][1], a, b);
  }
  double sum = 0.0;
  for (int k = 0; k < 8; ++k) sum += c[k][0] + c[k][1];
  out[(int64_t)blockIdx.x * 256 + threadIdx.x] = (float)sum;
}
extern "C" __global__ void __launch_bounds__(256) fma_f32(float *out, int64_t rounds) {
  float x[16];
  const float a = 1.0f + 1e-7f * threadIdx.x, b = 1e-9f * blockIdx.x;
  for (int k = 0; k < 16; ++k) x[k] = (float)k;
  for (int64_t r = 0; r < rounds; ++r) {
    #pragma unroll
    for (int k = 0; k < 16; ++k) x[k] = fmaf(x[k], a, b);
  }
  float sum = 0.0f;
  for (int k = 0; k < 16; ++k) sum += x[k];
  out[(int64_t)blockIdx.x * 256 + threadIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(256) shared_reads(float *out, int64_t rounds) {
  __shared__ __align__(16) float tile[1024];
  for (int k = 0; k < 4; ++k) tile[threadIdx.x * 4 + k] = (float)k;
  __syncthreads();
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int64_t r = 0; r < rounds; ++r) {
    #pragma unroll
    for (int s = 0; s < 8; ++s) {
      float got[4];
      te_load(got, &tile[(threadIdx.x * 4 + s * 128 + (int)r * 64) % 1024]);
      for (int k = 0; k < 4; ++k) sum[k] += got[k];
    }
  }
  out[(int64_t)blockIdx.x * 256 + threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];
}
extern "C" __global__ void __launch_bounds__(256) read_all(float *out, const float *__restrict__ x, int64_t elements, int64_t rounds) {
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int64_t r = 0; r < rounds; ++r) {
    const int64_t block = (blockIdx.x + r * 37) % gridDim.x;  // another part of it each time: the first cache has none of that
    for (int64_t at = (block * 256 + threadIdx.x) * 4; at < elements; at += (int64_t)gridDim.x * 1024) {
      float got[4];
      te_load(got, &x[at]);
      for (int k = 0; k < 4; ++k) sum[k] += got[k];
    }
  }
  out[(int64_t)blockIdx.x * 256 + threadIdx.x] = sum[0] + sum[1] + sum[2] + sum[3];
}
extern "C" __global__ void __launch_bounds__(256) copy_all(float *out, const float *__restrict__ x, int64_t elements) {
  for (int64_t at = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4; at < elements; at += (int64_t)gridDim.x * 1024) {
    float got[4];
    te_load(got, &x[at]);
    te_store(&out[at], got);
  }
}
extern "C" __global__ void __launch_bounds__(1) chase(int64_t *out, const int64_t *next, int64_t rounds) {
  int64_t at = 0;
  for (int64_t r = 0; r < rounds; ++r) at = next[at];
  out[0] = at;
}
extern "C" __global__ void __launch_bounds__(1) nothing(float *out) {
  if (out == nullptr) return;
}
"""
)
ONE = (Const(1, dtypes.int64),)


@dataclass
class Bench:
    """Kernels, a clock, and sizes: those of a test are a few elements."""

    device: Device
    facts: GpuFacts
    tiny: bool
    clock: Clock = field(init=False)
    kernels: Kernels = field(init=False)
    launches: dict[str, Launch] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.device)
        rows: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
            **{f"mma_{kind}": (("out",), ("rounds",), THREADS) for kind in KINDS},
            "fma_f32": (("out",), ("rounds",), THREADS),
            "shared_reads": (("out",), ("rounds",), THREADS),
            "read_all": (("out", "x"), ("elements", "rounds"), THREADS),
            "copy_all": (("out", "x"), ("elements",), THREADS),
            "chase": (("out", "next"), ("rounds",), 1),
            "nothing": (("out",), (), 1),
        }
        self.launches = {name: Launch(name, b, s, False, (threads, 1, 1), ONE, False) for name, (b, s, threads) in rows.items()}
        source = Source(TEXT, tuple(self.launches.values()))
        compiled = None if self.device.arch is None else nvrtc.compile_text(TEXT, self.device.arch)
        with self.device.entered():
            self.kernels = self.device.load(source, compiled)

    def seconds(self, name: str, blocks: int, *arguments: int, repeats: int = 3) -> float:
        """The least time of a launch."""

        def call() -> None:
            self.kernels.launch(self.launches[name], (blocks, 1, 1), arguments)

        with self.device.entered():
            call()
            return min(self.clock.seconds(call, repeats) for _ in range(1 if self.tiny else 5))

    def memory(self, elements: int, dtype: Any = np.float32) -> tuple[Any, int]:
        """An array of zeros on the device, and where it begins."""
        with self.device.entered():
            array = self.device.upload(np.zeros(elements, dtype))
            return array, self.device.address(array)


def measured(bench: Bench) -> Iterator[tuple[str, Found]]:
    """What was measured, in words, and the facts that follow, one after the other."""
    facts, cores = bench.facts, 2 if bench.tiny else bench.facts.cores
    blocks, rounds = cores * 4, 2 if bench.tiny else 4096
    out, at = bench.memory(READERS * blocks * THREADS)
    warps = blocks * THREADS // 32
    rate = 2.0 * blocks * THREADS * 16 * 4 * rounds / bench.seconds("fma_f32", blocks, at, 4 * rounds) * 1e-9
    clock = rate / (64 * facts.fp32 * cores)
    yield f"{rate / 1e3:.4g} Tflop/s of float32: {clock:.4g} GHz", {"clock": clock}
    shares = []
    for kind, peak in zip(KINDS, facts.tensor, strict=True):
        rate = warps * SIDE_BY_SIDE * _OPERATIONS[kind] * rounds / bench.seconds(f"mma_{kind}", blocks, at, rounds) * 1e-9
        shares.append(rate / (peak * cores * clock))
        known = (*shares, *facts.mma[len(shares) :])
        yield f"{rate / 1e3:.4g} Tflop/s of mma.sync {kind}: {shares[-1]:.3g} of the data sheet at that clock", {"mma": known}
    rate = warps * 8 * 4 * rounds / bench.seconds("shared_reads", blocks, at, rounds) * 1e-9
    yield f"{rate * 128 / 1e3:.4g} TB/s of shared memory", {"wavefront": rate / cores / clock}
    for name, size, again in (("l2", facts.l2_bytes // 4, 16), ("memory", 1 << 30, 1)):
        elements = 1 << 12 if bench.tiny else size // 4
        held, x = bench.memory(elements)
        if name == "l2":
            rate = 4.0 * elements * again / bench.seconds("read_all", READERS * blocks, at, x, elements, again) * 1e-9
            yield f"{rate / 1e3:.4g} TB/s read of {4 * elements >> 20} MiB again and again", {"l2": rate}
        else:
            target, to = bench.memory(elements)
            rate = 8.0 * elements / bench.seconds("copy_all", cores * 8, to, x, elements) * 1e-9
            yield f"{rate / 1e3:.4g} TB/s copied of {4 * elements >> 20} MiB", {"memory": rate}
            del target
        del held
    for name, size in (("l2_latency", 8 << 20), ("memory_latency", 1 << 29)):
        with bench.device.entered():
            chain = bench.device.upload(_chain(1 << 12 if bench.tiny else size))
            steps = 8 if bench.tiny else 4096
            end = bench.memory(1, np.int64)
            taken = bench.seconds("chase", 1, end[1], bench.device.address(chain), steps, repeats=1) / steps * 1e9
        yield f"{taken:.4g} ns from an address to its element, of {size >> 20} MiB", {name: taken * clock}
        del chain
    taken = bench.seconds("nothing", 1, at, repeats=8 if bench.tiny else 1000) * 1e9
    yield f"{taken:.4g} ns from a launch to the next", {"launch": taken}
    del out


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _chain(size: int) -> np.ndarray:
    """Elements that each say where to read next, a line each, in no order."""
    lines = size // LINE
    order = np.random.default_rng(0).permutation(lines)
    order = np.concatenate([[0], order[order != 0]])
    found = np.zeros(size // 8, np.int64)
    found[order * (LINE // 8)] = np.roll(order, -1) * (LINE // 8)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and writes what is known after each figure."""
    parser = argparse.ArgumentParser(prog="tensorexpr.benchmarks.gpu.ceilings")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a few rounds: a test of this program")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    device = current_device()
    facts = device.facts if device.facts is not None else facts_of("sm_90")
    called = facts.name if device.facts is not None else device.name
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    document: Found = {
        "name": called, "source": f"measured by benchmarks/gpu/ceilings.py on {date}; what is not there as shipped for {facts.arch}",
        "arch": facts.arch, "cores": facts.cores, "l2_bytes": facts.l2_bytes, "measured": [],
    }  # fmt: skip
    file = options.folder / file_name(called)
    for words, found in measured(Bench(device, facts, options.tiny)):
        print(words, flush=True)
        document["measured"].append(words)
        document |= {key: list(map(_rounded, v)) if isinstance(v, tuple) else _rounded(v) for key, v in found.items()}
        part = file.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1) + "\n")
        part.replace(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
