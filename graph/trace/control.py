"""Branches and loops: `te.cond`, `te.while_loop`.

In a trace each is one node over graphs, traced where it stands: what the branches and bodies use of the function around them becomes an
operand (of a loop: a part of its state that stays as it is). Outside of a trace they are Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.graph.nodes.ir import Cond, While
from tensorexpr.graph.trace.tracing import Operation, Trace, as_tensor, current, truth
from tensorexpr.graph.trace.trees import HOLE, filled, form, is_array, leaves, map_tree
from tensorexpr.hints import checked
from tensorexpr.ir import TensorType
from tensorexpr.language import Tensor
from tensorexpr.text import print_type


@checked()
def cond(flag: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *arguments: Any) -> Any:
    """`then(*arguments)` where `flag` holds, else `otherwise(*arguments)`: only what is taken runs, with its effects and errors.

    `flag` is a scalar (not zero: true). Both give results of the same form, shapes and dtypes. Raises `DefinitionError` where they
    differ. A Python bool decides while tracing.

    >>> @te.function
    ... def halved(x):
    ...     return te.cond(x > 10.0, lambda v: v / 2.0, lambda v: v, x)
    >>> float(halved(np.float64(12.0))), float(halved(np.float64(4.0)))
    (6.0, 4.0)
    """
    trace = current()
    if trace is None or isinstance(flag, (bool, np.bool_)):
        return then(*arguments) if bool(flag) else otherwise(*arguments)
    decision = truth(flag, "te.cond")
    tensors = [as_tensor(leaf, "te.cond") for leaf in leaves(arguments) if _is_data(leaf)]
    ways = [_way(trace, name, way, arguments, tensors) for name, way in (("then", then), ("otherwise", otherwise))]
    (first, tree), (second, other) = ways
    if form(tree, lambda leaf: leaf is HOLE) != form(other, lambda leaf: leaf is HOLE):
        raise DefinitionError(
            f"te.cond: expected both ways to give results of one form, got {tree!r} and {other!r}",
            location=user_location(),
            hint="what only one way has (None, another tuple) cannot be told from outside",
        )
    for k, (a, b) in enumerate(zip(first.outputs, second.outputs, strict=True)):
        if a.extents != b.extents or a.dtype is not b.dtype:
            raise DefinitionError(
                f"te.cond: expected both ways to give results of one type, got {print_type(a.type)} and {print_type(b.type)}",
                location=user_location(),
                at=f"result {k}",
                hint="te.cast gives another dtype",
            )
    captured = list(dict.fromkeys((*first.captured(), *second.captured())))
    node = Cond("cond", (), (), then=first.graph(captured), otherwise=second.graph(captured))
    types = [("branch", output.type) for output in first.outputs]
    record = trace.note(node, [decision, *tensors, *captured], types)
    return filled(tree, iter(record.results))


def _is_data(leaf: Any) -> bool:
    return is_array(leaf) and not isinstance(leaf, bool)


def _way(trace: Trace, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], tensors: list[Tensor]) -> tuple[Trace, Any]:
    inner = Trace(f"{trace.name}_{name}")
    with inner.open():
        formals = iter([inner.formal(tensor.type, tensor.name) for tensor in tensors])
        given = map_tree(lambda leaf: next(formals) if _is_data(leaf) else leaf, arguments)
        return inner, returned(inner, function(*given))


def returned(trace: Trace, result: Any) -> Any:
    """Makes the data in what a function returned the outputs of its trace; gives its form."""
    outputs: list[Tensor] = []

    def output(leaf: Any) -> Any:
        if is_array(leaf) or hasattr(type(leaf), "__tensor__"):
            outputs.append(as_tensor(leaf, trace.name))
            return HOLE
        return None if isinstance(leaf, Operation) else leaf

    tree = map_tree(output, result)
    trace.outputs = outputs
    return tree


@checked()
def while_loop(condition: Callable[..., Any], body: Callable[..., Any], state: Any) -> Any:
    """The state after the last iteration: `body(*state)` gives the next state as long as `condition(*state)` holds.

    `state` is a tuple or list (whose items are the arguments) or one value; it keeps its form, shapes and dtypes. Effects of the body
    happen once in every iteration. Raises `DefinitionError` for a body that gives another state.

    >>> @te.function
    ... def log2(x):
    ...     return te.while_loop(lambda v, n: v > 1.0, lambda v, n: (v / 2.0, n + 1), (x, np.int64(0)))[1]
    >>> int(log2(np.float64(64.0)))
    6
    """
    several = isinstance(state, (tuple, list))
    trace = current()
    if trace is None:
        while bool(condition(*state) if several else condition(state)):
            state = body(*state) if several else body(state)
        return state
    arguments = tuple(state) if several else (state,)
    holes = map_tree(lambda leaf: HOLE, state)
    tensors = [as_tensor(leaf, "te.while_loop") for leaf in leaves(state)]
    tested, decision = _iteration(trace, "condition", condition, holes, several, tensors, len(arguments))
    if len(tested.outputs) != 1 or decision is not HOLE:
        raise DefinitionError(f"te.while_loop: expected the condition to give one scalar, got {decision!r}", location=user_location())
    with tested.open():
        tested.outputs = [truth(tested.outputs[0], "te.while_loop")]
    step, tree = _iteration(trace, "body", body, holes, several, tensors, len(arguments))
    got = [output.type for output in step.outputs]
    if form(tree, lambda leaf: leaf is HOLE) != form(holes, lambda leaf: True) or not _same(got, [t.type for t in tensors]):
        raise DefinitionError(
            f"te.while_loop: expected the body to give a state of {_types([t.type for t in tensors])}, got {_types(got)}",
            location=user_location(),
            hint="the state keeps its form, shapes and dtypes; te.cast gives another dtype",
        )
    captured = list(dict.fromkeys((*tested.captured(), *step.captured())))
    step.outputs += captured
    node = While("while", (), (), condition=tested.graph(captured), body=step.graph(captured))
    record = trace.note(node, [*tensors, *captured], [("state", tensor.type) for tensor in (*tensors, *captured)])
    return filled(holes, iter(record.results[: len(tensors)]))


def _iteration(
    trace: Trace, name: str, function: Callable[..., Any], holes: Any, several: bool, tensors: Sequence[Tensor], count: int
) -> tuple[Trace, Any]:
    inner = Trace(f"{trace.name}_{name}")
    with inner.open():
        given = filled(holes, iter([inner.formal(tensor.type, tensor.name) for tensor in tensors]))
        result = function(*given) if several else function(given)
        if several and count == 1 and not isinstance(result, (tuple, list)) and name == "body":
            result = type(holes)([result])
        if isinstance(result, (tuple, list)) and isinstance(holes, (tuple, list)) and name == "body" and not hasattr(holes, "_fields"):
            result = type(holes)(result)
        return inner, returned(inner, result)


def _same(a: list[TensorType], b: list[TensorType]) -> bool:
    return len(a) == len(b) and all(x == y for x, y in zip(a, b, strict=True))


def _types(types: list[TensorType]) -> str:
    return f"({', '.join(map(print_type, types))})"
