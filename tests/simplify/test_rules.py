"""Every rule alone: wherever it fires on random operands, the value stays, NaN, infinities, -0.0 and wraparound included."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.dtypes import DTYPES, DType
from tensorexpr.errors import DefinitionError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, apply, const
from tensorexpr.ops import OPS
from tensorexpr.rewrite import Rule
from tensorexpr.simplify.rules import common, floats, integers, reduce
from tensorexpr.simplify.rules.common import COMMON_RULES
from tensorexpr.simplify.rules.floats import DERIVED_RULES, FLOAT_RULES, REASSOCIATION_RULES, ZERO_SIGN_RULES
from tensorexpr.simplify.rules.integers import INTEGER_RULES
from tensorexpr.simplify.rules.reduce import REDUCE_RULES
from tests.simplify.points import corners, grid, same, values

NEEDED = 40
"""How often each rule must have fired to count as tested."""


HEADS = ["add", "sub", "mul", "neg", "abs", "where", "minimum", "div", "floordiv", "and", "or", "invert", "lt", "eq", "cast", "floor"]
SIGNLESS = ("exp", "cos", "abs", "lt", "eq", "add", "sub")
"""Operations that may give the same for both zeros, with what one of them meets."""


class Writer:
    """Random expressions of one dtype over three tensors read at point p."""

    def __init__(self, rng: random.Random, dtype: DType) -> None:
        self.rng = rng
        self.dtype = dtype

    def literal(self, dtype: DType) -> Const:
        return Const(self.rng.choice(list(corners(dtype)[:12])).item() if not dtype.is_float else self.number(dtype), dtype)

    def extremum_of_opposites(self, dtype: DType) -> Expr:
        x, y = self.leaf(dtype), self.leaf(dtype)
        scaled = [apply("mul", x, Const(factor, dtype)) for factor in (3.0, -3.0)]
        sides = self.rng.choice(([x, apply("neg", x)], [apply("sub", x, y), apply("sub", y, x)], scaled))
        return apply(self.rng.choice(("maximum", "minimum")), *self.rng.sample(sides, 2))

    def number(self, dtype: DType) -> float:
        return self.rng.choice([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, float("inf"), float("-inf"), float("nan")])

    def leaf(self, dtype: DType) -> Expr:
        if dtype.is_bool and self.rng.random() < 0.2:
            return apply(self.rng.choice(["lt", "gt", "eq"]), Index("p"), const(self.rng.randint(0, 9)))  # reads nothing
        if self.rng.random() < 0.45:
            return self.literal(dtype)
        name = self.rng.choice(["X", "Y"]) if dtype is self.dtype else "B" if dtype.is_bool else None
        return self.literal(dtype) if name is None else Access(name, (Index("p"),), dtype)

    def compared_again(self, expr: Expr | None) -> Expr | None:
        """Another comparison of the same two numbers."""
        if not isinstance(expr, Apply) or OPS[expr.op.name].result != "bool" or expr.op.arity != 2:
            return expr
        return apply(self.rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), *expr.args[:: self.rng.choice((1, -1))])

    def expr(self, dtype: DType, depth: int, head: str | None = None) -> Expr | None:
        rng = self.rng
        if head == "cast":
            source = rng.choice([*DTYPES, self.dtype, self.dtype])
            arg = self.expr(source, depth - 1, "cast" if rng.random() < 0.6 and depth > 1 else None)
            return None if arg is None else Cast(dtype, arg)
        if head is None:
            if depth <= 0 or rng.random() < 0.25:
                return self.leaf(dtype)
            head = rng.choice(HEADS)
            if head == "cast":
                return self.expr(dtype, depth, "cast")
        op = OPS[head]
        if op.result == "bool" and not dtype.is_bool:
            return self.leaf(dtype)
        inner = rng.choice([self.dtype, self.dtype, dtypes.bool_]) if op.result == "bool" else dtype
        if not op.accepts(inner):
            return self.leaf(dtype)
        if head == "where":
            parts = [self.expr(dtypes.bool_, depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)]
            there = [part for part in parts if part is not None]
            if rng.random() < 0.2 and len(there) == 3:  # nested selections with a branch in common
                inside = apply("where", self.leaf(dtypes.bool_), *there[1:])
                parts[rng.choice((1, 2))] = inside
            elif rng.random() < 0.1 and dtype.is_float and len(there) == 3:  # a function on both sides
                one, other = rng.choice((("exp", "exp"), ("exp", "tanh")))
                parts[1:] = [apply(one, there[1]), apply("add", self.leaf(dtype), apply(other, there[2]))]
                if rng.random() < 0.5:  # multiples of one
                    parts[1:] = rng.sample([parts[1], apply("mul", parts[1], Const(self.number(dtype), dtype)), apply("neg", parts[1])], 2)
        else:
            parts = [self.expr(inner, depth - 1) for _ in range(op.arity)]
            if op.result == "bool" and op.arity == 2 and rng.random() < 0.2:
                parts = [Cast(inner, Access("B", (Index("p"),), dtypes.bool_)), self.literal(inner)]
            if op.arity == 2 and rng.random() < 0.3:
                parts[1] = self.compared_again(parts[0]) if head == "or" and rng.random() < 0.5 else parts[0]
            if head in SIGNLESS and dtype in (inner, dtypes.bool_) and inner.is_float and rng.random() < 0.2:
                parts[0] = self.extremum_of_opposites(inner)
                if head in ("add", "sub"):
                    parts[1] = self.literal(inner)
            square = parts[1] if head == "mul" and rng.random() < 0.1 and OPS["sign"].accepts(dtype) else None
            if square is not None:  # what the square of a magnitude derives to
                magnitude = apply("abs", square)
                parts = [apply("mul", self.leaf(dtype), magnitude) if rng.random() < 0.5 else magnitude, apply("sign", square)]
        if any(p is None for p in parts):
            return None
        try:
            return apply(head, *parts)  # type: ignore[arg-type]
        except DefinitionError:
            return None


def _fires(rule: Rule, dtype: DType, seed: int, heads: tuple[str, ...]) -> tuple[Expr, Expr] | None:
    rng = random.Random(seed)
    writer = Writer(rng, dtype)
    head = rng.choice(heads)
    result = dtypes.bool_ if head in OPS and OPS[head].result == "bool" else rng.choice([dtype, dtype, dtypes.bool_])
    if head in ("and", "or", "xor", "invert") and rng.random() < 0.5:
        result = dtypes.bool_
    if head in OPS and not OPS[head].accepts(result if OPS[head].result == "same" else dtype):
        return None
    expr = writer.expr(result, 2 + rng.randint(0, 1), head)
    if expr is None or (not isinstance(expr, Apply) and head != "cast") or (isinstance(expr, Apply) and expr.op.name != head):
        return None
    found = rule(expr)
    return None if found is None or found == expr else (expr, found)


def _tensors(numbers: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    x, y, b = grid(numbers, numbers, corners(dtypes.bool_))
    return {"X": x, "Y": y, "B": b}, len(x)


def _check(rule: Rule, pool: tuple[DType, ...], agree: Callable[[np.ndarray, np.ndarray], bool], plain: bool = False) -> None:
    heads = rule.heads or tuple(OPS)  # type: ignore[attr-defined]
    fired = 0
    tables = {d: _tensors(np.array([-2.5, 0.5, 1.0, 3.0, 7.0]).astype(d.numpy) if plain else corners(d)) for d in pool}
    for seed in range(150_000):
        dtype = pool[seed % len(pool)]
        found = _fires(rule, dtype, seed, heads)
        if found is None:
            continue
        before, after = found
        assert before.dtype is after.dtype, f"{before} -> {after}"
        tensors, count = tables[dtype]
        env = {"p": np.arange(count)}
        old, new = values(before, env, count, tensors), values(after, env, count, tensors)
        assert agree(old, new), f"{rule.__name__}: {before}  ->  {after}"
        fired += 1
        if fired == NEEDED:
            return
    raise AssertionError(f"{rule.__name__} fired {fired} times")


FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
INTEGERS = tuple(d for d in DTYPES if d.is_integer)


@pytest.mark.parametrize("rule", COMMON_RULES, ids=lambda r: r.__name__)
def test_common_rule(rule: Rule) -> None:
    _check(rule, (dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.float64, dtypes.bool_, dtypes.int8), same)


@pytest.mark.parametrize("rule", INTEGER_RULES, ids=lambda r: r.__name__)
def test_integer_rule(rule: Rule) -> None:
    _check(rule, INTEGERS, same)


@pytest.mark.parametrize("rule", FLOAT_RULES, ids=lambda r: r.__name__)
def test_float_rule(rule: Rule) -> None:
    _check(rule, FLOATS, same)


@pytest.mark.parametrize("rule", ZERO_SIGN_RULES, ids=lambda r: r.__name__)
def test_zero_sign_rule(rule: Rule) -> None:
    def equal(a: np.ndarray, b: np.ndarray) -> bool:
        return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))

    _check(rule, FLOATS, equal)


@pytest.mark.parametrize("rule", (*DERIVED_RULES, *REASSOCIATION_RULES), ids=lambda r: r.__name__)
def test_rule_of_real_numbers(rule: Rule) -> None:
    def close(a: np.ndarray, b: np.ndarray) -> bool:
        x, y = a.astype(np.float64), b.astype(np.float64)
        x, y = (np.where(np.isfinite(x) & np.isfinite(y), v, 0.0) for v in (x, y))
        return bool(np.all(np.abs(x - y) <= 1e-4 * (1 + np.abs(x))))

    _check(rule, (dtypes.float32, dtypes.float64), close, plain=True)


ALL_RULES = (*COMMON_RULES, *INTEGER_RULES, *REASSOCIATION_RULES, *DERIVED_RULES, *FLOAT_RULES, *REDUCE_RULES)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda r: r.__name__)
def test_docstring_states_the_equation(rule: Rule) -> None:
    assert rule.__doc__ is not None and "->" in rule.__doc__


@pytest.mark.parametrize("module", (common, floats, integers, reduce), ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_rule_stands_in_a_list(module: ModuleType) -> None:
    """What is left out of the lists would never fire, and no other test would notice."""
    made = [rule for rule in vars(module).values() if hasattr(rule, "heads") and rule.__module__ == module.__name__]
    lists = [value for value in vars(module).values() if isinstance(value, tuple) and value and all(map(callable, value))]
    assert made and not [rule.__name__ for rule in made if not any(rule in rules for rules in lists)]
