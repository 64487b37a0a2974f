"""Rewriting: expressions by lists of named rules (`rules`), programs by passes that are verified one by one (`passes`)."""

from tensorexpr.rewrite.rules import MOST_STEPS, Rule, RuleSet, endless, head_of, on, rewrite, trace

__all__ = ["MOST_STEPS", "Rule", "RuleSet", "endless", "head_of", "on", "rewrite", "trace"]
