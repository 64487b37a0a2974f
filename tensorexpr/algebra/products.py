"""Several products that one definition adds up are definitions of their own.

    y[i, j] = tanh(sum(x[i, k] * w[k, j] for k) + sum(h[i, k] * u[k, j] for k))
    -->   p[i, j] = sum(x[i, k] * w[k, j] for k);  q[i, j] = sum(h[i, k] * u[k, j] for k);  y[i, j] = tanh(p[i, j] + q[i, j])

    y[i] = sum(x[i, q] * sum(z[i, p] * w[p, q] for p) for q)
    -->   p[i, q] = sum(z[i, p] * w[p, q] for p);  y[i] = sum(x[i, q] * p[i, q] for q)

A tile of registers, and the panels that operands are copied into, are those of one product. An element more that is stored and loaded is
little beside a sum of many.

    s[i, j] = sum(q[i, k] * x[j, k] for k);  y[i, c] = sum(s[i, j] * v[j, c] for j)
    -->   y[i, c] = sum(q[i, k] * sum(x[j, k] * v[j, c] for j) for k)

A product that is read by nothing but sums over one of its axes goes where it is read, and these sums come apart in the order that takes the
fewest operations (`simplify.passes.factors`), where all of them together then take `GAIN` times fewer: attention without a softmax makes no
square. Errors of rounding have the same bound, the product of the magnitudes of all factors.

    sum(x[i, k] * q[k, j] * s[k // 32, j] for k)   -->   sum(x[i, k] * (q[k, j] * s[k // 32, j]) for k)

Of three factors or more those are multiplied first whose product depends on the fewest points: others share it, and what is left at each
point is one operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from math import prod

from tensorexpr.algebra.keyed.keys import sums_evaluated
from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Index, Input, Program, Reduce, apply
from tensorexpr.records import replace
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.simplify.options import Options
from tensorexpr.simplify.passes.amounts import cost, lengths
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.factors import GAIN, factor_sums
from tensorexpr.simplify.passes.inline import inline_definitions
from tensorexpr.simplify.passes.inline.worth import without_literals
from tensorexpr.simplify.passes.terms import STORED
from tensorexpr.traversal import bottom_up, children, free_names, fresh_name, has_points, reads, replaced, tensors_read, walk


def with_products_apart(program: Program) -> Program:
    """The program with definitions of the products that others add up.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Define) and (inner := _nested(d)):
            for e, axes in inner.items():
                one = Define(fresh_name(f"{d.name}_product", taken), axes, e, d.location)
                definitions.append(one)
                d = replace(d, value=replaced(d.value, {e: Access(one.name, tuple(Index(a.index) for a in axes), e.dtype)}))
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


def with_products_in_order(program: Program, options: Options) -> Program:
    """The program with products of products in the order of fewest operations.

    Requires: a simplified program. Ensures: every value is kept up to rounding, as `factor_sums` keeps it.
    """
    readers: dict[str, list[int]] = {}
    constants = {c.name for c in program.constants}
    for at, d in enumerate(program.definitions):
        for name in reads(d):
            readers.setdefault(name, []).append(at)
    definitions: list[Definition | None] = list(program.definitions)
    for at, d in enumerate(program.definitions):
        own, here = definitions[at], readers.get(d.results[0][0], [])
        near = [e for other in here if (e := definitions[other]) is not None]
        if not isinstance(own, Define) or own.name in program.outputs or not near or not _is_chained(own, constants):
            continue
        if not all(_adds_up(e, own.name) for e in near):
            continue
        made = {n for e in (own, *near) for n, _ in e.results}
        read = dict.fromkeys(n for e in (own, *near) for n in reads(e) if n not in made)
        part = replace(
            program,
            inputs=tuple(Input(n, program.types[n]) for n in read),
            definitions=(own, *near),
            outputs=tuple(e.results[0][0] for e in near),
        )
        found = factor_sums(inline_definitions(part, [own.name]), options).definitions
        if GAIN * sum(map(_work, found)) <= sum(map(_work, (own, *near))):
            definitions[at] = None
            for other, e in zip(here, found, strict=True):
                definitions[other] = e
    return with_definitions(program, (d for d in definitions if d is not None))


def _is_chained(d: Define, constants: set[str]) -> bool:
    """Whether a definition is a sum of products over literal ranges, up to a literal factor. Products with a constant stay: those with the
    matrix of a difference lose fewer digits than what it is the difference of."""
    value = without_literals(d.value)
    return (
        isinstance(value, Reduce)
        and _is_plain_sum(value)
        and value.dtype.bits >= 32
        and len(d.axes) > 1
        and len(list(factors_of(value.values[0]))) > 1
        and all(
            isinstance(factor, Access) and factor.tensor not in constants and not any(map(tensors_read, factor.indices))
            for factor in factors_of(value.values[0])
        )
    )


def _is_plain_sum(e: Expr) -> bool:
    if not isinstance(e, Reduce) or e.combiner.name != "sum" or not e.combiner.is_builtin or not e.dtype.is_float or e.where is not None:
        return False
    return all(map(has_points, e.axes))


def _adds_up(d: Definition, name: str) -> bool:
    """Whether all that a definition reads of a tensor are factors of sums over one of its axes."""
    if not isinstance(d, Define):
        return False
    nodes = list(walk(d.value))
    summed = 0
    for e in nodes:
        if isinstance(e, Reduce) and _is_plain_sum(e):
            own = {axis.index for axis in e.axes}
            for factor in factors_of(e.values[0]):
                if isinstance(factor, Access) and factor.tensor == name:
                    names = [index.name for index in factor.indices if isinstance(index, Index)]
                    summed += len(names) == len(factor.indices) == len(set(names)) and not own.isdisjoint(names)
    return summed == sum(isinstance(e, Access) and e.tensor == name for e in nodes)


def _work(d: Definition) -> float:
    """About how many operations the sums of a definition take, each computed once for the indices that it depends on."""
    assert isinstance(d, Define)

    def within(e: Expr, around: tuple[Axis, ...]) -> float:
        if not isinstance(e, Reduce):
            return sum(within(child, around) for child in children(e))
        axes = (*around, *e.axes)
        extents, names = lengths(axes), {*free_names(e), *(axis.index for axis in e.axes)}
        own = prod(extents[axis.index] for axis in axes if axis.index in names)
        return own * max(len(list(factors_of(e.values[0]))) - 1, 1) + sum(within(value, axes) for value in e.values)

    return within(d.value, d.axes)


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
    return list(dict.fromkeys(e for e in sums_evaluated(d.value) if _is_product(e, axes)))


def _nested(d: Define) -> dict[Expr, tuple[Axis, ...]]:
    """The products of matrices that are factors of a sum, each computed once for each of its terms, with the axes of these."""
    found: dict[Expr, tuple[Axis, ...]] = {}
    for outer in sums_evaluated(d.value):
        if _is_plain_sum(outer):
            axes = (*d.axes, *outer.axes)
            inner = [e for e in factors_of(outer.values[0]) if isinstance(e, Reduce)]
            found |= {e: axes for e in inner if _is_plain_sum(e) and _is_product(e, {a.index for a in axes})}
    return found


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
