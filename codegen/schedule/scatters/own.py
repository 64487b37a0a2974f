"""The primitive `own`: rows of a scatter side by side, where the data says that no two of them meet.

A scatter into the rows of a compressed matrix goes to places that follow each other, from where data says to where data says:

    for i in range(n): for k in range(p[i + 1] - p[i]): v_bar[p[i] + k] += ...

Rows that begin where the one before has ended, or later, have no element in common: each owns its own. Whether they do so is a
question to the data, answered once for all rows; blocks of rows then run side by side. Where they do not (rows may overlap, or stand
in any order), the first block has all of the rows, one after the other. So every element meets what is added to it in the order of
the text, whatever the data, and has the same bits on any number of cores.

    v_apart = all(maximum(p[i], p[i + 1]) <= p[i + 1] for i in range(n - 1))
    for i_o in parallel(range(n / f)): for i_i in range(f if v_apart else n if i_o == 0 else 0): ...
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.codegen.schedule.analysis.state import State, all_definitions, program_facts
from tensorexpr.codegen.schedule.definitions.rfactor import Cut, length_of, outermost, with_parts
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Axis, Combiner, Define, Expr, Index, Reduce, Scatter, apply, const
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, fresh_name, read_occurrences, substitute


@record
class Rows:
    """The places that each iteration of the outermost axis of a scatter goes to: from `start` up to `stop`, over that axis."""

    start: Expr
    stop: Expr


def rows_of(scatter: Scatter, shapes: dict[str, tuple[Expr, ...]]) -> Rows | None:
    """The rows of a scatter whose outermost axis has such; None where an index would have to be read that may be out of bounds."""
    if len(scatter.axes) < 2 or not _is_plain(scatter.axes[0]):
        return None
    first = scatter.axes[0]
    for index in scatter.indices:
        opaque = Opaque()
        form = affine_of(index, opaque)
        if form is None or not opaque.names:
            continue
        for inner in scatter.axes[1:]:
            hidden = {n for e in (inner.start, inner.stop, *opaque.expressions.values()) for n in free_names(e)}
            rest = set((form - Affine.of(inner.index) * form.coefficient(inner.index)).names())  # with what stands in quotients
            others = rest - {first.index, *opaque.expressions}
            if form.coefficient(inner.index) < 1 or hidden - {first.index} or others & {a.index for a in scatter.axes}:
                continue
            start, stop = (substitute(index, {inner.index: bound}) for bound in (inner.start, inner.stop))
            if all(_is_safe(e, first, shapes) for e in (start, stop)):
                return Rows(start, stop)
    return None


def _is_plain(axis: Axis) -> bool:
    """Whether the points of an axis are known before anything runs, the first of them 0."""
    return axis.start == const(0) and not any(True for _ in read_occurrences(axis.stop, ()))


def _is_safe(expr: Expr, axis: Axis, shapes: dict[str, tuple[Expr, ...]]) -> bool:
    """Whether every read in an expression is in bounds at every point of an axis."""
    return all(
        found is PROVED
        for access, axes, guards in read_occurrences(expr, (axis,))
        for found in check_access(access.indices, shapes[access.tensor], axes, guards)
    )


def own(state: State, name: str, loop: str) -> tuple[State, str]:
    """rewrite: for i: for k: S[start(i) + k] += e --> apart = all(stop(i) <= start(i + 1) for i); for i_o: for i_i: S[start(i) + k] += e.

    `loop` is the outer loop of a split of the outermost axis. Its blocks of rows own their elements where `apart` says so, so they may run
    in parallel; where it does not, the first of them runs all rows. Gives the name of the definition that says it.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Scatter) or stage.scan is not None:
        raise refuse(stage, f"expected a scatter outside of scans to own the elements of its rows, got {name}")
    cut = outermost(stage, definition, loop)
    rows = rows_of(definition, {n: t.shape for n, t in state.program.types.items()})
    if rows is None or not cut.rest:
        raise refuse(
            stage,
            f"expected places that follow each other from one that data gives for each {cut.axis}, got others",
            loop,
            f"rfactor: every block of {cut.axis} has a result of its own",
        )
    names = {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}
    apart = _apart(fresh_name(f"{name}_apart", names), definition.axes[0], rows, definition)
    state = with_parts(state, (apart,), _in_blocks(definition, cut, Access(apart.name, (), dtypes.bool_)), "own")
    return state.with_stage(replace(state.stage(name), owners=(loop,))), apart.name


def _apart(name: str, axis: Axis, rows: Rows, scatter: Scatter) -> Define:
    """Whether each row ends before the next one begins."""
    following = substitute(rows.start, {axis.index: apply("add", Index(axis.index), const(1))})
    ends = apply("le", apply("maximum", rows.start, rows.stop), following)
    length = apply("sub", length_of(axis), const(1))
    return Define(name, (), Reduce(Combiner("all"), (ends,), (Axis(axis.index, const(0), length),)), scatter.location)


def _in_blocks(scatter: Scatter, cut: Cut, apart: Expr) -> Scatter:
    """The scatter over blocks of rows: all rows in the first of them unless `apart`."""
    axis, (rest,) = scatter.axes[0], cut.rest
    whole = length_of(axis)
    block, part = const(cut.points), Index(cut.part.index)
    mine = apply("where", apart, block, apply("where", apply("eq", part, const(0)), whole, const(0)))
    left = apply("sub", whole, apply("mul", part, block))
    moved: dict[str, Expr] = {axis.index: cut.place}
    inner = tuple(Axis(a.index, substitute(a.start, moved), substitute(a.stop, moved)) for a in scatter.axes[1:])
    return replace(
        scatter,
        axes=(cut.part, Axis(rest.index, const(0), apply("minimum", left, mine)), *inner),
        indices=tuple(substitute(index, moved) for index in scatter.indices),
        value=substitute(scatter.value, moved),
        where=None if scatter.where is None else substitute(scatter.where, moved),
    )
