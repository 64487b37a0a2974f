"""Programs in pieces: the joined nest is proved as a whole and computes what the program means; equal pieces are made once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.benchmarks.subjects.compiling import transformer
from tensorexpr.codegen import pieces, stages
from tensorexpr.codegen.compile import build_program
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.memo import forget
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.pieces import cut, pieces_of
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.lookup import simplified
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tests.codegen.programs import assert_means_sample
from tests.random_programs import Options, random_sample
from tests.seeds import share_of


@pytest.fixture(autouse=True)
def nothing_made_before():
    forget()
    yield
    forget()


@pytest.fixture
def small(monkeypatch):
    """Pieces of one to three definitions."""
    monkeypatch.setattr(cut, "MOST_WHOLE", 1)
    monkeypatch.setattr(cut, "LEAST", 1)
    monkeypatch.setattr(cut, "MOST", 3)


@pytest.mark.parametrize("seed", share_of(range(300)))
def test_random_programs_in_pieces_mean_the_same(seed, small):
    rng = random.Random(seed)
    sample = random_sample(seed, Options(points=rng.choice((10, 20, 40)), open_sizes=rng.choice((0, 0.5)), most=8))
    try:
        program = sample.traced().program
    except te.TensorExprError:
        return
    if seed % 2:
        program = simplify(program)
    _, nest = stages.made_of_program(program, host_target(), lambda found: found.nest)
    verdict = prove(nest)
    assert not verdict.refuted, f"{program}\n{nest}\n{verdict}"
    assert emit(nest, host())
    assert_means_sample(nest, program, sample, rng, seed, 2)


def layers(count, size=8):
    """A chain of dense layers, and what it is made of."""
    x = te.placeholder((4, size), name="x")
    weights = [te.placeholder((size, size), name=f"w{n}") for n in range(count)]

    def layer(x, w, name):
        z = te.compute((4, size), lambda i, j: te.sum(lambda k: x[i, k] * w[j, k], size), name=f"{name}_product")
        mean = te.compute((4,), lambda i: te.sum(lambda j: z[i, j], size) / size, name=f"{name}_mean")
        return te.compute((4, size), lambda i, j: te.tanh(z[i, j] - mean[i]) + x[i, j], name=name)

    y = x
    for n, w in enumerate(weights):
        y = layer(y, w, f"y{n}")
    head = te.placeholder(y.shape, name="head")
    return [y, *te.gradient(y, [x, *weights], head)], [x, *weights, head]


def test_equal_layers_are_planned_once(monkeypatch):
    planned = []
    scheduled = stages.scheduled
    monkeypatch.setattr(stages, "scheduled", lambda program, target: planned.append(program) or scheduled(program, target))
    made, given = layers(60)
    f = te.build(made, given)
    parts = pieces_of(f.program)
    assert len(planned) == len({part.program for part in parts}) < len(parts) / 2
    # Another program of the same layers in this process finds them.
    planned.clear()
    te.build(*layers(61))
    assert len(planned) <= 4


def test_names_and_numbers_of_layers_make_no_pieces_of_their_own():
    """What is made for a layer is called after nothing that counts layers, nor ordered by it: the tenth layer comes behind the ninth."""

    def distinct(count: int) -> int:
        y, given = transformer(count, 2, 32, 64, 2, 64)
        head = te.placeholder(y.shape, name="head")
        program = simplified(program_of([y, *te.gradient(y, given, head)], [*given, head]), host_target())
        return len({part.program for part in pieces_of(program)})

    assert distinct(12) == distinct(7)


def test_windows_are_summed_up_apart_from_what_they_lie_in():
    """In blocks of which each reads all before it, layers differ in their channels; the convolution at their end is the same in all."""
    layers, growth, given = 30, 4, [te.placeholder((8, 6, 6), name="x")]
    y = given[0]
    for n in range(layers):
        given += [te.placeholder((16, 8 + growth * n, 1, 1), name=f"v{n}"), te.placeholder((growth, 16, 3, 3), name=f"w{n}")]
        z = kernels.conv2d(kernels.relu(y), given[-2])
        y = kernels.concatenate((y, kernels.conv2d(te.compute(z.shape, lambda c, i, j, z=z: te.tanh(z[c, i, j])), given[-1], padding=1)))
    f = te.build(y, given)
    parts = Counter(part.program for part in pieces_of(f.program))
    assert max(parts.values()) > 0.8 * layers
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype(np.float32) / 8 for t in given]
    np.testing.assert_allclose(f(*arrays), te.evaluate(y, dict(zip(given, arrays, strict=True))), rtol=2e-4, atol=2e-5)


def test_layers_that_differ_in_their_weights_are_one():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((8, 8)).astype(np.float32) / 8 for _ in range(60)]
    x = te.placeholder((8, 8), name="x")
    y = x
    for weight in map(te.constant, weights):
        product = te.compute((8, 8), lambda i, j, y=y, w=weight: te.sum(lambda k: y[i, k] * w[k, j], 8))
        y = te.compute((8, 8), lambda i, j, p=product, y=y: te.tanh(p[i, j]) + y[i, j])
    f = te.build(y, [x])
    parts = pieces_of(f.program)
    assert len({part.program for part in parts}) < len(parts) / 2
    given = rng.standard_normal((8, 8)).astype(np.float32)
    expected = given.astype(np.float64)
    for weight in weights:
        expected = np.tanh(expected @ weight) + expected
    np.testing.assert_allclose(f(given), expected, rtol=1e-4, atol=1e-4)


def test_the_code_of_equal_pieces_is_there_once():
    texts = [te.build(*layers(count)).source("llvm").count("define internal void @kernel") for count in (40, 60)]
    assert texts[1] <= texts[0] + 2


def test_results_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    made, given = layers(40)
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype(np.float32) / 8 for t in given]
    f = te.build(made, given)
    assert pieces_of(f.program)
    for found, expected in zip(f(*arrays), te.evaluate(made, dict(zip(given, arrays, strict=True))), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    # The schedule of the whole is there for who asks, and so is each stage.
    assert f.schedule.origin.startswith("the analytic model")
    assert "y39_product" in str(f.nest) and f.source("nest").count("\n") > 100


def test_names_and_lines_of_checks_are_those_of_the_whole(small):
    table, ids = te.placeholder((5, 4), name="table"), te.placeholder((3,), "int32", name="ids")
    y = te.compute((3, 4), lambda i, j: table[ids[i], j] * 2, name="first")
    for n in range(6):
        y = te.compute((3, 4), lambda i, j, y=y: te.sum(lambda k: y[i, k] * y[k % 3, j], 4), name=f"y{n}")
    last = te.compute((3, 4), lambda i, j: table[ids[i] + 1, j] + y[i, j], name="last")
    program = program_of([last], [table, ids])
    assert len(pieces_of(simplify(program))) > 1
    f = build_program(program)
    f(np.zeros((5, 4), np.float32), np.array([0, 1, 2], np.int32))
    with pytest.raises(IndexError, match=r"table\[i64\(ids\[i\] \+ 1\), j\]"):
        f(np.zeros((5, 4), np.float32), np.array([0, 1, 4], np.int32))
    with pytest.raises(IndexError, match=r"table\[i64\(ids\[i\]\), j\]"):
        f(np.zeros((5, 4), np.float32), np.array([0, 1, 7], np.int32))


def test_short_programs_are_whole():
    made, given = layers(3)
    assert pieces_of(te.build(made, given).program) == ()
    assert pieces.__all__ == ["Piece", "in_strips", "nest_of_pieces", "pieces_of", "pieces_of_rows", "rows_of"]


def test_a_cut_separates_no_integers_from_what_they_index(small):
    ids = te.placeholder((6,), "int32", name="ids")
    x = te.placeholder((6, 3), name="x")
    gathered = te.compute((6, 3), lambda i, j: x[ids[i], j] ** 2)
    total = te.compute((), lambda: te.sum(lambda i, j: gathered[i, j] * te.exp(gathered[5 - i, j]), (6, 3)))
    bar = te.gradient(total, [x])
    f = te.build([total, *bar], [x, ids])
    for part in pieces_of(f.program):
        assert not any(given.type.dtype.is_integer and given.type.dtype.bits == 64 for given in part.program.inputs)


def test_what_needs_arguments_alone_stands_with_its_reader(small):
    """Places made of an argument at the beginning and read at the end do not keep a program whole."""
    (made, *_), given = layers(12)
    label = te.placeholder((4,), "int64", name="label")
    places = te.compute((4,), lambda i: te.where(i < 3, te.maximum(label[te.minimum(i + 1, 3)], 0), 0), name="places")
    head = te.compute((4,), lambda i: made[i, places[i]] + places[i], name="loss")
    program = simplify(program_of([head, places], [*given[:-1], label]))
    assert len(pieces_of(program)) > 3
    assert "places" in {d.name for d in cut._ordered(program)[-3:]}


def test_what_shares_no_loops_is_apart():
    """The gradients of weights of two layers that differ in one extent have pieces in common, and each piece reads those before it."""
    rng = np.random.default_rng(0)
    widths = [24] * 20 + [40] + [24] * 20
    x = te.placeholder((512, 24), name="x")
    y, weights = x, []
    for number, (a, b) in enumerate(pairwise(widths)):
        w = te.placeholder((a, b), name=f"w{number}")
        product = te.compute((512, b), lambda i, j, y=y, w=w, a=a: te.sum(lambda k: y[i, k] * w[k, j], a))
        y = te.compute((512, b), lambda i, j, p=product: te.maximum(p[i, j], 0.0))
        weights.append(w)
    head = te.placeholder(y.shape, name="head")
    made, given = [y, *te.gradient(y, [x, *weights], head)], [x, *weights, head]
    f = te.build(made, given)
    parts = pieces_of(f.program)
    there = {i.name for i in f.program.inputs}
    for part in parts:
        assert there.issuperset(part.names[: len(part.program.inputs)])
        there.update(part.names[int(name.removeprefix(part.letter))] for name in part.program.outputs)
    apart = {part.program for part in parts}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "_groups", lambda program, part, kept: [part])
        whole = pieces_of(f.program)
        forget()
        g = te.build(made, given)
    assert len(parts) > len(whole)
    assert sum(len(p.definitions) for p in apart) < 0.7 * sum(len(p.definitions) for p in {part.program for part in whole})
    arrays = [rng.standard_normal([int(n) for n in t.shape]).astype(np.float32) / 4 for t in given]
    for found, expected in zip(f(*arrays), g(*arrays), strict=True):
        assert found.tobytes() == expected.tobytes()
