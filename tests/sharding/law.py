"""The law of sharding: for every rule the parts, computed one by one and put together, are the whole."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.interop.sharding.plan import Choice, Plan, held
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.op.trees import leaves
from tensorexpr.sharding import WHOLE, Partial, Rule, Sharding
from tensorexpr.sharding.table import COMBINE, cut, joined
from tensorexpr.verify import verify
from tests.kernels.case import Case, flat
from tests.kernels.test_laws import heads_of, placed


def forward(case: Case) -> tuple[Program, list[np.ndarray]]:
    """The program of a row of the case table, and its arguments."""
    inputs, result, _ = placed(case)
    return te.program_of(list(leaves(result)), inputs), flat(case.arrays())


def backward(case: Case) -> tuple[Program, list[np.ndarray]]:
    """The program of its gradient, and its arguments."""
    inputs, result, wrt = placed(case)
    outputs = [tensor for tensor in leaves(result) if tensor.dtype.is_float]
    heads = [te.placeholder(t.shape, t.dtype.name, name=f"head_{k}") for k, t in enumerate(outputs)]
    gradient = te.gradient(outputs, wrt, heads)
    return te.program_of(list(gradient), [*inputs, *heads]), flat((*case.arrays(), heads_of(case)))


def values(program: Program, arguments: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs as the interpreter has them."""
    found = evaluate_program(program, arguments)
    return [np.asarray(found[name]) for name in program.outputs]


def check(program: Program, arrays: list[Any], counts: tuple[int, ...] = (2, 3)) -> Sharding:
    """Every rule of a program, for as many blocks as `counts` says. Returns the sharding."""
    sharding = Sharding(program)
    arguments = dict(zip((given.name for given in program.inputs), arrays, strict=True))
    whole = values(program, arguments)
    for rule in sharding.rules:
        for count in counts:
            for ours, theirs in zip(in_parts(sharding, rule, arguments, count), whole, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11, err_msg=f"{program}\n{rule}\nin {count} parts")
    return sharding


def in_parts(sharding: Sharding, rule: Rule, arguments: dict[str, np.ndarray], count: int) -> list[np.ndarray]:
    """The outputs of the whole, from parts that have nothing but what the rule gives them."""
    parts, results = [], []
    for begin, end in sharding.blocks(rule, count):
        if begin < end:
            part = sharding.part(rule, begin, end)
            verify(part.program)
            results.append(values(part.program, {name: cut(array, part.inputs[name]) for name, array in arguments.items()}))
            parts.append(part)
    return joined(sharding, rule, parts, results)


def on_a_mesh(sharding: Sharding, counts: tuple[int, ...], choice: Choice, arguments: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the whole, from what each device of a mesh has by a choice of rules: blocks as hosts cut them, addends combined."""
    plan, program = Plan(sharding, counts, choice), sharding.program
    blocks: list[dict[tuple[tuple[int, int], ...], np.ndarray]] = [{} for _ in program.outputs]
    for at in plan.places():
        part = plan.part(at)
        verify(part.program)
        results = values(part.program, {name: cut(array, part.inputs[name]) for name, array in arguments.items()})
        for found, name, layout, box, result in zip(blocks, program.outputs, plan.outputs, part.outputs, results, strict=True):
            lies = tuple(held(sharding.extents(name), layout, counts, at))
            assert lies == box or any(begin >= end for begin, end in lies), f"{name} at {at}: {box}, where hosts have {lies}"
            combine = next((one.combine for one in layout if isinstance(one, Partial)), None)
            if all(index == 0 or one != WHOLE for index, one in zip(at, layout, strict=True)):  # copies count once
                found[box] = result if combine is None or box not in found else COMBINE[combine](found[box], result)
    wholes = []
    for name, found in zip(program.outputs, blocks, strict=True):
        whole = np.full(sharding.extents(name), np.nan if program.types[name].dtype.is_float else 0, program.types[name].dtype.numpy)
        for box, result in found.items():
            whole[tuple(slice(begin, end) for begin, end in box)] = result
        wholes.append(whole)
    return wholes


def is_sharded(sharding: Sharding) -> bool:
    """Whether a rule splits an input, or splits a result without having more than numbers whole."""
    return any(rule.splits or not sharding.whole(rule) for rule in sharding.rules)
