"""The rewriting engine: order of rules, identity, traces, rules without end."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from tensorexpr import dtypes
from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Const, Expr, apply
from tensorexpr.parse import parse_expr
from tensorexpr.rewrite import RuleSet, on, rewrite
from tensorexpr.simplify.rules.common import COMMON_RULES
from tensorexpr.simplify.rules.integers import INTEGER_RULES

X = parse_expr("X[0]", {"X": dtypes.int32})


@on("add")
def to_product(expr: Expr) -> Expr | None:
    """x + x -> x * 2"""
    assert isinstance(expr, Apply)
    return apply("mul", expr.args[0], Const(2, expr.dtype)) if expr.args[0] == expr.args[1] else None


@on("mul")
def to_sum(expr: Expr) -> Expr | None:
    """x * 2 -> x + x"""
    assert isinstance(expr, Apply)
    return apply("add", expr.args[0], expr.args[0]) if expr.args[1] == Const(2, expr.dtype) else None


def test_rules_run_bottom_up_to_a_fixpoint() -> None:
    zero = Const(0, dtypes.int32)
    expr = apply("mul", apply("add", apply("sub", X, zero), apply("mul", X, zero)), Const(1, dtypes.int32))
    assert rewrite(expr, RuleSet((*COMMON_RULES, *INTEGER_RULES))) is X


def test_an_expression_in_normal_form_is_the_same_object() -> None:
    expr = apply("add", X, apply("mul", X, X))
    assert rewrite(expr, RuleSet(INTEGER_RULES)) is expr


def test_rules_are_found_by_the_head_of_a_node_in_their_order() -> None:
    rules = RuleSet((to_product, *INTEGER_RULES, to_sum))
    found = rules.rules_at(apply("add", X, X))
    assert found[0] is to_product
    assert to_sum not in found


def test_rules_that_undo_each_other_are_a_named_defect() -> None:
    with pytest.raises(InternalError, match="expected the rules to come to an end, got more than 1000 steps at one expression"):
        rewrite(apply("add", X, X), RuleSet((to_product, to_sum)))


def test_the_logger_reports_rules_that_fire(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="tensorexpr.rules"):
        rewrite(apply("add", X, X), RuleSet((to_product,)))
    assert caplog.messages == ["to_product: X[0] + X[0]  ->  X[0] * 2"]


def test_the_debug_variable_prints_rules_to_standard_error() -> None:
    code = (
        "from tensorexpr import dtypes\nfrom tensorexpr.parse import parse_expr\nfrom tensorexpr.simplify import simplify_expr\n"
        "simplify_expr(parse_expr('X[0] * 1.0', {'X': dtypes.float32}))"
    )
    environment = {**os.environ, "TENSOREXPR_DEBUG": "rules"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "rule multiply_one: X[0] * 1.0  ->  X[0]" in done.stderr
