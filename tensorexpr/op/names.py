"""Names: ops by theirs, as they are found again in another process, by pickle and by whatever keeps a reference to one; tensors that are
called after the op that made them, and copies where a result must be a tensor of its own."""

from __future__ import annotations

import importlib
import sys
import weakref
from typing import Any

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.language import Tensor, compute
from tensorexpr.op.trees import leaves

_NAMED_BY_OPS: weakref.WeakSet[Tensor] = weakref.WeakSet()


def named(module: str, name: str) -> Any:
    """What a qualified name means in a module that is imported; None where it means nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def within(value: Any) -> Any:
    """The op or traced function that a host's function of it (`as_torch`, `as_jax`) holds; anything else as it is."""
    return getattr(value, "__tensorexpr__", value)


def name_of(value: Any, function: Any) -> tuple[str, str] | None:
    """Module and qualified name under which `value`, made of `function`, is found; None where there is none."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or module not in sys.modules:
        return None
    if isinstance(name, str) and within(named(module, name)) is value:
        return module, name
    given = next((name for name, other in list(vars(sys.modules[module]).items()) if other is value), None)
    return None if given is None else (module, given)


def imported(module: str, name: str) -> Any:
    """What pickle calls to find an op by name."""
    importlib.import_module(module)
    found = within(named(module, name))
    if found is None:
        raise DefinitionError(
            f"expected {name} in the module {module}, where it was when it was pickled, got none", location=user_location()
        )
    return found


def name_results(name: str, result: Any) -> None:
    """Calls the results after the op, where the user has not named them (an outer op renames what an inner one named)."""
    for position, tensor in enumerate(leaves(result)):
        if tensor.definition is not None and (not tensor.named or tensor in _NAMED_BY_OPS):
            tensor.name, tensor.named = name if isinstance(result, Tensor) else f"{name}_{position}", True
            _NAMED_BY_OPS.add(tensor)


def identity(tensor: Tensor) -> Tensor:
    """A tensor of its own that is equal to another."""
    copied = compute(tensor.shape, lambda *i: tensor[i])
    copied.name, copied.named = tensor.name, tensor.named
    return copied
