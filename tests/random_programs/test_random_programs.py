"""The generator of random programs and their reference: the same seed gives the same program, every feature occurs, and the
reference agrees with the interpreter."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.errors import ArgumentError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.random_programs import Options, random_sample, reference
from tests.random_programs.bounds import agrees
from tests.random_programs.layouts import LAYOUTS, Target, laid_out
from tests.random_programs.reference import TooMuch, evaluate
from tests.random_programs.sample import arrays_for, constants_of, sizes_of
from tests.random_programs.values import BORDERS
from tests.seeds import share_of

FEATURES = {
    "open", "constant", "zero", "several outputs", "where", "data", "cast", "function", "division", "step function", "all or any",
    "reversed",
    "clamped index", "modulo index", "divmod index", "guarded read", "checked data index", "clipped data index",
    "data index at a border", "data index in a reduction", "data index in a where", "data index in a scatter",
    "condition on two indices", "condition on an index array", "condition on data", "index as a value", "dependent extent",
    "extent that is data", "reduction where", "reduction under a condition", "nested reduction", "te.sum", "te.prod", "te.max",
    "te.min", "te.argmax", "te.argmin", "te.reduce", "scatter", "scatter sum", "scatter prod", "scatter max", "scatter min",
    "scatter where", "scan", "checkpoint", "anything", "elementwise", "einsum", "convolution", "stencil", "pooling", "softmax",
    "norm", "attention", "total", "prefix", "folded", "reshape", "pieces", "twins", "gather", "rows by data", "sampled", "winner",
    "distances",
    *(f"border {border}" for border in BORDERS), *(dtype.name for dtype in dtypes.DTYPES),
}  # fmt: skip


def test_the_same_seed_gives_the_same_program():
    for seed in range(20):
        assert random_sample(seed) == random_sample(seed)


def test_every_feature_occurs():
    missing, seed = set(FEATURES), 0
    while missing and seed < 1500:
        missing -= random_sample(seed).features
        seed += 1
    assert not missing


@pytest.mark.parametrize("left_out", ["data", "scatter", "scan", "combiner", "mask", "border", "zero", "dependent"])
def test_features_can_be_left_out(left_out):
    words = {"data": "K", "scatter": "te.scatter", "scan": "te.scan", "combiner": "te.reduce", "mask": "where=", "border": ".read("}
    for seed in share_of(range(30)):
        sample = random_sample(seed, Options(without=frozenset((left_out,))))
        assert left_out not in sample.features
        assert words.get(left_out, "nothing") not in sample.text.replace(".read(i - 1", "") or left_out in ("border",)


def test_budgets_are_kept():
    for points in (500, 50_000):
        for seed in share_of(range(30)):
            sample = random_sample(seed, Options(points=points, open_sizes=0.0))
            for tensor in sample.traced().inputs:
                assert np.prod(tensor.shape, dtype=float) <= 2 * points


@pytest.mark.parametrize("block", range(3))
def test_the_reference_is_the_interpreter(block):
    """Within the bound itself, where compiled code has some slack; and bit for bit where the bound is nothing."""
    asked = certain = 0
    for seed in share_of(range(40 * block, 40 * block + 40)):
        sample = random_sample(seed, Options(points=300))
        traced = sample.traced()
        program = traced.program
        for number, sizes in enumerate(sizes_of(sample, program, random.Random(seed), 0)):
            arrays = arrays_for(program, traced.below, sizes, seed, exact=number % 2 == 0, wild=seed % 5 == 0)
            try:
                want = evaluate_program(program, arrays, sizes)
            except (OutOfBoundsError, ArgumentError) as error:
                with pytest.raises(type(error)):
                    evaluate(program, arrays, sizes)
                continue
            try:
                found = evaluate(program, arrays, sizes)
            except TooMuch:
                continue
            for name in program.outputs:
                near = found[name]
                assert np.all(agrees(want[name], near, program.types[name].dtype, slack=1.0)), f"{name} at {sizes} of\n{sample.text}"
                asked += want[name].size
                certain += want[name].size if near.error is None else int(np.isfinite(near.error).sum())
    assert certain >= 0.95 * asked


def test_a_bound_is_as_small_as_the_program_is_exact():
    x = te.placeholder((4, 1000), name="x")
    total = te.compute((4,), lambda i: te.sum(lambda k: x[i, k] * x[i, k], 1000), name="total")
    program = te.program_of([total], [x])
    rng = np.random.default_rng(0)
    whole, noise = rng.integers(-3, 4, (4, 1000)).astype(np.float32), rng.standard_normal((4, 1000)).astype(np.float32)
    assert evaluate(program, {"x": whole})["total"].error is None
    near = evaluate(program, {"x": noise})["total"]
    assert np.all(near.error < 1e-3 * near.value) and np.all(near.error > 1e-6 * near.value)
    assert np.all(evaluate(program, {"x": noise}, ideal=True)["total"].error < 1e-12 * near.value)


def test_what_depends_on_a_rounding_is_known_to():
    x = te.placeholder((3,), name="x")
    steps = te.compute((3,), lambda i: te.floor(x[i] * 10), name="steps")
    near = evaluate(te.program_of([steps], [x]), {"x": np.array([0.3, 0.35, 0.1], np.float32)})["steps"]
    assert near.error.tolist() == [np.inf, 0.0, np.inf]


def test_a_sum_by_a_combiner_rounds_in_some_orders():
    x = te.placeholder((3,), "float32", name="x")
    both = te.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0.0, 0), lambda i: (x[i], 1), 3)
    program = te.program_of([te.compute((), lambda: both[0], name="total")], [x])
    rounds = evaluate(program, {"x": np.array([1, -1, 2.0**-30], np.float32)})["total"]
    assert rounds.value == 2.0**-30 and 2.0**-26 < rounds.error < 2.0**-20
    assert evaluate(program, {"x": np.array([1, -1, 0.25], np.float32)})["total"].error is None


def test_nothing_times_what_may_be_infinite_is_anything():
    program = parse_program("""
X: f32[400] = input()
P: f32 = prod(X[i] for i in range(400))
Y[i]: f32[2] = P[()] * where(i == 0, 0.0, 1.0)
return Y""")
    near = evaluate(program, {"X": np.full(400, 1.5, np.float32)})["Y"]
    assert near.error is not None and np.isinf(near.error).all()  # 1.5**400 is a float64, but infinite in float32


def test_loops_taken_in_pieces_are_the_whole(monkeypatch):
    """Scatters whose inner loop depends on the outer one, and gathers by data turned about, in pieces of a few points."""
    x, keys = te.placeholder((5, 40), name="x"), te.placeholder((5, 40), "int32", name="keys")
    scattered = te.scatter(
        (7, 2), lambda i, j: ((keys[i, j], j % 2), x[i, j]), (5, lambda i: 39 - 2 * i), where=lambda i, j: (i + j) % 3 > 0, name="scattered"
    )
    picked = te.compute((5, 40), lambda i, j: scattered[keys[i, j], 0] * x[4 - i, j], name="picked")
    head = te.placeholder((5, 40), name="h")
    gradient = te.gradient(picked, [x], [head])
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, (5, 40)).astype(np.float32) for n in "xh"} | {"keys": rng.integers(0, 7, (5, 40), np.int32)}
    program = te.program_of([scattered, picked, *gradient], [x, keys, head])
    assert {"Scatter", "Segments"} <= {type(d).__name__ for d in program.definitions}
    whole = evaluate(program, arrays)
    monkeypatch.setattr(reference, "_BOX", 20)
    pieces = evaluate(program, arrays)
    for name in program.outputs:
        assert np.array_equal(pieces[name].value, whole[name].value)
    with pytest.raises(TooMuch):  # and a point that has too many of its own
        far = te.scatter((1,), lambda i: (0, te.sum(lambda k, l: x[i % 5, k] * x[l, k], (40, 5))), (3,), name="far")
        evaluate(te.program_of([far], [x]), {"x": arrays["x"]})


@pytest.mark.parametrize("word", ["argmax", "argmin"])
def test_positions_are_counted_by_the_extents_at_their_point(word):
    x = te.placeholder((6, 7), name="x")
    reduce = getattr(te, word)
    free = te.compute((7, 8), lambda i, j: reduce(lambda k, l: x[k, l], (i, j)), name="free")
    where = te.compute((7, 8), lambda i, j: reduce(lambda k, l: x[k, l], (i, j), where=lambda k, l: (k + l) % 2 == 0), name="where")
    program = te.program_of([free, where], [x])
    rng = np.random.default_rng(0)
    for values in (rng.permutation(42).reshape(6, 7), np.where(rng.random((6, 7)) < 0.2, np.nan, rng.integers(0, 9, (6, 7)))):
        arrays = {"x": values.astype(np.float32)}
        found, want = evaluate(program, arrays, {}), evaluate_program(program, arrays, {})
        for name in program.outputs:
            assert np.array_equal(found[name].value, want[name])


def test_a_scan_of_fewer_steps_than_none_is_refused():
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    program = te.program_of([te.scan(lambda t, s: te.compute((n,), lambda i: s[i]), x, n - 1, name="y")], [x])
    for run in (evaluate, evaluate_program):
        with pytest.raises(ArgumentError):
            run(program, {"x": np.zeros(0, np.float32)}, {"n": 0})
        assert len(run(program, {"x": np.zeros(1, np.float32)}, {"n": 1})) == 1


def test_sizes_go_to_nothing_and_around_constants():
    sample = next(s for s in map(random_sample, range(100)) if len(s.sizes) == 1 and s.traced().program.sizes)
    (name,) = sample.sizes
    values = [sizes[name] for sizes in sizes_of(sample, sample.traced().program, random.Random(0), 0)]
    assert values[0] == sample.sizes[name] and {0, 1} <= set(values)
    assert constants_of("X[i + 64, 3] * 2.5") == {64, 3, 2, 5}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_keep_elements(layout):
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    if layout == "broadcast":
        array[1] = array[0]
    found = laid_out(array, layout)
    assert np.array_equal(found, array) and (found.flags.c_contiguous == (layout == "plain"))
    target = Target((2, 3), np.dtype(bool), layout)
    target.array[...] = True
    assert not target.strayed()
    target.block.reshape(-1)[0] += 1
    assert target.strayed()
