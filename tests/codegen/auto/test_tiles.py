"""Tiles of a kernel: what is made computes the program at sizes with remainders, is proved, and has the form that the machine wants."""

from __future__ import annotations

import re
from functools import cache
from math import prod

import numpy as np
import pytest

from tensorexpr.codegen.auto.candidate import Candidate, plain
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import ZEN_4
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.tiles import tiled
from tensorexpr.codegen.auto.tiles.choose import MOST_COPIES, choices
from tensorexpr.codegen.auto.tiles.making import shared, tiled_by
from tensorexpr.codegen.auto.tiles.one_pass import in_one_pass
from tensorexpr.codegen.auto.tiles.pieces import cut_up
from tensorexpr.codegen.auto.tiles.sketch import Level, Packed, Tile, sketch
from tensorexpr.codegen.auto.tiles.straight import straightened
from tensorexpr.codegen.auto.tiles.survey import DATA, SUM, Survey
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.llvm.nests import run
from tests.codegen.rewrites.law import UNITS, Kept, kept_of, near
from tests.seeds import share_of


def product(n: int, m: int, k: int, left: str = "i, k", right: str = "k, j", dtype: str = "f32") -> str:
    a, b = (f"{n}, {k}" if left == "i, k" else f"{k}, {n}"), (f"{k}, {m}" if right == "k, j" else f"{m}, {k}")
    return f"""
A: {dtype}[{a}] = input()
B: {dtype}[{b}] = input()
C[i, j]: {dtype}[{n}, {m}] = sum(A[{left}] * B[{right}] for k in range({k}))
return C
"""


def window(index: str, outside: str = "") -> str:
    read = f"where({outside}, x[{index}], 0.0)" if outside else f"x[{index}]"
    return f"""
x: f32[2, 3, 9, 23] = input()
w: f32[3, 3, 3] = input()
y[n, c, p, q]: f32[2, 3, 9, 23] = sum({read} * w[c, r, s] for r in range(3) for s in range(3))
return y
"""


def sums_over_a_border(rows: int, columns: int) -> str:
    return f"""
x: f32[2, 20, {rows}, {columns}] = input()
y: f32[2, 17, {rows}, {columns}] = input()
w[k, c, r, s]: f32[17, 20, 3, 3] = sum(
    y[n, k, p, q] * x[n, c, r + p - 1, s + q - 1]
    for n in range(2)
    for p in range(maximum(0, 1 - r), minimum({rows}, {rows + 1} - r))
    for q in range(maximum(0, 1 - s), minimum({columns}, {columns + 1} - s))
)
return w
"""


TEXTS = {
    "product": product(13, 37, 11),
    "product of a transpose": product(19, 21, 35, "k, i", "j, k"),
    "few columns": product(33, 3, 20),
    "matrix times vector": """
A: f32[21, 75] = input()
x: f32[75] = input()
y[i]: f32[21] = sum(A[i, k] * x[k] for k in range(75))
return y
""",
    "vector times matrix": """
A: f32[75, 37] = input()
x: f32[75] = input()
y[i]: f32[37] = sum(A[k, i] * x[k] for k in range(75))
return y
""",
    "short rows": """
A: f32[50, 12] = input()
y[i]: f32[50] = max(A[i, k] for k in range(12))
return y
""",
    "rows": """
A: f32[9, 133] = input()
m[i]: f32[9] = max(A[i, k] for k in range(133))
y[i]: f32[9] = sum(exp(A[i, k] - m[i]) for k in range(133))
return y
""",
    "border of zeros": window("n, c, p + r - 1, q + s - 1", "p + r >= 1 and p + r < 10 and q + s >= 1 and q + s < 24"),
    "border of zeros, many filters": """
x: f32[2, 16, 9, 30] = input()
w: f32[32, 16, 3, 3] = input()
y[n, k, p, q]: f32[2, 32, 9, 30] = sum(
    w[k, c, r, s] * where(p + r >= 1 and p + r < 10 and q + s >= 1 and q + s < 31, x[n, c, p + r - 1, q + s - 1], 0.0)
    for c in range(16) for r in range(3) for s in range(3)
)
return y
""",
    "border that is gone around": window("n, c, (p + r + 8) % 9, (q + s + 22) % 23"),
    "border that is held": window("n, c, minimum(maximum(p + r - 1, 0), 8), minimum(maximum(q + s - 1, 0), 22)"),
    "gradient of a window": """
y: f32[2, 5, 4, 11] = input()
w: f32[5, 19, 3, 3] = input()
x[n, c, p, q]: f32[2, 19, 4, 11] = sum(
    y[n, k, p - r + 1, q - s + 1] * w[k, c, r, s]
    for k in range(5) for r in range(maximum(p - 2, 0), minimum(p + 2, 3)) for s in range(maximum(q - 9, 0), minimum(q + 2, 3))
)
return x
""",
    "gradient of a window by twos": """
y: f32[2, 5, 5, 12] = input()
w: f32[5, 19, 3, 3] = input()
x[n, c, p, q]: f32[2, 19, 9, 23] = sum(
    y[n, k, i, j] * w[k, c, p - i * 2 + 1, q - j * 2 + 1]
    for k in range(5) for i in range(p // 2, minimum((p + 1) // 2 + 1, 5)) for j in range(q // 2, minimum((q + 1) // 2 + 1, 12))
)
return x
""",
    "sums over a border": sums_over_a_border(3, 11),
    "small matrices": """
A: f32[29, 5, 7] = input()
B: f32[29, 6, 7] = input()
C[b, i, j]: f32[29, 5, 6] = sum(A[b, i, k] * B[b, j, k] for k in range(7))
return C
""",
    "small matrices of two registers": """
A: f32[3, 4, 9] = input()
B: f32[3, 32, 9] = input()
C[b, i, j]: f32[3, 4, 32] = sum(A[b, i, k] * B[b, j, k] for k in range(9))
return C
""",
    "triangle": """
x: f32[40, 40] = input()
y[i]: f32[40] = sum(x[i, j] for j in range(i + 1))
return y
""",
    "transpose": """
A: f32[37, 53] = input()
y[i, j]: f32[53, 37] = A[j, i] * 2.0
return y
""",
    "four axes": """
A: f32[3, 17, 5, 19] = input()
y[c, a, d, b]: f32[5, 3, 19, 17] = A[a, b, c, d]
return y
""",
    "halves of a row": """
x: f32[5, 3, 70] = input()
y[i, a, e]: f32[5, 3, 70] = where(e < 35, x[i, a, e] - x[i, a, e + 35], x[i, a, e] * x[i, a, (e + 35) % 70])
return y
""",
    "components of points": """
x: f32[37, 3] = input()
y[i, r]: f32[37, 3] = where(r == 0, x[i, 1] * x[i, 2], where(r == 1, x[i, 2] - x[i, 0], x[i, 0] * x[i, r]))
z[i]: f32[37] = sum(where(r < 2, x[i, r] * 3.0, x[i, 2 - r]) for r in range(3))
return y, z
""",
    "a piece of a sum": """
x: f32[19, 61] = input()
y[i]: f32[19] = sum(where(k >= 30, x[i, k], x[(i + 7) % 19, k + 30]) for k in range(61))
return y
""",
    "sums of a window that share a term": """
x: f32[19, 41] = input()
y[i, j]: f32[19, 41] = (
    sum(
        exp(-(x[minimum(maximum(i + a - 2, 0), 18), minimum(maximum(j + b - 2, 0), 40)] - x[i, j]))
        * x[minimum(maximum(i + a - 2, 0), 18), minimum(maximum(j + b - 2, 0), 40)]
        for a in range(5) for b in range(5)
    )
    / sum(
        exp(-(x[minimum(maximum(i + a - 2, 0), 18), minimum(maximum(j + b - 2, 0), 40)] - x[i, j])) for a in range(5) for b in range(5)
    )
)
return y
""",
    "open sizes": """
sizes(n, m)
A: f32[n, m] = input()
y[i]: f32[n] = sum(A[i, k] * A[i, k] for k in range(m))
return y
""",
    "steps": """
x: f32[20] = input()
y[t, i]: f32[6, 20] = sum(x[i] * f32(t) for r in range(2))
return y
""",
}


def start(text: str) -> Candidate:
    """The plain nest of a program that is only looked at: what it means is not computed."""
    return plain(parse_program(text))


def every_kernel(candidate: Candidate) -> Candidate:
    for kernel in range(len(candidate.nest.kernels)):
        candidate = tiled(candidate, kernel, ZEN_4)
    return candidate


@cache
def of_text(name: str) -> tuple[Kept, Candidate]:
    """A program of `TEXTS`, and its nest in tiles."""
    sizes = ({"n": 5, "m": 77}, {"n": 1, "m": 3}, {"n": 0, "m": 9}) if name == "open sizes" else ()
    kept = Kept.of_text(TEXTS[name], *sizes, exact=name != "rows" and "term" not in name)
    return kept, every_kernel(Candidate(kept.nest))


def test_borders_of_windows_are_asked_in_front_of_copies() -> None:
    """What is asked of rows stands in front of the copies, and the window along a row is written out: copies know whether they are at a
    border."""
    text = print_nest(of_text("border of zeros, many filters")[1].nest)
    assert "s" in re.findall(r"for (\w+) in unroll", text), text
    for condition in re.findall(r"where\((.*?),\s", " ".join(text.split())):
        assert not {"p", "r"} & set(re.findall(r"\w+", condition)), text


@pytest.mark.parametrize("name", TEXTS)
def test_tiles_compute_the_program(name):
    kept, made = of_text(name)
    nest = kept.check(made.nest, UNITS)
    assert prove(nest).is_clean, f"{nest}\n{prove(nest)}"
    assert made.calls
    for (arrays, given), expected in zip(kept.cases, kept.expected, strict=True):
        found = run(nest, arrays, given)
        for output in kept.program.outputs:
            near(found[output], expected[output], UNITS, f"{output} of\n{nest}")


@pytest.mark.parametrize("seed", share_of(range(3000, 3030)))
def test_tiles_of_random_programs(seed):
    kept = kept_of(seed, 300)
    if kept is not None:
        kept.check(every_kernel(Candidate(kept.nest)).nest, UNITS)


def test_the_same_calls_make_the_same_nest():
    kept, made = of_text("product of a transpose")
    again = Candidate(kept.nest)
    for call in made.calls:
        again = again.then(call.word, *call.arguments)
    assert again.nest == made.nest and every_kernel(Candidate(kept.nest)).calls == made.calls


def test_kinds_of_loops_and_cuts():
    survey = Survey(start(product(32, 64, 48)).nest, 0)
    assert [survey.kind(name) for name in "ijk"] == [DATA, DATA, SUM]
    assert survey.cuts()[0] == ("j",) and set(survey.cuts()) == {("j",), ("k",)}  # lanes along i would store far apart
    assert survey.updated("k") == ("sum",)


GOING_BY = """
main(x, w, y)
x: parameter(f32[{0}, {1}])
w: parameter(f32[{1}, {2}])
y: parameter(f32[{0}, {2}], written)

def kernel_0() -> y:
    sum: local(f32[{0}, {2}])
    for i in range(0, {0}):
        for j in range(0, {2}):
            sum[i, j] = 0.0
    for k in range(0, {1}):
        for i in range(0, {0}):
            for j in range(0, {2}):
                sum[i, j] = sum[i, j] + x[i, k] * w[k, j]
    for i in range(0, {0}):
        for j in range(0, {2}):
            y[i, j] = sum[i, j]
"""


@pytest.mark.parametrize("rows, steps, columns", [(4, 64, 1024), (3, 13, 70), (1, 5, 33), (5, 7, 129), (2, 1, 16)])
def test_copies_of_a_loop_in_different_loops_are_lanes_of_both(rows: int, steps: int, columns: int) -> None:
    """All elements of a few sums go by in each step: rows and steps are copies, which share what they load."""
    nest = parse_nest(GOING_BY.format(rows, steps, columns))
    assert Survey(nest, 0).cuts()[0] == ("j",)
    made = tiled(Candidate(nest), 0, ZEN_4).nest
    assert prove(made, quick=True).refuted == ()
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((rows, steps)).astype(np.float32), rng.standard_normal((steps, columns)).astype(np.float32)
    np.testing.assert_allclose(run(made, {"x": x, "w": w})["y"], x @ w, rtol=1e-4, atol=1e-4)
    if rows == 4:
        assert "for i in unroll(range(0, 4)):\n                for k_i in unroll(range(0, 4)):" in str(made)


def test_what_data_sends_along_rows_is_sent_row_by_row():
    def may_be_lanes(places: str) -> bool:
        shape = "32, 64" if places.startswith("j") else "64, 32"
        text = f"""
ids: i64[16] = input()
x: f32[32, 16] = input()
y: f32[{shape}] = scatter({{({places}): x[j, i] for j in range(32) for i in range(16)}})
return y
"""
        survey = Survey(Kept.of_text(text).nest, 0)
        return any(
            survey.kind(name) == DATA and survey.length(name) == 32 and survey.may_be_lanes(name)
            for name in ("j", "i")
            if name in survey.loops
        )

    assert may_be_lanes("ids[i], j") and not may_be_lanes("j, ids[i]")


def test_a_product_has_sums_in_registers():
    text = print_nest(every_kernel(start(product(128, 96, 64))).nest)
    found = re.search(r"sum: local\(f32\[(\d+), (\d+)\]\)", text)
    assert found is not None and int(found[1]) * int(found[2]) >= 16 * 12 and "parallel" in text


def test_panels_of_an_operand_are_made_by_hand():
    kept = Kept.of_text(product(19, 37, 21, "i, k", "j, k"))
    survey = Survey(kept.nest, 0)
    tile = Tile((Level("i", 4, "unroll"), Level("j", 16, "vectorize")), ("j", "i"), (Packed("B", 0, "j"),))
    assert {"i.0", "j.1"} <= {loop.name for loop in sketch(survey, tile).loops}
    nest = kept.check(tiled_by(Candidate(kept.nest), survey, tile, 0).nest, UNITS)
    assert "B_of" in print_nest(nest) and prove(nest).is_clean


def test_a_transpose_is_made_of_squares():
    text = print_nest(of_text("transpose")[1].nest)
    assert re.search(r"in unroll\(range\(0, 16\)\):\s+for \w+ in vectorize\(range\(0, 16\)\)", text)


def test_a_border_that_is_gone_around_is_cut_off():
    candidate = start("""
x: f32[9] = input()
y[i]: f32[9] = x[(i + 1) % 9]
return y
""")
    assert Survey(candidate.nest, 0).crooked == ("i",)
    assert "y[i] = x[i + 1]" in print_nest(candidate.then("partition", "i").nest)


def test_a_border_is_cut_off_in_a_tile_of_fewer_copies_where_the_best_one_is_too_long():
    """The best tile of a reflected blur along rows writes five taps of ten rows out, and its pieces would be too many statements."""
    text = """
x: f32[397, 403] = input()
k: f32[5] = input()
y[i, j]: f32[397, 403] = sum(k[a] * x[i, minimum(abs(j + a - 2), 804 - abs(j + a - 2))] for a in range(5))
return y
"""
    made = tiled(plain(parse_program(text)), 0, ZEN_4)
    body = print_nest(made.nest)
    assert ("partition", "j_o") in [(call.word, call.arguments[0]) for call in made.calls]
    assert re.search(r"x\[i_i \+ i_o \* \d+, a \+ j_i \+ j_o \* \d+ - 2\]", body), body


def test_a_loop_is_cut_where_a_choice_of_its_index_changes():
    def cut(name: str) -> str:
        candidate = start(TEXTS[name])
        for kernel in range(len(candidate.nest.kernels)):
            candidate = cut_up(candidate, kernel)
        return print_nest(candidate.nest)

    text = cut("halves of a row")
    assert "for e in range(0, 35):" in text and "for e in range(35, 70):" in text and "where" not in text and "%" not in text
    text = cut("components of points")
    assert "y[i, 0] = x[i, 1] * x[i, 2]" in text and "y[i, 2] = x[i, 0] * x[i, 2]" in text and "where" not in text
    assert "for k in range(30, 61):" in cut("a piece of a sum")
    for name in ("border of zeros", "border that is held", "product"):  # an element beyond a border is no piece
        candidate = start(TEXTS[name])
        assert cut_up(candidate, 0) is candidate


def test_sums_that_load_the_same_are_one_loop():
    text = print_nest(in_one_pass(start(TEXTS["sums of a window that share a term"]), 0).nest)
    assert text.count("for ") == 4 and "a_1" not in text
    for name in ("product", "rows"):  # the second sum needs the whole of the first
        candidate = start(TEXTS[name])
        assert in_one_pass(candidate, 0) is candidate


def test_what_sketches_promise_nests_keep():
    for name in ("product", "matrix times vector", "vector times matrix"):
        survey = Survey(start(TEXTS[name]).nest, 0)
        found = choices(survey, ZEN_4)
        assert [c.time for c in found] == sorted(c.time for c in found)


def test_a_loop_of_two_iterations_counts_for_both_in_a_sketch_without_copies():
    text = """
x: f32[64, 1000] = input()
y[i, k, j]: f32[2, 64, 1000] = x[k, j]
return y
"""
    start = plain(parse_program(text))
    survey = Survey(start.nest, 0)
    found = [choice for choice in choices(survey, ZEN_4) if any(level.loop == "i" for level in choice.skeleton.levels)]
    assert found
    for choice in found:
        made = tiled_by(start, survey, choice.tile, 0)
        assert float(Model(summary_of(made.nest), ZEN_4).times()[0]) < 1.3 * choice.time


def test_sketches_of_panels_are_as_fast_as_their_nests():
    """Rows a page apart clash, rows of a panel do not: a product takes a third of the time, as made before the kernel or in its loops."""
    candidate = start(product(512, 1024, 512, "i, k", "j, k"))
    survey = Survey(candidate.nest, 0)
    found = [choice for choice in choices(survey, ZEN_4) if choice.tile.packed]
    assert [bool(choice.tile.order) for choice in found[:2]] in ([False, True], [True, False])
    for choice in found[:2]:
        made = tiled_by(candidate, survey, choice.tile, 0).nest
        took = _judge(made, len(made.kernels) - 1)[0]
        assert 0.8 * choice.time < took < 1.25 * choice.time, choice.tile


def test_a_panel_may_ask_for_another_order():
    text = """
A: f32[3, 19, 21] = input()
B: f32[3, 37, 21] = input()
C[n, i, j]: f32[3, 19, 37] = sum(A[n, i, k] * B[n, j, k] for k in range(21))
return C
"""
    kept = Kept.of_text(text)
    levels = (Level("i", 4, "unroll"), Level("j", 16, "vectorize"))
    for sizes in (levels, (levels[0], Level("j", 64, "vectorize"))):  # the second has all of j in lanes: no loop is left
        tile = Tile(sizes, ("n", "j", "i"), (Packed("B", 1, "j"),))
        nest = kept.check(tiled_by(Candidate(kept.nest), Survey(kept.nest, 0), tile, 0).nest, UNITS)
        assert "B_of" in print_nest(nest) and prove(nest).is_clean


def test_bounds_that_change_become_one_range():
    made = straightened(start(TEXTS["gradient of a window by twos"]), 0)
    text = print_nest(made.nest)
    assert "for q_o in range(0, 11):" in text and "for j in range(0, 2):" in text and "y[n, k, i, j + q_o]" in text
    assert straightened(start(TEXTS["product"]), 0) is None
    assert straightened(start(TEXTS["triangle"]), 0) is None  # half of its range would be skipped


@pytest.mark.parametrize("window", (3, 5, 7))
def test_registers_hold_what_the_next_step_of_a_window_reads_again(window):
    """Copies along a window that is written out, by the tile or after it, keep what their neighbours read next: sums, the vectors of a step
    and these fit the registers."""
    text = f"""
x: f32[8, 48, 300] = input()
w: f32[64, 48, {window}] = input()
y[n, k, o]: f32[8, 64, {301 - window}] = sum(w[k, c, r] * x[n, c, o + r] for c in range(48) for r in range({window}))
return y
"""
    found = [choice.tile for choice in choices(Survey(plain(parse_program(text)).nest, 0), ZEN_4) if choice.tile.lanes == ("k",)]
    assert any(tile.of("o") for tile in found), found
    for tile in found:
        sizes = {level.loop: level.size for level in tile.levels}
        rows, others, vectors = sizes.get("o", 1), sizes.get("n", 1), -(-sizes["k"] // 16)
        assert vectors * rows * others + (rows - 1) * others < ZEN_4.registers, tile


@pytest.mark.parametrize("window", (3, 5, 7))
def test_copies_go_along_the_window_that_is_written_out(window):
    """Where a window has borders along rows and columns, copies are taken along columns, whose window is innermost: written out, with no
    more copies than may be, each of them knows whether it is at a border. Along rows all would ask at every step."""
    text = f"""
x: f32[2, 16, 40, 40] = input()
w: f32[32, 16, {window}, {window}] = input()
y[n, k, p, q]: f32[2, 32, 40, 40] = sum(
    w[k, c, r, s] * where(p + r >= 1 and p + r < 41 and q + s >= 1 and q + s < 41, x[n, c, p + r - 1, q + s - 1], 0.0)
    for c in range(16)
    for r in range({window})
    for s in range({window})
)
return y
"""
    survey = Survey(plain(parse_program(text)).nest, 0)
    assert survey.asked_with("p") == {"r"} and survey.asked_with("q") == {"s"} and not survey.asked_with("k")
    tile = next(choice.tile for choice in choices(survey, ZEN_4) if choice.tile.packed)
    assert tile.loops[-1] == "k" and tile.of("q") and not tile.of("p"), tile
    assert window * prod(level.size for level in tile.of("q")) <= MOST_COPIES, tile


def test_an_operand_across_lanes_is_packed_before():
    kept, _ = of_text("gradient of a window")
    tile = Tile((Level("q", 4, "unroll"), Level("c", 16, "vectorize")), (), (Packed("w", 1, None),))
    straight = straightened(Candidate(kept.nest), 0)
    nest = kept.check(tiled_by(straight, Survey(straight.nest, 0), tile, 0).nest, UNITS)
    text = print_nest(nest)
    assert [k.name for k in nest.kernels] == ["w_staged", "x"] and "w_staged: workspace(f32[2, 5, 3, 3, 16])" in text
    assert prove(nest).is_clean


ROWS = """
x: f32[3, 5, 40] = input()
t: i64[3, {count}] = input()
o, s = segments[40]((t[n, i] % 40) for n in batch(3) for i in range({count}))
y: f32[3, 5, {count}] = input()
z[n, c, p]: f32[3, 5, 40] = sum(y[n, c, {place}] * x[n, c, p] for k in range(o[n, p], o[n, p + 1]))
return z
"""


@pytest.mark.parametrize(("count", "place"), [(100, "s[n, k]"), (4000, "k")])
def test_rows_of_few_elements_have_copies_in_place_of_lanes(count, place):
    """The table of offsets says how many elements rows have in the mean: two and a half here, or a hundred."""
    kept = Kept.of_text(ROWS.format(count=count, place=place))
    kernel = next(n for n, k in enumerate(kept.nest.kernels) if k.name == "z")
    survey = Survey(kept.nest, kernel)
    best = choices(survey, ZEN_4)[0].tile
    assert ("k" in best.lanes) == (count > 1000)
    nest = kept.check(tiled_by(Candidate(kept.nest), survey, best, kernel).nest, UNITS)
    arrays, sizes = kept.cases[0]
    near(run(nest, arrays, sizes)["z"], kept.expected[0]["z"], UNITS, f"{nest}")


@pytest.mark.parametrize("side", [3, 5, 8])
def test_a_small_operand_is_turned_around_where_it_is_read(side):
    """A matrix of each point of a batch is a local copy with its rows in lanes, filled up to a register; nothing is copied before."""
    made = every_kernel(
        start(f"""
A: f32[1000, {side}, {side}] = input()
B: f32[1000, {side}, {side}] = input()
C[b, i, j]: f32[1000, {side}, {side}] = sum(A[b, i, k] * B[b, j, k] for k in range({side}))
return C
""")
    )
    text = print_nest(made.nest)
    assert "_staged" not in text and f"B_of: local(f32[1, {side}, {1 << (side - 1).bit_length()}])" in text


def test_tests_of_what_is_around_stand_in_front_of_copies():
    """A border of a window's sum is asked once for a tile, not by each of its copies."""
    text = print_nest(every_kernel(start(sums_over_a_border(9, 23))).nest)
    lines = [line.strip() for line in text.splitlines()]
    copies = [at for at, line in enumerate(lines) if "in unroll(" in line]
    assert copies and not any(lines[at + 1].startswith("if ") for at in copies)


def test_an_operand_is_packed_in_a_loop_around():
    kept = Kept.of_text(product(4, 37, 21, "i, k", "j, k"))
    tile = Tile((Level("i", 4, "unroll"), Level("j", 16, "vectorize")), (), (Packed("B", 0, "i"),))
    with pytest.raises(ScheduleError, match="tile: expected a loop around i to pack B in, got none"):
        tiled_by(Candidate(kept.nest), Survey(kept.nest, 0), tile, 0)


BORDERED = """
main(x, y)
x: parameter(f32[9, 64])
y: parameter(f32[9, 64], written)

def kernel_0() -> y:
    for j in range(0, 64):
        y[0, j] = x[0, j] * 2.0
    for i in range(1, 9):
        for j in range(0, 64):
            y[i, j] = x[i, j]
"""


def _judge(nest: LoopNest, kernel: int) -> tuple[float, float]:
    model = Model(summary_of(nest), ZEN_4)
    return float(model.times()[0]), float(model.times(None, 8)[0])


FEW_ROWS = """
main(x, w, y)
x: parameter(f32[3, 500, 1024])
w: parameter(f32[3])
y: parameter(f32[3, 500, 1024], written)

def kernel_0() -> y:
    for i in range(0, 3):
        for k in vectorize(range(0, 1024)):
            y[i, 0, k] = x[i, 0, k]
        for j in range(1, 500):
            for k in vectorize(range(0, 1024)):
                y[i, j, k] = exp(x[i, j, k]) * w[i]
"""


def test_few_iterations_are_one_loop_with_those_inside() -> None:
    """Three cores of eight would have work; the first elements, which stand apart, stay a loop of their own."""
    found = shared(Candidate(parse_nest(FEW_ROWS.strip())), 0, _judge)
    assert re.findall(r"for (\w+) in parallel\(range\(0, (\d+)", print_nest(found.nest)) == [("i", "3"), ("i_j", "1497")]
    again = Candidate(parse_nest(FEW_ROWS.strip()))
    for call in found.calls:
        again = again.then(call.word, *call.arguments)
    assert print_nest(again.nest) == print_nest(found.nest)


def test_rows_go_to_the_cores_where_one_was_cut_off() -> None:
    """Elements of the first row would, as the loop over them stands outermost there, and rows could not any more."""
    found = print_nest(shared(Candidate(parse_nest(BORDERED.strip())), 0, _judge).nest)
    assert re.findall(r"for (\w+) in parallel", found) == ["i"], found


BORDERS = {
    "reflected": """
x: f32[5, 57] = input()
y[i, j]: f32[5, 63] = x[i, minimum(abs(j - 3), 112 - abs(j - 3))]
return y
""",
    "gone around, its gradient": """
h: f32[5, 63] = input()
y[i, q]: f32[5, 57] = sum(h[i, q + r * 57 - 54] for r in range(1 - (q + 3) // 57, 3 - (q + 54) // 57))
return y
""",
}


@pytest.mark.parametrize("name", BORDERS)
def test_what_changes_at_borders_is_decided_between_them(name):
    """No absolute value, minimum or quotient is left of the border, and rows are gone through in order."""
    text = print_nest(every_kernel(start(BORDERS[name])).nest)
    assert not any(word in text.replace("minimum(j_o * 16", "") for word in ("abs(", " // 57", "112"))


def test_loops_beside_each_other_have_few_assignments_of_lanes() -> None:
    """Each of forty squares in one loop has two loops that may be lanes: of 2 ** 40 assignments a few are looked at."""
    head = "main(x, y)\nx: parameter(f32[9, 40, 64, 64])\ny: parameter(f32[9, 40, 64, 64], written)\n\n"
    head += "def kernel_0() -> y:\n    for n in range(0, 9):\n"
    squares = "".join(
        f"        for i{k} in range(0, 64):\n            for j{k} in range(0, 64):\n"
        f"                y[n, {k}, i{k}, j{k}] = x[n, {k}, i{k}, j{k}] + 1.0\n"
        for k in range(40)
    )
    cuts = Survey(parse_nest(head + squares), 0).cuts()
    assert 0 < len(cuts) <= 48 and cuts[0] == tuple(f"j{k}" for k in range(40))
