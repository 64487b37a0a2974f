"""Buffers in slots that are not needed at once: the same memory, the same values."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.kernels.reuse import with_shared_slots
from tensorexpr.codegen.nest import Alloc, Buffer, For, If, Kernel, Store
from tensorexpr.codegen.nest.verify import touched
from tensorexpr.dtypes import float32
from tensorexpr.ir import Access, Const, Index, apply, const
from tests.codegen.programs import planned
from tests.seeds import share_of

ROW = 20_000  # too many for a stack


def chain(seed: int, length: int = 6) -> tuple[te.Tensor, te.Tensor]:
    """Definitions of rows, each of one or two earlier ones, the last of which reads some of all."""
    rng = random.Random(seed)
    x = te.placeholder((8, ROW), name="x")
    known = [x]
    for number in range(length):
        a, b = rng.choice(known[-2:]), rng.choice(known)
        shift = rng.randint(1, ROW - 1)
        body = lambda i, j, a=a, b=b, shift=shift: a[i, (j + shift) % ROW] * 0.5 + b[i, ROW - 1 - j]  # noqa: E731
        known.append(te.compute((8, ROW), body, name=f"p{number}"))
    return x, te.compute((8, ROW), lambda i, j: known[-1][i, ROW - 1 - j] + known[-2][i, j], name="y")


@pytest.mark.parametrize("seed", share_of(range(9)))
def test_random_chains_of_rows_keep_their_values(seed: int):
    x, y = chain(seed)
    s = planned(y)
    for name in reversed(s.stages[:-1]):
        s[name].compute_at("y", "i")
    s["y"].parallel("i")
    data = np.random.default_rng(seed).standard_normal((8, ROW), np.float32)
    np.testing.assert_array_equal(te.build(s)(data), te.build(planned(y), [x])(data))


def test_two_buffers_serve_a_chain_of_any_length():
    x = te.placeholder((8, ROW), name="x")
    y = x
    for number in range(6):
        y = te.compute((8, ROW), lambda i, j, y=y: y[i, ROW - 1 - j] * 0.5, name=f"p{number}")
    s = planned(y)
    for name in reversed(s.stages[:-1]):
        s[name].compute_at("p5", "i")
    s["p5"].parallel("i")
    assert len(lower(s).workspace) == 2


A, B, C = (Buffer(name, float32, (const(2), const(8)), "workspace") for name in "ABC")
AT = (Index("slot"), Index("j"))


def step(target: Buffer, source: Buffer | None = None, where: bool = False) -> For:
    """One pass over the row of a slot."""
    value = Const(1.0, float32) if source is None else Access(source.name, AT, float32)
    store = Store(target.name, AT, value)
    return For("j", const(0), const(8), (If(apply("lt", Index("i"), const(3)), (store,)) if where else store,))


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ((step(A), step(B, A), step(C, B)), {"A", "B"}),
        ((step(A), step(B, A), step(C, B), step(C, A)), {"A", "B", "C"}),  # needed at once
        ((step(A), step(B, A), step(C, B, where=True)), {"A", "B", "C"}),  # may hold what an earlier iteration left
        ((step(A), step(B, A), step(A, C), step(C, B)), {"A", "B", "C"}),  # is read before it is written
    ],
)
def test_what_an_iteration_leaves_behind_or_needs_at_once_has_memory_of_its_own(steps: tuple[For, ...], kept: set[str]):
    rest = Alloc(Buffer("r", float32, (), "local"), steps)
    around = For("slot", const(0), const(2), (For("i", const(0), const(4), (rest,)),), "parallel")
    (made,) = with_shared_slots([Kernel("k", (around,))], {b.name: b for b in (A, B, C)})
    assert set(touched((made,))) & {"A", "B", "C"} == kept
