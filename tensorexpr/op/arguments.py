"""Arguments of ops: weak Python floats, keys of static ones, and how arguments read in a message."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr.dtypes import DTYPES, promote
from tensorexpr.hints import article
from tensorexpr.language import Tensor
from tensorexpr.op.rules import type_text
from tensorexpr.op.specs import argument_error
from tensorexpr.op.trees import leaves, map_tree

_FLOATING = {d.name: d for d in DTYPES if d.is_float}


def weak_floats(trees: Sequence[Any]) -> list[Any]:
    """The trees with Python floats in the floating dtype that the other leaves promote to: a scalar is weak, as in NumPy.

    Where no other leaf is floating they stay as they are (and count as float64).
    """
    if not any(type(leaf) is float for leaf in leaves(trees)):
        return list(trees)
    named = (leaf.dtype.name for leaf in leaves(trees) if isinstance(leaf, (Tensor, np.ndarray, np.generic)))
    strong = [_FLOATING[name] for name in named if name in _FLOATING]
    if not strong:
        return list(trees)
    common = functools.reduce(promote, strong).numpy.type
    return [map_tree(lambda leaf: common(leaf) if type(leaf) is float else leaf, tree) for tree in trees]


def check_integer(operation: str, name: str, value: object, least: int = -(2**63), greatest: int = 2**64 - 1) -> None:
    """Raises `ArgumentError` for a Python integer that no array of integers holds."""
    if isinstance(value, int) and not least <= value <= greatest:
        kinds = "int64 holds" if greatest < 2**63 else "int64 or uint64 holds"
        raise argument_error(f"{operation}: argument {name}: expected an integer that {kinds}, got {value}")


def tree_text(tree: Any) -> str:
    """An argument as a message names it: dtype and shape of a tensor, a tuple of them of a tree."""
    if isinstance(tree, (tuple, list)):
        return f"({', '.join(tree_text(item) for item in tree)})"
    return type_text(tree) if isinstance(tree, Tensor) else repr(tree)


def static_key(name: str, value: object) -> object:
    """A key under which equal static arguments of equal types meet: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (tuple, tuple(static_key(name, item) for item in value))
    if isinstance(value, float):
        return (float, value.hex())
    try:
        hash(value)
    except TypeError:
        hint = "arrays are tensor arguments: make the parameter positional" if isinstance(value, np.ndarray) else None
        raise argument_error(f"static argument {name}: expected a hashable value, got {article(value)}", hint=hint) from None
    return (type(value), value)
