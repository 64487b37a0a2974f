"""Sums of products are taken apart: what a sum does not depend on stands outside of it.

    sum(h[q, j] * a[q, i] * a[p, i] for q for i)   -->   sum(h[q, j] * sum(a[q, i] * a[p, i] for i) for q)
    sum(h[i] * (x[i, k] / s[i]) * y[i, k] for k)   -->   h[i] / s[i] * sum(x[i, k] * y[i, k] for k)

The distributive law, one axis at a time: the axis whose sum, over the factors that depend on it, runs over the fewest points goes inside,
as long as that at least halves the points of all loops together (the inner sum is computed once for the indices that it depends on:
where these are indices of the outer sum, `terms` makes a tensor of it). Finding the best order is a matrix chain problem in general;
greedy elimination is what einsum libraries do.

Integers are a ring modulo 2**bits. Floats round differently, and another sum may overflow, so they are taken apart in derived formulas and
where reassociation is allowed, those of 16 bits never. Only sums over literal ranges that have points: over none, a factor that is
infinite would be multiplied by zero.

In derived formulas a tensor that is a product of elements, as rows that were divided by their norm are, is looked through where a factor
of it leaves the sum, as long as nobody needs the tensor then. Outside of sums, a divisor that the innermost axis does not change is
divided by once for that axis:

    g[i, k] = h[i] * (x[i, k] / s[i])   -->   g[i, k] = h[i] / s[i] * x[i, k]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Program, Reduce, Scatter, TensorType, apply
from tensorexpr.records import record, replace
from tensorexpr.simplify.options import Options
from tensorexpr.simplify.passes.amounts import lengths
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.terms import pays_alone, term_of
from tensorexpr.traversal import children, free_names, map_children, reads, substitute, walk

GAIN = 2
"""How many times fewer points there are at least."""
FUNCTION = 12
"""What functions cost at least, in additions (`Op.cost`)."""


def factor_sums(program: Program, options: Options, given: Iterable[Definition] = ()) -> Program:
    """Takes sums of products apart where that makes fewer operations; `given` are definitions that the program reads as inputs.

    Requires: nothing. Ensures: every value of integers is kept; of floats, which change where the options say that formulas are derived
    or may be reassociated, up to rounding; so is every check of an index.
    """
    products = _products((*given, *program.definitions)) if options.derived else {}
    while True:
        factors = _Factors(program.types, options.derived or options.reassociate, options.derived, products)
        found = [factors.of_definition(d) for d in program.definitions]
        read = _read(found, products)
        if not read:
            return with_definitions(program, found)
        products = {name: d for name, d in products.items() if name not in read}


def _read(definitions: Sequence[Definition], products: Mapping[str, Define]) -> set[str]:
    """The products that are needed in any case: those which others read, and those which these are made of."""
    found: set[str] = set()
    todo = [name for d in definitions if not {n for n, _ in d.results} <= products.keys() for name in reads(d)]
    while todo:
        name = todo.pop()
        if name in products and name not in found:
            found.add(name)
            todo += reads(products[name])
    return found


def _products(definitions: Iterable[Definition]) -> dict[str, Define]:
    """The tensors whose elements are products and quotients of elements of others."""
    return {d.name: d for d in definitions if isinstance(d, Define) and _is_chain(d.value) and all(map(_is_plain, _chain(d.value)))}


def _chain(value: Expr) -> list[Expr]:
    return [part for parts in _factors(value) for part in parts]


def _is_chain(value: Expr) -> bool:
    return isinstance(value, Apply) and value.op.name in ("mul", "div") and value.dtype.is_float


def _is_plain(part: Expr) -> bool:
    return isinstance(part, Access) and not any(isinstance(n, Access) for e in part.indices for n in walk(e))


@record
class _Factors:
    """What sums are taken apart with: `floats` says whether those of floats may be, `derived` whether the formulas are derived ones."""

    types: Mapping[str, TensorType]
    floats: bool
    derived: bool
    products: Mapping[str, Define]

    def of_definition(self, definition: Definition) -> Definition:
        if not isinstance(definition, Define | Scatter):
            return definition
        reduces = any(isinstance(n, Reduce) and (self.floats or n.dtype.is_integer) for n in walk(definition.value))
        divides = self.derived and any(isinstance(n, Apply) and n.op.name == "div" for n in walk(definition.value))
        if not reduces and not divides:
            return definition
        alone = isinstance(definition, Define)  # what is sent is a sum by itself, which the elements of a row share
        value = (self if alone else replace(self, derived=False))._visit(definition.value, definition.axes, definition.axes, False)
        return definition if value is definition.value else replace(definition, value=value)

    def _visit(self, node: Expr, axes: tuple[Axis, ...], data: tuple[Axis, ...], within: bool) -> Expr:
        """A node with its sums taken apart. `data` are the axes of the definition, none in a sum; `within` is said of factors."""
        if isinstance(node, Access) or not children(node):
            return node
        inner = (*axes, *node.axes) if isinstance(node, Reduce) else axes
        chain = _is_chain(node)
        below = () if isinstance(node, Reduce) else data
        node = map_children(node, lambda child: self._visit(child, inner, below, chain))
        if isinstance(node, Reduce) and node.combiner.name == "sum" and node.combiner.is_builtin and node.where is None:
            exact = node.dtype.is_integer or (self.floats and node.dtype.bits >= 32)
            if exact and all(map(_has_points, node.axes)):
                return self._apart(node, axes)
        if self.derived and chain and not within and data and node.dtype.bits >= 32:
            return self._divided_once(node, data)
        return node

    def _looked_through(self, value: Expr, own: set[str]) -> tuple[list[Expr], list[Expr]]:
        """The factors and divisors of a product, those of tensors that are products too where some of them have none of the indices."""
        found: tuple[list[Expr], list[Expr]] = ([], [])
        for below, parts in enumerate(_factors(value)):
            for part in parts:
                inner = self._parts_of(part, own) if own.intersection(free_names(part)) else None
                for side, more in enumerate(inner or ([part], [])):
                    found[side ^ below].extend(more)
        return found

    def _parts_of(self, part: Expr, own: set[str]) -> tuple[list[Expr], list[Expr]] | None:
        product = self.products.get(part.tensor) if isinstance(part, Access) else None
        if product is None or not isinstance(part, Access):
            return None
        at = {axis.index: index for axis, index in zip(product.axes, part.indices, strict=True)}
        parts = self._looked_through(substitute(product.value, at), own)
        return parts if any(own.isdisjoint(free_names(e)) for side in parts for e in side) else None

    def _divided_once(self, node: Expr, data: tuple[Axis, ...]) -> Expr:
        """A product or quotient with what the innermost of its axes does not change in front, where it is divided by some of that."""
        names = set(free_names(node))
        last = next((axis.index for axis in reversed(data) if axis.index in names), None)
        if last is None or any(isinstance(n, Reduce) for n in walk(node)):
            return node
        factors, divisors = self._looked_through(node, {last})
        (many, few), (below, once) = _parted(factors, {last}), _parted(divisors, {last})
        if not once or not few or not many:
            return node
        found = apply("mul", _divided(_product(few), once, node), _quotient(many, below, node))
        return node if found == node else found

    def _apart(self, node: Reduce, around: tuple[Axis, ...]) -> Expr:
        """A sum over the axes in which its factors do not come apart, of what is left of the others; the same object where none do."""
        own = {axis.index for axis in node.axes}
        (factors, first), (divisors, last) = (_parted(parts, own) for parts in self._looked_through(node.values[0], own))
        if not self.derived or not _leave([*factors, *divisors], [*first, *last]):
            factors, divisors = _factors(node.values[0])
            first, last = [], []
        else:
            factors.sort(key=_tensor)  # equal sums are then equal in text
        axes, all_axes = list(node.axes), (*around, *node.axes)
        extents = lengths(all_axes)
        changed = bool(first or last)
        while True:
            loops = {name for e in (*factors, *divisors) for name in free_names(e)} | {a.index for a in axes}
            total = _points(loops, extents)
            best: tuple[float, Axis] | None = None
            for axis in axes:
                depending = {n for e in (*factors, *divisors) if axis.index in free_names(e) for n in free_names(e)}
                if not depending:
                    continue
                after = _points(depending, extents) + _points(loops - {axis.index}, extents)
                if GAIN * after <= total and (best is None or after < best[0]):
                    best = (after, axis)
            if best is None:
                break
            axis = best[1]
            inside, outside = _parted(factors, {axis.index}), _parted(divisors, {axis.index})
            inner = replace(node, values=(_quotient(inside[0], outside[0], node),), axes=(axis,))
            rest = tuple(a for a in axes if a is not axis)
            if rest and not {a.index for a in rest}.isdisjoint(free_names(inner)):
                term = term_of(inner, all_axes, self.types)
                data = tuple(a for a in all_axes if a.index in loops - {axis.index})
                if term is None or not pays_alone(term, inner, data, self.types):
                    break
            factors, divisors, axes, changed = [*inside[1], inner], outside[1], list(rest), True
        if not changed:
            return node
        value = _quotient(factors, divisors, node)
        value = replace(node, values=(value,), axes=tuple(axes)) if axes else value
        value = _divided(value, last, node)
        return apply("mul", value, outer) if (outer := _product(first)) is not None else value


def _leave(stay: Sequence[Expr], go: Sequence[Expr]) -> bool:
    """Whether some factors leave a sum: beside a function of what stays they cost next to nothing, and literals move by themselves."""
    functions = (n for e in stay for n in walk(e) if isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION)
    return bool(stay) and not all(isinstance(e, Const) for e in go) and next(functions, None) is None


def _has_points(axis: Axis) -> bool:
    return isinstance(axis.start, Const) and isinstance(axis.stop, Const) and axis.start.value < axis.stop.value


def _points(names: set[str], extents: Mapping[str, float]) -> float:
    return prod(extents.get(name, 1.0) for name in sorted(names))


def _tensor(factor: Expr) -> str:
    return factor.tensor if isinstance(factor, Access) else ""


def _parted(factors: Sequence[Expr], names: set[str]) -> tuple[list[Expr], list[Expr]]:
    """Those that depend on one of the indices, and the others."""
    return [e for e in factors if not names.isdisjoint(free_names(e))], [e for e in factors if names.isdisjoint(free_names(e))]


def _factors(value: Expr) -> tuple[list[Expr], list[Expr]]:
    """The factors of a product, and what it is divided by."""
    if isinstance(value, Apply) and value.op.name == "mul":
        (a, below_a), (b, below_b) = map(_factors, value.args)
        return a + b, below_a + below_b
    if isinstance(value, Apply) and value.op.name == "div":
        (a, below_a), (b, below_b) = map(_factors, value.args)
        return a + below_b, below_a + b
    return [value], []


def _quotient(factors: Sequence[Expr], divisors: Sequence[Expr], node: Expr) -> Expr:
    """The product of some factors over that of others; 1 of none."""
    result = _product(factors) or Const(1, node.dtype)
    below = _product(divisors)
    return result if below is None else apply("div", result, below)


def _divided(value: Expr | None, divisors: Sequence[Expr], node: Expr) -> Expr:
    """A value, 1 where there is none, divided by one after the other: their product may be out of range where no quotient is."""
    result = Const(1, node.dtype) if value is None else value
    for divisor in divisors:
        result = apply("div", result, divisor)
    return result


def _product(factors: Sequence[Expr]) -> Expr | None:
    result: Expr | None = None
    for factor in factors:
        result = factor if result is None else apply("mul", result, factor)
    return result
