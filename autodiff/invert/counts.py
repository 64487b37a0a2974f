"""How many points the loops of a gradient visit: exact numbers, and formulas where there are sizes.

A `Count` is called with the sizes and gives the exact number, by the integer sets at these sizes. It prints as a formula
that `tensorexpr.integers.closed_form` finds from the same sets with the sizes left open; where none is found within its
limits, or a condition is affine only once the sizes are numbers (`i * n + j < 9`), it prints as `f(n)`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorexpr.autodiff.invert.pieces import depends_on_data, narrowed, split
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.bounds import implied
from tensorexpr.errors import ArgumentError
from tensorexpr.integers import Domain, DomainTooComplex, ge
from tensorexpr.integers.closed_form import closed_form, tidied
from tensorexpr.integers.counting.formulas import text, to_sympy
from tensorexpr.integers.counting.polynomial import Polynomial, names_in
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import (
    Apply,
    Axis,
    Combiner,
    Const,
    Define,
    Expr,
    Index,
    Input,
    Program,
    Reduce,
    Size,
    TensorType,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import cached_property, record
from tensorexpr.regions import Opaque, affine_of, bound_constraints, constraints_of, domain_of
from tensorexpr.regions.domains import bounds_and_guards
from tensorexpr.traversal import bottom_up, free_names, map_axes, size_names, tensors_read, walk

Space = tuple[tuple[Axis, ...], tuple[Expr, ...]]
"""Axes and guards: the points of the axes at which the guards hold."""

_TRIED = 64
"""Values of the sizes at which two formulas that look different are compared."""


@record(slots=False)
class Count:
    """The number of points of disjoint spaces, as a function of the sizes that occur in them: `count(n=7)`.

    `str(count)` is a formula, Python's arithmetic over the sizes, valid where the `extents` of all tensors are at least 0;
    `formula` is the same as a sympy expression, None where no closed form was found. `read` are the extents of the tensor that is
    read: where one is 0 nothing can be.
    """

    spaces: tuple[Space, ...]
    extents: tuple[Expr, ...] = ()
    read: tuple[Expr, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes."""
        return tuple(dict.fromkeys(name for axes, guards in self.spaces for e in bounds_and_guards(axes, guards) for name in size_names(e)))

    def __call__(self, **sizes: int) -> int:
        missing = [name for name in self.sizes if name not in sizes]
        if missing:
            raise ArgumentError(f"expected a value for every size, got none for {', '.join(missing)}", hint="row.reads(n=7)")

        def known(expr: Expr) -> Expr:
            return _at_sizes(expr, sizes)

        spaces = [space for axes, guards in self.spaces for space in _pieces(map_axes(axes, known), tuple(map(known, guards)))]
        return sum(points(axes, guards).count() for axes, guards in spaces)

    @property
    def formula(self) -> Any:
        """The closed form as a sympy expression in integer symbols with the names of the sizes, None where there is none."""
        found = self.polynomial
        return None if found is None else to_sympy(found)

    @cached_property
    def polynomial(self) -> Polynomial | None:
        """The closed form, None where none was found."""
        total = Polynomial()
        for axes, guards in (space for one in self.spaces for space in _pieces(*one)):
            found = _closed_form(axes, guards, self.extents)
            if found is None:
                return None
            total = total + found
        return tidied(total)

    def is_always(self, other: Count) -> bool:
        """Whether two counts have one closed form, or give one number wherever they are tried: at the smallest values of the sizes."""
        mine, theirs = self.polynomial, other.polynomial
        if mine is not None and mine == theirs:
            return True
        sizes = tuple(dict.fromkeys((*self.sizes, *other.sizes)))
        most = max(2, int(_TRIED ** (1 / max(1, len(sizes)))))
        every = (dict(zip(sizes, values, strict=True)) for values in itertools.product(range(most), repeat=len(sizes)))
        return all(self(**values) == other(**values) for values in every if self.is_possible(values))

    def is_possible(self, sizes: dict[str, int]) -> bool:
        """Whether tensors of these sizes exist, and the one that is read has elements."""
        limits = [(extent, 0) for extent in self.extents] + [(extent, 1) for extent in self.read]
        forms = [(affine_of(_at_sizes(extent, sizes)), least) for extent, least in limits]
        return all(form.constant >= least for form, least in forms if form is not None and form.is_constant)

    def __str__(self) -> str:
        found = self.polynomial
        return f"f({', '.join(self.sizes)})" if found is None else text(found)

    def __repr__(self) -> str:
        return f"<count {self}: call it with {', '.join(self.sizes)}>"


@record(slots=False)
class DataCount:
    """The number of points of spaces whose bounds depend on data: `count(offsets=array)`, by going through the points.

    `tensors` are those that the bounds read, with the names that users see; sizes that no array tells are given by name too.
    """

    spaces: tuple[Space, ...]
    tensors: tuple[tuple[str, Input], ...]

    def __call__(self, **values: Any) -> int:
        missing = [label for label, _ in self.tensors if label not in values]
        if missing:
            raise ArgumentError(
                f"expected an array for every tensor that bounds read, got none for {', '.join(missing)}", hint="row.reads(offsets=array)"
            )
        arrays = {item.name: np.asarray(values[label], item.type.dtype.numpy) for label, item in self.tensors}
        sizes = {name: int(value) for name, value in values.items() if name not in dict(self.tensors)}
        inputs = tuple(item for _, item in self.tensors)
        total = 0
        for axes, guards in self.spaces:
            known = [guard for guard in guards if not _reads(guard)]
            number = Reduce(Combiner("sum"), (const(1),), axes, conjunction(known) if known else None)
            exprs = [*bounds_and_guards(axes, known), *(extent for item in inputs for extent in item.type.shape)]
            named = tuple(dict.fromkeys(name for e in exprs for name in size_names(e)))
            program = Program(inputs, (), (Define("count", (), number),), ("count",), named)
            total += int(evaluate_program(program, arrays, {name: sizes[name] for name in named if name in sizes})["count"])
        return total

    def __str__(self) -> str:
        return "by data"

    def __repr__(self) -> str:
        return f"<count by data: call it with {', '.join(label for label, _ in self.tensors)}>"


def count_of(
    spaces: Sequence[Space],
    extents: Sequence[Expr] = (),
    types: Mapping[str, TensorType] | None = None,
    labels: Mapping[str, str] | None = None,
    of: Sequence[Expr] = (),
) -> int | Count | DataCount:
    """The number of points of disjoint spaces: a number, or a function of the sizes that occur, or of the data in bounds.

    `extents` are those of tensors, which are at least 0, `of` those of the tensor that is read; `types` and `labels` describe
    the tensors that bounds read.
    """
    read = data_in_bounds(spaces)
    if read:
        types, labels = types or {}, labels or {}
        return DataCount(tuple(spaces), tuple((labels.get(name, name), Input(name, types[name])) for name in read))
    count = Count(tuple(spaces), tuple(extents), tuple(of))
    return count if count.sizes else count()


def data_in_bounds(spaces: Sequence[Space]) -> tuple[str, ...]:
    """The tensors on which the bounds of axes hang."""
    bounds = (bound for axes, _ in spaces for axis in axes for bound in (axis.start, axis.stop))
    return tuple(dict.fromkeys(name for bound in bounds for name in tensors_read(bound)))


def rounds_in_vain(target: Sequence[Axis], loops: Sequence[Axis], guards: tuple[Expr, ...]) -> list[Space]:
    """The rounds of loops at the elements of `target` in which a loop further in, whose bounds they change, is empty."""
    found: list[Space] = []
    for at, loop in enumerate(loops):
        around = (*target, *loops[:at])
        if {*free_names(loop.start), *free_names(loop.stop)}.isdisjoint(axis.index for axis in loops[:at]):
            continue  # empty at an element or not at all: such elements are tested for, not gone around
        if not implied(apply("lt", loop.start, loop.stop), around, guards):
            conditions = (*guards, apply("ge", loop.start, loop.stop))
            found += [(around, own) for _, own in split((), around, conditions) or [((), conditions)]]
    return found


def reads_of(contribution: Contribution) -> list[Space]:
    """Where a contribution reads, in disjoint spaces; conditions on data are left out."""
    guards = narrowed(contribution.axes, contribution.guards)
    if guards is None:
        return []
    known = tuple(part for guard in guards for part in conjuncts(guard) if not depends_on_data(part))
    pieces = split((), contribution.axes, known)
    return [(contribution.axes, guards) for _, guards in pieces or [((), known)]]


def points(axes: Sequence[Axis], guards: Sequence[Expr]) -> Domain:
    """The points of axes and those guards that are affine; what depends on data is left out."""
    region = domain_of(axes, guards)
    return _without(region.domain, set(region.opaque.names.values()))


def _pieces(axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> list[Space]:
    """Disjoint spaces with the same points; bounds that are affine by cases only (a difference of minima) stand as guards in each."""
    loose = [axis for axis in axes if not bound_constraints(axis.index, axis)[1]]
    ends: list[Expr] = []
    for axis in loose:
        ends += [apply("ge", Index(axis.index), axis.start), apply("lt", Index(axis.index), axis.stop)]
    pieces = split((), axes, (*guards, *ends)) if loose else None
    return [(axes, guards)] if pieces is None else [(axes, conditions) for _, conditions in pieces]


def _at_sizes(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    values = {name: const(value) for name, value in sizes.items()}
    return bottom_up(expr, lambda node: values.get(node.name, node) if isinstance(node, Size) else node)


def _without(domain: Domain, names: set[str]) -> Domain:
    """The domain without the constraints on some sizes."""
    if not names:
        return domain
    kept = [c for c in domain.constraints if names.isdisjoint(c.names())]
    return Domain(domain.dims, kept, [name for name in domain.sizes if name not in names])


def _closed_form(axes: Sequence[Axis], guards: Sequence[Expr], extents: Sequence[Expr]) -> Polynomial | None:
    """The number of points as a formula, None where what they are is known only when the sizes are."""
    opaque = Opaque()
    try:
        region = domain_of(axes, guards, opaque)
    except DomainTooComplex:
        return None
    data = {name for expr, name in opaque.names.items() if _reads(expr)}
    products = {name: expr for expr, name in opaque.names.items() if name not in data}
    if any(_polynomial(expr) is None for expr in products.values()):
        return None
    if any(not _reads(guard) and not constraints_of(guard, opaque)[1] for guard in guards):
        return None
    domain = _without(region.domain, data)
    forms = [form for extent in extents if (form := affine_of(extent)) is not None and set(form.names()) <= set(domain.sizes)]
    known = [ge(name, 0) for name in domain.sizes if name not in products or _is_positive(products[name])]
    found = closed_form(domain, known + [ge(form, 0) for form in forms])
    for name, expr in products.items():
        value = _polynomial(expr)
        if found is None or value is None or any(name in names_in(atom) for atom in found.atoms() if atom != name):
            return None
        found = found.substitute(name, value)
    return found


def _polynomial(extent: Expr) -> Polynomial | None:
    """A product of sizes (or sums of them) as a polynomial."""
    match extent:
        case Const():
            return Polynomial.of(int(extent.value))
        case Size():
            return Polynomial.of(extent.name)
        case Apply(op, (a, b)) if op.name in ("add", "sub", "mul"):
            left, right = _polynomial(a), _polynomial(b)
            if left is None or right is None:
                return None
            return left * right if op.name == "mul" else left + right if op.name == "add" else left - right
    return None


def _is_positive(extent: Expr) -> bool:
    """Whether a product of sizes cannot be negative, by its form."""
    return not any(isinstance(node, Apply) and node.op.name == "sub" for node in walk(extent)) and all(
        node.value >= 0 for node in walk(extent) if isinstance(node, Const)
    )


def _reads(expr: Expr) -> bool:
    return bool(tensors_read(expr))
