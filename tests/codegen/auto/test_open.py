"""Open sizes in the search: what it takes for programs of open extents computes them at every size, those around tiles among them."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.points import TYPICAL, typical
from tensorexpr.codegen.auto.search import contest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.walks import stores_in
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.rewrites.loops import partition, split
from tensorexpr.codegen.stages import SEARCH
from tensorexpr.interpret import extent_value
from tensorexpr.ir import product
from tensorexpr.parse import parse_program
from tensorexpr.text import print_expr
from tests.codegen.llvm.nests import run

RNG = np.random.default_rng(20)
EXTENTS = [(0, 3), (1, 1), (3, 0), (2, 5), (15, 17), (16, 16), (33, 31), (64, 65), (5, 131)]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def turned(x):
    return te.compute((x.shape[1], x.shape[0]), lambda j, i: x[i, j])


def rolled(x):
    return te.compute(x.shape, lambda i, j: x.read(i - 1, j + 3, outside="wrap"))


def pooled(x):
    n, m = x.shape
    return te.compute((n // 2, m // 2), lambda i, j: te.max(lambda r, s: x[2 * i + r, 2 * j + s], (2, 2)))


def blurred(x):
    return te.compute(x.shape, lambda i, j: te.sum(lambda r, s: x.read(i + r - 1, j + s - 1, outside="clamp"), (3, 3)))


def windows(x):
    n, m = x.shape
    return (x[r : r + n - 2, s : s + m - 2] for r in range(3) for s in range(3))


CASES = {
    blurred: lambda x: sum(windows(np.pad(x, 1, "edge")), np.zeros_like(x)) if x.size else x,
    turned: np.transpose,
    rolled: lambda x: np.roll(x, (1, -3), (0, 1)),
    pooled: lambda x: x[: x.shape[0] // 2 * 2, : x.shape[1] // 2 * 2].reshape(x.shape[0] // 2, 2, x.shape[1] // 2, 2).max((1, 3)),
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_one_nest_for_all_sizes(make, monkeypatch):
    monkeypatch.setattr(contest, "CLOSE_OPEN", 0.0)  # searched however close the planners' nest is
    x = te.placeholder((te.dim("n"), te.dim("m")), name="x")
    found = te.build(make(x), [x])
    found.versions = None
    assert found.schedule.origin == SEARCH
    for extents in EXTENTS:
        given = floats(*extents)
        np.testing.assert_array_equal(found(given), CASES[make](given))


def weights(x):
    top = te.compute((x.shape[0],), lambda i: te.max(lambda k: x[i, k], x.shape[1]), name="top")
    scale = te.compute((x.shape[0],), lambda i: te.sum(lambda k: te.exp(x[i, k] - top[i]), x.shape[1]), name="scale")
    return te.compute(x.shape, lambda i, k: te.exp(x[i, k] - top[i]) / scale[i], name="weights")


@pytest.mark.parametrize("cores", [1, 3])
def test_rows_of_open_length_are_kept_once_for_a_core(cores):
    x = te.placeholder((te.dim("n"), te.dim("m")), name="x")
    made = te.autoschedule(weights(x)).form.shown(cores)
    (kept,) = [b for b in made.workspace if b.name.endswith("kept")]
    assert extent_value(product(kept.shape), {"n": 1000, "m": 77}) == cores * 77
    assert not [s for kernel in made.kernels for s in stores_in(kernel.body) if s.buffer == "weights" and "exp(" in print_expr(s.value)]
    assert prove(made).is_clean
    for extents in EXTENTS:
        given = floats(*extents)
        row = np.exp(given - given.max(1, keepdims=True)) if given.size else given
        sizes = {"n": extents[0], "m": extents[1]}
        np.testing.assert_allclose(run(made, {"x": given}, sizes)["weights"], row / row.sum(1, keepdims=True), rtol=1e-5)


def test_a_form_for_large_sizes_and_one_for_all_others_are_rebuilt_from_their_calls():
    x = te.placeholder((te.dim("n"), te.dim("m")), name="x")
    y = blurred(x)
    made = te.autoschedule(y)
    forms = [call.arguments[0] for call in made.calls if call.arguments and call.arguments[0] in ("assume", "otherwise", "either")]
    assert forms == ["assume", "otherwise", "either"]
    again = te.schedule(y)
    exec(made.as_python(), {"s": again})
    assert again.nest == made.nest
    assert prove(made.nest).is_clean


def test_borders_are_cut_off_whatever_memory_takes_at_large_sizes():
    """Of a gradient of windows, whose rows of all arrays together are longer than caches where each extent is long."""
    x = te.placeholder((te.dim("n"), te.dim("c"), te.dim("l")), name="x")
    n, c, l = x.shape
    y = te.compute((n, c, l - 2), lambda i, j, k: te.sum(lambda r: x[i, j, k + r], 3))
    (grad,) = te.gradient([y], [x], [te.placeholder(y.shape, name="h")])
    found = te.build(grad)
    found.versions = None
    assert "for p_o in range(1, " in str(found.nest)
    for extents in ((2, 3, 2), (1, 2, 3), (2, 1, 67), (3, 2, 130), (1, 1, 259)):
        h = floats(*extents[:2], extents[2] - 2)
        wanted = sum(np.pad(h, ((0, 0), (0, 0), (r, 2 - r))) for r in range(3))
        np.testing.assert_allclose(found(h), wanted, rtol=1e-5, atol=1e-6)


def test_tiles_are_along_the_last_open_axis_and_test_nothing_of_it_between_borders():
    """Not along a batch, which may be of one. Whether a window's row is outside is asked once for all of its columns."""
    x, w = te.placeholder((*map(te.dim, "nhw"), 16), name="x"), te.placeholder((3, 3, 16, 32), name="w")
    y = te.compute(
        (*x.shape[:3], 32),
        lambda n, i, j, k: te.sum(lambda r, s, c: x.read(n, i + r - 1, j + s - 1, c, outside=0.0) * w[r, s, c, k], (3, 3, 16)),
        name="y",
    )
    found = te.build(y, [x, w])
    found.versions = None
    ((_, middle),) = re.findall(r"^( *)for j_o in range\(1, .*\n((?:\1 .*\n)*)", str(found.nest), re.MULTILINE)
    assert re.findall(r"if (.*):", middle) == ["i + r - 1 >= 0 and h - i - r >= 0"] and "where(" not in middle
    for extents in ((1, 5, 7), (2, 4, 13), (1, 1, 1), (3, 17, 2), (2, 3, 21), (0, 3, 9), (1, 0, 5)):
        given, weights = floats(*extents, 16), floats(3, 3, 16, 32)
        padded = np.pad(given, ((0, 0), (1, 1), (1, 1), (0, 0)))
        wanted = sum(padded[:, r : r + extents[1], s : s + extents[2]] @ weights[r, s] for r in range(3) for s in range(3))
        np.testing.assert_allclose(found(given, weights), wanted, rtol=1e-4, atol=1e-4)


def test_a_triangle_of_two_products_has_a_form_for_few_rows():
    """Of which one cut leaves the loop over blocks of a row without a second iteration, so the next cut has no such loop."""
    n = te.dim("n")
    a, b, c, d = inputs = [te.placeholder((n, 8), name=name) for name in "abcd"]
    both = te.compute(
        (n, n),
        lambda i, j: te.where(j <= i, te.sum(lambda r: a[j, r] * b[i, r] * 0.25 + c[i, r] * d[j, r] * 0.25, 8), 0.0),
        name="both",
    )
    found = te.build(both, inputs)
    found.versions = None
    for rows in (0, 1, 2, 7, 8, 9, 11, 12, 15, 16, 17, 33, 70):
        w, x, y, z = given = [floats(rows, 8) for _ in "abcd"]
        np.testing.assert_allclose(found(*given), np.tril(x @ w.T + y @ z.T) / 4, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", (0, 3))
@pytest.mark.parametrize("n", (0, 5, 64, 65, 130))
def test_blocks_on_all_cores_that_are_moved_back_write_in_one_statement(n, rows):
    """Cut at tests of their lanes, the last block and the one before wrote the same elements in two statements: a race, by the proof."""
    a, b = te.dim("a"), te.dim("b")
    x, shown = te.placeholder((a,), name="x"), te.placeholder((2,), name="shown")
    keys = te.placeholder((b,), "int32", name="keys")

    def element(i, j):
        value = te.where(i <= j, x.read(j, outside="symmetric"), te.argmin(lambda l: 1.0, b))
        return te.sum(lambda k: value, a, where=lambda k: shown.read(keys[j], outside="clamp") != 0)

    y = te.compute((b, b), element, name="y")
    arrays = [floats(rows), np.ones(2, np.float32), np.arange(n, dtype=np.int32) % 3]
    found = te.build(y, [x, shown, keys])(*arrays)
    np.testing.assert_allclose(found, te.evaluate(y, dict(zip([x, shown, keys], arrays, strict=True))), rtol=1e-6)


@pytest.mark.parametrize(("facts", "gone"), [({"multiple_of": 64}, ("if ", "minimum")), ({"min": 64}, ("if ",))])
def test_what_is_known_of_sizes_leaves_no_forms(facts, gone):
    """Blocks that come out whole are not moved back, those that fit are not asked about."""
    n, m = (te.dim(name, **facts) for name in "nm")
    x, b = te.placeholder((n, m), name="x"), te.placeholder((m,), name="b")
    y = te.compute((n, m), lambda i, j: te.tanh(x[i, j]) + b[j])
    found = te.build(y, [x, b])
    found.versions = None
    assert not any(word in str(found.schedule.nest) for word in gone)
    for extents in ((64, 64), (128, 192)) if "min" not in facts else ((64, 64), (65, 79), (70, 130)):
        given, more = floats(*extents), floats(extents[1])
        np.testing.assert_allclose(found(given, more), np.tanh(given) + more, rtol=1e-5, atol=1e-6)


def test_a_form_for_blocks_of_a_multiple_is_for_as_many_as_they_need(monkeypatch):
    monkeypatch.setattr(contest, "CLOSE_OPEN", 0.0)
    n, m = (te.dim(name, multiple_of=64) for name in "nm")
    x = te.placeholder((n, m), name="x")
    found = te.build(te.compute((m,), lambda j: te.sum(lambda i: x[i, j], n)), [x])
    found.versions = None
    known = [call.arguments for call in found.schedule.calls if call.arguments and call.arguments[0] == "assume"]
    assert all(least <= 2 for arguments in known for _, least in arguments[1:])
    for extents in ((0, 64), (64, 64), (64, 128), (128, 320)):
        given = floats(*extents)
        np.testing.assert_allclose(found(given), given.sum(0), rtol=1e-4, atol=1e-4)


def test_what_most_iterations_choose_is_asked_in_front_of_a_loop():
    """Not the border, where rows of a window end at the row that they begin at."""
    nest = parse_nest("""
main(n, x, y)
n: size
x: parameter(f32[n, 64])
y: parameter(f32[n, 64], written)

def kernel_0() -> y:
    for p in range(0, n):
        for q in range(0, 64):
            y[p, q] = 0.0
            for r in range(0, minimum(p + 1, 3)):
                y[p, q] = y[p, q] + where(q >= 1, x[p - r, q - 1], 0.0)
""")
    made = partition(nest, "q")
    assert "if p - 3 >= 0" in str(made) and prove(made).is_clean


@pytest.mark.parametrize("shift", [-7, -1, 0, 3, 40])
def test_a_loop_that_goes_around_an_open_extent_is_cut_where_it_does(shift):
    """Whatever the shift is beside the extent, which may be less than it, and 0."""
    nest = plain_nest(parse_program(f"sizes(n)\nx: f32[n] = input()\ny[i]: f32[n] = x[(i + {shift}) % n]\nreturn y"))
    loop = nest.kernels[0].body[0].index
    made = partition(nest, loop)
    assert (shift == 0 or made != nest) and prove(made).is_clean
    for n in (0, 1, 2, 5, 39, 41):
        x = floats(n)
        np.testing.assert_array_equal(run(made, {"x": x}, {"n": n})["y"], np.roll(x, -shift))


def test_a_short_loop_of_open_length_is_a_guarded_block_inside_of_other_tests():
    nest = parse_nest("""
main(n, m, x, y)
n: size
m: size
x: parameter(f32[n, m])
y: parameter(f32[n, m], written)

def kernel_0() -> y:
    for i in range(0, n):
        for j in range(0, m):
            y[i, j] = x[i, j]
""")
    made = split(split(nest, "j", 4, "shift"), "i", 2, "shift")
    assert not prove(made).refuted
    for extents in ((0, 1), (1, 3), (2, 4), (3, 9)):
        x = floats(*extents)
        np.testing.assert_array_equal(run(made, {"x": x}, dict(zip("nm", extents, strict=True)))["y"], x)


@pytest.mark.parametrize(
    "sizes, wanted", [("n", (TYPICAL - 1,)), ("n, m", (1023, 1023)), ("n_upto8, m", (8, 131071)), ("n_by16, m", (63, 1023))]
)
def test_typical_sizes_keep_what_is_known_of_them(sizes, wanted):
    shape = sizes.replace("n_by16", "n_by16 * 16")
    program = parse_program(f"sizes({sizes})\nx: f32[{shape}] = input()\ny[i]: f32[{sizes.split(', ')[0]}] = 0.0\nreturn y")
    assert typical(plain_nest(program)) == dict(zip(sizes.split(", "), wanted, strict=True))


def multiplied(x, w):
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], x.shape[1]), name="y")


@pytest.mark.parametrize(
    "rows, columns", [(0, 300), (1, 300), (3, 33), (7, 300), (12, 65), (15, 1), (300, 0), (300, 1), (33, 7), (300, 15)]
)
def test_few_rows_of_a_product(few, rows, columns):
    given = floats(rows, 33), floats(33, columns)
    np.testing.assert_allclose(few(*given), given[0] @ given[1], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def few():
    m, k, n = te.dim("m"), te.dim("k"), te.dim("n")
    inputs = te.placeholder((m, k), name="x"), te.placeholder((k, n), name="w")
    found = te.build(multiplied(*inputs), inputs)
    found.versions = None
    return found


def test_few_rows_of_a_product_share_what_goes_by(few):
    """Rows below a block have blocks of a few rows of their own: one after the other they took up to ninety times as long."""
    small = few.schedule.as_python().partition("'otherwise'")[2]
    assert few.schedule.origin == SEARCH
    assert "'unroll', 'i_i'" in small
