"""Products of matrices that one sum adds up are one product, over an axis more.

    s[i, j] = sum(x[i, k, 1] * w[k, j, 0] - x[i, k, 0] * w[k, j, 1] for k)
    -->   q[k, c, j] = where(c == 0, -w[k, j, 1], w[k, j, 0]);  s[i, j] = sum(x[i, k, c] * q[k, c, j] for k for c)

Real parts, imaginary parts and other components are read with a stride, two operands to a side. A tile of registers and its panels are
those of one product. Each element of it is read often: making an operand is little beside it, where the terms are no components in order.
An operand is made of all its rows: where a condition around the sum keeps reads in bounds, it stands around the operand's values as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod

from tensorexpr.algebra.layouts.slices import REUSED
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, apply, conjunction, const
from tensorexpr.language.core.renaming import index_names
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import lengths
from tensorexpr.simplify.passes.definitions import form_of
from tensorexpr.traversal import free_names, fresh_name, has_points, read_occurrences, replaced, tensors_read, walk

MOST_TERMS = 4
"""Products in one sum: quaternions have four, each a component with a role of its own."""
LEAST_WORK = 1 << 16
"""Products from which on an operand that is made does not matter, nor its kernel."""
Term = tuple[Expr, Expr]
"""The factors of a product, that of the lanes last; with a sign one of them is its negative."""


def with_products_joined(program: Program) -> Program:
    """The program in which sums of several products of matrices are products of matrices.

    Requires: a simplified program. Ensures: every value is kept up to the order in which terms are added.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    shapes = {name: found.shape for name, found in program.types.items()}
    places = {name: place for place, name in enumerate(program.types)}
    known: dict[object, str] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        sums = [e for e in walk(d.value) if isinstance(e, Reduce)] if isinstance(d, Define) else []
        if isinstance(d, Define) and len(sums) == 1 and (terms := _terms(d, sums[0], places)):
            found = _joined(d, sums[0], terms, taken, known, shapes)
            if found is not None:
                definitions += found[0]
                d = replace(d, value=replaced(d.value, {sums[0]: found[1]}))
        definitions.append(d)
    return program if len(definitions) == len(program.definitions) else replace(program, definitions=tuple(definitions))


def _terms(d: Define, e: Reduce, places: Mapping[str, int]) -> list[Term]:
    """The products that a sum adds up, each with the factor of the same rows first; none where it is no sum of products of matrices. They
    are in the order of the tensors of that factor in the program, whose `places` are given."""
    axes = (*d.axes, *e.axes)
    if e.combiner.name != "sum" or not e.combiner.is_builtin or not e.dtype.is_float or e.dtype.bits < 32 or e.where is not None:
        return []
    if not all(map(has_points, e.axes)) or any(a.start != const(0) or free_names(a.stop) for a in axes):
        return []
    found = list(_products(e.values[0], False))
    if not 2 <= len(found) <= MOST_TERMS or any(None in pair for pair in found):
        return []
    data, summed, extents = {a.index for a in d.axes}, {a.index for a in e.axes}, lengths(axes)
    pairs = [(one, other) for one, other in found if one is not None and other is not None]
    if d.axes and d.axes[-1].index in free_names(pairs[0][0]):
        pairs = [pair[::-1] for pair in pairs]
    rows, columns = (set(free_names(factor)) & data for factor in pairs[0])
    terms: list[Term] = []
    for one, other in pairs:
        if set(free_names(one)) & data != rows:
            one, other = other, one
        if set(free_names(one)) & data != rows or set(free_names(other)) & data != columns:
            return []
        if not summed <= set(free_names(one)) & set(free_names(other)):
            return []
        terms.append((one, other))
    often = [prod(extents[n] for n in data - own) for own in (rows, columns)]
    if prod(extents[a.index] for a in axes) < LEAST_WORK:
        return []
    # Sums that differ in what components go with which then share what they read, and equal layers stay equal: names do not matter.
    return sorted(terms, key=lambda term: _place(term[0], places)) if rows | columns == data and min(often) >= REUSED else []


def _place(factor: Expr, places: Mapping[str, int]) -> tuple[int, str]:
    return (places[factor.tensor], str(factor.indices)) if isinstance(factor, Access) else (len(places), str(factor))


def _products(e: Expr, negative: bool) -> Iterator[tuple[Expr | None, Expr | None]]:
    """The products of two reads that an expression adds up, the sign in the second; None where it adds up something else."""
    if isinstance(e, Apply) and e.op.name in ("add", "sub"):
        yield from _products(e.args[0], negative)
        yield from _products(e.args[1], negative != (e.op.name == "sub"))
    elif isinstance(e, Apply) and e.op.name == "neg":
        yield from _products(e.args[0], not negative)
    elif isinstance(e, Apply) and e.op.name == "mul" and all(_is_plain(factor) for factor in e.args):
        yield e.args[0], apply("neg", e.args[1]) if negative else e.args[1]
    else:
        yield None, None


def _is_plain(e: Expr) -> bool:
    """Whether a factor is an element at a place that indices say."""
    return isinstance(e, Access) and not any(map(tensors_read, e.indices))


def _joined(
    d: Define, e: Reduce, terms: Sequence[Term], taken: set[str], known: dict[object, str], shapes: Mapping[str, tuple[Expr, ...]]
) -> tuple[list[Define], Reduce] | None:
    """The operands of a product that are not `known` yet, and the product; None where one would read beyond a tensor."""
    part = Axis(fresh_name("part", {*taken, *index_names(d)}), const(0), const(len(terms)))
    summed = (*e.axes, part)
    made: list[tuple[object, Define]] = []
    factors = []
    for side in zip(*terms, strict=True):
        read = _component(part.index, side)
        if read is None:
            own = [a for a in d.axes if a.index in free_names(side[0])]
            lanes = d.axes[-1] in own
            # What lanes read lies along them, a row for each term of the sum; the other factor along the sum.
            first = [a for a in own if not lanes or all(a.index in free_names(factor) for factor in terms[0])]
            axes = (*first, *summed, *(a for a in own if a not in first))
            value = _in_bounds(_chosen(part.index, side), axes, _guards(d, e), shapes)
            if value is None:
                return None
            key = form_of(Define("", axes, value))
            name = known.get(key, next((one.name for other, one in made if other == key), None))
            if name is None:
                name = fresh_name(f"{d.name}_operand", taken)
                made.append((key, Define(name, axes, value)))
            read = Access(name, tuple(Index(a.index) for a in axes), e.dtype)
        factors.append(read)
    known.update((key, one.name) for key, one in made)
    return [one for _, one in made], replace(e, axes=summed, values=(apply("mul", *factors),))


def _guards(d: Define, e: Reduce) -> list[Expr]:
    """The conditions under which a definition comes to a sum, those that hold wherever it stands."""
    depth = len(d.axes) + len(e.axes)
    found = [r.guards for r in read_occurrences(d.value, d.axes) if r.axes[len(d.axes) : depth] == e.axes]
    return [guard for guard in found[0] if all(guard in others for others in found)] if found else []


def _in_bounds(value: Expr, axes: tuple[Axis, ...], guards: Sequence[Expr], shapes: Mapping[str, tuple[Expr, ...]]) -> Expr | None:
    """A value that can be had at all points of the axes: as it is, else 0 beside `guards`; None where these do not keep reads in bounds."""
    if not guards:
        return value
    names = {a.index for a in axes}
    said = [guard for guard in guards if set(free_names(guard)) <= names and not tensors_read(guard)]
    for some in ([], said):
        reads = read_occurrences(value, axes, tuple(some))
        verdicts = (v for r in reads for v in check_access(r.access.indices, shapes[r.access.tensor], r.axes, r.guards))
        if all(v is PROVED for v in verdicts):
            return apply("where", conjunction(some), value, Const(0, value.dtype)) if some else value
    return None


def _component(part: str, values: Sequence[Expr]) -> Expr | None:
    """The element of a tensor that each of some values is by its number, in one axis; None where they are no such elements."""
    first = values[0]
    for at, index in enumerate(first.indices) if isinstance(first, Access) else ():
        if isinstance(first, Access) and index == const(0):
            one = [replace(first, indices=(*first.indices[:at], const(n), *first.indices[at + 1 :])) for n in range(len(values))]
            if one == list(values):
                return replace(first, indices=(*first.indices[:at], Index(part), *first.indices[at + 1 :]))
    return None


def _chosen(part: str, values: Sequence[Expr]) -> Expr:
    """One of some values, by its number."""
    numbered = list(enumerate(values))
    return reduce(lambda rest, one: apply("where", apply("eq", Index(part), const(one[0])), one[1], rest), numbered[-2::-1], values[-1])
