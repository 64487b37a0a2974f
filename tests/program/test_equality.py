"""Equality of nodes: structural, by bits, cheap for shared subtrees and for programs that are compared again and again."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError
from tensorexpr.ir import TRUE, Access, Axis, Combiner, Const, Index, Reduce, apply, const
from tensorexpr.traversal import walk


def doubled(depth: int, leaf: int = 0):
    """A sum with 2 ** depth leaves in `depth` nodes."""
    expr = apply("add", Index("i"), const(leaf))
    for _ in range(depth):
        expr = apply("add", expr, expr)
    return expr


def test_shared_subtrees_are_compared_once():
    assert doubled(200) == doubled(200)
    assert doubled(200) != doubled(200, leaf=1)
    assert doubled(200) != doubled(199)


def test_equality_that_was_found_is_remembered_and_transitive():
    first, second, third = doubled(8), doubled(8), doubled(8)
    assert first == second
    assert second == third
    assert third == first
    assert len({first, second, third}) == 1


def test_a_failed_comparison_leaves_no_mark():
    left = apply("mul", doubled(3), const(1))
    right = apply("mul", doubled(3), const(2))
    assert left != right
    assert left.args[1] != right.args[1]
    assert left.args[0] == right.args[0]


@pytest.mark.parametrize("make", [copy.copy, lambda node: pickle.loads(pickle.dumps(node))])
def test_what_was_copied_or_kept_has_the_same_hash(make):
    i = Index("i")
    read = Access("x", (i,), dtypes.float32)
    total = Reduce(Combiner("sum"), (read,), (Axis("i", const(0), const(4)),))
    for node in (i, read, apply("add", read, read), total, total.axes[0]):
        again = make(node)
        assert hash(again) == hash(node)
        assert again == node


def test_what_is_known_of_an_operation_hides_no_error():
    i, x = Index("i"), Access("x", (), dtypes.float32)
    assert apply("add", i, i).dtype is dtypes.int64
    assert apply("lt", i, i).dtype is dtypes.bool_
    for args in ((), (i,), (i, x), (i, i, i), (TRUE, TRUE)):
        with pytest.raises(DefinitionError):
            apply("add", *args)


def test_floats_compare_by_bits():
    assert Const(0.0, dtypes.float32) != Const(-0.0, dtypes.float32)
    assert Const(float("nan"), dtypes.float32) == Const(float("nan"), dtypes.float32)
    assert Const(1, dtypes.int64) != Const(1.0, dtypes.float64)
    assert Const(1, dtypes.int64) != 1


def test_threads_that_compare_at_once_agree():
    copies = [doubled(12) for _ in range(8)]
    failed = []

    def compare(offset: int) -> None:
        for i in range(len(copies)):
            if copies[(i + offset) % 8] != copies[(i * 3 + 1) % 8]:
                failed.append(i)

    threads = [threading.Thread(target=compare, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not failed
    assert all(not thread.is_alive() for thread in threads)
    assert len(list(walk(doubled(3)))) == 2**4 - 1 + 2 * 2**3
