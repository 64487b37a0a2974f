"""What an operator of torch computes, as text that stands in the graph beside its tensors.

A node of a graph is kept by others: in files of `torch.export`, in the caches of Inductor, where the next process looks it up. So it says
all that it means: the op by module and qualified name (or how one was derived from it), static arguments, how arguments nest, derivatives,
the shapes and dtypes it was traced at, and a digest of the program that this gave. The text follows from content alone, never
from the order in which operators were made.

`operator_of` finds the operator of a text: one of this process, or one made of the op that the text names. That has to be an op in a
module that is imported (nothing is imported on the word of a file, and nothing called that is no op), and to give the same program; else
the error says what is missing.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tensorexpr.dtypes import DType, dtype
from tensorexpr.errors import DefinitionError, TensorExprError, user_location
from tensorexpr.op import Op, transforms
from tensorexpr.op.names import name_of, named, within
from tensorexpr.text import print_program

_KNOWN: dict[str, Any] = {}  # operators of this process by their texts
_MET: weakref.WeakValueDictionary[tuple[str, str], Op] = weakref.WeakValueDictionary()  # by the names of their functions
_LOCK = threading.Lock()
_STEPS = "vjp", "jvp", "batched"
_TRANSFORMS: dict[str, Callable[..., Op]] = {
    one.__name__: one for one in (transforms.vjp, transforms.grad, transforms.value_and_grad, transforms.jvp)
}


class Origin(NamedTuple):
    """Where an operator comes from: an op for arguments that nest as `trees`, static arguments, a target, and derivatives, in order."""

    operation: Op
    trees: Sequence[Any]
    static: Mapping[str, Any]
    target: str | None
    steps: tuple[tuple[Any, ...], ...] = ()


def meet(operation: Op) -> None:
    """Notes an op that torch may meet, under the name of its function: one that was made of a plain function is found by that."""
    while operation.derived is not None:
        operation = operation.derived[1][0]
    _MET[operation.__module__, getattr(operation, "__qualname__", operation.name)] = operation


def text_of(operator: Any, origin: Origin, at: Sequence[tuple[Any, str]], program: Any) -> str:
    """The text for an operator whose program was traced at these shapes and dtypes; it can be found by it from now on."""
    found = {
        "op": _reference(origin.operation),
        "static": {name: _value(value) for name, value in origin.static.items()},
        "arguments": list(origin.trees),
        "target": origin.target,
        "derived": [list(step) for step in origin.steps],
        "at": [[dtype, list(shape)] for shape, dtype in at],
        "program": _digest(program),
    }
    text = json.dumps(found, separators=(",", ":"))
    with _LOCK:
        _KNOWN.setdefault(text, operator)
    return text


def operator_of(text: str, make: Callable[[Op, Sequence[Any], dict[str, Any], str | None], Any]) -> Any:
    """The operator of a text. `make` gives that of an op, nesting arguments, static ones and a target.

    Raises `DefinitionError` where the op is not to be had in this process, or is another one than it was.
    """
    known = _KNOWN.get(text)
    if known is not None:
        return known
    try:
        said = json.loads(text)
        label, wanted = str(said["op"]["name"]), said["program"]
        at = [(tuple(shape), dtype) for dtype, shape in said["at"]]
        static = {name: _static(label, name, value) for name, value in said["static"].items()}
        operator = make(_operation(said["op"]), [_tree(tree) for tree in said["arguments"]], static, said["target"])
        for name, *masks in said["derived"]:
            if name not in _STEPS:
                raise KeyError(name)
            operator = getattr(operator, name)(*(tuple(map(bool, mask)) for mask in masks))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DefinitionError(
            f"torch.ops.tensorexpr: expected the definition of an operator, got {text[:80]!r}", location=user_location()
        ) from error
    try:
        same = _digest(operator.program_at(at)) == wanted
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TensorExprError, TypeError, ValueError):
        same = False
    if not same:
        raise DefinitionError(
            f"{label}: expected the operation that the graph was made with, got one that has changed since",
            location=user_location(),
            hint="export or compile again",
        )
    with _LOCK:
        return _KNOWN.setdefault(text, operator)


def _digest(program: Any) -> str:
    made = hashlib.blake2b(print_program(program).encode(), digest_size=16)
    for constant in program.constants:
        made.update(constant.data.tobytes() + b"\0")
    return made.hexdigest()


def _tree(said: Any) -> Any:
    return tuple(map(_tree, said)) if isinstance(said, list) else None


# ---------------------------------------------------------------------------------------------------- ops


def _reference(operation: Op) -> dict[str, Any]:
    """An op by name, or as what it was derived from."""
    if operation.derived is None:
        module, name = name_of(operation, operation.function) or (operation.__module__, getattr(operation, "__qualname__", operation.name))
        return {"module": module, "name": name}
    transform, (source, *wrt) = operation.derived
    return {"name": transform.__name__, "of": _reference(source), "wrt": [_value(tuple(w) if isinstance(w, list) else w) for w in wrt]}


def _operation(said: Any) -> Op:
    if "of" in said:
        made: Op = _TRANSFORMS[said["name"]](_operation(said["of"]), *(_static(said["name"], "wrt", wrt) for wrt in said["wrt"]))
        return made
    module, name = said["module"], said["name"]
    found = within(named(module, name)) if module in sys.modules else None
    if not isinstance(found, Op):
        found = _MET.get((module, name))
    if found is not None:
        return found
    there = "none of that name" if module in sys.modules else "no such module among those that are imported"
    raise DefinitionError(
        f"{name}: expected the operation that a graph names, {name} in the module {module}, got {there}",
        location=user_location(),
        hint="operations of graphs that are kept are found by name: define them at the top of a module"
        if module in sys.modules
        else f"import {module} before the graph runs",
    )


# ---------------------------------------------------------------------------------------------------- static arguments


def _value(value: Any) -> Any:
    """A static argument as JSON; one that has no such form by its type alone (what it does is part of the program's digest)."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is tuple:
        return {"tuple": [_value(item) for item in value]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}


def _static(label: str, name: str, said: Any) -> Any:
    match said:
        case {"float": digits}:
            return float.fromhex(digits)
        case {"tuple": items}:
            return tuple(_static(label, name, item) for item in items)
        case {"dtype": known}:
            return dtype(known)
        case {"type": kind}:
            raise DefinitionError(
                f"{label}: static argument {name}: expected a number, a text or a tuple of them in a graph from elsewhere, got a {kind}",
                location=user_location(),
                hint="values of other types are known in the process alone that made the graph",
            )
    return said
