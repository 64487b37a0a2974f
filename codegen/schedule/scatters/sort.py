"""The primitive `sort`: a scatter as a sort plan and a gather, which many threads compute side by side, in the order of the text.

    S[key(t), d] += e(t, d)   -->   S_offsets, S_order = segments(key(t) for t)
                                    S[v, d] = sum(e(S_order[k], d) for k in range(S_offsets[v], S_offsets[v + 1]))

The plan is stable, so every element takes in its points in the order of the text. Indices of the result that are an axis by themselves (d)
stay what they are; the others are the key.

Points along rows whose length is data (those of a compressed matrix) have no numbers that are known before. But where all that the key
says of them is a place in a tensor of known length, `cols[p[i] + k]`, what is sent is added up by place first, and the places are
sorted, those that were met:

    S_places[p[i] + k, d] += e(i, k, d);  S_met[p[i] + k] = 1
    S = the scatter over z of S_places[z, d] at key(z) where S_met[z], sorted as above

Rows of places that follow each other own them (`own`).
"""

from __future__ import annotations

from tensorexpr import dtypes
from tensorexpr.codegen.schedule.analysis.state import State, all_definitions, program_facts
from tensorexpr.codegen.schedule.definitions.rfactor import length_of, with_parts
from tensorexpr.codegen.schedule.legal.legality import refuse
from tensorexpr.codegen.schedule.scatters.points import by_place, places_of, through_axes
from tensorexpr.ir import (
    Access,
    Axis,
    Cast,
    Combiner,
    Define,
    Expr,
    Index,
    Reduce,
    Scatter,
    Segments,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.language.definitions.sorting import as_int64
from tensorexpr.traversal import bound_names, expressions, free_names, fresh_name, substitute, walk


def sort(state: State, name: str) -> tuple[State, tuple[str, ...]]:
    """rewrite: S[key(t), d] += e(t, d) --> offsets, order = segments(key(t)); S[v, d] = sum(e(order[k], d) for k of segment v).

    The scatter becomes a definition that loops over its elements, all of which may run side by side. Gives the names of what was put
    in front of it: the offsets of the plan, and before them, for rows whose length is data, the sums by place and which places were met.
    """
    stage = state.stage(name)
    definition = program_facts(state.program).definitions[name]
    if not isinstance(definition, Scatter) or stage.scan is not None:
        raise refuse(stage, f"expected a scatter outside of scans to sort, got {name}")
    if stage.kinds or stage.relations or stage.place or state.placed_in(name):
        raise refuse(stage, f"expected plain loops of {name} to sort it, got changed ones", hint="sort first")
    names = {*state.program.types, *state.program.sizes, *(n for d in all_definitions(state.program) for n, _ in d.results)}
    made: list[Scatter] = []
    if any(not _is_known(axis) for axis in definition.axes):
        parts = by_place(definition, {n: t.shape for n, t in state.program.types.items()}, names)
        if parts is None:
            raise refuse(stage, f"expected points known before they run, or known to the key by a place alone, to sort {name}, got others")
        *made, definition = parts
    through = through_axes(definition)
    if len(through) == len(definition.indices):
        raise refuse(stage, f"expected an index of {name} that is no axis by itself to sort by, got none")
    plan, gather = _sorted(definition, through, names)
    changed = with_parts(state, (*made, plan), gather, "sort")
    return changed, (*(d.name for d in made), plan.name)


def _is_known(axis: Axis) -> bool:
    """Whether the points of an axis are known before anything runs."""
    return not any(isinstance(n, Access | Index) for e in (axis.start, axis.stop) for n in walk(e))


def _sorted(scatter: Scatter, through: dict[str, int], names: set[str]) -> tuple[Segments, Define]:
    """The plan of a scatter whose points are known, and the gather."""
    rest = [axis for axis in scatter.axes if axis.index not in through]
    begun: dict[str, Expr] = {a.index: apply("add", Index(a.index), a.start) for a in rest if a.start != const(0)}
    axes = tuple(Axis(a.index, const(0), length_of(a)) for a in rest)
    keyed = [at for at in range(len(scatter.indices)) if at not in through.values()]
    extents = tuple(scatter.type.shape[at] for at in keyed)
    conditions = tuple(conjuncts(scatter.where))
    here = [c for c in conditions if not set(free_names(c)) & set(through)]
    plan = Segments(
        (fresh_name(f"{scatter.name}_offsets", names), fresh_name(f"{scatter.name}_order", names)),
        extents,
        (),
        axes,
        tuple(as_int64(substitute(scatter.indices[at], begun)) for at in keyed),
        substitute(conjunction(here), begun) if here else None,
        scatter.location,
    )
    taken = {*names, *(a.index for a in scatter.axes), *(n for e in expressions(scatter) for n in bound_names(e))}
    elements = tuple(Axis(fresh_name(f"i{at}", taken), const(0), stop) for at, stop in enumerate(scatter.type.shape))
    segment: Expr = const(0)
    for at, extent in zip(keyed, extents, strict=True):
        place = Index(elements[at].index)
        segment = place if segment == const(0) else apply("add", apply("mul", segment, extent), place)
    k = fresh_name("k", taken)
    point = Access(plan.names[1], (Index(k),), dtypes.int64, scatter.location)
    values: dict[str, Expr] = {name: Index(elements[at].index) for name, at in through.items()}
    values |= places_of(axes, point)
    start, stop = (Access(plan.names[0], (at,), dtypes.int64, scatter.location) for at in (segment, apply("add", segment, const(1))))
    late = [c for c in conditions if c not in here]
    where = substitute(substitute(conjunction(late), begun), values) if late else None
    total = Reduce(Combiner(scatter.combine), (substitute(substitute(scatter.value, begun), values),), (Axis(k, start, stop),), where)
    kept = total if total.dtype is scatter.type.dtype else Cast(scatter.type.dtype, total)
    return plan, Define(scatter.name, elements, kept, scatter.location)
