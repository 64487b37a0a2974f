"""Classes of named fields, as `dataclasses` has them, made and instantiated in a fraction of the time.

A compiler is made of such classes (about two hundred here), and starting it made them all: `dataclasses` compiles six functions of
source text for each, more than half a millisecond. Here equality, hash and representation are closures over the names of fields, and the
text of `__init__`, the one function that needs text of its own, is compiled when the first instance is made. Fields of frozen records are
set through the descriptors of their slots, which takes a third less time than `object.__setattr__`.

    @record
    class Interval:
        '''From `start` up to `stop`.'''

        start: int
        stop: int

`record` alone: frozen, with slots, equal where class and compared fields are equal, hashed by them. `__post_init__`, inherited fields,
positional patterns, pickling and copying work as with `dataclasses`, whose `fields`, `replace` and `asdict` take records, too.
Type checkers know records by PEP 681.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, dataclass_transform, overload

Class = TypeVar("Class", bound=type)
Record = TypeVar("Record")

_MISSING: Any = object()


class Field(NamedTuple):
    """A field of a record: its name, a default or what makes one, and where it takes part."""

    name: str
    default: Any
    factory: Callable[[], Any] | None
    init: bool
    repr: bool
    compare: bool
    hash: bool


def field(
    *,
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    hash: bool | None = None,
) -> Any:
    """What a field is beside its annotation: stands where its default would."""
    return Field("", default, default_factory, init, repr, compare, compare if hash is None else hash)


@overload
def record(cls: Class) -> Class: ...
@overload
def record(*, frozen: bool = True, eq: bool = True, slots: bool = True, weakrefs: bool = False) -> Callable[[Class], Class]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type | None = None, *, frozen: bool = True, eq: bool = True, slots: bool = True, weakrefs: bool = False) -> Any:
    """Makes a record of a class whose fields are its annotations.

    What the class defines itself stays. Without `eq` equality and hash are those of the class as it stands. Records that are not frozen
    have no hash. Without `slots` instances have a `__dict__` (for cached properties); with `weakrefs` they may be referred to weakly.
    """
    if cls is None:
        return lambda inner: _made(inner, frozen, eq, slots, weakrefs)
    return _made(cls, frozen, eq, slots, weakrefs)


def fields(of: object) -> tuple[Field, ...]:
    """The fields of a record or of its class, in order, inherited ones first."""
    return tuple(of.__record_fields__.values())  # type: ignore[attr-defined]  # @record puts it there


def replace(instance: Record, /, **changes: Any) -> Record:
    """A record as `instance`, but for the fields given by name."""
    cls: Any = type(instance)
    known = list(cls.__record_values__(instance))
    places = cls.__record_init__
    for name, value in changes.items():
        if name not in places:
            cls(*known, **{name: value})  # which refuses it
        known[places[name]] = value
    made: Record = cls(*known)
    return made


def as_dict(instance: object) -> dict[str, Any]:
    """The fields of a record by name, records among them (also in tuples, lists and dictionaries) as such dictionaries themselves."""
    return {f.name: _plain(getattr(instance, f.name)) for f in fields(instance)}


def _plain(value: Any) -> Any:
    if hasattr(type(value), "__record_fields__"):
        return as_dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _made(cls: type, frozen: bool, eq: bool, slots: bool, weakrefs: bool) -> type:
    inherited: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        if "__dataclass_fields__" in base.__dict__ and "__record_fields__" not in base.__dict__:
            raise TypeError(f"expected records as bases of {cls.__name__}, got the dataclass {base.__name__}")
        inherited.update(base.__dict__.get("__record_fields__", {}))
    namespace = dict(cls.__dict__)
    own: dict[str, Field] = {}
    for name, annotation in inspect.get_annotations(cls).items():  # since Python 3.14 they are not in the namespace
        if "ClassVar" in str(annotation).partition("[")[0]:
            continue
        value = namespace.get(name, _MISSING)
        own[name] = value._replace(name=name) if isinstance(value, Field) else Field(name, value, None, True, True, True, True)
    every = {**inherited, **own}
    given = tuple(f.name for f in every.values() if f.init)
    places = {name: place for place, name in enumerate(given)}
    namespace.update(__record_fields__=every, __record_init__=places, __dataclass_fields__=_AsDataclass())
    namespace["__record_values__"] = staticmethod(values_of(given))
    namespace.setdefault("__init__", _first_init)
    namespace.setdefault("__match_args__", given)
    namespace.setdefault("__repr__", _repr)
    if eq:
        namespace.setdefault("__eq__", _equality(tuple(f.name for f in every.values() if f.compare)))
        hashed = _hash(tuple(f.name for f in every.values() if f.compare and f.hash)) if frozen else None
        if namespace.get("__hash__") is None:
            namespace["__hash__"] = hashed
    if frozen:
        namespace.update(__setattr__=_refuse_set, __delattr__=_refuse_delete)
    for name in (*own, "__dict__", "__weakref__"):
        namespace.pop(name, None)
    if slots:
        namespace["__slots__"] = tuple(name for name in (*own, *(["__weakref__"] if weakrefs else [])) if not _has_slot(cls, name))
        namespace.setdefault("__getstate__", _getstate)
        namespace.setdefault("__setstate__", _setstate)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


class _AsDataclass:
    """What `dataclasses` knows of a class: made when it asks first, then in the class itself, since it asks at every `replace`."""

    def __get__(self, instance: object, owner: Any) -> Mapping[str, dataclasses.Field[Any]]:
        described = []
        for f in fields(owner):
            given: dict[str, Any] = {} if f.default is _MISSING else {"default": f.default}
            if f.factory is not None:
                given["default_factory"] = f.factory
            described.append((f.name, Any, dataclasses.field(init=f.init, repr=f.repr, compare=f.compare, hash=f.hash, **given)))
        known: Any = dataclasses.make_dataclass(owner.__name__, described)
        found: Mapping[str, dataclasses.Field[Any]] = known.__dataclass_fields__
        owner.__dataclass_fields__ = found
        return found


def _has_slot(cls: type, name: str) -> bool:
    return any(name in base.__dict__.get("__slots__", ()) for base in cls.__mro__[1:])


# ---------------------------------------------------------------------------------------------------- construction


def _first_init(self: object, *args: Any, **kwargs: Any) -> None:
    """`__init__` until there is an instance: makes the real one, for the class that this one stands in."""
    cls: Any
    for cls in type(self).__mro__:
        if cls.__dict__.get("__init__") is _first_init:
            cls.__init__ = _init_of(cls)
            cls.__init__(self, *args, **kwargs)
            return
    # Another thread was here first.
    type(self).__init__(self, *args, **kwargs)


def _init_of(cls: type) -> Any:
    """The text of `__init__`, compiled."""
    scope: dict[str, Any] = {"_missing": _MISSING, "_set": object.__setattr__}
    parameters, body = ["self"], []
    frozen = getattr(cls, "__setattr__", None) is _refuse_set
    for f in fields(cls):
        value = f.name
        if f.init:
            if f.factory is not None:
                scope[f"_make_{f.name}"] = f.factory
                parameters.append(f"{f.name}=_missing")
                value = f"_make_{f.name}() if {f.name} is _missing else {f.name}"
            elif f.default is not _MISSING:
                scope[f"_default_{f.name}"] = f.default
                parameters.append(f"{f.name}=_default_{f.name}")
            else:
                parameters.append(f.name)
        elif f.factory is not None:
            scope[f"_make_{f.name}"] = f.factory
            value = f"_make_{f.name}()"
        elif f.default is not _MISSING:
            scope[f"_default_{f.name}"] = f.default
            value = f"_default_{f.name}"
        else:
            continue
        slot = getattr(cls, f.name, None)
        if not frozen:
            body.append(f"self.{f.name} = {value}")
        elif isinstance(slot, MemberDescriptorType):
            scope[f"_set_{f.name}"] = slot.__set__
            body.append(f"_set_{f.name}(self, {value})")
        else:
            body.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(body or ["pass"]), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


# ---------------------------------------------------------------------------------------------------- what all records share


def values_of(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """What gives the values of fields as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda of: ()
    get = attrgetter(names[0])
    return lambda of: (get(of),)


def _equality(names: tuple[str, ...]) -> Callable[[object, object], Any]:
    values = values_of(names)

    def __eq__(self: object, other: object) -> Any:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(names: tuple[str, ...]) -> Callable[[object], int]:
    values: Callable[[object], Hashable] = values_of(names)

    def __hash__(self: object) -> int:
        return hash(values(self))

    return __hash__


def _repr(self: object) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise AttributeError(f"expected no assignment to the frozen {type(self).__name__}, got one to {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise AttributeError(f"expected no deletion from the frozen {type(self).__name__}, got one of {name!r}")


def _getstate(self: object) -> tuple[Any, ...]:
    return tuple([getattr(self, f.name) for f in fields(self)])


def _setstate(self: object, state: tuple[Any, ...]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


# ---------------------------------------------------------------------------------------------------- values made on demand

Value = TypeVar("Value")


class cached_property(Generic[Value]):
    """A property that is computed once for each instance and kept in its dictionary, as `functools.cached_property` of Python 3.12.

    That of Python 3.11 has one lock for all instances of a class: compilations in several threads waited for each other, and a
    child that was forked during one waited for ever. Threads that ask at once may compute the value twice.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        # The first one stays, so that all who ask see one object.
        return instance.__dict__.setdefault(self.name, self.function(instance))
