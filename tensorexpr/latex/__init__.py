"""Programs as LaTeX: `formulas` puts programs together, the `writer` definitions and expressions, of `terms` and of `names`."""

from tensorexpr.latex.formulas import displayed, latex, latex_expr

__all__ = ["displayed", "latex", "latex_expr"]
