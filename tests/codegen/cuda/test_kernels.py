"""Kernels of the library, forward and gradient, as the CUDA text of the default schedule of a GPU.

Run on the CPU, every access checked, against what the interpreter computes; compiled by NVRTC, without a spill. A sample of the
table's rows by default; all of them, for two architectures, threads in several orders, and also in the forms that large extents have,
where TENSOREXPR_TEST_KERNELS is "all" (`make test-races`, `make test-nvrtc`).
"""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.lowering.scatters import digits
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.gpu import parts as auto_gpu_parts
from tensorexpr.codegen.planners.gpu import scatters as auto_gpu_scatters
from tensorexpr.codegen.planners.tiles import threads as auto_gpu_rows
from tensorexpr.codegen.target import H200
from tensorexpr.op.trees import leaves
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.kernels.case import Case, flat
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, gradients, heads_of, traced, values

WHOLE = os.environ.get("TENSOREXPR_TEST_KERNELS") == "all"
ROWS = list(ALL) if WHOLE else list(ALL)[::16]
FILES = sorted({case.op.__module__ for case in ROWS})
ARCHITECTURES = ("sm_80", "sm_90") if WHOLE else ("sm_90",)
REDUCED = 40
"""Bytes of stack that CUDA's sine, cosine and tangent take where they take turns off a large argument: theirs, not ours."""
KEPT = {"tensorexpr.kernels.windowed.sampling": 192}
"""Bytes of stack by file: a deformable convolution keeps the 24 weights of a thread's own column for loops that are not unrolled."""
TURNS = re.compile(r"\b(sin|cos|tan)f?\(")


def kernels_of(text: str) -> list[tuple[str, str]]:
    """The kernels of a text by name."""
    parts = re.split(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(', text)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def rows(module: str) -> list[Case]:
    return [case for case in ROWS if case.op.__module__ == module]


def programs(case: Case) -> list[tuple[str, te.Program, list[np.ndarray], tuple[np.ndarray, ...]]]:
    """Forward and gradient as programs, with their arguments and results."""
    inputs, result, _ = traced(case)
    arrays = flat(case.arrays())
    found = [("", te.program_of([t for t in leaves(result) if t is not None], inputs), arrays, values(case))]
    if case.differentiable:
        found.append(("_bar", derived(case)[1], [*arrays, *flat(heads_of(case))], gradients(case)))
    return found


def compiled(module: str) -> list[tuple[str, Program, dict[str, np.ndarray], tuple[np.ndarray, ...]]]:
    """Every program of a file for a GPU, with its arguments by name and what the interpreter makes of them."""
    found = []
    for number, case in enumerate(rows(module)):
        for suffix, program, arrays, want in programs(case):
            simplified = simplify(program)
            nest = verify_nest(lower(autoschedule(simplified, H200)))
            given = {i.name: a for i, a in zip(simplified.inputs, arrays, strict=True)}
            found.append((f"{case.name}{suffix}", Program(nest, f"r{number}{suffix}_"), given, want))
    return found


@pytest.fixture
def as_if_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With a true parameter short rows have blocks of threads, few points are sorted by many, and few rows own what they add to."""
    if request.param:
        monkeypatch.setattr(auto_gpu_parts, "LONG", 3)
        monkeypatch.setattr(auto_gpu_rows, "LONG", 3)
        monkeypatch.setattr(auto_gpu_scatters, "LEAST_POINTS", 4)
        monkeypatch.setattr(auto_gpu_scatters, "LEAST_ROWS", 2)
        monkeypatch.setattr(auto_gpu_scatters, "PARTS", ((4, (2, 2)),))
        monkeypatch.setattr(digits, "MANY_POINTS", 4)
        monkeypatch.setattr(digits, "MOST_BITS", 2)
        monkeypatch.setattr(digits, "OWN", 2)
        monkeypatch.setattr(digits, "MOST_CHUNKS", 3)
        monkeypatch.setattr(digits, "SCANNERS", 1 << 4)
    return bool(request.param)


@needs_compiler
@pytest.mark.parametrize("as_if_large", (False, True) if WHOLE else (False,), indirect=True, ids=lambda large: "large" if large else "")
@pytest.mark.parametrize("module", FILES)
def test_on_the_cpu(module: str, as_if_large: bool) -> None:
    """Two orders of threads in each form: all four of each program, while races are found in any."""
    made = compiled(module)
    compiled_together([p for _, p, _, _ in made])
    for name, program, given, want, order in (
        (*one, order) for one in made for order in (range(as_if_large, 4, 2) if WHOLE else (len(one[0]) % 3,))
    ):
        got = program(given, order=order)
        for found, expected in zip((got[w] for w in program.nest.writes), want, strict=True):
            assert found.dtype == expected.dtype and found.shape == expected.shape
            finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind == "f" else np.abs(expected.astype(np.float64))
            scale = max(1e-3, float(finite.max(initial=0.0)))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale, err_msg=name)


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_places_that_only_a_run_knows_are_in_shared_memory() -> None:
    """The gradient of a pool keeps the winners of an image: an array of a thread would be in memory. Blocks are images and channels."""
    x = te.placeholder((32, 64, 112, 112), name="x")
    y = te.kernels.max_pool2d(x, kernel_size=2)
    head = te.placeholder(y.shape, name="head")
    s = autoschedule(simplify(te.program_of(list(te.gradient(y, [x], head)), [x, head])), H200)
    source = Program(verify_nest(lower(s))).source
    (launch,) = source.launches
    (found,) = nvrtc.compile_text(source.text, "sm_90").resources.values()
    assert not found.stack and found.registers <= 40 and source.text.count("__syncthreads();") == 1
    assert launch.blocks([int(n.value) for n in launch.iterations]) == (64, 32, 1)


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("module", FILES)
def test_by_nvrtc(module: str) -> None:
    made = compiled(module)
    for arch in ARCHITECTURES:
        found = nvrtc.compile_text("\n".join(p.source.text for _, p, _, _ in made), arch)
        packed = {launch.kernel: launch.parameters for _, p, _, _ in made for launch in p.source.launches}
        assert {name: r.parameters for name, r in found.resources.items()} == packed
        spilled = {name: r for name, r in found.resources.items() if r.spill_stores or r.spill_loads}
        assert not spilled, arch
        texts = dict(pair for _, p, _, _ in made for pair in kernels_of(p.source.text))
        stacked = {
            name: r.stack
            for name, r in found.resources.items()
            if r.stack > max(KEPT.get(module, 0), REDUCED if TURNS.search(texts[name]) else 0)
        }
        assert not stacked, arch
