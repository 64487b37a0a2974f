"""Shapes with open extents: what torch's symbolic integers are in the language, and back.

While torch traces a graph, extents may be symbols (`SymInt`). Each symbol becomes a `te.dim`, an expression over symbols one of its
own; the extents of the outputs, expressions over these, are worked out on torch's symbols again, so that the graph knows how
shapes hang together. The same `te.dim`s are what the kernel for the graph is compiled with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from tensorexpr.errors import InternalError
from tensorexpr.ir import Apply, Cast, Const, Expr, Size

Pattern = tuple[tuple[int | str, ...], ...]
"""A shape per input: numbers, and names of extents that are open."""


def patterns_of(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[Pattern, dict[str, Any]]]:
    """The shapes of tensors with names for what is symbolic in them, and torch's symbols by these names: the most general first.

    Where symbols have the same value, further patterns take two of them for one, then all, and the last has numbers alone. Whoever
    takes such a pattern makes torch know of it by `promised`.
    """
    names: dict[object, str] = {}
    symbols: dict[str, Any] = {}

    def extent(value: Any) -> int | str:
        if not isinstance(value, torch.SymInt):
            return int(value)
        expression = value.node.expr
        if expression.is_number:
            return int(expression)
        name = names.setdefault(expression, f"n{len(names)}")
        symbols[name] = value
        return name

    pattern = tuple(tuple(extent(n) for n in tensor.shape) for tensor in tensors)
    yield pattern, symbols
    if not symbols:
        return
    values = {name: _hint(symbol) for name, symbol in symbols.items()}
    pairs = [(one, other) for one, other in combinations(symbols, 2) if values[one] is not None and values[one] == values[other]]
    for joined in (*([pair] for pair in pairs), *([pairs] if len(pairs) > 1 else [])):
        first: dict[str, str] = {}
        for one, other in joined:
            first.setdefault(other, first.get(one, one))
        yield _renamed(pattern, first), symbols
    yield tuple(tuple(int(n) for n in tensor.shape) for tensor in tensors), {}


def promised(general: Pattern, taken: Pattern, symbols: Mapping[str, Any]) -> None:
    """Makes torch know what a pattern takes for granted beyond the most general one: that symbols are equal."""
    for wanted, given in zip(general, taken, strict=True):
        for one, other in zip(wanted, given, strict=True):
            if one != other and isinstance(one, str) and isinstance(other, str):
                torch._check(symbols[one] == symbols[other])


def _hint(symbol: Any) -> int | None:
    """The value that a symbol has in the example that torch traces with, where it has one."""
    return int(symbol.node.hint) if symbol.node.has_hint() else None


def _renamed(pattern: Pattern, names: Mapping[str, str]) -> Pattern:
    return tuple(tuple(names.get(n, n) if isinstance(n, str) else n for n in shape) for shape in pattern)


def fits(pattern: Pattern, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether shapes are those of a pattern."""
    sizes: dict[str, int] = {}

    def agrees(wanted: int | str, extent: int) -> bool:
        return (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, extent)) == extent

    return len(pattern) == len(shapes) and all(
        len(wanted) == len(shape) and all(map(agrees, wanted, shape)) for wanted, shape in zip(pattern, shapes, strict=True)
    )


def extent_value(extent: Expr, sizes: Mapping[str, Any]) -> Any:
    """The value of an extent where sizes are numbers or torch's symbols."""
    match extent:
        case Const():
            return int(extent.value)
        case Size():
            return sizes[extent.name]
        case Cast():
            return extent_value(extent.arg, sizes)
        case Apply():
            left, *right = (extent_value(argument, sizes) for argument in extent.args)
            match extent.op.name:
                case "neg":
                    return -left
                case "add":
                    return left + right[0]
                case "sub":
                    return left - right[0]
                case "mul":
                    return left * right[0]
                case "floordiv":
                    return left // right[0]
                case "mod":
                    return left % right[0]
                case "minimum":
                    return torch.sym_min(left, right[0])
                case "maximum":
                    return torch.sym_max(left, right[0])
    raise InternalError("torch: expected an extent over sizes and constants", term=extent)
