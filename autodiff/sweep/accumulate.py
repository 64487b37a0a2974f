"""All that flows into one tensor, as one definition: a sum of gathers over its elements.

Each contribution is turned around (`components`, each by pieces where it is affine by cases only), pieces are merged again
where that is cheaper (`merging`), and what is left is a sum of terms `where(outer, sum(value for axes if inner), 0)`; terms
with the same loops and guards share one sum. What cannot be inverted, or is told not to be, is turned around by sorting
(`segments`); what that cannot do either becomes a `Scatter` of its own, in float32 for 16-bit floats, and is added in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tensorexpr import dtypes
from tensorexpr.autodiff.data.digits import with_digits
from tensorexpr.autodiff.data.rows import by_places
from tensorexpr.autodiff.data.segments import sorted_gathers, with_known_keys
from tensorexpr.autodiff.data.unsorting import unsorted
from tensorexpr.autodiff.invert.components import Inverse, invert_read
from tensorexpr.autodiff.invert.inversion import Gather
from tensorexpr.autodiff.invert.merging import merged
from tensorexpr.autodiff.invert.numerals import has_data
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.local.derivatives import cast_to, is_number, plus
from tensorexpr.autodiff.local.workspace import Workspace, all_of, guarded
from tensorexpr.errors import DefinitionError, InternalError
from tensorexpr.integers import DomainTooComplex
from tensorexpr.ir import (
    Access,
    Axis,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Reduce,
    Scatter,
    TensorType,
    apply,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify import simplify_expr
from tensorexpr.traversal import bound_names, free_names, fresh_name, rename_bound, substitute

SUM = Combiner("sum")
SPARE_NAMES = ("p", "q", "u", "v", "w")
"""Names for axes of a tensor that neither a definition nor a reader names."""
MOST_IN_A_ROW = 16
"""Terms that are added from left to right."""
MOST_IN_ONE = 64
"""Terms of one definition, where they are not in one sum."""


@record
class Flow:
    """A contribution of the definition `consumer`, with its `gathers` (None: it is scattered).

    Those of an `inverse` are the pieces as they are before they are merged with others. `definition` is the consumer itself, or
    the definition that was made of a reduction in it; `read` the contribution as the program reads, where this is another (`rows`).
    """

    consumer: str
    contribution: Contribution
    gathers: tuple[Gather, ...] | None
    lowering: str
    inverse: Inverse | None = None
    definition: str = ""
    read: Contribution | None = None


def axes_of(tensor: str, workspace: Workspace, definition: Definition | None, contributions: Sequence[Contribution]) -> tuple[Axis, ...]:
    """Axes over the elements of a tensor, named as its definition or its first reader names them."""
    type_ = workspace.types[tensor]
    if isinstance(definition, Define):
        return tuple(Axis(axis.index, const(0), stop) for axis, stop in zip(definition.axes, type_.shape, strict=True))
    bound = {axis.index for c in contributions for axis in c.axes}
    taken = set(workspace.reserved)
    axes = []
    for d, stop in enumerate(type_.shape):
        own = [c.access.indices[d] for c in contributions]
        name = next((index.name for index in own if isinstance(index, Index) and index.name not in taken), None)
        if name is None:
            used = {*taken, *bound}
            name = next((spare for spare in SPARE_NAMES if spare not in used), None) or fresh_name(f"p{d}", used)
        taken.add(name)
        axes.append(Axis(name, const(0), stop))
    return tuple(axes)


def flow(consumer: str, contribution: Contribution, target: tuple[Axis, ...], lowering: str | None, workspace: Workspace) -> Flow:
    """A contribution with the gathers it becomes at the elements `target`; sort plans that these need go to the workspace."""
    contribution = _apart(unsorted(contribution, workspace), target)
    if lowering == "atomics":
        return Flow(consumer, contribution, None, lowering)
    access, axes, guards = contribution.access, contribution.axes, contribution.guards
    try:
        inverse = None if lowering else _inverted(access.indices, tuple(axes), guards, target, workspace.reserved)
    except DomainTooComplex:
        inverse = None
    if inverse is not None:
        return Flow(consumer, contribution, inverse.gathers, inverse.lowering, inverse)
    read = contribution
    if not lowering:
        by_data = [index for index in access.indices if has_data(index)]
        contribution = with_digits(contribution, by_data, (*workspace.reserved, *(axis.index for axis in target)))
    try:
        gathers = sorted_gathers(contribution, target, workspace, _gathers, lowering is not None)
    except DomainTooComplex:
        gathers = None
    along = by_places(contribution, target, workspace) if gathers is None else None
    if along is not None:
        return replace(flow(consumer, along, target, lowering, workspace), read=read)
    return Flow(consumer, contribution if gathers is None else with_known_keys(contribution), gathers, "segments", read=read)


def _apart(c: Contribution, target: tuple[Axis, ...]) -> Contribution:
    """The contribution with the reductions in its indices and guards bound to names that the axes of the tensor do not have."""
    names = {axis.index for axis in target}
    if not any(names & set(bound_names(e)) for e in (*c.access.indices, *c.guards)):
        return c
    taken = names | {axis.index for axis in c.axes}
    indices = tuple(rename_bound(index, set(taken)) for index in c.access.indices)
    return replace(c, access=replace(c.access, indices=indices), guards=tuple(rename_bound(guard, set(taken)) for guard in c.guards))


def _gathers(
    indices: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis], reserved: tuple[str, ...]
) -> tuple[Gather, ...] | None:
    inverse = _inverted(tuple(indices), tuple(axes), tuple(guards), tuple(target), reserved)
    return None if inverse is None else inverse.gathers


def _inverted(
    indices: tuple[Expr, ...], axes: tuple[Axis, ...], guards: tuple[Expr, ...], target: tuple[Axis, ...], reserved: tuple[str, ...]
) -> Inverse | None:
    try:
        return invert_read(indices, axes, guards, target, reserved)
    except DefinitionError as error:  # of a set of integers that no user wrote
        raise InternalError(f"inversion of a read: {error.message}", term=error.term) from error


def accumulate(
    tensor: str, name: str, target: tuple[Axis, ...], flows: Sequence[Flow], seeds: Sequence[Expr], workspace: Workspace
) -> Definition:
    """The definition `name` of the sum of all flows and `seeds` (expressions over `target`); scatters are added before it.

    16-bit floats are summed in float32 and rounded once, if at all (`Workspace.adjoint_type`).
    """
    type_ = workspace.adjoint_type(tensor)
    carried = dtypes.accumulator(type_.dtype)
    scattered = [one for one in flows if one.gathers is None]
    if len(scattered) == 1 == len(flows) and not seeds and carried is type_.dtype:
        return workspace.add(scatter_of(scattered[0], name, type_))
    terms = [cast_to(seed, carried) for seed in seeds]
    terms += _terms([one for one in flows if one.gathers is not None], target, carried, workspace, _keeper(name, target, workspace))
    wide = TensorType(type_.shape, carried)
    for one in scattered:
        part = workspace.new_name(name, "_scattered")
        workspace.add(scatter_of(one, part, wide))
        terms.append(cast_to(Access(part, tuple(Index(axis.index) for axis in target), wide.dtype), carried))
    terms = [term for term in terms if not is_number(term, 0)] or [Const(0, carried)]
    return workspace.add(Define(name, target, cast_to(_added(terms, _keeper(name, target, workspace)), type_.dtype)))


def _keeper(name: str, target: tuple[Axis, ...], workspace: Workspace) -> Callable[[Expr], Expr]:
    """What makes a definition of a part of a sum over the elements of a tensor, and gives a read of it."""

    def keep(value: Expr) -> Expr:
        part = workspace.add(Define(workspace.new_name(name, "_part"), target, value))
        return Access(part.results[0][0], tuple(Index(axis.index) for axis in target), value.dtype)

    return keep


def _added(terms: Sequence[Expr], keep: Callable[[Expr], Expr]) -> Expr:
    """The sum from left to right; of many, as for a weight that a thousand layers share, of the sums of both halves, so that no
    expression is as deep as the program is long. Parts of very many are definitions of their own, so that none is as large, either."""
    if len(terms) > MOST_IN_A_ROW:
        half = len(terms) // 2
        parts = [_added(terms[:half], keep), _added(terms[half:], keep)]
        return plus(*(map(keep, parts) if len(terms) > MOST_IN_ONE else parts))
    return reduce(plus, terms)


def _terms(
    flows: Sequence[Flow], target: tuple[Axis, ...], carried: dtypes.DType, workspace: Workspace, keep: Callable[[Expr], Expr]
) -> list[Expr]:
    """One term for each distinct combination of loops and guards, in order of first occurrence."""
    grouped: dict[tuple[tuple[Axis, ...], tuple[Expr, ...], tuple[Expr, ...]], list[Expr]] = {}
    for gather, value in _gathered(flows, target, carried, workspace):
        grouped.setdefault((gather.axes, gather.outer, gather.inner), []).append(cast_to(value, carried))
    terms = []
    for (axes, outer, inner), values in grouped.items():
        # Inside of loops and guards a part has no meaning by itself.
        value = _added(values, (lambda part: part) if axes or outer or inner else keep)
        zero = Const(0, carried)
        if axes:
            terms.append(guarded(Reduce(SUM, (value,), axes, all_of(inner)), outer, zero))
        else:
            terms.append(guarded(value, (*outer, *inner), zero))
    return terms


def _gathered(flows: Sequence[Flow], target: tuple[Axis, ...], carried: dtypes.DType, workspace: Workspace) -> list[tuple[Gather, Expr]]:
    """The gathers of all flows, those with an inverse merged, each with the value to be summed over its loops."""
    found = merged([(one.contribution, one.inverse) for one in flows if one.inverse is not None], target, carried)
    names = {axis.index for axis in target}
    for one in flows:
        if one.inverse is None and one.gathers:
            value = _selected(one.contribution, workspace)
            for gather in one.gathers:
                taken = names | {axis.index for axis in gather.axes}
                found.append((gather, substitute(rename_bound(value, taken), gather.values)))
    return found


def _selected(c: Contribution, workspace: Workspace) -> Expr:
    """The value of a contribution as a formula over its own indices, in which what an index does not select is not multiplied
    (`rules.floats.select_product`): it is to say so before its indices become data, as gathers without plans do after."""
    return simplify_expr(c.value, (*workspace.steps, *c.axes), c.guards, signed_zeros=False, derived=True)


def scatter_of(one: Flow, name: str, type_: TensorType) -> Scatter:
    """A contribution as a scatter over the axes that say where it goes; over the others its value is summed before."""
    c = one.contribution
    axes, inner = _summed_before(c)
    value = cast_to(c.value, type_.dtype)
    guards = c.guards
    if inner:
        value = Reduce(SUM, (value,), inner, None)
        # Where there is nothing to sum nothing was read: the place may be out of bounds.
        guards += tuple(apply("lt", a.start, a.stop) for a in inner if not (isinstance(a.start, Const) and isinstance(a.stop, Const)))
    return Scatter(name, type_, axes, c.access.indices, value, all_of(guards), "sum", one.lowering, c.access.location)


def _summed_before(c: Contribution) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The axes of a contribution, and those taken out of them on which neither its place nor whether it is read depends."""
    axes = {axis.index: axis for axis in c.axes}
    bounds = {n for axis in c.axes for e in (axis.start, axis.stop) for n in free_names(e)}
    fixed = bounds | {n for e in (*c.access.indices, *c.guards) for n in free_names(e)}
    inner = tuple(axis for name, axis in axes.items() if name not in fixed and not _is_certainly_empty(axis))
    return tuple(axis for axis in c.axes if axis not in inner), inner


def _is_certainly_empty(axis: Axis) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and axis.start.value >= axis.stop.value
