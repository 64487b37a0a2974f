"""Reads at places that depend on data, where axes are several in one: a row that data chooses, and a place in it.

    y[p] = x[ids[p // 128] * 128 + p % 128]       is, over  p = q*128 + r  and for the element  v = i*128 + j,
    y[q, r] = x[ids[q], r]

An axis of the read is split by the largest number by which it is divided. An index is split by what all data in it is multiplied by, where
the rest is proved to be less: then what is sorted are rows, one for each number that is read from memory, and not their elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd

from tensorexpr.autodiff.invert.inversion import Gather
from tensorexpr.autodiff.local.boxes import reads
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.bounds import implied
from tensorexpr.ir import Apply, Axis, Cast, Const, Expr, Index, apply, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import bottom_up, fresh_name, substitute, walk


@record
class Rows:
    """A read at elements of other axes, and what these are at the elements of the former ones."""

    contribution: Contribution
    target: tuple[Axis, ...]
    elements: Mapping[str, Expr]

    def told(self, gather: Gather) -> Gather:
        """A gather at these elements as one at the former ones."""

        def at_element(expr: Expr) -> Expr:
            return substitute(expr, self.elements)

        return replace(
            gather,
            values={name: at_element(value) for name, value in gather.values.items()},
            axes=tuple(Axis(a.index, at_element(a.start), at_element(a.stop)) for a in gather.axes),
            outer=tuple(map(at_element, gather.outer)),
            inner=tuple(map(at_element, gather.inner)),
        )


def with_digits(c: Contribution, divided: Sequence[Expr], reserved: Iterable[str]) -> Contribution:
    """The contribution with two axes for each that starts at 0 and is divided, in some expressions, by what divides its length."""
    taken = {*reserved, *(axis.index for axis in c.axes)}
    at = 0
    while at < len(c.axes):
        axis = c.axes[at]
        moduli = [m for e in divided for m in _divisors(e, axis)]
        if not moduli:
            at += 1
            continue
        row, column = (fresh_name(f"{axis.index}_{part}", taken) for part in "oi")
        c, divided = _split(c, at, max(moduli), row, column, divided)
    return c


def _split(c: Contribution, at: int, modulus: int, row: str, column: str, others: Sequence[Expr]) -> tuple[Contribution, list[Expr]]:
    """The contribution, and other expressions, with an axis in rows of a length."""
    axis = c.axes[at]
    digits = {"floordiv": Index(row), "mod": Index(column)}
    whole: dict[str, Expr] = {axis.index: apply("add", apply("mul", Index(row), const(modulus)), Index(column))}

    def digit(node: Expr) -> Expr:
        return digits[node.op.name] if isinstance(node, Apply) and _divides(node, axis) == modulus else node

    def moved(expr: Expr) -> Expr:
        return substitute(bottom_up(expr, digit), whole)

    assert isinstance(axis.stop, Const)
    inner = (Axis(row, const(0), const(int(axis.stop.value) // modulus)), Axis(column, const(0), const(modulus)))
    behind = (Axis(a.index, moved(a.start), moved(a.stop)) for a in c.axes[at + 1 :])
    found = replace(
        c,
        access=replace(c.access, indices=tuple(map(moved, c.access.indices))),
        axes=(*c.axes[:at], *inner, *behind),
        guards=tuple(map(moved, c.guards)),
        value=moved(c.value),
        reads=tuple((access, tuple(map(moved, extra))) for access, extra in c.reads),
    )
    return found, list(map(moved, others))


def _divisors(expr: Expr, axis: Axis) -> Iterator[int]:
    return (found for node in walk(expr) if (found := _divides(node, axis)))


def _divides(node: Expr, axis: Axis) -> int:
    """The number by which an index is divided and which divides the length of its axis; 0 where a node is nothing of that."""
    match node:
        case Apply(op, (Index(own), Const(value))) if op.name in ("floordiv", "mod") and own == axis.index:
            length = int(axis.stop.value) if isinstance(axis.stop, Const) and axis.start == const(0) else 0
            return int(value) if 1 < value < length and length % int(value) == 0 else 0
    return 0


def in_rows(c: Contribution, target: tuple[Axis, ...], steps: tuple[Axis, ...], reserved: Iterable[str]) -> Rows | None:
    """The read with one index more; None where none is a row and a place in it."""
    taken = {*reserved, *(axis.index for axis in (*c.axes, *target))}
    for at, (index, element) in enumerate(zip(c.access.indices, target, strict=True)):
        if not isinstance(element.stop, Const):
            continue
        terms, length = list(_terms(index, 1)), int(element.stop.value)
        radix = gcd(*(count for term, count in terms if reads((term,))))
        if radix < 2 or length % radix:
            continue
        rows = _added([(term, count // radix) for term, count in terms if count % radix == 0])
        rest = _added([(term, count) for term, count in terms if count % radix])
        inside = (apply("ge", rest, const(0)), apply("lt", rest, const(radix)))
        if not all(implied(one, (*steps, *c.axes), c.guards) for one in inside):
            continue
        row, column = (fresh_name(f"{element.index}_{part}", taken) for part in "oi")
        access = replace(c.access, indices=(*c.access.indices[:at], rows, rest, *c.access.indices[at + 1 :]))
        axes = (Axis(row, const(0), const(length // radix)), Axis(column, const(0), const(radix)))
        whole = Index(element.index)
        elements = {row: apply("floordiv", whole, const(radix)), column: apply("mod", whole, const(radix))}
        return Rows(replace(c, access=access), (*target[:at], *axes, *target[at + 1 :]), elements)
    return None


def _terms(expr: Expr, count: int) -> Iterator[tuple[Expr, int]]:
    """The summands of an index, each with the number that it is multiplied by."""
    match expr:
        case Apply(op, (a, b)) if op.name in ("add", "sub"):
            yield from _terms(a, count)
            yield from _terms(b, count if op.name == "add" else -count)
        case Apply(op, (a, Const(value)) | (Const(value), a)) if op.name == "mul":
            yield from _terms(a, count * int(value))
        case Const(value):
            yield const(1), count * int(value)
        case Cast(arg=Apply(op, (_, Const(value)))) if op.name == "mul" and expr.arg.dtype.is_integer and value and not value % 2:
            # A product of a narrower type may wrap around: it stays a multiple of a power of two.
            power = int(value) & -int(value)
            yield apply("floordiv", expr, const(power)), count * power
        case _:
            yield expr, count


def _added(terms: Sequence[tuple[Expr, int]]) -> Expr:
    found: Expr | None = None
    for term, count in terms:
        part = term if count == 1 else apply("mul", term, const(count))
        found = part if found is None else apply("add", found, part)
    return const(0) if found is None else found
