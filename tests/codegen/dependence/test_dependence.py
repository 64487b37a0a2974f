"""What the dependences of small nests are: their order and kind, updates, data, and what rewrites may do."""

import pytest

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.dependence.nests import element
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.errors import InternalError

HEAD = """
main(n, m, A, B, ids)
n: size
m: size
A: parameter(f32[n + 8, m + 8], written)
B: parameter(f32[n + 8], written)
ids: parameter(i64[n])

def kernel_0() -> (A, B):
"""


def made(body):
    """The dependences of a nest, and its statements."""
    nest = parse_nest(HEAD + body)
    return dependences(nest), nest.kernels[0].body


def shown(conflicts):
    return [(c.kind, element(c.first), element(c.second), c.carrier and c.carrier.index, c.order) for c in conflicts]


STENCIL = """
    for i in range(1, n):
        for j in range(1, m):
            A[i, j] = A[i - 1, j + 1] + 1.0
"""


def test_conflicts_have_an_order_and_a_kind():
    deps, (loop,) = made(STENCIL)
    assert shown(deps.between(loop, loop)) == [("flow", "A[i, j]", "A[i - 1, j + 1]", "i", ("<", "*"))]
    (found,) = deps.carried(loop)
    assert str(found) == "A[i, j] and A[i - 1, j + 1] meet in iterations of i at n = 3, m = 3, i = 1, j = 2, i' = 2, j' = 1 (flow)"
    assert not list(deps.carried(loop.body[0]))


def test_loops_change_places_where_no_conflict_is_turned_around():
    deps, (loop,) = made(STENCIL)
    refused = deps.may_swap(loop, loop.body[0])
    assert not refused and refused.obstacle.is_certain and str(refused).startswith("A[i, j] and A[i - 1, j + 1] meet in iterations of i")
    deps, (loop,) = made(STENCIL.replace("j + 1", "j - 1"))
    assert deps.may_swap(loop, loop.body[0]) and str(deps.may_swap(loop, loop.body[0])) == "allowed"
    deps, (loop,) = made(
        """
    for i in range(1, n):
        for k in range(0, 4):
            for j in range(1, m):
                A[i, j] = A[i - 1, j + 1] + 1.0
"""
    )
    k, j = loop.body[0], loop.body[0].body[0]
    assert not deps.may_swap(loop, j) and not deps.may_reorder([loop, k, j], [j, k, loop])
    assert not deps.may_reorder([loop, k], [k, loop])  # the last round of k is the one that stays
    assert not deps.may_run_in_any_order(k) and deps.may_run_in_any_order(j)


def test_updates_may_change_places_where_who_asks_says_so():
    deps, (loop, other) = made(
        """
    for i in range(0, n):
        for k in range(0, 8):
            B[i] = B[i] + A[i, k]
            B[i] = where(A[i, k] > 0.0, B[i] - 1.0, B[i])
    for k in range(0, 8):
        B[0] = maximum(A[k, 0], B[0])
        B[0] = B[0] + 1.0
"""
    )
    k = loop.body[0]
    assert deps.may_run_in_any_order(loop) and not deps.may_run_in_any_order(k) and deps.may_run_in_any_order(k, updates=True)
    assert {c.update for c in deps.carried(k)} == {"add"} and deps.may_swap(loop, k)
    assert not deps.may_run_in_any_order(other, updates=True)  # a maximum and a sum
    assert {c.update for c in deps.carried(other)} == {"maximum", "add", None}


@pytest.mark.parametrize(
    ("value", "update"),
    [
        ("B[i] * 2.0", "mul"),
        ("1.0 + (B[i] + 1.0)", "add"),
        ("1.0 - B[i]", None),
        ("B[i] + B[i]", None),
        ("B[i] * 2.0 + 1.0", None),
        ("B[i] + B[i + 1]", None),
        ("where(B[i] > 0.0, B[i] + 1.0, B[i])", None),
        ("A[i, k]", None),
    ],
)
def test_what_an_update_is(value, update):
    deps, (loop,) = made(f"    for i in range(0, n):\n        for k in range(0, 4):\n            B[i] = {value}\n")
    assert update in {c.update for c in deps.carried(loop.body[0])}


def test_loops_run_as_one_where_nothing_is_overtaken():
    body = """
    for i in range(0, n):
        B[i] = 1.0
    for j in range(0, n):
        A[j, 0] = B[{}]
"""
    for place, shift, allowed in (("j", 0, True), ("j - 1", 0, True), ("j + 1", 0, False), ("j + 1", 1, True), ("j + 2", 1, False)):
        deps, (first, second) = made(body.format(place).replace("range(0, n):\n        A", "range(1, n - 2):\n        A"))
        found = deps.may_fuse(first, second, shift)
        assert bool(found) == allowed, (place, shift, str(found))
        assert bool(found) or found.obstacle.kind == "flow"


def test_statements_change_places_where_nothing_in_them_conflicts():
    deps, (loop,) = made(
        """
    for i in range(0, n):
        B[i] = 1.0
        A[i, 0] = B[i + 1]
        A[i, 1] = B[i]
"""
    )
    one, two, three = loop.body
    assert deps.may_move(one, two) and not deps.may_move(one, three) and not deps.may_move(one, (two, three)) and deps.may_move(three, two)


def test_buffers_that_are_made_anew_do_not_conflict():
    deps, (loop,) = made(
        """
    for i in range(0, n):
        t: local(f32[4])
        for v in range(0, 4):
            t[v] = 1.0
        for v in range(0, 4):
            A[i, v] = t[v]
"""
    )
    assert deps.may_run_in_any_order(loop)
    first, second = loop.body[0].body
    assert shown(deps.between(first, second)) == [("flow", "t[v]", "t[v]", None, ("=",))] and deps.may_fuse(first, second)


def test_data_is_equal_to_itself():
    deps, (first, second, third) = made(
        """
    for i in range(0, n):
        if ids[i] >= 3:
            B[i] = 1.0
    for i in range(0, n):
        if ids[i] < 3:
            B[i] = 2.0
    for i in range(0, n):
        A[ids[i], i] = A[ids[i], i] + 1.0
"""
    )
    assert not list(deps.between(first, second)) and deps.may_run_in_any_order(third)
    deps, (loop,) = made("    for i in range(0, n):\n        B[ids[i]] = 1.0\n")
    (found,) = deps.carried(loop)
    assert str(found) == "B[ids[i]] may meet in iterations of i (output)" and not found.is_certain


def test_statements_are_those_of_the_nest():
    deps, _ = made(STENCIL)
    _, (loop,) = made(STENCIL)
    with pytest.raises(InternalError, match="expected a loop of the nest, got another one over i"):
        deps.may_run_in_any_order(loop)
    with pytest.raises(InternalError, match="expected statements of the nest, got others"):
        list(deps.between(loop, loop))
