"""Bounds as forms: what they say of random indices under random loops and conditions holds at every point, at every small size."""

import math
import random

import numpy as np
import pytest

from tensorexpr.bounds.enumeration import NotEnumerable, enumerate_points, evaluate_on
from tensorexpr.codegen.facts.forms import Forms, Names
from tensorexpr.codegen.facts.questions import Questions, few_points
from tensorexpr.codegen.facts.scope import Scope
from tensorexpr.ir import Axis, Index, Size, apply, const
from tensorexpr.traversal import bottom_up
from tests.seeds import share_of

n = Size("n")
SIZES = (0, 1, 2, 3, 7, 8, 9, 16, 21)


def op(name, *args):
    return apply(name, *(const(a) if isinstance(a, int) else a for a in args))


def some(rng, names, depth):
    """A random integer over indices and the size."""
    if not depth or rng.random() < 0.2:
        return rng.choice([*map(Index, names), n, const(rng.randint(-3, 9))])
    one, other = some(rng, names, depth - 1), some(rng, names, depth - 1)
    match rng.randrange(8):
        case 0 | 1:
            return op(rng.choice(("add", "sub")), one, other)
        case 2:
            return op("mul", one, rng.choice((-2, -1, 2, 8)))
        case 3:
            return op(rng.choice(("floordiv", "mod")), one, rng.choice((2, 8, op("maximum", n, 1))))
        case 4:
            return op("where", op("lt", one, other), other, rng.choice((one, const(0))))
        case 5:  # reflected
            return op("minimum", one, op("sub", op("mul", n, 2), one))
    return op(rng.choice(("minimum", "maximum")), one, other)


def window(rng, index, outer):
    """A place in a block of eight that is shifted inwards."""
    return op("add", op("minimum", op("mul", outer, 8), op("sub", n, 8)), index)


def case_of(rng):
    """Loops, conditions, an index and an extent."""
    blocks = op("where", op("ge", n, 8), op("floordiv", op("add", n, 7), 8), 0)
    axes = [Axis("b", const(0), rng.choice((blocks, op("floordiv", n, 8), n))), Axis("v", const(0), const(8))]
    for name in ("i", "j")[: rng.randrange(3)]:
        ends = [some(rng, [a.index for a in axes], 1) for _ in range(2)]
        axes.append(Axis(name, ends[0] if rng.random() < 0.3 else const(0), op("minimum", ends[1], 12)))
    names = [a.index for a in axes]
    at = [window(rng, Index("v"), Index("b")), op("add", op("mul", Index("b"), 8), Index("v")), some(rng, names, 2), some(rng, names, 3)]
    index, extent = rng.choice(at), rng.choice((n, n, op("mul", n, 2), op("sub", n, 1), some(rng, [], 1), const(9)))
    guards = [op(rng.choice(("lt", "le", "ge", "gt")), some(rng, names, 1), some(rng, names, 1)) for _ in range(rng.randrange(3))]
    guards += (
        [op("lt", index, extent)] * (rng.random() < 0.2)
        + [op("ge", index, 0)] * (rng.random() < 0.3)
        + [op("ge", n, 8)] * (rng.random() < 0.3)
    )
    if rng.random() < 0.3:
        index = op(rng.choice(("mod", "floordiv", "minimum", "maximum")), index, rng.choice((extent, op("maximum", extent, 1), const(8))))
    return axes, guards, index, extent


def holds_everywhere(axes, guards, index, extent):
    for size in SIZES:

        def at(expr, size=size):
            return bottom_up(expr, lambda e: const(size) if e == n else e)

        points = enumerate_points(tuple(Axis(a.index, at(a.start), at(a.stop)) for a in axes), tuple(map(at, guards)))
        if points.count:
            found, limit = evaluate_on(at(index), points.values), evaluate_on(at(extent), points.values)
            if not (np.all(found >= 0) and np.all(found < limit)):
                return False
    return True


def proved(axes, guards, index, extent):
    scope = Scope((), {}, {})
    for axis in axes:
        scope = scope.loop(axis.index, axis.start, axis.stop)
    return Forms(scope.where(*guards), ("n",), Names()).inside(index, extent)


def count(seeds):
    shown = true = 0
    for seed in seeds:
        case = case_of(random.Random(f"forms {seed}"))
        try:
            true += (holds := holds_everywhere(*case))
        except (ZeroDivisionError, FloatingPointError):
            continue
        if proved(*case):
            assert holds, [str(part) for part in case]
            shown += 1
    return shown, true


@pytest.mark.parametrize("block", share_of(range(12)))
def test_what_forms_show_holds_at_every_point(block):
    shown, true = count(range(100 * block, 100 * block + 100))
    assert shown >= true // 3 >= 3


def at_points(seed):
    """Whether going through loops of numbers shows that a random index is inside, and whether it is; None where they have many points."""
    rng = random.Random(f"points {seed}")
    axes, guards, index, extent = case_of(rng)
    size = const(rng.choice((3, 7, 8, 9)))
    *guards, index, extent = (bottom_up(e, lambda e: size if e == n else e) for e in (*guards, index, extent))
    axes = [Axis(a.index, *(bottom_up(e, lambda e: size if e == n else e) for e in (a.start, a.stop))) for a in axes]
    scope = Scope((), {}, {})
    for axis in axes:
        scope = scope.loop(axis.index, axis.start, axis.stop)
    facts = scope.where(*guards).facts
    try:
        few_points(facts)
    except NotEnumerable:
        return None
    return Questions((), {}).at_all_points(index, extent, facts), holds_everywhere(axes, guards, index, extent)


@pytest.mark.parametrize("block", share_of(range(6)))
def test_loops_of_few_points_are_gone_through(block):
    found = [pair for seed in range(50 * block, 50 * block + 50) if (pair := at_points(seed)) is not None]
    assert all(said == holds for said, holds in found)
    assert {said for said, _ in found} == {True, False} and len(found) > 25


def test_one_of_two_holds_where_the_other_does_not():
    i, j = Index("i"), Index("j")
    scope = Scope((), {}, {}).where(op("or", op("ge", j, 2), op("lt", i, 4)))
    assert scope.where(op("lt", j, 2)).interval(i)[1] == 3
    assert scope.interval(i)[1] == scope.where(op("ge", j, 2)).interval(i)[1] == scope.where(op("lt", j, 3)).interval(i)[1] == math.inf


def test_forms_show_shifted_blocks_reflections_and_remainders():
    b, v = Index("b"), Index("v")
    axes = [Axis("b", const(0), op("where", op("ge", n, 8), op("floordiv", op("add", n, 7), 8), 0)), Axis("v", const(0), const(8))]
    at = window(random, v, b)
    assert proved(axes, [], at, n)
    assert proved(axes, [op("lt", at, op("sub", n, 2))], op("add", at, 2), n)
    assert not proved(axes, [], op("add", at, 1), n)
    far = op("maximum", op("sub", at, 1), op("sub", 0, at))  # -1 is 0
    assert proved(axes, [], op("minimum", far, op("sub", op("sub", op("mul", n, 2), far), 1)), n)
    assert proved(axes, [], op("mod", op("add", at, 5), n), n)
    assert proved(axes, [], op("floordiv", at, n), const(1))
    assert not proved([], [], op("mod", n, n), n)


def test_forms_show_quotients_by_open_sizes():
    i, k = Index("i"), op("maximum", n, 1)
    for product in (op("mul", n, k), op("mul", k, n)):
        axes = [Axis("i", const(0), product)]
        assert proved(axes, [], op("floordiv", i, k), n)
        assert proved(axes, [op("ge", i, 3)], op("floordiv", op("sub", i, 3), k), n)
        assert not proved(axes, [], op("floordiv", op("add", i, 1), k), n)
        assert not proved(axes, [], op("floordiv", i, k), op("sub", n, 1))
