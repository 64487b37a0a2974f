"""Iterations of which each reaches beyond the one before, shown without sets: when they are run, none meet."""

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.bounds.enumeration import evaluate_on
from tensorexpr.codegen.dependence import apart
from tensorexpr.codegen.facts.questions import Answer
from tensorexpr.codegen.nest import Buffer, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest_proofs import proof, prove
from tensorexpr.ir import Const, Index, Size, apply, const
from tests.seeds import share_of

ONE = Const(1.0, dtypes.float32)


def add(a, b):
    return apply("add", a, const(b) if isinstance(b, int) else b)


def mul(a, b):
    return apply("mul", a, const(b))


def random_nest(rng):
    """Slots that each go through some blocks of an axis, or nearly: shifted inwards, clipped, at an offset, by one or two stores."""
    extent = Size("n") if rng.random() < 0.6 else const(rng.randrange(1, 24))
    slot, block, v = Index("slot"), Index("block"), Index("v")
    each, width = rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
    off = rng.choice((0, 0, 0, 1))
    first, last = mul(slot, each), add(mul(slot, each), each + off)
    count = apply("floordiv", add(extent, width - 1), const(width))
    stores = []
    for _ in range(rng.choice((1, 1, 2))):
        start = mul(block, width)
        if rng.random() < 0.4:
            start = apply("minimum", start, apply("sub", extent, const(width)))
        index = add(add(start, v), rng.choice((0, 0, 0, 1)))
        low = const(0) if rng.random() < 0.6 else apply("maximum", const(0), apply("sub", mul(slot, each), const(rng.choice((0, 1)))))
        made = For(
            "v",
            const(0),
            const(width + rng.choice((0, 0, 0, 1))),
            (If(apply("lt", index, extent), (Store("Y", (index,), ONE),)),),
            "serial",
        )
        made = For("block", apply("maximum", first, low), apply("minimum", last, count), (made,), "serial")
        stores.append(If(apply("ge", extent, const(width)), (made,)))
    slots = apply("floordiv", add(count, each - 1), const(each))
    y = Buffer("Y", dtypes.float32, (extent,), "parameter")
    loop = For("slot", const(0), slots, tuple(stores), "parallel")
    return LoopNest("test", (y,), (), (), (Kernel("Y", (loop,)),), ("Y",), ("n",))


def touched(block, values):
    """The elements that statements write."""
    for s in block:
        match s:
            case For():
                for value in range(int(evaluate_on(s.start, values)), int(evaluate_on(s.stop, values))):
                    yield from touched(s.body, values | {s.index: np.int64(value)})
            case If():
                if evaluate_on(s.condition, values):
                    yield from touched(s.then, values)
            case Store():
                yield int(evaluate_on(s.indices[0], values))


def said_and_apart(seed):
    """Whether the proof says, without sets, that no two slots write one element, and whether that is so at some sizes."""
    made = random_nest(random.Random(seed))
    (loop,) = made.kernels[0].body
    apart = True
    for n in range(16):
        sizes = {"n": np.int64(n)}
        each = [set(touched(loop.body, sizes | {"slot": np.int64(at)})) for at in range(int(evaluate_on(loop.stop, sizes)))]
        apart = apart and sum(map(len, each)) == len(set().union(*each))
    return not any(finding.kind == "race" for finding in prove(made).findings), apart, made


@pytest.fixture(autouse=True)
def without_sets(monkeypatch):
    monkeypatch.setattr(proof, "meet", lambda *_: Answer(None, "undecided"))


@pytest.mark.parametrize("seed", share_of(range(150)))
def test_slots_that_are_said_to_be_apart_are(seed):
    said, apart, made = said_and_apart(seed)
    assert apart or not said, made


def test_slots_that_are_apart_are_mostly_said_to_be():
    found = [said_and_apart(seed)[:2] for seed in range(300, 340)]
    assert sum(said for said, _ in found) > 0.5 * sum(apart for _, apart in found) >= 2


def test_without_the_bounds_of_iterations_few_are_said_to_be_apart(monkeypatch):
    monkeypatch.setattr(apart.Reach, "is_apart", lambda *_: False)
    found = [said_and_apart(seed)[:2] for seed in range(300, 340)]
    assert sum(said for said, _ in found) < 0.5 * sum(apart for _, apart in found)
