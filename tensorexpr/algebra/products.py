"""Several products that one definition adds up are definitions of their own.

    y[i, j] = tanh(sum(x[i, k] * w[k, j] for k) + sum(h[i, k] * u[k, j] for k))
    -->   p[i, j] = sum(x[i, k] * w[k, j] for k);  q[i, j] = sum(h[i, k] * u[k, j] for k);  y[i, j] = tanh(p[i, j] + q[i, j])

A tile of registers, and the panels that operands are copied into, are those of one product. An element more that is stored and loaded is
little beside a sum of many.

    sum(x[i, k] * q[k, j] * s[k // 32, j] for k)   -->   sum(x[i, k] * (q[k, j] * s[k // 32, j]) for k)

Of three factors or more those are multiplied first whose product depends on the fewest points: others share it, and what is left at each
point is one operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from math import prod

from tensorexpr.algebra.keyed.keys import evaluated
from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Index, Program, Reduce, apply
from tensorexpr.records import replace
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.simplify.passes.amounts import cost, lengths
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.terms import STORED
from tensorexpr.traversal import bottom_up, free_names, fresh_name, replaced, walk


def with_products_apart(program: Program) -> Program:
    """The program with definitions of the products that others add up.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    definitions: list[Definition] = []
    for d in program.definitions:
        products = _products(d) if isinstance(d, Define) else []
        if isinstance(d, Define) and len(products) > 1:
            found: dict[Expr, Expr] = {}
            for e in products:
                one = Define(fresh_name(f"{d.name}_product", taken), d.axes, e, d.location)
                definitions.append(one)
                found[e] = Access(one.name, tuple(Index(a.index) for a in d.axes), e.dtype)
            d = replace(d, value=replaced(d.value, found))
        definitions.append(d)
    return program if len(definitions) == len(program.definitions) else replace(program, definitions=tuple(definitions))


def with_factors_grouped(program: Program) -> Program:
    """The program with the factors of sums of products in the order of the points that they depend on.

    Requires: a simplified program. Ensures: every value is kept up to rounding.
    """

    def grouped(d: Definition) -> Definition:
        if not isinstance(d, Define) or not any(isinstance(n, Reduce) for n in walk(d.value)):
            return d
        value = bottom_up(d.value, lambda n: _grouped(n, d.axes) if isinstance(n, Reduce) else n)
        return d if value == d.value else replace(d, value=value)

    return with_definitions(program, map(grouped, program.definitions))


def _grouped(e: Reduce, around: tuple[Axis, ...]) -> Reduce:
    """A sum whose factors are multiplied in pairs, those first that leave out an index and have the fewest points together."""
    if e.combiner.name != "sum" or not e.combiner.is_builtin or not e.dtype.is_float or e.dtype.bits < 32:
        return e
    factors, extents = list(factors_of(e.values[0])), lengths((*around, *e.axes))
    every = {n for factor in factors for n in free_names(factor)}
    given = len(factors)
    while len(factors) > 2:
        pairs = [(prod(extents.get(n, 1.0) for n in names), one, other) for one, other, names in _pairs(factors) if names < every]
        if not pairs:
            break
        _, one, other = min(pairs)
        factors[one] = apply("mul", factors[one], factors.pop(other))
    return e if len(factors) == given else replace(e, values=(reduce(lambda a, b: apply("mul", a, b), factors),))


def _pairs(factors: list[Expr]) -> Iterator[tuple[int, int, set[str]]]:
    for one, other in combinations(range(len(factors)), 2):
        yield one, other, {*free_names(factors[one]), *free_names(factors[other])}


def _products(d: Define) -> list[Expr]:
    """The products of matrices that are computed for each element of a definition, each once."""
    axes = {a.index for a in d.axes}
    nodes = list(walk(d.value))
    if sum(isinstance(e, Reduce) for e in nodes) < 2 or any(isinstance(e, Apply) and e.op.name == "recompute" for e in nodes):
        return []
    return list(dict.fromkeys(e for e in evaluated(d.value) if isinstance(e, Reduce) and _is_product(e, axes)))


def _is_product(e: Reduce, axes: set[str]) -> bool:
    """Whether each element is a long sum of its own, of factors which do not depend on all indices: they are read again and again."""
    value = e.values[0]
    if (
        e.combiner.name != "sum"
        or not e.combiner.is_builtin
        or not e.dtype.is_float
        or not isinstance(value, Apply)
        or value.op.name != "mul"
    ):
        return False
    return axes <= set(free_names(e)) and cost(e) >= STORED and all(not axes <= set(free_names(factor)) for factor in value.args)
