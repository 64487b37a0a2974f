"""What a search found at other sizes: it is taken again where it is as good, else searched for anew; results stay what they are."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.candidate import Call
from tensorexpr.codegen.auto.search import contest, earlier
from tensorexpr.codegen.auto.search.earlier import Choice, Earlier
from tensorexpr.codegen.compiled import versions
from tensorexpr.kernels import softmax as softmax_kernel

RNG = np.random.default_rng(3)


def softmax(n, m):
    x = te.placeholder((n, m), name="x")
    return softmax_kernel(x), [x]


def softmax_of(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.fixture
def searches(monkeypatch):
    """Counts the searches that begin, of which also short ones are taken again."""
    monkeypatch.setattr(earlier, "LONG", 0.0)
    begun, searched = [], contest.searched

    def counted(program, facts):
        begun.append(program)
        return searched(program, facts)

    monkeypatch.setattr(contest, "searched", counted)
    return begun


def test_versions_of_like_sizes_take_what_the_first_one_found(searches):
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n, m in ((300, 1023), (290, 801), (400, 301)):
        x = RNG.standard_normal((n, m)).astype(np.float32)
        np.testing.assert_allclose(f(x), softmax_of(x), rtol=2e-5)
        assert f.at(n=n, m=m) is not f
    assert len(searches) == 1


def test_short_searches_are_made_anew(searches, monkeypatch):
    monkeypatch.setattr(earlier, "LONG", 1e9)
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n, m in ((303, 1024), (291, 802)):
        x = RNG.standard_normal((n, m)).astype(np.float32)
        np.testing.assert_array_equal(f(x), te.build(*softmax(n, m))(x))
    assert len(searches) == 3  # code of the first version is that of fixed sizes


def test_versions_of_other_sizes_are_those_of_fixed_ones():
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n, m in ((300, 1023), (9, 30_000), (30_000, 9)):
        x = RNG.standard_normal((n, m)).astype(np.float32)
        np.testing.assert_array_equal(f(x), te.build(*softmax(n, m))(x))


def test_what_other_versions_took_is_what_they_show(searches):
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n in (301, 203):
        f(np.ones((n, 1023), np.float32))
    shown = f.at(n=203, m=1023).source("nest")
    assert "[203, 1023]" in shown and len(searches) == 1
    assert shown == f.at(n=203, m=1023).source("nest")


def test_a_function_of_fixed_sizes_is_searched_for_by_itself(searches):
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n in (302, 205):
        f(np.ones((n, 1021), np.float32))
    te.build(*softmax(205, 1021))
    assert len(searches) == 2


@pytest.mark.parametrize("sizes", [(1, 4_000), (7, 3_000), (33, 901), (300, 101), (4_000, 7), (5, 0)])
def test_values_where_sizes_differ_much(sizes, monkeypatch):
    monkeypatch.setattr(versions, "WORTH", 0)
    monkeypatch.setattr(earlier, "LONG", 0.0)
    f = te.build(*softmax(te.dim("n"), te.dim("m")))
    for n, m in ((64, 100), sizes, tuple(2 * n for n in sizes)):
        x = RNG.standard_normal((n, m)).astype(np.float32)
        np.testing.assert_allclose(f(x), softmax_of(x) if m else x, rtol=2e-5)


def test_how_good_a_choice_is_elsewhere():
    choice = Choice(None, 100.0, (50.0, 1000.0))
    assert choice.is_as_good(100.0, (50.0, 1000.0))
    assert choice.is_as_good(54.0, (5.0, 500.0)) and choice.is_as_good(54.0, (25.0, 50.0))
    assert not choice.is_as_good(56.0, (25.0, 500.0))


def test_calls_that_are_not_legal_make_nothing():
    program = te.program_of([softmax(64, 65)[0]])
    assert Choice((Call("split", ("no loop", 4)),), 1.0, (1.0, 1.0)).at(program) == []
    assert Choice(None, 1.0, (1.0, 1.0)).at(program) == [] and Earlier().of(program) == []
