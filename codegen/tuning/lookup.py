"""The schedule that a program gets by default: the model's, or by the record of its operation where one fits.

A record is used for the program that it was made for if both schedules are those that were compared then, and for others of its
class if the schedule that its choices give there adds up in the same order as the model's (`order`), so that no result changes
by it; a record that was made with leave to reassociate is used without that. What is used, and why not, is told in the log
`tensorexpr.tuning`. Files are looked at when something is compiled, never when it is called.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tensorexpr.algebra import (
    with_axes_turned,
    with_boxes_apart,
    with_chosen_points,
    with_copies_read,
    with_factors_grouped,
    with_few_keys,
    with_narrow_factors,
    with_narrow_sums,
    with_narrow_winners,
    with_operands_turned,
    with_products_apart,
    with_products_in_order,
    with_products_joined,
    with_recurrences,
    with_rows,
    with_scatters_turned,
    with_sent_values,
    with_slices,
    with_states_before,
    with_sums_by_key,
    with_sums_by_place,
    with_supports,
    without_carries,
    without_clamps,
    without_logarithms,
    without_masks,
)
from tensorexpr.codegen import disk
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.decisions import Decisions
from tensorexpr.codegen.target import Target
from tensorexpr.codegen.tuning import records
from tensorexpr.codegen.tuning.operation import operation_of, short_digest
from tensorexpr.codegen.tuning.order import same_order
from tensorexpr.codegen.tuning.records import Record
from tensorexpr.ir import Program
from tensorexpr.simplify import Options, factor_sums, simplify, with_plain_shapes
from tensorexpr.text import print_program

log = logging.getLogger("tensorexpr.tuning")

ANALYTIC = "the analytic model"
REGROUPED = Options(reassociate=True)
"""What a sum of products may change by: it adds in another order in any case."""


def simplified(program: Program, target: Target) -> Program:
    """The program that a default schedule is made for: in its simplest form, on a CPU with sums of products taken apart, tensors
    in plain shapes, running tables for what results share, sums and small integers in the types that suit them, and terms sent to where
    they belong.

    A GPU has a thread for each result, and runs the steps of a scan one after the other; its tensor cores take 16-bit products as they are.
    """
    program = without_carries(program)
    if target.is_gpu:
        return with_narrow_winners(with_copies_read(simplify(program)))
    found = simplify(factor_sums(program, REGROUPED))
    apart = with_products_in_order(factor_sums(found, REGROUPED), REGROUPED)  # what was written where it is read may have factors, too
    found = found if apart is found else simplify(apart)
    cut = without_clamps(found)
    found = found if cut is found else simplify(cut)
    narrowed = with_supports(found)
    found = found if narrowed is found else simplify(narrowed)
    apart = without_logarithms(found)
    found = found if apart is found else simplify(factor_sums(apart, REGROUPED))
    chosen = without_masks(found)
    found = found if chosen is found else simplify(chosen)
    shaped = with_plain_shapes(with_axes_turned(found))
    if shaped is not found:  # indices that were quotients and remainders are axes now, which factors may or may not have
        apart = with_products_in_order(factor_sums(shaped, REGROUPED), REGROUPED)
        found = simplify(apart)
    found = with_sums_by_place(with_few_keys(with_sums_by_key(with_scatters_turned(found))))
    chosen = with_chosen_points(found)
    found = found if chosen is found else simplify(chosen)
    found = with_states_before(with_recurrences(with_narrow_factors(with_narrow_sums(with_rows(found)))))
    found = with_slices(with_products_joined(with_products_apart(with_sent_values(with_boxes_apart(found)))))
    return with_narrow_winners(with_operands_turned(with_factors_grouped(with_copies_read(found))))


def calls_digest(schedule: Planned) -> str:
    """Equal for schedules of the same calls."""
    return short_digest(schedule.as_python())


def program_digest(program: Program) -> str:
    """Equal for simplified programs of the same text, numbers included."""
    return short_digest(print_program(program))


def record_for(program: Program, target: Target) -> Record | None:
    """The record for a program that may not be simplified yet, by which code made for it is told from the model's.

    Which operation a program is takes simplifying; it is kept on disk under the text of the program.
    """
    if not records.table():
        return None
    key = disk.key_of("operation", print_program(program), str(target.is_gpu))
    entry = disk.load(key)
    if entry is None:
        entry = disk.Entry({"operation": operation_of(simplified(program, target)).digest}, b"")
        disk.save(key, entry)
    found = records.find(entry.about["operation"], target)
    return None if found is None else found[0]


def is_tuned(program: Program, target: Target) -> bool:
    """Whether there is a record for a simplified program as a whole."""
    return bool(records.table()) and records.find(operation_of(program).digest, target) is not None


def scheduled(program: Program, target: Target) -> Planned:
    """The schedule of a simplified program that is used by default; its `origin` says where it comes from."""
    analytic = autoschedule(program, target)
    analytic.origin = ANALYTIC
    if not records.table():
        return analytic
    operation = operation_of(program)
    found = records.find(operation.digest, target)
    return analytic if found is None else _applied(program, analytic, *found)


def _applied(program: Program, analytic: Planned, record: Record, path: Path) -> Planned:
    if not record.choices:
        analytic.origin = f"{ANALYTIC}, the best of {record.tried} schedules measured {record.date[:10]} ({path})"
        return analytic
    tuned = autoschedule(program, analytic.target, Decisions(record.choices))
    name = ", ".join(program.outputs)
    if program_digest(program) == record.program:
        if (calls_digest(tuned), calls_digest(analytic)) != (short_digest("".join(f"{c}\n" for c in record.schedule)), record.baseline):
            log.info("%s: record in %s not used: the model has changed since", name, path)
            return analytic
    elif not record.reassociated and not same_order(analytic, tuned):
        log.info("%s: record in %s not used: made for other extents, its sums are in another order here", name, path)
        return analytic
    log.info("%s: tuned schedule, %.2fx when measured, %s", name, record.speedup, path)
    order = ", sums in another order" if record.reassociated else ""
    tuned.origin = f"tuned: {record.speedup:.2f}x of {ANALYTIC} on {record.date[:10]}{order} ({path})"
    return tuned
