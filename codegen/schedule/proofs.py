"""Which reads are certainly in bounds: what is not proved here is checked as the kernel runs.

The loops around an access and the guards on the way to it make an integer set; an index is safe where the set implies
``0 <= index < extent``. Indices that are not affine (data-dependent ones above all) take part as opaque names, so a guard
on the same expression counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorexpr.integers import Affine, Domain, DomainTooComplex, ge, lt
from tensorexpr.ir import Access, Axis, Const, Expr, Index
from tensorexpr.regions import Opaque, affine_of, domain_of


def unproved_axes(indices: tuple[Expr, ...], shape: tuple[Expr, ...], axes: Iterable[Axis], guards: Iterable[Expr]) -> tuple[int, ...]:
    """The axes on which an access may leave a tensor of this shape, for all that the loops and guards around it say."""
    axes = tuple(axes)
    by_name = {a.index: a for a in axes}
    pending = []
    for number, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        axis = by_name.get(index.name) if isinstance(index, Index) else None
        if axis is None or axis.stop != extent or not (isinstance(axis.start, Const) and axis.start.value >= 0):
            pending.append(number)
    if not pending:
        return ()
    opaque = Opaque()
    domain = domain_of(axes, guards, opaque).domain
    failed = []
    for number in pending:
        index, extent = affine_of(indices[number], opaque), affine_of(shape[number], opaque)
        if index is None or extent is None or not _implies(domain, index, extent):
            failed.append(number)
    return tuple(failed)


def _implies(domain: Domain, index: Affine, extent: Affine) -> bool:
    unknown = [n for n in (*index.names(), *extent.names()) if n not in domain.names]
    if unknown:
        domain = Domain(domain.dims, domain.constraints, sizes=(*domain.sizes, *dict.fromkeys(unknown)))
    try:
        return domain.implies(ge(index, 0)) and domain.implies(lt(index, extent))
    except DomainTooComplex:
        return False
