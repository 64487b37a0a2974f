"""Conditions around a tile hold where some point of it counts: whatever the extents leave for the last block of a split."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import WIDE, assert_means, plain, planned
from tests.seeds import share_of

RNG = np.random.default_rng(4)


def last_and_first(n, m):
    """Sums that only the first, some middle and the last element ask for: their guards are conditions around tiles of p."""
    x = te.placeholder((m,), "float64", name="x")
    total = te.sum(lambda i: x[i] * x[i], m)

    def element(p):
        return te.where(p == n - 1, total, 0.0) + te.where(p == 0, 2 * total, 0.0) + te.where(p >= n - 2, x[p % m], 0.0)

    return x, te.compute((n,), element, name="y")


@pytest.mark.parametrize("n", range(1, 22))
def test_the_last_block_counts_in_the_default_schedule(n):
    x, y = last_and_first(n, 5)
    array = RNG.standard_normal(5)
    np.testing.assert_allclose(te.build(y, [x])(array), te.evaluate(y, {x: array}), rtol=1e-12)


@pytest.mark.parametrize(("n", "tail", "twice"), list(itertools.product((5, 8, 11, 13, 16, 19), ("shift", "guard", "peel"), (False, True))))
def test_the_last_block_counts_in_any_split(n, tail, twice):
    x, y = last_and_first(n, 5)
    s = planned(y, inputs=[x])
    s[y].split("p", 4, tail)
    loops = ["p_o", "p_i"]
    if twice:
        s[y].split("p_o", 2, tail)
        loops = ["p_o_o", "p_o_i", "p_i"]
    reduction = next(loop for loop in s[y].loops if loop not in loops)
    s[y].reorder(reduction, *loops)
    array = RNG.standard_normal(5)
    np.testing.assert_allclose(te.build(s, [x])(array), te.evaluate(y, {x: array}), rtol=1e-12)


@pytest.mark.parametrize(("n", "reach"), list(itertools.product((7, 14, 20), (1, 2, 4, 6, 8))))
def test_the_gradient_of_a_bias_by_clamped_distance(n, reach):
    scores, bias, head = (
        te.placeholder(shape, "float64", name=name) for name, shape in (("s", (n, n)), ("b", (2 * reach + 1,)), ("h", (n, n)))
    )
    y = te.compute((n, n), lambda i, j: te.exp(scores[i, j] + bias[te.clip(j - i, -reach, reach) + reach]))
    (gradient,) = te.gradient(y, [bias], head)
    s, b, h = (RNG.standard_normal(t.shape) for t in (scores, bias, head))
    at = np.clip(np.arange(n)[None] - np.arange(n)[:, None], -reach, reach) + reach
    expected = np.zeros(2 * reach + 1)
    np.add.at(expected, at, h * np.exp(s + b[at]))
    np.testing.assert_allclose(te.build(gradient, [scores, bias, head])(s, b, h), expected, rtol=1e-10)


def test_a_sum_outside_of_loops_that_are_empty_beyond_the_extent_stays_inside_of_it():
    """What `i` leaves no `l` for is beyond the tensor, too; the products do not depend on `l`, and run whether it has a point or not."""
    text = "x: f64[3, 2] = input()\n"
    text += "y[i]: f64[2] = sum(prod(x[k, i] for q in range(3)) for k in range(3) for l in range(minimum(3, 2 - i)))\nreturn y"
    by_hand = plain(text)
    by_hand["y"].split("i", 8, "guard")
    by_hand["y"].reorder("i_o", "k", "q", "l", "i_i")
    by_hand["y"].vectorize("i_i")
    for schedule in (by_hand, autoschedule(by_hand.program, WIDE)):
        assert_means(schedule, exact=False)


def around_loops(rng):
    """A reduction in the loops of others that it does not depend on; what it reads is in bounds where these have a point. Their bounds, and
    the index, are drawn until there is such a point, and an `i` without one."""
    while True:
        rows, first, gap, last, slope = rng.randint(4, 8), rng.randint(0, 3), rng.randint(0, 2), rng.randint(4, 9), rng.choice((1, -1))
        ends = {
            "k": rng.choice((f"i - {gap}", f"{last} - i", "i")),
            "m": rng.choice(("", "k", f"{last} - k", f"minimum(k, {last} - i)", "i - k")),
        }

        def runs(i, first=first, ends=ends):
            return any(
                not ends["m"] or eval(ends["m"], {"i": i, "k": k, "minimum": min}) > 0 for k in range(first, eval(ends["k"], {"i": i}))
            )

        at = [slope * i for i in range(rows) if runs(i)]
        if 0 < len(at) < rows:
            break
    terms, least = rng.randint(1, 3), min(at)
    inner = rng.choice(("sum", "max", "prod"))
    value = f"{inner}(u[{slope}*i - {least} + l]*w[a] for l in range({terms}))"
    value = rng.choice((value, f"sum({value} + w[z] for z in range(2))"))
    over = f"for k in range({first}, {ends['k']})" + (f" for m in range({ends['m']})" if ends["m"] else "")
    if not ends["m"] and rng.random() < 0.4:
        over = f"for k in range(12) if k >= {first} if k < {ends['k']}"
    text = f"u: f64[{max(at) - least + terms}] = input()\nw: f64[3] = input()\n"
    return text + f"y[i, j]: f64[{rows}, 3] = sum({value}*w[j] for a in range(2) {over})\nreturn y"


@pytest.mark.parametrize("seed", share_of(range(96)))
def test_a_reduction_in_front_of_loops_that_have_no_point_reads_nothing(seed):
    rng = random.Random(f"around {seed}")
    s = plain(around_loops(rng))
    assert_means(s, seed, exact=False)
    assert_means(autoschedule(s.program, WIDE), seed, exact=False)
    around = [loop for loop in s["y"].loops if loop in ("a", "k", "m")]
    inner = [loop for loop in s["y"].loops if loop in ("l", "z")]
    tried(s["y"].split, around[-1], rng.randint(2, 4), rng.choice(("guard", "peel", "peel", "shift")))
    last = [loop for loop in s["y"].loops if loop.startswith(around[-1])]
    tried(s["y"].reorder, *rng.choice((("i", "j"), ("j", "i"))), *around[:-1], *last[:-1], *inner, last[-1])
    tried(s["y"].vectorize, rng.choice(s["y"].loops))
    assert_means(s, seed, exact=False)


def placed(rng):
    """A sum under a guard that another definition reads at several rows; it reads `u`, of as many rows as it has to be or a few more."""
    rows, shift, terms, more = rng.randint(9, 17), rng.randint(0, 2), rng.randint(1, 3), rng.choice((0, 0, 0, 1, 3))
    guard = rng.choice((f"i < {rows - shift}", f"i*(j + 1) < {rows - shift}", f"i + j < {rows - shift}", f"i >= {min(2, rows)}"))
    reach = rows + (shift if guard.startswith("i >=") else 0) + more
    left, right = rng.randint(0, 2), rng.randint(0, 2)
    chosen = rng.choice(("", f" if w[i + {shift}] > 0"))
    text = f"u: f64[{reach}, 5] = input()\nw: i64[{reach}] = input()\n"
    source = rng.choice(("u", "p"))
    if source == "p":
        text += f"p[i, j]: f64[{reach}, 5] = u[i, j]*u[i, j]\n"
    total = f"sum({source}[i + {shift}, (j + k) % 5] for k in range({terms}){chosen})"
    text += f"b[i, j]: f64[{rows}, 5] = where({guard}, {total}, 0.0) + u[i, j]\n"
    text += f"c[i, j]: f64[{rows}, 5] = b[maximum(i - {left}, 0), j] + b[minimum(i + {right}, {rows - 1}), 4 - j]\nreturn c"
    return plain(text)


def tried(primitive, *arguments):
    """What a primitive gives, nothing where it is illegal."""
    try:
        return primitive(*arguments)
    except ScheduleError:
        return None


@pytest.mark.parametrize("seed", share_of(range(72)))
def test_what_a_window_reads_is_in_bounds_in_all_of_its_blocks(seed):
    """The axes of what is computed in a window are as long as that, and begin elsewhere in each iteration: guards are left out, and
    conditions that read data go in front of others, where accesses are in bounds all over the tensor, not in the first window alone."""
    rng = random.Random(f"windows {seed}")
    s = placed(rng)
    s["b"].compute_at("c", "i")
    if "p" in s.stages and rng.random() < 0.7:
        s["p"].compute_at("c", "i")
    if rng.random() < 0.5:
        tried(s["b"].split, "i", rng.randint(2, 4), "guard")
    loops = list(s["b"].loops)
    rng.shuffle(loops)
    tried(s["b"].reorder, *loops)
    tried(s["b"].vectorize, rng.choice(loops))
    assert_means(s, seed, exact=False)


@pytest.mark.parametrize("seed", share_of(range(48)))
def test_the_points_beyond_an_extent_are_in_bounds_where_they_run(seed):
    """A last block that is filled up runs beyond the extent: of the whole axis, or of the piece of it that a condition cuts off. It reads
    a block of what is computed around it, which may end with the extent."""
    rng = random.Random(f"beyond {seed}")
    columns, factor, terms = rng.randint(5, 11), rng.randint(2, 4), rng.randint(1, 3)
    rows, more = rng.randint(3, 9), rng.randint(0, 4)
    value = f"sum(p[i + j, k] for k in range({terms}))"
    border = rng.randrange(columns)
    value = rng.choice((value, f"where(j >= {border}, {value}, 0.0)", f"where(j < {border}, {value}, 0.0)"))
    text = f"u: f64[{rows + columns + more}, 3] = input()\np[i, j]: f64[{rows + columns + more}, 3] = u[i, j]*u[i, j]\n"
    text += f"c[i, j]: f64[{rows}, {columns}] = {value}\nreturn c"
    s = plain(text)
    s["c"].split("j", factor, "guard")
    group = next(x for x in s["c"].loops if x not in ("i", "j_o", "j_i"))
    s["c"].reorder("i", "j_o", group, "j_i")
    s["c"].vectorize("j_i")
    at = rng.choice(("i", "j_o", None))
    if at is not None:
        tried(s["p"].compute_at, "c", at)
    assert_means(s, seed, exact=False)


U, P = "u: f64[{n}, 7] = input()\n", "p[i, k]: f64[{n}, 7] = exp(u[i, k])\n"
CLAMPED = "c[i, j]: f64[17, 5] = b[maximum(i - 2, 0), j] + b[minimum(i + 1, 16), 4 - j]\nreturn c"
WINDOW = "s['b'].compute_at('c', 'i')"
BEYOND = "s['c'].split('j', 4, 'guard'); s['c'].reorder('i', 'j_o', 'k', 'j_i'); s['c'].vectorize('j_i')"


@pytest.mark.parametrize(
    ("n", "text", "steps"),
    [
        # A guard, tested around the tile: it holds at some row of the window, not at all.
        (17, "b[i, j]: f64[17, 5] = where(i < 16, sum(u[i + 1, j] for k in range(2)), 0.0) + u[i, j]\n" + CLAMPED,
         WINDOW + "; s['b'].reorder('j', 'k', 'i'); s['b'].vectorize('i')"),
        # The points of the last block of a window, beyond it.
        (18, "b[i, j]: f64[17, 5] = sum(u[i + k, j] for k in range(2))\n" + CLAMPED,
         WINDOW + "; s['b'].split('i', 3, 'guard'); s['b'].reorder('j', 'i_o', 'k', 'i_i'); s['b'].vectorize('i_i')"),
        # A condition and a bound that read data, in front of a loop whose index the guard of their reduction needs.
        (17, "b[i, j]: f64[17, 5] = where(i*(j + 1) < 16, sum(u[i, j] for k in range(3) if u[i + 1, 0] > 0.0), 1.0)\n" + CLAMPED,
         WINDOW + "; s['b'].reorder('i', 'k', 'j')"),
        (17, "b[i, j]: f64[17, 5] = where(i*(j + 1) < 16, sum(u[i, j] for k in range(i64(u[i + 1, 0]))), 1.0)\n" + CLAMPED,
         WINDOW + "; s['b'].reorder('i', 'k', 'j')"),
        # The window of what is read ends with the extent of the reader, and with its own window.
        (40, P + "c[i, j]: f64[20, 10] = sum(p[i + j, k] for k in range(7))\nreturn c", "s['p'].compute_at('c', 'i'); " + BEYOND),
        (40, P + "b[i, j]: f64[30, 7] = sum(p[i + k, j] for k in range(2))\nc[i, j]: f64[17, 7] = b[i, j] + b[i + 3, 6 - j]\nreturn c",
         WINDOW + "; s['p'].compute_at('c', 'i'); s['b'].split('i', 3, 'guard'); s['b'].reorder('j', 'i_o', 'k', 'i_i')"),
        # The piece of an axis that a condition cuts off begins within a block.
        (12, "c[j, i]: f64[10, 4] = where(j >= 9, sum(u[j, k] for k in range(7)), 0.0)\nreturn c", BEYOND),
    ],
    ids=("guard", "beyond", "condition", "bound", "window", "windows", "piece"),
)  # fmt: skip
def test_guards_are_left_out_where_all_that_runs_is_in_bounds(n, text, steps):
    s = plain(U.format(n=n) + text.replace("{n}", str(n)))
    exec(steps, {"s": s})
    assert_means(s, exact=False)


def test_guards_stay_out_where_blocks_hold_what_is_read_beyond():
    """The block of `p` is as long as that of `j`, its last points included: no test around the products."""
    s = plain(U.format(n=40) + P.format(n=40) + "c[i, j]: f64[20, 10] = sum(p[i + j, k] for k in range(7))\nreturn c")
    exec(BEYOND, {"s": s})
    s["p"].compute_at("c", "j_o")
    assert "if" not in str(assert_means(s, exact=False)).split("c_sum[j_i] = c_sum[j_i]")[0]
