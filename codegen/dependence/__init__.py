"""Which instances of two statements of a nest touch one element, in which order: the only judge of what rewrites of nests may do.

    deps = dependences(nest)
    deps.may_swap(i, k)              # truth value; where not, the two accesses, and the point where there is one
    deps.may_run_in_any_order(i, updates=True)
    list(deps.between(first, second))

`nests` is what is asked about a nest, `apart` the quick tests of a whole loop, `pairs` one question about two accesses, `questions` its
answer, `updates` the accumulations that may change places, or come one after the other.
What is known at each place, and the integer sets, are those of the proofs (`codegen.facts`).
"""

from __future__ import annotations

from tensorexpr.codegen.dependence.nests import Allowed, Conflict, Dependences, dependences
from tensorexpr.codegen.dependence.updates import in_turn, operation_of

__all__ = ["Allowed", "Conflict", "Dependences", "dependences", "in_turn", "operation_of"]
