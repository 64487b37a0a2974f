"""Laws on random programs: forward and reverse mode agree, gathers and scatters agree, and gathers visit exactly the reads."""

from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.autodiff.invert.counts import Count, data_in_bounds, reads_of
from tensorexpr.autodiff.local.workspace import Workspace
from tensorexpr.autodiff.sweep.forward import Forward
from tensorexpr.autodiff.sweep.reverse import reverse
from tensorexpr.errors import OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Input, Program
from tensorexpr.parse import parse_program
from tensorexpr.verify import verify
from tests.autodiff.once_wrong import PROGRAMS
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.seeds import share_of

SMOOTH = {"differentiable": True}
EVERYTHING = {"floats_only": True, "without": ("casts",)}


def with_inputs(program: Program, like: list[str], suffix: str) -> Program:
    more = tuple(Input(f"{name}{suffix}", program.types[name]) for name in like)
    return replace(program, inputs=(*program.inputs, *more))


def inner(results, arrays, names, suffix):
    """The inner product of tensors with the arrays of their partners, and the size of its terms."""
    terms = [np.asarray(results[result], float) * np.asarray(arrays[name + suffix], float) for name, result in names.items()]
    return sum(t.sum() for t in terms), 1 + sum(np.abs(t).sum() for t in terms)


def check(program: Program, seed: int, sizes: dict[str, int]) -> Program | None:
    """The laws for one program; gives its derivative (None where it has nothing to differentiate)."""
    outputs = [name for name in dict.fromkeys(program.outputs) if program.types[name].dtype.is_float]
    wrt = [item.name for item in program.inputs if item.type.dtype.is_float]
    if not outputs or not wrt:
        return None
    whole = with_inputs(with_inputs(replace(program, outputs=tuple(outputs)), outputs, "_head"), wrt, "_tangent")
    seeds = [(name, f"{name}_head") for name in outputs]
    gathered, scattered = reverse(whole, seeds, wrt), reverse(whole, seeds, wrt, lowering="segments")
    workspace = Workspace.behind(whole)
    forward = Forward(workspace, {name: f"{name}_tangent" for name in wrt})
    forward.run(whole.definitions)
    tangents = {name: forward.names.get(name) or workspace.zeros(name, "_dot") for name in outputs}
    pushed = replace(whole, definitions=(*whole.definitions, *workspace.definitions), outputs=tuple(tangents.values()))
    for derived in (gathered.program, scattered.program, pushed):
        verify(derived)

    for received in gathered.received.values():
        for flow in received.flows:
            if flow.gathers is not None and flow.lowering != "segments":  # what depends on data is counted in test_segments.py
                visited = [((*received.target, *gather.axes), gather.outer) for gather in flow.gathers]
                read = reads_of(flow.contribution)
                if not data_in_bounds([*visited, *read]):
                    assert Count(tuple(visited))(**sizes) == Count(tuple(read))(**sizes)

    arrays = random_inputs(whole, seed, exact=False, sizes=sizes)
    with np.errstate(all="ignore"):
        try:
            evaluate_program(whole, arrays, sizes)
        except OutOfBoundsError:
            return None
        backward = evaluate_program(gathered.program, arrays, sizes)
        other = evaluate_program(scattered.program, arrays, sizes)
        right, size = inner(backward, arrays, dict(zip(wrt, gathered.program.outputs, strict=True)), "_tangent")
        left, more = inner(evaluate_program(pushed, arrays, sizes), arrays, tangents, "_head")
    tolerance = 1e-9 if all(t.dtype.bits == 64 for t in whole.types.values() if t.dtype.is_float) else 2e-3
    for a, b in zip(gathered.program.outputs, scattered.program.outputs, strict=True):
        scale = 1 + np.max(np.abs(backward[a][np.isfinite(backward[a])]), initial=0)
        np.testing.assert_allclose(backward[a], other[b], rtol=tolerance, atol=tolerance * scale)
    if np.isfinite(left) and np.isfinite(right):
        assert abs(left - right) <= tolerance * (size + more)
    return gathered.program


@pytest.mark.parametrize("options", [SMOOTH, EVERYTHING], ids=["smooth", "everything"])
@pytest.mark.parametrize("block", range(5))
def test_first_derivatives_of_random_programs(block, options):
    for seed in share_of(range(block * 20, block * 20 + 20)):
        program = random_program(seed, **options)
        check(program, seed, random_sizes(program, seed))


@pytest.mark.parametrize("options", [SMOOTH, EVERYTHING], ids=["smooth", "everything"])
@pytest.mark.parametrize("block", range(2))
def test_derivatives_of_derivatives(block, options):
    for seed in share_of(range(block * 15, block * 15 + 15)):
        program = random_program(seed, most=1, **options)
        sizes = random_sizes(program, seed)
        first = check(program, seed, sizes)
        if first is not None:
            unused = tuple(item for item in first.inputs if not item.name.endswith("_tangent"))
            check(replace(first, inputs=unused), seed, sizes)


@pytest.mark.parametrize("seed", PROGRAMS)
def test_programs_that_once_were_wrong(seed):
    program = parse_program(PROGRAMS[seed].lstrip())
    check(program, seed, random_sizes(program, seed))


def test_equal_programs_have_equal_derivatives():
    for seed in range(20):
        program = random_program(seed, differentiable=True)
        outputs = [name for name in program.outputs if program.types[name].shape == ()]
        again = random_program(seed, differentiable=True)
        wrt = [item.name for item in program.inputs]
        assert reverse(program, [(n, None) for n in outputs], wrt).program == reverse(again, [(n, None) for n in outputs], wrt).program
