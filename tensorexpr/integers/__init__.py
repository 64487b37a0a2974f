"""Exact integers: linear algebra, quasi-affine expressions, and sets of integer points with symbolic sizes."""

from tensorexpr.integers.forms.affine import Affine, FloorDiv, Interval
from tensorexpr.integers.forms.constraint import Constraint, congruent, eq, ge, gt, le, lt
from tensorexpr.integers.sets.domain import Domain
from tensorexpr.integers.sets.loops import Bounds
from tensorexpr.integers.sets.parametric import Solution, solve_parametric
from tensorexpr.integers.sets.union import Union
from tensorexpr.integers.solving.effort import DomainTooComplex, at_most, take
from tensorexpr.integers.solving.linear_algebra import hermite_normal_form, kernel_basis, lll, size_reduce, smith_normal_form, solve

__all__ = [
    "Affine",
    "Bounds",
    "Constraint",
    "Domain",
    "DomainTooComplex",
    "FloorDiv",
    "Interval",
    "Solution",
    "Union",
    "at_most",
    "congruent",
    "eq",
    "ge",
    "gt",
    "hermite_normal_form",
    "kernel_basis",
    "le",
    "lll",
    "lt",
    "size_reduce",
    "smith_normal_form",
    "solve",
    "take",
    "solve_parametric",
]
