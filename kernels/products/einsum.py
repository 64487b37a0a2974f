"""Einstein's sums: any equation over any number of operands, contracted in pairs.

An equation is parsed to terms: for each operand the label of every axis. One operand's repeated labels are a diagonal, labels of no
other operand and not of the result are summed first, and then the cheapest pair is contracted again and again: of all pairs
the one whose result is smallest against what it replaces, ties to fewer multiplications and then to the left, the greedy path of
`numpy.einsum_path` (Smith & Gray, "opt_einsum", 2018). Each step is an ordinary product with a sum, so its gradient is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known, products
from tensorexpr.kernels.conventions.broadcasting import is_one, same
from tensorexpr.kernels.conventions.windows import named

_UNKNOWN_EXTENT = 64
"""What an extent known only at run time counts when paths are compared."""


@dataclass(frozen=True)
class _Term:
    """An operand and the label of each of its axes; None for an axis of extent 1 that stretches."""

    tensor: te.Tensor
    labels: tuple[str | None, ...]

    @property
    def distinct(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label for label in self.labels if label is not None))

    def read(self, place: dict[str, Any]) -> te.Scalar:
        """The element where each label has the index of `place`."""
        return self.tensor[tuple(0 if label is None else place[label] for label in self.labels)]


def _error(equation: str, message: str, hint: str | None = None) -> te.ArgumentError:
    return bad(f"einsum {equation!r}: {message}", hint)


def _parse(equation: str, operands: Sequence[te.Tensor]) -> tuple[list[_Term], tuple[str, ...], dict[str, Any]]:
    """The terms, the labels of the result, and the extent of every label. An ellipsis becomes the labels "0", "1", ..., from the last."""
    text = "".join(equation.split())
    inputs, arrow, output = text.partition("->")
    _split(equation, output)
    sides = inputs.split(",")
    if len(sides) != len(operands):
        raise _error(equation, f"expected {len(sides)} operands, got {len(operands)}")
    labels = [_labels(equation, side, tensor) for side, tensor in zip(sides, operands, strict=True)]
    extents = _extents(equation, labels, operands)
    dots = sorted((label for label in extents if label.isdigit()), key=int, reverse=True)
    if not arrow:
        counts = [label for side in labels for label in side]
        result = (*dots, *sorted(label for label in extents if not label.isdigit() and counts.count(label) == 1))
    else:
        result = _result(equation, output, dots)
    for label in result:
        if label not in extents:
            raise _error(equation, f"expected result labels of the operands, got {label!r}")
    if len(set(result)) < len(result):
        raise _error(equation, f"expected each label once in the result, got {output!r}", "te.compute or diag_embed writes a diagonal")
    terms = [
        _Term(
            tensor, tuple(None if is_one(n) and not is_one(extents[label]) else label for label, n in zip(side, tensor.shape, strict=True))
        )
        for side, tensor in zip(labels, operands, strict=True)
    ]
    return terms, result, extents


def _split(equation: str, side: str) -> tuple[str, bool, str]:
    """The labels before and after an ellipsis, and whether there is one."""
    before, dots, after = side.partition("...")
    for label in before + after:
        if not (label.isascii() and label.isalpha()):
            raise _error(equation, f"expected letters, ',', '...' and '->', got {label!r}")
    return before, bool(dots), after


def _labels(equation: str, side: str, tensor: te.Tensor) -> tuple[str, ...]:
    before, dots, after = _split(equation, side)
    missing = tensor.ndim - len(before) - len(after)
    if missing < 0 or (missing and not dots):
        wanted = f"{'at least ' if dots else ''}{len(before) + len(after)}"
        raise _error(equation, f"expected {tensor.name} with {wanted} axes for {side!r}, got {tensor.ndim}")
    return (*before, *map(str, reversed(range(missing))), *after)


def _extents(equation: str, labels: Sequence[tuple[str, ...]], operands: Sequence[te.Tensor]) -> dict[str, Any]:
    """The extent of every label: that of all axes it names, of which those of extent 1 stretch (but not within one operand)."""
    extents: dict[str, Any] = {}
    for side, tensor in zip(labels, operands, strict=True):
        own: dict[str, Any] = {}
        for label, extent in zip(side, tensor.shape, strict=True):
            if label in own and not same(own[label], extent):
                raise _error(equation, f"expected equal extents on the diagonal {label!r} of {tensor.name}, got {own[label]} and {extent}")
            own[label] = extent
        for label, extent in own.items():
            seen = extents.setdefault(label, extent)
            if is_one(seen):
                extents[label] = extent
            elif not is_one(extent) and not same(seen, extent):
                axis = "the ellipsis" if label.isdigit() else repr(label)
                raise _error(equation, f"expected one extent for {axis}, got {seen} and {extent}")
    return extents


def _result(equation: str, output: str, dots: Sequence[str]) -> tuple[str, ...]:
    before, given, after = _split(equation, output)
    return (*before, *(dots if given else ()), *after)


def _size(labels: Sequence[str], extents: dict[str, Any]) -> int:
    total = 1
    for label in labels:
        total *= extents[label] if known(extents[label]) else _UNKNOWN_EXTENT
    return total


def _contract(terms: Sequence[_Term], kept: Sequence[str], extents: dict[str, Any]) -> _Term:
    """The term with the labels `kept`: the product of `terms`, summed over all other labels."""
    summed = [label for label in dict.fromkeys(label for term in terms for label in term.distinct) if label not in kept]

    def body(*i: Any) -> Any:
        outer = dict(zip(kept, i, strict=True))

        def value(*k: Any) -> Any:
            place = outer | dict(zip(summed, k, strict=True))
            result = terms[0].read(place)
            for term in terms[1:]:
                result = result * term.read(place)
            return result

        return products(_named(value, summed), [extents[label] for label in summed]) if summed else value()

    shape = tuple(extents[label] for label in kept)
    return _Term(te.compute(shape, _named(body, kept)), tuple(kept))


def _named(body: Callable[..., Any], labels: Sequence[str]) -> Callable[..., Any]:
    """`body` with parameters called as the labels are, so that programs read like the equation; those of an ellipsis are d0, d1, ..."""
    return named(body, *(f"d{label}" if label.isdigit() else label for label in labels))


def _needed(terms: Sequence[_Term], result: Sequence[str]) -> set[str]:
    return {label for term in terms for label in term.distinct} | set(result)


def _cheapest(terms: Sequence[_Term], result: Sequence[str], extents: dict[str, Any]) -> tuple[int, int]:
    """The pair to contract next."""

    def price(pair: tuple[int, int]) -> tuple[int, int, tuple[int, int]]:
        first, second = (terms[place] for place in pair)
        both = tuple(dict.fromkeys(first.distinct + second.distinct))
        kept = _kept(terms, pair, result)
        growth = _size(kept, extents) - _size(first.distinct, extents) - _size(second.distinct, extents)
        return growth, _size(both, extents), pair

    return min(((p, q) for q in range(len(terms)) for p in range(q)), key=price)


def _kept(terms: Sequence[_Term], pair: tuple[int, int], result: Sequence[str]) -> tuple[str, ...]:
    """The labels of a pair that others need."""
    needed = _needed([term for place, term in enumerate(terms) if place not in pair], result)
    both = dict.fromkeys(terms[pair[0]].distinct + terms[pair[1]].distinct)
    return tuple(label for label in both if label in needed)


def _einsum(operands: Any, *, equation: Any) -> Any:
    given = tuple(operands) if isinstance(operands, (tuple, list)) else (operands,)
    if not isinstance(equation, str):
        raise bad(f"einsum: expected an equation as text, got {equation!r}", 'einsum("ij,jk->ik", a, b)')
    terms, result, extents = _parse(equation, given)
    if len(terms) > 1:
        for place, term in enumerate(terms):
            needed = _needed([other for other in terms if other is not term], result)
            kept = tuple(label for label in term.distinct if label in needed)
            if len(kept) < len(term.distinct):
                terms[place] = _contract([term], kept, extents)
    while len(terms) > 2:
        pair = _cheapest(terms, result, extents)
        terms[pair[0]] = _contract([terms[place] for place in pair], _kept(terms, pair, result), extents)
        del terms[pair[1]]
    return _contract(terms, result, extents).tensor


class Einsum(te.Op):
    """The op `einsum`, which takes its equation as it is written everywhere: in front of the operands."""

    def __call__(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """`einsum(equation, *operands)`, with PyTorch `einsum(equation, operands)`, or as any op, `einsum(operands, equation=equation)`."""
        if arguments and isinstance(arguments[0], str):
            equation, *operands = arguments
            if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
                (operands,) = operands
            return super().__call__(tuple(operands), equation=equation, out=out, **keywords)
        return super().__call__(*arguments, out=out, **keywords)


einsum = Einsum(_einsum, name="einsum", parameters=("operands",), static={"equation": inspect.Parameter.empty}, written_by_user=True)
einsum.__doc__ = """`einsum("ij,jk->ik", a, b)`: products of elements, summed over the labels that the result does not have.

A label names an axis; in one operand twice it is a diagonal; `...` stands for further axes, which broadcast. Without `->` the result
has the axes of the ellipsis and then the labels that occur once, in alphabetical order, as in NumPy; with `->` labels and an
ellipsis that are left out are summed, as in PyTorch. An axis of extent 1 stretches to the extent of its label elsewhere. Spaces do
not count.

More than two operands are contracted in pairs along a greedy path, so the cost is not the product of all extents: "ij,jk,kl,lm->im" of
n x n matrices takes 3 n^3 multiplications. In transforms it is an op of a tuple: `te.vjp(einsum)((a, b), head, equation="ij,jk->ik")`.

`ArgumentError` for an equation that is no equation, another number of operands or axes, extents that differ, a label of the result that
no operand has or that it has twice.

>>> kernels.einsum("ij,kj->ik", np.array([[1, 2], [3, 4]]), np.array([[1, 1]]))
array([[3],
       [7]])
"""
