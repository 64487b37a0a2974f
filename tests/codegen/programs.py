"""Helpers for tests of schedules and lowering: programs from text, and both ways to run one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tensorexpr.algebra import with_narrow_sums, with_recurrences
from tensorexpr.codegen.auto.tiles.borders import with_clear_middles
from tensorexpr.codegen.compile import fold_constants, machine_of, program_from
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, Block, For, If, Kernel, LoopNest, Stmt
from tensorexpr.codegen.nest.interpret import Machine, run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.schedule.schedule import StageHandle
from tensorexpr.codegen.target import Target
from tensorexpr.codegen.tuning.lookup import scheduled, simplified
from tensorexpr.errors import ArgumentError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program, extent_value
from tensorexpr.ir import Expr, Program
from tensorexpr.language import Tensor, names_of
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.random_programs import random_inputs
from tests.random_programs.sample import arrays_for, sizes_of

Outputs = Tensor | Sequence[Tensor]

WIDE = Target("test", vector_bits=512, registers=32, cores=2)

MATMUL = """
A: f32[12, 8] = input()
B: f32[8, 40] = input()
C[i, j]: f32[12, 40] = sum(A[i, k] * B[k, j] for k in range(8))
return C
"""
SOFTMAX = """
X: f32[6, 40] = input()
m[i]: f32[6] = max(X[i, k] for k in range(40))
e[i, j]: f32[6, 40] = exp(X[i, j] - m[i])
s[i]: f32[6] = sum(e[i, k] for k in range(40))
Y[i, j]: f32[6, 40] = e[i, j] / s[i]
return Y
"""


def plain(text: str) -> Planned:
    """The plain schedule of a program given as text, for one fixed machine."""
    return schedule(parse_program(text), WIDE)


def tile(handle: StageHandle, a: str, b: str, sizes: tuple[int, int], tail: str = "peel") -> None:
    """rewrite: [a, b] --> [a_o, b_o, a_i, b_i]."""
    blocks = zip(handle.split(a, sizes[0], tail), handle.split(b, sizes[1], tail), strict=True)
    handle.reorder(*(loop for loops in blocks for loop in loops))


def as_built(outputs: Outputs, inputs: Sequence[Tensor] | None = None) -> Program:
    """The program that a build of tensors on this machine makes code of."""
    return simplified(fold_constants(program_from(outputs, inputs, "as_built")), machine_of("cpu", "float32"))


def planned(outputs: Outputs, target: str = "cpu", inputs: Sequence[Tensor] | None = None, precision: str = "float32") -> Planned:
    """The plain schedule of tensors as the planners of definitions hold it."""
    program = simplify(program_from(outputs, inputs, "planned"), inline=False)
    names = names_of([outputs] if isinstance(outputs, Tensor) else outputs, inputs)
    return Planned(schedule(program, machine_of(target, precision)).state, names, isinstance(outputs, Tensor))


def by_planners(outputs: Outputs, target: str = "cpu", inputs: Sequence[Tensor] | None = None, precision: str = "float32") -> Planned:
    """The schedule that the planners of definitions make of tensors in the shapes that they have, or a record of tuning says."""
    machine = machine_of(target, precision)
    program = simplify(fold_constants(program_from(outputs, inputs, "by_planners")))
    program = program if machine.is_gpu else with_recurrences(with_narrow_sums(program))
    names = names_of([outputs] if isinstance(outputs, Tensor) else outputs, inputs)
    found = scheduled(program, machine)
    return Planned(found.state, names, isinstance(outputs, Tensor), found.origin)


def outputs(nest: LoopNest, program: Program, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The outputs of a verified nest by the names and in the shapes that the program gives them."""
    buffers = {buffer.name: buffer for buffer in nest.parameters}
    given = {name: shaped(array, buffers[name].shape, sizes) if name in buffers else array for name, array in inputs.items()}
    found = run_nest(verify_nest(nest), given, sizes)
    types = program.types
    return {name: shaped(found[one], types[name].shape, sizes) for name, one in zip(program.outputs, nest.writes, strict=True)}


def assert_means_sample(nest: LoopNest, program: Program, sample: Any, rng: random.Random, seed: int, most: int) -> None:
    """Checks that a nest computes what a random program means at up to `most` draws of its sizes, and refuses what is out of bounds."""
    for sizes in sizes_of(sample, program, rng, 1)[:most]:
        arrays = arrays_for(program, sample.traced().below, sizes, seed, True, False)
        try:
            expected = evaluate_program(program, arrays, sizes)
        except ArgumentError:
            continue  # an extent below zero
        except OutOfBoundsError:
            with pytest.raises(OutOfBoundsError):
                outputs(nest, program, arrays, sizes)
            continue
        for name, found in outputs(nest, program, arrays, sizes).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, err_msg=f"{name} of\n{program}\n{nest}")


def shaped(array: np.ndarray, shape: Sequence[Expr], sizes: Mapping[str, int]) -> np.ndarray:
    """The array in a shape of another rank."""
    return array if array.ndim == len(shape) else np.reshape(array, tuple(max(0, extent_value(extent, sizes)) for extent in shape))


def assert_means(
    s: Planned | Schedule, seed: int = 0, inputs: Mapping[str, np.ndarray] | None = None, exact: bool = True, **sizes: int
) -> LoopNest:
    """Checks that a schedule computes what the reference interpreter says; gives its nest."""
    given = dict(inputs) if inputs is not None else random_inputs(s.program, seed, exact=exact, sizes=sizes)
    nest = s.nest if isinstance(s, Schedule) else with_clear_middles(lower(s), s.target)
    want = evaluate_program(s.program, given, sizes)
    for name, found in outputs(nest, s.program, given, sizes).items():
        expected = want[name]
        assert found.dtype == expected.dtype and found.shape == expected.shape
        if expected.dtype.name == "bfloat16":
            found, expected = found.astype(np.float32), expected.astype(np.float32)
        if exact:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    return nest


def visits(nest: LoopNest, inputs: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """How often the body of every loop runs."""
    machine = Machine(nest, dict(inputs), dict(sizes or {}))
    for kernel in nest.kernels:
        machine.block(kernel.body, {})
    return machine.visits


def statements(body: Block | tuple[Kernel, ...]) -> list[Stmt]:
    """Every statement in a block or in kernels, outermost first."""
    found: list[Stmt] = []
    for item in body:
        if isinstance(item, Kernel):
            found += statements(item.body)
            continue
        found.append(item)
        match item:
            case For() | Alloc():
                found += statements(item.body)
            case If():
                found += statements(item.then) + statements(item.otherwise)
    return found


def loops(nest: LoopNest) -> list[tuple[str, str]]:
    """Index and kind of every loop in the order of the listing."""
    return [(s.index, s.kind) for s in statements(nest.kernels) if isinstance(s, For)]
