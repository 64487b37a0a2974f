"""The function of a model: traced once where shapes say everything, else for each call that is of a new kind.

Sizes that a model leaves open are `te.dim`s where its operators can be written with them. Where they cannot, or where a shape or a number
of elements depends on data (`values.Session`), the model is read for the arrays of a call: each question asked of them is kept with
its program and its answer, and a later call that gives the same answers runs what was made for them. So a plan is a tree: at each node a
program that answers, below each answer what was made for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorexpr.dtypes import dtype
from tensorexpr.errors import ArgumentError, DefinitionError, DifferentiationError, TensorExprError, user_location
from tensorexpr.graph.files.loaded import Loaded
from tensorexpr.graph.nodes.ir import Graph
from tensorexpr.graph.nodes.strict import run_strict
from tensorexpr.graph.run.compile import Step
from tensorexpr.graph.run.function import Signature, call
from tensorexpr.graph.trace.gradients import gradients
from tensorexpr.graph.trace.tracing import Trace, as_tensor, current
from tensorexpr.graph.trace.trees import HOLE
from tensorexpr.interop.onnx.model import Argument, Model, Open
from tensorexpr.interop.onnx.values import Coded, Demand, Hangs, Option, Session, is_narrow, session
from tensorexpr.ir import TensorType, const
from tensorexpr.language import Tensor, constant
from tensorexpr.markup import code, page
from tensorexpr.text import print_type

_KEPT = 256
"""Kinds of calls, and answers to a question, that programs are kept for."""


@dataclass
class _Made:
    """What was made for arguments: the signature, and what becomes of its outputs."""

    signature: Signature
    results: list[Any]

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        found = iter(self.signature.step()(list(arrays))) if self.signature.graph.outputs else iter(())
        return [_filled(item, found) for item in self.results]


@dataclass
class _Asked:
    """A question that arguments answer, and what was made for each answer."""

    step: Step
    answers: dict[Any, _Asked | _Made] = field(default_factory=dict)


@dataclass(frozen=True)
class _Codes:
    """Where codes of a narrow type stand among results."""

    kind: np.dtype


class Imported:
    """A function of arrays, or in a trace of tensors: one argument for each input of a model, in their order or by name; a tuple of
    results, or a single one bare. Made by `from_onnx`.

    `arguments` are their names. With `wrt` it gives gradients instead, and takes heads behind the inputs: what the elements of floating
    results are weighted with; a single scalar needs none.
    """

    def __init__(self, model: Model, wrt: Sequence[str] | None = None, bare: bool = False) -> None:
        self._model, self._wrt, self._bare_gradient = model, None if wrt is None else tuple(wrt), bare
        self.__name__ = model.name if wrt is None else f"{model.name}_gradient"
        self._plans: dict[Any, _Asked | _Made] = {}
        self._lock = threading.RLock()
        self._whole: _Made | None = None
        self._why: TensorExprError | None = None
        self._taken: set[Any] = set()
        self._typed: dict[Any, _Made] = {}
        self._read_whole()

    def __repr__(self) -> str:
        return f"<te function of an ONNX model {self.__name__}({', '.join(map(str, self._model.arguments))})>"

    def _repr_html_(self) -> str:
        return page(code(repr(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Imported, (self._model, self._wrt, self._bare_gradient)

    def __deepcopy__(self, memo: Any) -> Imported:
        return self

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments."""
        return tuple(argument.name for argument in self._model.arguments)

    @property
    def results(self) -> tuple[str, ...]:
        """The names of its results."""
        return self._model.outputs if self._wrt is None else self._wrt

    @property
    def floating(self) -> tuple[str, ...]:
        """The names of floating inputs and initializers, by which there are gradients."""
        return self._model.floating

    def made_up(self, **sizes: int) -> list[np.ndarray]:
        """Arguments to try it with; open dimensions have the sizes that are given by name, else 1."""
        return self._model.made_up(sizes)

    @property
    def is_whole(self) -> bool:
        """Whether one program does for all calls."""
        return self._whole is not None

    @property
    def graph(self) -> Graph:
        """The graph of the function. Raises `ArgumentError` where it depends on the arguments of a call."""
        return self.signature().graph

    def signature(self) -> Signature:
        """The function as it was traced. Raises `ArgumentError` where it depends on the arguments of a call."""
        if self._whole is None:
            raise ArgumentError(
                f"{self.__name__}: expected a function with one program for all arguments, got one that is read for each kind of them",
                at=str(self._why) if self._why else None,
                location=user_location(),
                hint="f.specialised(*arrays) is the function for arguments like these",
            )
        return self._whole.signature

    def compiled(self) -> Step:
        """The compiled step."""
        return self.signature().step()

    def strict(self, *arguments: Any, log: list[str] | None = None) -> Any:
        """A call by the strict interpreter."""
        arrays = self._model.flat([self._model.array(a, v) for a, v in zip(self._model.arguments, arguments, strict=False)])
        found = iter(run_strict(self.graph, arrays, log))
        assert self._whole is not None
        return self._bare([_filled(item, found) for item in self._whole.results])

    def gradient(self, names: str | Sequence[str]) -> Imported:
        """The function that gives the gradients of the results by inputs and initializers of these names.

        It takes the arguments of this one and then a head for each floating result (none where there is one scalar), and gives a tuple of
        gradients, or for a single name given as text a bare one. Raises `ArgumentError` for a name that the model has not, and
        `DifferentiationError` for one that is not floating.
        """
        wanted = (names,) if isinstance(names, str) else tuple(names)
        return Imported(self._model.differentiable(wanted), wanted, isinstance(names, str))

    def specialised(self, *arguments: Any, **named: Any) -> Loaded:
        """The function for arguments of the kind of these, with the answers that they give, as one program of tensors."""
        values = self._model.bound_values(arguments, named)
        made = self._found(values) if self._whole is None else self._whole
        if any(item is not HOLE for item in made.results):
            raise ArgumentError(f"{self.__name__}: expected results that are tensors, got others beside them", location=user_location())
        return Loaded(self.__name__, Signature(made.signature.graph, HOLE if len(made.results) == 1 else tuple(made.results)), [])

    # ------------------------------------------------------------------------------------------------------------ calls

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        trace = current()
        if trace is not None:
            return self._traced(trace, arguments, named)
        values = self._model.bound_values(arguments, named)
        made = self._whole
        if made is None or not self._takes(made, values):
            made = self._found(values)
        return self._bare(made(self._arrays(made, values)))

    def run(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The results for arguments, as a tuple."""
        found = self(*arguments)
        return found if isinstance(found, tuple) else (found,)

    def _arrays(self, made: _Made, values: list[Any]) -> list[np.ndarray]:
        """The arrays of a program. Raises `ArgumentError` for heads that are missing or too many."""
        arrays, inputs = self._model.flat(values), made.signature.graph.inputs
        heads = len(inputs) - len(arrays) + len(values) - len(self._model.arguments)
        if self._wrt is not None and len(inputs) == len(arrays) + 1 and heads == 1 and not inputs[-1].type.shape:
            arrays.append(np.ones((), inputs[-1].type.dtype.numpy))
        if len(arrays) != len(inputs):
            given = len(values) - len(self._model.arguments)
            raise ArgumentError(
                f"{self.__name__}: expected {len(self._model.arguments)} arguments"
                + (f" and {heads} heads, one for each floating result" if self._wrt is not None else "")
                + f", got {given} beyond them",
                location=user_location(),
            )
        return arrays

    def _takes(self, made: _Made, values: list[Any]) -> bool:
        """Whether a program for all arguments takes these. Raises `ArgumentError` where nothing can."""
        key = tuple(self._model.key(value) for value in values)
        if key in self._taken:
            return True
        types = [_type(array) for array in self._arrays(made, values)]
        Loaded(self.__name__, made.signature, []).check(types)
        self._taken.add(key)
        return True

    def _bare(self, results: list[Any]) -> Any:
        single = self._bare_gradient if self._wrt is not None else len(results) == 1
        return results[0] if single else tuple(results)

    def _traced(self, trace: Trace, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """A call in another function: of the program for all arguments where shapes are known, else of one read for the types of these."""
        given = dict(zip(self.arguments, arguments, strict=False)) | dict(named)
        missing = [name for name in self.arguments if name not in given]
        if missing:
            raise ArgumentError(f"{self.__name__}: expected an argument {missing[0]}, got none", location=user_location())
        own = [as_tensor(given[name], self.__name__) for name in self.arguments]
        heads = [as_tensor(item, self.__name__) for item in arguments[len(self.arguments) :]]
        made = self._whole if self._model.closed else None
        if made is None:
            key = tuple(print_type(tensor.type) for tensor in own)
            made = self._typed.get(key) or self._typed.setdefault(key, self._read(own)[0])
        if any(item is not HOLE for item in made.results):
            raise ArgumentError(f"{self.__name__}: expected results that are tensors, got others beside them", location=user_location())
        tensors = [*own, *map(constant, self._model.bound_arrays.values()), *heads]
        Loaded(self.__name__, made.signature, []).check([tensor.type for tensor in tensors])
        found = call(trace, made.signature, tensors)
        return self._bare(list(found) if isinstance(found, tuple) else [found])

    def _found(self, values: list[Any]) -> _Made:
        key = tuple(self._model.key(value) for value in values)
        with self._lock:
            plan = self._plans.get(key)
            arrays = self._model.flat(values)
            while isinstance(plan, _Asked):
                (value,) = plan.step(arrays)
                plan = plan.answers.get((np.shape(value), np.asarray(value).tobytes()))
            if plan is None:
                plan, demands = self._read(values)
                self._keep(key, plan, demands)
            return plan

    def _keep(self, key: Any, made: _Made, demands: Sequence[Demand]) -> None:
        last: _Asked | _Made = made
        place: dict[Any, _Asked | _Made] = self._plans
        for demand in demands:
            found = place.get(key)
            if not isinstance(found, _Asked):
                found = _put(place, key, _Asked(demand.step))
            place, key = found.answers, demand.key
        _put(place, key, last)

    # ---------------------------------------------------------------------------------------------------------- reading

    def _read_whole(self) -> None:
        """One program for all arguments, where there can be one."""
        if any(argument.kind is None or argument.optional for argument in self._model.arguments):
            return
        try:
            self._whole = self._read(None)[0]
        except Hangs as error:
            self._why = error
        except TensorExprError as error:
            if self._model.closed:
                raise
            self._why = error
        except (TypeError, ValueError, AttributeError) as error:  # of what takes numbers and is given open sizes
            if self._model.closed:
                raise
            self._why = DefinitionError(str(error))

    def _read(self, values: list[Any] | None) -> tuple[_Made, list[Demand]]:
        """What a model is for arguments (None: for all; tensors: of these types), and what was asked of them."""
        trace = Trace(self.__name__, capturing=False)
        inner = Session(trace)
        token = session.set(inner)
        try:
            with trace.open():
                sizes = Open()
                given: dict[str, Any] = {}
                for k, argument in enumerate(self._model.arguments):
                    given[argument.name] = self._formal(trace, argument, None if values is None else values[k], sizes)
                for name, array in self._model.bound_arrays.items():
                    given[name] = trace.formal(_type(array), "w")
                if values is not None and not any(isinstance(value, Tensor) for value in values):
                    inner.arrays = self._model.flat(values)
                outputs, results = self._computed(inner, given)
            trace.outputs = outputs
            trace.captured()
            graph = trace.graph()
        finally:
            session.reset(token)
        tree = HOLE if len(results) == 1 else tuple(HOLE for _ in outputs)
        return _Made(Signature(graph, tree), list(map(_form, results))), inner.demands

    def _formal(self, trace: Trace, argument: Argument, value: Any, sizes: Open) -> Any:
        if value is None and argument.optional:
            return Option()
        if isinstance(value, Tensor):
            return trace.formal(value.type, "x")
        if isinstance(value, list):
            return [self._formal(trace, argument, item, sizes) for item in value]
        if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
            return value
        kind = argument.kind if value is None else value.dtype
        shape = sizes.shape(argument) if value is None else tuple(map(const, value.shape))
        coded = kind is not None and is_narrow(kind)
        tensor = trace.formal(TensorType(shape, dtype(np.uint8 if coded else kind)), "x")
        found: Any = Coded(tensor, np.dtype(kind)) if coded else tensor
        return Option(found) if argument.optional else found

    def _computed(self, inner: Session, given: dict[str, Any]) -> tuple[list[Tensor], list[Any]]:
        """The tensors among the results, and the results."""
        named = self._model.run(given, inner)
        results = [named[name] for name in self._model.outputs]
        if self._wrt is not None:
            results = self._derived(inner.trace, given, named, results)
        return list(_tensors(results)), results

    def _derived(self, trace: Trace, given: dict[str, Any], named: dict[str, Any], results: list[Any]) -> list[Any]:
        assert self._wrt is not None
        losses = [item for item in results if isinstance(item, Tensor) and item.dtype.is_float]
        if not losses:
            raise DifferentiationError(f"{self.__name__}: expected a floating result to differentiate, got none", location=user_location())
        by = [given.get(name, named.get(name)) for name in self._wrt]
        for name, item in zip(self._wrt, by, strict=True):
            if not isinstance(item, Tensor) or not item.dtype.is_float:
                raise DifferentiationError(
                    f"{self.__name__}: expected to differentiate by floating tensors, got {name}", location=user_location()
                )
        heads = [trace.formal(loss.type, "head") for loss in losses]
        return list(gradients(losses, by, heads))


def _put(place: dict[Any, Any], key: Any, item: Any) -> Any:
    """Puts what was made in its place; where there are very many, the oldest goes."""
    while len(place) >= _KEPT:
        del place[next(iter(place))]
    place[key] = item
    return item


def _tensors(items: Any) -> Iterator[Tensor]:
    for item in items:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, Coded):
            yield item.codes
        elif isinstance(item, Option):
            yield from _tensors([item.value])
        elif isinstance(item, list):
            yield from _tensors(item)


def _form(item: Any) -> Any:
    """A result with holes for tensors."""
    if isinstance(item, Tensor):
        return HOLE
    if isinstance(item, Coded):
        return _Codes(item.kind)
    if isinstance(item, Option):
        return _form(item.value)
    return [_form(one) for one in item] if isinstance(item, list) else item


def _filled(item: Any, found: Iterator[Any]) -> Any:
    if item is HOLE:
        return next(found)
    if isinstance(item, _Codes):
        return np.asarray(next(found)).view(item.kind)
    if isinstance(item, list):
        return [_filled(one, found) for one in item]
    return item


def _type(array: np.ndarray) -> TensorType:
    return TensorType(tuple(map(const, array.shape)), dtype(array.dtype))
