"""Random guards around sums and random pieces of sums: what goes or is made one leaves every value, and much of it does go."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Combiner,
    Const,
    Define,
    Expr,
    Index,
    Input,
    Program,
    Reduce,
    TensorType,
    apply,
    conjunction,
    const,
)
from tensorexpr.simplify import simplify_expr
from tensorexpr.text import print_expr
from tensorexpr.traversal import walk
from tests.simplify.points import same

LENGTH = 24
AXES = (Axis("i", const(0), const(5)), Axis("j", const(0), const(4)))
INPUT = Input("X", TensorType((const(LENGTH),), dtypes.float64))
ZERO = Const(0.0, dtypes.float64)


def _read(*parts: Expr) -> Expr:
    total = parts[0]
    for part in parts[1:]:
        total = apply("add", apply("mul", total, const(3)), part)
    return Access("X", (apply("mod", total, const(LENGTH)),), dtypes.float64)


def _linear(rng: random.Random, names: tuple[str, ...] = ("i", "j")) -> Expr:
    total: Expr = const(rng.randint(-3, 4))
    for name in rng.sample(names, rng.randint(1, len(names))):
        total = apply("add", total, apply("mul", Index(name), const(rng.choice((1, 1, -1, 2, 3)))))
    return apply("floordiv", total, const(rng.choice((2, 3)))) if rng.random() < 0.4 else total


def _condition(rng: random.Random) -> Expr:
    if rng.random() < 0.2:
        return apply("eq", apply("mod", _linear(rng), const(rng.choice((2, 3)))), const(rng.randint(0, 1)))
    return apply(rng.choice(("lt", "le", "gt", "ge", "eq", "ne")), _linear(rng), _linear(rng))


def _guarded_sum(rng: random.Random) -> Expr:
    """A sum, perhaps scaled or beside another one, under conditions that often say that it has points."""
    bounds = [(_linear(rng), _linear(rng)) for _ in range(rng.choice((1, 1, 2)))]
    combiner = rng.choice(("sum", "sum", "sum", "max", "prod"))
    terms = []
    for start, stop in bounds:
        inner = Axis("r", const(0), const(2)) if rng.random() < 0.3 else None
        axes = (Axis("k", start, stop), *(() if inner is None else (inner,)))
        read = _read(Index("i"), Index("k"), *(() if inner is None else (Index("r"),)))
        where = apply("ne", Index("k"), Index("j")) if rng.random() < 0.2 else None
        term: Expr = Reduce(Combiner(combiner), (read,), axes[:: rng.choice((1, 1, -1))] if inner else axes, where)
        scale = rng.choice((None, None, 2.0, -2.0, "neg"))
        terms.append(term if scale is None else apply("neg", term) if scale == "neg" else apply("mul", term, Const(scale, dtypes.float64)))
    value = terms[0] if len(terms) == 1 else apply("add", *terms)
    said = [apply("lt", start, apply("add", stop, const(rng.choice((0, 0, 0, 1))))) for start, stop in bounds[: rng.randint(0, 2)]]
    conditions = said + [_condition(rng) for _ in range(rng.choice((0, 0, 1)) or not said)]
    rng.shuffle(conditions)
    other = rng.choice((ZERO, ZERO, ZERO, Const(-0.0, dtypes.float64), Const(1.0, dtypes.float64), Const(-np.inf, dtypes.float64)))
    return apply("where", conjunction(conditions), value, other)


def _pieces(rng: random.Random) -> Expr:
    """A sum of terms some of which are equal, under conditions some of which exclude each other."""
    values = [_read(Index("i"), Index("j")), _read(Index("j"))]
    conditions = [_condition(rng) for _ in range(2)]
    conditions += [apply("invert", conditions[0]), apply("and", apply("invert", conditions[0]), conditions[1])]
    terms = [apply("where", rng.choice(conditions), rng.choice(values), ZERO) for _ in range(rng.randint(2, 4))]
    terms.insert(rng.randint(0, 2), values[0])
    total: Expr = terms[0]
    for term in terms[1:]:
        total = apply(rng.choice(("add", "add", "add", "sub")), total, term)
    return total


def _places(rng: random.Random) -> Expr:
    """A sum of terms at places of an index, many of which are one formula of the index there."""
    terms = []
    for place in rng.sample(range(4), rng.randint(2, 4)):
        at = const(place if rng.random() < 0.8 else rng.randint(0, 3))
        read: Expr = apply("mul", Access("X", (apply("add", apply("mul", Index("i"), const(4)), at),), dtypes.float64), _read(at))
        if rng.random() < 0.5:
            read = Reduce(Combiner("sum"), (apply("mul", read, _read(Index("k"), at)),), (Axis("k", const(0), const(3)),))
        condition: Expr = apply("eq", Index("j"), const(place))
        if rng.random() < 0.2:
            condition = apply("and", condition, _condition(rng))
        terms.append(apply("where", condition, read, ZERO))
    total: Expr = terms[0]
    for term in terms[1:]:
        total = apply("add", total, term)
    return total


def test_terms_at_places_of_an_index_are_one_formula() -> None:
    reads = [Access("X", (apply("add", apply("mul", Index("i"), const(4)), const(place)),), dtypes.float64) for place in range(4)]
    terms = [apply("where", apply("eq", Index("j"), const(place)), read, ZERO) for place, read in enumerate(reads)]
    total = apply("add", apply("add", terms[3], terms[1]), apply("add", terms[0], terms[2]))
    assert print_expr(simplify_expr(total, AXES, derived=True, signed_zeros=False)) == "X[i * 4 + j]"
    some = apply("add", terms[0], terms[2])
    simple = print_expr(simplify_expr(some, AXES, derived=True, signed_zeros=False))
    assert simple.count("X[") == 1 and "X[i * 4 + j]" in simple, simple
    other = apply("add", terms[0], apply("where", apply("eq", Index("j"), const(2)), reads[1], ZERO))
    assert print_expr(simplify_expr(other, AXES, derived=True, signed_zeros=False)).count("X[") == 2


def _value(expr: Expr, numbers: np.ndarray) -> np.ndarray:
    return evaluate_program(Program((INPUT,), (), (Define("Y", AXES, expr),), ("Y",), ()), {"X": numbers})["Y"]


def _branches(expr: Expr) -> int:
    return sum(len(list(walk(node.args[0]))) for node in walk(expr) if isinstance(node, Apply) and node.op.name == "where")


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("make", [_guarded_sum, _pieces, _places])
def test_value_is_kept(make, derived: bool) -> None:
    numbers = np.random.default_rng(0).integers(-4, 5, LENGTH).astype(np.float64)
    fewer = 0
    for seed in range(60):
        expr = make(random.Random(seed))
        options = {"derived": derived, "signed_zeros": not derived}
        simple = simplify_expr(expr, AXES, **options)
        text = f"seed {seed}: {print_expr(expr)}  ->  {print_expr(simple)}"
        again = simplify_expr(simple, AXES, **options)
        assert again is simple, f"{text}  ->  {print_expr(again)}"
        before, after = _value(expr, numbers), _value(simple, numbers)
        assert np.array_equal(before, after, equal_nan=True) if derived else same(before, after), text
        fewer += _branches(simple) < _branches(expr)
    assert fewer >= 20, fewer
