"""Module: a named container of variables and of other modules.

A module is an object like any other: what it holds are its attributes. There is no metaclass, no cache and no pointer to a parent: the
state of a module is found by a walk over its attributes, made anew at every call, so what was added, replaced or deleted shows at once,
and one module may stand in two. Nor is there a `__call__`, a build step or a protocol of shapes: a module has the methods that its author
gives it, and their arguments are passed as they are. State by path is in `state`, tables in `summary`.

The walk looks into lists, tuples (named ones too), dicts and nests of these, into modules, and into nothing else; it reads attributes
from the instance's `__dict__`, so no property is run. Its order is that of attribute names: own leaves first, then those of the
submodules, each in turn. `flatten` is the one walk; `variables`, `trainable_variables` and `submodules` are what it finds with a
predicate. A subclass may override `trainable_variables` (to say that it is frozen, `()`); that is its own answer: a parent asks the
variables, not the submodules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.run.function import Function
from tensorexpr.graph.trace.naming import NameScope, name_scope, snake_case
from tensorexpr.markup import amount, code, or_reason, page

Path = tuple[Any, ...]
"""Attribute names, list positions and dict keys, from a module to what it holds: `('layers', 0, 'w')`."""

_OWN = ("_name_scope", "_waiting")


class Module:
    """A named container of variables and of other modules: subclass it, call `super().__init__()`, and assign attributes.

    `name` is a Python identifier (`ValueError` if not), by default the class name in snake case. The scope is fixed here, inside the one
    that is current; a method enters it only if it says `with self.name_scope` or is marked `@te.Module.with_name_scope`.

    >>> class Scale(te.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = te.Variable(np.float64(2.0), name="w")
    ...     @te.function
    ...     def __call__(self, x):
    ...         return x * self.w
    >>> model = Scale()
    >>> float(model(np.float64(3.0))), [v.name for v in model.variables]
    (6.0, ['w'])
    """

    def __init__(self, name: str | None = None) -> None:
        self._name_scope = name_scope(snake_case(type(self).__name__) if name is None else name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        waiting = vars(self).get("_waiting")
        if waiting is not None:  # state that was loaded before its variable was made
            waiting(self)

    def __repr__(self) -> str:
        if "_name_scope" not in vars(self):
            return f"<module {type(self).__name__}, not initialized>"
        held = list(Module.flatten(self, predicate=is_variable))
        return f"<module {self.name} ({type(self).__name__}): {amount(len(held), 'variable')}>"

    def _repr_html_(self) -> str:
        from tensorexpr.graph.modules.summary import summary  # noqa: PLC0415 -- summaries are of modules

        return page(code(repr(self)), or_reason(lambda: summary(self)._repr_html_()))

    @property
    def name(self) -> str:
        """The name, without the scope that the module was made in."""
        return self.name_scope.name[:-1].rpartition("/")[2]

    @property
    def name_scope(self) -> NameScope:
        """The scope of names of this module, a context manager; its `name` is `foo/bar/` for the module bar made inside foo."""
        if "_name_scope" not in vars(self):
            raise DefinitionError(
                f"{type(self).__name__}: expected a module that was initialized, got one whose __init__ did not call super().__init__()",
                location=user_location(),
                hint="call super().__init__(name=name) first in __init__",
            )
        return self._name_scope

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Every variable of this module and of its submodules, each once: own attributes in order of their names, then submodules."""
        return tuple(self.flatten(predicate=is_variable))

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """Those of `variables` that were made with `trainable=True`, in the same order."""
        return tuple(self.flatten(predicate=lambda value: is_variable(value) and value.trainable))

    @property
    def submodules(self) -> tuple[Module, ...]:
        """Every module inside of this one, each once, without this one; children come before grandchildren."""
        return tuple(self.flatten(predicate=lambda value: isinstance(value, Module)))

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """A method that runs inside the module's name scope. A traced one stays what it is, and is traced inside the scope."""
        return scoped_method(method)

    def flatten(
        self,
        recursive: bool = True,
        predicate: Callable[[Any], bool] = lambda value: True,
        attribute_traversal_key: Callable[[str], Any] | None = None,
        with_path: bool = False,
    ) -> Iterator[Any]:
        """The leaves and modules inside of this module for which `predicate` holds, found now.

        `recursive=False` stays with what this module itself holds. `attribute_traversal_key(name)` sorts the attributes, by default
        their names. Without paths each object is given once; `with_path=True` gives `(path, object)` for every way to it, and raises
        `DefinitionError` where a module is inside itself.
        """
        return _walk(self, recursive, predicate, attribute_traversal_key, with_path)


def is_variable(value: object) -> bool:
    """Whether the value is a variable: the predicate of `Module.variables`."""
    return isinstance(value, Variable)


def scoped_method(method: Any) -> Any:
    """The method, run inside of the name scope of the module that it is called on; a traced function stays one."""
    if isinstance(method, Function):
        return method.around(scoped_method)

    @functools.wraps(method)
    def inside(self: Module, *arguments: Any, **keywords: Any) -> Any:
        with self.name_scope:
            return method(self, *arguments, **keywords)

    return inside


def _walk(root: Module, recursive: bool, predicate: Any, key: Any, with_path: bool) -> Iterator[Any]:
    """See `Module.flatten`. Modules are taken from a stack, so their nesting has no limit; with paths each has the modules above it."""
    seen = {id(root)}
    stack: list[tuple[Module, Path, tuple[Module, ...]]] = [(root, (), ())]
    while stack:
        module, path, above = stack.pop()
        inner: list[tuple[Module, Path, tuple[Module, ...]]] = []
        for place, value in _held(module, key):
            if with_path:
                if isinstance(value, Module) and recursive:
                    _refuse_cycle(value, (*path, *place), (*above, module))
                    inner.append((value, (*path, *place), (*above, module)))
                if predicate(value):
                    yield (*path, *place), value
            elif id(value) not in seen:
                seen.add(id(value))
                if isinstance(value, Module) and recursive:
                    inner.append((value, (), ()))
                if predicate(value):
                    yield value
        stack.extend(reversed(inner))


def _held(module: Module, key: Callable[[str], Any] | None) -> Iterator[tuple[Path, Any]]:
    """What a module itself holds, with paths: its attributes, and for those that are containers what is in them."""
    assert module.name_scope  # or the error that says that there is none
    attributes = vars(module)
    for name in sorted((name for name in attributes if name not in _OWN), key=key):
        yield from _leaves(attributes[name], (name,), ())


def _leaves(value: Any, path: Path, around: tuple[int, ...]) -> Iterator[tuple[Path, Any]]:
    """The leaves of nested containers with their paths; a container inside itself is not entered again."""
    items = _items(value)
    if items is None:
        yield path, value
    elif id(value) not in around:
        for step, item in items:
            yield from _leaves(item, (*path, step), (*around, id(value)))


def _items(value: Any) -> Any:
    """Keys and values of a container; None for a leaf."""
    if isinstance(value, Mapping):
        return value.items()
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        return zip(fields, value, strict=True)
    return enumerate(value) if isinstance(value, list | tuple) else None


def _refuse_cycle(value: Module, path: Path, above: tuple[Module, ...]) -> None:
    if any(value is module for module in above):
        raise DefinitionError(
            f"{above[0].name}: expected modules that do not hold themselves, to give every path, "
            f"got {dotted(path)}, which is {value.name} again",
            location=user_location(),
            hint="without with_path each module is visited once",
        )


def dotted(path: Path) -> str:
    """The path as text: `layers.0.w`."""
    return ".".join(map(str, path))
