"""What this machine can do: fused multiply-adds per second, and bytes per second of streams, by kernels generated here.

The kernels are texts of LLVM IR in the vectors of this machine: independent accumulators that never leave registers, a copy
and a triad `a = b + s c`, each with ordinary and with non-temporal stores. Streams are timed at several sizes, since a
workload that fits in the last cache is to be compared with that cache. Several threads run a part each.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorexpr.codegen.llvm.process.load import load
from tensorexpr.codegen.llvm.text.machine import Machine, host

ACCUMULATORS = 16
STREAMS = ("copy", "copy_nt", "triad", "triad_nt")
SIZES = (8 << 20, 32 << 20, 128 << 20, 512 << 20)
"""Bytes that a stream reads and writes in all."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Flop/s of multiply-adds, and bytes per second of each stream by the bytes that it moves."""

    threads: int
    flops: float
    streams: dict[str, dict[int, float]]

    def bandwidth(self, moved: float) -> float | None:
        """The best stream of the size nearest to `moved` bytes; None for what fits in caches near the core."""
        sizes = list(next(iter(self.streams.values())))
        if moved < min(sizes) / 2:
            return None
        near = min(sizes, key=lambda size: abs(np.log(size / moved)))
        return max(speeds[near] for speeds in self.streams.values())

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        streams = {name: {str(size): speed for size, speed in speeds.items()} for name, speeds in self.streams.items()}
        return {"threads": self.threads, "flops": self.flops, "streams": streams}

    @staticmethod
    def of_json(value: dict[str, Any]) -> Roofline:
        """From plain values."""
        streams = {name: {int(size): speed for size, speed in speeds.items()} for name, speeds in value["streams"].items()}
        return Roofline(value["threads"], value["flops"], streams)


def fma_text(lanes: int) -> str:
    """`multiply_add(out, n, a, b)`: n rounds of `acc = acc a + b` on every accumulator; the sum goes to `out` so that none is dropped."""
    vector = f"<{lanes} x float>"
    splat = ", ".join(["i32 0"] * lanes)
    lines = ["define void @multiply_add(ptr %out, i64 %n, float %a, float %b) {", "entry:"]
    for name in "ab":
        lines.append(f"  %i{name} = insertelement {vector} poison, float %{name}, i32 0")
        lines.append(f"  %v{name} = shufflevector {vector} %i{name}, {vector} poison, <{lanes} x i32> <{splat}>")
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    lines += [f"  %acc{k} = phi {vector} [ %va, %entry ], [ %new{k}, %loop ]" for k in range(ACCUMULATORS)]
    call = f"call {vector} @llvm.fma.v{lanes}f32"
    lines += [f"  %new{k} = {call}({vector} %acc{k}, {vector} %va, {vector} %vb)" for k in range(ACCUMULATORS)]
    lines += ["  %next = add i64 %i, 1", "  %more = icmp ult i64 %next, %n", "  br i1 %more, label %loop, label %done", "done:"]
    lines += [
        f"  %sum{k} = fadd {vector} {'zeroinitializer' if k == 0 else f'%sum{k - 1}'}, %new{k}" for k in range(ACCUMULATORS)
    ]  # fmt: skip
    lines += [f"  store {vector} %sum{ACCUMULATORS - 1}, ptr %out, align 4", "  ret void", "}"]
    lines.append(f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})")
    return "\n".join(lines)


def stream_text(name: str, lanes: int, unroll: int = 4) -> str:
    """`NAME(a, b, c, n)` over n floats (a multiple of a step): `a = b`, or `a = b + 3 c`."""
    vector, hint = f"<{lanes} x float>", ", !nontemporal !0" if name.endswith("_nt") else ""
    three = ", ".join(["float 3.0"] * lanes)
    lines = [f"define void @{name}(ptr %a, ptr %b, ptr %c, i64 %n) {{", "entry:", "  br label %loop", "loop:"]
    lines.append("  %i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    for k in range(unroll):
        lines.append(f"  %at{k} = add i64 %i, {k * lanes}")
        for array in "abc":
            lines.append(f"  %{array}{k} = getelementptr float, ptr %{array}, i64 %at{k}")
        lines.append(f"  %x{k} = load {vector}, ptr %b{k}, align 64")
        if name.startswith("triad"):
            lines.append(f"  %y{k} = load {vector}, ptr %c{k}, align 64")
            lines.append(f"  %z{k} = call {vector} @llvm.fma.v{lanes}f32({vector} %y{k}, {vector} <{three}>, {vector} %x{k})")
        lines.append(f"  store {vector} %{'z' if name.startswith('triad') else 'x'}{k}, ptr %a{k}, align 64{hint}")
    lines += [f"  %next = add i64 %i, {unroll * lanes}", "  %more = icmp ult i64 %next, %n"]
    lines += ["  br i1 %more, label %loop, label %done", "done:", "  ret void", "}"]
    return "\n".join(lines)


def module_text(machine: Machine) -> str:
    """All kernels."""
    lanes = machine.vector_bits // 32
    return "\n".join([fma_text(lanes), *(stream_text(name, lanes) for name in STREAMS), "!0 = !{i32 1}"])


def _together(parts: Sequence[Callable[[], Any]], rounds: int) -> float:
    """Seconds that all parts take side by side, one thread each: the median over rounds."""
    if len(parts) == 1:
        return _median(parts[0], rounds)
    start, done = threading.Barrier(len(parts) + 1), threading.Barrier(len(parts) + 1)

    def work(part: Callable[[], Any]) -> None:
        for _ in range(rounds):
            start.wait()
            part()
            done.wait()

    workers = [threading.Thread(target=work, args=(part,)) for part in parts]
    for worker in workers:
        worker.start()

    def one() -> None:
        start.wait()
        done.wait()

    taken = _median(one, rounds)
    for worker in workers:
        worker.join()
    return taken


def _median(function: Callable[[], Any], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def _aligned(count: int) -> np.ndarray:
    """Memory that has been written to: reads of what has not are all of one page of zeros, which is in the first cache."""
    whole = np.ones(count + 16, np.float32)
    first = (-whole.ctypes.data % 64) // 4
    return whole[first : first + count]


def measure(threads: int, sizes: Sequence[int] = SIZES, multiply_adds: int = 1 << 26, rounds: int = 7) -> Roofline:
    """Times the kernels on so many threads."""
    machine = host()
    lanes = machine.vector_bits // 32
    code = load(module_text(machine), machine, "registers")
    fma = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_float)(code.address("multiply_add"))
    sums = [_aligned(16) for _ in range(threads)]
    turns = multiply_adds // ACCUMULATORS
    parts = [functools.partial(fma, s.ctypes.data, turns, 0.5, 1.0) for s in sums]
    taken = _together(parts, rounds)
    flops = threads * turns * ACCUMULATORS * lanes * 2 / taken
    streams: dict[str, dict[int, float]] = {name: {} for name in STREAMS}
    for name in STREAMS:
        stream = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address(name))
        count = 3 if name.startswith("triad") else 2
        for size in sizes:
            each = size // (4 * count * threads) // (16 * lanes) * (16 * lanes)
            held = [[_aligned(each) for _ in range(count)] for _ in range(threads)]
            calls = []
            for arrays in held:
                pointers = [a.ctypes.data for a in arrays] + [arrays[-1].ctypes.data] * (3 - count)
                calls.append(functools.partial(stream, *pointers, each))
            _together(calls, 1)
            streams[name][size] = threads * each * 4 * count / _together(calls, rounds)
    return Roofline(threads, flops, streams)
