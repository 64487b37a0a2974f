"""Variables: arrays that functions read and write.

Outside of a trace a variable is an array with a name: `assign` puts other values in, arithmetic reads it. Inside of a traced function
the same words are recorded as operations of the function: a read gives a value of the trace, an assignment happens when the function
runs, in program order. The array of a variable is never written to: an assignment puts another one in its place, so what `value` gave
stays as it was, and a step that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import ArgumentError, DefinitionError, user_location
from tensorexpr.graph.run.runtime import on_host
from tensorexpr.graph.trace.naming import scoped
from tensorexpr.graph.trace.tracing import Operation, current
from tensorexpr.graph.trace.values import tensor_or_array
from tensorexpr.hints import Offering, article, checked
from tensorexpr.ir import TensorType, const
from tensorexpr.language import Scalar, Tensor


class Variable(Offering):
    """A named array that may be assigned to: `te.Variable(value, name=None, trainable=True, dtype=None)`.

    `value` is an array, a number, or a function without arguments that gives one; a Python float counts as float32. Shape, dtype, name
    (with the scope current at construction in front) and `trainable` are fixed. Raises `ArgumentError` for a value of another shape or
    dtype than the variable's, and for any use of a variable that was deleted. `storage` is the array as compiled functions see it (on a
    device, or None once deleted).

    >>> count = te.Variable(np.int64(0), name="count")
    >>> @te.function
    ... def tick():
    ...     count.assign_add(1)
    ...     return count.read()
    >>> int(tick()), int(tick()), int(count.value)
    (1, 2, 2)
    """

    offered = ("assign", "assign_add", "assign_sub", "delete", "dtype", "name", "ndim", "read", "shape", "storage", "trainable", "value")

    __slots__ = ("__weakref__", "_trainable", "dtype", "name", "shape", "storage")

    @checked()
    def __init__(
        self, value: Any | Callable[[], Any], *, name: str | None = None, trainable: bool = True, dtype: DType | str | None = None
    ) -> None:
        initial = value() if callable(value) else value
        if isinstance(initial, Variable):
            initial = initial.value
        if isinstance(initial, Tensor):
            raise DefinitionError(
                f"te.Variable: expected an array as initial value, got the tensor {initial.name}",
                location=user_location(),
                hint="a variable exists before the functions that use it: make it from an array and assign the tensor to it",
            )
        try:
            array = np.asarray(initial)
        except ValueError:  # rows that are not equally long
            array = np.array(None)
        if array.dtype.hasobject or array.dtype.kind in "SU":
            raise ArgumentError(
                f"te.Variable: expected an array or a number as initial value, got {article(initial)}", location=user_location()
            )
        if dtype is None:
            dtype = dtypes.float32 if isinstance(initial, float) else dtypes.dtype(array.dtype)
        self.dtype: DType = dtypes.dtype(dtype)
        self.storage: Any = np.array(array, self.dtype.numpy, order="C", copy=True)
        self.shape: tuple[int, ...] = self.storage.shape
        self.name = scoped("variable" if name is None else name)
        self._trainable = bool(trainable)

    @property
    def trainable(self) -> bool:
        """Whether optimizers are to change it."""
        return self._trainable

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def type(self) -> TensorType:
        """Shape and dtype as IR."""
        return TensorType(tuple(map(const, self.shape)), self.dtype)

    @property
    def value(self) -> np.ndarray:
        """The array that it holds now, read-only. Later assignments do not change it."""
        self.check()
        if not isinstance(self.storage, np.ndarray):
            self.storage = on_host(self.storage)
        self.storage.flags.writeable = False
        return self.storage

    def check(self) -> None:
        """Raises `ArgumentError` if the variable was deleted."""
        if self.storage is None:
            raise ArgumentError(
                f"expected a variable that exists, got {self.name}, which was deleted", term=repr(self), location=user_location()
            )

    def delete(self) -> None:
        """Gives the array up; every later use is an error that names the variable."""
        self.storage = None

    def put(self, array: Any) -> None:
        """Makes `array`, of the right shape and dtype and nobody else's to write to, the value: how a function that ran commits."""
        self.storage = array

    # ----------------------------------------------------------------------------------------- read and assign

    def read(self) -> Any:
        """The value: an array, or in a trace a value that the function reads when it runs."""
        trace = current()
        return self.value if trace is None else trace.read(self)

    __tensor__ = read

    def assign(self, value: Any) -> Operation | None:
        """Gives it another value (in a trace: when the function runs; the result is the operation)."""
        trace = current()
        if trace is not None:
            return trace.assign(self, value)
        if isinstance(value, Tensor):
            raise ArgumentError(
                f"{self.name}: expected an array, got the tensor {value.name}",
                location=user_location(),
                hint="assign inside of a te.function",
            )
        self.put(np.array(self.fitting(np.asarray(value.value if isinstance(value, Variable) else value)), order="C", copy=True))
        return None

    def assign_add(self, value: Any) -> Operation | None:
        """Adds to it."""
        return self.assign(self.read() + self._operand(value))

    def assign_sub(self, value: Any) -> Operation | None:
        """Subtracts from it."""
        return self.assign(self.read() - self._operand(value))

    def _operand(self, value: Any) -> Any:
        """An operand in the variable's own dtype where it is a number or an array of this kind: as NumPy does for `w += 1.0`."""
        if isinstance(value, (bool, int, float)):
            return self.dtype.numpy.type(value)
        return value

    def fitting(self, array: np.ndarray) -> np.ndarray:
        """The array in the variable's dtype, checked to have its shape. Only numbers of the same kind are converted."""
        self.check()
        if array.shape != self.shape or not np.can_cast(array.dtype, self.dtype.numpy, "same_kind"):
            raise ArgumentError(
                f"{self.name}: expected {self.dtype.name}{list(self.shape)}, got {array.dtype.name}{list(array.shape)}",
                term=repr(self),
                location=user_location(),
                hint="the shape and dtype of a variable are fixed",
            )
        return array.astype(self.dtype.numpy, copy=False)

    # ------------------------------------------------------------------------------------------- as an operand

    def __getitem__(self, item: Any) -> Any:
        if current() is None and any(isinstance(index, Scalar) for index in (item if isinstance(item, tuple) else (item,))):
            raise DefinitionError(
                f"expected a te.function around what reads the variable {self.name}, got none",
                location=user_location(),
                hint=f"te.constant({self.name}.value) is a tensor of the value that it has now",
            )
        return self.read()[item]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if current() is not None:
            raise DefinitionError(
                f"expected a tensor, got the array of the variable {self.name}, which would stay as it is now for ever",
                location=user_location(),
                hint=f"{self.name}.read() reads it when the function runs; {self.name}.value is the array now",
            )
        array = self.value if dtype is None else self.value.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(tensor_or_array, inputs), **options)

    def __repr__(self) -> str:
        return f"<variable {self.name}: {self.dtype.short}{list(self.shape)}{'' if self._trainable else ' (not trainable)'}>"


def _binary(name: str) -> Callable[..., Any]:
    def method(self: Variable, other: Any) -> Any:
        value = self.read()
        return getattr(value, name)(other.read() if isinstance(other, Variable) else other)

    return method


def _unary(name: str) -> Callable[..., Any]:
    return lambda self: getattr(self.read(), name)()


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    setattr(Variable, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(Variable, f"__r{_name}__", _binary(f"__r{_name}__"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Variable, f"__{_name}__", _binary(f"__{_name}__"))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Variable, f"__{_name}__", _unary(f"__{_name}__"))
