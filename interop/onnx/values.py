"""What a value of a model is while it is read, and when its elements are known.

A value is a tensor of the trace, an array (a constant), `Coded` (a tensor of the codes of a narrow type: float8, four and two bits), a
list (a sequence), or `Option` (an optional). An operator that depends on elements (a shape, axes, how many there are of something) asks
`known`: those of constants are computed at once, by our own interpreter or compiled code; those that depend on arguments are computed from
the arguments of the call for which the model is read, and the program that is made holds for this value alone (`Session.demands`). Where a
model is read without arguments such a question is `Hangs`, and whoever can reads it at the call.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tensorexpr import language
from tensorexpr.codegen.compile import build_program
from tensorexpr.dtypes import DTYPES
from tensorexpr.errors import TargetError, TensorExprError, user_location
from tensorexpr.graph.nodes.ir import Composite, Native
from tensorexpr.graph.run.compile import Step, compile_graph
from tensorexpr.graph.trace.tracing import Trace, current
from tensorexpr.ir import Define, Definition, Reduce, Scan, TensorType
from tensorexpr.language import Scalar, Tensor, cast, compute, constant, program_of
from tensorexpr.text import print_type
from tensorexpr.traversal import walk

_SHORT = 1 << 12
"""Steps up to which constants are interpreted; more are compiled."""
_NATIVE = {one.numpy for one in DTYPES if one.name != "bfloat16"}


class Hangs(TensorExprError):
    """A value is asked for that depends on arguments, and there are none."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A tensor of a type that the language does not have: `codes` are its bytes, `kind` is its dtype."""

    codes: Tensor
    kind: np.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return self.codes.ndim


@dataclass(frozen=True, eq=False)
class Option:
    """An optional value; None where there is none."""

    value: Any = None


@dataclass(frozen=True)
class Demand:
    """Elements that were asked for: what computes them of the arguments, and what they were."""

    step: Step
    value: np.ndarray

    @property
    def key(self) -> tuple[Any, ...]:
        return self.value.shape, self.value.tobytes()


@dataclass
class Session:
    """One reading of a model: its trace, the arrays of the call that it is read for, and what was asked of them so far."""

    trace: Trace
    arrays: Sequence[np.ndarray] | None = None
    take: Callable[[int, int], None] = lambda size, steps: None
    """Takes bytes and steps of constants that are about to be computed from what may be spent."""
    demands: list[Demand] = field(default_factory=list)
    constants: dict[Tensor, np.ndarray] = field(default_factory=dict)
    answers: dict[Tensor, np.ndarray] = field(default_factory=dict)
    _free: dict[Tensor, bool] = field(default_factory=dict)
    _charged: set[Tensor] = field(default_factory=set)

    def ask(self, tensor: Tensor) -> np.ndarray:
        """The elements of a tensor. Raises `Hangs` where there are no arguments that they depend on."""
        found = self.constants.get(tensor)
        if found is None:
            found = self.answers.get(tensor)
        if found is not None:
            return found
        if self.is_free(tensor):
            self.constants[tensor] = self._constant(tensor)
            return self.constants[tensor]
        if self.arrays is None or not self._roots(tensor) <= set(self.trace.values):
            raise Hangs(f"expected a value that depends on constants, got {print_type(tensor.type)} that depends on arguments")
        before, self.trace.outputs = self.trace.outputs, [tensor]
        try:
            step = compile_graph(self.trace.graph())
        finally:
            self.trace.outputs = before
        (value,) = step(list(self.arrays))
        self.demands.append(Demand(step, np.array(value)))
        self.answers[tensor] = self.demands[-1].value
        return self.answers[tensor]

    def is_free(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on constants alone."""
        stack = [tensor]
        while stack:
            one = stack[-1]
            if one not in self._free:
                if one.data is not None:
                    self._free[one] = True
                elif one.definition is None or one.frames:
                    self._free[one] = False
                else:
                    waiting = [source for source in one.sources if source not in self._free and source is not one]
                    if waiting:
                        stack.extend(waiting)
                        continue
                    self._free[one] = all(self._free[source] for source in one.sources if source is not one)
            stack.pop()
        return self._free[tensor]

    def charge(self, tensor: Tensor) -> None:
        """Takes what computing a tensor that depends on constants costs, as far as it was not taken for another one."""
        size, steps, stack = 0, 0, [tensor]
        while stack:
            one = stack.pop()
            if one in self._charged or one.definition is None:
                continue
            self._charged.add(one)
            size += math.prod(_extents(one.type)) * one.dtype.itemsize
            steps += _steps(one.definition)
            stack.extend(one.sources)
        self.take(size, steps)

    def _roots(self, tensor: Tensor) -> set[Tensor]:
        """What a tensor depends on that is neither defined nor constant."""
        found, done, stack = set(), {tensor}, [tensor]
        while stack:
            one = stack.pop()
            if one.data is None and one.definition is None:
                found.add(one)
            for source in one.sources:
                if source not in done:
                    done.add(source)
                    stack.append(source)
        return found

    def _constant(self, tensor: Tensor) -> np.ndarray:
        self.charge(tensor)
        program = program_of([tensor], [])
        if sum(map(_steps, program.definitions)) <= _SHORT:
            with np.errstate(all="ignore"):
                return np.asarray(language.evaluate(tensor))
        return np.asarray(build_program(program)()[0])


def _extents(type_: TensorType) -> list[int]:
    return [int(getattr(e, "value", 1)) for e in type_.shape]


def _steps(definition: Definition) -> int:
    """In how many steps a definition is computed at most, as far as numbers say: one for each term of each element."""
    if isinstance(definition, Scan):
        return int(getattr(definition.length, "value", 1)) * sum(map(_steps, definition.body))
    terms = 1
    for node in walk(definition.value) if isinstance(definition, Define) else ():
        if isinstance(node, Reduce):
            terms *= math.prod(int(getattr(axis.stop, "value", 1)) for axis in node.axes)
    return terms * sum(math.prod(_extents(type_)) for _, type_ in definition.results)


session: contextvars.ContextVar[Session] = contextvars.ContextVar("the reading of a model")


def known(value: Any) -> np.ndarray:
    """The elements of a value, as an array; of a shape with open extents an array of objects."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Coded):
        return np.asarray(session.get().ask(value.codes)).view(value.kind)
    if isinstance(value, Tensor):
        return value.data if value.data is not None else session.get().ask(value)
    if isinstance(value, (int, float, bool, np.generic)):
        return np.asarray(value)
    raise TypeError(f"a {type(value).__name__} for a tensor")


def spend(shape: Sequence[int], itemsize: int = 8) -> None:
    """Takes what an array costs that is made while a model is read."""
    count = math.prod(shape)
    session.get().take(count * itemsize, count)


def is_constant(value: Any) -> bool:
    """Whether the elements of a value depend on constants alone."""
    if isinstance(value, Coded):
        value = value.codes
    return value.data is not None or session.get().is_free(value) if isinstance(value, Tensor) else isinstance(value, np.ndarray)


def is_narrow(kind: Any) -> bool:
    """Whether a dtype is one of those that the language does not have but in codes."""
    kind = np.dtype(kind)
    return kind not in _NATIVE and kind.kind in "Vf" and kind.name != "bfloat16" and kind.itemsize == 1


def tensor_of(value: Any) -> Any:
    """A value as a tensor of the trace, or as `Coded`; lists and options as they are."""
    if isinstance(value, np.ndarray):
        if value.dtype == object and all(isinstance(item, (Scalar, int)) for item in value.flat) and value.size:
            return _of_extents(value)
        if is_narrow(value.dtype):
            return Coded(constant(np.ascontiguousarray(value).view(np.uint8)), value.dtype)
        if value.dtype == object or value.dtype.kind in "US":
            raise TypeError("strings")
        return constant(value)
    if isinstance(value, (int, float, bool, np.generic)):
        return tensor_of(np.asarray(value))
    return value


def _of_extents(array: np.ndarray) -> Tensor:
    items = array.ravel().tolist()

    def element(*i: Any) -> Any:
        found = cast(items[-1], "int64")
        at = i[0] if i else 0
        for k in reversed(range(len(items) - 1)):
            found = language.where(at == k, cast(items[k], "int64"), found)
        return found

    if array.ndim > 1:
        raise TypeError("extents in more than one axis")
    return compute(array.shape, element)


def on_host(
    name: str, function: Callable[..., Sequence[np.ndarray]], inputs: Sequence[Tensor], types: Sequence[TensorType]
) -> list[Tensor]:
    """What a function of arrays gives, between kernels."""
    trace = current()
    assert trace is not None
    node = Native(name, (), (), composite=Composite(f"ai.onnx.{name}"), function=function)
    return trace.note(node, list(inputs), [("y", type_) for type_ in types]).results


# ------------------------------------------------------------------------------------------------ messages of ONNX


def array_of(tensor: TensorProto) -> np.ndarray:
    """The data of a tensor, which the model has itself: loading a file has read what was beside it, in its folder."""
    if tensor.data_location == TensorProto.EXTERNAL:
        raise TargetError(
            f"from_onnx: expected tensors with their data, got {tensor.name or 'one'} with its data in another file",
            location=user_location(),
            hint="from_onnx(path) reads what is beside the file",
        )
    found = np.asarray(numpy_helper.to_array(tensor))
    if found.dtype.kind in "US" or found.dtype == object:
        return texts(found)
    return found


def is_text(value: Any) -> bool:
    """Whether a value is an array of strings."""
    if not isinstance(value, np.ndarray):
        return False
    return value.dtype.kind in "US" or (value.dtype == object and value.size > 0 and isinstance(value.flat[0], (str, bytes)))


def texts(array: np.ndarray) -> np.ndarray:
    """An array of strings, as objects of type str."""
    found = np.empty(array.shape, object)
    for k, item in enumerate(array.flat):
        found.flat[k] = item.decode() if isinstance(item, bytes) else str(item)
    return found


def kind_of(code: int) -> Any:
    """The NumPy dtype of one of ONNX's numbers of an element type; `object` for strings."""
    return np.dtype(object) if code == TensorProto.STRING else np.dtype(helper.tensor_dtype_to_np_dtype(code))
