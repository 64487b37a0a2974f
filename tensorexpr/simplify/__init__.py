"""The simplifier: expressions under their context, and passes over programs that keep every value."""

from tensorexpr.simplify.expressions import simplify_expr

__all__ = ["simplify_expr"]
