"""Rewriting: expressions are brought to normal form bottom-up by lists of named rules, applied until none fires.

A rule is a function ``expr -> expr | None`` whose docstring is its equation and the condition under which it holds; `on`
says at which nodes it is tried. A `RuleSet` finds the rules of a node at once; it remembers no expression. Rules must make
progress: a node at which rules fire more than `MOST_STEPS` times is a defect that names the rules at fault.

``TENSOREXPR_DEBUG=rules`` (or the logger ``tensorexpr.rules`` at level DEBUG) prints every rule that fires, with the
expression before and after.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable

from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Expr
from tensorexpr.text import print_expr
from tensorexpr.traversal import map_children

Rule = Callable[[Expr], Expr | None]

MOST_STEPS = 1000

log = logging.getLogger("tensorexpr.rules")


def on(*heads: str) -> Callable[[Rule], Rule]:
    """Marks a rule with the nodes it applies to: names of operations, or "cast", "reduce", "access"; none for all operations."""

    def mark(rule: Rule) -> Rule:
        rule.heads = heads  # type: ignore[attr-defined]  # functions take attributes
        return rule

    return mark


def head_of(expr: Expr) -> str:
    """What `on` calls a node: the operation's name, or the kind of node in lower case."""
    return expr.op.name if isinstance(expr, Apply) else type(expr).__name__.lower()


class RuleSet:
    """An ordered collection of rules, found by the head of a node. Earlier rules are tried first."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: tuple[Rule, ...] = tuple(rules)
        self._by_head: dict[str, tuple[Rule, ...]] = {}

    def rules_at(self, expr: Expr) -> tuple[Rule, ...]:
        """The rules to try at a node."""
        head = head_of(expr)
        found = self._by_head.get(head)
        if found is None:
            operation = isinstance(expr, Apply)
            found = tuple(r for r in self.rules if head in r.heads or (operation and not r.heads))  # type: ignore[attr-defined]  # @on put it there
            self._by_head[head] = found
        return found

    def step(self, expr: Expr) -> Expr | None:
        """The result of the first rule that fires at this node (not below it), None when none does."""
        for rule in self.rules_at(expr):
            result = rule(expr)
            if result is not None and result != expr:
                trace(rule.__name__, expr, result)
                return result
        return None


def trace(name: str, before: Expr, after: Expr) -> None:
    """Reports one rewriting step to the logger ``tensorexpr.rules``."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s: %s  ->  %s", name, print_expr(before), print_expr(after))


def rewrite(expr: Expr, rules: RuleSet) -> Expr:
    """The normal form of `expr` under the rules; the same object when no rule fires. Equal subexpressions are visited once.

    Raises `InternalError` for rules that undo each other.
    """
    done: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        found = done.get(node)
        if found is not None:
            return node if found == node else found
        before = result = node
        for _ in range(MOST_STEPS):
            before = map_children(result, visit)
            following = rules.step(before)
            if following is None:
                done[node] = before
                return node if before == node else before
            result = following
        raise endless(before, result)

    return visit(expr)


def endless(before: Expr, after: Expr) -> InternalError:
    """The error for rules that do not come to an end."""
    return InternalError(
        f"expected the rules to come to an end, got more than {MOST_STEPS} steps at one expression",
        term=f"{print_expr(before)}  ->  {print_expr(after)}",
        hint="this is a defect of tensorexpr: run with TENSOREXPR_DEBUG=rules and report the rules printed last",
    )


def _print_rules() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("rule %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)


if "rules" in os.environ.get("TENSOREXPR_DEBUG", "").split(","):
    _print_rules()
