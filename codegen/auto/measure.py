"""The facts of this machine, measured: small kernels in LLVM's language, each of which keeps one resource busy and little else.

Every kernel is a loop that is run for some tens of thousands of iterations, several times over; the least time counts, since whatever
disturbs a measurement makes it longer. Kernels that read memory go through as many bytes as a level and no smaller one holds. It takes
about a second. Figures are rounded to two digits, so that what is chosen by them is the same on machines of one kind. Nothing is measured
while much else runs, and nothing is kept that no machine is known to have (`is_sane`): the next process measures then.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.codegen import disk
from tensorexpr.codegen.auto.machine import Facts, shipped
from tensorexpr.codegen.llvm.process.load import load
from tensorexpr.codegen.llvm.process.pool import pool
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.target import host_target
from tensorexpr.records import as_dict, replace

ROUNDS = 9
"""Times that each kernel runs; the least counts."""
SECONDS = 0.002
"""Seconds that one run takes, at least."""
PIECE = 1 << 20
"""Bytes that are gone through at a time: as many as take some ten microseconds."""
MEMORY = 192 << 20
"""Bytes that no cache is counted on to hold; where the last level is known to be larger, it is shared, and others fill it."""

BUSY = 1.5
"""Threads that are ready to run, for each core, from which on nothing is measured."""
FAR = 16.0
"""How many times as long as on the shipped machine an instruction or a line may take, or as short: 64-bit divisions differ by 10."""
DISORDER = 0.6
"""The time of a line in parts of that from a nearer level at least: levels that are about as fast are measured in either order."""

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_WAYS = 12
"""Chains side by side: more than any latency times throughput of current cores."""


_FACTS = "facts of a machine"
_PLACE = """  %q = getelementptr i32, ptr %b, i64 %i
  %j = load i32, ptr %q, align 4
  %w = zext i32 %j to i64
  %p = getelementptr i8, ptr %a, i64 %w
"""
_LOADED, _STORED = _PLACE + "  %x = load volatile float, ptr %p, align 4", _PLACE + "  store volatile float 1.0, ptr %p, align 4"
"""An element that is loaded, or stored, at a place that is read from a list."""


@cache
def facts_here() -> Facts:
    """The facts of this machine: kept ones, else measured and kept; shipped ones where TENSOREXPR_MEASURE is 0, or nothing is kept: each
    process would measure other figures, and choose other loops. Shipped ones for now where the machine is busy, or what was measured is
    not sane."""
    nearest = shipped(host_target().with_two_cores)
    if os.environ.get("TENSOREXPR_MEASURE", "").strip() == "0" or disk.folder() is None:
        return nearest
    machine = host()
    key = disk.digest(_FACTS, Path(__file__).read_bytes(), repr(machine), repr(nearest))
    kept = disk.load(key)
    if kept is not None:
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.about.items()}
        return Facts(**values)
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > BUSY * (os.cpu_count() or 1):
        return nearest
    found = measured(nearest, machine)
    if not is_sane(found, nearest):
        return nearest
    disk.save(key, disk.Entry(as_dict(found), b""))
    return found


def is_sane(found: Facts, nearest: Facts) -> bool:
    """Whether instructions and lines take about as long as on a shipped machine, and farther lines no less than nearer ones."""
    others = ("page", "fork", "call", "caches")  # times of the system, and bytes
    figures, known = ([*_figures(facts, others)] for facts in (found, nearest))
    levels = [pair for level in (found.lines, found.jumps, found.writes) for pair in pairwise(level)]
    alike = all(b / FAR <= a <= b * FAR for a, b in zip(figures, known, strict=True))
    return alike and all(far >= DISORDER * near for near, far in levels)


def _figures(facts: Facts, others: tuple[str, ...]) -> Iterator[float]:
    """The times among facts, one by one."""
    for name, value in as_dict(facts).items():
        if name not in others and isinstance(value, float | tuple):
            yield from value if isinstance(value, tuple) else (value,)


def measured(nearest: Facts, machine: Machine) -> Facts:
    """The facts of this machine; what is not measured is as shipped."""
    bench = _Bench(machine)
    found = {name: _rounded(value) for name, value in bench.core()}
    memory = bench.memory(nearest.caches)
    auto = machine.vector_bits if machine.vector_bits <= 256 or bench.prefers_whole() else machine.vector_bits // 2
    return replace(
        nearest,
        source="measured",
        auto_bits=auto,
        page=_rounded(bench.page()),
        fork=_rounded(bench.fork()) if nearest.cores > 1 else nearest.fork,
        **found,
        **memory,
    )


def _rounded(value: float) -> float:
    """Two digits of a positive number."""
    if value <= 0:
        return 0.0
    digits = 1 - floor(log10(value))
    return round(value, digits)


class _Bench:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.lanes = machine.vector_bits // 32
        self.vector = f"<{self.lanes} x float>"
        self.size = machine.vector_bits // 8
        near = np.zeros(1 << 16, np.uint8)
        self.near = near[-near.ctypes.data % 4096 :][: 32 << 10]
        self.near.view(np.float32)[:] = 1.0

    # -------------------------------------------------------------------------------------------------------- the core

    def core(self) -> Iterator[tuple[str, float]]:
        """Nanoseconds of each fact of a core."""
        v, n = self.vector, self.lanes
        fma = f"call {v} @llvm.fma.v{n}f32({v} {{x}}, {v} %c, {v} %c)"
        rotated = ", ".join(f"i32 {(lane + 1) % n}" for lane in range(n))
        yield "instruction", self._asm("nop", 60) / 60
        yield "iteration", self._asm("", 1)
        latency = self._ways(fma, 1)
        yield "latency", latency
        yield (
            "add_latency",
            self._run(
                "  %y = fadd float %x, 1.0",
                "  %x = phi float [ 1.0, %entry ], [ %y, %last ]",
                after="  store volatile float %y, ptr %b, align 4",
            ),
        )
        yield "arithmetic", self._ways(fma, _WAYS) / _WAYS
        yield "divide", self._ways(f"fdiv {v} %c, {{x}}", 4) / 4
        yield (
            "divide_one",
            self._run(
                "\n".join(f"  %y{k} = fdiv float 1.0, %x{k}" for k in range(4)),
                "\n".join(f"  %x{k} = phi float [ 3.0, %entry ], [ %y{k}, %last ]" for k in range(4)),
                after="\n".join(f"  store volatile float %y{k}, ptr %b, align 4" for k in range(4)),
            )
            / 4,
        )
        divided = "  %j = add i64 %i, 1000000007\n  %q = sdiv i64 9223372036854775783, %j\n  store volatile i64 %q, ptr %b, align 8"
        yield "divide_integer", self._run(divided)
        yield "shuffle", self._ways(f"shufflevector {v} {{x}}, {v} poison, <{n} x i32> <{rotated}>", _WAYS) / _WAYS
        yield "load", self._accesses("load", 0)
        yield "across", self._accesses("load", 4)
        yield "store", self._accesses("store", 0)
        yield "forward", max(self._forwarded() - latency, latency)
        yield "gather", self._gathers(False)
        yield "scatter", self._gathers(True)
        yield "mispredicted", self._mispredicted()

    def _run(
        self,
        body: str,
        phis: str = "",
        before: str = "",
        arrays: tuple[np.ndarray, np.ndarray] | None = None,
        after: str = "",
        count: int = 20_000,
    ) -> float:
        """Nanoseconds of one iteration of a loop; `phis` stand at its head, `before` in front of it and `after` behind it."""
        text = f"""target triple = "{self.machine.triple}"
define void @kernel(ptr noalias %a, ptr noalias %b, i64 %n) nounwind {{
entry:
  %c = load {self.vector}, ptr %a, align 4
{before}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %last ]
{phis}
  br label %work
work:
{body}
  br label %last
last:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{after}
  ret void
}}
"""
        for name in ("fma",):
            text += f"declare {self.vector} @llvm.{name}.v{self.lanes}f32({self.vector}, {self.vector}, {self.vector})\n"
        module = load(text, self.machine, "none")
        function = _SIGNATURE(module.address("kernel"))
        a, b = arrays or (self.near, self.near)
        return _least(lambda times: function(a.ctypes.data, b.ctypes.data, times), count)

    def _asm(self, text: str, times: int) -> float:
        return self._run("\n".join(f'  call void asm sideeffect "{text}", ""()' for _ in range(times)))

    def _ways(self, operation: str, ways: int) -> float:
        """An iteration in which each of `ways` registers becomes what the operation makes of it."""
        v = self.vector
        phis = "\n".join(f"  %x{k} = phi {v} [ %c, %entry ], [ %y{k}, %last ]" for k in range(ways))
        body = "\n".join(f"  %y{k} = {operation.format(x=f'%x{k}')}" for k in range(ways))
        after = "\n".join(f"  store volatile {v} %y{k}, ptr %b, align 4" for k in range(ways))
        return self._run(body, phis, after=after)

    def _accesses(self, kind: str, offset: int) -> float:
        lines = []
        for k in range(32):
            place = f"  %p{k} = getelementptr i8, ptr %a, i64 {k * self.size + offset}"
            access = (
                f"%x{k} = load volatile {self.vector}, ptr %p{k}, align 4"
                if kind == "load"
                else f"store volatile {self.vector} %c, ptr %p{k}, align 4"
            )
            lines += [place, f"  {access}"]
        return self._run("\n".join(lines)) / 32

    def _forwarded(self) -> float:
        body = "  %x = load volatile float, ptr %a, align 4\n  %y = fadd float %x, 1.0\n  store volatile float %y, ptr %a, align 4"
        return self._run(body)

    def _gathers(self, store: bool) -> float:
        """An element of a gather, or a scatter, from 16 KiB at random places."""
        v, n = self.vector, self.lanes
        places = np.zeros(64 * n, np.int64)
        places[:] = np.random.default_rng(0).permutation(4096)[: places.size]
        before = ""
        lines = []
        for k in range(8):
            at = f"  %i{k} = load <{n} x i64>, ptr %q{k}, align 8\n  %g{k} = getelementptr float, ptr %a, <{n} x i64> %i{k}"
            before += f"  %q{k} = getelementptr i64, ptr %b, i64 {k * n}\n{at}\n"
            on = f"<{n} x i1> splat (i1 true)"
            if store:
                lines.append(f"  call void @llvm.masked.scatter.v{n}f32.v{n}p0({v} %c, <{n} x ptr> align 4 %g{k}, {on})")
            else:
                lines += [
                    f"  %x{k} = call {v} @llvm.masked.gather.v{n}f32.v{n}p0(<{n} x ptr> align 4 %g{k}, {on}, {v} zeroinitializer)",
                    f'  call void asm sideeffect "", "{self._register},~{{memory}}"({v} %x{k})',
                ]
        return self._run("\n".join(lines), before=before, arrays=(self.near, places)) / (8 * n)

    @property
    def _register(self) -> str:
        """The letter of vector registers in inline assembly."""
        return {"aarch64": "w", "arm64": "w"}.get(self.machine.architecture, "v" if self.machine.vector_bits == 512 else "x")

    def _mispredicted(self) -> float:
        """What a branch costs that goes both ways by chance, of which half are predicted, beside one that always goes the same way."""
        body = """  %p = getelementptr i8, ptr %b, i64 %i
  %x = load i8, ptr %p, align 1
  %is = icmp eq i8 %x, 0
  br i1 %is, label %yes, label %no
yes:
  call void asm sideeffect "nop", ""()
  br label %no
no:"""
        chance = np.random.default_rng(0).integers(0, 2, 1 << 16).astype(np.uint8)
        times = [self._run(body, arrays=(self.near, bits), count=1 << 16) for bits in (chance, np.zeros_like(chance))]
        return max(2 * (times[0] - times[1]), 1.0)

    # -------------------------------------------------------------------------------------------------------- memory

    def memory(self, caches: tuple[int, ...]) -> dict[str, Any]:
        """Nanoseconds of a line from beyond each level of the caches, in order and out of it, read and written."""
        spans = [caches[1] // 2, min(caches[1] + caches[2] // 2, MEMORY // 2), MEMORY]
        held = caches[2]
        data = np.full(MEMORY + 4096, 1, np.uint8)  # written: pages that nobody wrote to are all one page
        data = data[-data.ctypes.data % 4096 :]
        lines, writes, jumps = [], [], []
        for span in spans:
            part = data[:span]
            lines.append(_rounded(self._through(part, "read")))
            writes.append(_rounded(self._through(part, "write")))
            jumps.append(_rounded(max(self._jumping(part), lines[-1])))
        while held * 2 < MEMORY and self._through(data[: held * 2], "read") < (lines[1] * lines[2]) ** 0.5:
            held *= 2  # more of a shared last cache than what is sure
        stream = _rounded(self._through(data[:MEMORY], "stream"))
        swaps = tuple(_rounded(self._swapped(data, store)) for store in (False, True))
        everyone = min(_rounded(self._together(data)), lines[-1])
        return {
            "lines": tuple(lines),
            "writes": tuple(writes),
            "jumps": tuple(jumps),
            "swaps": swaps,
            "stream": stream,
            "line_all": everyone,
            "caches": (*caches[:2], held),
        }

    def _walker(self, kind: str) -> Callable[[int, int, int], None]:
        """A function that goes through lines of memory, some at a time."""
        v = self.vector
        each = []
        for k in range(4 * max(1, 64 // self.size)):
            each.append(f"  %p{k} = getelementptr i8, ptr %p, i64 {k * self.size}")
            match kind:
                case "read":
                    each.append(f"  %x{k} = load volatile {v}, ptr %p{k}, align 64")
                case "write":
                    each.append(f"  store {v} %c, ptr %p{k}, align 64")
                case _:
                    each.append(f"  store {v} %c, ptr %p{k}, align 64, !nontemporal !0")
        text = f"""target triple = "{self.machine.triple}"
define void @kernel(ptr %a, ptr %b, i64 %n) nounwind {{
entry:
  %c = load {v}, ptr %b, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr i8, ptr %a, i64 %i
{chr(10).join(each)}
  %next = add i64 %i, 256
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  fence seq_cst
  ret void
}}
!0 = !{{i32 1}}
"""
        module = load(text, self.machine, "none")
        function = _SIGNATURE(module.address("kernel"))

        def run(a: int, b: int, n: int) -> None:
            function(a, b, n)

        run.owner = module  # type: ignore[attr-defined]  # functions take attributes
        return run

    def _through(self, part: np.ndarray, kind: str) -> float:
        """A line of many in a row: what an eighth of the last pass's pieces are faster than, since something else may run meanwhile."""
        run, n = self._walker(kind), min(part.nbytes, PIECE) // 256 * 256
        times: list[float] = []
        for _ in range(max(3, 40 * PIECE // part.nbytes)):
            times = []
            for start in range(0, part.nbytes - n + 1, n):
                began = time.perf_counter()
                run(part.ctypes.data + start, self.near.ctypes.data, n)
                times.append(time.perf_counter() - began)
        return sorted(times)[len(times) // 8] / (n / 64) * 1e9

    def _swapped(self, data: np.ndarray, store: bool) -> float:
        """A line that is read or stored to, of columns of 4 MiB whose elements are a page apart."""
        places = (np.arange(64)[:, None] * 64 + np.arange(1024) * 4096).astype(np.uint32).ravel()
        return self._run(_STORED if store else _LOADED, arrays=(data, places), count=len(places))

    def _jumping(self, part: np.ndarray) -> float:
        """A line at a random place, of many that do not wait for each other."""
        body = _LOADED
        count = min(part.nbytes // 64, 1 << 15)
        places = (np.random.default_rng(0).permutation(part.nbytes // 64)[:count] * 64).astype(np.uint32)
        if part.nbytes <= count * 64:
            return self._run(body, arrays=(part, places), count=count)
        # As many other lines in between, so that those of the last round are gone.
        rest = np.random.default_rng(1).permutation(part.nbytes // 64)[: 1 << 18].astype(np.uint32) * np.uint32(64)
        return self._run(body, arrays=(part, rest), count=len(rest))

    def _together(self, data: np.ndarray) -> float:
        """A line of memory for each core where all read at once."""
        run, cores = self._walker("read"), pool().threads
        part = data.nbytes // cores // 256 * 256
        best = float("inf")
        for _ in range(2):
            threads = [threading.Thread(target=run, args=(data.ctypes.data + k * part, self.near.ctypes.data, part)) for k in range(cores)]
            began = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            best = min(best, time.perf_counter() - began)
        return best / (part / 64 * cores) * 1e9

    def page(self) -> float:
        """The first touch of a page."""
        best, size = float("inf"), 16 << 20
        for _ in range(3):
            fresh = np.empty(size, np.uint8)
            began = time.perf_counter()
            fresh[::4096] = 1
            best = min(best, time.perf_counter() - began)
        return best / (size / 4096) * 1e9

    def fork(self) -> float:
        """A loop of two iterations that do nothing, handed to the pool."""
        text = f'target triple = "{self.machine.triple}"\ndefine void @nothing(ptr %e, i64 %a, i64 %b) nounwind {{\n  ret void\n}}\n'
        module = load(text, self.machine, "none")
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
            pool().parallel_for
        )
        address = module.address("nothing")
        return _least(lambda times: [call(address, None, 2, 1, None) for _ in range(times)], 200)

    def prefers_whole(self) -> bool:
        """Whether LLVM makes whole registers of scalar loops on this machine."""
        return False


def _least(run: Callable[[int], object], count: int) -> float:
    """Nanoseconds of one of `count` iterations."""
    run(count)
    began = time.perf_counter()
    run(count)
    repeats = max(1, int(SECONDS / max(time.perf_counter() - began, 1e-9) / ROUNDS))
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(repeats):
            run(count)
        best = min(best, time.perf_counter() - began)
    return best / repeats / count * 1e9
