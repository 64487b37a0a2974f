"""The simplifier: expressions under their context, and passes over programs that keep every value.

`simplify` is the standard list of passes, run to a fixpoint. Everything is exact: integers with their wraparound (index
arithmetic does not overflow, see `tensorexpr.bounds.wrapping`), floats with NaN, infinities and signs of zero, unless the caller
says otherwise.
One liberty is taken always: a sum of a single term is that term, also where the term is -0.0 (a sum starts from 0.0).
"""

from __future__ import annotations

from tensorexpr.ir import Program
from tensorexpr.rewrite.passes import Pass, run_passes
from tensorexpr.simplify.expressions import simplify_expr
from tensorexpr.simplify.options import Options
from tensorexpr.simplify.passes.alike import drop_alike_axes
from tensorexpr.simplify.passes.cases import slice_definitions, write_out_cases
from tensorexpr.simplify.passes.definitions import (
    drop_stop_gradients,
    factor_reductions,
    fold_constants,
    narrow_domains,
    remove_dead_definitions,
    share_definitions,
    simplify_indices,
)
from tensorexpr.simplify.passes.extrema import take_extrema_apart
from tensorexpr.simplify.passes.factors import factor_sums
from tensorexpr.simplify.passes.inline import cheap_names, inline_cheap, inline_definitions
from tensorexpr.simplify.passes.shapes import with_plain_shapes
from tensorexpr.simplify.passes.sharing import share_reductions
from tensorexpr.simplify.passes.splits import split_reductions
from tensorexpr.simplify.passes.terms import keep_terms
from tensorexpr.simplify.passes.terms.steps import keep_terms_of_steps

MOST_ROUNDS = 12


def simplify(program: Program, *, inline: bool = True, signed_zeros: bool = True, reassociate: bool = False) -> Program:
    """The program in its simplest form: the same inputs, outputs and values; the same object where it has that form already.

    Indices and conditions in normal form, reductions over no more points than count, nothing computed that is not read and
    nothing computed twice; with `inline` cheap definitions written where they are read, and costly terms of reductions made
    definitions. Values are kept bit for bit, but for the sign of zeros with `signed_zeros=False`, and for rounding, NaN and
    infinities with `reassociate=True`. The result is to be run: marks for derivatives (`stop_gradient`) are gone.
    """
    options = Options(signed_zeros, reassociate, narrow=True, factor=True)

    def simplify_expressions(given: Program) -> Program:
        return narrow_domains(given, options)

    def factor(given: Program) -> Program:
        return factor_sums(given, options)

    passes: list[Pass] = [
        simplify_expressions,
        take_extrema_apart,
        factor,
        share_definitions,
        share_reductions,
        remove_dead_definitions,
        drop_alike_axes,
    ]
    if inline:
        passes.insert(3, inline_cheap)
        passes.insert(1, write_out_cases)
        passes.insert(1, split_reductions)
        passes += [slice_definitions, keep_terms, keep_terms_of_steps]
    program = run_passes(program, [drop_stop_gradients])
    unchanged = 0  # passes since the last one that changed something: each of them would leave the program as it is again
    for one in passes * MOST_ROUNDS:
        before, program = program, run_passes(program, [one])
        unchanged = unchanged + 1 if program is before else 0
        if unchanged == len(passes):
            break
    return program


__all__ = [
    "Options",
    "cheap_names",
    "drop_alike_axes",
    "drop_stop_gradients",
    "factor_reductions",
    "factor_sums",
    "fold_constants",
    "inline_cheap",
    "inline_definitions",
    "keep_terms",
    "narrow_domains",
    "remove_dead_definitions",
    "share_definitions",
    "share_reductions",
    "simplify",
    "simplify_expr",
    "simplify_indices",
    "slice_definitions",
    "split_reductions",
    "take_extrema_apart",
    "with_plain_shapes",
    "write_out_cases",
]
