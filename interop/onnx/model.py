"""A model as it is called: its arguments, what they may be, and its results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto

from tensorexpr.dtypes import DTYPES
from tensorexpr.errors import ArgumentError, DifferentiationError, TargetError, user_location
from tensorexpr.hints import suggestion
from tensorexpr.interop.onnx.bounds import Budget
from tensorexpr.interop.onnx.reading import Reader, versions_of
from tensorexpr.interop.onnx.values import Coded, Session, array_of, is_narrow, is_text, kind_of, tensor_of, texts
from tensorexpr.ir import Expr, const
from tensorexpr.language import Tensor, dim
from tensorexpr.records import cached_property

_LANGUAGE = {one.numpy for one in DTYPES}
_FLOATS = {one.numpy for one in DTYPES if one.is_float}


@dataclass(frozen=True)
class Argument:
    """An input: its name, the dtype of its elements (None: strings, sequences, whose kind the arguments of a call say), its dimensions (a
    number, a name, or None; None where nothing is said of them)."""

    name: str
    kind: np.dtype | None
    dims: tuple[int | str | None, ...] | None
    optional: bool = False

    @property
    def closed(self) -> bool:
        """Whether all of it is known."""
        return self.kind is not None and not self.optional and self.dims is not None and all(isinstance(n, int) for n in self.dims)

    def __str__(self) -> str:
        if self.kind is None:
            return self.name
        shape = "" if self.dims is None else f"[{', '.join('?' if n is None else str(n) for n in self.dims)}]"
        return f"{self.name}: {self.kind.name}{shape}"


class Open:
    """The open sizes of a model: one `te.dim` for each name, and one for each dimension without."""

    def __init__(self) -> None:
        self._sizes: dict[str, Expr] = {}
        self._taken: set[str] = set()

    def shape(self, argument: Argument) -> tuple[Expr, ...]:
        """The extents of an argument."""
        if argument.dims is None:
            raise TypeError(f"an argument {argument.name} of an unknown number of axes")
        return tuple(const(n) if isinstance(n, int) else self._size(argument.name, k, n) for k, n in enumerate(argument.dims))

    def _size(self, argument: str, axis: int, name: str | None) -> Expr:
        key = f"{argument}.{axis}" if name is None else f".{name}"
        if key not in self._sizes:
            stem = re.sub(r"\W", "_", name or f"{argument}_{axis}")
            stem = stem if stem[:1].isalpha() else f"n{stem}"
            while stem in self._taken:
                stem += "_"
            self._taken.add(stem)
            self._sizes[key] = dim(stem).expr
        return self._sizes[key]


@dataclass(frozen=True)
class Model:
    """A model, inputs that are fixed by name, and initializers that are arguments (`wanted`) or bound to their data (`bound`)."""

    proto: ModelProto
    fixed: Mapping[str, np.ndarray]
    wanted: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        graph = self.proto.graph
        _check_once("function", [f"{f.domain}.{f.name}" + (f" ({f.overload})" if f.overload else "") for f in self.proto.functions])
        _check_once("input", [item.name for item in graph.input])
        _check_once("initializer", [item.name for item in graph.initializer])

    @property
    def name(self) -> str:
        return self.proto.graph.name or "main"

    @cached_property
    def arguments(self) -> list[Argument]:
        """One for each input that is neither fixed nor an initializer, then initializers that are wanted as arguments."""
        known = set(self.fixed) | set(self._initializers)
        found = [_argument(item) for item in self.proto.graph.input if item.name not in known]
        return found + [Argument(name, self._initializers[name].dtype, self._initializers[name].shape) for name in self.wanted]

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.proto.graph.output)

    @property
    def closed(self) -> bool:
        """Whether the shapes of all arguments are known."""
        return all(argument.closed for argument in self.arguments)

    @cached_property
    def bound_arrays(self) -> dict[str, np.ndarray]:
        """Initializers that are inputs of the program, with their data."""
        return {name: self._initializers[name] for name in self.bound}

    @cached_property
    def _initializers(self) -> dict[str, np.ndarray]:
        graph = self.proto.graph
        found = {item.name: array_of(item) for item in graph.initializer}
        for item in graph.sparse_initializer:
            values, places = array_of(item.values), array_of(item.indices)
            dense = np.zeros(tuple(item.dims), values.dtype)
            if places.ndim == 1:
                dense.ravel()[places] = values
            else:
                dense[tuple(places.T)] = values
            found[item.values.name] = dense
        return found

    def with_weights(self) -> Model:
        """The same with floating initializers as arguments, behind the inputs."""
        wanted = tuple(name for name, array in self._initializers.items() if array.dtype in _FLOATS and name not in self.fixed)
        return replace(self, wanted=wanted)

    def differentiable(self, names: Sequence[str]) -> Model:
        """The same with initializers of these names as inputs of the program."""
        known = [argument.name for argument in self.arguments] + list(self._initializers)
        for name in names:
            if name not in known:
                raise ArgumentError(
                    f"gradient: expected names of inputs or initializers ({', '.join(known)}), got {name!r}",
                    location=user_location(),
                    hint=suggestion(name, known) if isinstance(name, str) else None,
                )
            if name in self._initializers and self._initializers[name].dtype not in _FLOATS:
                kind = self._initializers[name].dtype
                raise DifferentiationError(f"gradient: expected floating tensors, got {name} of {kind}", location=user_location())
        return replace(self, bound=tuple(name for name in names if name in self._initializers and name not in self.wanted))

    @property
    def floating(self) -> tuple[str, ...]:
        """The names of floating inputs and initializers."""
        inputs = [a.name for a in self.arguments if a.kind is not None and a.kind in _FLOATS]
        return tuple(dict.fromkeys((*inputs, *(name for name, array in self._initializers.items() if array.dtype in _FLOATS))))

    def made_up(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """Arguments to try a model with: floats around zero, zeros of other types; open dimensions as `sizes` says by name, else 1.

        Raises `ArgumentError` where the model does not say enough.
        """
        generator, found = np.random.default_rng(0), []
        for argument in self.arguments:
            if argument.kind is None or argument.dims is None:
                raise ArgumentError(
                    f"{self.name}: expected inputs that are tensors of known rank to make arguments for, got {argument}",
                    location=user_location(),
                )
            shape = [n if isinstance(n, int) else sizes.get(n or "", 1) for n in argument.dims]
            values = generator.normal(size=shape) if argument.kind in _FLOATS else np.zeros(shape)
            found.append(values.astype(argument.kind))
        return found

    # ------------------------------------------------------------------------------------------------------------ calls

    def bound_values(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """What is given for each argument, by position or by name, and behind them what is given beyond (heads of gradients)."""
        wanted = [argument.name for argument in self.arguments]
        values = dict(zip(wanted, arguments, strict=False))
        for name, value in named.items():
            if name not in wanted or name in values:
                raise ArgumentError(
                    f"{self.name}: expected arguments {', '.join(wanted)}, each once, got {name}", location=user_location(),
                    hint=suggestion(name, wanted),
                )  # fmt: skip
            values[name] = value
        for argument in self.arguments:
            if argument.name not in values and not argument.optional:
                raise ArgumentError(
                    f"{self.name}: expected {len(wanted)} arguments, {', '.join(map(str, self.arguments))}, got none for {argument.name}",
                    location=user_location(),
                )
        found = [self.array(argument, values.get(argument.name)) for argument in self.arguments]
        return found + [np.asarray(head) for head in arguments[len(wanted) :]]

    def array(self, argument: Argument, value: Any) -> Any:
        """What is given for an argument as an array, a list of arrays, or None. Raises `ArgumentError` for another dtype."""
        if value is None and argument.optional:
            return None
        if isinstance(value, list) and argument.kind is None:
            return [self.array(argument, item) for item in value]
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        if array.dtype.kind in "OUS":
            return texts(array)
        if argument.kind is not None and array.dtype != argument.kind:
            if isinstance(value, (bool, int, float, list)):
                return array.astype(argument.kind)
            raise ArgumentError(f"{self.name}: expected {argument}, got an array of {array.dtype}", location=user_location())
        if array.dtype not in _LANGUAGE and not is_narrow(array.dtype):
            raise ArgumentError(f"{self.name}: expected {argument}, got an array of {array.dtype}", location=user_location())
        return array

    def flat(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The arrays of the program for what is given: those of arguments, of bound initializers, of heads."""
        count = len(self.arguments)
        own = [array for value in values[:count] for array in _arrays(value)]
        return [*own, *self.bound_arrays.values(), *(np.asarray(head) for head in values[count:])]

    def key(self, value: Any) -> Any:
        """What a program depends on of what is given: types, and the strings themselves."""
        if value is None:
            return None
        if isinstance(value, list):
            return tuple(self.key(item) for item in value)
        if value.dtype == object:
            return value.shape, tuple(value.ravel())
        return value.shape, value.dtype

    # ---------------------------------------------------------------------------------------------------------- reading

    def run(self, given: Mapping[str, Any], inner: Session) -> dict[str, Any]:
        """All values of the model, for those of its arguments."""
        budget = Budget.of(self.proto)
        inner.take = budget.take
        functions = {(f.domain, f.name, f.overload): f for f in self.proto.functions}
        values: dict[str, Any] = dict(self._initializers) | dict(self.fixed) | dict(given)
        Reader(functions, versions_of(self.proto), budget).run(self.proto.graph.node, values, {})
        for item in self.proto.graph.output:
            if item.name not in values:
                raise TargetError(f"from_onnx: expected outputs that are computed, got {item.name}", location=user_location())
            values[item.name] = _declared(_result(values[item.name]), item)
        return values


def _result(value: Any) -> Any:
    """An output as a tensor of the program; strings and what is in sequences and optionals as it is."""
    if isinstance(value, np.ndarray) and not is_text(value) and not (value.dtype == object and not value.size):
        return tensor_of(value)
    return [_result(item) for item in value] if isinstance(value, list) else value


def _arrays(value: Any) -> list[np.ndarray]:
    if value is None:
        return []
    if isinstance(value, list):
        return [array for item in value for array in _arrays(item)]
    if value.dtype == object:
        return []
    return [np.ascontiguousarray(value).view(np.uint8) if value.dtype not in _LANGUAGE else value]


def _argument(item: ValueInfoProto) -> Argument:
    optional = item.type.WhichOneof("value") == "optional_type"
    about = item.type.optional_type.elem_type if optional else item.type
    kind = about.WhichOneof("value")
    if kind == "sequence_type" or (kind is None and optional):
        return Argument(item.name, None, None, optional)
    if kind != "tensor_type":
        raise TargetError(
            f"from_onnx: expected inputs that are tensors, sequences or optionals of them, got {item.name}, a "
            f"{kind or 'value without a type'}",
            location=user_location(),
        )
    tensor = about.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
    wanted = None if tensor.elem_type in (TensorProto.STRING, TensorProto.UNDEFINED) else kind_of(tensor.elem_type)
    return Argument(item.name, wanted, dims if tensor.HasField("shape") else None, optional)


def _declared(value: Any, item: ValueInfoProto) -> Any:
    """An output, which has the type that the model declares for it. Raises `TargetError` where it has not."""
    kind = item.type.WhichOneof("value")
    if isinstance(value, (Tensor, Coded)) and kind not in (None, "tensor_type", "optional_type"):
        raise TargetError(
            f"from_onnx: output {item.name}: expected a {kind}, as the model declares, got a tensor", location=user_location()
        )
    if not isinstance(value, (Tensor, Coded)) or kind != "tensor_type":
        return value
    declared = item.type.tensor_type
    own = value.dtype.numpy if isinstance(value, Tensor) else value.kind
    wanted = kind_of(declared.elem_type) if declared.elem_type else own
    extents = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    fits = not declared.HasField("shape") or (
        len(extents) == len(value.shape)
        and all(n is None or n == own or not isinstance(own, int) for n, own in zip(extents, value.shape, strict=True))
    )
    if wanted != own or not fits:
        shape = f"[{', '.join('?' if n is None else str(n) for n in extents)}]" if declared.HasField("shape") else ""
        raise TargetError(
            f"from_onnx: output {item.name}: expected {wanted.name}{shape}, as the model declares, got "
            f"{own.name}[{', '.join(map(str, value.shape))}]",
            location=user_location(),
        )
    return value


def _check_once(what: str, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise TargetError(f"from_onnx: expected every {what} once, got {twice} twice", location=user_location())
