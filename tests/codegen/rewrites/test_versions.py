"""A nest in two forms, one for large sizes and one for all others: what it computes at every size, and what is refused."""

from __future__ import annotations

from copy import copy

import pytest

from tensorexpr.codegen.auto.machine import ZEN_4
from tensorexpr.codegen.auto.search.forms import in_two_forms
from tensorexpr.codegen.nest import If
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.kernels import assume, either, otherwise
from tensorexpr.codegen.rewrites.kernels.versions import by_lines
from tensorexpr.codegen.rewrites.loops import parallel, partition, reorder, split, vectorize
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tensorexpr.text import print_expr
from tests.codegen.rewrites.law import Kept

ROWS = """
sizes(n, m)
X: f32[n, m] = input()
M[i]: f32[n] = sum(X[i, j] for j in range(m))
Y[i, j]: f32[n, m] = X[i, j] - M[i]
return Y
"""
SIZES = [{"n": n, "m": m} for n, m in ((0, 0), (1, 1), (1, 5), (5, 1), (3, 17), (4, 16), (5, 15), (9, 33), (2, 40))]


def test_both_forms_are_what_the_nest_was():
    kept = Kept.of_text(ROWS, *SIZES)
    nest = assume(kept.nest, ("m", 16), ("n", 4))
    nest = vectorize(split(nest, "j_1", 16, "shift"), "j_1_i")
    assert "j_1_i < m" not in str(nest)  # a row has a block
    nest = parallel(split(nest, "i", 4, "peel"), "i_o")
    nest = partition(otherwise(nest), "j", (1,))
    nest = kept.check(either(nest))
    assert not nest.least and nest.rest is None
    assert prove(nest).is_clean
    assert len(nest.kernels) == 4 and len(nest.workspace) == 2


def test_what_is_known_of_sizes_is_known_to_rewrites():
    kept = Kept.of_text(ROWS, *SIZES)
    for least, guarded in ((15, True), (16, False)):
        nest = reorder(split(assume(kept.nest, ("m", least)), "j_1", 16, "shift"), "j_1_o", "j_1_i")
        assert ("j_1_i < m" in str(nest)) == guarded
        kept.check(either(otherwise(nest)))


def test_lines_of_some_length_have_kernels_of_their_own():
    kept = Kept.of_text(ROWS, *SIZES)
    other = parallel(kept.nest, "i")
    nest = kept.check(by_lines(kept.nest, other, 8))
    tests = [print_expr(k.body[0].condition) if isinstance(k.body[0], If) else "" for k in nest.kernels]
    assert tests[:2] == ["m % 8 == 0 and n % 8 == 0", "m % 8 != 0 or n % 8 != 0"]
    assert prove(nest).is_clean
    again = by_lines(kept.nest, kept.nest, 8)
    assert str(again) == str(kept.nest)  # kernels that are the same are one
    apart = replace(other, kernels=other.kernels[:1])
    assert by_lines(kept.nest, apart, 8) is kept.nest


def test_refusals():
    nest = Kept.of_text(ROWS, *SIZES).nest
    large = assume(nest, ("m", 4))
    kernels = tuple(replace(kernel, together=True) for kernel in large.kernels)
    beside = replace(large, kernels=kernels)
    cases = [
        (lambda: assume(nest, ("k", 4)), "expected the name of a size, got 'k'"),
        (lambda: assume(nest, ("m", 0)), "expected a positive int as the least m, got 0"),
        (lambda: assume(nest), "expected at least one size that is known to be large"),
        (lambda: assume(large, ("n", 4)), "expected a nest for all sizes, got one of two"),
        (lambda: otherwise(nest), "expected a nest for large sizes, behind assume, got one for all"),
        (lambda: otherwise(otherwise(large)), "expected a nest for large sizes, behind assume, got one for all"),
        (lambda: either(large), "expected a nest for small sizes, behind otherwise, got another one"),
        (lambda: either(otherwise(beside)), "expected kernels that run one after the other, got one whose loops run together"),
    ]
    for call, expected in cases:
        with pytest.raises(ScheduleError) as raised:
            call()
        assert expected in str(raised.value)


TURNED = """
sizes(n, m)
X: f64[n, m] = input()
R[i, j]: f64[n, m] = X[(i + n - 1) % n, (j + m // 2) % m] - X[n - 1 - i, m - 1 - j]
return R
"""


def test_points_refuse_only_what_has_no_proof(monkeypatch):
    """All that a search for open sizes asks has the same answer without the points at which forms are looked at first."""
    refused = 0

    def answered(self, form, depth=None):
        nonlocal refused
        found = quick(self, form, depth)
        if not found and any(value < 0 for value in self._values(form)):
            refused += 1
            alone = copy(self)
            alone._natural = {}
            alone._values = lambda form: []
            assert not self._is_natural.__func__(alone, form, depth), form
        return found

    quick = Facts.is_natural
    for text in (ROWS, TURNED):
        program = simplify(parse_program(text))
        with monkeypatch.context() as compared:
            compared.setattr(Facts, "is_natural", answered)
            found = in_two_forms(program, ZEN_4)
        assert str(found.nest) == str(in_two_forms(program, ZEN_4).nest)
    assert refused > 1000
