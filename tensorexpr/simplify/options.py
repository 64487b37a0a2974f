"""What a simplification may change."""

from __future__ import annotations

from tensorexpr.records import record, replace


@record
class Options:
    """What a simplification may change: with `signed_zeros` False the sign of zeros, with `reassociate` the rounding, too.

    With `narrow` reductions run over as few points as their conditions allow, with `factor` factors leave sums. `derived`
    says that the expressions are formulas which no user wrote (see `DERIVED_RULES`); what they decide, and what functions are
    taken of, is as the user wrote it. With `differentiable` a choice keeps the derivative of each of its sides.
    """

    signed_zeros: bool = True
    reassociate: bool = False
    narrow: bool = False
    factor: bool = False
    derived: bool = False
    differentiable: bool = False

    def exact(self) -> Options:
        """The options for what derived formulas decide (conditions, integers, and what these are computed from) and take functions of."""
        return replace(self, signed_zeros=True, derived=False) if self.derived else self


STRICT = Options()
