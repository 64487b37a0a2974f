"""Triangles on a GPU, as causal attention has them: products whose sums begin or end at the row, and products of which only those below
the diagonal are asked for. Both are tiles of a block."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.auto.search import memory
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, needs_compiler
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)


def ending(rows: int, columns: int, shift: int = 1, dtype: str = "f32") -> str:
    """Sums that end at the row."""
    return f"""
w: f32[2, {rows}, {rows}] = input()
v: {dtype}[2, {rows}, {columns}] = input()
y[b, i, e]: f32[2, {rows}, {columns}] = sum(w[b, i, d] * f32(v[b, d, e]) for d in range(minimum(i + {shift}, {rows})))
return y
""".replace("f32(v[b, d, e])", "v[b, d, e]" if dtype == "f32" else "f32(v[b, d, e])")


def beginning(rows: int, columns: int) -> str:
    """Sums that begin at the row, of a matrix that is read along its columns."""
    return f"""
w: f32[2, {rows}, {rows}] = input()
v: f32[2, {rows}, {columns}] = input()
y[b, j, e]: f32[2, {rows}, {columns}] = sum(w[b, i, j] * v[b, i, e] for i in range(j, {rows}))
return y
"""


def scores(rows: int, dtype: str, ask: str = "j <= i") -> str:
    """Products of which some are asked for."""
    product = "q[b, i, e] * k[b, j, e]" if dtype == "f32" else "f32(q[b, i, e]) * f32(k[b, j, e])"
    return f"""
q: {dtype}[2, {rows}, 64] = input()
k: {dtype}[2, {rows}, 64] = input()
s[b, i, j]: f32[2, {rows}, {rows}] = where({ask}, sum({product} for e in range(64)) * 0.5, 0.0)
return s
"""


def expected(text: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """What a text means, of small numbers whose sums are exact."""
    a = {name: array.astype(np.float64) for name, array in inputs.items()}
    if "q" in a:
        full = np.einsum("bie,bje->bij", a["q"], a["k"]) * 0.5
        i, j = np.indices(full.shape[1:])
        return np.where(eval(re.search(r"where\((.*?), sum", text)[1], {}, {"i": i, "j": j}), full, 0.0)
    shift = re.search(r"i \+ (\d+)", text)
    if shift is not None:
        kept = np.tril(np.ones(a["w"].shape[1:], bool), int(shift[1]) - 1)
        return np.einsum("bid,bde->bie", np.where(kept, a["w"], 0.0), a["v"])
    return np.einsum("bij,bie->bje", np.where(np.tril(np.ones(a["w"].shape[1:], bool)), a["w"], 0.0), a["v"])


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [ending(130, 56), ending(96, 64), ending(77, 60, 5), ending(128, 32, 1, "bf16"), beginning(130, 56), beginning(96, 64)],
    ids=["with ends", "whole", "further on", "of two dtypes", "begins, with ends", "begins"],
)
def test_sums_to_or_from_the_row_are_tiles(text):
    program = parse_program(text)
    nest = verify_nest(lower(autoschedule(program, SMALL)))
    assert not prove(nest).refuted
    made = Program(nest)
    assert "_tile[" in made.source.text and len(made.source.launches) == 1
    inputs = {n: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for n, a in random_inputs(program, 5).items()}
    want = expected(text, inputs)
    # What stands beyond the diagonal is not asked for: it may be no number.
    rows = inputs["w"].shape[1]
    beyond = ~np.tril(np.ones((rows, rows), bool), int(m[1]) - 1 if (m := re.search(r"i \+ (\d+)", text)) else 0)
    inputs["w"][:, beyond] = np.nan
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got, want.astype(np.float32))


@needs_compiler
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("ask", ["j <= i", "j < i", "i < j + 20", "j > i + 3"])
@pytest.mark.parametrize("rows", [160, 290])
def test_tiles_ask_once_which_products_are_wanted(dtype, ask, rows):
    """The condition was tested at each product, which took registers that there are not, and kept tensor cores out."""
    text = scores(rows, dtype, ask)
    program = parse_program(text)
    nest = verify_nest(lower(autoschedule(program, SMALL)))
    assert not prove(nest).refuted
    made = Program(nest)
    inputs = {n: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for n, a in random_inputs(program, 5).items()}
    for order in (0, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got, expected(text, inputs).astype(np.float32))
    around = [line for line in made.source.text.splitlines() if line.startswith("  if (") and "thread" not in line]
    assert around, "one condition on the block around its sums"
    assert ("te_mma_bf16(" in made.source.text) == (dtype == "bf16")


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("text", [scores(2048, "f32"), scores(2048, "bf16"), ending(2048, 64), beginning(2048, 64)])
def test_none_spills(text):
    source = emit(verify_nest(lower(autoschedule(parse_program(text), H200))))
    for found in nvrtc.compile_text(source.text, "sm_90").resources.values():
        assert not found.spill_stores and not found.spill_loads and found.registers <= 255


def read_along(rows: int, stop: str, dtype: str = "bf16") -> str:
    """Products below the diagonal, and the greatest of so many of each row."""
    made = scores(rows, dtype).replace("return s", "")
    return f"{made}y[b, i]: f32[2, {rows}] = max(s[b, i, d] for d in range({stop}))\nreturn y\n"


@needs_compiler
def test_tiles_that_nobody_reads_are_not_stored(monkeypatch):
    """The checker of memory reports reads of what nothing was written to."""
    program = parse_program(read_along(160, "i + 1"))
    nest = verify_nest(lower(autoschedule(program, SMALL)))
    assert not prove(nest).refuted
    monkeypatch.setattr(memory, "without_unread", lambda nest: nest)
    assert str(lower(autoschedule(program, SMALL))) != str(nest)
    inputs = {n: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for n, a in random_inputs(program, 5).items()}
    kept = expected(scores(160, "bf16"), inputs)
    want = np.stack([kept[:, i, : i + 1].max(axis=1) for i in range(160)], axis=1)
    (got,) = Program(nest)(inputs, order=5).values()
    np.testing.assert_array_equal(got, want.astype(np.float32))


def test_what_is_read_or_returned_is_stored(monkeypatch):
    """Of 20 columns further on than the diagonal some are in each of these tiles."""
    texts = [scores(290, "bf16"), read_along(290, "290"), read_along(160, "minimum(i + 20, 160)")]
    texts.append(read_along(290, "i + 1").replace("return y", "return s, y"))
    made = [str(lower(autoschedule(parse_program(text), SMALL))) for text in texts]
    monkeypatch.setattr(memory, "without_unread", lambda nest: nest)
    assert made == [str(lower(autoschedule(parse_program(text), SMALL))) for text in texts]
