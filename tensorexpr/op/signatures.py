"""What the signature of a user's function says of an op: tensors, those that may be left out, static arguments and their defaults; and
how the arguments of a call are taken by it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import suggestion
from tensorexpr.op.conventions import apart, fixed, is_number, is_plain, is_tensor, numbers_of, own_name
from tensorexpr.op.specs import argument_error

RESERVED = ("out",)
"""Names that a call of an op keeps for itself."""
SEVERAL = ("tensors",)
"""The one parameter of an op that takes any number of tensors: a tuple of them, or each by itself where none can be meant as an axis."""
BY_NAME = ("where", "weights", "prepend", "append")
"""Tensors that may be left out and are given by name: by position a number is the next static argument."""
IN_FRONT = "obj"
"""The static argument that NumPy has in front of the last tensor."""
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


class Bound:
    """An op as its calls see it: arguments in the order of its parameters; what does not fit is refused."""

    name: str
    parameters: tuple[str, ...]
    rest: str | None
    optional: tuple[str, ...]
    static: dict[str, Any]
    surplus: str | None
    lacking: str | None
    derived: tuple[Callable[..., Any], tuple[Any, ...]] | None
    __signature__: inspect.Signature

    @property
    def _term(self) -> str:
        return f"{self.name}{self.__signature__}"

    def _tensors_among(self, given: Sequence[Any]) -> int:
        """How many of the values by position are tensors. None is one that is left out, where a tensor follows or the others all fit,
        and where there would be more static arguments than the op has; else it is a static argument."""
        last = max((k for k, value in enumerate(given) if value is not None and is_tensor(value)), default=0)
        nones = [k for k, value in enumerate(given) if value is None]
        sure = sum(value is not None and is_tensor(value) for value in given) + sum(k < last for k in nones)
        fits = len(given) <= len(self.parameters) or len(given) - sure > len(self.static)
        return sure + sum(k > last for k in nones) if fits else sure

    def bind(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any], also: Sequence[str] = ("out",)
    ) -> tuple[list[Any], dict[str, Any]]:
        """Tensor arguments in order, and every static argument; `also` are the other names that a keyword may have meant.

        Behind the tensors static arguments may follow by position, the numbers of a single one without parentheses.
        Names are ours, or PyTorch's where it has another.
        """
        given = list(arguments)
        static = dict(self.static)
        named: dict[str, Any] = {}
        if self.parameters == SEVERAL and self.rest is None and "axis" not in static and len(given) > 1 and not is_plain(given[1:2]):
            given = [tuple(given)]  # as in `meshgrid(x, y)`
        if keywords and not all(name in static for name in keywords):
            keywords = self._own_names(keywords)
        if self.static and self.rest is None and self.derived is None:
            covered = any(name in keywords for name in self.parameters[: len(given)])
            lacking = sum(default is REQUIRED and name not in keywords for name, default in static.items())
            found = self._tensors_among(given)
            places = max(min(len(self.parameters), found), len(self.parameters) - sum(name in BY_NAME for name in self.optional))
            if static.get(IN_FRONT) is REQUIRED and len(given) > 2 and not is_tensor(given[1]) and IN_FRONT not in keywords:
                given = [given[0], *given[2:3], given[1], *given[3:]]
            tensors, behind = apart(given, places, len(self.parameters) - len(self.optional), covered, lacking)
            names = zip(static.items(), behind, strict=False)
            behind = [numbers_of(value) if default is REQUIRED else value for (_, default), value in names] + behind[len(static) :]
            if len(behind) > 1 and list(static.values()) == [REQUIRED] and all(map(is_number, behind)):
                behind = [tuple(behind)]  # as in `x.reshape(4, 3)`
            if len(behind) > len(static) or not is_plain(behind):
                tensors, behind = given, []
            given = tensors
            for name, value in zip(static, behind, strict=False):
                if name in keywords:
                    raise argument_error(f"{self.name}: expected one value for {name}, got two", term=self._term)
                static[name] = fixed(value)
        for name, value in keywords.items():
            if name in static:
                static[name] = fixed(numbers_of(value))
            elif name in self.parameters:
                named[name] = value
            else:
                known = ", ".join(self.static) or "none"
                if not is_plain([value]):
                    raise argument_error(
                        f"{self.name}: expected arrays for {', '.join(self.parameters) or 'no parameter'}, got one for {name}",
                        term=self._term,
                        hint=suggestion(name, (*self.parameters, *self.static)),
                    )
                raise argument_error(
                    f"{self.name}: expected the static arguments {known}, got {name}"
                    if self.static
                    else f"{self.name}: expected no static arguments, got {name}",
                    term=self._term,
                    hint=suggestion(
                        name, (*self.static, *self.parameters, *also), "keyword-only parameters of the function are its static arguments"
                    ),
                )
        number = len(given) + len(named)
        twice = next((name for name in named if name in self.parameters[: len(given)]), None)
        if twice is not None:
            raise argument_error(f"{self.name}: expected one value for {twice}, got two", term=self._term)
        if self.rest is None:
            given = self.filled(given, named)
        else:
            given += [named.pop(name) for name in self.parameters[len(given) :] if name in named]
        required = len(self.parameters) - (0 if self.rest is None else len(self.optional))
        if len(given) < required or named or (len(given) > len(self.parameters) and self.rest is None):
            wanted = ", ".join(self.parameters) or "none"
            static_hint = f"static arguments are given by name: {', '.join(self.static)}" if self.static else None
            if number > len(self.parameters) == 1 and not is_plain(given):
                several = f"several tensors for {self.parameters[0]} are one argument, a tuple"
                static_hint = several if static_hint is None else f"{several}; {static_hint}"
            plural = "" if len(self.parameters) == 1 else "s"
            raise argument_error(
                f"{self.name}: expected {len(self.parameters)} tensor argument{plural} ({wanted}), got {number}",
                term=self._term,
                hint=(self.surplus or static_hint) if number > len(self.parameters) else self.lacking,
            )
        for name, value in static.items():
            if value is inspect.Parameter.empty:
                raise argument_error(f"{self.name}: expected the static argument {name}, got none", term=self._term)
        return [() if tree is None else tree for tree in given], static

    def _own_names(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments under the names that they have here; one that is given under both is refused."""
        known = (*self.static, *self.parameters)
        found: dict[str, Any] = {}
        for name, value in keywords.items():
            own = own_name(name, known)
            if own in found or (own != name and own in keywords):
                raise argument_error(f"{self.name}: expected one value for {own}, got two", term=self._term)
            found[own] = value
        return found

    def filled(self, arguments: Sequence[Any], named: dict[str, Any] | None = None) -> list[Any]:
        """The arguments in the order of the parameters, those of `named` (which are taken out of it) in their places.

        Of the parameters that may be left out, as many as are too few are, the last first: what a transform adds behind them
        is given.
        """
        named = {} if named is None else named
        missing = max(0, len(self.parameters) - len(arguments) - len(named))
        free = [name for name in self.optional if name not in named]
        absent = free[max(0, len(free) - missing) :]
        rest, given = list(arguments), []
        for name in self.parameters:
            if name in named:
                given.append(named.pop(name))
            elif name in absent:
                given.append(())
            elif rest:
                given.append(rest.pop(0))
            else:
                break
        return [*given, *rest]
