"""Every kernel of the library and its gradient as formulas: text that LaTeX reads."""

from __future__ import annotations

import pytest

import tensorexpr as te
from tests.kernels.case import Case
from tests.kernels.table import ALL
from tests.kernels.test_laws import derived
from tests.tex import reads_as_latex


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_formulas(case: Case) -> None:
    reads_as_latex(te.latex(case.op.trace(*case.arrays(), **case.static)))
    if case.differentiable:
        reads_as_latex(te.latex(derived(case)[0]))
