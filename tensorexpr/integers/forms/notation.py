"""Domains in set notation: ``[n] -> { [i, j] : 0 <= i < n and j % 2 == 0 }``."""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import Constraint


def domain_text(dims: Sequence[str], sizes: Sequence[str], constraints: Sequence[Constraint]) -> str:
    """The set in braces, sizes in front; two simple bounds of one name are written as one chain."""
    text = f"[{', '.join(dims)}]"
    conditions = condition_text([*sizes, *dims], constraints)
    body = f"{{ {text} : {conditions} }}" if conditions else f"{{ {text} }}"
    return f"[{', '.join(sizes)}] -> {body}" if sizes else body


def condition_text(names: Sequence[str], constraints: Sequence[Constraint]) -> str:
    """The constraints joined by "and": chains in the order of `names`, then the others."""
    if any(one.is_false for one in constraints):
        return "false"
    rest = list(constraints)
    parts = []
    for name in names:
        own = [one for one in rest if _last_name(one, names) == name and not one.is_equality]
        lower = next((one for one in own if one.expr.coefficient(name) == 1), None)
        upper = next((one for one in own if one.expr.coefficient(name) == -1), None)
        if lower is None or upper is None:
            continue
        parts.append(_lower_text(lower.expr, name) + name + _upper_text(upper.expr, name))
        rest = [one for one in rest if one is not lower and one is not upper]
    return " and ".join([*parts, *map(str, rest)])


def _last_name(constraint: Constraint, names: Sequence[str]) -> str | None:
    own = set(constraint.names())
    return next((name for name in reversed(names) if name in own), None)


def _lower_text(expr: Affine, name: str) -> str:
    bound = Affine.of(name) - expr
    return f"{bound - 1} < " if bound.terms and bound.constant == 1 else f"{bound} <= "


def _upper_text(expr: Affine, name: str) -> str:
    bound = expr + name
    return f" < {bound + 1}" if not bound.terms or bound.constant == -1 else f" <= {bound}"
