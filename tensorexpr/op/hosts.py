"""Arrays of other libraries: who computes an op that is called on them.

An op called on an argument that is neither NumPy's nor the language's asks here for the host of its type: the module of
`tensorexpr.interop` for that library, which is loaded when the first of its arrays is met. Libraries are told by the
modules in which the type and its bases are made, so nothing is imported in order to look; types of all others that share
memory by a protocol have one host together.

A module of a library has `HOST`, a `Host`.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

MODULES: dict[str, str] = {
    "jax": "tensorexpr.interop.jax",
    "jaxlib": "tensorexpr.interop.jax",
    "torch": "tensorexpr.interop.torch",
}
"""The module for each library, by the first part of the name of the module in which an array type is made."""

SHARED = "tensorexpr.interop.protocols"
"""The module for all else that shares its memory, CuPy's arrays among it."""

_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
_OWN = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, tuple, list, dict, type(None))


class Host(Protocol):
    """What computes ops on the arrays of a library."""

    def call(self, operation: Any, trees: list[Any], static: dict[str, Any], out: Any) -> Any:
        """The results of a `te.Op` as arrays of the library, nested as the op's.

        `trees` holds one argument per parameter, or a tuple of them (empty: left out); at least one leaf is the library's, the
        others are whatever was given: to be taken or refused by name. `static` has every static argument, `out` is None or the
        caller's.
        """


_hosts: weakref.WeakKeyDictionary[type, str | None] = weakref.WeakKeyDictionary()


def _module_of(kind: type) -> str | None:
    """The module for arrays of a type, or None where it is nobody's array."""
    if issubclass(kind, _OWN):
        return None
    roots = (base.__module__.partition(".")[0] for base in kind.__mro__)
    found = next((MODULES[root] for root in roots if root in MODULES), None)
    return SHARED if found is None and any(hasattr(kind, name) for name in _PROTOCOLS) else found


def host_of(leaves: Iterable[object]) -> Host | None:
    """The host of the first leaf that has one; None where there is none."""
    for leaf in leaves:
        kind = type(leaf)
        try:
            module = _hosts[kind]
        except KeyError:
            module = _hosts[kind] = _module_of(kind)
        if module is not None:
            host: Host = importlib.import_module(module).HOST
            return host
    return None
