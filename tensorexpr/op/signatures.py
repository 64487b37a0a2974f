"""What the signature of a user's function says of an op: tensors, those that may be left out, static arguments and their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorexpr.errors import DefinitionError, Location, user_location

RESERVED = ("out",)
"""Names that a call of an op keeps for itself."""
REQUIRED = inspect.Parameter.empty
"""The default of a static argument that has none."""


class Parameters(NamedTuple):
    """The tensors of an op, those of them that may be left out, and the defaults of its static arguments, by name."""

    tensors: tuple[str, ...]
    optional: tuple[str, ...]
    static: dict[str, Any]


def read_signature(function: Callable[..., Any], name: str, location: Location | None) -> Parameters:
    """The parameters of a function, called `name`, defined at `location`. Raises `DefinitionError` for those that no op has."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        hint = "def f(x): return te.compute(...)"
        raise DefinitionError(f"te.op: expected a function of tensors, got {name}", location=user_location(), hint=hint) from None
    tensors: list[str] = []
    optional: list[str] = []
    static: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.name in RESERVED:
            message, hint = f"a parameter not called {parameter.name}, which means the array to compute into", "rename it"
        elif parameter.kind is parameter.VAR_POSITIONAL:
            message, hint = f"a fixed number of tensors, got *{parameter.name}", f"take a tuple of tensors: {parameter.name}"
        elif parameter.kind is parameter.VAR_KEYWORD:
            message, hint = f"named static arguments, got **{parameter.name}", "name each of them"
        elif parameter.kind is parameter.KEYWORD_ONLY:
            static[parameter.name] = parameter.default
            continue
        elif parameter.default is None:
            tensors.append(parameter.name)
            optional.append(parameter.name)
            continue
        elif parameter.default is not REQUIRED:
            message = f"a tensor argument without default, got {parameter.name}={parameter.default!r}"
            hint = f"make it static: put it after a bare *, as in f(x, *, {parameter.name}={parameter.default!r})"
        else:
            tensors.append(parameter.name)
            continue
        raise DefinitionError(f"{name}: expected {message}", location=location, hint=hint)
    return Parameters(tuple(tensors), tuple(optional), static)
