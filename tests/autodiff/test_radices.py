"""Mixed radix with symbolic radices: gathers in closed form, exactly as many iterations as reads, at every size."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.invert.radices import reduce_radices
from tensorexpr.bounds.enumeration import evaluate_on
from tensorexpr.bounds.nonlinear import exact_quotient, named, number, plus, times
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Axis, Index, Scatter, Size, apply, const
from tensorexpr.language import program_of
from tests.autodiff.laws import gather_of, head_of
from tests.autodiff.reads import random_read
from tests.seeds import share_of

n, m, k, h, w, c = (te.dim(name) for name in "nmkhwc")
F64 = "float64"
SIZES = (
    dict(n=4, m=3, k=2, h=3, w=4, c=2),
    dict(n=2, m=5, k=3, h=5, w=3, c=1),
    dict(n=3, m=0, k=1, h=2, w=2, c=3),
    dict(n=0, m=4, k=2, h=4, w=5, c=0),
    dict(n=3, m=2, k=0, h=2, w=3, c=2),
)


def extent(expr, sizes) -> int:
    return int(evaluate_on(expr, {name: np.int64(value) for name, value in sizes.items()}))


def check(x, y, sizes=SIZES):
    """A gather with the exact number of iterations, equal to the scatter form at every size; gives the row and the formula."""
    head = head_of(y)
    gradient = te.gradient(y, [x], head=head)
    rows = gradient.report().rows
    scattered = te.gradient(y, [x], head=head, lowering="segments")
    program = program_of([gradient[0], scattered[0]])
    for given in sizes:
        rng = np.random.default_rng(0)
        data = {i.name: rng.integers(-4, 5, [extent(e, given) for e in i.type.shape]).astype(F64) for i in program.inputs}
        found, expected = evaluate_program(program, data, sizes=dict(given)).values()
        np.testing.assert_array_equal(found, expected)
        for row in rows:
            iterations, reads = (c if isinstance(c, int) else c(**given) for c in (row.iterations, row.reads))
            assert iterations == reads, row
    own = program_of(list(gradient))
    assert not any(isinstance(d, Scatter) for d in own.definitions)
    return {row.lowering for row in rows}, str(own).split("input()\n")[-1].removesuffix("return x_bar\n").strip()


LAYOUTS = {
    "flatten": ((n, m), (n * m,), lambda x: lambda f: x[f // m, f % m], "Y[p * m + q]"),
    "flatten three": ((n, m, k), (n * m * k,), lambda x: lambda f: x[f // (m * k), f // k % m, f % k], "Y[p * m * k + q * k + u]"),
    "flatten step by step": ((n, m, k), (n * m * k,), lambda x: lambda f: x[f // k // m, f // k % m, f % k], "Y[p * m * k + q * k + u]"),
    "unflatten": ((n * m,), (n, m), lambda x: lambda i, j: x[i * m + j], "Y[p // m, p % m]"),
    "unflatten three": ((n * m * k,), (n, m, k), lambda x: lambda i, j, r: x[(i * m + j) * k + r], "Y[p // (m * k), p // k % m, p % k]"),
    "other radices": (
        (n, m), (m, n), lambda x: lambda i, j: x[(i * n + j) // m, (i * n + j) % m], "Y[(p * m + q) // n, (p * m + q) % n]",
    ),
    "transposed": ((n, m), (n * m,), lambda x: lambda f: x[f % n, f // n], "Y[p + q * n]"),
    "transposed between": ((n, m, k), (k * n, m), lambda x: lambda f, j: x[f % n, j, f // n], "Y[p + q * n, j]"),
    "a digit reversed": ((n, m), (n * m,), lambda x: lambda f: x[f // m, m - 1 - f % m], "Y[p * m + m - q - 1]"),
    "reversed": ((n * m,), (n, m), lambda x: lambda i, j: x[n * m - 1 - (i * m + j)], "Y[n - p // m - 1, m - p % m - 1]"),
    "offset": ((n * m + 5,), (n, m), lambda x: lambda i, j: x[i * m + j + 5], "where(p >= 5, Y[(p - 5) // m, (p - 5) % m], 0.0)"),
    "part of a row": (
        (n * m,), (n, k), lambda x: lambda i, j: te.where(j < m, x[i * m + j], 0.0), "where(p % m < k, Y[p // m, p % m], 0.0)",
    ),
    "triangle": (
        (n * n,), (n, n), lambda x: lambda i, j: te.where(j >= i, x[i * n + j], 0.0), "where(p % n >= p // n, Y[p // n, p % n], 0.0)",
    ),
    "diagonal": ((n * n,), (n,), lambda x: lambda i: x[i * n + i], "where(p % (n + 1) == 0, Y[p // (n + 1)], 0.0)"),
    "one column": ((n * m,), (n,), lambda x: lambda i: te.where(m > 0, x[i * m], 0.0), "where(p % m == 0, Y[p // m], 0.0)"),
    "pixel shuffle": (
        (c * k * k, h, w), (c, h * k, w * k), lambda x: lambda q, i, j: x[q * k * k + i % k * k + j % k, i // k, j // k],
        "Y[p // (k * k), p // k % k + u * k, p % k + v * k]",
    ),
    "pixel unshuffle": (
        (c, h * k, w * k), (c * k * k, h, w), lambda x: lambda q, i, j: x[q // (k * k), i * k + q // k % k, j * k + q % k],
        "Y[p * k * k + u % k * k + v % k, u // k, v // k]",
    ),
    "space to depth": (
        (h * 2, w * 2), (h, w, 4), lambda x: lambda i, j, q: x[i * 2 + q // 2, j * 2 + q % 2], "Y[p // 2, u // 2, p % 2 * 2 + u % 2]",
    ),
    "NCHW4c": (
        (n, c * 4, h, w), (n, c, h, w, 4), lambda x: lambda b, o, i, j, q: x[b, o * 4 + q, i, j], "Y[b, p // 4, i, j, p % 4]",
    ),
    "NCHWkc": ((n, c * k, h), (n, c, h, k), lambda x: lambda b, o, i, q: x[b, o * k + q, i], "Y[b, p // k, i, p % k]"),
    "from NCHWkc": ((n, c, h, k), (n, c * k, h), lambda x: lambda b, o, i: x[b, o // k, i, o % k], "Y[b, p * k + q, i]"),
    "NHWC in one axis": (
        (n * h * w * c,), (n, c, h, w), lambda x: lambda b, q, i, j: x[((b * h + i) * w + j) * c + q],
        "Y[p // (c * h * w), p % c, p // (c * w) % h, p // c % w]",
    ),
    "blocks": ((n * 4, m * 8), (n, m, 4, 8), lambda x: lambda a, b, i, j: x[a * 4 + i, b * 8 + j], "Y[p // 4, q // 8, p % 4, q % 8]"),
    "heads": ((n, h * k), (h, n, k), lambda x: lambda a, i, d: x[i, a * k + d], "Y[p // k, i, p % k]"),
    "channels shuffled": ((n, h * k), (n, h * k), lambda x: lambda i, q: x[i, q % h * k + q // h], "Y[i, p % k * h + p // k]"),
    "interleaved": ((m * 2,), (m * 2,), lambda x: lambda j: x[j % 2 * m + j // 2], "Y[p % m * 2 + p // m]"),
    "roll": ((n,), (n,), lambda x: lambda i: x[(i + 3) % n], "Y[(p - 3) % n]"),
    "rotate half": ((m * 2,), (m * 2,), lambda x: lambda j: x[(j + m) % (m * 2)], "Y[(p - m) % (m * 2)]"),
    "pairs of half": ((n // 2, 2), (n // 2 * 2,), lambda x: lambda f: x[f // 2, f % 2], "Y[p * 2 + q]"),
    "whole blocks": ((n // k, k), (n // k * k,), lambda x: lambda f: x[f // k, f % k], "Y[p * k + q]"),
    "to whole blocks": ((n,), (n // k, k), lambda x: lambda i, j: x[i * k + j], "where(p < k * (n // k), Y[p // k, p % k], 0.0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name):
    shape, out, body, expected = LAYOUTS[name]
    x = te.placeholder(shape, F64, name="x")
    y = te.compute(out, body(x), name="y")
    head = te.placeholder(out, F64, name="Y")
    (row,) = te.gradient(y, [x], head=head).report().rows
    assert row.lowering == "reshape"
    check(x, y)
    printed = str(program_of(list(te.gradient(y, [x], head=head))))
    assert expected in printed, printed


SUMS = {
    "repeat": ((n, m), (n * k, m * k), lambda x: lambda i, j: x[i // k, j // k]),
    "tile": ((n, m), (n * k, m * 2), lambda x: lambda i, j: x[i % n, j % m]),
    "rows of any length": ((m,), (n,), lambda x: lambda i: te.where(m > 0, x[i % te.maximum(m, 1)], 0.0)),
    "shifted slice": ((n, m), (n * m,), lambda x: lambda f: te.where(f + 3 < n * m, x[(f + 3) // m, (f + 3) % m], 0.0)),
    "image in one axis": ((h * w,), (h - 2, w - 2), lambda x: lambda i, j: te.sum(lambda a, b: x[(i + a) * w + j + b], (3, 3))),
    "padded image": (
        (h * w,),
        (h, w),
        lambda x: lambda i, j: te.sum(
            lambda a, b: te.where((i + a >= 1) & (i + a <= h) & (j + b >= 1) & (j + b <= w), x[(i + a - 1) * w + j + b - 1], 0.0), (3, 3)
        ),
    ),
    "image to image": (
        (h * w,),
        (h * w,),
        lambda x: lambda p: te.sum(
            lambda a, b: te.where(
                (p // w + a >= 1) & (p // w + a <= h) & (p % w + b >= 1) & (p % w + b <= w), x[p + (a - 1) * w + b - 1], 0.0
            ),
            (3, 3),
        ),
    ),
    "unfold": ((c, h + 2, w + 2), (c * 9, h * w), lambda x: lambda r, p: x[r // 9, p // w + r // 3 % 3, p % w + r % 3]),
    "patches": (
        (c, h * k, w * k),
        (h * w, 2),
        lambda x: lambda p, o: te.sum(lambda q: x[q // (k * k), p // w * k + q // k % k, p % w * k + q % k], c * k * k),
    ),
    "a condition on what is left": ((n,), (n * m,), lambda x: lambda f: te.where(f % m >= 1, x[f // m], 0.0)),
    "a condition across": ((n * m,), (n, m, k), lambda x: lambda i, j, r: te.where(i + r < j, x[i * m + j], 0.0)),
    "constants": ((5, 6), (10, 12, 2), lambda x: lambda i, j, r: te.where(i % 2 >= j % 2 + r, x[i // 2, j // 2], 0.0)),
    "circular": ((n,), (n,), lambda x: lambda i: te.sum(lambda d: x[(i + d - 1) % n], 3)),
    "triangle": ((n * n,), (n,), lambda x: lambda i: te.sum(lambda j: x[i * n + j], i + 1)),
    "columns": ((n * m,), (m,), lambda x: lambda j: te.sum(lambda i: x[i * m + j], n)),
    "two ways": ((n * m,), (n, m), lambda x: lambda i, j: x[i * m + j] * 3.0 + x[j * n + i]),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_digits_through_sums(name):
    shape, out, body = SUMS[name]
    x = te.placeholder(shape, F64, name="x")
    y = te.compute(out, body(x), name="y")
    small = [sizes for sizes in SIZES if sizes["h"] >= 2 and sizes["w"] >= 2]
    lowerings, _ = check(x, y, small)
    assert lowerings <= {"reshape", "lattice"}


def test_convolution_of_an_image_in_one_axis():
    x = te.placeholder((h * w,), F64, name="x")
    f = te.placeholder((3, 3), F64, name="f")
    y = te.compute((h - 2, w - 2), lambda i, j: te.sum(lambda a, b: x[(i + a) * w + j + b] * f[a, b], (3, 3)), name="y")
    gradient = te.gradient(y, [x], head=te.placeholder(y.shape, F64, name="Y"))
    assert (
        str(program_of(list(gradient))).split("input()\n")[-1].rstrip()
        == """\
x_bar[p]: f64[h * w] = sum(
    Y[p // w - a, p % w - b] * f[a, b]
    for a in range(maximum(p // w - h + 3, 0), minimum(p // w + 1, 3))
    for b in range(maximum(p % w - w + 3, 0), minimum(p % w + 1, 3))
)
return x_bar"""
    )


def test_windows_with_a_symbolic_hop():
    """A hop may be 0, where no division tells which windows meet an element: that is a piece of its own."""
    x = te.placeholder((n * k + m,), F64, name="x")
    y = te.compute((n, m), lambda i, j: x[i * k + j], name="y")
    (row,) = te.gradient(y, [x], head=head_of(y)).report().rows
    assert row.lowering == "pieces"
    for hop in (0, 1, 2, 5):
        assert row.iterations(n=3, m=4, k=hop) == row.reads(n=3, m=4, k=hop) == 12


def test_native():
    """Compiled with symbolic sizes, run at several."""
    x = te.placeholder((n, m * k), F64, name="x")
    y = te.compute((m, n, k), lambda a, i, d: x[i, a * k + d] * x[i, a * k + d], name="y")
    head = te.placeholder((m, n, k), F64, name="Y")
    run = te.build(te.gradient(y, [x], head=head)[0], [x, head])
    rng = np.random.default_rng(0)
    for rows, blocks, inner in ((2, 3, 4), (5, 1, 7), (3, 4, 1)):
        data, weights = rng.standard_normal((rows, blocks * inner)), rng.standard_normal((blocks, rows, inner))
        expected = 2 * data * weights.transpose(1, 0, 2).reshape(rows, blocks * inner)
        np.testing.assert_allclose(run(data, weights), expected, rtol=1e-12)


def grouped(rng, count):
    order = list(range(count))
    rng.shuffle(order)
    cuts = sorted(rng.sample(range(1, count), rng.randint(0, count - 1)))
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]


def product(factors):
    result = 1
    for factor in factors:
        result = factor if isinstance(result, int) and result == 1 else result * factor
    return result


@pytest.mark.parametrize("seed", share_of(range(40)))
def test_random_relayouts(seed):
    """Digits of any radix, in any order, some reversed, grouped into axes in one way and read in another."""
    rng = random.Random(seed)
    count = rng.randint(2, 4)
    radices = [rng.choice([te.dim(name), te.dim(name), 2, 3]) for name in "abcd"[:count]]
    written, read = grouped(rng, count), grouped(rng, count)
    reversed_ = [rng.random() < 0.2 for _ in radices]
    x = te.placeholder(tuple(product(radices[d] for d in group) for group in written), F64, name="x")

    def body(*axes):
        digits = {}
        for group, axis in zip(read, axes, strict=True):
            for at, d in enumerate(group):
                stride = product(radices[e] for e in group[at + 1 :])
                digit = axis if isinstance(stride, int) and stride == 1 else axis // stride
                digit = digit % radices[d] if at else digit
                digits[d] = radices[d] - 1 - digit if reversed_[d] else digit
        indices = []
        for group in written:
            index = digits[group[0]]
            for d in group[1:]:
                index = index * radices[d] + digits[d]
            indices.append(index)
        return x[tuple(indices)]

    names = ", ".join(f"i{at}" for at in range(len(read)))
    y = te.compute(
        tuple(product(radices[d] for d in group) for group in read), eval(f"lambda {names}: body({names})", {"body": body}), name="y"
    )
    lowerings, _ = check(x, y, [dict(a=3, b=2, c=4, d=1), dict(a=2, b=3, c=1, d=3), dict(a=2, b=0, c=2, d=2)])
    assert lowerings <= {"substitute", "reshape", "lattice"}


def test_exact_quotients():
    rng = random.Random(0)

    def poly():
        total = number(rng.randint(-2, 3))
        for _ in range(rng.randint(0, 2)):
            total = plus(
                total, times(named(rng.choice("abc")), plus(named(rng.choice("abc")), number(rng.randint(-1, 2)))), rng.choice((1, 2))
            )
        return total

    for _ in range(200):
        a, b = poly(), poly()
        if b:
            assert exact_quotient(times(a, b), b) == a
            rest = exact_quotient(plus(times(a, b), number(1)), b)
            assert rest is None or times(rest, b) == plus(times(a, b), number(1))
    assert exact_quotient(named("a"), {}) is None


def test_what_is_no_mixed_radix():
    i, j, size = Index("i"), Index("j"), Size("n")
    axes = (Axis("i", const(0), size), Axis("j", const(0), size))
    target = (Axis("p", const(0), apply("mul", size, size)),)
    for index in (apply("mul", i, j), apply("floordiv", i, j), apply("mod", apply("mul", i, j), size)):
        assert reduce_radices([index], axes, (), target, ()) is None
    sums = reduce_radices([apply("mul", apply("add", i, j), size)], axes, (), target, ())
    assert sums is not None and len(sums.equations) == 1 and len(sums.outer) == 2  # i + j == p // n, where n > 0 and p % n == 0


def test_a_quotient_of_a_remainder():
    """2 * j + 3 * i takes i as its upper digit, so j // 2 is a digit of a remainder: (p % 3 // 2) // 2, and no other one."""
    x, y = te.placeholder((2, 3), F64, name="x"), te.placeholder((5, 4), F64, name="y")

    def read(i, j):
        return te.where((j * 2 + i * 3 >= 1) & (j * 2 + i * 3 < 3), x[j * 2 + i * 3 - 1, j // 2] * y[i, j], 0.0)

    z = te.compute((), lambda: te.sum(read, (5, 4)))
    data = {y: np.arange(20.0).reshape(5, 4)}
    np.testing.assert_array_equal(te.evaluate(te.gradient(z, x)[0], data), [[0, 0, 0], [1, 0, 0]])


def test_a_digit_that_is_divided_again_in_a_guard():
    x, a = te.placeholder((5, 4), F64, name="x"), te.placeholder((8,), F64, name="a")

    def read(t):
        return te.where((t % 4 % 2 == 1) & (t % 4 >= 2), x[te.maximum(t % 4 - 2, 0), 3 - t // 4] * a[t], 0.0)

    gradient = te.gradient(te.compute((), lambda: te.sum(read, 8)), x)
    expected = np.zeros((5, 4))
    expected[1, 2:] = [8, 4]
    np.testing.assert_array_equal(te.evaluate(gradient[0], {a: np.arange(1.0, 9.0)}), expected)


def test_a_loop_whose_bound_is_a_quotient_of_another_one():
    x, a = te.placeholder((3, 3), F64, name="x"), te.placeholder((12,), F64, name="a")
    y = te.compute((12,), lambda t: te.sum(lambda p: x[t // 4, t // 4] * te.cast(p + 1, F64), t // 4 + 1) * a[t], name="y")
    head = head_of(y)
    gradient = te.gradient(y, x, head)
    assert [row.lowering for row in gradient.report().rows] == ["reshape"]
    data = {a: np.arange(12.0), head: np.ones(12)}
    expected = np.diag([np.arange(4 * q, 4 * q + 4).sum() * (q + 1) * (q + 2) / 2 for q in range(3)])
    np.testing.assert_array_equal(te.evaluate(gradient[0], data), expected)


def test_remainders_known_in_terms_of_each_other_are_put_in_once():
    x, w, h = (te.placeholder(shape, F64, name=name) for shape, name in (((19, 9), "x"), ((9,), "w"), ((5,), "h")))

    def element(p, q):
        odd = te.where(1 - 3 * p == 5, x[3 * p + 3 * q + 2, 3 + p - 2 * q] * te.cast((5 * q - 3) // 2 % 5, F64) * w[-p], 0.0)
        return x[3 * p + 3 * q, 4 + p - 2 * q] * te.cast(5 * p + 4 * q + 4, F64) * w[4 + p - 2 * q] + odd

    y = te.compute((5,), lambda p: te.sum(lambda q: element(p, q), 3), name="y")
    gather_of(y, [x, w], h)


def test_a_size_made_of_an_expression_in_a_digit():
    case = random_read(2190)  # has 0 // 4 in an index, which is no literal before it is simplified
    gather_of(case.output, [case.x], head_of(case.output))


@pytest.mark.parametrize("seed", share_of(range(60)))
def test_positions_around_several_axes_that_share_their_loops(seed):
    """`x[(i + j) % c, (2*i + j) % c]`: two remainders, each of which says what one loop is in terms of the other."""
    rng = random.Random(seed)
    rank, loops = rng.choice(((2, 2), (2, 3), (3, 3)))
    factors = [[rng.choice((0, 0, 1, 1, -1, 2, 3)) for _ in range(loops)] for _ in range(rank)]
    shifts = [rng.randint(-2, 2) for _ in range(rank)]
    x = te.placeholder((c,) * rank, F64, name="x")
    y = te.compute(
        (c,) * loops,
        lambda *at: x[
            tuple((sum((f * i for f, i in zip(row, at, strict=True)), shift)) % c for row, shift in zip(factors, shifts, strict=True))
        ],
        name="y",
    )
    head = head_of(y)
    program = program_of([*te.gradient(y, [x], head=head), *te.gradient(y, [x], head=head, lowering="segments")])
    for extents in (0, 1, 2, 3, 5):
        numbers = np.random.default_rng(0)
        data = {i.name: numbers.integers(-4, 5, [extents] * len(i.type.shape)).astype(F64) for i in program.inputs}
        found, expected = evaluate_program(program, data, sizes=dict(c=extents)).values()
        np.testing.assert_array_equal(found, expected)
