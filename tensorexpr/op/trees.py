"""Trees: how arguments and results of ops nest. A tree is a leaf, or a tuple or list of trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def stood_for(leaf: Any) -> Any:
    """The tensor or array that a leaf stands for: a variable is read, by its `__tensor__`."""
    return leaf.__tensor__() if hasattr(type(leaf), "__tensor__") else leaf


def form_of(trees: Sequence[Any]) -> tuple[object, ...]:
    """How the arguments nest: nothing where they are all plain."""
    return (map_tree(lambda _: None, trees),) if any(isinstance(tree, tuple) for tree in trees) else ()
