"""Gathers visit exactly the reads: counts against brute force, values bit for bit against unit vectors and the scatter form."""

import itertools

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.language import program_of
from tests.autodiff.laws import by_unit_vectors, count_reads, gather_of, head_of, integers, largest, scatters

F64 = "float64"


def row_of(gradient, tensor):
    (row,) = [row for row in gradient.report().rows if row.tensor == tensor]
    return row


def check(output, wrt, reads, lowerings=("substitute", "reshape", "lattice", "residues", "pieces")):
    """Gathers only, exact counts, right values."""
    head = head_of(output)
    gradient = gather_of(output, wrt, head)
    for row in gradient.report().rows:
        assert row.reads == reads[row.tensor] and row.iterations == row.reads, row
        assert row.lowering in lowerings, row
    program = program_of(list(gradient))
    assert not scatters(program)
    assert largest(program) <= max(np.prod(t.shape, dtype=int) for t in (*wrt, output))
    return gradient


@pytest.mark.parametrize("k,s,d", list(itertools.product((1, 2, 3), repeat=3)))
def test_convolution_1d(k, s, d):
    n = 11
    out = (n - d * (k - 1) - 1) // s + 1
    x, w = te.placeholder((n,), F64, name="x"), te.placeholder((k,), F64, name="w")
    y = te.compute((out,), lambda i: te.sum(lambda r: x[s * i + d * r] * w[r], k), name="y")
    check(y, [x, w], {"x": out * k, "w": out * k})


@pytest.mark.parametrize("k,s,d", [(2, 1, 1), (3, 2, 1), (3, 1, 2), (2, 2, 3), (3, 3, 2)])
def test_convolution_2d(k, s, d):
    n, m = 8, 9
    rows, columns = (n - d * (k - 1) - 1) // s + 1, (m - d * (k - 1) - 1) // s + 1
    x, w = te.placeholder((1, n, m), F64, name="x"), te.placeholder((2, 1, k, k), F64, name="w")
    y = te.compute(
        (2, rows, columns),
        lambda o, i, j: te.sum(lambda c, r, t: x[c, s * i + d * r, s * j + d * t] * w[o, c, r, t], (1, k, k)),
        name="y",
    )
    check(y, [x, w], {"x": 2 * rows * columns * k * k, "w": 2 * rows * columns * k * k})


@pytest.mark.parametrize("k,s,d", [(3, 1, 1), (3, 2, 1), (3, 2, 2), (2, 3, 1)])
def test_padded_convolution(k, s, d):
    n, pad = 9, 2
    out = (n + 2 * pad - d * (k - 1) - 1) // s + 1
    x, w = te.placeholder((n,), F64, name="x"), te.placeholder((k,), F64, name="w")
    y = te.compute((out,), lambda i: te.sum(lambda r: x.read(s * i + d * r - pad, outside=0.0) * w[r], k), name="y")
    inside = count_reads((out, k), lambda i, r: 0 <= s * i + d * r - pad < n)
    check(y, [x, w], {"x": inside, "w": out * k})


@pytest.mark.parametrize("mode", ["clamp", "reflect", "symmetric", "wrap"])
def test_borders(mode):
    n, out, k = 5, 6, 3
    x = te.placeholder((n,), F64, name="x")
    y = te.compute((out,), lambda i: te.sum(lambda r: x.read(i + 2 * r - 4, outside=mode), k), name="y")
    check(y, [x], {"x": out * k})


@pytest.mark.parametrize("k,s", [(2, 2), (3, 2), (3, 1), (2, 3)])
def test_average_pool(k, s):
    n, out = 11, (11 - k) // s + 1
    x = te.placeholder((2, n, n), F64, name="x")
    y = te.compute((2, out, out), lambda c, i, j: te.sum(lambda r, t: x[c, s * i + r, s * j + t], (k, k)), name="y")
    check(y, [x], {"x": 2 * (out * k) ** 2})


@pytest.mark.parametrize("k,s", [(2, 2), (3, 2), (3, 1)])
def test_maximum_pool_sends_to_the_first_winner(k, s):
    n, out = 7, (7 - k) // s + 1
    x = te.placeholder((n, n), F64, name="x")
    y = te.compute((out, out), lambda i, j: te.max(lambda r, t: x[s * i + r, s * j + t], (k, k)), name="y")
    head = head_of(y)
    gradient = te.gradient(y, [x], head=head)
    row = row_of(gradient, "x")
    assert row.iterations == row.reads == (out * k) ** 2
    assert not scatters(program_of(list(gradient)))
    data, weights = integers(x, 3), integers(head, 4)  # integers collide: ties are part of the test
    expected = np.zeros_like(data)
    for i, j in np.ndindex(out, out):
        window = data[s * i : s * i + k, s * j : s * j + k]
        r, t = np.unravel_index(np.argmax(window), window.shape)
        expected[s * i + r, s * j + t] += weights[i, j]
    np.testing.assert_array_equal(te.evaluate(gradient[0], {x: data, head: weights}), expected)


CASES = {
    "transpose": ((4, 5), (5, 4), lambda x: lambda i, j: x[j, i]),
    "reversal": ((6,), (6,), lambda x: lambda i: x[5 - i]),
    "shift": ((6,), (4,), lambda x: lambda i: x[i + 1]),
    "diagonal": ((5, 5), (5,), lambda x: lambda i: x[i, i]),
    "broadcast": ((5,), (3, 5), lambda x: lambda i, j: x[j]),
    "flatten": ((3, 4, 5), (60,), lambda x: lambda f: x[f // 20, f // 5 % 4, f % 5]),
    "unflatten": ((60,), (3, 4, 5), lambda x: lambda i, j, k: x[20 * i + 5 * j + k]),
    "truncating reshape": ((50,), (4, 8), lambda x: lambda i, j: x[8 * i + j]),
    "other radices": ((5, 6), (3, 10), lambda x: lambda i, j: x[(10 * i + j) // 6, (10 * i + j) % 6]),
    "space to depth": ((4, 6), (2, 3, 4), lambda x: lambda i, j, c: x[2 * i + c // 2, 2 * j + c % 2]),
    "pixel shuffle": ((4, 2, 3), (4, 6), lambda x: lambda i, j: x[i % 2 * 2 + j % 2, i // 2, j // 2]),
    "upsample": ((4,), (9,), lambda x: lambda i: x[te.minimum(i // 2, 3)]),
    "roll": ((7,), (7,), lambda x: lambda i: x[(i + 3) % 7]),
    "tile": ((3,), (8,), lambda x: lambda i: x[i % 3]),
    "subsample": ((10,), (4,), lambda x: lambda i: x[3 * i]),
    "skew": ((9,), (3, 3), lambda x: lambda i, j: x[2 * i + j + 1]),
    "coprime": ((20,), (4, 4), lambda x: lambda i, j: x[3 * i + 2 * j]),
    "two systems": ((9, 7), (4, 4), lambda x: lambda i, j: x[i + j, i + j // 2]),
    "anti-diagonal band": ((6,), (4, 3), lambda x: lambda i, j: x[i - j + 2]),
    "absolute value": ((5,), (9,), lambda x: lambda i: x[abs(i - 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts(name):
    shape, out, body = CASES[name]
    x = te.placeholder(shape, F64, name="x")
    y = te.compute(out, body(x), name="y")
    check(y, [x], {"x": int(np.prod(out))})


def test_guards_are_part_of_the_count():
    x = te.placeholder((6,), F64, name="x")
    y = te.compute((6, 6), lambda i, j: te.where((i > j) | (i + j == 2), x[i], 0.0), name="y")
    check(y, [x], {"x": count_reads((6, 6), lambda i, j: i > j or i + j == 2)})


def test_triangular_sums():
    x = te.placeholder((6, 6), F64, name="x")
    y = te.compute((6,), lambda i: te.sum(lambda k: x[i, k] + x[k, i - k], i + 1), name="y")
    head = head_of(y)
    rows = gather_of(y, [x], head).report().rows
    assert [(row.iterations, row.reads) for row in rows] == [(21, 21), (21, 21)]


def test_several_reads_cost_their_sum():
    a = te.placeholder((10, 10), F64, name="a")
    y = te.compute((10, 10), lambda i, j: a[i, j] + a[j, i], name="y")
    rows = gather_of(y, [a], head_of(y)).report().rows
    assert [(row.lowering, row.iterations, row.reads) for row in rows] == [("substitute", 100, 100)] * 2
    shared = te.compute((10, 10), lambda i, j: (lambda e: e * 2.0 + e)(a[i, j]), name="shared")
    (row,) = te.gradient(shared, [a], head=head_of(shared)).report().rows
    assert row.reads == 100


def test_every_affine_access_of_small_coefficients():
    n, m, k = 3, 4, 2

    def row(a, b, c):
        low = min(0, a * (n - 1)) + min(0, b * (m - 1))
        size = max(0, a * (n - 1)) + max(0, b * (m - 1)) + c * (k - 1) - low + 1
        x = te.placeholder((size,), F64, name="x")
        y = te.compute((n, m), lambda i, j: te.sum(lambda r: x[a * i + b * j + c * r - low], k), name="y")
        return row_of(te.gradient(y, [x], head=head_of(y)), "x")

    for a, b, c in itertools.product(range(-2, 4), range(-2, 3), (0, 1, 3)):
        found = row(a, b, c)
        assert found.iterations == found.reads == n * m * k, (a, b, c)


def test_reshapes_with_symbolic_extents():
    c, h, w = te.dim("c"), te.dim("h"), te.dim("w")
    image, flat = te.placeholder((c, h, w), F64, name="x"), te.placeholder((c * h * w,), F64, name="x")
    cases = (
        (image, (c * h * w,), lambda f: image[f // (h * w), f // w % h, f % w]),
        (image, (h * w, c), lambda f, k: image[k, f // w, f % w]),
        (flat, (c, h, w), lambda i, j, k: flat[(i * h + j) * w + k]),
        (flat, (h, w), lambda j, k: te.where(c > 0, flat[j * w + k], 0.0)),
    )
    for x, shape, body in cases:
        y = te.compute(shape, body, name="y")
        head = head_of(y)
        (row,) = te.gradient(y, [x], head=head).report().rows
        assert row.lowering == "reshape"
        assert row.reads(c=2, h=3, w=5) == (30 if y.ndim != 2 or shape[1] is c else 15)
        sizes = {"c": 2, "h": 3, "w": 5}
        data = np.arange(30.0)[: 15 if len(shape) == 2 and shape[1] is not c else 30]
        weights = data.reshape([int(te.evaluate(te.compute((), lambda e=e: te.cast(e, "int64")), sizes=sizes)) for e in shape])
        gathered, forced = (te.gradient(y, [x], head=head, lowering=form)[0] for form in (None, "segments"))
        assert not scatters(program_of([gathered]))
        np.testing.assert_array_equal(te.evaluate(gathered, {head: weights}, sizes), te.evaluate(forced, {head: weights}, sizes))


def test_loops_bounded_by_data():
    x, lengths = te.placeholder((4,), F64, name="x"), te.placeholder((4,), "int64", name="lengths")
    y = te.compute((4,), lambda i: te.sum(lambda k: x[i] * te.cast(k, F64), lengths[i]), name="y")
    head = head_of(y)
    gradient = te.gradient(y, [x], head=head)
    (row,) = gradient.report().rows
    assert row.lowering == "substitute" and "by data" in str(gradient.report())
    assert row.iterations(lengths=np.array([2, 0, 3, 1])) == row.reads(lengths=np.array([2, 0, 3, 1])) == 6
    data = {head: np.array([1.0, 2.0, 3.0, 4.0]), lengths: np.array([0, 1, 3, 4])}
    np.testing.assert_array_equal(te.evaluate(gradient[0], data), data[head] * np.array([0, 0, 3, 6]))


def test_symbolic_sizes_give_formulas():
    n = te.dim("n")
    x, w = te.placeholder((n,), F64, name="x"), te.placeholder((3,), F64, name="w")
    y = te.compute((n,), lambda i: te.sum(lambda r: x.read(i + 2 * r - 2, outside=0.0) * w[r], 3), name="y")
    row = row_of(te.gradient(y, [x], head=head_of(y)), "x")
    for size in (0, 1, 2, 5, 9):
        expected = count_reads((size, 3), lambda i, r, n=size: 0 <= i + 2 * r - 2 < n)
        assert row.reads(n=size) == row.iterations(n=size) == expected


PLACES = {
    "last": lambda x, i, n: te.where(n >= 1, te.where(n <= 5, x[n - 1], 0.0), 0.0),
    "from the end": lambda x, i, n: te.where(n - 1 - i >= 0, te.where(n - 1 - i < 5, x[n - 1 - i], 0.0), 0.0),
    "at a border": lambda x, i, n: x.read(n - i, outside="reflect"),
    "far around": lambda x, i, n: x.read(2 * n + 3 * i, outside="wrap"),
    "in a sum": lambda x, i, n: te.sum(lambda k: x.read(n - k - i, outside=0.0), 4),
}


@pytest.mark.parametrize("place", PLACES)
def test_places_by_the_size_of_another_tensor(place):
    """No extent of the element or of a loop mentions the size: the index alone does."""
    n = te.dim("n")
    x, other = te.placeholder((5,), F64, name="x"), te.placeholder((n,), F64, name="other")
    y = te.compute((3,), lambda i: PLACES[place](x, i, n), name="y")
    head, again = head_of(y), te.placeholder((5,), F64, name="again")
    (found,) = te.gradient(y, [x], head=head)
    (forced,) = te.gradient(y, [x], head=head, lowering="segments")
    (second,) = te.gradient([found], [head], [again])
    (output, back) = te.build([y, second], [x, head, again, other]), te.build([found, forced], [x, head, other])
    rng = np.random.default_rng(0)
    for size in range(9):
        given, heads, rest = rng.integers(-4, 5, 5).astype(F64), rng.integers(-4, 5, 3).astype(F64), np.zeros(size)
        want = np.array([(output(unit, heads, given, rest)[0] * heads).sum() for unit in np.eye(5)])
        for one in back(given, heads, rest):
            np.testing.assert_array_equal(one, want)
        np.testing.assert_array_equal(output(given, heads, given, rest)[1], output(given, heads, given, rest)[0])


def overlapping(kind):
    """A read of one object under conditions that overlap, in a point, in loops, behind data; and at how many points one of them holds."""
    x, m = te.placeholder((12,), F64, name="x"), te.placeholder((10,), F64, name="m")

    def point(i):
        read = x[i]
        return te.where(i < 6, read * 2.0, 0.0) + te.where(i >= 4, read * 3.0, 0.0) + te.where(i % 2 == 0, read * m[i], 0.0)

    def loop(i):
        def inner(k):
            read = x[i + k]
            return te.where(i + 2 * k < 9, read * 2.0, 0.0) + te.where(k >= i - 4, read * m[k], 0.0)

        return te.sum(inner, 3)

    def behind(i):
        def inner(k):
            read = x[k]
            return te.where((i + k < 6) & (m[i] > 0.0), read * 2.0, 0.0) + te.where((k >= 2 * i) & (m[k] < 1.0), read * m[k], 0.0)

        return te.sum(inner, 10)

    bodies = {
        "point": (point, (10,), lambda i: True),
        "loop": (loop, (10, 3), lambda i, k: i + 2 * k < 9 or k >= i - 4),
        "behind": (behind, (10, 10), lambda i, k: i + k < 6 or k >= 2 * i),
    }
    body, extents, either = bodies[kind]
    return te.compute((10,), body, name="y"), x, m, count_reads(extents, either)


@pytest.mark.parametrize("kind", ["point", "loop", "behind"])
def test_one_object_under_conditions_that_overlap_is_read_and_visited_once(kind):
    y, x, m, expected = overlapping(kind)
    head = head_of(y)
    gradient = te.gradient(y, [x], head=head)
    row = row_of(gradient, "x")
    assert row.reads == row.iterations == expected
    arrays = {t: integers(t, seed) for seed, t in enumerate((x, m, head))}
    by_hand = by_unit_vectors(y, x, arrays, arrays[head])
    np.testing.assert_array_equal(te.evaluate(gradient[0], arrays), by_hand)
    np.testing.assert_array_equal(te.evaluate(te.gradient(y, [x], head=head, lowering="segments")[0], arrays), by_hand)


def test_reads_of_one_text_under_different_conditions_have_rows_of_their_own():
    """One row per read as written; a read that is one object counts once, also under conditions that overlap."""
    a, head = te.placeholder((10,), "float64", name="A"), te.placeholder((10,), "float64", name="H")

    def once(i):
        read = a[i]
        return read * 2.0 + te.where(i >= 2, read * 3.0, 0.0)

    def branches(i):
        return te.where(i < 3, te.where(i > 1, a[i], 0.0) + a[i] * 2.0, a[i] * 3.0) * a[i]

    bodies = {
        lambda i: a[i] * 2.0 + te.where(i >= 2, a[i] * 3.0, 0.0): [10, 8],
        lambda i: te.where(i < 3, a[i] * 2.0, a[i] * 3.0): [3, 7],
        lambda i: te.where((i < 3) | (i > 7), a[i] * 2.0, a[i] * 3.0): [5, 5],
        lambda i: te.sum(lambda k: te.where(k < i, a[i], a[k]) + te.where(k > i, a[k], 0.0), 10): [45, 55, 45],
        once: [10],
        branches: [10, 3, 1, 7],
    }
    for body, reads in bodies.items():
        y = te.compute((10,), body, name="y")
        gradient = te.gradient(y, [a], head)
        assert sorted(row.reads for row in gradient.report().rows) == sorted(reads)
        assert all(row.iterations == row.reads for row in gradient.report().rows)
        second = te.gradient(te.compute((), lambda g=gradient[0]: te.sum(lambda i: te.sin(g[i]), 10)), [head])
        assert all(row.iterations == row.reads for row in second.report().rows)
