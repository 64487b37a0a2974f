"""Trees: how arguments and results of ops nest. A tree is a leaf, or a tuple or list of trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: object) -> Iterator[Any]:
    """The leaves of nested tuples and lists, left to right."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def map_tree(function: Callable[[Any], Any], tree: object) -> Any:
    """The tree with `function` applied to every leaf; tuples and lists become tuples."""
    if isinstance(tree, (tuple, list)):
        return tuple(map_tree(function, item) for item in tree)
    return function(tree)


def rebuild(tree: object, values: Iterator[Any]) -> Any:
    """A tree of the same form, with its leaves taken from `values`."""
    return map_tree(lambda _: next(values), tree)
