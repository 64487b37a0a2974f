"""Programs that read through index arrays and around borders, in lanes, with first and second gradients: LLVM takes them, values are right.

Reads at neighboring constants share their addresses (see `test_addresses`); where some of them are under conditions, those before and
after must not. Sizes have lanes, tails and single elements.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.llvm.emitter.module import emit
from tensorexpr.codegen.llvm.text.dominators import ENTRY, Dominators
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.nest.parse import parse_nest
from tests.codegen.llvm.nests import run
from tests.seeds import share_of


class Case:
    """A random definition Y (n, m) of a matrix X and index arrays K (n, 3) and L (m, 3)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n, self.m = (self.random.choice((1, 3, 5, 8, 17, 33, 40)) for _ in range(2))
        self.rows, self.columns = (self.random.choice((1, 2, 7, 19)) for _ in range(2))
        self.X = te.placeholder((self.rows, self.columns), "float64", name="X")
        kept = self.random.choice(("int64", "int32", "uint8"))
        self.K, self.L = (te.placeholder((extent, 3), kept, name=name) for extent, name in ((self.n, "K"), (self.m, "L")))
        terms = [self.term(column) for column in self.random.sample(range(3), self.random.randint(1, 3))]
        joined = [self.random.choice(("add", "mul")) for _ in terms]
        test = self.random.choice((None, lambda i, j: i + 1 < j * 2, lambda i, j: self.K[i, 0] > self.L[j, 1]))

        def body(i, j):
            values = [term(i, j) for term in terms]
            total = values[0]
            for how, value in zip(joined[1:], values[1:], strict=True):
                total = total + value if how == "add" else total * value
            return total * total if test is None else te.where(test(i, j), total, total * 0.5)

        self.Y = te.compute((self.n, self.m), body, name="Y")

    def term(self, column: int):
        """A read of X as a function of (i, j)."""
        X, K, L = self.X, self.K, self.L
        shift, outside = self.random.randint(-2, 2), self.random.choice(("clamp", "reflect", "wrap", 0.0))
        extents = self.rows, self.columns
        return self.random.choice(
            (
                lambda i, j: X[K[i, column] % extents[0], L[j, column] % extents[1]],
                lambda i, j: X[K[i, column] % extents[0], (j + column) % extents[1]],
                lambda i, j: X[(i + column) % extents[0], L[j, column] % extents[1]],
                lambda i, j: X.read(i + shift, j - column, outside=outside),
                lambda i, j: X.read(K[i, column], j + shift, outside=outside),
                lambda i, j: te.sum(lambda q: X[K[i, q] % extents[0], L[j, column] % extents[1]], 3),
                lambda i, j: te.sum(lambda q: X[K[i, column] % extents[0], L[j, q] % extents[1]], te.minimum(i, 3)),
            )
        )

    def arrays(self) -> dict[te.Tensor, np.ndarray]:
        data = np.random.default_rng(self.random.randint(0, 99))
        made = {self.X: data.standard_normal((self.rows, self.columns))}
        for table in (self.K, self.L):
            made[table] = data.integers(0, 60, table.shape).astype(table.dtype.name)
        return made


@pytest.mark.parametrize("seed", share_of(range(24)))
def test_index_arrays_in_every_position(seed: int) -> None:
    case = Case(seed)
    weights = te.placeholder(case.X.shape, "float64", name="V")
    (first,) = te.gradient(te.compute((), lambda: te.sum(lambda i, j: case.Y[i, j] * (i - j * 0.5), case.Y.shape)), [case.X])
    along = te.compute((), lambda: te.sum(lambda i, j: first[i, j] * weights[i, j], case.X.shape))
    (second,) = te.gradient(along, [case.X])
    outputs = [case.Y, first, second]
    arrays = {**case.arrays(), weights: np.random.default_rng(seed).standard_normal(case.X.shape)}
    found = te.build(outputs, list(arrays))(*arrays.values())
    for got, want in zip(found, te.evaluate(outputs, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10 * max(1.0, float(np.abs(want).max(initial=0.0))))


def neighbors(X):
    """The product of the four neighbors of each place, clamped at the borders."""
    at = ((-1, 0), (0, -1), (0, 1), (1, 0))

    def body(i, j):
        values = [X.read(i + di, j + dj, outside="clamp") for di, dj in at]
        return values[0] * values[1] * values[2] * values[3]

    return te.compute(X.shape, body)


@pytest.mark.parametrize("side", [16, 33, 64])
def test_gradients_of_products_of_neighbors(side: int) -> None:
    data = np.random.default_rng(side)
    x, head = data.standard_normal((2, side, side))
    (got,) = te.vjp(te.op(neighbors))(x, head)
    padded = np.pad(x, 1, mode="edge")
    views = [padded[a : a + side, b : b + side] for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    wide = np.zeros((side + 2, side + 2))
    for k, (a, b) in enumerate(((0, 1), (1, 0), (1, 2), (2, 1))):
        wide[a : a + side, b : b + side] += head * np.prod([v for n, v in enumerate(views) if n != k], axis=0)
    wide[1] += wide[0]
    wide[-2] += wide[-1]
    wide[:, 1] += wide[:, 0]
    wide[:, -2] += wide[:, -1]
    np.testing.assert_allclose(got, wide[1:-1, 1:-1], rtol=1e-12, atol=1e-12)


def test_blocks_dominate_as_the_graph_of_jumps_says() -> None:
    """Random graphs, blocks in an order in which all that goes to one comes first, compared with removing each block in turn."""
    for seed in range(40):
        draw = random.Random(seed)
        names = [ENTRY, *(f"b{k}" for k in range(draw.randint(1, 40)))]
        edges = {(before, after) for before, after in pairwise(names) if draw.random() < 0.7}
        for place, name in enumerate(names[1:], 1):
            edges |= {(draw.choice(names[max(0, place - 6) : place]), name) for _ in range(draw.randint(1, 3))}
        tree = Dominators()
        for name in names:
            if name != ENTRY:
                tree.begin(name)
            for source, target in sorted(edges):
                if source == name:
                    tree.edge(source, target)
        for removed in names:
            reached = {ENTRY} - {removed}
            for name in names:
                reached |= {target for source, target in edges if source == name and source in reached and target != removed}
            assert {n for n in names if tree.dominates(removed, n)} == set(names) - reached


PLAN = """main(X, Y)
X: parameter(f32[30])
Y: parameter(f32[64], written)
T: workspace(i64[64]{within})

def kernel_0() -> T:
    for i in range(0, 64):
        T[i] = i * 3 % 210

def kernel_1() -> Y:
    for i_o in range(0, 4):
        for i in vectorize(range(0, 16)):
            Y[i + i_o * 16] = X[T[i + i_o * 16] // 7]
"""


def test_entries_of_a_small_table_are_divided_in_halves_of_their_lanes():
    """There is no division of vectors of 64 bits; a table whose entries are said to be small is divided in 32."""
    X = np.arange(30, dtype="float32")
    for within, found in (("", "x i64> %"), (", within=(0, 209)", "x i32> %")):
        nest = parse_nest(PLAN.format(within=within))
        text = emit(nest, host())
        assert any(found in line for line in text.splitlines() if "sdiv <" in line or "udiv <" in line)
        assert np.array_equal(run(nest, {"X": X})["Y"], X[np.arange(64) * 3 % 210 // 7])
