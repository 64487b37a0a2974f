"""Symbolic integers of torch as sizes of the language, and how tensors lie in memory.

A symbol of torch's shape environment is a `te.dim` of its name, with the least and the greatest value that guards have left it by then (a
part of a table of 1,024 rows has no more); an expression over symbols is the expression over these. No question is asked that would make
torch guard on an answer. A tensor whose strides are those of its axes in some order, without gaps, is read and written as it lies
(channels_last, transposed, stretched): kernels see its memory in row-major order, the definition reads through the permutation, and
nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy import functions as theirs

import tensorexpr as te
from tensorexpr.interop.torch.backend.table import Unsupported, is_one
from tensorexpr.interop.torch.kernels import written

_QUOTIENTS = tuple(getattr(theirs, name) for name in ("FloorDiv", "CleanDiv") if hasattr(theirs, name))
_REMAINDERS = tuple(getattr(theirs, name) for name in ("Mod", "PythonMod") if hasattr(theirs, name))
_WHOLES = tuple(getattr(theirs, name) for name in ("TruncToInt", "FloorToInt") if hasattr(theirs, name))

_RATIOS = tuple(getattr(theirs, name) for name in ("IntTrueDiv", "FloatTrueDiv") if hasattr(theirs, name))
_SIZE = re.compile(r"(.+?)(?:_from(\d+))?(?:_upto(\d+))?")
"""The name of a size of a program, as `te.dim` makes it: the symbol, and what is known of it."""
_UNBOUNDED = 1 << 40  # what torch says of a symbol of which it knows nothing is more
_ROOTS = tuple(getattr(theirs, name) for name in ("OpaqueUnaryFn_sqrt",) if hasattr(theirs, name))


def extent(value: Any) -> Any:
    """A number, or a scalar of the language for a symbolic one."""
    if isinstance(value, torch.SymInt):
        return _scalar(value.node.expr, value.node.shape_env.var_to_range)
    if isinstance(value, torch.SymFloat):
        return _real(value.node.expr, value.node.shape_env.var_to_range)
    if isinstance(value, torch.SymBool):
        raise Unsupported("a symbolic truth value")
    return value


def _real(expression: Any, ranges: Mapping[Any, Any]) -> Any:
    """A symbolic float as a float64 of the language, by the operations that Python would do."""
    if expression.is_number:
        return float(expression)
    if isinstance(expression, _RATIOS):
        dividend, divisor = (_real(argument, ranges) for argument in expression.args)
        return dividend / divisor
    if isinstance(expression, _ROOTS):
        return te.sqrt(_real(expression.args[0], ranges))
    if isinstance(expression, theirs.FloatPow):
        base, exponent = (_real(argument, ranges) for argument in expression.args)
        return base**exponent
    if expression.is_Add or expression.is_Mul:
        return _folded(lambda a, b: a + b if expression.is_Add else a * b, [_real(argument, ranges) for argument in expression.args])
    if isinstance(expression, theirs.ToFloat):
        return _real(expression.args[0], ranges)
    if expression.is_integer:
        return te.cast(_scalar(expression, ranges), "float64")
    raise Unsupported(f"the number {expression}")


def _scalar(expression: Any, ranges: Mapping[Any, Any]) -> Any:
    if expression.is_Integer or (expression.is_Float and float(expression).is_integer()):
        return int(expression)
    by_one = isinstance(expression, _RATIOS) and expression.args[1].is_number and float(expression.args[1]) == 1
    if by_one or isinstance(expression, (theirs.ToFloat, theirs.CeilToInt)):  # of the length of an arange of floats: whole numbers, exact
        return _scalar(expression.args[0], ranges)
    if expression.is_Symbol:
        return _symbol(expression, ranges)
    if isinstance(expression, _WHOLES):
        return _part(expression.args[0], ranges)
    if isinstance(expression, _QUOTIENTS):
        exact = expression.args[0] / expression.args[1]
        if exact.as_numer_denom()[1] == 1:  # s*s // s, of a view of a square
            return _scalar(exact, ranges)
    arguments = [_scalar(argument, ranges) for argument in expression.args]
    if expression.is_Add:
        return _folded(lambda a, b: a + b, arguments)
    if expression.is_Mul:
        return _folded(lambda a, b: a * b, arguments)
    if isinstance(expression, sympy.Pow) and isinstance(arguments[1], int) and arguments[1] > 0:
        return _folded(lambda a, b: a * b, arguments[:1] * arguments[1])
    if isinstance(expression, _QUOTIENTS):
        return arguments[0] // arguments[1]
    if isinstance(expression, _REMAINDERS):
        return arguments[0] % arguments[1]
    if isinstance(expression, theirs.ModularIndexing):
        return (arguments[0] // arguments[1]) % arguments[2]
    if isinstance(expression, (sympy.Max, getattr(theirs, "Max", sympy.Max))):
        return _folded(te.maximum, arguments)
    if isinstance(expression, (sympy.Min, getattr(theirs, "Min", sympy.Min))):
        return _folded(te.minimum, arguments)
    raise Unsupported(f"the size {expression}")


def _symbol(symbol: Any, ranges: Mapping[Any, Any]) -> Any:
    known = ranges.get(symbol)
    if known is None:
        return te.dim(str(symbol))
    least = max(int(known.lower), 0) if known.lower.is_Integer else 0
    most = int(known.upper) if known.upper.is_Integer and known.upper < _UNBOUNDED else None
    return te.dim(str(symbol), min=least, max=most)


def _part(product: Any, ranges: Mapping[Any, Any]) -> Any:
    """The whole part of a size times a float of few digits, whose product has no rounding: by integers."""
    factors = product.args if product.is_Mul else (product,)
    numbers = [Fraction(float(factor)) for factor in factors if factor.is_Float or factor.is_Integer]
    sizes = [factor.args[0] for factor in factors if isinstance(factor, theirs.ToFloat)]
    by = prod(numbers, start=Fraction(1))
    if len(numbers) + len(sizes) != len(factors) or len(sizes) != 1 or not 0 < by.numerator < 1 << 16 or by.denominator > 1 << 16:
        raise Unsupported(f"the size {product}")
    return _scalar(sizes[0], ranges) * by.numerator // by.denominator


def _folded(function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> Any:
    found = arguments[0]
    for argument in arguments[1:]:
        found = function(found, argument)
    return found


def opened(size: str) -> tuple[str, Any]:
    """The symbol that a size of a program is of, and the scalar that it is there."""
    found = _SIZE.fullmatch(size)
    assert found is not None
    name, least, more = found[1], int(found[2] or 0), found[3]
    return name, te.dim(name, min=least, max=None if more is None else least + int(more))


def symbols_of(value: Any) -> set[str]:
    """The names of the symbols in a symbolic integer, or in the shape of a tensor."""
    if isinstance(value, torch.SymInt):
        return {str(symbol) for symbol in value.node.expr.free_symbols}
    if isinstance(value, torch.Tensor):
        return {name for n in value.shape for name in symbols_of(n)}
    return set()


def symbol_of(value: Any) -> str | None:
    """The name of the symbol that a symbolic integer is, where it is one alone."""
    if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
        return str(value.node.expr)
    return None


def settle_signs(inputs: Sequence[Any]) -> None:
    """Has torch guard on the signs of the integers that a graph is given, for a size is 0 at least. Where one is negative now (the shift
    of a roll), the graph is compiled for this number."""
    for value in inputs:
        if isinstance(value, torch.SymInt) and value.node.has_hint() and not statically_known_true(value >= 0) and not bool(value >= 0):
            int(value)


def hint(value: Any) -> int:
    """An extent as it was when the graph was traced; a large one where that is not known."""
    if isinstance(value, torch.SymInt):
        return int(value.node.hint) if value.node.has_hint() else 1 << 30
    return int(value)


class Memory:
    """How a tensor lies: its axes from the outermost to the innermost in `order`. Axes of extent 1, and those that it is stretched
    along (stride 0), are not in memory."""

    def __init__(self, shape: Sequence[Any], order: Sequence[int], stretched: Sequence[int] = ()) -> None:
        self.shape = tuple(shape)
        self.order = tuple(order)
        self.stretched = frozenset(stretched)
        self.plain = self.order == tuple(range(len(self.shape)))

    @classmethod
    def of(cls, value: torch.Tensor) -> Memory | None:
        """That of a fake tensor; None where there are gaps, or elements that share memory in another way."""
        shape = tuple(extent(n) for n in value.shape)
        strides = value.stride()
        axes = range(len(shape))
        if _dense(value.shape, strides, [k for k in axes if not is_one(shape[k])]) or any(isinstance(n, int) and n == 0 for n in shape):
            return cls(shape, axes)
        stretched = [k for k in axes if isinstance(strides[k], int) and strides[k] == 0 and not is_one(shape[k])]
        order = sorted((k for k in axes if not is_one(shape[k]) and k not in stretched), key=lambda k: (-hint(strides[k]), k))
        return cls(shape, order, stretched) if _dense(value.shape, strides, order) else None

    @property
    def physical(self) -> tuple[Any, ...]:
        """The extents in memory."""
        return tuple(self.shape[k] for k in self.order)

    def logical(self, x: te.Tensor) -> te.Tensor:
        """The tensor, of one whose shape is `physical`."""
        return x if self.plain else te.compute(self.shape, lambda *i: x[tuple(i[k] for k in self.order)])

    def stored(self, x: te.Tensor) -> te.Tensor:
        """A tensor of the shape `physical`, of the tensor."""
        if self.plain:
            return x
        place = {axis: position for position, axis in enumerate(self.order)}
        return te.compute(self.physical, lambda *p: x[tuple(p[place[k]] if k in place else 0 for k in range(len(self.shape)))])

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The strides of a tensor that lies like this, of a shape in numbers; 1 along axes of extent 1."""
        found = [0 if k in self.stretched else 1 for k in range(len(shape))]
        step = 1
        for k in reversed(self.order):
            found[k] = step
            step *= max(shape[k], 1)
        return tuple(found)

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies like this."""
        if self.plain:
            return tensor.is_contiguous()
        shape = tensor.shape
        return all(n == 1 or a == b for n, a, b in zip(shape, tensor.stride(), self.strides(shape), strict=True)) or tensor.numel() == 0

    def fitted(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or a copy of it that lies like this."""
        tensor = written(tensor)
        if self.fits(tensor):
            return tensor
        if self.stretched:
            tensor = tensor[tuple(slice(0, 1) if k in self.stretched else slice(None) for k in range(tensor.ndim))]
        strides = self.strides(tensor.shape)
        copy = torch.empty_strided(tensor.shape, [max(s, 1) for s in strides], dtype=tensor.dtype, device=tensor.device)
        return copy.copy_(tensor)


def _dense(shape: Sequence[Any], strides: Sequence[Any], order: Sequence[int]) -> bool:
    step: Any = 1
    for k in reversed(order):
        if not statically_known_true(strides[k] == step):
            return False
        step = step * shape[k]
    return True
