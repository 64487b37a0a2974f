"""Random index arithmetic under random axes and guards: the simplified expression has the same value at every point."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.ir import Access, Expr, Index, Size, apply, const
from tensorexpr.simplify import simplify_expr
from tensorexpr.text import print_expr
from tests.seeds import share_of
from tests.simplify.points import IndexWriter, points_of, random_axes, same, values

DATA = np.array([3, -1, 0, 2, 7, 1, 1], np.int64)


def _check(seed: int, what: str) -> None:
    rng = random.Random(seed)
    axes, sizes = random_axes(rng)
    names: list[Expr] = [Index(a.index) for a in axes] + [Size(n) for n in sizes]
    writer = IndexWriter(rng, names, ("D", len(DATA)) if rng.random() < 0.3 else None)
    guards = tuple(writer.condition(rng.randint(0, 1)) for _ in range(rng.choice([0, 0, 1, 2])))
    guards = tuple(g for g in guards if "D[" not in print_expr(g))
    expr = writer.condition(3) if what == "condition" else writer.index(rng.randint(2, 4))
    subscript = what == "subscript"
    if what == "read":
        divisor = apply("minimum", apply("maximum", rng.choice(names), const(0)), const(len(DATA)))
        row = Access("D", (apply("mod", expr, divisor),), dtypes.int64)
        expr = apply("where", writer.condition(2), row, expr)
    simple = simplify_expr(expr, axes, guards, subscript=subscript)
    text = f"seed {seed}: {print_expr(expr)}  ->  {print_expr(simple)}"
    again = simplify_expr(simple, axes, guards, subscript=subscript)
    assert again is simple, f"{text}  ->  {print_expr(again)}"
    points = points_of(axes, guards, sizes)
    count = len(points[axes[0].index])
    tensors = {"D": DATA}
    assert same(values(expr, points, count, tensors), values(simple, points, count, tensors)), f"{text} with {sizes}"


@pytest.mark.parametrize("what", ["index", "subscript", "condition", "read"])
@pytest.mark.parametrize("block", range(8))
def test_value_is_kept_at_every_point(what: str, block: int) -> None:
    base = 1000 * block + {"index": 0, "subscript": 250, "condition": 500, "read": 750}[what]
    for seed in share_of(range(base, base + 120)):
        _check(seed, what)
