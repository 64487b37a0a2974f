"""What an iteration of a loop has written: whether it covers what is read later in the iteration, or a whole window.

Elements are compared as sets of points of the loops around and indices. What a store has written counts where that is known exactly:
its loops and conditions are affine, and no data in its indices. Terms that are not, as where a block moved back begins, are names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorexpr.codegen.nest import For, LoopNest, Store
from tensorexpr.codegen.rewrites.paths import Path, loop_at, statement
from tensorexpr.codegen.rewrites.touched.places import Touched, conditions_around, declared, loops_around, shared
from tensorexpr.codegen.rewrites.touched.windows import Window, element_names, elements_under
from tensorexpr.integers import Affine, Domain, DomainTooComplex, Union, eq, ge, lt
from tensorexpr.ir import Access, Axis, Expr
from tensorexpr.regions import Opaque, affine_of, domain_of, with_constraints
from tensorexpr.traversal import free_names, tensors_read


def is_covered(nest: LoopNest, one: Touched, at: Path, load: Path) -> bool:
    """Whether all that a statement reads in an iteration of the loop at a path has been written in that iteration before."""
    loops = loops_around(nest, load)
    names = _names(nest, one)
    for access, conditions in elements_under(statement(nest, load), one.buffer):
        opaque = Opaque()
        read = _elements(nest, load, access, loops, names, opaque, conditions=conditions)
        if read is None or not _is_left_empty(nest, one, at, load, read, names, loops, opaque):
            return False
    return True


def writes_all(nest: LoopNest, one: Touched, at: Path, frame: Sequence[Window]) -> bool:
    """Whether an iteration of the loop at a path writes all elements of a window of each axis that there are."""
    return _holds_all(nest, one, at, (*at, len(loop_at(nest, at).body)), frame, at, True)


def is_written(nest: LoopNest, one: Touched, at: Path, frame: Sequence[Window], inside: bool) -> bool:
    """Whether all elements of a window of each axis that there are have been written where the loop at a path begins, or, with `inside`,
    where an iteration of it does. Requires: `one` has all stores to the buffer."""
    return _holds_all(nest, one, one.home, at, frame, at, inside)


def _holds_all(nest: LoopNest, one: Touched, begin: Path, end: Path, frame: Sequence[Window], at: Path, inside: bool) -> bool:
    """Whether what is written in the statement at `begin` up to a place `end` are all elements of the windows in the loop at a path."""
    loops = (*loops_around(nest, at), *((loop_at(nest, at),) if inside else ()))
    opaque = Opaque()
    names = _names(nest, one)
    region = domain_of([Axis(s.index, s.start, s.stop) for s in loops], conditions_around(nest, at), opaque)
    box = Domain((*region.domain.dims, *names), region.domain.constraints, region.domain.sizes)
    for name, w, extent in zip(names, frame, declared(nest, one).shape, strict=True):
        low, length, end_ = (affine_of(e, opaque) for e in (w.low, w.length, extent))
        assert low is not None and length is not None and end_ is not None
        box = with_constraints(box, [ge(name, low), lt(name, low + length), ge(name, 0), lt(name, end_)])
    return _is_left_empty(nest, one, begin, end, box, names, loops, opaque)


def _names(nest: LoopNest, one: Touched) -> tuple[str, ...]:
    return element_names(len(declared(nest, one).shape))


def _is_left_empty(
    nest: LoopNest, one: Touched, at: Path, end: Path, wanted: Domain, names: Sequence[str], loops: Sequence[For], opaque: Opaque
) -> bool:
    """Whether nothing is left of some elements without those written in an iteration of the loop at a path, up to a place in it."""
    left: Domain | Union = wanted
    try:
        for store in one.stores:
            for written in _written(nest, store, at, end, names, loops, opaque) if store[: len(at)] == at else ():
                left = left.subtract(written)
        return left.is_empty()
    except DomainTooComplex:
        return False


def _elements(
    nest: LoopNest,
    path: Path,
    access: Access,
    loops: Sequence[For],
    names: Sequence[str],
    opaque: Opaque,
    exact: bool = False,
    conditions: Sequence[Expr] = (),
) -> Domain | None:
    """The points of loops around a place together with the elements touched there; None where the element is data, or, if it must be
    `exact`, the points are not known."""
    region = domain_of([Axis(s.index, s.start, s.stop) for s in loops], (*conditions_around(nest, path), *conditions), opaque)
    forms = [affine_of(index, opaque) for index in access.indices]
    hidden = [opaque.expressions[n] for form in forms if form is not None for n in form.names() if n in opaque.expressions]
    if any(form is None for form in forms) or len(forms) != len(names) or (exact and not region.exact) or any(map(tensors_read, hidden)):
        return None
    domain = Domain((*region.domain.dims, *names), region.domain.constraints, region.domain.sizes)
    return with_constraints(domain, [eq(name, form) for name, form in zip(names, forms, strict=True) if form is not None])


def _written(
    nest: LoopNest, store: Path, at: Path, end: Path, names: Sequence[str], loops: Sequence[For], opaque: Opaque
) -> Iterator[Union]:
    """What a store has written before a place, as points of the loops around the place and elements: in this iteration of the loops around
    both, where it stands before, and in earlier ones of those inside of the statement at `at`."""
    s = statement(nest, store)
    assert isinstance(s, Store)
    together = store[: shared(store, end) + 1]
    common = loops_around(nest, together)
    found = _elements(nest, store, Access(s.buffer, s.indices, s.value.dtype), loops_around(nest, store), names, opaque, exact=True)
    if found is None:
        return
    before: list[For | None] = [None] if store < end else []
    inside = loops_around(nest, together, len(at) + 1)
    before += [loop for loop in inside if loop.kind in ("serial", "unroll")]
    for earlier in before:
        same = [loop.index for loop in (common if earlier is None else common[: common.index(earlier)])]
        renamed = {name: f"{name}'" for name in found.dims if name not in same and name not in names}
        hidden = [opaque.expressions[name] for name in found.sizes if name in opaque.expressions]
        if any(name in renamed for e in hidden for name in free_names(e)):
            continue  # what has another value there
        made = found.rename(renamed)
        order = [] if earlier is None else [lt(renamed[earlier.index], Affine.of(earlier.index))]
        dims = dict.fromkeys((*(loop.index for loop in loops), *names, *renamed.values()))
        whole = with_constraints(Domain(tuple(dims), made.constraints, made.sizes), order)
        yield whole.project_out(renamed.values())
