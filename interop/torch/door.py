"""`as_torch`: from the arguments of a call (tensors, numbers, tuples of them, static arguments) to an operator and a list of tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tensorexpr.dtypes import promote
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import article
from tensorexpr.interop.operators import leaf_names, op_of
from tensorexpr.interop.torch.definitions import meet
from tensorexpr.interop.torch.dtypes import FROM_TORCH, TO_TORCH
from tensorexpr.interop.torch.operator import TorchOperator, of_op
from tensorexpr.op import Op
from tensorexpr.op.arguments import check_integer
from tensorexpr.op.trees import leaves, map_tree, rebuild

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_MAKING = threading.Lock()


class Door:
    """An op on torch tensors: the operator for each form of arguments and each choice of static ones.

    `plain` has those, by their number, for arguments that are tensors and nothing else, once there was such a call.
    """

    def __init__(self, operation: Op, target: str | None = None, autocast: torch.dtype | bool | None = None) -> None:
        self.operation = operation
        self.target = target
        self.autocast = autocast
        self._operators: dict[object, TorchOperator] = operation.kept.setdefault("torch", {})
        self.plain: dict[int, TorchOperator] = {}
        meet(operation)

    def call(self, *arguments: Any, **keywords: Any) -> Any:
        """The results for the arguments of a call."""
        return self.run(*self.operation.bind(arguments, keywords))

    def run(self, trees: Sequence[Any], static: dict[str, Any]) -> Any:
        """The results for bound arguments."""
        static = _fixed(static)
        operator, tensors = self.bound(trees, static)
        results = operator.call(tensors)
        if self.autocast is None and operator is not self.plain.get(len(trees)) and self._is_plain(trees, static):
            self.plain[len(trees)] = operator
        return nested(operator, tensors, results)

    def _is_plain(self, trees: Sequence[Any], static: dict[str, Any]) -> bool:
        """Whether a list of tensors says all that a call does."""
        return not any(isinstance(tree, (tuple, list)) for tree in trees) and not any(self.operation.static_key(static))

    def bound(self, trees: Sequence[Any], static: dict[str, Any]) -> tuple[TorchOperator, tuple[torch.Tensor, ...]]:
        """The operator and the flat list of tensors of bound arguments."""
        tensors, static = tuple(self._tensors(trees)), _fixed(static)
        form = map_tree(lambda _: None, trees)
        key = (form, tuple(self.operation.static_key(static)), self.target)
        with _MAKING:
            operator = self._operators.get(key)
            if operator is None:
                operator = self._operators[key] = of_op(self.operation, form, static, self.target)
        return operator, self._cast(tensors)

    def _tensors(self, trees: Sequence[Any]) -> list[torch.Tensor]:
        """The leaves as tensors: Python's numbers become 0-d ones, floats in the floating type of the others."""
        for name, tree in zip(self.operation.argument_names(len(trees)), trees, strict=True):
            # Meant as an array. (A tuple of numbers is a tree: heads of scalar outputs.)
            if isinstance(tree, list) and tree and all(isinstance(leaf, bool | int | float) for leaf in leaves(tree)):
                raise self._refused(name, tree)
        named = leaf_names(self.operation, trees)
        given = [leaf for _, leaf in named if isinstance(leaf, torch.Tensor)]
        device = given[0].device if given else torch.device("cpu")
        strong = [FROM_TORCH[t.dtype] for t in given if t.is_floating_point() and t.dtype in FROM_TORCH]
        common = TO_TORCH[functools.reduce(promote, strong)] if strong else torch.float64
        return [leaf if isinstance(leaf, torch.Tensor) else self._number(name, leaf, common, device) for name, leaf in named]

    def _number(self, name: str, leaf: object, floating: torch.dtype, device: torch.device) -> torch.Tensor:
        if isinstance(leaf, np.generic):
            leaf = np.asarray(leaf).item() if leaf.dtype.kind in "biuf" else leaf
        # Dynamo has symbols for numbers that change from one call to the next.
        if isinstance(leaf, torch.SymInt | torch.SymFloat):
            symbol: Any = leaf
            return torch.scalar_tensor(symbol, dtype=torch.int64 if isinstance(leaf, torch.SymInt) else floating, device=device)
        if isinstance(leaf, bool | int | float):
            kind = torch.bool if isinstance(leaf, bool) else torch.int64 if isinstance(leaf, int) else floating
            check_integer(self.operation.name, name, leaf, greatest=2**63 - 1)
            return torch.tensor(leaf, dtype=kind, device=device)
        raise self._refused(name, leaf)

    def _refused(self, name: str, value: object) -> ArgumentError:
        return ArgumentError(
            f"{self.operation.name}: argument {name}: expected a torch tensor, as others are, got {article(value)}",
            location=user_location(),
            hint=f"torch.as_tensor({name}) makes one" if isinstance(value, (np.ndarray, list)) else None,
        )

    def _cast(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Inside of an autocast region, the tensors in the type that the caller of `as_torch` chose."""
        if self.autocast is None or not tensors:
            return tensors
        kind = tensors[0].device.type
        if not torch.is_autocast_enabled(kind):
            return tensors
        chosen = torch.get_autocast_dtype(kind) if self.autocast is True else self.autocast
        assert isinstance(chosen, torch.dtype)
        castable = (torch.float16, torch.bfloat16, torch.float32)
        return tuple(tensor.to(chosen) if tensor.dtype in castable else tensor for tensor in tensors)


_SYMBOLS: dict[type, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def _fixed(static: dict[str, Any]) -> dict[str, Any]:
    """Static arguments with a number for what Dynamo has a symbol for, having seen it change: its graph is for this number then."""

    def one(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(one, value))
        return _SYMBOLS[type(value)](value) if type(value) in _SYMBOLS else value

    return {name: one(value) for name, value in static.items()}


def nested(operator: TorchOperator, tensors: tuple[torch.Tensor, ...], results: tuple[torch.Tensor, ...]) -> Any:
    """The results as the op nests them."""
    try:
        form = operator.forms[len(results)]
    except KeyError:
        # Batches and derivatives were computed, the operator itself never was.
        operator.outline(tensors)
        form = operator.forms[len(results)]
    if form is None:
        return results[0]
    return rebuild(form, iter(results)) if form else results


def as_torch(operation: Any, *, autocast: torch.dtype | bool | None = None, target: str | None = None) -> TorchFunction:
    """A function of torch tensors that computes an op (or plain function on `te` tensors), differentiable by torch in every way it
    knows: `f(*tensors, **static)`.

    Arguments are those of the op (tuples of tensors, static arguments by name, Python numbers for 0-d tensors), results nest as
    the op's. All tensors lie on one device, the CPU or a CUDA device, have any strides, and a dtype of the language.

    `autocast` says what happens inside of a `torch.autocast` region of that device: None: nothing, the op computes in the types of its
    arguments, which promote as they do outside; a dtype: arguments in float16, bfloat16 and float32 are cast to it first (float64
    and integers stay); True: the same with the dtype of the region. Gradients come back in the types of the arguments as given.
    `target="cuda"` compiles for a GPU whatever the device is: with TENSOREXPR_CUDA=host kernels for GPUs run on CPU tensors.

    `f.op` is the op, `f.overload(*tensors, **static)` the operator of torch's dispatcher that a call comes to, with the arguments
    that it gets, and `f.operator(*tensors, **static)` what computes it.
    Raises `DefinitionError` for what is no op; calls raise `ArgumentError` for arguments that do not fit.
    """
    operation = op_of(operation, "as_torch")
    if not (autocast is None or isinstance(autocast, bool) or (isinstance(autocast, torch.dtype) and autocast.is_floating_point)):
        raise ArgumentError(
            f"as_torch: argument autocast: expected None, a truth value or a floating dtype of torch, got {autocast!r}",
            location=user_location(),
        )
    if target not in (None, "cpu", "cuda"):
        raise ArgumentError(f"as_torch: argument target: expected None, 'cpu' or 'cuda', got {target!r}", location=user_location())
    return TorchFunction(Door(operation, target, None if autocast is False else autocast))


class TorchFunction(functools.partial[Any]):
    """An op as a function of torch tensors: see `as_torch`. Copies are the same function; it is pickled as its op and its options.

    A call enters a closure with nothing in between, which is what `functools.partial` does in C.
    """

    door: Door
    op: Op

    def __new__(cls, door: Door) -> TorchFunction:
        """The function of a door."""
        made = super().__new__(cls, _entered(door))
        made.door, made.op = door, door.operation
        vars(made)["__tensorexpr__"] = door.operation
        functools.update_wrapper(made, door.operation, updated=())
        return made

    def __repr__(self) -> str:
        return f"<as_torch {self.op!r}>"

    def __copy__(self) -> TorchFunction:
        return self

    def __deepcopy__(self, memo: Any) -> TorchFunction:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.op, self.door.autocast, self.door.target)

    def operator(self, *arguments: Any, **keywords: Any) -> TorchOperator:
        """What computes a call with these arguments, with the derivatives of it that were needed so far."""
        return self.door.bound(*self.op.bind(arguments, keywords))[0]

    def overload(self, *arguments: Any, **keywords: Any) -> Any:
        """The operator of torch's dispatcher that a call with these arguments comes to, and the arguments of that."""
        found, tensors = self.door.bound(*self.op.bind(arguments, keywords))
        return found.overload(tensors)


def _entered(door: Door) -> Callable[..., Any]:
    call, plain = door.call, door.plain.get

    def in_graph(*arguments: Any, **keywords: Any) -> Any:
        return call(*arguments, **keywords)

    def known() -> bool:
        """Tells Dynamo, which runs this while it traces, to take the function into its graph as it is."""
        torch.compiler.allow_in_graph(in_graph)
        return True

    known._dynamo_marked_constant = True  # type: ignore[attr-defined]  # functions take attributes
    traced = torch.compiler.is_dynamo_compiling

    def f(*arguments: Any, **keywords: Any) -> Any:
        if traced() and known():
            return in_graph(*arguments, **keywords)
        operator = None if keywords else plain(len(arguments))
        if operator is not None:
            for argument in arguments:
                kind = type(argument)
                if kind is not _Tensor and kind is not _Parameter:
                    break
            else:
                return nested(operator, arguments, operator.call(arguments))
        return call(*arguments, **keywords)

    return f


def _again(operation: Any, autocast: Any, target: str | None) -> TorchFunction:
    """What pickle calls to make a function of torch tensors of its op."""
    return as_torch(operation, autocast=autocast, target=target)


class _TorchHost:
    """Ops called on torch tensors: a function per op, which the op keeps."""

    def call(self, operation: Op, trees: list[Any], static: dict[str, Any], out: Any) -> Any:
        """The results as torch tensors."""
        if out is not None:
            raise ArgumentError(
                f"{operation.name}: expected no out with torch tensors, got {article(out)}",
                location=user_location(),
                hint="out.copy_(...) copies a result",
            )
        door = operation.kept.get("torch_door")
        if door is None:
            door = operation.kept["torch_door"] = Door(operation)
            operation.direct[_Tensor] = operation.direct[_Parameter] = TorchFunction(door).func
        return door.run(trees, static)


HOST = _TorchHost()
