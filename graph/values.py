"""Values of a trace: tensors of the language with NumPy's element-wise arithmetic, since a traced function reads like NumPy.

The arguments of a traced function, what a variable holds, and what calls, branches and loops give are values; arithmetic on values
gives values. Everything that takes a tensor takes a value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr import language
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.ir import Const, Expr, TensorType
from tensorexpr.language import Tensor, compute, constant

_UNARY = {"neg": operator.neg, "pos": operator.pos, "abs": language.abs, "invert": operator.invert}
_BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "lshift": operator.lshift, "rshift": operator.rshift,
}  # fmt: skip
_COMPARISONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


class Value(Tensor):
    """A tensor that stands for an array while a function is traced; `+ - * / // % ** & | ^ << >> < <= > >= abs -` work element by
    element and broadcast as in NumPy. `==` stays identity, as for all tensors: `te.compute` compares elements."""

    __slots__ = ()


def value_of(type_: TensorType, stem: str) -> Value:
    """A new value without a definition: an argument, or the result of a node."""
    return Value(None, type_.shape, type_.dtype, stem=stem, location=user_location())


def elementwise(function: Callable[..., Any], *operands: Any) -> Value:
    """The value whose elements are `function` of the elements of the operands: tensors (which broadcast), arrays and scalars."""
    tensors = [constant(item) if isinstance(item, np.ndarray) else item for item in operands]
    shape = _broadcast([item for item in tensors if isinstance(item, Tensor)])

    def element(*indices: Any) -> Any:
        return function(*(_read(item, indices) if isinstance(item, Tensor) else item for item in tensors))

    result: Any = compute(shape, element)
    result.__class__ = Value
    return result


def _read(tensor: Tensor, indices: tuple[Any, ...]) -> Any:
    own = indices[len(indices) - tensor.ndim :]
    return tensor[tuple(0 if _is_one(extent) else index for extent, index in zip(tensor.extents, own, strict=True))]


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


def _broadcast(tensors: list[Tensor]) -> tuple[Any, ...]:
    rank = max(tensor.ndim for tensor in tensors)
    shape: list[Any] = [1] * rank
    extents: list[Expr | None] = [None] * rank
    for tensor in tensors:
        for axis in range(-tensor.ndim, 0):
            extent, known = tensor.extents[axis], extents[axis]
            if known is None or _is_one(known):
                extents[axis], shape[axis] = extent, tensor.shape[axis]
            elif not _is_one(extent) and extent != known:
                shapes = " and ".join(f"({', '.join(map(str, t.shape))})" for t in tensors)
                raise DefinitionError(
                    f"expected shapes that broadcast, got {shapes}",
                    location=user_location(),
                    hint="axes count from the last; extents are equal, or one of them is 1",
                )
    return tuple(shape)


def _is_operand(other: object) -> bool:
    return isinstance(other, (Tensor, np.ndarray, np.generic, bool, int, float)) or hasattr(type(other), "__tensor__")


def tensor_or_array(other: Any) -> Any:
    """What stands for a value (a variable) as the tensor or array that it stands for now; everything else as it is."""
    return other.__tensor__() if hasattr(type(other), "__tensor__") else other


def _method(function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Value, *others: Any) -> Any:
        if not all(map(_is_operand, others)):
            return NotImplemented
        operands = [self, *map(tensor_or_array, others)]
        return elementwise(function, *(reversed(operands) if reflected else operands))

    return method


for _name, _function in (_UNARY | _BINARY | _COMPARISONS).items():
    setattr(Value, f"__{_name}__", _method(_function, reflected=False))
for _name, _function in _BINARY.items():
    setattr(Value, f"__r{_name}__", _method(_function, reflected=True))
