"""Gradients of the whole library are clean formulas: an oracle that tries all points finds nothing superfluous in any of them."""

import pytest

import tensorexpr as te
from tensorexpr.op_trees import leaves
from tests.autodiff.clean import smells
from tests.kernels.case import Case
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived, traced


@pytest.mark.parametrize("case", [case for case in ALL if case.differentiable], ids=lambda case: case.name)
def test_gradients_have_nothing_superfluous(case: Case) -> None:
    _, program = derived(case)
    _, result, _ = traced(case)
    forward = frozenset(name for d in te.program_of(list(leaves(result))).definitions for name, _ in d.results)
    assert smells(program, forward) == []
