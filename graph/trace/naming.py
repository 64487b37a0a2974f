"""Names and name scopes: what a module, a variable or a traced operation is called.

A scope is a prefix, `foo/bar/`, fixed when it is made; entering it makes that prefix the current one, whatever is current then. So a
scope that is entered twice, or inside itself, is the same scope. The scopes that are open form a stack of the current context (thread
or task); an exception closes those that it leaves. Nothing enters a scope by itself. Names are for people: nothing is looked up by them.
"""

from __future__ import annotations

import contextvars
import re
from dataclasses import dataclass
from types import TracebackType

from tensorexpr.errors import InvalidNameError, user_location
from tensorexpr.graph.trace import journal as journals
from tensorexpr.hints import checked

_open: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("open name scopes", default=())


@dataclass(frozen=True, slots=True)
class NameScope:
    """A context manager that makes `name`, a prefix such as `foo/bar/`, the current one; it may be entered again at any time."""

    name: str

    def __enter__(self) -> str:
        _enter((*_open.get(), self.name))
        return self.name

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        _enter(_open.get()[:-1])


def _enter(scopes: tuple[str, ...]) -> None:
    _open.set(scopes)
    journal = journals.scopes.get()
    if journal is not None:  # what is traced from here on carries the scope
        journal.note(current_scope())


@checked()
def name_scope(name: str) -> NameScope:
    """The scope of that name inside the one that is current now. Raises `InvalidNameError`, a `ValueError`, unless it is an identifier.

    >>> with te.name_scope("encoder"):
    ...     w = te.Variable(np.zeros(2), name="w")
    >>> w.name
    'encoder/w'
    """
    return NameScope(f"{scoped(valid_name(name))}/")


def current_scope() -> str:
    """The prefix of the scope that was entered last and is open: `foo/bar/`, or nothing."""
    scopes = _open.get()
    return scopes[-1] if scopes else ""


def scoped(name: str) -> str:
    """The name with the prefix of the current scope: `foo/bar/v`."""
    return current_scope() + name


def valid_name(name: object) -> str:
    """The name, if it is a Python identifier; else `InvalidNameError`, which is also a `ValueError`."""
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidNameError(
            f"expected a name that is a Python identifier, got {name!r}",
            location=user_location(),
            hint="letters, digits and underscores, not a digit first; slashes separate scopes, which te.name_scope makes",
        )
    return name


def snake_case(name: str) -> str:
    """The name of a class as the name of an instance: `MyModule` is `my_module`, `HTTPServer2` is `http_server2`."""
    words = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    return re.sub(r"__+", "_", words).strip("_").lower() or "module"
