"""Values of a trace: tensors of the language, which have NumPy's element-wise arithmetic here, since a traced function reads like NumPy.

`+ - * / // % ** & | ^ << >> < <= > >= abs -` work element by element and broadcast. `==` stays identity, as for all tensors:
`te.compute` compares elements. The arguments of a traced function, what a variable holds, and what calls, branches and loops give are
tensors without a definition.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr import language
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import article
from tensorexpr.ir import Const, Expr, TensorType
from tensorexpr.language import Tensor, compute, constant

_UNARY: dict[str, Callable[..., Any]] = {"neg": operator.neg, "pos": operator.pos, "abs": language.abs, "invert": operator.invert}
_BINARY: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "lshift": operator.lshift, "rshift": operator.rshift,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., Any]] = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_FUNCTIONS: dict[str, Callable[..., Any]] = {**_UNARY, **_BINARY, **_COMPARISONS}
_KNOWN = object()
_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "true_divide": "truediv", "floor_divide": "floordiv",
    "remainder": "mod", "power": "pow", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "lshift",
    "right_shift": "rshift", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "negative": "neg",
    "positive": "pos", "absolute": "abs", "invert": "invert",
}  # fmt: skip


def value_of(type_: TensorType, stem: str) -> Tensor:
    """A new value without a definition: an argument, or the result of a node."""
    return Tensor(None, type_.shape, type_.dtype, stem=stem, location=user_location())


def elementwise(function: Callable[..., Any], *operands: Any) -> Tensor:
    """The value whose elements are `function` of the elements of the operands: tensors (which broadcast), arrays and scalars."""
    tensors = [constant(item) if isinstance(item, np.ndarray) else item for item in operands]
    shape = _broadcast([item for item in tensors if isinstance(item, Tensor)])

    def element(*indices: Any) -> Any:
        return function(*(_read(item, indices) if isinstance(item, Tensor) else item for item in tensors))

    result: Tensor = compute(shape, element)
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


def arithmetic(name: str, *operands: Any) -> Any:
    """What an operator, or a function of NumPy on one array at least, gives for whole tensors in a trace."""
    function = _FUNCTIONS.get(_UFUNCS.get(name, name))
    stranger = next((item for item in operands if not _is_operand(item) and type(item).__module__ == "builtins"), _KNOWN)
    if function is not None and stranger is not _KNOWN:
        raise DefinitionError(
            f"expected tensors, arrays and real numbers as operands of {name}, got {article(stranger)}",
            location=user_location(),
            hint="arguments of a traced function that are no data (strings, None) are as they were given",
        )
    if function is None or not all(map(_is_operand, operands)):
        if name in _UFUNCS or function is None:
            raise DefinitionError(
                f"expected an operation on whole tensors that a traced function knows, got {name}",
                location=user_location(),
                hint="te.compute says what happens to each element",
            )
        return NotImplemented
    return elementwise(function, *map(tensor_or_array, operands))
