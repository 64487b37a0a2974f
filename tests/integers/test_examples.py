"""Shapes every tensor program has, worked by hand: flatten, windows, strides, triangles, diagonals; and their texts."""

from __future__ import annotations

import pytest

from tensorexpr.errors import DefinitionError, TensorExprError
from tensorexpr.integers import Affine, Domain, DomainTooComplex, Union, eq, ge, le, lt
from tensorexpr.integers.sets import elimination, projection

i, j, k, n, o, u, v, x, y = (Affine.of(name) for name in "ijknouvxy")


def texts(loops):
    return [str(loop) for loop in loops]


def test_flatten_is_inverted_by_division():
    flat = Domain.box({"x": (0, 28), "i": (0, 4), "j": (0, 7)}).constrain(eq(x, 7 * i + j))
    assert texts(flat.loops(["x", "i", "j"])) == ["for x in range(0, 28)", "i = x//7", "j = x - 7*i"]
    assert {name: str(value) for name, value in flat.determine(["i", "j"]).items()} == {"i": "x//7", "j": "x % 7"}
    assert str(flat.project_out(["i", "j"])) == "{ [x] : 0 <= x < 28 }"
    assert str(flat.defined("x")) == "7*i + j"


def test_flatten_with_a_symbolic_extent():
    flat = Domain.box({"x": (0, 7 * n), "i": (0, n), "j": (0, 7)}, ["n"]).constrain(eq(x, 7 * i + j))
    assert texts(flat.loops(["x", "i", "j"])) == ["for x in range(0, 7*n)", "i = x//7", "j = x - 7*i"]
    assert str(flat.project_out(["i", "j"])) == "[n] -> { [x] : 0 <= x < 7*n }"


def test_unflatten_is_inverted_by_multiplication():
    box = Domain.box({"x": (0, 6000), "c": (0, 12), "h": (0, 20), "w": (0, 25)})
    split = box.constrain(eq("c", x // 500), eq("h", x // 25 % 20), eq("w", x % 25))
    assert {name: str(value) for name, value in split.determine(["x"]).items()} == {"x": "500*c + 25*h + w"}
    assert split.project_out(["x"]).is_equal(Domain.box({"c": (0, 12), "h": (0, 20), "w": (0, 25)}))
    assert split.count() == 6000


def test_strided_dilated_window_is_gathered_once():
    """Kernel 3, stride 3, dilation 2: each input is read at most once, and the inverse is quasi-affine."""
    window = Domain.box({"i": (0, 26), "o": (0, 8), "k": (0, 3)}).constrain(eq(i, 3 * o + 2 * k))
    inverse = window.determine(["o", "k"])
    assert {name: str(value) for name, value in inverse.items()} == {"o": "i - 2*((i + 2)//3)", "k": "2 - (i + 2) % 3"}
    two = Domain.box({"i": (0, 8), "o": (0, 2), "k": (0, 3)}).constrain(eq(i, 3 * o + 2 * k))
    for point in two.points():
        assert point["o"] == point["i"] % 2 and point["k"] == 3 * (point["i"] // 2) - point["i"]
    reached = window.project_out(["o", "k"]).single()
    assert [point["i"] for point in reached.points()] == sorted({3 * a + 2 * b for a in range(8) for b in range(3)})
    assert Domain.box({"o": (0, n), "k": (0, 3)}, ["n"]).is_injective({"i": 3 * o + 2 * k})
    assert not Domain.box({"o": (0, n), "k": (0, 3)}, ["n"]).is_injective({"i": 2 * o + k})


def test_window_gradient_has_exact_non_rectangular_loops():
    window = Domain.box({"i": (0, 2 * n + 1), "o": (0, n), "k": (0, 3)}, ["n"]).constrain(eq(i, 2 * o + k))
    assert texts(window.loops(["i", "o", "k"])) == [
        "for i in range(0, 2*n + 1)",
        "for o in range(max(0, (i + 1)//2 - 1), min(n, i//2 + 1))",
        "k = i - 2*o",
    ]
    assert texts(window.loops(["o", "k", "i"])) == ["for o in range(0, n)", "for k in range(0, 3)", "i = k + 2*o"]
    assert window.count(n=10) == 30


def test_triangles_and_diagonals():
    triangle = Domain(["i", "j"], [ge(i, 0), le(i, j), lt(j, n)], ["n"])
    assert texts(triangle.loops(["j", "i"])) == ["for j in range(0, n)", "for i in range(0, j + 1)"]
    assert str(triangle.project_out(["i"])) == "[n] -> { [j] : 0 <= j < n }"
    assert str(triangle.bounds("i")) == "for i in range(0, j + 1)"
    assert str(triangle.bounds("i", inner=["j"])) == "for i in range(0, n)"
    diagonal = Domain.box({"x": (0, n), "y": (0, n), "i": (0, n)}, ["n"]).constrain(eq(x, i), eq(y, i))
    assert str(diagonal.project_out(["i"])) == "[n] -> { [x, y] : 0 <= x < n and x == y }"
    assert str(diagonal.defined("i")) in ("x", "y")


def test_strided_rows_leave_congruences():
    strided = Domain.box({"x": (0, 100), "i": (0, 9)}).constrain(eq(x, 4 * i + 3))
    assert str(strided.project_out(["i"])) == "{ [x] : 3 <= x < 36 and x % 4 == 3 }"
    assert texts(strided.loops(["x", "i"])) == ["for x in range(3, 36) if x % 4 == 3", "i = (x + 1)//4 - 1"]
    window = Domain.box({"i": (0, n), "k": (0, 2)}, ["n"]).image({"x": 3 * i + k}).single()
    assert window.implies(le(x % 3, 1)) and window.count(n=5) == 10


def test_reflection_and_clamping_by_pieces():
    rows = Domain.box({"i": (-2, 10)})
    left, inside = rows.constrain(lt(i, 0)).image({"x": -i}), rows.constrain(ge(i, 0)).image({"x": i})
    assert left.is_subset(inside) and str(inside) == "{ [x] : 0 <= x < 10 }"


def test_difference_and_union_of_boxes():
    outer, hole = Domain.box({"i": (0, 10), "j": (0, 10)}), Domain.box({"i": (3, 5), "j": (4, 7)})
    ring = outer.subtract(hole)
    assert ring.count() == 94 and len(ring.pieces) == 4
    assert ring.union(hole).is_equal(outer) and ring.intersect(hole).is_empty()
    assert list(ring.points()) == [point for point in outer.points() if not hole.contains(point)]
    assert str(outer.subtract(outer)) == "{ [i, j] : false }" and outer.subtract(outer).sample() is None
    assert ring.sample() == {"i": 0, "j": 0} and not ring.contains({"i": 3, "j": 4})
    assert outer.subtract(ring).is_equal(hole) and outer.is_equal(ring.union(hole))
    assert hole.is_disjoint(ring) and hole.is_subset(ring.union(hole))


def test_sets_are_values():
    a = Domain(["i"], [ge(i, 0), lt(i, n), ge(i, -3)], ["n"])
    b = Domain(["i"], [lt(i, n), ge(2 * i, -1)], ["n"])
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert str(a) == "[n] -> { [i] : 0 <= i < n }"
    assert Domain(["i"], [ge(i, 3), le(i, 2)]) == Domain.empty(["i"])
    assert Domain(["i"], [ge(i, 3), eq(i, 2)]) == Domain.empty(["i"])
    assert Domain(["i"], [eq(i, 3), eq(i, 2)]) == Domain.empty(["i"])
    assert Domain(["i"], [ge(i, 3), le(i, 3)]).constraints == (eq(i, 3),)
    assert Domain(["i"], [ge(i, 0), eq(i, 2)]).constraints == (eq(i, 2),)
    assert str(Domain(["i", "j"])) == "{ [i, j] }" and str(Domain.empty(["i"])) == "{ [i] : false }"
    assert a.rename({"i": "z", "n": "m"}) == Domain.box({"z": (0, "m")}, ["m"])
    assert a.with_sizes(n=4) == Domain.box({"i": (0, 4)})
    assert a.constrain() is a and a.intersect([lt(i, 3)]).count(n=9) == 3
    assert str(Domain.box({"i": (0, n)}, ["n"]).intersect(Domain([], [ge("m", 2)], ["m"]))) == "[n, m] -> { [i] : 0 <= i < n and m >= 2 }"
    assert a.subtract(b).is_equal(Union(("i",), (), ("n",)))
    assert not a.is_equal(Domain(["j"])) and not Union(("i",), ()).is_equal(Domain(["j"]))


def test_ranges():
    box = Domain.box({"i": (0, 10), "j": (0, n)}, ["n"])
    assert box.range(2 * i - 3) == (-3, 15) and box.range(i - j) == (None, 9) and box.range("n") == (1, None)
    assert Domain.empty(["i"]).range("i") == (None, None)
    assert Domain(["i"], [eq(i % 3, 1), le(i, 9)]).range(i) == (None, 7)
    assert Domain(["i"], [eq(3 * i, 2 * n), ge(n, 1), le(n, 100)], ["n"]).range(i) == (2, 66)
    assert box.range((i + 1) // 4) == (0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Domain(["i"], [ge(j, 0)]), "expected a constraint over i, got the name 'j'"),
        (lambda: Domain([], [ge(j, 0)]), "expected a constraint over no names, got the name 'j'"),
        (lambda: Domain(["i"], (), ["i"]), "expected distinct names for dims and sizes, got 'i' twice"),
        (lambda: Domain(["i"]).intersect(Domain(["j"])), "expected a domain over i, got one over j"),
        (lambda: Domain(["i"]).subtract(Domain(["j"])), "expected a set over i, got one over j"),
        (lambda: Domain(["i"]).project_out(["j"]), "expected a dim among i, got 'j'"),
        (lambda: Domain(["i", "j"]).loops(["i"]), "expected an order of the dims i, j, got i"),
        (lambda: Domain(["i"]).preimage({}, ["o"]), "expected a value for every dim, got none for 'i'"),
        (lambda: Domain(["i"], [], ["n"]).count(), "expected a value for every size, got none for 'n'"),
        (lambda: Domain(["i"], [], ["n"]).count(m=1), "expected sizes among n, got 'm'"),
        (lambda: Domain(["i"], [ge(i, 0)]).count(), "expected a bounded domain to count, got infinitely many points"),
        (lambda: next(Domain(["i"], [ge(i, 0)]).points()), "expected bounds on both sides of i, got for i in range(0, inf)"),
        (lambda: Domain.box({"i": (0, 5)}).subtract(Domain.box({"i": (2, 3)})).single(), "expected one piece, got 2"),
    ],
)
def test_messages(call, message):
    with pytest.raises(DefinitionError) as caught:
        call()
    assert caught.value.message == message


def test_results_beyond_the_caps_are_refused(monkeypatch):
    assert issubclass(DomainTooComplex, TensorExprError)
    scattered = [Domain(["x"], [eq(x, 2 * at)]) for at in range(101)]
    with pytest.raises(DomainTooComplex, match="expected a union of at most 100 disjoint pieces, got more"):
        Union.disjoint(["x"], scattered)
    strip = Domain("uvx", [ge(19 * u, 17 * v + x), le(19 * u, 17 * v + x + 9), ge(13 * u + 11 * v, x), le(13 * u + 11 * v, x + 9)])
    monkeypatch.setattr(projection, "_MOST_PIECES", 3)
    with pytest.raises(DomainTooComplex, match="expected a projection of at most 3 pieces, got more"):
        strip.project_out(["u", "v"])
    monkeypatch.setattr(elimination, "_MOST_ROWS", 3)
    with pytest.raises(DomainTooComplex, match="expected at most 3 constraints in a projection, got 4"):
        strip.hull_without(["u"])
