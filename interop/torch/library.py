"""Operators in torch's dispatcher: what torch.compile, torch.export and whoever traces a graph sees of them.

`torch.ops.tensorexpr.matmul(tensors, definition)` is the operation called matmul, `matmul_vjp_a` its gradient by `a`, and so on: names
are for people, and all have one schema. What is computed is in the definition, a text in the graph (`definitions`). So a graph that
another process made runs here if its operations are to be found, whatever was made before it, and caches that are keyed by graphs are safe.
A name is made an operator of torch when it is first asked for: kernels for CPU and CUDA, shapes for fake tensors, the
gradient (the derived operator, a node of its own, so that there are all orders), a rule for vmap, and how many operations a call has.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any

import torch
from torch._ops import _OpNamespace
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from tensorexpr.interop.torch.functions import batch

NAMESPACE = "tensorexpr"
SCHEMA = "(Tensor[] tensors, str definition) -> Tensor[]"
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_LOCK = threading.RLock()
_SUBCLASSES: dict[type, Callable[..., Any]] = {}
_DEFINED: list[str] = []


_TAKEN = frozenset((*dir(_OpNamespace(NAMESPACE)), "called"))


class Operators(_OpNamespace):
    """`torch.ops.tensorexpr`: every name in it is an operator. `find` gives our operator of a definition."""

    __module__ = _OpNamespace.__module__  # from which torch makes the names of operators

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__(NAMESPACE)
        self._find = find
        self._being_made: set[str] = set()

    def called(self, mark: str) -> Any:
        """The operator of operations of a name; graphs are Python text, in which `lambda` is none, and `name` is the namespace's."""
        word = mark.strip("_") or "operation"
        return getattr(self, f"op_{word}" if iskeyword(word) or word in _TAKEN else word)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not name.isidentifier():
            raise AttributeError(f"torch.ops.{NAMESPACE} has no operator {name}")
        with _LOCK:
            if name in self.__dict__:  # another thread was faster
                return self.__dict__[name]
            if name not in self._being_made:  # torch looks here while it makes one
                self._being_made.add(name)
                _define(name, self._find)
                packet = super().__getattr__(name)
                formula = register_flop_formula(packet, get_raw=True)(functools.partial(_operations, self._find))
                for mode in _get_current_dispatch_mode_stack():  # a counter at work has a copy of the formulas that there were
                    counter = getattr(mode, "counter", None)
                    if isinstance(counter, FlopCounterMode):
                        counter.flop_registry[packet] = formula
                return packet
            return super().__getattr__(name)


def _operations(find: Callable[[str], Any], tensors: Sequence[torch.Tensor], definition: str, *_: Any, **__: Any) -> int:
    """What FlopCounterMode counts for a call."""
    found: int = find(definition).operations(tensors)
    return found


def _define(name: str, find: Callable[[str], Any]) -> None:
    _LIBRARY.define(f"{name}{SCHEMA}", tags=(torch.Tag.pt2_compliant_tag,))

    def kernel(tensors: Sequence[torch.Tensor], definition: str) -> list[torch.Tensor]:
        given = tuple(tensors)
        return list(find(definition).kernel(given)(given))

    def fake(tensors: Sequence[torch.Tensor], definition: str) -> list[torch.Tensor]:
        device = tensors[0].device if tensors else "cpu"
        return [torch.empty(shape, dtype=type_, device=device) for shape, type_ in find(definition).shapes(tensors)]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:
        tensors, ctx.definition = inputs
        ctx.floating = tuple(one.is_floating_point() for one in output)
        ctx.save_for_backward(*tensors)

    def backward(ctx: Any, heads: Sequence[torch.Tensor | None]) -> Any:
        wanted = tuple(ctx.needs_input_grad[0])
        present = tuple(head is not None and floats for head, floats in zip(heads, ctx.floating, strict=True))
        if not any(present) or not any(wanted):
            return [None] * len(wanted), None
        seeds = [head for head, there in zip(heads, present, strict=True) if there]
        found = iter(find(ctx.definition).vjp(wanted, present).call((*ctx.saved_tensors, *seeds)))
        return [next(found) if want else None for want in wanted], None

    def vmap(info: Any, dims: tuple[Any, None], tensors: Sequence[torch.Tensor], definition: str) -> Any:
        found = batch(find(definition), tuple(dims[0]), tuple(tensors))
        return list(found), [0] * len(found)

    qualified = f"{NAMESPACE}::{name}"
    for key in ("CPU", "CUDA", "CompositeExplicitAutograd"):  # the last for operations without a tensor
        _LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    torch.library.register_autograd(qualified, backward, setup_context=setup_context, lib=_LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=_LIBRARY)
    for kind, rule in _SUBCLASSES.items():
        torch.library.register_torch_dispatch(qualified, kind, rule, lib=_LIBRARY)
    _DEFINED.append(qualified)


def rule_for(kind: type, compute: Callable[[Sequence[torch.Tensor], str], list[torch.Tensor]]) -> None:
    """What computes all operators, those to come as well, on a subclass of tensors: of the tensors and a definition."""

    def rule(cls: type, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[torch.Tensor]:
        return compute(*args)

    with _LOCK:
        _SUBCLASSES[kind] = rule
        for qualified in _DEFINED:
            torch.library.register_torch_dispatch(qualified, kind, rule, lib=_LIBRARY)
