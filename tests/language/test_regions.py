"""The bridge to integer sets against brute force: affine forms, cases, domains, and the way back."""

import random

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.bounds.enumeration import enumerate_points, evaluate_on
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Index, Size, apply, const
from tensorexpr.regions import Opaque, affine_of, cases_of, cases_where, constraints_of, domain_of, expression_of, normal_form, regions_of
from tensorexpr.text import print_expr
from tests.language.test_bounds import _condition, _index

AT_I, AT_J = Index("i"), Index("j")
N = Size("n")
AXES = (Axis("i", const(0), const(5)), Axis("j", const(-2), const(4)))


def random_affine(rng, depth=2):
    form = Affine({name: rng.randint(-6, 6) for name in "ij"}, rng.randint(-9, 9))
    if depth:
        inner, factor = random_affine(rng, depth - 1), rng.randint(2, 6)
        form = rng.choice(
            (form, form + (inner % factor) * rng.randint(-3, 3), form + (inner // factor) * rng.randint(-3, 3), inner % factor)
        )
    return form


@pytest.mark.parametrize("seed", range(4))
def test_expressions_and_affine_forms_round_trip(seed):
    rng = random.Random(seed)
    for _ in range(200):
        form = random_affine(rng)
        expr = expression_of(form)
        assert affine_of(expr) == form, (form, print_expr(expr))
        for i, j in ((0, 0), (3, -2), (-7, 11)):
            values = {"i": np.int64(i), "j": np.int64(j)}
            assert evaluate_on(expr, values) == form.evaluate({"i": i, "j": j})


def test_modulos_print_as_modulos():
    i, j = Affine.of("i"), Affine.of("j")
    assert print_expr(expression_of((i * 2 + j) % 5)) == "(i * 2 + j) % 5"
    assert print_expr(expression_of(j + (i % 4) * 3 + 1)) == "j + i % 4 * 3 + 1"
    assert print_expr(expression_of(j - (i % 4))) == "j - i % 4"
    assert print_expr(expression_of(i - Affine.of(FloorDiv(j, 4)) * 4)) == "i - j // 4 * 4"
    assert print_expr(expression_of(-i)) == "-i" and print_expr(expression_of(Affine.of(-3))) == "-3"
    assert print_expr(expression_of(Affine.of("n") - i, sizes=["n"])) == "n - i"
    assert print_expr(normal_form(apply("add", apply("sub", N, const(1)), const(2)))) == "n + 1"
    assert normal_form(apply("mul", N, Size("m"))) == apply("mul", N, Size("m"))


def test_shifts_and_masks_are_affine():
    for expr in (apply("shift_left", AT_I, const(3)), apply("shift_right", AT_J, const(1)), apply("and", AT_J, const(7))):
        form = affine_of(expr)
        points = enumerate_points(AXES, ())
        values = evaluate_on(expr, points.values)
        assert [
            form.evaluate({"i": int(i), "j": int(j)}) for i, j in zip(points.values["i"], points.values["j"], strict=True)
        ] == values.tolist()
    assert affine_of(apply("and", AT_I, const(5))) is None and affine_of(apply("shift_left", AT_I, AT_J)) is None


def test_what_is_not_affine_becomes_opaque():
    product = apply("mul", N, Size("m"))
    assert (
        affine_of(product) is None
        and affine_of(apply("floordiv", AT_I, N)) is None
        and affine_of(apply("floordiv", AT_I, const(-2))) is None
    )
    opaque = Opaque()
    form = affine_of(apply("add", apply("mul", product, const(3)), product), opaque)
    assert str(form) == "4*?0" and opaque.expressions == {"?0": product}
    assert expression_of(form, sizes=["n", "m"], opaque=opaque) == apply("mul", product, const(4))
    narrow = Access("ids", (AT_I,), dtypes.int32)
    assert affine_of(Cast(dtypes.int64, narrow), opaque) == affine_of(Cast(dtypes.int64, narrow), opaque) == Affine.of("?1")
    assert expression_of(Affine.of("?1"), opaque=opaque) == Cast(dtypes.int64, narrow)
    wrapping = Cast(dtypes.int64, Apply(apply("add", const(1), const(1)).op, (narrow, Const(1, dtypes.int32))))
    assert len(affine_of(wrapping, opaque).names()) == 1


@pytest.mark.parametrize("seed", range(4))
def test_cases_are_disjoint_and_have_the_value(seed):
    rng = random.Random(seed)
    points = [{"i": i, "j": j} for i in range(5) for j in range(-2, 4)]
    for _ in range(100):
        expr, opaque = _index(rng, ["i", "j"], 3), Opaque()
        cases = cases_of(expr, opaque)
        hidden = opaque.expressions
        for point in points:
            arrays = {name: np.int64(value) for name, value in point.items()}
            values = point | {name: int(evaluate_on(e, arrays)) for name, e in hidden.items()}
            found = [c.value.evaluate(values) for c in cases if all(one.holds(values) for one in c.constraints)]
            assert found == [int(evaluate_on(expr, arrays))], print_expr(expr)


@pytest.mark.parametrize("seed", range(4))
def test_conditions_split_into_disjoint_cases(seed):
    rng = random.Random(seed)
    points = [{"i": i, "j": j} for i in range(5) for j in range(-2, 4)]
    for _ in range(100):
        expr, opaque = _condition(rng, ["i", "j"], 3), Opaque()
        holding, failing = cases_where(expr, opaque), cases_where(expr, opaque, False)
        hidden = opaque.expressions
        for point in points:
            arrays = {name: np.int64(value) for name, value in point.items()}
            values = point | {name: int(evaluate_on(e, arrays)) for name, e in hidden.items()}
            counts = [sum(all(one.holds(values) for one in c.constraints) for c in cases) for cases in (holding, failing)]
            if all(case.exact for case in holding + failing):
                assert counts == ([1, 0] if evaluate_on(expr, arrays) else [0, 1]), print_expr(expr)


@pytest.mark.parametrize("seed", range(4))
def test_domains_contain_and_regions_are_exactly_the_points(seed):
    rng = random.Random(seed)
    exact = 0
    for _ in range(60):
        axes = (Axis("i", const(0), const(rng.randint(0, 5))), Axis("j", const(rng.randint(-2, 1)), _index(rng, ["i"], 1)))
        guards = tuple(_condition(rng, ["i", "j"], 2) for _ in range(rng.randint(0, 2)))
        points = enumerate_points(axes, guards)
        true = [(int(i), int(j)) for i, j in zip(points.values["i"], points.values["j"], strict=True)]
        region = domain_of(axes, guards)
        regions = regions_of(axes, guards)
        if region.exact:
            exact += 1
            assert sorted((p["i"], p["j"]) for p in region.domain.points()) == sorted(true)
        elif not any(name.startswith("?") for name in region.domain.sizes):
            assert {(p["i"], p["j"]) for p in region.domain.points()} >= set(true)
        if all(r.exact for r in regions):
            assert sorted((p["i"], p["j"]) for r in regions for p in r.domain.points()) == sorted(true)
    assert exact > 15


def test_guards_may_be_given_once_only():
    axes, guard = (Axis("i", const(0), N),), apply("lt", AT_I, const(3))
    region = domain_of(iter(axes), iter((guard,)))
    assert region.exact and region.domain.sizes == ("n",) and str(region.domain) == "[n] -> { [i] : 0 <= i < 3 and i < n and n >= 0 }"


def test_guards_that_are_no_conjunction():
    axes = (Axis("i", const(0), const(10)),)
    assert domain_of(axes, (apply("ne", AT_I, const(0)),)).exact
    assert domain_of(axes, (apply("ne", AT_I, const(0)),)).domain.range("i") == (1, 9)
    middle = domain_of(axes, (apply("ne", AT_I, const(4)),))
    assert not middle.exact and middle.domain.range("i") == (0, 9)
    assert len(regions_of(axes, (apply("ne", AT_I, const(4)),))) == 2
    either = apply("or", apply("lt", AT_I, const(2)), apply("gt", AT_I, const(20)))
    assert domain_of(axes, (either,)).domain.range("i") == (0, 1) and domain_of(axes, (either,)).exact
    never = domain_of(axes, (apply("or", apply("lt", AT_I, const(0)), apply("gt", AT_I, const(20))),))
    assert never.domain.is_empty() and all(r.domain.is_empty() for r in regions_of(axes, (apply("lt", AT_I, const(0)),)))
    data = domain_of(axes, (apply("gt", Access("x", (AT_I,), dtypes.float32), Const(0, dtypes.float32)),))
    assert not data.exact


def test_constraints_of():
    both = apply("and", apply("ge", AT_I, const(1)), apply("eq", apply("mod", AT_I, const(3)), const(0)))
    found, exact = constraints_of(both)
    assert exact and [str(c) for c in found] == ["i >= 1", "i % 3 == 0"]
    assert constraints_of(Const(False, dtypes.bool_)) == (constraints_of(apply("lt", const(1), const(0)))[0], True)
    assert constraints_of(apply("lt", apply("mul", AT_I, AT_J), const(3))) == ((), False)
    found, exact = constraints_of(apply("lt", apply("maximum", AT_I, AT_J), const(3)))
    assert exact and [str(c) for c in found] == ["i <= 2", "j <= 2"]
    found, exact = constraints_of(apply("ge", const(3), apply("maximum", AT_I, AT_J)))
    assert exact and [str(c) for c in found] == ["i <= 3", "j <= 3"]
    assert constraints_of(apply("lt", apply("minimum", AT_I, AT_J), const(3)))[1] is False
