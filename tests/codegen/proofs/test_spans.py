"""What stores fill, decided without sets: it is what running them fills."""

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.bounds.enumeration import evaluate_on
from tensorexpr.codegen.nest import Buffer, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.nest_proofs import written as coverage
from tensorexpr.ir import Const, Index, Size, apply, const
from tensorexpr.traversal import walk
from tests.seeds import share_of

ONE = Const(1.0, dtypes.float32)


def nest(stores, *shape):
    y = Buffer("Y", dtypes.float32, shape, "parameter")
    return LoopNest("test", (y,), (), (), (Kernel("Y", tuple(stores)),), ("Y",))


def in_parts(rng, at, o, count):
    """The loop over o, and around it one that only says through which part of its range it goes, or nearly."""
    s, each = Index(f"s{at}"), rng.choice((1, 2, 3))
    first = apply("mul", s, const(each))
    last = apply("add", first, const(each - rng.choice((0, 0, 0, 1))))
    parts = apply("floordiv", apply("add", count, const(each - rng.choice((1, 1, 0)))), const(each))
    return [(s.name, const(0), parts), (o.name, first, apply("minimum", last, count))]


def dimension(rng, at, extent):
    """An index that goes through an axis, or nearly: `(index, loops, condition)`."""
    o, v, width = Index(f"o{at}"), Index(f"v{at}"), rng.choice((2, 3, 4))
    off = rng.choice((0, 0, 0, 1))
    if rng.random() < 0.3:
        count = apply("floordiv", apply("add", extent, const(width - 1 - off)), const(width))
        index = apply("add", apply("mul", o, const(width)), v)
        inside = apply("lt", index, apply("sub", extent, const(rng.choice((0, 0, 1)))))
        return index, [*in_parts(rng, at, o, count), (v.name, const(0), const(width))], inside
    if rng.random() < 0.3:
        return v, [(v.name, const(0), apply("sub", extent, const(off)))], None
    if rng.random() < 0.5:
        last = apply("sub", extent, const(width + off))
        count = apply("floordiv", apply("add", extent, const(width - 1)), const(width))
        index = apply("add", apply("minimum", apply("mul", o, const(width)), last), v)
        return (
            index,
            [(o.name, const(0), count), (v.name, const(0), const(width + rng.choice((0, 0, -1))))],
            apply("ge", extent, const(width)),
        )
    step = rng.choice((width, width + 1))
    index = apply("add", apply("mul", o, const(step)), v)
    return index, [(o.name, const(0), apply("floordiv", extent, const(width))), (v.name, const(0), const(width))], None


def interleaved(rng, extent):
    """A loop for each digit that stores every so many elements, or nearly; a window that is shifted inwards goes through some of them."""
    step, width, shifted = rng.choice((2, 3)), rng.choice((2, 3)), rng.random() < 0.5
    for digit in range(step):
        o, v = Index(f"o{digit}"), Index(f"v{digit}")
        count = apply("floordiv", apply("add", extent, const(step - 1 - digit - rng.choice((0, 0, 0, 0, 1)))), const(step))
        at = apply("add", apply("minimum", apply("mul", o, const(width)), apply("sub", count, const(width))), v) if shifted else v
        made = Store("Y", (apply("add", apply("mul", at, const(step)), const(digit)),), ONE)
        made = For(v.name, const(0), const(width) if shifted else count, (made,), "serial")
        if shifted:
            made = For(o.name, const(0), apply("floordiv", apply("add", count, const(width - 1)), const(width)), (made,), "serial")
            made = If(apply("ge", count, const(width)), (made,))
        yield made


def random_stores(rng, shape):
    stores = list(interleaved(rng, shape[0])) if len(shape) == 1 and rng.random() < 0.4 else []
    for number in range(rng.choice((1, 2, 2, 3))):
        parts = [dimension(rng, f"{number}{at}", extent) for at, extent in enumerate(shape)]
        made = Store("Y", tuple(index for index, _, _ in parts), ONE)
        inner = parts[0][1][-1][0]
        test = rng.choice((None, None, apply(rng.choice(("lt", "ge", "ne", "eq")), Index(inner), const(rng.choice((1, 2))))))
        if test is not None:
            made = If(test, (made,))
        conditions = [condition for _, _, condition in parts if condition is not None]
        within = [condition for condition in conditions if any(isinstance(node, Index) for node in walk(condition))]
        for condition in within:
            made = If(condition, (made,))
        for loop in (loop for _, loops, _ in reversed(parts) for loop in reversed(loops)):
            made = For(*loop, (made,), "serial")
        for condition in (condition for condition in conditions if condition not in within):
            made = If(condition, (made,))
        stores.append(made)
    rest = Store("Y", tuple(Index(f"r{at}") for at in range(len(shape))), ONE)
    for at, extent in enumerate(shape):
        rest = For(f"r{at}", const(0), extent, (rest,), "serial")
    if rng.random() < 0.6:
        stores.append(If(apply("lt", shape[0], const(rng.choice((2, 3, 4)))), (rest,)))
    return stores


def filled(block, values, y):
    for s in block:
        match s:
            case For():
                for value in range(int(evaluate_on(s.start, values)), int(evaluate_on(s.stop, values))):
                    filled(s.body, values | {s.index: np.int64(value)}, y)
            case If():
                if evaluate_on(s.condition, values):
                    filled(s.then, values, y)
            case Store():
                at = tuple(int(evaluate_on(index, values)) for index in s.indices)
                if all(0 <= index < extent for index, extent in zip(at, y.shape, strict=True)):
                    y[at] = True


def said_and_filled(seed):
    """Whether the proof says, without sets, that all is written, and whether running the stores does it, at a few sizes."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((Size("n"), const(rng.randrange(1, 9)))) for _ in range(rng.choice((1, 1, 2))))
    made = nest(random_stores(rng, shape), *shape)
    run = True
    for n in range(12):
        y = np.zeros([int(evaluate_on(extent, {"n": np.int64(n)})) for extent in shape], bool)
        filled(made.kernels[0].body, {"n": np.int64(n)}, y)
        run = run and bool(y.all())
    return not any(finding.kind == "coverage" for finding in prove(made).findings), run, made


@pytest.fixture(autouse=True)
def without_sets(monkeypatch):
    monkeypatch.setattr(coverage.Written, "_by_sets", lambda *_: coverage.Answer(None, "undecided"))


@pytest.mark.parametrize("seed", share_of(range(120)))
def test_what_is_said_to_be_filled_is(seed):
    said, run, made = said_and_filled(seed)
    assert run or not said, made


def test_most_of_what_is_filled_is_said_to_be():
    found = [said_and_filled(seed)[:2] for seed in range(200, 260)]
    assert sum(said for said, _ in found) > 0.8 * sum(run for _, run in found) > 12


OVER_BOTH = """
main(n, m, Y)
n: size
m: size
Y: parameter(f32[n, m], written)

def kernel_0() -> Y:
    for x in range(0, {stop}):
        {test}Y[{index}] = 1.0
"""


@pytest.mark.parametrize(
    ("stop", "index", "whole"),
    [
        ("n * m", "x // m, x % m", True),
        ("m * n", "x // m, x % m", True),
        ("n * m", "x // n, x % n", False),
        ("n * m - 1", "x // m, x % m", False),
        ("n * m", "x // m, 0", False),
    ],
)
def test_a_loop_over_two_axes_at_once_goes_through_both(stop, index, whole):
    made = parse_nest(OVER_BOTH.format(stop=stop, index=index, test=""))
    assert ("coverage" not in {finding.kind for finding in prove(made).findings}) == whole
    tested = parse_nest(OVER_BOTH.format(stop=stop, index=index, test="if x != 3:\n            "))
    assert "coverage" in {finding.kind for finding in prove(tested).findings}


ROWS = """
main(n, Y)
n: size
Y: parameter(f32[n], written)

def kernel_0() -> Y:
    for t in range(0, n // 3):
        for u in unroll(range(0, 3)):
            Y[t * 3 + u] = 1.0
    for t in range(0, n % 3):
        if t % 3 == {first}:
            Y[t + n // 3 * 3] = 2.0
        else:
            Y[t + n // 3 * {by}] = 3.0
"""


@pytest.mark.parametrize(("first", "by", "whole"), [(0, 3, True), (1, 3, True), (0, 2, False)])
def test_what_is_left_beside_rows_is_written_under_conditions(first, by, whole):
    found = prove(parse_nest(ROWS.format(first=first, by=by)))
    assert ("coverage" not in {finding.kind for finding in found.findings}) == whole


THIRDS = """
main(n, Y)
n: size
Y: parameter(f32[n // 3], written)

def kernel_0() -> Y:
    if n // 3 >= 16:
        for o in range(0, (n + {more}) // 48):
            for v in vectorize(range(0, 16)):
                Y[minimum(o * 16, n // 3 - 16) + v] = 1.0
    else:
        for v in vectorize(range(0, 16)):
            if v < n // 3:
                Y[v] = 2.0
"""


@pytest.mark.parametrize(("more", "whole"), [(45, True), (47, True), (44, False), (0, False)])
def test_blocks_of_a_quotient(more, whole):
    found = prove(parse_nest(THIRDS.format(more=more)))
    assert ("coverage" not in {finding.kind for finding in found.findings}) == whole
