"""How arguments and results of functions nest: tuples, lists, named tuples and dicts, whose leaves are tensors or anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tensorexpr.language import Tensor


def is_array(leaf: object) -> bool:
    """Whether a leaf is data: a tensor, an array or a number. Everything else is static."""
    return isinstance(leaf, (Tensor, np.ndarray, np.generic, bool, int, float))


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves, left to right; dicts in the order of their keys as given."""
    if isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    else:
        yield tree


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to every leaf; containers keep their types."""
    if isinstance(tree, dict):
        return {key: map_tree(function, item) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tree(function, item) for item in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tree(function, item) for item in tree)
    return function(tree)


def form(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """A hashable description: how the tree nests, with `leaf` of every leaf."""
    if isinstance(tree, dict):
        return (dict, tuple((key, form(item, leaf)) for key, item in tree.items()))
    if isinstance(tree, (tuple, list)):
        return (type(tree), tuple(form(item, leaf) for item in tree))
    return leaf(tree)


def filled(tree: Any, values: Iterator[Any]) -> Any:
    """The tree with its data leaves taken from `values`, its static leaves as they are."""
    return map_tree(lambda leaf: next(values) if leaf is HOLE else leaf, tree)


class _Hole:
    def __repr__(self) -> str:
        return "_"

    def __reduce__(self) -> str:
        return "HOLE"  # there is one, in copies and pickles, too


HOLE = _Hole()
"""Where a data leaf stands in a tree of results."""
