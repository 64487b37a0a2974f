"""Index arithmetic as Python text means what it means on NumPy's scalars, where it could wrap around too."""

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size
from tensorexpr.ops import OPS, cast_value
from tensorexpr.positions import Positions
from tests.seeds import share_of

SIZES = {"n": 7}
ENV = {"i": 5, "j": 0, "k": -3}


def drawn(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        number = rng.choice((0, 1, -2, 3, 64, 2**31, 2**62))
        return rng.choice(
            (Index("i"), Index("j"), Index("k"), Size("n"), Const(number, dtypes.int64), Cast(dtypes.int64, Const(9, dtypes.int32)))
        )
    first, second = drawn(rng, depth - 1), drawn(rng, depth - 1)
    name = rng.choice(("add", "sub", "mul", "mul", "floordiv", "mod", "neg", "minimum", "maximum", "abs", "where"))
    if name == "where":
        return Apply(OPS["where"], (truth(rng, first, second), first, second))
    return Apply(OPS[name], (first, second)[: OPS[name].arity])


def truth(rng: random.Random, first: Expr, second: Expr) -> Expr:
    one, other = (Apply(OPS[rng.choice(("eq", "ne", "lt", "le", "gt", "ge"))], (first, second)) for _ in range(2))
    return Apply(OPS[rng.choice(("and", "or"))], (one, other))


def plain(expr: Expr):
    """By NumPy's scalars, a function for each node."""
    match expr:
        case Const(value, dtype):
            return dtype.numpy.type(value)
        case Index(name):
            return np.int64(ENV[name])
        case Size(name):
            return np.int64(SIZES[name])
        case Cast(dtype, arg):
            return cast_value(plain(arg), dtype)
    return expr.op.evaluate(*map(plain, expr.args))


@pytest.mark.parametrize("seed", share_of(range(300)))
def test_index_arithmetic_in_one_line_is_that_of_numbers(seed):
    rng = random.Random(seed)
    positions = Positions(SIZES, lambda expr: lambda env: plain(expr))
    one, other = drawn(rng, rng.randint(1, 5)), drawn(rng, rng.randint(1, 5))
    with np.errstate(all="ignore"):
        assert positions.place((one, other))(ENV) == (plain(one), plain(other))
        for expr in (one, other, truth(rng, one, other)):
            found = positions.scalar(expr)
            if found is not None:
                assert found(ENV) == plain(expr) and type(found(ENV)) is expr.dtype.numpy.type


def test_deep_arithmetic_is_left_to_the_interpreter():
    deep: Expr = Index("i")
    for _ in range(300):
        deep = Apply(OPS["neg"], (deep,))
    positions = Positions(SIZES, lambda expr: lambda env: plain(expr))
    assert positions.scalar(deep) is None and positions.place((deep,))(ENV) == (5,)


def test_what_is_used_twice_is_not_written_for_ever():
    shared: Expr = Index("i")
    for _ in range(39):
        shared = Apply(OPS["minimum"], (shared, shared))
    assert Positions(SIZES, lambda expr: lambda env: 5).scalar(shared) is None
