"""A failing plan as a test to paste: plain code of the language, its inputs, and what is compared."""

from __future__ import annotations

import random

import numpy as np

from tests.fuzz.checks import Failure
from tests.fuzz.plan import Plan
from tests.random_programs.sample import arrays_for, sizes_of

_SHORT = 48
"""Elements that are written out."""


def pasteable(plan: Plan, failure: Failure) -> str:
    """The text of a test that fails as the plan does."""
    first = failure.message.partition("\n")[0]
    lines = [f"def test_seed_{plan.sample.seed}():  # {failure.kind}: {first[:140]}"]
    body = [*plan.sample.text.splitlines(), *_arrays(plan), *_steps(plan)]
    return "\n".join([*lines, *(f"    {line}" for line in body)])


def _arrays(plan: Plan) -> list[str]:
    traced = plan.sample.traced()
    program = traced.program
    sizes = sizes_of(plan.sample, program, random.Random(f"check {plan.sample.seed}"), plan.runs)
    chosen = sizes[plan.only] if plan.only is not None and plan.only < len(sizes) else sizes[0]
    arrays = arrays_for(program, traced.below, chosen, plan.sample.seed, plan.exact, plan.wild)
    lines = [f"# sizes: {chosen}"] if chosen else []
    items = []
    for name, array in arrays.items():
        if array.size <= _SHORT and array.dtype.kind in "biu":
            values = f"np.array({array.tolist()}, {array.dtype.name!r}).reshape({array.shape})"
        elif array.size <= _SHORT and plan.exact:
            values = (
                f"te.evaluate(te.constant(np.array({array.astype(np.float64).tolist()}))).reshape({array.shape}).astype({name}.dtype.numpy)"
            )
        elif array.dtype.kind in "biu":
            high = int(array.max(initial=0)) + 1
            values = f"np.random.default_rng(0).integers(0, {high}, {array.shape}).astype({array.dtype.name!r})"
        else:
            values = f"np.random.default_rng(0).standard_normal({array.shape}).astype({name}.dtype.numpy)"
        items.append(values.replace("te.evaluate(te.constant(np.array(", "(np.array(").replace("))).reshape", ")).reshape"))
    lines += [f"arrays = [{', '.join(items)}]"]
    return lines


def _steps(plan: Plan) -> list[str]:
    lines = []
    if "gradient" in plan.derivatives:
        lines += [
            "wrt = [t for t in inputs if t.dtype.is_float]",
            "outputs = [t for t in outputs if t.dtype.is_float]",
            'heads = [te.placeholder(t.shape, t.dtype, name=f"H{k}") for k, t in enumerate(outputs)]',
            "arrays += [np.ones_like(te.evaluate(t, dict(zip(inputs, arrays)))) for t in outputs]",
            f"outputs = list(te.gradient(outputs, wrt, heads{f', lowering={plan.lowering!r}' if plan.lowering else ''}))",
            "inputs = inputs + heads",
        ]
        if "second" in plan.derivatives:
            lines.append("# and the gradient of these once more, by all inputs")
    others = [name for name in plan.schedules if name != "default"]
    if others:
        lines.append(f"# schedules: {', '.join(plan.schedules)} of seed {plan.sample.seed}")
    lines += [
        "found = te.build(outputs, inputs)(*arrays)",
        "expected = te.evaluate(outputs, dict(zip(inputs, arrays)))",
        "for one, other in zip(found, expected):",
        "    np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=1e-3, atol=1e-4)",
    ]
    return lines
