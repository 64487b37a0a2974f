"""Nodes: values that are told by what they hold, in time that does not grow with how often they are compared.

A node hashes once. Nodes that were found equal remember it, so equal programs that come again and again as keys are compared once and
then by identity. Comparing goes without recursion, and meets each pair of shared parts once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tensorexpr.records import fields, values_of


class Node:
    """Base of all IR nodes: structural equality over the compared fields, a hash that is made once: of those that nearly all end up as keys
    when they are made (`_remember_hash = __post_init__`), of others when it is asked for.

    Nodes found equal remember it: each points to a representative (an equal node, in the end one for all of them), so equal
    programs that come again and again as keys are compared once and then by identity. The free names of an expression, the
    tensors that it reads and its subexpressions are remembered, too (`traversal.free_names`, `traversal.tensors_read`, `traversal.walk`).
    """

    __slots__ = ("_below", "_equal_to", "_free", "_hash", "_tensors")
    _hash: int
    _equal_to: Node | None
    _below: tuple[Any, ...] | None
    _free: tuple[str, ...]
    _tensors: tuple[str, ...]

    def _key(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        return _compared(kind)(self)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._remember_hash()
            return self._hash

    def _remember_hash(self) -> None:
        """Makes the hash. Kinds may have one of their own, of less than what is compared."""
        kind = type(self)
        set_hash(self, hash((kind.__name__, (_KEYS.get(kind) or _key_of(kind))(self))))
        set_equal(self, None)

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        # Hashed here and below: what is compared has a hash, and so a place to remember what it is equal to.
        try:
            if self._hash != other._hash:
                return False
        except AttributeError:
            if hash(self) != hash(other):
                return False
        left, right = self, other
        while (node := left._equal_to) is not None:  # `_representative`, without calls: most comparisons end here
            left = node
        while (node := right._equal_to) is not None:
            right = node
        return left is right or _are_equal(left, right)

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for f, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, f.name, value)


def _representative(node: Node) -> Node:
    """The node at the end of what an equal one points to, of a node that has a hash."""
    while (other := node._equal_to) is not None:
        node = other
    return node


def _are_equal(first: Node, second: Node) -> bool:
    """Whether two nodes are written alike; those that are found equal remember it."""
    met: dict[tuple[int, int], tuple[Node, Node]] = {}  # each pair once: shared subtrees are not trees
    pending: list[tuple[Any, Any]] = [((first,), (second,))]
    while pending:  # without recursion: expressions are as deep as the user's sums are long
        for left, right in zip(*pending.pop()):
            if left is right:
                continue
            if isinstance(left, Node):
                if type(left) is not type(right):
                    return False
                try:  # of what has hashes, as nearly all has, without calls
                    if left._hash != right._hash:
                        return False
                except AttributeError:
                    if hash(left) != hash(right):
                        return False
                while (node := left._equal_to) is not None:
                    left = node
                while (node := right._equal_to) is not None:
                    right = node
                if left is not right and (id(left), id(right)) not in met:
                    met[id(left), id(right)] = (left, right)
                    key = _KEYS.get(type(left)) or _key_of(type(left))
                    pending.append((key(left), key(right)))
            elif type(left) is tuple and type(right) is tuple:
                if len(left) != len(right):
                    return False
                pending.append((left, right))
            elif left != right:
                return False
    for left, right in met.values():
        left, right = _representative(left), _representative(right)
        # Always from the greater identity to the lesser, so that threads that compare at once make no cycle.
        if id(left) > id(right):
            set_equal(left, right)
        elif id(left) < id(right):
            set_equal(right, left)
    return True


set_equal: Callable[[Node, Node | None], None] = vars(Node)["_equal_to"].__set__
set_hash: Callable[[Node, int], None] = vars(Node)["_hash"].__set__
_KEYS: dict[type[Node], Callable[[Any], tuple[Any, ...]]] = {}
"""What gives that by which nodes of a kind are told: without a call of `_key` where the kind has none of its own."""


def _key_of(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    found: Callable[[Any], tuple[Any, ...]]
    found = _KEYS[kind] = _compared(kind) if kind._key is Node._key else kind._key
    return found


@cache
def _compared(node: type[Node]) -> Callable[[object], tuple[Any, ...]]:
    return values_of(tuple(f.name for f in fields(node) if f.compare))
