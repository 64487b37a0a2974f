"""Lanes combined by shuffles: bit for bit what halving in shared memory gives, whatever is combined, however many lanes there are."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.block import threads
from tensorexpr.codegen.cuda.block.shuffles import WARP
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.random_programs import random_inputs

REDUCTIONS = {
    "f32": ("sum", "argmax"), "f64": ("prod", "argmin"), "f16": ("sum", "max"), "bf16": ("min", "argmax"), "i8": ("sum", "min"),
    "u16": ("max",), "i64": ("prod", "argmin"), "bool": ("all", "any", "argmax"),
}  # fmt: skip
WIDTHS = (32, 256)
SEVERAL = """
X: f64[3, 300] = input()
y[i]: f64[3] = sum(X[i, j] for j in range(300)) + max(X[i, j] for j in range(300)) - min(X[i, j] for j in range(300))
return y
"""
ROW = """
X: f32[3, 96] = input()
m[i]: f32[3] = max(X[i, k] for k in range(16))
y[i, j]: f32[3, 96] = X[i, j] - m[i]
t[i]: f32[3] = sum(y[i, j] for j in range(96))
z[i, j]: f32[3, 96] = y[i, j] / t[i]
return z
"""


def rows(rng: random.Random, length: int, count: int = 2) -> str:
    """Reductions of rows of one length, of a few dtypes."""
    inputs, text, returned = [], [], []
    for dtype in rng.sample(sorted(REDUCTIONS), count):
        inputs.append(f"X_{dtype}: {dtype}[3, {length}] = input()")
        where = rng.choice(("", f" if j != {length // 2}"))
        for name in REDUCTIONS[dtype]:
            result = "i64" if name.startswith("arg") else dtype
            text.append(f"{name}_{dtype}[i]: {result}[3] = {name}(X_{dtype}[i, j] for j in range({length}){where})")
            returned.append(f"{name}_{dtype}")
    return "\n".join([*inputs, *text, f"return {', '.join(returned)}", ""])


def in_lanes(text: str, width: int) -> Planned:
    """Blocks of rows, their threads along the reductions."""
    s = schedule(parse_program(text), H200)
    for name in s.stages:
        s[name].parallel("i")
        loop = s[name].loops[-1]
        s[name].vectorize(loop if f"range({width})" in text else s[name].split(loop, width, "peel")[-1])
    return s


def in_one_block() -> Planned:
    """Combinations of 16 and of 32 lanes in a block of 64 threads."""
    s = schedule(parse_program(ROW), H200)
    for name in ("t", "y", "m"):
        s[name].compute_at("z", "i")
    s["m"].vectorize("k")
    for name, width in (("y", 64), ("t", 32), ("z", 64)):
        s[name].vectorize(s[name].split("j", width, "guard")[-1])
    s["z"].parallel("i")
    return s


def nest_of(s: Planned) -> LoopNest:
    return verify_nest(lower(s))


def halved(nest: LoopNest, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The same without shuffles."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "with_shuffles", lambda body, *_: body)
        return Program(nest, prefix)


@needs_compiler
def test_results_keep_every_bit(monkeypatch):
    made = []
    for seed, width in enumerate(WIDTHS):
        rng = random.Random(seed)
        made.append((seed, in_lanes(rows(rng, rng.choice((width, width + 5, 2 * width + 7)) if width > WARP else WARP), width)))
    made += [(len(WIDTHS), in_one_block()), (len(WIDTHS) + 1, in_lanes(SEVERAL, 256))]
    programs = [(s, Program(nest_of(s), f"s{k}_"), halved(nest_of(s), f"h{k}_", monkeypatch)) for k, s in made]
    compiled_together([p for _, *both in programs for p in both])
    for number, (s, one, other) in enumerate(programs):
        assert "te_shuffle" in one.source.text and "te_shuffle" not in other.source.text
        rng = np.random.default_rng(number)
        exact = random_inputs(s.program, number)
        inputs = {n: (rng.standard_normal(a.shape) + 1).astype(a.dtype) if a.dtype.kind not in "iub" else a for n, a in exact.items()}
        want = other(inputs)
        for order in (0, 1, 5):
            got = one(inputs, order=order)
            assert all(got[name].tobytes() == want[name].tobytes() for name in want), number
        for name, found in one(exact).items():
            np.testing.assert_array_equal(found.astype(np.float64), evaluate_program(s.program, exact)[name].astype(np.float64))


def test_a_block_of_one_warp_shares_nothing():
    text = Program(nest_of(in_lanes(rows(random.Random(5), WARP, 4), WARP))).source.text
    assert "te_shuffle" in text and "__shared__" not in text and "__sync" not in text


def test_there_is_one_exchange_between_warps():
    text = Program(nest_of(in_lanes(rows(random.Random(5), 256, 1), 256))).source.text
    kernels = text.split("__global__")[1:]
    assert kernels and all(kernel.count("__sync") == 1 for kernel in kernels)


def test_what_a_thread_cannot_hold_is_combined_in_shared_memory_first():
    text = Program(nest_of(in_lanes(SEVERAL, 256))).source.text
    assert "j_i < 128" in text and "j_i < 64" not in text and text.count("_held[4];") == 3


@needs_compiler
def test_the_rest_of_an_open_row_is_shared_by_the_threads_as_well():
    text = """
sizes(n)
X: f32[3, n] = input()
m[i]: f32[3] = max(X[i, j] for j in range(n))
t[i]: f32[3] = sum(X[i, j] - m[i] for j in range(n))
c[i]: f32[3] = sum(X[i, j] for j in range(n - i))
return t, c
"""
    s = autoschedule(parse_program(text), H200)
    program = Program(nest_of(s))
    assert "te_shuffle" in program.source.text and "n % 256" not in program.source.text
    for order, n in enumerate((3, 255, 256, 700)):
        inputs = random_inputs(s.program, n, sizes={"n": n})
        for name, want in evaluate_program(s.program, inputs, {"n": n}).items():
            np.testing.assert_array_equal(program(inputs, {"n": n}, order)[name], want)


@needs_compiler
def test_no_part_of_an_exchange_can_be_taken_out():
    s = in_lanes("X: f32[2, 96] = input()\ny[i]: f32[2] = sum(X[i, j] for j in range(96))\nreturn y\n", 64)
    whole = Program(nest_of(s))
    lines, (launch,) = whole.source.text.splitlines(), whole.source.launches
    parts = [k for k, line in enumerate(lines) if re.search(r"te_shuffle|__syncthreads|y_sum_lanes\[x0\] =", line)]
    assert len(parts) == 8
    variants = [None, *parts]
    launches = [type(launch)(**{f: getattr(launch, f) for f in launch.__slots__} | {"kernel": f"v{n}"}) for n in range(len(variants))]
    texts = ["\n".join(x for k, x in enumerate(lines) if k != v).replace(f" {launch.kernel}(", f" v{n}(") for n, v in enumerate(variants)]
    kernels = HostKernels(Source("\n".join(texts), tuple(launches)), checked=True)
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    for number, (variant, one) in enumerate(zip(variants, launches, strict=True)):
        part = Program(whole.nest)
        part.source, part._kernels = Source("", (one,)), kernels
        try:
            right = np.array_equal(part(inputs)["y"], want)
        except InternalError as error:
            right = "of shared memory" not in str(error)
        assert right == (variant is None), texts[number]


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_machine_code_shuffles_without_spills():
    s = in_lanes(rows(random.Random(1), 300, 3), 256)
    made = nvrtc.compile_text(Program(nest_of(s)).source.text, "sm_80")
    assert not any(r.spill_stores or r.spill_loads or r.stack for r in made.resources.values())
    assert made.ptx.count("shfl.sync.down") >= 5 * len(made.resources) and "shfl.sync.idx" in made.ptx
