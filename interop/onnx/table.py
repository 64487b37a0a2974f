"""The table of operators: by domain, name and range of versions, what computes them.

A row is a function of the inputs, and by name of the attributes, of a node. What its parameters are annotated with says how an input
comes: `Known` as an array whose elements are known, `Raw` as it is (a list, an option), everything else as a tensor. Parameters with these
names are given by the reader: `outputs`, how many results the node names, `version`, that of the schema, and `scope`, which runs graphs of
attributes. An older meaning is a row of its own, `until` the version that changed it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tensorexpr.interop.onnx.values import Coded, Option, is_narrow, is_text, known, tensor_of
from tensorexpr.language import Tensor

Known: TypeAlias = Any
"""An input whose elements an operator depends on: an array."""
Raw: TypeAlias = Any
"""An input as it is."""
GIVEN = ("outputs", "version", "scope")
"""Parameters that are no attributes."""


@dataclass(frozen=True)
class Row:
    """How an operator is computed, by versions from `since` on and before `until`.

    `moves`: results are elements of the inputs, wherever they are, so it works on codes of any type.
    """

    function: Callable[..., Any]
    since: int
    until: int
    moves: bool
    parameters: Mapping[str, inspect.Parameter]
    signature: inspect.Signature
    defaults: Mapping[str, float]


Rule = TypeVar("Rule", bound=Callable[..., Any])
_ROWS: dict[tuple[str, str], list[Row]] = {}
_LAST = 1 << 30


def operator(*names: str, since: int = 1, until: int = _LAST, domain: str = "", moves: bool = False) -> Callable[[Rule], Rule]:
    """Puts a function into the table, under each of `names`."""

    def put(function: Rule) -> Rule:
        signature = inspect.signature(function)
        parameters = signature.parameters
        # Attributes are float32, and so are their defaults: of 0.2 a model in float64 sees 0.2000000029802322.
        named = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY and isinstance(p.default, float)]
        defaults = {p.name: float(np.float32(p.default)) for p in named}
        for name in names:
            _ROWS.setdefault((domain, name), []).append(Row(function, since, until, moves, parameters, signature, defaults))
        return function

    return put


def row_of(domain: str, name: str, version: int) -> Row | None:
    """The row for a version of an operator; None where there is none."""
    return next((row for row in _ROWS.get((domain, name), ()) if row.since <= version < row.until), None)


def names() -> list[tuple[str, str]]:
    """The operators that there are rows for, as domains and names."""
    return sorted(_ROWS)


def apply(row: Row, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The results of a row."""
    if row.moves:
        return _moved(row, inputs, attributes)
    return _several(_called(row, inputs, attributes))


def _called(row: Row, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    bound = row.signature.bind(*inputs, **{**row.defaults, **attributes})
    for name, value in bound.arguments.items():
        parameter = row.parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_given(parameter, item) for item in value)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            bound.arguments[name] = _given(parameter, value)
    return row.function(*bound.args, **bound.kwargs)


def _given(parameter: inspect.Parameter, value: Any) -> Any:
    if value is None or parameter.annotation == "Raw":
        return value
    if isinstance(value, Option):
        return _given(parameter, value.value)
    if parameter.annotation == "Known":
        return np.asarray(value) if isinstance(value, (tuple, list)) else known(value)
    return tensor_of(value)


def _several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _moved(row: Row, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """The results of a row that only moves elements: narrow types by their codes, strings by their numbers in a list of them."""
    strings = [item for item in inputs if is_text(item)]
    if strings:
        words, places = np.unique(np.concatenate([item.astype(object).ravel() for item in strings]), return_inverse=True)
        numbers = iter(np.split(places.ravel(), np.cumsum([item.size for item in strings])[:-1]))
        given = [next(numbers).reshape(item.shape) if is_text(item) else item for item in inputs]
        return tuple(words[known(item)] if item is not None else None for item in _several(_called(row, given, attributes)))
    kinds = {item.kind for item in map(_codes, inputs) if isinstance(item, Coded)}
    if not kinds:
        return _several(_called(row, inputs, attributes))
    (kind,) = kinds
    given = [item.codes if isinstance(item, Coded) else item for item in map(_codes, inputs)]
    found = _several(_called(row, given, attributes))
    return tuple(Coded(item, kind) if isinstance(item, Tensor) and item.dtype == "uint8" else item for item in found)


def _codes(item: Any) -> Any:
    if isinstance(item, np.ndarray) and not is_text(item):
        found = tensor_of(item) if is_narrow(item.dtype) else item
        return found if isinstance(found, Coded) else item
    return item
