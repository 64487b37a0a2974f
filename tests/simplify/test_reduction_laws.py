"""Random reductions under affine conditions: narrower axes, collapsed axes and strides keep every value and every order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Define,
    Expr,
    Index,
    Input,
    Param,
    Program,
    Reduce,
    Scatter,
    Size,
    TensorType,
    apply,
    conjunction,
    const,
)
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import free_names, substitute
from tensorexpr.verify import verify
from tests.seeds import share_of
from tests.simplify.points import same

LENGTH = 23
_A, _B = (tuple(Param(f"{side}{at}", dtypes.int64) for at in range(2)) for side in "ab")
COMPOSE = Combiner(  # composition of x -> p*x + q: associative, not commutative, so it tells when an order changed
    "compose",
    _A,
    _B,
    (apply("mul", _A[0], _B[0]), apply("add", apply("mul", _A[1], _B[0]), _B[1])),
    (const(1), const(0)),
)


def _linear(rng: random.Random, names: list[str], most: int = 3) -> Expr:
    total: Expr = const(rng.randint(-4, 4))
    for name in rng.sample(names, min(len(names), rng.randint(1, 3))):
        total = apply("add", total, apply("mul", Index(name), const(rng.choice([1, 1, 1, -1, 2, 3, -2, most]))))
    return total


def _condition(rng: random.Random, own: list[str], outer: list[str]) -> Expr:
    names = [*own, *own, *outer]
    match rng.randint(0, 5):
        case 0 | 1:
            return apply("eq", _linear(rng, list(dict.fromkeys(names))), Index(rng.choice(names)))
        case 2:
            modulus = rng.choice([2, 3, 4])
            return apply("eq", apply("mod", _linear(rng, list(dict.fromkeys(names))), const(modulus)), const(rng.randint(0, modulus - 1)))
        case 3:
            return apply("lt", apply("floordiv", _linear(rng, own), const(rng.choice([2, 3]))), Index(rng.choice(names)))
        case 4:
            return apply("ne", Index(rng.choice(own)), Index(rng.choice(names)))
    return apply(rng.choice(["lt", "le", "gt", "ge"]), Index(rng.choice(own)), _linear(rng, list(dict.fromkeys(names))))


def _read(rng: random.Random, names: list[str], tensor: str = "X") -> Expr:
    total: Expr = const(rng.randint(0, 5))
    for name in names:
        total = apply("add", total, apply("mul", Index(name), const(rng.choice([1, 2, 5, 7, 11]))))
    dtype = {"X": dtypes.float32, "D": dtypes.int64, "P": dtypes.bool_}[tensor]
    return Access(tensor, (apply("mod", total, const(LENGTH)),), dtype)


def _axes(rng: random.Random, names: str, outer: list[str], sizes: list[str]) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for name in names:
        stop: Expr = const(rng.choice([1, 3, 4, 6]))
        if rng.random() < 0.3 and sizes:
            stop = Size(sizes[0])
        elif rng.random() < 0.3:
            known = [*outer, *(a.index for a in axes)]
            stop = apply("minimum", stop, apply("add", Index(rng.choice(known)), const(rng.randint(0, 3))))
        start: Expr = const(0) if rng.random() < 0.7 else const(rng.randint(-2, 1))
        axes.append(Axis(name, start, stop))
    return tuple(axes)


def _masked(rng: random.Random, value: Expr, condition: Expr, neutral: Const) -> Expr:
    return apply("where", condition, value, neutral) if rng.random() < 0.5 else apply("where", apply("invert", condition), neutral, value)


def _program(seed: int) -> Program:
    rng = random.Random(seed)
    sizes = ["n"] if rng.random() < 0.4 else []
    outer = ["i", "j"]
    own = list("klp"[: rng.randint(1, 3)])
    axes = _axes(rng, "".join(own), outer, sizes)
    parts = [_condition(rng, own, outer) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.25:
        parts.insert(rng.randint(0, len(parts)), _read(rng, own, "P"))
    name = rng.choice(["sum", "sum", "sum", "max", "min", "prod", "any", "argmax", "user", "scatter"])
    names = [*own, *outer]
    mask = parts.pop() if rng.random() < 0.4 else None
    where = conjunction(parts) if parts else None
    shape = (const(rng.choice([1, 4, 5])), const(3))
    axes_out = tuple(Axis(n, const(0), e) for n, e in zip(outer, shape, strict=True))
    inputs = [Input("X", TensorType((const(LENGTH),), dtypes.float32))]
    inputs += [Input("D", TensorType((const(LENGTH),), dtypes.int64)), Input("P", TensorType((const(LENGTH),), dtypes.bool_))]
    if sizes:
        inputs.append(Input("N", TensorType((Size("n"),), dtypes.float32)))
    definition: Define | Scatter
    if name == "scatter":
        value = _read(rng, names)
        value = value if mask is None else _masked(rng, value, mask, Const(0.0, dtypes.float32))
        position = apply("mod", _linear(rng, own), const(4))
        guard = None if where is None else _only(where, own)
        inner = tuple(Axis(a.index, a.start, _only(a.stop, own)) for a in axes)
        definition = Scatter("Y", TensorType((const(4),), dtypes.float32), inner, (position,), _only(value, own), guard)
    elif name == "user":
        values = (_read(rng, names, "D"), _read(rng, names, "D"))
        definition = Define("Y", axes_out, Reduce(COMPOSE, values, axes, where, rng.randint(0, 1)))
    else:
        tensor = "P" if name == "any" else "X"
        value = _read(rng, names, tensor)
        if name != "argmax" and mask is not None:
            neutral = {"sum": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0, "any": False}[name]
            value = _masked(rng, value, mask, Const(neutral, value.dtype))
        definition = Define("Y", axes_out, Reduce(Combiner(name), (value,), axes, where))
    return Program(tuple(inputs), (), (definition,), ("Y",), tuple(sizes))


def _only(expr: Expr, names: list[str]) -> Expr:
    """The expression with every other index at 2."""
    return substitute(expr, {n: const(2) for n in free_names(expr) if n not in names})


@pytest.mark.parametrize("block", range(10))
def test_value_is_kept(block: int) -> None:
    for seed in share_of(range(1000 * block, 1000 * block + 60)):
        program = _program(seed)
        verify(program)
        simple = simplify(program)
        again = simplify(simple)
        assert again is simple, f"seed {seed}\n{print_program(program)}\n{print_program(simple)}\n{print_program(again)}"
        noise = np.random.default_rng(seed)
        arrays = {
            "X": noise.integers(-3, 4, LENGTH).astype(np.float32),
            "D": noise.integers(-3, 4, LENGTH),
            "P": noise.integers(0, 2, LENGTH).astype(bool),
        }
        for size in (0, 1, 4) if program.sizes else (0,):
            given = {**arrays, "N": np.zeros(size, np.float32)} if program.sizes else arrays
            before, after = (evaluate_program(p, given)["Y"] for p in (program, simple))
            zero = np.zeros((), before.dtype)
            assert same(before + zero, after + zero), f"seed {seed}, n = {size}\n{print_program(program)}\n{print_program(simple)}"


@pytest.mark.parametrize("combiner", ["sum", "prod"])
@pytest.mark.parametrize("narrow", ["i8", "u8", "i16", "u32", "i32", "i64", "u64"])
@pytest.mark.parametrize("wide", ["i8", "i32", "u32", "i64", "u64"])
def test_casts_of_wider_sums_wrap_around_as_narrow_ones_do(combiner, narrow, wide):
    text = f"x: {narrow}[40] = input()\nS: {narrow} = {narrow}({combiner}({wide}(x[k]) for k in range(40)))\nreturn S"
    program = parse_program(text)
    data = np.random.default_rng(0).integers(0, 256, 40 * 8, np.uint8).view(program.inputs[0].type.dtype.numpy)[:40] | 1
    (want,), (found,) = (evaluate_program(p, {"x": data}).values() for p in (program, simplify(program)))
    assert want == found
    assert (f"{wide}(" not in str(simplify(program))) == (int(wide[1:]) >= int(narrow[1:]))


DISTANCES = {
    "maximum(x[i] - y[i], y[i] - x[i])": True,
    "where(x[i] > y[i], x[i] - y[i], y[i] - x[i])": True,
    "where(y[i] <= x[i], x[i] - y[i], y[i] - x[i])": True,
    "where(x[i] < y[i], y[i] - x[i], x[i] - y[i])": True,
    "where(x[i] < y[i], x[i] - y[i], y[i] - x[i])": False,
    "maximum(x[i] - y[i], x[i] - y[i] * 2.0)": False,
}


@pytest.mark.parametrize("term", DISTANCES)
def test_a_sum_of_the_greater_difference_is_one_of_magnitudes(term: str) -> None:
    numbers = np.array([-np.inf, -2.5, -0.0, 0.0, 1.0, 3.0, np.inf, np.nan])
    given = {"x": np.repeat(numbers, 8), "y": np.tile(numbers, 8)}
    text = f"x: f64[64] = input()\ny: f64[64] = input()\nz[o]: f64[32] = sum({term} for i in range(2 * o, 2 * o + 2))\nreturn z\n"
    program = parse_program(text)
    simple = simplify(program)
    assert ("abs" in print_program(simple)) == DISTANCES[term]
    assert same(evaluate_program(program, given)["z"], evaluate_program(simple, given)["z"])
