"""Transforms of ops: from an op its derivative, which is again an op, so it is called, composed and differentiated alike.

`vjp` pulls a head back to the inputs, `grad` and `value_and_grad` do so from a scalar output, `jvp` pushes tangents
forward. Static arguments pass through by name. What is differentiated is the op's function on tensors, so a gradient
rule of the op, or of an op inside it, is honored. A derivative by an argument holds the others and what the function
closes over, also where these are made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from tensorexpr.autodiff.api.gradient import gradient
from tensorexpr.autodiff.api.jvp import jvp as push_forward
from tensorexpr.autodiff.api.units import tensors_of
from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.hints import checked, suggestion
from tensorexpr.language import Tensor
from tensorexpr.language.core.tensor import fresh_key, number_of
from tensorexpr.op import Op, op
from tensorexpr.op.names import identity
from tensorexpr.op.trees import leaves, map_tree
from tensorexpr.traversal import fresh_name

Wrt = str | int | Sequence[str | int] | None

_MADE = "__tensorexpr_op__"
"""Where a plain function keeps the op that it makes."""


@checked()
def vjp(operation: Op, wrt: Wrt = None) -> Op:
    """The op `(*inputs, head) -> gradients`: the gradients of the inputs for a head of the output's shape and dtype.

    Gives a tuple with one gradient per floating input, or per input that `wrt` names (by name or position); a bare one
    where `wrt` is a single name. An op with several outputs takes a tuple of heads, one per floating output; an input
    that is a tuple has a tuple of gradients. Each gradient has the shape and dtype of its input; heads with one more axis in
    front are many heads at once, and give all gradients that axis.

    A plain function on tensors is taken as the op that it makes. Raises `DifferentiationError` for what is neither, outputs or `wrt`
    that are not floating, a name or position that the op does not have, and (when it is called) a head of another shape or dtype.

    >>> square = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * x[i]))
    >>> te.vjp(square)(np.array([1.0, 2.0]), np.ones(2))
    (array([2., 4.]),)
    """
    return _kept(as_op(operation, "vjp"), "vjp", wrt, _vjp)


def _vjp(operation: Op, wrt: Wrt) -> Op:
    name = f"vjp({operation.name})"
    head = fresh_name("head", {*operation.parameters, *operation.static})
    parameters, rest = _further(operation, (head,), "argument")

    def pulled(*arguments: Any, **static: Any) -> Any:
        _expect_more(name, arguments, 1)
        heads = arguments[-1]
        outputs, inputs = _composed(operation, arguments[:-1], static)
        return _gradients(name, operation, outputs, inputs, wrt, heads)

    heads = f"the heads of several outputs are one argument, a tuple: {_call(name, operation)}"
    lacking = f"{head} is the derivative by the result, of its shape and dtype; te.grad needs none for a scalar loss"
    return Op(
        pulled, name=name, parameters=parameters, rest=rest, static=operation.static, optional=operation.optional, surplus=heads,
        lacking=lacking, derived=(vjp, (operation, wrt)),
    )  # fmt: skip


def _call(name: str, operation: Op) -> str:
    """How the pullback of an op of several outputs is called."""
    return f"{name}({', '.join((*operation.parameters, '(head_0, head_1, ...)'))})"


@checked()
def grad(operation: Op, wrt: Wrt = None) -> Op:
    """The op `(*inputs) -> gradients` of a scalar output.

    One gradient for a single name or position in `wrt`, a tuple for several; by default all floating inputs (a bare
    gradient where there is only one). Each has the shape and dtype of its input.

    Raises `DifferentiationError` as `vjp` does, and (when it is called) for an output that is not a single floating scalar.

    >>> norm = te.op(lambda x: te.compute((), lambda: te.sum(lambda i: x[i] ** 2, x.shape[0])))
    >>> te.grad(norm)(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    return _from_scalar(operation, wrt, grad, lambda output, gradients: gradients)


@checked()
def value_and_grad(operation: Op, wrt: Wrt = None) -> Op:
    """The op `(*inputs) -> (value, gradients)` of a scalar output, with the gradients (and errors) as `grad` gives them.

    >>> norm = te.op(lambda x: te.compute((), lambda: te.sum(lambda i: x[i] ** 2, x.shape[0])))
    >>> value, slope = te.value_and_grad(norm)(np.array([1.0, 2.0]))
    >>> float(value), slope
    (5.0, array([2., 4.]))
    """
    return _from_scalar(operation, wrt, value_and_grad, lambda output, gradients: (output, gradients))


def _from_scalar(operation: Op, wrt: Wrt, transform: Callable[..., Op], result: Callable[[Tensor, Any], Any]) -> Op:
    name = transform.__name__
    return _kept(as_op(operation, name), name, wrt, lambda operation, wrt: _made_of_scalar(operation, wrt, transform, result))


def _made_of_scalar(operation: Op, wrt: Wrt, transform: Callable[..., Op], result: Callable[[Tensor, Any], Any]) -> Op:
    name = f"{transform.__name__}({operation.name})"

    def derived(*inputs: Any, **static: Any) -> Any:
        outputs, held = _composed(operation, inputs, static)
        output = _scalar(name, outputs)
        gradients = _gradients(name, operation, output, held, wrt, None)
        if wrt is None and len(gradients) == 1:
            gradients = gradients[0]
        return result(output, gradients)

    return Op(
        derived, name=name, parameters=operation.parameters, rest=operation.rest, static=operation.static, optional=operation.optional,
        derived=(transform, (operation, wrt)),
    )  # fmt: skip


def _scalar(name: str, outputs: Any) -> Tensor:
    flat = list(leaves(outputs))
    if len(flat) != 1 or flat[0].shape != () or not flat[0].dtype.is_float:
        got = ", ".join(f"{t.dtype.name}[{', '.join(map(str, t.shape))}]" for t in flat)
        hint = "te.vjp takes a head; te.jacobian gives all derivatives"
        if len(flat) == 1 and not flat[0].dtype.is_float:
            hint = 'integers have no derivatives: give arrays of floats, x.astype("float32")'
        raise _error(f"{name}: expected one floating scalar output, got {got}", hint=hint)
    return flat[0]


@checked()
def jvp(output: Any, wrt: Any = None, tangents: Any = None) -> Any:
    """Forward mode: `jvp(op)` is the op `(*inputs, *tangents) -> tangent`; `jvp(output, wrt, tangents)` is its form on tensors.

    Of an op there is one tangent per floating input, or per input that `wrt` names (by name or position), of its shape and dtype, and the
    result has one per floating output (bare if the op's output is), of that output's shape and dtype. Tangents with one more axis in
    front are many at once.

    A plain function on tensors is taken as the op that it makes. Raises `DifferentiationError` for what is neither, a name or position that
    the op does not have, and (when it is called) outputs that are not floating, a tangent that is missing or has another shape or dtype
    than its input.

    >>> square = te.op(lambda x: te.compute(x.shape, lambda i: x[i] * x[i]))
    >>> te.jvp(square)(np.array([1.0, 2.0]), np.ones(2))
    array([2., 4.])
    """
    if tangents is not None or isinstance(output, (Tensor, list, tuple)):
        return push_forward(output, wrt, tangents)  # pyright: ignore[reportArgumentType] which refuses None
    return _kept(as_op(output, "jvp"), "jvp", wrt, _jvp)


def _jvp(operation: Op, wrt: Wrt) -> Op:
    name = f"jvp({operation.name})"
    named = None if wrt is None else len(wrt) if isinstance(wrt, tuple | list) else 1

    def pushed(*arguments: Any, **static: Any) -> Any:
        inputs, tangents = _split_tangents(name, arguments, operation, named)
        outputs, inputs = _composed(operation, inputs, static)
        floating = [t for t in leaves(outputs) if t.dtype.is_float]
        if not floating:
            raise _error(f"{name}: expected a floating output, got none")
        chosen = range(len(inputs)) if wrt is None else _positions(name, operation, inputs, wrt)
        moved = [t for position in chosen for t in leaves(inputs[position]) if t.dtype.is_float]
        pushed = push_forward(floating, moved, list(leaves(tangents)))
        return _unflatten(outputs, iter(pushed))

    parameters, rest = _further(operation, (), "tangent")
    return Op(
        pushed, name=name, parameters=parameters, rest=rest, static=operation.static, optional=operation.optional,
        derived=(jvp, (operation, wrt)),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- in common


def _error(message: str, *, hint: str | None = None) -> DifferentiationError:
    return DifferentiationError(message, location=user_location(), hint=hint)


def _kept(operation: Op, transform: str, wrt: Wrt, make: Callable[[Op, Wrt], Op]) -> Op:
    """A transform of an op: the same op each time, so that what was compiled for it is found again."""
    key = (transform, type(wrt), tuple(wrt) if isinstance(wrt, list) else wrt)
    try:
        found = operation.transforms.get(key)
        if found is None:
            if wrt is not None and operation.rest is None:  # else it is known when it is called
                for item in wrt if isinstance(wrt, tuple | list) else (wrt,):
                    _position(f"{transform}({operation.name})", operation.parameters, item)
            found = operation.transforms.setdefault(key, make(operation, wrt))
    except TypeError:  # what cannot be a key is no name or position, and refused by those who look for it
        return make(operation, wrt)
    return found


def as_op(value: Any, transform: str) -> Op:
    """The op that `value` is, or makes as a plain function (the same each time); `DifferentiationError` for anything else."""
    if isinstance(value, Op):
        return value
    if isinstance(value, Tensor):
        raise _error(f"{transform}: expected a te.op, got a tensor", hint="te.gradient differentiates tensors")
    if callable(value):
        if not isinstance(value, FunctionType):
            return op(value)
        owner, made = value.__dict__.get(_MADE, (None, None))
        if made is None or owner is not value:  # what wraps a function has its dictionary
            made = op(value)
            value.__dict__[_MADE] = value, made
        return made
    raise _error(f"{transform}: expected a te.op, got {type(value).__name__}", hint="decorate the function with @te.op")


def _further(operation: Op, more: tuple[str, ...], stem: str) -> tuple[tuple[str, ...], str | None]:
    """Parameters of an op that takes `more` after those of `operation`, and the stem of a varying number of further ones."""
    if operation.rest is not None:
        return operation.parameters, operation.rest
    return (*operation.parameters, *more), None if more else fresh_name(stem, {*operation.parameters, *operation.static})


def _expect_more(name: str, arguments: Sequence[Any], number: int) -> None:
    if len(arguments) < number:
        raise _error(f"{name}: expected inputs and a head, got {len(arguments)} arguments")


def _split_tangents(name: str, arguments: Sequence[Any], operation: Op, named: int | None) -> tuple[Sequence[Any], Sequence[Any]]:
    """The inputs of an operation, those left out in their places, and tangents: so many as are `named`, else one per input that has
    floating leaves."""
    if named is not None:
        count = len(arguments) - named
        if count < 0:
            raise _error(f"{name}: expected inputs and {named} tangents, got {len(arguments)} arguments")
        return arguments[:count] if operation.rest is not None else operation.filled(arguments[:count]), arguments[count:]
    floating = [_is_floating(argument) for argument in arguments]
    number = len(operation.parameters)
    least, most = (number - len(operation.optional), number) if operation.rest is None else (0, len(arguments))
    for count in range(least, min(most, len(arguments)) + 1):
        if count + sum(floating[:count]) == len(arguments):
            inputs = arguments[:count]
            return inputs if operation.rest is not None else operation.filled(inputs), arguments[count:]
    wanted = "its inputs" if operation.rest is not None else f"{number} input{'' if number == 1 else 's'}"
    tangents = [f"{n}_tangent" for n, floats in zip(operation.parameters, floating, strict=False) if floats]
    got = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
    raise _error(
        f"{name}: expected {wanted} and one tangent per floating input, got {got}",
        hint=None if operation.rest is not None else f"{name}({', '.join((*operation.parameters, *tangents))})",
    )


def _is_floating(tree: Any) -> bool:
    return any(leaf.dtype.is_float for leaf in leaves(tree))


def _unflatten(tree: Any, values: Iterator[Tensor]) -> Any:
    """The floating leaves of a tree replaced by `values`, the others left out."""
    if isinstance(tree, tuple):
        return tuple(_unflatten(item, values) for item in tree if _is_floating(item))
    return next(values)


def _composed(operation: Op, inputs: Sequence[Any], static: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
    """The outputs, and the inputs by which these are differentiated: copies, where one is given twice or another tensor that was there
    before, a further input or one that the function closes over, is made of one. A derivative by an input holds all of them."""
    floating = [leaf for leaf in leaves(inputs) if leaf.dtype.is_float]
    keys, first = {leaf.key for leaf in floating}, number_of(fresh_key("first"))
    outputs = operation.compose(inputs, static)
    before = (t for t in tensors_of(list(leaves(outputs))).values() if number_of(t.key) < first)
    if len(keys) == len(floating) and all(keys.isdisjoint(source.key for source in t.sources) for t in before):
        return outputs, inputs
    copies = map_tree(lambda leaf: identity(leaf) if leaf.dtype.is_float else leaf, inputs)
    return operation.compose(copies, static), copies


def _gradients(name: str, operation: Op, outputs: Any, inputs: Sequence[Any], wrt: Wrt, heads: Any) -> Any:
    """The gradients of the outputs by the inputs that `wrt` means, in the form that it asks for."""
    chosen = _positions(name, operation, inputs, wrt)
    tensors = [leaf for position in chosen for leaf in leaves(inputs[position]) if leaf.dtype.is_float]
    floating = [t for t in leaves(outputs) if t.dtype.is_float]
    if not floating:
        raise _error(f"{name}: expected a floating output, got {next(leaves(outputs)).dtype.name}")
    flat_heads = None
    if heads is not None:
        flat_heads = list(leaves(heads))
        if len(flat_heads) != len(floating):
            raise _error(
                f"{name}: expected {len(floating)} heads, one per floating output, got {len(flat_heads)}",
                hint=f"as one argument, a tuple where there are several: {_call(name, operation)}",
            )
    found = iter(gradient(floating, tensors, flat_heads))
    trees = tuple(_unflatten(inputs[position], found) for position in chosen)
    return trees[0] if isinstance(wrt, (str, int)) else trees


def _positions(name: str, operation: Op, inputs: Sequence[Any], wrt: Wrt) -> list[int]:
    if wrt is None:
        chosen = [position for position, tree in enumerate(inputs) if _is_floating(tree)]
        if not chosen:
            raise _error(f"{name}: expected a floating input to differentiate by, got none")
        return chosen
    names = operation.argument_names(len(inputs))
    wanted: Any = (wrt,) if not isinstance(wrt, (tuple, list)) else wrt
    positions = []
    for item in wanted:
        position = _position(name, names, item)
        if not _is_floating(inputs[position]):
            raise _error(f"{name}: wrt: expected a floating input, got {names[position]} ({_dtypes(inputs[position])})")
        positions.append(position)
    return positions


def _position(name: str, names: Sequence[str], item: Any) -> int:
    """The place of an argument that is named, or given by its position."""
    position = names.index(item) if isinstance(item, str) and item in names else item
    if not isinstance(position, int) or not -len(names) <= position < len(names):
        raise _error(f"{name}: wrt: expected one of {', '.join(names) or 'none'}, or a position, got {item}", hint=suggestion(item, names))
    return position % len(names)


def _dtypes(tree: Any) -> str:
    return ", ".join(leaf.dtype.name for leaf in leaves(tree))
