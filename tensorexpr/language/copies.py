"""Tensors in pickles: a graph of tensors is one list, read and written without recursion, and a tensor is one in each process.

A tensor is known by its key, which no process gives twice. So what one pickle has of several tensors, or several pickles of one, is the
same tensor where it is read, as long as somebody holds it; where it was made it is itself. Nobody writes to a tensor, so a copy is itself.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from tensorexpr.language.core.tensor import Tensor

KEPT = tuple(name for name in Tensor.__slots__ if name not in ("__weakref__", "_shape"))
"""What a tensor is made of; its shape follows."""
_known: WeakValueDictionary[str, Tensor] = WeakValueDictionary()
"""The tensors of this process that were written to a pickle or read from one, by key."""


class _Writer(pickle.Pickler):
    """Writes tensors as their numbers in a list, in which each comes behind those that it was met in."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self.numbers: dict[str, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        if obj.key not in self.numbers:
            self.numbers[obj.key] = len(self.tensors)
            self.tensors.append(obj)
        return self.numbers[obj.key]


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        return self.tensors[int(pid)]


def reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    """What a pickle has of a tensor: the keys of all tensors that it is made of, its own first, and what these are."""
    file = io.BytesIO()
    writer = _Writer(file)
    writer.persistent_id(tensor)
    for one in writer.tensors:  # grows while what they are made of is written
        writer.dump({name: getattr(one, name) for name in KEPT})
    _known.update((one.key, one) for one in writer.tensors)
    return restored, (tuple(one.key for one in writer.tensors), file.getvalue())


def restored(keys: tuple[str, ...], graph: bytes) -> Tensor:
    """The tensor of the first of some keys, made of the others: those that are here already, and new ones."""
    here = [_known.get(key) for key in keys]
    if here[0] is not None:
        return here[0]
    tensors = [Tensor.__new__(Tensor) if one is None else one for one in here]
    reader = _Reader(io.BytesIO(graph), tensors)
    for one, known in zip(tensors, here, strict=True):
        state = reader.load()
        if known is None:
            for name, value in state.items():
                setattr(one, name, value)
            one._shape = None
    for key, one in zip(keys, tensors, strict=True):
        _known[key] = one
    return tensors[0]


copyreg.pickle(Tensor, reduced)
