"""Programs as LaTeX: `formulas` writes definitions, of the `terms` of sums and products and of `names`."""

from tensorexpr.latex.formulas import displayed, latex, latex_expr

__all__ = ["displayed", "latex", "latex_expr"]
