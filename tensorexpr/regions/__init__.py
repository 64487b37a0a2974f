"""The bridge between scalar expressions and integer sets: affine forms of indices (`forms`), cases of what is affine by pieces (`cases`),
domains of loops and guards (`domains`).
"""

from tensorexpr.regions.cases import MAX_CASES, Case, cases_of, cases_where, constraints_of
from tensorexpr.regions.domains import Region, alternatives, bound_constraints, domain_of, regions_of, with_constraints
from tensorexpr.regions.forms import Opaque, affine_of, expression_of, normal_form, signed_sum, split_modulos, told_sizes, within

__all__ = [
    "Case", "MAX_CASES", "Opaque", "Region", "affine_of", "alternatives", "bound_constraints", "cases_of", "cases_where",
    "constraints_of", "domain_of", "expression_of", "normal_form", "regions_of", "signed_sum", "split_modulos", "told_sizes",
    "with_constraints", "within",
]  # fmt: skip
